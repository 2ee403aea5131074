"""An identity provider's signing side: real keys, their JWKS entries, and tokens signed with them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt import api_jws
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from lcm.core import clock

ISSUER = "https://id.example"
AUDIENCE = "lcm"


@cache
def private_key(name: str, kind: str = "RSA") -> Any:
    """A key for a name. Generating RSA keys is slow, so each is generated once per run."""
    made: dict[str, Any] = {
        "RSA": lambda: rsa.generate_private_key(65537, 2048),
        "RSA-1024": lambda: rsa.generate_private_key(65537, 1024),
        "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
        "P-384": lambda: ec.generate_private_key(ec.SECP384R1()),
        "P-521": lambda: ec.generate_private_key(ec.SECP521R1()),
        "secp256k1": lambda: ec.generate_private_key(ec.SECP256K1()),
        "Ed25519": ed25519.Ed25519PrivateKey.generate,
    }
    return made[kind]()


def entry(key: Any, kid: str | None, *, private: bool = False, **more: Any) -> dict[str, Any]:
    """A JWKS entry of a key: its public half, or, to test a mistake, the private key too."""
    families: dict[type, Any] = {rsa.RSAPrivateKey: RSAAlgorithm, ec.EllipticCurvePrivateKey: ECAlgorithm}
    family = next((families[kind] for kind in families if isinstance(key, kind)), OKPAlgorithm)
    made = json.loads(family.to_jwk(key if private else key.public_key()))
    return {name: value for name, value in made.items() if name != "key_ops"} | ({"kid": kid} if kid else {}) | more


def document(*entries: dict[str, Any]) -> bytes:
    """A JWKS document."""
    return json.dumps({"keys": entries}).encode()


def claims(**more: Any) -> dict[str, Any]:
    """The claims of a valid token; None omits a claim."""
    now = int(clock.now().timestamp())
    usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "u-1", "preferred_username": "ann", "roles": ["operator"]}
    every = usual | {"iat": now, "nbf": now, "exp": now + 300} | more
    return {name: value for name, value in every.items() if value is not None}


def signed(key: Any, kid: str | None, algorithm: str = "RS256", **more: Any) -> str:
    """A signed token with any claims, without checking them."""
    return api_jws.encode(json.dumps(claims(**more)).encode(), key, algorithm, headers={"kid": kid} if kid else None)


def public_pem(key: Any) -> bytes:
    """The public half of the key."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))
