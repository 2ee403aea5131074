"""Sessions and clients of botocore. Relevant options are set explicitly, because botocore's defaults have changed.

Every connection of a client checks right before the bytes of a request are handed to the kernel whether they may still
be sent: after signing, a refresh of credentials, and the handshake of a new connection. That is the last moment at
which this process can keep a request back.

Creating a client takes a quarter of a second and reads files: never do it on the event loop.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import botocore.session
from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
)
from botocore.exceptions import NoCredentialsError, ReadTimeoutError

from lcm.core import clock
from lcm.core.authorization import check_may_send

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lcm.cloud.aws.config import RegionConfig, Tuning


def new_session(region: RegionConfig, tuning: Tuning) -> botocore.session.Session:
    """Create a session with the standard credential chain or, if a role is configured, with the assumed role.

    It raises if there are no credentials now: a client of such a session would never get any, also when the metadata
    service responds again.
    """
    session = _base_session()
    if region.role_arn is not None:
        session.register_component("credential_provider", CredentialResolver([_AssumedRoleProvider(region, tuning)]))
    if session.get_credentials() is None:
        raise NoCredentialsError
    return session


def new_client(
    session: botocore.session.Session, service: str, region: RegionConfig, tuning: Tuning, *, mutating: bool
) -> Any:
    """Create a client for reads, or one for mutations: these are sent once, and the caller decides about a retry."""
    client: Any = session.create_client(
        service,
        region_name=region.region,
        endpoint_url=region.endpoint_url,
        config=client_config(tuning, attempts=1 if mutating else tuning.read_attempts),
    )
    client.meta.events.register_first(f"needs-retry.{service}", _stop_retrying_at_deadline)
    # botocore has no public way to replace its connections, and events end before the connection is made.
    client._endpoint.http_session._pool_classes_by_scheme.update(http=_HttpPool, https=_HttpsPool)  # noqa: SLF001
    return client


_read_deadline: ContextVar[float | None] = ContextVar("lcm_aws_read_deadline", default=None)


@contextmanager
def reading_within(seconds: float) -> Iterator[None]:
    """End the calls made by this thread after so many seconds (boot time), over all attempts."""
    token = _read_deadline.set(clock.boottime() + seconds)
    try:
        yield
    finally:
        _read_deadline.reset(token)


class _DeadlineExceededError(Exception):
    """The call was not finished within its total time."""


def _seconds_left() -> float | None:
    deadline = _read_deadline.get()
    return None if deadline is None else deadline - clock.boottime()


def _stop_retrying_at_deadline(endpoint: Any, **_: Any) -> None:
    """Called after each attempt, before botocore decides about the next one."""
    left = _seconds_left()
    if left is not None and left <= 0:
        raise ReadTimeoutError(endpoint_url=endpoint.host, error="not finished within its total time")


class _CheckedConnection:
    """A connection that sends nothing that may no longer be sent, and waits no longer than the call may take."""

    sock: Any
    timeout: Any

    def connect(self) -> None:
        self._cap_timeout()
        super().connect()  # type: ignore[misc]

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        check_may_send()
        left = _seconds_left()
        if left is not None and left <= 0:
            raise _DeadlineExceededError("not finished within its total time")
        super().send(data)  # type: ignore[misc]

    def getresponse(self) -> Any:
        self._cap_timeout()
        return super().getresponse()  # type: ignore[misc]

    def _cap_timeout(self) -> None:
        left = _seconds_left()
        if left is not None and isinstance(self.timeout, int | float):
            self.timeout = max(0.001, min(self.timeout, left))


class _HttpConnection(_CheckedConnection, AWSHTTPConnection):  # type: ignore[misc]
    pass


class _HttpsConnection(_CheckedConnection, AWSHTTPSConnection):  # type: ignore[misc]
    pass


class _HttpPool(AWSHTTPConnectionPool):
    ConnectionCls = _HttpConnection


class _HttpsPool(AWSHTTPSConnectionPool):
    ConnectionCls = _HttpsConnection


def new_dry_run_client(session: botocore.session.Session, region: RegionConfig, tuning: Tuning) -> Any:
    """Create an EC2 client that only checks permissions: all its requests carry DryRun, or are not sent."""
    client = new_client(session, "ec2", region, tuning, mutating=False)
    client.meta.events.register("provide-client-params.ec2", _set_dry_run)
    client.meta.events.register_last("before-call.ec2", _require_dry_run)
    return client


def _set_dry_run(params: Mapping[str, Any], **_: Any) -> dict[str, Any]:
    return {**params, "DryRun": True}


def _require_dry_run(params: Mapping[str, Any], **_: Any) -> None:
    """The last check before sending: a request without DryRun is not sent."""
    if params["body"].get("DryRun") != "true":
        raise RuntimeError("a dry-run request lacked the DryRun parameter; it was not sent")


def client_config(tuning: Tuning, attempts: int) -> Config:
    """Return the options of a client."""
    return Config(
        connect_timeout=tuning.connect_timeout,
        read_timeout=tuning.read_timeout,
        max_pool_connections=tuning.threads,
        retries={"mode": "standard", "total_max_attempts": attempts},
        tcp_keepalive=True,
        parameter_validation=True,
        user_agent_extra="lcm",
    )


def _base_session() -> botocore.session.Session:
    session = botocore.session.Session()
    session.register_component("data_loader", _data_loader())
    return session


@cache
def _data_loader() -> Any:
    """The service model of EC2 is megabytes of JSON: load it once for all regions."""
    return botocore.session.Session().get_component("data_loader")


class _AssumedRoleProvider(CredentialProvider):
    """Credentials of an assumed role, fetched on first use and refreshed before they expire."""

    METHOD = "lcm-assumed-role"

    def __init__(self, region: RegionConfig, tuning: Tuning) -> None:
        super().__init__()
        self._region = region
        self._tuning = tuning

    def load(self) -> DeferredRefreshableCredentials:
        own = _base_session()
        credentials = own.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        extra = {"RoleSessionName": f"lcm-{self._region.region}"}
        if self._region.external_id is not None:
            extra["ExternalId"] = self._region.external_id
        create = partial(
            own.create_client,
            region_name=self._region.region,
            endpoint_url=self._region.endpoint_url,
            config=client_config(self._tuning, self._tuning.read_attempts),
        )
        assert self._region.role_arn is not None
        fetcher = AssumeRoleCredentialFetcher(create, credentials, self._region.role_arn, extra_args=extra)
        return DeferredRefreshableCredentials(refresh_using=fetcher.fetch_credentials, method="assume-role")
