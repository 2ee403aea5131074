"""How CML servers are reached, as plain values: a poller process gets the same as the controller itself."""

from __future__ import annotations

from dataclasses import dataclass

from lcm.cml.client.proxy import HttpProxy
from lcm.cml.client.tls import TrustPolicy, open_tls_connection
from lcm.cml.client.transport import MAX_IDLE_CONNECTIONS, BaseUrlResolver, CMLTransport, cml_network, https_base_url


@dataclass(frozen=True, slots=True)
class CmlAccess:
    """Trust, proxy, the connections to keep, and the base URL of an address."""

    trust: TrustPolicy
    proxy_url: str | None = None
    max_idle_connections: int = MAX_IDLE_CONNECTIONS
    base_url_of: BaseUrlResolver = https_base_url

    def open(self) -> CMLTransport:
        """A transport; it connects when it is used."""
        proxy = None if self.proxy_url is None else HttpProxy(self.proxy_url)
        network = cml_network(None if proxy is None else proxy.address, max_idle=self.max_idle_connections)
        open_tls = open_tls_connection if proxy is None else proxy.open_tls
        return CMLTransport(self.trust, base_url_of=self.base_url_of, http=network, open_tls=open_tls)
