"""Clean an LLM's output into a note, or reject it with a reason.

Invariants:
- A cleaned note is one line of at most two different sentences, without reasoning, small talk, and enclosing quotes,
  fences or marks.
- Cleaning is idempotent.
- Any other output is a :class:`Rejection`, never an empty note.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from chunker.sentences import sentences

MAX_SENTENCES: Final = 2
MAX_LENGTH: Final = 400  # code points; two long sentences, about 90 tokens of English
MAX_LINES: Final = 3  # lines left without small talk; more is an essay or a list
PASSES: Final = 5  # maximum of cleaning passes, until nothing changes

_REASONING: Final = r"(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflect(?:ion)?|analysis|scratch_?pad|seed:think)"
_OPEN: Final = rf"(?:<\s*{_REASONING}(?:\s[^<>]*)?>|\[\s*{_REASONING}\s*\]|◁\s*{_REASONING}\s*▷)"
_CLOSE: Final = rf"(?:<\s*/\s*{_REASONING}\s*>|\[\s*/\s*{_REASONING}\s*\]|◁\s*/\s*{_REASONING}\s*▷)"
_OPENED: Final = re.compile(_OPEN, re.IGNORECASE)
_CLOSED: Final = re.compile(_CLOSE, re.IGNORECASE)
# The channels of gpt-oss: the answer follows the last "final".
_CHANNEL: Final = re.compile(r"<\|channel\|>\s*(\w+)\s*<\|message\|>")
_CONTROL: Final = re.compile(r"<\|[^<>|\n]{1,40}\|>|</?s>|<(?:eos|bos|end_of_turn|start_of_turn|pad)>|\[/?INST\]")
_FENCE: Final = re.compile(r"^[ \t]*(?:`{3,}|~{3,})[\w+-]*[ \t]*$|`{3,}|~{3,}", re.MULTILINE)
# Zero-width characters, byte-order marks and control characters other than tab and line feed.
_INVISIBLE: Final = re.compile(r"[\u200b-\u200f\u2060\ufeff\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TAGS: Final = re.compile(
    r"</?(?:note|answer|output|context|summary|result|response|sentence|passage|p|b|i|em)\s*/?>", re.I
)

_LABEL: Final = re.compile(
    r"^[\s>#*_-]*(?:(?:index|short|contextual|final|brief)\s+)*"
    r"(?:note|notes|context|answer|summary|output|response|result|gist|sentence|description|passage|assistant"
    r"|kontext|antwort|zusammenfassung|notiz|contexte|réponse|résumé|contexto|respuesta|resumen|contesto|risposta"
    r"|riassunto|摘要|答案|注释|要約|회답)"
    r"\s*[*_]*\s*[:：]\s*[*_]*\s*",
    re.IGNORECASE,
)
_COURTESY: Final = re.compile(
    r"^(?:sure(?: thing)?|certainly|of course|okay|ok|alright|absolutely|great(?: question)?|yes|understood|got it"
    r"|no problem|gerne|natürlich|klar|selbstverständlich|bien sûr|d'accord|certainement|claro(?: que sí)?|por supuesto"
    r"|certo|certamente|好的|当然|はい)\b\s*[,.!:…—–-]+\s*",
    re.IGNORECASE,
)
_ANNOUNCES: Final = re.compile(
    r"^(?:here(?:'s|’s| is| are)|below is|the following is|this is (?:a|the) (?:note|summary|sentence)|based on the"
    r"|hier ist|hier sind|voici|aquí (?:está|tienes)|ecco|以下)\b[^:：]{0,100}[:：]\s*",
    re.IGNORECASE,
)
_OFFERS: Final = re.compile(
    r"^(?:let me know|i hope|hope (?:this|that)|feel free|please (?:let|feel|note that i|provide)"
    r"|if you (?:need|have|want|would)|is there anything|would you like|do you (?:want|need)|don't hesitate"
    r"|thank you|thanks|you're welcome|happy to help|note that i\b|ich hoffe|lassen sie mich|n'hésitez|j'espère"
    r"|espero que|fammi sapere|如果您|希望)",
    re.IGNORECASE,
)
# Words about the passage in place of words of it: the same before every note, they would make all notes alike.
_FRAME: Final = re.compile(
    r"^(?:this|the) (?:last )?(?:passage|text|excerpt)(?: of (?:this|the) (?:text|document))?"
    r" (?:is about|describes|defines|discusses|explains|details|talks about|(?:states|says|tells(?: us)?) that"
    r"|tells (?:us|you)(?= how)|tells (?:the story )?(?:of|about)"
    r"|provides an? (?:detailed )?(?:account|description|explanation|overview) of)\s+(?=\w)",
    re.IGNORECASE,
)
_REFUSES: Final = re.compile(
    r"^(?:(?:i(?:'m| am)|we(?:'re| are)) (?:very |so |really |truly )?(?:sorry|afraid|unable|not able|just an?|an ai)"
    r"|(?:my )?apologies|i apologi[sz]e|sorry\b|i (?:can(?:not|'t| not)|could(?: not|n't)|won't|will not|do(?: not|n't)"
    r"|must decline|have no|need more|would need)|as an? (?:ai|(?:large )?language model|assistant)|unfortunately"
    r"|(?:the|this) (?:passage|text|document|context) (?:is|was) (?:not provided|missing|empty)"
    r"|no (?:passage|note|text|context) (?:is|was|has|could|provided|given|found|needed)\b"
    r"|there is (?:no|not enough) (?:passage|text|context|information)|(?:n/?a|none|unknown|null)[.!]?$"
    r"|(?:es )?tut mir leid|entschuldigung|ich kann (?:das |dies |leider )?nicht|leider"
    r"|(?:je suis )?désolée?|je ne peux pas|lo siento|no puedo|mi dispiace|non posso"
    r"|抱歉|对不起|很抱歉|我无法|申し訳|죄송)",
    re.IGNORECASE,
)
_THINKS_ALOUD: Final = re.compile(
    r"^(?:(?:okay|ok|alright|hmm|well|so|now|first)\b[,.]?\s+)*"
    r"(?:i (?:should|will|would|need|think|have to|must|want|see|am going|can)\b|i'll\b|i'm going\b|let(?:'s| me| us)\b"
    r"|we (?:need|should|have to|must)\b|the user\b|my task\b|the task\b|der nutzer\b|l'utilisateur\b|用户)",
    re.IGNORECASE,
)
_QUOTES: Final = {
    '"': '"',
    "'": "'",
    "“": "”",
    "‘": "’",
    "«": "»",
    "„": "“",
    "»": "«",
    "「": "」",
    "『": "』",
    "`": "`",
    "(": ")",
}
_JSON_PAIR: Final = re.compile(r"[{\[,]\s*[\"'“][^\"'”\n]{1,60}[\"'”]\s*:")
_LOOP: Final = re.compile(r"\b(\w[^.!?\n]{2,60}?)(?:[\s,;]+\1\b){3,}", re.IGNORECASE)
_EMPHASIS: Final = re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*|(?<!\w)__(?![a-z\d_]+__)(?=\S)(.+?)(?<=\S)__(?!\w)")
_BULLET: Final = re.compile(r"^\s*(?:[-*•·+]|\d{1,2}[.)])\s+")
_ENDS: Final = re.compile(r"[.!?…。！？][\"'”’»)\]]*$")


class Rejection(msgspec.Struct, frozen=True):
    """Reason to reject an LLM's output."""

    reason: str


def clean(raw: str, finished: bool = True) -> str | Rejection:
    """Return the note in an LLM's output, or a rejection.

    Args:
        raw: the unchanged output.
        finished: whether the LLM ended by itself; if it ran out of tokens, an incomplete last sentence is dropped.
    """
    note = _cleaned(raw, finished)
    for _ in range(PASSES):
        if isinstance(note, Rejection):
            return note
        again = _cleaned(note, finished=True)
        if again == note:
            return note
        note = again
    return Rejection("wrapped too deep")


def _cleaned(raw: str, finished: bool) -> str | Rejection:
    """Return one pass of cleaning."""
    text = _INVISIBLE.sub("", raw.replace("\r\n", "\n").replace("\r", "\n")).strip()
    if not text:
        return Rejection("empty")
    text = _without_reasoning(text)
    if not text:
        return Rejection("reasoning without an answer")
    text = _unquoted(_TAGS.sub("", _FENCE.sub("\n", text)).strip())
    if not text:
        return Rejection("nothing between fences, tags or quotes")
    if _is_data(text):
        return Rejection("data in place of a sentence")
    lines = _without_small_talk([line for line in text.split("\n") if line.strip()])
    if isinstance(lines, Rejection):
        return lines
    return _note(lines, finished)


def _note(lines: Sequence[str], finished: bool) -> str | Rejection:
    """Return one line of whole, different sentences within the limits."""
    if len(lines) > MAX_LINES or sum(1 for line in lines if _BULLET.match(line)) > 1:
        return Rejection("an essay or a list in place of a sentence")
    text = _unquoted(_plain(" ".join(_BULLET.sub("", line) for line in lines)))
    if _LOOP.search(text):
        return Rejection("repeats itself")
    spans = sentences(text)
    said = [_folded(text[start:end]) for start, end in spans]
    kept = 0
    for index, (start, end) in enumerate(spans[:MAX_SENTENCES]):
        if said[index] in said[:index] or _OFFERS.match(text[start:end]) or end > MAX_LENGTH:
            break
        kept = end
    if not finished and kept == len(text) and not _ENDS.search(text):
        kept = spans[min(len(spans), MAX_SENTENCES) - 1][0]
    if not kept:
        return Rejection("too long" if finished else "no end within the token budget")
    note = _unframed(_unquoted(text[:kept]))
    return note if any(char.isalnum() for char in note) else Rejection("no words in it")


def _without_reasoning(text: str) -> str:
    """Return the text after the reasoning; empty if there is none.

    An unpaired end mark ends reasoning from the start.
    """
    channels = list(_CHANNEL.finditer(text))
    if channels:
        text = text[channels[-1].end() :] if channels[-1][1] == "final" else ""
    closes = list(_CLOSED.finditer(text))
    if closes:
        text = text[closes[-1].end() :]
    opened = _OPENED.search(text)
    if opened:
        text = text[: opened.start()]
    control = [match for match in _CONTROL.finditer(text) if text[: match.start()].strip()]
    if control:
        text = text[: control[0].start()]
    return _CONTROL.sub("", text).strip()


def _is_data(text: str) -> bool:
    """Return whether a text is JSON or looks like a part of it."""
    if text[:1] in "{[<" or _JSON_PAIR.search(text):
        return True
    try:
        return not isinstance(json.loads(text), str)
    except ValueError:
        return False


def _without_small_talk(lines: list[str]) -> list[str] | Rejection:
    """Return the lines that are the note, without labels, courtesies, announcements and offers."""
    first = _repeatedly(lines[0], _shed) if lines else ""
    while lines and not first and len(lines) > 1:
        lines = lines[1:]
        first = _repeatedly(lines[0], _shed)
    if not first:
        return Rejection("small talk without an answer")
    if first.rstrip().endswith((":", "：")):
        return _without_small_talk(lines[1:]) if len(lines) > 1 else Rejection("an announcement without an answer")
    if _REFUSES.match(first.replace("’", "'")):
        return Rejection("a refusal")
    if _THINKS_ALOUD.match(first.replace("’", "'")):
        return Rejection("thinks aloud")
    kept = [first]
    for line in lines[1:]:
        if _OFFERS.match(line.strip().replace("’", "'")) or _folded(line) in map(_folded, kept):
            break
        if line.strip() not in ("---", "***", "___"):
            kept.append(line)
    return kept


def _shed(line: str) -> str:
    """Return a line without one leading label, courtesy or announcement; empty for an offer."""
    line = _unquoted(line.strip())
    if _OFFERS.match(line.replace("’", "'")):
        return ""
    for pattern in (_LABEL, _ANNOUNCES, _COURTESY):
        if match := pattern.match(line.replace("’", "'")):
            return line[match.end() :]
    return line


def _repeatedly(text: str, step: Callable[[str], str]) -> str:
    while (shorter := step(text)) != text:
        text = shorter
    return text


def _plain(text: str) -> str:
    """Return one line, without Markdown emphasis and headings; `__init__` is a name and stays."""
    text = _EMPHASIS.sub(lambda match: match[1] or match[2], text)
    return " ".join(re.sub(r"^\s*(?:#{1,6}|>)\s+", "", text).split())


def _unquoted(text: str) -> str:
    """Return a text without the quotes or brackets that enclose it."""
    text = text.strip()
    while len(text) > 2 and _QUOTES.get(text[0]) == text[-1]:
        inner = text[1:-1]
        if text[0] in inner or text[-1] in inner:
            break
        text = inner.strip()
    if text[:1] in '"“„«' and not set(text[1:]) & set('"”“»'):
        text = text[1:].strip()  # the budget ran out before the closing quote
    return text


def _unframed(note: str) -> str:
    bare = _FRAME.sub("", note)
    return bare[:1].upper() + bare[1:] if bare != note else note


def _folded(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
