"""No runtime makes or asks for vectors of an index before it has shown that they are the same."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import faults
import msgspec
import numpy as np
import pytest
from conftest import Workspace
from fakes import LettersRuntime

from enrich.embedding import embedder as policy
from enrich.embedding.embedder import Embedder
from enrich.embedding.runtime import Provenance, RuntimeKind, Vectors
from enrich.embedding.runtimes.registry import RUNTIMES, choice
from enrich.models.conversion import convert_model
from enrich.models.registry import DEFAULT_EMBEDDER, EmbedderModel, ModelFolder, load_registry
from flows.evaluation import parity
from flows.gates import gates
from flows.maintenance import kept_revisions
from flows.models import embedding, runtime_choice
from flows.opening import open_storage
from flows.searching import answer_query
from flows.settings import load_settings
from parsers.errors import GateRefused, ModelError, StoreError

Change = Callable[[Any, Sequence[Sequence[int]], Vectors], Vectors]


@pytest.fixture
def two(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace whose model has a second runtime, ``tally``; one document is built with the first."""
    toml: Path = workspace.models["model_files"][0]
    toml.write_text(toml.read_text().replace('runtimes = ["letters"]', 'runtimes = ["letters", "tally"]'))
    monkeypatch.setitem(RUNTIMES, "tally", tally())
    workspace.write("pump.md", "# Pump\n\nThe pump starts by itself.\n")
    workspace.build()
    return workspace


def tally(change: Change = lambda self, batch, vectors: vectors, *, seconds: float = 0.0) -> RuntimeKind:
    """Another runtime of the same model, whose vectors may be changed."""

    class Tally(LettersRuntime):
        @property
        def provenance(self) -> Provenance:
            return Provenance(runtime="tally", precision="fp32", device="cpu", libraries={})

        def encode(self, batch: Sequence[Sequence[int]]) -> Vectors:
            time.sleep(seconds * len(batch))
            return change(self, batch, super().encode(batch))

    return RuntimeKind(Tally)


FAULTS: dict[str, tuple[Change, set[str]]] = {
    "wrong pooling": (
        lambda self, batch, vectors: np.array([self._counts(ids[:3]) for ids in batch], np.float32),
        {"sentences", "long", "code"},
    ),
    "another limit": (
        lambda self, batch, vectors: np.array([self._counts(ids[:40]) for ids in batch], np.float32),
        {"long"},
    ),
    "noise": (
        lambda self, batch, vectors: vectors + np.linspace(0, 1, vectors.shape[1], dtype=np.float32),
        {"sentences", "long", "code"},
    ),
}


def search(workspace: Workspace, **flags: Any) -> dict[str, Any]:
    return answer_query(workspace.settings(**flags), "pump", "dense", 3, [], time.time())


def test_the_first_build_makes_the_probes_and_proves_no_more(two: Workspace) -> None:
    fresh = replace(two, index=two.docs.parent / "other")
    assert fresh.build()["checks"]["parity"] == "letters:fp32 proved itself earlier", "they are kept with the model"
    shutil.rmtree(two.models["models_dir"] / ".probes")
    fresh = replace(two, index=two.docs.parent / "third", flags={"cache_dir": two.docs.parent / "third cache"})
    assert fresh.build()["checks"]["parity"] == "letters:fp32 made the probes"
    two.write("new.md", "# New\n\nA word.\n")
    assert two.build()["checks"]["parity"] == "letters:fp32 proved itself earlier"
    two.write("new.md", "# New\n\nAnother word.\n")
    elsewhere = two.docs.parent / "another machine's cache"
    figure = two.build(cache_dir=elsewhere)["checks"]["parity"]
    assert figure.startswith("letters:fp32 agrees with letters:fp32, least cosine 1.000000 of ")
    two.write("new.md", "")
    assert two.build(cache_dir=elsewhere)["checks"]["parity"] == "no vector was asked of the embedder"


def test_no_runtime_but_the_models_own_begins_an_index_by_its_own_measure(
    two: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = replace(two, index=two.docs.parent / "first").build(runtime="tally")["checks"]["parity"]
    assert first.startswith("tally:fp32 agrees with letters:fp32, least cosine 1.000000 of ")
    monkeypatch.setitem(RUNTIMES, "tally", tally(FAULTS["wrong pooling"][0]))
    second = replace(two, index=two.docs.parent / "second")
    with pytest.raises(GateRefused, match=r"gate parity: tally:fp32 does not make the vectors"):
        second.build(runtime="tally", cache_dir=two.docs.parent / "new")
    assert open_storage(second.settings()).pointer() is None
    assert second.build()["work"]["embedded"] == 1, "it left nothing in the cache"


def test_another_runtime_that_agrees_serves_and_adds_and_embeds_nothing_again(two: Workspace) -> None:
    assert search(two, runtime="tally")["hits"][0]["key"] == "pump.md"
    two.write("new.md", "# New\n\nA word.\n")
    report = two.build(runtime="tally")
    assert report["work"]["embedded"] == 1
    assert report["checks"]["parity"] == "tally:fp32 proved itself earlier", "by the search"
    pointer = open_storage(two.settings()).pointer()
    assert pointer is not None
    assert {one["runtime"] for one in pointer.runtimes.values()} == {"letters", "tally"}
    assert not any(two.build(runtime="tally")["work"].values())


@pytest.mark.parametrize("fault", FAULTS)
def test_a_runtime_that_does_not_agree_neither_serves_nor_adds(
    two: Workspace, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    change, strata = FAULTS[fault]
    monkeypatch.setitem(RUNTIMES, "tally", tally(change))
    before = open_storage(two.settings()).pointer()
    two.write("new.md", "# New\n\nA word.\n")
    for refuse in (partial(search, two, runtime="tally"), partial(two.build, runtime="tally")):
        with pytest.raises(GateRefused, match=r"gate parity: tally:fp32 does not make the vectors of index") as refusal:
            refuse()
        message = str(refusal.value)
        assert "which letters:fp32 made: the least cosine is" in message and "setting `runtime`" in message
        assert all(stratum in message for stratum in strata), message
    assert open_storage(two.settings()).pointer() == before
    assert two.build()["work"]["embedded"] == 1, "it left nothing in the cache"
    assert search(two)["hits"], "a search by words alone and by the right runtime goes on"


def test_a_search_by_words_alone_needs_no_proof(two: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RUNTIMES, "tally", tally(FAULTS["noise"][0]))
    assert answer_query(two.settings(runtime="tally"), "pump", "bm25", 3, [], time.time())["hits"]


def test_an_index_without_probes_is_told(two: Workspace) -> None:
    storage = open_storage(two.settings())
    pointer = storage.pointer()
    assert pointer is not None
    data = storage.probes(pointer.embedder_fingerprint)
    assert data is not None
    storage.drop_probes(pointer.embedder_fingerprint)
    with pytest.raises(StoreError, match="it keeps no probes of letters"):
        search(two)
    two.write("new.md", "# New\n\nA word.\n")
    with pytest.raises(StoreError, match="it keeps no probes of letters"):
        two.build(runtime="tally")
    assert two.build()["checks"]["parity"] == "letters:fp32 proved itself earlier", "for it made the vectors too"
    assert search(two)["hits"]
    storage.keep_probes(pointer.embedder_fingerprint, data[: len(data) // 2])
    with pytest.raises(StoreError, match="probes cannot be read"):
        search(two)


def test_vectors_that_are_all_remembered_are_not_published_without_probes(
    two: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build that was refused late left them in the cache, and a sweep took the probes, which no revision needed."""
    late = replace(two, index=two.docs.parent / "late")

    def refused(shop: object, listed: int) -> str:
        raise GateRefused("too many failed")

    with monkeypatch.context() as patched:
        patched.setattr(gates, "check_failures", refused)
        with pytest.raises(GateRefused, match="too many failed"):
            late.build()
    storage, fingerprint = open_storage(late.settings()), open_storage(two.settings()).pointer().embedder_fingerprint
    assert storage.pointer() is None
    storage.drop_probes(fingerprint)
    report = late.build()
    assert report["work"]["embedded"] == 0
    assert report["checks"]["parity"] == "letters:fp32 proved itself earlier"
    assert search(late)["hits"] and kept_revisions.verify_index(late.settings())["whole"]


def test_verify_sees_broken_probes_and_repair_makes_them_again(two: Workspace) -> None:
    storage, settings = open_storage(two.settings()), two.settings()
    pointer = storage.pointer()
    assert pointer is not None and kept_revisions.verify_index(settings)["whole"]
    data = storage.probes(pointer.embedder_fingerprint)
    assert data is not None
    for broken in (None, data[:-100], b""):
        if broken is None:
            storage.drop_probes(pointer.embedder_fingerprint)
        else:
            storage.keep_probes(pointer.embedder_fingerprint, broken)
        verdict = kept_revisions.verify_index(settings)
        assert not verdict["whole"] and "probes" in verdict["revisions"][0]["findings"][0]["what"]
        with pytest.raises(StoreError, match="with the runtime that made its vectors"):
            kept_revisions.repair_index(two.settings(runtime="tally"), lambda line: None)
        done = kept_revisions.repair_index(settings, lambda line: None)
        assert done["probes"] and not done["repaired"]
        assert kept_revisions.verify_index(settings)["whole"] and search(two)["hits"]
    assert open_storage(settings).pointer() == pointer


def test_the_proof_is_asked_for_again_of_other_probes(two: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered is that this runtime agreed with these very bytes."""
    search(two, runtime="tally")
    monkeypatch.setitem(RUNTIMES, "tally", tally(FAULTS["noise"][0]))
    search(two, runtime="tally")
    with pytest.raises(GateRefused):
        search(two, runtime="tally", cache_dir=two.docs.parent / "new")


# --- the command


def run(workspace: Workspace, *names: str, with_index: bool = False, **flags: Any) -> dict[str, Any]:
    settings = workspace.settings(**flags)
    return parity.run(
        settings, names=list(names), embedder=None, with_index=with_index, record=None, say=lambda line: None
    )


def test_every_pair_is_compared_and_each_with_itself(two: Workspace, tmp_path: Path) -> None:
    found = run(two)
    assert [(pair["a"], pair["b"]) for pair in found["pairs"]] == [
        ("letters:fp32", "letters:fp32"),
        ("letters:fp32", "tally:fp32"),
        ("tally:fp32", "tally:fp32"),
    ]
    assert found["ok"] and all(pair["pass"] and pair["top10_overlap"] == 1.0 for pair in found["pairs"])
    keys = {"a", "b", "n", "min", "mean", "quantiles", "worst", "by_kind", "top10_overlap", "pass", "reason"}
    assert set(found["pairs"][0]) == keys
    parity.run(
        two.settings(), names=["tally"], embedder=None, with_index=False, record=tmp_path / "r.json", say=lambda _: None
    )
    assert msgspec.json.decode((tmp_path / "r.json").read_bytes())["runtimes"]["tally:fp32"]["runtime"] == "tally"


def test_a_runtime_that_depends_on_its_batch_differs_from_itself(
    two: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RUNTIMES, "tally", tally(lambda self, batch, vectors: vectors + (len(batch) > 1)))
    found = run(two, "tally")
    assert not found["ok"] and not found["pairs"][0]["pass"]


def test_each_is_compared_with_an_index(two: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    two.write("more.md", "".join(f"# Part {n}\n\nHere stands {'abcdefghijklmnop'[n]} and {n}.\n\n" for n in range(16)))
    two.build()
    monkeypatch.setitem(RUNTIMES, "tally", tally(FAULTS["noise"][0]))
    right, wrong = run(two, with_index=True)["pairs"]
    assert right["pass"] and right["top10_overlap"] == 1.0
    assert not wrong["pass"] and wrong["a"] == "tally:fp32" and wrong["b"] == "letters:fp32"


def test_unknown_runtimes_and_models_are_told(two: Workspace) -> None:
    with pytest.raises(ModelError, match="no runtime 'abacus' for letters"):
        run(two, "abacus")
    with pytest.raises(ModelError, match="unknown embedder"):
        run(two, embedder="no-such-model")


# --- choosing


def choose(workspace: Workspace) -> runtime_choice.Chosen:
    settings = workspace.settings()
    registry = load_registry(*settings.model_files)
    folder = ModelFolder(settings.models_dir, settings.model_folders)
    return runtime_choice.choose("letters", registry, folder, None, lambda line: None)


def runtime_used(workspace: Workspace, **flags: Any) -> str:
    return run_provenance(workspace, **flags).runtime


def run_provenance(workspace: Workspace, **flags: Any) -> Provenance:
    from flows.models.embedding import embedder_of

    settings = workspace.settings(**flags)
    folder = ModelFolder(settings.models_dir, settings.model_folders)
    return embedder_of(settings, "letters", load_registry(*settings.model_files), folder).provenance


def test_the_fastest_that_agrees_is_chosen_and_used(two: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runtime_used(two) == "letters"
    slow = RuntimeKind(type("Slow", (LettersRuntime,), {"encode": slowly}))
    monkeypatch.setitem(RUNTIMES, "letters", slow)
    chosen = choose(two)
    assert chosen.runtime == "tally:fp32" and {one.name for one in chosen.tried} == {"letters:fp32", "tally:fp32"}
    assert runtime_used(two) == "tally" and runtime_used(two, runtime="letters") == "letters"
    monkeypatch.setattr(runtime_choice, "machine", lambda: "another processor")
    assert runtime_used(two) == "letters", "what was measured elsewhere says nothing here"


def slowly(self: LettersRuntime, batch: Sequence[Sequence[int]]) -> Vectors:
    time.sleep(0.001 * len(batch))
    self.batches.append([list(ids) for ids in batch])
    return np.array([self._counts(ids) for ids in batch], dtype=np.float32)


def test_a_faster_one_that_does_not_agree_is_not_chosen(two: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RUNTIMES, "letters", RuntimeKind(type("Slow", (LettersRuntime,), {"encode": slowly})))
    monkeypatch.setitem(RUNTIMES, "tally", tally(FAULTS["noise"][0]))
    chosen = choose(two)
    assert chosen.runtime == "letters:fp32"
    assert "0.999 is asked of every stratum" in next(one.problem for one in chosen.tried if one.name == "tally:fp32")


def test_a_runtime_that_cannot_be_loaded_is_out_and_a_missing_model_is_told(
    two: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise ModelError("no such library")

    monkeypatch.setitem(RUNTIMES, "tally", RuntimeKind(broken))
    chosen = choose(two)
    assert chosen.runtime == "letters:fp32"
    assert next(one.problem for one in chosen.tried if one.name == "tally:fp32") == "no such library"
    (Path(two.models["models_dir"]) / "letters" / "alphabet.txt").unlink()
    with pytest.raises(ModelError, match=r"alphabet\.txt: expected a file"):
        choose(two)


def test_shorter_vectors_are_compared_as_such(workspace: Workspace) -> None:
    toml: Path = workspace.models["model_files"][0]
    toml.write_text(toml.read_text().replace('name = "letters"', 'name = "letters"\nmatryoshka = [24]'))
    workspace.flags = {"embedder": "letters@24"}
    workspace.write("pump.md", "# Pump\n\nThe pump starts by itself.\n")
    workspace.build()
    found = run(workspace, with_index=True)
    assert found["ok"] and found["model"] == "letters@24" and len(found["pairs"]) == 1
    settings = workspace.settings()
    folder = ModelFolder(settings.models_dir, settings.model_folders)
    assert (
        runtime_choice.choose("letters@24", load_registry(toml), folder, None, lambda line: None).runtime
        == "letters:fp32"
    )


def test_one_far_behind_is_not_compared(two: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RUNTIMES, "tally", tally(seconds=0.02))
    chosen = choose(two)
    assert chosen.runtime == "letters:fp32"
    assert next(one.problem for one in chosen.tried if one.name == "tally:fp32").startswith("far behind: ")


def test_a_gpu_is_given_enough_texts_to_be_kept_busy(two: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, set[int]] = {"cpu": set(), "cuda": set()}

    class Counting(LettersRuntime):
        device = "cpu"

        @property
        def provenance(self) -> Provenance:
            return msgspec.structs.replace(super().provenance, device=f"{self.device} any")

        def encode(self, batch: Sequence[Sequence[int]]) -> Vectors:
            asked[self.device].add(len(batch))
            return super().encode(batch)

    monkeypatch.setitem(RUNTIMES, "letters", RuntimeKind(Counting))
    monkeypatch.setitem(RUNTIMES, "tally", RuntimeKind(type("Gpu", (Counting,), {"device": "cuda"})))
    choose(two)
    assert max(asked["cpu"]) <= runtime_choice.TEXTS < max(asked["cuda"])


def test_the_window_of_the_memory_is_that_of_the_device() -> None:
    assert policy.TEXTS_IN_WINDOW.keys() == policy.FEEDERS.keys() == policy.BATCH_TOKENS.keys()


# --- the real runtimes


def built_with(workspace: Workspace, name: str) -> tuple[EmbedderModel, ModelFolder]:
    """Build one document with a real model, and put a second one into the source."""
    registry, folder = load_registry(), ModelFolder(load_settings().models_dir)
    model = registry.embedder(name)
    try:
        folder.find(model)
    except ModelError as error:
        if name == DEFAULT_EMBEDDER:
            raise
        pytest.skip(f"needs {name} in the model folder (`gristmill models fetch {name}`): {error.message}")
    workspace.models = {"models_dir": folder.root, "embedder": name, "ruler": name}
    workspace.write("pump.md", "# Pump\n\nThe pump starts by itself.\n")
    workspace.build()
    workspace.write("new.md", "# New\n\nA word.\n")
    return model, folder


@pytest.mark.real
def test_quantized_weights_are_refused_by_search_and_build(workspace: Workspace) -> None:
    model, folder = built_with(workspace, DEFAULT_EMBEDDER)
    before = open_storage(workspace.settings()).pointer()
    for name, agrees in (("onnx:int8", False), ("llama.cpp:q4_k_m", False), ("onnx", True), ("llama.cpp:fp16", True)):
        convert_model(model, choice(model, name), folder)
        if agrees:
            assert search(workspace, runtime=name)["hits"][0]["key"] == "pump.md"
            continue
        for refuse in (partial(search, workspace, runtime=name), partial(workspace.build, runtime=name)):
            with pytest.raises(GateRefused, match=rf"gate parity: {name} does not make the vectors"):
                refuse()
    assert open_storage(workspace.settings()).pointer() == before
    report = workspace.build(runtime="onnx")
    assert report["published"] and report["work"]["embedded"] == 1


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("name", faults.FAULTS)
def test_whatever_is_wrong_is_refused_by_search_and_build(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fault, chosen = faults.FAULTS[name], "llama.cpp:fp16"
    model, folder = built_with(workspace, fault.model)
    convert_model(model, choice(model, chosen), folder)
    before = open_storage(workspace.settings()).pointer()
    right = embedding.open_embedder

    def wrong(*given: Any, **options: Any) -> Embedder:
        embedder = right(*given, **options)
        fault.spoil(embedder)
        return embedder

    monkeypatch.setattr(embedding, "open_embedder", wrong)
    for refuse in (partial(search, workspace, runtime=chosen), partial(workspace.build, runtime=chosen)):
        with pytest.raises(GateRefused, match=rf"gate parity: {chosen} does not make the vectors") as refusal:
            refuse()
        told = str(refusal.value)
        assert all(f" {stratum} " in told for stratum in fault.must), told
        assert not any(f" {stratum} " in told for stratum in fault.never), told
    assert open_storage(workspace.settings()).pointer() == before
    monkeypatch.setattr(embedding, "open_embedder", right)
    assert search(workspace, runtime=chosen)["hits"][0]["key"] == "pump.md"
    assert workspace.build(runtime=chosen)["work"]["embedded"] == 1
