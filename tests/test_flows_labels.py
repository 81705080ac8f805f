"""Labels through real builds: what is stored, what filters show, and what holds for documents that fail."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from comparing import rows
from conftest import Workspace
from fakes import LettersRuntime
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_parsers_labels import LABELS, TOML, WRITERS, mutated, write

from flows.maintenance import kept_revisions
from flows.opening import published
from indexes.cache.store import BytesCache
from parsers.errors import UsageError
from parsers.labels import UNREADABLE

BROKEN = b"\x89PNG\r\n\x1a\n" + bytes(200)


def labels_by_key(workspace: Workspace) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in rows(workspace):
        assert found.setdefault(row["key"], set(row["labels"])) == set(row["labels"])
    return found


def shown(workspace: Workspace, *filters: str) -> set[str]:
    keys = set()
    for mode in ("bm25", "dense"):
        hits = workspace.search("pump seal", mode, 100, filters)
        keys |= {hit.key for hit in hits} | {copy.key for hit in hits for copy in hit.also}
    return keys


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(LABELS, st.sampled_from([*WRITERS, *TOML])), min_size=5, max_size=5), st.data())
def test_stored_labels_are_those_written_or_deny(
    workspace: Workspace, written: list[tuple[list[str], str]], data: st.DataObject
) -> None:
    shutil.rmtree(workspace.index, ignore_errors=True)
    own: dict[str, set[str]] = {}
    for number, (labels, style) in enumerate(written):
        for kind in ("good", "bad"):
            key = f"{kind}{number}.md"
            text = write(labels, style, ["a"])
            if kind == "bad":
                text = data.draw(mutated(text, labels))
            workspace.write(key, text.replace("The pump", f"{kind} {number}. The pump"))
            own[key] = set(labels) | {"everyone"}
    workspace.flags = {"labels": [{"match": "*", "labels": ["everyone"]}]}
    workspace.build(allow_deletes=True)
    stored = labels_by_key(workspace)
    denied = {key for key, labels in stored.items() if UNREADABLE in labels}
    assert denied <= {key for key in own if key.startswith("bad")}
    assert all(stored[key] == labels for key, labels in own.items() if key in stored.keys() - denied)
    for labels, _ in written:
        assert shown(workspace, f"label!={labels[0]}") <= {
            key for key in stored.keys() - denied if labels[0] not in own[key]
        }
    assert shown(workspace) == shown(workspace, "label=everyone") == stored.keys() - denied
    if denied:
        assert shown(workspace, f"label={UNREADABLE}") == denied


def test_what_holds_for_a_document_that_fails_is_stored_on_its_last_good_version(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lost", "torn", "heavy", "fine"):
        workspace.write(f"{name}.md", f"---\nlabels: [staff]\n---\n# {name}\n\nThe pump has a seal, says {name}.\n")
    workspace.build()
    vectors = {row["chunk_id"]: row["vector"] for row in rows(workspace)}

    (workspace.docs / "lost.md").write_bytes(BROKEN)
    (workspace.docs / "torn.md").write_bytes(b"---\nlabels: [secret]\n---\n" + bytes(range(256)))
    workspace.write("heavy.md", "---\nlabels: [secret]\n---\n# heavy\n\nThe pump zzzz has a new seal.\n")
    storage, pointer = published(workspace.settings())
    memo = BytesCache(storage.cache(), "documents")  # the parsed form is gone too
    from indexes.revisions.generation import published_catalog

    parsed = {row.key: row.document for row in published_catalog(storage, pointer).rows()}
    memo.forget([parsed["lost.md"], parsed["torn.md"]])
    real = LettersRuntime._counts

    def fails(self: LettersRuntime, ids: list[int]) -> list[int]:
        if "zzzz" in self._tokenizer.decode(list(ids)).replace(" ##", ""):
            raise ValueError("too heavy")
        return real(self, ids)

    monkeypatch.setattr(LettersRuntime, "_counts", fails)
    workspace.flags = {"labels": [{"prefix": "lost", "labels": ["restricted"]}, {"match": "nobody/*", "labels": ["x"]}]}
    report = workspace.build()
    assert {one["key"]: one["status"] for one in report["failures"]} == dict.fromkeys(
        ("lost.md", "torn.md", "heavy.md"), "failed"
    )
    assert labels_by_key(workspace) == {
        "lost.md": {"staff", "restricted"},
        "torn.md": {"staff", UNREADABLE},
        "heavy.md": {"staff", "secret"},
        "fine.md": {"staff"},
    }
    assert {row["chunk_id"]: row["vector"] for row in rows(workspace)} == vectors
    assert shown(workspace, "label!=restricted", "label!=secret") == {"fine.md"}
    assert shown(workspace, f"label={UNREADABLE}") == {"torn.md"}
    assert report["unmatched_rules"] == ["match = 'nobody/*'"]
    assert kept_revisions.verify_index(workspace.settings())["whole"]
    for name in ("lost", "torn", "heavy"):
        workspace.write(f"{name}.md", f"---\nlabels: [staff]\n---\n# {name}\n\nThe pump is healed, says {name}.\n")
    workspace.build()
    healed = labels_by_key(workspace)
    assert healed == {key: {"staff"} for key in healed} | {"lost.md": {"staff", "restricted"}} and len(healed) == 4


def test_label_rules_match_keys_as_people_write_them(workspace: Workspace) -> None:
    for key in ("[internal]/a.md", "cafe\u0301/b.md", "x*y/c.md", "free/d.md", "i/e.md"):
        workspace.write(key, f"# {key}\n\nThe pump has a seal, says {key}.\n")
    workspace.flags = {
        "labels": [
            {"match": "[internal]/*", "labels": [" internal "]},
            {"match": "caf\u00e9/*", "labels": ["coffee"]},
            {"prefix": "x*", "labels": ["star"]},
            {"match": "x[*]y/*", "labels": ["escaped"]},
            {"prefix": "Free/", "labels": ["none"]},
        ]
    }
    report = workspace.build()
    assert labels_by_key(workspace) == {
        "[internal]/a.md": {"internal"},
        "cafe\u0301/b.md": {"coffee"},
        "x*y/c.md": {"star", "escaped"},
        "free/d.md": set(),
        "i/e.md": {"internal"},  # the brackets as a class
    }
    assert report["unmatched_rules"] == ["prefix = 'Free/'"]
    workspace.flags |= {"always_filter": ["label != internal"]}
    assert "[internal]/a.md" not in shown(workspace) | shown(workspace, "key=[internal]/*")
    with pytest.raises(UsageError, match="no document of this revision carries the label 'Coffee'"):
        shown(workspace, "label!=Coffee")
    for rule in (
        {"match": "*", "labels": ["gristmill:x"]},
        {"match": "*", "prefix": "a", "labels": []},
        {"labels": ["a"]},
    ):
        with pytest.raises(UsageError, match="labels"):
            workspace.settings(labels=[rule])


def test_a_malformed_block_does_not_show_a_document(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write("a.md", "---\nlabels: [[restricted]]\n---\n# A\n\nThe pump has a seal.\n")
    workspace.write("b.md", "---\nlabels: [open]\n---\n# B\n\nThe pump has another seal.\n")
    report = workspace.build()
    assert [(one["key"], one["status"]) for one in report["failures"]] == [("a.md", "partial")]
    assert "labels cannot be read" in report["failures"][0]["reason"]
    for filters in ([], ["label=open"], ["key=*"], ["key!=b.md"]):
        assert "a.md" not in shown(workspace, *filters)
    assert shown(workspace, f"label={UNREADABLE}") == {"a.md"}
