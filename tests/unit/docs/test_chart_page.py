"""The pages of the Helm chart are those that values.yaml and the settings give."""

from __future__ import annotations

from docs.chart_page import PAGE, SCHEMA, page, schema


def test_the_pages_are_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"
    assert SCHEMA.read_text(encoding="utf-8") == schema(), "run `make docs`"


def test_the_page_describes_values_of_every_kind() -> None:
    text = page()
    assert "| `image.repository` |  | Where your registry holds the image" in text
    assert "| `resourceScheduler.settings` |  | Settings of this component only." in text
