"""Where sentences end.

Invariants:
- The spans cover the text they were given without gap or overlap, so joining them gives it back.
- Where it is doubtful whether a sentence ends, it does not (a sentence too long is better than one cut in two).
- sentencex, whose time grows with the square of a Chinese or Japanese text, is never handed more than ``WINDOW``
  characters: time is linear in the text. A window begins where the last sentence of the one before it begins, or
  shortly before its end where that sentence is as long as half a window; so only such a sentence can end elsewhere.

The boundaries come from sentencex (Wikimedia, MIT, compiled; more than 200 languages in one call); what it cuts too
eagerly is joined again by the rules below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import sentencex

# Words with a full stop that stand before a number or a name, beside those that sentencex knows.
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(\[\"'“‘])(?:approx|ca|cf|fig|figs|no|nos|nr|vol|vols|p|pp|ch|chap|sec|sect|art|eq|ref|tab|ver|v|vs|st"
    r"|mr|mrs|ms|dr|prof|rev|gen|col|capt|sgt|lt|hon|jr|sr|bd|hrsg|vgl|bzw|abs|etc|incl|max|min|dept|inc|ltd|co"
    r"|i\.e|e\.g|a\.m|p\.m|z\.b|d\.h|u\.a|dott|sig|sra|dhr|mevr|bijv|ul|np|např|tzv|str|ул|пл|обл|см|ts|ths|डॉ|श्री)\.\s*$",
    re.IGNORECASE,
)
SENTENCE_WINDOW: Final = 4_000  # code points handed to sentencex at a time
_LOOK_BACK: Final = 250  # code points at the end of a window that is within one sentence, seen again by the next one
_LONG: Final = 8  # letters; no abbreviation is longer
_ORDINAL: Final = re.compile(r"(?:^|[\s(])\d{1,2}\.\s*$")
_INITIAL: Final = re.compile(r"(?:^|[\s(.])[^\W\d_]\.\s*$")
_CONTINUES: Final = re.compile(r"[\s\"'“”‘’»«)\]]{0,80}(?:[a-zà-öø-ÿа-яёα-ω]|[,;:)\]}])")
_GOES_ON: Final = re.compile(r"[\s\"'“”‘’»«)\]]{0,80}[,;:)\]}]")
# Hardly a sentence ends in a word so short and the next begins with a digit: "Abb. 3", "Kap. 12", "Taf. 4".
_SHORT: Final = re.compile(r"(?:^|[\s(])[^\W\d_]{1,5}\.\s*$")
_NUMBER_NEXT: Final = re.compile(r"\s*[\d(#]")
# A short word with a full stop that would be all of a sentence: "Ул. Ленина", "Dhr. Jansen", "TS. Nguyễn".
_ALONE: Final = re.compile(r"\s*\w{1,5}\.\s*")
# Ends that sentencex does not know: Khmer and Tibetan, and the Greek question mark.
_MORE: Final = re.compile(
    r"[\u17d4\u17d5]\s*|[\u0f0d\u0f0e]\s+|(?<=[\u0370-\u03ff\u1f00-\u1fff]);\s+(?=[\u0386-\u03ab\u1f08-\u1fff])"
)
_BLANK: Final = re.compile(r"\s+")
_QUOTE_PARTICLE: Final = re.compile(r"[とっなでのにはがをも]")  # Japanese goes on after a closing quote


def sentences(text: str) -> list[tuple[int, int]]:
    """``[start, end)`` of each sentence, white space after it included; one span for a text without an end."""
    return list(iterate_sentences(text, 0, len(text)))


def iterate_sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the sentences between two places of a text, one at a time."""
    begin = position = start  # where the sentence that is not ended yet begins, and the next window
    small = _without_capitals(text, start, end)
    while position < end:
        stop = min(end, position + SENTENCE_WINDOW)
        spans = [(position + a, position + b) for a, b in _in_window(text[position:stop], small=small)]
        if stop == end:
            spans[0] = (begin, spans[0][1])
            yield from spans
            return
        if len(spans) > 1:  # the last sentence may go on behind the window
            yield begin, spans[0][1]
            yield from spans[1:-1]
            begin = spans[-1][0]
        known = len(spans) > 1 and begin >= position + SENTENCE_WINDOW // 2
        position = begin if known else _next_window(text, stop - _LOOK_BACK, stop)


def _next_window(text: str, low: int, high: int) -> int:
    """Return where to begin within a long sentence: behind white space if there is any."""
    blank = _BLANK.search(text, low, high - 1)
    return blank.end() if blank else low


def _without_capitals(text: str, start: int, end: int) -> bool:
    """Return whether a text has letters and no capitals, so that a small letter begins a sentence too."""
    cased = False
    for low in range(start, end, SENTENCE_WINDOW):
        part = text[low : min(end, low + SENTENCE_WINDOW)]
        if part.islower():
            cased = True
        elif part.lower() != part.upper():
            return False
    return cased


def _in_window(text: str, *, small: bool) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for boundary in sentencex.get_sentence_boundaries("en", text):
        start, end = int(boundary["start_index"]), int(boundary["end_index"])
        if end <= start:
            continue
        if spans and (not text[start:end].strip() or _joined(text, spans[-1], start, small=small)):
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((spans[-1][1] if spans else 0, end))
    if not spans:
        return [(0, len(text))]
    spans[-1] = (spans[-1][0], len(text))
    return spans if text.isascii() else _cut_further(text, spans)


def _cut_further(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    cuts = {match.end() for match in _MORE.finditer(text)}
    if not cuts:
        return spans
    starts = sorted({start for start, _ in spans} | (cuts - {len(text)}))
    return list(zip(starts, [*starts[1:], len(text)], strict=True))


def _joined(text: str, before: tuple[int, int], start: int, *, small: bool) -> bool:
    """Return whether what begins at ``start`` still belongs to the sentence before it."""
    tail = text[max(before[0], before[1] - 40) : before[1]]
    said = tail.rstrip()
    if len(tail) > len(said) + 1 and "\n\n" in tail[len(said) :]:
        return False
    if not said or (not text[start].isupper() and (_GOES_ON if small else _CONTINUES).match(text, start)):
        return True
    if said[-1] in "」』":
        return bool(_QUOTE_PARTICLE.match(text, start))
    if said[-1] != ".":
        return False
    if before[1] - before[0] < 12 and _ALONE.fullmatch(text, *before):
        return True
    word = said[said.rfind(" ") + 1 :]
    if len(word) > _LONG and word[:-1].isalpha():
        return False
    number_next = bool(_NUMBER_NEXT.match(text, start))
    if _ABBREVIATION.search(word) and (number_next or not word.lower().endswith("etc.")):
        return True
    return bool((number_next and _SHORT.search(word)) or _ORDINAL.search(word) or _INITIAL.search(word))
