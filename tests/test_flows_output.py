"""What commands print: streams that never end a command, questions with a dash, and hits that one can tell apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Workspace
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from flows.cli.app import app
from flows.cli.printing import places
from flows.cli.question_argument import questions_last

TEXT = "# Ωmega 水泵\n\nThe pump stops — “by itself” — naïve, ﬁne, 水泵停了。\n"
# A command that shows what it found and ends with status 3, as a build does in which a document failed.
COMMAND = """
import sys
import typer
from flows.cli import streams
from flows.cli.command import clearly, say, show_result
streams.install_streams()

@clearly
def command(as_json: bool = False) -> None:
    say("working … 水")
    found = {"text": "水泵 “pump” \\udcff" + "x" * 100_000}
    show_result(found, as_json, lambda: typer.echo(found["text"]))
    raise SystemExit(3)

command(as_json="--json" in sys.argv)
"""


def run(*arguments: object, shell: str = "{}", code: str = COMMAND, **environment: str) -> Any:
    return subprocess.run(
        ["bash", "-c", "set -o pipefail; " + shell.format('"$@"'), "bash", sys.executable, "-c", code]
        + [str(one) for one in arguments],
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8:strict"])
def test_what_an_encoding_lacks_is_replaced(encoding: str) -> None:
    done = run(PYTHONIOENCODING=encoding)
    assert done.returncode == 3 and b"Traceback" not in done.stderr, done.stderr
    assert b"pump" in done.stdout and b"working" in done.stderr
    done = run("--json", PYTHONIOENCODING=encoding)
    assert done.returncode == 3
    assert json.loads(done.stdout.splitlines()[-1])["text"].startswith("水泵 “pump” ")


@pytest.mark.parametrize("shell", ["{} | head -c 1", "{} | true", "{} 2>&1 | true", "{} >&-", "{} 2>&-"])
def test_a_closed_pipe_changes_no_exit_status(shell: str) -> None:
    for arguments in ((), ("--json",)):
        done = run(*arguments, shell=shell)
        assert done.returncode == 3, done.stderr
        assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr


@pytest.mark.slow
def test_a_build_and_a_search_keep_their_status_whatever_reads_them(tmp_path: Path) -> None:
    code = "from flows.cli import main; main()"
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/Ωmega.md").write_text(TEXT, encoding="utf-8")
    (tmp_path / "docs/水.pdf").write_bytes(b"no PDF")
    build = ("build", tmp_path / "docs", "--index", tmp_path / "index", "--vectors-for", "none")
    done = run(*build, code=code, shell="{} 2>&1 | head -c 1", PYTHONIOENCODING="cp1252")
    assert done.returncode == 3, done.stderr
    search = ("search", "水泵 pump", "--index", tmp_path / "index", "--mode", "bm25")
    done = run(*search, code=code, PYTHONIOENCODING="cp1252")
    assert done.returncode == 0 and b"The pump stops" in done.stdout
    assert run(*search, code=code, shell="{} | head -c 1").returncode == 0


# Questions that begin with a dash


TAKES = {"-k": True, "--mode": True, "--json": False, "--help": False}


@pytest.mark.parametrize(
    ("given_", "parsed"),
    [
        (["pump", "-k", "3"], ["pump", "-k", "3"]),
        (["--keep-going fails", "-k", "3", "--json"], ["-k", "3", "--json", "--", "--keep-going fails"]),
        (["-k means what", "-k5"], ["-k5", "--", "-k means what"]),
        (["- a bullet"], ["--", "- a bullet"]),
        (["--mode", "-x y", "pump"], ["--mode", "-x y", "pump"]),
        (["--mode=bm25", "--", "--keep-going", "--json"], ["--mode=bm25", "--", "--keep-going", "--json"]),
        (["file", "--why is it?"], ["file", "--", "--why is it?"]),
    ],
)
def test_words_that_begin_with_a_dash_are_the_question(given_: list[str], parsed: list[str]) -> None:
    assert questions_last(given_, TAKES, "gristmill search") == parsed


@given(st.lists(st.text("-ab=?", min_size=1), min_size=2, max_size=5).map(" ".join))
def test_every_question_with_a_blank_is_taken(question: str) -> None:
    assert questions_last([question], TAKES, "search")[-1] == question


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["search", "--keep-going"], "put -- before them: gristmill search -- --keep-going"),
        (["search", "-x"], "there is no option -x"),
        (["search", "pump", "--mod", "bm25"], "there is no option --mod. Did you mean --mode?"),
        (["golden", "add", "new.jsonl", "--keep-going"], "put -- before them"),
        (["search", "--index", "nowhere", "--", "--keep-going"], "nothing is published"),
        (["search", "--keep-going fails", "--index", "nowhere"], "nothing is published"),
        (["golden", "add", "new.jsonl", "--keep-going fails", "--index", "nowhere"], "nothing is published"),
    ],
)
def test_one_word_that_looks_like_an_option_names_the_two_dashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, arguments, prog_name="gristmill")
    assert done.exit_code == 2
    assert says in " ".join(done.stderr.split())


def test_the_version_is_shown() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0 and done.stdout.startswith("gristmill 0.")


# Hits that one can tell apart


def hit(key: str, locator: str = "") -> dict[str, Any]:
    return {"key": key, "locator": locator or key.rsplit("/", 1)[-1]}


def test_hits_of_one_base_name_show_their_keys() -> None:
    found = [hit("a/README.md", "README.md › Install"), hit("b/README.md", "README.md › Install"), hit("README.md")]
    assert places(found) == ["a/README.md › Install", "b/README.md › Install", "README.md"]


def test_a_citation_that_two_documents_share_is_told_apart() -> None:
    found = [hit("x/war.txt", "Caesar, War 4.25"), hit("y/war.txt", "Caesar, War 4.25"), hit("z.txt", "Caesar, War 5")]
    assert places(found) == ["Caesar, War 4.25 (x/war.txt)", "Caesar, War 4.25 (y/war.txt)", "Caesar, War 5"]


def test_a_long_key_is_cut_where_it_still_differs() -> None:
    deep = "/".join(["a-long-folder-name"] * 5)
    found = [hit(f"{deep}/one/README.md"), hit(f"{deep}/two/README.md"), hit("short/notes.md")]
    shown = places(found)
    assert all(place.startswith("…/") and len(place) <= 62 for place in shown[:2])
    assert shown[0].endswith("/one/README.md") and shown[1].endswith("/two/README.md") and shown[2] == "short/notes.md"
    swapped = [hit(f"one/{deep}/README.md"), hit(f"two/{deep}/README.md")]
    assert places(swapped) == [one["key"] for one in swapped]


@given(st.lists(st.lists(st.sampled_from(["a", "b", "README.md", "x" * 40]), min_size=1, max_size=6), max_size=6))
def test_two_documents_never_show_alike(keys: list[list[str]]) -> None:
    found = [hit("/".join(key), locator) for key in keys for locator in ("", "A Work 1")]
    shown = places(found)
    for one, place in zip(found, shown, strict=True):
        assert all(other["key"] == one["key"] for other, same in zip(found, shown, strict=True) if same == place)


def test_a_search_in_a_tree_of_readmes_can_be_read(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    from flows.cli import printing
    from flows.searching import answer_query

    for name in ("one", "two", "three"):
        workspace.write(f"{name}/README.md", f"# Guide\n\nThe pump of {name} stops.\n")
    workspace.build()
    printing.print_hits(answer_query(workspace.settings(), "pump", "bm25", 10, [], 0.0), explain=False)
    shown = capsys.readouterr().out
    assert all(f"{name}/README.md › " in shown or f"{name}/README.md\n" in shown for name in ("one", "two", "three"))
