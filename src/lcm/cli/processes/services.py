"""Commands that run a service process until it is stopped."""

from __future__ import annotations

import gc
import importlib
import os
import resource
import sys
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from lcm.cli.errors import FAILED, USAGE, UsageError, print_error
from lcm.cli.processes.garbage_collection import pace_full_collections
from lcm.core.hosting import run_process
from lcm.core.logs import configure_logging
from lcm.http.server import PortInUseError
from lcm.settings import LogSettings, SettingsError, load
from lcm.wiring.controllers import ControllerFactory, ControllerRuntimeSettings, serve_controllers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from lcm.wiring.connections import OnStarted

S = TypeVar("S", bound=LogSettings)

AWS_THREAD_PREFIX = "lcm-aws"


def run_controllers(
    model: type[ControllerRuntimeSettings], controllers: Sequence[str], config: str | None, port: str | None
) -> int:
    """Run custom controllers; returns the exit code."""
    try:
        factories = [import_controller(name) for name in controllers]
    except UsageError as error:
        return print_error(str(error), USAGE)
    overrides = {"worker_controller_port": port}
    return _run(model, config, overrides, lambda settings: serve_controllers(settings, factories, _banner("")))


def run_control_plane(config: str | None, port: str | None) -> int:
    """Run the control plane; returns the exit code."""
    from lcm.control_plane.fleet.system import InstallationMismatchError
    from lcm.control_plane.secrets.keys import SecretKeyError
    from lcm.control_plane.store.port import StoreError
    from lcm.wiring.control_plane import ControlPlaneProcessSettings, RegionConfigError, serve_control_plane

    return _run(
        ControlPlaneProcessSettings,
        config,
        {"control_plane_port": port},
        lambda settings: serve_control_plane(settings, _print_control_plane_banner),
        invalid=(SecretKeyError, InstallationMismatchError, RegionConfigError),
        failures=(OSError, StoreError),
        many_connections=True,
    )


def run_worker_controller(config: str | None, port: str | None) -> int:
    """Run the worker controller; returns the exit code."""
    from lcm.wiring.connections import InvalidSettingsError
    from lcm.wiring.worker_controller import MissingExtraError, WorkerControllerProcessSettings, serve_worker_controller

    code = _run(
        WorkerControllerProcessSettings,
        config,
        {"worker_controller_port": port},
        lambda settings: serve_worker_controller(settings, _banner("worker controller")),
        invalid=(InvalidSettingsError,),
        failures=(PermissionError, MissingExtraError),
        many_connections=True,
    )
    _exit_despite_aws_threads(code)
    return code


def run_resource_scheduler(config: str | None, port: str | None) -> int:
    """Run the resource scheduler; returns the exit code."""
    from lcm.wiring.connections import InvalidSettingsError
    from lcm.wiring.resource_scheduler import ResourceSchedulerProcessSettings, serve_resource_scheduler

    return _run(
        ResourceSchedulerProcessSettings,
        config,
        {"resource_scheduler_port": port},
        lambda settings: serve_resource_scheduler(settings, _banner("resource scheduler")),
        invalid=(InvalidSettingsError,),
    )


def run_lablet_controller(config: str | None, port: str | None) -> int:
    """Run the lablet controller; returns the exit code."""
    from lcm.wiring.connections import InvalidSettingsError
    from lcm.wiring.lablet_controller import LabletControllerProcessSettings, serve_lablet_controller

    return _run(
        LabletControllerProcessSettings,
        config,
        {"lablet_controller_port": port},
        lambda settings: serve_lablet_controller(settings, _banner("lablet controller")),
        invalid=(InvalidSettingsError,),
        many_connections=True,
    )


def _run(
    model: type[S],
    config: str | None,
    overrides: Mapping[str, str | None],
    serve: Callable[[S], Coroutine[Any, Any, int]],
    *,
    invalid: tuple[type[Exception], ...] = (),
    failures: tuple[type[Exception], ...] = (PermissionError,),
    many_connections: bool = False,
) -> int:
    """Load settings and serve; returns the exit code. Problems are printed one per line.

    `invalid` are errors in settings that only serving finds. `many_connections`: one to each CML server or client.
    """
    try:
        settings = load(model, config_file=config, overrides=overrides).settings
    except SettingsError as error:
        return print_error(str(error), USAGE)
    configure_logging(settings.log_level, settings.log_format)
    if many_connections:
        raise_descriptor_limit()
    failed: tuple[type[Exception], ...] = (PortInUseError, *failures)
    try:
        return run_process(serve(settings))
    except invalid as error:
        return print_error(str(error), USAGE)
    except failed as error:
        return print_error(str(error), FAILED)


def _exit_despite_aws_threads(code: int) -> None:
    """Exit at once: an abandoned AWS call cannot be cancelled and would delay the exit by up to a minute."""
    if any(thread.name.startswith(AWS_THREAD_PREFIX) for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def raise_descriptor_limit() -> None:
    """Raise the soft limit of file descriptors to the hard limit: each connection holds one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _banner(title: str) -> OnStarted:
    """Prints the addresses of a controller process; without a title, of custom controllers."""

    def show(url: str, about: Mapping[str, object]) -> None:
        rows: list[tuple[str, object]] = []
        if "controllers" in about:
            rows.append(("controllers", about["controllers"] or "none; name yours with --controller MODULE:CLASS"))
        if "control_plane" in about:
            rows.append(("control plane", about["control_plane"]))
        rows.append(("coordination", about["coordination"]))
        if isinstance(regions := about.get("regions"), list):
            rows.append(("cloud", f"{about['cloud']}: {', '.join(regions)}"))
        rows += [("health", f"{url}/health"), ("readiness", f"{url}/ready"), ("metrics", f"{url}/metrics")]
        if title:
            rows.append(("statistics", f"{url}/admin/stats (with an admin's token)"))
        _print_banner(f"{title} {about['instance_id']}" if title else "", about, rows)

    return show


def _print_control_plane_banner(url: str, about: Mapping[str, object]) -> None:
    rows: list[tuple[str, object]] = [
        ("API", f"{url}/api/workers"),
        ("API document", f"{url}/openapi.json"),
        ("installation", about["installation_id"]),
        ("coordination", about["coordination"]),
        ("readiness", f"{url}/ready"),
        ("metrics", f"{url}/metrics"),
    ]
    _print_banner("control plane", about, rows)


def _print_banner(title: str, about: Mapping[str, object], rows: Sequence[tuple[str, object]]) -> None:
    sys.stdout.write(f"LCM {about['version']} {title}".rstrip() + "\n")
    sys.stdout.writelines(f"  {name:<13}  {value}\n" for name, value in rows)
    sys.stdout.write("Press Ctrl-C to stop.\n")
    freeze_startup_objects()


def freeze_startup_objects() -> None:
    """Exclude startup objects from garbage collection: they stay, and scanning them stalls the event loop."""
    sys.stdout.flush()
    gc.collect()
    gc.freeze()
    pace_full_collections()


def import_controller(name: str) -> ControllerFactory:
    """Import the class or function MODULE:NAME; the current folder is searched too."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise UsageError(f"controller {name!r}: must be MODULE:CLASS, for example examples.notes:NotesController")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UsageError(f"controller {name!r}: no module {error.name!r} in the current folder or installed") from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise UsageError(f"controller {name!r}: {module_name} has no class {attribute!r}")
    return factory  # type: ignore[no-any-return]  # its result is checked when it is called
