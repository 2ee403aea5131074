"""docs/real-world.md matches the mutations, and every row has some."""

from __future__ import annotations

from docs.real_world_page import PAGE, page
from tests.simulation.evidence import REAL_WORLD
from tests.simulation.mutations import MUTATIONS


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_row_has_mutations_that_exist() -> None:
    names = {mutation.name for mutation in MUTATIONS}
    assert list(REAL_WORLD) == list(range(1, 28))
    for row in REAL_WORLD.values():
        assert row.mutations
        assert names.issuperset(row.mutations)
