"""The commands of what runs by itself: ``serve`` and ``inbox``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated, Any, cast

import typer

from flows.cli.command import Config, Index, Json, clearly, say, show_result
from flows.settings import Settings, load_settings, prepare_llm


def register_service_commands(app: typer.Typer) -> None:
    """Add the commands of this module to the console script."""
    app.command("serve")(serve_command)
    app.command("inbox")(inbox_command)


@clearly
def serve_command(
    source: Annotated[str | None, typer.Argument(help="Folder or s3://bucket/prefix that holds the documents.")] = None,
    index: Index = None,
    host: Annotated[str | None, typer.Option("--host", help="Address to listen at; 127.0.0.1 by default.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="Port of the receiver; 8790 by default.")] = None,
    nightly_at: Annotated[
        str | None, typer.Option("--nightly-at", help="Local time of a full build each day, such as 02:00.")
    ] = None,
    only: Annotated[str | None, typer.Option("--only", help="Run this part alone: receiver or worker.")] = None,
    config: Config = None,
) -> None:
    """Receive events of the document store, and build what they name, until stopped.

    Events are POSTed to /events, with the token of GRISTMILL_TOKEN or signed with GRISTMILL_WEBHOOK_SECRET.
    """
    if only not in (None, "receiver", "worker"):
        raise typer.BadParameter(f"unknown part {only!r}; use receiver or worker")
    settings = load_settings(
        config, source=source, index=index, receiver_host=host, receiver_port=port, nightly_at=nightly_at
    )
    if settings.notes == "llm":
        prepare_llm()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    from flows.context import open_source_of
    from flows.service.serve import SERVICE_PARTS, Service, ServicePart

    open_source_of(settings)
    service = Service(settings, _teller(settings), SERVICE_PARTS if only is None else (cast(ServicePart, only),))
    say(f"events of {settings.source} go to {settings.index}; inbox {settings.inbox_path}")
    service.run()


def _teller(settings: Settings) -> Callable[[str, str, dict[str, Any]], None]:
    """Return what tells an operator of a trouble and of its end: a line here, and a notice where one is asked for."""
    from flows.notifications import NoticeKind, notify

    def tell(kind: str, title: str, details: dict[str, Any]) -> None:
        say(f"{kind}: {title}")
        notify(settings, cast(NoticeKind, kind), title, details)

    return tell


@clearly
def inbox_command(
    index: Index = None,
    retry: Annotated[bool, typer.Option("--retry", help="Put back all keys that were set aside.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show what waits in the inbox, and the keys that were set aside with the reason."""
    settings = load_settings(config, index=index)
    import msgspec

    from flows.service.inbox import Inbox

    inbox = Inbox(settings.inbox_path)
    try:
        retried = inbox.retry() if retry else 0
        counts, aside = inbox.counts(), inbox.aside()
    finally:
        inbox.close()
    found = {
        "inbox": str(settings.inbox_path),
        "counts": msgspec.to_builtins(counts),
        "set_aside": [{"key": one.key, "reason": one.reason, "attempts": one.attempts} for one in aside],
        "retried": retried,
    }
    show_result(found, as_json, lambda: _print_inbox(found))


def _print_inbox(found: dict[str, Any]) -> None:
    from flows.cli.printing import print_line

    counts = found["counts"]
    print_line(f"inbox      {found['inbox']}")
    print_line(f"waiting    {counts['waiting']:,} keys, the oldest for {counts['oldest_seconds']:,.0f} s")
    print_line(f"received   {counts['received']:,} events, {counts['duplicates']:,} of them known already")
    print_line(
        f"set aside  {counts['set_aside']:,} keys" + (f"; {found['retried']:,} put back" * bool(found["retried"]))
    )
    for one in found["set_aside"]:
        print_line(f"           {one['key']}: {one['reason']}")
