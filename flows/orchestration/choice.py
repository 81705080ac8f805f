"""Whether a build runs as a Prefect flow or by itself."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from flows.build.build import BuildOptions
from flows.build.reindex import ReindexOptions
from flows.settings import Settings, has_prefect_api
from parsers.errors import UsageError

API_SECONDS: Final = 20.0  # that the API may take to answer at first


def uses_prefect(settings: Settings) -> bool:
    """Return whether builds run as Prefect flows.

    Raises:
        UsageError: when the settings ask for Prefect, and no Prefect API is configured.
    """
    if settings.orchestrator == "prefect" and not has_prefect_api():
        raise UsageError(
            "orchestrator prefect: no Prefect API is configured",
            "Start one with `prefect server start`, then set PREFECT_API_URL=http://127.0.0.1:4200/api.",
        )
    return settings.orchestrator == "prefect" or (settings.orchestrator == "auto" and has_prefect_api())


def run_build(settings: Settings, options: BuildOptions) -> dict[str, Any]:
    """Build, as the setting ``orchestrator`` says; see :func:`flows.build.build.build_index`."""
    if not uses_prefect(settings):
        from flows.build.build import build_index

        return build_index(settings, options)
    check_api("Start it, or build without it: --orchestrator none.")
    from flows.orchestration import prefect_flows

    return prefect_flows.build.with_options(timeout_seconds=settings.timeout_seconds)(settings, options)


class ServedRunner:
    """Runs the builds of a service: as Prefect flows where an API is configured, and without it while it is away.

    Attributes:
        state: ``not configured``, ``in use``, or since when and why Prefect is away.
    """

    def __init__(self) -> None:
        self.state = "in use" if has_prefect_api() else "not configured"

    def run(self, settings: Settings, options: BuildOptions) -> dict[str, Any]:
        """Build; see :func:`flows.build.build.build_index`."""
        if uses_prefect(settings) and self._is_there():
            from flows.orchestration import prefect_flows

            return prefect_flows.build.with_options(timeout_seconds=settings.timeout_seconds)(settings, options)
        from flows.build.build import build_index

        return build_index(settings, options)

    def _is_there(self) -> bool:
        try:
            check_api("Builds go on without it.")
        except UsageError as error:
            if not self.state.startswith("away"):
                self.state = f"away since {datetime.now().astimezone().isoformat(timespec='seconds')}: {error.message}"
            return False
        self.state = "in use"
        return True


def run_reindex(settings: Settings, options: ReindexOptions) -> dict[str, Any]:
    """Swap the model, as the setting ``orchestrator`` says; see :func:`flows.build.reindex.swap_embedder`."""
    if not uses_prefect(settings):
        from flows.build.reindex import swap_embedder

        return swap_embedder(settings, options)
    check_api("Start it, or build without it: --orchestrator none.")
    from flows.orchestration import prefect_flows

    return prefect_flows.reindex.with_options(timeout_seconds=settings.timeout_seconds)(settings, options)


def check_api(remedy: str) -> None:
    """Raise a clear error if the Prefect API does not answer, before any work.

    Args:
        remedy: what to do then.

    Raises:
        UsageError: naming its address.
    """
    import httpx
    from prefect.settings import PREFECT_API_URL

    address = str(PREFECT_API_URL.value())
    try:
        httpx.get(f"{address}/health", timeout=API_SECONDS).raise_for_status()
    except httpx.HTTPError as error:
        raise UsageError(
            f"the Prefect API at {address} does not answer: {error}",
            remedy,
            transient=True,
        ) from error
