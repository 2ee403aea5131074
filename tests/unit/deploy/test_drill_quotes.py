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


def test_a_restore_is_held_before_any_controller_acts_on_it() -> None:
    """Each restore needs the controllers stopped too, and the fleet is on hold before they run again."""
    for path in (DEPLOY / "drills").glob("restore-*.sh"):
        (place,) = re.findall(r"^# With (.+) stopped", path.read_text(encoding="utf-8"))
        assert place == "LCM" or {"controllers", "control"} <= set(place.split()), path.name
    steps = re.findall(r"^\d\. (.+)$", PAGE.partition("### After a restore")[2].partition("###")[0], re.MULTILINE)
    assert "all controllers and all control planes" in steps[0]
    assert "one control plane" in steps[1]
    assert "lcm fleet hold" in steps[1]
    assert steps[2].startswith("Start everything else")


def test_each_part_of_a_highly_available_set_up_is_described() -> None:
    chapter = PAGE.partition("## High availability")[2].partition("\n## ")[0]
    titles = re.findall(r"^### (.+)$", chapter, re.MULTILINE)
    assert titles[:5] == [
        "Certificates",
        "etcd",
        "MongoDB",
        "Several control planes behind a load balancer",
        "systemd",
    ]
    for needed in ("rs.initiate", "createUser", "haproxy.cfg", "systemctl"):
        assert needed in chapter, needed
