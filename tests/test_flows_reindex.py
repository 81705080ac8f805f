"""The model swap with a real embedder: MiniLM that reads half as far is another model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Workspace

from enrich.models.registry import ModelFolder, load_registry
from flows.build.build import BuildOptions, build_index
from flows.build.reindex import ReindexOptions, swap_embedder
from flows.searching import open_searcher
from flows.settings import Settings, load_settings
from indexes.storage.storage import Storage
from parsers.errors import UsageError

REGISTRY = Path(__file__).resolve().parent.parent / "enrich/models/models.toml"
PUMP = "# Pumps\n\nThe pump stops by itself when its seal wears out.\n\n## Valves\n\nThe valve opens slowly.\n"
STORE = "# Storage\n\nKeep it dry and cold, away from light.\n"


@pytest.fixture
def swapped(tmp_path: Path, prefect: None) -> Settings:
    """Settings with a second model: the same files as the first, and a limit of 128 tokens."""
    entry = REGISTRY.read_text(encoding="utf-8").split("[[model]]")[1].split("[[model.sources]]")[0]
    assert "limit = 256" in entry
    other = entry.replace("limit = 256", "limit = 128").replace("all-MiniLM-L6-v2", "MiniLM-128")
    (tmp_path / "half.toml").write_text("[[model]]" + other, encoding="utf-8")
    usual = load_settings()
    folder = ModelFolder(usual.models_dir, usual.model_folders).find(load_registry().embedder(usual.embedder))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/pump.md").write_text(PUMP)
    (tmp_path / "docs/store.md").write_text(STORE)
    (tmp_path / "docs/copy.md").write_text(STORE)
    return load_settings(
        source=str(tmp_path / "docs"),
        index=str(tmp_path / "index"),
        model_files=[tmp_path / "half.toml"],
        model_folders=[folder],
        notes="extractive",
    )


def swap(settings: Settings, **options: Any) -> dict[str, Any]:
    return swap_embedder(settings, ReindexOptions(embedder="MiniLM-128", quiet=True, accept=True, **options))


@pytest.mark.real
def test_a_swap_embeds_each_stored_text_once_and_nothing_else(swapped: Settings) -> None:
    first = build_index(swapped, BuildOptions(quiet=True))
    report = swap(swapped)
    assert report["generation"] != first["generation"] and report["revision"] == first["revision"] + 1
    assert {name: report["work"][name] for name in ("fetched", "parsed", "chunked", "notes")} == dict.fromkeys(
        ("fetched", "parsed", "chunked", "notes"), 0
    )
    assert report["chunks"]["total"] == first["chunks"]["total"]
    assert report["work"]["embedded"] == first["work"]["embedded"] == report["chunks"]["total"] - 1  # the copy's text
    hit = open_searcher(swapped, "dense").search("why did the pump stop?", "dense", k=1)[0]
    assert hit.key == "pump.md"
    after = build_index(swapped, BuildOptions(quiet=True))  # builds follow the published embedder
    assert not after["published"] and after["work"]["embedded"] == 0
    with pytest.raises(UsageError, match="already"):
        swap(swapped)


@pytest.mark.real
def test_a_text_over_the_new_limit_is_refused_before_any_work_and_can_be_cut_again(swapped: Settings) -> None:
    long = " ".join(f"The gauge of line {number} stands beside the door." for number in range(60))
    (Path(str(swapped.source)) / "long.txt").write_text(long)
    first = build_index(swapped, BuildOptions(quiet=True))
    with pytest.raises(UsageError, match="over the 128 tokens that MiniLM-128 reads") as refused:
        swap(swapped)
    assert "--rechunk" in refused.value.remedy
    report = swap(swapped, rechunk=True)
    assert report["work"]["fetched"] == report["work"]["parsed"] == report["truncated"] == 0
    assert report["chunks"]["total"] > first["chunks"]["total"]
    after = build_index(swapped, BuildOptions(quiet=True))
    assert not after["published"], "builds follow the ruler too"


def test_a_swap_to_shorter_vectors_of_the_same_model_and_back(workspace: Workspace) -> None:
    """The name with a dimension is a model like any other to builds, gates, the pointer and searches."""
    toml = Path(workspace.models["model_files"][0])
    toml.write_text(toml.read_text(encoding="utf-8").replace('name = "letters"', 'name = "letters"\nmatryoshka = [24]'))
    workspace.write("pump.md", PUMP)
    workspace.write("store.md", STORE)
    first = workspace.build()
    for name, dimension in (("letters@24", 24), ("letters", 26)):
        own = workspace.settings(embedder=name)
        report = swap_embedder(own, ReindexOptions(embedder=name, quiet=True, accept=True))
        assert report["chunks"]["total"] == first["chunks"]["total"]
        pointer = Storage(str(workspace.index)).pointer()
        assert pointer is not None and (pointer.embedder, pointer.dimension) == (name, dimension)
        again = workspace.build(embedder=name)
        assert not again["published"] and again["work"]["embedded"] == 0
        assert open_searcher(own, "dense").search("keep it cold", "dense", k=1)[0].key == "store.md"
