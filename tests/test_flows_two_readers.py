"""Two readers with different labels: neither sees anything of the other's documents, and each gets as many as exist."""

from __future__ import annotations

import json
import random

import pytest
from conftest import Workspace

from flows.searching import answer_query

WORDS = ("valve", "pump", "seal", "gauge", "motor", "bay", "key", "line", "cold", "dry", "slow", "open")
MODES = ("bm25", "dense", "hybrid")
COUNT = 1_000


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Documents of Ada, of Ben, and of both; some texts are held by both, word for word."""
    chosen = random.Random(7)
    found: dict[str, str] = {}
    for number in range(COUNT):
        owner = ("ada", "ben", "both")[number % 3]
        words = " ".join(chosen.choice(WORDS) for _ in range(chosen.randint(3, 12)))
        secret = f"{owner}secret{number}" if owner != "both" else "shared"
        found[f"{owner}/{number}.md"] = f"# Note\n\nThe {words} {secret if number % 5 else 'twin'}.\n"
    return found


def test_neither_sees_the_other(workspace: Workspace, texts: dict[str, str]) -> None:
    for key, text in texts.items():
        workspace.write(key, text)
    rules = [
        {"match": "ada/*", "labels": ["ada"]},
        {"match": "ben/*", "labels": ["ben"]},
        {"match": "both/*", "labels": ["ada", "ben"]},
    ]
    workspace.flags["labels"] = rules
    workspace.build()
    chosen = random.Random(11)
    queries = [*WORDS, "twin", "adasecret3", "bensecret1", "note", "valve AND -pump", '"dry valve"', "benSecret*"]
    queries += [" ".join(chosen.sample(WORDS, 3)) for _ in range(5)]
    settings = workspace.settings()
    for own, other in (("ada", "ben"), ("ben", "ada")):
        holds = {key for key in texts if not key.startswith(f"{other}/")}
        for query in queries:
            for mode in MODES:
                for options in ({}, {"expand": "section"}):
                    answer = answer_query(settings, query, mode, 50, [f"label={own}"], 0.0, **options)
                    said = json.dumps(answer).replace(query, "")
                    assert f"{other}secret" not in said and f"{other}/" not in said, (own, query, mode)
                    assert {hit["key"] for hit in answer["hits"]} <= holds
                    if mode != "bm25":
                        assert len(answer["hits"]) == 50, (own, query, mode)
        everything = answer_query(settings, "valve", "bm25", COUNT, [f"label={own}"], 0.0)["hits"]
        assert {hit["key"] for hit in everything} == {key for key in holds if "valve" in texts[key]}
