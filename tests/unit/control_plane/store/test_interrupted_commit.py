"""A commit on MongoDB whose session another control plane ended is repeated: as a whole, or only its last step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from pymongo.errors import OperationFailure

from lcm.control_plane.store.adapter_rules import Commit
from lcm.control_plane.store.mongo.batch import CommitBatch
from lcm.control_plane.store.mongo.committer import Committer

if TYPE_CHECKING:
    from lcm.control_plane.store.mongo.abandoned import AbandonedTransactions
    from lcm.control_plane.store.mongo.database import Database

INTERRUPTED = 11601


class FakeSession:
    """A database, its client and a session in one, that notes what is done."""

    def __init__(self, fails_at: str) -> None:
        self.fails_at = fails_at
        self.steps: list[str] = []
        self.client = self
        self.name = "lcm"

    def start_session(self, **_: object) -> FakeSession:
        return self

    async def __aenter__(self) -> FakeSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def start_transaction(self, *_: object) -> None:
        self.steps.append("start")

    async def abort_transaction(self) -> None:
        self.steps.append("abort")

    async def commit_transaction(self) -> None:
        self.step("commit")

    def step(self, name: str) -> None:
        self.steps.append(name)
        if self.fails_at == name:
            self.fails_at = ""
            raise OperationFailure("operation was interrupted", INTERRUPTED)


@pytest.mark.parametrize(
    ("fails_at", "steps"),
    [
        ("write", ["start", "write", "abort", "start", "write", "commit"]),
        ("commit", ["start", "write", "commit", "commit"]),  # MongoDB knows whether the first one happened
    ],
)
async def test_an_interrupted_commit_is_repeated(
    fails_at: str, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(_: CommitBatch, __: Database, session: FakeSession) -> list[list[str]]:
        session.step("write")
        return [["cursor"]]

    monkeypatch.setattr(CommitBatch, "run", run)
    session = FakeSession(fails_at)
    nothing: Any = None
    committer = Committer(cast("Database", session), 20.0, lambda _: None, cast("AbandonedTransactions", nothing))
    assert await committer.commit(Commit((), (), ())) == ["cursor"]
    assert session.steps == steps
    await committer.close()
