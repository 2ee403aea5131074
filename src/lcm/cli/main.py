"""The `lcm` command. Modules are imported by the command that needs them, so that `--help` is quick."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

app = typer.Typer(
    name="lcm",
    help="Lablet Cloud Manager: say what you want, it happens once, it stays so, and you can see why.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

Controllers = Annotated[
    list[str] | None,
    typer.Option("--controller", metavar="MODULE:CLASS", help="A controller of your own to run as well; repeatable."),
]
Config = Annotated[str | None, typer.Option("--config", metavar="FILE", help="A TOML file with settings.")]
Port = Annotated[str | None, typer.Option("--port", help="Where health, readiness and metrics are served.")]


@app.command()
def up(controller: Controllers = None, config: Config = None, port: Port = None) -> None:
    """Run everything in this one process, on embedded defaults."""
    from lcm.cli.running import run
    from lcm.wiring import UpSettings

    raise typer.Exit(run(UpSettings, controller or [], config, port))


@app.command("controller")
def run_controller(
    controller: Annotated[str, typer.Argument(metavar="MODULE:CLASS", help="What to run, for example notes:Notes.")],
    config: Config = None,
    port: Port = None,
) -> None:
    """Run a controller of your own in a process of its own, elected over etcd."""
    from lcm.cli.running import run
    from lcm.wiring import StandaloneSettings

    raise typer.Exit(run(StandaloneSettings, [controller], config, port))


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
