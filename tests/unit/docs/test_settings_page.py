"""docs/settings.md matches the code."""

from __future__ import annotations

import re

from docs.settings_page import PAGE, SERVICES, page
from lcm.settings import describe


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_setting_of_every_service_has_one_row_that_names_its_readers() -> None:
    rows = {
        name: readers.split(", ")
        for name, readers in re.findall(r"^\| `[A-Z_]+`[^|]* \| `(\w+)` \|.*\| ([\w, -]+) \|$", page(), re.MULTILINE)
    }
    known = {doc.name for model in SERVICES.values() for doc in describe(model)}
    assert rows.keys() == known
    assert page().count("\n| `LCM_DATA_DIR` ") == 1
    for name, readers in rows.items():
        assert readers == [service for service, model in SERVICES.items() if name in model.model_fields]


def test_a_differing_default_is_shown() -> None:
    assert "| `coordination` | `etcd`; up: `memory` |" in page()
    assert "| `cloud_provider` | `aws`; up: `simulated` |" in page()
