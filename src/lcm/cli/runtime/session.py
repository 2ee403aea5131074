"""One command's conversation with the control plane: who is asked, what is shown, and how it ends."""

from __future__ import annotations

import gc
import os
import signal
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lcm.cli.errors import FAILED, INTERRUPTED, OK, CommandError
from lcm.cli.output.printer import Printer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.cli.runtime.options import OutputFormat
    from lcm.cli.runtime.target import Target
    from lcm.client import Client


class Session:
    """What a command works with."""

    def __init__(
        self,
        resolve_target: Target,
        form: OutputFormat,
        *,
        dry_run: bool = False,
        watching: bool = False,
        patient: bool = False,
    ) -> None:
        self.reach = resolve_target
        self.screen = Printer(form)
        self.dry_run = dry_run
        self.watching = watching
        self.patient = patient
        self.forecast: list[tuple[str, str]] = []  # what a dry run says besides the request

    @cached_property
    def client(self) -> Client:
        """The control plane."""
        from lcm.cli.runtime.client_factory import make_client

        return make_client(self.reach, dry_run=self.dry_run, patient=self.patient)

    async def close(self) -> None:
        """Let go of connections."""
        if "client" in self.__dict__:
            await self.client.aclose()


def run(
    work: Callable[[Session], Awaitable[None]],
    *,
    server: str | None = None,
    token_file: str | None = None,
    output: OutputFormat,
    dry_run: bool = False,
    watch: bool = False,
    patient: bool = False,
) -> int:
    """Do the work and give the exit code. What went wrong is said on standard error."""
    if not patient and not watch:
        # It lives for a moment, and imports make much that stays: looking through it again only takes time.
        gc.disable()
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # httpx has a command line of its own, whose dependencies nobody needs here. None means: not to be found.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    try:
        from lcm.cli.runtime.target import resolve_target

        asked = resolve_target(server, token_file)
        session = Session(asked, output, dry_run=dry_run, watching=watch, patient=patient or watch)
    except CommandError as error:
        return print_error(str(error), error.code)
    import asyncio  # here, as help does without it

    try:
        return asyncio.run(_run_session(session, work))
    except KeyboardInterrupt:
        sys.stderr.write("\n" if sys.stderr.isatty() else "")
        return INTERRUPTED
    except BrokenPipeError:  # such as of `lcm workers list | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


async def _run_session(session: Session, work: Callable[[Session], Awaitable[None]]) -> int:
    try:
        await work(session)
        sys.stdout.flush()
        return OK
    except CommandError as error:
        return print_error(str(error), error.code)
    except BrokenPipeError:
        raise
    except Exception as error:
        from lcm.cli.runtime.client_factory import DryRunStopError, describe_error, show_dry_run

        if isinstance(error, DryRunStopError):
            show_dry_run(session, error)
            return OK
        words = describe_error(error, session.reach)
        if words is None:
            raise
        return print_error(words, FAILED)
    finally:
        await session.close()


def print_error(text: str, code: int) -> int:
    """One line for each trouble, on standard error."""
    sys.stdout.flush()
    for line in text.splitlines():
        sys.stderr.write(f"lcm: {line}\n")
    return code


def confirm(question: str) -> bool:
    """Whether a person says yes. Where nobody can be asked, nobody has."""
    require_terminal()
    sys.stdout.flush()
    # While the loop waits in here, its own handler would only note a Ctrl-C and go on waiting; from the question on.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        _wait_for_line()
        answer = sys.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, before)
    return answer.strip().lower() in ("y", "yes")


def _wait_for_line() -> None:
    """Wait for a line or a signal. A read alone sleeps through a Ctrl-C that comes just before it."""
    import select

    heard, told = os.pipe()
    os.set_blocking(told, False)
    before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    try:
        select.select([sys.stdin, heard], [], [])
    finally:
        signal.set_wakeup_fd(before)
        os.close(heard)
        os.close(told)


def require_terminal() -> None:
    """Raise unless there is somebody to ask."""
    if not sys.stdin.isatty():
        raise CommandError("this needs a yes, and there is no terminal to ask on: add --yes")


def parse_value(text: str) -> Any:
    """A value as somebody types it: JSON where it is JSON, else text."""
    import json

    try:
        return json.loads(text)
    except ValueError:
        return text
