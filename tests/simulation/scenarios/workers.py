"""Handwritten scenarios with workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.scenarios.steps import FIRST, HOME, MOVING, PAUSING, at, both, day, lab, leaderless, worker
from tests.simulation.script import NODES

if TYPE_CHECKING:
    from tests.simulation.script import Script

WORKER_DAYS: dict[str, Script] = {
    "a hold ends, and nobody polls": day(
        worker(),
        at(2, "hold-fleet", seconds=60),
        at(2.2, "stop", **FIRST),
        polls=None,
    ),
    "a worker is started right after it was created, and nobody polls": day(
        worker(2.0, desired="STOPPED"), at(2.005, "start", **FIRST), polls=None
    ),
    "an idle worker is started again before it has left": day(
        worker(idle=True),
        at(2, "use", **FIRST),
        at(3, "hold", **FIRST, minutes=4),
        at(4, "stop", **FIRST),
        at(6.8, "start", **FIRST),
        idle={**PAUSING, "worker_auto_pause_snooze_minutes": 2.0},
        lasting=12.0,
    ),
    "an idle worker is started while it is drained": day(
        worker(idle=True),
        at(2, "use", **FIRST),
        at(4.9, "cml-down", which=0.0, seconds=20),
        at(5, "drain", **FIRST),
        at(5.2, "start", **FIRST),
        idle={**PAUSING, "worker_auto_pause_snooze_minutes": 2.0, "worker_auto_pause_enabled": False},
        scaling={"scale_down_enabled": True, "scale_down_cooldown_seconds": 0.0, "min_workers": 0},
        lasting=12.0,
    ),
    "a license is given back just before a drain": day(
        worker(token="good-token"),
        at(3, "deregister", **FIRST),
        at(3.1, "drain", **FIRST),
        at(12, "terminate-outside", **FIRST),
    ),
    "all clocks jump ahead by two hours while a worker is used": day(
        worker(idle=True),
        worker(0.3, "w1", idle=True),
        *(at(minutes, "use", which=which) for minutes in (2.5, 4, 5.5, 7) for which in (0.0, 0.9)),
        at(5, "clock-jump", hosts=[*NODES, "plane"], by=7500.0, seconds=60),
        lasting=8,
        idle={**PAUSING, "worker_idle_timeout_minutes": 5.0},
    ),
    "all clocks jump ahead by two hours while a worker is launched": day(
        worker(), at(0.35, "clock-jump", hosts=[*NODES, "plane"], by=7500.0, seconds=240), lasting=8
    ),
    "a worker is launched while the control plane is an hour behind": day(
        at(0.1, "clock-jump", hosts=["plane"], by=-3600.0, seconds=240), worker(0.2), lasting=8
    ),
    "a worker is launched while the control plane is an hour behind, and its clock is set right": day(
        at(0.1, "clock-jump", hosts=["plane"], by=-3600.0, seconds=18), worker(0.2), lasting=8
    ),
    "the clock of the leader jumps ahead while a worker is launched": day(
        worker(), at(0.35, "clock-jump", hosts=["one", "two"], by=7500.0, seconds=240), lasting=8
    ),
    "the clock of the control plane jumps ahead between two losses": day(
        *(worker(0.1 + number / 20, f"w{number}") for number in range(4)),
        at(5, "terminate-outside", **FIRST),
        at(7, "clock-jump", hosts=["plane"], by=7500.0, seconds=200),
        at(7.5, "terminate-outside", which=0.9),
        at(14, "breaker", **FIRST),
    ),
    "a newer version writes records": day(
        worker(),
        at(2, "newer-writes", which=0.0, seconds=0),
        at(3, "stop", **FIRST),
        at(5, "start", **FIRST),
        at(7, "newer-writes", which=0.0, seconds=120),
        at(7.5, "stop", **FIRST),
        at(8, "stop-outside", **FIRST),
        lasting=12,
    ),
    "a newer version runs beside ours, and everything is changed by both": day(
        worker(token="good-token"),
        worker(0.3, "w1"),
        lab(1),
        lab(2, "wide"),
        at(2.5, "schedule", number=0, names=("w1",), opens=5, lasts=10, outside="stop"),
        at(3, "newer-plane", seconds=900),
        at(4, "stop", **FIRST),
        at(4.5, "settings", scaling={"min_workers": 1}),
        at(5, "hold-fleet", seconds=60),
        lab(5.2),
        at(7, "end-lab", **FIRST),
        at(8, "reset-lab", **FIRST),
        at(8, "breaker", **FIRST),
        at(9, "start", **FIRST),
        *leaderless(10, 20),
        at(11, "crash-plane", steps=30, down=10),
        at(12, "schedule", number=0, names=("w0", "w1"), opens=-2, lasts=4, outside="stop"),
        at(12.3, "resign", node="one"),
        at(13, "terminate-outside", **FIRST),
        at(14, "terminate", which=0.9),
        lasting=20.0,
    ),
    "a stopped worker is to end": day(worker(), at(2, "stop", **FIRST), at(4, "terminate", **FIRST)),
    "an instance is started outside LCM while no controller leads, and then by a user": day(
        worker(),
        at(2, "stop", **FIRST),
        *leaderless(5, 20),
        at(5.05, "freeze-ec2", region=HOME, seconds=90),
        at(5.1, "start-outside", **FIRST),
        at(5.15, "start", **FIRST),
    ),
    "an instance is not seen at first": day(
        at(0.1, "hide-new", region=HOME, seconds=120, lasting=20), worker(0.2, lost="replace")
    ),
    "EC2 cannot be seen for a long time": day(
        worker(lost="replace"), worker(0.3, "w1"), at(8, "aws-outage", region=HOME, seconds=900)
    ),
    "EC2 cannot be seen for most of an hour, and has one worker there": day(
        worker(), at(8, "aws-outage", region=HOME, seconds=2400), lasting=50.0
    ),
    "EC2 hides running workers, three more with each sweep": day(
        *(worker(0.1 + number / 20, f"w{number}", lost=("terminate", "replace")[number % 2]) for number in range(10)),
        *(at(9 + number, "hide-old", which=0.0, count=3, seconds=240, region=HOME) for number in range(4)),
        at(25, "breaker", **FIRST),
        polls=60.0,
    ),
    "EC2 hides four of six for ten minutes": day(
        *(worker(0.1 + number / 20, f"w{number}", lost=("terminate", "replace")[number % 2]) for number in range(6)),
        at(9, "hide-old", which=0.0, count=4, seconds=600, region=HOME),
        at(25, "breaker", **FIRST),
    ),
    "EC2 hides one of three for one look": day(
        worker(lost="replace"),
        worker(0.3, "w1"),
        worker(0.4, "w2"),
        at(9, "hide-old", which=0.0, count=1, seconds=20, region=HOME),
    ),
    "EC2 hides the only worker of a region": day(
        worker(), at(9, "hide-region", region=HOME, seconds=1200), at(32, "breaker", **FIRST)
    ),
    "EC2 hides a region of two": day(
        worker(), worker(0.3, "w1"), at(9, "hide-region", region=HOME, seconds=900), at(28, "breaker", **FIRST)
    ),
    "workers are to end while EC2 hides them": day(
        worker(),
        worker(0.3, "w1"),
        at(9, "hide-region", region=HOME, seconds=720),
        at(17, "terminate", **FIRST),
        at(21.1, "terminate", which=0.9),
        at(28, "breaker", **FIRST),
    ),
    "each read leaves out a third": day(
        *(worker(0.1 + number / 20, f"w{number}", lost=("terminate", "replace")[number % 2]) for number in range(9)),
        at(9, "drop-from-reads", region=HOME, share=0.3, seconds=300),
        at(25, "breaker", **FIRST),
    ),
    "each read leaves out half for a quarter of an hour": day(
        worker(lost="replace"),
        worker(0.3, "w1"),
        worker(0.4, "w2"),
        at(9, "drop-from-reads", region=HOME, share=0.5, seconds=900),
        lasting=26.0,
    ),
    "EC2 answers half a page, and mixes old and new states": day(
        *(worker(0.1 + number / 20, f"w{number}") for number in range(6)),
        at(9, "halve-pages", region=HOME, times=4),
        at(12, "mix-states", region=HOME, seconds=40, lasting=200),
        at(12.1, "stop", **FIRST),
        at(13, "start", **FIRST),
        at(13.1, "terminate-outside", which=0.9),
        at(15, "halve-pages", region=HOME, times=1),
    ),
    "EC2's lists lack every second worker for ten minutes": day(
        worker(lost="replace"),
        worker(0.3, "w1"),
        at(9, "halve-lists", region=HOME, seconds=600),
        lasting=20.0,
    ),
    "EC2 answers half a page to all questions": day(
        *(worker(0.1 + number / 20, f"w{number}") for number in range(3)),
        at(9, "halve-pages", region=HOME, times=2),
        at(12, "halve-pages", region=HOME, times=3),
    ),
    "EC2 mixes old and new states, and a stop outside LCM is accepted": day(
        worker(),
        worker(0.3, "w1"),
        worker(0.4, "w2"),
        at(3, "mix-states", region=HOME, seconds=40, lasting=1500),
        *(at(4 + 3 * turn, ("stop", "start")[turn % 2], which=f"w{number}") for turn in range(6) for number in (0, 1)),
        at(24, "stop-outside", which=0.9),
        discovery={"drift_policy": "accept"},
    ),
    "leaders change while EC2 mixes old and new states, and a stop outside LCM is accepted": day(
        *(worker(0.1 + number / 20, f"w{number}") for number in range(6)),
        at(3, "mix-states", region=HOME, seconds=20, lasting=1500),
        *(
            at(4 + 3 * turn, ("stop", "start")[turn % 2], which=f"w{number}")
            for turn in range(4)
            for number in range(6)
        ),
        *(
            at(7 + 6 * turn + seconds / 60, "resign", node=node)
            for turn in range(2)
            for seconds in (8, 12, 16, 20, 24)
            for node in ("one", "two")
        ),
        discovery={"drift_policy": "accept"},
    ),
    "another leader takes over right after a start, and sees old states first": day(
        *(worker(0.1 + number / 20, f"w{number}") for number in range(8)),
        at(3, "mix-states", region=HOME, seconds=60, lasting=1500),
        *(at(4, "stop", which=f"w{number}") for number in range(8)),
        *(at(7 + number / 120, "start", which=f"w{number}") for number in range(8)),
        *(at(7.48, "resign", node=node) for node in ("one", "two")),
        discovery={"drift_policy": "accept"},
    ),
    "many are lost at once": day(
        *(worker(0.1 + number / 20, f"w{number}", lost=("terminate", "replace")[number % 2]) for number in range(6)),
        *leaderless(8, 20),
        *(at(8.1 + number / 100, "vanish", which=(number + 0.5) / 6) for number in range(6)),
        at(25, "breaker", **FIRST),
    ),
    "somebody launches more like it": day(
        worker(),
        worker(0.3, "w1"),
        at(2, "launch-alike", **FIRST),
        at(4, "launch-alike", which=0.9),
        at(5, "terminate", which=0.9),
        discovery={"terminate_leaked_instances": True},
    ),
    "somebody launches more like it, and leaks are only told": day(
        worker(), at(2, "launch-alike", **FIRST), at(4, "stop", **FIRST)
    ),
    "an instance is lost and replaced beside another like it": day(
        worker(lost="replace"),
        at(3, "launch-alike", **FIRST),
        at(5, "terminate-outside", **FIRST),
        at(5.1, "halve-lists", region=HOME, seconds=600),
    ),
    "somebody stops it once": day(worker(), at(5, "stop-outside", **FIRST)),
    "somebody stops it again and again": day(
        worker(),
        *(at(minutes, "stop-outside", **FIRST) for minutes in (3, 6, 9, 12, 15)),
        at(25, "stop", **FIRST),
    ),
    "its instances are lost again and again": day(
        worker(lost="replace"),
        *(at(minutes, "terminate-outside", **FIRST) for minutes in (2, 5, 8, 11, 14)),
        at(25, "terminate", **FIRST),
    ),
    "an instance never gets up": day(
        at(0.1, "freeze-ec2", region=HOME, seconds=420),
        worker(0.2),
        at(12, "retry", **FIRST),
        at(14, "stop", **FIRST),
        at(16, "freeze-ec2", region=HOME, seconds=420),
        at(16.1, "start", **FIRST),
        at(27, "retry", **FIRST),
    ),
    "EC2 refuses to start it": day(
        worker(),
        at(2, "stop", **FIRST),
        at(4, "refuse", region=HOME, operation="StartInstances", code="InsufficientInstanceCapacity", times=2),
        at(4.1, "start", **FIRST),
        at(8, "stop", **FIRST),
        at(10, "refuse", region=HOME, operation="StartInstances", code="UnauthorizedOperation", times=1),
        at(10.1, "start", **FIRST),
        at(14, "retry", **FIRST),
    ),
    "nobody knows whether it was launched, and it is not to run any more": day(
        at(0.1, "lose-replies", region=HOME, times=1, silent=True),
        at(0.1, "hide-new", region=HOME, seconds=0, lasting=1),
        worker(0.2),
        at(0.25, "aws-outage", region=HOME, seconds=30),
        at(0.4, "stop", **FIRST),
    ),
    "a launch is heard of by nobody and given up": day(
        at(0.1, "lose-replies", region=HOME, times=1, silent=True),
        at(0.1, "hide-new", region=HOME, seconds=120, lasting=20),
        worker(0.2),
        *leaderless(0.22, 5),
        at(0.5, "stop", **FIRST),
    ),
    "a launch fails, is cut off, and is given up": day(
        at(0.1, "throttle", region=HOME, operation="RunInstances", times=5),
        worker(0.2),
        *leaderless(0.22, 5),
        at(0.3, "stop", **FIRST),
        at(14, "terminate", **FIRST),
    ),
    "launches are refused, lack capacity, lose their answers": day(
        at(0.1, "refuse", region=HOME, operation="RunInstances", code="UnauthorizedOperation", times=1),
        worker(0.2),
        at(1.9, "refuse", region=HOME, operation="RunInstances", code="InsufficientInstanceCapacity", times=1),
        worker(2, "w1"),
        at(3.9, "lose-replies", region=HOME, times=1, silent=False),
        at(3.9, "hide-new", region=HOME, seconds=30, lasting=30),
        worker(4, "w2"),
        at(5.9, "throttle", region=HOME, operation="StopInstances", times=2),
        at(6, "stop", which=0.9),
    ),
    "a stop from outside is accepted, a start from outside is not": day(
        worker(),
        at(3, "stop-outside", **FIRST),
        at(7, "start-outside", **FIRST),
        discovery={"drift_policy": "accept"},
    ),
    "EC2 shows odd things": day(worker(), at(3, "odd-state", which=0.0, seconds=300)),
    "an instance with a license is terminated outside LCM": day(
        worker(token="good-token"), at(5, "terminate-outside", **FIRST)
    ),
    "a stopped worker gives its license back at its end": day(
        worker(token="good-token"), at(4, "stop", **FIRST), at(6, "terminate", **FIRST)
    ),
    "five stopped workers give their licenses back at once": day(
        *(worker(0.2 + number / 20, f"w{number}", token="good-token") for number in range(5)),
        *(at(5, "stop", which=f"w{number}") for number in range(5)),
        *(at(8, "terminate", which=f"w{number}") for number in range(5)),
    ),
    "a stopping worker is to end, lacks capacity, and is held": day(
        worker(token="good-token"),
        at(4, "stop", **FIRST),
        at(4.05, "refuse", region=HOME, operation="StartInstances", code="InsufficientInstanceCapacity", times=1),
        at(4.1, "terminate", **FIRST),
        at(5.0, "hold", **FIRST, minutes=2),
        lasting=12.0,
    ),
    "a stopped worker cannot be started to give its license back": day(
        worker(token="good-token"),
        at(4, "stop", **FIRST),
        at(6, "refuse", region=HOME, operation="StartInstances", code="UnauthorizedOperation", times=9),
        at(6.1, "terminate", **FIRST),
    ),
    "a license is given back before a stop and taken again after the start": day(
        worker(token="good-token"),
        at(4, "stop", **FIRST),
        at(7, "start", **FIRST),
        idle={"license_on_stop": "release"},
    ),
    "EC2 throttles a stop": day(
        worker(), at(3.9, "throttle", region=HOME, operation="StopInstances", times=2), at(4, "stop", **FIRST)
    ),
    "another token is given to a worker whose CML has lost its registration, while nobody leads": day(
        worker(token="good-token"),
        *leaderless(3.9, 60),
        at(4.2, "cml-forgets", **FIRST),
        at(4.3, "license", **FIRST, token="bad-token"),
    ),
    "another token is given to a registered worker": day(
        worker(token="good-token"), at(4, "license", **FIRST, token="bad-token")
    ),
    "licenses good and bad": day(
        worker(token="bad-token"),
        worker(0.3, "w1", token="good-token"),
        at(4, "terminate", which=0.9),
        at(5, "deregister", **FIRST),
        worker(6, "w2", token="good-token"),
        at(8.9, "cml-slow", which=0.99, seconds=60),
        at(8.9, "cml-slow", which=0.4, seconds=60),
        at(8.9, "cml-slow", which=0.0, seconds=60),
        at(9, "terminate", which=0.9),
    ),
    "a slow CML gives its license back at the end": day(
        worker(token="good-token"),
        at(4, "cml-slow", which=0.0, seconds=60),
        at(4.1, "terminate", **FIRST),
    ),
    "stopped and started behind our back": day(
        worker(),
        *leaderless(3, 60),
        at(3.1, "stop-outside", **FIRST),
        at(4.0, "start-outside", **FIRST),
        at(4.005, "freeze-ec2", region=HOME, seconds=200),
        at(4.01, "stop", **FIRST),
    ),
    "drained while it is started behind our back": day(
        worker(),
        at(2.9, "use", which=0.15),
        at(3, "drain", **FIRST),
        *both("aws", 3.1, 100),
        at(3.2, "stop-outside", **FIRST),
        at(4.1, "start-outside", **FIRST),
        at(4.12, "freeze-ec2", region=HOME, seconds=120),
    ),
    "it is started by two at once": day(
        worker(),
        at(2, "stop", **FIRST),
        *both("plane", 4.9, 40),
        at(5, "start-outside", **FIRST),
        at(5.005, "freeze-ec2", region=HOME, seconds=120),
        at(5.01, "start", **FIRST),
    ),
    "reads lag behind an end": day(
        worker(),
        at(3, "freeze-ec2", region=HOME, seconds=150),
        at(3.005, "terminate-outside", **FIRST),
        at(3.55, "lag-reads", region=HOME, seconds=40, lasting=60),
        worker(6, "w1"),
        at(8, "lag-reads", region=HOME, seconds=40, lasting=120),
        at(8.1, "stop", **FIRST),
        at(8.3, "start", **FIRST),
        at(8.5, "stop", **FIRST),
        at(9, "start", **FIRST),
    ),
    "EC2 forgets instances": day(
        worker(),
        worker(0.3, "w1", lost="replace"),
        worker(0.4, "w2"),
        at(3, "stop", which=0.9),
        at(10, "vanish", **FIRST),
        at(20, "vanish", which=0.4),
    ),
    "EC2 forgets an instance, and orphans are not looked for": day(
        worker(),
        worker(0.3, "w1"),
        at(10, "vanish", **FIRST),
        at(25, "terminate", **FIRST),
        discovery={"worker_discovery_enabled": False},
    ),
    "an instance that is not up yet is lost": day(
        worker(0.2),
        *both("aws", 0.22, 150),
        at(0.8, "terminate-outside", **FIRST),
    ),
    "a failed worker's instance is lost": day(
        at(0.1, "freeze-ec2", region=HOME, seconds=400),
        worker(0.2),
        at(9, "terminate-outside", **FIRST),
        at(20, "terminate", **FIRST),
    ),
    "no address for a while": day(
        at(0.1, "freeze-ec2", region=HOME, seconds=20),
        worker(0.2),
        at(0.3, "no-address", which=0.0, seconds=60),
    ),
    "settings cannot be read": day(
        worker(0.2),
        at(3.9, "deaf", part="settings", seconds=600),
        *leaderless(4, 5),
        at(6, "stop-outside", **FIRST),
    ),
    "templates cannot be read": day(at(0.1, "deaf", part="worker-templates", seconds=120), worker(0.2)),
    "its image cannot be looked up": day(
        at(0.1, "refuse", region=HOME, operation="DescribeImages", code="InternalError", times=9), worker(0.2)
    ),
    "a license takes its time": day(
        worker(token="good-token"),
        at(2, "cml-slow", which=0.0, seconds=240),
        at(2.5, "deregister", **FIRST),
        at(8, "license", which=0.0, token="good-token"),
        at(11, "odd-license", which=0.0, seconds=180),
    ),
    "a new leader cannot look": day(worker(), *both("aws", 3, 120), *leaderless(3.1, 1)),
    "a stop comes too early": day(
        worker(),
        at(3, "lag-reads", region=HOME, seconds=40, lasting=90),
        at(3.3, "terminate-outside", **FIRST),
        at(3.31, "stop", **FIRST),
    ),
    "a CML does not come back": day(worker(), at(2, "cml-down", which=0.0, seconds=290), lasting=7.0),
    "the answer to giving a license back is lost": day(
        worker(token="good-token"), at(3, "cml-loses", share=1.0, seconds=20), at(3.05, "deregister", **FIRST)
    ),
    "somebody changes her mind while writes are on their way": day(
        *(worker(0.1 + number / 20, f"w{number}") for number in range(4)),
        *(
            at(2, "flaky", line=(node, "plane"), seconds=400, there=0.0, back=0.0, slowest=3.0)
            for node in ("one", "two")
        ),
        *(at(2.05 + turn / 30, ("stop", "start")[turn // 4 % 2], which=turn % 4 / 4) for turn in range(160)),
    ),
    "writes of a leader arrive after its term": day(
        worker(),
        worker(0.3, "w1"),
        *(
            at(2, "flaky", line=(node, "plane"), seconds=240, there=0.0, back=0.0, slowest=25.0)
            for node in ("one", "two")
        ),
        *(at(minutes, "stop", **FIRST) for minutes in (2.05, 3.1, 4.1)),
        *(at(minutes, "start", **FIRST) for minutes in (2.6, 3.6, 4.6)),
        at(2.1, "cut", line=("one", "etcd"), seconds=40),
        at(3.15, "cut", line=("two", "etcd"), seconds=40),
        at(4.15, "cut", line=("one", "etcd"), seconds=40),
    ),
    "calls take their time when a lease runs out": day(
        *(worker(0.1 + number / 20, f"w{number}") for number in range(8)),
        *(at(2, "slow-aws", node=node, seconds=200, slowest=6.0) for node in ("one", "two")),
        *both("etcd", 2.1, 25),
        *(at(2.1 + seconds / 60, "stop", which=0.12 * number) for number, seconds in enumerate(range(5, 13))),
        *both("etcd", 4, 25),
        *(at(4 + seconds / 60, "start", which=0.12 * number) for number, seconds in enumerate(range(5, 13))),
        polls=2.0,
    ),
    "a region swallows all calls": day(
        *(worker(0.1 + number / 100, f"s{number}", region="us-east-1") for number in range(4)),
        *(worker(0.3 + number / 100, f"h{number}") for number in range(3)),
        at(4, "swallow", region="us-east-1", seconds=400),
        *(at(4.05 + number / 100, "stop", which=f"s{number}") for number in range(4)),
        *(worker(4.1 + number / 100, f"t{number}", region="us-east-1") for number in range(14)),
        *(at(4.5 + number, "stop", which=f"h{number}") for number in range(3)),
        *(at(6.5 + number, "start", which=f"h{number}") for number in range(3)),
    ),
    "the CML servers of a dozen workers take 29 seconds for each response": day(
        *(worker(0.1 + number / 100, f"s{number}") for number in range(12)),
        *(worker(0.3 + number / 100, f"h{number}") for number in range(2)),
        *(at(4, "cml-slow", which=f"s{number}", seconds=600, late=29.0) for number in range(12)),
        *(at(5 + 2 * turn, ("stop", "start")[turn % 2], which="h0") for turn in range(4)),
        worker(6, "h2"),
        worker(8, "h3", region="us-east-1"),
        at(10, "stop", which="s0"),
    ),
    "a leader is suspended while its calls wait to be sent": day(
        *(worker(0.1 + number / 50, f"w{number}") for number in range(6)),
        *(at(2, "queue-calls", node=node, seconds=600, slowest=5.0) for node in ("one", "two")),
        *(
            event
            for turn in range(8)
            for event in (
                *(at(2.5 + turn, ("stop", "start")[turn % 2], which=f"w{number}") for number in range(6)),
                *(at(2.51 + turn, "pause", node=node, seconds=20) for node in ("one", "two")[turn // 2 % 2 :][:1]),
                *(at(2.6 + turn, ("start", "stop")[turn % 2], which=f"w{number}") for number in range(3)),
            )
        ),
    ),
    "a window closes while no controller leads, and opens while nodes run and after a fail-over": day(
        worker(),
        worker(0.3, "w1"),
        at(2, "use", which=0.0),
        at(2.1, "use", which=0.34),
        at(3, "schedule", number=0, names=("w0", "w1"), opens=-5, lasts=10, outside="stop"),
        *leaderless(7, 120),
        at(12, "start", which=0.0),
        at(14, "crash", node="one", steps=10, down=20),
        at(20, "unschedule", number=0),
        lasting=24.0,
    ),
    "a window closes, and opens again for a worker at rest": day(
        worker(),
        worker(0.3, "w1"),
        at(2, "use", which=0.0),
        at(2.1, "use", which=0.6),
        at(2.2, "schedule", number=0, names=("w0", "w1"), opens=-5, lasts=7, outside="stop"),
        at(8, "schedule", number=1, names=("w1",), opens=-5, lasts=10, outside="stop"),
        lasting=12.0,
    ),
    "schedules are changed while workers stop and start, with a hold in between": day(
        *(worker(0.1 + number / 20, f"w{number}") for number in range(3)),
        *(at(2 + number / 20, "use", which=which) for number, which in enumerate((0.0, 0.34, 0.67))),
        at(3, "schedule", number=1, names=("w0", "w1", "w2"), opens=5, lasts=4, outside="stop"),
        at(4, "hold", which=0.4, minutes=3),
        at(5, "schedule", number=0, names=("w1",), opens=-1, lasts=40, outside="stop"),
        at(6, "stop", which=0.7),
        at(13, "schedule", number=1, names=("w0", "w2"), opens=2, lasts=10, outside="stop"),
        at(14, "crash-plane", steps=40, down=60),
        lasting=24.0,
    ),
    "EC2 announces a retirement, and the leader dies while the worker moves": day(
        worker(),
        at(2, "use", **FIRST),
        at(2.5, "announce", **FIRST, seconds=86400, code="instance-retirement"),
        at(5, "crash", node="one", steps=150, down=20),
        at(5, "crash", node="two", steps=400, down=20),
        maintenance=MOVING,
        lasting=20.0,
    ),
    "a hold is placed while a worker moves, and its event is canceled": day(
        worker(),
        at(2, "use", **FIRST),
        at(2.5, "announce", **FIRST, seconds=86400, code="system-reboot"),
        *(at(5.05 + step / 10, "hold", **FIRST, minutes=2) for step in range(3)),
        at(6, "cancel-event", **FIRST),
        maintenance=MOVING,
        lasting=20.0,
    ),
    "EC2 brings a stop forward while nodes run, and then it happens": day(
        worker(),
        at(2.5, "announce", **FIRST, seconds=86400, code="instance-stop"),
        at(7, "reschedule-event", **FIRST, seconds=300),
        maintenance=MOVING,
        lasting=20.0,
    ),
    "EC2 announces a retirement while a lablet runs": day(
        worker(),
        at(2, "use", **FIRST),
        lab(3),
        at(4.5, "announce", **FIRST, seconds=86400, code="instance-retirement"),
        maintenance=MOVING,
        lasting=20.0,
    ),
    "three workers of a region are to move": day(
        *(worker(0.1 + number / 20, f"w{number}") for number in range(3)),
        *(at(2 + number / 20, "use", which=which) for number, which in enumerate((0.0, 0.34, 0.67))),
        *(at(2.5, "announce", which=which, seconds=86400, code="instance-retirement") for which in (0.0, 0.34, 0.67)),
        maintenance=MOVING,
        lasting=40.0,
    ),
    "an instance fails its status checks on every host": day(
        worker(),
        at(2, "use", **FIRST),
        at(2.5, "keep-impaired", **FIRST, seconds=3600),
        maintenance=MOVING,
        lasting=60.0,
    ),
    "a little of everything else": day(
        worker(token="good-token"),
        worker(0.3, "w1"),
        at(2, "cml-forgets", **FIRST),
        at(2.2, "impair", which=0.9),
        at(2.4, "launch-outside", region=HOME, ours=True),
        at(2.6, "launch-outside", region=HOME, ours=False),
        at(3, "hold", which=0.0, minutes=1),
        at(3.2, "release", **FIRST),
        at(3.4, "use", which=0.15),
        at(3.5, "drain", **FIRST),
        at(3.7, "cancel-drain", **FIRST),
        at(4, "flaky", line=("one", "plane"), seconds=20, there=0.4, back=0.4, slowest=0.5),
        at(4, "flaky", line=("two", "plane"), seconds=20, there=0.4, back=0.4, slowest=0.5),
        at(5, "break-watches", node="one"),
        at(5, "break-watches", node="two"),
        at(5.1, "compact", **FIRST),
        at(5.5, "fail-page", region=HOME, times=2),
        at(6, "etcd-outage", seconds=10),
        at(6.5, "pause", node="one", seconds=20),
        at(7, "pause-plane", seconds=8),
        at(7.5, "crash-plane", steps=10, down=5),
        at(8, "resign", node="two"),
        at(8.5, "breaker", **FIRST),
        at(8.7, "settings", scaling={"min_workers": 1}),
    ),
    "many are idle at once, and one is to stay": day(
        *(worker(0.1 + number / 100, f"w{number}", idle=True) for number in range(4)),
        *(at(1.5, "use", which=which) for which in (0.0, 0.3, 0.6, 0.9)),
        idle=PAUSING,
        scaling={"min_workers": 1},
        lasting=12.0,
    ),
    "one is idle, and nobody is to be paused": day(
        worker(idle=True),
        at(1.5, "use", **FIRST),
        idle={**PAUSING, "worker_auto_pause_enabled": False},
        lasting=8.0,
    ),
    "one on hold is to stop": day(
        worker(), at(2, "hold", which=0.0, minutes=None), at(2.5, "stop", **FIRST), lasting=6.0
    ),
    "capacity is missing for hours": day(
        worker(),
        at(2, "stop", **FIRST),
        at(3, "no-capacity", region=HOME, instance_type=None, seconds=10_000),
        at(3.1, "start", **FIRST),
        worker(4, "w1"),
        at(40, "check-waits"),
        *leaderless(50, 20),
        at(90, "check-waits"),
        lasting=100.0,
    ),
    "capacity to start one is missing for half an hour": day(
        worker(),
        at(2, "stop", **FIRST),
        at(3, "no-capacity", region=HOME, instance_type=None, seconds=1_800),
        at(3.1, "start", **FIRST),
        lasting=34.0,
    ),
    "credentials expire in the morning": day(
        worker(),
        worker(0.3, "w1"),
        worker(0.4, "w2"),
        at(3, "stop", which=0.0),
        at(5, "credentials", region=HOME, code="ExpiredToken", seconds=500),
        at(5.1, "start", which=0.0),
        at(5.1, "stop", which=0.4),
        at(5.1, "terminate", which=0.9),
        worker(5.2, "w3"),
        lasting=15.0,
    ),
    "credentials expire right after a start was lost": day(
        worker(),
        at(2, "stop", **FIRST),
        at(4, "refuse", region=HOME, operation="StartInstances", code="InternalError", times=3),
        at(4.1, "start", **FIRST),
        at(4.11, "credentials", region=HOME, code="RequestExpired", seconds=400),
        lasting=13.0,
    ),
    "every call is rejected once": day(
        *(worker(0.1 + number / 20, f"w{number}") for number in range(3)),
        at(0.05, "refuse", region=HOME, operation="RunInstances", code="AuthFailure", times=2),
        *(
            at(2.9, "refuse", region=HOME, operation=operation, code="RequestExpired", times=2)
            for operation in ("StopInstances", "TerminateInstances")
        ),
        at(3, "stop", which=0.0),
        at(3, "terminate", which=0.9),
        at(5.9, "refuse", region=HOME, operation="StartInstances", code="ExpiredToken", times=2),
        at(6, "start", which=0.0),
    ),
    "no host has credentials at first": day(
        at(0.1, "metadata-silent", node="one", seconds=200),
        at(0.1, "metadata-silent", node="two", seconds=200),
        worker(0.3),
        at(2.5, "check-sight"),
        at(5, "clock-off", node="one", seconds=200),
        at(5, "clock-off", node="two", seconds=200),
        at(5.1, "stop", **FIRST),
        at(8, "check-sight"),
        at(11, "clock-off", node="one", seconds=200),
        at(11, "clock-off", node="two", seconds=200),
        at(11.1, "start", **FIRST),
    ),
    "a zone lacks the type, and then all do": day(
        at(0.1, "zone-without-type", region=HOME, instance_type="t3.small", subnet_id="subnet-a"),
        worker(0.2),
        at(2, "zone-without-type", region=HOME, instance_type="t3.small", subnet_id="subnet-b"),
        worker(2.1, "w1"),
    ),
    "Cisco's license service is silent for an hour": day(
        at(0.1, "license-server-silent", seconds=3600),
        worker(token="good-token"),
        at(40, "check-waits"),
        lasting=62.0,
    ),
    "a license is given back while Cisco's license service is silent": day(
        at(0.1, "license-server-silent", seconds=3000),
        worker(token="good-token"),
        at(5, "deregister", **FIRST),
        at(30, "check-waits"),
    ),
    "nobody needs it any more": day(
        worker(idle=True),
        worker(0.3, "w1", idle=True),
        at(1.5, "use", which=0.0),
        at(1.5, "use", which=0.6),
        idle={**PAUSING, "idle_action": "drain"},
        scaling={"scale_down_enabled": True, "min_workers": 1, "scale_down_cooldown_seconds": 30.0},
        lasting=12.0,
    ),
    "a CML has no KVM, and has it again after a leader has changed": day(
        at(0.1, "no-kvm", instance_type="m8i.2xlarge", seconds=480),
        worker(template="nested-medium"),
        *leaderless(4, 20),
        lasting=16.0,
    ),
    "a CML refuses our account": day(worker(), at(3, "cml-refuses", **FIRST, seconds=240, watched=True), lasting=8.0),
    "a server with the clock of another zone is used all the time": day(
        worker(idle=True),
        at(2, "cml-zone", **FIRST, hours=-5),
        *(at(2.1 + 2 * number, "use", which=0.0) for number in range(8)),
        lasting=20.0,
        idle=PAUSING,
    ),
    "a server with the events of years is used all the time": day(
        worker(idle=True),
        at(2, "cml-long-list", **FIRST),
        *(at(2.1 + 2 * number, "use", which=0.0) for number in range(8)),
        lasting=20.0,
        idle=PAUSING,
    ),
    "a server is reinstalled, leaders change, and a user trusts it": day(
        worker(),
        at(3, "cml-certificate", **FIRST),
        *leaderless(4, 20),
        at(9, "trust", **FIRST),
        *leaderless(12, 20),
    ),
}
