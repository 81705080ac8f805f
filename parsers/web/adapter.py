"""HTML and XHTML.

Invariants:
- The text is written block by block, in the order of the file, and what a browser shows is all in it.
- Blocks are separated by blank lines, parts of a list and rows of a table by line ends.
- White space is folded, but in ``pre``.
- List items keep their bullets and numbers.
- Menus and other furniture of a page are in the text as parts that are left out of the index.
- Where it is doubtful, a part is kept in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from selectolax.lexbor import LexborNode

from parsers.decoding import Decoded, decode, html_charset
from parsers.document import Document, Kind, TreeBuilder
from parsers.labels import from_meta
from parsers.web.boilerplate import WITHIN_LINES, Boilerplate, leads_home
from parsers.web.code import code_language, code_text, listing
from parsers.web.dom import Walk, fold_space, parse_html, replaced
from parsers.web.head import read_head, title_of
from parsers.web.headings import inferred_headings
from parsers.web.tables import BLOCKS, DEEPEST_LAYOUT, HEADINGS, flat_text, lays_out, read_table

_MEDIA_TYPE: Final = "text/html"

_DEEPEST_LIST: Final = 30  # boxes within each other; deeper lists and quotes go into the innermost one
_TOPS: Final = 1000  # headings among which the title is looked for
_NUMBER: Final = re.compile(r"\s*(-?\d{1,9})")
_BREAK: Final = "\0"  # a line break within a block; HTML text cannot hold it
_PARAGRAPH_BREAK: Final = re.compile(r"\0\s*\0[\s\0]*")

_Leave = Callable[[], None]


def parse(data: bytes) -> Document:
    """Read an HTML or XHTML file.

    Raises:
        BrokenDocument: when its encoding is unknown.
    """
    return read_html(decode(data, html_charset(data)))


def read_html(decoded: Decoded) -> Document:
    """Return the document of a decoded HTML file."""
    root = parse_html(decoded.text)
    page = _Page(decoded, root)
    document = page.read()
    keep_all = document.status == "empty" and bool(document.nodes)
    if keep_all:  # nothing but what looks like menus: then it is the content
        page = _Page(decoded, root, keep_all=True)
        document = page.read()
    if root is not None and not page.headed and (headings := inferred_headings(root)):
        document = _Page(decoded, root, keep_all=keep_all, headings=headings).read()
    return document


@dataclass(eq=False, slots=True)
class _Box:
    """A list, item or quote; it enters the tree with the first text in it, so that none is empty.

    Attributes:
        mark: bullet or number that is written before its text.
        next_number: of an ordered list, the number of its next item.
        step: what the numbers of an ordered list go up by.
    """

    kind: Kind
    mark: str = ""
    attributes: dict[str, object] = field(default_factory=dict)
    next_number: int | None = None
    step: int = 1
    opened: bool = False


class _Writer:
    """Writes parts into a builder, with the boxes around them and the space between them."""

    def __init__(self) -> None:
        self.builder = TreeBuilder()
        self.boxes: list[_Box] = []
        self.reason: str | None = None  # why what is written now stays out of the index

    def push(self, box: _Box) -> _Box:
        """Put what follows into a box."""
        self.boxes.append(box)
        return box

    def pop_to(self, box: _Box) -> None:
        """Close a box and all that stand open in it."""
        while self.boxes and box in self.boxes:
            if self.boxes.pop().opened:
                self.builder.close()

    def put(self, kind: Kind, text: str, *, close: bool = False, **attributes: object) -> None:
        """Write a part; blank text writes nothing.

        Args:
            close: whether it follows the part before on the next line, as table rows do.
        """
        if not text.strip():
            return
        if self.reason is not None:  # it is written behind the page, so that it parts nothing
            self.builder.write_leaf("paragraph" if kind == "heading" else kind, text, left_out=self.reason)
            return
        separator = self._open_boxes(close)
        start, end = self.builder.write(text, separator)
        if kind == "heading":
            self.builder.heading(fold_space(text), start=start, end=end, **attributes)  # type: ignore[arg-type]
        else:
            self.builder.leaf(kind, start, end, **attributes)

    def _open_boxes(self, close: bool) -> str:
        """Open the boxes that have had no text yet; what stands between the text before and the next."""
        within = [box for box in self.boxes if box.opened]
        in_list = any(box.kind == "list" for box in within)
        indent = "  " * sum(box.kind == "item" for box in within)
        separator = f"\n{indent}" if in_list or close else "\n\n"
        for box in self.boxes:
            if box.opened:
                continue
            if box.mark:
                start, end = self.builder.write(box.mark, separator)
                separator = ""
                self.builder.open(box.kind, end, outer=(start, end), **box.attributes)
            else:
                begin = self.builder.position + (len(separator) if self.builder.position else 0)
                self.builder.open(box.kind, begin, **box.attributes)
            box.opened = True
        return separator


class _Page:
    """Reads one page.

    Args:
        keep_all: whether to leave nothing out.
        headings: what stands as a heading on a page that marks none, see :mod:`parsers.web.headings`.
    """

    def __init__(
        self,
        decoded: Decoded,
        root: LexborNode | None,
        *,
        keep_all: bool = False,
        headings: Mapping[int, int] | None = None,
    ) -> None:
        self._decoded = decoded
        self._root = root
        self._keep_all = keep_all
        self._inferred = headings or {}
        self._writer = _Writer()
        self._inline: list[str] = []
        self._only_images = True
        self._ends: list[_Leave | None] = []
        self._layouts = 0
        self._articles = 0
        self._judge = Boilerplate(decoded.text)
        self._single = False  # whether the page has one h1
        self._names = False  # whether headings in what is left out may name content
        self._tops: list[tuple[int, str]] = []  # level and text of the first headings
        self._by_tag: Mapping[str, Callable[[LexborNode], _Leave | None]] = {
            "pre": self._code,
            "listing": self._code,
            "xmp": self._code,
            "plaintext": self._code,
            "table": self._table,
            "ul": self._list,
            "menu": self._list,
            "dir": self._list,
            "ol": self._list,
            "dl": self._list,
            "li": self._item,
            "dt": self._term,
            "dd": self._term,
            "blockquote": self._quote,
            "figcaption": self._caption,
            "article": self._article,
            "main": self._article,
        } | dict.fromkeys(HEADINGS, self._heading)

    @property
    def headed(self) -> bool:
        """Whether a heading was written."""
        return bool(self._tops)

    def read(self) -> Document:
        root = self._root
        title, metadata, contents = read_head(root) if root is not None else ("", {}, [])
        stated = from_meta(self._decoded.text, contents)
        if root is not None:
            self._walk = Walk(root)
            self._single = len(root.css("h1")) == 1
            for node, begins in self._walk:
                self._event(node, begins)
            self._flush()
        return self._writer.builder.finish(
            title=title_of(title, self._tops),
            metadata=metadata | self._decoded.metadata,
            labels=stated.labels,
            media_type=_MEDIA_TYPE,
            problems=[*self._decoded.problems, *filter(None, [stated.problem])],
        )

    def _event(self, node: LexborNode, begins: bool) -> None:
        if node.is_text_node:
            text = node.text_content or ""
            self._inline.append(text)
            self._only_images = self._only_images and not text.strip()
        elif begins:
            self._ends.append(self._begin(node))
        else:
            leave = self._ends.pop()
            if leave is not None:
                leave()

    def _begin(self, node: LexborNode) -> _Leave | None:
        tag = node.tag or ""
        if tag == "br":
            self._inline.append(_BREAK)
            return None
        text = replaced(node)
        if text is not None:
            self._walk.skip()
            self._replaced(tag, text)
            return None
        reason = self._boilerplate(node, tag)
        if reason is not None:
            return self._left_out(node, reason)
        if self._writer.reason is not None and tag in ("nav", "aside"):
            return self._menu()
        special = self._by_tag.get(tag)
        if node.mem_id in self._inferred or node.attributes.get("role") == "heading":
            special = self._heading
        if special is not None:
            self._flush()
            return special(node)
        if tag in BLOCKS:
            self._flush()
            return self._flush
        return None

    def _replaced(self, tag: str, text: str) -> None:
        self._inline.append(f" {text} " if tag != "math" else text)
        self._only_images = self._only_images and tag != "math"

    def _flush(self) -> None:
        """End the block: write the text that has come in."""
        raw = "".join(self._inline)
        kind: Kind = "figure" if self._only_images else "paragraph"
        self._inline.clear()
        self._only_images = True
        if _BREAK not in raw:
            self._writer.put(kind, fold_space(raw))
            return
        for piece in _PARAGRAPH_BREAK.split(raw):
            lines = (fold_space(line) for line in piece.split(_BREAK))
            self._writer.put(kind, "\n".join(line for line in lines if line))

    def _heading(self, node: LexborNode) -> None:
        self._walk.skip()
        text = flat_text(node)
        if not self._heads(node):
            self._writer.put("paragraph", text)
            return
        level = self._level(node)
        if len(self._tops) < _TOPS and text:
            self._tops.append((level, text))
        reason, self._writer.reason = self._writer.reason, None
        self._writer.put("heading", text, level=level)
        self._writer.reason = reason

    def _level(self, node: LexborNode) -> int:
        if node.tag in HEADINGS:
            return int((node.tag or "h6")[1])
        stated = _integer(node.attributes.get("aria-level"), 2)  # the default of role=heading
        return self._inferred.get(node.mem_id) or max(1, min(stated, 6))

    def _code(self, node: LexborNode) -> None:
        self._walk.skip()
        self._writer.put("code", code_text(node), language=code_language(node))

    def _caption(self, node: LexborNode) -> None:
        self._walk.skip()
        self._writer.put("caption", flat_text(node))

    def _table(self, node: LexborNode) -> _Leave | None:
        found = listing(node)
        if found is not None:
            self._walk.skip()
            self._writer.put("code", found[0], language=found[1])
            return None
        if self._layouts >= DEEPEST_LAYOUT or lays_out(node):
            self._layouts += 1
            return self._end_layout
        self._walk.skip()
        caption, rows = read_table(node)
        self._writer.put("caption", caption)
        box = self._writer.push(_Box("table"))
        for index, row in enumerate(rows):
            self._writer.put("row", row.text, close=index > 0, header=row.header)
        self._writer.pop_to(box)
        return None

    def _end_layout(self) -> None:
        self._flush()
        self._layouts -= 1

    def _list(self, node: LexborNode) -> _Leave:
        depth = sum(box.kind == "list" for box in self._writer.boxes) + 1
        box = _Box("list", attributes={"level": depth})
        if node.tag == "ol":
            box.next_number, box.step = _numbering(node)
        return self._boxed(box)

    def _item(self, node: LexborNode) -> _Leave:
        boxes = self._writer.boxes
        if not boxes or boxes[-1].kind != "list":
            return self._flush  # outside a list, or nested too deep
        box = _Box("item", mark="- ")
        above = boxes[-1]
        if above.next_number is not None:
            number = _integer(node.attributes.get("value"), above.next_number)
            above.next_number = number + above.step
            box.mark, box.attributes = f"{number}. ", {"number": number}
        return self._boxed(box)

    def _term(self, node: LexborNode) -> _Leave:
        """Return a term opens an item; a description goes into the item of its term."""
        boxes = self._writer.boxes
        if node.tag == "dt" and boxes and boxes[-1].kind == "item" and not boxes[-1].mark:
            self._writer.pop_to(boxes[-1])
        if boxes and boxes[-1].kind == "list":
            self._writer.push(_Box("item"))
        return self._flush

    def _quote(self, node: LexborNode) -> _Leave:
        return self._boxed(_Box("quote"))

    def _boxed(self, box: _Box) -> _Leave:
        if len(self._writer.boxes) >= _DEEPEST_LIST:
            return self._flush
        self._writer.push(box)

        def leave() -> None:
            self._flush()
            self._writer.pop_to(box)

        return leave

    def _article(self, node: LexborNode) -> _Leave:
        self._articles += 1

        def leave() -> None:
            self._flush()
            self._articles -= 1

        return leave

    def _boilerplate(self, node: LexborNode, tag: str) -> str | None:
        """Why an element is no content of the page; None where it is, or stands in what is left out."""
        if self._keep_all or self._writer.reason is not None:
            return None
        return self._judge.reason(node, tag, in_article=self._articles > 0)

    def _left_out(self, node: LexborNode, reason: str) -> _Leave:
        """Leave an element out; one that stands within a line does not end the paragraph around it."""
        around, only_images = self._inline, self._only_images
        if node.tag in WITHIN_LINES:
            self._inline, self._only_images = [], True
        else:
            self._flush()
        self._writer.reason = reason
        self._names = node.tag == "header" or node.attributes.get("role") == "banner"

        def leave() -> None:
            self._flush()
            self._writer.reason = None
            if node.tag in WITHIN_LINES:
                self._inline, self._only_images = around, only_images

        return leave

    def _menu(self) -> _Leave:
        """Return a menu in a header that is left out, whose headings head nothing."""
        self._flush()
        names, self._names = self._names, False

        def leave() -> None:
            self._flush()
            self._names = names

        return leave

    def _heads(self, node: LexborNode) -> bool:
        """Return whether a heading names content, not the site or a menu: in a header of the page it may do either."""
        if self._writer.reason is None:
            return True
        if not self._names or (not self._articles and leads_home(node)):
            return False
        return self._articles > 0 or node.tag != "h1" or self._single


def _numbering(node: LexborNode) -> tuple[int, int]:
    """Return the number of an ordered list's first item, and the step from one to the next."""
    attributes = node.attributes
    if "reversed" not in attributes:
        return _integer(attributes.get("start"), 1), 1
    items = sum(child.tag == "li" for child in node.iter())
    return _integer(attributes.get("start"), items), -1


def _integer(value: str | None, otherwise: int) -> int:
    found = _NUMBER.match(value or "")
    return int(found[1]) if found else otherwise
