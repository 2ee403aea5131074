"""Generates docs/settings.md from the code: every setting of every service. `make docs` runs it; a test compares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lcm.settings import Settings, describe
from lcm.wiring.control_plane import ControlPlaneProcessSettings
from lcm.wiring.controllers import StandaloneControllerSettings
from lcm.wiring.lablet_controller import LabletControllerProcessSettings
from lcm.wiring.resource_scheduler import ResourceSchedulerProcessSettings
from lcm.wiring.up import UpSettings
from lcm.wiring.worker_controller import WorkerControllerProcessSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lcm.settings import SettingDoc

PAGE = Path(__file__).with_name("settings.md")
SERVICES: dict[str, type[Settings]] = {
    "up": UpSettings,
    "control-plane": ControlPlaneProcessSettings,
    "worker-controller": WorkerControllerProcessSettings,
    "resource-scheduler": ResourceSchedulerProcessSettings,
    "lablet-controller": LabletControllerProcessSettings,
    "controller": StandaloneControllerSettings,
}

_INTRODUCTION = """\
# Settings

Generated from the code by `make docs`; do not edit.

A setting is an environment variable, or a line of a TOML file under its key: the variable's name in lower case, at the
top level or in any table. `--config` or `LCM_CONFIG` names the file, which several services may share: each reads its
own settings. Flags override the environment, the environment overrides the file, and the file overrides the defaults.
An empty variable counts as unset. An invalid value prevents the start, with a line that names the setting, the value
and what is allowed. `lcm config show` prints the effective values and their sources.

Columns: **allowed** completes "must be …"; **read by** lists the commands, `up` for `lcm up` and so on. All services
read the ports of the others, but each listens only on its own. Lists are separated by commas; choices may be in any
case. In the demo of `lcm up`, unset intervals for idle detection, discovery and metrics are shorter than the defaults
here.

"""

_OTHERS = """\
## Variables that are not settings of a service

| variable | description |
|---|---|
| `LCM_CONFIG` | The TOML file with settings, unless `--config` is given. |
| `LCM_URL` | The control plane that client commands such as `lcm workers` use. |
| `LCM_TOKEN` | The token for that control plane. |
| `LCM_CA_FILE` | The CA certificates, as PEM, that verify that control plane; if unset, those of the host. \
Services read it too: see above. |
| `LCM_COMPLETION_SECONDS` | How long the completion of names in a shell waits for the control plane; 2 s if unset. |
| `AWS_ACCESS_KEY_ID`, `AWS_PROFILE` and similar | Credentials for AWS, as boto3 reads them. |
| `FORWARDED_ALLOW_IPS` | Addresses of trusted load balancers, separated by commas: their `X-Forwarded-For` and \
`X-Forwarded-Proto` headers are used; if unset, none are. |
"""


def page() -> str:
    """The whole page."""
    return _INTRODUCTION + "".join(_section(group) for group in _groups()) + _OTHERS


def _groups() -> list[type[Settings]]:
    """The groups of all services, each once, in the order of their first use."""
    found: dict[type[Settings], None] = {}
    for service in SERVICES.values():
        for base in service.__mro__:
            if issubclass(base, Settings) and base.__module__.startswith("lcm.settings.") and base is not Settings:
                found.setdefault(base)
    return list(found)


def _section(group: type[Settings]) -> str:
    heading = (group.__doc__ or "").split("\n\n", maxsplit=1)[0].strip().rstrip(".")
    lines = [
        f"## {heading}",
        "",
        "| variable | key | default | allowed | description | read by |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_row(doc) for doc in describe(group)]
    return "\n".join(lines) + "\n\n"


def _row(doc: SettingDoc) -> str:
    variables = ", ".join(f"`{name}`" for name in (doc.variable, *doc.alias_variables))
    text = doc.description + (" Secret." if doc.secret else "")
    cells = (variables, f"`{doc.name}`", _defaults(doc), doc.allowed, text, ", ".join(_readers(doc.name)))
    return f"| {' | '.join(cells)} |"


def _readers(name: str) -> Iterator[str]:
    return (service for service, model in SERVICES.items() if name in model.model_fields)


def _defaults(doc: SettingDoc) -> str:
    """The default, and those of services that differ."""
    others = [
        f"{service}: {_shown(own.default)}"
        for service, model in SERVICES.items()
        for own in describe(model)
        if own.name == doc.name and own.default != doc.default
    ]
    return "; ".join([_shown(doc.default), *others])


def _shown(default: str | None) -> str:
    if default is None:
        return "unset"
    return f"`{default}`" if default else "empty"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
