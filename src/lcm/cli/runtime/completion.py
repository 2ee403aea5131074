"""Completes names of resources in a shell, from the control plane that the command would use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.client import Client

_MAX_NAMES = 100
_TIMEOUT_VARIABLE = "LCM_COMPLETION_SECONDS"
_DEFAULT_TIMEOUT = 2.0


def complete_workers(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of workers."""
    return _complete(ctx, "workers", incomplete)


def complete_lablets(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of lablets."""
    return _complete(ctx, "lablets", incomplete)


def complete_definitions(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of lablet definitions."""
    return _complete(ctx, "definitions", incomplete)


def complete_versions(ctx: typer.Context, incomplete: str) -> list[str]:
    """Definitions with their version."""
    return _complete(ctx, "versions", incomplete)


def complete_templates(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of worker templates."""
    return _complete(ctx, "templates", incomplete)


def _complete(ctx: typer.Context, kind: str, incomplete: str) -> list[str]:
    """The names that begin with what was typed. A shell shows no errors here: any failure completes nothing."""
    import asyncio
    import os

    import lcm.client  # noqa: F401 - imported here: the time below is for the request

    try:
        seconds = float(os.environ.get(_TIMEOUT_VARIABLE) or _DEFAULT_TIMEOUT)
        return asyncio.run(asyncio.wait_for(_find_names(ctx, kind, incomplete), seconds))
    except Exception:  # noqa: BLE001 - see above
        return []


async def _find_names(ctx: typer.Context, kind: str, incomplete: str) -> list[str]:
    from lcm.cli.runtime.client_factory import make_client
    from lcm.cli.runtime.target import resolve_target

    client = make_client(resolve_target(ctx.params.get("server"), ctx.params.get("token_file")))
    names: dict[str, None] = {}
    try:
        async for name in _names(client, kind, incomplete):
            if name.startswith(incomplete):
                names[name] = None
            if len(names) == _MAX_NAMES:
                break
    finally:
        await client.aclose()
    return list(names)


async def _names(client: Client, kind: str, incomplete: str) -> AsyncIterator[str]:
    from lcm.model.lablet.status import FINAL_LABLET_STATUSES
    from lcm.model.worker.status import WorkerStatus

    if kind == "workers":
        ended = [WorkerStatus.TERMINATED]
        async for worker in client.workers.list(q=incomplete or None, exclude_statuses=ended, page_size=_MAX_NAMES):
            yield worker.name
    elif kind == "lablets":
        final = list(FINAL_LABLET_STATUSES)
        async for lablet in client.lablets.list(q=incomplete or None, exclude_statuses=final, page_size=_MAX_NAMES):
            yield lablet.name
    elif kind in ("definitions", "versions"):
        async for definition in client.definitions.list():
            yield definition.name if kind == "definitions" else definition.id
    else:
        async for template in client.templates.list():
            yield template.name
