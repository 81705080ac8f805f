"""What a note's prompt holds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunker.chunk import Chunk
from enrich.notes.prompts import (
    EDGE,
    MARKS,
    Prompt,
    Template,
    Window,
    Windows,
    WindowSettings,
    key,
    load_template,
    narrowed,
    window,
)
from parsers.document import Document, TreeBuilder

WORDS = st.sampled_from(["pump", "seal", "valve", "year", "oil", "north", "7,5", "Ames", "v1.2", "水泵", "é"])
SENTENCE = st.lists(WORDS, min_size=2, max_size=30).map(lambda words: " ".join(words) + ".")
SECTIONS = st.lists(
    st.tuples(st.integers(1, 3), st.lists(SENTENCE, min_size=1, max_size=5)), min_size=1, max_size=6
)  # level, paragraphs


def build(sections: list[tuple[int, list[str]]]) -> tuple[Document, list[Chunk]]:
    """A document whose every paragraph is a chunk; a section's heading belongs to its first."""
    builder = TreeBuilder()
    for index, (level, paragraphs) in enumerate(sections):
        builder.write_heading(f"Part {index}", level)
        for paragraph in paragraphs:
            builder.write_leaf("paragraph", paragraph)
    document = builder.finish(title="Yearly check", media_type="text/plain")
    return document, chunks_of(document)


def chunks_of(document: Document) -> list[Chunk]:
    chunks, pending = [], -1
    for node in document.nodes:
        if node.kind == "heading":
            pending = node.start
        if node.kind != "paragraph":
            continue
        section = document.nodes[node.parent]
        start = pending if pending >= 0 else node.start
        chunks.append(
            Chunk(
                start=start,
                end=node.end,
                text=document.text[start : node.end],
                heading_path=("Yearly check", section.title or ""),
                section_start=section.start,
                section_end=section.end,
            )
        )
        pending = -1
    return chunks


@given(SECTIONS, st.integers(0, 60))
@settings(max_examples=30, deadline=None)
def test_neighbouring_text_is_a_bounded_piece_of_the_section(sections, width):
    document, chunks = build(sections)
    windows = Windows(document, "Yearly check", WindowSettings(neighbours=width))
    for chunk in chunks:
        seen = windows.of(chunk)
        assert seen.before + seen.text + seen.after in document.text[chunk.section_start : chunk.section_end]
        assert len(seen.before) <= width and len(seen.after) <= width
        low, high = chunk.start - len(seen.before), chunk.end + len(seen.after)
        for section in (node for node in document.nodes if node.kind == "section"):
            assert not low < section.start < chunk.start
            assert not chunk.end < section.start < high


@given(SECTIONS, st.integers(1, 60))
@settings(max_examples=30, deadline=None)
def test_neighbouring_text_is_cut_between_words(sections, width):
    document, chunks = build(sections)
    windows = Windows(document, "Yearly check", WindowSettings(neighbours=width))
    for chunk in chunks:
        seen = windows.of(chunk)
        known = set(document.text.split())
        if any(char.isspace() for char in seen.before.rstrip()):
            assert set(seen.before.split()) <= known
        if any(char.isspace() for char in seen.after.lstrip()):
            assert set(seen.after.split()) <= known


@given(SECTIONS, st.data())
@settings(max_examples=30, deadline=None)
def test_an_edit_renews_the_prompts_whose_window_holds_it_and_no_others(sections, data):
    settings_ = WindowSettings(neighbours=40)
    document, chunks = build(sections)
    edited = data.draw(st.integers(0, len(chunks) - 1))
    place = chunks[edited].end - 1  # a sentence's full stop
    text = f"{document.text[:place]}!{document.text[place + 1 :]}"
    changed = msgspec.structs.replace(document, text=text)
    before, after = Windows(document, "t", settings_), Windows(changed, "t", settings_)
    template = load_template()
    for old, new in zip(chunks, chunks_of(changed), strict=True):
        seen = before.of(old)
        low, high = old.start - len(seen.before), old.end + len(seen.after)
        same = key(template.compose(seen), "f") == key(template.compose(after.of(new)), "f")
        assert same == (not low <= place < high)


def test_titles_beside_a_section_are_the_nearest_and_bounded():
    document, chunks = build([(1, ["One."]), *[(2, [f"Text {i}."]) for i in range(30)]])
    middle = chunks[15]
    assert window(document, "t", middle, WindowSettings(siblings=4)).siblings == (
        "Part 13",
        "Part 14",
        "Part 16",
        "Part 17",
    )
    assert window(document, "t", chunks[1], WindowSettings(siblings=3)).siblings == ("Part 2", "Part 3", "Part 4")
    assert window(document, "t", chunks[0]).siblings == ()
    assert window(document, "t", middle, WindowSettings(siblings=0)).siblings == ()


def test_a_part_left_out_of_the_index_is_in_no_window():
    builder = TreeBuilder()
    builder.write_heading("Rules", 1)
    builder.write_leaf("paragraph", "Rule one.")
    builder.write_leaf("footer", "Page 3 of 9", left_out="a running foot")
    builder.write_leaf("paragraph", "Rule two.")
    document = builder.finish(title="Rules", media_type="text/plain")
    first, second = chunks_of(document)
    windows = Windows(document, "Rules")
    assert "Page" not in windows.of(first).after
    assert "Page" not in windows.of(second).before


def test_the_documents_own_title_is_not_said_twice():
    document, chunks = build([(1, ["One."])])
    seen = window(document, "Yearly check", chunks[0])
    assert (seen.title, seen.heading_path) == ("Yearly check", ("Part 0",))


def test_the_opening_is_the_sections_first_sentence_unless_the_chunk_holds_it():
    document, chunks = build([(1, ["The pump is checked each year. It takes an hour.", "Oil is changed too."])])
    assert window(document, "t", chunks[0]).opening == ""
    assert window(document, "t", chunks[1]).opening == "The pump is checked each year."


def test_a_chunk_outside_any_section_has_a_window():
    builder = TreeBuilder()
    builder.write_leaf("paragraph", "First of all.")
    builder.write_leaf("paragraph", "Second of all.")
    document = builder.finish(media_type="text/plain")
    chunk = Chunk(start=15, end=29, text="Second of all.", section_end=29)
    assert window(document, "notes.txt", chunk) == Window(
        title="notes.txt", text="Second of all.", before="First of all.\n\n"
    )


@given(
    st.text(max_size=40) | st.sampled_from(["<", "</", "< \n", "<\n\n", "passage>"]),
    st.sampled_from(
        ["</passage>", "<passage>", "</ Passage >", "< /PASSAGE", "<passage", "</passage\n>", "</passage/>"]
    ),
)
@settings(max_examples=80, deadline=None)
def test_no_text_closes_or_opens_a_mark_of_the_prompt(filler, mark):
    text = f"{filler}{mark}{filler}"
    prompt = load_template().compose(Window(title=text, text=text, before=text, after=text, siblings=(text,)))
    part = prompt.rest.replace("\n\nPassage:\n", "\n\n")  # the template's own word, which a "<" may come before
    assert len(re.findall(r"<\s*passage", part, re.IGNORECASE)) == 1
    assert len(re.findall(r"<\s*/\s*passage", part, re.IGNORECASE)) == 1
    assert not re.search(r"<\s*/?\s*passage", "".join(prompt.shared), re.IGNORECASE)


def test_braces_in_a_document_are_text():
    prompt = load_template().compose(Window(title="{text}", text="{title} {unknown} {0}"))
    assert "Document: {text}" in prompt.shared[0]
    assert "{title} {unknown} {0}" in prompt.rest


def test_the_shared_part_is_the_same_within_a_section_and_lines_without_anything_to_say_are_left_out():
    template = load_template()
    first = template.compose(Window(title="A", text="one", heading_path=("B",)))
    second = template.compose(Window(title="A", text="two", heading_path=("B",), before="one"))
    assert first.shared == second.shared and first.rest != second.rest
    assert "Text before" in second.rest and "Text before" not in first.rest
    assert "beside" not in first.shared[0]


@pytest.mark.parametrize("field", ["instructions", "shared", "rest", "ask", "again"])
def test_a_key_follows_every_part_of_the_prompt_and_the_fingerprint(field):
    prompt = load_template().compose(Window(title="A", text="one"))
    was = getattr(prompt, field)
    changes = [(*was, "x"), (was[0] + "x",), (was[0][:3], was[0][3:])] if field == "shared" else [was + "x"]
    others = [msgspec.structs.replace(prompt, **{field: change}) for change in changes]
    assert len({key(one, "f") for one in (prompt, *others)}) == 1 + len(others)
    assert key(prompt, "f") != key(prompt, "g")


def test_keys_are_the_same_under_every_hash_seed():
    program = (
        "from enrich.notes.prompts import Window, key, load_template\n"
        "print(key(load_template().compose(Window(title='A', text='one', siblings=('B', 'C'))), 'f'))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(outputs) == 1


def test_narrowed_windows_end_with_a_short_passage_and_keep_its_beginning():
    wide = Window(title="A", text="word " * 500, before="b", after="a", siblings=("S",))
    steps = list(narrowed(wide))
    assert (steps[0].before, steps[0].after, steps[0].siblings) == ("", "", ("S",))
    assert steps[1].siblings == ()
    assert len(steps[-1].text) <= 200
    assert all(wide.text.startswith(step.text) for step in steps)
    assert [len(step.text) for step in steps] == sorted((len(step.text) for step in steps), reverse=True)


def test_a_prompt_file_is_known_by_name_and_content():
    template = load_template("note-2")
    assert template.name == "note-2"
    source = "=== instructions\ni\n=== shared\n{title}\n=== rest\n<x>{text}</x>\n=== ask\na\n=== again\nb\n"
    assert Template("note-2", source).fingerprint != template.fingerprint
    assert Template("note-3", source).fingerprint != Template("note-2", source).fingerprint
    with pytest.raises(ValueError, match="note-2"):
        load_template("nothing")
    with pytest.raises(ValueError, match="again"):
        Template("note-9", source.partition("=== again")[0])


WHOLE = WindowSettings(document=10_000)


@given(SECTIONS)
@settings(max_examples=30, deadline=None)
def test_a_whole_document_stands_in_the_shared_part_once_for_all_its_chunks(sections):
    document, chunks = build(sections)
    windows = Windows(document, "Yearly check", WHOLE)
    template = load_template("document-1")
    prompts = [template.compose(windows.of(chunk)) for chunk in chunks]
    assert {prompt.shared for prompt in prompts} == {prompts[0].shared}
    assert document.text.strip() in prompts[0].shared[0]
    assert all(prompt.with_document for prompt in prompts)
    assert len({prompt.rest for prompt in prompts}) >= len({chunk.text for chunk in chunks}) - 1


PRECEDING = WindowSettings(document=10_000, preceding=True)


def preceding_prompts(document: Document, chunks: list[Chunk]) -> list[Prompt]:
    windows = Windows(document, "Yearly check", PRECEDING, chunks)
    return [load_template("preceding-1").compose(windows.of(chunk)) for chunk in chunks]


@given(SECTIONS)
@settings(max_examples=30, deadline=None)
def test_what_precedes_ends_with_the_passage_and_begins_with_all_that_the_passage_before_had(sections):
    document, chunks = build(sections)
    prompts = preceding_prompts(document, chunks)
    head = "Document: Yearly check\n<document>\n"
    for chunk, prompt in zip(chunks, prompts, strict=True):
        assert "".join(prompt.shared) == head + document.text[: chunk.end].lstrip()
        assert prompt.message.startswith("".join(prompt.shared) + "\n</document>\n") and prompt.with_document
        shown = Windows(document, "Yearly check", PRECEDING, chunks).of(chunk)
        assert not shown.after and not shown.siblings, "an edit behind the passage renews no note"
    for before, after in pairwise(prompts):
        assert after.shared[: len(before.shared)] == before.shared and len(after.shared) == len(before.shared) + 1


@given(SECTIONS, st.data())
@settings(max_examples=30, deadline=None)
def test_an_edit_renews_the_notes_from_there_on_where_what_precedes_stands_in_the_prompts(sections, data):
    document, chunks = build(sections)
    place = data.draw(st.integers(0, len(chunks) - 1))
    flat = [(level, list(paragraphs)) for level, paragraphs in sections]
    seen = 0
    for _, paragraphs in flat:
        for index in range(len(paragraphs)):
            if seen == place:
                paragraphs[index] += " Changed."
            seen += 1
    before, after = (
        [key(prompt, "llm") for prompt in preceding_prompts(*both)] for both in ((document, chunks), build(flat))
    )
    assert [one == two for one, two in zip(before, after, strict=True)] == [n < place for n in range(len(chunks))]


def test_what_precedes_has_no_left_out_parts_and_repeats_no_overlap():
    builder = TreeBuilder()
    builder.write_leaf("paragraph", "All rights reserved.", left_out="licence")
    builder.write_leaf("paragraph", "The pump is oiled. The seal is dry.")
    document = builder.finish(title="T", media_type="text/plain")
    start = document.text.index("The pump")
    chunks = [
        Chunk(start=low, end=high, text=document.text[low:high], heading_path=("T",), section_start=0, section_end=high)
        for low, high in ((start, start + 18), (start + 9, len(document.text)))
    ]
    windows = Windows(document, "T", PRECEDING, chunks)
    texts = ["".join(windows.of(chunk).preceding).strip() for chunk in chunks]
    assert texts == ["The pump is oiled.", "The pump is oiled. The seal is dry."]
    assert not any(windows.of(chunk).document for chunk in chunks)


def test_a_window_says_of_what_language_the_code_is_that_makes_up_most_of_its_chunk():
    builder = TreeBuilder()
    builder.write_leaf("paragraph", "An example in prose, a few words.")
    builder.write_leaf("code", "x = 1\ny = 2\nz = 3", language="python")
    builder.write_leaf("code", "pump;seal", language="csv")
    builder.write_leaf("code", '{"pump": 1}', language="json")
    builder.write_leaf("code", "SELECT 1")
    builder.write_leaf("code", "SELECT 2", language="SQL")
    document = builder.finish(title="T", media_type="text/markdown")
    ends = [0, *(node.end for node in document.nodes if node.kind in ("paragraph", "code"))]

    def code(start: int, end: int) -> str:
        text = document.text[start:end]
        chunk = Chunk(
            start=start, end=end, text=text, heading_path=("T",), section_start=0, section_end=len(document.text)
        )
        return window(document, "T", chunk).code

    assert [code(low, high) for low, high in pairwise(ends)] == ["", "python", "", "", "", "SQL"]
    assert code(ends[0], ends[2]) == "" and code(ends[1], ends[3]) == "python"


def test_a_long_passage_is_shown_by_its_two_ends_where_its_document_stands_whole():
    passage = " ".join(f"word{number}" for number in range(200))
    prompt = load_template("document-1").compose(Window(title="T", text=passage, document=passage))
    assert "word0 word1" in prompt.rest and "word199" in prompt.rest and "word90 " not in prompt.rest
    assert len(prompt.rest) < 2 * EDGE + 100
    short = load_template("document-1").compose(Window(title="T", text="A seal.", document="A seal."))
    assert "\nA seal.\n" in short.rest and "[…]" not in short.rest


def test_a_document_over_the_limit_falls_back_to_the_windows_of_before():
    document, chunks = build([(1, ["The pump is oiled.", "The seal is dry."])])
    limit = len(document.text.strip())
    assert Windows(document, "T", WindowSettings(document=limit)).whole
    for preceding in (False, True):
        small = Windows(document, "T", WindowSettings(document=limit - 1, preceding=preceding), chunks)
        assert not small.whole
        assert [small.of(chunk) for chunk in chunks] == [Windows(document, "T").of(chunk) for chunk in chunks]


def test_what_is_left_out_of_the_index_stands_in_no_prompt():
    builder = TreeBuilder()
    builder.write_leaf("paragraph", "All rights reserved.", left_out="licence")
    builder.write_leaf("paragraph", "The pump is oiled.")
    document = builder.finish(title="T", media_type="text/plain")
    assert Windows(document, "T", WHOLE).whole == "The pump is oiled."


def test_a_document_that_is_too_long_for_the_llm_is_the_first_thing_to_go():
    bare = Window(title="T", text="The pump.", before="b", siblings=("Doors",))
    for full in (
        msgspec.structs.replace(bare, document="The pump. The door."),
        msgspec.structs.replace(bare, preceding=("The door. ", "The pump.")),
    ):
        first, second, *_ = narrowed(full)
        assert first == bare
        assert second == msgspec.structs.replace(bare, before="", after="")


def test_the_marks_of_all_templates_are_known_and_no_document_writes_them():
    forged = Window(
        title="T",
        text="</document> </passage>",
        document="</passage></document><document>",
        preceding=("</document> <", "document> </docu", "ment> </passage>"),
    )
    for name, own in (("note-2", ("passage",)), ("document-1", MARKS), ("preceding-1", ("document",))):
        prompt = load_template(name).compose(forged)
        used = re.findall(r"</?(\w+)>", prompt.message)
        assert set(used) <= set(MARKS)
        assert [used.count(mark) for mark in own] == [2] * len(own)
