"""The labels that a document states of itself.

Invariants:
- A field ``labels`` that is there, in any letter case, is read exactly or denies: the document then carries the label
  ``UNREADABLE`` alone, and the reason is one of its problems. It is never read in part.
- No document and no setting can state a label that begins with ``RESERVED``.

Exactly means: a list of strings, or one string with commas between labels, in the file's own syntax and in characters
that leave no doubt where a label begins and ends. Hiding a document that could be shown is mended by whoever reads the
report; showing one that was to be hidden cannot be mended.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple
from unicodedata import category, normalize

import yaml  # type: ignore[import-untyped]  # it ships no types

RESERVED: Final = "gristmill:"
UNREADABLE: Final = "gristmill:unreadable-labels"

_FIELD: Final = "labels"
_MOST: Final = 100_000  # characters of a file's head that are looked at
_LONGEST: Final = 200  # characters of a label
_SHOWN: Final = 60  # characters of a value in a message
_QUOTES: Final = "\"'`´\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f«»‹›「」『』＂＇"
_NEVER: Final = {
    **dict.fromkeys("\"'`\u201c\u201d", "a quotation mark"),
    **dict.fromkeys("[]{}", "a bracket"),
    **dict.fromkeys(",;|\u3001\uff0c\uff1b\uff5c", "a separator of labels"),
}
_OPENERS: Final = "_@#/.$+(~"  # signs that a label may begin with, beside letters, digits and pictures
_CLOSERS: Final = ")+#"  # likewise for its end
_LOADER: Final = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # the compiled one where it was built
_RESOLVER: Final = yaml.resolver.Resolver()
_TEXT: Final = "tag:yaml.org,2002:str"
# Numbers of YAML 1.2 that are words for PyYAML, which follows 1.1.
_NUMBER: Final = re.compile(r"[-+]?(?:0o[0-7]+|0x[0-9a-f]+|[0-9][0-9_]*(?:\.[0-9_]*)?(?:e[-+]?[0-9]+)?)", re.IGNORECASE)
# A line that begins with the field's name, or the name as a key within braces; a stray sign or two within the name do
# not hide it. Applied to folded text.
_NAME: Final = r"[^\w\n]{0,2}".join(_FIELD)
_MENTION: Final = re.compile(rf"^[^\w\n]*{_NAME}(?!\w|[-.]\w)|[{{,][^\w\n]*{_NAME}[^\w\n:=]*[:=]", re.MULTILINE)
_FIELD_LINE: Final = re.compile(rf"^[ \t]*[\"']?{_NAME}[\"']?[ \t]*[:=]", re.MULTILINE)
_OWN_LINE: Final = re.compile(r"labels[ \t]*:(?:[ \t]|$)", re.IGNORECASE)
_KEY_LINE: Final = re.compile(r"[A-Za-z_][\w .-]*:(?:[ \t]|$)")
_META: Final = re.compile(r"<meta\b[^>]{0,500}?\b(?:name|property)\s*=\s*[\"']?\s*labels\b", re.IGNORECASE)
_ABOVE: Final = re.compile(r"(?:[\s\ufeff\u200b]|<!--(?:(?!-->).)*+-->)*+", re.DOTALL)
_FENCE: Final = re.compile(r"[^\w\n]*(?:[-\u2010-\u2015]{2,}|\+{2,}|;{3,}|\{)")
_WORD: Final = re.compile(r"\w")
_CLOSED: Final = re.compile(r"[ \t]*(?:-{3,}|\.{3}|\+{3,}|;{3,})[ \t]*$")
_FIELD_LIKE: Final = re.compile(r"[ \t]+\S|[-#}\])]|[\"'\w][^\n:=]{0,80}[:=]|labels\b", re.IGNORECASE)


class Stated(NamedTuple):
    """The labels that a document states, and why they cannot be read; empty where they can, or there are none."""

    labels: tuple[str, ...]
    problem: str


NOTHING: Final = Stated((), "")


def denied(why: str) -> Stated:
    """Return the labels of a document whose own labels cannot be read."""
    return Stated((UNREADABLE,), f"its labels cannot be read, so only a filter that names {UNREADABLE} shows it: {why}")


def is_reserved(label: str) -> bool:
    """Return whether a label is, or looks like, one that only this program gives."""
    return "".join(_folded(label).split()).startswith(RESERVED)


def fault(label: str) -> str:
    """Why a text is no label; empty when it is one."""
    if not label:
        return "a label is empty"
    if is_reserved(label):
        return f"the label {_shown(label)} begins with {RESERVED}, which is reserved"
    if len(label) > _LONGEST:
        return f"a label has {len(label)} characters, more than {_LONGEST}"
    unseen = next((sign for sign in label if category(sign) in ("Cc", "Cf", "Cs", "Co", "Cn")), "")
    if unseen:
        return f"the label {_shown(label)} holds a character that cannot be seen (U+{ord(unseen):04X})"
    wrong = next((sign for sign in label if sign in _NEVER), "")
    if wrong:
        return f"the label {_shown(label)} holds {_NEVER[wrong]}, {wrong}"
    if label[0] in _QUOTES or label[-1] in _QUOTES:
        return f"the label {_shown(label)} begins or ends with a quotation mark"
    if category(label[0])[0] not in "LNM" and category(label[0]) != "So" and label[0] not in _OPENERS:
        return f"the label {_shown(label)} begins with {label[0]}"
    if category(label[-1])[0] not in "LNM" and category(label[-1]) != "So" and label[-1] not in _CLOSERS:
        return f"the label {_shown(label)} ends with {label[-1]}"
    if ": " in label or " :" in label:
        return f"the label {_shown(label)} holds a sign between a name and a value"
    return ""


def from_text(text: str) -> Stated:
    """Return the labels in one string, with commas between them; none in a blank one."""
    found = list(filter(None, (part.strip() for part in text.split(","))))
    return _checked(found) if found or not text.strip() else denied("it holds only commas")


def from_values(values: Iterable[object]) -> Stated:
    """Return the labels in a list, each a string."""
    found = []
    for value in values:
        if not isinstance(value, str):
            return denied(f"{_shown(value)} is no text; write it in quotes")
        found.append(value.strip())
    return _checked(found)


def from_yaml(block: str) -> Stated:
    """Return the labels in a block of YAML, malformed or not."""
    try:
        root = yaml.compose(block, Loader=_LOADER)
    except (yaml.YAMLError, RecursionError, ValueError):
        return _from_lines(block)
    if not isinstance(root, yaml.MappingNode):
        return denied("the block is no list of fields") if _mentions(block) else NOTHING
    own = [(key, value) for key, value in root.value if _names_labels(_scalar(key))]
    if not own:
        nested = any(_names_labels(name) for name in _keys_below(root))
        return denied("the field stands within another; write it at the left margin") if nested else NOTHING
    if len(own) > 1:
        return denied(f"the field stands {len(own)} times")
    (key, value) = own[0]
    if _scalar(key).strip().casefold() != _FIELD:
        return denied(f"the field's name is {_shown(_scalar(key))}, expected {_FIELD}")
    return _from_node(value)


def from_toml(block: str) -> Stated:
    """Return the labels in a block of TOML, malformed or not."""
    try:
        fields = tomllib.loads(block)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return denied(f"the block is not valid TOML: {error}") if _mentions(block) else NOTHING
    own = [name for name in fields if _names_labels(name)]
    if not own:
        nested = any(_names_labels(name) for name in _names_below(fields))
        return denied("the field stands within a table; write it above the first table") if nested else NOTHING
    if len(own) > 1:
        return denied(f"the field stands {len(own)} times")
    value = fields[own[0]]
    if own[0].strip().casefold() != _FIELD:
        return denied(f"the field's name is {_shown(own[0])}, expected {_FIELD}")
    if isinstance(value, str):
        return from_text(value)
    return from_values(value) if isinstance(value, list) else denied("it is neither a list of strings nor a string")


def from_head(text: str, start: int = 0) -> Stated:
    """Return the labels in text that was meant as front matter and is not: none, or the denying label.

    That is a block that does not begin on the first line, is not closed, is no list of fields, has lost the fence that
    opens it, or stands behind another block.
    """
    above = _ABOVE.match(text, start, start + _MOST)
    begin = above.end() if above else start
    lines = text[begin : start + _MOST].split("\n")
    first = next((number for number, line in enumerate(lines) if _WORD.search(line)), len(lines) - 1)
    opened = any(map(_FENCE.match, lines[: first + 1]))  # lines of stray signs may stand around the fence
    lines = lines[first:]
    if not opened:
        head = _until_fence(lines)
        return denied("no fence opens the block of fields") if head and _mentions(head) else NOTHING
    closed = next((number for number, line in enumerate(lines) if _CLOSED.match(line)), 0)
    if _mentions("\n".join(_block(lines))) or _FIELD_LINE.search(_folded("\n".join(lines[:closed]))):
        return denied("the block of fields at the top is no front matter; see its first line and its fences")
    return NOTHING


def from_meta(source: str, contents: Sequence[str | None]) -> Stated:
    """Return the labels in the ``meta`` elements of a page.

    Args:
        source: the page as it is written.
        contents: of each element named ``labels``; None for one without content.
    """
    if None in contents:
        return denied("a meta element named labels has no content")
    if not contents and _META.search(source, 0, _MOST):
        return denied("a meta element named labels is malformed")
    found = [from_text(content or "") for content in contents]
    problem = next((one for one in found if one.problem), None)
    return problem or Stated(tuple(dict.fromkeys(label for one in found for label in one.labels)), "")


def _checked(found: Sequence[str]) -> Stated:
    for label in found:
        if why := fault(label):
            return denied(why)
    return Stated(tuple(dict.fromkeys(" ".join(label.split()) for label in found)), "")


def _from_node(node: Any) -> Stated:
    """Return the labels in the value of a YAML field."""
    if isinstance(node, yaml.ScalarNode):
        return denied(why) if (why := _no_text(node)) else from_text(node.value)
    if not isinstance(node, yaml.SequenceNode) or node.tag != "tag:yaml.org,2002:seq":
        return denied("it is neither a list of strings nor a string")
    for item in node.value:
        why = _no_text(item) if isinstance(item, yaml.ScalarNode) else "the list holds another list, or a field"
        if why:
            return denied(why)
    return from_values([item.value for item in node.value])


def _no_text(node: Any) -> str:
    """Why a scalar of YAML is no string on one line; empty when it is."""
    if node.tag != _TEXT or node.style in ("|", ">"):
        return f"{_shown(node.value)} is no plain or quoted text"
    if node.start_mark.line != node.end_mark.line:
        return f"{_shown(node.value)} goes over more than one line"
    if node.style in ("'", '"'):
        return ""
    if not node.value:
        return "the field has no value; write [] for none"
    if ":" in node.value:
        return f"{_shown(node.value)} holds a colon; write it in quotes"
    if _RESOLVER.resolve(yaml.ScalarNode, node.value, (True, False)) != _TEXT or _NUMBER.fullmatch(node.value):
        return f"{_shown(node.value)} is a number, a date or another value; write it in quotes"
    return ""


def _from_lines(block: str) -> Stated:
    """Return the labels in a block of invalid YAML, from the field's own lines where they are valid."""
    if not _mentions(block):
        return NOTHING
    lines = block.split("\n")
    own = [number for number, line in enumerate(lines) if _mentions(line)]
    if len(own) != 1 or not _OWN_LINE.match(lines[own[0]]):
        return denied("the block is not valid YAML")
    end = next((n for n in range(own[0] + 1, len(lines)) if _KEY_LINE.match(lines[n])), len(lines))
    piece = "\n".join(lines[own[0] : end])
    try:
        root = yaml.compose(piece, Loader=_LOADER)
    except (yaml.YAMLError, RecursionError, ValueError):
        return denied("its lines are not valid YAML")
    alone = isinstance(root, yaml.MappingNode) and len(root.value) == 1
    return _from_node(root.value[0][1]) if alone else denied("its lines are not valid YAML")


def _block(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of an open block, to the fence that closes it or to where no field can follow."""
    blank = False
    for line in lines:
        if _CLOSED.match(line) or (blank and line.strip() and not _FIELD_LIKE.match(line)):
            return
        blank = not line.strip()
        yield line


def _until_fence(lines: Sequence[str]) -> str:
    """Return lines of fields at the top that only a fence below makes a block; empty where they are none."""
    head: list[str] = []
    for line in lines:
        if _CLOSED.match(line) or (_FENCE.match(line) and not _WORD.search(line)):
            return "\n".join(head)
        if not line.strip():
            return ""
        head.append(line)
    return ""


def _mentions(block: str) -> bool:
    """Return whether the name of the field stands where a field's name can stand."""
    return bool(_MENTION.search(_folded(block)))


def _names_labels(name: str) -> bool:
    """Return whether a name is the field's, but for letter case, blanks and signs."""
    return "".join(sign for sign in _folded(name) if sign.isalnum()) == _FIELD


def _folded(text: str) -> str:
    """Compatible forms of letters and signs, in lower case, without what cannot be seen."""
    return "".join(sign for sign in normalize("NFKC", text).casefold() if category(sign) != "Cf")


def _shown(value: object) -> str:
    """Return a value as a message shows it."""
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]} …"


def _scalar(node: Any) -> str:
    return node.value if isinstance(node, yaml.ScalarNode) else ""


def _keys_below(root: Any) -> Iterator[str]:
    """Yield the names of all fields below a node of YAML; aliases are followed once."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield from (_scalar(key) for key, _ in node.value)
            waiting += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value


def _names_below(value: object) -> Iterator[str]:
    """Yield the names of all fields within a value of TOML."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield from one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
