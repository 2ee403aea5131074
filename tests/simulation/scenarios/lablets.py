"""Handwritten scenarios with labs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.scenarios.steps import FIRST, HOME, PAUSING, at, day, lab, leaderless, worker

if TYPE_CHECKING:
    from tests.simulation.script import Script

LAB_DAYS: dict[str, Script] = {
    "a worker with a left lab comes back, and nobody polls": day(
        worker(),
        lab(3, "slow", lost="fail"),
        at(4, "stop", **FIRST),
        at(14, "start", **FIRST),
        polls=None,
    ),
    "a launch for a lab is refused, and nobody polls": day(
        at(0.5, "refuse", region=HOME, operation="RunInstances", code="UnauthorizedOperation", times=1),
        lab(1),
        polls=None,
    ),
    "a newer version writes a worker while its lab ends, and nobody polls": day(
        worker(),
        lab(3),
        at(4.5, "newer-writes", which=0.0, seconds=200),
        at(5, "end-lab", **FIRST),
        polls=None,
    ),
    "labs under a hold": day(
        worker(),
        lab(3),
        at(5, "hold-fleet", seconds=90),
        at(5.2, "end-lab", **FIRST),
    ),
    "a lab is made anew": day(worker(), lab(3), at(5, "reset-lab", **FIRST)),
    "a lab ends while it is made anew": day(
        worker(),
        lab(3),
        at(4.9, "cml-down", which=0.0, seconds=30),
        at(5, "reset-lab", **FIRST),
        at(5.2, "end-lab", **FIRST),
    ),
    "a lab is deleted while it boots": day(worker(), lab(3, "slow"), at(3.5, "lab-vanishes", **FIRST)),
    "a lab is stopped while it boots": day(worker(), lab(3, "slow"), at(3.5, "lab-stopped", **FIRST)),
    "a lab is deleted while it runs": day(worker(), lab(3), at(5, "lab-vanishes", **FIRST)),
    "CML takes its time to start labs": day(
        worker(),
        at(2.9, "cml-sluggish", late=20.0, seconds=120),
        lab(3),
        at(3.7, "stop", **FIRST),
        at(5, "start", **FIRST),
        at(5.1, "cml-sluggish", late=20.0, seconds=120),
    ),
    "a lab lands after its end was asked for": day(
        worker(),
        at(2.9, "lab-lands-late", seconds=100.0),
        lab(3),
        at(3.2, "end-lab", **FIRST),
    ),
    "a lab lands late": day(worker(), at(2.9, "lab-lands-late", seconds=100.0), lab(3)),
    "a lab is refused": day(worker(), at(2.9, "lab-refused", **FIRST), lab(3)),
    "CML cannot be queried while a lab is created": day(
        worker(),
        lab(3, "slow"),
        at(3.3, "cml-loses", share=1.0, seconds=25),
        at(3.9, "cml-loses", share=1.0, seconds=25),
    ),
    "a lab is stopped while it runs": day(worker(), lab(3), at(5, "lab-stopped", **FIRST)),
    "CML is silent while a lab is to end": day(
        worker(), lab(3), at(5, "cml-down", which=0.0, seconds=100), at(5.1, "end-lab", **FIRST)
    ),
    "nobody has verified the workers": day(
        worker(),
        lab(4.9, "slow"),
        *leaderless(5, 5),
        at(5.05, "aws-outage", region=HOME, seconds=90),
    ),
    "a worker is terminated under its lab": day(worker(), lab(3), at(5, "terminate", **FIRST)),
    "a worker leaves before a lab began": day(
        worker(),
        worker(0.3, "w1"),
        at(2.9, "crash", node="labs", steps=1, down=60),
        lab(3),
        at(3.2, "drain", **FIRST),
        at(3.3, "drain", which=0.9),
    ),
    "capacity of the smallest type is missing for hours, and a lab needs a worker": day(
        at(0.5, "no-capacity", region=HOME, instance_type="t3.micro", seconds=10_000),
        lab(1),
        at(40, "check-waits"),
        lasting=45.0,
    ),
    "a dozen labs are created on a CML that takes 29 seconds for each response, and one elsewhere": day(
        worker(template="nested-large"),
        worker(0.3, "w1", region="us-east-1"),
        at(2.9, "cml-slow", which="w0", seconds=600, late=29.0),
        *(lab(3 + number / 50) for number in range(12)),
        *(lab(minutes, region="us-east-1") for minutes in (3.25, 5)),
        lasting=14.0,
    ),
    "a lab is created where EC2 has announced a retirement": day(
        worker(),
        at(2.5, "announce", **FIRST, seconds=86400, code="instance-retirement"),
        lab(9),
        lasting=14.0,
    ),
    "one seems idle and has a lab": day(
        worker(idle=True), lab(1.4), at(1.5, "use", **FIRST), idle=PAUSING, lasting=8.0
    ),
}
