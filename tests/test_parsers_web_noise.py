"""HTML: signs that are no text, what is left out, headings wherever they stand, and pages that mark none."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from test_parsers_web import content, headings, indexed, nodes, of

from chunker.split import ChunkerSettings, split
from chunker.tokens import Ruler
from parsers.document import Document, check
from parsers.registry import read
from parsers.web.adapter import parse

# --- signs ------------------------------------------------------------------------------------------------------------


def test_o32(shared: Path) -> None:
    document = parse((shared / "cases/files/o32_icons.html").read_bytes())
    assert document.text == "Printer\n\nLet it cool for ten minutes.\n\nlpstat -p\n\nThen print a page."
    assert headings(document) == [(1, "Printer")]


@pytest.mark.parametrize(
    "sign",
    [
        "<i class=material-icons>arrow_drop_down</i>",
        "<span class='material-symbols-rounded size-24'>home</span>",
        "<mat-icon class='mat-icon notranslate'>settings</mat-icon>",
        "<md-icon>3d_rotation</md-icon>",
        "<i class='fa fa-warning' aria-hidden=true>warning</i>",
        "<span class='octicon octicon-link'>link</span>",
        "<span class=icon aria-hidden=true>expand_more</span>",
        "<i class='icon-print'>&#xe61f;</i>",
        "<button>Copy</button>",
        "<button class='copybtn' aria-label='Copy to clipboard'><svg><title>x</title></svg>Copy</button>",
        "<clipboard-copy for=x>Copy</clipboard-copy>",
        "<div class='code-copy-button' role=button>Kopieren</div>",
        "<span class='btn-clipboard' title='Copy to clipboard'>Copied!</span>",
        "<a class=headerlink href='#x' title='Permalink'>¶</a>",
        "<a class=anchor href='#x' aria-hidden=true>Permalink</a>",
        "<span class='mw-editsection'><span>[</span><a href=x>Quelltext bearbeiten</a><span>]</span></span>",
        "<span class='mw-editsection'>[<a href=x>edit</a>]</span>",
    ],
)
def test_a_sign_is_no_text(sign: str) -> None:
    document = of(f"<h2>Valves {sign}</h2><p>{sign} Open the valve{sign}.</p>")
    assert document.text == "Valves\n\nOpen the valve."


@pytest.mark.parametrize(
    "text",
    [
        "<span aria-hidden=true>Twenty percent off</span>",
        "<span aria-hidden=true>off</span>",
        "<i class=icon>new</i>",
        "<span class='icon-box'>Support</span>",
        "<i class=material-icons>Read on</i>",
        "<span class='sr-only'>opens a window</span>",
        "<div class='copy'>Our copy</div>",
        "<button class='faq-copy'>How do I copy a key?</button>",
        "<button>Save</button>",
        "<a href='#link'>link</a>",
        "<a class=anchor href='#valves'>Valves</a>",
        "<span class='line-number-note'>at line 3</span>",
        "<p class='copyright-notice'>Copyright law</p>",
    ],
)
def test_words_stay_whatever_their_classes(text: str) -> None:
    plain = of(text.replace("aria-hidden=true", "").replace("class=", "data-x="))
    assert of(f"<p>x</p>{text}").text == f"x\n\n{plain.text}"
    assert plain.text


# --- headings wherever they stand -------------------------------------------------------------------------------------

LANGUAGES = "".join(f"<li><a href=//{code}.example.org lang={code}>Language {code}</a>" for code in "abcdefghij")


def test_o47(shared: Path) -> None:
    document = parse((shared / "cases/files/o47_article_header.html").read_bytes())
    assert headings(document) == [(2, "Why the pump failed"), (2, "How to bleed the valve")]
    assert indexed(document).split("\n") == [
        "Why the pump failed",
        "The bearing ran dry.",
        "How to bleed the valve",
        "Turn the screw twice.",
    ]


@pytest.mark.parametrize(
    "page",
    [
        f"<main><header><nav><h2>Contents</h2></nav><h1>Duck</h1><ul>{LANGUAGES}</ul></header><p>A bird.</p></main>",
        f"<header><h1>Duck</h1><ul>{LANGUAGES}</ul></header><p>A bird.</p>",
        f"<div role=banner><ul>{LANGUAGES}</ul><h1><a href=/wiki/Duck>Duck</a></h1></div><p>A bird.</p>",
        f"<header><h1><a href=/>My site</a></h1><ul>{LANGUAGES}</ul></header><h1>Duck</h1><p>A bird.</p>",
        f"<header><h1>My site</h1><ul>{LANGUAGES}</ul></header><article><h1>Duck</h1><p>A bird.</p></article>",
        f"<h1>Duck</h1><ul>{LANGUAGES}</ul><p>A bird.</p>",
    ],
    ids=["main", "page", "banner", "home", "two", "list"],
)
def test_a_heading_is_one_beside_many_links_and_the_links_are_left_out(page: str) -> None:
    document = of(page)
    assert headings(document) == [(1, "Duck")]
    assert document.title == "Duck"
    assert indexed(document) == "Duck\nA bird."


def test_a_role_makes_a_heading() -> None:
    document = of("<div role=heading aria-level=3>Valves</div><p>x</p><div role=heading>Pumps</div><p>y")
    assert headings(document) == [(3, "Valves"), (2, "Pumps")]


@pytest.mark.parametrize(
    ("stated", "title"),
    [
        ("Duck - Wikipedia", "Duck"),
        ("Duck | Birds | Example", "Duck"),
        ("Example: Duck", "Duck"),
        ("Example — Duck", "Duck"),
        ("Duck tales", "Duck tales"),
        ("Duck-billed platypus", "Duck-billed platypus"),
        ("All about the Duck", "All about the Duck"),
    ],
)
def test_a_title_loses_the_name_of_the_site_where_the_heading_tells_it(stated: str, title: str) -> None:
    assert of(f"<title>{stated}</title><h1>Duck</h1><p>x").title == title


# --- what is left out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "part",
    [
        "<a class=mw-jump-link href='#content'>Jump to content</a>",
        "<a href='#main'>Skip to main content</a>",
        "<a href='#inhalt'>Zum Inhalt springen</a>",
        "<a class='screen-reader-shortcut' href='#c'>Naar beneden</a>",
        "<div class='pager'><a href=1>Older posts</a> | <a href=2>Newer posts</a></div>",
        "<p><a rel=prev href=1>« Valves</a> · <a rel=next href=2>Pumps »</a></p>",
        "<div class=breadcrumbs><a href=/>Home</a> › <a href=/p>Products</a></div>",
        "<div id=sidebar><h3>Products</h3><ul><li><a href=1>Pumps for wells</a><li>"
        "<a href=2>Valves for pumps</a></ul></div>",
        "<div class='sphinxsidebar'><div class='sphinxsidebarwrapper'><a href=1>Table of contents</a></div></div>",
        f"<ul class='interlanguage'>{LANGUAGES}</ul>",
        "<ul><li><a hreflang=de href=de>Deutsch</a><li><a hreflang=fr href=fr>Français</a><li>"
        "<a hreflang=it href=it>it</a></ul>",
        "<div id='cookie-banner'><p>We use cookies to serve you.</p><button>Accept all</button></div>",
        "<div class='cc-window cc-banner' role=dialog>This site uses cookies. <a href='#'>Got it!</a></div>",
        "<section class='gdpr-consent-modal'>Wir verwenden Cookies. <button>Alle akzeptieren</button></section>",
        "<div class='social-share'><a href=x>Facebook</a> <a href=y>Mastodon</a></div>",
        "<div role=search><input><button>Search</button></div>",
    ],
)
def test_furniture_is_left_out(part: str) -> None:
    document = of(f"{part}<h1>Pumps</h1><p>Open the valve.</p>")
    assert indexed(document) == "Pumps\nOpen the valve."


@pytest.mark.parametrize(
    "part",
    [
        "<div class='has-sidebar'><a href=1>Chapter 1</a> <a href=2>Chapter 2</a></div>",
        "<div class=sidebar><p>Bearings are to be oiled once a week, see <a href=x>oil</a>.</p></div>",
        "<div class=menu><h1>Menu of the day</h1><a href=1>Soup</a></div>",
        "<div class='nav'><main><a href=1>Chapter 1</a></main></div>",
        "<div class='toctree-wrapper'><ul><li><a href=1>Chapter 1</a><li><a href=2>Chapter 2</a></ul></div>",
        "<div class='cookie-policy'><p>We store cookies for a year. You may accept or reject them.</p></div>",
        "<div class='cookie-notice'>" + "<p>A cookie is a small file, and you may accept it.</p>" * 60 + ""
        "<a href=x>x</a></div>",
        "<p>Go on with <a rel=next href=2>the next chapter</a>.</p>",
        "<p>See <a href='#valves'>skip to my lou</a> and more.</p>",
        "<div class='toc'>In this part we first look at valves, then at pumps. <a href='#v'>Valves</a></div>",
        "<ul><li><a href=1>Pump</a><li><a href=2>Valve</a><li><a href=3>Hose</a></ul>",
        "<article><div class=related><a href=1>Pumps</a> and <a href=2>Valves</a> go together in any well."
        "</div></article>",
    ],
)
def test_what_may_be_content_stays(part: str) -> None:
    document = of(f"<p>First.</p>{part}<p>Last.</p>")
    assert indexed(document).split() == document.text.split()


def test_a_shadow_tree_is_shown_and_other_templates_are_not() -> None:
    document = of(
        "<my-card><template shadowrootmode=open><style>s</style><h2>Pumps</h2><p>Text <slot></slot></p>"
        "<template><p>inert</p></template></template></my-card><template><p>never</p></template><p>end"
    )
    assert document.text == "Pumps\n\nText\n\nend"


# --- pages that mark no headings --------------------------------------------------------------------------------------

BODY = "<p>" + "The company sells pumps and valves to farms in three counties. " * 4 + "</p>"


def test_bold_paragraphs_head_a_page_without_headings() -> None:
    document = of(
        "<p align=center style='font-size:18pt;font-weight:bold'>Acme Pumps, Inc.</p><p>(Name of registrant)</p>"
        f"<p style='text-align:center'><b>PART I</b></p><div><b>Item 1. Business</b></div>{BODY}{BODY}"
        f"<div><span style='font-weight:700'>Item 1A. Risk Factors</span></div>{BODY}"
        f"<center><b>PART II</b></center><table><tr><td><b>Item 5.</b></td><td><b>Market</b></td></tr></table>{BODY}"
    )
    assert headings(document) == [
        (1, "Acme Pumps, Inc."),
        (2, "PART I"),
        (3, "Item 1. Business"),
        (3, "Item 1A. Risk Factors"),
        (2, "PART II"),
        (3, "Item 5. Market"),
    ]
    assert document.title == "Acme Pumps, Inc."


@pytest.mark.parametrize(
    "page",
    [
        f"<h2>Real</h2><p><b>Bold</b></p>{BODY}",
        "<p><b>All of it</b></p><p><b>is set bold, and so nothing is a heading here</b></p>",
        f"<p><b>Note:</b> keep dry.</p>{BODY}",
        "<p><b>" + "A whole paragraph that is bold. " * 6 + f"</b></p>{BODY}",
        f"<p><b>(702) 939-3254</b></p>{BODY}",
        f"<p style='font-weight:bold'><span style='font-weight:normal'>Not bold</span></p>{BODY}",
        "<table><tr><td><b>a</b><td><b>b</b><tr><td>1<td>2</table>" + BODY,
    ],
    ids=["real", "all", "run in", "long", "number", "normal", "table"],
)
def test_other_bold_text_is_no_heading(page: str) -> None:
    assert [title for _, title in headings(of(page))] in ([], ["Real"])


# --- real files -------------------------------------------------------------------------------------------------------


def real(shared: Path, name: str) -> Document:
    document = read(name, (shared / "realdocs/round2" / name).read_bytes())
    check(document)
    assert document.status == "ok"
    return document


def test_wiki_duck(shared: Path, tokenizer: Path) -> None:
    document = real(shared, "wiki_duck.html")
    assert document.title == "Duck"
    assert headings(document)[0] == (1, "Duck")
    assert len(headings(document)) == 20
    kept = indexed(document)
    assert not any(part in kept for part in ("[edit]", "Jump to content", "Afrikaans", "العربية", "Main menu"))
    assert "Duck is the common name for numerous species of waterfowl" in kept
    titles = {title for _, title in headings(document)}
    chunks = split(document, document.title, Ruler(tokenizer, limit=512), ChunkerSettings())
    assert not [chunk for chunk in chunks if set(chunk.text.split("\n\n")) <= titles]


def test_sec_10k(shared: Path) -> None:
    document = real(shared, "sec-10k-1p.html")
    assert document.title == "Galaxy Gaming, Inc."
    assert headings(document) == [
        (1, "Galaxy Gaming, Inc."),
        (2, "GALAXY GAMING, INC."),
        (2, "ANNUAL REPORT ON FORM 10-K FOR THE YEAR ENDED DECEMBER 31, 2021"),
        (2, "TABLE OF CONTENTS"),
    ]
    assert "Item 1A. | Risk Factors | 9" in content(document, "row")


def test_every_real_page_keeps_its_words(shared: Path) -> None:
    for path in sorted((shared / "realdocs/html").glob("*.html")):
        document = read(path.name, path.read_bytes())
        assert not [node for node in document.nodes if node.left_out], path.name
        assert nodes(document, "paragraph") or nodes(document, "list") or nodes(document, "row") or document.text


@pytest.mark.parametrize(
    "html",
    [
        "<div class=gutter>" * 500 + "1 " * 100_000 + "x",
        "<span class='icon copy-btn'>" * 500 + "word " * 100_000,
        "<div class=sidebar>" * 500 + "<a href=x>link</a>" * 20_000,
        "<p><b>Bold</b></p>" * 50_000,
        "<template shadowrootmode=open>" * 50_000,
        "<table><tr><td>" * 2_000 + "<b>x</b>",
        "<ul><li><a hreflang=de href=x>a</a>" * 5_000,
    ],
    ids=["gutter", "icon", "sidebar", "bold", "shadow", "tables", "languages"],
)
def test_no_sign_takes_long(html: str) -> None:
    begin = time.process_time()
    check(parse(html.encode()))
    assert time.process_time() - begin < 8, "under two seconds where nothing else runs"
