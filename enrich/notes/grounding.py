"""Check that a note is grounded in its window and adds something to the headings.

Invariants:
- A note is ungrounded if it has a name, number or identifier that is in neither the window nor the headings.
- A note is ungrounded if too few of its content words are the passage's. A note on code needs only one of them, since
  code is described in other words than its own.
- An instruction in the document to an LLM, with the rest of its paragraph, grounds nothing. A note that follows it
  is therefore ungrounded.
- A note that only copies the text, or repeats the headings printed beside it, is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Final

import msgspec

from chunker.sentences import sentences
from enrich.notes.code import comments, language_names
from enrich.notes.injection import without_orders
from enrich.notes.prompts import Window
from enrich.notes.words import (
    CONTENT,
    GENERIC,
    PARTS,
    WORD,
    content,
    fold_word,
    number_word_digits,
    other_script,
    possessor,
    related,
    text_language,
)

# Share of a note's content words that must be in the passage or its headings; one may always be missing. Of 21 notes
# of a 0.5B model read by eye, all below it but one were wrong or about the neighbouring text.
SUPPORT: Final = 0.55
NEWS: Final = 2  # content words that a note must have beyond the title and the headings
COPIED: Final = 0.8  # a note is a copy from this share of its words on, in runs taken from the text
RUN: Final = 4  # words in a row that make a run

# Word boundaries within an identifier: `makeDateTimes`, `HTTPServer`, `Int64`, `chars_to_byte`.
_JOINTS: Final = re.compile(r"_|(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=\d)")
_TOKEN: Final = re.compile(r"\S+")
_EDGES: Final = ".,;:!?…。！？、，；：()[]{}<>«»„“”\"'‘’`*|"
_THOUSANDS: Final = re.compile(r"(?<=\d)[,'’\u00a0\u202f](?=\d{3}(?!\d))")
_DECIMAL: Final = re.compile(r"(?<=\d),(?=\d)")
_ORDINAL: Final = re.compile(r"(?<=\d)(?:st|nd|rd|th|s|er|e|º|ª)$")
_CAMEL: Final = re.compile(r"[a-zà-ÿ][A-Z]")
_INNER: Final = re.compile(r"\w(?:_|::|\.(?=\w))\w|^_+\w|\w\(\)$")


def quiet(window: Window) -> Window:
    """Return the window without the document's instructions to an LLM.

    If that removes the passage from the end of `preceding`, `preceding` is empty.
    """
    before, text, after = without_orders(window.before, window.text, window.after)
    preceding = _calm_document(window.preceding)
    shown = "".join(preceding).rstrip().endswith(text.strip())
    return msgspec.structs.replace(
        window,
        title=_calm(window.title),
        heading_path=tuple(filter(None, map(_calm, window.heading_path))),
        siblings=tuple(filter(None, map(_calm, window.siblings))),
        before=before,
        after=after,
        text=text,
        opening=_calm(window.opening),
        document=_calm_document((window.document,))[0],
        preceding=preceding if shown else (),
    )


def _calm(line: str) -> str:
    return without_orders(line)[0]


@lru_cache(maxsize=8)  # consecutive chunks of a document use the same text
def _calm_document(pieces: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(without_orders(*pieces))


def grounded(note: str, window: Window) -> str:
    """Return the reason to reject a note for its window; empty if it is grounded."""
    calm = quiet(window)
    ground = _Ground(calm)
    named = list(_claims(note, ground))
    far = calm.document or calm.preceding
    near = _Ground(msgspec.structs.replace(calm, document="", preceding=())) if far else ground
    for name in named:
        if not ground.holds(name):
            return (
                f"names what is not there; {name!r} stands neither in the passage, nor around it, nor in the headings"
            )
    return (
        _foreign(note, calm)
        or _obeys(note, window, ground)
        or _copies(note, calm)
        or _wanders(named, near)
        or _strays(note, named, calm)
        or _says_nothing(note, calm)
    )


def _foreign(note: str, window: Window) -> str:
    """Return a reason if a note's language differs from the passage's; for code, from its comments'."""
    said = comments(window.text, window.code) if window.code else window.text
    spoken, asked = text_language(note), text_language(said)
    if other_script(note, said if asked or not window.code else _whole(window)):
        return "in another language; its letters are not those of the passage"
    if spoken and asked and spoken != asked:
        return f"in another language; {spoken!r}, and the passage is in {asked!r}"
    return ""


def _obeys(note: str, window: Window, ground: _Ground) -> str:
    """Return a reason if a note has a word that occurs only in the document's instructions to an LLM."""
    ordered = {word for word in content(_whole(window)) if not ground.knows(word)}
    taken = sorted(content(note) & ordered)
    return f"says what the document orders; {taken[0]!r} stands only there" if taken else ""


def _copies(note: str, window: Window) -> str:
    """Return a reason if a note is a copy of the text."""
    words = re.findall(r"\w+", fold_word(note))
    for text in (window.text, window.before, window.after):
        blocks = SequenceMatcher(None, words, re.findall(r"\w+", fold_word(text)), autojunk=False).get_matching_blocks()
        copied = sum(block.size for block in blocks if block.size >= RUN)
        if copied >= COPIED * len(words):
            return f"a copy; {copied} of its {len(words)} words stand so in the text"
    return ""


def _wanders(named: Sequence[str], near: _Ground) -> str:
    """Return a reason if most of a note's names occur only in another part of the document."""
    far = [name for name in named if not near.holds(name)]
    if len(far) > 1 and 2 * len(far) > len(named):
        return f"about something else; {far[0]!r} and most of its names stand only elsewhere in the document"
    return ""


def _strays(note: str, named: Sequence[str], window: Window) -> str:
    """Return a reason if too few of a note's words are the passage's.

    Its names do not count, since they may come from the neighbouring text.
    """
    own = _Ground(msgspec.structs.replace(window, siblings=(), before="", after="", document="", preceding=()))
    language_itself = {fold_word(name) for name in language_names(window.code)}
    words = content(note) - {part for name in named for part in content(name)} - language_itself
    found = sum(1 for word in sorted(words) if own.knows(word))
    if window.code:
        strays = (
            words and not found and not any(own.holds(name) for name in named if fold_word(name) not in language_itself)
        )
    else:
        strays = words and (not found or (found < SUPPORT * len(words) and len(words) - found > 1))
    if strays:
        return f"about something else; {found} of its {len(words)} words stand in the passage or its headings"
    return ""


def _says_nothing(note: str, window: Window) -> str:
    """Return a reason if a note adds nothing to the headings, which are printed beside it."""
    told = _Ground(Window(title=window.title, heading_path=window.heading_path, text=""))
    news = [word for word in sorted(content(note)) if not told.knows(word)]
    return f"says no more than the headings; beyond them it has {news}" if len(news) < NEWS else ""


class _Ground:
    """The names and content words that a note may use."""

    def __init__(self, window: Window) -> None:
        whole = _whole(window)
        if window.code:
            whole += "\n" + _JOINTS.sub(" ", whole)
        folded = fold_word(whole)
        words = {possessor(word) for word in WORD.findall(folded)}
        digits = " ".join(sorted(filter(None, map(number_word_digits, words))))
        self.text = _plain_numbers(f"{folded}\n{digits}")
        self._known = content(whole) | words
        self._stems: dict[str, list[str]] = {}
        for word in sorted(self._known):
            self._stems.setdefault(word[:CONTENT], []).append(word)
        # German capitalizes all nouns, so a capital does not mark a name.
        said = text_language(comments(window.text, window.code)) if window.code else ""
        self.capitals_name = (said or text_language(whole)) != "de"

    def holds(self, name: str) -> bool:
        """Return whether it contains a name, number or identifier, inflected or in parts too."""
        folded = _ORDINAL.sub("", _plain_numbers(possessor(fold_word(name))).removesuffix("()"))
        if _stands(folded, self.text) or self.knows(folded):
            return True
        parts = [part for part in re.split(r"[^\w.]+|(?<=[^\W\d])\.(?=[^\W\d])", folded) if part]
        if len(parts) <= 1:
            parts = re.findall(r"\d+(?:\.\d+)*|[^\W\d]+", folded) if re.match(r"\d", folded) else []
        return len(parts) > 1 and all(_stands(part, self.text) or self.knows(part) for part in parts)

    def knows(self, word: str) -> bool:
        """Return whether it contains a folded word, inflected or, for a number word, as digits."""
        if word in self._known or any(related(word, other) for other in self._stems.get(word[:CONTENT], ())):
            return True
        return bool(number_word_digits(word)) and _stands(number_word_digits(word), self.text)


def _whole(window: Window) -> str:
    parts = (
        window.title,
        *window.heading_path,
        *window.siblings,
        window.before,
        window.text,
        window.after,
        *language_names(window.code),
    )
    return "\n".join([*parts, *filter(None, (window.document, "".join(window.preceding)))])


def _claims(note: str, ground: _Ground) -> Iterator[str]:
    """Yield the names in a note: numbers, identifiers, acronyms and capitalised words."""
    for start, end in sentences(note):
        first = True
        for token in _TOKEN.findall(note[start:end]):
            if bare := token.strip(_EDGES):
                if _is_code(bare, token):
                    yield bare
                else:
                    yield from _names(bare, first, ground)
                first = False


def _names(token: str, first: bool, ground: _Ground) -> Iterator[str]:
    """Yield the number words and capitalised words in a token; skip a generic first word."""
    for word in WORD.findall(token):
        name = possessor(word)
        folded = fold_word(name)
        names_something = folded not in GENERIC if first else ground.capitals_name
        if number_word_digits(folded) or (
            names_something and name[:1].isupper() and len(name) > 1 and folded not in PARTS
        ):
            yield name
        first = False


def _is_code(bare: str, token: str) -> bool:
    """Return whether a token is a number, an acronym or an identifier."""
    letters = "".join(char for char in bare if char.isalpha())
    return (
        any(char.isdigit() for char in bare)
        or (len(letters) > 1 and letters.isupper())
        or bool(_CAMEL.search(bare))
        or bool(_INNER.search(token.strip(",;:!?.")))
    )


def _stands(part: str, text: str) -> bool:
    return bool(part) and re.search(rf"(?<![^\W_]){re.escape(part)}(?![^\W_])", text) is not None


def _plain_numbers(text: str) -> str:
    """Return a text without thousands separators and with decimal points for decimal commas."""
    return _DECIMAL.sub(".", _THOUSANDS.sub("", text))
