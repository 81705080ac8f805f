"""What on a page is no content of it: menus, side bars, pagers, lists of languages, notices on cookies, feet.

Invariants:
- An element is left out for what it is together with what stands in it: a name alone, such as the class ``sidebar``,
  leaves nothing out, and neither do links alone.
- Whatever holds the main part of the page (``main``, ``article``, an ``h1``) is never left out for its class.
- Weighing costs at most eight times the length of the file; after that, doubtful elements are kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from selectolax.lexbor import LexborNode

from parsers.web.dom import Walk, fold_space, tags
from parsers.web.noise import brief_text, classes_of

_WEIGHING: Final = 8  # times the length of a file that may be spent on it, however deep its parts nest
_LINKS: Final = 0.5  # share of the letters that stand in links, from which a header, footer or aside is a menu
_MOSTLY_LINKS: Final = 0.8  # the same for what may be content, such as a list of contents
_FALLBACKS: Final = tags("noscript iframe video audio canvas object embed")
WITHIN_LINES: Final = _FALLBACKS | {"a", "select"}  # what may stand within a line of text
_BLOCKS: Final = tags("div section ul ol dl p table td form aside dialog details")
_COPYRIGHT: Final = re.compile(r"©|\(c\)\s*\d|copyright|all rights reserved|imprint|impressum", re.IGNORECASE)
_SHORT_FOOTER: Final = 500  # characters
_LONGEST_NOTICE: Final = 2_000
_LONGEST_PAGER: Final = 300
_FEW_LANGUAGES: Final = 3  # links to the page in other languages that make a list of them

# Names of menus, by class or id. ``has-sidebar`` and the like name a page that has one.
_PAGE_HAS: Final = re.compile(r"(?:has|have|with|no|without|page|layout|is|hide|show)[-_]")
_MENU: Final = re.compile(
    r"(?:[a-z0-9]+[-_]{1,2})*(?:side-?bar|side-?nav|side-?menu|sphinxsidebar|nav-?bar|nav|navi|navigation|sub-?nav|menu|"
    r"masthead|top-?bar|site-?map|mega-?menu|foot|footer|catlinks|portlet|navbox|menubar|"
    r"post-?navigation|nav-?links)(?:[-_]{1,2}[a-z0-9]+)*"
)
_LISTING: Final = re.compile(
    r"(?:[a-z0-9]+[-_]{1,2})*(?:toc|table-?of-?contents|breadcrumbs?|crumbs?|pager|paging|pagination|paginator|prev-?next|"
    r"share|sharing|social|languages?|lang|langs|interlanguage|language-?list|lang-?switcher|tag-?list|tag-?cloud)"
    r"(?:[-_]{1,2}[a-z0-9]+)*"
)
_COOKIES: Final = re.compile(
    r"(?:[\w-]*[-_])?(?:cookies?|gdpr|consent|onetrust|cookiebot|cybotcookiebotdialog|cookieconsent|didomi|usercentrics|"
    r"cc|cmp|truste|ccpa|eu-?cookie|cookielaw)(?:[-_][\w-]*)?|cookie\w*(?:banner|notice|bar|consent|popup|message|law)\w*"
)
_NOTICE: Final = re.compile(
    r"banner|notice|consent|bar\b|popup|pop-up|modal|dialog|overlay|message|alert|window|prompt|law"
)
_COOKIE_WORDS: Final = re.compile(r"cookie|GDPR|печень|クッキー|쿠키", re.IGNORECASE)
_AGREE: Final = re.compile(
    r"\b(?:accept|agree|allow|got it|ok(?:ay)?|dismiss|understand|reject|decline|akzeptier\w*|zustimm\w*|einverstanden|"
    r"ablehn\w*|verstanden|accepter|j['’]accepte|refuser|aceptar|acepto|rechazar|accett\w+|rifiut\w+|aceitar|akkoord|"
    r"accepteren|godkänn|accepter[ae]?|zgadzam|akceptuj\w*)\b|同意|接受|принять|согласен|동의",
    re.IGNORECASE,
)
_SKIP_CLASS: Final = re.compile(
    r"(?:[\w-]*[-_])?(?:skip|jump)[-_]?(?:links?|nav|navigation|to|content|main)?(?:[-_][\w-]*)?|screen-reader-shortcut"
)
_SKIP: Final = re.compile(
    r"(?:skip|jump|go)(?: directly)? to (?:the |our )?(?:main |page |primary )?(?:content|navigation|search|text|menu|"
    r"footer|article)\b.{0,20}|"
    r"(?:direkt )?zum (?:haupt)?inhalt.{0,20}|(?:ga |spring |direct )?naar (?:de )?(?:hoofd)?inhoud.{0,20}|"
    r"(?:aller|passer|accéder)(?: directement)? au contenu.{0,20}|(?:saltar|ir|pasar) al contenido.{0,20}|"
    r"(?:vai|salta|passa) al contenuto.{0,20}|(?:pular|ir|saltar) para o conteúdo.{0,20}|"
    r"przejdź do .{0,30}|hoppa till .{0,30}|перейти к (?:основному )?содержа\w+|к содержанию|"
    r"跳[到至转][到至]?.{0,10}|(?:メイン)?コンテンツ(?:へ|に).{0,10}|본문.{0,10}",
    re.IGNORECASE,
)
_HOME: Final = re.compile(
    r"(?:https?:)?//[^/?#]*/?|(?:\.{0,2}/)*(?:index\.\w{3,5}|home/?)?|#|/[a-z]{2}(?:-[a-z]{2})?/?", re.I
)
_TURNING: Final = re.compile(r"<a\b[^>]{0,1000}?\brel\s*=\s*[\"']?(?:next|prev)", re.IGNORECASE)
_MOST_LOOKED_AT: Final = 60  # nodes of what may be a pager


@dataclass(slots=True)
class _Weight:
    """What stands below an element.

    Attributes:
        text: its text, white space folded.
        linked: characters of it that stand in links.
        languages: links that name a language, and ``links`` all of them.
        main: whether a main part, an article or an ``h1`` is in it.
        controls: whether there is something to press.
    """

    text: str
    linked: int
    links: int
    languages: int
    main: bool
    controls: bool

    def is_linked(self, share: float) -> bool:
        """Return whether at least this share of its letters stands in links; also where there are none."""
        return self.linked >= share * max(1, len(self.text))


class Boilerplate:
    """Tells what is left out of one page.

    Args:
        source: the page as it stands in the file.
    """

    def __init__(self, source: str) -> None:
        self._room = _WEIGHING * len(source)
        self._turns = bool(_TURNING.search(source))

    def reason(self, node: LexborNode, tag: str, *, in_article: bool) -> str | None:
        """Why an element is no content of the page; None where it is, or may be.

        Args:
            in_article: whether an ``article`` or the page's ``main`` is around it.
        """
        attributes = node.attributes
        role = attributes.get("role") or ""
        if tag == "nav" or role == "navigation":
            return "navigation"
        if tag in _FALLBACKS:
            return "fallback"
        if tag == "select" or role == "search":
            return "form"
        if tag == "a":
            return "navigation" if _skips(node) else None
        if self._room < 0:
            return None
        if tag in ("aside", "header", "footer") or role in ("banner", "contentinfo", "complementary"):
            return self._furniture(node, foot=(tag == "footer" or role == "contentinfo") and not in_article)
        if tag not in _BLOCKS:
            return None
        if self._turns and _is_pager(node):
            return "navigation"
        return self._named(node, _names(attributes.get("class") or "", attributes.get("id") or ""))

    def _furniture(self, node: LexborNode, *, foot: bool) -> str | None:
        weight = self._weigh(node)
        if weight.is_linked(_LINKS):
            return "navigation"
        return "footer" if foot and len(weight.text) < _SHORT_FOOTER and _COPYRIGHT.search(weight.text) else None

    def _named(self, node: LexborNode, names: frozenset[str]) -> str | None:
        """Why an element with such a name is left out."""
        if not names and node.tag not in ("ul", "ol", "div"):
            return None
        if not names and {"hreflang", "lang"}.isdisjoint(_first_link(node)):
            return None
        weight = self._weigh(node)
        if weight.main:
            return None
        if "cookies" in names and _is_cookie_notice(weight):
            return "notice"
        if ("menu" in names and weight.is_linked(_LINKS)) or ("listing" in names and weight.is_linked(_MOSTLY_LINKS)):
            return "navigation"
        lists = weight.languages >= max(_FEW_LANGUAGES, 0.8 * weight.links) and weight.is_linked(_MOSTLY_LINKS)
        return "navigation" if lists else None

    def _weigh(self, root: LexborNode) -> _Weight:
        """Weigh what stands below an element, and take what that cost from the room."""
        pieces: list[str] = []
        weight = _Weight("", 0, 0, 0, False, False)
        within = cost = 0
        for node, begins in Walk(root):
            cost += 8
            tag = node.tag
            if node.is_text_node:
                text = fold_space(node.text_content or "")
                pieces.append(text)
                weight.linked += len(text) if within else 0
            elif tag == "a":
                within += 1 if begins else -1
                if begins:
                    attributes = node.attributes
                    weight.links += 1
                    weight.languages += "hreflang" in attributes or "lang" in attributes
                    weight.controls = True
            elif tag in ("button", "input"):
                weight.controls = True
            elif tag in ("main", "article", "h1"):
                weight.main = True
        weight.text = fold_space(" ".join(pieces))
        self._room -= cost + len(weight.text)
        return weight


def leads_home(heading: LexborNode) -> bool:
    """Return whether a heading is the name of the site: all of it is one link to the site's front page."""
    link = heading.css_first("a")
    if link is None:
        return heading.parent is not None and heading.parent.tag == "a" and _is_home(heading.parent)
    return _is_home(link)


def _is_home(link: LexborNode) -> bool:
    attributes = link.attributes
    return "home" in (attributes.get("rel") or "").split() or bool(_HOME.fullmatch(attributes.get("href") or ""))


@lru_cache(maxsize=4096)
def _names(classes: str, name: str) -> frozenset[str]:
    """Return the hints of an element's classes and id: ``menu``, ``listing``, ``cookies``."""
    found: set[str] = set()
    whole = f"{classes} {name}".lower()
    for one in whole.split():
        if len(one) > 80:
            continue
        if not _PAGE_HAS.match(one):
            found |= {what for what, pattern in (("menu", _MENU), ("listing", _LISTING)) if pattern.fullmatch(one)}
        if _COOKIES.fullmatch(one) and _NOTICE.search(whole):
            found.add("cookies")
    return frozenset(found)


def _is_cookie_notice(weight: _Weight) -> bool:
    text = weight.text
    return weight.controls and len(text) <= _LONGEST_NOTICE and bool(_COOKIE_WORDS.search(text) and _AGREE.search(text))


def _skips(link: LexborNode) -> bool:
    """Return whether a link only jumps over the head of the page."""
    attributes = link.attributes
    if not (attributes.get("href") or "").startswith("#"):
        return False
    if any(map(_SKIP_CLASS.fullmatch, classes_of(attributes))):
        return True
    return bool(_SKIP.fullmatch(brief_text(link) or ""))


def _first_link(node: LexborNode) -> dict[str, str | None]:
    """Return the attributes of the link that an element begins with, if it does."""
    for _ in range(6):
        child = node.child
        while child is not None and (child.is_text_node and not (child.text_content or "").strip()):
            child = child.next
        if child is None or child.is_text_node:
            return {}
        if child.tag == "a":
            return child.attributes
        node = child
    return {}


def _is_pager(node: LexborNode) -> bool:
    """Return whether an element holds links alone, one of them to the page before or behind this one."""
    turns = False
    length = within = 0
    for number, (one, begins) in enumerate(Walk(node)):
        if number > _MOST_LOOKED_AT or length > _LONGEST_PAGER:
            return False
        if one.is_text_node:
            text = (one.text_content or "").strip(" \t\n|·•/«»‹›←→<>")
            if text and not within:
                return False
            length += len(text)
        elif one.tag == "a":
            within += 1 if begins else -1
            turns = turns or not {"next", "prev", "previous"}.isdisjoint((one.attributes.get("rel") or "").split())
    return turns
