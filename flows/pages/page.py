"""What the pages that are read in a browser have in common.

Invariants:
- A page is one file that fetches nothing and runs no script, and says so to the browser.
- Whatever comes from documents, questions and names is text and never markup.
- Equal values give an equal page.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from enrich.files import atomic_write
from parsers.errors import UsageError

# What no page may hold: halves of characters, which cannot be written, and control characters.
UNFIT: Final = re.compile("[\ud800-\udfff\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def render(name: str, values: Mapping[str, Any], filters: Mapping[str, Callable[..., str]] | None = None) -> str:
    """Return a page from the files of its name under ``pages/`` and those of all pages.

    Args:
        name: ``NAME.html.j2`` fills the blocks of ``page.html.j2``; ``NAME.css`` goes behind ``page.css``.
        values: what the template is given.
        filters: what it needs beside ``whole`` and ``counted``.

    Returns:
        HTML that can be written as UTF-8; a letter that cannot is U+FFFD.
    """
    environment = Environment(
        loader=FunctionLoader(_file), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"whole": whole, "counted": counted} | dict(filters or {})
    style = _file("page.css") + _file(f"{name}.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    html = environment.get_template(f"{name}.html.j2").render(values, style=Markup(style), style_hash=digest)
    return UNFIT.sub("\ufffd", html)


def whole(value: Any) -> str:
    """Return a number with its thousands set apart; anything else as it is."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def counted(value: int, noun: str) -> str:
    """Return how many there are of something, in words."""
    return f"{whole(value)} {noun}" + ("" if value == 1 else "s")


def check_page(path: Path | None) -> None:
    """Check, before any work is done, that a page has a folder to be written to.

    Raises:
        UsageError: when it has none.
    """
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"the page {path} cannot be written: there is no such folder", "Name another file.")


def write_page(path: Path, page: str) -> None:
    """Write a page.

    Raises:
        UsageError: when the file cannot be written.
    """
    try:
        atomic_write(path, page.encode())
    except OSError as error:
        raise UsageError(f"the page {path} cannot be written: {error.strerror}", "Name another file.") from error


def _file(name: str) -> str:
    return resources.files("flows").joinpath("pages", name).read_text(encoding="utf-8")
