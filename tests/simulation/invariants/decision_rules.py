"""The decision rules that fired in a run, and all rules in the source code."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lcm.controllers.lablet.decide
import lcm.controllers.worker.decide
from lcm.controllers.lablet.decide.decision import Decision as LabletDecision
from lcm.controllers.worker.decision import Decision as WorkerDecision

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator

_ROOMS: dict[str, tuple[type[Any], str]] = {
    "worker": (WorkerDecision, lcm.controllers.worker.decide.__file__),
    "lablet": (LabletDecision, lcm.controllers.lablet.decide.__file__),
}
_RULE = re.compile(r"[a-z*_]+\.[a-z*_]+")
_WATCHED: list[Counter[str]] = []


def count_rules(covered: Counter[str]) -> None:
    """Count every rule that fires from now on."""
    if not _WATCHED:
        for room, (made, _) in _ROOMS.items():
            made.__init__ = _counting(made.__init__, room)
    _WATCHED[:] = [covered]


def _counting(make: Callable[..., None], room: str) -> Callable[..., None]:
    def counted(decision: Any, rule: str, *rest: Any, **more: Any) -> None:
        _WATCHED[0][f"rule {room} {rule}"] += 1
        make(decision, rule, *rest, **more)

    return counted


def rules() -> set[str]:
    """All rules in the source code; a star stands for a placeholder such as the name of a call."""
    return {f"rule {room} {rule}" for room, (_, file) in _ROOMS.items() for rule in _in_folder(Path(file).parent)}


def missing(covered: Counter[str], known: set[str]) -> list[str]:
    """The rules of `known` that match nothing in `covered`."""
    return sorted(each for each in known if not any(_like(each).fullmatch(fired) for fired in covered))


def _like(rule: str) -> re.Pattern[str]:
    return re.compile(re.escape(rule).replace(r"\*", "[a-z_.]+"))


def _in_folder(folder: Path) -> Iterator[str]:
    for file in sorted(folder.rglob("*.py")):
        tree = ast.parse(file.read_text())
        prefixes = _constants(tree)
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            text = "" if id(node) in parts else _text(node, prefixes)
            if text in prefixes.values():
                continue
            if _RULE.fullmatch(text) and text != "*.*":
                yield text


def _constants(tree: ast.Module) -> dict[str, str]:
    """The constants of a module that end like the beginning of a rule, by name."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str) and node.value.value.endswith(("_", "."))
    }


def _text(node: ast.AST, prefixes: dict[str, str]) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_part(part, prefixes) for part in node.values)
    return ""


def _part(part: ast.expr, prefixes: dict[str, str]) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    name = part.value.id if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name) else ""
    return prefixes.get(name, "*")
