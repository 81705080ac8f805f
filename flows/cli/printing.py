"""What the commands show to people; with ``--json`` none of this is used."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.report import KEPT, exclude_line

_CONSOLE: Final = Console(highlight=False)
_LONGEST: Final = 20  # failures shown before the rest is only counted
_PREVIEW: Final = 280  # characters of a hit's text
_DEPTHS: Final = ("1", "5", "10", "20", "50")
_KEY: Final = 60  # characters of a hit's key shown whole
_COPIES: Final = 3  # copies of a hit shown before the rest is only counted


def print_build(report: dict[str, Any], exclude: Sequence[str] = ()) -> None:
    """Print a build's report.

    Args:
        exclude: the setting of that name.
    """
    documents, chunks, work = report["documents"], report["chunks"], report["work"]
    if report["published"]:
        print_line(f"Published revision {report['revision']} of {report['generation']}.")
    else:
        print_line(f"Nothing changed: revision {report['revision']} of {report['generation']} stays published.")
    print_line("documents  " + _pairs(documents))
    print_line("chunks     " + _pairs(chunks))
    print_line("work       " + _pairs(work))
    if any(report["notes"].values()):
        print_line("notes      " + _pairs({name.replace("_", " "): count for name, count in report["notes"].items()}))
    print_line("seconds    " + ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in report["seconds"].items()))
    if report["notes_by_section"]:
        print_line(f"           {report['notes_by_section']:,} documents are too long to stand in their prompts")
    if report["notes_narrowed"]:
        print_line(
            f"           {report['notes_narrowed']:,} notes are from narrower windows: the LLM's context holds no more"
        )
    if report["truncated"]:
        print_line(
            f"truncated  {report['truncated']:,} texts are over the embedder's limit: their ends are in no vector"
        )
    for one in report["unknown"]:
        print_line(
            f"warning    {one['key']}: the embedder does not know {one['share']:.0%} of its tokens, so its vectors "
            "say little; BM25 still finds it"
        )
    for key in report["unknown_keys"]:
        print_line(f"warning    {key}: neither the source nor the index knows such a document")
    for rule in report["unmatched_rules"]:
        print_line(f"warning    the label rule with {rule} matches no document: nothing gets its labels")
    _failures(report["failures"])
    _skipped(report["skipped"], exclude)


def print_hits(answer: dict[str, Any], *, explain: bool) -> None:
    """Print the hits of a search."""
    if not answer["hits"]:
        print_line("No hits.")
    for hit, place in zip(answer["hits"], places(answer["hits"]), strict=True):
        _CONSOLE.print(Text(f"{hit['rank']:>2}  {place}", style="bold"), soft_wrap=True)
        if explain:
            ranks = ", ".join(f"{channel} {rank or '-'}" for channel, rank in hit["ranks"].items())
            print_line(
                f"    score {hit['score']:.4f}; rank by channel: {ranks}; {hit['key']} [{hit['start']}, {hit['end']})"
            )
            if hit["rerank_score"] is not None:
                print_line(f"    reranker's score {hit['rerank_score']:.4f}")
        if hit["note"]:
            print_line(f"    note: {hit['note']}")
        text = " ".join(hit["text"].split())
        print_line("    " + (text if len(text) <= _PREVIEW else text[:_PREVIEW].rsplit(" ", 1)[0] + " …"))
        for copy in hit["also"][:_COPIES]:
            print_line(f"    also: {copy['key']} {copy['locator']}")
        if len(hit["also"]) > _COPIES:
            print_line(f"    … and {len(hit['also']) - _COPIES} more with this text (see --json)")
        if "section" in hit:
            _section(hit["section"])
    if explain:
        print_line(f"search {answer['seconds']['search'] * 1000:.0f} ms, start-up {answer['seconds']['start']:.1f} s")


def places(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return where each hit stands: its locator, with as much of the key as tells it from the other hits.

    A long key is cut from the left, at a slash.
    """
    keys = {hit["key"] for hit in found}
    shown = []
    for hit in found:
        name = hit["key"].rsplit("/", 1)[-1]
        own = _short_key(hit["key"], keys)
        if hit["locator"] == name or hit["locator"].startswith(f"{name} "):
            shown.append(own + hit["locator"][len(name) :])
        elif any(one["locator"] == hit["locator"] and one["key"] != hit["key"] for one in found):
            shown.append(f"{hit['locator']} ({own})")  # a citation of the work's own
        else:
            shown.append(hit["locator"])
    return shown


def _short_key(key: str, keys: Collection[str]) -> str:
    """Return a key as it is where it is short, otherwise its end, by which it differs from the others."""
    start = 0
    while len(key) - start > _KEY:
        slash = key.find("/", start)
        if slash < 0 or sum(one.endswith(key[slash:]) for one in keys) > 1:
            break
        start = slash + 1
    return f"…/{key[start:]}" if start else key


def print_inspection(found: dict[str, Any]) -> None:
    """Print a document's tree and chunks."""
    document = found["document"]
    print_line(
        f"{document['media_type']}, {document['status']}" + (f": {document['reason']}" if document["reason"] else "")
    )
    print_line(f"title: {document['title'] or '(none)'}; {len(document['text']):,} characters")
    depths: list[int] = []
    for node in document["nodes"]:
        depths.append(depths[node["parent"]] + 1 if node["parent"] >= 0 else 0)
        out = f"  [left out: {node['left_out']}]" if node.get("left_out") else ""
        text = node.get("title") or " ".join(document["text"][node["start"] : node["end"]].split())[:60]
        print_line(f"{'  ' * depths[-1]}{node['kind']} [{node['start']}, {node['end']}) {text}{out}")
    print_line("")
    for number, chunk in enumerate(found["chunks"], 1):
        cut = f", cut: {chunk['cut']}" if chunk["cut"] else ""
        print_line(
            f"chunk {number} [{chunk['start']}, {chunk['end']}) {chunk['tokens']} tokens{cut}  {chunk['locator']}"
        )
        print_line(chunk["text"])
        print_line("")


def print_status(found: dict[str, Any], exclude: Sequence[str] = ()) -> None:
    """Print what is published.

    Args:
        exclude: the setting of that name.
    """
    counts = found["counts"]
    print_line(
        f"{found['index']}: revision {found['revision']} of {found['generation']}, published {found['created'][:19]} "
        f"by {found['made_by']}"
    )
    if found["held"]:
        print_line(f"HELD       {found['held']}; builds publish again after `gristmill rollback --release`")
    print_line(f"embedder   {found['embedder']} ({found['embedder_fingerprint'][:8]}, {found['dimension']} dimensions)")
    print_line("holds      " + _pairs(counts) + f", {found['bytes'] / 1e6:.1f} MB on disk")
    print_line("sources    " + ", ".join(f"{name}: {address}" for name, address in found["sources"].items()))
    print_line("documents  " + _pairs(found["documents"]))
    print_line("checks     " + "; ".join(f"{name}: {figure}" for name, figure in found["checks"].items()))
    _failures(found["failures"])
    _skipped(found["skipped"], exclude)


def print_evaluation(found: dict[str, Any]) -> None:
    """Recall by mode and variant, what it means, and what changed."""
    golden, index = found["golden"], found["index"]
    print_line(
        f"{golden['path']}: {golden['answerable']} questions with an answer, {golden['unanswerable']} without, "
        f"{len(golden['stale'])} stale; {index['chunks']:,} chunks of {found['runs'][0]['mean_tokens']:.0f} tokens"
    )
    variants = list(dict.fromkeys(run["variant"] for run in found["runs"]))
    for variant in variants:
        runs = [run for run in found["runs"] if run["variant"] == variant]
        _CONSOLE.print(_curves(f"{variant}: recall by midpoint, in %", runs, found["least_questions"]))
    for line in found["reading"]:
        print_line(line)
    for run in found["runs"] if len(variants) == 1 else []:
        print_line(f"{run['mode']}: not all found in the first 5: {_names(run['missed_at_5'])}")
        if run["separation"] is not None:
            print_line(
                f"{run['mode']}: top scores tell answerable questions from others in {run['separation']:.0%} of pairs"
            )
    for name, reason in golden["stale"].items():
        print_line(f"stale      {name}: {reason}")
    if found.get("documents_changed"):
        print_line("Documents have changed since: compared are the questions that require the same words in both.")
    for name, one in (found.get("comparison") or {}).items():
        chance = f"p = {one['p']:.3f}" if one["n"] >= found["least_questions"] else "too few to tell from chance"
        print_line(
            f"{name} against {found['against']}, at 10: {one['difference'] * 100:+.1f} points over {one['n']} "
            f"questions, {chance}; won: {_names(one['won'])}; lost: {_names(one['lost'])}"
        )
    print_line(f"record     {found['record'] or 'not kept: ' + found['not_kept']}")


def _curves(title: str, runs: list[dict[str, Any]], few: int) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("mode")
    for name in (*(f"@{depth}" for depth in _DEPTHS), "@10 lies in", "full @10", "MRR"):
        table.add_column(name, justify="right")
    for run in runs:
        cells = [f"{run['recall'][depth] * 100:.1f}" for depth in _DEPTHS]
        cells += [_interval(run, few), f"{run['full_recall']['10'] * 100:.1f}", f"{run['mrr']:.2f}"]
        table.add_row(run["mode"], *cells)
    return table


def _interval(run: dict[str, Any], few: int) -> str:
    """Return where recall at 10 lies, as far as the questions tell: not where they are few or all came out alike."""
    low, high = run["intervals"]["10"]
    if run["n"] < few:
        return "too few"
    return f"{low * 100:.0f}-{high * 100:.0f}" if low < high else "-"


def print_golden_check(found: dict[str, Any]) -> None:
    """Print the problems of a golden set."""
    print_line(f"{found['golden']}: {found['answerable']} questions with an answer, {found['unanswerable']} without")
    print_line("categories " + _pairs(found["by_category"]))
    print_line("kinds      " + _pairs(found["by_kind"]))
    for one in found["errors"]:
        print_line(f"error      {one['id']}: {one['what']}: {one['why']}")
    for one in found["warnings"]:
        print_line(f"warning    {one['id']}: {one['what']}: {one['why']}")
    if not found["errors"] and not found["warnings"]:
        print_line("Nothing is wrong with it.")


def print_golden_added(found: dict[str, Any]) -> None:
    """Print a question that was added."""
    added = found["added"]
    print_line(f"{added['id']} written to {found['golden']}: {added['question']}")
    for span in added["spans"]:
        print_line(f"  answered by {span['doc']}: {' '.join(span['quote'].split())[:_PREVIEW]}")
    if not added["spans"]:
        print_line("  without an answer in the documents")


def print_plan(found: dict[str, Any], exclude: Sequence[str] = ()) -> None:
    """Print what a build would do.

    Args:
        exclude: the setting of that name.
    """
    documents, work = found["documents"], found["work"]
    print_line(f"documents  {_pairs(documents)}")
    print_line(f"work       {_pairs(work)} (from notes on: estimates from a sample)")
    print_line("seconds    " + ", ".join(f"{stage} {seconds:,.1f}" for stage, seconds in found["seconds"].items()))
    measured = ", ".join(found["measured"])
    print_line(
        f"rates      {f'measured here: {measured}' if measured else 'none measured here yet: those of two cores'}"
    )
    print_line(f"corpus     about {found['tokens']:,} tokens")
    if found["fits_a_prompt"]:
        print_line("           That fits into a long prompt whole: an index may not be needed for it at all.")
    _skipped(found["skipped"], exclude)
    for step in found["steps"]:
        print_line(f"{step['do']:<10} {step['key']}")
    more = sum(documents[name] for name in ("add", "look", "renew", "retry", "reread", "remove")) - len(found["steps"])
    if more > 0:
        print_line(f"           … and {more:,} more")
    if found["kept"]:
        print_line(f"kept       {found['kept']}; build by it: gristmill build --replay {found['kept']}")


def print_revisions(found: dict[str, Any]) -> None:
    """Print the kept revisions."""
    for one in found["revisions"]:
        mark = "*" if one["revision"] == found["published"] else " "
        print_line(
            f"{mark} {one['revision']:>5}  {one['generation']}  {one['created'][:19]}  by {one['made_by']:<8} "
            f"{one['counts']['documents']:,} documents, {one['counts']['chunks']:,} chunks, {one['embedder']}"
        )
    for one in found["damaged"]:
        print_line(f"! {one['revision']:>5}  its record is damaged: {one['problem']}. `gristmill repair` gives it up.")
    if found["held"]:
        print_line(f"Publishing is held: {found['held']}. Release it: gristmill rollback --release")


def print_rolled_back(found: dict[str, Any]) -> None:
    """Where readers are now."""
    if found["held"]:
        gone = found["deleted_since"]
        less = f", without {len(gone)} documents deleted since" if gone else ""
        print_line(f"Readers see what revision {found['content_of']} held{less}, as revision {found['revision']}.")
        if gone:
            print_line(f"deleted    {_names(gone)}")
        print_line("Publishing is held until `gristmill rollback --release`.")
    else:
        print_line("Released: the next build publishes again.")


def print_swept(found: dict[str, Any]) -> None:
    """Print what a sweep removed."""
    if "keys" in found:
        print_erased(found)
    if found["revisions_given_up"]:
        print_line(f"revisions  given up: {', '.join(str(one) for one in found['revisions_given_up'])}")
    print_line(f"forgotten  {_pairs(found['forgotten'])}")
    if "bytes" in found:
        before, after = found["bytes"]["before"], found["bytes"]["after"]
        print_line(f"disk       {before / 1e6:,.1f} MB before, {after / 1e6:,.1f} MB now")


def print_erased(found: dict[str, Any]) -> None:
    """Print what was erased, and where it was found."""
    for one in found["found"]:
        numbers = ", ".join(map(str, one["revisions"]))
        print_line(f"{one['key']} of source {one['source']} stood in the revisions {numbers}; it is erased.")
    for one in found["nowhere"]:
        print_line(
            f"{one}: no kept revision named it. What earlier revisions and killed builds left was removed all the same."
        )
    if found["resumed"]:
        print_line(f"An earlier erasure that was killed is finished: {', '.join(found['resumed'])}")
    if found["revision"]:
        print_line(f"Revision {found['revision']} is published, the only one that is kept.")
    print_line("If a source still holds any of it, exclude it there: the next build would take it in again.")


def print_verified(found: dict[str, Any]) -> None:
    """Print the findings of a verification."""
    for one in found["revisions"]:
        print_line(f"revision {one['revision']} of {one['generation']}: {one['checked']:,} rows read")
        for finding in one["findings"]:
            kind = "FAULT" if finding["fault"] else "hint"
            names = f" ({', '.join(finding['examples'])})" if finding["examples"] else ""
            print_line(f"  {kind:<6} {finding['count']:,} {finding['what']}{names}")
            print_line(f"         -> {finding['remedy']}")
    print_line("Nothing is wrong with it." if found["whole"] else "It is not whole.")


def print_repaired(found: dict[str, Any]) -> None:
    """Print what a repair did."""
    if found["probes"]:
        print_line("The probes by which runtimes prove themselves were made again.")
    if "revision" in found:
        print_line(
            f"Revision {found['revision']} is published: {found['renewed']} documents made again, {found['removed']} "
            "taken out till the next build fetches them."
        )
    elif not found["repaired"] and not found["probes"]:
        print_line("Nothing is wrong with it; nothing was done.")
    else:
        print_line("Nothing else is wrong with it.")


def _section(section: dict[str, Any] | None) -> None:
    if section is None:
        print_line("    section: not known; the parsed document is no longer remembered, build again")
        return
    print_line(f"    section [{section['start']}, {section['end']}):")
    for line in section["text"].strip("\n").split("\n"):
        print_line(f"      {line}".rstrip())


def _failures(failures: list[dict[str, Any]]) -> None:
    """Documents that are not wholly in the index; skipped ones only where an earlier version of theirs is in it."""
    named = [one for one in failures if one["status"] != "skipped" or KEPT in one["reason"]]
    for one in named[:_LONGEST]:
        print_line(f"{one['status']:<10} {one['key']}: {one['reason']}")
    if len(named) > _LONGEST:
        print_line(f"           … and {len(named) - _LONGEST} more (see --json)")


def _skipped(types: list[dict[str, Any]], exclude: Sequence[str]) -> None:
    """One line a type of files that are not read, with the line of the settings file that leaves them out."""
    for one in types:
        many = f"{one['documents']:,} files {one['type']}, such as {one['example']}"
        what = many if one["type"] != one["example"] else one["example"]
        print_line(f"skipped    {what}: not read. To leave them out: {exclude_line([one['exclude']])}")
    if types and (exclude or len(types) > 1):
        print_line(f"           all of them: {exclude_line([*exclude, *(one['exclude'] for one in types)])}")


def _names(names: list[str]) -> str:
    """Return the first few of them, and how many more there are."""
    more = f" and {len(names) - _LONGEST} more" if len(names) > _LONGEST else ""
    return ", ".join(names[:_LONGEST]) + more if names else "none"


def _pairs(values: dict[str, int]) -> str:
    return ", ".join(f"{name} {value:,}" for name, value in values.items())


def print_line(text: str) -> None:
    _CONSOLE.print(text, markup=False, soft_wrap=True)
