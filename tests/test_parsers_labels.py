"""Labels that documents state: read exactly, or the label that denies stands in their place."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
import yaml  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.document import Document
from parsers.labels import UNREADABLE, fault, from_text, is_reserved
from parsers.markdown.front_matter import front_matter
from parsers.registry import read, unread_labels

BODY = "\n# Pumps\n\nThe pump has a seal.\n"


def of(text: str, key: str = "a.md") -> Document:
    document = read(key, text.encode())
    assert document.status in ("ok", "partial", "empty")
    assert (UNREADABLE in document.labels) == ("labels cannot be read" in document.reason)
    return document


def denies(document: Document) -> bool:
    """Whether a document denies; then it carries no label beside the one that says so, and is not called whole."""
    if UNREADABLE not in document.labels:
        return False
    assert document.labels == (UNREADABLE,) and document.status != "ok"
    assert "gristmill:" in document.reason
    return True


@pytest.mark.parametrize(
    ("field", "labels"),
    [
        ("labels: [restricted, internal]", ("internal", "restricted")),
        ("labels: ['restricted', \"internal\"]", ("internal", "restricted")),
        ("labels:\n- restricted\n- internal", ("internal", "restricted")),
        ("labels:\n  - restricted\n  - 'internal'  # both", ("internal", "restricted")),
        ("labels: restricted, internal", ("internal", "restricted")),
        ("labels: 'restricted, internal'", ("internal", "restricted")),
        ("Labels: [restricted]", ("restricted",)),
        ("LABELS : restricted", ("restricted",)),
        ('"labels": [restricted]', ("restricted",)),
        ("{title: x, labels: [restricted]}", ("restricted",)),
        (
            "labels: [top secret, 部門, d\u00e9, '2031', 'no', \"team:hr\"]",
            ("2031", "d\u00e9", "no", "team:hr", "top secret", "部門"),
        ),
        ("x: &x [restricted]\nlabels: *x", ("restricted",)),
        ("labels: []", ()),
        ("labels: ''", ()),
        ("label: restricted", ()),
        ("text: |\n  labels: none", ()),
        ("# labels: [restricted]\ntitle: x", ()),
    ],
)
def test_labels_are_read_exactly(field: str, labels: tuple[str, ...]) -> None:
    assert of(f"---\n{field}\n---\n{BODY}").labels == labels
    malformed = of(f"---\ntitle: Pumps: a manual\n{field}\nowner: x\n---\n{BODY}")
    assert malformed.labels == labels or denies(malformed)
    is_block = not field.startswith(('"', "{"))  # a broken block with other lines than fields is text
    assert malformed.title in (("Pumps: a manual", "x") if is_block else ("",))


@pytest.mark.parametrize(
    "field",
    [
        *("labels:", "labels: null", "labels: ~", "labels: 7", "labels: 2031-02-03", "labels: true", "labels: no"),
        *("labels: {access: restricted}", "labels: [[restricted]]", "labels: [a, {b: c}]", "labels: [a, 7]"),
        *("labels: !!set {restricted}", "labels: !x [restricted]", "labels: |\n  restricted", "labels: >-\n  a\n  b"),
        *("labels:\t[restricted", "\tlabels: [restricted]", "labels:\n\t- restricted", " labels: [a]\ntitle: x"),
        *(
            "labels: [restricted",
            "labels: restricted]",
            "labels: ['restricted]",
            'labels: ["a", "b]',
            'labels: [a, b"]',
        ),
        *("labels: [a]\nlabels: [b]", "Labels: [a]\nlabels: [a]", "labels: [a], [b]", "labels:: [a]", "labels: : a"),
        *("labels [a]", "labels", "labels = [a]", "labels\uff1a[a]", "labels:[a]", "- labels: [a]", "* labels: a"),
        *("labels:\n  -a\n  -b", "labels:\n  -a", "labels:\n- a\n-b", "labels:\n  • a", "labels:\n- a\n* b"),
        *(
            "labels: a; b",
            "labels: [a; b]",
            "labels: a | b",
            "labels: [a\uff0cb]",
            "labels: ['a, b']",
            "labels: \u201ca\u201d",
        ),
        *("labels: [\"'a'\"]", "labels: [''a'']", "labels: [a'b]", "labels: [a:b]", "labels: a:", "labels: [a: b]"),
        *("labels: [gristmill:unreadable-labels]", "labels: ['gristmill:x']", "labels: ['GRISTMILL\uff1ax']"),
        *("labels: ['a\u200bb']", 'labels: ["a\\tb"]', 'labels: ["a\\0b"]', 'labels: ["a", ""]', "labels: ','"),
        *("\u200blabels: [a]", "ｌａｂｅｌｓ: [a]", "access:\n  labels: [a]", "x: [{labels: a}]", "<<: {labels: [a]}"),
        *("labels: *unknown", "? labels\n: [a\n", "labels: [a]\n  - b", "labels: a\n  b"),
    ],
)
def test_what_cannot_be_read_exactly_denies(field: str) -> None:
    assert denies(of(f"---\n{field}\n---\n{BODY}"))
    assert denies(of(f"---\ntitle: Pumps: a manual\n{field}\n---\n{BODY}"))


@pytest.mark.parametrize(
    ("block", "labels"),
    [
        ('labels = ["restricted", "internal"]', ("internal", "restricted")),
        ('title = "x"\nLabels = "restricted, internal"', ("internal", "restricted")),
        ("labels = []", ()),
        ('text = """\nlabels = none"""', ()),
    ],
)
def test_labels_in_toml(block: str, labels: tuple[str, ...]) -> None:
    assert of(f"+++\n{block}\n+++\n{BODY}").labels == labels


@pytest.mark.parametrize(
    "block",
    [
        *("labels = [restricted]", 'labels = ["a", 7]', "labels = 7", "labels = {a = 1}", 'labels = [["a"]]'),
        *('labels = ["a"]\nlabels = ["b"]', 'labels = ["a"]\nLabels = ["a"]', "labels: [a]", 'labels = ["a'),
        *('[extra]\nlabels = ["a"]', '[[extra]]\nlabels = ["a"]', "labels = 2031-02-03", '"labels:" = ["a"]'),
    ],
)
def test_labels_in_toml_that_cannot_be_read_deny(block: str) -> None:
    assert denies(of(f"+++\n{block}\n+++\n{BODY}"))


@pytest.mark.parametrize(
    "text",
    [
        "\n---\nlabels: [restricted]\n---\n",
        "\n \t\n---\nLabels: restricted\n---\n",
        " ---\nlabels: [restricted]\n---\n",
        "----\nlabels: [restricted]\n----\n",
        "--\nlabels: [restricted]\n--\n",
        "\u2014\u2014\nlabels: [restricted]\n\u2014\u2014\n",
        "---\ntitle: x\nlabels: [restricted]\n",
        "---\ntitle: x\n\nlabels: [restricted]\n\n# Heading\n\nText.\n\n---\n\nMore.\n",
        "---\nlabels: [restricted]\n----\n",
        "--- {labels: [restricted]}\n---\n",
        "title: x\nlabels: [restricted]\n---\n",
        "<!-- a licence -->\n---\nlabels: [restricted]\n---\n",
        "\n+++\nlabels = ['restricted']\n+++\n",
        "+++\nlabels = ['restricted']\n",
        ';;;\n{"labels": ["restricted"]}\n;;;\n',
        '{\n  "labels": ["restricted"]\n}\n',
        "---\n- labels: [restricted]\n---\n",
        "---\nA sentence.\n\nlabels: [restricted]\n---\n",
        f"---\n{'x: y' * 30_000}\nlabels: [restricted]\n---\n",
    ],
)
def test_what_was_meant_as_front_matter_denies(text: str) -> None:
    if "x: yx: y" in text:
        text = text.replace("\nlabels: [restricted]", "").replace("---\n", "---\nlabels: [restricted]\n", 1)
    assert denies(of(f"{text}{BODY}")), front_matter(text)


@pytest.mark.parametrize(
    "text",
    [
        "# Labels\n\nlabels: how we use them.\n",
        "Labels: how we use them.\n\n---\n\nMore.\n",
        "Some text.\n\n---\nlabels: [restricted]\n---\n",
        "---\n\nA rule. Labels are fine here.\n\nCooling\n-------\n\nlabels: x\n",
        "***\n\nlabels: x\n",
        "---\ntitle: labels\ntags: [labels]\n---\n",
        "```yaml\nlabels: [x]\n```\n",
    ],
)
def test_text_about_labels_is_text(text: str) -> None:
    document = of(text + BODY)
    assert document.labels == () and document.status == "ok"


def test_labels_of_a_page() -> None:
    page = "<html><head>{}</head><p>The pump has a seal.</p></html>"
    assert of(
        page.format("<meta name=Labels content='staff, board'><meta name=labels content=x>"), "a.html"
    ).labels == (*("board", "staff", "x"),)
    assert of(page.format("<meta name=labels content=''>"), "a.html").labels == ()
    for head in (
        "<meta name=labels>",
        "<meta name=labels value='x'>",
        "<meta name=labels content='a; b'>",
        "<meta name=labels content='\"a\"'>",
        "<meta name=labels content=x><meta name=labels content=gristmill:y>",
        "<!-- <meta name='labels' content=x> -->",
    ):
        assert denies(of(page.format(head), "a.html")), head


def test_a_file_that_cannot_be_read_and_speaks_of_labels_denies_for_the_version_that_stays() -> None:
    broken = b"---\nlabels: [restricted]\n---\n# A\n" + bytes(range(256)) * 4
    assert read("a.md", broken).status == "failed"
    assert unread_labels("a.md", broken) == (UNREADABLE,)
    assert unread_labels("a.md", b"\xff\xfe" + "---\nlabels: x\n---\n".encode("utf-16-le")) == (UNREADABLE,)
    assert unread_labels("a.html", b"\0<meta name=labels content=x>") == (UNREADABLE,)
    assert unread_labels("a.md", b"# A\n\0\nlabels") == () == unread_labels("a.pdf", b"%PDF labels:")


@pytest.mark.parametrize(
    "label", ["restricted", "top secret", "部門", "team:hr", "@staff", "a/b", "l\u2019équipe", "🔒", "1"]
)
def test_what_is_a_label(label: str) -> None:
    assert fault(label) == "" and not is_reserved(label) and from_text(label).labels == (label,)


# --- property ---------------------------------------------------------------------------------------------------------

WORD = st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyzéßλж日本0123456789"), min_size=2, max_size=8).filter(
    lambda word: not re.fullmatch(r"[\de]+|on|off|yes|no|true|false|null|0o.*|labels", word)
)
LABELS = st.lists(st.lists(WORD, min_size=1, max_size=2).map(" ".join), min_size=1, max_size=4, unique=True)


def _yaml(labels: list[str], **style: object) -> str:
    dumped: str = yaml.safe_dump({"labels": labels}, allow_unicode=True, width=1_000, **style)
    return dumped.rstrip("\n")


WRITERS: dict[str, Callable[[list[str]], str]] = {
    "flow": lambda labels: f"labels: [{', '.join(labels)}]",
    "dumped": lambda labels: _yaml(labels, default_flow_style=None),
    "single": lambda labels: "labels: [" + ", ".join(f"'{one}'" for one in labels) + "]",
    "double": lambda labels: "labels: [" + ", ".join(json.dumps(one, ensure_ascii=False) for one in labels) + "]",
    "block": lambda labels: "labels:\n" + "\n".join(f"- {one}" for one in labels),
    "indented": lambda labels: "labels:\n" + "\n".join(f"  - {one}" for one in labels),
    "quoted block": lambda labels: "labels:\n" + "\n".join(f'  - "{one}"' for one in labels),
    "text": lambda labels: f"labels: {', '.join(labels)}",
}
TOML: dict[str, Callable[[list[str]], str]] = {
    "toml": lambda labels: f"labels = {json.dumps(labels, ensure_ascii=False)}",
    "toml literal": lambda labels: "labels = [\n" + ",\n".join(f"  '{one}'" for one in labels) + ",\n]",
    "toml text": lambda labels: f'labels = "{", ".join(labels)}"',
}
SIGNS = "\"'`\t:[]{},;-|>&*!%=?\u201c\u201d\u2018\uff1a\uff0c\u200b\ufeff"


def write(labels: list[str], style: str, more: list[str]) -> str:
    """A file whose front matter has the labels among other fields."""
    fence = "+++" if style in TOML else "---"
    field = (TOML | WRITERS)[style](labels)
    others = [f'{name} = "x"' if style in TOML else f"{name}: x" for name in more]
    return "\n".join([fence, *others[:1], field, *others[1:], fence, BODY])


@st.composite
def mutated(draw: st.DrawFn, text: str, labels: list[str]) -> str:
    """A file after one or two faults of writing; a file that lost both its fences has no front matter to speak of."""
    faults = draw(st.integers(1, 2))
    for _ in range(faults):
        head = text[: text.index("# Pumps")]
        inside = [span for label in labels for span in re.finditer(re.escape(label), head)]
        within = {place for span in inside for place in range(span.start() + 1, span.end())}
        places = [place for place in range(len(head)) if place not in within]
        place = draw(st.sampled_from(places))
        kind = draw(
            st.sampled_from(["sign", "quote", "delete", "case", "double", "line", "type", "blank", "colon", "tab"])
        )
        if kind == "sign":
            text = text[:place] + draw(st.sampled_from(SIGNS)) + text[place:]
        elif kind in ("quote", "tab"):  # these within letters too
            place = draw(st.integers(0, len(head)))
            text = text[:place] + ("\t" if kind == "tab" else draw(st.sampled_from("\"'"))) + text[place:]
        elif kind == "delete" and not text[place].isalnum() and text[place] not in " \n,":
            text = text[:place] + text[place + 1 :]
        elif kind == "case":
            text = re.sub(
                r"labels(?=[ \t\"']*[:=])", draw(st.sampled_from(["Labels", "LABELS", "labelS"])), text, count=1
            )
        elif kind == "double":
            lines = text.split("\n")
            number = draw(st.integers(0, max(1, head.count("\n") - 1)))
            text = "\n".join([*lines[: number + 1], *lines[number:]])
        elif kind == "line":
            text = re.sub(
                r"[^\n]*\n",
                draw(st.sampled_from(["\n", "----\n", *["", "x: y: z\n"][: 4 - 2 * faults]])),
                text,
                count=1,
            )
        elif kind == "type":
            other = draw(
                st.sampled_from(["7", "true", "{a: b}", "[[a]]", "null", "", "2031-01-01", "!!set {a}", "[1]", "&a"])
            )
            text = re.sub(
                r"(labels\s*[:=])[^\n]*(\n *- [^\n]*)*", lambda match, other=other: f"{match[1]} {other}", text, count=1
            )
        elif kind == "blank":
            text = draw(st.sampled_from(["\n", " \n", "\ufeff\n", " "])) + text
        elif kind == "colon":
            text = text.replace(": ", draw(st.sampled_from([":", "::", " ", ": : ", " :", "\uff1a", " = "])), 1)
    return text


@given(LABELS, st.sampled_from([*WRITERS, *TOML]), st.lists(st.sampled_from("abc"), max_size=2, unique=True))
@settings(max_examples=150, deadline=None)
def test_labels_that_are_written_well_are_read_in_every_style(labels: list[str], style: str, more: list[str]) -> None:
    document = of(write(labels, style, more))
    assert set(document.labels) == set(labels) and document.status == "ok", document.reason


@given(LABELS, st.sampled_from([*WRITERS, *TOML]), st.lists(st.sampled_from("abc"), max_size=2, unique=True), st.data())
@settings(max_examples=600, deadline=None)
def test_labels_that_are_written_badly_are_read_all_the_same_or_deny(
    labels: list[str], style: str, more: list[str], data: st.DataObject
) -> None:
    text = data.draw(mutated(write(labels, style, more), labels))
    document = of(text)
    assert set(document.labels) == set(labels) or denies(document), text
