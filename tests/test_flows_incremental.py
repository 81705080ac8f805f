"""Incremental builds: whatever happened, the index is what a clean build gives, and no work is done twice."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import getattr_static
from pkgutil import resolve_name
from random import Random
from typing import Any

import pytest
from comparing import assert_equals_a_clean_build, bm25, catalog, rows
from conftest import Workspace
from fakes import LettersRuntime

from flows.build.reindex import ReindexOptions, swap_embedder
from flows.maintenance import kept_revisions
from flows.searching import published
from flows.sources.folder import FolderSource
from parsers.errors import GateRefused, GristmillError, SourceError, UsageError

NOTHING = dict.fromkeys(("fetched", "parsed", "chunked", "notes", "embedded", "rows_written"), 0)
WORDS = ("valve", "pump", "seal", "gauge", "motor", "bay", "key", "line", "cold", "dry", "slow", "open", "42", "ERR_9")
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(40)

ACTIONS = (
    *("add", "add", "edit", "insert", "insert", "delete", "rename", "move", "copy", "touch", "spoil", "empty"),
    *("labels", "settings"),
)

# Where a build is broken off, each of them before or after what it does there.
PLACES = (
    "flows.sources.folder:FolderSource.fetch",
    "flows.build.parsing:read",
    "flows.build.steps:split",
    "fakes:LettersRuntime.encode",
    "indexes.cache.store:Cache.add",
    "indexes.cache.store:VectorCache.add",
    "indexes.revisions.generation:Draft.replace",
    "indexes.revisions.generation:Draft.remove",
    "indexes.revisions.generation:Draft.finish",
    "indexes.revisions.generation:Draft.check_stores",
    "indexes.revisions.generation:Draft.publish",
    "indexes.catalog:Catalog.put",
    "indexes.catalog:Catalog.remove",
    "indexes.catalog:Catalog.finish",
    "indexes.vectors:ChunkTable.create",
    "indexes.vectors:ChunkTable.apply",
    "indexes.vectors:ChunkTable.restore",
    "indexes.vectors:ChunkTable.refresh_indexes",
    "indexes.lexical.index:LexicalIndex.apply",
    "indexes.lexical.index:LexicalIndex.commit",
    "indexes.revisions.generation:snapshot",
    "indexes.storage.storage:Storage.publish",
    "indexes.storage.storage:Storage._write_pointer",
    "indexes.cache.caches:Caches.tidy",
)
LATE = PLACES[6:]

EMBEDDERS = ("letters", "vowels")
LABELS: tuple[list[dict[str, Any]], ...] = (
    [],
    [{"match": "a/*", "labels": ["internal"]}],
    [{"match": "*.md", "labels": ["public", "internal"]}, {"match": "b/*", "labels": ["restricted"]}],
)
VECTORS_FOR = (["*"], ["*.md"], ["a/*", "*.txt"])


@contextmanager
def replaced(place: str, made: Callable[[Any], Any]) -> Iterator[None]:
    """Something of the program in another form, made from what stands there."""
    module, _, path = place.partition(":")
    owner = resolve_name(f"{module}:{path.rpartition('.')[0]}" if "." in path else module)
    name = path.rpartition(".")[2]
    kept = getattr_static(owner, name)
    with pytest.MonkeyPatch.context() as patch:
        if isinstance(kept, classmethod):
            patch.setattr(owner, name, classmethod(made(kept.__func__)))
        else:
            patch.setattr(owner, name, made(kept))
        yield


def breaking(after: bool, call: int) -> Callable[[Any], Any]:
    """A function that breaks the build off at one of its calls, before it does anything or when it is done."""

    def made(real: Any) -> Any:
        calls = []

        def broken(*given: Any, **named: Any) -> Any:
            calls.append(1)
            if len(calls) != call:
                return real(*given, **named)
            if after:
                real(*given, **named)
            raise KeyboardInterrupt

        return broken

    return made


def listing_half(real: Any) -> Any:
    """A listing that fails half way."""

    def objects(self: FolderSource) -> Iterator[Any]:
        found = list(real(self))
        yield from found[: len(found) // 2]
        raise SourceError("the source went away")

    return objects


def failing_for(mark: str) -> Callable[[Any], Any]:
    """An embedder that fails for every text with a mark in it; for everything where the mark is empty."""

    def made(real: Any) -> Any:
        def encode(self: LettersRuntime, batch: list[list[int]]) -> Any:
            texts = (self._tokenizer.decode(ids).replace(" ##", "") for ids in batch)
            if any(mark in text for text in texts):
                raise RuntimeError("the embedder is out of order")
            return real(self, batch)

        return encode

    return made


def document(chance: Random, titled: bool) -> str:
    """A small document of few words, so that texts meet again in others."""

    def sentence() -> str:
        return " ".join(chance.choice(WORDS) for _ in range(chance.randint(2, 5))).capitalize() + "."

    sections = [" ".join(sentence() for _ in range(chance.randint(1, 4))) for _ in range(chance.randint(1, 3))]
    if not titled:
        return "\n\n".join(sections) + "\n"
    heads = [f"# {chance.choice(WORDS).capitalize()}", "## Pump", "## Storage"]
    return "\n\n".join(f"{head}\n\n{text}" for head, text in zip(heads, sections, strict=False)) + "\n"


@dataclass
class Kept:
    """What a published revision is to hold: the last good bytes by key, and whose present bytes could not be used."""

    good: dict[str, bytes] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)


class World:
    """A folder that changes, its index, and what that index is to hold."""

    def __init__(self, workspace: Workspace, seed: int) -> None:
        self.workspace = workspace
        self.chance = Random(seed)
        self.clock = 10**18
        self.kept = Kept()
        self.revisions: dict[int, tuple[Kept, list[dict[str, Any]]]] = {}
        self.flags: dict[str, Any] = {"embedder": "letters", "ruler": "letters", "note_reserve": 8}
        self.log: list[str] = []
        for number in range(6):
            self.put(f"{('', 'a/', 'b/')[number % 3]}n{number}.{('md', 'txt')[number // 3]}")

    # What happens in the folder. Each write has a time of its own: that is how a folder tells that a file changed.

    def keys(self) -> list[str]:
        docs = self.workspace.docs
        return sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*") if path.is_file())

    def free(self, like: str = "") -> str:
        """A key that may stand for a document already."""
        suffix = like.rpartition(".")[2] if like else self.chance.choice(["md", "md", "txt"])
        return f"{self.chance.choice(['', 'a/', 'b/'])}n{self.chance.randint(0, 12)}.{suffix}"

    def stamp(self, key: str) -> None:
        self.clock += 10**9
        os.utime(self.workspace.docs / key, ns=(self.clock, self.clock))

    def put(self, key: str, data: str | bytes | None = None) -> None:
        text = document(self.chance, key.endswith(".md")) if data is None else data
        self.workspace.write(key, text)
        self.stamp(key)

    def change(self) -> str:
        """One change of the folder or of the settings, at random."""
        key = self.chance.choice(self.keys())
        path = self.workspace.docs / key
        action = self.chance.choice(ACTIONS)
        if action == "add":
            key = self.free()
            self.put(key)
        elif action == "edit":
            self.put(key)
        elif action == "insert" and path.read_bytes() != PICTURE:
            text = path.read_text().replace("\n\n", f"\n\n{self.chance.choice(WORDS).capitalize()} first. ", 1)
            self.put(key, text)
        elif action == "delete" and len(self.keys()) > 4:
            path.unlink()
        elif action in ("rename", "move", "copy"):
            target = self.free(key) if action != "move" else f"{self.chance.choice('abc')}/{path.name}"
            (self.workspace.docs / target).parent.mkdir(exist_ok=True)
            if target != key:
                (shutil.copy if action == "copy" else shutil.move)(path, self.workspace.docs / target)
                if action == "copy":
                    self.stamp(target)
            key = f"{key} -> {target}"
        elif action == "touch":
            self.stamp(key)
        elif action == "spoil":
            self.put(key, PICTURE)
        elif action == "empty":
            self.put(key, "")
        elif action == "labels":
            self.flags["labels"] = self.chance.choice(LABELS)
            key = str(self.flags["labels"])
        elif action == "settings":
            self.flags["note_reserve"] = self.chance.choice([8, 14, 20])
            self.flags["vectors_for"] = self.chance.choice(VECTORS_FOR)
            key = f"{self.flags['note_reserve']} {self.flags['vectors_for']}"
        return f"{action} {key}"

    # How a build goes.

    def step(self, manner: str) -> None:
        changes = [self.change() for _ in range(self.chance.randint(1, 3))]
        self.log.append(f"{manner}: {', '.join(changes)}")
        print(self.log[-1])  # pytest shows it where the test fails
        self.workspace.flags = self.flags
        getattr(self, manner)()

    def plain(self) -> None:
        self.built(self.workspace.build(allow_deletes=True))
        self.check()

    def listing_fails(self) -> None:
        with (
            self.as_before(),
            replaced("flows.sources.folder:FolderSource.objects", listing_half),
            pytest.raises(SourceError, match="went away"),
        ):
            self.workspace.build(allow_deletes=True)
        self.plain()

    def some_texts_fail(self) -> None:
        self.embedder_fails(f"zq{len(self.log)}")

    def all_texts_fail(self) -> None:
        self.embedder_fails("")

    def embedder_fails(self, mark: str) -> None:
        # First, or what cannot be embedded would stand as under the settings of before, unlike in a clean build.
        self.plain()
        marked = {self.free() for _ in range(2)}
        for key in marked:
            self.put(key, f"# Title\n\nA new text {mark} {self.clock}.\n")
        try:
            with self.as_before(), replaced("fakes:LettersRuntime.encode", failing_for(mark)):
                report = self.workspace.build(allow_deletes=True)
        except GateRefused as error:  # of vectors: what is in doubt cannot be embedded again
            assert not mark and "could not be asked again" in str(error) and "out of order" in str(error)
        else:
            self.built(report, {key for key in marked if self.workspace.settings().embeds(key)})
            self.check()
        self.plain()

    def broken_off(self, places: tuple[str, ...] = PLACES) -> None:
        place, after, call = self.chance.choice(places), self.chance.random() < 0.5, self.chance.choice([1, 1, 2])
        self.log.append(f"  {'after' if after else 'before'} call {call} of {place}")
        print(self.log[-1])
        before, revision = rows(self.workspace), self.revision()
        try:
            with replaced(place, breaking(after, call)):
                report = self.workspace.build(allow_deletes=True, batch_documents=2)
        except KeyboardInterrupt:
            if self.revision() == revision:
                assert rows(self.workspace) == before
            self.plain()
        else:
            self.built(report)
            self.check()

    def broken_off_late(self) -> None:
        self.broken_off(LATE)

    def swapped_by_build(self) -> None:
        self.flags["embedder"] = next(name for name in EMBEDDERS if name != self.flags["embedder"])
        self.plain()

    def swapped_by_reindex(self) -> None:
        self.plain()
        other = next(name for name in EMBEDDERS if name != self.flags["embedder"])
        try:
            with self.as_before():
                report = self.reindex(other)
        except UsageError as error:
            assert "--rechunk" in error.remedy
            report = self.reindex(other, rechunk=True)
            self.flags["ruler"] = other
        self.flags["embedder"] = other
        assert report["work"]["fetched"] == report["work"]["parsed"] == 0
        self.remember()
        self.check()

    def rolled_back(self) -> None:
        self.plain()
        storage, pointer = published(self.workspace.settings())
        target = self.chance.choice([one.revision for one in storage.revisions() if one.revision != pointer.revision])
        today, (then, before) = catalog(self.workspace), self.revisions[target]
        kept_revisions.rollback(self.workspace.settings(), target)
        expected = [row for row in before if row["key"] in today]
        found = rows(self.workspace)
        assert [as_rolled_back(row) for row in found] == [as_rolled_back(row) for row in expected]
        assert all(row["labels"] == today[row["key"]][3] for row in found)
        assert kept_revisions.verify_index(self.workspace.settings())["whole"]
        with self.as_before(), pytest.raises(GateRefused, match="held"):
            self.workspace.build()
        kept_revisions.release(self.workspace.settings())
        self.kept = Kept({key: data for key, data in then.good.items() if key in today}, set())
        self.plain()

    def reindex(self, embedder: str, *, rechunk: bool = False) -> dict[str, Any]:
        return swap_embedder(
            self.workspace.settings(), ReindexOptions(embedder=embedder, rechunk=rechunk, quiet=True, accept=True)
        )

    # What is to be in the index.

    def built(self, report: dict[str, Any], failed: set[str] | None = None) -> None:
        """Note what a build that went through took in."""
        data = {key: (self.workspace.docs / key).read_bytes() for key in self.keys()}
        spoilt = {key for key in data if data[key] == PICTURE}
        held = {one["key"] for one in report["failures"] if one["status"] in ("failed", "skipped")}
        assert held == spoilt | (failed or set())
        good = {key: self.kept.good.get(key) if key in held else data[key] for key in data}
        self.kept = Kept({key: one for key, one in good.items() if one is not None}, held)
        self.remember()

    def remember(self) -> None:
        self.revisions[self.revision()] = (self.kept, rows(self.workspace))

    def revision(self) -> int:
        return published(self.workspace.settings())[1].revision

    def check(self) -> None:
        good = self.workspace.index.with_name("good")
        shutil.rmtree(good, ignore_errors=True)
        mirror = Workspace(good, self.workspace.index, self.workspace.models)
        for key, data in self.kept.good.items():
            mirror.write(key, data)
        self.workspace.flags = self.flags
        assert_equals_a_clean_build(self.workspace, good, self.kept.held, WORDS)

    @contextmanager
    def as_before(self) -> Iterator[None]:
        """What is refused or fails changes nothing that is published."""
        before, revision = rows(self.workspace), self.revision()
        try:
            yield
        except GristmillError:
            assert self.revision() == revision
            raise
        finally:
            assert self.revision() != revision or rows(self.workspace) == before

    def check_scores(self) -> None:
        """BM25 gives the same hits with the same scores once its index is written anew."""
        key = "scores.md"
        self.put(key, f"# Scores\n\nThe valve of {self.clock}.\n")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("indexes.revisions.generation.DELETED_SHARE", -1.0)
            self.built(self.workspace.build())
        good = self.workspace.index.with_name("good")
        Workspace(good, self.workspace.index, {}).write(key, self.kept.good[key])
        clean = assert_equals_a_clean_build(self.workspace, good, self.kept.held)
        for word in WORDS:
            assert bm25(self.workspace, word) == bm25(clean, word)
        assert kept_revisions.verify_index(self.workspace.settings(), everything=True)["whole"]


def as_rolled_back(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what today's labels change in it."""
    return {name: value for name, value in row.items() if name not in ("labels", "row_digest")}


MANNERS = (
    *("plain", "listing_fails", "some_texts_fail", "all_texts_fail", "broken_off", "broken_off", "broken_off_late"),
    *("swapped_by_build", "swapped_by_reindex", "rolled_back"),
)


def run(workspace: Workspace, seed: int, manners: list[str]) -> None:
    world = World(workspace, seed)
    world.plain()
    for manner in manners:
        world.step(manner)
    world.check_scores()


@pytest.mark.parametrize("seed", range(2))
def test_changes_and_mishaps_give_what_a_clean_build_gives(workspace: Workspace, seed: int) -> None:
    manners = Random(seed).sample(MANNERS, len(MANNERS))
    run(workspace, seed, manners[:2])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_any_sequence_of_changes_and_mishaps_gives_what_a_clean_build_gives(workspace: Workspace, seed: int) -> None:
    chance = Random(seed)
    run(workspace, seed, [chance.choice(MANNERS) for _ in range(12)])


def broken_off_at(workspace: Workspace, places: tuple[str, ...]) -> None:
    """Break a build off at each of these places, each after the wreck of the one before; then build."""
    world = World(workspace, 0)
    world.plain()
    workspace.flags = world.flags
    for place in places:
        for after in (False, True):
            print(place, after)
            for _ in range(2):
                world.put(f"new/{world.clock}.md")
            standing = sorted(catalog(workspace))
            if all((workspace.docs / key).exists() for key in standing):  # so that there is one to remove
                (workspace.docs / standing[0]).unlink()
            before, revision = rows(workspace), world.revision()
            with replaced(place, breaking(after, 1)), pytest.raises(KeyboardInterrupt):
                workspace.build(batch_documents=2)
            assert world.revision() != revision or rows(workspace) == before
    world.plain()
    assert kept_revisions.verify_index(workspace.settings(), everything=True)["whole"]


def test_a_build_broken_off_while_it_publishes_is_done_by_the_next_one(workspace: Workspace) -> None:
    broken_off_at(
        workspace, ("indexes.storage.storage:Storage._write_pointer", "indexes.storage.objects:FolderObjects.put")
    )


@pytest.mark.slow
def test_a_build_broken_off_anywhere_is_done_by_the_next_one(workspace: Workspace) -> None:
    broken_off_at(workspace, tuple(place for place in PLACES if place != "indexes.vectors:ChunkTable.create"))


def texts(workspace: Workspace) -> set[str]:
    """Digests of the embedded texts of the published revision."""
    return {row["text_digest"] for row in rows(workspace)}


def short_documents(workspace: Workspace) -> None:
    """Four documents of which two hold the same text, each within the limit of every model."""
    for key, bay in (("a.md", 4), ("b.md", 9), ("copies/a.md", 4), ("c.txt", 5)):
        workspace.write(key, f"# North\n\nThe key is {bay}.\n\n## Pump\n\nIt is {bay}.\n")


def swap(workspace: Workspace, embedder: str, *, rechunk: bool = False) -> dict[str, Any]:
    LettersRuntime.batches.clear()
    report = swap_embedder(
        workspace.settings(), ReindexOptions(embedder=embedder, rechunk=rechunk, quiet=True, accept=True)
    )
    workspace.flags = {"embedder": embedder} | ({"ruler": embedder} if rechunk else {})
    return report


def test_an_edited_sentence_renews_the_chunks_whose_text_changed(workspace: Workspace) -> None:
    sections = [
        f"## Part {letter}\n\n" + " ".join(f"Line {letter * 3} {number} is open." for number in range(30))
        for letter in "abc"
    ]
    workspace.write("long.md", "# Long\n\n" + "\n\n".join(sections) + "\n")
    workspace.write("other.md", "# Other\n\nIt stays.\n")
    workspace.build()
    before = texts(workspace)
    workspace.write("long.md", (workspace.docs / "long.md").read_text().replace("Line bbb 15 is", "Line bbb 15 was"))
    report = workspace.build()
    new = texts(workspace) - before
    assert report["work"]["embedded"] == len(new) == len(before - texts(workspace))
    assert 0 < len(new) < len(before) / 3
    changed = {row["text_digest"]: row for row in rows(workspace) if row["text_digest"] in new}
    assert all(row["heading_path"][-1] == "Part b" for row in changed.values())
    assert report["work"] | {"embedded": 0, "rows_written": 0} == NOTHING | {"fetched": 1, "parsed": 1, "chunked": 1}


def test_a_model_swap_embeds_each_stored_text_once_and_does_nothing_else(workspace: Workspace) -> None:
    short_documents(workspace)
    first = workspace.build()
    swapped = swap(workspace, "vowels")
    distinct = len(texts(workspace))
    assert distinct < len(rows(workspace))
    assert swapped["work"] == NOTHING | {"embedded": distinct, "rows_written": len(rows(workspace))}
    assert swapped["generation"] != first["generation"] and swapped["revision"] == first["revision"] + 1
    assert workspace.build()["work"] == NOTHING
    assert_equals_a_clean_build(workspace)
    back = swap(workspace, "letters")
    assert back["work"] == NOTHING | {"rows_written": len(rows(workspace))}
    assert_equals_a_clean_build(workspace)


def test_a_swap_to_the_model_in_use_is_refused(workspace: Workspace) -> None:
    short_documents(workspace)
    workspace.build()
    with pytest.raises(UsageError, match="made with letters already"):
        swap(workspace, "letters")


def test_a_swap_to_a_model_that_cannot_read_a_stored_text_needs_rechunk(workspace: Workspace) -> None:
    short_documents(workspace)
    workspace.write("long.md", "# Long\n\n" + " ".join(f"Line {number} is open." for number in range(40)) + "\n")
    workspace.build()
    before, pointer = rows(workspace), published(workspace.settings())[1]
    with pytest.raises(UsageError, match=r"over the 32 tokens that vowels reads.*--rechunk"):
        swap(workspace, "vowels")
    assert not LettersRuntime.batches
    assert published(workspace.settings())[1] == pointer and rows(workspace) == before
    report = swap(workspace, "vowels", rechunk=True)
    work = report["work"]
    assert work["fetched"] == work["parsed"] == work["notes"] == 0
    assert work["chunked"] == len({(row[2], row[6]) for row in catalog(workspace).values()})
    assert work["embedded"] == len(texts(workspace)) and not report["truncated"]
    assert workspace.build()["work"] == NOTHING
    assert_equals_a_clean_build(workspace)


def test_labels_are_those_of_today_though_a_new_text_cannot_be_embedded(workspace: Workspace) -> None:
    workspace.write("a.md", "# One\n\nIt stays.\n")
    workspace.write("b.md", "# Two\n\nIt was open.\n")
    workspace.build()
    workspace.write("b.md", "# Two\n\nIt is zq now.\n")
    workspace.flags = {"labels": [{"match": "b.md", "labels": ["restricted"]}]}
    with replaced("fakes:LettersRuntime.encode", failing_for("zq")):
        report = workspace.build()
    assert [one["key"] for one in report["failures"]] == ["b.md"]
    held = [row for row in rows(workspace) if row["key"] == "b.md"]
    assert [(row["text"], row["labels"]) for row in held] == [("# Two\n\nIt was open.", ["restricted"])]


def test_a_document_that_the_new_model_fails_for_keeps_its_labels_when_it_comes_back(workspace: Workspace) -> None:
    workspace.write("a.md", "# One\n\nIt stays.\n")
    workspace.write("b.md", "---\nlabels: [restricted]\n---\n# Two\n\nIt is zq.\n")
    workspace.build()
    with replaced("fakes:LettersRuntime.encode", failing_for("zq")):
        workspace.build(embedder="vowels")
    kept_revisions.rollback(workspace.settings(), None)
    assert {row["key"]: row["labels"] for row in rows(workspace)} == {"a.md": [], "b.md": ["restricted"]}
