"""Settings changed between two builds of one index: each pair ends in a whole index that can be searched."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from conftest import Workspace

from flows.build.reindex import ReindexOptions, swap_embedder
from flows.maintenance import kept_revisions
from flows.searching import open_searcher
from flows.settings import Settings
from parsers.errors import GateRefused, GristmillError, UsageError

NONE: dict[str, Any] = {"vectors_for": ["none"]}
FEW: list[dict[str, Any]] = [{}, NONE, {"embedder": "vowels"}]
MORE: list[dict[str, Any]] = [
    {"embedder": "vowels", "ruler": "vowels"},
    {"embedder": "vowels"} | NONE,
    {"vectors_for": ["a*"]},
    {"notes": "extractive"},
    {"notes": "extractive"} | NONE,
    {"overlap": 8},
    {"exclude": ["a.md"]},
    {"labels": [{"match": "a*", "labels": ["internal"]}]},
    {"runtime": "letters"},
]


def walk(variants: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every ordered pair of variants, one behind the other, as few builds as there are pairs."""
    yield variants[0]
    for first in range(len(variants)):
        for second in range(first + 1, len(variants)):
            yield variants[second]
            yield variants[first]
        if first + 1 < len(variants):
            yield variants[first + 1]


def check(settings: Settings, flags: dict[str, Any]) -> None:
    found = kept_revisions.verify_index(settings, everything=False)
    assert found["whole"], (flags, found)
    searcher = open_searcher(settings, "hybrid")
    assert searcher.search("pump", "hybrid", k=1), flags
    wanted = [key for key in ("a.md", "b.md") if settings.embeds(key) and key not in settings.exclude]
    if wanted:
        assert {hit.key for hit in searcher.search("pump", "dense", k=9)} == set(wanted), flags


def build(workspace: Workspace, flags: dict[str, Any]) -> None:
    try:
        workspace.build(**flags)
    except GristmillError as error:
        assert isinstance(error, GateRefused), (flags, error)
        workspace.build(**flags, force=True, allow_deletes=True)
    check(workspace.settings(**flags), flags)


def through(workspace: Workspace, variants: list[dict[str, Any]]) -> None:
    workspace.write("a.md", "# Pump\n\nThe pump stops by itself when the tank is full.\n")
    workspace.write("b.md", "# Valve\n\nOpen the valve of the pump by hand.\n")
    for flags in walk(variants):
        build(workspace, flags)


def test_a_further_source_is_taken_when_asked_for_and_a_swap_then_needs_the_stored_documents(
    workspace: Workspace,
) -> None:
    workspace.write("a.md", "# Pump\n\nThe pump stops by itself.\n")
    workspace.build()
    with pytest.raises(UsageError, match="knows the sources default, not other") as refused:
        workspace.build(source_name="other")
    assert "--new-source" in refused.value.remedy
    workspace.build(source_name="other", new_source=True)
    with pytest.raises(UsageError, match="needs its other sources too: other") as refused:
        workspace.build(embedder="vowels")
    assert "gristmill reindex --embedder vowels" in refused.value.remedy
    swapped = workspace.settings(embedder="vowels")
    assert swap_embedder(swapped, ReindexOptions(embedder="vowels", rechunk=True, quiet=True, accept=True))["published"]
    assert kept_revisions.verify_index(swapped, everything=False)["whole"]


def test_a_walk_meets_every_ordered_pair() -> None:
    steps = [flags["n"] for flags in walk([{"n": n} for n in range(5)])]
    assert {(a, b) for a in range(5) for b in range(5) if a != b} <= set(pairwise(steps))


def test_an_index_without_vectors_gets_some_later(workspace: Workspace) -> None:
    through(workspace, FEW)


@pytest.mark.slow
def test_every_pair_of_settings_ends_in_an_index(workspace: Workspace) -> None:
    through(workspace, FEW + MORE)
