"""Find and remove a document's instructions to an LLM.

Invariants:
- Instructions are found by sentence. The rest of the paragraph is removed too, since it may be the text to write.
- If that paragraph ends with a colon, the next one is removed too.
- No instruction reaches a prompt or grounds a note.
- The chunk's own text is never changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from chunker.sentences import sentences

_VERBS: Final = (
    r"(?:answer|reply|respond|output|print|say|write|return|repeat|include|mention|begin|start|finish|summari[sz]e)"
)
_RESULT: Final = r"(?:note|answer|reply|summary|response|output)"
_MACHINE: Final = (
    r"(?:language models?|llms?|(?:ai|virtual) (?:assistant|model|system|agent|reader)s?|chat ?bots?|chatgpt)"
)
_TURNED: Final = r"(?:instruction|prompt|command|order|rule|direction|guideline|above|earlier|previous|prior|said|told)"

# One row per kind of instruction. Of 6,600 paragraphs of books, source code and papers, 5 were false positives, so a
# passage rarely loses a paragraph by mistake.
_WAYS: Final = (
    # a speaker's label, or a chat template's control tokens
    r"^\W*(?:system|assistant|developer|user|ai|llm)(?: (?:prompt|message|note|instructions?|override))?\s*[:>\]]",
    r"<\|(?:im_start|im_end|system|user|assistant|start_header_id|eot_id)\|>|\[/?INST\]|<</?SYS>>",
    # forget what you were told
    rf"\b(?:ignore|disregard|forget|override|overrule|bypass|neglect)\b.{{0,40}}\b{_TURNED}",
    r"\b(?:from now on|henceforth|from here on)\b.{0,60}\b(?:you|answer|reply|respond|write|say|output|act|always)\b",
    rf"\byou (?:are (?:now|no longer)|(?:must|will|should|shall) (?:only|always|instead) {_VERBS})\b",
    r"\b(?:new|updated|real|actual|hidden|secret) (?:system )?(?:instruction|prompt|task)s?\b",
    # write this, and so
    r"(?:^\W*|[.!?:;,]\s+|\b(?:please|must|should|shall|will|only|always|just|then|and|instead|to)\s+)"
    rf"{_VERBS}\b.{{0,80}}"
    r"\b(?:only (?:with|as|in)|with nothing|nothing else|verbatim|as json|in json"
    rf"|the (?:single )?(?:word|phrase|string|token|marker|code ?word)|your {_RESULT})",
    rf"\b(?:your|any|the) {_RESULT}s? (?:must|should|shall|has to|have to|is to|will)\b",
    r"\b(?:when|while|if|before|after|for) (?:you |anyone |an? )?(?:summari[sz]|describ|index|process|read)\w*.{0,60}"
    r"\b(?:say|write|answer|reply|respond|output|include|mention|state|append)\b",
    # to a machine by name
    rf"\b{_MACHINE}\b.{{0,60}}\b(?:must|should|shall|please|ignore|(?:is|are) (?:required|instructed|asked)"
    rf"|{_VERBS})\b",
    r"\b(?:instructions?|attention|message|note|notice|important)\b.{0,12}\b(?:to|for)\b.{0,12}"
    rf"\b(?:ai|{_MACHINE})\b",
    # German, French, Spanish, Chinese, Japanese
    r"\b(?:ignorier\w*|vergiss|vergessen sie|missachte\w*)\b.{0,60}\b(?:anweisung|befehl|regel|bisherig|vorherig|oben)",
    r"\b(?:antworte|antworten sie|schreibe?|gib|geben sie)\b.{0,60}\b(?:nur|ausschließlich|genau|das wort|als json)\b",
    r"\b(?:ignore[zr]?|oublie[zr]?)\b.{0,60}\b(?:instruction|consigne|ordre|précédent)",
    r"\b(?:réponds|répondez|écris|écrivez)\b.{0,60}\b(?:seulement|uniquement|le mot|en json)\b",
    r"\b(?:ignora|ignore|olvida|olvide)\b.{0,60}\b(?:instruccion|anterior|orden)",
    r"\b(?:responde|responda|escribe|escriba)\b.{0,60}\b(?:solo|sólo|únicamente|solamente|la palabra|en json)\b",
    r"(?:忽略|无视|忘记).{0,20}(?:指令|指示|提示|要求)|(?:只|仅)(?:回答|输出|回复)|以下の指示|指示を無視",
)
_ORDER: Final = re.compile("|".join(f"(?:{way})" for way in _WAYS), re.IGNORECASE | re.DOTALL)


def orders(text: str) -> list[tuple[int, int]]:
    """Return ``[start, end)`` of each instruction to an LLM, in code points, in reading order."""
    found: list[tuple[int, int]] = []
    carried = False
    for start, end in _paragraphs(text):
        paragraph = text[start:end]
        first = 0 if carried else _first_order(paragraph)
        carried = False
        if first is not None:
            found.append((start + first, end))
            carried = paragraph.rstrip().endswith((":", "："))
    return found


def without_orders(*parts: str) -> list[str]:
    """Return the parts of a text without its instructions to an LLM.

    An instruction may span two parts, for example when a chunk ends within it.
    """
    spans = orders("".join(parts))
    kept = []
    low = 0
    for part in parts:
        high = low + len(part)
        position, pieces = low, []
        for start, end in spans:
            if start < high and end > low:
                pieces.append(part[position - low : max(position, start) - low])
                position = min(end, high)
        kept.append("".join([*pieces, part[position - low :]]))
        low = high
    return kept


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    position = 0
    for match in re.finditer(r"\n\s*\n", text):
        yield position, match.end()
        position = match.end()
    yield position, len(text)


@lru_cache(maxsize=1024)  # a document's paragraphs recur for each of its chunks
def _first_order(paragraph: str) -> int | None:
    """Return the offset of a paragraph's first sentence with an instruction."""
    if not _ORDER.search(paragraph):  # nearly always, and far quicker than finding sentences
        return None
    for start, end in sentences(paragraph):
        if _ORDER.search(paragraph[start:end]):
            return start
    return None
