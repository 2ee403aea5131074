"""E-mail over SMTP, with STARTTLS or TLS from the beginning. A small client on asyncio: no call blocks the loop."""

from __future__ import annotations

import asyncio
import base64
import ssl
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import format_datetime
from typing import TYPE_CHECKING, Final, Literal

from lcm.control_plane.notifications.addresses import NameLookups
from lcm.control_plane.notifications.messages import message_lines
from lcm.control_plane.notifications.targets import DeliveryError
from lcm.core.text import single_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pydantic import SecretStr

    from lcm.control_plane.notifications.addresses import Resolver
    from lcm.control_plane.notifications.messages import Links, Notification

SMTP_SECONDS: Final = 30.0
_MAX_LINE: Final = 2000
_MAX_SUBJECT: Final = 200
_MAX_REPLY_LINES: Final = 100
_CLOSE_SECONDS: Final = 2.0
_CONNECT_SECONDS: Final = 10.0
_HELLO_NAME: Final = "lcm"


@dataclass(frozen=True, slots=True)
class SmtpConfig:
    """The mail server. `tls` verifies it; None: the CAs of the system. `resolve` finds its addresses."""

    host: str
    port: int
    sender: str
    security: Literal["starttls", "tls", "none"] = "starttls"
    username: str | None = None
    password: SecretStr | None = None
    tls: ssl.SSLContext | None = None
    resolve: Resolver = NameLookups().resolve


class SmtpReplyError(DeliveryError):
    """The mail server refused a command."""

    def __init__(self, command: str, code: int, text: str) -> None:
        super().__init__(f"{command}: {code} {text}"[:300], rejected=500 <= code < 600 and command in _MESSAGE_COMMANDS)


_MESSAGE_COMMANDS: Final = ("RCPT TO", "DATA", "message")


class EmailTarget:
    """Sends notifications to recipients as one message."""

    def __init__(self, recipients: Sequence[str], config: SmtpConfig | None, links: Links) -> None:
        self._recipients = recipients
        self._config = config
        self._links = links

    async def send(self, notification: Notification, before_send: Callable[[], None] | None = None) -> str:
        config = self._config
        if config is None:
            raise DeliveryError("no mail server is configured: set SMTP_HOST and SMTP_FROM")
        message = make_email(notification, self._links, config.sender, self._recipients)
        try:
            async with asyncio.timeout(SMTP_SECONDS):
                connection = await _open(config)
                try:
                    return await self._transfer(connection, config, message, before_send)
                finally:
                    await connection.close()
        except TimeoutError:
            raise DeliveryError(f"the mail server did not finish within {SMTP_SECONDS:g} s") from None
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            raise DeliveryError(f"{config.host}:{config.port}: {str(error) or type(error).__name__}") from None

    async def _transfer(
        self,
        connection: _SmtpConnection,
        config: SmtpConfig,
        message: EmailMessage,
        before_send: Callable[[], None] | None,
    ) -> str:
        await connection.command(f"MAIL FROM:<{config.sender}>", "MAIL FROM")
        refused: list[SmtpReplyError] = []
        for recipient in self._recipients:
            try:
                await connection.command(f"RCPT TO:<{recipient}>", "RCPT TO")
            except SmtpReplyError as error:
                refused.append(error)
        if len(refused) == len(self._recipients):
            raise next((each for each in refused if not each.rejected), refused[0])
        await connection.command("DATA", "DATA", expected=3)
        if before_send is not None:
            before_send()
        reply = await connection.message(message)
        return (f"{reply}; refused: {'; '.join(map(str, refused))}" if refused else reply)[:300]


def make_email(notification: Notification, links: Links, sender: str, recipients: Sequence[str]) -> EmailMessage:
    """The message. A repetition has the same Message-ID."""
    lines = message_lines(notification, links)
    message = EmailMessage()
    message["Subject"] = f"[LCM] {single_line(lines[0], _MAX_SUBJECT)}"
    message["From"] = sender
    message["To"] = ", ".join(recipients)
    message["Date"] = format_datetime(notification.at)
    message["Message-ID"] = f"<{notification.id}@{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("\n".join(lines) + "\n")
    return message


class _SmtpProtocol(asyncio.StreamReaderProtocol):
    """Feeds a reader, and knows when the connection has ended."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader(limit=_MAX_LINE)
        super().__init__(self.reader)
        self.ended = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.ended.set()


class _SmtpConnection:
    """One connection: commands and their replies.

    It has no stream writer: one that is replaced for STARTTLS would close the connection when it is collected.
    """

    def __init__(self, protocol: _SmtpProtocol, transport: asyncio.Transport) -> None:
        self._protocol = protocol
        self._transport = transport

    async def reply(self, name: str, expected: int = 2) -> str:
        """The text of a reply whose code begins with this digit; raises `SmtpReplyError` for any other."""
        texts: list[str] = []
        line = ""
        for _ in range(_MAX_REPLY_LINES):
            line = (await self._protocol.reader.readuntil(b"\n")).decode(errors="replace").rstrip()
            if len(line) < 3 or not line[:3].isdigit():
                raise OSError("what responds is not a mail server")
            texts.append(single_line(line[4:], _MAX_LINE))
            if line[3:4] != "-":
                break
        code, text = int(line[:3]), " ".join(texts)
        if code // 100 != expected:
            raise SmtpReplyError(name, code, text)
        return f"{code} {text}"

    async def command(self, line: str, name: str, expected: int = 2) -> str:
        """Send a command and wait for its reply."""
        self._transport.write(line.encode() + b"\r\n")
        return await self.reply(name, expected)

    async def message(self, message: EmailMessage) -> str:
        """Send the content of a message."""
        content = message.as_bytes().replace(b"\r\n", b"\n").split(b"\n")
        lines = [b"." + line if line.startswith(b".") else line for line in content]
        self._transport.write(b"\r\n".join(lines).rstrip(b"\r\n") + b"\r\n.\r\n")
        return await self.reply("message")

    async def start_tls(self, tls: ssl.SSLContext, host: str) -> _SmtpConnection:
        """Secure the connection. What arrived before, in clear, is not read by the new one."""
        protocol = _SmtpProtocol()
        transport = await asyncio.get_running_loop().start_tls(self._transport, protocol, tls, server_hostname=host)
        if transport is None:
            raise OSError("the mail server closed the connection")
        protocol.connection_made(transport)
        return _SmtpConnection(protocol, transport)

    async def close(self) -> None:
        """End politely, without waiting for the server's last words."""
        self._transport.write(b"QUIT\r\n")
        self._transport.close()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._protocol.ended.wait()
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        """End at once."""
        self._transport.abort()


async def _open(config: SmtpConfig) -> _SmtpConnection:
    """A connection on which mail can be sent."""
    tls = config.tls or ssl.create_default_context()
    connection = await _connect(config, tls if config.security == "tls" else None)
    try:
        await connection.reply("greeting")
        offered = await connection.command(f"EHLO {_HELLO_NAME}", "EHLO")
        if config.security == "starttls":
            _require_starttls(offered)
            await connection.command("STARTTLS", "STARTTLS")
            connection = await connection.start_tls(tls, config.host)
            offered = await connection.command(f"EHLO {_HELLO_NAME}", "EHLO")
        if config.username is not None and config.password is not None:
            await _sign_in(connection, offered, config.username, config.password.get_secret_value())
    except BaseException:
        connection.abort()
        raise
    return connection


async def _connect(config: SmtpConfig, tls: ssl.SSLContext | None) -> _SmtpConnection:
    """A connection to the first address that responds."""
    loop = asyncio.get_running_loop()
    name = None if tls is None else config.host
    problem = OSError("it has no address")
    for address in await config.resolve(config.host, config.port):
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                transport, protocol = await loop.create_connection(
                    _SmtpProtocol, address, config.port, ssl=tls, server_hostname=name
                )
        except OSError as error:  # also a timeout
            problem = error
        else:
            return _SmtpConnection(protocol, transport)
    raise problem


async def _sign_in(connection: _SmtpConnection, offered: str, username: str, password: str) -> None:
    words = offered.upper().split()
    if "PLAIN" in words or "LOGIN" not in words:
        plain = _base64(f"\0{username}\0{password}")
        await connection.command(f"AUTH PLAIN {plain}", "AUTH")
        return
    # Exchange and others know this one alone.
    await connection.command("AUTH LOGIN", "AUTH", expected=3)
    await connection.command(_base64(username), "AUTH", expected=3)
    await connection.command(_base64(password), "AUTH")


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _require_starttls(offered: str) -> None:
    if "STARTTLS" not in offered.upper().split():
        raise DeliveryError("the mail server does not offer STARTTLS; set SMTP_SECURITY if that is intended")
