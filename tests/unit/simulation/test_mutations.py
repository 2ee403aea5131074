"""The mutations of the simulation fit the code: each replaces exactly one fragment, and the result compiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.simulation.mutations import MUTATIONS, ROOT
from tests.simulation.scenarios.catalog import SCENARIOS

if TYPE_CHECKING:
    from tests.simulation.mutation import Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_replaces_one_fragment(mutation: Mutation) -> None:
    text = (ROOT / "src" / "lcm" / mutation.file).read_text()
    assert text.count(mutation.old) == 1
    compile(text.replace(mutation.old, mutation.new), mutation.file, "exec")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_what_finds_a_mutation_exists(mutation: Mutation) -> None:
    if mutation.test:
        file, _, name = mutation.test.partition("::")
        text = (ROOT / file).read_text()
        assert f"def {name}(" in text if name else "def test_" in text
    else:
        assert mutation.seed in SCENARIOS or mutation.seed.isdecimal()


def test_mutations_have_different_names() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
