from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from headerware.core.errors import KeyringError
from headerware.keyring import Key, Keyring, decode_keyring, encode_keyring, public_part, with_new_key
from headerware.keyring.asymmetric import SCHEMES
from headerware.keyring.signature import signature_bytes, signer, verifier

P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
HEAD = b"\x01head"


@pytest.fixture(scope="module")
def ring() -> Keyring:
    keyring = Keyring()
    for algorithm in SCHEMES:
        keyring = with_new_key(keyring, algorithm, algorithm)  # type: ignore[arg-type]  # it is one
    return keyring


def key_of(keyring: Keyring, algorithm: str) -> Key:
    return keyring.current_key(algorithm, "sign", 0)


def der(key: Any) -> bytes:
    encoded: bytes = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return encoded


@pytest.mark.parametrize("algorithm", SCHEMES)
class TestEachAlgorithm:
    def test_verifies_what_it_signed_and_nothing_else(self, ring: Keyring, algorithm: str) -> None:
        key = key_of(ring, algorithm)
        signature = signer(key, HEAD)(b"rest")
        verify = verifier(key_of(ring, algorithm), HEAD)
        assert verify(b"rest", signature)
        assert not verify(b"rest!", signature)
        assert not verifier(key, b"\x01other")(b"rest", signature)
        for at in (0, len(signature) // 2, len(signature) - 1):
            changed = bytearray(signature)
            changed[at] ^= 1
            assert not verify(b"rest", bytes(changed))

    @pytest.mark.parametrize("odd", [b"", b"\x00", bytes(31), bytes(64), bytes(65), bytes(384), bytes(1000)])
    def test_takes_no_other_length(self, ring: Keyring, algorithm: str, odd: bytes) -> None:
        assert not verifier(key_of(ring, algorithm), HEAD)(b"rest", odd)

    def test_a_signature_that_is_cut_or_longer_does_not_fit(self, ring: Keyring, algorithm: str) -> None:
        key = key_of(ring, algorithm)
        signature, verify = signer(key, HEAD)(b"rest"), verifier(key, HEAD)
        assert not verify(b"rest", signature[:-1])
        assert not verify(b"rest", signature + b"\x00")
        assert not verify(b"rest", b"\x00" + signature)

    def test_knows_its_length(self, ring: Keyring, algorithm: str) -> None:
        key = key_of(ring, algorithm)
        assert len(signer(key, HEAD)(b"rest")) == signature_bytes(key)

    def test_the_public_half_is_enough_to_verify(self, ring: Keyring, algorithm: str) -> None:
        public, left_out = public_part(ring)
        assert not left_out
        assert not public.is_secret
        half = public.verifying_key(algorithm, 1)
        assert verifier(half, HEAD)(b"rest", signer(key_of(ring, algorithm), HEAD)(b"rest"))
        with pytest.raises(KeyringError, match="only its public half"):
            signer(half, HEAD)

    def test_survives_the_file(self, ring: Keyring, algorithm: str) -> None:
        again = decode_keyring(encode_keyring(ring))
        assert key_of(again, algorithm) == key_of(ring, algorithm)

    def test_halves_of_another_algorithm_are_refused(self, ring: Keyring, algorithm: str) -> None:
        for other in SCHEMES:
            if other == algorithm or {other, algorithm} == {"ed25519", "ecdsa-p256"}:
                continue
            with pytest.raises(ValueError, match=f"is {algorithm}: "):
                changed(key_of(ring, algorithm), private=key_of(ring, other).private, public=None)
        with pytest.raises(ValueError, match="no secret"):
            changed(key_of(ring, algorithm), secret=bytes(range(32)))


def changed(key: Key, **changes: Any) -> Key:
    fields = {name: getattr(key, name) for name in key.__struct_fields__}
    return Key(**{**fields, **changes})


class TestEcdsa:
    def test_is_deterministic(self, ring: Keyring) -> None:
        sign = signer(key_of(ring, "ecdsa-p256"), HEAD)
        assert sign(b"rest") == sign(b"rest")

    def test_the_upper_s_is_another_spelling_and_refused(self, ring: Keyring) -> None:
        key = key_of(ring, "ecdsa-p256")
        signature = signer(key, HEAD)(b"rest")
        upper = (P256_ORDER - int.from_bytes(signature[32:], "big")).to_bytes(32, "big")
        assert not verifier(key, HEAD)(b"rest", signature[:32] + upper)

    def test_signs_with_the_lower_s_always(self, ring: Keyring) -> None:
        sign = signer(key_of(ring, "ecdsa-p256"), HEAD)
        found = [int.from_bytes(sign(bytes([at]))[32:], "big") for at in range(32)]
        assert max(found) <= P256_ORDER // 2

    @pytest.mark.parametrize("r", [0, P256_ORDER, 2**256 - 1])
    @pytest.mark.parametrize("s", [0, 1])
    def test_numbers_out_of_range_do_not_fit(self, ring: Keyring, r: int, s: int) -> None:
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
        assert not verifier(key_of(ring, "ecdsa-p256"), HEAD)(b"rest", signature)

    @pytest.mark.parametrize(
        "public",
        [
            b"\x04" + bytes(64),
            b"\x04" + b"\xff" * 64,
            b"\x00" + bytes(64),
            b"\x00",
            ec.derive_private_key(7, ec.SECP256R1())
            .public_key()
            .public_bytes(serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint),
            ec.derive_private_key(7, ec.SECP256K1())
            .public_key()
            .public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint),
        ],
    )
    def test_a_point_elsewhere_is_no_key(self, ring: Keyring, public: bytes) -> None:
        with pytest.raises(ValueError, match="an uncompressed point on P-256"):
            changed(key_of(ring, "ecdsa-p256"), private=None, public=public)

    @pytest.mark.parametrize("number", [0, P256_ORDER, 2**256 - 1, 7])
    def test_a_private_half_that_is_none_or_can_be_guessed(self, ring: Keyring, number: int) -> None:
        with pytest.raises(ValueError, match="its private half"):
            changed(key_of(ring, "ecdsa-p256"), private=number.to_bytes(32, "big"))


class TestRsa:
    @pytest.mark.parametrize(("bits", "exponent"), [(1024, 65537), (2048, 3)])
    def test_weak_keys_are_refused(self, ring: Keyring, bits: int, exponent: int) -> None:
        public = der(rsa.generate_private_key(exponent, bits).public_key())
        with pytest.raises(ValueError, match="2048 to 4096 bits and the exponent 65537"):
            changed(key_of(ring, "rsa-pss-sha256"), private=None, public=public)

    def test_a_key_of_another_kind_in_its_place_is_refused(self, ring: Keyring) -> None:
        public = der(ec.generate_private_key(ec.SECP256R1()).public_key())
        with pytest.raises(ValueError, match="of an RSA key"):
            changed(key_of(ring, "rsa-pss-sha256"), private=None, public=public)

    def test_no_error_shows_the_private_half(self, ring: Keyring) -> None:
        private = key_of(ring, "rsa-pss-sha256").private or b""
        with pytest.raises(ValueError, match="its private half") as raised:
            changed(key_of(ring, "rsa-pss-sha256"), private=private[:-1])
        assert private.hex()[:64] not in str(raised.value)
        assert repr(private)[:40] not in str(raised.value)
