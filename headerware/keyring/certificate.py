"""Certificates: an issuer states who holds a signing key, and for which topics (spec/admission.md).

A certificate is a JSON Web Token (RFC 7519) in the compact form of RFC 7515, of the type ``hw-admit+jwt``.
Its claim ``cnf`` (RFC 7800) has ``jkt``, the thumbprint (RFC 7638) of the certified key. So only the holder
of this key can use the certificate, and everybody may read it. A token without ``cnf`` would admit anyone who
has seen it; such a token is always refused.
"""

from __future__ import annotations

import hmac
import json
import re
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headerware.core.errors import AdmissionError, ConfigError, KeyringError, MissingPartError
from headerware.core.extras import install_command
from headerware.core.strict_json import decode_json
from headerware.core.topics import TopicPatterns, check_patterns
from headerware.keyring.asymmetric import SCHEMES
from headerware.keyring.jwks import (
    base64url,
    from_base64url,
    is_secret,
    jwk_weakness,
    kid_of,
    read_key_set,
    require_encoding,
)
from headerware.keyring.keyring import require_zones

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headerware.keyring.keyring import Key

TYPE: Final = "hw-admit+jwt"
MAX_BYTES: Final = 8_192
ALGORITHMS: Final = ("Ed25519", "EdDSA", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256")
"""The algorithms that issuers can use. None has a shared secret, because readers could then issue, too."""
_TYPES: Final = ("OKP", "EC", "RSA")
"""The types of keys that issuers may have (kty)."""
_OTHER_TYPES: Final = ("oct", "AKP")
"""Types that an error may name; any other text in kty may be a secret."""
CERTIFY_USE: Final = "certify"
DAY_S: Final = 86_400
_LATEST_S: Final = 253_402_300_799
_FINGERPRINT: Final = b"headerware fingerprint"
_FINGERPRINT_LENGTH: Final = 8
_Seconds = int | float
_COMPACT: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+")


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """An issuer's statement about the holder of a key.

    Args:
        issuer: the issuer's name.
        subject: the name of the key's holder.
        audience: the systems that the certificate is for, such as a cluster.
        topics: patterns of the topics that the holder may write; patterns with ``!`` exclude topics.
        thumbprint: the JWK thumbprint of the key (RFC 7638).
        issued_ms: the time of issue, in milliseconds since the epoch.
        not_before_ms: the first moment at which the certificate is valid, in milliseconds since the epoch.
        expires_ms: the last moment at which the certificate is valid, in milliseconds since the epoch.
        id: the certificate's own id, or None.
        algorithm: the algorithm that the issuer's signature states.
        issuer_key: the id of the issuer's key, or None.
    """

    issuer: str
    subject: str
    audience: tuple[str, ...]
    topics: tuple[str, ...]
    thumbprint: str
    issued_ms: int
    not_before_ms: int
    expires_ms: int
    id: str | None
    algorithm: str
    issuer_key: str | None

    def permits(self, topic: str) -> bool:
        """Return whether the holder may write this topic."""
        return TopicPatterns(self.topics).matches(topic)


def read_certificate(text: str) -> Certificate:
    """Read a certificate without verifying its issuer's signature.

    Raises:
        AdmissionError: the text is not a certificate, has another type, or is not bound to a key.
    """
    if len(text) > MAX_BYTES or (parts := _COMPACT.fullmatch(text)) is None:
        raise AdmissionError(
            f"expected a certificate as a signed JSON Web Token in the compact form, {MAX_BYTES} characters "
            f"at most, found {len(text)} characters of another form"
        )
    head = _decoded(parts[1], _Head, "header")
    if head.typ != TYPE:
        raise AdmissionError(f"expected a certificate of type {TYPE!r}, found a token of another type")
    if head.alg not in ALGORITHMS:
        raise AdmissionError(
            "its issuer's signature states an algorithm that no issuer may have, such as none, or an "
            "algorithm with a shared secret"
        )
    claims = _decoded(parts[2], _Claims, "claims")
    if claims.cnf is None:
        raise AdmissionError(
            "it is a bearer token: no cnf binds it to a key, so anyone who sees it could use it. Records "
            "must not carry bearer tokens; ask the issuer for a certificate of the signing key"
        )
    not_before = claims.iat if claims.nbf is None else claims.nbf
    if not 0 <= claims.iat <= claims.exp <= _LATEST_S or not 0 <= not_before <= claims.exp:
        raise AdmissionError("its times contradict each other: expected iat and nbf not later than exp")
    try:
        check_patterns(claims.topics, path="topics")
    except ConfigError:
        raise AdmissionError("its topics are not valid patterns") from None
    if all(pattern.startswith("!") for pattern in claims.topics):
        raise AdmissionError("its topics only exclude topics, expected at least one pattern without !")
    return Certificate(
        issuer=claims.iss,
        subject=claims.sub,
        audience=(claims.aud,) if isinstance(claims.aud, str) else claims.aud,
        topics=claims.topics,
        thumbprint=claims.cnf.jkt,
        issued_ms=int(claims.iat * 1_000),
        not_before_ms=int(not_before * 1_000),
        expires_ms=int(claims.exp * 1_000),
        id=claims.jti,
        algorithm=head.alg,
        issuer_key=head.kid,
    )


def key_thumbprint(key: Key) -> str:
    """Return the JWK thumbprint (RFC 7638) of a key with two halves; empty for a key with a secret."""
    if key.algorithm not in SCHEMES:
        return ""
    fields = json.dumps(_members(key), separators=(",", ":"), sort_keys=True)
    return base64url(sha256(fields.encode()).digest())


def key_fingerprint(key: Key) -> str:
    """Return eight characters that tell keys apart, for people who compare keyrings; empty without material.

    A key with two halves has the beginning of its thumbprint. A secret is not shown by the characters: they
    are of its HMAC over a fixed text.
    """
    if key.secret is not None:
        return base64url(hmac.digest(key.secret, _FINGERPRINT, "sha256"))[:_FINGERPRINT_LENGTH]
    return "" if key.status == "deleted" else key_thumbprint(key)[:_FINGERPRINT_LENGTH]


class IssuerKeys:
    """The public keys of one issuer, and the algorithms that it may use.

    Args:
        jwks: a JSON Web Key Set (RFC 7517) with public keys only.
        algorithms: names from RFC 7518 and RFC 9864.
        source: the name of the set in errors, such as its path.

    Raises:
        ConfigError: the text is not a key set, or the set has a private or shared key.
        MissingPartError: joserfc is not installed.
    """

    def __init__(self, jwks: bytes, algorithms: Sequence[str], *, source: str = "the key set") -> None:
        jose = _jose()
        self._algorithms = tuple(algorithms)
        try:
            found = read_key_set(jwks)
            for members in found:
                require_encoding(members)
                _require_reliable(members, source)
            self._keys = [(members.get("kid"), jose.jwk.import_key(members)) for members in found]
        except (ValueError, TypeError, KeyError, jose.errors.JoseError):
            # The cause may quote a key.
            raise ConfigError(f"{source}: expected a JSON Web Key Set (RFC 7517)") from None
        if not found:
            raise ConfigError(f"{source}: expected one key or more, found none")

    def knows(self, certificate: Certificate) -> bool:
        """Return whether the issuer has the key that a certificate names."""
        return bool(self._candidates(certificate))

    def verify(self, text: str, certificate: Certificate) -> None:
        """Raise an AdmissionError unless the issuer has signed the certificate."""
        if certificate.algorithm not in self._algorithms:
            raise AdmissionError(
                f"its issuer's signature states {certificate.algorithm}; {certificate.issuer!r} may use "
                f"{', '.join(self._algorithms)}"
            )
        candidates = self._candidates(certificate)
        if len(candidates) != 1:
            raise AdmissionError(
                "signed with a key that its issuer does not have, or its issuer has several keys and it "
                "names none of them"
            )
        if not _fits(text, candidates[0], certificate.algorithm):
            raise AdmissionError("its issuer's signature does not fit it")

    def _candidates(self, certificate: Certificate) -> list[Any]:
        wanted = certificate.issuer_key
        return [key for kid, key in self._keys if wanted in {None, kid}]


def _fits(text: str, key: Any, algorithm: str) -> bool:
    """Return whether a token was signed with this key (an object of joserfc) and algorithm."""
    jose = _jose()
    try:
        if algorithm == "EdDSA":  # joserfc warns about this name, which RFC 9864 replaces by Ed25519
            signed, _, signature = text.rpartition(".")
            verify = SCHEMES["ed25519"].verifier(_ed25519_half(key))
            return verify(signed.encode(), from_base64url(signature))
        jose.jws.deserialize_compact(text, key, algorithms=[algorithm])
    except (jose.errors.JoseError, ValueError, TypeError):
        return False
    return True


def _ed25519_half(key: Any) -> bytes:
    if key.key_type != "OKP" or key.curve_name != "Ed25519":
        raise ValueError("expected a key of Ed25519")
    return SCHEMES["ed25519"].dump_public(key.public_key)


def _require_reliable(members: dict[str, Any], source: str) -> None:
    if is_secret(members):
        raise ConfigError(
            f"{source}: expected public keys only, found a private or shared one; readers must not be able "
            "to issue certificates"
        )
    if members.get("kty") not in _TYPES:
        kty = members.get("kty")
        found = repr(kty) if kty in _OTHER_TYPES else "another type"
        raise ConfigError(f"{source}: expected keys of the types {', '.join(_TYPES)}, found {found}")
    if problem := jwk_weakness(members):
        raise ConfigError(f"{source}: key {members.get('kid')!r} cannot be relied on: {problem}")


def certify(
    issuer_key: Key,
    key: Key,
    *,
    issuer: str,
    subject: str,
    audience: Sequence[str],
    topics: Sequence[str],
    valid_for_s: int = DAY_S,
    now: datetime | None = None,
) -> str:
    """Return a certificate for a key that signs records.

    Args:
        issuer_key: the issuer's Ed25519 key with its private half; its use has ``certify``.
        key: the key of the producer; its public half is enough.
        issuer: the issuer's name, as in the readers' policies.
        subject: the name of the key's holder.
        audience: the systems that the certificate is for, such as the cluster.
        topics: patterns of the topics that the holder may write.
        valid_for_s: how long the certificate is valid, in seconds.
        now: the time of issue, with a time zone; None means now.

    Raises:
        KeyringError: one of the keys is not suitable, or ``now`` has no time zone.
        AdmissionError: the arguments do not make a valid certificate.
        MissingPartError: joserfc is not installed.
    """
    if issuer_key.algorithm != "ed25519" or issuer_key.private is None or CERTIFY_USE not in issuer_key.use:
        raise KeyringError(
            f"key {issuer_key.id!r} cannot certify: expected an ed25519 key with its private half, made with "
            f"--use {CERTIFY_USE}"
        )
    if issuer_key.status == "revoked":
        raise KeyringError(f"key {issuer_key.id!r} version {issuer_key.version} is {issuer_key.status}")
    if key.algorithm not in SCHEMES or "sign" not in key.use:
        raise KeyringError(
            f"key {key.id!r} cannot have a certificate: expected a key with two halves that signs records. "
            "Anyone who verifies HMAC can also sign, so HMAC proves nobody's identity"
        )
    require_zones(now=now)
    issued = int((now or datetime.now(UTC)).timestamp())
    claims = {
        "iss": issuer,
        "sub": subject,
        "aud": audience[0] if len(audience) == 1 else list(audience),
        "iat": issued,
        "exp": issued + valid_for_s,
        "cnf": {"jkt": key_thumbprint(key)},
        "topics": list(topics),
    }
    jose = _jose()
    private = jose.jwk.OKPKey.import_key({**_members(issuer_key), "d": base64url(issuer_key.private)})
    head = {"alg": "Ed25519", "typ": TYPE, "kid": kid_of(issuer_key)}
    text: str = jose.jws.serialize_compact(
        head, json.dumps(claims, separators=(",", ":")).encode(), private, algorithms=["Ed25519"]
    )
    read_certificate(text)
    return text


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    """A token's header; fields that hold or locate a key (jku, jwk, x5c) are refused, and so is crit."""

    alg: str
    typ: str = ""
    kid: str | None = None


class _Confirmation(msgspec.Struct, forbid_unknown_fields=True):
    jkt: str

    def __post_init__(self) -> None:
        if len(self.jkt) != len(base64url(bytes(32))):
            raise ValueError("jkt must be the thumbprint of a key")


class _Claims(msgspec.Struct):
    iss: str
    sub: str
    aud: str | tuple[str, ...]
    exp: _Seconds
    iat: _Seconds
    topics: tuple[str, ...]
    cnf: _Confirmation | None = None
    nbf: _Seconds | None = None
    jti: str | None = None

    def __post_init__(self) -> None:
        if not (self.iss and self.sub and self.aud and self.topics):
            raise ValueError("iss, sub, aud and topics must not be empty")


def _decoded(part: str, kind: Any, name: str) -> Any:
    try:
        return decode_json(from_base64url(part), kind)
    except ValueError:
        # The cause may quote the token.
        wanted = ", ".join(field.name for field in msgspec.structs.fields(kind) if field.required)
        raise AdmissionError(
            f"its {name} cannot be read: expected JSON with {wanted}, each of the right type"
        ) from None


def _members(key: Key) -> dict[str, str]:
    """Return the members of the public JWK from which RFC 7638 makes the thumbprint."""
    scheme = SCHEMES[key.algorithm]
    public = key.public if key.private is None else scheme.public_half(key.private)
    assert public is not None  # noqa: S101 - a key has at least one half
    if key.algorithm == "ed25519":
        return {"crv": "Ed25519", "kty": "OKP", "x": base64url(public)}
    numbers = scheme.load_public(public).public_numbers()
    if key.algorithm == "ecdsa-p256":
        x, y = (base64url(number.to_bytes(32, "big")) for number in (numbers.x, numbers.y))
        return {"crv": "P-256", "kty": "EC", "x": x, "y": y}
    e, n = (
        base64url(number.to_bytes((number.bit_length() + 7) // 8, "big")) for number in (numbers.e, numbers.n)
    )
    return {"e": e, "kty": "RSA", "n": n}


def _jose() -> Any:
    try:
        import joserfc.errors  # noqa: PLC0415 - of an extra
        import joserfc.jwk  # noqa: PLC0415
        import joserfc.jws  # noqa: PLC0415
    except ImportError as error:
        raise MissingPartError(
            f"certificates need joserfc, which is not installed: {install_command('jose')}"
        ) from error
    return joserfc
