"""What somebody means by a name, an id, or the beginning of either."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from lcm.cli.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lcm.client import Client
    from lcm.model.access import TokenInfo
    from lcm.model.lablet.record import Lablet, LabletDefinitionSummary
    from lcm.model.worker.record import Worker
    from lcm.model.worker.template import WorkerTemplate

_MAX_NAMES_SHOWN = 8
_PAGE_SIZE = 500


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that could be meant. `over`: it has ended, and counts only where nothing else fits."""

    id: str
    name: str
    over: bool = False
    other: str | None = None  # another exact name, such as of its instance


def pick_candidate(text: str, candidates: Sequence[Candidate], kind: str, listing: str) -> str:
    """The id of the one that is meant; else an error that helps. `listing` is the command that shows them all."""
    for group in (
        [each for each in candidates if each.id == text],
        [each for each in candidates if each.name == text and not each.over],
        [each for each in candidates if each.other == text and not each.over],
    ):
        if group:
            return group[0].id
    for pool in ([each for each in candidates if not each.over], [each for each in candidates if each.over]):
        exact = [each for each in pool if text == each.name]
        found = exact or [each for each in pool if each.name.startswith(text) or each.id.startswith(text)]
        if exact or len(found) == 1:
            return found[0].id  # of several that have ended under one name, the newest
        if found:
            raise CommandError(_ambiguous_message(text, found, kind))
    raise CommandError(_not_found_message(text, candidates, kind, listing))


def _ambiguous_message(text: str, found: Sequence[Candidate], kind: str) -> str:
    names = [f"{each.name} ({each.id})" for each in sorted(found, key=lambda each: each.name)]
    more = f" and {len(names) - _MAX_NAMES_SHOWN} more" if len(names) > _MAX_NAMES_SHOWN else ""
    return f"{text!r} fits {len(names)} {kind}s: {', '.join(names[:_MAX_NAMES_SHOWN])}{more}. Type more of it"


def _not_found_message(text: str, candidates: Sequence[Candidate], kind: str, listing: str) -> str:
    names = sorted({each.name for each in candidates if not each.over})
    close = get_close_matches(text, names, n=3, cutoff=0.5)
    if close:
        return f"there is no {kind} {text!r}; did you mean {' or '.join(close)}?"
    return f"there is no {kind} {text!r}; {listing} shows them all"


async def find_worker(client: Client, text: str) -> Worker:
    """The worker that is meant."""
    from lcm.client.errors import NotFoundError

    if not text.strip():
        raise CommandError("a worker's name cannot be empty")
    narrowed = [worker async for worker in client.workers.list(q=text, page_size=_PAGE_SIZE)]
    living = [worker for worker in narrowed if worker.status != "TERMINATED" and worker.name == text]
    if living:
        return living[0]
    if text.startswith("w-"):
        try:
            return await client.workers.get(text)
        except NotFoundError:
            pass
    everybody = [worker async for worker in client.workers.list(page_size=_PAGE_SIZE)]
    found = pick_candidate(text, worker_candidates(everybody), "worker", "lcm workers list --all")
    return next(worker for worker in everybody if worker.id == found)


def worker_candidates(workers: Iterable[Worker]) -> list[Candidate]:
    """Workers as candidates. Names are unique among those that have not ended."""
    newest = sorted(workers, key=lambda worker: worker.created_at, reverse=True)
    return [Candidate(worker.id, worker.name, worker.status == "TERMINATED", worker.instance_id) for worker in newest]


async def find_lablet(client: Client, text: str) -> Lablet:
    """The lablet that is meant."""
    from lcm.client.errors import NotFoundError
    from lcm.model.lablet.status import FINAL_LABLET_STATUSES

    if not text.strip():
        raise CommandError("a lablet's name cannot be empty")
    narrowed = [lablet async for lablet in client.lablets.list(q=text, page_size=_PAGE_SIZE)]
    living = [lablet for lablet in narrowed if lablet.status not in FINAL_LABLET_STATUSES and lablet.name == text]
    if living:
        return living[0]
    if text.startswith("l-"):
        try:
            return await client.lablets.get(text)
        except NotFoundError:
            pass
    everybody = [lablet async for lablet in client.lablets.list(sort="-created_at", page_size=_PAGE_SIZE)]
    candidates = [Candidate(lablet.id, lablet.name, lablet.status in FINAL_LABLET_STATUSES) for lablet in everybody]
    found = pick_candidate(text, candidates, "lablet", "lcm lablets list --all")
    return next(lablet for lablet in everybody if lablet.id == found)


async def find_definition(client: Client, text: str) -> LabletDefinitionSummary:
    """The version of a definition that is meant; of a name alone the newest."""
    known = {each.id: each async for each in client.definitions.list()}
    listing = "lcm definitions list"
    if "@" in text:
        ids = [Candidate(each, each) for each in known]
        return known[pick_candidate(text, ids, "definition", listing)]
    names = [Candidate(each, each) for each in sorted({each.name for each in known.values()})]
    name = pick_candidate(text, names, "definition", listing)
    return max((each for each in known.values() if each.name == name), key=lambda each: each.created_at)


async def find_template(client: Client, text: str) -> WorkerTemplate:
    """The template that is meant."""
    templates = {template.name: template async for template in client.templates.list()}
    names = [Candidate(name, name) for name in templates]
    return templates[pick_candidate(text, names, "template", "lcm templates list")]


async def find_token(client: Client, text: str) -> TokenInfo:
    """The token that is meant, by name or id."""
    tokens = {token.id: token async for token in client.access.tokens()}
    candidates = [Candidate(token.id, token.name, token.revoked_at is not None) for token in tokens.values()]
    return tokens[pick_candidate(text, candidates, "token", "lcm tokens list")]
