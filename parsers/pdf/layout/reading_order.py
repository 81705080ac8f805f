"""Put the lines of a PDF page into reading order.

Invariants:
- Every word of the page is in exactly one line, or in one row of a table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from parsers.pdf.layout.baselines import Baseline
from parsers.pdf.layout.bidi import base_is_right_to_left
from parsers.pdf.layout.columns import page_regions
from parsers.pdf.layout.lines import Line, line_of
from parsers.pdf.layout.rules import Rule, upright
from parsers.pdf.layout.words import SKEWED, Angle, Word
from parsers.pdf.tables.finding import page_tables
from parsers.pdf.tables.unruled import find_table, free_strips
from parsers.pdf.tables.unruled_rows import table_lines


def page_lines(words: Sequence[Word], page: int, rules: Sequence[Rule] = ()) -> list[Line]:
    """Return the lines of a page in reading order, the main direction first.

    Args:
        words: all its words.
        page: its 1-based number.
        rules: the lines drawn on it, in page space.
    """
    weights: Counter[Angle] = Counter()
    for word in words:
        weights[word.angle] += len(word.text)
    lines: list[Line] = []
    columns = tables = 0
    for angle, _ in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
        drawn = upright(rules, angle) if angle != SKEWED else []
        found = page_tables([word for word in words if word.angle == angle], drawn, tables + 1)
        tables = max([tables, *(line.table for line in found.rows.values())])
        for region in page_regions(found.words):
            for line in _region_lines(region, found.rows, tables):
                line.column, line.page, line.angle = columns, page, angle
                lines.append(line)
                tables = max(tables, line.table)
            columns += 1
    return lines


def _region_lines(region: Sequence[Baseline], ready: Mapping[int, Line], tables: int) -> Iterator[Line]:
    """Yield the rows of a region as lines, or as rows of aligned tables."""
    left, right = min(row.x0 for row in region), max(row.x1 for row in region)
    turned = base_is_right_to_left([word.text for row in region for word in row.words])
    for part in _between(region, ready):
        if isinstance(part, Line):
            found = [part]
        else:
            found = list(_unruled(part, turned, tables))
            tables = max([tables, *(line.table for line in found)])
        for line in found:
            line.left, line.right = left, right
            if turned:
                line.mirror()
            yield line


def _between(region: Sequence[Baseline], ready: Mapping[int, Line]) -> Iterator[Line | list[Baseline]]:
    """Yield the table rows found before, and the printed rows between them."""
    part: list[Baseline] = []
    for row in region:
        known = [ready[word.order] for word in row.words if word.order in ready]
        others = [word for word in row.words if word.order not in ready]
        if others:
            part.append(Baseline(others, row.base, row.size) if known else row)
        if known:
            if part:
                yield part
            part = []
            yield from known
    if part:
        yield part


def _unruled(region: Sequence[Baseline], turned: bool, tables: int) -> Iterator[Line]:
    position = 0
    while position < len(region):
        table = find_table(region, position)
        band = region[position : table.end]
        tables += bool(table.strips)
        lines = table_lines(band, table, turned) if table.strips else [_plain(row, turned) for row in band]
        for line in lines:
            line.table = tables if table.strips else 0
            yield line
        position = table.end


def _plain(row: Baseline, turned: bool) -> Line:
    line = line_of(row, turned=turned)
    line.gaps = 0 if line.mono else len(free_strips(row))
    return line
