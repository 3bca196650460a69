from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey

from headerware.core.errors import KeyringError
from headerware.keyring import (
    Keyring,
    decode_keyring,
    encode_jwks,
    public_part,
    read_keyring,
    with_new_key,
    with_revocation,
    with_rotation,
)
from headerware.keyring.jwks import require_encoding
from headerware.keyring.signature import signer, verifier
from headerware.keyring.writing import edit_keyring, write_public_keyring

ALGORITHMS: tuple[Any, ...] = ("ed25519", "ecdsa-p256", "rsa-pss-sha256")


@pytest.fixture(scope="module")
def ring() -> Keyring:
    keyring = Keyring()
    for algorithm in ALGORITHMS:
        keyring = with_new_key(keyring, algorithm, algorithm)
    return with_rotation(keyring, "ed25519")


@pytest.fixture(scope="module")
def jwks(ring: Keyring) -> Any:
    return json.loads(encode_jwks(ring))


def one(jwks: Any, of: str, **changes: Any) -> bytes:
    """Return a JWKS of one key with changes; None takes a member out."""
    members = {**next(key for key in jwks["keys"] if key["alg"] == of), **changes}
    return json.dumps(
        {"keys": [{name: value for name, value in members.items() if value is not None}]}
    ).encode()


class TestJwks:
    def test_holds_the_public_halves_alone(self, ring: Keyring, jwks: Any) -> None:
        assert [key["kid"] for key in jwks["keys"]] == [
            "ed25519:1",
            "ecdsa-p256:1",
            "rsa-pss-sha256:1",
            "ed25519:2",
        ]
        assert [key["alg"] for key in jwks["keys"]] == ["EdDSA", "ES256", "PS256", "EdDSA"]
        assert not [name for key in jwks["keys"] for name in key if name in {"d", "p", "q", "k"}]

    def test_another_library_reads_it(self, jwks: Any) -> None:
        assert [key.kid for key in KeySet.import_key_set(jwks).keys] == [k["kid"] for k in jwks["keys"]]

    @pytest.mark.parametrize("algorithm", ALGORITHMS)
    def test_its_keys_verify(self, ring: Keyring, algorithm: str) -> None:
        key = decode_keyring(encode_jwks(ring)).verifying_key(algorithm, 1)
        signed = signer(ring.verifying_key(algorithm, 1), b"\x01h")(b"rest")
        assert verifier(key, b"\x01h")(b"rest", signed)
        assert key.status == "retired"
        assert not key.is_secret

    def test_a_kid_without_a_version_is_version_1(self, jwks: Any) -> None:
        (key,) = decode_keyring(one(jwks, "ES256", kid="https://keys.example/a")).keys
        assert (key.id, key.version) == ("https://keys.example/a", 1)

    def test_two_names_for_one_version_are_refused(self, jwks: Any) -> None:
        twice = [{**jwks["keys"][0], "kid": kid} for kid in ("a", "a:1")]
        with pytest.raises(KeyringError, match="appears twice"):
            decode_keyring(json.dumps({"keys": twice}).encode())

    def test_unknown_members_are_passed_over(self, jwks: Any) -> None:
        assert decode_keyring(one(jwks, "ES256", x5t="AAAA", note=1)).keys[0].algorithm == "ecdsa-p256"

    @pytest.mark.parametrize(
        ("alg", "changes", "expected"),
        [
            ("ES256", {"kid": None}, "no kid"),
            ("ES256", {"kid": ""}, "no kid"),
            ("ES256", {"kid": 7}, "no kid"),
            ("ES256", {"kid": "a\nb"}, "printable"),
            ("ES256", {"kid": "a:65536"}, "1 to 65535"),
            ("ES256", {"alg": None}, "expected alg Ed25519, EdDSA, ES256, PS256"),
            ("ES256", {"alg": "none"}, "expected alg Ed25519, EdDSA, ES256, PS256"),
            ("ES256", {"alg": "HS256"}, "expected alg Ed25519, EdDSA, ES256, PS256"),
            ("PS256", {"alg": "RS256"}, "expected alg Ed25519, EdDSA, ES256, PS256"),
            ("PS256", {"alg": ["PS256"]}, "expected alg Ed25519, EdDSA, ES256, PS256"),
            ("ES256", {"alg": "PS256"}, "expected kty RSA"),
            ("ES256", {"alg": "EdDSA"}, "expected kty OKP and crv Ed25519"),
            ("ES256", {"kty": "oct"}, "expected kty EC"),
            ("ES256", {"kty": "AKP"}, "expected kty EC"),
            ("ES256", {"crv": "P-384"}, "crv P-256"),
            ("EdDSA", {"crv": "X25519"}, "crv Ed25519"),
            ("ES256", {"use": "enc"}, "not for verifying"),
            ("ES256", {"key_ops": ["encrypt"]}, "not for verifying"),
            ("ES256", {"key_ops": 7}, "not for verifying"),
            ("ES256", {"key_ops": "verify"}, "not for verifying"),
            ("ES256", {"x": None}, "check x, y"),
            ("EdDSA", {"x": None}, "it has no x"),
            ("ES256", {"x": "AAAA"}, "of the length in RFC 7518"),
            ("ES256", {"y": "A" * 43}, "is not a valid"),
            ("EdDSA", {"x": "A" * 42}, "of the length in RFC 7518"),
            ("EdDSA", {"x": "A" * 43}, "small order"),
            ("EdDSA", {"d": "A" * 43}, "private members"),
            ("PS256", {"k": "AAAA"}, "private members"),
            ("PS256", {"e": "Aw"}, "exponent 65537"),
            ("PS256", {"n": "gA" + "A" * 168 + "E"}, "2048 to 4096 bits"),
        ],
    )
    def test_refuses_what_may_not_verify(
        self, jwks: Any, alg: str, changes: dict[str, Any], expected: str
    ) -> None:
        with pytest.raises(KeyringError, match=f"is no keyring: .*{expected}"):
            decode_keyring(one(jwks, alg, **changes))

    def test_says_which_key_is_wrong(self, jwks: Any) -> None:
        keys = [*jwks["keys"][:2], {**jwks["keys"][2], "use": "enc"}]
        with pytest.raises(KeyringError, match=r"is no keyring: keys\[2\]: it is not for verifying"):
            decode_keyring(json.dumps({"keys": keys}).encode())

    @pytest.mark.parametrize("members", [{"x": 7}, {"n": None}, {"x": "\xff"}, {"e": []}])
    def test_an_encoding_of_other_types_is_refused(self, members: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="is not base64url in the one valid encoding"):
            require_encoding(members)

    @pytest.mark.parametrize("curve", ["another", [], 7, None])
    def test_a_coordinate_of_an_unknown_curve_may_have_any_length(self, curve: Any) -> None:
        require_encoding({"x": "AAAA", "crv": curve})

    def test_no_error_shows_a_private_member(self) -> None:
        private = OKPKey.generate_key("Ed25519").as_dict(private=True)
        text = json.dumps({"keys": [{**private, "kid": "a", "alg": "EdDSA"}]}).encode()
        with pytest.raises(KeyringError) as raised:
            decode_keyring(text)
        assert str(private["d"]) not in str(raised.value)

    def test_keys_of_others_are_read(self) -> None:
        made: list[tuple[Any, str]] = [
            (OKPKey.generate_key("Ed25519"), "Ed25519"),
            (ECKey.generate_key("P-256"), "ES256"),
            (RSAKey.generate_key(2048), "PS256"),
        ]
        listed = [{**key.as_dict(private=False), "kid": alg, "alg": alg, "use": "sig"} for key, alg in made]
        found = decode_keyring(json.dumps({"keys": listed}).encode()).keys
        assert [key.algorithm for key in found] == list(ALGORITHMS)

    def test_without_joserfc_it_says_what_to_install(
        self, ring: Keyring, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "joserfc", None)
        with pytest.raises(KeyringError, match=r"reading or writing a JWKS needs joserfc: run .*jose"):
            encode_jwks(ring)


class TestWhatAJwksCannotSay:
    def test_is_not_written_as_one(self) -> None:
        limited = with_new_key(Keyring(), "a", "ed25519", topics=("orders",))
        timed = with_new_key(Keyring(), "a", "ed25519", not_after=datetime(2099, 1, 1, tzinfo=UTC))
        revoked = with_revocation(with_new_key(Keyring(), "a", "ed25519"), "a")
        for keyring, expected in ((limited, "limits"), (timed, "limits"), (revoked, "revoked")):
            with pytest.raises(KeyringError, match=expected):
                encode_jwks(public_part(keyring)[0])

    def test_but_a_beginning_is_left_out_for_readers_need_the_key_before(self) -> None:
        later = with_new_key(Keyring(), "a", "ed25519", not_before=datetime(2099, 1, 1, tzinfo=UTC))
        (read,) = decode_keyring(encode_jwks(public_part(later)[0])).keys
        assert (read.public, read.not_before) == (later.keys[0].public, None)

    def test_hmac_has_no_public_half(self) -> None:
        with pytest.raises(KeyringError, match="no public half"):
            encode_jwks(with_new_key(Keyring(), "a", "hmac-sha256"))


class TestJwksFile:
    def test_is_read_like_a_keyring(self, ring: Keyring, tmp_path: Path) -> None:
        path = tmp_path / "keys.jwks"
        write_public_keyring(path, public_part(ring)[0], encode=encode_jwks)
        assert {key.id for key in read_keyring(path).keys} == set(ALGORITHMS)
        write_public_keyring(path, public_part(ring)[0], encode=encode_jwks)  # again, over the old one

    def test_is_not_edited_into_a_keyring(self, ring: Keyring, tmp_path: Path) -> None:
        path = tmp_path / "keys.jwks"
        write_public_keyring(path, public_part(ring)[0], encode=encode_jwks)
        before = path.read_bytes()
        with pytest.raises(KeyringError, match="its format is not"):
            edit_keyring(path, lambda ring: with_rotation(ring, "ed25519"))
        assert path.read_bytes() == before

    def test_that_others_can_write_is_refused(self, ring: Keyring, tmp_path: Path) -> None:
        path = tmp_path / "keys.jwks"
        write_public_keyring(path, public_part(ring)[0], encode=encode_jwks)
        path.chmod(0o666)
        with pytest.raises(KeyringError, match="can be written by others"):
            read_keyring(path)
