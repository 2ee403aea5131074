"""Idempotent requests: the response for a key is stored in the commit of the change, and returned for a repeat."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import IDEMPOTENT_RESPONSES
from lcm.control_plane.store.port import Delete, Put, RevisionConflictError, Where
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from pydantic import BaseModel

    from lcm.control_plane.records.unit_of_work import Transaction, UnitOfWork
    from lcm.control_plane.store.port import Store
    from lcm.model.audit import Actor

RESPONSE_TTL = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """An Idempotency-Key of one caller, with the request it came with."""

    caller: str
    key: str
    request: bytes  # method, path and body: the same key with a different request is an error

    @property
    def id(self) -> str:
        """The id under which its response is stored."""
        return hashlib.sha256(f"{self.caller}\0{self.key}".encode()).hexdigest()

    def for_part(self, name: str) -> IdempotencyKey:
        """The key of one part of a request that changes several records, each in a commit of its own."""
        return replace(self, key=f"{self.key}\0{name}")

    @property
    def fingerprint(self) -> str:
        """A hash of the request. The request itself is not stored: it may contain a secret."""
        return hashlib.sha256(self.request).hexdigest()


async def find_response(store: Store, key: IdempotencyKey | None) -> bytes | None:
    """The stored response for this key; rejected if it was stored for a different request."""
    stored = None if key is None else await store.get(IDEMPOTENT_RESPONSES, key.id)
    if key is None or stored is None:
        return None
    saved = json.loads(stored.body)
    if saved["request"] != key.fingerprint:
        detail = "this Idempotency-Key was used with a different request; use a new one"
        raise ProblemError(ProblemCode.IDEMPOTENCY_MISMATCH, detail)
    return str(saved["answer"]).encode()


async def delete_expired_responses(store: Store, now: datetime) -> int:
    """Delete expired responses in small batches; returns the number."""
    expired, deleted = Where(below={"at": (now - RESPONSE_TTL).isoformat()}), 0
    while items := (await store.find(IDEMPOTENT_RESPONSES, expired, limit=500)).items:
        try:
            await store.commit([Delete(IDEMPOTENT_RESPONSES, item.id, item.revision) for item in items])
        except RevisionConflictError:
            break  # another control plane is deleting them too
        deleted += len(items)
    return deleted


async def run_idempotent(
    unit_of_work: UnitOfWork,
    actor: Actor,
    key: IdempotencyKey | None,
    attempt: Callable[[Transaction], Awaitable[BaseModel]],
) -> bytes:
    """Run an attempt that returns a record, or return the stored response for this key."""

    async def once(tx: Transaction) -> bytes:
        stored = await find_response(tx.store, key)
        if stored is not None:
            return stored
        response = (await attempt(tx)).model_dump_json().encode()
        store_response(tx, key, response)
        return response

    return await unit_of_work.run(actor, once)


async def replace_response(tx: Transaction, key: IdempotencyKey | None, response: bytes) -> None:
    """Stage the response in the place of one that was stored for this key, whose change this commit undoes."""
    stored = None if key is None else await tx.store.get(IDEMPOTENT_RESPONSES, key.id)
    store_response(tx, key, response, None if stored is None else stored.revision)


def store_response(tx: Transaction, key: IdempotencyKey | None, response: bytes, expected: int | None = None) -> None:
    """Stage the response with the change. If two requests with one key run at once, the second to commit runs again."""
    if key is not None:
        body = json.dumps({"request": key.fingerprint, "answer": response.decode()}).encode()
        tx.stage(Put(IDEMPOTENT_RESPONSES, key.id, body, expected, {"at": tx.now.isoformat()}))
