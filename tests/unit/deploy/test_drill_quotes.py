"""docs/operations.md quotes, word by word, the scripts that `make drills` and `make image-test` run."""

from __future__ import annotations

import re
from pathlib import Path

DEPLOY = Path(__file__).parents[3] / "deploy"
PAGE = (DEPLOY.parent / "docs" / "operations.md").read_text(encoding="utf-8")
SCRIPTS = [
    path for folder in ("drills", "systemd") for path in (DEPLOY / folder).iterdir() if path.suffix in (".sh", ".js")
]


def test_every_script_is_quoted_as_it_is() -> None:
    quoted = dict(re.findall(r"<!-- quotes deploy/(\S+) -->\n```\w*\n(.*?)```\n", PAGE, re.DOTALL))
    assert SCRIPTS
    assert quoted == {str(path.relative_to(DEPLOY)): path.read_text(encoding="utf-8") for path in SCRIPTS}


def test_every_script_is_run_by_a_drill() -> None:
    files = [path for folder in ("drills", "image_test") for path in (DEPLOY / folder).glob("*.py")]
    drills = "".join(path.read_text(encoding="utf-8") for path in files)
    for path in SCRIPTS:
        store = re.fullmatch(r"(?:backup|restore)-(\w+)\.sh", path.name)
        assert path.name in drills or (store and f'.run("{store[1]}"' in drills), path.name
