"""docs/operations.md quotes the scripts that `make drills` runs, word by word."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
DRILLS = ROOT / "deploy" / "drills"
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def test_every_script_is_quoted_as_it_is() -> None:
    quoted = dict(re.findall(r"<!-- quotes deploy/drills/(\S+) -->\n```\w*\n(.*?)```\n", PAGE, re.DOTALL))
    scripts = {
        path.name: path.read_text(encoding="utf-8") for path in DRILLS.iterdir() if path.suffix in (".sh", ".js")
    }
    assert scripts
    assert quoted == scripts


def test_every_script_is_run_by_a_drill() -> None:
    drills = "".join(path.read_text(encoding="utf-8") for path in DRILLS.glob("*.py"))
    assert [path.name for path in DRILLS.iterdir() if path.suffix in (".sh", ".js") and path.name not in drills] == []
