"""`lcm up`: run everything in one process."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lcm.cli.config import context_store
from lcm.cli.errors import FAILED, USAGE, UsageError, print_error
from lcm.cli.processes.services import (
    freeze_startup_objects,
    import_controller,
    raise_descriptor_limit,
)
from lcm.control_plane.fleet.system import InstallationMismatchError
from lcm.control_plane.secrets.keys import SecretKeyError
from lcm.control_plane.store.port import StoreError
from lcm.core.hosting import run_process
from lcm.core.logs import configure_logging
from lcm.http.server import PortInUseError
from lcm.settings import SettingsError, load
from lcm.wiring.connections import InvalidSettingsError
from lcm.wiring.control_plane import RegionConfigError
from lcm.wiring.simulated.world import SimulatedWorldError
from lcm.wiring.up import UpOptions, UpSettings, serve_up
from lcm.wiring.worker_controller import MissingExtraError

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
    """Load settings and serve; returns the exit code. Problems are printed one per line."""
    try:
        loaded = load(UpSettings, config_file=config, overrides=flags)
        ask = None if yes else confirm_changes
        options = UpOptions(demo, speed, [import_controller(name) for name in controllers], ask)
    except (SettingsError, UsageError) as error:
        return print_error(str(error), USAGE)
    if loaded.settings.cloud_provider == "aws" and not yes and not sys.stdin.isatty():
        return print_error("--cloud aws asks for confirmation, but there is no terminal to ask on: pass --yes", USAGE)
    configure_logging(loaded.settings.log_level, loaded.settings.log_format)
    raise_descriptor_limit()
    try:
        return run_process(serve_up(loaded, options, print_up_banner))
    except (SecretKeyError, InstallationMismatchError, RegionConfigError, InvalidSettingsError) as error:
        return print_error(str(error), USAGE)
    except (PortInUseError, StoreError, SimulatedWorldError, MissingExtraError) as error:
        return print_error(str(error), FAILED)
    except OSError as error:
        folder = loaded.settings.lcm_data_dir
        text = f"{error.filename or folder}: {error.strerror}; LCM_DATA_DIR must be a writable folder"
        return print_error(text, FAILED)


async def confirm_changes(preview: AccountPreview) -> bool:
    """Show the current state and the planned changes, and ask for confirmation. Nothing is changed before."""
    out = sys.stdout.write
    out("\nCurrent state, before any change:\n")
    for region in preview.regions:
        account = region.account_id or "unknown"
        out(f"  {region.region}  account {account}: {region.instances} instances, {region.workers} workers\n")
        if region.problem:
            out(f"    incomplete: {region.problem}\n")
        for name in region.importable:
            out(f"    to be imported, once its CML responds: {name}\n")
    out("Planned changes:\n" if preview.planned else "No planned changes.\n")
    for line in preview.planned:
        out(f"  {line}\n")
    out("Continue? [y/N] ")
    sys.stdout.flush()
    answer = await _read_line()
    agreed = answer.strip().lower() in ("y", "yes")
    out("Running. Press Ctrl-C to stop.\n" if agreed else "No changes made.\n")
    sys.stdout.flush()
    return agreed


async def _read_line() -> str:
    """Read a line from the terminal. Not in a thread: Ctrl-C could not end a thread that waits for input."""
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


def print_up_banner(info: UpInfo) -> None:
    """Print the addresses and what to try next."""
    lcm = _command()
    hint = _save_context(info, lcm)
    fleet, first = ("demo fleet", "explain alpha") if info.demo else ("no demo", "create NAME --template small")
    sys.stdout.write(
        f"LCM {info.version} is up\n"
        f"  dashboard           {info.sign_in}\n"
        f"                      (sign-in link, valid once within ten minutes; for another: {lcm} dashboard)\n"
        f"  API                 {info.url}/api/workers   (reference: {info.url}/docs)\n"
        + "".join(f"  {name:<18}  {url}/health\n" for name, url in info.controllers.items())
        + f"  cloud               {info.cloud}: {', '.join(info.regions)} ({fleet})\n"
        f"  data                {info.data_dir}\n"
        f"  admin token         {info.token_source}\n"
        "Try, in another terminal:\n"
        f"  {lcm} workers list\n"
        f"  {lcm} workers {first}\n"
        f"  {lcm} watch\n"
        f"{hint}"
        "Press Ctrl-C to stop. A restart continues from the stored state.\n"
    )
    freeze_startup_objects()


def _command() -> str:
    """How to run this program in another terminal: `lcm` if that is on the PATH, else its path."""
    if shutil.which("lcm") is not None:
        return "lcm"
    return sys.argv[0] if Path(sys.argv[0]).name == "lcm" else f"{sys.executable} -m lcm"


def _save_context(info: UpInfo, lcm: str) -> str:
    """Save a context so that `lcm` in other terminals uses this control plane; returns a hint if it will not."""
    try:
        context_store.save(LOCAL_CONTEXT, info.url, info.token, make_current=False)
        current = context_store.current()
    except context_store.ContextStoreError as problem:
        return f"  (first set LCM_URL={info.url} and LCM_TOKEN, because {problem})\n"
    if current is None or current.name == LOCAL_CONTEXT:
        return ""
    return f"  (first run: {lcm} contexts use {LOCAL_CONTEXT}; {current.name} is the current context)\n"
