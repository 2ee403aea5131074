"""The --watch loop: redraw in place on a terminal, append elsewhere."""

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
    """Show once, or with --watch until interrupted. A lost connection is reported and retried."""
    if not session.watch:
        await show()
        return
    from lcm.cli.runtime.client_factory import describe_error
    from lcm.client import ApiError, ClientError

    previous = ""
    while True:
        try:
            text = await _capture(session, show)
        except ApiError:
            raise
        except ClientError as error:
            text = f"{describe_error(error, session.target)}\n"
        if text != previous:
            sys.stdout.write(_CLEAR_SCREEN + text if session.printer.is_terminal else text)
            sys.stdout.flush()
            previous = text
        await asyncio.sleep(every)


async def _capture(session: Session, show: Callable[[], Awaitable[None]]) -> str:
    """The output as text, so that it can be drawn at once without flicker."""
    if session.printer.for_people:
        with session.printer.console.capture() as captured:
            await show()
        return captured.get()
    with redirect_stdout(StringIO()) as page:
        await show()
    return page.getvalue()
