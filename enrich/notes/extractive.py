"""Write notes without an LLM, from a passage's main names and its section's first sentence.

Invariants:
- Every word of a note is in the document.
- A note is a function of the window and the budget alone.
- A note never repeats the title and headings, which are printed beside it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from enrich.notes.grounding import quiet
from enrich.notes.note import Note, fit
from enrich.notes.prompts import Window
from enrich.notes.words import fold_word

MAX_NAMES: Final = 8

# Starts of definitions in common languages, at the beginning of a line; the group "name" is the defined name.
_NAME: Final = r"(?P<name>[A-Za-z_$][\w$]*(?:(?:::|\.)~?[A-Za-z_$][\w$]*)*)"
_MODIFIERS: Final = (
    r"(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|override|virtual|inline|extern"
    r"|constexpr|unsafe|const|pub(?:\([a-z]+\))?|sealed|open|data|partial|readonly|declare|suspend|local)\s+)*"
)
_DEFINES: Final = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        # Python, Ruby, Go, Rust, JavaScript, Kotlin, Swift, PHP, Lua: a keyword and a name that is called or typed
        rf"^[ \t]*{_MODIFIERS}(?:def|func|fn|function|fun|sub|proc|macro_rules!)\*?\s+(?:\([^)\n]*\)\s*)?"
        rf"(?:self\.)?{_NAME}"
        r"\s*(?=[(<:\[{!?=]|$)",
        # types in most languages
        rf"^[ \t]*{_MODIFIERS}(?:class|struct|enum|interface|trait|union|record|object|protocol|namespace|module|mod"
        rf"|package|actor|type|typedef struct|impl(?:<[^>\n]*>)?)\s+{_NAME}\s*"
        r"(?=[(<:{;=\[]|$|\s(?:extends|implements|struct|interface|for|where|with)\b)",
        # C, C++, Java, C#: a return type, a name, parameters and an opening brace on this line or the next
        rf"^(?:[ \t]*{_MODIFIERS})(?:unsigned\s+|struct\s+)?[A-Za-z_][\w:<>,.\[\]]*[ \t*&]+{_NAME}\([^;{{}}]*\)"
        r"[^;{}()\n]*\n?\s*\{",
        # constants, preprocessor names, assignments of functions
        rf"^[ \t]*#\s*define\s+{_NAME}",
        rf"^[ \t]*{_MODIFIERS}(?:const|static|let|var|val)\s+(?:mut\s+)?(?P<name>[A-Z][A-Z0-9_]{{2,}})\b",
        r"^(?P<name>[A-Z][A-Z0-9_]{2,})(?:\s*:[^=\n]+)?\s*=(?!=)",
        rf"^[ \t]*{_MODIFIERS}(?:const|let|var)\s+{_NAME}\s*=\s*(?:async\s*)?(?:function\b|\([^)\n]*\)\s*=>|\w+\s*=>)",
        # SQL and shell
        r"(?i:^[ \t]*create\s+(?:or\s+replace\s+)?(?:temp(?:orary)?\s+)?(?:table|view|function|procedure|index|type)\s+"
        r"(?:if\s+not\s+exists\s+)?)[\"`\[]?(?P<name>[A-Za-z_][\w.]*)",
        r"^(?P<name>[A-Za-z_][\w-]*)\s*\(\)\s*\{",
    )
)
_KEYWORDS: Final = re.compile(
    r"(?i:if|for|while|switch|catch|return|else|do|try|new|delete|sizeof|typeof|await|yield|with|elif|except|main|self)"
)
_IDENTIFIER: Final = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)*(?!\w|\.\d)")
_CODE_LIKE: Final = re.compile(r"[a-z\d][A-Z]|\w_\w|\w(?:\.|::)\w|[A-Za-z]\d")
_DESIGNATION: Final = re.compile(r"\b(?=[\w-]*\d)[A-Z][A-Z\d]*(?:[-_][A-Z\d]+)*\b|\bv\d+(?:\.\d+)+\b")
_PROPER: Final = re.compile(
    r"(?<=[^\W\d_.!?:;] |[,)’'] )(?P<name>[^\W\d_a-z][^\W\d_]+(?: (?:of |de |von |van |du |la )?[^\W\d_a-z][^\W\d_]+)*)"
)


def extractive(window: Window, budget: int, count: Callable[[str], int]) -> Note:
    """Return the extractive note of a window.

    Args:
        window: context of the chunk.
        budget: maximum of tokens in the note.
        count: counts the tokens of a text.
    """
    calm = quiet(window)
    names = _untold(definitions(calm.text) or most_used(calm.text), calm)
    for candidate in _candidates(names[:MAX_NAMES], " ".join(calm.opening.split())):
        if fit(candidate, budget, count) == candidate:
            return Note(text=candidate, outcome="written", source="extractive")
    return Note(outcome="none", reason="the passage defines and repeats no name", source="extractive")


def definitions(text: str) -> list[str]:
    """Return names that a passage of code defines, in the order of their definition, each once."""
    found: dict[int, str] = {}
    for pattern in _DEFINES:
        for match in pattern.finditer(text):
            if not _KEYWORDS.fullmatch(match["name"]):
                found.setdefault(match.start("name"), match["name"])
    return list(dict.fromkeys(found[position] for position in sorted(found)))


def most_used(text: str) -> list[str]:
    """Return identifiers of a passage, and proper names it uses more than once, by frequency.

    Equal counts keep their order of appearance.
    """
    counts: Counter[str] = Counter(word for word in _IDENTIFIER.findall(text) if _CODE_LIKE.search(word))
    for word in _DESIGNATION.findall(text):
        counts.setdefault(word, 0)
        counts[word] += 1
    names = Counter(match["name"] for match in _PROPER.finditer(text))
    counts.update({name: count for name, count in names.items() if count > 1})
    return [name for name, _ in counts.most_common()]


def _untold(names: Iterable[str], window: Window) -> list[str]:
    """Return the names that are in neither the title nor the headings."""
    told = fold_word("\n".join([window.title, *window.heading_path]))
    return [name for name in names if fold_word(name) not in told]


def _candidates(names: list[str], opening: str) -> Iterable[str]:
    """Yield candidate notes, the longest first."""
    for kept in range(len(names), 0, -1):
        listed = f"{', '.join(names[:kept])}."
        if opening:
            yield f"{listed} {opening}"
        yield listed
    if opening:
        yield opening
