"""A golden set against the texts of a revision: which of its questions can be asked there."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from indexes.cache.caches import Caches
from indexes.cache.store import Cache
from indexes.catalog import CatalogRow
from indexes.evaluation.golden import Question, Stale, requirements
from indexes.storage.storage import Storage
from parsers.document import Document

if TYPE_CHECKING:
    from indexes.evaluation.record import AskedQuestion

HELD: Final = 16  # documents whose texts are held


@dataclass(frozen=True, slots=True)
class GoldenSet:
    """A golden set resolved against the texts of a revision.

    Attributes:
        asked: questions with an answer in it.
        unanswerable: questions that the set says have none.
        stale: id and reason of the questions that do not resolve.
    """

    path: Path
    digest: str
    asked: list[AskedQuestion]
    unanswerable: list[Question]
    stale: dict[str, str]

    @property
    def texts(self) -> list[str]:
        """The questions in the order in which they are put: those with an answer, then the others."""
        return [one.question for one in self.asked] + [one.question for one in self.unanswerable]


def resolve(path: Path, questions: Sequence[Question], texts: Mapping[str, str], *, strict: bool) -> GoldenSet:
    """Return the questions of a golden set against the texts of a revision, by key.

    Args:
        questions: what the file at ``path`` holds.

    Raises:
        Stale: when a question does not resolve and ``strict`` is set.
    """
    from indexes.evaluation.record import (
        AskedQuestion,  # it loads the libraries of the metrics, which few commands need
    )

    asked: list[AskedQuestion] = []
    stale: dict[str, str] = {}
    for question in questions:
        if not question.spans:
            continue
        try:
            asked.append(AskedQuestion.of(question, requirements(question, texts), texts))
        except Stale as error:
            if strict:
                raise
            stale[question.id] = error.message
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return GoldenSet(path, digest, asked, [one for one in questions if not one.spans], stale)


def texts_of(storage: Storage, rows: Iterable[CatalogRow]) -> Mapping[str, str]:
    """Return the indexed text of each document by its key, read when it is asked for.

    Asking for one raises :class:`indexes.evaluation.golden.Stale` when two sources hold that key, or the parsed
    document is no longer cached.
    """
    return _Texts(Caches(storage).documents, rows)


class _Texts(Mapping[str, str]):
    """Texts of documents by key, read when they are asked for; the last few are held."""

    def __init__(self, documents: Cache[Document], rows: Iterable[CatalogRow]) -> None:
        self._cache = documents
        self._documents: dict[str, str] = {}
        self._ambiguous: set[str] = set()
        for row in rows:
            if row.document:
                self._ambiguous.update({row.key} & self._documents.keys())
                self._documents[row.key] = row.document
        self._held: OrderedDict[str, str] = OrderedDict()

    def __getitem__(self, key: str) -> str:
        if key in self._ambiguous:
            raise Stale(f"document {key} is in two sources", "A golden set names documents of one source.")
        if key not in self._held:
            name = self._documents[key]
            document = self._cache.get([name]).get(name)
            if document is None:
                raise Stale(f"the text of document {key} is no longer cached", "Build the index again.")
            self._held[key] = document.text
            if len(self._held) > HELD:
                self._held.popitem(last=False)
        self._held.move_to_end(key)
        return self._held[key]

    def __contains__(self, key: object) -> bool:
        return key in self._documents

    def __iter__(self) -> Iterator[str]:
        return iter(self._documents)

    def __len__(self) -> int:
        return len(self._documents)
