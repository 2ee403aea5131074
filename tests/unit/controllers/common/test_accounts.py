"""The account of a worker: its own or the default, fetched once for many callers and cached for a short time."""

from __future__ import annotations

import asyncio

import pytest

from lcm.client.errors import UnreachableError
from lcm.cml.types import Credentials
from lcm.controllers.common.accounts import CmlAccounts, NotAdoptedError
from lcm.core import clock
from lcm.model.worker.status import WorkerOrigin
from tests.support.records.workers import a_worker
from tests.support.virtual.fake_cml import DEFAULT, FakeSecrets

OWN = Credentials("ops", "own-pw-91c")
NEW = Credentials("ops", "new-pw-55d")
W1, W2 = a_worker(id="w-1"), a_worker(id="w-2")


@pytest.fixture
def secrets() -> FakeSecrets:
    secrets = FakeSecrets()
    secrets.accounts["w-1"] = OWN
    return secrets


async def test_a_worker_has_its_own_account_or_else_the_default(secrets: FakeSecrets) -> None:
    accounts = CmlAccounts(secrets, DEFAULT)
    assert await accounts.get(W1) == OWN
    assert await accounts.get(W2) == DEFAULT


async def test_an_imported_worker_gets_the_default_only_after_a_person_adopted_it(secrets: FakeSecrets) -> None:
    """Whoever may set a tag in AWS could otherwise have the default password sent to a server of theirs."""
    accounts = CmlAccounts(secrets, DEFAULT)
    imported = a_worker(id="w-2", origin=WorkerOrigin.IMPORTED)
    with pytest.raises(NotAdoptedError, match="lcm workers adopt"):
        await accounts.get(imported)
    with pytest.raises(NotAdoptedError):
        await accounts.get(imported)
    adopted = imported.model_copy(update={"adopted_at": clock.now()})
    assert await accounts.get(adopted) == DEFAULT, "at once: no refusal is cached"
    assert secrets.calls == {"account w-2": 1}


async def test_an_account_of_its_own_was_entered_for_this_worker_and_is_used_before_it_is_adopted(
    secrets: FakeSecrets,
) -> None:
    imported = a_worker(id="w-1", origin=WorkerOrigin.IMPORTED)
    assert await CmlAccounts(secrets, DEFAULT).get(imported) == OWN


async def test_an_account_is_cached_for_five_minutes(secrets: FakeSecrets) -> None:
    accounts = CmlAccounts(secrets, DEFAULT)
    await accounts.get(W1)
    await accounts.get(W2)
    secrets.accounts |= {"w-1": NEW, "w-2": NEW}
    await asyncio.sleep(299)
    assert (await accounts.get(W1), await accounts.get(W2)) == (OWN, DEFAULT)
    await asyncio.sleep(2)
    assert (await accounts.get(W1), await accounts.get(W2)) == (NEW, NEW)


async def test_a_hundred_concurrent_callers_share_one_request(secrets: FakeSecrets) -> None:
    accounts = CmlAccounts(secrets, DEFAULT)
    accounts_seen = await asyncio.gather(*(accounts.get(W1) for _ in range(100)))
    assert set(accounts_seen) == {OWN}
    assert secrets.calls == {"account w-1": 1}


async def test_a_missing_response_does_not_mean_no_account(secrets: FakeSecrets) -> None:
    accounts = CmlAccounts(secrets, DEFAULT)
    secrets.failure = UnreachableError("connection refused")
    failures = await asyncio.gather(accounts.get(W1), accounts.get(W1), return_exceptions=True)
    assert [type(failure) for failure in failures] == [UnreachableError, UnreachableError]
    secrets.failure = None
    assert await accounts.get(W1) == OWN


async def test_a_dropped_account_is_fetched_again(secrets: FakeSecrets) -> None:
    accounts = CmlAccounts(secrets, DEFAULT)
    await accounts.get(W1)
    secrets.accounts["w-1"] = NEW
    accounts.drop("w-1")
    assert await accounts.get(W1) == NEW


async def test_a_response_in_flight_during_a_drop_is_not_cached(secrets: FakeSecrets) -> None:
    accounts = CmlAccounts(secrets, DEFAULT)
    secrets.seconds = 1
    early = asyncio.create_task(accounts.get(W1))
    await asyncio.sleep(0.5)
    accounts.drop("w-1")
    assert await early == OWN
    secrets.accounts["w-1"] = NEW
    assert await accounts.get(W1) == NEW


async def test_who_gives_up_takes_nothing_from_the_others_and_the_last_one_leaves_nothing_behind(
    secrets: FakeSecrets,
) -> None:
    accounts = CmlAccounts(secrets, DEFAULT)
    secrets.seconds = 10
    impatient, patient = (asyncio.create_task(accounts.get(W1)) for _ in range(2))
    await asyncio.sleep(1)
    impatient.cancel()
    assert await patient == OWN
    accounts.drop("w-1")
    before = asyncio.all_tasks()
    lonely = asyncio.create_task(accounts.get(W1))
    await asyncio.sleep(1)
    lonely.cancel()
    await asyncio.sleep(0.01)
    assert asyncio.all_tasks() == before


async def test_one_request_says_which_of_many_workers_have_an_account_of_their_own(secrets: FakeSecrets) -> None:
    """One request for each worker every five minutes was the largest cost of the start of a large fleet."""
    workers = [a_worker(id=f"w-{number}") for number in range(200)]
    accounts = CmlAccounts(secrets, DEFAULT, listed=lambda: [worker.id for worker in workers])
    for _ in range(2):
        found = await asyncio.gather(*(accounts.get(worker) for worker in workers))
        assert [account == OWN for account in found] == [worker.id == "w-1" for worker in workers]
        assert secrets.calls == {"accounts": 1, "account w-1": 1}
    await asyncio.sleep(301)
    secrets.accounts["w-7"] = NEW
    assert await accounts.get(workers[7]) == NEW
    assert await accounts.get(workers[8]) == DEFAULT
    assert secrets.calls == {"accounts": 2, "account w-1": 1, "account w-7": 1}


async def test_a_worker_that_was_not_known_yet_when_the_list_was_requested_is_asked_for_by_itself(
    secrets: FakeSecrets,
) -> None:
    """It may have been created after the list was read: what is missing from the list says nothing about it."""
    listed = ["w-2"]
    accounts = CmlAccounts(secrets, DEFAULT, listed=lambda: listed)
    assert await accounts.get(W2) == DEFAULT
    secrets.accounts["w-3"] = NEW
    listed.append("w-3")
    assert await accounts.get(a_worker(id="w-3")) == NEW
    assert secrets.calls == {"accounts": 1, "account w-3": 1}


async def test_many_workers_that_become_known_after_the_list_are_worth_another_one(secrets: FakeSecrets) -> None:
    """A new leader begins to query while its first list of workers is under way."""
    listed = ["w-2"]
    accounts = CmlAccounts(secrets, DEFAULT, listed=lambda: listed)
    await accounts.get(W2)
    listed += [f"w-{number}" for number in range(10, 200)]
    await asyncio.sleep(2)
    found = await asyncio.gather(*(accounts.get(a_worker(id=each)) for each in listed))
    assert set(found) == {DEFAULT}
    assert secrets.calls == {"accounts": 2}


async def test_what_is_dropped_while_the_list_is_in_flight_is_asked_for_again(secrets: FakeSecrets) -> None:
    accounts = CmlAccounts(secrets, DEFAULT, listed=lambda: ["w-2"])
    secrets.seconds = 1
    early = asyncio.create_task(accounts.get(W2))
    await asyncio.sleep(0.5)
    accounts.drop("w-2")
    await early
    assert secrets.calls == {"accounts": 1, "account w-2": 1}


async def test_without_a_list_each_worker_is_asked_for_and_a_failed_list_is_no_list(secrets: FakeSecrets) -> None:
    """An earlier control plane has no list."""
    accounts = CmlAccounts(secrets, DEFAULT, listed=lambda: ["w-1", "w-2"])
    secrets.failure = UnreachableError("connection refused")
    with pytest.raises(UnreachableError):
        await accounts.get(W2)
    secrets.failure = None
    secrets.has_list = False
    assert (await accounts.get(W1), await accounts.get(W2)) == (OWN, DEFAULT)
    assert secrets.calls == {"accounts": 2, "account w-1": 1, "account w-2": 1}


async def test_no_password_is_shown(secrets: FakeSecrets) -> None:
    accounts = CmlAccounts(secrets, DEFAULT)
    shown = repr(await accounts.get(W1)) + repr(await accounts.get(W2)) + repr(vars(accounts))
    assert OWN.password not in shown
    assert DEFAULT.password not in shown
