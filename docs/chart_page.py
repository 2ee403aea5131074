"""Generates README.md and values.schema.json of the Helm chart. `make docs` runs it; a test compares.

Names, defaults and descriptions come from values.yaml, the names of settings from the code.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from docs.settings_page import SERVICES
from lcm.settings import describe

if TYPE_CHECKING:
    from collections.abc import Iterable

CHART = Path(__file__).parents[1] / "deploy" / "helm" / "lcm"
PAGE = CHART / "README.md"
SCHEMA = CHART / "values.schema.json"
COMPONENTS = {
    "controlPlane": "control-plane",
    "workerController": "worker-controller",
    "resourceScheduler": "resource-scheduler",
    "labletController": "lablet-controller",
}

_INTRODUCTION = """\
# The chart of LCM

Generated from values.yaml by `make docs`; do not edit. [deploy/README.md](../../README.md) says how to install it.

| value | default | description |
|---|---|---|
"""
# null unsets a value of the chart, or of `settings` for one component.
_SCALAR = {"type": ["string", "number", "boolean", "null"]}
_NAME = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
_ANYTHING = {"type": "object"}
_KEY = re.compile(r"^( *)([A-Za-z]\w*):")
# Values whose type cannot be read from their default.
_SPECIAL: dict[str, dict[str, Any]] = {
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "zoneSpread": {"enum": ["ScheduleAnyway", "DoNotSchedule"]},
    "podDisruptionBudget.maxUnavailable": {"type": ["integer", "string"]},
    "service.type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    "replicas": _COUNT,
    "port": _PORT,
    "regions": {"type": "object", "additionalProperties": {"type": "object"}},
}
# Settings whose plain number would be another value than the one that was meant.
_ACCOUNT = {
    "anyOf": [{"type": "string"}, {"type": "integer", "minimum": 100_000_000_000}],
    "description": "quote an account id that begins with 0",
}


def values() -> dict[str, Any]:
    """The default values."""
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return found


def page() -> str:
    """The whole page."""
    comments = _comments()
    rows = [
        f"| `{path}` | {_shown(default)} | {comments.get(path) or comments.get(_shared(path), '')} |"
        for path, default in _leaves(values())
    ]
    return _INTRODUCTION + "\n".join(rows) + "\n"


def schema() -> str:
    """The schema of the values, as JSON."""
    root = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart of LCM"}
    return json.dumps({**root, **_object(values(), ""), "required": ["image"]}, indent=2) + "\n"


def _object(defaults: dict[str, Any], path: str) -> dict[str, Any]:
    properties = {name: _schema_of(value, f"{path}.{name}".lstrip(".")) for name, value in defaults.items()}
    if not path:
        properties["global"] = _ANYTHING
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _schema_of(default: Any, path: str) -> dict[str, Any]:
    own, _, name = path.partition(".")
    special = _SPECIAL.get(path) or (_SPECIAL.get(name) if own in COMPONENTS else None)
    if special:
        return special
    if path == "settings":
        return _settings(SERVICES.keys() - {"up", "controller"})
    if own in COMPONENTS and name == "settings":
        return _settings([COMPONENTS[own]])
    if isinstance(default, dict):
        free = not default or path.endswith(("annotations", "resources"))
        return _ANYTHING if free else _object(default, path)
    if isinstance(default, bool):
        return {"type": "boolean"}
    if isinstance(default, int):
        return _COUNT
    return {"type": "array"} if isinstance(default, list) else _NAME


def _settings(services: Iterable[str]) -> dict[str, Any]:
    docs = [doc for service in services for doc in describe(SERVICES[service])]
    names = sorted({name for doc in docs for name in (doc.variable, *doc.alias_variables)})
    properties = {name: _ACCOUNT if name == "AMI_OWNERS" else _SCALAR for name in names}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _comments() -> dict[str, str]:
    """The comment above each value, by the path of the value."""
    found: dict[str, str] = {}
    parents: list[str] = []
    block: list[str] = []
    for line in (CHART / "values.yaml").read_text(encoding="utf-8").splitlines():
        key = _KEY.match(line)
        if key:
            parents = [*parents[: len(key[1]) // 2], key[2]]
            if block:
                found[".".join(parents)] = " ".join(block)
            block = []
        elif line.strip().startswith("#"):
            block.append(line.strip().lstrip("# "))
        else:
            block = []
    return found


def _leaves(defaults: dict[str, Any], path: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    comments = _comments()
    for name, value in defaults.items():
        own = f"{path}.{name}".lstrip(".")
        inner = isinstance(value, dict) and value and not own.endswith(("settings", "annotations", "resources"))
        if inner and path.count(".") == 0 and (not path or isinstance(next(iter(value.values())), dict)):
            if own in comments:
                rows.append((own, {}))
            rows += _leaves(value, own)
        else:
            rows.append((own, value))
    return rows


def _shared(path: str) -> str:
    """Where a value that every component has is described: with the first of them."""
    own, _, name = path.partition(".")
    return f"controlPlane.{name}" if own in COMPONENTS else path


def _shown(default: Any) -> str:
    return "" if default in ("", {}, [], None) else f"`{json.dumps(default)}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    SCHEMA.write_text(schema(), encoding="utf-8")
