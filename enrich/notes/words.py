"""Compare words, list those without content, and detect a text's language.

Invariants:
- Words are compared folded: without case, accents and compatibility forms.
- A text of uncertain language has none, so that no check rejects a note on a guess.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import Final

CONTENT: Final = 4  # letters of a content word; shorter ones are mostly grammar

TOLD: Final = 12  # letters from which on a text's script says something
CHINESE: Final = 8  # characters; a shorter run of them may be Japanese

WORD: Final = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
# Scripts that put no space between words: two letters at a time stand in for words.
UNSPACED: Final = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\u0e00-\u0e7f]+")


def fold_word(text: str) -> str:
    """Return a text without case, accents and compatibility forms."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", "".join(char for char in decomposed if not unicodedata.combining(char)))


def _list(text: str) -> frozenset[str]:
    return frozenset(fold_word(text).split())


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
    for number, word in enumerate(fold_word(words).split(), start=3)
}


def content(text: str) -> set[str]:
    """Return the folded content words of a text; letter pairs for scripts without spaces."""
    folded = fold_word(text)
    words = {possessor(word) for word in WORD.findall(UNSPACED.sub(" ", folded))}
    return {word for word in words if len(word) >= CONTENT and word not in GENERIC} | set(_pairs(folded))


def _pairs(folded: str) -> Iterator[str]:
    """Yield every pair of adjacent letters in a script without spaces."""
    for run in UNSPACED.findall(folded):
        yield from (run[i : i + 2] for i in range(len(run) - 1))


def possessor(word: str) -> str:
    """Return a word without a genitive's apostrophe."""
    return re.sub(r"['’]s?$", "", word)


def number_word_digits(word: str) -> str:
    """Return the digits of a folded number word from three to twenty; empty for any other word."""
    return _NUMBERS.get(word, "")


def related(a: str, b: str) -> bool:
    """Return whether two folded words look like forms of one: a long common prefix."""
    common = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        common += 1
    rest = max(len(a), len(b)) - common
    return common >= CONTENT and (rest <= 3 or (common >= 6 and rest <= 5))


def text_language(text: str) -> str:
    """Return a text's language, or a script used by few languages; empty if uncertain.

    Decided by the script of most letters and, for Latin, by the commonest words of eight languages (Zipf: a handful of
    function words makes up a third of running text): one language must have two of them, and twice those of the next.
    Kana distinguish Japanese from Chinese: nearly every Japanese sentence has some.
    """
    counts = scripts(text)
    script, most = max(counts.items(), key=lambda item: item[1], default=("", 0))
    total = counts.total()
    if counts["CJK"] + counts["KANA"] + counts["HANGUL"] + counts["THAI"] > 0.3 * total:
        return _eastern(counts)
    if script != "LATIN":
        return script.lower() if most > 0.5 * total else ""
    words = WORD.findall(fold_word(text))
    hits = {name: sum(1 for word in words if word in known) for name, known in _FUNCTION_WORDS.items()}
    first, second = sorted(hits, key=lambda name: -hits[name])[:2]
    return first if hits[first] >= 2 and hits[first] >= 2 * hits[second] else ""


def scripts(text: str) -> Counter[str]:
    """Return the number of letters per script; a letter's Unicode name starts with its script."""
    letters = Counter(char for char in unicodedata.normalize("NFKC", text) if char.isalpha())
    counts: Counter[str] = Counter()
    for char, number in letters.items():
        name = unicodedata.name(char, "").partition(" ")[0]
        counts["KANA" if name in ("HIRAGANA", "KATAKANA") else name] += number
    return counts


def other_script(text: str, of: str) -> bool:
    """Return whether a text is certainly not in the script of another.

    Almost none of its letters are of that script, and nearly all of the other's are. Names, quotes and code in
    foreign letters make the result uncertain.
    """
    own, others = scripts(text), scripts(of)
    for counts in (own, others):
        counts["CJK"] += counts.pop("KANA", 0)
    script, most = max(others.items(), key=lambda item: item[1], default=("", 0))
    sure = most >= TOLD and most >= 0.8 * others.total() and own.total() >= TOLD
    return sure and own[script] < 0.1 * own.total()


def _eastern(counts: Counter[str]) -> str:
    """Return the language of letters from East Asia."""
    if counts["KANA"] >= 2 and counts["KANA"] >= 0.1 * (counts["CJK"] + counts["KANA"]):
        return "japanese"
    if counts["HANGUL"] >= max(2, counts["CJK"]):
        return "korean"
    if counts["THAI"] > counts["CJK"]:
        return "thai"
    return "chinese" if counts["CJK"] >= CHINESE and not counts["KANA"] else ""
