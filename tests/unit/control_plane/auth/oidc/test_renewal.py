"""Groups of a person are at most five minutes old, with refresh tokens that work once and several control planes."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from lcm.control_plane.auth.oidc import fetch
from lcm.control_plane.auth.oidc.renewal import CLAIM_LIFETIME, RENEW_AFTER, SILENCE_PAUSE, SessionRenewal
from lcm.control_plane.auth.roles import UnauthenticatedError
from lcm.control_plane.auth.session_record import SESSIONS, SILENCE_LIMIT, StoredSession, put_session, storage_key
from lcm.control_plane.auth.sessions import SessionService
from lcm.control_plane.auth.sign_in_links import SignInLinks
from lcm.control_plane.records.kinds import AUDIT
from lcm.core import clock
from lcm.model.access import Role, SessionKind
from tests.support.auth.scripted_provider import ScriptedProvider, make_box

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.control_plane.auth.oidc.sign_in import OidcSignIn
    from lcm.control_plane.auth.tokens import TokenService
    from lcm.control_plane.secrets.encryption import SecretBox
    from tests.support.records.gated_store import GatedStore

FIVE_MINUTES = 300.0
DUE = RENEW_AFTER.total_seconds() + 55


@dataclass
class Replica:
    """One control plane."""

    sign_in: OidcSignIn
    sessions: SessionService

    async def role(self, session_id: str) -> Role | None:
        """The role with which a request is served; None if it is refused."""
        try:
            return (await self.sessions.resume(session_id)).caller.role
        except UnauthenticatedError:
            return None


def make_replica(provider: ScriptedProvider, store: GatedStore, tokens: TokenService, box: SecretBox) -> Replica:
    sign_in = provider.sign_in(box)
    return Replica(sign_in, SessionService(store, tokens, box, SessionRenewal(store, box, sign_in)))


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider()


@pytest.fixture
async def replicas(provider: ScriptedProvider, store: GatedStore, tokens: TokenService) -> AsyncIterator[list[Replica]]:
    box = make_box()
    made = [make_replica(provider, store, tokens, box) for _ in range(3)]
    yield made
    for each in made:
        await each.sessions.close()
        await each.sign_in.close()


async def signed_in(replica: Replica, provider: ScriptedProvider) -> str:
    started = await replica.sign_in.start("/")
    finished = await replica.sign_in.finish(started.cookie.reveal(), provider.answer(started.url))
    return (await replica.sessions.begin(finished.caller, "192.0.2.1", finished.tokens)).id.reveal()


async def stored(store: GatedStore, session_id: str) -> StoredSession:
    found = await store.get(SESSIONS, storage_key(session_id))
    assert found is not None
    return StoredSession.model_validate_json(found.body)


async def audit(store: GatedStore) -> list[dict[str, Any]]:
    return [json.loads(entry.body) for entry in await store.read_journal(topics=(AUDIT,), limit=100)]


async def test_a_lost_group_ends_the_session_within_five_minutes(
    provider: ScriptedProvider, replicas: list[Replica], store: GatedStore
) -> None:
    session = await signed_in(replicas[0], provider)
    provider.claims["groups"] = ["students"]
    began = asyncio.get_running_loop().time()
    while await replicas[1].role(session) is not None:
        assert asyncio.get_running_loop().time() - began <= FIVE_MINUTES
        await asyncio.sleep(1)
    assert await replicas[0].role(session) is None
    (entry,) = await audit(store)
    assert (entry["action"], entry["subject"]) == ("session_ended", "ann")
    assert entry["reason"] == "no role any more: the claim groups holds students"


async def test_a_person_who_comes_back_is_checked_first(provider: ScriptedProvider, replicas: list[Replica]) -> None:
    session = await signed_in(replicas[0], provider)
    provider.claims["groups"] = ["students"]
    await asyncio.sleep(3000)
    assert await replicas[0].role(session) is None, "not even once with the old groups"


async def test_another_group_is_another_role(
    provider: ScriptedProvider, replicas: list[Replica], store: GatedStore
) -> None:
    session = await signed_in(replicas[0], provider)
    provider.claims["groups"] = ["admins"]
    assert await replicas[0].role(session) is Role.OPERATOR
    await asyncio.sleep(DUE)
    with capture_logs() as logged:
        assert await replicas[0].role(session) is Role.ADMIN
    (entry,) = await audit(store)
    assert (entry["action"], entry["subject"]) == ("role_changed", "ann")
    assert entry["reason"] == "operator → admin for the whole fleet"
    assert [each["change"] for each in logged if each["event"] == "role changed"] == ["operator → admin"]
    await asyncio.sleep(DUE)
    assert await replicas[1].role(session) is Role.ADMIN
    assert len(await audit(store)) == 1, "the same role again is no change"


async def test_all_control_planes_at_once_use_the_refresh_token_once(
    provider: ScriptedProvider, replicas: list[Replica]
) -> None:
    session = await signed_in(replicas[0], provider)
    for number in range(1, 6):
        await asyncio.sleep(DUE)
        provider.seconds = 2.0  # long enough for all of them to come
        found = await asyncio.gather(*(each.role(session) for each in replicas for _ in range(5)))
        assert found == [Role.OPERATOR] * 15
        assert provider.count("/token") == 1 + number, "one code, then one refresh for each round"
        provider.seconds = 0.0


async def test_streams_alone_keep_it_current_and_end_with_it(
    provider: ScriptedProvider, replicas: list[Replica]
) -> None:
    session = await signed_in(replicas[0], provider)
    for _ in range(60):
        await asyncio.sleep(10)
        assert await replicas[1].sessions.still_valid(session)
    assert provider.count("/token") == 3
    provider.claims["groups"] = []
    provider.seconds = 3.0  # a stream does not wait for it, so that others are not delayed
    began = loop_time = asyncio.get_running_loop().time()
    while await replicas[1].sessions.still_valid(session):
        assert asyncio.get_running_loop().time() == loop_time
        await asyncio.sleep(10)
        loop_time = asyncio.get_running_loop().time()
    assert loop_time - began <= FIVE_MINUTES


async def test_a_silent_provider_ends_no_session_for_an_hour(
    provider: ScriptedProvider, replicas: list[Replica]
) -> None:
    session = await signed_in(replicas[0], provider)
    began = asyncio.get_running_loop().time()
    provider.seconds = 3600.0
    waits = []
    while (now := asyncio.get_running_loop().time()) - began < SILENCE_LIMIT.total_seconds():
        assert await replicas[0].role(session) is Role.OPERATOR
        waits.append(asyncio.get_running_loop().time() - now)
        await asyncio.sleep(20)
    assert max(waits) == 0, "the silence was noticed in the background"
    assert await replicas[0].role(session) is None
    assert provider.count("/token") <= 1 + SILENCE_LIMIT / SILENCE_PAUSE


async def test_who_comes_back_during_a_silence_waits_once(provider: ScriptedProvider, replicas: list[Replica]) -> None:
    session = await signed_in(replicas[0], provider)
    await asyncio.sleep(DUE)
    provider.seconds = 3600.0
    began = asyncio.get_running_loop().time()
    assert await replicas[0].role(session) is Role.OPERATOR
    assert asyncio.get_running_loop().time() - began == pytest.approx(fetch.TOKEN_TIMEOUT)
    for replica in replicas:
        assert await replica.role(session) is Role.OPERATOR
    assert asyncio.get_running_loop().time() - began == pytest.approx(fetch.TOKEN_TIMEOUT)


async def test_silence_that_ends_was_none(provider: ScriptedProvider, replicas: list[Replica]) -> None:
    session = await signed_in(replicas[0], provider)
    provider.down = True
    for _ in range(60):
        await asyncio.sleep(30)
        assert await replicas[0].role(session) is Role.OPERATOR
    provider.down = False
    for _ in range(120):
        await asyncio.sleep(30)
        assert await replicas[0].role(session) is Role.OPERATOR


async def test_after_one_missed_answer_a_person_who_comes_back_is_checked_first(
    provider: ScriptedProvider, replicas: list[Replica]
) -> None:
    session = await signed_in(replicas[0], provider)
    await asyncio.sleep(DUE)
    provider.down = True
    assert await replicas[0].role(session) is Role.OPERATOR
    provider.down = False
    provider.claims["groups"] = ["students"]
    await asyncio.sleep(1800)
    assert await replicas[1].role(session) is None, "not even once with the old groups"


async def test_after_one_missed_answer_a_command_line_may_rest_for_hours(
    provider: ScriptedProvider, replicas: list[Replica]
) -> None:
    started = await replicas[0].sign_in.start("/")
    finished = await replicas[0].sign_in.finish(started.cookie.reveal(), provider.answer(started.url))
    opened = await replicas[0].sessions.begin(
        finished.caller, "192.0.2.1", finished.tokens, kind=SessionKind.COMMAND_LINE
    )

    async def use() -> Role | None:
        return (await replicas[0].sessions.resume(opened.id.reveal(), SessionKind.COMMAND_LINE)).caller.role

    assert await use() is Role.OPERATOR
    await asyncio.sleep(DUE)
    provider.down = True
    assert await use() is Role.OPERATOR
    provider.down = False
    await asyncio.sleep(3600 * 2)
    assert await use() is Role.OPERATOR, "no command fails before it is noticed that the provider answers"
    provider.down = True
    await asyncio.sleep(SILENCE_LIMIT.total_seconds())
    with pytest.raises(UnauthenticatedError):
        await use()  # silent for an hour, and it still is
    await asyncio.sleep(SILENCE_PAUSE.total_seconds() + 1)
    provider.down = False
    assert await use() is Role.OPERATOR, "as soon as it answers again"


async def test_a_refused_refresh_token_ends_the_session(
    provider: ScriptedProvider, replicas: list[Replica], store: GatedStore
) -> None:
    session = await signed_in(replicas[0], provider)
    provider.token_error = {"error": "invalid_grant"}
    await asyncio.sleep(DUE)
    assert await replicas[0].role(session) is None
    assert (await audit(store))[0]["reason"] == "the identity provider has ended it"


async def test_a_problem_of_lcm_itself_ends_no_session(provider: ScriptedProvider, replicas: list[Replica]) -> None:
    session = await signed_in(replicas[0], provider)
    provider.token_error = {"error": "invalid_client"}
    await asyncio.sleep(DUE)
    assert await replicas[0].role(session) is Role.OPERATOR
    provider.token_error = None
    await asyncio.sleep(SILENCE_PAUSE.total_seconds())
    await replicas[0].role(session)
    await asyncio.sleep(1)
    assert provider.count("/token") == 3


async def test_new_tokens_are_kept_though_their_person_cannot_be_read(
    provider: ScriptedProvider, replicas: list[Replica]
) -> None:
    session = await signed_in(replicas[0], provider)
    provider.id_token_changes = {"iat": 99_999_999_999}  # a clock that jumped
    await asyncio.sleep(DUE)
    assert await replicas[0].role(session) is Role.OPERATOR
    provider.id_token_changes = {}
    await asyncio.sleep(DUE)
    assert await replicas[0].role(session) is Role.OPERATOR
    await asyncio.sleep(1)
    assert await replicas[0].role(session) is Role.OPERATOR, "the refresh token of the failed renewal was used"


async def test_a_control_plane_that_dies_while_it_asks_delays_the_others_only(
    provider: ScriptedProvider, replicas: list[Replica], store: GatedStore
) -> None:
    session = await signed_in(replicas[0], provider)
    await asyncio.sleep(DUE)
    record, key = await stored(store, session), storage_key(session)
    assert record.grant is not None
    claimed = record.grant.model_copy(update={"renewing_until": clock.now() + CLAIM_LIFETIME})
    found = await store.get(SESSIONS, key)
    assert found is not None
    await store.commit([put_session(key, record.model_copy(update={"grant": claimed}), found.revision)])
    assert await replicas[1].role(session) is Role.OPERATOR
    await asyncio.sleep(CLAIM_LIFETIME.total_seconds())
    assert await replicas[1].role(session) is Role.OPERATOR
    after = (await stored(store, session)).grant
    assert after is not None
    assert after.checked_at > record.grant.checked_at


async def test_a_sign_out_during_a_renewal_gives_the_new_token_back(
    provider: ScriptedProvider, replicas: list[Replica], store: GatedStore
) -> None:
    session = await signed_in(replicas[0], provider)
    await asyncio.sleep(DUE)
    provider.seconds = 5.0
    request = asyncio.create_task(replicas[0].role(session))
    await asyncio.sleep(1)
    assert await replicas[1].sessions.end(session) is not None
    assert await request is None
    await replicas[0].sign_in.close()
    assert len(provider.revoked) == 1
    assert await store.get(SESSIONS, storage_key(session)) is None


async def test_without_a_refresh_token_userinfo_is_asked_while_the_access_token_lives(
    provider: ScriptedProvider, replicas: list[Replica]
) -> None:
    provider.with_refresh_token = False
    session = await signed_in(replicas[0], provider)
    await asyncio.sleep(DUE)
    assert await replicas[0].role(session) is Role.OPERATOR
    assert provider.count("/me") == 1
    await asyncio.sleep(DUE + 60)
    assert await replicas[0].role(session) is None, "it lived for ten minutes"


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_of_userinfo_after_a_good_refresh_is_silence(
    provider: ScriptedProvider, replicas: list[Replica], status: int
) -> None:
    """The provider has just confirmed the session; a proxy may refuse the rest."""
    provider.id_token_changes = {"groups": None}
    session = await signed_in(replicas[0], provider)
    provider.userinfo_status = status
    await asyncio.sleep(DUE)
    assert await replicas[0].role(session) is Role.OPERATOR
    provider.userinfo_status = 200
    await asyncio.sleep(DUE)
    assert await replicas[0].role(session) is Role.OPERATOR
    provider.userinfo_claims = provider.claims | {"groups": ["students"]}
    await asyncio.sleep(DUE)
    assert await replicas[0].role(session) is None


@pytest.mark.parametrize("kind", list(SessionKind))
async def test_userinfo_without_the_claim_says_nothing_about_groups(
    provider: ScriptedProvider, replicas: list[Replica], store: GatedStore, kind: SessionKind
) -> None:
    """Entra ID sends roles in ID tokens only: who has no refresh token is asked in their browser."""
    provider.with_refresh_token = False
    provider.userinfo_claims = {"sub": "u-1", "name": "ann"}
    started = await replicas[0].sign_in.start("/")
    finished = await replicas[0].sign_in.finish(started.cookie.reveal(), provider.answer(started.url))
    opened = await replicas[0].sessions.begin(finished.caller, "192.0.2.1", finished.tokens, kind=kind)
    session = opened.id.reveal()
    await asyncio.sleep(DUE)
    with pytest.raises(UnauthenticatedError):
        await replicas[0].sessions.resume(session, kind)
    lapsed = await replicas[0].sessions.lapsed(session)
    assert (lapsed is not None) is (kind is SessionKind.BROWSER)
    reasons = [entry["reason"] for entry in await audit(store)]
    assert len(reasons) == (kind is not SessionKind.BROWSER)
    assert all("LCM cannot read the groups again" in reason for reason in reasons)


@pytest.mark.parametrize("kind", list(SessionKind))
async def test_a_refresh_that_says_nothing_about_groups_gives_its_new_token_back(
    provider: ScriptedProvider, replicas: list[Replica], store: GatedStore, kind: SessionKind
) -> None:
    """The session will not use the new refresh token, and the old one is used up."""
    provider.renews_id_token = False
    provider.userinfo_claims = {"sub": "u-1", "name": "ann"}
    started = await replicas[0].sign_in.start("/")
    finished = await replicas[0].sign_in.finish(started.cookie.reveal(), provider.answer(started.url))
    opened = await replicas[0].sessions.begin(finished.caller, "192.0.2.1", finished.tokens, kind=kind)
    await asyncio.sleep(DUE)
    with pytest.raises(UnauthenticatedError):
        await replicas[0].sessions.resume(opened.id.reveal(), kind)
    await replicas[0].sign_in.close()
    assert len(provider.revoked) == 1
    assert finished.tokens.refresh_token is not None
    assert provider.revoked != [finished.tokens.refresh_token.reveal()]
    reason = "LCM cannot read the groups again: neither a renewed ID token nor userinfo has the claim groups"
    expected = [] if kind is SessionKind.BROWSER else [reason]
    assert [entry["reason"] for entry in await audit(store)] == expected


async def test_a_renewal_is_no_use_of_the_session(provider: ScriptedProvider, replicas: list[Replica]) -> None:
    session = await signed_in(replicas[0], provider)
    for _ in range(359):
        await asyncio.sleep(10)
        assert await replicas[0].sessions.still_valid(session)
    await asyncio.sleep(10)
    assert not await replicas[0].sessions.still_valid(session), "an hour without use"


async def test_a_session_from_a_link_ends_with_the_one_that_made_it(
    provider: ScriptedProvider, replicas: list[Replica], store: GatedStore
) -> None:
    first = await signed_in(replicas[0], provider)
    links = SignInLinks(store)
    code = await links.issue((await replicas[0].sessions.resume(first)).caller)
    second = (await replicas[1].sessions.begin(await links.redeem(code.reveal()))).id.reveal()
    again = await links.issue((await replicas[1].sessions.resume(second)).caller)
    third = (await replicas[1].sessions.begin(await links.redeem(again.reveal()))).id.reveal()
    assert await replicas[2].role(third) is Role.OPERATOR
    provider.claims["groups"] = ["admins"]
    await asyncio.sleep(DUE)
    assert await replicas[2].role(third) is Role.ADMIN
    assert provider.count("/token") == 2, "the session that made it was asked about"
    provider.claims["groups"] = []
    await asyncio.sleep(DUE)
    assert [await replicas[0].role(each) for each in (third, second, first)] == [None] * 3
