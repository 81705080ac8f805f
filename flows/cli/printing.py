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


def build(report: dict[str, Any], exclude: Sequence[str] = ()) -> None:
    """Print a build's report.

    Args:
        exclude: the setting of that name.
    """
    documents, chunks, work = report["documents"], report["chunks"], report["work"]
    if report["published"]:
        say(f"Published revision {report['revision']} of {report['generation']}.")
    else:
        say(f"Nothing changed: revision {report['revision']} of {report['generation']} stays published.")
    say("documents  " + _pairs(documents))
    say("chunks     " + _pairs(chunks))
    say("work       " + _pairs(work))
    if any(report["notes"].values()):
        say("notes      " + _pairs({name.replace("_", " "): count for name, count in report["notes"].items()}))
    say("seconds    " + ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in report["seconds"].items()))
    if report["notes_by_section"]:
        say(f"           {report['notes_by_section']:,} documents are too long to stand in their prompts")
    if report["notes_narrowed"]:
        say(f"           {report['notes_narrowed']:,} notes are from narrower windows: the LLM's context holds no more")
    if report["truncated"]:
        say(f"truncated  {report['truncated']:,} texts are over the embedder's limit: their ends are in no vector")
    for one in report["unknown"]:
        say(
            f"warning    {one['key']}: the embedder does not know {one['share']:.0%} of its tokens, so its vectors "
            "say little; BM25 still finds it"
        )
    for rule in report["unmatched_rules"]:
        say(f"warning    the label rule with {rule} matches no document: nothing gets its labels")
    _failures(report["failures"])
    _skipped(report["skipped"], exclude)


def hits(answer: dict[str, Any], *, explain: bool) -> None:
    """The hits of a search."""
    if not answer["hits"]:
        say("No hits.")
    for hit, place in zip(answer["hits"], places(answer["hits"]), strict=True):
        _CONSOLE.print(Text(f"{hit['rank']:>2}  {place}", style="bold"), soft_wrap=True)
        if explain:
            ranks = ", ".join(f"{channel} {rank or '-'}" for channel, rank in hit["ranks"].items())
            say(f"    score {hit['score']:.4f}; rank by channel: {ranks}; {hit['key']} [{hit['start']}, {hit['end']})")
            if hit["rerank_score"] is not None:
                say(f"    reranker's score {hit['rerank_score']:.4f}")
        if hit["note"]:
            say(f"    note: {hit['note']}")
        text = " ".join(hit["text"].split())
        say("    " + (text if len(text) <= _PREVIEW else text[:_PREVIEW].rsplit(" ", 1)[0] + " …"))
        for copy in hit["also"][:_COPIES]:
            say(f"    also: {copy['key']} {copy['locator']}")
        if len(hit["also"]) > _COPIES:
            say(f"    … and {len(hit['also']) - _COPIES} more with this text (see --json)")
        if "section" in hit:
            _section(hit["section"])
    if explain:
        say(f"search {answer['seconds']['search'] * 1000:.0f} ms, start-up {answer['seconds']['start']:.1f} s")


def places(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where each hit stands: its locator, with as much of the key as tells it from the other hits.

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
    """A key as it is where it is short, otherwise its end, by which it differs from the others."""
    start = 0
    while len(key) - start > _KEY:
        slash = key.find("/", start)
        if slash < 0 or sum(one.endswith(key[slash:]) for one in keys) > 1:
            break
        start = slash + 1
    return f"…/{key[start:]}" if start else key


def inspection(found: dict[str, Any]) -> None:
    """A document's tree and chunks."""
    document = found["document"]
    say(f"{document['media_type']}, {document['status']}" + (f": {document['reason']}" if document["reason"] else ""))
    say(f"title: {document['title'] or '(none)'}; {len(document['text']):,} characters")
    depths: list[int] = []
    for node in document["nodes"]:
        depths.append(depths[node["parent"]] + 1 if node["parent"] >= 0 else 0)
        out = f"  [left out: {node['left_out']}]" if node.get("left_out") else ""
        text = node.get("title") or " ".join(document["text"][node["start"] : node["end"]].split())[:60]
        say(f"{'  ' * depths[-1]}{node['kind']} [{node['start']}, {node['end']}) {text}{out}")
    say("")
    for number, chunk in enumerate(found["chunks"], 1):
        cut = f", cut: {chunk['cut']}" if chunk["cut"] else ""
        say(f"chunk {number} [{chunk['start']}, {chunk['end']}) {chunk['tokens']} tokens{cut}  {chunk['locator']}")
        say(chunk["text"])
        say("")


def standing(found: dict[str, Any], exclude: Sequence[str] = ()) -> None:
    """Print what is published.

    Args:
        exclude: the setting of that name.
    """
    counts = found["counts"]
    say(
        f"{found['index']}: revision {found['revision']} of {found['generation']}, published {found['created'][:19]} "
        f"by {found['made_by']}"
    )
    if found["held"]:
        say(f"HELD       {found['held']}; builds publish again after `gristmill rollback --release`")
    say(f"embedder   {found['embedder']} ({found['embedder_fingerprint'][:8]}, {found['dimension']} dimensions)")
    say("holds      " + _pairs(counts) + f", {found['bytes'] / 1e6:.1f} MB on disk")
    say("sources    " + ", ".join(f"{name}: {address}" for name, address in found["sources"].items()))
    say("documents  " + _pairs(found["documents"]))
    say("checks     " + "; ".join(f"{name}: {figure}" for name, figure in found["checks"].items()))
    _failures(found["failures"])
    _skipped(found["skipped"], exclude)


def evaluation(found: dict[str, Any]) -> None:
    """Recall by mode and variant, what it means, and what changed."""
    golden, index = found["golden"], found["index"]
    say(
        f"{golden['path']}: {golden['answerable']} questions with an answer, {golden['unanswerable']} without, "
        f"{len(golden['stale'])} stale; {index['chunks']:,} chunks of {found['runs'][0]['mean_tokens']:.0f} tokens"
    )
    variants = list(dict.fromkeys(run["variant"] for run in found["runs"]))
    for variant in variants:
        runs = [run for run in found["runs"] if run["variant"] == variant]
        _CONSOLE.print(_curves(f"{variant}: recall by midpoint, in %", runs, found["least_questions"]))
    for line in found["reading"]:
        say(line)
    for run in found["runs"] if len(variants) == 1 else []:
        say(f"{run['mode']}: not all found in the first 5: {_names(run['missed_at_5'])}")
        if run["separation"] is not None:
            say(f"{run['mode']}: top scores tell answerable questions from others in {run['separation']:.0%} of pairs")
    for name, reason in golden["stale"].items():
        say(f"stale      {name}: {reason}")
    if found.get("documents_changed"):
        say("Documents have changed since: compared are the questions that require the same words in both.")
    for name, one in (found.get("comparison") or {}).items():
        chance = f"p = {one['p']:.3f}" if one["n"] >= found["least_questions"] else "too few to tell from chance"
        say(
            f"{name} against {found['against']}, at 10: {one['difference'] * 100:+.1f} points over {one['n']} "
            f"questions, {chance}; won: {_names(one['won'])}; lost: {_names(one['lost'])}"
        )
    say(f"record     {found['record'] or 'not kept: ' + found['not_kept']}")


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
    """Where recall at 10 lies, as far as the questions tell: not where they are few or all came out alike."""
    low, high = run["intervals"]["10"]
    if run["n"] < few:
        return "too few"
    return f"{low * 100:.0f}-{high * 100:.0f}" if low < high else "-"


def golden_check(found: dict[str, Any]) -> None:
    """What is wrong with a golden set."""
    say(f"{found['golden']}: {found['answerable']} questions with an answer, {found['unanswerable']} without")
    say("categories " + _pairs(found["by_category"]))
    say("kinds      " + _pairs(found["by_kind"]))
    for one in found["errors"]:
        say(f"error      {one['id']}: {one['what']}: {one['why']}")
    for one in found["warnings"]:
        say(f"warning    {one['id']}: {one['what']}: {one['why']}")
    if not found["errors"] and not found["warnings"]:
        say("Nothing is wrong with it.")


def golden_added(found: dict[str, Any]) -> None:
    """A question that was written."""
    added = found["added"]
    say(f"{added['id']} written to {found['golden']}: {added['question']}")
    for span in added["spans"]:
        say(f"  answered by {span['doc']}: {' '.join(span['quote'].split())[:_PREVIEW]}")
    if not added["spans"]:
        say("  without an answer in the documents")


def plan(found: dict[str, Any], exclude: Sequence[str] = ()) -> None:
    """Print what a build would do.

    Args:
        exclude: the setting of that name.
    """
    documents, work = found["documents"], found["work"]
    say(f"documents  {_pairs(documents)}")
    say(f"work       {_pairs(work)} (from notes on: estimates from a sample)")
    say("seconds    " + ", ".join(f"{stage} {seconds:,.1f}" for stage, seconds in found["seconds"].items()))
    measured = ", ".join(found["measured"])
    say(f"rates      {f'measured here: {measured}' if measured else 'none measured here yet: those of two cores'}")
    say(f"corpus     about {found['tokens']:,} tokens")
    if found["fits_a_prompt"]:
        say("           That fits into a long prompt whole: an index may not be needed for it at all.")
    _skipped(found["skipped"], exclude)
    for step in found["steps"]:
        say(f"{step['do']:<10} {step['key']}")
    more = sum(documents[name] for name in ("add", "look", "renew", "retry", "reread", "remove")) - len(found["steps"])
    if more > 0:
        say(f"           … and {more:,} more")
    if found["kept"]:
        say(f"kept       {found['kept']}; build by it: gristmill build --replay {found['kept']}")


def revisions(found: dict[str, Any]) -> None:
    """The kept revisions."""
    for one in found["revisions"]:
        mark = "*" if one["revision"] == found["published"] else " "
        say(
            f"{mark} {one['revision']:>5}  {one['generation']}  {one['created'][:19]}  by {one['made_by']:<8} "
            f"{one['counts']['documents']:,} documents, {one['counts']['chunks']:,} chunks, {one['embedder']}"
        )
    for one in found["damaged"]:
        say(f"! {one['revision']:>5}  its record is damaged: {one['problem']}. `gristmill repair` gives it up.")
    if found["held"]:
        say(f"Publishing is held: {found['held']}. Release it: gristmill rollback --release")


def rolled_back(found: dict[str, Any]) -> None:
    """Where readers are now."""
    if found["held"]:
        gone = found["deleted_since"]
        less = f", without {len(gone)} documents deleted since" if gone else ""
        say(f"Readers see what revision {found['content_of']} held{less}, as revision {found['revision']}.")
        if gone:
            say(f"deleted    {_names(gone)}")
        say("Publishing is held until `gristmill rollback --release`.")
    else:
        say("Released: the next build publishes again.")


def swept(found: dict[str, Any]) -> None:
    """What was cleared away."""
    if "keys" in found:
        erased(found)
    if found["revisions_given_up"]:
        say(f"revisions  given up: {', '.join(str(one) for one in found['revisions_given_up'])}")
    say(f"forgotten  {_pairs(found['forgotten'])}")
    if "bytes" in found:
        before, after = found["bytes"]["before"], found["bytes"]["after"]
        say(f"disk       {before / 1e6:,.1f} MB before, {after / 1e6:,.1f} MB now")


def erased(found: dict[str, Any]) -> None:
    """What was erased, and where it was found."""
    for one in found["found"]:
        numbers = ", ".join(map(str, one["revisions"]))
        say(f"{one['key']} of source {one['source']} stood in the revisions {numbers}; it is erased.")
    for one in found["nowhere"]:
        say(
            f"{one}: no kept revision named it. What earlier revisions and killed builds left was removed all the same."
        )
    if found["resumed"]:
        say(f"An earlier erasure that was killed is finished: {', '.join(found['resumed'])}")
    if found["revision"]:
        say(f"Revision {found['revision']} is published, the only one that is kept.")
    say("If a source still holds any of it, exclude it there: the next build would take it in again.")


def verified(found: dict[str, Any]) -> None:
    """What was found wrong."""
    for one in found["revisions"]:
        say(f"revision {one['revision']} of {one['generation']}: {one['checked']:,} rows read")
        for finding in one["findings"]:
            kind = "FAULT" if finding["fault"] else "hint"
            names = f" ({', '.join(finding['examples'])})" if finding["examples"] else ""
            say(f"  {kind:<6} {finding['count']:,} {finding['what']}{names}")
            say(f"         -> {finding['remedy']}")
    say("Nothing is wrong with it." if found["whole"] else "It is not whole.")


def repaired(found: dict[str, Any]) -> None:
    """What was set right."""
    if found["probes"]:
        say("The probes by which runtimes prove themselves were made again.")
    if "revision" in found:
        say(
            f"Revision {found['revision']} is published: {found['renewed']} documents made again, {found['removed']} "
            "taken out till the next build fetches them."
        )
    elif not found["repaired"] and not found["probes"]:
        say("Nothing is wrong with it; nothing was done.")
    else:
        say("Nothing else is wrong with it.")


def _section(section: dict[str, Any] | None) -> None:
    if section is None:
        say("    section: not known; the parsed document is no longer remembered, build again")
        return
    say(f"    section [{section['start']}, {section['end']}):")
    for line in section["text"].strip("\n").split("\n"):
        say(f"      {line}".rstrip())


def _failures(failures: list[dict[str, Any]]) -> None:
    """Documents that are not wholly in the index; skipped ones only where an earlier version of theirs is in it."""
    named = [one for one in failures if one["status"] != "skipped" or KEPT in one["reason"]]
    for one in named[:_LONGEST]:
        say(f"{one['status']:<10} {one['key']}: {one['reason']}")
    if len(named) > _LONGEST:
        say(f"           … and {len(named) - _LONGEST} more (see --json)")


def _skipped(types: list[dict[str, Any]], exclude: Sequence[str]) -> None:
    """One line a type of files that are not read, with the line of the settings file that leaves them out."""
    for one in types:
        many = f"{one['documents']:,} files {one['type']}, such as {one['example']}"
        what = many if one["type"] != one["example"] else one["example"]
        say(f"skipped    {what}: not read. To leave them out: {exclude_line([one['exclude']])}")
    if types and (exclude or len(types) > 1):
        say(f"           all of them: {exclude_line([*exclude, *(one['exclude'] for one in types)])}")


def _names(names: list[str]) -> str:
    """The first few of them, and how many more there are."""
    more = f" and {len(names) - _LONGEST} more" if len(names) > _LONGEST else ""
    return ", ".join(names[:_LONGEST]) + more if names else "none"


def _pairs(values: dict[str, int]) -> str:
    return ", ".join(f"{name} {value:,}" for name, value in values.items())


def say(text: str) -> None:
    _CONSOLE.print(text, markup=False, soft_wrap=True)
