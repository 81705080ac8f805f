"""llama.cpp's own server, in a process of its own: says its address, and ends when its standard input does.

python tests/llama_server.py MODEL.gguf CONTEXT
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SLOTS = 2


@contextmanager
def llama_server(model: Path, context: int = 2048) -> Iterator[str]:
    """The address of a server of its own, until the end of the block."""
    command = [sys.executable, __file__, str(model), str(context)]
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        address = next((line.split()[1] for line in process.stdout if line.startswith("address ")), "")
        assert address, "llama.cpp's server did not start"
        yield f"{address}/v1"
    finally:
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def main() -> None:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = sys.argv[1]
    parameters.n_parallel = SLOTS
    parameters.n_ctx = SLOTS * int(sys.argv[2])
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = os.cpu_count() or 1
    parameters.warmup = False
    parameters.port = 0  # a free one
    server = xllamacpp.Server(parameters)
    print(f"address {server.listening_address}", flush=True)
    sys.stdin.read()
    os._exit(0)  # without waiting for answers that nobody reads


if __name__ == "__main__":
    main()
