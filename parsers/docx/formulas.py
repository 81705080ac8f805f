"""Convert Word formulas (OMML) to one line of plain-text mathematics.

Notation: ``a/b``, ``x^2``, ``x_1``, ``∑_(k=0)^n k``, ``√(x+1)``, ``[a b; c d]``.

Invariants:
- Every character of the formula appears, in reading order.
- A part of more than one character is bracketed where it would otherwise bind to its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from lxml.etree import _Element

M: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_DEEPEST: Final = 60  # nested parts; deeper parts are written without their structure
_INTEGRAL: Final = "∫"  # ECMA-376 part 1, 22.1.2.20: the operator of an n-ary object that names none
_OPERATOR: Final = re.compile(r"[\s+\-−±=<>≤≥≠≈,;/·⋅×→]")
_BAR: Final = "|"  # 22.1.2.105: between the parts of a delimited object


def formula_text(element: _Element, depth: int = 0) -> str:
    """Return the text of a formula or a part of one.

    Args:
        element: an ``m:oMath`` or any element inside it.
        depth: number of parts that enclose it.
    """
    if depth > _DEEPEST:
        return "".join(part.text or "" for part in element.iter(f"{M}t"))
    pieces: list[str] = []
    for child in element:
        tag = child.tag if isinstance(child.tag, str) else ""
        name = tag.removeprefix(M)
        if tag == f"{M}t":
            pieces.append(child.text or "")
        elif name in _FORMS and tag.startswith(M):
            piece = _FORMS[name](child, depth + 1)
            if name in _SPACED and pieces and pieces[-1][-1:].isalnum() and piece[:1].isalnum():
                pieces.append(" ")
            pieces.append(piece)
        elif not name.endswith("Pr"):
            piece = formula_text(child, depth + 1)
            if piece[:1].isalnum() and pieces and "/" in pieces[-1] and pieces[-1][-1:].isalnum():
                pieces.append(" ")
            pieces.append(piece)
    return "".join(pieces)


def _part(element: _Element, name: str, depth: int) -> str:
    child = element.find(f"{M}{name}")
    return formula_text(child, depth).strip() if child is not None else ""


def _property(element: _Element, name: str) -> str | None:
    """Return the value of a formula part's property; None if unset."""
    found = element.find(f"{M}{element.tag.removeprefix(M)}Pr/{M}{name}")
    return found.get(f"{M}val", "") if found is not None else None


def _bound(text: str) -> str:
    """Bracket a part of several terms."""
    return f"({text})" if _OPERATOR.search(text) and len(text) > 1 and not _is_bracketed(text) else text


def _divisor(text: str) -> str:
    """Bracket the denominator of a fraction, products too: ``a/(2c)``."""
    factors = text.isalnum() and not text.isdigit() and not text.isalpha()
    return f"({text})" if factors else _bound(text)


def _is_bracketed(text: str) -> bool:
    """Return whether one pair of brackets encloses the whole text."""
    if not text or text[0] not in "([{" or text[-1] not in ")]}":
        return False
    depth = 0
    for position, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0:
            return position == len(text) - 1
    return False


def _script(sign: str, text: str) -> str:
    return f"{sign}{_bound(text)}" if text else ""


def _fraction(element: _Element, depth: int) -> str:
    above, below = _part(element, "num", depth), _part(element, "den", depth)
    if _property(element, "type") == "noBar":
        return f"({above} over {below})"
    return f"{_bound(above)}/{_divisor(below)}"


def _scripts(element: _Element, depth: int) -> str:
    base = _part(element, "e", depth)
    base = base if len(base) == 1 or base.isalnum() or _is_bracketed(base) else f"({base})"
    return base + _script("_", _part(element, "sub", depth)) + _script("^", _part(element, "sup", depth))


def _before(element: _Element, depth: int) -> str:
    scripts = _script("_", _part(element, "sub", depth)) + _script("^", _part(element, "sup", depth))
    return f"{scripts}{_bound(_part(element, 'e', depth))}"


def _operator(element: _Element, depth: int) -> str:
    sign = _property(element, "chr")
    limits = _script("_", _part(element, "sub", depth)) + _script("^", _part(element, "sup", depth))
    return f"{_INTEGRAL if sign is None else sign}{limits} {_part(element, 'e', depth)}"


def _root(element: _Element, depth: int) -> str:
    degree, base = _part(element, "deg", depth), _part(element, "e", depth)
    return f"√[{degree}]({base})" if degree else f"√({base})"


def _delimited(element: _Element, depth: int) -> str:
    begin, end, between = (_property(element, name) for name in ("begChr", "endChr", "sepChr"))
    inside = (_BAR if between is None else between).join(
        formula_text(part, depth).strip() for part in element.iterfind(f"{M}e")
    )
    if begin is None and end is None and _is_bracketed(inside) and inside[0] == "(":
        return inside
    return f"{'(' if begin is None else begin}{inside}{')' if end is None else end}"


def _function(element: _Element, depth: int) -> str:
    return f"{_part(element, 'fName', depth)} {_part(element, 'e', depth)}"


def _below(element: _Element, depth: int) -> str:
    return _part(element, "e", depth) + _script("_", _part(element, "lim", depth))


def _above(element: _Element, depth: int) -> str:
    return _part(element, "e", depth) + _script("^", _part(element, "lim", depth))


def _accent(element: _Element, depth: int) -> str:
    sign = _property(element, "chr")
    return _part(element, "e", depth) + ("\u0302" if sign is None else sign)


def _group(element: _Element, depth: int) -> str:
    """Return a base with a sign above or below, such as a labelled arrow."""
    sign = _property(element, "chr")
    base = _part(element, "e", depth)
    return base if sign is None or sign in "⏞⏟" else f"{base}{sign}"


def _matrix(element: _Element, depth: int) -> str:
    rows = (
        " ".join(_bound(formula_text(cell, depth).strip()) for cell in row.iterfind(f"{M}e"))
        for row in element.iterfind(f"{M}mr")
    )
    return f"[{'; '.join(rows)}]"


def _equations(element: _Element, depth: int) -> str:
    """Return stacked equations on one line, without their alignment marks (``&``)."""
    rows: Iterator[str] = (formula_text(row, depth).replace("&", "").strip() for row in element.iterfind(f"{M}e"))
    return "; ".join(filter(None, rows))


# ECMA-376 part 1, 22.1.2: the objects with a structure of their own. The content of all others is read directly.
_FORMS: Final[dict[str, Callable[[_Element, int], str]]] = {
    "f": _fraction,
    "sSup": _scripts,
    "sSub": _scripts,
    "sSubSup": _scripts,
    "sPre": _before,
    "nary": _operator,
    "rad": _root,
    "d": _delimited,
    "func": _function,
    "limLow": _below,
    "limUpp": _above,
    "acc": _accent,
    "groupChr": _group,
    "m": _matrix,
    "eqArr": _equations,
}
_SPACED: Final = frozenset({"f", "nary", "func", "sSup", "sSub", "sSubSup"})
