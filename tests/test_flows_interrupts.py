"""An interrupt that a finalizer or a library swallows still stops a build."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import signal, time
from flows import interrupts
interrupts.install()
{before}

class Finalizer:
    def __del__(self):
        signal.raise_signal({number})
        time.sleep(1)  # the handler raises here, where Python can only print what it raises

class Library:
    def __enter__(self):
        return self
    def __exit__(self, *_):
        raise ValueError("of its own")

def in_a_finalizer():
    Finalizer()

def in_a_library():
    try:
        with Library():
            signal.raise_signal({number})
            time.sleep(1)
    except Exception as error:
        print("a document failed:", error)

try:
    with interrupts.noted():
        interrupts.raise_if_interrupted()
        {where}()
        print("went on")
        interrupts.raise_if_interrupted()
        print("published")
except BaseException as error:
    print("stopped by", type(error).__name__)
"""
PREFECT = "from prefect.utilities.engine import capture_sigterm\ncaptured = capture_sigterm(); captured.__enter__()"


@pytest.mark.parametrize("where", ["in_a_finalizer", "in_a_library"])
@pytest.mark.parametrize(
    ("number", "before", "raised"),
    [
        ("signal.SIGINT", "", "KeyboardInterrupt"),
        ("signal.SIGTERM", "", "KeyboardInterrupt"),
        ("signal.SIGTERM", PREFECT, "TerminationSignal"),
    ],
)
def test_an_interrupt_that_is_swallowed_stops_what_comes_next(
    where: str, number: str, before: str, raised: str
) -> None:
    done = run(SCRIPT.format(where=where, number=number, before=before))
    assert done.stdout.split("\n")[-3:-1] == ["went on", f"stopped by {raised}"], (done.stdout, done.stderr)


def test_an_interrupt_ends_one_flow_and_not_the_next_in_the_process() -> None:
    done = run(
        "import signal\n"
        "from flows import interrupts\n"
        "interrupts.install()\n"
        "try:\n"
        "    with interrupts.noted():\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "except KeyboardInterrupt:\n"
        "    print('stopped')\n"
        "with interrupts.noted():\n"
        "    interrupts.raise_if_interrupted()\n"
        "    print('built')\n"
    )
    assert done.stdout == "stopped\nbuilt\n", done.stderr


def test_an_error_that_follows_an_interrupt_is_no_internal_error() -> None:
    """What stops the command may stop Prefect's server too, and Prefect then ends the flow with an error of its own."""
    done = run(
        "import signal\n"
        "from flows import interrupts\n"
        "from flows.cli.command import clearly\n"
        "interrupts.install()\n"
        "def lost() -> None:\n"
        "    raise ConnectionError('refused')\n"
        "def stopped() -> None:\n"
        "    try:\n"
        "        with interrupts.noted():\n"
        "            signal.raise_signal(signal.SIGTERM)\n"
        "    finally:\n"
        "        lost()\n"
        "for command in (lost, stopped):\n"
        "    try:\n"
        "        clearly(command)()\n"
        "    except SystemExit as end:\n"
        "        print(end.code)\n"
    )
    assert done.stdout == "1\n130\n", done.stderr
    assert done.stderr.count("internal error") == 1 and "gristmill: interrupted." in done.stderr


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    done = run(
        "import signal\n"
        "from flows import interrupts\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "interrupts.install()\n"
        "signal.raise_signal(signal.SIGINT)\n"
        "interrupts.raise_if_interrupted()\n"
        "print('went on')\n"
    )
    assert done.stdout == "went on\n", done.stderr


def test_other_errors_in_a_finalizer_are_shown_as_ever() -> None:
    done = run(
        "from flows import interrupts\n"
        "interrupts.install()\n"
        "class Failing:\n"
        "    def __del__(self):\n"
        "        raise OSError('of its own')\n"
        "Failing()\n"
        "interrupts.raise_if_interrupted()\n"
        "print('went on')\n"
    )
    assert done.returncode == 0 and done.stdout == "went on\n"
    assert "of its own" in done.stderr


def answer_interrupts() -> None:
    """A shell starts its background jobs, and so these tests, deaf to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
        preexec_fn=answer_interrupts,
    )
