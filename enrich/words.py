"""What the checks know of words: how they are compared, which of them say nothing, and what language they are of.

Kept here: everything is compared folded (without case, accents and compatibility forms); and where a text's language
is doubtful it has none, so no check refuses a note for a guess.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

CONTENT: Final = 4  # letters of a content word; shorter ones are mostly grammar

WORD: Final = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
# Scripts that put no space between words: two letters at a time stand in for words.
UNSPACED: Final = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\u0e00-\u0e7f]+")


def fold(text: str) -> str:
    """Without case, accents and compatibility forms."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", "".join(char for char in decomposed if not unicodedata.combining(char)))


def _list(text: str) -> frozenset[str]:
    return frozenset(fold(text).split())


# The commonest words of a language that few of the others have.
_FUNCTION_WORDS: Final = {
    "en": _list("the of and to is are was were that this which with for from by not it when has have been they at be"),
    "de": _list("der die das und ist nicht ein eine einen mit von für auf den dem des wird werden sie bei nach oder"),
    "fr": _list("le la les des est et une dans pour pas que qui sur avec ce cette sont par au aux du ne elle"),
    "es": _list("el los las del una para con que no por se es son como está y su al más este esta"),
    "it": _list("il lo gli della dei delle che per non con una sono è di nel alla questo questa si"),
    "nl": _list("de het een van en niet met voor op zijn wordt dat deze dit aan bij ook naar"),
    "pt": _list("o os uma do da dos das não para com que por em são é se ao na no mais este"),
    "sv": _list("och att det som en ett är inte på för med av den till har kan om från"),
}
GENERIC: Final = _list(
    """a about after all also an and answers any are as asks at because been before being between both but by can
    chapter checks compares contains content could covers defines describes describing details discusses discussing
    document does during each every example examples explaining explains focuses for from gives guidance guide have
    having he her here his how if important in including information instructions into introduces introduction is it
    its itself key lists main many mentioning mentions more most must names no not notes of on one only other our
    outlines over overview part passage passages presents process provides regarding related reports requirements
    rules says section sets several she should shows some specific specifically states steps such summarizes summary
    system tells text than that the their them then there these they this those three through time to topic two
    under upon use used uses using various very was way ways we were what when where which while who why will with
    within without would you your
    aber abschnitt als auch auf bei beschreibt dann das dem den der des die diese dieser dieses durch ein eine einem
    einen einer eines er erklärt es hier ist mit nach oder sein sie sind text über und unter von wann was wenn
    werden wer wie wird wurde au avec ce ces cet cette comment dans des du elle en est et il ils la le les l par
    pour pourquoi quand que qui sont sous sur texte un une como cómo con cuando de del desde el en entre es esta
    estas este esto estos la las los para por que se sobre son su texto un una che come della di gli i il in lo nel
    per quando questa questo si sono un de deze dit een en het met o op os um uma van voor"""
)
PARTS: Final = _list(
    """appendix book chapter document figure guide index manual page paragraph part passage section table text
    abschnitt dokument kapitel seite tabelle chapitre page tableau sección capítulo"""
)
_NUMBERS: Final = {
    word: str(number)
    for words in (
        "three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen"
        " nineteen twenty",
        "drei vier fünf sechs sieben acht neun zehn elf zwölf",
        "trois quatre cinq six sept huit neuf dix onze douze",
    )
    for number, word in enumerate(fold(words).split(), start=3)
}


def content(text: str) -> set[str]:
    """The folded words of a text that carry meaning; pairs of letters where no spaces part the words."""
    folded = fold(text)
    words = {possessor(word) for word in WORD.findall(UNSPACED.sub(" ", folded))}
    return {word for word in words if len(word) >= CONTENT and word not in GENERIC} | set(pairs(folded))


def pairs(folded: str) -> Iterator[str]:
    """Every two letters that stand together in a script without spaces."""
    for run in UNSPACED.findall(folded):
        yield from (run[i : i + 2] for i in range(len(run) - 1))


def possessor(word: str) -> str:
    """A word without a genitive's apostrophe."""
    return re.sub(r"['’]s?$", "", word)


def number(word: str) -> str:
    """The digits of a folded number word from three to twenty; empty for any other word."""
    return _NUMBERS.get(word, "")


def related(a: str, b: str) -> bool:
    """Whether two folded words look like forms of one: a common beginning, and little behind it."""
    common = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        common += 1
    rest = max(len(a), len(b)) - common
    return common >= CONTENT and (rest <= 3 or (common >= 6 and rest <= 5))


def language(text: str) -> str:
    """A text's language or, where a script is used for few, that script; empty where it is doubtful."""
    letters = [char for char in text if char.isalpha()]
    if not letters:
        return ""
    if sum(1 for char in letters if UNSPACED.match(char)) > 0.3 * len(letters):
        return "unspaced"
    if sum(1 for char in letters if "\u0370" <= char <= "\u06ff") > 0.5 * len(letters):
        return unicodedata.name(letters[0], "").partition(" ")[0].lower()
    words = WORD.findall(fold(text))
    counts = {name: sum(1 for word in words if word in known) for name, known in _FUNCTION_WORDS.items()}
    first, second = sorted(counts, key=lambda name: -counts[name])[:2]
    return first if counts[first] >= 2 and counts[first] >= 2 * counts[second] else ""
