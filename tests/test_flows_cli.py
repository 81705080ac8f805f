"""The command line as a process of its own, with the real model: what it says, and its exit status."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Workspace
from typer.testing import CliRunner

from flows import searching
from flows.cli import printing
from flows.cli.app import app
from flows.searching import answer_query
from indexes.cache.store import Cache
from parsers.errors import ModelError

GRISTMILL = str(Path(sys.executable).with_name("gristmill"))
DEMO = ROOT / "infra" / "demo"


def run(*arguments: object, timeout: float = 300, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [GRISTMILL, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | environment,
        check=False,
    )


def last_json(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout.splitlines()[-1])


def test_every_command_has_a_help_text() -> None:
    assert {command.name for command in app.registered_commands} >= {
        "build",
        "search",
        "inspect",
        "status",
        "evaluate",
        "models",
        "parity",
        "doctor",
    }
    for command in app.registered_commands:
        assert command.callback is not None and command.callback.__doc__


def test_help_imports_no_heavy_library() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from flows.cli.app import app\n"
        "for name in [None, *(one.name for one in app.registered_commands)]:\n"
        "    done = CliRunner().invoke(app, [*([name] if name else []), '--help'])\n"
        "    assert done.exit_code == 0, done.output\n"
        "print(sorted({'prefect', 'lancedb', 'torch', 'pyarrow', 'transformers'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["build", "nowhere", "--index", "i"], "no such folder"),
        (["build", __file__, "--index", "i"], "is not a folder"),
        (["build", ".", "--index", __file__], "cannot be used"),
        (["build", ".", "--index", "/proc/gristmill"], "cannot be used"),
        (["build"], "no source is given"),
        (["search", "x", "--index", "nowhere"], "nothing is published"),
        (["search", "x", "--mode", "magic"], "unknown mode 'magic'; use hybrid, dense or bm25"),
        (["search", "x", "--expand", "page"], "--expand 'page' is unknown; the only value is section"),
        (["status", "--index", "gs://bucket/index"], "of this kind are not supported"),
        (["inspect", "nowhere.md"], "cannot be read"),
        (["inspect", "a.txt", "--html", "no/page.html"], "there is no such folder"),
        (["evaluate", "nowhere.jsonl"], "cannot be read"),
        (["evaluate", "a.txt"], "a.txt:1: no golden question"),
        (["evaluate", "a.txt", "--ablate", "--against", "last"], "records of a published index"),
        (["golden", "dance", "a.txt"], "unknown action 'dance'; use check or add"),
        (["golden", "check", "nowhere.jsonl"], "cannot be read"),
        (["golden", "add", "new.jsonl"], "the question is missing"),
        (["golden", "add", "new.jsonl", "Why?"], "nothing is published"),
        (["build", ".", "--index", "i", "--config", "golden.toml"], "nowhere.jsonl cannot be read"),
        (["models", "dance"], "no action 'dance'"),
        (["models", "fetch", "unheard-of"], "unknown model"),
        (["models", "convert", "unheard-of"], "unknown model"),
        (["models", "convert", "SmolLM2-135M-Instruct"], "is no embedder"),
        (["models", "list", "--runtime", "onnx"], "--runtime needs the action convert"),
        (
            ["parity", "--runtime", "abacus"],
            "no runtime 'abacus' for all-MiniLM-L6-v2. Known: sentence-transformers:fp32",
        ),
        (["parity", "--embedder", "SmolLM2-135M-Instruct"], "is no embedder"),
        (["parity", "--index", "nowhere"], "nothing is published"),
        (["status", "--config", "nowhere.toml"], "no such file"),
    ],
)
def test_wrong_use_is_status_2_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    """In this process: a start takes seconds, and what these say does not depend on it."""
    (tmp_path / "a.txt").write_text("A document.")
    (tmp_path / "golden.toml").write_text('golden = "nowhere.jsonl"\n')
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2, done.stderr
    assert says in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr


def test_wrong_settings_are_named(tmp_path: Path) -> None:
    (tmp_path / "gristmill.toml").write_text("sauce = 'docs'\nnote_reserve = -1\n")
    done = run("status", "--config", tmp_path / "gristmill.toml", "--json")
    assert done.returncode == 2
    assert "sauce" in done.stderr and "note_reserve" in done.stderr
    assert last_json(done)["exit_status"] == 2


@pytest.mark.real
def test_the_demo_builds_answers_and_does_nothing_twice(tmp_path: Path) -> None:
    index = tmp_path / "index"
    built = run("build", DEMO / "docs", "--index", index, "--json")
    assert built.returncode == 3, built.stderr
    report = last_json(built)
    assert report["published"] and report["documents"]["failed"] == 1
    assert sorted(failure["key"] for failure in report["failures"]) == ["archive/scan-0417.md", "archive/scan-0502.pdf"]
    assert [one["key"] for one in report["unknown"]] == ["zh/compressor-notice.md"]
    assert report["truncated"] == 0
    assert built.stdout.count("\n") == 1

    found = run("search", "X-42B torque", "--index", index, "--json", "-k", "3", "--expand", "section")
    assert found.returncode == 0
    hit = last_json(found)["hits"][0]
    assert set(hit) >= {"rank", "score", "document_id", "key", "chunk_id", "start", "end", "text", "heading_path"}
    assert set(hit["ranks"]) == {"dense", "bm25"}
    assert hit["section"]["start"] <= hit["start"] and hit["text"] in hit["section"]["text"]

    again = last_json(run("build", DEMO / "docs", "--index", index, "--json"))
    assert not again["published"] and not any(again["work"].values())

    page = tmp_path / "page.html"
    measured = last_json(run("evaluate", DEMO / "golden.jsonl", "--index", index, "--html", page, "--json"))
    assert "Recall by depth" in page.read_text()
    hybrid = next(one for one in measured["runs"] if one["mode"] == "hybrid")
    assert hybrid["n"] == 38
    assert hybrid["recall"]["5"] >= 0.84  # a floor below what README reports: lowering it is a visible act

    checked = run("golden", "check", DEMO / "golden.jsonl", "--index", index)
    assert checked.returncode == 0 and "38 questions with an answer, 8 without" in checked.stdout
    again = run("evaluate", DEMO / "golden.jsonl", "--index", index, "--against", "last")
    assert again.returncode == 0 and "won: none; lost: none" in again.stdout

    standing = run("status", "--index", index)
    assert standing.returncode == 0 and "archive/scan-0417.md" in standing.stdout


@pytest.mark.real
def test_parity_shows_each_pair_and_ends_with_4_where_one_differs(tmp_path: Path) -> None:
    for runtime in ("onnx", "onnx:int8"):
        converted = run("models", "convert", "all-MiniLM-L6-v2", "--runtime", runtime, "--json")
        assert converted.returncode == 0 and len(last_json(converted)["conversions"][0]["sha256"]) == 64
    done = run("parity", "--runtime", "onnx", "--runtime", "onnx:int8", "--record", tmp_path / "r.json", "--json")
    assert done.returncode == 4, done.stderr
    found = last_json(done)
    assert [pair["pass"] for pair in found["pairs"]] == [True, False, False]
    assert json.loads((tmp_path / "r.json").read_text()) == found
    assert len(found["runtimes"]["onnx:int8"]["file"]) == 64


@pytest.mark.real
@pytest.mark.parametrize(
    ("number", "send"), [(signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill), (signal.SIGHUP, os.killpg)]
)
def test_an_interrupted_build_publishes_nothing_and_leaves_nothing_running(
    tmp_path: Path, number: int, send: Callable[[int, int], None]
) -> None:
    """Soon, too: what a terminal sends reaches all of its processes, and must not end Prefect's server first."""
    index = tmp_path / "index"
    process = subprocess.Popen(
        [GRISTMILL, "build", str(DEMO / "docs"), "--index", str(index)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=answer_interrupts,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "to look at" in line:
            break
    time.sleep(0.5)
    send(process.pid, number)
    _, rest = process.communicate(timeout=60)  # Prefect tries a server that is gone for 70 s
    assert process.returncode == 130, rest
    assert "interrupted" in rest and "Traceback" not in rest
    assert not (index / "pointer.json").exists()
    assert not alive_in_session(process.pid)


def answer_interrupts() -> None:
    """A shell starts its background jobs, and so these tests, deaf to Ctrl-C; `nohup` makes them deaf to SIGHUP."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def alive_in_session(session: int) -> list[str]:
    """Processes of a session that still run, by their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if int(fields[3]) == session and fields[0] != "Z":
                    found.append((entry / "cmdline").read_text())
            except (OSError, IndexError):
                continue
    return found


def test_a_full_disk_is_named_and_the_published_index_stays(tmp_path: Path) -> None:
    docs, disk = tmp_path / "docs", tmp_path / "disk"
    docs.mkdir()
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a small disk")
    try:
        (docs / "a.txt").write_text("One small document about pumps.")
        index = disk / "index"
        assert run("build", docs, "--index", index, "--vectors-for", "none").returncode == 0
        before = (index / "pointer.json").read_bytes()
        chance = random.Random(0)
        words = (f"{chance.getrandbits(64):016x}{'.' if n % 9 else '.' + chr(10) * 2}" for n in range(500_000))
        (docs / "filler.txt").write_text(" ".join(words))  # too large to be remembered as parsed
        done = run("build", docs, "--index", index, "--vectors-for", "none", "--json")
        assert done.returncode == 2, done.stderr
        assert "No space left on device" in done.stderr and "Free some space" in done.stderr
        assert (index / "pointer.json").read_bytes() == before
        assert last_json(run("search", "pumps", "--index", index, "--mode", "bm25", "--json"))["hits"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_doctor_names_a_missing_model_and_its_remedy(tmp_path: Path) -> None:
    done = run(
        "doctor",
        "--json",
        GRISTMILL_MODELS_DIR=str(tmp_path / "empty"),
        PIP_INDEX_URL="http://127.0.0.1:9/simple",
        PIP_EXTRA_INDEX_URL="",
        PIP_FIND_LINKS="",
        PIP_CONFIG_FILE=os.devnull,
    )
    assert done.returncode == 2
    checks = {check["name"]: check for check in last_json(done)["checks"]}
    model = checks["model all-MiniLM-L6-v2"]
    assert model["state"] == "missing" and "gristmill models fetch all-MiniLM-L6-v2" in model["remedy"]
    assert checks["network"]["state"] == "warning" and "model_folders" in checks["network"]["remedy"]


def test_inspect_shows_tree_and_chunks_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Title\n\nText. More text.\n\n```python\nx = 1\n```\n")
    done = run("inspect", tmp_path / "a.md", "--json")
    assert done.returncode == 0
    found = last_json(done)
    text = found["document"]["text"]
    assert found["document"]["title"] == "Title"
    assert {node["kind"] for node in found["document"]["nodes"]} >= {"section", "heading", "paragraph", "code"}
    for chunk in found["chunks"]:
        assert chunk["text"] == text[chunk["start"] : chunk["end"]]
    assert [path.name for path in tmp_path.iterdir()] == ["a.md"]


GUIDE = """# Guide

Open the valve.

## Pump

The pump stops by itself.

## Storage

Keep it dry.
"""


def answer(workspace: Workspace, query: str, k: int = 10, *, expand: bool = False, **flags: Any) -> dict[str, Any]:
    return answer_query(workspace.settings(**flags), query, "bm25", k, [], time.time(), expand=expand)


def test_a_search_folds_expands_and_reorders(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.write("guide.md", GUIDE)
    for number in range(6):
        workspace.write(f"copy{number}.md", "# Copy\n\nThe key hangs in bay 4.\n")
        workspace.write(f"other{number}.md", f"# Other\n\nNothing here, {number} times.\n")
    workspace.build()

    folded = answer(workspace, "key bay")
    first = folded["hits"][0]
    assert "section" not in first
    assert sorted([first["key"], *(copy["key"] for copy in first["also"])]) == [f"copy{n}.md" for n in range(6)]
    printing.print_hits(folded, explain=False)
    shown = capsys.readouterr().out
    assert shown.count("    also: copy") == 3 and "… and 2 more with this text" in shown

    expanded = answer(workspace, "pump stops", 1, expand=True)
    start = GUIDE.index("## Pump")
    end = start + len(expanded["hits"][0]["section"]["text"])
    assert expanded["hits"][0]["section"] == {"start": start, "end": end, "text": GUIDE[start:end]}
    assert GUIDE[start:end].strip() == "## Pump\n\nThe pump stops by itself."
    printing.print_hits(expanded, explain=True)
    assert (
        f"    section [{start}, {end}):\n      ## Pump\n\n      The pump stops by itself.\n" in capsys.readouterr().out
    )

    with monkeypatch.context() as patch:
        patch.setattr(Cache, "get", lambda self, keys: {})
        forgotten = answer(workspace, "pump stops", 1, expand=True)
    assert forgotten["hits"][0]["section"] is None
    printing.print_hits(forgotten, explain=False)
    assert "no longer remembered" in capsys.readouterr().out

    with pytest.raises(ModelError, match="no such folder"):
        answer(workspace, "pump", reranker="nowhere")

    class Backwards:
        fingerprint = "0" * 64

        def __init__(self, folder: Path, device: str | None) -> None:
            assert (str(folder), device) == ("some folder", None)

        def scores(self, query: str, texts: list[str]) -> Any:
            return [float(number) for number in range(len(texts))]

    monkeypatch.setattr(searching, "CrossEncoderReranker", Backwards)
    before = [hit["chunk_id"] for hit in answer(workspace, "pump key nothing")["hits"]]
    flags = {"reranker": "some folder", "rerank_depth": 3, "rrf_k": 7, "search_depth": 50}
    after = answer(workspace, "pump key nothing", **flags)
    assert [hit["chunk_id"] for hit in after["hits"]] == before[2::-1] + before[3:] and len(before) > 3
    printing.print_hits(after, explain=True)
    assert capsys.readouterr().out.count("reranker's score") == 3
    assert searching.open_searcher(workspace.settings(**flags), "bm25")._fusion.k == 7
