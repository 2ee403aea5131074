"""Showing something again when it changes: in place on a terminal, one below the other elsewhere."""

from __future__ import annotations

import asyncio
import sys
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.cli.runtime.session import Session

_CLEAR_SCREEN = "\x1b[H\x1b[2J"
_REFRESH_SECONDS = 2.0


async def show_or_watch(session: Session, show: Callable[[], Awaitable[None]], every: float = _REFRESH_SECONDS) -> None:
    """Show it once, or with --watch until somebody interrupts. A lost connection is said and waited out."""
    if not session.watching:
        await show()
        return
    from lcm.cli.runtime.client_factory import describe_error
    from lcm.client import ApiError, ClientError

    before = ""
    while True:
        try:
            text = await _capture(session, show)
        except ApiError:
            raise
        except ClientError as error:
            text = f"{describe_error(error, session.reach)}\n"
        if text != before:
            sys.stdout.write(_CLEAR_SCREEN + text if session.screen.is_terminal else text)
            sys.stdout.flush()
            before = text
        await asyncio.sleep(every)


async def _capture(session: Session, show: Callable[[], Awaitable[None]]) -> str:
    """What would be written, so that it can be drawn at once and without flicker."""
    if session.screen.for_people:
        with session.screen.console.capture() as captured:
            await show()
        return captured.get()
    with redirect_stdout(StringIO()) as page:
        await show()
    return page.getvalue()
