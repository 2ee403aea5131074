"""`lcm up`: everything in one process, and what a person sees of it."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from lcm.cli.config import context_store
from lcm.cli.main import FAILED, USAGE
from lcm.cli.processes.services import (
    ControllerImportError,
    freeze_startup_objects,
    import_controller,
    print_startup_error,
    raise_descriptor_limit,
)
from lcm.control_plane.fleet.installation import InstallationMismatchError
from lcm.control_plane.secrets.keys import SecretKeyError
from lcm.control_plane.store.port import StoreError
from lcm.core.logs import configure_logging
from lcm.http.server import PortInUseError
from lcm.settings import SettingsError, load
from lcm.wiring.control_plane import RegionConfigError
from lcm.wiring.simulated.world import SimulatedWorldError
from lcm.wiring.up import UpOptions, UpSettings, serve_up
from lcm.wiring.worker_controller import InvalidSettingsError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.wiring.confirm_aws import AccountPreview
    from lcm.wiring.up import UpInfo

LOCAL_CONTEXT = "local"


def run_up(
    config: str | None,
    flags: Mapping[str, str | None],
    controllers: Sequence[str],
    *,
    demo: bool,
    speed: float,
    yes: bool,
) -> int:
    """Load settings and serve; returns the exit code. What is wrong is said in one line each."""
    try:
        loaded = load(UpSettings, config_file=config, overrides=flags)
        asking = None if yes else confirm_changes
        wishes = UpOptions(demo, speed, [import_controller(name) for name in controllers], asking)
    except (SettingsError, ControllerImportError) as error:
        return print_startup_error(str(error), USAGE)
    if loaded.settings.cloud_provider == "aws" and not yes and not sys.stdin.isatty():
        return print_startup_error(
            "--cloud aws asks before it changes anything, and nobody can answer here: give --yes", USAGE
        )
    configure_logging(loaded.settings.log_level, loaded.settings.log_format)
    raise_descriptor_limit()
    try:
        return asyncio.run(serve_up(loaded, wishes, print_up_banner))
    except (SecretKeyError, InstallationMismatchError, RegionConfigError, InvalidSettingsError) as error:
        return print_startup_error(str(error), USAGE)
    except (PortInUseError, StoreError, SimulatedWorldError, MissingExtraError) as error:
        return print_startup_error(str(error), FAILED)
    except OSError as error:
        folder = loaded.settings.lcm_data_dir
        text = f"{error.filename or folder}: {error.strerror}; LCM_DATA_DIR must name a folder that can be written"
        return print_startup_error(text, FAILED)


async def confirm_changes(found: AccountPreview) -> bool:
    """Show what is there and what would be done, and let the person decide. Nothing is changed before the yes."""
    out = sys.stdout.write
    out("\nBefore anything is changed, this is what is there:\n")
    for place in found.regions:
        account = place.account_id or "unknown"
        out(f"  {place.region}  account {account}: {place.instances} instances, {place.workers} workers\n")
        if place.trouble:
            out(f"    not everything could be seen: {place.trouble}\n")
        for name in place.importable:
            out(f"    would be imported, once its CML answers: {name}\n")
    out("And this would be done now:\n" if found.would else "Nothing would be done now.\n")
    for line in found.would:
        out(f"  {line}\n")
    out("Shall it run? [y/N] ")
    sys.stdout.flush()
    answer = await _read_line()
    agreed = answer.strip().lower() in ("y", "yes")
    out("It runs. Ctrl-C stops it.\n" if agreed else "Nothing was changed.\n")
    sys.stdout.flush()
    return agreed


async def _read_line() -> str:
    """What somebody types. Not in a thread: one that waits for a key could not be ended by Ctrl-C."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        if not typed.done():
            typed.set_result(sys.stdin.readline())

    loop.add_reader(sys.stdin.fileno(), read)
    try:
        return await typed
    finally:
        loop.remove_reader(sys.stdin.fileno())


def print_up_banner(running: UpInfo) -> None:
    """What runs where, and what to try next."""
    hint = _save_context(running)
    fleet = "a demo fleet; its first workers are being launched now" if running.demo else "no demo"
    sys.stdout.write(
        f"LCM {running.version} is up\n"
        f"  dashboard       {running.sign_in}\n"
        "                  (signs you in once, within ten minutes; another: lcm dashboard)\n"
        f"  API             {running.url}/api/workers   (document: {running.url}/openapi.json)\n"
        + "".join(f"  {name:<14}  {url}/health\n" for name, url in running.controllers.items())
        + f"  cloud           {running.cloud}: {', '.join(running.regions)} ({fleet})\n"
        f"  kept in         {running.data_dir}\n"
        f"  admin token     {running.token_from}\n"
        "Try, in another terminal:\n"
        "  lcm workers list\n"
        "  lcm workers explain alpha\n"
        "  lcm watch\n"
        f"{hint}"
        "Ctrl-C stops it. Started again, it goes on where it was.\n"
    )
    freeze_startup_objects()


def _save_context(running: UpInfo) -> str:
    """Let `lcm` find this one in other terminals; says what to do where it will not."""
    try:
        context_store.save(LOCAL_CONTEXT, running.url, running.token, make_current=False)
        chosen = context_store.current()
    except context_store.ContextStoreError as problem:
        return f"  (for that, set LCM_URL={running.url} and LCM_TOKEN, because {problem})\n"
    if chosen is None or chosen.name == LOCAL_CONTEXT:
        return ""
    return f"  (for that, first: lcm contexts use {LOCAL_CONTEXT}; {chosen.name} is chosen now)\n"
