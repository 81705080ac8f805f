"""What the commands show to people; with ``--json`` none of this is used."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

_CONSOLE: Final = Console(highlight=False)
_LONGEST: Final = 20  # failures shown before the rest is only counted
_PREVIEW: Final = 280  # characters of a hit's text


def build(report: dict[str, Any]) -> None:
    """A build's report."""
    documents, chunks, work = report["documents"], report["chunks"], report["work"]
    if report["published"]:
        _say(f"Published revision {report['revision']} of {report['generation']}.")
    else:
        _say(f"Nothing changed: revision {report['revision']} of {report['generation']} stays published.")
    _say("documents  " + _pairs(documents))
    _say("chunks     " + _pairs(chunks))
    _say("work       " + _pairs(work))
    _say("seconds    " + ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in report["seconds"].items()))
    if report["truncated"]:
        _say(f"truncated  {report['truncated']:,} texts are over the embedder's limit: their ends are in no vector")
    for one in report["unknown"]:
        _say(
            f"warning    {one['key']}: the embedder does not know {one['share']:.0%} of its tokens, so its vectors "
            "say little; BM25 still finds it"
        )
    _failures(report["failures"])


def hits(answer: dict[str, Any], *, explain: bool) -> None:
    """The hits of a search."""
    if not answer["hits"]:
        _say("No hits.")
    for hit in answer["hits"]:
        _CONSOLE.print(Text(f"{hit['rank']:>2}  {hit['locator']}", style="bold"), soft_wrap=True)
        if explain:
            ranks = ", ".join(f"{channel} {rank or '-'}" for channel, rank in hit["ranks"].items())
            _say(f"    score {hit['score']:.4f}; rank by channel: {ranks}; {hit['key']} [{hit['start']}, {hit['end']})")
        if hit["note"]:
            _say(f"    note: {hit['note']}")
        text = " ".join(hit["text"].split())
        _say("    " + (text if len(text) <= _PREVIEW else text[:_PREVIEW].rsplit(" ", 1)[0] + " …"))
    if explain:
        _say(f"search {answer['seconds']['search'] * 1000:.0f} ms, start-up {answer['seconds']['start']:.1f} s")


def inspection(found: dict[str, Any]) -> None:
    """A document's tree and chunks."""
    document = found["document"]
    _say(f"{document['media_type']}, {document['status']}" + (f": {document['reason']}" if document["reason"] else ""))
    _say(f"title: {document['title'] or '(none)'}; {len(document['text']):,} characters")
    depths: list[int] = []
    for node in document["nodes"]:
        depths.append(depths[node["parent"]] + 1 if node["parent"] >= 0 else 0)
        out = f"  [left out: {node['left_out']}]" if node.get("left_out") else ""
        text = node.get("title") or " ".join(document["text"][node["start"] : node["end"]].split())[:60]
        _say(f"{'  ' * depths[-1]}{node['kind']} [{node['start']}, {node['end']}) {text}{out}")
    _say("")
    for number, chunk in enumerate(found["chunks"], 1):
        cut = f", cut: {chunk['cut']}" if chunk["cut"] else ""
        _say(f"chunk {number} [{chunk['start']}, {chunk['end']}) {chunk['tokens']} tokens{cut}  {chunk['locator']}")
        _say(chunk["text"])
        _say("")


def standing(found: dict[str, Any]) -> None:
    """What is published."""
    counts = found["counts"]
    _say(f"{found['index']}: revision {found['revision']} of {found['generation']}, published {found['created']}")
    _say(f"embedder   {found['embedder']} ({found['embedder_fingerprint'][:8]}, {found['dimension']} dimensions)")
    _say("holds      " + _pairs(counts) + f", {found['bytes'] / 1e6:.1f} MB on disk")
    _say("sources    " + ", ".join(f"{name}: {address}" for name, address in found["sources"].items()))
    _say("documents  " + _pairs(found["documents"]))
    _say("checks     " + "; ".join(f"{name}: {figure}" for name, figure in found["checks"].items()))
    _failures(found["failures"])


def evaluation(found: dict[str, Any]) -> None:
    """Recall by mode."""
    table = Table(title=f"{found['golden']}: recall by midpoint (full cover)")
    table.add_column("mode")
    table.add_column("n", justify="right")
    for depth in found["runs"][0]["recall"]:
        table.add_column(f"@{depth}", justify="right")
    for run in found["runs"]:
        cells = [f"{run['recall'][k]:.1%} ({run['full_recall'][k]:.1%})" for k in run["recall"]]
        table.add_row(run["mode"], str(run["n"]), *cells)
    _CONSOLE.print(table)
    for run in found["runs"]:
        _say(f"{run['mode']}: not all found in the first 5: {', '.join(run['missed_at_5']) or 'none'}")


def models(found: dict[str, Any]) -> None:
    """The models and where they lie."""
    for one in found["models"]:
        state = one["folder"] or one["problem"]
        _say(f"{one['name']:<32} {one['kind']:<9} {one['licence']:<12} {one['bytes'] / 1e6:>8.0f} MB  {state}")


def checks(found: dict[str, Any]) -> None:
    """What doctor found."""
    for one in found["checks"]:
        _say(f"{one['state']:<8} {one['name']:<28} {one['found']}")
        if one["remedy"]:
            _say(f"{'':<8} -> {one['remedy']}")


def _failures(failures: list[dict[str, Any]]) -> None:
    for one in failures[:_LONGEST]:
        _say(f"{one['status']:<10} {one['key']}: {one['reason']}")
    if len(failures) > _LONGEST:
        _say(f"           … and {len(failures) - _LONGEST} more (see --json)")


def _pairs(values: dict[str, int]) -> str:
    return ", ".join(f"{name} {value:,}" for name, value in values.items())


def _say(text: str) -> None:
    _CONSOLE.print(text, markup=False, soft_wrap=True)
