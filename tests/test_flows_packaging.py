"""The packages' names are common: what is imported must be ours."""

from __future__ import annotations

import importlib

import pytest
from conftest import ROOT


@pytest.mark.parametrize("name", ["parsers", "chunker", "enrich", "indexes", "flows"])
def test_the_package_is_ours(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ == str(ROOT / name / "__init__.py")
    assert not (ROOT / "tests" / name).exists()


def test_no_pinned_distribution_brings_a_package_of_our_names() -> None:
    pinned = {line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert not pinned & {"parsers", "chunker", "enrich", "indexes", "flows"}
