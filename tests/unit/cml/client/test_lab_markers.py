"""The marker by which a lab of ours is found again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.cml.client.labs import MAX_TITLE_LENGTH, marker_in_title, title_with_marker

MARKERS = st.from_regex(r"[A-Za-z0-9._-]{1,48}", fullmatch=True)


@given(st.text(max_size=200), MARKERS)
def test_the_marker_is_found_whatever_the_title(title: str, marker: str) -> None:
    marked = title_with_marker(title, marker)
    assert len(marked) <= MAX_TITLE_LENGTH
    assert marker_in_title(marked) == marker


@pytest.mark.parametrize("title", ["", "Lab", "[lcm:x] copy", "[lcm:]", "lcm:x", "[lcm:a b]"])
def test_labs_of_others_have_none(title: str) -> None:
    assert marker_in_title(title) is None


@pytest.mark.parametrize("marker", ["", "a b", "x" * 49, "a]"])
def test_what_cannot_be_found_again_is_refused(marker: str) -> None:
    with pytest.raises(ValueError, match="marker"):
        title_with_marker("Lab", marker)
