"""Tell an operator how scheduled runs end: notices by HTTP, and the outcomes that decide which are due.

Invariants:
- Nothing here raises for a receiver or a state folder that is away: a warning on standard error, and the run goes on.
- Neither the token nor the address below its host is ever printed.
- Each miss of the nightly build is told once, and so is each recovery.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import filelock
import httpx
import msgspec

from enrich.files import atomic_write, make_folder
from flows.settings import Settings, notify_token
from indexes.storage import seal

NoticeKind = Literal["failed", "refused", "recovered", "missed", "held", "staged"]
RunOutcome = Literal["completed", "failed", "refused", "held", "staged"]
NIGHTLY: Final = "nightly"  # the run that check_missed asks about
NOTICE_SECONDS: Final = 10.0  # that a receiver may take to answer
NOTICE_TRIES: Final = 3
_PAUSE: Final = 1.0  # seconds before the second try; twice as long before the third
_LOCK_SECONDS: Final = 10.0  # that another process may hold the outcomes


class LastOutcome(msgspec.Struct):
    """How a job ended last.

    Attributes:
        at: when it ended.
    """

    outcome: RunOutcome
    at: datetime


class Outcomes(msgspec.Struct):
    """The last outcomes of the scheduled runs of one index, as its file keeps them.

    Attributes:
        index: the index's address.
        jobs: the last outcome of each job.
        watched: when the nightly build was first asked about.
        told: the miss that was told last: the time since which no nightly build had finished.
        digest: see :mod:`indexes.storage.seal`; last.
    """

    index: str
    jobs: dict[str, LastOutcome] = {}
    watched: datetime | None = None
    told: datetime | None = None
    digest: str = ""


def notify(settings: Settings, kind: NoticeKind, title: str, details: Mapping[str, Any]) -> bool:
    """Post a notice to the receiver of the settings; return whether it took it."""
    if not settings.notify_url:
        return False
    notice = {"kind": kind, "index": settings.index, "title": title, "details": dict(details), "at": _stamp(_now())}
    problem = ""
    for number in range(NOTICE_TRIES):
        if number:
            time.sleep(_PAUSE * 2 ** (number - 1))
        problem, again = _post(settings.notify_url, msgspec.json.encode(notice, enc_hook=str))
        if not again:
            break
    if problem:
        _warn(f"the notice {title!r} could not be sent to {_host(settings.notify_url)}: {problem}")
    return not problem


def record_outcome(settings: Settings, job: str, outcome: RunOutcome, title: str, details: Mapping[str, Any]) -> None:
    """Keep how a job ended, and send the notice that this calls for, if any.

    Args:
        title: says in one line how it ended.
        details: further facts, for the notice.
    """
    before: LastOutcome | None = None
    with _kept(settings) as kept:
        before = kept.jobs.get(job)
        kept.jobs[job] = LastOutcome(outcome, _now())
    if outcome != "completed":
        notify(settings, outcome, title, details)
    elif before is not None and before.outcome != "completed":
        since = {"was": before.outcome, "since": _stamp(before.at)}
        notify(settings, "recovered", title, {**details, **since})


def check_missed(settings: Settings, now: datetime) -> bool:
    """Send a notice if no nightly build has finished for too long, once; return whether one was due."""
    with _kept(settings) as kept:
        last = kept.jobs.get(NIGHTLY)
        kept.watched = kept.watched or now
        since = last.at if last is not None else kept.watched
        due = now - since > timedelta(hours=settings.nightly_hours) and kept.told != since
        if due:
            kept.told = since
    if due:
        hours = (now - since).total_seconds() / 3600
        title = f"No nightly build of {settings.index} has finished for {hours:.0f} hours"
        notify(settings, "missed", title, {"job": NIGHTLY, "since": _stamp(since), "hours": round(hours, 1)})
    return due


def index_digest(settings: Settings) -> str:
    """Return twelve digits that name the index, whatever folder its address is read from."""
    return hashlib.sha256(_whole_address(settings.index).encode()).hexdigest()[:12]


def outcomes_file(settings: Settings) -> Path:
    """Return the file that keeps the outcomes of this index."""
    return settings.state_dir / f"outcomes-{index_digest(settings)}.json"


def _whole_address(index: str) -> str:
    return index.rstrip("/") if "://" in index else str(Path(index).expanduser().absolute())


@contextmanager
def _kept(settings: Settings) -> Iterator[Outcomes]:
    """Yield the outcomes of the index and keep what the block makes of them; a block that raises nothing."""
    path = outcomes_file(settings)
    kept = Outcomes(_whole_address(settings.index))
    lock = filelock.FileLock(path.with_suffix(".lock"), timeout=_LOCK_SECONDS)
    try:
        make_folder(path.parent)
        lock.acquire()
        kept = _read(path) or kept
    except (OSError, filelock.Timeout) as error:
        _warn(f"the outcomes of scheduled runs in {path} cannot be read: {error}")
    try:
        yield kept
        if lock.is_locked:
            data = msgspec.json.encode(msgspec.structs.replace(kept, digest=""))
            atomic_write(path, seal.seal(msgspec.json.format(data, indent=2) + b"\n"))
    except OSError as error:
        _warn(f"the outcomes of scheduled runs in {path} cannot be kept: {error}")
    finally:
        lock.release()


def _read(path: Path) -> Outcomes | None:
    """Return the kept outcomes; None where there are none, or they are damaged."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if seal.broken(data):
        _warn(f"{path} is damaged; the outcomes of earlier runs are forgotten")
        return None
    try:
        return msgspec.json.decode(data, type=Outcomes)
    except msgspec.DecodeError:
        _warn(f"{path} was written by another version; the outcomes of earlier runs are forgotten")
        return None


def _post(url: str, body: bytes) -> tuple[str, bool]:
    """Post once; return what went wrong, if anything, and whether to try again."""
    headers = {"Content-Type": "application/json"}
    if token := notify_token():
        headers["Authorization"] = f"Bearer {token}"
    try:
        answer = httpx.post(url, content=body, headers=headers, timeout=NOTICE_SECONDS)
    except (
        httpx.HTTPError,
        httpx.InvalidURL,
        OSError,
        ValueError,
    ) as error:  # a message of theirs may hold the address
        return type(error).__name__, isinstance(error, httpx.TransportError)
    if answer.is_success:
        return "", False
    return f"status {answer.status_code}", answer.status_code >= 500 or answer.status_code == 429


def _host(url: str) -> str:
    """Return what of an address holds no secret."""
    try:
        return urlsplit(url).hostname or "the receiver"
    except ValueError:
        return "the receiver"


def _now() -> datetime:
    return datetime.now(UTC)


def _stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")


def _warn(line: str) -> None:
    sys.stderr.write(f"warning: {line}\n")
