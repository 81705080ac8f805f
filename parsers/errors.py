"""Every error this project raises on purpose, and what it tells the caller.

    GristmillError                 base: a message that says what, where; a remedy that says what to do
    ├── UsageError                 wrong use, settings or surroundings (exit status 2)
    │   ├── SourceError            the document store cannot be listed or read as a whole
    │   ├── ModelError             a model is unknown, missing or not what its hash says
    │   └── StoreError             the index cannot be opened, read or written
    ├── GateRefused                a build is finished and must not be published (exit status 4)
    ├── IndexBusy                  another build holds the index (exit status 5)
    ├── LLMFailure                 the LLM failed at one note (in enrich.notes.writer); the others go on
    └── DocumentError              one document cannot be read; the others go on
        ├── UnsupportedDocument    no adapter reads this kind of file
        └── BrokenDocument         the file is damaged, encrypted or not what its name says

Anything else that escapes is an internal error (exit status 1).
"""

from __future__ import annotations


class GristmillError(Exception):
    """A failure with a message that says what and where, and a remedy that says what to do.

    Args:
        message: what went wrong and where, without a final full stop.
        remedy: the next step for the reader; empty where there is none.
        transient: whether it may pass by itself, so that the same command can go well later: an outage, no mistake.
    """

    exit_status = 1

    def __init__(self, message: str, remedy: str = "", *, transient: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.transient = transient

    def __str__(self) -> str:
        return f"{sentence(self.message)} {self.remedy}" if self.remedy else self.message


class UsageError(GristmillError):
    """Wrong use, wrong settings, or surroundings that do not allow the work."""

    exit_status = 2


class SourceError(UsageError):
    """The document store as a whole cannot be listed or read."""


class ModelError(UsageError):
    """A model is unknown, missing, or its files are not those that its hash names."""


class StoreError(UsageError):
    """The index cannot be opened, read or written."""


class GateRefused(GristmillError):
    """A finished build did not pass a gate, so nothing was published.

    Args:
        checks: the gates up to this one, with their figures.
    """

    def __init__(self, message: str, remedy: str = "", checks: dict[str, str] | None = None) -> None:
        super().__init__(message, remedy)
        self.checks = checks or {}

    exit_status = 4


class IndexBusy(GristmillError):
    """Another build holds the index."""

    exit_status = 5

    def __init__(self, message: str, remedy: str = "", *, transient: bool = True) -> None:
        super().__init__(message, remedy, transient=transient)


class DocumentError(GristmillError):
    """One document cannot be read; its status and reason go to the catalog and the rest goes on."""

    status = "failed"


class UnsupportedDocument(DocumentError):
    """No adapter reads this kind of file: the document is skipped."""

    status = "skipped"


class BrokenDocument(DocumentError):
    """The file is damaged, encrypted, or not what its name says."""


def sentence(message: str) -> str:
    """Return a message with a full stop, unless a question mark ends it."""
    return message if message.endswith("?") else f"{message}."
