"""A small OpenAI-compatible server in a thread, whose answers a test decides."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any, dict[str, str]]
MODEL = {"id": "tiny", "object": "model", "owned_by": "llamacpp", "meta": {"n_ctx": 4096, "size": 7}}


def said(text: str, reason: str = "stop") -> Answer:
    """A completion."""
    return 200, {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": reason}]}, {}


def refused(status: int, message: str = "no", **headers: str) -> Answer:
    """An error as llama-server words it."""
    return status, {"error": {"message": message, "code": status}}, {k.replace("_", "-"): v for k, v in headers.items()}


class FakeServer:
    """What the server was asked, and what it answers.

    Attributes:
        answer: gives the answer to a chat completion's body; bytes are sent as they are.
        models: what it lists.
        asked: the bodies of chat completions, in the order they came.
        counted: texts that it was asked to count; it counts words, unless it counts nothing.
        most: how many completions it worked on at a time, at most.
    """

    def __init__(self) -> None:
        self.url = ""
        self.answer: Callable[[dict[str, Any]], Answer] = lambda body: said("One note.")
        self.models: Any = {"object": "list", "data": [MODEL]}
        self.properties: dict[str, Any] | None = None
        self.counts = False
        self.asked: list[dict[str, Any]] = []
        self.counted: list[str] = []
        self.keys: list[str | None] = []
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()

    def reply(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        if path == "/v1/models":
            return 200, self.models, {}
        if path == "/props" and self.properties is not None:
            return 200, self.properties, {}
        if path == "/tokenize" and self.counts:
            self.counted.append(body["content"])
            return 200, {"tokens": body["content"].split()}, {}
        if path != "/v1/chat/completions":
            return refused(404, "File Not Found")
        with self._lock:
            self.asked.append(body)
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            return self.answer(body)
        finally:
            with self._lock:
                self._now -= 1


@contextmanager
def serving() -> Iterator[FakeServer]:
    """A server on a free port of this machine, until the end of the block."""
    fake = FakeServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._reply({})

        def do_POST(self) -> None:
            self._reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _reply(self, body: dict[str, Any]) -> None:
            fake.keys.append(self.headers["Authorization"])
            status, value, headers = fake.reply(self.command, self.path, body)
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            try:
                self.send_response(status)
                for name, text in headers.items():
                    self.send_header(name, text)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                self.close_connection = True  # the client has gone

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
