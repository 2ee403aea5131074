"""As much of Helm's templates as our chart uses, strictly: what it does not know is an error, like a missing value.

Helm itself would print nothing for a value that is not there; here a mistyped path fails.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_ACTION = re.compile(r"(\s*)\{\{(-?)\s*(.*?)\s*(-?)\}\}(?:(?<=-\}\})\s*)?", re.DOTALL)
_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[|()]|\$?[\w.]+|\$)')
_RANGE = re.compile(r"range (?:(\$\w+), (\$\w+) := )?(.+)")


@dataclass
class _Node:
    kind: str
    text: str = ""
    body: list[_Node] = field(default_factory=list)
    other: list[_Node] = field(default_factory=list)


class Chart:
    """A chart of files, rendered as `helm template RELEASE` would."""

    def __init__(self, folder: Path, release: str = "lcm", namespace: str = "labs") -> None:
        self.values: dict[str, Any] = yaml.safe_load((folder / "values.yaml").read_text())
        about = yaml.safe_load((folder / "Chart.yaml").read_text())
        self._about = {name[0].upper() + name[1:]: value for name, value in about.items()}
        self._release = {"Name": release, "Namespace": namespace, "Service": "Helm"}
        self._defined: dict[str, list[_Node]] = {}
        self.files = {}
        for path in sorted((folder / "templates").iterdir()):
            nodes = _parse(path.read_text())
            self._defined |= {node.text: node.body for node in nodes if node.kind == "define"}
            self.files[path.name] = [node for node in nodes if node.kind != "define"]

    def render(self, **changes: Any) -> list[dict[str, Any]]:
        """All objects, with these values changed at the top: maps are merged, all else is replaced."""
        top = self._top(changes)
        texts = [self._text(nodes, top, {"$": top}) for name, nodes in self.files.items() if name.endswith(".yaml")]
        return [each for text in texts for each in yaml.safe_load_all(text) if each is not None]

    def notes(self) -> str:
        """What is printed after an installation."""
        top = self._top({})
        return self._text(self.files["NOTES.txt"], top, {"$": top})

    def _top(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        return {"Values": _merged(self.values, changes), "Release": self._release, "Chart": self._about}

    def _text(self, nodes: Sequence[_Node], dot: Any, names: Mapping[str, Any]) -> str:
        return "".join(self._one(node, dot, names) for node in nodes)

    def _one(self, node: _Node, dot: Any, names: Mapping[str, Any]) -> str:
        if node.kind == "text":
            return node.text
        if node.kind == "print":
            return _printed(self._value(node.text, dot, names))
        if node.kind == "range":
            return self._range(node, dot, names)
        value = self._value(node.text, dot, names)
        if not value:
            return self._text(node.other, dot, names)
        return self._text(node.body, value if node.kind == "with" else dot, names)

    def _range(self, node: _Node, dot: Any, names: Mapping[str, Any]) -> str:
        match = _RANGE.fullmatch(f"range {node.text}")
        assert match is not None
        key, value, source = match.groups()
        items = self._value(source, dot, names)
        pairs = sorted(items.items()) if isinstance(items, dict) else list(enumerate(items))
        rounds = [({**names, key: each, value: item} if key else names, item) for each, item in pairs]
        return "".join(self._text(node.body, item, named) for named, item in rounds)

    def _value(self, expression: str, dot: Any, names: Mapping[str, Any]) -> Any:
        commands = _split(expression)
        value = self._command(commands[0], dot, names)
        for command in commands[1:]:
            value = self._command([*command, value], dot, names)
        return value

    def _command(self, command: Sequence[Any], dot: Any, names: Mapping[str, Any]) -> Any:
        first, *rest = command
        arguments = [self._term(each, dot, names) for each in rest]
        if first == "include":
            name, passed = arguments
            return self._text(self._defined[name], passed, {"$": passed})
        if first in _FUNCTIONS:
            return _FUNCTIONS[first](*arguments)
        assert not arguments, f"unknown function {first}"
        return self._term(first, dot, names)

    def _term(self, term: Any, dot: Any, names: Mapping[str, Any]) -> Any:
        if isinstance(term, _Inner):
            return self._value(term.text, dot, names)
        if not isinstance(term, _Word):
            return term
        if term in ("true", "false"):
            return term == "true"
        if term.startswith('"'):
            return json.loads(term)
        if term.isdigit():
            return int(term)
        if term == ".":
            return dot
        start, _, path = term.partition(".")
        value = names[start] if start else dot
        for step in path.split(".") if path else ():
            value = value[step]
        return value


class _Word(str):
    """A piece of an expression, as against a value."""

    __slots__ = ()


@dataclass(frozen=True)
class _Inner:
    """An expression in parentheses."""

    text: str


def _dict(*pairs: Any) -> dict[str, Any]:
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def _quote(value: Any) -> str:
    return json.dumps(_printed(value))


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=True).rstrip("\n")


def _nindent(width: int, text: str) -> str:
    return "\n" + "\n".join(" " * width + line if line else "" for line in text.splitlines())


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quote": _quote,
    "toYaml": _yaml,
    "nindent": _nindent,
    "dict": _dict,
    "list": lambda *items: list(items),
    "default": lambda default, value: value or default,
}


def _printed(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _split(expression: str) -> list[list[Any]]:
    commands: list[list[Any]] = [[]]
    place = 0
    while place < len(expression):
        match = _TOKEN.match(expression, place)
        assert match is not None, f"not understood: {expression[place:]}"
        place = match.end()
        if match[1] == "(":
            end = expression.index(")", place)  # none inside another is used here
            commands[-1].append(_Inner(expression[place:end]))
            place = end + 1
        elif match[1] == "|":
            commands.append([])
        else:
            commands[-1].append(_Word(match[1]))
    return commands


def _parse(text: str) -> list[_Node]:
    root = _Node("root")
    stack: list[tuple[_Node, list[_Node]]] = [(root, root.body)]
    place = 0
    for match in _ACTION.finditer(text):
        space, trims, action, _ = match.groups()
        stack[-1][1].append(_Node("text", text[place : match.start()] + ("" if trims else space)))
        place = match.end()
        word, _, rest = action.partition(" ")
        if word in ("if", "with", "range", "define"):
            node = _Node(word, json.loads(rest) if word == "define" else rest)
            stack[-1][1].append(node)
            stack.append((node, node.body))
        elif word == "else":
            assert not rest, "else if is not used here"
            stack[-1] = (stack[-1][0], stack[-1][0].other)
        elif word == "end":
            stack.pop()
        elif word != "/*":
            stack[-1][1].append(_Node("print", action))
    assert len(stack) == 1, "an end is missing"
    root.body.append(_Node("text", text[place:]))
    return root.body


def _merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(values)
    for name, change in changes.items():
        before = merged.get(name)
        merged[name] = _merged(before, change) if isinstance(before, dict) and isinstance(change, dict) else change
    return merged
