"""Markdown: CommonMark with tables, footnotes and front matter.

Invariants:
- The text is the decoded file, character for character, so offsets in the text are offsets in the file.
- markdown-it-py alone decides what is a heading, a code block or a list item. Its tokens name lines only, so the place
  within the line is noted as its block rules run.
- Time is linear in the file. Tokens are held for one block of the highest level at a time, and none for table cells.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import chain
from typing import Final, Literal

import msgspec
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token
from mdit_py_plugins.footnote import footnote_plugin

from parsers.decoding import Decoded, decode
from parsers.document import Document, Kind, TreeBuilder, leaves, left_out
from parsers.markdown.front_matter import front_matter, stated_labels
from parsers.references import in_markdown

_MEDIA_TYPE: Final = "text/markdown"
_Span = tuple[int, int]

_CHAINS: Final = ("paragraph", "reference", "blockquote", "list", "table", "footnote_def")
_DEEPEST: Final = 60  # nested blocks, two for a list level; what is nested deeper is not taken apart
_LONG: Final = 1000  # characters of a heading from which its markup is left as it stands
_LONGEST_TICKS: Final = 40  # backticks in a row that may open a code span

_MARKUP: Final = re.compile(r"[\\`*_\[\]<&~^]")
_LONGEST_TITLE: Final = 250  # code points of a heading that can name a section
_TITLE_WITHIN: Final = 3000  # code points within which the heading must stand that names the document
# What may stand behind a heading's words: attributes as Pandoc and Hugo write them, and a comment.
_TRAILER: Final = re.compile(r"(?:[ \t]*+(?:\{[ \t]*[#.:][^{}\n]*\}|(?><!--[^\n]*?-->)))++$")
_INLINE: Final = re.compile(r"\\.|`+|<!--", re.DOTALL)
_MARKS: Final = re.compile(r"[ \t>]*")
_BLANKS: Final = re.compile(r"[ \t]*")
_LANGUAGE: Final = re.compile(r"\s*\{?\s*\.?([\w+#.-]+)")
_DEFINITION: Final = re.compile(r"^[ \t>*+\d.)-]{0,80}\[[^\]\n]{1,999}\]:", re.MULTILINE)  # of a link or footnote
_OF_TABLES: Final = frozenset({"table_open", "tr_open", "table_close"})  # tokens that are used of a table's
_SCRIPT: Final = re.compile(r"<(?:script|style)\b", re.IGNORECASE)

_Rule = Callable[[StateBlock, int, int, bool], bool]


def parse(data: bytes) -> Document:
    """Read a Markdown file.

    Raises:
        BrokenDocument: when its encoding is unknown.
    """
    return read_markdown(decode(data))


def read_markdown(decoded: Decoded) -> Document:
    """Return the document of a decoded Markdown file."""
    text = decoded.text
    builder = TreeBuilder(text)
    header = front_matter(text)
    metadata: dict[str, str] = {}
    if header is not None:
        outer = (0, header.outer_end)
        builder.leaf("front_matter", header.start, header.end, outer=outer, left_out="front matter", line=1)
        metadata = {key: value for key, value in header.values.items() if key.casefold() != "labels"}
    stated = stated_labels(text, header)
    reader = _Reader(text, header.outer_end if header is not None else 0, builder)
    reader.read()
    document = builder.finish(
        title=metadata.get("title") or reader.title,
        metadata=metadata | decoded.metadata,
        labels=stated.labels,
        media_type=_MEDIA_TYPE,
        problems=[*decoded.problems, *filter(None, [stated.problem])],
    )
    return msgspec.structs.replace(document, references=tuple(_references(document)))


def _references(document: Document) -> Iterator[int]:
    """Places of the character references in what is indexed and no code."""
    if "&" not in document.text:
        return
    reasons = left_out(document)
    for index in leaves(document):
        node = document.nodes[index]
        if reasons[index] is None and node.kind not in ("code", "blob"):
            yield from in_markdown(document.text, *node.extent)


class _Reader:
    """Reads what stands behind ``start`` in a text into a builder. Lines here are 0-based and count from there."""

    def __init__(self, text: str, start: int, builder: TreeBuilder) -> None:
        self._text = text
        self._start = start
        self._line = text.count("\n", 0, start) + 1  # number of the file's line in which the first line here stands
        ends = (match.end() for match in re.compile("\n").finditer(text, start))
        self._lines = array("Q", chain([start], ends, [len(text) + 1]))
        self._builder = builder
        self._env: dict[str, object] = {}
        self._open: list[_Span] = []  # begin and end of the containers that are open
        self._lists = 0
        self._tops: list[tuple[int, str]] = []  # level and title of the headings that open a section
        self._opens = False  # whether the first of them stands near the beginning

    @property
    def title(self) -> str:
        """The only heading of level 1, where no other heading and hardly any text stand before it; otherwise empty."""
        ones = [title for level, title in self._tops if level == 1]
        return ones[0] if len(ones) == 1 and self._tops[0][0] == 1 and self._opens else ""

    def read(self) -> None:
        """Add everything to the builder."""
        # With a line end behind the last line, without which markdown-it-py 4.3 fails on some blank ones in quotes.
        source = self._text[self._start :] + "\n"
        if _DEFINITION.search(source):  # a heading may use a link that is defined below it
            for _ in _blocks(source, self._env):
                pass
        for tokens in _blocks(source, self._env):
            index = 0
            while index < len(tokens):
                index += self._add(tokens, index)

    def _add(self, tokens: list[Token], index: int) -> int:
        """Add the block that begins with a token; how many tokens are done with it."""
        token = tokens[index]
        if token.type == "heading_open":
            self._heading(token, tokens[index + 1].content)
            return 3
        if token.type == "paragraph_open":
            start, end = self._span(token)
            self._pieces("paragraph", start, end, _inline_comments(self._text, start, end))
            return 3
        if token.type == "table_open":
            return self._table(tokens, index)
        if token.type == "footnote_reference_open":
            return self._footnote(tokens, index)
        if token.type in ("fence", "code_block"):
            self._code(token)
        elif token.type == "html_block":
            self._markup(token)
        elif token.type in ("hr", "reference"):
            start, end = self._span(token)
            self._leaf("rule" if token.type == "hr" else "markup", start, end)
        else:
            self._container(tokens, index)
        return 1

    def _container(self, tokens: list[Token], index: int) -> None:
        token = tokens[index]
        if token.nesting < 0:
            self._lists -= token.type.endswith("list_close")
            self._builder.close(self._open.pop()[1])
            return
        begin, end = self._span(token)
        low, line = self._marked(begin), self._number(begin)
        self._open.append((begin, end))
        if token.type == "list_item_open":
            start = self._behind(begin + len(token.info) + 1)
            number = int(token.info) if token.info else None
            self._builder.open("item", start, outer=(low, start), line=line, number=number)
        elif token.type == "blockquote_open":
            start = self._behind(begin + 1)
            self._builder.open("quote", start, outer=(low, start), line=line)
        else:
            self._lists += 1
            tokens[index + 1].meta["begin"] = token.meta["begin"]  # the first item begins where its list does
            self._builder.open("list", begin, outer=(low, begin), level=self._lists, line=line)

    def _heading(self, token: Token, content: str) -> None:
        begin, stop = self._span(token)
        level = int(token.tag[1:])
        if token.markup.startswith("#"):
            start = self._text.index(content, begin + level) if content else stop
            end = start + len(content)
        else:
            start, end = begin, self._line_end(self._last(token) - 1)
        trailer = _TRAILER.search(content) if len(content) < _LONG else None
        if trailer and trailer.start():
            content = content[: trailer.start()]
            end -= len(trailer[0])
        title = _words(content, self._env)
        if not title:  # nothing to call a section by
            self._leaf("markup", begin, stop)
            return
        if len(title) > _LONGEST_TITLE:  # a paragraph with a line of dashes or hashes beside it
            self._leaf("paragraph", begin, stop)
            return
        if not self._open:
            self._opens = self._opens or (not self._tops and begin - self._start < _TITLE_WITHIN)
            self._tops.append((level, title))
        comment = _trailing_comments(self._text, end, stop)
        behind = len(self._text[end:comment].rstrip()) + end
        outer = (self._marked(begin), max(end, behind))
        self._builder.heading(title, level, start, end, outer=outer, line=self._number(begin))
        if comment < stop:
            self._leaf("markup", comment, stop, first=False, left_out="comment")

    def _code(self, token: Token) -> None:
        begin, stop = self._span(token)
        first: int = token.meta["line_begin"]
        if token.type == "code_block":
            start = self._start + first
            blank = not self._text[start:begin].strip()
            self._leaf("code", start if blank else begin, stop)
            return
        lines = token.content.count("\n") + bool(token.content and not token.content.endswith("\n"))
        end = min(stop, self._lines[(token.map or [0])[0] + lines + 1] - 1)
        start = min(end, self._start + token.meta["next_line_begin"]) if lines else end
        language = _LANGUAGE.match(token.info)
        self._leaf("code", start, end, outer=(begin, stop), language=language[1] if language else None)

    def _markup(self, token: Token) -> None:
        start, end = self._span(token)
        if _SCRIPT.match(self._text, start):
            self._leaf("markup", start, end, left_out="script")
        else:
            self._pieces("markup", start, end, _comments(self._text, start, end))

    def _pieces(self, kind: Kind, start: int, end: int, comments: Iterable[_Span]) -> None:
        """Add a part, its comments left out of the index."""
        position, continued = start, False
        for low, high in comments:
            self._leaf(kind, position, low, first=position == start, continued=continued)
            self._leaf("markup", low, high, first=low == start, left_out="comment")
            continued = continued or (not self._text[position:low].isspace() and position < low)
            position = high
        self._leaf(kind, position, end, first=position == start, continued=continued)

    def _table(self, tokens: list[Token], index: int) -> int:
        begin, end = self._span(tokens[index])
        self._builder.open("table", begin, outer=(self._marked(begin), begin), line=self._number(begin))
        self._open.append((begin, end))
        last = index
        header = True
        while tokens[last].type != "table_close":
            if tokens[last].type == "tr_open":
                row = (tokens[last].map or [0])[0]
                start = begin if header else self._unmarked(row)
                stop = self._line_end(row)
                outer = (start, self._line_end(row + 1) if header else stop)  # the delimiter row goes with the header
                if not header and (comments := list(_inline_comments(self._text, start, stop))):
                    self._pieces("row", start, stop, comments)
                else:
                    self._leaf("row", start, stop, outer=outer, header=header)
                header = False
            last += 1
        self._builder.close(self._open.pop()[1])
        return last + 1 - index

    def _footnote(self, tokens: list[Token], index: int) -> int:
        begin, end = self._span(tokens[index])
        start = self._behind(self._text.index("]:", begin) + 2)
        self._leaf("footnote", min(start, end), end, outer=(begin, end))
        last, depth = index, 0
        while True:
            depth += {"footnote_reference_open": 1, "footnote_reference_close": -1}.get(tokens[last].type, 0)
            last += 1
            if depth == 0:
                return last - index

    def _leaf(
        self, kind: Kind, start: int, end: int, outer: _Span | None = None, *, first: bool = True, **attributes: object
    ) -> None:
        """Add a leaf that is not blank; ``first`` tells whether its block begins with it."""
        low, high = outer or (start, end)
        if self._text[low:high].strip():
            if outer is None:
                start += len(self._text[start:end]) - len(self._text[start:end].lstrip("\n"))
                end = start + len(self._text[start:end].rstrip())
                low, high = start, end
            line = self._number(low)
            low = self._marked(low) if first else low
            self._builder.leaf(kind, start, end, outer=(low, high), line=line, **attributes)

    def _marked(self, begin: int) -> int:
        """Return where a block begins with the quote marks before it.

        Those before a container's first block are its own.
        """
        first = self._lines[self._number(begin) - self._line]
        marks = self._text[first:begin].lstrip()
        within = bool(self._open) and self._open[-1][0] < first
        return begin - len(marks) if within and marks.startswith(">") and not marks.strip("> \t") else begin

    def _span(self, token: Token) -> _Span:
        """Return where a block begins, behind the marks of what it stands in, and where it ends."""
        begin = token.meta.get("begin")
        begin = self._unmarked((token.map or [0])[0]) if begin is None else self._start + begin
        return begin, max(begin, self._line_end(self._last(token)))

    def _last(self, token: Token) -> int:
        """Return the last line of a block that is not blank."""
        first, line = (token.map or [0, 1])[0], (token.map or [0, 1])[1] - 1
        while line > first and not self._text[self._lines[line] : self._lines[line + 1]].strip(" \t\n"):
            line -= 1
        return line

    def _line_end(self, line: int) -> int:
        return self._lines[line] + len(self._text[self._lines[line] : self._lines[line + 1] - 1].rstrip(" \t"))

    def _unmarked(self, line: int) -> int:
        """Return where a line's text begins, behind blanks and quote marks."""
        return self._reach(_MARKS, self._lines[line])

    def _behind(self, position: int) -> int:
        """Return the next character that is no blank; the position itself where the line has none."""
        reached = self._reach(_BLANKS, position)
        return position if self._text[reached : reached + 1] in ("", "\n") else reached

    def _reach(self, pattern: re.Pattern[str], position: int) -> int:
        found = pattern.match(self._text, position)
        return found.end() if found else position

    def _number(self, position: int) -> int:
        """Return the number of a line in the file, from 1."""
        return self._line + bisect_right(self._lines, position) - 1


def _comments(text: str, start: int, end: int) -> Iterator[_Span]:
    """Comments that are closed; one that is not might hide text that was meant to be read."""
    while (begin := text.find("<!--", start, end)) >= 0 and (close := text.find("-->", begin + 2, end)) >= 0:
        start = close + 3
        yield begin, start


def _trailing_comments(text: str, start: int, end: int) -> int:
    """Return where the comments begin that end a stretch of text; its end where none do."""
    first = end
    while text.endswith("-->", start, first) and (begin := text.rfind("<!--", start, first)) >= 0:
        first = begin
        end = first
        first = start + len(text[start:first].rstrip())
    return end


def _inline_comments(text: str, start: int, end: int) -> Iterator[_Span]:
    """Comments in running text, outside code spans."""
    if text.find("<!--", start, end) < 0:
        return
    unclosed: set[int] = set()  # numbers of backticks that close no code span from here on
    while mark := _INLINE.search(text, start, end):
        start = mark.end()
        if mark[0] == "<!--":
            close = text.find("-->", mark.start() + 2, end)
            if close < 0:
                return
            start = close + 3
            yield mark.start(), start
        elif mark[0].startswith("`") and len(mark[0]) <= _LONGEST_TICKS and len(mark[0]) not in unclosed:
            closing = re.compile(rf"(?<!`){mark[0]}(?!`)").search(text, start, end)
            if closing is None:
                unclosed.add(len(mark[0]))
            start = closing.end() if closing else start


def _words(content: str, env: dict[str, object]) -> str:
    """Return a heading's words: without markup, entities decoded, an image by its alternative text."""
    if len(content) < _LONG and _MARKUP.search(content):
        content = "".join(_plain(_parser().parseInline(content, env)))
    return " ".join(content[:_LONG].split())


def _plain(tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type in ("text", "code_inline", "text_special"):
            yield token.content
        elif token.type in ("softbreak", "hardbreak"):
            yield " "
        elif token.children:
            yield from _plain(token.children)


class _State(StateBlock):
    """The state of the block parser; it keeps no tokens of a table's cells."""

    def push(self, ttype: str, tag: str, nesting: Literal[-1, 0, 1]) -> Token:
        if self.parentType == "table" and ttype not in _OF_TABLES:
            return _UNUSED
        return super().push(ttype, tag, nesting)


_UNUSED: Final = Token("", "", 0)


def _blocks(source: str, env: dict[str, object]) -> Iterator[list[Token]]:
    """Yield the tokens of each block of the highest level in turn.

    What ``ParserBlock.tokenize`` does, a block at a time.
    """
    parser = _parser()
    state = _State(source, parser, env, [])
    rules = parser.block.ruler.getRules("")
    line, blank = state.line, False
    while (line := state.skipEmptyLines(line)) < state.lineMax:
        state.line, state.tokens = line, []
        if not any(rule(state, line, state.lineMax, False) for rule in rules):
            raise RuntimeError(f"no rule of markdown-it-py took line {line}")
        yield state.tokens
        state.tight = not blank
        line = state.line
        blank = blank or state.isEmpty(line - 1)
        if line < state.lineMax and state.isEmpty(line):
            blank = True
            line += 1


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable(["table", "strikethrough"])
    parser.use(footnote_plugin, move_to_end=False)
    rules = parser.block.ruler
    names = rules.get_active_rules()
    plain: dict[_Rule, _Rule] = {}
    for name, rule in zip(names, rules.getRules(""), strict=True):
        chains = [chain for chain in _CHAINS if rule in rules.getRules(chain)]
        noting = _noting_place(name, rule)
        plain[noting] = rule
        rules.at(name, noting, {"alt": chains})
    for name in _CHAINS:  # these only look whether another block begins: there is no place to note
        cached = rules.getRules(name)
        cached[:] = [plain.get(rule, rule) for rule in cached]
    return parser


def _noting_place(name: str, rule: _Rule) -> _Rule:
    """Return a block rule that notes in its first token where the block begins.

    A rule that makes no token (of link definitions) gets one of its own name, so that its lines belong to something.
    """

    def noting(state: StateBlock, first: int, last: int, silent: bool) -> bool:
        if silent:
            return rule(state, first, last, True)
        before = len(state.tokens)
        line_begin, next_line_begin = state.bMarks[first], state.bMarks[first + 1]
        begin = line_begin + state.tShift[first]
        if not rule(state, first, last, False):
            return False
        if len(state.tokens) == before:
            state.tokens.append(Token(name, "", 0, map=[first, state.line]))
        place = {"begin": begin, "line_begin": line_begin, "next_line_begin": next_line_begin}
        state.tokens[before].meta.update(place)
        return True

    return noting
