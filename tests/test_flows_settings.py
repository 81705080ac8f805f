"""Settings: what overrides what, and that the example file tells the truth."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from conftest import ROOT

from flows.searching import fusion
from flows.settings import Settings, load_settings
from indexes.search.search import Fusion
from parsers.errors import UsageError


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_flags_over_variables_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gristmill.toml").write_text(
        'index = "file"\nsource = "file"\nnote_reserve = 1\n[guards]\nremoved_count = 5\n'
    )
    monkeypatch.setenv("GRISTMILL_INDEX", "variable")
    monkeypatch.setenv("GRISTMILL_SOURCE", "variable")
    monkeypatch.setenv("GRISTMILL_GUARDS__REMOVED_COUNT", "7")
    settings = load_settings(index="flag", embedder=None)
    assert (settings.index, settings.source, settings.note_reserve) == ("flag", "variable", 1)
    assert settings.guards.removed_count == 7
    assert settings.embedder == "all-MiniLM-L6-v2"


def test_an_unknown_setting_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("[guards]\nremoved_cuont = 5\n")
    with pytest.raises(UsageError, match="removed_cuont"):
        load_settings(tmp_path / "other.toml")


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "gristmill.toml").write_text("index = \n")
    with pytest.raises(UsageError, match="is not TOML"):
        load_settings()


def test_the_example_file_holds_every_default() -> None:
    text = (ROOT / "infra/gristmill.example.toml").read_text()
    example = tomllib.loads(text)
    defaults = Settings.model_validate({}).model_dump(mode="json")
    for name, value in example.items():
        assert defaults[name] == value, name
    assert all(name in text for name in Settings.model_fields)


def test_each_line_of_the_example_file_may_be_used(tmp_path: Path) -> None:
    lines = (ROOT / "infra/gristmill.example.toml").read_text().splitlines()
    commented = re.compile(r"# (?=\w+ = |\[\[)")
    (tmp_path / "gristmill.toml").write_text("\n".join(commented.sub("", line, count=1) for line in lines))
    settings = load_settings()
    assert settings.golden == Path("golden.jsonl") and settings.labels[0].labels == ["internal"]
    assert settings.guards.attempts == 5 and settings.runtime == "onnx"


def test_the_defaults_of_a_search_are_the_measured_ones() -> None:
    assert fusion(load_settings()) == Fusion()  # written twice, so that settings load no library


# What is wrong is named, with what may be meant


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("exlude = ['a']", "unknown setting exlude; did you mean exclude?"),
        ("[guards]\nremoved_cuont = 5", "unknown setting guards.removed_cuont; did you mean removed_count?"),
        ("[gaurds]\nremoved_count = 5", "unknown setting gaurds; did you mean guards?"),
        ("[[labels]]\nmacth = '*'\nlabels = ['a']", "unknown setting labels[0].macth; did you mean match?"),
        ("zzz = 1", "unknown setting zzz; known are allow_unmatched_filters, "),
        ("[guards]\nzzz = 1", "unknown setting guards.zzz; known are attempts, "),
    ],
)
def test_a_misspelt_setting_is_named_with_the_one_meant(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "gristmill.toml").write_text(text)
    with pytest.raises(UsageError) as refused:
        load_settings()
    assert says in refused.value.message and refused.value.exit_status == 2


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("GRISTMILL_EXLUDE", '["a"]', "unknown variable GRISTMILL_EXLUDE; did you mean GRISTMILL_EXCLUDE?"),
        ("gristmill_exlude", '["a"]', "unknown variable gristmill_exlude; did you mean GRISTMILL_EXCLUDE?"),
        ("GRISTMILL_GUARDS__ATEMPTS", "3", "did you mean GRISTMILL_GUARDS__ATTEMPTS?"),
        ("GRISTMILL_GUARDS_ATTEMPTS", "3", "did you mean GRISTMILL_GUARDS__ATTEMPTS?"),
        ("GRISTMILL_EXCLUDE", "drafts/*", """GRISTMILL_EXCLUDE must be JSON, such as ["drafts/*"], got 'drafts/*'"""),
        ("GRISTMILL_LABELS", "internal", "GRISTMILL_LABELS must be JSON"),
        ("GRISTMILL_GUARDS", "strict", "GRISTMILL_GUARDS must be JSON"),
        ("GRISTMILL_NOTE_RESERVE", "many", "note_reserve: "),
    ],
)
def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(UsageError) as refused:
        load_settings()
    assert says in refused.value.message and refused.value.exit_status == 2


def test_variables_that_are_no_settings_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRISTMILL_LLM_KEY", "secret")
    monkeypatch.setenv("GRISTMILL_GUARDS__ATTEMPTS", "3")
    monkeypatch.setenv("gristmill_exclude", '["a"]')
    settings = load_settings()
    assert (settings.guards.attempts, settings.exclude) == (3, ["a"])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("source = 'f\xfcr'".encode("latin-1"), "is not UTF-8: byte 0xfc at 11"),
        ("source = 'a'".encode("utf-16"), "is not UTF-8: byte 0xff at 0"),
        (b"source = 'a\x00'", "is not TOML"),
    ],
)
def test_a_settings_file_of_other_bytes_is_named(tmp_path: Path, data: bytes, says: str) -> None:
    (tmp_path / "gristmill.toml").write_bytes(data)
    with pytest.raises(UsageError) as refused:
        load_settings()
    assert says in refused.value.message and "gristmill.toml" in refused.value.message


def test_a_settings_file_may_begin_with_a_mark(tmp_path: Path) -> None:
    (tmp_path / "gristmill.toml").write_bytes("source = 'für'".encode("utf-8-sig"))
    assert load_settings().source == "für"


def test_a_folder_in_place_of_the_settings_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "gristmill.toml").mkdir()
    with pytest.raises(UsageError, match=r"gristmill\.toml cannot be read: Is a directory"):
        load_settings()
