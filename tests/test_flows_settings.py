"""Settings: what overrides what, and that the example file tells the truth."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from conftest import ROOT

from flows.searching import fusion
from flows.settings import Settings, load_settings
from indexes.search import Fusion
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
