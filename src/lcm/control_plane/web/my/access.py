"""Who uses the learners' page: a person who has signed in, somebody with a seat link, or both in one browser."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from lcm.control_plane.auth.roles import email_owner
from lcm.control_plane.auth.seats.sessions import SeatEndedError
from lcm.control_plane.auth.session_cookies import check_csrf, seat_session_id_from
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.http.deps import CSRF_HEADER
from lcm.control_plane.journal.sse_client import StreamAccess
from lcm.control_plane.records.kinds import LABLETS, team_owner
from lcm.control_plane.services import get_services
from lcm.control_plane.teams.visibility import may_change
from lcm.control_plane.web.auth import SignInRequiredError, WebUser, signed_in_user
from lcm.model.lablet.record import Lablet
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.auth.seats.sessions import SeatCaller, SeatSession
    from lcm.control_plane.services import Services
    from lcm.control_plane.store.port import FieldValue

_SAFE_METHODS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class LabUser:
    """Whoever uses the page. A seat reaches its lablet alone; a person sees the lablets that they own."""

    person: WebUser | None
    seat: SeatSession | None
    csrf: str

    def sees(self, lablet: Lablet) -> bool:
        """Whether it is one of their lablets."""
        return self.has_seat(lablet) or self.owns(lablet.team, lablet.owner)

    def owns(self, team: str, owner: str) -> bool:
        """Whether they are the owner, by what proves it, and may see objects of this team."""
        return self.person is not None and owner in self._owners and self.person.caller.scope.sees(team, owner)

    def owner_fields(self) -> dict[str, list[FieldValue]]:
        """Where their lablets are found: those of their teams, and with a role for the whole fleet those of any."""
        if self.person is None:
            return {}
        caller = self.person.caller
        teams = {"", *(grant.team for grant in caller.grants)}
        fields: dict[str, list[FieldValue]] = {
            "team_owner": [team_owner(team, owner) for team in sorted(teams) for owner in sorted(self._owners)]
        }
        return fields if caller.role is None else {**fields, "owner": [caller.name]}

    @property
    def _owners(self) -> set[str]:
        """What lablets of theirs have as owner."""
        if self.person is None:
            return set()
        caller = self.person.caller
        return {caller.identity, *(email_owner(grant.email) for grant in caller.grants)} - {""}

    def has_seat(self, lablet: Lablet) -> bool:
        """Whether their seat link is for this lablet."""
        return self.seat is not None and self.seat.caller.lablet_id == lablet.id

    def may_change(self, lablet: Lablet) -> bool:
        """Whether they may extend, reset and end it. The name of an owner proves nothing."""
        return self.has_seat(lablet) or self._person_may_change(lablet)

    def _person_may_change(self, lablet: Lablet) -> bool:
        return self.person is not None and self.sees(lablet) and may_change(self.person.caller, lablet)

    def caller_for(self, lablet: Lablet) -> Caller | SeatCaller:
        """Who the audit names."""
        if self.person is not None and self._person_may_change(lablet):
            return self.person.caller
        assert self.seat is not None
        return self.seat.caller


async def lab_user(request: Request) -> LabUser:
    """The user of the cookies of this browser. A change must carry the CSRF token of our page."""
    try:
        person = await _in_teams(request, await signed_in_user(request))
    except SignInRequiredError as required:
        return await _seat_user(request, required)
    try:
        seat = await _seat(request)
    except SeatEndedError:
        seat = None
    return LabUser(person, seat, person.csrf)


LabUserDep = Annotated[LabUser, Depends(lab_user)]


async def own_lablet(request: Request, user: LabUser, lablet_id: str, *, to_change: bool = False) -> Lablet:
    """A lablet of theirs. Another one does not exist for them."""
    lablet = await _read(get_services(request), lablet_id)
    if lablet is None or not user.sees(lablet):
        raise ProblemError(ProblemCode.NOT_FOUND, "you have no such lab")
    if to_change and not user.may_change(lablet):
        raise ProblemError(ProblemCode.FORBIDDEN, "this needs the role operator, or a seat link for this lab")
    return lablet


async def _read(services: Services, lablet_id: str) -> Lablet | None:
    stored = await services.context.store.get(LABLETS, lablet_id[:64]) if lablet_id.isprintable() else None
    return None if stored is None else Lablet.model_validate_json(stored.body)


async def stream_access(request: Request, user: LabUser) -> StreamAccess:
    """The access of a stream: it ends with the session that it began with, and with the seat."""
    services = get_services(request)
    person = None if user.person is None else await services.authenticator.access_of(request, user.person.caller)
    if user.seat is None:
        assert person is not None
        return person
    seat_id = user.seat.id.reveal()

    async def still_valid() -> bool:
        if person is not None and not await person.still_valid():
            return False
        return await services.seat_sessions.still_valid(seat_id)

    # Of all teams: the seat may be in one of others. The page passes on only that one of their own labs has changed.
    return StreamAccess(user.seat.caller.unique_name if person is None else person.caller, still_valid)


async def _in_teams(request: Request, user: WebUser) -> WebUser:
    """The user with the roles in teams that they have now."""
    teams = get_services(request).authenticator.teams
    return user if teams is None else replace(user, caller=await teams.with_grants(user.caller))


async def _seat_user(request: Request, required: SignInRequiredError) -> LabUser:
    seat = await _seat(request)
    if seat is None:
        raise required
    if request.method not in _SAFE_METHODS:
        check_csrf(seat, request.headers.get(CSRF_HEADER))
    return LabUser(None, seat, seat.csrf.reveal())


async def _seat(request: Request) -> SeatSession | None:
    session_id = seat_session_id_from(request.cookies, secure=request.url.scheme == "https")
    return None if session_id is None else await get_services(request).seat_sessions.resume(session_id)
