"""`docs/api.md` is what the code says."""

from __future__ import annotations

from docs.api_page import PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_row_has_a_role_and_a_description() -> None:
    rows = [line.split(" | ") for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) > 60
    for operation, role, what in rows:
        assert role in ("viewer", "operator", "admin", "controller", "any", "open"), operation
        assert what.strip("| "), operation
