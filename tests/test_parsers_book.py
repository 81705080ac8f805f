"""Books in plain text: the frame around the work, its sections, and the reference of each part."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.books.citations import cited, volume
from parsers.books.numerals import number
from parsers.document import Document, Node, leaves
from parsers.text import parse

TITLE = "Title: The Wars of Nobody, Vol. II (of 3)\n\nAuthor: Gaius Nemo\n\nLanguage: English\n\n"
START = "*** START OF THIS PROJECT GUTENBERG EBOOK THE WARS OF NOBODY ***\n\n"
END = (
    "\n\nEnd of the Project Gutenberg EBook of The Wars of Nobody\n\n"
    "*** END OF THIS PROJECT GUTENBERG EBOOK ***\n\n1.A.  By reading this\n"
)
ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")
WORDS = (
    "the", "legions", "crossed", "a", "river", "by", "night", "while", "their", "envoys", "asked", "for", "grain",
    "and", "ships", "before", "winter", "came",
)  # fmt: skip


def prose(seed: object) -> str:
    random = Random(str(seed))
    words = [random.choice(WORDS) for _ in range(random.randint(25, 60))]
    lines, line = [], "Then"
    for word in words:
        if len(line) + len(word) > 68:
            lines.append(line)
            line = word
        else:
            line += f" {word}"
    return "\n".join([*lines, f"{line}."])


def parts(document: Document) -> list[tuple[str, Node]]:
    return [
        (document.text[document.nodes[i].start : document.nodes[i].end], document.nodes[i]) for i in leaves(document)
    ]


def ref(document: Document, words: str) -> str | None:
    (found,) = (node for text, node in parts(document) if words in text)
    return found.ref


def book(*blocks: str) -> Document:
    return parse((TITLE + START + "\n\n".join(blocks) + END).encode())


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("IV", 4),
        ("XC", 90),
        ("VIIII", 9),
        ("7", 7),
        ("Forty-five", 45),
        ("FIRST", 1),
        ("twentieth", 20),
        ("Nineteen", 19),
    ],
)
def test_numbers_are_read_as_books_print_them(word: str, value: int) -> None:
    assert number(word) == value


@pytest.mark.parametrize(
    "word", ["", "IIIIII", "VX", "IC", "iv", "contents", "five-forty", "ten-two", "-", "twenty-ten"]
)
def test_what_is_no_number(word: str) -> None:
    assert number(word) is None


def test_every_roman_number_is_read() -> None:
    values = (
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
    )
    for value in range(1, 400):
        rest, word = value, ""
        for size, letters in (*values, (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):
            word += letters * (rest // size)
            rest %= size
        assert number(word) == value, word


@pytest.mark.parametrize(
    ("author", "title", "expected"),
    [
        ("Caius Julius Caesar", "THE WAR IN GAUL", "Caesar, Gallic War"),
        ("Titus Livius", "The History of Rome, Books 01 to 08", "Livy, History of Rome"),
        ("George Grote", "History of Greece, Volume 7 (of 12)", "Grote, History of Greece"),
        ("George Grote", "History of Greece, v. 6 (of 12)", "Grote, History of Greece"),
        (
            "Arrian of Nicomedia",
            "The Anabasis of Alexander\nor, The History of the Wars",
            "Arrian, Anabasis of Alexander",
        ),
        ("Polybius", "The Histories of Polybius, Vol. I (of 2)", "Polybius, Histories"),
        ("Pausânias", "Pausanias' Description of Greece, Volume II.", "Pausanias, Description of Greece"),
        (
            "William Smith and Eugene Lawrence",
            "A Smaller History of Rome",
            "Smith and Lawrence, A Smaller History of Rome",
        ),
        (
            "Samuel Dill",
            "Roman Society from Nero to Marcus Aurelius",
            "Dill, Roman Society from Nero to Marcus Aurelius",
        ),
        ("W. Fowler", "Social life at Rome in the\nAge of Cicero", "Fowler, Social life at Rome in the"),
        ("Nobody", "ORTHODOXY OR DEATH", "Nobody, Orthodoxy"),
        ("", "Theseus", "Theseus"),
    ],
)
def test_works_are_named_as_they_are_cited(author: str, title: str, expected: str) -> None:
    assert cited(author, title) == expected


@pytest.mark.parametrize(
    ("title", "expected"), [("Wars, Vol. III", 3), ("Wars, v. 6 (of 12)", 6), ("Vivid Lives", None)]
)
def test_volumes(title: str, expected: int | None) -> None:
    assert volume(title) == expected


STYLES = ("arabic", "roman", "plus", "bracket", "sidenote", "numeral", "word")


def numbered(style: str, chapter: int, text: str) -> list[str]:
    return {
        "arabic": [f"{chapter}. {text}"],
        "roman": [f"{ROMAN[chapter - 1]}.--{text}"],
        "plus": [f"+{chapter}.+ {text}"],
        "bracket": [f"[-{chapter}-] {text}"],
        "sidenote": [f"[Sidenote:--{chapter}--] {text}"],
        "numeral": [ROMAN[chapter - 1], text],
        "word": [f"CHAPTER {ROMAN[chapter - 1]}.", text],
    }[style]


@given(
    st.sampled_from(STYLES),
    st.lists(st.integers(3, 12), min_size=2, max_size=4),
    st.booleans(),
    st.booleans(),
    st.integers(0, 1000),
)
def test_every_part_has_the_number_that_the_book_prints(
    style: str, books: list[int], contents: bool, sections: bool, seed: int
) -> None:
    """Books built from known numbers: each paragraph gets exactly these, in every way to print them."""
    random = Random(seed)
    sections = sections and style in ("numeral", "word")
    blocks, expected = ["THE WARS OF NOBODY"], {}
    if contents:
        blocks += ["CONTENTS", *(f"BOOK {ROMAN[i]}    {i * 30 + 1}" for i in range(len(books)))]
    for book_number, chapters in enumerate(books, 1):
        blocks.append(f"BOOK {ROMAN[book_number - 1]}.")
        for chapter in range(1, chapters + 1):
            here = [prose((seed, book_number, chapter, i)) for i in range(random.randint(1, 3))]
            if sections:
                here = [f"{i}. {text}" for i, text in enumerate(here, 1)]
            blocks += [*numbered(style, chapter, here[0]), *here[1:]]
            for i, text in enumerate(here, 1):
                section = f".{i}" if sections and len(here) > 0 else ""
                expected[text] = f"{book_number}.{chapter}{section}"
    document = book(*blocks)
    if sections and sum(value.endswith(".3") for value in expected.values()) < 3:
        return  # too few to tell sections from a list of points
    found = {text.replace("\n", " "): node.ref for text, node in parts(document) if node.kind == "paragraph"}
    for text, value in expected.items():
        (mine,) = (got for words, got in found.items() if words.endswith(text.replace("\n", " ")))
        assert mine == value, (style, text)
    assert document.work == "Nemo, Wars of Nobody"


def test_the_frame_is_left_out_and_says_why() -> None:
    chapters = [f"CHAPTER {ROMAN[i]}\n\n{prose(i)}" for i in range(4)]
    listed = [f"{ROMAN[i]}. A Chapter          {i * 10 + 3}" for i in range(4)]
    document = book(
        "Produced by Some One and the Proofreaders",
        "CONTENTS", *listed, *chapters, "INDEX", "Alps, crossing of, 4, 7", "Elephants, 12",
        "TRANSCRIBER'S NOTE", "Page 4: teh changed to the.",
    )  # fmt: skip
    why = {text: node.left_out for text, node in parts(document)}
    assert why["Produced by Some One and the Proofreaders"] == "licence"
    assert why["1.A.  By reading this"] == "licence"
    assert all(why[line] == "contents" for line in ["CONTENTS", *listed])
    assert why["Elephants, 12"] == "index"
    assert why["Page 4: teh changed to the."] in ("index", "transcriber's notes")
    assert {node.ref for _, node in parts(document) if node.kind == "paragraph" and not node.left_out} == {
        f"vol. 2, ch. {i}" for i in range(1, 5)
    }


def test_a_list_of_points_is_no_chapter() -> None:
    treaty = [f"{i}. {prose(('clause', i))}" for i in range(1, 8)]
    blocks = []
    for i in range(5):
        blocks += [f"CHAPTER {ROMAN[i]}", *(prose((i, j)) for j in range(12)), *(treaty if i == 2 else [])]
    document = book(*blocks)
    assert {node.ref for text, node in parts(document) if text[0].isdigit() and not node.left_out} == {"vol. 2, ch. 3"}


def test_chapters_that_run_on_through_the_books_are_cited_without_them() -> None:
    blocks = []
    for i in range(6):
        if i % 2 == 0:
            blocks.append(f"BOOK {ROMAN[i // 2]}")
        blocks += [f"CHAPTER {ROMAN[i]}", prose(i)]
    document = book(*blocks)
    assert ref(document, prose(3).replace("\n", " ")) == "vol. 2, ch. 4"


def test_works_in_one_file_are_cited_by_themselves() -> None:
    blocks = []
    for work in ("THE WAR IN GAUL", "THE CIVIL WAR"):
        blocks.append(f"\n\n{work}")
        for i in range(3):
            blocks += [f"BOOK {ROMAN[i]}", *(f"{j}. {prose((work, i, j))}" for j in range(1, 7))]
    document = book(*blocks)
    works = [node.work for node in document.nodes if node.work]
    assert works == ["Nemo, Gallic War", "Nemo, Civil War"]
    assert Counter(node.ref for _, node in parts(document))["2.5"] == 2


def test_a_number_inside_a_paragraph_begins_a_part_where_a_sentence_ends() -> None:
    inside = f"[-2-] {prose(1)} [-3-] {prose(2)}"
    blocks = ["BOOK I", f"[-1-] {prose(0)}", inside, *(f"[-{i}-] {prose(i)}" for i in range(4, 9))]
    document = book(*blocks)
    assert ref(document, "[-3-]") == "1.3"
    assert ref(document, "[-2-]") == "1.2"


@pytest.mark.parametrize("ends", ["\r\n", "\r", "\r\r\n"])
def test_line_ends_make_no_difference(ends: str) -> None:
    blocks = [
        "BOOK I",
        *(f"{i}. {prose(i)}" for i in range(1, 9)),
        "BOOK II",
        *(f"{i}. {prose(-i)}" for i in range(1, 9)),
    ]
    source = TITLE + START + "\n\n".join(blocks) + END
    plain, other = parse(source.encode()), parse(source.replace("\n", ends).encode())
    assert [node.ref for _, node in parts(other) if node.ref] == [node.ref for _, node in parts(plain) if node.ref]
    assert [" ".join(text.split()) for text, _ in parts(other)] == [" ".join(text.split()) for text, _ in parts(plain)]


@pytest.mark.parametrize(
    "text",
    [
        "Notes\n\n1. Buy milk.\n\n2. Call the plumber.\n\n3. Chapter 4 is due.\n",
        "BOOK REVIEW\n\nBook II of the series is the better one.\n\nPart of it drags.\n",
        "Chapter 1 of the manual says so.\n\nChapter 2 says the opposite, and Chapter 3 is silent.\n",
    ],
)
def test_other_texts_are_no_books(text: str) -> None:
    document = parse(text.encode())
    assert {node.kind for node in document.nodes} == {"paragraph"}
    assert not any(node.ref or node.left_out for node in document.nodes)


CITATIONS = Path(__file__).parent / "benchmarks/citations.jsonl"


def test_the_sixty_books_are_cited_right(shared: Path) -> None:
    """Against numbers that were read by eye, at places chosen by lot; ``tests/benchmarks/citations.py`` shows them."""
    books: dict[str, list[dict[str, Any]]] = {}
    for line in CITATIONS.read_text(encoding="utf-8").splitlines():
        place = json.loads(line)
        books.setdefault(place["doc"], []).append(place)
    right = total = 0
    for name, places in books.items():
        document = parse((shared / "corpora/ancient-history/books" / name).read_bytes())
        nodes = [document.nodes[i] for i in leaves(document)]
        for place in places:
            node = next(one for one in nodes if one.extent[0] <= place["offset"] < one.extent[1])
            numbers = [int(word) for word in re.findall(r"\d+", re.sub(r"vol\. \d+, ", "", node.ref or ""))]
            total += 1
            right += node.left_out == place.get("left_out") and ("left_out" in place or numbers == place["numbers"])
    assert total == 650
    assert right >= 648
