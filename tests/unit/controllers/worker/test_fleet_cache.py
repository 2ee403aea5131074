"""The leader's cache of the fleet: how many licenses are being deregistered, counted without a look at every worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.controllers.worker.fleet_cache import FleetCache
from lcm.model.fleet.settings import FleetSettings
from lcm.model.fleet.state import FleetState
from lcm.model.worker.record import Hold
from lcm.model.worker.status import LicenseStatus, WorkerStatus
from tests.support.records.workers import NOW, a_worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lcm.model.worker.record import Worker

HERE, THERE = "eu-west-1", "us-east-1"


def releasing(number: int, region: str = HERE, **changes: Any) -> Worker:
    """A worker that was started to deregister its license."""
    facts = {"license_status": LicenseStatus.REGISTERED, "license_release_started_at": NOW, **changes}
    return a_worker(id=f"w-{number:012d}", aws_region=region, **facts)


def resting(number: int, region: str = HERE) -> Worker:
    return a_worker(id=f"w-{number:012d}", aws_region=region)


def a_cache() -> FleetCache:
    return FleetCache(None)  # type: ignore[arg-type]  # it reads nothing here


def test_licenses_that_are_given_back_are_counted_by_region_and_without_the_worker_itself() -> None:
    cache = a_cache()
    cache.replace_all([releasing(1), releasing(2), releasing(3, THERE), resting(4)])
    assert cache.license_releases(resting(4)) == 2
    assert cache.license_releases(releasing(1)) == 1
    assert cache.license_releases(resting(9, THERE)) == 1


def test_the_count_follows_every_record() -> None:
    cache = a_cache()
    cache.replace_all([resting(1), resting(2)])
    cache.update(releasing(1))
    assert cache.license_releases(resting(2)) == 1
    cache.update(releasing(1, license_status=LicenseStatus.UNREGISTERED))
    assert cache.license_releases(resting(2)) == 0
    cache.update(releasing(1))
    cache.update(releasing(1, status=WorkerStatus.TERMINATED))
    assert cache.license_releases(resting(2)) == 0
    cache.update(releasing(1))
    cache.replace_all([resting(2)])
    assert cache.license_releases(resting(2)) == 0


def test_a_claim_and_its_record_count_once() -> None:
    cache = a_cache()
    cache.replace_all([resting(1), resting(2), resting(3)])
    assert cache.claim_license_release(resting(1), 2)
    cache.update(releasing(1))
    assert cache.license_releases(resting(3)) == 1
    assert cache.claim_license_release(resting(2), 2)
    assert not cache.claim_license_release(resting(3), 2)
    cache.update(releasing(1, status=WorkerStatus.TERMINATED))
    assert cache.claim_license_release(resting(3), 2)


def test_the_count_takes_no_longer_in_a_large_fleet() -> None:
    """Every pass counts: looking through all workers would make a round of a fleet quadratic."""

    class Counted(dict[str, Any]):
        looks = 0

        def values(self) -> Iterator[Any]:  # type: ignore[override]
            Counted.looks += 1
            return iter(super().values())

    cache = a_cache()
    cache.replace_all([releasing(1), *(resting(number) for number in range(2, 50))])
    cache.records = Counted(cache.records)
    assert cache.license_releases(resting(2)) == 1
    assert Counted.looks == 0


async def test_settings_and_fleet_that_did_not_change_stay_the_same_objects() -> None:
    """Decisions compare policies by identity, and each list reads the settings anew."""

    class Internal:
        def __init__(self) -> None:
            self.reason = "upgrade"

        async def settings(self) -> FleetSettings:
            return FleetSettings()

        async def fleet(self) -> FleetState:
            return FleetState(hold=Hold(reason=self.reason, by="ann", since=NOW))

    internal = Internal()
    cache = FleetCache(internal)  # type: ignore[arg-type]  # it reads nothing else here
    await cache.read_fleet()
    settings, fleet, hold = cache.settings, cache.fleet, cache.hold
    await cache.read_fleet()
    assert (cache.settings, cache.fleet, cache.hold) == (settings, fleet, hold)
    assert cache.settings is settings
    assert cache.fleet is fleet
    assert cache.hold is hold
    internal.reason = "another one"
    await cache.read_fleet()
    assert cache.hold is not None
    assert cache.hold.reason == "another one"
