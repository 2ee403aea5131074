"""The sender in virtual time: nothing is lost, nobody waits for another, storms become digests."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.notifications import messages, targets
from lcm.control_plane.notifications.digest import MESSAGES_PER_WINDOW
from lcm.control_plane.notifications.lane import RETRY_FOR, load_state
from lcm.control_plane.notifications.lease import StoreLease
from lcm.control_plane.notifications.messages import Links, Notification
from lcm.control_plane.notifications.targets import DeliveryError, HttpTarget
from lcm.control_plane.records.kinds import DEAD_LETTERS, DELIVERY_STATES
from lcm.control_plane.secrets.encryption import Secret
from lcm.control_plane.store.memory.store import MemoryDisk, MemoryStore
from lcm.core import clock
from lcm.model.notification.alert import AlertType
from lcm.model.notification.subscription import TargetKind
from lcm.model.worker.status import WorkerStatus
from tests.support.records.worker_records import ANNA
from tests.support.virtual.notifications import notification_world
from tests.unit.control_plane.notifications.test_messages import an_alert

if TYPE_CHECKING:
    from tests.support.virtual.time import VirtualClock


async def test_raised_is_followed_by_resolved_with_links_to_page_and_runbook() -> None:
    async with notification_world() as world:
        await world.add_workers(1)
        receiver, _ = await world.subscribe()
        await world.start_sender()
        await world.fail(0, "the image is gone")
        await world.until(lambda: len(receiver.messages) == 1)
        await world.set_status(0, WorkerStatus.TERMINATED, "deleted")
        await world.until(lambda: len(receiver.messages) == 2)
        raised, resolved = receiver.alerts
        assert (raised["type"], raised["state"], raised["detail"]) == ("worker_failed", "raised", "the image is gone")
        assert (resolved["type"], resolved["state"]) == ("worker_failed", "resolved")
        assert raised["links"] == {
            "subject": "https://lcm.test/workers/w-0",
            "runbook": "https://docs.test/operations.md#a-worker-has-failed",
        }
        assert raised["id"] != resolved["id"]


async def test_alerts_from_before_the_subscription_are_not_delivered() -> None:
    async with notification_world() as world:
        await world.add_workers(2)
        await world.fail(0)
        receiver, _ = await world.subscribe()
        await world.start_sender()
        await world.fail(1)
        await world.until(lambda: bool(receiver.messages))
        assert [alert["subject"]["id"] for alert in receiver.alerts] == ["w-1"]


async def test_a_dead_target_delays_no_other_and_gets_everything_later_in_order() -> None:
    async with notification_world() as world:
        await world.add_workers(5)
        healthy, _ = await world.subscribe("healthy")
        refused, _ = await world.subscribe("refused")
        refused.status = None
        silent, _ = await world.subscribe("silent")
        silent.hangs = True
        sender = await world.start_sender()
        began = clock.now()
        for number in range(5):
            await world.fail(number)
        await world.until(lambda: len(healthy.messages) == 5)
        assert clock.now() - began < timedelta(seconds=2)
        assert refused.messages == [] == silent.messages
        await world.until(lambda: bool(sender.degradation()))
        assert sender.degradation()[0].startswith("notifications: refused cannot be delivered since 2026-01-17 10:30")
        refused.status, silent.hangs = 200, False
        await world.until(lambda: len(refused.messages) == len(silent.messages) == 5)
        expected = [alert["id"] for alert in healthy.alerts]
        assert [alert["id"] for alert in refused.alerts] == expected
        assert [alert["id"] for alert in silent.alerts] == expected
        assert sender.degradation() == []


async def test_a_message_that_is_rejected_is_a_dead_letter_at_once_and_can_be_sent_again() -> None:
    async with notification_world() as world:
        await world.add_workers(2)
        receiver, created = await world.subscribe()
        receiver.status, receiver.text = 422, b"no such field"
        sender = await world.start_sender()
        await world.fail(0)
        await world.until(lambda: receiver.requests == 1)
        await world.fail(1)
        await world.until(lambda: receiver.requests == 2)
        subscription = created.subscription
        await asyncio.sleep(1)
        letters = (await world.subscriptions.dead_letters(subscription.id, limit=10, cursor=None)).items
        assert [letter.answer for letter in letters] == ["422 no such field"] * 2
        receiver.status = 200
        result = await sender.send_letter(subscription, letters[0].id, ANNA)
        assert result.delivered
        assert receiver.messages[0].id == letters[0].notification_id
        assert len((await world.subscriptions.dead_letters(subscription.id, limit=10, cursor=None)).items) == 1


async def test_a_target_that_rejects_everything_is_failing_until_something_is_delivered() -> None:
    async with notification_world() as world:
        await world.add_workers(3)
        receiver, created = await world.subscribe()
        receiver.status = 400
        sender = await world.start_sender()
        began = clock.now()
        await world.fail(0)
        await asyncio.sleep(600)
        assert sender.status().failing == ("ops",)
        assert sender.degradation()[0].startswith("notifications: ops cannot be delivered since 2026-01-17 10:30")
        await world.fail(1)
        await asyncio.sleep(600)
        status = await world.subscriptions.status(created.subscription.id)
        assert status.failing_since is not None
        assert status.failing_since - began < timedelta(seconds=5)
        receiver.status = 200
        await world.fail(2)
        await world.until(lambda: bool(receiver.messages))
        assert sender.status().failing == () == tuple(sender.degradation())


async def test_a_test_that_is_delivered_ends_the_failure_in_the_control_plane_that_sends() -> None:
    async with notification_world() as world:
        await world.add_workers(1)
        receiver, created = await world.subscribe()
        receiver.status = 400
        sender = await world.start_sender(StoreLease(world.store, "one"))
        await world.until(lambda: sender.status().sending)
        other = await world.start_sender(StoreLease(world.store, "two"))
        await world.fail(0)
        await asyncio.sleep(5)
        assert not (await other.send_test(created.subscription, ANNA)).delivered
        await asyncio.sleep(60)
        assert sender.status().failing == ("ops",)
        receiver.status = 200
        assert (await other.send_test(created.subscription, ANNA)).delivered
        await asyncio.sleep(60)
        assert sender.status().failing == ()
        assert (await world.subscriptions.status(created.subscription.id)).failing_since is None


async def test_a_test_that_is_delivered_does_not_end_a_failure_that_is_retried() -> None:
    async with notification_world() as world:
        await world.add_workers(1)
        receiver, created = await world.subscribe()
        receiver.status = 503
        sender = await world.start_sender()
        await world.fail(0)
        await asyncio.sleep(1000)
        receiver.status = 200
        await sender.send_test(created.subscription, ANNA)
        assert sender.status().failing == ("ops",)
        await asyncio.sleep(700)
        assert sender.status().failing == ()


async def test_after_a_day_of_failures_all_expired_alerts_are_one_dead_letter() -> None:
    async with notification_world() as world:
        await world.add_workers(4)
        receiver, created = await world.subscribe()
        receiver.status = 503
        await world.start_sender()
        for number in range(3):
            await world.fail(number)
        await asyncio.sleep(RETRY_FOR.total_seconds() - 3600)
        assert await world.store.count_by(DEAD_LETTERS, ["subscription_id"]) == []
        await world.fail(3)
        await asyncio.sleep(3600 + 700)  # the longest delay between two attempts is ten minutes
        status = await world.subscriptions.status(created.subscription.id)
        assert status.dead_letters == 1
        assert status.pending == 1
        assert status.failing_since is not None
        letters = (await world.subscriptions.dead_letters(created.subscription.id, limit=10, cursor=None)).items
        assert [alert.subject.id for alert in letters[0].alerts] == ["w-0", "w-1", "w-2"]
        attempts = receiver.requests
        assert attempts < 24 * 6 + 20  # with backoff
        receiver.status = 200
        await world.until(lambda: len(receiver.messages) == 1)
        assert [alert["subject"]["id"] for alert in receiver.alerts] == ["w-3"]


async def test_a_target_that_asks_to_wait_is_left_alone_for_so_long() -> None:
    async with notification_world() as world:
        await world.add_workers(1)
        receiver, _ = await world.subscribe()
        receiver.status, receiver.headers = 429, {"retry-after": "900"}
        await world.start_sender()
        await world.fail(0)
        await asyncio.sleep(890)
        assert receiver.requests == 1
        receiver.status = 200
        await asyncio.sleep(20)
        assert len(receiver.messages) == 1


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_clock_that_is_set_right_after_a_failure_silences_no_target(
    virtual_clock: VirtualClock, restarted: bool
) -> None:
    async with notification_world() as world:
        await world.add_workers(1)
        receiver, _ = await world.subscribe()
        receiver.status = 503
        virtual_clock.jumped = 86_400.0
        sender = await world.start_sender()
        await world.fail(0)
        await world.until(lambda: receiver.requests == 1, seconds=5)
        virtual_clock.jumped = 0.0
        receiver.status = 200
        if restarted:
            await world.stop_sender(sender)
            await world.start_sender()
        await asyncio.sleep(3700 if restarted else 10)
        assert len(receiver.messages) == 1


async def test_a_target_may_say_with_a_date_when_to_come_back() -> None:
    async with notification_world() as world:
        await world.add_workers(1)
        receiver, _ = await world.subscribe()
        back = format_datetime(clock.now() + timedelta(seconds=900), usegmt=True)
        receiver.status, receiver.headers = 503, {"retry-after": back}
        await world.start_sender()
        await world.fail(0)
        await asyncio.sleep(880)
        assert receiver.requests == 1
        receiver.status = 200
        await asyncio.sleep(30)
        assert len(receiver.messages) == 1


async def test_a_message_is_accepted_once_the_status_says_so_also_if_the_body_never_ends() -> None:
    async with notification_world() as world:
        await world.add_workers(2)
        receiver, created = await world.subscribe()
        receiver.is_endless = True
        await world.start_sender()
        await world.fail(0)
        await world.fail(1)
        await asyncio.sleep(60)
        assert [alert["subject"]["id"] for alert in receiver.alerts] == ["w-0", "w-1"]
        status = await world.subscriptions.status(created.subscription.id)
        assert (status.delivered, status.recent[0].answer) == (2, "200 ok")


async def test_what_cannot_even_be_sent_is_shown_and_given_up_like_any_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of ours with one message does not keep all others back for ever."""
    async with notification_world() as world:
        await world.add_workers(2)
        receiver, created = await world.subscribe()
        make = messages.webhook_body

        def fail_for_the_first(notification: Notification, links: Links) -> bytes:
            if notification.alerts[0].subject.id == "w-0":
                raise ValueError("a message that nobody has thought of")
            return make(notification, links)

        monkeypatch.setattr(targets, "webhook_body", fail_for_the_first)
        sender = await world.start_sender()
        await world.fail(0)
        await asyncio.sleep(3600)
        status = await world.subscriptions.status(created.subscription.id)
        assert status.recent[0].answer == "it could not be sent: ValueError"
        assert sender.degradation()[0].startswith("notifications: ops cannot be delivered since")
        await world.fail(1)
        await asyncio.sleep(RETRY_FOR.total_seconds() - 1800)
        assert [alert["subject"]["id"] for alert in receiver.alerts] == ["w-1"]
        assert (await world.subscriptions.status(created.subscription.id)).dead_letters == 1


async def test_two_people_send_a_dead_letter_again_at_once_and_both_hear_that_it_was_delivered() -> None:
    async with notification_world() as world:
        await world.add_workers(1)
        receiver, created = await world.subscribe()
        receiver.status = 400
        sender = await world.start_sender()
        await world.fail(0)
        await asyncio.sleep(5)
        letters = (await world.subscriptions.dead_letters(created.subscription.id, limit=10, cursor=None)).items
        receiver.status, receiver.seconds = 200, 1.0
        sent = [sender.send_letter(created.subscription, letters[0].id, ANNA) for _ in range(2)]
        assert [result.delivered for result in await asyncio.gather(*sent)] == [True, True]
        assert {message.id for message in receiver.messages} == {letters[0].notification_id}
        assert (await world.subscriptions.dead_letters(created.subscription.id, limit=10, cursor=None)).items == ()


async def test_a_thousand_failures_in_a_minute_are_ten_messages_and_one_digest() -> None:
    async with notification_world(digest_seconds=60.0) as world:
        await world.add_workers(1000)
        receiver, _ = await world.subscribe()
        await world.start_sender()
        for number in range(1000):
            await world.fail(number)
            await asyncio.sleep(0.05)
        await asyncio.sleep(300)
        assert len(receiver.messages) == MESSAGES_PER_WINDOW + 1
        digest = receiver.messages[-1]
        assert len(digest.alerts) == 1000 - MESSAGES_PER_WINDOW
        assert [alert["subject"]["id"] for alert in receiver.alerts] == [f"w-{number}" for number in range(1000)]
        await world.set_status(0, WorkerStatus.TERMINATED)  # the storm is over
        await world.until(lambda: len(receiver.messages) == MESSAGES_PER_WINDOW + 2, seconds=2)


async def test_a_storm_that_goes_on_is_one_digest_a_minute_and_each_alert_is_sent_within_a_minute() -> None:
    async with notification_world(digest_seconds=60.0) as world:
        await world.add_workers(300)
        receiver, _ = await world.subscribe()
        await world.start_sender()
        for number in range(300):
            await world.fail(number)
            await asyncio.sleep(1.0)
        await asyncio.sleep(70)
        first, digests = receiver.messages[:MESSAGES_PER_WINDOW], receiver.messages[MESSAGES_PER_WINDOW:]
        assert [len(message.alerts) for message in first] == [1] * MESSAGES_PER_WINDOW
        assert len(digests) == 5
        delays = [
            (message.at - datetime.fromisoformat(alert["at"])).total_seconds()
            for message in receiver.messages
            for alert in message.alerts
        ]
        assert len(delays) == 300
        assert max(delays) < 62
        assert max(delays[:MESSAGES_PER_WINDOW]) < 2


async def test_digests_stay_below_the_megabyte_that_proxies_allow() -> None:
    async with notification_world(digest_seconds=60.0) as world:
        await world.add_workers(600)
        receiver, _ = await world.subscribe()
        await world.start_sender()
        for number in range(600):
            await world.fail(number, "ä" * 1000)
        await asyncio.sleep(200)
        digests = receiver.messages[MESSAGES_PER_WINDOW:]
        assert [len(digest.alerts) > 1 for digest in digests] == [True, True]
        assert max(len(digest.body) for digest in digests) < 1_000_000
        assert [alert["subject"]["id"] for alert in receiver.alerts] == [f"w-{number}" for number in range(600)]


async def test_a_digest_that_is_too_large_for_its_target_is_halved_until_it_fits() -> None:
    async with notification_world(digest_seconds=60.0) as world:
        await world.add_workers(100)
        receiver, created = await world.subscribe()
        receiver.max_bytes = 30_000
        await world.start_sender()
        for number in range(100):
            await world.fail(number)
        await asyncio.sleep(600)
        assert [alert["subject"]["id"] for alert in receiver.alerts] == [f"w-{number}" for number in range(100)]
        assert len(receiver.messages) < MESSAGES_PER_WINDOW + 8
        assert (await world.subscriptions.status(created.subscription.id)).dead_letters == 0


async def test_a_single_alert_that_is_too_large_is_a_dead_letter() -> None:
    async with notification_world() as world:
        await world.add_workers(1)
        receiver, created = await world.subscribe()
        receiver.max_bytes = 10
        await world.start_sender()
        await world.fail(0)
        await asyncio.sleep(60)
        assert (await world.subscriptions.status(created.subscription.id)).dead_letters == 1


async def test_a_digest_that_is_repeated_after_a_crash_has_the_same_id_and_alerts() -> None:
    disk = MemoryDisk()
    async with notification_world(digest_seconds=60.0, store=MemoryStore(disk)) as world:
        await world.add_workers(40)
        receiver, created = await world.subscribe()
        sender = await world.start_sender()
        for number in range(30):
            await world.fail(number)
        await world.until(lambda: len(receiver.messages) == MESSAGES_PER_WINDOW)
        receiver.status, receiver.seconds = 500, 0.0
        requests = receiver.requests
        await world.until(lambda: receiver.requests > requests)  # the digest was attempted
        await world.stop_sender(sender)
        loaded = await load_state(world.store, created.subscription.id)
        assert loaded is not None
        assert loaded.state.digest_through is not None
        for number in range(30, 40):  # meanwhile there are more, which are not part of it
            await world.fail(number)
        receiver.status = 200
        await world.start_sender()
        await world.until(lambda: len(receiver.messages) == MESSAGES_PER_WINDOW + 2)
        digest, rest = receiver.messages[-2:]
        assert [alert["subject"]["id"] for alert in digest.alerts] == [f"w-{number}" for number in range(10, 30)]
        assert digest.id == f"digest-{digest_range(loaded.state.digest_through, digest.id)}"
        assert [alert["subject"]["id"] for alert in rest.alerts] == [f"w-{number}" for number in range(30, 40)]


def digest_range(through: str, digest_id: str) -> str:
    first = digest_id.split("-")[1]
    return f"{first}-{through.lstrip('0')}"


async def test_filters_select_by_type_severity_and_subject() -> None:
    async with notification_world() as world:
        await world.add_workers(3)
        critical, _ = await world.subscribe("critical", severity="critical")
        stuck, _ = await world.subscribe("stuck", types=[AlertType.WORKER_STUCK])
        named, _ = await world.subscribe("named", selector={"names": ["n2"], "regions": ["eu-west-1"]})
        await world.start_sender()
        for number in range(3):
            await world.fail(number)
        await world.until(lambda: len(critical.messages) == 3 and len(named.messages) == 1)
        assert stuck.messages == []
        assert named.alerts[0]["subject"]["name"] == "n2"


async def test_of_two_control_planes_one_sends_and_the_other_takes_over() -> None:
    async with notification_world() as world:
        await world.add_workers(30)
        receiver, _ = await world.subscribe()
        first = await world.start_sender(StoreLease(world.store, "one"))
        await world.until(lambda: first.status().sending)
        second = await world.start_sender(StoreLease(world.store, "two"))
        for number in range(10):
            await world.fail(number)
        await world.until(lambda: len(receiver.messages) == 10)
        assert first.status().sending
        assert not second.status().sending
        await world.stop_sender(first)
        for number in range(10, 20):
            await world.fail(number)
        await world.until(lambda: len(receiver.messages) == 20)
        assert second.status().sending
        assert [alert["subject"]["id"] for alert in receiver.alerts] == [f"w-{number}" for number in range(20)]


async def test_a_control_plane_that_dies_is_replaced_when_its_lease_ends_and_not_before() -> None:
    async with notification_world() as world:
        await world.add_workers(1)
        receiver, _ = await world.subscribe()
        lease = StoreLease(world.store, "dead")
        assert await lease.acquire()  # and then the process dies: it is never renewed
        began = clock.now()
        sender = await world.start_sender(StoreLease(world.store, "living"))
        await world.fail(0)
        await asyncio.sleep(8)
        assert not sender.status().sending
        await world.until(lambda: bool(receiver.messages))
        assert clock.now() - began < timedelta(seconds=15)
        assert not lease.is_held()


async def test_a_sender_whose_lease_ended_sends_nothing_more() -> None:
    async with notification_world() as world:
        await world.add_workers(1)
        receiver, _ = await world.subscribe()
        lease = StoreLease(world.store, "one")
        sender = await world.start_sender(lease)
        await world.until(lambda: sender.status().sending)
        other = StoreLease(world.store, "two")
        await lease.release()
        assert await other.acquire()
        await world.fail(0)
        await asyncio.sleep(1)
        assert receiver.messages == []


async def test_a_deleted_or_disabled_subscription_gets_nothing_more_and_leaves_nothing() -> None:
    async with notification_world() as world:
        await world.add_workers(2)
        receiver, created = await world.subscribe()
        await world.start_sender()
        await world.fail(0)
        await world.until(lambda: bool(receiver.messages))
        await world.subscriptions.delete(ANNA, created.subscription.id)
        await world.fail(1)
        await asyncio.sleep(60)
        assert len(receiver.messages) == 1
        assert await world.store.get(DELIVERY_STATES, created.subscription.id) is None


async def test_a_test_message_shows_the_answer_and_hides_the_address() -> None:
    async with notification_world() as world:
        receiver, created = await world.subscribe()
        sender = await world.start_sender()
        result = await sender.send_test(created.subscription, ANNA)
        assert (result.delivered, result.answer) == (True, "200 ok")
        assert receiver.alerts[0]["type"] == "test"
        receiver.status, receiver.text = 404, b"nothing at https://ops/hook/s3cret or hook/s3cret"
        result = await sender.send_test(created.subscription, ANNA)
        assert (result.delivered, result.answer) == (False, "404 nothing at *** or ***")


@pytest.mark.parametrize(
    ("url", "answer"),
    [
        ("https://ops?token=s3cret", "no such token=s3cret"),
        ("https://ops/services/T01/B02/abcdefghijklmnop3cret", "unknown: abcdefghijklmnop3cret"),
        ("https://ops/flow?api=1&sig=abcdefghijklmnop3cret", "bad sig abcdefghijklmnop3cret of flow"),
    ],
)
async def test_an_answer_that_repeats_a_part_of_the_address_hides_it(url: str, answer: str) -> None:
    async with notification_world() as world:
        receiver = world.receivers.add("ops", status=404, text=answer.encode())
        target = HttpTarget(TargetKind.SLACK, Secret(url), [], world.receivers, Links())
        with pytest.raises(DeliveryError) as caught:
            await target.send(Notification("ev-1", (an_alert(),)))
        assert receiver.requests == 1
        assert "3cret" not in str(caught.value)


async def test_no_secret_is_in_a_record_or_in_the_journal() -> None:
    async with notification_world() as world:
        _, created = await world.subscribe()
        assert created.signing_secret is not None
        secrets = [created.signing_secret.get_secret_value(), "s3cret"]
        entries = await world.store.read_journal(limit=1000)
        shown = created.subscription.model_dump_json() + "".join(entry.body.decode() for entry in entries)
        assert created.subscription.address == "https://ops/…"
        assert not [secret for secret in secrets if secret in shown]
