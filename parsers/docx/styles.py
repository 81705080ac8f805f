"""Properties that a Word document's styles give to its paragraphs.

Invariants:
- A heading has an outline level, set on the paragraph or on any style in its chain of base styles, or has a built-in
  heading style. The file stores the names of built-in styles in English whatever the language of Word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec
from lxml.etree import _Element

W: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_BODY_LEVEL: Final = 9  # ECMA-376 part 1, 17.3.1.20: levels 0 to 8 are headings, 9 is body text
_HEADING: Final = re.compile(r"heading\s?([1-9])", re.IGNORECASE)
_CHAIN: Final = 20  # styles along one chain; a longer one is a loop


class Style(msgspec.Struct, frozen=True):
    """A paragraph style.

    Attributes:
        name: its name in the file, in lower case; the English name for a built-in style.
        base: id of the style it is based on; empty without one.
        outline: its own outline level from 0; None where it sets none.
        number: its own numbering, ``(numId, ilvl)``; None where it sets none.
        header_row: whether it sets off the first row of a table.
        font: name of its font; empty where it sets none.
        bold: whether it is bold; None where it does not set boldness.
        size: font size in half-points; None where it sets none.
    """

    name: str
    base: str = ""
    outline: int | None = None
    number: tuple[str | None, int | None] | None = None
    header_row: bool = False
    font: str = ""
    bold: bool | None = None
    size: int | None = None


class Look(msgspec.Struct, frozen=True):
    """Font, weight and size of a run of text.

    Attributes:
        font: name of its font; empty where the document does not say.
        bold: whether it is bold.
        size: font size in half-points; 0 where the document does not say.
    """

    font: str = ""
    bold: bool = False
    size: int = 0


class Styles:
    """The styles of one document.

    Args:
        root: root of its styles part; None without one.
    """

    def __init__(self, root: _Element | None) -> None:
        self._styles: dict[str, Style] = {}
        self._default = ""
        self._looks: dict[tuple[str | None, str | None], Style] = {}
        defaults = root.find(f"{W}docDefaults/{W}rPrDefault/{W}rPr") if root is not None else None
        self._font, _, self._size = _run_look(defaults)
        for element in root.iterfind(f"{W}style") if root is not None else ():
            identifier = element.get(f"{W}styleId", "")
            self._styles[identifier] = _style(element)
            if element.get(f"{W}type") == "paragraph" and is_on(element.get(f"{W}default", "0")):
                self._default = identifier

    def chain(self, identifier: str | None) -> Iterator[Style]:
        """Yield a style and its base styles, nearest first.

        Without an id, start from the default style.
        """
        current = self._default if identifier is None else identifier
        for _ in range(_CHAIN):
            style = self._styles.get(current)
            if style is None:
                if current:
                    yield Style(name=current.casefold())  # not defined in the file: only its id is known
                return
            yield style
            current = style.base

    def heading_level(self, properties: _Element | None) -> int | None:
        """Return the heading level of a paragraph, from 1; None for body text.

        Args:
            properties: the paragraph's ``w:pPr``.
        """
        own = _outline(properties)
        if own is not None:
            return own + 1 if own < _BODY_LEVEL else None
        for style in self.chain(style_id(properties)):
            if style.outline is not None:
                return style.outline + 1 if style.outline < _BODY_LEVEL else None
            match = _HEADING.fullmatch(style.name)
            if match:
                return int(match.group(1))
        return None

    def named(self, properties: _Element | None, *names: str) -> bool:
        """Return whether a paragraph's style, or a base style, has one of these names.

        A trailing ``*`` in a name matches any ending.
        """
        for style in self.chain(style_id(properties)):
            for name in names:
                if style.name == name or (name.endswith("*") and style.name.startswith(name[:-1])):
                    return True
        return False

    def numbering(self, properties: _Element | None) -> tuple[str, int] | None:
        """Return a paragraph's list as ``(numId, level)``, level from 0; None outside lists."""
        found: list[tuple[str | None, int | None]] = []
        own = _number(properties)
        if own is not None:
            found.append(own)
        found.extend(style.number for style in self.chain(style_id(properties)) if style.number is not None)
        identifier = next((number for number, _ in found if number is not None), None)
        level = next((level for _, level in found if level is not None), 0)
        return (identifier, level) if identifier not in (None, "0") and identifier is not None else None

    def look(self, run: _Element | None, paragraph: _Element | None) -> Look:
        """Return a run's look, from its own properties, character style and paragraph style.

        Args:
            run: its ``w:rPr``.
            paragraph: the ``w:pPr`` of its paragraph.
        """
        own = _run_look(run)
        styled = self._styled_look(value(run.find(f"{W}rStyle")) if run is not None else None, style_id(paragraph))
        return Look(
            font=own[0] or styled.font or self._font,
            bold=bool(styled.bold if own[1] is None else own[1]),
            size=own[2] or styled.size or self._size or 0,
        )

    def _styled_look(self, characters: str | None, paragraph: str | None) -> Style:
        if (characters, paragraph) not in self._looks:
            chains = [*(self.chain(characters) if characters else ()), *self.chain(paragraph)]
            self._looks[characters, paragraph] = Style(
                name="",
                font=next((style.font for style in chains if style.font), ""),
                bold=next((style.bold for style in chains if style.bold is not None), None),
                size=next((style.size for style in chains if style.size is not None), None),
            )
        return self._looks[characters, paragraph]

    def has_header_row(self, table_style: str | None) -> bool:
        """Return whether a table's style, or a base style, sets off its first row."""
        return table_style is not None and any(style.header_row for style in self.chain(table_style))


def _style(element: _Element) -> Style:
    properties = element.find(f"{W}pPr")
    font, bold, size = _run_look(element.find(f"{W}rPr"))
    return Style(
        name=(value(element.find(f"{W}name")) or "").casefold(),
        base=value(element.find(f"{W}basedOn")) or "",
        outline=_outline(properties),
        number=_number(properties),
        header_row=any(part.get(f"{W}type") == "firstRow" for part in element.iterfind(f"{W}tblStylePr")),
        font=font,
        bold=bold,
        size=size,
    )


def style_id(properties: _Element | None) -> str | None:
    """Return the id of a paragraph's style; None where it names none."""
    return value(properties.find(f"{W}pStyle")) if properties is not None else None


def value(element: _Element | None) -> str | None:
    """Return the ``w:val`` of an element that may be missing."""
    return element.get(f"{W}val") if element is not None else None


def whole_number(text: str | None) -> int | None:
    """Return a text as a whole number; None if it is not one."""
    return int(text) if text and re.fullmatch(r"-?\d{1,9}", text) else None


def is_on(text: str | None) -> bool:
    """Return whether a switch is on.

    A switch without a value is on (ECMA-376 part 1, 17.17.4).
    """
    return text not in ("0", "false", "off", "none")


def switched(parent: _Element | None, name: str) -> bool:
    """Return whether an element has a child switch of this name that is on."""
    element = parent.find(f"{W}{name}") if parent is not None else None
    return element is not None and is_on(value(element))


def _outline(properties: _Element | None) -> int | None:
    return whole_number(value(properties.find(f"{W}outlineLvl"))) if properties is not None else None


def _number(properties: _Element | None) -> tuple[str | None, int | None] | None:
    part = properties.find(f"{W}numPr") if properties is not None else None
    if part is None:
        return None
    return value(part.find(f"{W}numId")), whole_number(value(part.find(f"{W}ilvl")))


def _run_look(properties: _Element | None) -> tuple[str, bool | None, int | None]:
    """Return the font, boldness and size that run properties set themselves."""
    if properties is None:
        return "", None, None
    fonts, bold = properties.find(f"{W}rFonts"), properties.find(f"{W}b")
    font = fonts.get(f"{W}ascii") or fonts.get(f"{W}hAnsi") or "" if fonts is not None else ""
    is_bold = is_on(value(bold)) if bold is not None else None
    return font, is_bold, whole_number(value(properties.find(f"{W}sz")))
