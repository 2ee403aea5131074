"""docs/operations.md says of every condition, and of each of its reasons in the code, what it means and what to do."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lcm.cloud import errors
from lcm.cloud.types import InstanceState
from lcm.controllers.worker.decide.shared.conditions import reason_of_state
from lcm.controllers.worker.observe.observation import LaunchResolution
from lcm.core.controller.effects import EffectTimeoutError
from lcm.model.worker.conditions import TYPE_NOT_OFFERED, ConditionType

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = Path(__file__).parents[3] / "src"
CODE = SOURCES / "lcm" / "controllers" / "worker"
PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
OF_ONE_TYPE = {"instance_ready": ("INSTANCE_READY", 1), "stuck": ("STUCK", 0), "waiting_for": ("WAITING", 0)}
"""Functions that make a condition of one type, and the position of its reason."""
CHOSEN_BEFORE = {
    "Stuck": ("model/worker/maintenance.py", r'"(\w+)", done\)'),
    "TelemetryMissing": ("controllers/worker/decide/running.py", r'reason = "(\w+)" if .* else "(\w+)"'),
}
"""Where the reason of a condition is chosen that is made elsewhere, and how to find it there."""
NO_WAIT = {"CloudError", "Refused", "InstanceNotFound", "WrongState"}
"""Reasons of errors after which a worker does not wait, or waits without this condition."""


def table(heading: str) -> list[list[str]]:
    """The rows of the table below a heading."""
    part = PAGE.split(f"\n### {heading}\n", 1)[1].split("\n#", 1)[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


@cache
def documented() -> dict[str, set[str]]:
    """The reasons on the page, by type of condition."""
    found: dict[str, set[str]] = {kind.value: set() for kind in ConditionType}
    for kind, reasons, *_ in table("Conditions and their reasons"):
        found[kind] |= set(re.findall(r"`(\w+)`", reasons))
    for kind, heading in (("Waiting", "A worker is Waiting"), ("Stuck", "A worker is Stuck")):
        found[kind] = {reason for row in table(heading) for reason in row[0].split(", ")}
    return found


@cache
def set_by_code() -> dict[str, set[str]]:
    """The reasons that the worker controller sets, by type of condition; those of errors and states are computed."""
    found: dict[str, set[str]] = {kind.value: set() for kind in ConditionType}
    for file in sorted(CODE.rglob("*.py")):
        module = import_module(".".join(file.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__"))
        for kind, argument in _reasons(ast.parse(file.read_text())):
            for node in ast.walk(argument):
                value = getattr(module, node.id, None) if isinstance(node, ast.Name) else None
                value = node.value if isinstance(node, ast.Constant) else value
                if isinstance(value, str):
                    found[ConditionType[kind].value].add(value)
    found["InstanceReady"] |= {reason_of_state(state) for state in InstanceState} - {"Unknown"} | {TYPE_NOT_OFFERED}
    classes = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.CloudError)]
    causes = {each.condition_reason for each in classes}
    found["Waiting"] |= {*causes, EffectTimeoutError.condition_reason, LaunchResolution().condition_reason} - NO_WAIT
    for kind, (name, pattern) in CHOSEN_BEFORE.items():
        chosen = re.findall(pattern, (SOURCES / "lcm" / name).read_text())
        found[kind] |= {reason for match in chosen for reason in ([match] if isinstance(match, str) else match)}
    return found


def _reasons(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """The type of each condition that is made, and the expression of its reason."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        kind, place = OF_ONE_TYPE.get(node.func.id, ("", 0))
        if node.func.id == "ConditionUpdate" and isinstance(node.args[0], ast.Attribute):
            kind, place = node.args[0].attr, 2
        if kind and len(node.args) > place:
            yield kind, node.args[place]


@pytest.mark.parametrize("kind", [each.value for each in ConditionType])
def test_every_reason_is_explained_and_no_other(kind: str) -> None:
    explained, existing = documented()[kind], set_by_code()[kind]
    if kind == "InstanceReady":
        existing = existing - set_by_code()["Waiting"]  # the page refers to them
    if kind == "Maintenance":
        existing = existing | {"InstanceRetirement", "InstanceStop", "SystemReboot"}  # EC2's words
    assert existing
    assert explained == existing
