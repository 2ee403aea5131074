"""Candidates as real processes on a real etcd: signals, crashes, and an etcd that comes and goes."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.servers.etcd import EtcdCluster, EtcdServer, free_ports
from tests.support.servers.processes import LcmProcess, assert_never_two_leaders, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Start = Callable[..., LcmProcess]

TTL = 3


@pytest.fixture
def candidates() -> Iterator[list[LcmProcess]]:
    """Every process of the test, ended at its end."""
    started: list[LcmProcess] = []
    yield started
    for process in started:
        process.end()


@pytest.fixture
def start(tmp_path: Path, candidates: list[LcmProcess], request: pytest.FixtureRequest) -> Start:
    def make(name: str, endpoints: str, **env: str) -> LcmProcess:
        settings = {
            "ETCD_ENDPOINTS": endpoints,
            "ETCD_NAMESPACE": f"/{request.node.originalname}",
            "LEADER_LEASE_TTL": str(TTL),
            "RETRY_INTERVAL": "1",
            "RECONCILE_INTERVAL": "0.5",
            **env,
        }
        process = LcmProcess(
            tmp_path, name, "controller", "tests.support.real.leadership_diary:Diarist", env=settings
        ).start()
        candidates.append(process)
        return process

    return make


def the_leader(candidates: list[LcmProcess]) -> LcmProcess:
    """Waits until a process leads and has logged it."""
    leaders: list[LcmProcess] = []

    def found() -> bool:
        leaders[:] = [process for process in candidates if process.running and process.is_leader and process.diary()]
        return bool(leaders)

    wait_until(found, "a process leads")
    return leaders[0]


def put_task(server: EtcdServer, namespace: str, name: str) -> None:
    server.ctl("put", f"/{namespace}/tasks/{name}", "x")


def test_graceful_hand_over(
    etcd_server: EtcdServer, start: Start, candidates: list[LcmProcess], request: pytest.FixtureRequest
) -> None:
    """SIGTERM: it hands over, exits with 0, and the other acts on, long before the lease would have ended."""
    start("one", etcd_server.endpoint, LEADER_LEASE_TTL="600")
    first = the_leader(candidates)
    second = start("two", etcd_server.endpoint, LEADER_LEASE_TTL="600")
    wait_until(lambda: second.get("/ready")[0] == 200, "the standby is ready")
    put_task(etcd_server, request.node.originalname, "a")
    wait_until(lambda: any(line["what"] == "acts" for line in first.diary()), "the leader acts")
    assert not any(line["what"] == "acts" for line in second.diary())
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    wait_until(lambda: second.is_leader, "the standby leads")
    wait_until(lambda: any(line["what"] == "acts" for line in second.diary()), "the new leader acts")
    assert len(assert_never_two_leaders(candidates)) == 2
    assert len(first.logged("leadership handed over")) == 1


def test_crash_hand_over(etcd_server: EtcdServer, start: Start, candidates: list[LcmProcess]) -> None:
    """SIGKILL: the lease ends by itself and the standby takes over."""
    start("one", etcd_server.endpoint)
    first = the_leader(candidates)
    second = start("two", etcd_server.endpoint)
    wait_until(lambda: second.get("/ready")[0] == 200, "the standby is ready")
    first.signal(signal.SIGKILL)
    first.wait()
    wait_until(lambda: bool(second.diary()), "the standby leads")
    assert len(assert_never_two_leaders(candidates)) >= 2


def test_a_process_stopped_past_its_ttl_does_not_act_before_it_has_won_again(
    etcd_server: EtcdServer, start: Start, candidates: list[LcmProcess], request: pytest.FixtureRequest
) -> None:
    start("one", etcd_server.endpoint)
    first = the_leader(candidates)
    second = start("two", etcd_server.endpoint)
    wait_until(lambda: second.get("/ready")[0] == 200, "the standby is ready")
    first.signal(signal.SIGSTOP)
    old_term = first.diary()[-1]["term"]
    wait_until(lambda: any(line["term"] > old_term for line in second.diary()), "the standby leads")
    new_term = second.diary()[-1]["term"]
    put_task(etcd_server, request.node.originalname, "b")
    wait_until(lambda: any(line["what"] == "acts" for line in second.diary()), "the new leader acts")
    continued_at = time.clock_gettime(time.CLOCK_BOOTTIME)
    first.signal(signal.SIGCONT)
    wait_until(lambda: bool(first.logged("leadership lost")), "it says that it does not lead")
    second.signal(signal.SIGTERM)
    wait_until(lambda: first.diary()[-1]["at"] > continued_at, "it leads again")
    assert all(line["term"] > new_term for line in first.diary() if line["at"] > continued_at)
    terms = assert_never_two_leaders(candidates)
    assert len(terms) >= 3
    assert first.diary()[-1]["term"] == terms[-1]


def test_two_stops_of_different_lengths_never_make_two_leaders(
    etcd_server: EtcdServer, start: Start, candidates: list[LcmProcess]
) -> None:
    """Short enough to keep the lease, long enough to lose it, and just about the TTL."""
    start("one", etcd_server.endpoint)
    start("two", etcd_server.endpoint)
    for seconds in (TTL / 2, TTL, TTL + 0.5):
        leader = the_leader(candidates)
        leader.signal(signal.SIGSTOP)
        time.sleep(seconds)  # the length of the stop is what is tested; nothing is expected to have happened by then
        leader.signal(signal.SIGCONT)
        the_leader(candidates)
    assert_never_two_leaders(candidates)


def test_five_candidates_and_rolling_crashes_never_make_two_leaders(
    etcd_server: EtcdServer, start: Start, candidates: list[LcmProcess]
) -> None:
    for number in range(5):
        start(f"c{number}", etcd_server.endpoint)
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        leader = the_leader(candidates)
        leader.signal(number)
        leader.wait()
    last = the_leader(candidates)
    assert last.running
    assert len(assert_never_two_leaders(candidates)) >= 5


def test_etcd_down_at_the_start_makes_no_leader_and_it_comes_back_by_itself(
    tmp_path: Path, start: Start, candidates: list[LcmProcess]
) -> None:
    """One line with the endpoint, /ready false, and no restart needed."""
    server = EtcdServer(tmp_path / "late")
    endpoint = server.endpoint
    process = start("one", endpoint)
    wait_until(lambda: process.get("/ready")[0] == 503, "it says that it is not ready")
    wait_until(lambda: endpoint in str(process.get("/ready")[1]["reasons"]), "it says which endpoint is down")
    wait_until(lambda: bool(process.logged("coordination unavailable: no election possible")), "it logs why")
    time.sleep(TTL + 1)  # longer than a lease: it must still not lead
    assert not process.is_leader
    assert process.diary() == []
    (said,) = process.logged("coordination unavailable: no election possible")
    assert endpoint in said["error"]
    server.start()
    try:
        wait_until(lambda: process.is_leader, "it leads once etcd is there")
        wait_until(lambda: process.get("/ready")[0] == 200, "and it is ready")
    finally:
        process.end()
        server.stop()


def test_leadership_survives_or_moves_cleanly_when_members_of_etcd_die(
    tmp_path: Path, start: Start, candidates: list[LcmProcess]
) -> None:
    """A member killed, the leader member killed, quorum lost and back: a leader in the end, never two."""
    cluster = EtcdCluster(tmp_path / "cluster").start()
    try:
        endpoints = ",".join(cluster.endpoints)
        for name in ("one", "two"):
            start(name, endpoints, LEADER_LEASE_TTL="5")
        the_leader(candidates)
        servers = list(cluster)
        follower = servers[(cluster.leader_index() + 1) % 3]
        follower.kill()
        the_leader(candidates)
        follower.launch()
        cluster.wait_ready(servers)
        servers[cluster.leader_index()].kill()
        the_leader(candidates)
        cluster.start()
        for server in servers[:2]:
            server.kill()
        wait_until(lambda: not any(process.is_leader for process in candidates), "without quorum no process leads")
        wait_until(lambda: all(process.get("/ready")[0] == 503 for process in candidates), "and none is ready")
        cluster.start()
        the_leader(candidates)
        assert_never_two_leaders(candidates)
    finally:
        for process in candidates:
            process.end()
        cluster.stop()


def test_a_change_in_etcd_is_reconciled_by_the_running_process(
    etcd_server: EtcdServer, start: Start, candidates: list[LcmProcess], request: pytest.FixtureRequest
) -> None:
    """By the watch: polling is off."""
    process = start("one", etcd_server.endpoint, RECONCILE_POLLING_ENABLED="false")
    the_leader(candidates)
    for name in ("x", "y", "z"):
        put_task(etcd_server, request.node.originalname, name)
        wait_until(lambda name=name: any(line.get("task") == name for line in process.diary()), f"{name} is done")  # type: ignore[misc]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_lcm_up_runs_the_example_stops_cleanly_and_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    """What `make up` runs: the file is there, a signal ends it with 0, and started again it works as before."""
    arguments = ("up", "--controller", "examples.notes:NotesController")
    for run in ("first", "second"):
        process = LcmProcess(tmp_path, "up", *arguments, env={"RECONCILE_INTERVAL": "0.5"}, forked=False).start()
        try:
            note = tmp_path / "up.data" / "notes" / "welcome"
            wait_until(lambda: process.is_leader and note.exists(), f"the note is there, {run} run")  # noqa: B023
            note.unlink()
            wait_until(note.exists, "the note comes back")
            process.signal(number)
            assert process.wait() == 0
            assert "Press Ctrl-C to stop." in process.log_path.read_text()
            assert not process.logged("background task failed")
        finally:
            process.end()


def test_a_taken_port_is_one_clear_line(etcd_server: EtcdServer, start: Start, candidates: list[LcmProcess]) -> None:
    first = start("one", etcd_server.endpoint)
    the_leader(candidates)
    second = start("two", etcd_server.endpoint, WORKER_CONTROLLER_PORT=str(first.port))
    assert second.wait() == 1
    lines = second.log_path.read_text().splitlines()
    assert len(lines) == 1
    assert f"127.0.0.1:{first.port}" in lines[0]
    assert "WORKER_CONTROLLER_PORT" in lines[0]


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("WORKER_CONTROLLER_PORT", "abc", "a whole number from 1 to 65535"),
        ("LEADER_LEASE_TTL", "0", "a whole number from 2 to 3600"),
        ("COORDINATION", "zookeeper", "one of etcd, memory"),
        ("COORDINATION", "memory", "must be etcd here"),
    ],
)
def test_a_wrong_setting_stops_the_start_with_one_line(start: Start, variable: str, value: str, allowed: str) -> None:
    process = start("one", f"127.0.0.1:{free_ports(1)[0]}", **{variable: value})
    assert process.wait() == 2
    lines = process.log_path.read_text().splitlines()
    assert len(lines) == 1
    assert f'{variable}="{value}"' in lines[0]
    assert allowed in lines[0]
