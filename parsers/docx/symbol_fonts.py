"""Unicode equivalents of the characters in symbol fonts.

Symbol fonts number their glyphs 0x20 to 0xFF; Word stores them there or in the private use area, 0xF020 to 0xF0FF.
Sources: L2/11-052 (Wingdings, Webdings) and Adobe's Symbol encoding. Where several equivalents exist, the table has
the common one (``✓``, though Unicode has a heavier tick too), because people search for that.
"""

from __future__ import annotations

from typing import Final

_PRIVATE: Final = 0xF000


def _table(start: int, characters: str) -> dict[int, str]:
    return {start + offset: character for offset, character in enumerate(characters) if character != " "}


_ARROWS: Final = "←→↑↓↖↗↙↘"
_WINGDINGS: Final = (
    _table(0x21, "✏✂✁👓🔔📖🕯☎✆✉✉📪📫📬📭📁📂📄📄📄🗄⌛⌨🖰🖲💻🖴💾🖬✇✍🖎✌👌👍👎☜☞☝☟🖐☺😐☹💣☠🏳🏱✈☼💧❄🕆✞🕈✠✡☪☯ॐ☸")
    | _table(0x5E, "♈♉♊♋♌♍♎♏♐♑♒♓&&●❍■□□❑❒◆◆◆❖◆⌧⍓⌘❀✿“”")
    | _table(0x80, "⓪①②③④⑤⑥⑦⑧⑨⑩⓿❶❷❸❹❺❻❼❽❾❿")
    | _table(0x9E, "·•▪○○○◉◎○▪☐")
    | _table(0xAA, "✦★✶✴✹✵")
    | _table(0xB5, "✪✰🕐🕑🕒🕓🕔🕕🕖🕗🕘🕙🕚🕛")
    | _table(0xD5, "⌫⌦")
    | _table(0xDF, _ARROWS + _ARROWS + "⇦⇨⇧⇩⬄⇳")
    | _table(0xFB, "✗✓☒☑")
)
_WINGDINGS_2: Final = _table(0x4F, "✗✓☒☑☒☒") | _table(0x6A, "①②③④⑤⑥⑦⑧⑨⑩") | {0x97: "•", 0x98: "●", 0xA2: "■", 0xA3: "☐"}
_WINGDINGS_3: Final = _table(0x66, "←→↑↓↖↗↙↘") | _table(0x70, "▲▼△▽◀▶◁▷")
_WEBDINGS: Final = _table(0x31, "♪ ◀▶▲▼") | _table(0x61, "✓ □   ■ ℹ    ●   ✗") | {0x81: "🔍"}
_SYMBOL: Final = (
    _table(0x21, "!∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_")
    | _table(0x61, "αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼")
    | _table(0xA0, "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…")
    | _table(0xBF, "↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊〈®©™∑")
    | {0xF1: "〉", 0xF2: "∫"}
)
_FONTS: Final = {
    "wingdings": _WINGDINGS,
    "wingdings 2": _WINGDINGS_2,
    "wingdings 3": _WINGDINGS_3,
    "webdings": _WEBDINGS,
    "symbol": _SYMBOL,
}


def is_symbol_font(font: str) -> bool:
    """Return whether a font has symbols in place of letters."""
    return font.strip().casefold() in _FONTS


def symbol(font: str, point: int) -> str | None:
    """Return the Unicode equivalent of a symbol font's character; None where it is unknown.

    Args:
        font: name of the font, in any letter case.
        point: the stored code point, with or without the offset of the private use area.
    """
    code = point - _PRIVATE if _PRIVATE <= point <= _PRIVATE + 0xFF else point
    if code == 0x20:
        return " "
    return _FONTS.get(font.strip().casefold(), {}).get(code)
