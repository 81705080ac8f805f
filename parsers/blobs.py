"""Encoded data inside text: data URIs, base64 and source maps, which nobody searches for.

Invariants:
- A blob is a stretch of at least ``SHORTEST`` characters of one of three forms: a data URI without white space; base64
  (standard or URL alphabet) without white space, or in lines of one length; the mappings of a source map.
- What only resembles one stays: hexadecimal, DNA, numbers, paths, keys, names in camel case, words without spaces.
- Text beside a blob stays where it was; brackets and quotes that touch the blob belong to it, and so does a rest of its
  part in which there is no letter and no digit.
- Time is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:  # parsers/document.py calls this module
    from parsers.document import Node

BLOBS_VERSION: Final = 1  # raise when other stretches are taken for blobs; it is part of every adapter's fingerprint
SHORTEST: Final = 512  # characters

_DATA_URI: Final = re.compile(
    r"data:([\w.+-]{1,64}/[\w.+-]{1,64}|)((?:;[\w.+=%-]{1,80}){0,8}),[\w.+/=%~!*:@&$?#;,-]+", re.ASCII | re.IGNORECASE
)
_RUN: Final = re.compile(rf"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{{{SHORTEST},}}={{0,2}}")
_LINES: Final = re.compile(
    r"(?<![A-Za-z0-9+/_-])(?:[A-Za-z0-9+/_-]{60,128}(?:[ \t]*\n[ \t>]{0,16}| |\Z)){4,}+"  # a blank: a joined line
)
_LINE: Final = re.compile(r"[A-Za-z0-9+/_-]+")
_LAST_LINE: Final = re.compile(r"([A-Za-z0-9+/_-]{1,128}={0,2})(?=\s|\Z)")
_MAPPINGS: Final = re.compile(rf"(?<![A-Za-z0-9+/,;])[A-Za-z0-9+/,;]{{{SHORTEST},}}")
_GROUP: Final = re.compile(r"(?:[g-z0-9+/]{0,6}[A-Za-f]){4,5}|[g-z0-9+/]{0,6}[A-Za-f]")  # 1, 4 or 5 numbers in VLQ
_TOUCHING: Final = {"(": ")", "<": ">", '"': '"', "'": "'", "`": "`"}

_SAMPLE: Final = 2_000  # characters at the beginning, in the middle and at the end by which a long run is judged
_CASES, _DIGITS = 0.05, 0.01  # least share of capitals, of small letters, and of digits
_CHANGES: Final = 0.48  # least share of neighbouring characters that differ in kind; in camel case it is 0.40
_PADDED: Final = 0.6  # share of capitals that zero bytes cause, as in UTF-16; no words have as many
_PADDED_CHANGES: Final = 0.4  # the least share where they do
_MOST_SIGNS: Final = 0.15  # largest share of ``+/`` or ``-_``; in a path it is more
_GROUPS: Final = 0.95  # least share of a source map's groups that are valid


class Blob(NamedTuple):
    """``[start, end)`` in the text, and what it is."""

    start: int
    end: int
    name: str


def find_blobs(text: str) -> list[Blob]:
    """Return the blobs of a text in reading order, without overlap."""
    found = sorted([*_data_uris(text), *_base64(text), *_wrapped(text), *_source_maps(text)])
    apart: list[Blob] = []
    for blob in found:
        if not apart or blob.start >= apart[-1].end:
            apart.append(blob)
    return [_with_marks(text, blob) for blob in apart]


def leave_blobs_out(text: str, nodes: Sequence[Node]) -> tuple[list[Node], str]:
    """Return the nodes with each blob as a part of its own, left out of the index, and how many characters those hold.

    Args:
        nodes: a document's tree; parts that are left out already stay as they are.
    """
    blobs = find_blobs(text)
    if not blobs:
        return list(nodes), ""
    parents = {node.parent for node in nodes}
    made: list[Node] = []
    places: list[int] = []  # of each node, its index among those made
    sizes: Counter[str] = Counter()
    position = 0
    for index, node in enumerate(nodes):
        places.append(len(made))
        node = msgspec.structs.replace(node, parent=places[node.parent] if node.parent >= 0 else -1)
        low, high = node.extent
        if index in parents or low == high or node.left_out is not None:
            made.append(node)
            continue
        while position < len(blobs) and blobs[position].end <= low:
            position += 1
        inside: list[Blob] = []
        while position < len(blobs) and blobs[position].start < high:
            inside.append(blobs[position])
            if blobs[position].end > high:
                break  # it goes on in the next part
            position += 1
        made += _parted(text, node, inside) if inside else [node]
    for node in made:
        if node.kind == "blob":
            sizes[node.left_out or ""] += node.end - node.start
    return made, "; ".join(f"{name}: {size} characters" for name, size in sorted(sizes.items()))


def _parted(text: str, node: Node, blobs: Sequence[Blob]) -> Iterator[Node]:
    """Yield a leaf as what stands around its blobs, and the blobs."""
    low, high = node.extent
    bounds = [(max(low, blob.start), min(high, blob.end), blob.name) for blob in blobs]
    starts, ends = [low, *(end for _, end, _ in bounds)], [*(start for start, _, _ in bounds), high]
    bare = [not any(map(str.isalnum, text[start:end])) for start, end in zip(starts, ends, strict=True)]
    continued = node.continued
    for place, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if not bare[place]:
            yield msgspec.structs.replace(
                node,
                start=min(max(node.start, start), end),
                end=max(min(node.end, end), start),
                outer=(start, end),
                continued=continued,
            )
            continued = True
        if place < len(bounds):
            first = starts[place] if bare[place] else bounds[place][0]
            last = ends[place + 1] if bare[place + 1] and place + 1 == len(bounds) else bounds[place][1]
            yield type(node)(
                kind="blob",
                start=first,
                end=last,
                parent=node.parent,
                left_out=bounds[place][2],
                page=node.page,
                slide=node.slide,
                line=node.line,
            )


def _data_uris(text: str) -> Iterator[Blob]:
    for found in _DATA_URI.finditer(text):
        if found.end() - found.start() >= SHORTEST:
            yield Blob(found.start(), found.end(), f"data URI {found[1].lower()}".rstrip())


def _base64(text: str) -> Iterator[Blob]:
    for found in _RUN.finditer(text):
        if _mixed(text, *found.span()):
            yield Blob(*found.span(), "base64")


def _wrapped(text: str) -> Iterator[Blob]:
    """Base64 in lines of one length, the last one shorter, as mail, PEM and ``base64`` write it."""
    for found in _LINES.finditer(text):
        lines = list(_LINE.finditer(text, *found.span()))
        end = lines[-1].end()
        last = _LAST_LINE.match(text, found.end())
        if last and len(lines[-1][0]) == len(lines[0][0]) and len(last[1]) % 4 == 0:
            end = last.end(1)
        length = len(lines[0][0])
        same = length % 4 == 0 and all(len(line[0]) == length for line in lines[:-1])
        joined = "".join(line[0] for line in lines)
        signs = any(sign in joined for sign in "+/_-")  # a list of keys in letters and digits has none
        if same and signs and len(joined) >= SHORTEST and _mixed(joined, 0, len(joined)):
            yield Blob(lines[0].start(), end, "base64")


def _source_maps(text: str) -> Iterator[Blob]:
    for found in _MAPPINGS.finditer(text):
        groups = [group for group in re.split("[,;]+", found[0]) if group]
        if len(groups) * 12 < len(found[0]) - found[0].count(";"):
            continue
        valid = sum(bool(_GROUP.fullmatch(group)) for group in groups)
        if groups and valid >= _GROUPS * len(groups) and not found[0].isupper():
            yield Blob(*found.span(), "source map")


def _mixed(text: str, start: int, end: int) -> bool:
    """Return whether a run mixes its characters as base64 does."""
    middle = max(start, (start + end - _SAMPLE) // 2)
    spans = [(start, end)] if end - start <= 3 * _SAMPLE else [(a, a + _SAMPLE) for a in (start, middle, end - _SAMPLE)]
    run = "".join(text[a:b] for a, b in spans).rstrip("=")
    kinds = [_kind(character) for character in run]
    counts = Counter(kinds)
    length = len(run)
    if min(counts["A"], counts["a"]) < _CASES * length or counts["0"] < _DIGITS * length:
        return False
    if counts["+"] > _MOST_SIGNS * length or counts["-"] > _MOST_SIGNS * length or (counts["+"] and counts["-"]):
        return False
    pairs = [a != b for (a, b), (c, d) in zip(pairwise(kinds), pairwise(run), strict=True) if c != d]
    least = _PADDED_CHANGES if counts["A"] > _PADDED * length else _CHANGES
    return sum(pairs) >= least * len(pairs)


def _kind(character: str) -> str:
    if character.isdigit():
        return "0"
    if character.isalpha():
        return "A" if character.isupper() else "a"
    return "+" if character in "+/" else "-"


def _with_marks(text: str, blob: Blob) -> Blob:
    """Return a blob with the brackets or quotes that enclose it."""
    before, behind = text[blob.start - 1 : blob.start], text[blob.end : blob.end + 1]
    if before in _TOUCHING and before:
        closes = behind == _TOUCHING[before]
        return Blob(blob.start - 1, blob.end + closes, blob.name)
    return blob
