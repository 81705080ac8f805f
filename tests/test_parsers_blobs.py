"""Encoded data is left out of the index and named; what only resembles it stays."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.blobs import SHORTEST, find_blobs
from parsers.document import Document, check, leaves, left_out
from parsers.registry import read

RANDOM = Random(44)


def encoded(length: int) -> str:
    """So many characters of base64."""
    return base64.b64encode(RANDOM.randbytes(length))[:length].decode()


def wrapped(length: int, columns: int) -> str:
    data = encoded(length // 4 * 4)
    return "\n".join(data[start : start + columns] for start in range(0, len(data), columns))


def indexed(document: Document) -> str:
    reasons = left_out(document)
    return " ".join(
        document.text[slice(*document.nodes[index].extent)] for index in leaves(document) if reasons[index] is None
    )


MAPPINGS = ",".join(RANDOM.choice(["AAAA", "SAASA", "EAAEC", "GACLC", "IAAIC", "kBAAkB", "QAAU"]) for _ in range(200))
BLOBS = {
    "base64": encoded(SHORTEST),
    "base64 of the URL alphabet": base64.urlsafe_b64encode(RANDOM.randbytes(600)).decode(),
    "base64 of English": base64.b64encode(b"The pump stands in hall 3 and runs at night. " * 20).decode(),
    "base64 of Chinese": base64.b64encode("水泵坏了需要更换密封件。".encode() * 20).decode(),
    "base64 of UTF-16": base64.b64encode(("The pump stands in hall 3. " * 20).encode("utf-16-le")).decode(),
    "a data URI": f"data:image/png;base64,{encoded(SHORTEST)}",
    "a data URI with parameters": f"data:text/plain;charset=utf-8;base64,{encoded(SHORTEST)}",
    "a data URI in percent signs": f"data:image/svg+xml,{'%3Csvg%20width%3D%221%22%3E' * 30}",
    "lines of 64": wrapped(1000, 64),
    "lines of 76": wrapped(1000, 76),
    "a source map": MAPPINGS,
}
KEPT = {
    "one character less": encoded(SHORTEST - 1),
    "a short data URI": f"data:image/png;base64,{encoded(300)}",
    "hexadecimal": RANDOM.randbytes(2000).hex(),
    "hexadecimal in capitals": RANDOM.randbytes(2000).hex().upper(),
    "DNA": "".join(RANDOM.choices("ACGT", k=3000)),
    "a protein": "".join(RANDOM.choices("ACDEFGHIKLMNPQRSTVWY", k=3000)),
    "one sign": "A" * 5000,
    "words in camel case": "getTheValueFromTheServer" * 50,
    "numbers": "12,45;" * 300,
    "a path": "/usr/lib/Python3/site-Packages" * 40,
    "addresses": "https://example.org/a/B2/c-d_e?q=1&r=2," * 40,
    "hashes in lines": "\n".join(base64.b64encode(RANDOM.randbytes(32)).decode() for _ in range(40)),
    "digests in lines": "\n".join(RANDOM.randbytes(32).hex() for _ in range(40)),
    "keys in lines": "\n".join("".join(RANDOM.choices("ABCDEFabcdef0123456789", k=64)) for _ in range(40)),
    "identifiers": "550e8400-e29b-41d4-a716-446655440000" * 30,
    "minified JavaScript": "function(a,b){return a+b*3};" * 60,
    "a list of words": ",".join(RANDOM.choices(["Alpha", "beta", "Gamma7", "ABBA"], k=300)),
    "prose in JSON": '{"text":"' + "The pump stands in hall 3. " * 40 + '"}',
    "Thai": "ระบบสูบน้ำจะหยุดทำงาน" * 60,
    "glued words": "thepumpstandsinhallthree" * 60,
}


@pytest.mark.parametrize("name", BLOBS)
@pytest.mark.parametrize("where", ["{}", "Before it.\n\n{}\n\nBehind it.", '{{"key": "{}", "next": 1}}', "x = '{}'\n"])
def test_a_blob_is_found_where_it_stands(name: str, where: str) -> None:
    text = where.format(BLOBS[name])
    found = find_blobs(text)
    assert len(found) == 1
    assert BLOBS[name] in text[found[0].start : found[0].end] or name.startswith("lines")
    assert found[0].end - found[0].start <= len(BLOBS[name]) + 2


@pytest.mark.parametrize("name", KEPT)
def test_what_only_resembles_a_blob_stays(name: str) -> None:
    assert find_blobs(KEPT[name]) == []
    document = read("a.txt", KEPT[name].encode())
    assert document.status == "ok"
    assert "left_out" not in document.metadata


@pytest.mark.parametrize(
    ("key", "source"),
    [
        ("a.md", "# A\n\nSee ![a chart](data:image/png;base64,{blob}) there.\n\nEnd here.\n"),
        ("a.md", "# A\n\nSee [a chart][c] there.\n\n[c]: data:image/png;base64,{blob}\n\nEnd here.\n"),
        ("a.md", '# A\n\nSee <img alt="a chart" src="data:image/png;base64,{blob}"> there.\n\nEnd here.\n'),
        ("a.md", "# A\n\nSee a chart there.\n\n```\n{blob}\n```\n\nEnd here.\n"),
        ("a.md", "| See | a chart |\n|---|---|\n| there | {blob} |\n\nEnd here.\n"),
        ("a.md", "- See a chart there.\n- {blob}\n- End here.\n"),
        ("a.html", "<p>See a chart there.<pre>{blob}</pre><p>End here."),
        ("a.html", "<p>See a chart <b>there</b> {blob}<p>End here."),
        ("a.txt", "See a chart there.\n\n{blob}\n\nEnd here."),
        ("a.json", '{{"See": "a chart", "there": "{blob}", "End": "here."}}'),
        ("a.css", ".See{{}} .a .chart .there{{background:url(data:font/woff2;base64,{blob})}} .End .here."),
        ("a.py", "# See a chart there.\nDATA = '{blob}'\n# End here.\n"),
    ],
)
def test_a_blob_is_left_out_in_every_format(key: str, source: str) -> None:
    blob = encoded(2000)
    document = read(key, source.format(blob=blob).encode())
    check(document)
    assert document.status == "ok"
    assert re.search(r": 2\d\d\d characters", document.metadata["left_out"])
    kept = indexed(document)
    assert blob[:100] not in kept
    assert all(word in kept for word in ("See", "chart", "there", "End", "here."))
    assert [node.left_out for node in document.nodes if node.kind == "blob"] == [
        document.metadata["left_out"].split(":")[0]
    ]


def test_a_file_of_nothing_but_a_blob_is_empty_and_says_why() -> None:
    for key, text in (("a.txt", encoded(4000)), ("a.md", f"![](data:image/png;base64,{encoded(4000)})\n")):
        document = read(key, text.encode())
        assert document.status == "empty"
        assert re.search(r"no text in it; left out: [\w /]+: 4\d\d\d characters", document.reason)


def test_o44_the_image_is_left_out_and_the_track_is_not(shared: Path) -> None:
    image = read("o44_image.md", (shared / "cases/files/o44_image.md").read_bytes())
    assert image.metadata["left_out"] == "data URI image/png: 60024 characters"
    assert "chart" in indexed(image)
    track = read("o44_track.geojson", (shared / "cases/files/o44_track.geojson").read_bytes())
    assert "left_out" not in track.metadata


parts = st.sampled_from([*BLOBS.values(), *KEPT.values(), "Some words.", "\n\n", " ", '"', "(", ")", "| a |", "```\n"])


@settings(max_examples=60, deadline=None)
@given(st.lists(parts, max_size=12), st.sampled_from(["a.txt", "a.md", "a.html", "a.py"]))
def test_parts_with_blobs_still_cover_the_text(pieces: list[str], key: str) -> None:
    document = read(key, "".join(pieces).encode())
    if document.status != "failed":
        check(document)
    for node in document.nodes:
        assert node.kind != "blob" or node.left_out
