"""How much of real pages' articles is indexed, and how much of what is indexed is article.

Measure of the set ``bench/html-content`` (see its README): 4-grams of words of the true article and of what is indexed
(the parts that are not left out), as multisets; precision and recall per page, averaged over the pages; F1 of the
averages. Run: ``python -m tests.benchmarks.html_content SHARED [--pages]``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Final

from parsers.document import Document, leaves, left_out
from parsers.registry import read

_WORD: Final = re.compile(r"\w+")
_GRAM: Final = 4


def main() -> None:
    """Print precision, recall and F1, and with ``--pages`` those of every page, the worst recall first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path, help="folder with bench/html-content")
    parser.add_argument("--pages", action="store_true", help="print every page too")
    given = parser.parse_args()
    folder = given.shared / "bench/html-content"
    truth = json.loads((folder / "ground-truth.json").read_text())
    scores = {}
    for name, page in truth.items():
        data = gzip.decompress((folder / "html" / f"{name}.html.gz").read_bytes())
        scores[name] = precision_recall(page["articleBody"], indexed(read("page.html", data)))
    if given.pages:
        for name, (precision, recall) in sorted(scores.items(), key=lambda item: item[1][1]):
            print(f"{name[:12]}  precision {precision:.3f}  recall {recall:.3f}  {truth[name]['url'][:80]}")
    precision = sum(one for one, _ in scores.values()) / len(scores)
    recall = sum(one for _, one in scores.values()) / len(scores)
    print(f"{len(scores)} pages: precision {precision:.3f}, recall {recall:.3f}, F1 {f1(precision, recall):.3f}")


def indexed(document: Document) -> str:
    """The text of the parts that are not left out."""
    reasons = left_out(document)
    kept = (document.nodes[index].extent for index in leaves(document) if reasons[index] is None)
    return "\n".join(document.text[slice(*extent)] for extent in kept)


def precision_recall(truth: str, found: str) -> tuple[float, float]:
    """Share of the found 4-grams that are true, and of the true ones that were found; 1 where there are none."""
    right, ours = _grams(truth), _grams(found)
    both = sum((right & ours).values())
    return both / max(1, sum(ours.values())) if ours else 1.0, both / max(1, sum(right.values())) if right else 1.0


def f1(precision: float, recall: float) -> float:
    """Harmonic mean of the two; 0 where both are."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _grams(text: str) -> Counter[tuple[str, ...]]:
    words = _WORD.findall(text)
    if 0 < len(words) < _GRAM:
        return Counter([tuple(words)])
    return Counter(zip(*(words[start:] for start in range(_GRAM)), strict=False))


if __name__ == "__main__":
    main()
