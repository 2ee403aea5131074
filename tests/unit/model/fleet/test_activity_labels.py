"""What was done is said in plain words."""

from __future__ import annotations

import pytest

from lcm.model.fleet.activity_summary import action_label


@pytest.mark.parametrize(
    ("action", "label"),
    [
        ("leadership_swept", "finished its startup sweep"),
        ("leadership_announced", "became leader"),
        ("patched", "edited"),
        ("stop", "stop requested"),
        ("start", "start requested"),
        ("hold", "put on hold"),
        ("sign_ins_refused", "sign-ins refused"),
        ("template_changed", "template changed"),
        ("imported", "discovered and imported"),
    ],
)
def test_the_label_of_an_action(action: str, label: str) -> None:
    assert action_label(action) == label
