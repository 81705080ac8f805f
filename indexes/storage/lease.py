"""Who may build: a lock on a file, or a lease on an object of an S3 bucket.

Both are held by ``with``, and give what ``Hold`` promises while they are.

Invariants:
- Of several that ask, one holds the index, without trust in two machines' clocks.
- A killed builder blocks the index no longer than three lengths of its lease, whatever its clock showed.
- A builder that lost its lease can know it before it writes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import msgspec

from indexes.storage.objects import Conflict, Objects, unusable
from parsers.errors import IndexBusy, StoreError


class Hold(Protocol):
    """The right to build, while it is held.

    Attributes:
        token: rises with every holder; 0 where a lock cannot be lost.
        taken_over: whether the one before did not give it back: a build was killed, or stalls.
        lost: whether it is held no more.
    """

    @property
    def token(self) -> int: ...

    @property
    def taken_over(self) -> bool: ...

    @property
    def lost(self) -> bool: ...

    def check(self) -> None:
        """Make sure that it is still held.

        Raises:
            StoreError: when it was lost.
        """
        ...


class FolderLock:
    """A lock on a file of this machine; it goes with the process, however that ends.

    Args:
        path: the file; its folder is there.
        address: the index, as a person would write it; by default the file's folder.
    """

    def __init__(self, path: Path, address: str = "") -> None:
        self.token = 0
        self.taken_over = False
        self.lost = False
        self._path = path
        self._address = address or str(path.parent)
        self._handle = -1

    def __enter__(self) -> Self:
        """Take the lock.

        Raises:
            IndexBusy: when another build holds it.
            StoreError: when the file cannot be written.
        """
        try:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise unusable(self._address, error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(handle, 0)
            os.write(handle, str(os.getpid()).encode())
        except OSError as error:
            os.close(handle)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise unusable(self._address, error) from error
            raise IndexBusy(
                f"index {self._address}: another build holds it (process {self._holder()})", "Wait for it to end."
            ) from error
        self._handle = handle
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)

    def check(self) -> None:
        """Nothing can take it away."""

    def _holder(self) -> str:
        try:
            return self._path.read_text() or "unknown"
        except OSError:
            return "unknown"


class _State(msgspec.Struct, frozen=True):
    """What the lease's object holds.

    Attributes:
        token: rises with every holder.
        holder: who holds it, for a person.
        expires: by the holder's clock, in seconds since 1970; 0 once it was given back.
        seconds: how long the holder counts on it after each renewal.
        by: names this one hold among all others.
        beat: rises with every renewal, so that no two states are equal.
    """

    token: int
    holder: str
    expires: float
    seconds: float
    by: str
    beat: int


class Lease:
    """A lease on an object, renewed by a thread while it is held.

    A lease of another is taken only after it was watched, unchanged, for its whole length: the holder counts that
    length from before its last renewal, so it has stopped by then, whatever either clock shows. What the object says of
    the time spares the watching where it is plausible: a lease runs out within its length from now. One that seems to
    run out later, by a clock that is ahead, is watched like one that seems to have run out.

    Args:
        objects: where the object is; its writes must keep their conditions. A write or a read should fail well within
            ``seconds``.
        key: the object's.
        seconds: how long it is held without a renewal.
        renew: seconds between renewals; by default a quarter of ``seconds``.
        now: seconds since 1970, to tell others when it runs out.
        clock: seconds of this machine that never jump and go on while it sleeps.
        sleep: waits for some seconds, while another's lease is watched.
    """

    def __init__(
        self,
        objects: Objects,
        key: str,
        *,
        seconds: float = 60.0,
        renew: float | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.token = 0
        self.taken_over = False
        self._objects = objects
        self._key = key
        self._seconds = seconds
        self._renew = seconds / 4 if renew is None else renew
        self._now = now
        self._clock = clock or _running
        self._sleep = sleep
        self._why = ""  # it was lost; empty while it is held
        self._by = ""
        self._beat = 0
        self._etag = ""
        self._deadline = 0.0
        self._leaving = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Take the lease.

        Raises:
            IndexBusy: when another build holds it.
            StoreError: when the object cannot be read or written.
        """
        self._by = uuid.uuid4().hex
        self._why = ""
        self._leaving.clear()
        found = self._found()
        if found is not None and found[0].expires:
            found = self._watched(*found)
        before = found[0] if found is not None else None
        self.token = before.token + 1 if before is not None else 1
        self.taken_over = before is not None and before.expires != 0
        started = self._clock()
        try:
            self._etag = self._write(found[1] if found is not None else None)
        except Conflict as error:
            now = self._found()
            raise self._busy(now[0] if now is not None else None) from error
        self._deadline = started + self._seconds
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the lease back, where it is still ours; where that fails, it runs out by itself."""
        self._leaving.set()
        if self._thread is not None:
            self._thread.join(self._seconds)
            if self._thread.is_alive():
                return
        with suppress(Conflict, StoreError):
            self._write(self._etag, released=True)

    @property
    def lost(self) -> bool:
        """Whether it is held no more: another took it, or it could not be renewed in time."""
        if not self._why and self._clock() >= self._deadline:
            self._why = "it could not be renewed in time"
        return bool(self._why)

    def check(self) -> None:
        """Make sure that it is still held.

        Raises:
            StoreError: when it was lost.
        """
        if self.lost:
            raise StoreError(
                f"index {self._objects.address}: this build lost its lease: {self._why}",
                "Build again: what was finished is remembered.",
                transient=True,
            )

    def _keep(self) -> None:
        """Renew it, until it is given back or lost."""
        while not self._leaving.wait(self._renew) and not self.lost:
            started = self._clock()
            try:
                self._etag = self._write(self._etag)
            except Conflict:
                if not self._reclaimed():
                    self._why = "another build took it"
            except StoreError:
                continue  # there is time left to try again, or `lost` says so
            else:
                self._deadline = max(self._deadline, started + self._seconds)

    def _reclaimed(self) -> bool:
        """Return whether the conflict was with a write of our own whose answer got lost."""
        try:
            found = self._found()
        except StoreError:
            return True  # not known; the next renewal meets the same conflict
        if found is None or found[0].by != self._by:
            return False
        self._etag = found[1]
        return True

    def _watched(self, state: _State, etag: str) -> tuple[_State, str]:
        """Return the state of a lease of another that has ended.

        Raises:
            IndexBusy: when it has not.
        """
        if self._now() < state.expires <= self._now() + state.seconds:
            raise self._busy(state)
        begun = self._clock()
        while (left := begun + state.seconds - self._clock()) > 0:
            self._sleep(min(left, state.seconds / 8))
            found = self._found()
            if found is None or (found[1] != etag and found[0].expires):
                raise self._busy(found[0] if found is not None else None)
            if found[1] != etag:
                return found
        return state, etag

    def _found(self) -> tuple[_State, str] | None:
        found = self._objects.get(self._key)
        if found is None:
            return None
        try:
            return msgspec.json.decode(found[0], type=_State), found[1]
        except msgspec.MsgspecError as error:
            raise StoreError(
                f"index {self._objects.address}: {self._key} is not a lease: {error}",
                "Make sure that no build runs, then delete that object.",
            ) from error

    def _write(self, etag: str | None, *, released: bool = False) -> str:
        self._beat += 1
        expires = 0.0 if released else self._now() + self._seconds
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        data = msgspec.json.encode(_State(self.token, holder, expires, self._seconds, self._by, self._beat))
        if etag is None:
            return self._objects.create(self._key, data)
        return self._objects.replace(self._key, data, etag)

    def _busy(self, state: _State | None) -> IndexBusy:
        if state is None or not state.expires:
            return IndexBusy(f"index {self._objects.address}: another build just held it", "Try again.")
        until = f"{datetime.fromtimestamp(state.expires, UTC):%Y-%m-%d %H:%M:%S} UTC"
        return IndexBusy(
            f"index {self._objects.address}: another build holds it ({state.holder}, until {until})",
            "Wait for it to end; if that process is dead, its lease runs out by itself.",
        )


def _running() -> float:
    """Seconds that never jump, and that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()
