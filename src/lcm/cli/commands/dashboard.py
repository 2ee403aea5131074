"""`lcm dashboard`: a link that signs a browser in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import make_app
from lcm.cli.runtime.session import Session

if TYPE_CHECKING:
    from lcm.model.access import SignInLink

app = make_app("A link that signs your browser in to the dashboard.")


@command(app)
async def dashboard(session: Session) -> None:
    """Print a link that opens the dashboard and signs you in: once, within ten minutes, as whoever you are here."""
    link = await session.client.access.sign_in_link()
    address = session.reach.url.rstrip("/") + link.path.get_secret_value()
    session.screen.one(link, address, lambda each: _show(session, each, address))


def _show(session: Session, link: SignInLink, address: str) -> None:
    from lcm.cli.output.durations import exact

    session.screen.say(address)
    session.screen.say(f"Good once, until {exact(link.expires_at)}; whoever opens it is signed in as you.")
