"""Tokens of the settings are accepted without being stored or kept in plaintext."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import structlog

from lcm.control_plane.auth.roles import UnauthenticatedError
from lcm.control_plane.auth.tokens import TOKENS, TokenService, load_static_tokens
from lcm.model.access import CallerKind, Role

if TYPE_CHECKING:
    from lcm.control_plane.store.memory.store import MemoryStore

BOOTSTRAP = "bootstrap-token-for-tests-0123456789"
CONTROLLER = "controller-token-for-tests-0123456789"


async def test_each_gives_its_role(store: MemoryStore) -> None:
    tokens = TokenService(store, load_static_tokens(BOOTSTRAP, CONTROLLER))
    admin = await tokens.verify(BOOTSTRAP)
    assert (admin.name, admin.kind, admin.role) == ("bootstrap", CallerKind.BOOTSTRAP, Role.ADMIN)
    controller = await tokens.verify(CONTROLLER)
    assert (controller.name, controller.kind, controller.role) == ("controller", CallerKind.TOKEN, Role.CONTROLLER)
    for text in ("", BOOTSTRAP[:-1], BOOTSTRAP + " ", "é" * 20, "\ud800"):
        with pytest.raises(UnauthenticatedError):
            await tokens.verify(text)
    assert not (await store.find(TOKENS)).items


def test_no_token_is_kept_in_plaintext() -> None:
    made = load_static_tokens(BOOTSTRAP, CONTROLLER)
    assert BOOTSTRAP not in repr(made)
    held = b"".join(token.digest for token in made) + repr([token.caller for token in made]).encode()
    assert BOOTSTRAP.encode() not in held


async def test_changing_a_token_ends_its_sessions(store: MemoryStore) -> None:
    before = await TokenService(store, load_static_tokens(BOOTSTRAP, None)).verify(BOOTSTRAP)
    assert before.token_id is not None
    same = TokenService(store, load_static_tokens(BOOTSTRAP, CONTROLLER))
    assert await same.still_valid(before.token_id)
    for other in (load_static_tokens(BOOTSTRAP + "2", None), load_static_tokens(None, CONTROLLER)):
        assert not await TokenService(store, other).still_valid(before.token_id)


def test_invalid_tokens_are_rejected_and_short_ones_logged() -> None:
    assert load_static_tokens(None, None) == ()
    with pytest.raises(ValueError, match="LCM_BOOTSTRAP_TOKEN must not be empty"):
        load_static_tokens("  ", None)
    with pytest.raises(ValueError, match="must differ"):
        load_static_tokens(BOOTSTRAP, BOOTSTRAP)
    with structlog.testing.capture_logs() as lines:
        load_static_tokens("hunter2", CONTROLLER)
    assert [line["variable"] for line in lines] == ["LCM_BOOTSTRAP_TOKEN"]
    assert "hunter2" not in repr(lines)


def test_what_is_shown_of_a_token_of_the_settings_is_no_hash_that_guesses_can_be_tried_against() -> None:
    for static, setting in zip(load_static_tokens("short-1", "short-2"), ("BOOTSTRAP", "CONTROLLER"), strict=True):
        caller = static.caller
        assert caller.actor.identity == caller.identity == f"setting:LCM_{setting}_TOKEN"
        assert caller.token_id is not None
        assert caller.token_id.partition("-")[2] not in caller.actor.model_dump_json()
