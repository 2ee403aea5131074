"""The marker that identifies labs created by LCM."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.cml.client.labs import MAX_TITLE_LENGTH, marker_in_title, title_with_marker

MARKERS = st.from_regex(r"[A-Za-z0-9._-]{1,48}", fullmatch=True)


@given(st.text(max_size=200), MARKERS)
def test_the_marker_is_found_in_any_title(title: str, marker: str) -> None:
    marked = title_with_marker(title, marker)
    assert len(marked) <= MAX_TITLE_LENGTH
    assert marker_in_title(marked) == marker


@pytest.mark.parametrize("title", ["", "Lab", "[lcm:x] copy", "[lcm:]", "lcm:x", "[lcm:a b]"])
def test_other_titles_have_no_marker(title: str) -> None:
    assert marker_in_title(title) is None


@pytest.mark.parametrize("marker", ["", "a b", "x" * 49, "a]"])
def test_invalid_markers_are_rejected(marker: str) -> None:
    with pytest.raises(ValueError, match="marker"):
        title_with_marker("Lab", marker)
