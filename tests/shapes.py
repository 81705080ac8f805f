"""Generated files of many shapes, each of about a wanted number of characters, for tests of time and memory."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

SEED: Final = 15
Make = Callable[[int], str]

_THAI: Final = "ระบบสูบน้ำจะหยุดทำงานโดยอัตโนมัติเมื่อแรงดันในท่อหลักสูงเกินกว่าค่าที่กำหนดไว้"
_LAO: Final = "ລະບົບສູບນ້ຳຈະຢຸດເຮັດວຽກໂດຍອັດຕະໂນມັດເມື່ອຄວາມດັນສູງເກີນໄປ"
_KHMER: Final = "ប្រព័ន្ធបូមទឹកនឹងឈប់ដំណើរការដោយស្វ័យប្រវត្តិនៅពេលសម្ពាធខ្ពស់ពេក"
_BURMESE: Final = "ရေစုပ်စနစ်သည်ဖိအားမြင့်လွန်းသောအခါအလိုအလျောက်ရပ်တန့်မည်"
_TIBETAN: Final = "ཆུ་འདྲེན་འཕྲུལ་འཁོར་ནི་གནོན་ཤུགས་ཆེ་དྲགས་ན་རང་འགུལ་གྱིས་མཚམས་འཇོག་གི་རེད་"
_CHINESE: Final = "水泵坏了需要更换密封件，请先关闭阀门。然后打开出口！"
_JAPANESE: Final = "ポンプが故障しました。「弁を閉めてください。」と言った。次に出口を開けます！"
_PROSE: Final = "The pump stands in hall 3, beside the valve. It runs at night when nobody is there. Why does it stop? "


def repeated(unit: str) -> Make:
    """Make texts that repeat one piece."""
    return lambda size: unit * -(-size // len(unit))


def _numbered(line: str, before: str = "", behind: str = "") -> Make:
    def make(size: int) -> str:
        return before + "".join(line.format(n=n) for n in range(-(-size // len(line.format(n=9999))))) + behind

    return make


def _random(alphabet: str) -> Make:
    return lambda size: "".join(Random(SEED).choices(alphabet, k=size))


def _base64(size: int) -> str:
    return base64.b64encode(Random(SEED).randbytes(size * 3 // 4)).decode()


def _json(size: int) -> str:
    rows = ({"id": n, "name": f"pump {n}", "ok": n % 2 == 0, "notes": ["a", None, 1.5]} for n in range(size // 66))
    return json.dumps(list(rows), separators=(",", ":"))


def _geojson(size: int) -> str:
    random = Random(SEED)
    points = [[round(random.uniform(5, 15), 5), round(random.uniform(45, 55), 5)] for _ in range(size // 20)]
    return json.dumps({"type": "LineString", "coordinates": points}, separators=(",", ":"))


def _nested_lists(size: int) -> str:
    """Lists of 40 levels, again and again."""
    block = "".join(f"{'  ' * depth}- item at depth {depth}\n" for depth in range(40)) + "\ntext\n\n"
    return repeated(block)(size)


def _pyramid(opening: str, closing: str) -> Make:
    """Elements nested as deep as the size allows."""

    def make(size: int) -> str:
        count = size // (len(opening) + len(closing))
        return opening * count + "deep" + closing * count

    return make


def _ticks(size: int) -> str:
    """Runs of backticks of rising length, none of which closes another."""

    def runs() -> Iterator[str]:
        length, total = 1, 0
        while total < size:
            yield f"{'`' * length} a <!-- b --> "
            total += length + 14
            length = length % 60 + 1

    return "".join(runs())


KINDS: Final[dict[str, tuple[str, Make]]] = {
    "prose": ("a.txt", repeated(_PROSE)),
    "prose in paragraphs": ("a.txt", repeated(_PROSE + "\n\n")),
    "one-line JSON": ("a.json", _json),
    "geojson": ("a.geojson", _geojson),
    "JSON as text": ("a.txt", _json),
    "one-line CSS": ("a.css", _numbered(".c{n}>a:hover{{color:#0f{n};margin:0 auto}}")),
    "one-line JavaScript": ("a.js", _numbered("function f{n}(a,b){{return a[{n}]+b.c({n})}};")),
    "base64": ("a.txt", _base64),
    "base64 as data URIs": ("a.md", lambda size: f"![x](data:image/png;base64,{_base64(size)})\n\nText.\n"),
    "base64 in pre": ("a.html", lambda size: f"<p>a</p><pre>{_base64(size)}</pre><p>b</p>"),
    "many small images": ("a.md", _numbered("See ![x{n}](data:image/png;base64," + _base64(700) + ") here.\n\n")),
    "hex": ("a.txt", _random("0123456789abcdef")),
    "DNA": ("a.txt", _random("ACGT")),
    "glued addresses": ("a.md", _numbered("https://example.org/path/{n}?q=a.b&c=d#e.f,")),
    "full stops": ("a.txt", repeated(".")),
    "hyphens": ("a.md", repeated("-")),
    "letters x": ("a.txt", repeated("x")),
    "quotes": ("a.txt", repeated('"')),
    "stops and quotes": ("a.txt", repeated('. "')),
    "blanks": ("a.txt", lambda size: "a" + " " * size + "b"),
    "line ends": ("a.md", lambda size: "a" + "\n" * size + "b"),
    "one-letter lines": ("a.txt", repeated("a\n")),
    "one-letter lines of Markdown": ("a.md", repeated("a\n")),
    "Thai": ("a.txt", repeated(_THAI)),
    "Thai phrases": ("a.txt", repeated(_THAI + " ")),
    "Lao": ("a.txt", repeated(_LAO)),
    "Khmer": ("a.txt", repeated(_KHMER)),
    "Burmese": ("a.txt", repeated(_BURMESE)),
    "Tibetan": ("a.txt", repeated(_TIBETAN)),
    "one-line Chinese": ("a.txt", repeated(_CHINESE)),
    "Chinese without a stop": ("a.txt", repeated("水泵坏了需要更换密封件")),
    "one-line Japanese": ("a.md", repeated(_JAPANESE)),
    "emoji": ("a.txt", repeated("👩‍👩‍👧‍👦🇩🇪👍🏽😀")),
    "flags": ("a.txt", repeated("🇩🇪")),
    "combining marks": ("a.txt", lambda size: "a" + "\u0301" * size),
    "nested lists": ("a.md", _nested_lists),
    "deep list": ("a.md", lambda size: "- " * (size // 2) + "a\n"),
    "deep numbered list": ("a.md", lambda size: "1. " * (size // 3) + "a\n"),
    "deep quote": ("a.md", lambda size: "> " * (size // 2) + "a\n"),
    "nested quotes": ("a.md", repeated("> > > > > > > > said\n> > > > and more\n\n")),
    "lazy quote": ("a.md", lambda size: ">>>>>>>>>> a\n" + "lazy line\n" * (size // 10)),
    "flat list": ("a.md", repeated("- a short item\n")),
    "headings with bodies": ("a.md", _numbered("## Heading {n}\n\nThe body of part {n}.\n\n")),
    "headings without bodies": ("a.md", _numbered("## Heading {n}\n\n")),
    "headings of HTML": ("a.html", _numbered("<h2>Heading {n}</h2>")),
    "one long heading": ("a.md", lambda size: "# " + _PROSE * (size // len(_PROSE)) + "\n\ntext\n"),
    "one long heading of HTML": (
        "a.html",
        lambda size: f"<h1>{'word ' * (size // 10)}</h1>" + "<h2>a</h2>b" * (size // 22),
    ),
    "long title of HTML": (
        "a.html",
        lambda size: f"<title>{'word ' * (size // 10)}</title>{'<h2>a</h2>b' * (size // 22)}",
    ),
    "table": ("a.md", _numbered("| part {n} | {n} bar | a seal |\n", "| part | gauge | of |\n|---|---|---|\n")),
    "wide table": ("a.md", lambda size: f"|{'a|' * (size // 7)}\n|{'---|' * (size // 7)}\n|{'b|' * 3}\n"),
    "table of HTML": ("a.html", _numbered("<tr><td>part {n}<td>{n}<td>seal", "<table>", "</table>")),
    "table of headers": ("a.html", _numbered("<tr><th>part {n}<th>{n}<th>seal", "<table>", "</table>")),
    "one wide row": (
        "a.html",
        lambda size: f"<table><tr>{'<td>a' * (size // 10)}{'<tr><td>1' * (size // 18)}</table>",
    ),
    "one cell of blocks": ("a.html", lambda size: f"<table><tr><td>{'<p>word' * (size // 7)}<td>b</table>"),
    "CSV": ("a.csv", _numbered("{n},part {n},12.5,seal\n", "id,name,gauge,of\n")),
    "opening brackets": ("a.md", repeated("[")),
    "closing brackets": ("a.md", repeated("]")),
    "brackets in lines": ("a.md", repeated("[a\n")),
    "brackets of HTML": ("a.html", repeated("<")),
    "tags never closed": ("a.html", repeated("<a ")),
    "comments never closed": ("a.md", repeated("a <!-- b ")),
    "comment lines never closed": ("a.md", repeated("<!-- b\n\n")),
    "comments": ("a.md", repeated("One <!-- note --> sentence here. ")),
    "comment blocks": ("a.md", repeated("One sentence here.\n\n<!-- note -->\n\n")),
    "comments of HTML never closed": ("a.html", repeated("<p>a <!-- b ")),
    "processing instructions": ("a.md", repeated("<?a\n\n")),
    "bracketed numbers": ("a.txt", _numbered("It ends here. [-{n}-] Then on. ")),
    "numbers": ("a.txt", _numbered("{n}. ")),
    "contents": ("a.txt", _numbered("CONTENTS\n\n\nCHAPTER {n}\n\nSome words of text.\n\n\n")),
    "deep HTML": ("a.html", _pyramid("<div>", "</div>")),
    "deep HTML lists": ("a.html", _pyramid("<ul><li>", "</li></ul>")),
    "deep HTML tables": ("a.html", _pyramid("<table><tr><td>", "</td></tr></table>")),
    "formatting never closed": ("a.html", repeated("<b><i>a<p>")),
    "links": ("a.md", _numbered("[link {n}](https://example.org/{n}) ")),
    "links of HTML": ("a.html", _numbered('<a href="{n}">link {n}</a> ')),
    "backticks": ("a.md", _ticks),
    "asterisks": ("a.md", repeated("*a **b ")),
    "underscores": ("a.md", repeated("_a __b ")),
    "reference definitions": ("a.md", _numbered("[name {n}]: https://example.org/{n} 'Title'\n")),
    "definitions never ended": ("a.md", repeated("[a]: b (x\n")),
    "footnotes": ("a.md", _numbered("Text[^{n}].\n\n[^{n}]: A note.\n\n")),
    "front matter never closed": ("a.md", _numbered("key{n}: value\n", "---\n")),
    "fences": ("a.md", repeated("```\ncode\n```\n")),
    "fence never closed": ("a.md", lambda size: "```\n" + "code line\n\n" * (size // 11)),
    "code": ("a.py", _numbered("def f{n}(a, b):\n    return a + {n}\n\n")),
    "code without blank lines": ("a.py", _numbered("f{n} = a + {n}\n")),
    "menus": ("a.html", repeated("<nav><ul><li><a href=1>One</a></ul></nav><p>Text of it.</p>")),
    "menus in articles": ("a.html", repeated("<article><header><a href=1>x</a></header><p>Text.</p></article>")),
    "bad UTF-8": ("a.txt", repeated("caf\udce9 au lait. ")),
}


def generated(kind: str, size: int) -> tuple[str, bytes]:
    """Name and bytes of a file of a kind, of about so many characters."""
    name, make = KINDS[kind]
    return name, make(size).encode("utf-8", "surrogateescape")
