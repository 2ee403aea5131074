"""The session of one command: the control plane it talks to, its output and its exit code."""

from __future__ import annotations

import os
import signal
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lcm.cli.errors import FAILED, INTERRUPTED, OK, CommandError, print_error
from lcm.cli.output.durations import local_times
from lcm.cli.output.printer import Printer
from lcm.core.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lcm.cli.runtime.options import OutputFormat
    from lcm.cli.runtime.target import Target
    from lcm.client import Client


class Session:
    """What a command works with: the client, the output and the shared options."""

    def __init__(
        self,
        target: Target,
        output_format: OutputFormat,
        *,
        dry_run: bool = False,
        watch: bool = False,
        retry: bool = False,
    ) -> None:
        self.target = target
        self.printer = Printer(output_format)
        self.dry_run = dry_run
        self.watch = watch
        self.retry = retry
        self.forecast: list[tuple[str, str]] = []  # what a dry run shows besides the request

    @cached_property
    def client(self) -> Client:
        """The client of the control plane, created on first use."""
        from lcm.cli.runtime.client_factory import make_client

        return make_client(self.target, dry_run=self.dry_run, retry=self.retry)

    async def close(self) -> None:
        """Close connections."""
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
    retry: bool = False,
) -> int:
    """Run the command and return the exit code. Errors go to standard error."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        from lcm.cli.runtime.target import resolve_target

        target = resolve_target(server, token_file)
        session = Session(target, output, dry_run=dry_run, watch=watch, retry=retry or watch)
    except CommandError as error:
        return print_error(str(error), error.code)
    import asyncio  # not at the top: help does not need it

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
        message = describe_error(error, session.target)
        if message is None:
            raise
        return print_error(message, FAILED)
    finally:
        await session.close()


def confirm(question: str) -> bool:
    """Whether the user confirms. Without a terminal it raises."""
    return _ask(f"{question} [y/N] ").lower() in ("y", "yes")


def confirm_change(session: Session, effects: Sequence[str], question: str, *, yes: bool) -> None:
    """Print what would happen and ask. With --yes or in a dry run nobody is asked; without a yes it raises."""
    if yes or session.dry_run:
        return
    require_terminal()
    for effect in effects:
        sys.stderr.write(f"{escape_unprintable(local_times(effect))}\n")
    if not confirm(question):
        raise CommandError("no changes made")


def confirm_by_name(question: str, name: str) -> bool:
    """Whether the user types the name, which nobody does by accident. Without a terminal it raises."""
    return _ask(f"{question} Type {name} to confirm: ") == name


def _ask(prompt: str) -> str:
    require_terminal()
    sys.stdout.flush()
    # asyncio's handler would only record a Ctrl-C while this blocks. Use the default one from the prompt on.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.stderr.write(prompt)
        sys.stderr.flush()
        _wait_for_line()
        answer = sys.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, before)
    return answer.strip()


def _wait_for_line() -> None:
    """Wait for a line or a signal. A plain read would miss a Ctrl-C that arrives just before it."""
    import select

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        select.select([sys.stdin, reader], [], [])
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


def require_terminal() -> None:
    """Raise unless a terminal is attached."""
    if not sys.stdin.isatty():
        raise CommandError("confirmation required, but there is no terminal to ask on: pass --yes")


def parse_value(text: str) -> Any:
    """A typed value: parsed as JSON if it is JSON, else as text."""
    import json

    try:
        return json.loads(text)
    except ValueError:
        return text
