"""What the health of a server says about KVM."""

from __future__ import annotations

import pytest

from lcm.cml.types import ComputeHealth, SystemHealth


@pytest.mark.parametrize(
    ("reported", "enabled"),
    [
        ((), None),
        ((None,), None),
        ((True,), True),
        ((False,), False),
        ((False, None), False),
        ((False, True), True),  # a cluster whose controller runs no nodes
    ],
)
def test_one_compute_with_kvm_is_enough_and_silence_says_nothing(
    reported: tuple[bool | None, ...], enabled: bool | None
) -> None:
    computes = tuple(
        ComputeHealth(f"c{number}", number == 0, valid=True, admission_state="READY", kvm_enabled=each)
        for number, each in enumerate(reported)
    )
    assert SystemHealth(True, None, None, True, computes).kvm_enabled is enabled
