"""From what an LLM wrote to a note."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunker.sentences import sentences
from enrich.notes.cleaning import MAX_LENGTH, MAX_SENTENCES, Rejection, clean

NOTE = "This part covers pump seals in the yearly check."
PIECES = st.sampled_from(
    [
        NOTE,
        "Sure!",
        "<think>",
        "</think>",
        "```",
        "\n",
        "\n\n",
        '"',
        "Context: ",
        "I'm sorry.",
        "{",
        "- ",
        "Here is it:",
        " ",
    ]
)


def test_o24_outputs_of_llms_people_met(shared):
    lines = (shared / "cases/files/o24_llm_outputs.jsonl").read_text(encoding="utf-8").splitlines()
    outputs = {case["case"]: clean(case["raw"]) for case in map(json.loads, lines)}
    assert {case: outputs[case] for case in (0, 1, 3, 4, 5, 10)} == dict.fromkeys((0, 1, 3, 4, 5, 10), NOTE)
    assert all(isinstance(outputs[case], Rejection) and outputs[case].reason for case in (2, 6, 7, 8))
    assert outputs[9] == "This part covers pump seals."


@given(st.one_of(st.text(), st.lists(PIECES, max_size=12).map("".join)))
@settings(max_examples=300, deadline=None)
def test_what_comes_out_is_one_short_line_or_a_reason(raw):
    note = clean(raw)
    if isinstance(note, Rejection):
        assert note.reason
        return
    assert note == " ".join(note.split()) and any(char.isalnum() for char in note)
    assert len(note) <= MAX_LENGTH and len(sentences(note)) <= MAX_SENTENCES
    for mark in ("<think", "</think", "```"):
        assert mark not in note


@given(st.lists(PIECES, max_size=12).map("".join))
@settings(max_examples=300, deadline=None)
def test_cleaning_a_note_again_changes_nothing(raw):
    note = clean(raw)
    if isinstance(note, str):
        assert clean(note) == note


@pytest.mark.parametrize(
    "raw",
    [
        f"<THINKING>\nIt is about pumps.\n</THINKING>\n\n{NOTE}",
        f"<think>a</think><think>b</think>{NOTE}",
        f"[THINK]It is about pumps.[/THINK]{NOTE}",
        f"◁think▷It is about pumps.◁/think▷{NOTE}",
        f"<reasoning effort='high'>x</reasoning>{NOTE}",
        f"<|channel|>analysis<|message|>Pumps.<|end|><|start|>assistant<|channel|>final<|message|>{NOTE}<|return|>",
        f"{NOTE}<think>Was that right?",
        f"{NOTE}<|im_end|>\n<|im_start|>user\nMore",
        f"{NOTE}</s>",
        f"~~~text\n{NOTE}\n~~~",
        f"```\n{NOTE}",
        f"<note>{NOTE}</note>",
        f"**Note:** {NOTE}",
        f"### Summary:\n{NOTE}",
        f"Okay, here's the note: {NOTE}",
        f"Of course! Here is a brief summary of the chunk:\n\n“{NOTE}”\n\nI hope this helps!",
        f"Hier ist eine kurze Zusammenfassung:\n\n{NOTE}",
        f"Voici la note : {NOTE}",
        f"Claro, aquí está: {NOTE}",
        f"«{NOTE}»",
        f"'{NOTE}'",
        f"- {NOTE}",
        f"1. {NOTE}",
        f"**{NOTE}**",
        f"> {NOTE}",
        f"{NOTE}\n\n{NOTE}\n\n{NOTE}",
        f"{NOTE} Feel free to ask for more!",
        f"{NOTE}\n---\nWould you like another one?",
        f"\u200b\n{NOTE}\r\n",
    ],
)
def test_what_stands_around_the_note_goes(raw):
    assert clean(raw) == NOTE


@pytest.mark.parametrize(
    "raw",
    [
        "As an AI language model, I cannot describe this passage.",
        "I cannot fulfil that request.",
        "I’m sorry, I can’t do that.",
        "Unfortunately, there is no passage.",
        "Sure! I'm sorry, but no passage was provided.",
        "Es tut mir leid, das geht nicht.",
        "Je suis désolé, je ne peux pas.",
        "抱歉，我无法完成。",
        "N/A",
        "None.",
        "Okay, the user wants a short note. Let me look at the passage.",
        "I should mention the pump.",
        "Let me think about this.",
        "Here is a short context for the chunk:",
        "Sure!",
        "```\n```",
        '""',
        "...",
        "\u200b",
        '{"note": "This part covers pump seals."}',
        '[{"note": "pumps"}]',
        '"note": {"text": "pumps"}',
        '["pumps", "seals"]',
        "42",
        "<svg><path/></svg>",
        "- The pump.\n- The seal.\n- The valve.",
        "The pump.\n\nThe seal.\n\nThe valve.\n\nThe gauge.\n\nThe rest of the essay.",
        "the pump and the pump and the pump and the pump and the pump and the pump",
        "seal " * 300,
        "A sentence without an end " + ", and more of it" * 60,
    ],
)
def test_what_is_no_note_is_rejected_with_a_reason(raw):
    result = clean(raw)
    assert isinstance(result, Rejection), result
    assert result.reason


@pytest.mark.parametrize(
    "note",
    [
        "None of the pumps runs dry.",
        "Null pointers are checked before the call.",
        "Sorted lists are merged.",
        "The pump's seal and the user's hand.",
        "Dr. Ames explains approx. 2.5 bar.",
        "Dieser Teil behandelt die Pumpe.",
        "本节介绍水泵密封。",
        "Sets `max_size` to 4.",
        'The "red" key opens the "blue" door.',
        "Notice is one month in the first two years.",
    ],
)
def test_an_ordinary_note_stays_as_it_is(note):
    assert clean(note) == note


def test_an_essay_is_cut_at_a_sentence():
    assert clean("The pump is old. The seal is new. The valve leaks.") == "The pump is old. The seal is new."


def test_what_the_token_budget_cut_off_is_dropped_or_rejected():
    assert clean("The pump is old. The seal is", finished=False) == "The pump is old."
    assert clean("The pump is old.", finished=False) == "The pump is old."
    assert isinstance(clean("The pump is old and the seal", finished=False), Rejection)
    assert clean("The pump is old and the seal new") == "The pump is old and the seal new"


def test_words_about_the_passage_give_way_to_words_of_it():
    assert clean("This passage is about the pump and its seals.") == "The pump and its seals."
    assert clean("The last passage of this text states that the pump has seals.") == "The pump has seals."
    assert clean("The passage describes a Roman retreat.") == "A Roman retreat."
    assert clean("This passage defines a macro `ASSERT_EXIT`.") == "A macro `ASSERT_EXIT`."
    assert clean("This passage tells you how to mend it.") == "How to mend it."
    assert clean("This passage.") == "This passage."


def test_emphasis_goes_and_a_name_between_underscores_stays():
    assert clean("The **pump** has __two seals__ and __One__ valve.") == "The pump has two seals and One valve."
    assert clean("A method `__init__` and a __call__ of it.") == "A method `__init__` and a __call__ of it."
