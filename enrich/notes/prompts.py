"""Build a note's prompt from the window around its chunk.

Invariants:
- A prompt is a function of the template and the window alone.
- A window contains the titles above and beside the chunk and a fixed number of characters of neighbouring text within
  its section.
- So an edit renews only the notes whose window contains it: with `document` set, all notes of the document; with
  `preceding` too, those from the edit on.
- No text of a document can open or close a mark of the prompt.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Final

import msgspec

from chunker.chunk import Chunk
from chunker.sentences import iterate_sentences
from enrich.notes.code import language_names
from parsers.document import ROOT, Document, left_out

DEFAULT_TEMPLATE: Final = "note-2"
DOCUMENT_TEMPLATE: Final = "document-1"  # for windows with a whole document
PRECEDING_TEMPLATE: Final = "preceding-1"  # for windows with the document up to the passage
MARKS: Final = ("document", "passage")  # names of the marks in all templates
EDGE: Final = 64  # code points of a passage's beginning and of its end, in a prompt with the whole document
OPENING: Final = 240  # code points; a longer first sentence is too long for a note
_first: Final = itemgetter(0)
NARROWEST: Final = 200  # code points; a shorter passage is not cut further


class WindowSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for how much of a document goes into the prompt of a chunk.

    Attributes:
        neighbours: code points of text before the chunk, and as many after it.
        siblings: maximum of titles of sibling sections, the nearest ones.
        title: maximum code points of a title; a longer one is cut at white space.
        document: maximum code points of a document that goes into its chunks' prompts whole; 0 for never.
        preceding: whether the prompt contains such a document only up to the end of the passage.
    """

    neighbours: int = 200
    siblings: int = 6
    title: int = 80
    document: int = 0
    preceding: bool = False


class Window(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Context of a chunk for its note.

    Attributes:
        title: the document's title, or its base name where it has none.
        heading_path: titles from below the document's own down to the section.
        siblings: titles of the sibling sections, in reading order.
        before, after: neighbouring text within the section: ``before + text + after`` is contiguous in the document.
        text: the chunk's text.
        opening: the section's first sentence if the chunk does not contain it; empty for a document without sections.
            Used in extractive notes only, never in a prompt.
        document: the document's text without the parts left out of the index; empty unless the settings ask for it and
            it is short enough.
        preceding: the same text up to the passage's end, if the settings ask for it. Each piece runs from one chunk's
            end to the next one's, so that the LLM evaluates the pieces shared by two chunks once. ``siblings`` and
            ``after`` are then empty, since an edit after the passage could change them.
        code: language of the program code, as the document names it, if more than half of the chunk is code; else
            empty.
    """

    title: str
    text: str
    heading_path: tuple[str, ...] = ()
    siblings: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    opening: str = ""
    document: str = ""
    preceding: tuple[str, ...] = ()
    code: str = ""


class Windows:
    """Windows of one document's chunks; shared parts are computed once.

    Args:
        document: the parsed document.
        title: its title, or its base name where it has none.
        settings: size of a window.
        chunks: all chunks of the document, in reading order; needed for the setting `preceding`.
    """

    def __init__(
        self, document: Document, title: str, settings: WindowSettings | None = None, chunks: Sequence[Chunk] = ()
    ) -> None:
        self._document = document
        self._settings = settings or WindowSettings()
        self._title = _shorten(title, self._settings.title)
        self._reasons = left_out(document)
        self._below = document.children()
        self._sections = {node.extent: index for index, node in enumerate(document.nodes) if node.kind == "section"}
        code = ((node.start, node.end, node.language or "") for node in document.nodes if node.kind == "code")
        self._code = sorted((node for node in code if language_names(node[2])), key=_first)
        self._edges = self._boundaries()
        self._kept = self._not_left_out()
        self.whole: Final = self._whole()
        """The document's text if the prompts contain it; else empty."""
        self._ends = sorted({chunk.end for chunk in chunks}) if self.whole and self._settings.preceding else []
        self._pieces = tuple(self._text(start, end) for start, end in pairwise([0, *self._ends]))
        self._siblings: dict[int, tuple[str, ...]] = {}
        self._families: dict[int, list[int]] = {}
        self._openings: dict[int, tuple[int, str]] = {}

    def of(self, chunk: Chunk) -> Window:
        """Return the window of one of the document's chunks."""
        section = self._sections.get((chunk.section_start, chunk.section_end), ROOT)
        path = [_shorten(title, self._settings.title) for title in chunk.heading_path]
        before, after = self._neighbours(chunk)
        preceding = self._pieces[: bisect_left(self._ends, chunk.end) + 1]
        return Window(
            title=self._title,
            heading_path=tuple(path[1:] if path[:1] == [self._title] else path),
            siblings=() if preceding else self._beside(section),
            before=before,
            after="" if preceding else after,
            text=chunk.indexed,
            opening=self._opening(section, chunk),
            document="" if self._settings.preceding else self.whole,
            preceding=preceding,
            code=self._code_of(chunk),
        )

    def _code_of(self, chunk: Chunk) -> str:
        """Return the language of the longest piece of code in a chunk that is mostly code."""
        first = max(0, bisect_right(self._code, chunk.start, key=_first) - 1)
        until = bisect_left(self._code, chunk.end, key=_first)
        code = [
            (min(end, chunk.end) - max(start, chunk.start), language)
            for start, end, language in self._code[first:until]
            if end > chunk.start
        ]
        mostly = 2 * sum(map(_first, code)) > chunk.end - chunk.start
        return max(code, key=_first)[1] if mostly else ""

    def _not_left_out(self) -> list[tuple[int, int]]:
        """Return start and end of each stretch of indexed text."""
        position, kept = 0, []
        for node, reason in zip(self._document.nodes, self._reasons, strict=True):
            start, end = node.extent
            if reason is not None and end > position:
                kept.append((position, max(position, start)))
                position = end
        return [*kept, (position, len(self._document.text))]

    def _text(self, start: int, end: int) -> str:
        """Return the indexed text between two offsets."""
        stretches = ((max(low, start), min(high, end)) for low, high in self._kept)
        return "".join(self._document.text[low:high] for low, high in stretches if low < high)

    def _whole(self) -> str:
        """Return the document's indexed text; empty if it is longer than the settings allow."""
        if not self._settings.document:
            return ""
        whole = self._text(0, len(self._document.text)).strip()
        return whole if len(whole) <= self._settings.document else ""

    def _boundaries(self) -> list[int]:
        """Return the offsets that bound neighbouring text: edges of sections and left-out parts."""
        edges = {0, len(self._document.text)}
        for node, reason in zip(self._document.nodes, self._reasons, strict=True):
            if node.kind == "section" or reason is not None:
                edges.update(node.extent)
        return sorted(edges)

    def _neighbours(self, chunk: Chunk) -> tuple[str, str]:
        text, width = self._document.text, self._settings.neighbours
        low = self._edges[max(0, bisect_right(self._edges, chunk.start) - 1)]
        high = self._edges[min(len(self._edges) - 1, bisect_left(self._edges, chunk.end))]
        start, end = max(low, chunk.start - width), min(high, chunk.end + width)
        before, after = text[start : chunk.start], text[chunk.end : end]
        if start > low and not text[start - 1].isspace():
            before = _after_space(before)
        if end < high and not text[end].isspace():
            after = _before_space(after)
        return before.lstrip(), after.rstrip()

    def _beside(self, section: int) -> tuple[str, ...]:
        if section == ROOT:
            return ()
        if section not in self._siblings:
            self._siblings[section] = self._nearest(section)
        return self._siblings[section]

    def _nearest(self, section: int) -> tuple[str, ...]:
        nodes, count = self._document.nodes, self._settings.siblings
        parent = nodes[section].parent
        if parent not in self._families:
            self._families[parent] = [
                index
                for index in self._below[parent]
                if nodes[index].kind == "section" and self._reasons[index] is None
            ]
        family = self._families[parent]
        place = bisect_left(family, section)
        first = max(0, min(place - count // 2, len(family) - count - 1))
        near = [index for index in family[first : first + count + 1] if index != section][:count]
        return tuple(title for index in near if (title := _shorten(nodes[index].title or "", self._settings.title)))

    def _opening(self, section: int, chunk: Chunk) -> str:
        if section == ROOT:  # a document's first words are a licence, title or preface: no context for a chunk
            return ""
        if section not in self._openings:
            self._openings[section] = self._first_sentence(section)
        start, sentence = self._openings[section]
        return sentence if start + len(sentence) <= chunk.start else ""

    def _first_sentence(self, section: int) -> tuple[int, str]:
        """Return offset and text of the section's first sentence; empty if it starts without prose."""
        nodes = self._document.nodes
        for index in self._below.get(section, []):
            node = nodes[index]
            if node.kind in ("heading", "rule", "markup") or self._reasons[index] is not None:
                continue
            if node.kind != "paragraph":
                break
            text = self._document.text[node.start : node.end]
            first = text[: next(iterate_sentences(text, 0, len(text)))[1]].strip() if text.strip() else ""
            return (node.start, first) if first and len(first) <= OPENING else (0, "")
        return 0, ""


def window(document: Document, title: str, chunk: Chunk, settings: WindowSettings | None = None) -> Window:
    """Return the window of a single chunk.

    For many chunks of a document, :class:`Windows` does the shared work once.
    """
    return Windows(document, title, settings, [chunk]).of(chunk)


def narrowed(window: Window) -> Iterator[Window]:
    """Yield ever narrower windows, for an LLM with too short a context.

    The document is dropped first, then the neighbouring text, then the siblings' titles; then the passage is halved
    repeatedly.
    """
    if window.document or window.preceding:
        window = msgspec.structs.replace(window, document="", preceding=())
        yield window
    window = msgspec.structs.replace(window, before="", after="")
    yield window
    window = msgspec.structs.replace(window, siblings=())
    yield window
    while len(window.text) > NARROWEST:
        half = window.text[: len(window.text) // 2]
        window = msgspec.structs.replace(window, text=_before_space(half))
        yield window


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt, split into the parts that a runtime handles separately.

    Attributes:
        instructions: the same for every prompt of a template.
        shared: text common to the chunks of a section, or of the document if the prompt contains it, in pieces. A
            runtime may evaluate the leading pieces of two prompts once.
        rest: the chunk's own text; evaluated once for both tries.
        ask: the request; ``shared``, ``rest`` and ``ask`` form one message.
        again: replaces ``ask`` in the retry after a rejection; empty for no retry.
        with_document: whether ``shared`` contains a document, whole or up to the passage; the runtime then needs a
            larger context.
        code: language of a passage of code; used by the checks, not shown to the LLM.
        checked: digest of the text that answers are checked against, if the prompt shows other text; not shown.
    """

    instructions: str
    shared: tuple[str, ...]
    rest: str
    ask: str
    again: str = ""
    with_document: bool = False
    code: str = ""
    checked: str = ""

    @property
    def message(self) -> str:
        """The prompt without the instructions."""
        return "".join((*self.shared, self.rest, self.ask))


class Template:
    """A versioned prompt file that turns windows into prompts.

    Args:
        name: the file's name without its ending, such as ``note-2``.
        source: the file's text: parts named by lines ``=== instructions``, ``shared``, ``rest``, ``ask`` and ``again``,
            the first three with fields of a window in braces. A line whose fields are all empty is left out.
    """

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source
        self.fingerprint = f"{name}:{hashlib.sha256(source.encode()).hexdigest()[:16]}"
        pieces = re.split(r"^=== (\w+)\n", source, flags=re.MULTILINE)
        self._parts = {part: body.strip() for part, body in zip(pieces[1::2], pieces[2::2], strict=True)}
        if missing := {"instructions", "shared", "rest", "ask", "again"} - self._parts.keys():
            raise ValueError(f"prompt {name}: expected the parts {sorted(missing)} too, got {sorted(self._parts)}")
        self._marks = _marks(self._parts.values())

    def compose(self, window: Window) -> Prompt:
        """Return the prompt for a window."""
        fields = self._fields(window)
        head, precedes, _ = self._parts["shared"].partition("{preceding}")
        opening, rest = _fill(head, fields), _fill(self._parts["rest"], fields) + "\n\n"
        if precedes:  # no line end after a piece, since the next one may continue its line
            first, *others = self._unmarked(*window.preceding or ("",))
            shared, rest = (opening + first.lstrip(), *others), "\n" + rest
        else:
            shared = (opening + "\n",)
        return Prompt(
            instructions=self._parts["instructions"],
            shared=shared,
            rest=rest,
            ask=self._parts["ask"],
            again=self._parts["again"],
            with_document=bool(precedes) or (bool(window.document) and "{document}" in self._parts["shared"]),
            code=window.code,
        )

    def shows_all(self, window: Window) -> bool:
        """Return whether the prompt shows exactly the text that answers are checked against.

        It does not if it contains the document with an excerpt of the passage, if a mark was removed from the text, or
        if a title contains the separator of titles.
        """
        fields = self._fields(window)
        titles = (window.title, *window.heading_path, *window.siblings)
        return (
            not (window.document or window.preceding)
            and not any(" › " in title or "; " in title for title in titles)
            and fields["title"] == _one_line(window.title)
            and fields["path"] == " › ".join(map(_one_line, window.heading_path))
            and fields["siblings"] == "; ".join(map(_one_line, window.siblings))
            and all(fields[name] == getattr(window, name).strip() for name in ("before", "after"))
            and fields["text"] == window.text.strip("\n")
        )

    def _fields(self, window: Window) -> Mapping[str, str]:
        raw = {
            "title": _one_line(window.title),
            "path": " › ".join(map(_one_line, window.heading_path)),
            "siblings": "; ".join(map(_one_line, window.siblings)),
            "before": window.before.strip(),
            "after": window.after.strip(),
            "text": window.text.strip("\n"),
            "excerpt": _excerpt(window.text.strip()),
            "document": window.document,
        }
        return {name: self._unmarked(value)[0] for name, value in raw.items()}

    def _unmarked(self, *pieces: str) -> list[str]:
        """Return the pieces of a text with the prompt's marks defused, also across pieces."""
        text = self._marks.sub(lambda match: f"‹{match[0][1:]}", "".join(pieces))
        ends = list(accumulate(map(len, pieces)))
        return [text[start:end] for start, end in pairwise([0, *ends])]


def load_template(name: str = DEFAULT_TEMPLATE) -> Template:
    """Return one of the program's prompt files.

    Raises:
        ValueError: when there is no such file; the message lists the known ones.
    """
    folder = resources.files("enrich.notes").joinpath("templates")
    known = sorted(entry.name.removesuffix(".txt") for entry in folder.iterdir() if entry.name.endswith(".txt"))
    if name not in known:
        raise ValueError(f"no prompt is called {name!r}; there are {', '.join(known)}")
    return Template(name, folder.joinpath(f"{name}.txt").read_text(encoding="utf-8"))


def key(prompt: Prompt, llm_fingerprint: str) -> str:
    """Return the cache key of a prompt's note: 64 hexadecimal digits.

    It is a digest of the exact prompt, the LLM's fingerprint with the checks' version, and the checks' input.
    """
    parts = [llm_fingerprint, prompt.instructions, *prompt.shared, prompt.rest, prompt.ask, prompt.again, prompt.code]
    parts += [prompt.checked] if prompt.checked else []
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    return hashlib.sha256(b"".join(len(data).to_bytes(8, "big") + data for data in encoded)).hexdigest()


def _marks(parts: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for text that looks like a mark of the template, in any case and spacing."""
    names = sorted(set(re.findall(r"</(\w+)>", "\n".join(parts))))
    alternatives = "|".join(map(re.escape, names)) or r"(?!)"
    return re.compile(rf"<\s*(/?)\s*({alternatives})", re.IGNORECASE)


def _fill(part: str, fields: Mapping[str, str]) -> str:
    """Return a part with its fields filled in, in one pass, so that braces in a value stay."""
    lines = []
    for line in part.split("\n"):
        names = re.findall(r"\{(\w+)\}", line)
        if not names or any(fields[name] for name in names):
            lines.append(re.sub(r"\{(\w+)\}", lambda match: fields[match[1]], line))
    return "\n".join(lines)


def _excerpt(text: str) -> str:
    """Return a passage's beginning and end; all of a short one."""
    if len(text) <= 3 * EDGE:
        return text
    return f"{_before_space(text[:EDGE])}\n[…]\n{_after_space(text[-EDGE:])}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _shorten(title: str, limit: int) -> str:
    title = _one_line(title)
    return title if len(title) <= limit else _before_space(title[: limit + 1]).rstrip()


def _after_space(text: str) -> str:
    """Return a text without its first, cut word; unchanged if it has no white space."""
    match = re.search(r"\s", text)
    return text[match.end() :] if match else text


def _before_space(text: str) -> str:
    """Return a text without its last, cut word; unchanged if it has no white space."""
    match = re.search(r"\s\S*$", text)
    return text[: match.start()] if match else text
