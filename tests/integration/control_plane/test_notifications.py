"""A real control plane, real webhooks and a real mail server: what arrives, also when processes are killed."""

from __future__ import annotations

import asyncio
import random
import ssl
from contextlib import aclosing, asynccontextmanager
from email import message_from_bytes, policy
from typing import TYPE_CHECKING, Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword
from pydantic import SecretStr

from lcm.control_plane.notifications.addresses import AllowedHosts
from lcm.control_plane.notifications.messages import Links, Notification
from lcm.control_plane.notifications.smtp import EmailTarget, SmtpConfig
from lcm.control_plane.notifications.targets import DeliveryError, HttpTarget
from lcm.control_plane.secrets.encryption import Secret
from lcm.http.network import NetworkTransport
from lcm.model.notification.subscription import TargetKind
from tests.support.network.scripted_server import ScriptedServer
from tests.support.real.notification_drill import NotificationDrill, webhook_server
from tests.support.servers.certificates import CertificateAuthority
from tests.support.servers.mongod import database_name
from tests.unit.control_plane.notifications.test_messages import an_alert

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.servers.etcd import EtcdServer

NOTIFICATION = Notification("ev-1", (an_alert(detail="first line\n.a line with a dot"),))


# After each kill with MongoDB, the lease of the sender has to expire first: ten seconds.
@pytest.mark.parametrize(("store", "kills", "alerts"), [("sqlite", 3, 100), ("mongodb", 1, 50)])
async def test_a_control_plane_that_is_killed_loses_no_notification(
    tmp_path: Path, etcd_server: EtcdServer, mongodb_uri: str, store: str, kills: int, alerts: int
) -> None:
    """operations.md#notifications: none lost, repetitions share an id, order per subject. The drill has 50 kills."""
    url = mongodb_uri.replace("/?", f"/{database_name()}?") if store == "mongodb" else ""
    async with webhook_server() as receiver:
        drill = NotificationDrill(tmp_path, etcd_server, f"notify-{tmp_path.name}", receiver, url)
        result = await drill.run(kills, alerts, random.Random(7))
    assert len(result.committed) == alerts
    result.check()


class MailBox:
    """What the mail server accepted."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.refuse: str | None = None

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:  # noqa: N802
        if address.startswith("nobody"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        if self.refuse is not None:
            return self.refuse
        self.messages.append((envelope, session.ssl is not None))
        return "250 accepted"


class Mail:
    """A mail server on loopback that requires STARTTLS and a password."""

    def __init__(self, folder: Path) -> None:
        ca = CertificateAuthority(folder, "authority")
        identity = ca.issue("mail")
        self.box = MailBox()
        self.server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server_tls.load_cert_chain(identity.cert_file, identity.key_file)
        self.client_tls = ssl.create_default_context(cafile=ca.ca_file)
        self.port = 0
        self.without: list[str] = []  # mechanisms of AUTH

    def protocol(self) -> SMTP:
        def check(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
            wanted = isinstance(data, LoginPassword) and data.password == b"pa ss"
            return AuthResult(success=wanted, handled=False)

        return SMTP(
            self.box,
            tls_context=self.server_tls,
            require_starttls=True,
            authenticator=check,
            auth_required=True,
            auth_exclude_mechanism=self.without,
            loop=asyncio.get_running_loop(),
        )

    def target(self, *recipients: str, password: str = "pa ss", **changes: Any) -> EmailTarget:
        facts: dict[str, Any] = {
            "host": "localhost",
            "port": self.port,
            "sender": "lcm@example.com",
            "username": "lcm",
            "password": SecretStr(password),
            "tls": self.client_tls,
        }
        config = SmtpConfig(**{**facts, **changes})
        return EmailTarget(recipients or ("ops@example.com",), config, Links("https://lcm.test"))


@asynccontextmanager
async def mail_server(folder: Path) -> AsyncIterator[Mail]:
    mail = Mail(folder)
    server = await asyncio.get_running_loop().create_server(mail.protocol, "localhost", 0)
    mail.port = server.sockets[0].getsockname()[1]
    try:
        yield mail
    finally:
        server.close()


async def test_an_e_mail_is_sent_over_starttls(tmp_path: Path) -> None:
    async with mail_server(tmp_path) as mail:
        answer = await mail.target("ops@example.com", "nobody@example.com").send(NOTIFICATION)
        assert answer == "250 accepted; refused: RCPT TO: 550 no such user"
        [(envelope, secured)] = mail.box.messages
    assert secured
    assert envelope.rcpt_tos == ["ops@example.com"]
    message = message_from_bytes(envelope.content, policy=policy.default)
    assert message["Message-ID"] == "<ev-1@example.com>"
    text = message.get_content().replace("\r\n", "\n")
    assert "first line\n.a line with a dot\n" in text
    assert "https://lcm.test/workers/w-1" in text


async def test_a_mail_server_that_knows_login_alone_gets_user_and_password(tmp_path: Path) -> None:
    """As Exchange does."""
    async with mail_server(tmp_path) as mail:
        mail.without = ["PLAIN"]
        assert await mail.target().send(NOTIFICATION) == "250 accepted"
        with pytest.raises(DeliveryError, match="AUTH: 535"):
            await mail.target(password="wrong").send(NOTIFICATION)


async def test_a_refused_e_mail_says_why_and_whether_it_is_final(tmp_path: Path) -> None:
    async with mail_server(tmp_path) as mail:
        cases = [
            (mail.target("nobody@example.com"), None, "550 no such user", True),
            (mail.target(), "451 later", "451 later", False),
            (mail.target(), "554 spam", "554 spam", True),
            (mail.target(password="wrong"), None, "AUTH: 535", False),
        ]
        for target, refuse, expected, is_final in cases:
            mail.box.refuse = refuse
            with pytest.raises(DeliveryError, match=expected) as caught:
                await target.send(NOTIFICATION)
            assert caught.value.rejected is is_final
        assert mail.box.messages == []


async def test_a_mail_server_that_is_not_trusted_gets_no_password(tmp_path: Path) -> None:
    async with mail_server(tmp_path) as mail:
        with pytest.raises(DeliveryError, match="certificate"):
            await mail.target(tls=ssl.create_default_context()).send(NOTIFICATION)
        assert mail.box.messages == []


async def test_a_mail_server_without_starttls_or_away_is_an_error_to_retry() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n")
        await reader.readline()
        writer.write(b"250-me\r\n250 8BITMIME\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(greet, "localhost", 0)
    port = server.sockets[0].getsockname()[1]
    target = EmailTarget(["a@example.com"], SmtpConfig("localhost", port, "lcm@example.com"), Links())
    with pytest.raises(DeliveryError, match="does not offer STARTTLS") as caught:
        await target.send(NOTIFICATION)
    assert not caught.value.rejected
    server.close()
    await server.wait_closed()
    with pytest.raises(DeliveryError, match=f"localhost:{port}"):
        await target.send(NOTIFICATION)


async def test_a_redirect_is_not_followed_and_of_a_long_answer_only_the_beginning_is_read() -> None:
    huge = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n" + b"x" * 3_000_000
    async with (
        aclosing(NetworkTransport(idle_seconds=30.0, max_idle=2, resolve=AllowedHosts(["127.0.0.1"]).resolve)) as http,
        ScriptedServer() as elsewhere,
        ScriptedServer(
            [f"HTTP/1.1 302 Found\r\nLocation: {elsewhere.url}\r\nContent-Length: 0\r\n\r\n".encode(), huge]
        ) as server,
    ):
        target = HttpTarget(TargetKind.SLACK, Secret(f"{server.url}/hook"), [], http, Links())
        with pytest.raises(DeliveryError, match=r"^302$") as caught:
            await target.send(NOTIFICATION)
        assert not caught.value.rejected
        assert elsewhere.connections == 0
        assert await target.send(NOTIFICATION) == f"200 {'x' * 199}…"
        await server.wait_until_open(0)
