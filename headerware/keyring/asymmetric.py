"""Algorithms with a private and a public half, and how they sign and verify (spec/keyring.md).

    algorithm       private half          public half                 signature
    ed25519         32 bytes (RFC 8032)   32 bytes                    64 bytes
    ecdsa-p256      32 bytes, big-endian  65 bytes: 4, x, y (SEC 1)   64 bytes: r, and the lower s
    rsa-pss-sha256  PKCS #8, DER          SubjectPublicKeyInfo, DER   as long as the modulus; salt 32 bytes

Each algorithm accepts a signature in one encoding only. cryptography is imported on first use, because HMAC
does not need it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

SignBytes = Callable[[bytes], bytes]
"""Signs its argument."""
VerifyBytes = Callable[[bytes, bytes], bool]
"""Returns whether the second argument is the signature of the first."""

_SCALAR_BYTES: Final = 32
_DISTINCT_BYTES: Final = 8
"""32 random bytes have at least this many different values; a private half with fewer is a placeholder."""
_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
RSA_MIN_BITS: Final = 2048
RSA_MAX_BITS: Final = 4096
"""A longer key would make verifications too slow, and strangers can cause verifications."""
_RSA_NEW_BITS: Final = 3072
_RSA_EXPONENT: Final = 65537
_RSA_KEY: Final = f"an RSA key with {RSA_MIN_BITS} to {RSA_MAX_BITS} bits and the exponent {_RSA_EXPONENT}"


class Scheme(Protocol):
    """One algorithm; private and public halves are bytes, as in a keyring."""

    def generate(self) -> bytes:
        """Return a new private half."""

    def public_half(self, private: bytes) -> bytes:
        """Return the public half of a private one."""

    def problem(self, private: bytes | None, public: bytes | None) -> str | None:
        """Return what is wrong with one or two halves, or None."""

    def signature_bytes(self, public: bytes) -> int:
        """Return the length of a signature."""

    def signer(self, private: bytes) -> SignBytes:
        """Return a function that signs."""

    def verifier(self, public: bytes) -> VerifyBytes:
        """Return a function that verifies."""

    def load_public(self, public: bytes) -> Any:
        """Return cryptography's object for a public half; raise ValueError if the half is not valid."""

    def dump_public(self, loaded: Any) -> bytes:
        """Return the public half of cryptography's object."""


class _Ed25519:
    def generate(self) -> bytes:
        return secrets.token_bytes(_SCALAR_BYTES)

    def public_half(self, private: bytes) -> bytes:
        return self.dump_public(self._load_private(private).public_key())

    def problem(self, private: bytes | None, public: bytes | None) -> str | None:
        for name, half in (("private", private), ("public", public)):
            if half is not None and len(half) != _SCALAR_BYTES:
                return f"its {name} half must have {_SCALAR_BYTES} bytes, found {len(half)}"
        if private is not None and len(set(private)) < _DISTINCT_BYTES:
            return _PLACEHOLDER
        if public is not None and _is_of_small_order(public):
            return "its public half is of small order, so anyone could sign for it"
        return None

    def signature_bytes(self, public: bytes) -> int:  # noqa: ARG002 - the same for all keys
        return 64

    def signer(self, private: bytes) -> SignBytes:
        return self._load_private(private).sign

    def verifier(self, public: bytes) -> VerifyBytes:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - heavy, and HMAC needs none

        check = self.load_public(public).verify

        def verify(text: bytes, signature: bytes) -> bool:
            try:
                check(signature, text)
            except InvalidSignature:
                return False
            return True

        return verify

    def load_public(self, public: bytes) -> ed25519.Ed25519PublicKey:
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - as above

        return ed25519.Ed25519PublicKey.from_public_bytes(public)

    def dump_public(self, loaded: ed25519.Ed25519PublicKey) -> bytes:
        return loaded.public_bytes_raw()

    def _load_private(self, private: bytes) -> ed25519.Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - as above

        return ed25519.Ed25519PrivateKey.from_private_bytes(private)


class _EcdsaP256:
    def generate(self) -> bytes:
        return (1 + secrets.randbelow(_P256_ORDER - 1)).to_bytes(_SCALAR_BYTES, "big")

    def public_half(self, private: bytes) -> bytes:
        return self.dump_public(self._load_private(private).public_key())

    def problem(self, private: bytes | None, public: bytes | None) -> str | None:
        if private is not None:
            if len(private) != _SCALAR_BYTES or not 0 < int.from_bytes(private, "big") < _P256_ORDER:
                return (
                    f"its private half must be {_SCALAR_BYTES} bytes, a number from 1 to below the "
                    "order of P-256"
                )
            if len(set(private)) < _DISTINCT_BYTES:
                return _PLACEHOLDER
        if public is not None:
            try:
                self.load_public(public)
            except ValueError:
                return "its public half must be 65 bytes, an uncompressed point on P-256"
        return None

    def signature_bytes(self, public: bytes) -> int:  # noqa: ARG002 - the same for all keys
        return 2 * _SCALAR_BYTES

    def signer(self, private: bytes) -> SignBytes:
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - heavy, and HMAC needs none
        from cryptography.hazmat.primitives.asymmetric import ec, utils  # noqa: PLC0415 - as above
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - as above

        try:
            algorithm = ec.ECDSA(SHA256(), deterministic_signing=True)
        except UnsupportedAlgorithm:  # OpenSSL older than 3.2 has random nonces only
            algorithm = ec.ECDSA(SHA256())
        sign, decode = self._load_private(private).sign, utils.decode_dss_signature

        def lower(text: bytes) -> bytes:
            r, s = decode(sign(text, algorithm))
            s = min(s, _P256_ORDER - s)
            return r.to_bytes(_SCALAR_BYTES, "big") + s.to_bytes(_SCALAR_BYTES, "big")

        return lower

    def verifier(self, public: bytes) -> VerifyBytes:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - heavy, and HMAC needs none
        from cryptography.hazmat.primitives.asymmetric import ec, utils  # noqa: PLC0415 - as above
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - as above

        check, algorithm, encode = (
            self.load_public(public).verify,
            ec.ECDSA(SHA256()),
            utils.encode_dss_signature,
        )

        def verify(text: bytes, signature: bytes) -> bool:
            s = int.from_bytes(signature[_SCALAR_BYTES:], "big")
            # The upper s would verify, too, and then each signature would have two encodings.
            if len(signature) != 2 * _SCALAR_BYTES or s > _P256_ORDER // 2:
                return False
            try:
                check(encode(int.from_bytes(signature[:_SCALAR_BYTES], "big"), s), text, algorithm)
            except InvalidSignature:
                return False
            return True

        return verify

    def load_public(self, public: bytes) -> ec.EllipticCurvePublicKey:
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - as above

        if len(public) != 1 + 2 * _SCALAR_BYTES:  # a compressed point would be a second encoding
            raise ValueError("expected an uncompressed point")
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public)

    def dump_public(self, loaded: ec.EllipticCurvePublicKey) -> bytes:
        numbers = loaded.public_numbers()
        return b"\x04" + b"".join(half.to_bytes(_SCALAR_BYTES, "big") for half in (numbers.x, numbers.y))

    def _load_private(self, private: bytes) -> ec.EllipticCurvePrivateKey:
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - as above

        return ec.derive_private_key(int.from_bytes(private, "big"), ec.SECP256R1())


class _RsaPss:
    def generate(self) -> bytes:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - heavy, and HMAC needs none
        from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415 - as above

        return rsa.generate_private_key(_RSA_EXPONENT, _RSA_NEW_BITS).private_bytes(
            serialization.Encoding.DER,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def public_half(self, private: bytes) -> bytes:
        return self.dump_public(self._load_private(private).public_key())

    def problem(self, private: bytes | None, public: bytes | None) -> str | None:
        for what, half, load in (
            ("private half must be a PKCS #8 structure", private, self._load_private),
            ("public half must be a SubjectPublicKeyInfo", public, self.load_public),
        ):
            if half is not None:
                try:
                    load(half)
                except (ValueError, TypeError):
                    return f"its {what} in DER of {_RSA_KEY}"
        return None

    def signature_bytes(self, public: bytes) -> int:
        return self.load_public(public).key_size // 8

    def signer(self, private: bytes) -> SignBytes:
        sign, (padding, algorithm) = self._load_private(private, checked=True).sign, _pss()
        return lambda text: sign(text, padding, algorithm)

    def verifier(self, public: bytes) -> VerifyBytes:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - heavy, and HMAC needs none

        check, (padding, algorithm) = self.load_public(public).verify, _pss()

        def verify(text: bytes, signature: bytes) -> bool:
            try:
                check(signature, text, padding, algorithm)
            except InvalidSignature:
                return False
            return True

        return verify

    def load_public(self, public: bytes) -> rsa.RSAPublicKey:
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - as above
        from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415 - as above
        from cryptography.hazmat.primitives.serialization import load_der_public_key  # noqa: PLC0415 - as above

        try:
            loaded = load_der_public_key(public)
        except UnsupportedAlgorithm as error:
            raise ValueError("expected an RSA key") from error
        if not isinstance(loaded, rsa.RSAPublicKey):
            raise ValueError("expected an RSA key")  # noqa: TRY004 - as for all other wrong halves
        numbers = loaded.public_numbers()
        if problem := rsa_problem(numbers.n, numbers.e):
            raise ValueError(problem)
        return loaded

    def dump_public(self, loaded: rsa.RSAPublicKey) -> bytes:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - as above

        return loaded.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def _load_private(self, private: bytes, *, checked: bool = False) -> rsa.RSAPrivateKey:
        # Only signing checks that the numbers fit together, because this check takes some 50 ms.
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - as above
        from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415 - as above
        from cryptography.hazmat.primitives.serialization import load_der_private_key  # noqa: PLC0415 - as above

        try:
            loaded = load_der_private_key(private, password=None, unsafe_skip_rsa_key_validation=not checked)
        except UnsupportedAlgorithm as error:
            raise ValueError("expected an RSA key") from error
        if not isinstance(loaded, rsa.RSAPrivateKey):
            raise ValueError("expected an RSA key")  # noqa: TRY004 - as for all other wrong halves
        self.load_public(self.dump_public(loaded.public_key()))
        return loaded


def rsa_problem(modulus: int, exponent: int) -> str | None:
    """Return what is wrong with the numbers of a public RSA key, or None."""
    bits = modulus.bit_length()
    if exponent == _RSA_EXPONENT and RSA_MIN_BITS <= bits <= RSA_MAX_BITS and bits % 8 == 0:
        return None
    return f"expected {_RSA_KEY}"


def _pss() -> tuple[Any, Any]:
    from cryptography.hazmat.primitives.asymmetric import padding  # noqa: PLC0415 - heavy, and HMAC needs none
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - as above

    return padding.PSS(padding.MGF1(SHA256()), salt_length=SHA256.digest_size), SHA256()


SCHEMES: Final[Mapping[str, Scheme]] = MappingProxyType(
    {"ed25519": _Ed25519(), "ecdsa-p256": _EcdsaP256(), "rsa-pss-sha256": _RsaPss()}
)
"""The algorithms by their names in keyrings."""

_PLACEHOLDER: Final = "its private half repeats a few bytes and can be guessed: generate a random one"

_P: Final = 2**255 - 19
_ORDER_8: Final = int.from_bytes(
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
)
_SMALL_ORDER: Final = frozenset({0, 1, _P - 1, _ORDER_8, _P - _ORDER_8})
"""The y coordinates of the eight points of edwards25519 whose order divides 8 (RFC 8032, section 5.1)."""


def _is_of_small_order(public: bytes) -> bool:
    # Ignore the sign of x and take y modulo p, so that all encodings of these points are found.
    return (int.from_bytes(public, "little") & (2**255 - 1)) % _P in _SMALL_ORDER
