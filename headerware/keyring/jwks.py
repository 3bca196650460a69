"""JSON Web Key Sets (RFC 7517) as keyrings of public halves.

A JWKS cannot state topics, times, uses or revocations. Its keys therefore verify on every topic, and a key
with ``topics`` or ``not_after`` is not written to a JWKS. ``not_before`` is left out: readers need the key
earlier, and the signer waits for this time. joserfc reads and writes the keys (extra ``jose``).
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import msgspec

from headerware.core.errors import KeyringError
from headerware.core.extras import install_command
from headerware.core.strict_json import decode_json
from headerware.keyring.asymmetric import SCHEMES, rsa_problem
from headerware.keyring.keyring import Algorithm, Key, Keyring

Use = Literal["sign", "certify"]
_UNKNOWN: Final = datetime.fromtimestamp(0, UTC)
"""The time of creation of all keys of a JWKS, which does not state it."""
_KID: Final = re.compile(r"(.+):([1-9][0-9]{0,4})", re.DOTALL)


class _JwkType(NamedTuple):
    """How a JWKS describes the keys of an algorithm."""

    algorithm: Algorithm
    kty: str
    crv: str | None
    members: tuple[str, ...]


_BY_ALG: Final[Mapping[str, _JwkType]] = MappingProxyType(
    {
        "Ed25519": _JwkType("ed25519", "OKP", "Ed25519", ("x",)),
        "EdDSA": _JwkType("ed25519", "OKP", "Ed25519", ("x",)),
        "ES256": _JwkType("ecdsa-p256", "EC", "P-256", ("x", "y")),
        "PS256": _JwkType("rsa-pss-sha256", "RSA", None, ("n", "e")),
    }
)
"""The algorithms by their names in JOSE (RFC 7518, 8037, 9864)."""
_WRITTEN_ALG: Final = {"ed25519": "EdDSA", "ecdsa-p256": "ES256", "rsa-pss-sha256": "PS256"}
"""The names that are written; EdDSA, because not every reader knows Ed25519 yet."""
_ENCODED_MEMBERS: Final = frozenset({"x", "y", "n", "e"})
_LENGTHS: Final = {"Ed25519": 32, "P-256": 32, "P-384": 48, "P-521": 66}
"""The size of a coordinate by curve; only the keys of issuers (certificate.py) have P-384 and P-521."""
_SECRETS: Final = ("d", "p", "q", "dp", "dq", "qi", "oth", "k")


def decode_jwks(text: bytes) -> Keyring:
    """Read a JWKS; raise ValueError if it is not valid."""
    keys = []
    for index, members in enumerate(read_key_set(text)):
        try:
            keys.append(_key(members))
        except ValueError as error:
            raise ValueError(f"keys[{index}]: {error}") from None
    return Keyring(keys=tuple(keys))


def read_key_set(text: bytes) -> list[dict[str, Any]]:
    """Return the members of each key of a JWKS; raise ValueError if the text is not a JWKS."""
    return decode_json(text, _Set).keys


def require_encoding(members: Mapping[str, Any]) -> None:
    """Raise ValueError if a number of a JWK is not encoded as RFC 7518 requires."""
    for name in sorted(_ENCODED_MEMBERS & members.keys()):
        if not _is_encoded(name, members[name], members.get("crv")):
            raise ValueError(
                f"its {name} is not base64url in the one valid encoding: without padding, and of the length "
                "in RFC 7518"
            )


def is_secret(members: Mapping[str, Any]) -> bool:
    """Return whether a JWK has a private half, or is a shared key."""
    return any(name in members for name in _SECRETS)


def jwk_weakness(members: Mapping[str, Any]) -> str | None:
    """Return why the key of a JWK is weak, so that its signatures prove nothing, or None.

    Call this before joserfc reads the key: joserfc accepts weak keys, and warns about some of them only.

    Args:
        members: the members of a JWK that :func:`require_encoding` has accepted.
    """
    match members:
        case {"kty": "OKP", "crv": "Ed25519", "x": x}:
            return SCHEMES["ed25519"].problem(None, from_base64url(x))
        case {"kty": "OKP", "crv": "Ed25519"}:
            return "it has no x"
        case {"kty": "OKP"}:
            return "its curve is not Ed25519"
        case {"kty": "RSA", "n": n, "e": e}:
            return rsa_problem(*(int.from_bytes(from_base64url(number), "big") for number in (n, e)))
    return None


def base64url(content: bytes) -> str:
    """Return bytes in base64url without padding, as JOSE does (RFC 7515)."""
    return urlsafe_b64encode(content).decode().rstrip("=")


def from_base64url(text: str) -> bytes:
    """Return the bytes of a text in base64url; raise ValueError if the text is not their one encoding."""
    content = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if base64url(content) != text:
        raise ValueError("expected base64url in its one encoding, without padding")
    return content


def encode_jwks(keyring: Keyring, *, use: Use = "sign") -> bytes:
    """Return the public halves of a keyring as a JWKS, indented for people.

    A set has keys of one use only, because a JWKS cannot state the use of each key, and a key that signs
    records must not certify other keys.

    Args:
        keyring: the keys.
        use: the use of the keys: ``sign`` for readers that verify records, ``certify`` for policies that
            admit records.

    Raises:
        KeyringError: a JWKS cannot hold one of the keys, see :func:`jwks_problem`.
    """
    for key in keyring.keys:
        if problem := jwks_problem(key, use):
            raise KeyringError(f"key {key.id!r} version {key.version} cannot be in a JWKS: {problem}")
    algs = _WRITTEN_ALG
    if use == "certify":
        algs = {**_WRITTEN_ALG, "ed25519": "Ed25519"}  # the name in the certificates
    fields = {"keys": [_jwk_of(key, algs[key.algorithm]) for key in keyring.keys]}
    return msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n"


def jwks_problem(key: Key, use: Use = "sign") -> str | None:
    """Return why a JWKS for a use cannot hold this key, or None if it can."""
    if key.algorithm not in SCHEMES:
        return f"{key.algorithm} has no public half"
    if key.status == "revoked":
        return "it is revoked, which a JWKS cannot state"
    if key.use != (use,):
        return f"its use is {', '.join(key.use)}, and the set is for the use {use} (--use)"
    if key.topics is not None or key.not_after:
        return "it has limits (topics or not_after), which a JWKS cannot state"
    return None


def kid_of(key: Key) -> str:
    """Return the name of a key in a JWKS, and in a certificate that it signs."""
    return f"{key.id}:{key.version}"


class _Set(msgspec.Struct):
    keys: list[dict[str, Any]]


def _is_encoded(name: str, text: Any, curve: Any) -> bool:
    try:
        content = from_base64url(text)
    except (TypeError, ValueError):
        return False
    if name in {"n", "e"}:
        return not content.startswith(b"\0")
    length = _LENGTHS.get(curve) if isinstance(curve, str) else None
    return length is None or len(content) == length


def _key(members: dict[str, Any]) -> Key:
    kid, alg = members.get("kid"), members.get("alg")
    if not isinstance(kid, str) or not kid:
        raise ValueError("it has no kid, the name by which records refer to it")
    jwk_type = _BY_ALG.get(alg) if isinstance(alg, str) else None
    if jwk_type is None:
        # Without alg, a signature could choose how the key is used.
        raise ValueError(f"expected alg {', '.join(_BY_ALG)}; found another or none")
    if members.get("kty") != jwk_type.kty or members.get("crv") != jwk_type.crv:
        curve = f"crv {jwk_type.crv}" if jwk_type.crv else "no crv"
        raise ValueError(
            f"it is for {alg}: expected kty {jwk_type.kty} and {curve}, found another kty or crv"
        )
    operations = members.get("key_ops", ["verify"])
    if members.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        raise ValueError("it is not for verifying signatures (use, key_ops)")
    if is_secret(members):
        raise ValueError("it has private members; a JWKS here holds public keys only")
    named = _KID.fullmatch(kid)
    return Key(
        id=named[1] if named else kid,
        version=int(named[2]) if named else 1,
        algorithm=jwk_type.algorithm,
        status="retired",
        created=_UNKNOWN,
        public=_public_half(jwk_type, members),
    )


def _public_half(jwk_type: _JwkType, members: dict[str, Any]) -> bytes:
    require_encoding(members)
    if problem := jwk_weakness(members):
        raise ValueError(f"it cannot be relied on: {problem}")
    chosen = {name: members[name] for name in ("kty", "crv", *jwk_type.members) if name in members}
    importing = _class_of(jwk_type).import_key
    try:
        return SCHEMES[jwk_type.algorithm].dump_public(importing(chosen).public_key)
    except Exception:  # noqa: BLE001 - the library raises many; a text may quote a member
        raise ValueError(
            f"it is not a valid {jwk_type.kty} key: check {', '.join(jwk_type.members)}"
        ) from None


def _jwk_of(key: Key, alg: str) -> dict[str, Any]:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - heavy

    pem = (
        SCHEMES[key.algorithm]
        .load_public(key.public_half or b"")
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    written: dict[str, Any] = _class_of(_BY_ALG[alg]).import_key(pem).as_dict(private=False)
    return {"kid": kid_of(key), "alg": alg, "use": "sig", **written}


def _class_of(jwk_type: _JwkType) -> Any:
    """Return joserfc's class for a type of key."""
    try:
        from joserfc import jwk  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "joserfc":
            raise
        raise KeyringError(
            f"reading or writing a JWKS needs joserfc: run {install_command('jose')}"
        ) from error
    return {"OKP": jwk.OKPKey, "EC": jwk.ECKey, "RSA": jwk.RSAKey}[jwk_type.kty]
