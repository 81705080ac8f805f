"""The tree builder and the rules that every tree keeps."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.document import Document, Node, TreeBuilder, check, has_text, leaves, left_out


def finished(builder: TreeBuilder, **attributes: object) -> Document:
    return builder.finish(media_type="text/plain", **attributes)  # type: ignore[arg-type]


def outline(document: Document) -> list[tuple[str, int, str]]:
    """Kind, parent and text of each node."""
    return [(node.kind, node.parent, document.text[slice(*node.extent)]) for node in document.nodes]


# --- sections ---------------------------------------------------------------------------------------------------------


def test_a_heading_opens_a_section_and_closes_those_of_its_level_and_below() -> None:
    builder = TreeBuilder()
    for level, title in [(1, "One"), (3, "One three"), (2, "One two"), (1, "Two")]:
        builder.write_heading(title, level)
        builder.write_leaf("paragraph", f"of {title}")
    document = finished(builder)
    sections = [(node.title, node.level, node.parent) for node in document.nodes if node.kind == "section"]
    assert sections == [("One", 1, -1), ("One three", 3, 0), ("One two", 2, 0), ("Two", 1, -1)]
    assert [document.text[slice(*node.extent)] for node in document.nodes if node.kind == "section"] == [
        "One\n\nof One\n\nOne three\n\nof One three\n\nOne two\n\nof One two",
        "One three\n\nof One three",
        "One two\n\nof One two",
        "Two\n\nof Two",
    ]


def test_a_heading_within_a_quote_opens_no_section() -> None:
    builder = TreeBuilder()
    with builder.inside("quote"):
        builder.write_heading("Quoted", 1)
    builder.write_leaf("paragraph", "after")
    assert [(node.kind, node.parent) for node in finished(builder).nodes] == [
        ("quote", -1),
        ("heading", 0),
        ("paragraph", -1),
    ]


def test_close_without_open_is_refused() -> None:
    builder = TreeBuilder()
    builder.write_heading("Title", 1)
    with pytest.raises(ValueError, match="without a matching open"):
        builder.close()


# --- marks ------------------------------------------------------------------------------------------------------------


def test_a_bullet_goes_to_what_it_opens_and_a_rest_to_the_leaf_before() -> None:
    text = "- one\n- two !!"
    builder = TreeBuilder(text)
    builder.open("list", 0)
    for start, end in [(2, 5), (8, 11)]:
        builder.open("item", start, outer=(start - 2, start))
        builder.leaf("paragraph", start, end)
        builder.close()
    builder.close()
    document = finished(builder)
    assert [document.text[slice(*document.nodes[i].extent)] for i in leaves(document)] == ["- one", "- two !!"]


def test_text_without_any_leaf_around_it_is_found() -> None:
    with pytest.raises(ValueError, match="belongs to no node"):
        finished(TreeBuilder("nobody wants me"))


# --- written text -----------------------------------------------------------------------------------------------------


def test_blank_parts_write_nothing_and_no_separator_stands_first() -> None:
    builder = TreeBuilder()
    builder.write_leaf("paragraph", " \n ")
    builder.write_heading("  ", 1)
    builder.write_leaf("paragraph", "first")
    builder.write_leaf("row", "second", "\n")
    document = finished(builder)
    assert document.text == "first\nsecond"
    assert [node.kind for node in document.nodes] == ["paragraph", "row"]


def test_writing_into_a_given_text_is_refused() -> None:
    with pytest.raises(ValueError, match="without a given text"):
        TreeBuilder("given").write("more")


# --- status -----------------------------------------------------------------------------------------------------------


def test_a_document_of_left_out_parts_only_is_empty_and_says_why() -> None:
    builder = TreeBuilder()
    builder.write_leaf("paragraph", "menu", left_out="navigation")
    document = finished(builder, problems=["page 2 is an image"], empty_reason="no text")
    assert (document.status, document.reason) == ("empty", "page 2 is an image; no text")
    assert not has_text(document)


def test_problems_make_a_document_partial() -> None:
    builder = TreeBuilder()
    builder.write_leaf("paragraph", "text")
    document = finished(builder, problems=["chapter 2 is damaged", "chapter 4 is damaged"])
    assert (document.status, document.reason) == ("partial", "chapter 2 is damaged; chapter 4 is damaged")


def test_what_is_left_out_holds_for_all_below_it() -> None:
    builder = TreeBuilder()
    with builder.inside("list", left_out="navigation"):
        builder.write_leaf("item", "menu")
    builder.write_leaf("paragraph", "text")
    assert left_out(finished(builder)) == ["navigation", "navigation", None]


def test_metadata_and_labels_do_not_depend_on_the_order_they_came_in() -> None:
    documents = []
    for order in (1, -1):
        builder = TreeBuilder()
        builder.write_leaf("paragraph", "text")
        pairs = [("a", "1"), ("b", "2")][::order]
        documents.append(finished(builder, metadata=dict(pairs), labels=["x", "y", "x"][::order]))
    assert documents[0].encode() == documents[1].encode()
    assert documents[0].labels == ("x", "y")


# --- check: each rule, broken -----------------------------------------------------------------------------------------

LEAF = Node(kind="paragraph", start=0, end=3)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([], "belongs to no node"),
        ([Node(kind="paragraph", start=0, end=2)], "belongs to no node"),
        ([Node(kind="paragraph", start=1, end=3)], "belongs to no node"),
        ([Node(kind="paragraph", start=0, end=4)], "do not fit"),
        ([Node(kind="paragraph", start=2, end=1)], "do not fit"),
        ([Node(kind="paragraph", start=0, end=3, outer=(1, 3))], "do not fit"),
        ([LEAF, Node(kind="paragraph", start=2, end=3)], "overlaps"),
        ([msgspec.structs.replace(LEAF, parent=0)], "stands before its parent"),
        ([msgspec.structs.replace(LEAF, parent=1), Node(kind="list", start=0, end=3)], "stands before its parent"),
        ([LEAF, Node(kind="paragraph", start=3, end=3, parent=0)], "is a child of a paragraph"),
        ([Node(kind="list", start=0, end=2), msgspec.structs.replace(LEAF, parent=0)], "is not inside its parent"),
    ],
)
def test_check_names_the_node_that_breaks_a_rule(nodes: list[Node], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(Document(text="abc", nodes=tuple(nodes)))


# --- any tree ---------------------------------------------------------------------------------------------------------

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
parts = st.recursive(
    st.one_of(
        st.tuples(st.just("heading"), st.integers(1, 6), words),
        st.tuples(st.sampled_from(["paragraph", "code", "caption"]), st.just(0), words),
    ),
    lambda inner: st.tuples(st.sampled_from(["list", "quote", "item"]), st.just(0), st.lists(inner, max_size=4)),
    max_leaves=12,
)


def write(builder: TreeBuilder, part: tuple[str, int, object]) -> None:
    kind, level, content = part
    if isinstance(content, list):
        with builder.inside(kind):  # type: ignore[arg-type]
            for inner in content:
                write(builder, inner)
    elif kind == "heading":
        builder.write_heading(str(content), level)
    else:
        builder.write_leaf(kind, str(content))  # type: ignore[arg-type]


@given(st.lists(parts, max_size=8))
def test_whatever_is_written_keeps_the_rules_and_comes_back_from_its_bytes(
    written: list[tuple[str, int, object]],
) -> None:
    builder = TreeBuilder()
    for part in written:
        write(builder, part)
    document = finished(builder)
    check(document)
    assert Document.decode(document.encode()) == document
    inside = "".join(document.text[slice(*document.nodes[index].extent)] for index in leaves(document))
    assert "".join(inside.split()) == "".join(document.text.split())
