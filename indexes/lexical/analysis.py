"""Text to terms for BM25, the same for what is indexed and what is asked.

Invariants:
- The terms of a text depend on that text alone.
- A token between blanks is analysed by itself, so the terms of two texts joined by a blank are their terms joined.
- Work grows linearly with the text.
- Any text is accepted.

The rules:

- Letters are compared after NFKC, case folding and accent folding, so ``Müller`` meets ``muller``. What folding would
  turn into another letter of the same alphabet is kept: Cyrillic ``й ї ў ѓ ќ`` (``ё`` becomes ``е``, as it is mostly
  written), the voiced marks of Japanese kana, the vowel signs of Indic and South-East Asian scripts. Points that a
  writer may leave out (Hebrew niqqud, Arabic harakat and tatweel) go.
- A word is a run of letters, their marks, and digits. Apostrophes, hyphens and every other sign end it.
- A word is cut where its case or its kind changes: ``getUserName`` gives ``get user name``, ``sha256`` ``sha 256``.
- An identifier (see ``_is_identifier``) is also kept whole, and so are its parts that are identifiers themselves.
- Scripts that put no blanks between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese) and Korean give overlapping
  pairs of characters, a character being a letter with its marks; one that stands alone gives itself.
- Words of the letters a to z are stemmed by Snowball's English rules, whatever their language: what is done to both
  sides alike does little harm elsewhere, and took recall of BM25 on the code benchmark from 82.0 to 84.8 at 10.
- Function words of a query (``FUNCTION_WORDS``) are not looked for where others remain; they are indexed. In a small
  collection they are rare enough to count: 77.1 to 82.0 at 10 on the same benchmark.
- A phrase of a query is what stands in it between quotation marks; its terms keep their order and its function words.
- A compound with hyphens also counts as one word: ``long-term`` and ``longterm`` find each other.
- A name (see :mod:`indexes.lexical.names`) is kept as it is written. Capitals in a query that is written in capitals
  throughout are ignored.
- A pair of a query is a word and the number or single letter behind it, ``appendix a``, or such a letter and the word
  behind it, ``c major``: the two stand side by side where they are one name.
- Single Han characters and Hangul syllables are indexed beside their pairs. A query looks for those that are a word:
  alone, between kana or between words of grammar, or before a Korean particle.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import Stemmer

from indexes.lexical import characters, names

# Raised by hand when the same text gives other terms, or the BM25 index keeps other things of them (3: positions of the
# body); an index of another version is written anew.
ANALYSIS_VERSION: Final = 6
WORD_LIMIT: Final = 64  # characters; a longer run is a blob (base64, a digest): its first 64 are one term, uncut
IDENTIFIER_LIMIT: Final = 200  # characters; a longer one is not kept whole
QUERY_TERMS: Final = 256  # distinct terms of a query in each field, the first ones; about 8 ms over 110,000 chunks
QUERY_CHARACTERS: Final = 32_768  # what stands behind them in a query is not read
SHOUTED: Final = 3  # words of a query; more of them in capitals tell no name
REMEMBERED_TOKENS: Final = 200_000  # some 50 MB; running text repeats its words, so most tokens are only looked up


# What questions are made of, in English and German; "s", "t" and the like are what apostrophes leave.
_FUNCTION_WORDS: Final = """
a about after again all also am an and any are as at be because been before being below between both but by can
could did do does doing down during each few for from further had has have having he her here hers him his how i if
in into is it its itself just ll may me might more most must my no nor not of off on once only or other our out over
own re s same shall she should so some such t than that the their them then there these they this those through to
too under until up upon ve very was we were what when where which while who whom whose why will with would you your
als am an auf aus bei bin bis da damit das dass dem den der des die dies diese dieser dieses doch du durch ein eine
einem einen einer eines er es fur hat haben ich ihr im in ist ja kann man mit nach nicht noch nur oder sein sich sie
sind so um und uns unter vom von vor war warum was weil welche welcher welches wenn wer werden wie wird wo zu zum
zur
"""
FUNCTION_WORDS: Final = frozenset(_FUNCTION_WORDS.split())
_STEMMER: Final = Stemmer.Stemmer("english")


class Terms(NamedTuple):
    """Terms of a text, in reading order, separated by single blanks.

    Attributes:
        body: words, parts of identifiers, pairs of characters.
        identifiers: identifiers whole, and their parts that are identifiers.
        names: capitals, numbers with marks, brands with signs.
        characters: Han characters and Hangul syllables.
    """

    body: str
    identifiers: str
    names: str
    characters: str


class QueryTerms(NamedTuple):
    """Distinct terms to look for, in order of appearance, at most ``QUERY_TERMS`` in each field.

    Attributes:
        body: words.
        identifiers: identifiers, names, and characters that are a word.
        names: the two latter alone.
        pairs: two words of the body that are one name where they stand side by side.
    """

    body: tuple[str, ...]
    identifiers: tuple[str, ...]
    names: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]


def analysis_fingerprint() -> str:
    """Return the fingerprint of the analysis: this module's version and Python's Unicode version."""
    return f"analysis {ANALYSIS_VERSION}, Unicode {unicodedata.unidata_version}, Snowball {Stemmer.version()}"


def analyse(text: str) -> Terms:
    """Return the terms under which a text is indexed."""
    found = [_REMEMBERED[token] for token in names.join_sections(text).split()]
    more = [terms for terms in found if terms[1] or terms[2] or terms[3]]
    rest = (" ".join([terms[field] for terms in more if terms[field]]) for field in (1, 2, 3))
    return Terms(" ".join([terms[0] for terms in found if terms[0]]), *rest)


def analyse_query(query: str) -> QueryTerms:
    """Return the terms to look for.

    Every word is also looked for among the identifiers, and an identifier of letters and digits alone among the words,
    so that ``getusername`` meets ``getUserName`` and the other way round.
    """
    body: list[str] = []
    identifiers: list[str] = []
    named: list[str] = []
    untold: set[str] = set()
    tokens = names.join_sections(query[:QUERY_CHARACTERS]).split()
    shouted = _is_shouted(tokens)
    for token in tokens:
        terms = _REMEMBERED[token]
        own = [name for name in _names(token) if not (shouted and name.isalpha())]
        whole = terms.identifiers.split()
        glued = "" if token.isascii() else unicodedata.normalize("NFKC", token)
        own += characters.words(glued)
        untold.update(characters.grammar(glued))
        body += terms.body.split()
        body += [_normalize(name) for name in (*whole, *own) if name.isalnum() and name not in UNTOLD]
        identifiers += own + (whole or [word for word in fold(token.strip(_AROUND)).split() if word not in UNTOLD])
        named += own
    telling = [word for word in body if word not in UNTOLD and word not in untold]
    pairs = tuple(dict.fromkeys(_pairs_of(tokens)))[:QUERY_TERMS]
    return QueryTerms(_first_distinct(telling or body), _first_distinct(identifiers), _first_distinct(named), pairs)


def phrases(query: str) -> tuple[tuple[str, ...], ...]:
    """Return the distinct phrases of a query, each as its two and more terms in order, function words among them.

    A phrase stands between ``"…"``, ``“…”``, ``„…“``, ``«…»`` or ``»…«``; a mark without its other half opens none. All
    phrases together have at most ``QUERY_TERMS`` terms: what stands behind them is not read.
    """
    room = QUERY_TERMS
    found: list[tuple[str, ...]] = []
    for quoted in _QUOTED.findall(query[:QUERY_CHARACTERS]):
        terms = tuple(analyse("".join(quoted)).body.split()[:room])
        if len(terms) > 1 and terms not in found:
            found.append(terms)
            room -= len(terms)
    return tuple(found)


def fold(text: str) -> str:
    """Text without differences of case, width and accent, by the rules at the top of this module."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", text).casefold().translate(_FOLDED)


def _ranges(codes: Iterable[int]) -> str:
    """Return the inside of a character class for ``re`` that holds these code points, given in rising order."""
    spans: list[list[int]] = []
    for code in codes:
        if spans and spans[-1][1] == code - 1:
            spans[-1][1] = code
        else:
            spans.append([code, code])
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in spans)


# Blocks of Thai, Lao, Burmese, Khmer, Hangul, kana and Han in the basic plane (Unicode 15, Blocks.txt).
_UNSEGMENTED_BLOCKS: Final = (
    *(
        range(0x0E00, 0x0F00),
        range(0x1000, 0x10A0),
        range(0x1100, 0x1200),
        range(0x1780, 0x1800),
        range(0x19E0, 0x1A00),
    ),
    *(
        range(0x2E80, 0x2FE0),
        range(0x3000, 0xA000),
        range(0xA960, 0xA980),
        range(0xA9E0, 0xAA00),
        range(0xAA60, 0xAA80),
    ),
    *(range(0xAC00, 0xD800), range(0xF900, 0xFB00), range(0xFF66, 0xFFA0)),
)
_CATEGORIES: Final = [unicodedata.category(chr(code)) for code in range(0x10000)]
_UNSEGMENTED_CODES: Final = {
    c for block in _UNSEGMENTED_BLOCKS for c in block if _CATEGORIES[c][0] in "LM" or c == 0x3007
}


def _of_category(prefixes: str) -> str:
    """Character class of the code points in the basic plane whose category is, or begins with, one of these."""
    wanted = tuple(prefixes.split())
    codes = (code for code, category in enumerate(_CATEGORIES) if category.startswith(wanted))
    return _ranges(code for code in codes if code not in _UNSEGMENTED_CODES)


# ``re`` looks a code point of the basic plane up in a table, and goes through ranges one by one beyond it: there the
# classes are coarse. Han and kana fill planes 2 and 3 and a part of plane 1, the other letters of plane 1 are words.
_UNSEGMENTED: Final = _ranges(sorted(_UNSEGMENTED_CODES)) + "\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
_MARK: Final = _ranges(code for code, category in enumerate(_CATEGORIES) if category[0] == "M")
_UPPER: Final = _of_category("Lu")
_LOWER: Final = _of_category("Ll")
_DIGIT: Final = _of_category("N")
_LETTER: Final = _of_category("L M N") + "\U00010000-\U0001afef\U0001e000-\U0001efff"

_RUNS: Final = re.compile(f"([{_UNSEGMENTED}][{_UNSEGMENTED}{_MARK}]*)|[{_LETTER}]+")
_GLUED: Final = re.compile(f"[{_UNSEGMENTED}]+")
_CHARACTERS: Final = re.compile(f"[^{_MARK}]?[{_MARK}]*", re.DOTALL)
_PARTS: Final = re.compile(f"[{_UPPER}]?[^{_UPPER}{_DIGIT}]+|[{_UPPER}]+(?![{_LOWER}])|[{_DIGIT}]+")
_JOINED: Final = re.compile(rf"(?<!\w)[A-Za-z](?:\+\+|#)(?!\w)|[{_LETTER}_]+(?:[-./\\:@]+[{_LETTER}_]+)*")
_HYPHEN: Final = re.compile("[-\u2010\u2011]")
_COMPOUND: Final = re.compile(rf"(?<![\w.@/\\-])[^\W{_DIGIT}_]+(?:[-\u2010\u2011][^\W{_DIGIT}_]+)+(?![\w@/\\-])")
_PIECES: Final = (re.compile(r"[/\\:@]+"), re.compile(r"[/\\:@.]+"))
_FEATURES: Final = re.compile(
    rf"[{_LOWER}][{_UPPER}]"  # camel case: getUserName
    rf"|[^\W{_DIGIT}][-.]?[{_DIGIT}]|[{_DIGIT}][-.]?[^\W{_DIGIT}]"  # letters beside digits: v1.2.3, X-42B
    r"|[^\W_]_+[^\W_]"  # snake case
    rf"|[{_DIGIT}][-.:][{_DIGIT}]+[-.:][{_DIGIT}]"  # 1.2.3, 2024-05-01
    rf"|\w\.\w*[^\W{_DIGIT}]|[^\W{_DIGIT}]\w*\.\w"  # main.toml, os.path
    r"|[/\\].*[/\\.]|\..*[/\\]"  # src/app/main, conf.d/x
    r"|@|::|\+\+|#"
)
_QUOTED: Final = re.compile('"([^"]+)"|[“„”]([^“„”]+)[“”]|«([^«»]+)»|»([^«»]+)«')
_PLAIN: Final = re.compile(r"[0-9]+(?:st|nd|rd|th|s)|\d+\.\d+")  # 19th, 1990s, 4.25
_SHORT: Final = re.compile(r"\d\S{0,11}|[A-Z]|[IVXLC]{1,5}")  # a name together with the word before it
_AROUND: Final = ".,;:!?\"'()[]{}<>*_-|`–—“”‘’„«»…"  # signs that end or open a word and no identifier


class _Remembered(dict[str, Terms]):
    """Terms by token; forgets all of them when it is full."""

    def __missing__(self, token: str) -> Terms:
        terms = _analyse_token(token)
        if len(token) <= WORD_LIMIT:
            if len(self) >= REMEMBERED_TOKENS:
                self.clear()
            self[token] = terms
        return terms


class _Folded(dict[int, str]):
    """What a code point of composed, case-folded text becomes."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = _fold_character(chr(code))
        return folded


_KEPT: Final = frozenset("йїўѓќ")
# Latin letters that Unicode does not take apart, as Lucene's ASCIIFoldingFilter writes them.
_WRITTEN: Final = {
    "ł": "l",
    "ø": "o",
    "đ": "d",
    "ð": "d",
    "þ": "th",
    "æ": "ae",
    "œ": "oe",
    "ı": "i",
    "ħ": "h",
    "ŧ": "t",
}
_ACCENTS: Final = re.compile("[\u0300-\u036f]")
_DROPPED: Final = re.compile(
    "[\u0300-\u036f"  # accents that compose with no letter
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"  # Hebrew points
    "\u0610-\u061a\u0640\u064b-\u0652\u0656-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed"  # Arabic
    "\u00ad\u200b-\u200f\u2060\ufeff]"  # soft hyphen and other signs without width
)
_ALEF: Final = re.compile("(?<=\u0627)[\u0653-\u0655]")  # alef with madda or hamza is mostly written as alef

_REMEMBERED: Final = _Remembered()
UNTOLD: Final = FUNCTION_WORDS | {_STEMMER.stemWord(word) for word in FUNCTION_WORDS}
_SPELLED: Final = {word for word in FUNCTION_WORDS if len(word) > 1} | {"us"}  # words that capitals make a name
_FOLDED: Final = _Folded()


def _fold_character(character: str) -> str:
    if character in _KEPT:
        return character
    bare = _ALEF.sub("", _ACCENTS.sub("", unicodedata.normalize("NFD", character)))
    return _WRITTEN.get(bare, _DROPPED.sub("", unicodedata.normalize("NFC", bare)))


def _analyse_token(token: str) -> Terms:
    """Terms of a text without blanks."""
    word = token.strip(_AROUND)
    plain = word.isascii() and word.isalpha() and len(word) <= WORD_LIMIT and (word[1:].islower() or len(word) == 1)
    if plain and not ("!" in token or "*" in token or "." in token[:2]):  # these may belong to a name
        return Terms(_normalize(word), "", "", "")
    token = unicodedata.normalize("NFKC", token)
    identifiers = list(_identifiers(token))
    return Terms(
        " ".join(_words(token)),
        " ".join(identifiers),
        " ".join(name for name in _names(token) if name not in identifiers),
        " ".join(characters.single(token)) if not token.isascii() else "",
    )


def _names(token: str) -> list[str]:
    token = unicodedata.normalize("NFKC", token)
    found: list[str] = []
    for piece in _GLUED.split(token):
        found += map(fold, names.names_of(piece))
        found += (word for word in map(fold, names.capitals(piece)) if word in _SPELLED)
    return found


def _words(token: str) -> Iterator[str]:
    for run in _RUNS.finditer(token):
        if run[1]:
            yield from _pairs(_normalize(run[1]))
        elif len(run[0]) > WORD_LIMIT:
            yield _normalize(run[0][:WORD_LIMIT])
        else:
            yield from filter(None, map(_normalize, _PARTS.findall(run[0])))


def _pairs(run: str) -> list[str]:
    characters = [character for character in _CHARACTERS.findall(run) if character]
    if len(characters) < 2:
        return characters
    return [first + second for first, second in pairwise(characters)]


def _normalize(word: str) -> str:
    """Return the term of one word."""
    folded = fold(word)
    return _STEMMER.stemWord(folded) if folded.isascii() and folded.isalpha() else folded


def _identifiers(token: str) -> Iterator[str]:
    """Yield the identifiers in a token, and compounds written as one word.

    Parts of an identifier between slashes, colons and dots count if they are identifiers too.
    """
    yield from (fold(_HYPHEN.sub("", compound)) for compound in _COMPOUND.findall(token))
    for joined in _JOINED.finditer(token):
        whole = joined[0].strip("_")
        if len(whole) > IDENTIFIER_LIMIT or not _is_identifier(whole):
            continue
        pieces = dict.fromkeys([whole, *(piece for border in _PIECES for piece in border.split(whole))])
        yield from dict.fromkeys(fold(piece) for piece in pieces if _is_identifier(piece))


def _is_identifier(word: str) -> bool:
    """Whether a word is a name that is looked for as it stands: it mixes cases, letters and digits, or has joints."""
    return bool(_FEATURES.search(word)) and not _PLAIN.fullmatch(word)


def _is_shouted(tokens: list[str]) -> bool:
    """Return whether a query is in capitals throughout, so that they tell no name from a word."""
    return len(tokens) > SHOUTED and not any(character.islower() for token in tokens for character in token)


def _pairs_of(tokens: list[str]) -> Iterator[tuple[str, str]]:
    """Yield two words side by side of which one is a number, a Roman numeral or a single letter."""
    before, opens, letter = "", False, False
    for place, token in enumerate(tokens):
        word, words = token.strip(_AROUND), _REMEMBERED[token].body.split()
        if not words:
            continue  # a sign between two words
        single = len(word) == 1 and word.isalpha()
        short = _SHORT.fullmatch(word) or (single and place + 1 == len(tokens))
        if (opens and short) or (letter and (short or words[0] not in UNTOLD)):
            yield before, words[0]
        # A word of grammar opens no name, but for one that is written as a name: the war of World War I.
        before, opens = words[-1], words[-1] not in UNTOLD or (place > 0 and len(word) > 1 and word.istitle())
        letter = single and word.isupper() and word not in "AI"


def _first_distinct(terms: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(terms))[:QUERY_TERMS]
