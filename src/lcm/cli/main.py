"""The `lcm` command. Modules are imported by the command that needs them, so that `--help` is quick."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lcm.cli.lazy_group import LazyGroup

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

app = typer.Typer(
    name="lcm",
    help="Lablet Cloud Manager: say what you want, it happens once, it stays so, and you can see why.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    cls=LazyGroup,  # daily work: its commands stand in their own modules
    rich_markup_mode=None,  # help without colours comes in half the time
)

ControllersOption = Annotated[
    list[str] | None,
    typer.Option("--controller", metavar="MODULE:CLASS", help="A controller of your own to run as well; repeatable."),
]
ConfigOption = Annotated[str | None, typer.Option("--config", metavar="FILE", help="A TOML file with settings.")]
PortOption = Annotated[str | None, typer.Option("--port", help="Where health, readiness and metrics are served.")]


@app.command()
def up(
    controller: ControllersOption = None,
    config: ConfigOption = None,
    empty: Annotated[bool, typer.Option("--empty", help="Begin without the demo's workers and people.")] = False,
    speed: Annotated[
        float, typer.Option(min=0.1, max=1000, help="How many times faster the simulated world is.")
    ] = 1.0,
    cloud: Annotated[str | None, typer.Option(metavar="simulated|aws", help="Where instances run.")] = None,
    region: Annotated[str | None, typer.Option(help="The region of workers that name none.")] = None,
    port: Annotated[str | None, typer.Option("--port", help="Where the API is served.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="On a real cloud, begin without asking first.")] = False,
) -> None:
    """Run everything in this one process, on embedded defaults: a control plane, a controller, a simulated cloud.

    What it keeps stands in LCM_DATA_DIR; started again, it goes on where it was.
    """
    from lcm.cli.processes.up import run_up

    flags = {"control_plane_port": port, "cloud_provider": cloud, "aws_default_region": region}
    raise typer.Exit(run_up(config, flags, controller or [], demo=not empty, speed=speed, yes=yes))


@app.command("controller")
def run_controller(
    controller: Annotated[str, typer.Argument(metavar="MODULE:CLASS", help="What to run, for example notes:Notes.")],
    config: ConfigOption = None,
    port: PortOption = None,
) -> None:
    """Run a controller of your own in a process of its own, elected over etcd."""
    from lcm.cli.processes.services import run_controllers
    from lcm.wiring.controllers import StandaloneControllerSettings

    raise typer.Exit(run_controllers(StandaloneControllerSettings, [controller], config, port))


@app.command("control-plane")
def control_plane(config: ConfigOption = None, port: PortOption = None) -> None:
    """Run the control plane: the owner of all records, and the API."""
    from lcm.cli.processes.services import run_control_plane

    raise typer.Exit(run_control_plane(config, port))


@app.command("worker-controller")
def worker_controller(config: ConfigOption = None, port: PortOption = None) -> None:
    """Run the worker controller: it keeps every worker, and the instance behind it, as it is wanted.

    Several may run at once: one leads, the others stand by.

    It needs etcd, AWS, and the control plane: CONTROL_PLANE_API_URL says where, LCM_CONTROLLER_TOKEN lets it in.
    """
    from lcm.cli.processes.services import run_worker_controller

    raise typer.Exit(run_worker_controller(config, port))


@app.command("resource-scheduler")
def resource_scheduler(config: ConfigOption = None, port: PortOption = None) -> None:
    """Run the resource scheduler: it finds a worker for each lablet, and asks for more where none has room.

    Several may run at once: one leads, the others stand by.

    It needs etcd, and the control plane: CONTROL_PLANE_API_URL says where, LCM_CONTROLLER_TOKEN lets it in.
    """
    from lcm.cli.processes.services import run_resource_scheduler

    raise typer.Exit(run_resource_scheduler(config, port))


@app.command("lablet-controller")
def lablet_controller(config: ConfigOption = None, port: PortOption = None) -> None:
    """Run the lablet controller: it makes the labs of lablets on CML, keeps their addresses, and removes them.

    Several may run at once: one leads, the others stand by.

    It needs etcd, and the control plane: CONTROL_PLANE_API_URL says where, LCM_CONTROLLER_TOKEN lets it in.
    """
    from lcm.cli.processes.services import run_lablet_controller

    raise typer.Exit(run_lablet_controller(config, port))


@app.command("cml-simulator")
def cml_simulator(
    release: Annotated[str, typer.Option("--version", help="The CML version to behave as, from 2.7 to 2.10.")] = "2.9",
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port of the simulated server; 0 takes any that is free.")] = 8443,
    control_port: Annotated[int, typer.Option(help="The port that faults and speed are set on.")] = 8444,
    speed: Annotated[float, typer.Option(help="How many times faster than real time things happen.")] = 1.0,
    boot_seconds: Annotated[float, typer.Option(help="How long the simulated server takes to boot.")] = 5.0,
    username: Annotated[str, typer.Option(help="Who may sign in.")] = "admin",
    password: Annotated[str, typer.Option(help="With which password.")] = "simulated",  # noqa: S107 - of a simulated server
) -> None:
    """Run a simulated CML server over HTTPS, for trying things out and for tests."""
    from lcm.cli.processes.cml_simulator import run_simulator

    code = run_simulator(release, host, port, control_port, speed, boot_seconds, username, password)
    raise typer.Exit(code)


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    typer.echo(f"lcm {installed('lcm')}")


def main() -> None:
    """The entry point of the `lcm` script."""
    try:
        app(prog_name="lcm")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
