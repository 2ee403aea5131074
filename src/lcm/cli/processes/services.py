"""Commands that run a process until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import resource
import sys
import threading
from typing import TYPE_CHECKING

from lcm.cli.main import FAILED, USAGE
from lcm.core.logs import configure_logging
from lcm.http.server import PortInUseError
from lcm.settings import SettingsError, load
from lcm.wiring.controllers import ControllerFactory, ControllerRuntimeSettings, serve_controllers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

AWS_THREAD_PREFIX = "lcm-aws"


class ControllerImportError(Exception):
    """What was asked for cannot be understood; the text says what would be."""


def run_controllers(
    model: type[ControllerRuntimeSettings], controllers: Sequence[str], config: str | None, port: str | None
) -> int:
    """Load settings and controllers, then serve; returns the exit code. What is wrong is said in one line each."""
    try:
        settings = load(model, config_file=config, overrides={"worker_controller_port": port}).settings
        factories = [import_controller(name) for name in controllers]
    except (SettingsError, ControllerImportError) as error:
        return print_startup_error(str(error), USAGE)
    configure_logging(settings.log_level, settings.log_format)
    try:
        return asyncio.run(serve_controllers(settings, factories, print_controllers_banner))
    except (PortInUseError, PermissionError) as error:
        return print_startup_error(str(error), FAILED)


def run_control_plane(config: str | None, port: str | None) -> int:
    """Load settings and serve; returns the exit code."""
    from lcm.control_plane.fleet.installation import InstallationMismatchError
    from lcm.control_plane.secrets.keys import SecretKeyError
    from lcm.control_plane.store.port import StoreError
    from lcm.wiring.control_plane import ControlPlaneProcessSettings, RegionConfigError, serve_control_plane

    try:
        settings = load(
            ControlPlaneProcessSettings, config_file=config, overrides={"control_plane_port": port}
        ).settings
    except SettingsError as error:
        return print_startup_error(str(error), USAGE)
    configure_logging(settings.log_level, settings.log_format)
    raise_descriptor_limit()  # each client of the event stream holds one
    try:
        return asyncio.run(serve_control_plane(settings, print_control_plane_banner))
    except (SecretKeyError, InstallationMismatchError, RegionConfigError) as error:
        return print_startup_error(str(error), USAGE)
    except (PortInUseError, OSError, StoreError) as error:
        return print_startup_error(str(error), FAILED)


def run_worker_controller(config: str | None, port: str | None) -> int:
    """Load settings and serve; returns the exit code."""
    from lcm.wiring.worker_controller import (
        InvalidSettingsError,
        MissingExtraError,
        WorkerControllerProcessSettings,
        serve_worker_controller,
    )

    overrides = {"worker_controller_port": port}
    try:
        settings = load(WorkerControllerProcessSettings, config_file=config, overrides=overrides).settings
    except SettingsError as error:
        return print_startup_error(str(error), USAGE)
    configure_logging(settings.log_level, settings.log_format)
    raise_descriptor_limit()  # each CML server that is asked holds one
    try:
        code = asyncio.run(serve_worker_controller(settings, print_worker_controller_banner))
    except InvalidSettingsError as error:
        return print_startup_error(str(error), USAGE)
    except (PortInUseError, PermissionError, MissingExtraError) as error:
        return print_startup_error(str(error), FAILED)
    _exit_despite_aws_threads(code)
    return code


def run_resource_scheduler(config: str | None, port: str | None) -> int:
    """Load settings and serve; returns the exit code."""
    from lcm.wiring.control_plane_access import InvalidSettingsError
    from lcm.wiring.resource_scheduler import ResourceSchedulerProcessSettings, serve_resource_scheduler

    overrides = {"resource_scheduler_port": port}
    try:
        settings = load(ResourceSchedulerProcessSettings, config_file=config, overrides=overrides).settings
    except SettingsError as error:
        return print_startup_error(str(error), USAGE)
    configure_logging(settings.log_level, settings.log_format)
    try:
        return asyncio.run(serve_resource_scheduler(settings, print_resource_scheduler_banner))
    except InvalidSettingsError as error:
        return print_startup_error(str(error), USAGE)
    except (PortInUseError, PermissionError) as error:
        return print_startup_error(str(error), FAILED)


def run_lablet_controller(config: str | None, port: str | None) -> int:
    """Load settings and serve; returns the exit code."""
    from lcm.wiring.control_plane_access import InvalidSettingsError
    from lcm.wiring.lablet_controller import LabletControllerProcessSettings, serve_lablet_controller

    overrides = {"lablet_controller_port": port}
    try:
        settings = load(LabletControllerProcessSettings, config_file=config, overrides=overrides).settings
    except SettingsError as error:
        return print_startup_error(str(error), USAGE)
    configure_logging(settings.log_level, settings.log_format)
    raise_descriptor_limit()  # each CML server that is asked holds one
    try:
        return asyncio.run(serve_lablet_controller(settings, print_lablet_controller_banner))
    except InvalidSettingsError as error:
        return print_startup_error(str(error), USAGE)
    except (PortInUseError, PermissionError) as error:
        return print_startup_error(str(error), FAILED)


def _exit_despite_aws_threads(code: int) -> None:
    """A call to AWS that nobody waits for any more cannot be cancelled, and would keep the process for a minute."""
    if any(thread.name.startswith(AWS_THREAD_PREFIX) for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def raise_descriptor_limit() -> None:
    """Each connection holds a descriptor, and the soft limit is meant for shells."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def print_worker_controller_banner(url: str, about: Mapping[str, object]) -> None:
    """What runs where, for people."""
    regions = about["regions"]
    assert isinstance(regions, list)
    sys.stdout.write(
        f"LCM {about['version']} worker controller {about['instance_id']}\n"
        f"  control plane  {about['control_plane']}\n"
        f"  coordination   {about['coordination']}\n"
        f"  cloud          {about['cloud']}: {', '.join(regions)}\n"
        f"  health         {url}/health\n"
        f"  readiness      {url}/ready\n"
        f"  metrics        {url}/metrics\n"
        f"  statistics     {url}/admin/stats (with an admin's token)\n"
        "Ctrl-C stops it.\n"
    )
    freeze_startup_objects()


def print_lablet_controller_banner(url: str, about: Mapping[str, object]) -> None:
    """What runs where, for people."""
    _print_controller_banner("lablet controller", url, about)


def print_resource_scheduler_banner(url: str, about: Mapping[str, object]) -> None:
    """What runs where, for people."""
    _print_controller_banner("resource scheduler", url, about)


def _print_controller_banner(title: str, url: str, about: Mapping[str, object]) -> None:
    sys.stdout.write(
        f"LCM {about['version']} {title} {about['instance_id']}\n"
        f"  control plane  {about['control_plane']}\n"
        f"  coordination   {about['coordination']}\n"
        f"  health         {url}/health\n"
        f"  readiness      {url}/ready\n"
        f"  metrics        {url}/metrics\n"
        f"  statistics     {url}/admin/stats (with an admin's token)\n"
        "Ctrl-C stops it.\n"
    )
    freeze_startup_objects()


def print_control_plane_banner(url: str, about: Mapping[str, object]) -> None:
    """Where the API is, for people."""
    sys.stdout.write(
        f"LCM {about['version']} control plane\n"
        f"  API            {url}/api/workers\n"
        f"  API document   {url}/openapi.json\n"
        f"  installation   {about['installation_id']}\n"
        f"  coordination   {about['coordination']}\n"
        f"  readiness      {url}/ready\n"
        f"  metrics        {url}/metrics\n"
        "Ctrl-C stops it.\n"
    )
    freeze_startup_objects()


def print_startup_error(text: str, code: int) -> int:
    """One line for each trouble, on standard error."""
    for line in text.splitlines():
        sys.stderr.write(f"lcm: {line}\n")
    return code


def print_controllers_banner(url: str, about: Mapping[str, object]) -> None:
    """What runs where, for people; logs go to standard error beside it."""
    sys.stdout.write(
        f"LCM {about['version']}\n"
        f"  controllers    {about['controllers'] or 'none; name yours with --controller MODULE:CLASS'}\n"
        f"  coordination   {about['coordination']}\n"
        f"  health         {url}/health\n"
        f"  readiness      {url}/ready\n"
        f"  metrics        {url}/metrics\n"
        "Ctrl-C stops it.\n"
    )
    freeze_startup_objects()


def freeze_startup_objects() -> None:
    """What start-up made stays for good: the collector need not look at it again, which stalls the loop each time."""
    sys.stdout.flush()
    gc.collect()
    gc.freeze()


def import_controller(name: str) -> ControllerFactory:
    """The class or function behind MODULE:NAME, looked up from the current folder too."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ControllerImportError(
            f"controller {name!r}: must be MODULE:CLASS, for example examples.notes:NotesController"
        )
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ControllerImportError(
            f"controller {name!r}: there is no module {error.name!r} in the current folder or installed"
        ) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise ControllerImportError(f"controller {name!r}: {module_name} has no class {attribute!r}")
    return factory  # type: ignore[no-any-return]  # what it makes is checked when it is made
