"""The chart, rendered by Helm itself."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tools.debian_packages import find

if TYPE_CHECKING:
    from collections.abc import Mapping

DEPLOY = Path(__file__).parents[1]
CHART = DEPLOY / "helm" / "lcm"
LEAST: dict[str, Any] = {
    "image": {"repository": "registry.example.com/lcm"},
    "settings": {"ETCD_ENDPOINTS": "https://etcd:2379"},
}
"""What an installation must say."""

_RENDERED: dict[str, str] = {}
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ChartRefusedError(Exception):
    """Helm refused the values."""


def program(name: str) -> str:
    """The path of a tool that `make deploy-check` has installed."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else find(name)
    assert found is not None, f"{name} is missing: run `make deploy-check`"
    return found


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Values with changes, as `helm -f` merges them."""
    result = dict(values)
    for name, change in changes.items():
        before = result.get(name)
        result[name] = merged(before, change) if isinstance(before, dict) and isinstance(change, dict) else change
    return result


@dataclass(frozen=True)
class Chart:
    """Helm on the chart."""

    folder: Path

    def helm(self, command: str, changes: Mapping[str, Any], *arguments: str) -> str:
        """Run a command of Helm with values; returns what it prints."""
        file = self.folder / "values.yaml"
        file.write_text(json.dumps(merged(LEAST, changes)), encoding="utf-8")
        release = ["lcm"] if command != "lint" else []
        run = subprocess.run(
            [program("helm"), command, *release, str(CHART), "-f", str(file), *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"},
        )
        if run.returncode:
            raise ChartRefusedError(run.stdout + run.stderr)
        return run.stdout

    def render(self, changes: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The objects that an installation creates. Each set of values is rendered once."""
        key = json.dumps(changes or {})
        if key not in _RENDERED:
            _RENDERED[key] = self.helm("template", changes or {}, "--namespace", "labs")
        return [each for each in yaml.load_all(_RENDERED[key], Loader=_LOADER) if each]


@pytest.fixture
def chart(tmp_path: Path) -> Chart:
    return Chart(tmp_path)
