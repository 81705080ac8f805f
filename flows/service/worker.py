"""The warm worker: builds the keys of the inbox, and everything when the schedule says so, with models kept open.

Invariants:
- One build runs at a time; keys that came meanwhile make the next one.
- No outage loses or drops a key: it waits in the inbox. What fails by itself is set aside with the reason, and the keys
  beside it go on.
- While the index is held, events wait, and this is told once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from flows.build.build import BuildOptions
from flows.context import open_source_of
from flows.opening import open_storage
from flows.service.inbox import Inbox, Waiting
from flows.settings import Settings
from parsers.errors import GateRefused, GristmillError, IndexBusy, UsageError

KEYS_AT_ONCE: Final = 1_000  # keys of one build
TRIES_ALONE: Final = 3  # builds of a key alone before it is set aside
BUSY_SECONDS: Final = 5.0  # until an index that another build holds is tried again
OUTAGE_SECONDS: Final = (5.0, 15.0, 60.0, 300.0)  # after the first, second … failure that may pass by itself
HELD_SECONDS: Final = 15.0
LAST_NIGHTLY: Final = "last nightly"

_LOG: Final = logging.getLogger(__name__)
Tell = Callable[[str, str, dict[str, Any]], object]  # kind, title and details of a notice


class RunBuild(Protocol):
    """Runs a build and returns its report."""

    def __call__(self, settings: Settings, options: BuildOptions) -> dict[str, Any]: ...


class Worker:
    """Builds what the inbox and the schedule ask for.

    Args:
        settings: of the builds.
        inbox: that this worker alone empties.
        run: runs a build.
        tell: sends a notification.
        first_build: begin with a full build, where nothing is published: events name a few documents alone.
    """

    def __init__(
        self, settings: Settings, inbox: Inbox, run: RunBuild, tell: Tell, *, first_build: bool = False
    ) -> None:
        self._settings = settings
        self._inbox = inbox
        self._run = run
        self._tell = tell
        self._first_build = first_build
        self._outages = 0
        self._wait_until = 0.0
        self._trouble = ""
        self._told_of = ""
        self.last: dict[str, Any] = {}
        """The last build: ``at``, ``keys``, ``revision``, ``published``, ``seconds``."""

    def status(self) -> dict[str, Any]:
        """Return what the worker did last and what holds it up."""
        pointer = open_storage(self._settings).pointer()
        return {
            "index": self._settings.index,
            "revision": pointer.revision if pointer is not None else 0,
            "held": pointer.held if pointer is not None else "",
            "last_build": self.last,
            "last_nightly": self._inbox.noted(LAST_NIGHTLY),
            "trouble": self._trouble,
        }

    def step(self) -> bool:
        """Do what is due; return whether there was anything."""
        if time.time() < self._wait_until:
            return False
        if self._first_build or self._nightly_due(datetime.now().astimezone()):
            self._attempt(None)
            return True
        taken = self._inbox.take(KEYS_AT_ONCE)
        if taken:
            self._attempt(taken)
        return bool(taken)

    def seconds_to_wait(self, longest: float) -> float:
        """Return for how long nothing can be due, unless an event comes."""
        return min(longest, max(0.0, self._wait_until - time.time())) or longest

    def _nightly_due(self, now: datetime) -> bool:
        if self._settings.nightly_at is None:
            return False
        hour, minute = map(int, self._settings.nightly_at.split(":"))
        due = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
        due -= timedelta(days=due > now)
        last = self._inbox.noted(LAST_NIGHTLY)
        if not last:  # a service that is new waits for its first night
            self._inbox.note(LAST_NIGHTLY, now.isoformat(timespec="seconds"))
            return False
        return datetime.fromisoformat(last) < due

    def _attempt(self, taken: Sequence[Waiting] | None) -> None:
        """Run a build of keys, or of everything, and see to what became of it."""
        try:
            self._build(taken)
        except IndexBusy as error:
            self._pause(error, BUSY_SECONDS)
        except GateRefused as error:
            self._refused(taken, error)
        except GristmillError as error:
            self._outage(error)
        except Exception as error:
            _LOG.exception("a build failed")
            self._failed(taken, f"{type(error).__name__}: {error}")
        else:
            self._recovered()

    def _build(self, taken: Sequence[Waiting] | None) -> None:
        keys = None if taken is None else tuple(one.key for one in taken)
        begun = time.time()
        report = self._run(self._settings, BuildOptions(only_keys=keys, quiet=True))
        self.last = {
            "at": datetime.now().astimezone().isoformat(timespec="seconds"),
            "keys": None if keys is None else len(keys),
            "revision": report["revision"],
            "published": report["published"],
            "seconds": round(time.time() - begun, 3),
        }
        if taken is None:
            self._first_build = False
            self._inbox.note(LAST_NIGHTLY, self.last["at"])
        else:
            self._inbox.done(taken)

    def _refused(self, taken: Sequence[Waiting] | None, error: GateRefused) -> None:
        pointer = open_storage(self._settings).pointer()
        if pointer is not None and pointer.held:
            self._pause(error, HELD_SECONDS, kind="held")
        elif taken is None:
            self._note_nightly_failed(error.message)
            self._told("refused", error.message)
        elif str(error.checks.get("removals", "")).startswith("refused"):
            self._set_removals_aside(taken, error)
        else:
            self._failed(taken, error.message, kind="refused")

    def _set_removals_aside(self, taken: Sequence[Waiting], error: GateRefused) -> None:
        """Set the keys aside that are gone, which are too many; the others are built next."""
        source = open_source_of(self._settings)
        gone = [one for one in taken if source.look(one.key) is None]
        self._inbox.set_aside(gone or taken, error.message)
        self._told("refused", error.message)

    def _failed(self, taken: Sequence[Waiting] | None, reason: str, kind: str = "failed") -> None:
        """Find the keys that a build fails with, by halves; set a key aside that fails alone time after time."""
        if taken is None:
            self._note_nightly_failed(reason)
            self._told(kind, reason)
        elif len(taken) > 1:
            middle = len(taken) // 2
            for half in (taken[:middle], taken[middle:]):
                self._attempt(half)
        elif taken[0].attempts + 1 >= TRIES_ALONE:
            self._inbox.set_aside(taken, reason)
            self._told(kind, f"{taken[0].key} is set aside: {reason}")
        else:
            self._inbox.retry_later(taken, reason, OUTAGE_SECONDS[0])

    def _note_nightly_failed(self, reason: str) -> None:
        """Wait for the next night: what refused or broke this build would do so again."""
        self._first_build = False
        _LOG.error("the nightly build failed: %s", reason)
        self._inbox.note(LAST_NIGHTLY, datetime.now().astimezone().isoformat(timespec="seconds"))

    def _outage(self, error: GristmillError) -> None:
        """Wait longer each time for what may pass, or for someone to mend the settings; keys stay in the inbox."""
        seconds = OUTAGE_SECONDS[min(self._outages, len(OUTAGE_SECONDS) - 1)]
        self._outages += 1
        lasting = isinstance(error, UsageError) and not error.transient
        self._pause(error, seconds, kind="failed" if lasting or self._outages == len(OUTAGE_SECONDS) else "")

    def _pause(self, error: GristmillError, seconds: float, kind: str = "") -> None:
        self._wait_until = time.time() + seconds
        if kind:
            self._told(kind, error.message)
        self._trouble = self._trouble or error.message

    def _told(self, kind: str, message: str) -> None:
        """Tell of a trouble once, until it is over."""
        _LOG.warning("%s: %s", kind, message)
        self._trouble = message
        if self._told_of != message:
            self._told_of = message
            self._tell(kind, message, {"index": self._settings.index})

    def _recovered(self) -> None:
        if self._told_of:
            self._tell("recovered", "builds go on", {"index": self._settings.index, "after": self._told_of})
        self._told_of, self._trouble, self._outages, self._wait_until = "", "", 0, 0.0


def run_until(stopped: Callable[[], bool], worker: Worker, inbox: Inbox, settle: float, longest: float = 5.0) -> None:
    """Work until told to stop.

    Args:
        settle: seconds in which events that follow the first one join its build.
        longest: seconds between two looks at the schedule.
    """
    while not stopped():
        inbox.arrived.clear()
        if worker.step():
            continue
        if inbox.arrived.wait(worker.seconds_to_wait(longest)) and not stopped():
            time.sleep(settle)
