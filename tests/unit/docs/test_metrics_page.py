"""docs/metrics.md lists exactly the existing metrics."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.servers.metric_registries import platform_metrics

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \|([^|]*)\| (.+) \|$", re.MULTILINE)


def test_every_metric_has_a_row_and_every_row_is_a_metric(run_folder: Path) -> None:
    written = {}
    for name, kind, labels, meaning in _ROW.findall(PAGE.read_text(encoding="utf-8")):
        assert name not in written, f"{name} stands there twice"
        assert meaning.strip()
        written[name] = {"type": kind.replace("untyped", "unknown"), "labels": sorted(re.findall(r"`(\w+)`", labels))}
    assert written == platform_metrics(run_folder)
