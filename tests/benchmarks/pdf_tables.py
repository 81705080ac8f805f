"""The share of whole rows read from tables in PDF files: per file, with seconds and pages a second.

    python tests/benchmarks/pdf_tables.py [--shared ../shared] [--peer] [--missed NAME]

A row is whole where all its cells stand in order, in one row of the output, empty ones in their places; white space is
folded. A header is known where the row that heads the table is marked as such. `--peer` asks pdfplumber with its
default settings (lines) and with its text strategy in place of Gristmill, where it is installed. The real files are
read in place and left out where they are missing.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from pdf_table_sets import samples  # noqa: E402

from parsers.pdf import adapter as pdf  # noqa: E402

Rows = list[tuple[str, ...]]
Reader = Callable[[bytes], tuple[Rows, Rows]]
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--peer", action="store_true", help="measure pdfplumber too")
    parser.add_argument("--missed", default="", help="print the rows missed in files whose name holds this")
    arguments = parser.parse_args()
    readers: dict[str, Reader] = {"gristmill": read}
    if arguments.peer:
        readers |= {"pdfplumber": plumber({}), "pdfplumber text": plumber(TEXT)}
    for name, reader in readers.items():
        print(f"\n{name}\n{'file':58} {'rows':>5} {'whole':>6} {'share':>6} {'head':>5} {'s':>6} {'MB':>5}")
        totals: Counter[str] = Counter()
        for label, data, rows, header in [*real(arguments.shared), *generated()]:
            begin = time.perf_counter()
            found, heads = reader(data)
            seconds = time.perf_counter() - begin
            missed = [row for row in rows if not _take(found, row)]
            whole = len(rows) - len(missed)
            known = "-" if not header else "yes" if _folded(header) in heads else "no"
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            share = whole / len(rows)
            print(f"{label:58} {len(rows):5} {whole:6} {share:6.1%} {known:>5} {seconds:6.2f} {peak:5}")
            group = label.partition("/")[0]
            totals[f"{group} rows"] += len(rows)
            totals[f"{group} whole"] += whole
            if arguments.missed and arguments.missed in label:
                print(*missed, sep="\n")
        for group in sorted({key.rpartition(" ")[0] for key in totals}):
            share = totals[f"{group} whole"] / totals[f"{group} rows"]
            print(f"{'all of ' + group:58} {totals[f'{group} rows']:5} {totals[f'{group} whole']:6} {share:6.1%}")


def _folded(cells: Iterable[str | None]) -> tuple[str, ...]:
    texts = [" ".join((cell or "").split()) for cell in cells]
    while texts and not texts[-1]:
        texts.pop()
    return tuple(texts)


def _take(found: Rows, row: Iterable[str]) -> bool:
    """Whether a row was read; each row of the output counts once."""
    folded = _folded(row)
    if folded in found:
        found.remove(folded)
        return True
    return False


def read(data: bytes) -> tuple[Rows, Rows]:
    """The rows of a file and those that are marked as headers."""
    document = pdf.parse(data)
    rows = [node for node in document.nodes if node.kind == "row"]
    texts = [(node.header, _folded(document.text[node.start : node.end].split(" |"))) for node in rows]
    return [text for _, text in texts], [text for header, text in texts if header]


TEXT = {"vertical_strategy": "text", "horizontal_strategy": "text"}


def plumber(how: dict[str, str]) -> Reader:
    """A reader that asks pdfplumber."""

    def ask(data: bytes) -> tuple[Rows, Rows]:
        import pdfplumber

        found: Rows = []
        with pdfplumber.open(io.BytesIO(data)) as file:
            for page in file.pages:
                found += [_folded(row) for table in page.extract_tables(how) for row in table]
                page.close()
        return found, []

    return ask


Labelled = tuple[str, bytes, list[list[str]], list[str]]


def generated() -> Iterator[Labelled]:
    for name, sample in samples():
        yield name, sample.data, sample.rows, sample.header


def real(shared: Path) -> Iterator[Labelled]:
    """The real files, with the rows that are right."""
    folder = shared / "realdocs" / "round2"
    truths = {
        "asvs-4.0.3-en.pdf": asvs,
        "ca-warn-report.pdf": layoffs,
        "nics-background-checks-2015-11-rotated.pdf": checks,
        "layout-parser-paper-with-table.pdf": models,
    }
    for name, truth in truths.items():
        if (folder / name).is_file():
            data = (folder / name).read_bytes()
            yield f"real/{name}", data, *truth(folder, data)
        else:
            print(f"left out, as it is missing: {folder / name}")


def asvs(folder: Path, _: bytes) -> tuple[list[list[str]], list[str]]:
    """The requirements of the standard by its own CSV; the header of most of its tables."""
    rows = []
    with (folder / "asvs-4.0.3-en.csv").open(encoding="utf-8-sig", newline="") as file:
        for entry in csv.DictReader(file):
            text = _LINK.sub(r"\1", entry["req_description"]).replace("`", "")
            levels = [entry[f"level{number}"] for number in (1, 2, 3)]
            rows.append([entry["req_id"][1:], text, *levels, entry["cwe"], entry["nist"]])
    return rows, ["#", "Description", "L1", "L2", "L3", "CWE"]


LAYOFF_EDGES = (28.6, 96.0, 163.0, 232.5, 429.3, 522.3, 605.3, 762.7)  # of the columns of the report, in points


def layoffs(folder: Path, data: bytes) -> tuple[list[list[str]], list[str]]:
    """The 633 notices of a report: PDFium's text within its columns, at the height of each date."""
    import pypdfium2 as pdfium

    rows: list[list[str]] = []
    for page in pdfium.PdfDocument(data):
        layer = page.get_textpage()
        for number in range(layer.count_rects()):
            left, bottom, _, top = layer.get_rect(number)
            first = layer.get_text_bounded(LAYOFF_EDGES[0], bottom, LAYOFF_EDGES[1], top).strip()
            if left > LAYOFF_EDGES[1] or not re.fullmatch(r"\d\d/\d\d/\d{4}", first):
                continue
            sides = pairwise(LAYOFF_EDGES)
            rows.append([layer.get_text_bounded(a + 1, bottom - 2, b - 1, top) for a, b in sides])
    assert len(rows) == 633, len(rows)
    return rows, ["Notice Date", "Effective", "Received", "Company", "City", "No. Of", "Layoff/Closure"]


def _unglued(figures: list[str]) -> list[str]:
    """21 figures as 22: the text layer sets two of them together, and the last one is the sum of the others."""

    def value(texts: list[str]) -> list[int]:
        return [int(text.replace(",", "")) for text in texts]

    for index, text in reversed(list(enumerate(figures[:5] if len(figures) == 21 else ()))):
        split = [*figures[:index], text[:-1], text[-1], *figures[index + 1 :]]
        if text[:-1].isdigit() and sum(value(split)[:-1]) == value(split)[-1]:
            return split
    return figures


def checks(folder: Path, data: bytes) -> tuple[list[list[str]], list[str]]:
    """One line of the text layer a state: its name and 24 figures, the two for rentals empty but in the totals."""
    import pypdfium2 as pdfium

    rows: list[list[str]] = []
    for line in pdfium.PdfDocument(data)[0].get_textpage().get_text_range().splitlines():
        match = re.fullmatch(r"([A-Z][A-Za-z ]+?) ([\d, ]+)", line.strip())
        if match is None:
            continue
        figures = match.group(2).split()
        if match.group(1) == "California":  # its thousands are parted by blanks
            figures = [" ".join(figures[at : at + 2]) for at in range(0, 8, 2)] + figures[8:-2] + ["180 116"]
        figures = _unglued(figures)
        if len(figures) == 22:
            figures[15:15] = ["", ""]
        if len(figures) == 24:
            rows.append([match.group(1), *figures])
    assert len(rows) == 56, len(rows)
    return rows, []


def models(folder: Path, data: bytes) -> tuple[list[list[str]], list[str]]:
    rows = [
        ["PubLayNet [38]", "F / M", "M", "Layouts of modern scientific documents"],
        ["PRImA [3]", "M", "-", "Layouts of scanned modern magazines and scientific reports"],
        ["Newspaper [17]", "F", "-", "Layouts of scanned US newspapers from the 20th century"],
        ["TableBank [18]", "F", "F", "Table region on modern scientific and business document"],
        ["HJDataset [31]", "F / M", "-", "Layouts of history Japanese documents"],
    ]
    return rows, ["Dataset", "Base Model1", "Large Model", "Notes"]


if __name__ == "__main__":
    main()
