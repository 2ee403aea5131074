"""Election, lease, hand-over and fencing, in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from lcm.coordination.memory.client import MemoryCoordination, MemoryServer
from lcm.core import clock
from lcm.core.authorization import check_may_send
from lcm.core.controller.config import LeaderElectionConfig, ReconciliationConfig
from lcm.core.controller.leader_election import NotLeaderError, StaleTermError
from lcm.core.controller.lease import LeaseSession
from lcm.core.controller.reconciliation import ReconciliationResult
from lcm.core.coordination import CoordinationOutcomeUnknownError, SwapResult
from tests.support.network.faulty_coordination import UNREACHABLE, FaultyCoordination
from tests.support.virtual.toy_controllers import Elected, Thing, World, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.virtual.time import VirtualClock

KEY = "/lcm/toy/leader"


class Stage:
    """Candidates on one coordination server, each behind a network of its own."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.world = World()
        self.world.put(Thing("a"))
        self.candidates: list[Elected] = []
        self.networks: list[FaultyCoordination] = []

    async def enter(self, instance: str, lease_ttl: int = 15, config: ReconciliationConfig | None = None) -> Elected:
        network = FaultyCoordination(MemoryCoordination(self.server))
        candidate = Elected(self.world, network, instance, CollectorRegistry(), config, lease_ttl=lease_ttl)
        self.candidates.append(candidate)
        self.networks.append(network)
        await candidate.start()
        return candidate

    @property
    def leaders(self) -> list[str]:
        return [candidate.election.instance_id for candidate in self.candidates if candidate.is_leader]

    async def crash(self, candidate: Elected) -> None:
        """Gone without a word: nothing is given back, nothing runs any more."""
        network = self.networks[self.candidates.index(candidate)]
        network.cut = True
        await candidate.stop()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    for candidate in stage.candidates:
        if candidate._campaign_task is not None and not candidate._campaign_task.done():
            await candidate.stop()


@asynccontextmanager
async def never_two_leaders(stage: Stage) -> AsyncIterator[list[list[str]]]:
    """Checks every 50 ms; fails if two candidates ever lead at once."""
    seen: list[list[str]] = []

    async def check() -> None:
        while True:
            seen.append(stage.leaders)
            await asyncio.sleep(0.05)

    watcher = asyncio.create_task(check())
    try:
        yield seen
    finally:
        watcher.cancel()
        assert all(len(leaders) <= 1 for leaders in seen), "two leaders at once"


def test_defaults_are_those_of_the_reference() -> None:
    """settings.md."""
    config = LeaderElectionConfig()
    assert config.etcd_endpoints == ["localhost:2379"]
    assert (config.election_key_prefix, config.lease_ttl, config.retry_interval) == ("/elections", 15, 5.0)
    assert (config.service_name, config.election_key) == ("service", "/elections/service/leader")
    assert config.instance_id != LeaderElectionConfig().instance_id


async def test_the_first_candidate_leads_and_the_second_stands_by(stage: Stage) -> None:
    """controllers.md#leader-election: put if the key does not exist; the loser reads who leads and waits."""
    one, two = await stage.enter("one"), await stage.enter("two")
    await asyncio.sleep(1)
    assert (one.is_leader, two.is_leader) == (True, False)
    key = stage.server.get(KEY)
    assert key is not None
    assert (key.value, key.create_revision) == (b"one", one.term)
    assert two.known_leader == "one"
    assert two.readiness() == []
    assert {done.controller for done in stage.world.passes} == {"one"}


async def test_the_lease_is_renewed_every_third_of_its_ttl(stage: Stage) -> None:
    """controllers.md#leader-election: keepalive."""
    await stage.enter("one", lease_ttl=15)
    await asyncio.sleep(150.5)
    assert stage.networks[0].calls["keep_alive"] == 30
    assert stage.leaders == ["one"]


async def test_a_graceful_hand_over_takes_well_under_a_second(stage: Stage) -> None:
    one, two = await stage.enter("one"), await stage.enter("two")
    await asyncio.sleep(10)
    async with never_two_leaders(stage):
        began = asyncio.get_running_loop().time()
        await one.stop()
        taken = await until(lambda: two.is_leader)
    assert taken - began <= 0.1
    assert two.term > 0


async def test_a_crash_is_taken_over_within_the_ttl_and_two_seconds(stage: Stage) -> None:
    """controllers.md#leader-election: the lease of a crashed leader ends."""
    one, two = await stage.enter("one"), await stage.enter("two")
    await asyncio.sleep(10.4)
    async with never_two_leaders(stage):
        began = asyncio.get_running_loop().time()
        await stage.crash(one)
        taken = await until(lambda: two.is_leader)
    assert taken - began <= 15 + 2


async def test_a_crash_is_taken_over_even_when_the_standbys_watch_does_not_work(stage: Stage) -> None:
    """`retry_interval` is the fallback."""
    one, two = await stage.enter("one"), await stage.enter("two")
    stage.networks[1].fail_watches = True
    await asyncio.sleep(1)
    await stage.crash(one)
    began = asyncio.get_running_loop().time()
    taken = await until(lambda: two.is_leader)
    assert taken - began <= 15 + 2


async def test_terms_grow_with_every_election(stage: Stage) -> None:
    one, two = await stage.enter("one"), await stage.enter("two")
    await asyncio.sleep(1)
    terms = [one.term]
    for _ in range(3):
        leader = one if one.is_leader else two
        leader.resign()
        await until(lambda gone=leader: not gone.is_leader and bool(stage.leaders))  # type: ignore[misc]
        terms.append((one if one.is_leader else two).term)
    assert terms == sorted(set(terms))


async def test_terms_in_memory_can_begin_above_those_of_an_earlier_process(registry: CollectorRegistry) -> None:
    """The control plane remembers the highest term; a restarted process must not begin below it."""
    one = Elected(World(), MemoryCoordination(MemoryServer(revision=500)), "one", registry)
    await one.start()
    await until(lambda: one.is_leader)
    assert one.term > 500
    await one.stop()


async def test_leadership_is_lost_by_the_local_clock_before_another_can_win(stage: Stage) -> None:
    """The network is cut: the leader counts from the send time of its last acknowledged renewal."""
    one, two = await stage.enter("one"), await stage.enter("two")
    await asyncio.sleep(7.5)  # renewed at 5
    stage.networks[0].cut = True
    began = asyncio.get_running_loop().time()
    async with never_two_leaders(stage):
        lost = await until(lambda: not one.is_leader)
        assert lost - began == pytest.approx(12.5, abs=0.05)
        await until(lambda: two.is_leader)
        stage.networks[0].cut = False
        await asyncio.sleep(60)
    assert stage.leaders == ["two"]


async def test_a_renewal_counts_from_its_sending_not_from_its_response(stage: Stage) -> None:
    one = await stage.enter("one")
    await asyncio.sleep(4.9)
    stage.networks[0].delay = 3.0  # the response to the renewal sent at 5 comes at 8
    await asyncio.sleep(3.2)
    stage.networks[0].cut = True
    lost = await until(lambda: not one.is_leader)
    assert lost - 1000.0 == pytest.approx(20.0, abs=0.05)


async def test_a_suspended_leader_knows_at_once_on_waking(stage: Stage, virtual_clock: VirtualClock) -> None:
    """The loop's timers stood still during the suspension; CLOCK_BOOTTIME did not."""
    one = await stage.enter("one")
    await asyncio.sleep(1)
    assert one.is_leader
    virtual_clock.suspended += 20
    assert not one.is_leader
    assert one.term == 0


async def test_a_late_response_does_not_restore_a_lost_lease(virtual_clock: VirtualClock) -> None:
    network = FaultyCoordination(MemoryCoordination())
    session = await LeaseSession.open(network, 15)
    assert session.remaining() == 15
    virtual_clock.suspended += 15
    assert session.remaining() == 0
    session._renewed_at = clock.boottime()  # a response that was in flight
    assert session.remaining() == 0


async def test_after_a_loss_it_campaigns_again_without_a_restart(stage: Stage) -> None:
    """controllers.md#leader-election: the life of a leader."""
    one = await stage.enter("one")
    await asyncio.sleep(1)
    first = one.term
    stage.networks[0].cut = True
    await until(lambda: not one.is_leader)
    stage.networks[0].cut = False
    await until(lambda: one.is_leader, limit=30)
    assert one.term > first
    passes = len(stage.world.passes)
    await asyncio.sleep(31)
    assert len(stage.world.passes) > passes
    assert stage.world.passes[-1].term == one.term


async def test_on_loss_no_new_pass_starts_and_waiting_ones_are_dropped(stage: Stage) -> None:
    cancelled: list[str] = []

    async def behave(thing: Thing) -> ReconciliationResult:
        try:
            await asyncio.sleep(40)
        except asyncio.CancelledError:
            cancelled.append(thing.id)
            raise
        return ReconciliationResult.success()

    stage.world.behave = behave
    stage.world.put(*(Thing(f"t{number}") for number in range(20)))
    config = ReconciliationConfig(initial_delay=0, max_concurrent=5)
    one = await stage.enter("one", config=config)
    await asyncio.sleep(1)
    stage.networks[0].cut = True
    await until(lambda: not one.is_leader)
    at_loss = len(stage.world.passes)
    await asyncio.sleep(30)
    assert at_loss == len(stage.world.passes) == 5
    assert len(cancelled) == 5
    assert len(one.queue) == 0


async def test_coordination_configured_but_unreachable_never_makes_a_leader(stage: Stage) -> None:
    """One log line with the endpoint, not ready, few attempts, and it recovers by itself.

    Reference: controllers.md#leader-election.
    """
    with capture_logs() as logs:
        network = FaultyCoordination(MemoryCoordination(stage.server))
        network.cut = True
        candidate = Elected(stage.world, network, "one", CollectorRegistry(), retry_interval=5)
        stage.candidates.append(candidate)
        stage.networks.append(network)
        await candidate.start()
        assert candidate.readiness()
        await asyncio.sleep(600)
        assert not candidate.is_leader
        assert stage.world.passes == []
        assert any(UNREACHABLE in reason for reason in candidate.readiness())
        assert sum(network.calls.values()) <= 600 / 5 + 1
        network.cut = False
        await until(lambda: candidate.is_leader, limit=6)
        assert candidate.readiness() == []
    said = [entry for entry in logs if entry["log_level"] == "warning"]
    assert len(said) == 1
    assert said[0]["error"] == UNREACHABLE
    assert [entry["event"] for entry in logs].count("coordination is back") == 1


async def test_a_lost_response_to_the_winning_put_is_read_back(stage: Stage) -> None:
    network = FaultyCoordination(MemoryCoordination(stage.server))
    network.lose_next_reply = True
    candidate = Elected(stage.world, network, "one", CollectorRegistry())
    stage.candidates.append(candidate)
    stage.networks.append(network)
    await candidate.start()
    await until(lambda: candidate.is_leader, limit=1)
    key = stage.server.get(KEY)
    assert key is not None
    assert candidate.term == key.create_revision


async def test_after_a_lost_response_only_the_lease_proves_who_holds_the_key(stage: Stage) -> None:
    """The put failed, its response was lost, and another process under our name has the key: that is not us."""

    class Usurped(FaultyCoordination):
        async def put_if_absent(self, key: str, value: bytes, *, lease_id: int = 0) -> SwapResult:
            other = await self.inner.grant_lease(60)
            await self.inner.put(key, value, lease_id=other.id)
            raise CoordinationOutcomeUnknownError("the response was lost")

    one = Elected(stage.world, Usurped(MemoryCoordination(stage.server)), "one", CollectorRegistry())
    await one.start()
    await asyncio.sleep(30)
    assert not one.is_leader
    assert one.announced == []
    await one.stop()


async def test_no_pass_begins_after_the_lease_expired_even_before_it_is_noticed(
    stage: Stage, virtual_clock: VirtualClock
) -> None:
    """Keys are waiting when a suspended machine resumes: the workers run before the task that renews the lease."""

    async def behave(thing: Thing) -> ReconciliationResult:
        if thing.id == "a":
            virtual_clock.suspended += 20
        return ReconciliationResult.success()

    stage.world.behave = behave
    stage.world.put(*(Thing(f"t{number}") for number in range(20)))
    one = await stage.enter("one", config=ReconciliationConfig(initial_delay=1, max_concurrent=1))
    await until(lambda: len(one.announced) == 2, limit=30)
    assert one.began_leading
    assert all(one.began_leading)


async def test_a_key_with_our_name_but_another_lease_is_not_ours(stage: Stage) -> None:
    """A process that was restarted under the same name waits for its former lease to end."""
    coordination = MemoryCoordination(stage.server)
    old = await coordination.grant_lease(15)
    await coordination.put(KEY, b"one", lease_id=old.id)
    one = await stage.enter("one")
    await asyncio.sleep(10)
    assert not one.is_leader
    await until(lambda: one.is_leader, limit=6)


async def test_an_election_key_that_is_deleted_by_hand_makes_no_second_leader_for_long(stage: Stage) -> None:
    """Deleting the key lets another win; the former leader learns of it from the lease only, so the term decides."""
    one, two = await stage.enter("one"), await stage.enter("two")
    await asyncio.sleep(1)
    old_term = one.term
    await MemoryCoordination(stage.server).delete(KEY)
    await until(lambda: two.is_leader)
    assert two.term > old_term


async def test_resigning_hands_over_and_lets_others_go_first(stage: Stage) -> None:
    one, two = await stage.enter("one"), await stage.enter("two")
    await asyncio.sleep(1)
    assert not two.resign()
    async with never_two_leaders(stage):
        assert one.resign()
        await until(lambda: two.is_leader, limit=1)
        await asyncio.sleep(30)
    assert stage.leaders == ["two"]
    await two.stop()
    await until(lambda: one.is_leader, limit=1)


async def test_resigning_alone_leads_again_after_the_retry_interval(stage: Stage) -> None:
    one = await stage.enter("one")
    await asyncio.sleep(1)
    one.resign()
    await until(lambda: not one.is_leader)
    await until(lambda: one.is_leader, limit=6)


async def test_hand_over_finishes_passes_under_way_while_still_leading(stage: Stage) -> None:
    finished: list[bool] = []

    async def behave(_: Thing) -> ReconciliationResult:
        await asyncio.sleep(3)
        finished.append(one.is_leader)
        return ReconciliationResult.success()

    stage.world.behave = behave
    one = await stage.enter("one")
    await asyncio.sleep(1)
    await one.stop()
    assert finished == [True]
    assert stage.server.get(KEY) is None


async def test_the_term_is_announced_until_it_succeeds_before_the_first_list(stage: Stage) -> None:
    announced: list[float] = []

    async def announce(_: int) -> None:
        announced.append(asyncio.get_running_loop().time())
        if len(announced) < 4:
            raise ConnectionError("control plane unreachable")
        assert stage.world.lists == []

    network = FaultyCoordination(MemoryCoordination(stage.server))
    one = Elected(stage.world, network, "one", CollectorRegistry())
    one.announce = announce
    stage.candidates.append(one)
    stage.networks.append(network)
    await one.start()
    await until(lambda: bool(stage.world.lists))
    assert len(announced) == 4
    assert one.announced == [one.term] * 4


async def test_a_leader_whose_term_is_refused_steps_down_and_does_not_hurry_back(stage: Stage) -> None:
    attempts: list[float] = []

    async def announce(_: int) -> None:
        attempts.append(asyncio.get_running_loop().time())
        raise StaleTermError("term 2 is older than 99; if etcd was replaced: lcm leadership reset toy")

    network = FaultyCoordination(MemoryCoordination(stage.server))
    one = Elected(stage.world, network, "one", CollectorRegistry())
    one.announce = announce
    stage.candidates.append(one)
    stage.networks.append(network)
    await one.start()
    await asyncio.sleep(600)
    assert stage.world.lists == []
    assert 5 <= len(attempts) <= 20


async def test_a_stale_write_in_a_pass_ends_the_leadership(stage: Stage) -> None:
    async def behave(_: Thing) -> ReconciliationResult:
        if one.is_leader:
            raise StaleTermError("a newer leader has written")
        return ReconciliationResult.success()

    stage.world.behave = behave
    one, two = await stage.enter("one"), await stage.enter("two")
    await until(lambda: two.is_leader, limit=2)
    assert not one.is_leader


# Effects under a lease


async def test_an_effect_has_at_most_half_the_ttl(stage: Stage) -> None:
    limits: list[float] = []

    async def behave(_: Thing) -> ReconciliationResult:
        began = asyncio.get_running_loop().time()
        try:
            await one.effect(lambda: asyncio.sleep(60), timeout=50)
        except TimeoutError:
            limits.append(asyncio.get_running_loop().time() - began)
        return ReconciliationResult.success()

    stage.world.behave = behave
    one = await stage.enter("one", lease_ttl=15)
    await asyncio.sleep(10)
    assert limits == [7.5]
    stage.world.behave = None
    await asyncio.sleep(60)  # the call ends by itself


async def test_an_effect_starts_only_while_the_lease_outlasts_its_deadline(stage: Stage) -> None:
    started: list[float] = []
    refused: list[str] = []

    async def call() -> None:
        started.append(asyncio.get_running_loop().time())

    async def behave(_: Thing) -> ReconciliationResult:
        await asyncio.sleep(8)  # the last acknowledged renewal was at 5, the lease is proven until 20; now it is 13
        try:
            await one.effect(call)
        except NotLeaderError as error:
            refused.append(str(error))
            raise
        return ReconciliationResult.success()

    one = await stage.enter("one", lease_ttl=15)
    await asyncio.sleep(5.2)
    stage.world.behave = behave
    stage.networks[0].cut = True
    one.trigger("a")
    await asyncio.sleep(9)
    assert started == []
    assert len(refused) == 1
    assert "7.5 s" in refused[0]


async def send_after(wait: float, sent: list[float]) -> None:
    """A call that waits for its turn, as in a rate limit, and is then sent."""
    await asyncio.sleep(wait)
    check_may_send()
    sent.append(asyncio.get_running_loop().time())


async def test_a_call_that_waits_is_not_sent_after_a_suspension(stage: Stage, virtual_clock: VirtualClock) -> None:
    """The lease is over by boot time, though the loop's timers have not seen that time pass."""
    sent: list[float] = []

    async def behave(_: Thing) -> ReconciliationResult:
        await one.effect(lambda: send_after(0.5, sent))
        return ReconciliationResult.success()

    one = await stage.enter("one")
    stage.world.behave = behave
    stage.world.passes.clear()
    one.trigger("a")
    await until(lambda: bool(stage.world.passes))
    virtual_clock.suspended += 60
    stage.world.behave = None
    await asyncio.sleep(5)
    assert sent == []


async def test_a_call_that_waits_is_not_sent_after_leadership_was_handed_over(stage: Stage) -> None:
    """Handing over waits five seconds for passes. What is sent after that would meet the next leader's calls."""
    sent: list[float] = []

    async def behave(_: Thing) -> ReconciliationResult:
        if one.is_leader:
            await one.effect(lambda: send_after(11, sent))
        return ReconciliationResult.success()

    one, two = await stage.enter("one", lease_ttl=60), await stage.enter("two", lease_ttl=60)
    stage.world.behave = behave
    stage.world.passes.clear()
    one.trigger("a")
    await until(lambda: bool(stage.world.passes))
    one.resign()
    await until(lambda: two.is_leader, limit=8)
    await asyncio.sleep(10)
    assert sent == []


async def test_a_call_under_way_when_leadership_is_lost_keeps_its_key_busy_into_the_next_term(stage: Stage) -> None:
    """We lose, win again, and the old call is still running: the key must not get a second pass before it has ended."""
    calls: list[float] = []

    async def call() -> None:
        await asyncio.sleep(100)
        calls.append(asyncio.get_running_loop().time())

    async def behave(_: Thing) -> ReconciliationResult:
        if not calls:
            await one.effect(call)
        return ReconciliationResult.success()

    one = await stage.enter("one")
    await asyncio.sleep(1)
    stage.world.behave = behave
    stage.world.passes.clear()
    one.trigger("a")
    await asyncio.sleep(0.1)
    first_term = one.term
    stage.networks[0].cut = True
    await until(lambda: not one.is_leader)
    stage.networks[0].cut = False
    await until(lambda: one.term > first_term)
    await asyncio.sleep(35)  # the new term has listed and polled again meanwhile
    assert (len(stage.world.passes), calls) == (1, [])
    await until(lambda: len(stage.world.passes) == 2)
    assert stage.world.times_of("a")[1] >= calls[0]


async def test_five_candidates_with_failing_networks_never_have_two_leaders(stage: Stage) -> None:
    for number in range(5):
        await stage.enter(f"c{number}")
    rng = clock.rng()
    led: set[str] = set()
    async with never_two_leaders(stage) as seen:
        for _ in range(200):
            await asyncio.sleep(rng.uniform(0.5, 12))
            network = rng.choice(stage.networks)
            network.cut = rng.random() < 0.5
            network.hang = rng.random() < 0.2
            network.delay = rng.choice([0.0, 0.0, 0.3, 2.0])
            network.lose_next_reply = rng.random() < 0.3
        for network in stage.networks:
            network.cut = network.hang = False
            network.delay = 0.0
        await until(lambda: bool(stage.leaders), limit=60)
    for leaders in seen:
        led.update(leaders)
    assert len(led) >= 3


async def test_one_line_per_transition_and_none_per_renewal(stage: Stage) -> None:
    with capture_logs() as logs:
        one = await stage.enter("one")
        await asyncio.sleep(300)
        one.resign()
        await until(lambda: not one.is_leader)
    events = [entry["event"] for entry in logs]
    assert events == ["leadership won", "leadership handed over"]
    assert logs[0]["term"] > 0
