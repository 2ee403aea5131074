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
from lcm.http.server import PortTaken
from lcm.settings import SettingsError, load
from lcm.wiring.controllers import ControllerFactory, ProcessSettings, serve

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

AWS_THREADS = "lcm-aws"


class UsageError(Exception):
    """What was asked for cannot be understood; the text says what would be."""


def run(model: type[ProcessSettings], controllers: Sequence[str], config: str | None, port: str | None) -> int:
    """Load settings and controllers, then serve; returns the exit code. What is wrong is said in one line each."""
    try:
        settings = load(model, config_file=config, overrides={"worker_controller_port": port}).settings
        factories = [find_factory(name) for name in controllers]
    except (SettingsError, UsageError) as error:
        return complain(str(error), USAGE)
    configure_logging(settings.log_level, settings.log_format)
    try:
        return asyncio.run(serve(settings, factories, greet))
    except (PortTaken, PermissionError) as error:
        return complain(str(error), FAILED)


def run_control_plane(config: str | None, port: str | None) -> int:
    """Load settings and serve; returns the exit code."""
    from lcm.control_plane.fleet.installation import WrongInstallation
    from lcm.control_plane.secrets.keys import KeyProblem
    from lcm.control_plane.store.port import StoreError
    from lcm.wiring.control_plane import ControlPlaneSettings, WrongRegions, serve_control_plane

    try:
        settings = load(ControlPlaneSettings, config_file=config, overrides={"control_plane_port": port}).settings
    except SettingsError as error:
        return complain(str(error), USAGE)
    configure_logging(settings.log_level, settings.log_format)
    take_all_descriptors()  # each client of the event stream holds one
    try:
        return asyncio.run(serve_control_plane(settings, greet_plane))
    except (KeyProblem, WrongInstallation, WrongRegions) as error:
        return complain(str(error), USAGE)
    except (PortTaken, OSError, StoreError) as error:
        return complain(str(error), FAILED)


def run_worker_controller(config: str | None, port: str | None) -> int:
    """Load settings and serve; returns the exit code."""
    from lcm.wiring.worker_controller import (
        MissingExtra,
        WorkerControllerProcess,
        WrongSettings,
        serve_worker_controller,
    )

    overrides = {"worker_controller_port": port}
    try:
        settings = load(WorkerControllerProcess, config_file=config, overrides=overrides).settings
    except SettingsError as error:
        return complain(str(error), USAGE)
    configure_logging(settings.log_level, settings.log_format)
    take_all_descriptors()  # each CML server that is asked holds one
    try:
        code = asyncio.run(serve_worker_controller(settings, greet_worker_controller))
    except WrongSettings as error:
        return complain(str(error), USAGE)
    except (PortTaken, PermissionError, MissingExtra) as error:
        return complain(str(error), FAILED)
    _leave_threads_behind(code)
    return code


def run_resource_scheduler(config: str | None, port: str | None) -> int:
    """Load settings and serve; returns the exit code."""
    from lcm.wiring.control_plane_access import WrongSettings
    from lcm.wiring.resource_scheduler import ResourceSchedulerProcess, serve_resource_scheduler

    overrides = {"resource_scheduler_port": port}
    try:
        settings = load(ResourceSchedulerProcess, config_file=config, overrides=overrides).settings
    except SettingsError as error:
        return complain(str(error), USAGE)
    configure_logging(settings.log_level, settings.log_format)
    try:
        return asyncio.run(serve_resource_scheduler(settings, greet_resource_scheduler))
    except WrongSettings as error:
        return complain(str(error), USAGE)
    except (PortTaken, PermissionError) as error:
        return complain(str(error), FAILED)


def run_lablet_controller(config: str | None, port: str | None) -> int:
    """Load settings and serve; returns the exit code."""
    from lcm.wiring.control_plane_access import WrongSettings
    from lcm.wiring.lablet_controller import LabletControllerProcess, serve_lablet_controller

    overrides = {"lablet_controller_port": port}
    try:
        settings = load(LabletControllerProcess, config_file=config, overrides=overrides).settings
    except SettingsError as error:
        return complain(str(error), USAGE)
    configure_logging(settings.log_level, settings.log_format)
    take_all_descriptors()  # each CML server that is asked holds one
    try:
        return asyncio.run(serve_lablet_controller(settings, greet_lablet_controller))
    except WrongSettings as error:
        return complain(str(error), USAGE)
    except (PortTaken, PermissionError) as error:
        return complain(str(error), FAILED)


def _leave_threads_behind(code: int) -> None:
    """A call to AWS that nobody waits for any more cannot be cancelled, and would keep the process for a minute."""
    if any(thread.name.startswith(AWS_THREADS) for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def take_all_descriptors() -> None:
    """Each connection holds a descriptor, and the soft limit is meant for shells."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def greet_worker_controller(url: str, about: Mapping[str, object]) -> None:
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
    settle_down()


def greet_lablet_controller(url: str, about: Mapping[str, object]) -> None:
    """What runs where, for people."""
    _greet_controller("lablet controller", url, about)


def greet_resource_scheduler(url: str, about: Mapping[str, object]) -> None:
    """What runs where, for people."""
    _greet_controller("resource scheduler", url, about)


def _greet_controller(title: str, url: str, about: Mapping[str, object]) -> None:
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
    settle_down()


def greet_plane(url: str, about: Mapping[str, object]) -> None:
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
    settle_down()


def complain(text: str, code: int) -> int:
    """One line for each trouble, on standard error."""
    for line in text.splitlines():
        sys.stderr.write(f"lcm: {line}\n")
    return code


def greet(url: str, about: Mapping[str, object]) -> None:
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
    settle_down()


def settle_down() -> None:
    """What start-up made stays for good: the collector need not look at it again, which stalls the loop each time."""
    sys.stdout.flush()
    gc.collect()
    gc.freeze()


def find_factory(name: str) -> ControllerFactory:
    """The class or function behind MODULE:NAME, looked up from the current folder too."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise UsageError(f"controller {name!r}: must be MODULE:CLASS, for example examples.notes:NotesController")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"controller {name!r}: there is no module {error.name!r} in the current folder or installed"
        ) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise UsageError(f"controller {name!r}: {module_name} has no class {attribute!r}")
    return factory  # type: ignore[no-any-return]  # what it makes is checked when it is made
