"""Han characters and Hangul syllables that are words by themselves, which pairs of characters cannot tell.

Invariants: the characters of a token depend on that token alone; work grows linearly with its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_HAN: Final = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_SYLLABLE: Final = "\uac00-\ud7a3"
_SINGLE: Final = re.compile(f"[{_HAN}{_SYLLABLE}]")
# Words of grammar, of which questions are made; longer ones first.
_CHINESE: Final = """
之后 之前 以后 以前 之间 之中
为什么 什么 怎么 怎样 哪里 哪儿 哪个 多少 如何 我们 你们 他们 她们 它们 这个 那个 一个 一只 没有 可以 是否 为何 何处
的 了 吗 呢 吧 啊 呀 么 是 在 有 无 没 不 我 你 您 他 她 它 这 那 哪 谁 何 几 和 与 及 或 也 都 就 还 很 要 会 能 想
可 把 被 让 给 从 到 对 向 为 于 之 其 个 只
"""
_JAPANESE: Final = """
でしょうか でしょう について どんな どこ どれ どの どう なに なん いつ だれ なぜ いくら いくつ ですか ますか
ました ません います いる あります ある です ます した する して という とは には では から まで は が を に の で
と も へ や か
"""
_GRAMMAR: Final = re.compile("|".join((_CHINESE + _JAPANESE).split()))
_BORDER: Final = re.compile("|".join(_CHINESE.split()) + f"|[^{_HAN}{_SYLLABLE}]+")
_KOREAN: Final = re.compile(f"(?<![{_SYLLABLE}])([{_SYLLABLE}])[은는이가을를의에도로와과만]?(?![{_SYLLABLE}])")


def single(text: str) -> Iterator[str]:
    """Return every character of a text that could be a word."""
    return iter(_SINGLE.findall(text))


def words(text: str) -> Iterator[str]:
    """Characters of a question that are words: alone, between kana or words of grammar, before a Korean particle."""
    yield from (part for part in _BORDER.split(text) if len(part) == 1)
    yield from _KOREAN.findall(text)


def grammar(text: str) -> Iterator[str]:
    """Pairs of characters of a question that lie within words of grammar."""
    found = [match.span() for match in _GRAMMAR.finditer(text)]
    for place, (start, end) in enumerate(found):
        follows = place + 1 < len(found) and found[place + 1][0] == end
        yield from (text[one : one + 2] for one in range(start, end if follows else end - 1))
