"""The `lcm` command. Each command imports the modules that it needs, so that `--help` is fast."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer

from lcm.cli.errors import INTERRUPTED
from lcm.cli.lazy_group import LazyGroup

app = typer.Typer(
    name="lcm",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    cls=LazyGroup,  # daily commands are in modules of their own
    rich_markup_mode=None,  # plain help renders in half the time
    context_settings={"help_option_names": ["-h", "--help"]},
)

ControllersOption = Annotated[
    list[str] | None,
    typer.Option("--controller", metavar="MODULE:CLASS", help="Also run this custom controller; repeatable."),
]
ConfigOption = Annotated[str | None, typer.Option("--config", metavar="FILE", help="TOML file with settings.")]
PortOption = Annotated[
    str | None, typer.Option("--port", metavar="PORT", help="Port for health, readiness and metrics.")
]
ApiPortOption = Annotated[
    str | None, typer.Option("--port", metavar="PORT", help="Port for the API and the dashboard.")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def lcm(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Lablet Cloud Manager: declare the workers and labs you want; controllers create, maintain and explain them."""


@app.command()
def up(
    controller: ControllersOption = None,
    config: ConfigOption = None,
    empty: Annotated[bool, typer.Option("--empty", help="Start without the demo workers and users.")] = False,
    speed: Annotated[
        float, typer.Option(min=0.1, max=1000, help="Speed of the simulated cloud, as a multiple of real time.")
    ] = 1.0,
    cloud: Annotated[
        str | None, typer.Option(metavar="simulated|aws", help="The cloud that runs the instances.")
    ] = None,
    region: Annotated[str | None, typer.Option(metavar="REGION", help="Default region for workers.")] = None,
    port: Annotated[
        str | None, typer.Option("--port", metavar="PORT", help="Port for the API and the dashboard.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="On a real cloud, start without asking for confirmation.")] = False,
) -> None:
    """Run everything in one process with built-in defaults: control plane, controllers and a simulated cloud.

    State is stored in LCM_DATA_DIR; a restart continues from it.
    """
    from lcm.cli.processes.up import run_up

    flags = {"control_plane_port": port, "cloud_provider": cloud, "aws_default_region": region}
    raise typer.Exit(run_up(config, flags, controller or [], demo=not empty, speed=speed, yes=yes))


@app.command("controller")
def run_controller(
    controller: Annotated[
        str,
        typer.Argument(metavar="MODULE:CLASS", help="The controller to run, such as examples.notes:NotesController."),
    ],
    config: ConfigOption = None,
    port: PortOption = None,
) -> None:
    """Run a custom controller in its own process, with leader election in etcd."""
    from lcm.cli.processes.services import run_controllers
    from lcm.wiring.controllers import StandaloneControllerSettings

    raise typer.Exit(run_controllers(StandaloneControllerSettings, [controller], config, port))


@app.command("control-plane")
def control_plane(config: ConfigOption = None, port: ApiPortOption = None) -> None:
    """Run the control plane, which owns all records and serves the API and the dashboard."""
    from lcm.cli.processes.services import run_control_plane

    raise typer.Exit(run_control_plane(config, port))


@app.command("worker-controller")
def worker_controller(config: ConfigOption = None, port: PortOption = None) -> None:
    """Run the worker controller, which brings each worker and its EC2 instance to the desired state.

    You can run several replicas: one is the leader, the others are on standby.

    It needs etcd, AWS and the control plane (CONTROL_PLANE_API_URL, LCM_CONTROLLER_TOKEN).
    """
    from lcm.cli.processes.services import run_worker_controller

    raise typer.Exit(run_worker_controller(config, port))


@app.command("resource-scheduler")
def resource_scheduler(config: ConfigOption = None, port: PortOption = None) -> None:
    """Run the resource scheduler, which places lablets on workers and requests more workers when capacity runs out.

    You can run several replicas: one is the leader, the others are on standby.

    It needs etcd and the control plane (CONTROL_PLANE_API_URL, LCM_CONTROLLER_TOKEN).
    """
    from lcm.cli.processes.services import run_resource_scheduler

    raise typer.Exit(run_resource_scheduler(config, port))


@app.command("lablet-controller")
def lablet_controller(config: ConfigOption = None, port: PortOption = None) -> None:
    """Run the lablet controller, which creates lablets' labs on CML, records their addresses and deletes them.

    You can run several replicas: one is the leader, the others are on standby.

    It needs etcd and the control plane (CONTROL_PLANE_API_URL, LCM_CONTROLLER_TOKEN).
    """
    from lcm.cli.processes.services import run_lablet_controller

    raise typer.Exit(run_lablet_controller(config, port))


@app.command("cml-simulator")
def cml_simulator(
    release: Annotated[
        str, typer.Option("--version", metavar="VERSION", help="The CML version to simulate, from 2.7 to 2.10.")
    ] = "2.9",
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", help="Port of the simulated server; 0 picks a free port.")
    ] = 8443,
    control_port: Annotated[
        int, typer.Option(metavar="PORT", help="Port of the control API for faults and speed.")
    ] = 8444,
    speed: Annotated[float, typer.Option(metavar="FACTOR", help="Simulation speed, as a multiple of real time.")] = 1.0,
    boot_seconds: Annotated[float, typer.Option(metavar="SECONDS", help="Boot time of the simulated server.")] = 5.0,
    username: Annotated[str, typer.Option(metavar="NAME", help="User name for sign-in.")] = "admin",
    password: Annotated[str, typer.Option(metavar="PASSWORD", help="Password for sign-in.")] = "simulated",  # noqa: S107 - of a simulated server
) -> None:
    """Run a simulated CML server over HTTPS, for evaluation and tests."""
    from lcm.cli.processes.cml_simulator import run_simulator

    code = run_simulator(release, host, port, control_port, speed, boot_seconds, username, password)
    raise typer.Exit(code)


@app.command()
def version() -> None:
    """Print the version."""
    from lcm.core.version import installed_version

    typer.echo(f"lcm {installed_version()}")


def main() -> None:
    """The entry point of the `lcm` script."""
    # A background job of a shell starts with SIGINT ignored; Ctrl-C and `kill -INT` must end `lcm` all the same.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        app(prog_name="lcm")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
