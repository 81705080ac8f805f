"""Bytes to text.

Invariants:
- The text holds no NUL, no other control character that no text has, no lone surrogate and no carriage return.
- Bytes that are no text in any encoding known here are an error, and characters that had to be replaced are counted.
- Equal bytes and declaration give equal text.

UTF-8 is nearly self-proving and comes first; then what the file declares; then detection. charset-normalizer ranks
scripts well, but takes short German and French for Central European or old Macintosh code pages, so texts in Latin
letters are ranked here, by whether their letters make up the alphabet of one language.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import charset_normalizer

from parsers.errors import BrokenDocument

_SAMPLE: Final = 65536  # bytes that detection looks at
_MOST_NULS: Final = 0.02  # share of strays in a text in a code page
_CONTROL: Final = re.compile(r"[\x01-\x07\x0e-\x19\x7f]")  # not those for overstriking, colours, ends and white space
_LEAST_UTF16: Final = 8  # bytes from which UTF-16 can be told without a mark

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

# What browsers read a declared name as (WHATWG Encoding Standard); other names go to Python as they are.
_LABELS: Final = {
    "ascii": "cp1252",
    "us-ascii": "cp1252",
    "latin1": "cp1252",
    "latin-1": "cp1252",
    "l1": "cp1252",
    "iso-8859-1": "cp1252",
    "iso8859-1": "cp1252",
    "iso_8859-1": "cp1252",
    "iso-8859-9": "cp1254",
    "iso-8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "x-gbk": "gb18030",
    "shift_jis": "cp932",
    "shift-jis": "cp932",
    "x-sjis": "cp932",
    "euc-kr": "cp949",
    "ks_c_5601-1987": "cp949",
    "macintosh": "mac_roman",
}
# Codecs of Python that are no character encodings of files, and UTF-7, which hides markup.
_NEVER: Final = frozenset(
    {"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "utf_7", "mbcs", "oem", "palmos"}
)
_STATEFUL: Final = re.compile(r"iso-?2022|^hz")

_META: Final = re.compile(rb"<meta\b[^>]{0,300}?charset\s*=\s*[\"']?\s*([\w.:+-]{2,40})", re.IGNORECASE)
_XML: Final = re.compile(rb"\A\s*<\?xml\b[^>]{0,200}?encoding\s*=\s*[\"']([\w.:+-]{2,40})[\"']")
_SOURCE: Final = re.compile(rb"\A(?:[^\n]*\n)?[^\n]{0,80}?coding[=:]\s*([\w.-]{2,40})")

_NON_LATIN: Final = [
    "cp932",
    "euc_jp",
    "gb18030",
    "big5",
    "cp949",
    "cp1251",
    "mac_cyrillic",
    "koi8_r",
    "koi8_u",
    "cp866",
    "iso8859_5",
    "cp1253",
    "cp1255",
    "cp1256",
    "iso8859_6",
    "cp874",
]
_HIGH: Final = re.compile(rb"[\x80-\xff]+")
_CAPITAL_INSIDE: Final = re.compile(r"(?<=[a-zß-öø-ÿа-яёђ-џ])[А-ЯЁЀ-Џ]")
_LEAST_COHERENCE: Final = 0.1  # below it charset-normalizer's guess is one among several

# Code pages in the order of their use, each with the alphabets (letters beyond a to z) of the languages written in it.
_WESTERN: Final = (
    "äöüß",
    "àâæçéèêëîïôœùûüÿ",
    "áéíñóúü",
    "áàâãçéêíóôõúü",
    "àéèìíîòóùú",
    "ëïéèöüáóêç",
    "æøåéèêôóüäö",
    "åäöéüàšž",
    "áéíóúýþðæö",
    "àçèéíïòóúü",
    "õäöüšž",
)
_CENTRAL: Final = (
    "ąćęłńóśźż",
    "áčďéěíňóřšťúůýž",
    "áäčďéíĺľňóôŕšťúýž",
    "áéíóöőúüű",
    "ăâîşţșțé",
    "čćđšž",
)
_TURKISH: Final = ("çğıöşüâî", "çğıiöşü\u0307")
_BALTIC: Final = ("ąčęėįšųūž", "āčēģīķļņšūž", "õäöüšž")
_LATIN: Final = (
    ("cp1252", _WESTERN),
    ("cp1250", _CENTRAL),
    ("iso8859_2", _CENTRAL),
    ("cp1254", _TURKISH),
    ("cp1257", _BALTIC),
    ("iso8859_15", _WESTERN),
    ("cp850", _WESTERN),
    ("mac_roman", _WESTERN),
    ("cp852", _CENTRAL),
)
_COMMON_MARKS: Final = frozenset("“”‘’„‚–—…€§°©®«»¿¡×±²³µ·½¼¾£•†™ªº\u00a0\u00ad")
_INSIDE_WORDS: Final = frozenset("’·ªº\u00ad")
_NEVER_BEHIND: Final = re.compile(r"(?<=[^\W\d_])[±×¡¿¼½¾£¥„‚§](?![^\W\d_])")  # a letter, at the end of a word
_OLD: Final = frozenset({"cp850", "mac_roman", "cp852"})  # out of use: believed only on more than
_FEW: Final = 5  # characters
_LEAST_FIT: Final = 0.75  # a text in one language that the code page fits reaches 1

_EBCDIC_SPACE: Final = 0x40
_EBCDIC: Final = ("cp500", "cp037")  # international first; they differ in a few marks only


_Found = tuple[str, str] | tuple[str, str, str]  # text, encoding, and what had to be replaced


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded file.

    Attributes:
        text: with LF at line ends; a byte order mark is no part of it.
        encoding: Python's name of the encoding; ``utf-8`` for ASCII too.
        problems: what could not be read as it stands.
    """

    text: str
    encoding: str
    problems: tuple[str, ...] = ()

    @property
    def metadata(self) -> dict[str, str]:
        """The encoding, where it is worth saying."""
        return {} if self.encoding == "utf-8" else {"encoding": self.encoding}


def decode(data: bytes, declared: str | None = None) -> Decoded:
    """Decode a file.

    Args:
        declared: the encoding that the file or its sender names; it counts for less than a byte order mark and
            than valid UTF-8, since declarations are often copied and forgotten.

    Raises:
        BrokenDocument: when no encoding known here makes text of the bytes.
    """
    codec = _codec(declared)
    found = _marked(data) or _proven(data, codec) or _declared(data, codec) or _damaged_utf8(data) or _detected(data)
    if found is None:
        raise BrokenDocument(
            f"text in an unknown encoding ({len(data)} bytes, neither UTF-8 nor a code page that fits)",
            "Convert it to UTF-8",
        )
    return _tidied(*found)


def _tidied(text: str, encoding: str, problem: str = "") -> Decoded:
    """Text with LF at line ends and without control characters that no text has, and what was replaced in it."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if encoding in _EBCDIC:
        text = text.replace("\x85", "\n")
    problems = [problem] if problem else []
    if "\0" in text:
        problems.append(f"{text.count(chr(0))} NUL characters, replaced")
        text = text.replace("\0", "\ufffd")
    text, controls = _CONTROL.subn("\ufffd", text)
    if controls:
        problems.append(f"{controls} other control characters, replaced")
    return Decoded(text, encoding, tuple(problems))


def html_charset(data: bytes) -> str | None:
    """Return the encoding that an HTML file declares in its first 2,048 bytes, if any."""
    return _first(data[:2048], _META) or xml_charset(data)


def xml_charset(data: bytes) -> str | None:
    """Return the encoding that an XML declaration names, if any."""
    return _first(data[:400], _XML)


def source_charset(data: bytes) -> str | None:
    """Return the encoding that source code names in its first two lines (PEP 263 and editors' marks), if any."""
    return _first(data[:400], _SOURCE)


def bom(data: bytes) -> str | None:
    """Return the encoding that a byte order mark names, if there is one."""
    return next((encoding for mark, encoding in _BOMS if data.startswith(mark)), None)


def utf16_without_mark(data: bytes) -> str | None:
    """``utf-16-le`` or ``utf-16-be`` where the bytes are plainly such text without a byte order mark."""
    sample = data[: min(_SAMPLE, len(data)) & ~1]
    if len(sample) < _LEAST_UTF16:
        return None
    for encoding, lane in (("utf-16-le", sample[1::2]), ("utf-16-be", sample[0::2])):
        # The high bytes of a text in letters are few: 0 for Latin, spaces and line ends, and the script's own block.
        common = Counter(lane).most_common(2)
        if b"\0" in lane and sum(count for _, count in common) >= 0.9 * len(lane) and _plain(sample, encoding):
            return encoding
    return None


def _plain(sample: bytes, encoding: str) -> bool:
    try:
        text = sample.decode(encoding)
    except UnicodeDecodeError:
        return False
    return bool(text.strip()) and not re.search(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\ue000-\uf8ff\ufffe\uffff]", text)


def _first(head: bytes, pattern: re.Pattern[bytes]) -> str | None:
    found = pattern.search(head)
    return found[1].decode("ascii", "replace") if found else None


def _codec(label: str | None) -> str | None:
    """Python's codec for a declared name; None for a name that is unknown or no encoding of files."""
    name = (label or "").strip().lower()
    if not name or name.startswith(("utf-16", "utf-32", "utf16", "utf32")):  # those names need bytes that prove them
        return None
    try:
        codec = codecs.lookup(_LABELS.get(name, name)).name
    except (LookupError, ValueError):
        return None
    return None if codec.replace("-", "_") in _NEVER else codec


def _strict(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (UnicodeDecodeError, LookupError, ValueError):  # LookupError: a codec that makes no text
        return None


def _marked(data: bytes) -> _Found | None:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            body = data[len(mark) :]
            text = _strict(body, encoding)
            if text is not None:
                return text, encoding
            if encoding != "utf-8":
                text = body.decode(encoding, "replace")
                return text, encoding, f"{text.count(chr(0xFFFD))} characters are no valid {encoding.upper()}, replaced"
    return None


def _proven(data: bytes, declared: str | None) -> _Found | None:
    """Try encodings that prove themselves: UTF-16 by NULs, ISO-2022 by escapes, UTF-8 by form."""
    if b"\0" in data:
        encoding = utf16_without_mark(data)
        text = _strict(data, encoding) if encoding else None
        if text is not None and encoding:
            return text, encoding
    if b"\x1b$" in data or b"\x1b(" in data or (declared and _STATEFUL.search(declared)):
        for encoding in filter(None, (declared if declared and _STATEFUL.search(declared) else None, "iso2022_jp")):
            text = _strict(data, encoding)
            if text is not None and not text.isascii():
                return text, encoding
    text = _strict(data, "utf-8")
    return (text, "utf-8") if text is not None else None


def _declared(data: bytes, codec: str | None) -> _Found | None:
    text = _strict(data, codec) if codec and codec != "utf-8" else None
    return (text, codec) if text is not None and codec else None


def _damaged_utf8(data: bytes) -> _Found | None:
    """UTF-8 with a few broken places, replaced; None where it is rather something else."""
    body = data.removeprefix(codecs.BOM_UTF8)
    try:  # surrogates written one by one, as some databases do
        text = body.decode("utf-8", "surrogatepass").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    except UnicodeDecodeError:
        text = body.decode("utf-8", "replace")
    broken = text.count("\ufffd") - body.count(b"\xef\xbf\xbd")
    sound = len(text) - len(text.encode("ascii", "ignore")) - text.count("\ufffd")
    if sound < 4 * broken:
        return None
    return text, "utf-8", f"{broken} places are no valid UTF-8, replaced" if broken else ""


def _detected(data: bytes) -> _Found | None:
    if data.count(b"\0") > _MOST_NULS * len(data):  # no code page has it in text; a few are strays
        return None
    for encoding in _candidates(data[:_SAMPLE], _sample(data)):
        text = _strict(data, encoding)
        if text is not None:
            return text, encoding
    return None


def _sample(data: bytes) -> bytes:
    """Return bytes beyond ASCII with what stands around them."""
    pieces: list[bytes] = []
    room, position = _SAMPLE, 0
    while room > 0 and (found := _HIGH.search(data, position)):
        position = found.end() + 60
        pieces.append(data[max(0, found.start() - 60) : position])
        room -= len(pieces[-1])
    return b"\n".join(pieces)


def _candidates(head: bytes, sample: bytes) -> Iterator[str]:
    if head.count(_EBCDIC_SPACE) > 4 * head.count(b" ") and head.count(_EBCDIC_SPACE) * 20 > len(head):
        yield from _ebcdic(head)
        return
    few = len(_HIGH.findall(sample)) < _FEW
    pages = [page for page in _LATIN if not (few and page[0] in _OLD)]
    fits = [(_fit(text, alphabets), encoding) for encoding, alphabets in pages if (text := _strict(sample, encoding))]
    if any(fit >= _LEAST_FIT for fit, _ in fits):
        yield from (encoding for fit, encoding in sorted(fits, key=lambda pair: -pair[0]) if fit >= _LEAST_FIT)
        return
    for match in charset_normalizer.from_bytes(head, cp_isolation=_NON_LATIN):
        if match.coherence >= _LEAST_COHERENCE and not _odd_case(str(match)):
            yield match.encoding


def _odd_case(text: str) -> bool:
    """Return whether capitals stand behind small letters more often than writing allows."""
    return len(_CAPITAL_INSIDE.findall(text)) * 100 > len(text)


def _ebcdic(head: bytes) -> list[str]:
    """EBCDIC code pages, the one that leaves fewer characters beyond ASCII first; none where letters are rare."""
    text = head.decode(_EBCDIC[0])
    if sum(character.isalnum() or character.isspace() for character in text) < 0.85 * len(text):
        return []
    return sorted(_EBCDIC, key=lambda encoding: sum(not c.isascii() for c in head.decode(encoding)))


def _fit(text: str, alphabets: tuple[str, ...]) -> float:
    """Return how much of the characters beyond ASCII one of the alphabets and the common marks explain, from 0 to 1.

    The alphabets taken together count a little too, for files in several languages.
    """
    high = re.findall(r"[^\x00-\x7f]", text)
    runs = re.findall(r"[^\x00-\x7f]{4,}", text)
    if not high or (len(runs) > 1 and sum(map(len, runs)) > 0.3 * len(high)):
        return 0.0  # words without a letter of ASCII: not written in Latin letters
    behind = _NEVER_BEHIND.findall(text)
    inside = re.findall(r"(?<=[^\W\d_])[^\w\s\x00-\x7f](?=[^\W\d_])", text)
    capitals = re.findall(r"(?<=[a-zß-öø-ÿ])[^\W\d_a-zA-Z]", text)
    wrong: int = (
        len(behind) + sum(mark not in _INSIDE_WORDS for mark in inside) + sum(letter.isupper() for letter in capitals)
    )
    marks = sum(character in _COMMON_MARKS for character in high)
    letters = Counter(character.lower() for character in high if character.isalpha())
    one = max(sum(letters[letter] for letter in set(alphabet)) for alphabet in alphabets)
    together = sum(letters[letter] for letter in set("".join(alphabets)))
    return max(0.0, (marks + 0.6 * one + 0.4 * together - wrong) / len(high))
