"""The identity provider of the settings: whose JWTs are accepted, and where people sign in."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from lcm.control_plane.auth.oidc.fetch import ProviderConnection
from lcm.control_plane.auth.oidc.jwks import JwksCache, fixed_url
from lcm.control_plane.auth.oidc.provider import Provider, ProviderConfig
from lcm.control_plane.auth.oidc.sign_in import OidcSignIn
from lcm.control_plane.auth.oidc.verifier import OidcConfig, OidcVerifier
from lcm.control_plane.secrets.encryption import Secret
from lcm.http.network import NetworkTransport
from lcm.http.proxy import proxy_from_environment
from lcm.settings.groups.control_plane import parse_role_map, parse_team_map

if TYPE_CHECKING:
    from pathlib import Path

    from lcm.control_plane.auth.teams import TeamDirectory
    from lcm.control_plane.secrets.encryption import SecretBox
    from lcm.http.transport import HttpTransport
    from lcm.settings import AuthSettings


def make_oidc(
    settings: AuthSettings, ca_file: Path | None, box: SecretBox, http: HttpTransport, teams: TeamDirectory
) -> tuple[OidcVerifier | None, OidcSignIn | None]:
    """The verifier of its tokens, and the sign-in; None for what is not configured."""
    if settings.oidc_issuer is None:
        return None, None
    connection = ProviderConnection(http, _provider_tls(ca_file))
    config = OidcConfig(
        issuer=settings.oidc_issuer,
        audience=settings.oidc_audience,
        role_claim=settings.oidc_role_claim,
        role_map=parse_role_map(settings.oidc_role_map),
        client_id=settings.oidc_client_id or "",
        maps_teams=bool(parse_team_map(settings.oidc_role_map)),
    )
    if settings.oidc_client_id is None:
        assert settings.oidc_jwks_url is not None, "the settings require it without a client id"
        return OidcVerifier(config, JwksCache(fixed_url(settings.oidc_jwks_url), connection), teams), None
    assert settings.lcm_public_url is not None, "the settings require it with a client id"
    secret = settings.oidc_client_secret
    provider = Provider(
        ProviderConfig(
            issuer=settings.oidc_issuer,
            client_id=settings.oidc_client_id,
            client_secret=None if secret is None else Secret(secret.get_secret_value()),
            public_url=settings.lcm_public_url.rstrip("/"),
            scopes=settings.oidc_scopes,
            jwks_url=settings.oidc_jwks_url,
        ),
        connection,
    )
    verifier = OidcVerifier(config, JwksCache(provider.jwks_url, connection), teams)
    return verifier, OidcSignIn(provider, verifier, box)


def oidc_network(settings: AuthSettings) -> NetworkTransport:
    """The way to the identity provider, which may be outside the network: through a proxy of the environment."""
    url = settings.oidc_issuer
    return NetworkTransport(idle_seconds=0.0, max_idle=0, proxy=proxy_from_environment(url) if url else None)


def _provider_tls(ca_file: Path | None) -> ssl.SSLContext | None:
    """Trusts the CAs of the host and the private one: the provider may be inside or outside."""
    if ca_file is None:
        return None
    context = ssl.create_default_context()
    context.load_verify_locations(cafile=ca_file)
    return context
