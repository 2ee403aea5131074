"""Finds a resource by name, id, or a unique prefix of either."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from lcm.cli.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lcm.client import Client
    from lcm.model.access import SessionInfo, TokenInfo
    from lcm.model.booking.record import Booking
    from lcm.model.calendar.schedule import Schedule
    from lcm.model.lablet.record import Lablet, LabletDefinitionSummary
    from lcm.model.notification.subscription import Subscription
    from lcm.model.worker.record import Worker
    from lcm.model.worker.template import WorkerTemplate

_MAX_NAMES_SHOWN = 8
_PAGE_SIZE = 500


@dataclass(frozen=True, slots=True)
class Candidate:
    """A resource that may match. One that has `ended` matches only if no other does."""

    id: str
    name: str
    ended: bool = False
    alias: str | None = None  # another exact name, such as the instance id


def pick_candidate(text: str, candidates: Sequence[Candidate], kind: str, list_command: str) -> str:
    """The id of the match. The error names similar resources, or `list_command`, which lists all."""
    for group in (
        [each for each in candidates if each.id == text],
        [each for each in candidates if each.name == text and not each.ended],
        [each for each in candidates if each.alias == text and not each.ended],
        [each for each in candidates if each.name == text],  # seat 3 has failed: seat 30, which runs, is not meant
    ):
        if group:
            return group[0].id  # of several ended resources with one name, the newest
    for pool in ([each for each in candidates if not each.ended], [each for each in candidates if each.ended]):
        found = [each for each in pool if each.name.startswith(text) or each.id.startswith(text)]
        if len(found) == 1:
            return found[0].id
        if found:
            raise CommandError(_ambiguous_message(text, found, kind))
    raise CommandError(_not_found_message(text, candidates, kind, list_command))


def _ambiguous_message(text: str, found: Sequence[Candidate], kind: str) -> str:
    names = [f"{each.name} ({each.id})" for each in sorted(found, key=lambda each: each.name)]
    more = f" and {len(names) - _MAX_NAMES_SHOWN} more" if len(names) > _MAX_NAMES_SHOWN else ""
    return f"{text!r} matches {len(names)} {kind}s: {', '.join(names[:_MAX_NAMES_SHOWN])}{more}. Use a longer prefix"


def _not_found_message(text: str, candidates: Sequence[Candidate], kind: str, list_command: str) -> str:
    names = sorted({each.name for each in candidates if not each.ended})
    close = get_close_matches(text, names, n=3, cutoff=0.5)
    if close:
        return f"there is no {kind} {text!r}; did you mean {' or '.join(close)}?"
    return f"there is no {kind} {text!r}; {list_command} lists all"


def _several_teams(kind: str, name: str, ids: Iterable[str]) -> CommandError:
    """Names are unique within a team. What is meant is never guessed: the next request may end it."""
    return CommandError(f"several teams have a {kind} {name}; use an id: {', '.join(sorted(ids))}")


async def find_worker(client: Client, text: str) -> Worker:
    """The worker with this name, id, or unique prefix."""
    from lcm.client.errors import NotFoundError

    if not text.strip():
        raise CommandError("a worker's name cannot be empty")
    matches = [worker async for worker in client.workers.list(q=text, page_size=_PAGE_SIZE)]
    active = [worker for worker in matches if worker.status != "TERMINATED" and worker.name == text]
    if active:
        return active[0]
    if text.startswith("w-"):
        try:
            return await client.workers.get(text)
        except NotFoundError:
            pass
    workers = [worker async for worker in client.workers.list(page_size=_PAGE_SIZE)]
    match = pick_candidate(text, worker_candidates(workers), "worker", "lcm workers list --all")
    return next(worker for worker in workers if worker.id == match)


def worker_candidates(workers: Iterable[Worker]) -> list[Candidate]:
    """Workers as candidates, newest first. Names are unique among workers that are not terminated."""
    newest = sorted(workers, key=lambda worker: worker.created_at, reverse=True)
    return [Candidate(worker.id, worker.name, worker.status == "TERMINATED", worker.instance_id) for worker in newest]


async def find_lablet(client: Client, text: str) -> Lablet:
    """The lablet with this name, id, or unique prefix."""
    from lcm.client.errors import NotFoundError
    from lcm.model.lablet.status import FINAL_LABLET_STATUSES

    if not text.strip():
        raise CommandError("a lablet's name cannot be empty")
    matches = [lablet async for lablet in client.lablets.list(q=text, page_size=_PAGE_SIZE)]
    active = [lablet for lablet in matches if lablet.status not in FINAL_LABLET_STATUSES and lablet.name == text]
    if len(active) > 1:
        raise _several_teams("lablet", text, (lablet.id for lablet in active))
    if active:
        return active[0]
    if text.startswith("l-"):
        try:
            return await client.lablets.get(text)
        except NotFoundError:
            pass
    lablets = [lablet async for lablet in client.lablets.list(sort="-created_at", page_size=_PAGE_SIZE)]
    candidates = [Candidate(lablet.id, lablet.name, lablet.status in FINAL_LABLET_STATUSES) for lablet in lablets]
    match = pick_candidate(text, candidates, "lablet", "lcm lablets list --all")
    return next(lablet for lablet in lablets if lablet.id == match)


async def find_definition(client: Client, text: str) -> LabletDefinitionSummary:
    """The definition NAME@VERSION; for a name alone, its newest version. Where several teams have it, by its id."""
    found = [each async for each in client.definitions.list()]
    several = Counter(each.reference for each in found)
    definitions = {each.reference if several[each.reference] == 1 else each.id: each for each in found}
    list_command = "lcm definitions list"
    if "@" in text:
        ids = [Candidate(each, each) for each in definitions]
        return definitions[pick_candidate(text, ids, "definition", list_command)]
    names = [Candidate(each, each) for each in sorted({each.name for each in found})]
    name = pick_candidate(text, names, "definition", list_command)
    named = [each for each in found if each.name == name]
    if len({each.team for each in named}) > 1:
        raise _several_teams("definition", name, (each.id for each in named))
    return max(named, key=lambda each: each.created_at)


async def find_template(client: Client, text: str) -> WorkerTemplate:
    """The template with this name or unique prefix."""
    templates = {template.name: template async for template in client.templates.list()}
    names = [Candidate(name, name) for name in templates]
    return templates[pick_candidate(text, names, "template", "lcm templates list")]


async def find_subscription(client: Client, text: str) -> Subscription:
    """The subscription with this name, id, or unique prefix."""
    found = {each.id: each async for each in client.subscriptions.list()}
    candidates = [Candidate(each.id, each.name) for each in found.values()]
    return found[pick_candidate(text, candidates, "subscription", "lcm subscriptions list")]


async def find_schedule(client: Client, text: str) -> Schedule:
    """The schedule with this name, id, or unique prefix."""
    found = {each.schedule.id: each.schedule for each in await client.schedules.list()}
    candidates = [Candidate(each.id, each.name) for each in found.values()]
    return found[pick_candidate(text, candidates, "schedule", "lcm schedules list")]


async def find_booking(client: Client, text: str) -> Booking:
    """The booking with this name, id, or unique prefix; of several with the same name, one that is not over."""
    from lcm.model.booking.record import OPEN_STATUSES

    found = {each.id: each async for each in client.bookings.list(page_size=_PAGE_SIZE)}
    named = [each.id for each in found.values() if each.name == text and each.status in OPEN_STATUSES]
    if len(named) > 1:
        raise _several_teams("booking", text, named)
    candidates = [Candidate(each.id, each.name, each.status not in OPEN_STATUSES) for each in found.values()]
    return found[pick_candidate(text, candidates, "booking", "lcm bookings list --all")]


async def find_token(client: Client, text: str) -> TokenInfo:
    """The token with this name, id, or unique prefix."""
    tokens = {token.id: token async for token in client.access.tokens()}
    candidates = [Candidate(token.id, token.name, token.revoked_at is not None) for token in tokens.values()]
    return tokens[pick_candidate(text, candidates, "token", "lcm tokens list")]


async def find_session(client: Client, text: str) -> SessionInfo:
    """The session with this id or unique prefix, or the only one of a person. It never chooses between two."""
    sessions = [each async for each in client.access.sessions()]
    found = [each for each in sessions if each.name == text or each.id.startswith(text)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise CommandError(f"no session {text!r}; all sessions: lcm sessions list")
    ids = ", ".join(f"{each.name} ({each.id[:12]})" for each in found[:_MAX_NAMES_SHOWN])
    raise CommandError(f"{text!r} matches {len(found)} sessions: {ids}. Use the id, or a longer prefix of it")
