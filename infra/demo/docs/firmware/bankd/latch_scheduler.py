"""Decides which latch is pulsed when.

A latch draws about 9 A for a fraction of a second. The power supply of a bank can feed three of them at
once, so requests wait in a queue. A latch that did not release is tried again, with growing pauses, and only
then reported. Time is handed in, never read, so that tests can run a day in a second.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

MAX_PARALLEL_PULSES = 3
"""More would pull the 48 V rail below 45 V on banks with an old supply."""

DEFAULT_PULSE_MS = 180
MIN_PULSE_MS, MAX_PULSE_MS = 120, 250

RETRY_DELAYS_S = (0.5, 2.0)
"""Pauses before the second and the third pulse. Frozen gaskets let go by themselves once the door heater has
had a second or two, which is what the longer pause is for."""

LOW_RAIL_VOLTS = 44.0


class PulseLengthError(ValueError):
    """A pulse length outside the permitted range; Roster shows it as ERR_CFG_02."""


@dataclass(order=True)
class Request:
    """One wish to open a compartment, ordered by the moment it is due."""

    due: float
    order: int
    compartment: str = field(compare=False)
    attempt: int = field(default=0, compare=False)


def check_pulse_length(pulse_ms: int) -> int:
    """Give the length back, or refuse it: too short does nothing, too long burns the coil."""
    if not MIN_PULSE_MS <= pulse_ms <= MAX_PULSE_MS:
        raise PulseLengthError(f"pulse_ms is {pulse_ms}; allowed are {MIN_PULSE_MS} to {MAX_PULSE_MS}")
    return pulse_ms


class LatchScheduler:
    """A queue of requests, and the few latches that are drawing current just now."""

    def __init__(self, pulse: Callable[[str, int], None], pulse_ms: int = DEFAULT_PULSE_MS) -> None:
        self._pulse = pulse
        self._pulse_ms = check_pulse_length(pulse_ms)
        self._queue: list[Request] = []
        self._busy_until: dict[str, float] = {}
        self._counter = 0

    def ask(self, compartment: str, now: float) -> None:
        """Queue one opening. A compartment that waits already is not queued twice."""
        if any(request.compartment == compartment for request in self._queue):
            return
        self._push(compartment, now, attempt=0)

    def slots(self, rail_volts: float) -> int:
        """How many latches may draw current at once: one while the rail is low."""
        return 1 if rail_volts < LOW_RAIL_VOLTS else MAX_PARALLEL_PULSES

    def run(self, now: float, rail_volts: float) -> Iterator[str]:
        """Pulse what is due and fits, and name each compartment pulsed."""
        self._busy_until = {name: end for name, end in self._busy_until.items() if end > now}
        while self._queue and self._queue[0].due <= now and len(self._busy_until) < self.slots(rail_volts):
            request = heapq.heappop(self._queue)
            self._pulse(request.compartment, self._pulse_ms)
            self._busy_until[request.compartment] = now + self._pulse_ms / 1000
            yield request.compartment

    def not_released(self, compartment: str, attempt: int, now: float) -> bool:
        """Take note that a latch held. False once every retry is used up: the caller raises ERR_LATCH_07."""
        if attempt >= len(RETRY_DELAYS_S):
            return False
        self._push(compartment, now + RETRY_DELAYS_S[attempt], attempt + 1)
        return True

    def cancel_all(self) -> int:
        """Empty the queue, for instance when the rear panel is taken off; gives the number dropped."""
        dropped = len(self._queue)
        self._queue.clear()
        return dropped

    def _push(self, compartment: str, due: float, attempt: int) -> None:
        self._counter += 1
        heapq.heappush(self._queue, Request(due, self._counter, compartment, attempt))
