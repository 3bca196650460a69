"""Stolen, expired, forged and misused certificates, and bad policies: refused, or held back undecided."""

from __future__ import annotations

import json
import os
import warnings
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from joserfc import jws
from joserfc.jwk import OctKey, OKPKey, RSAKey, import_key

from headerware import (
    AdmissionError,
    Chain,
    ConfigError,
    Context,
    Headers,
    HeldBackError,
    KeyringError,
    Record,
    SignatureError,
    TimestampType,
)
from headerware.interceptors import Admission, PolicyFile, Sign, Slice, read_policy
from headerware.keyring import (
    Key,
    Keyring,
    certify,
    encode_jwks,
    key_thumbprint,
    public_part,
    read_certificate,
    read_keyring,
    with_new_key,
    with_revocation,
    with_rotation,
)
from headerware.keyring.certificate import TYPE
from headerware.keyring.signature import decode_statement
from headerware.keyring.writing import edit_keyring, write_public_keyring
from tests.forking import succeeds_in_a_child_made_within

NOW = 1_795_392_000_000
NOW_S = NOW // 1_000
HOUR_MS = 3_600_000
ISSUER = "https://issuer.example"
POLICY = """
version = 1
audience = "payments"

[[issuers]]
issuer = "https://issuer.example"
jwks = "issuer.jwks.json"
algorithms = ["Ed25519"]

[[rules]]
effect = "allow"
subjects = ["shop-*"]
topics = ["orders", "orders-*"]

[[rules]]
effect = "deny"
subjects = ["shop-banned"]

[[rules]]
effect = "allow"
subjects = ["tenant-blue"]
headers = { tenant = "blue" }

[[rules]]
effect = "deny"
headers = { class = "secret*" }
"""


class World:
    """A producer with a key, an issuer, a reader with a policy, and a thief with a key of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_ms = NOW
        self.issuer = self._key("issuer", use=("certify",))
        self.shop, self.thief = self._key("shop"), self._key("thief")
        public = folder / "public.json"
        rings = [read_keyring(folder / f"{name}.json") for name in ("shop", "thief")]
        whole = public_part(rings[0])[0].keys + public_part(rings[1])[0].keys
        write_public_keyring(public, type(rings[0])(keys=whole))
        (folder / "issuer.jwks.json").write_bytes(self.issuer_jwks())
        self.policy(POLICY)

    def _key(self, name: str, use: tuple[str, ...] = ("sign",)) -> Key:
        path = self.folder / f"{name}.json"
        return edit_keyring(
            path, lambda ring: with_new_key(ring, name, "ed25519", use=use), create=True
        ).keys[0]

    def issuer_jwks(self) -> bytes:
        return encode_jwks(read_keyring(self.folder / "issuer.json"), use="certify")

    def policy(self, text: str) -> None:
        path = self.folder / "policy.toml"
        (self.folder / "new").write_text(text)
        (self.folder / "new").replace(path)

    def certificate(self, *, key: Key | None = None, at_s: int = NOW_S, **changes: Any) -> str:
        said = {
            "issuer": ISSUER,
            "subject": "shop-1",
            "audience": ["payments"],
            "topics": ["*"],
            "valid_for_s": 3_600,
        }
        now = datetime.fromtimestamp(at_s, UTC)
        return certify(self.issuer, key or self.shop, now=now, **{**said, **changes})

    def forged(self, head: dict[str, Any], key: Any = None, **claims: Any) -> str:
        """Return a token with other headers and claims, signed with a key; None is the issuer's own."""
        genuine = json.loads(_decoded(self.certificate().split(".")[1]))
        payload = json.dumps({name: value for name, value in {**genuine, **claims}.items() if value != ""})
        if head.get("alg") == "none":
            return f"{_encoded(json.dumps(head).encode())}.{_encoded(payload.encode())}.AA"
        own = key or OKPKey.import_key(
            {
                "kty": "OKP",
                "crv": "Ed25519",
                "x": json.loads(self.issuer_jwks())["keys"][0]["x"],
                "d": _encoded(self.issuer.private or b""),
            }
        )
        return jws.serialize_compact(head, payload, own, algorithms=[head["alg"]])

    def sent(
        self, certificate: str, *, signer: str = "shop", headers: Any = (), topic: str = "orders", **more: Any
    ) -> Record:
        """Return a record with a certificate and a signature, as any client can write them."""
        sign = Sign(keyring=str(self.folder / f"{signer}.json"), key_id=signer, cluster="c")
        own = Headers([*headers, ("hw.admit", certificate)])
        step = sign.open(self.context("producer"))
        return step.on_send(Record(topic, b"v", b"k", own)).replace(partition=0, offset=7, **more)

    def context(self, side: Any) -> Context:
        return Context(side=side, now_ms=lambda: self.now_ms)

    def chain(self, **options: Any) -> Chain:
        return Chain(
            [
                Admission(policy=str(self.folder / "policy.toml"), **options),
                Sign(keyring=str(self.folder / "public.json"), require="off", cluster="c"),
            ]
        )

    def read(self, record: Record, **options: Any) -> Record:
        with self.chain(**options).open(self.context("consumer")) as session:
            (found,) = session.consume([record])
            return found


def _decoded(part: str) -> bytes:
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _encoded(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


HEAD = {"alg": "Ed25519", "typ": TYPE, "kid": "issuer:1"}


class TestAdmitted:
    def test_takes_the_header_off(self, world: World) -> None:
        read = world.read(world.sent(world.certificate(), headers=[("a", b"1")]))
        assert read.headers == Headers([("a", b"1")])
        assert read.verified is not None
        assert read.verified.thumbprint == key_thumbprint(world.shop)

    def test_says_whose_certificate_it_was(self, world: World) -> None:
        read = world.read(world.sent(world.certificate()))
        assert read.verified is not None
        assert (read.verified.subject, read.verified.issuer) == ("shop-1", ISSUER)
        assert read.verified.key_id == "shop"

    def test_only_an_admitted_record_has_a_subject(self, world: World) -> None:
        sign = Sign(keyring=str(world.folder / "shop.json"), key_id="shop", cluster="c")
        record = sign.open(world.context("producer")).on_send(Record("orders", b"v", b"k"))
        read = world.read(record.replace(partition=0, offset=7), require="off")
        assert read.verified is not None
        assert (read.verified.subject, read.verified.issuer) == ("", "")

    @pytest.mark.parametrize("batch_records", [1, 64])
    def test_the_version_signs_that_the_certificate_is_for(self, world: World, batch_records: int) -> None:
        """Otherwise all readers would refuse what is sent between a rotation and the new certificate."""
        path, keyring = world.folder / "certificate.jwt", world.folder / "shop.json"
        path.write_text(world.certificate())
        sign = Sign(keyring=str(keyring), key_id="shop", cluster="c", batch_records=batch_records)
        records = [Record("orders", bytes([number]), b"k") for number in range(8)]
        with Chain([Admission(certificate=str(path)), sign]).open(world.context("producer")) as session:

            def versions() -> set[int]:
                outcomes = session.send_outcomes(records)
                assert all(isinstance(each, Record) for each in outcomes), outcomes
                return {
                    decode_statement(b64decode(each.headers.last("hw.sig") or b""))[0].key_version
                    for each in outcomes
                    if isinstance(each, Record)
                }

            assert versions() == {1}
            begins = datetime.fromtimestamp(world.now_ms / 1_000, UTC) + timedelta(minutes=10)
            ring = edit_keyring(keyring, lambda ring: with_rotation(ring, "shop", not_before=begins))
            world.now_ms += HOUR_MS // 4
            assert versions() == {1}, "it has begun, and its certificate is not shown yet"
            path.write_text(world.certificate(key=ring.versions("shop")[-1]))
            world.now_ms += HOUR_MS // 4
            assert versions() == {2}

    @pytest.mark.parametrize("batch_records", [1, 64])
    def test_a_certificate_that_no_version_may_sign_with_yet_is_told(
        self, world: World, batch_records: int
    ) -> None:
        path, keyring = world.folder / "certificate.jwt", world.folder / "shop.json"
        begins = datetime.fromtimestamp(world.now_ms / 1_000, UTC) + timedelta(minutes=10)
        ring = edit_keyring(keyring, lambda ring: with_rotation(ring, "shop", not_before=begins))
        path.write_text(world.certificate(key=ring.versions("shop")[-1]))
        sign = Sign(keyring=str(keyring), key_id="shop", cluster="c", batch_records=batch_records)
        records = [Record("orders", bytes([number]), b"k") for number in range(8)]
        with Chain([Admission(certificate=str(path)), sign]).open(world.context("producer")) as session:
            early = session.send_outcomes(records)
            assert all(isinstance(each, SignatureError) for each in early)
            assert "version 2 is valid from" in str(early[0])
            world.now_ms += HOUR_MS // 4
            assert all(isinstance(each, Record) for each in session.send_outcomes(records))

    @pytest.mark.parametrize("batch_records", [1, 64])
    @pytest.mark.parametrize("fate", ["revoked", "another"])
    def test_a_key_without_its_certificate_signs_nothing(
        self, world: World, batch_records: int, fate: str
    ) -> None:
        path, keyring = world.folder / "certificate.jwt", world.folder / "shop.json"
        stranger = with_new_key(Keyring(), "shop", "ed25519").keys[0]
        path.write_text(world.certificate() if fate == "revoked" else world.certificate(key=stranger))
        ring = edit_keyring(keyring, lambda ring: with_rotation(ring, "shop"))
        edit_keyring(keyring, lambda ring: with_revocation(ring, "shop", version=1))
        sign = Sign(keyring=str(keyring), key_id="shop", cluster="c", batch_records=batch_records)
        records = [Record("orders", bytes([number]), b"k") for number in range(8)]
        with Chain([Admission(certificate=str(path)), sign]).open(world.context("producer")) as session:
            outcomes = session.send_outcomes(records)
            assert all(isinstance(each, SignatureError) for each in outcomes)
            assert "certificate is for another key" in str(outcomes[0])
            path.write_text(world.certificate(key=ring.versions("shop")[-1]))
            world.now_ms += HOUR_MS // 4
            assert all(isinstance(sent, Record) for sent in session.send_outcomes(records))

    def test_from_producer_to_reader_through_both_chains(self, world: World) -> None:
        path = world.folder / "certificate.jwt"
        path.write_text(world.certificate())
        chain = Chain(
            [
                Slice(max_bytes=2_000),
                Admission(certificate=str(path), policy=str(world.folder / "policy.toml")),
                Sign(keyring=str(world.folder / "shop.json"), key_id="shop", cluster="c"),
            ]
        )
        value = bytes(range(256)) * 30
        with chain.open(world.context("producer")) as session:
            made = list(session.send([Record("orders", value, b"k")]))
        assert len(made) > 5
        sizes = [
            len(each.value) + sum(len(name) + len(text or b"") for name, text in each.headers)
            for each in made
        ]
        assert max(sizes) <= 2_000
        placed = [each.replace(partition=0, offset=at) for at, each in enumerate(made)]
        with chain.open(world.context("consumer")) as session:
            (read,) = session.consume(placed)
        assert (read.value, read.verified and read.verified.subject) == (value, "shop-1")

    def test_a_stored_record_is_admitted_after_its_certificate_has_expired(self, world: World) -> None:
        record = world.sent(world.certificate())
        world.now_ms += 24 * HOUR_MS
        assert world.read(record).value == b"v"
        with pytest.raises(AdmissionError, match="expired"):
            world.read(record, valid_at="reading")


class TestStolen:
    def test_a_certificate_from_another_record_needs_its_key(self, world: World) -> None:
        with pytest.raises(AdmissionError, match="for another key than 'thief'"):
            world.read(world.sent(world.certificate(), signer="thief"))

    def test_a_certificate_of_ones_own_cannot_be_put_on_the_record_of_another(self, world: World) -> None:
        record = world.sent(world.certificate())
        headers = [pair for pair in record.headers if pair[0] == "hw.sig"]
        own = ("hw.admit", world.certificate(key=world.thief).encode())
        with pytest.raises(SignatureError, match="does not fit"):
            world.read(record.with_headers(Headers([own, *headers])))

    def test_behind_the_signature_it_is_refused(self, world: World) -> None:
        record = world.sent(world.certificate())
        added = record.with_headers(record.headers.add("hw.admit", world.certificate()))
        with pytest.raises(SignatureError, match="after hw"):
            world.read(added)

    @pytest.mark.parametrize("require", ["enforce", "warn", "off"])
    def test_without_a_signature_it_is_worth_nothing(self, world: World, require: Any) -> None:
        bare = Record("orders", b"v", headers=Headers([("hw.admit", world.certificate())]))
        with pytest.raises(AdmissionError, match="verified signature"):
            world.read(bare, require=require)

    def test_a_replay_is_refused_by_the_signature(self, world: World) -> None:
        record = world.sent(world.certificate())
        sign = Sign(keyring=str(world.folder / "public.json"), cluster="c", replay_window=10)
        chain = Chain([Admission(policy=str(world.folder / "policy.toml")), sign])
        with chain.open(world.context("consumer")) as session:
            assert len(list(session.consume([record]))) == 1
            with pytest.raises(SignatureError, match="replayed"):
                list(session.consume([record.replace(offset=8)]))

    def test_a_refused_record_does_not_make_the_genuine_one_a_replay(self, world: World) -> None:
        record = world.sent(world.certificate())
        sign = Sign(keyring=str(world.folder / "public.json"), cluster="c", replay_window=10)
        chain = Chain([Admission(policy=str(world.folder / "policy.toml")), sign])
        with chain.open(world.context("consumer")) as session:
            copy = record.replace(offset=6, timestamp_ms=NOW + 9 * HOUR_MS, timestamp_type=2)
            with pytest.raises(AdmissionError):
                list(session.consume([copy]))
            assert len(list(session.consume([record]))) == 1


class TestForged:
    @pytest.mark.parametrize("alg", ["none", "HS256"])
    def test_algorithms_without_a_public_key(self, world: World, alg: str) -> None:
        jwks = (world.folder / "issuer.jwks.json").read_bytes()
        for secret in (jwks, _decoded(json.loads(jwks)["keys"][0]["x"])):
            token = world.forged({**HEAD, "alg": alg}, OctKey.import_key(secret))
            with pytest.raises(AdmissionError, match="an algorithm that no issuer may have"):
                world.read(world.sent(token))

    def test_an_algorithm_that_is_not_pinned(self, world: World) -> None:
        token = world.forged({**HEAD, "alg": "RS256"}, RSAKey.generate_key(2048))
        with pytest.raises(AdmissionError, match="may use Ed25519"):
            world.read(world.sent(token))

    def test_an_unknown_issuer(self, world: World) -> None:
        with pytest.raises(AdmissionError, match="an issuer that the policy does not have"):
            world.read(world.sent(world.certificate(issuer="https://evil.example")))

    @pytest.mark.parametrize("kid", ["issuer:1", "other", None])
    def test_another_key_in_the_name_of_the_issuer(self, world: World, kid: str | None) -> None:
        head = {name: value for name, value in {**HEAD, "kid": kid}.items() if value}
        token = world.forged(head, OKPKey.generate_key("Ed25519"))
        with pytest.raises(AdmissionError, match="issuer"):
            world.read(world.sent(token))

    @pytest.mark.parametrize(
        "more", [{"jwk": {}}, {"jku": "https://evil"}, {"crit": ["exp"]}, {"typ": "JWT"}]
    )
    def test_headers_that_bring_a_key_or_another_type(self, world: World, more: dict[str, Any]) -> None:
        genuine = world.certificate().split(".")
        token = f"{_encoded(json.dumps({**HEAD, **more}).encode())}.{genuine[1]}.{genuine[2]}"
        with pytest.raises(AdmissionError, match=r"header cannot be read|another type"):
            world.read(world.sent(token))

    @pytest.mark.parametrize("cut", [1, 10, 60])
    def test_changed_and_truncated(self, world: World, cut: int) -> None:
        token = world.certificate()
        with pytest.raises(AdmissionError):
            world.read(world.sent(token[:-cut]))
        claims = json.loads(_decoded(token.split(".")[1])) | {"sub": "shop-2"}
        head, _, signature = token.split(".")
        with pytest.raises(AdmissionError, match="signature does not fit"):
            world.read(world.sent(f"{head}.{_encoded(json.dumps(claims).encode())}.{signature}"))

    @pytest.mark.parametrize(
        "text", ["", ".", "..", "a.b.c", "{}", "x" * 9_000, "é.é.é", "[" * 5_000, f"{'W' * 6_000}.e30.AA"]
    )
    def test_garbage(self, world: World, text: str) -> None:
        with pytest.raises(AdmissionError) as refused:
            world.read(world.sent(text))
        assert len(str(refused.value)) < 400

    def test_two_certificates(self, world: World) -> None:
        record = world.sent(world.certificate(), headers=[("hw.admit", world.certificate())])
        with pytest.raises(AdmissionError, match="found 2"):
            world.read(record)


_SMALL_ORDER_Y = (0, 1, 2**255 - 20)
"""Three y coordinates of points of small order; for each, one signature fits many texts."""


class TestKeysOfAnIssuerThatProveNothing:
    def policy_of(self, world: World, key: dict[str, Any], alg: str = "Ed25519") -> None:
        path = world.folder / "issuer.jwks.json"
        path.write_text(json.dumps({"keys": [{"kid": "issuer:1", **key}]}))
        world.policy(POLICY.replace("Ed25519", alg))
        read_policy(str(world.folder / "policy.toml"))

    @pytest.mark.parametrize("y", _SMALL_ORDER_Y)
    def test_points_of_small_order(self, world: World, y: int) -> None:
        weak = {"kty": "OKP", "crv": "Ed25519", "x": _encoded(y.to_bytes(32, "little"))}
        with pytest.raises(ConfigError, match=r"issuer:1.* small order"):
            self.policy_of(world, weak)

    @pytest.mark.parametrize(("bits", "exponent"), [(512, 65537), (1024, 65537), (2048, 3), (8192, 65537)])
    def test_rsa_with_a_small_modulus_or_exponent(self, world: World, bits: int, exponent: int) -> None:
        number = (1 << (bits - 1)) + 1
        weak = {
            "kty": "RSA",
            "n": _encoded(number.to_bytes(bits // 8)),
            "e": _encoded(exponent.to_bytes((exponent.bit_length() + 7) // 8)),
        }
        with pytest.raises(ConfigError, match=r"issuer:1.*2048 to 4096 bits and the exponent 65537"):
            self.policy_of(world, weak, "PS256")

    def test_another_curve(self, world: World) -> None:
        with pytest.raises(ConfigError, match="its curve is not Ed25519"):
            self.policy_of(world, OKPKey.generate_key("Ed448").as_dict(private=False), "EdDSA")

    @pytest.mark.parametrize(
        ("members", "said"),
        [
            ({"kty": "OKP", "crv": "Ed25519"}, "it has no x"),
            ({"kty": "OKP", "crv": ["Ed25519"], "x": "AAAA"}, "its curve is not Ed25519"),
            ({"kty": "EC", "crv": ["P-256"], "x": "AAAA", "y": "AAAA"}, "expected a JSON Web Key Set"),
        ],
    )
    def test_without_a_half_or_a_curve(self, world: World, members: dict[str, Any], said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            self.policy_of(world, members)

    def test_the_old_name_of_an_algorithm_counts_and_warns_of_nothing(self, world: World) -> None:
        world.policy(POLICY.replace('"Ed25519"', '"Ed25519", "EdDSA"'))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of joserfc, in signing
            token = world.forged({**HEAD, "alg": "EdDSA"})
            other = world.forged({**HEAD, "alg": "EdDSA"}, OKPKey.generate_key("Ed25519"))
        assert world.read(world.sent(token)).value == b"v"
        with pytest.raises(AdmissionError, match="signature does not fit"):
            world.read(world.sent(other))


class TestFilesOfOthers:
    """Whoever can change a policy, a key set or a token decides who is let in."""

    FILES = ("policy.toml", "issuer.jwks.json")

    @pytest.mark.parametrize("name", FILES)
    @pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
    def test_that_others_can_write_are_refused(self, world: World, name: str, mode: int) -> None:
        (world.folder / name).chmod(mode)
        with pytest.raises(ConfigError, match=rf"{name}: can be written by others \(mode {mode:04o}\)"):
            read_policy(str(world.folder / "policy.toml"))

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
    @pytest.mark.parametrize("name", FILES)
    def test_that_belong_to_others_are_refused(self, world: World, name: str) -> None:
        os.chown(world.folder / name, 12345, -1)
        with pytest.raises(ConfigError, match=rf"{name}: belongs to user 12345"):
            read_policy(str(world.folder / "policy.toml"))

    def test_that_are_opened_to_others_while_they_are_followed_change_nothing(self, world: World) -> None:
        followed = PolicyFile(str(world.folder / "policy.toml"), now_ms=0)
        before = followed.current(0)
        path = world.folder / "policy.toml"
        path.chmod(0o666)
        path.write_text(POLICY.replace("shop-banned", "nobody"))
        assert followed.current(10_000) is before
        assert "can be written by others" in (followed.failure or "")

    def test_of_a_certificate_are_refused_likewise(self, world: World) -> None:
        path = world.folder / "certificate.jwt"
        path.write_text(world.certificate())
        path.chmod(0o666)
        sign = Sign(keyring=str(world.folder / "shop.json"), key_id="shop", cluster="c")
        with pytest.raises(ConfigError, match="can be written by others"):
            Chain([Admission(certificate=str(path)), sign]).open(world.context("producer"))


class TestBearer:
    @pytest.mark.parametrize("cnf", ["", {}, {"jwk": {}}, {"jkt": "short"}, {"jkt": "a" * 43, "kid": "x"}])
    def test_is_refused_by_readers_and_senders(self, world: World, cnf: Any) -> None:
        token = world.forged(HEAD, cnf=cnf)
        with pytest.raises(AdmissionError, match=r"bearer token|claims cannot be read"):
            world.read(world.sent(token))
        path = world.folder / "bearer.jwt"
        path.write_text(token)
        chain = Chain(
            [
                Admission(certificate=str(path)),
                Sign(keyring=str(world.folder / "shop.json"), key_id="shop", cluster="c"),
            ]
        )
        with pytest.raises(ConfigError) as refused:
            chain.open(world.context("producer"))
        assert token[:20] not in str(refused.value)

    def test_the_error_does_not_show_the_token(self, world: World) -> None:
        token = world.forged(HEAD, cnf="")
        with pytest.raises(AdmissionError) as refused:
            world.read(world.sent(token))
        assert token[10:30] not in str(refused.value)


class TestClaims:
    def test_expired_when_it_was_signed(self, world: World) -> None:
        old = world.certificate(at_s=NOW_S - 7_200)
        with pytest.raises(AdmissionError, match="expired 3600000 ms before"):
            world.read(world.sent(old))

    def test_backdated_but_stored_late_by_the_brokers_clock(self, world: World) -> None:
        record = world.sent(world.certificate())
        late = record.replace(
            timestamp_ms=NOW + 2 * HOUR_MS, timestamp_type=int(TimestampType.LOG_APPEND_TIME)
        )
        world.now_ms += 2 * HOUR_MS
        with pytest.raises(AdmissionError, match="before the broker stored"):
            world.read(late)

    def test_not_valid_yet(self, world: World) -> None:
        with pytest.raises(AdmissionError, match="not valid yet"):
            world.read(world.sent(world.certificate(at_s=NOW_S + 600)))

    def test_valid_for_too_long(self, world: World) -> None:
        with pytest.raises(AdmissionError, match="max_lifetime_s"):
            world.read(world.sent(world.certificate(valid_for_s=86_401)))

    def test_valid_for_too_long_by_an_earlier_first_moment(self, world: World) -> None:
        """`iat` alone is what the issuer says; all of the time in which it is valid counts."""
        early = world.forged(HEAD, nbf=NOW_S - 86_400, exp=NOW_S + 3_600)
        with pytest.raises(AdmissionError, match="valid for 90000 s; max_lifetime_s"):
            world.read(world.sent(early))

    def test_issued_in_the_future(self, world: World) -> None:
        ahead = world.forged(HEAD, iat=NOW_S + 61, nbf=NOW_S - 10)
        with pytest.raises(AdmissionError, match="issued in the future"):
            world.read(world.sent(ahead))
        assert world.read(world.sent(world.forged(HEAD, iat=NOW_S + 60, nbf=NOW_S - 10))).value == b"v"

    def test_another_audience(self, world: World) -> None:
        with pytest.raises(
            AdmissionError, match="for another audience, 'staging', than the policy's, 'payments'"
        ):
            world.read(world.sent(world.certificate(audience=["staging"])))
        both = world.certificate(audience=["staging", "payments"])
        assert world.read(world.sent(both)).value == b"v"

    def test_another_topic(self, world: World) -> None:
        with pytest.raises(AdmissionError, match="not for topic 'orders'"):
            world.read(world.sent(world.certificate(topics=["clicks"])))
        with pytest.raises(AdmissionError, match="not for topic 'orders'"):
            world.read(world.sent(world.certificate(topics=["*", "!orders"])))

    @pytest.mark.parametrize(
        "changes",
        [{"exp": NOW_S - 1}, {"iat": -1}, {"exp": 1e300}, {"topics": []}, {"topics": ["!a"]}]
        + [{"topics": ["(a|b)"]}]
        + [{name: ""} for name in ("iss", "sub", "aud", "exp", "iat", "topics")],
    )  # fmt: skip
    def test_claims_that_are_missing_or_contradict_each_other(
        self, world: World, changes: dict[str, Any]
    ) -> None:
        with pytest.raises(AdmissionError):
            world.read(world.sent(world.forged(HEAD, **changes)))


class TestRules:
    def test_what_no_rule_speaks_of_is_denied(self, world: World) -> None:
        with pytest.raises(AdmissionError, match="no rule allows"):
            world.read(world.sent(world.certificate(subject="somebody")))
        with pytest.raises(AdmissionError, match="no rule allows"):
            world.read(world.sent(world.certificate(), topic="clicks"))

    def test_brackets_are_no_classes_of_characters(self, world: World) -> None:
        """A rule for the subject `svc[1]` let in `svc1`, and not whom it names."""
        world.policy(POLICY.replace('"shop-*"', '"svc[1]"'))
        with pytest.raises(AdmissionError, match="no rule allows"):
            world.read(world.sent(world.certificate(subject="svc1")))
        assert world.read(world.sent(world.certificate(subject="svc[1]"))).value == b"v"

    def test_a_denial_outweighs_whatever_stands_before_or_behind_it(self, world: World) -> None:
        with pytest.raises(AdmissionError, match="a rule denies"):
            world.read(world.sent(world.certificate(subject="shop-banned")))

    @pytest.mark.parametrize(
        ("headers", "admitted"),
        [
            ([("tenant", b"blue")], True),
            ([], False),
            ([("tenant", b"red")], False),
            ([("tenant", b"blue"), ("tenant", b"red")], False),
            ([("tenant", b"red"), ("tenant", b"blue")], False),
            ([("Tenant", b"blue")], False),
            ([("tenant", None)], False),
            ([("tenant", b"\xff")], False),
            ([("tenant", b"blue"), ("class", b"secret-1")], False),
            ([("tenant", b"blue"), ("CLASS", b"secret")], False),
            ([("tenant", b"blue"), ("class", b"secret"), ("class", b"open")], False),
            ([("tenant", b"blue"), ("class", b"\xff")], False),
            ([("tenant", b"blue"), ("class", b"open")], True),
        ],
    )
    def test_headers(self, world: World, headers: Any, admitted: bool) -> None:  # noqa: FBT001 - a case
        record = world.sent(world.certificate(subject="tenant-blue"), headers=headers)
        if admitted:
            assert world.read(record).value == b"v"
        else:
            with pytest.raises(AdmissionError, match="rule"):
                world.read(record)


class TestMissing:
    def test_is_refused_or_counted(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        sign = Sign(keyring=str(world.folder / "shop.json"), key_id="shop", cluster="c")
        record = sign.open(world.context("producer")).on_send(Record("orders", b"v", b"k"))
        with pytest.raises(AdmissionError, match="found 0"):
            world.read(record)
        with world.chain(require="warn").open(world.context("consumer")) as session:
            assert len(list(session.consume([record, record]))) == 2
            assert session.stats()["admission"]["missing"] == 2
        assert caplog.text.count("without a certificate") == 1


class TestPolicyFile:
    def test_a_bad_one_is_refused_and_the_old_one_goes_on(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        record = world.sent(world.certificate())
        with world.chain().open(world.context("consumer")) as session:
            for bad in (
                "version = 2",
                "not toml",
                POLICY.replace('"allow"', '"maybe"'),
                POLICY + "x = 1",
                "version = " + "[" * 10_000,
                "version = " + "1" * 10_000,
            ):
                world.policy(bad)
                world.now_ms += 1_000
                assert len(list(session.consume([record]))) == 1
            world.policy(POLICY.replace("shop-*", "nobody"))
            world.now_ms += 1_000
            with pytest.raises(AdmissionError, match="no rule allows"):
                list(session.consume([record]))
            stats = session.stats()["admission"]
        assert (stats["reloads"], stats["reload_failures"]) == (1, 6)
        assert "the last good policy stays in use" in caplog.text

    @pytest.mark.parametrize("moment", ["before it is opened", "later"])
    def test_of_one_that_is_written_in_place_no_half_counts(
        self, world: World, moment: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first half of this one has no denial, and is valid by itself."""
        path = world.folder / "policy.toml"
        half = POLICY.partition('[[rules]]\neffect = "deny"')[0]
        record = world.sent(world.certificate(subject="shop-banned"))
        texts = [half[:20], half, POLICY]

        def write_on(_: float = 0) -> None:
            path.write_text(texts.pop(0)) if texts else None

        monkeypatch.setattr(
            "headerware.core.file_versions.time",
            SimpleNamespace(time=lambda: path.stat().st_ctime, monotonic=lambda: 0.0, sleep=write_on),
        )
        if moment == "later":
            session = world.chain().open(world.context("consumer"))
            texts[:] = [half[:20], half, POLICY + "# changed"]
            write_on()
            world.now_ms += 1_000
        else:
            write_on()
            session = world.chain().open(world.context("consumer"))
        with session, pytest.raises(AdmissionError, match="a rule denies"):
            list(session.consume([record]))
        assert not texts

    def test_one_that_is_always_written_leaves_the_old_one_in_force(
        self, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = world.folder / "policy.toml"
        file = PolicyFile(str(path), now_ms=NOW)
        before, now = file.current(NOW), count()

        def write(_: float = 0) -> None:
            path.write_text(path.read_text() + "#")

        with monkeypatch.context() as patching:
            patching.setattr(
                "headerware.core.file_versions.time", SimpleNamespace(monotonic=now.__next__, sleep=write)
            )
            write()
            assert file.current(NOW + 1_000) is before
        assert "it is being written; the last good policy stays in use" in caplog.text
        assert file.current(NOW + 2_000) is not before

    def test_one_that_says_how_it_ends_counts_whole_or_not_at_all(self, world: World) -> None:
        """Whoever stops half-way leaves a file that stays as it is."""
        text = f'last_line = "# end"\n{POLICY.strip()}\n# end\n'
        path = world.folder / "policy.toml"
        for length in range(len(text) - 1):
            path.write_text(text[:length])
            with pytest.raises(ConfigError):
                read_policy(str(path))
        path.write_text(text)
        read_policy(str(path))

    @pytest.mark.parametrize(
        ("text", "match"),
        [
            (
                f"{POLICY}\n# end".replace("version = 1", 'version = 1\nlast_line = "# end"'),
                "this key before all others",
            ),
            (f'last_line = "end"\n{POLICY}', "expected a comment"),
            (f'last_line = "# end"\n# end\n{POLICY}\n# end', "and nowhere else"),
        ],
    )
    def test_an_end_that_tells_nothing_is_refused(self, world: World, text: str, match: str) -> None:
        world.policy(text)
        with pytest.raises(ConfigError, match=match):
            read_policy(str(world.folder / "policy.toml"))

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ("audience", "audiense", "policy.toml:3:1: audiense: unknown key; did you mean 'audience'?"),
            ("jwks", "jwk", "policy.toml:7:1: issuers[0].jwk: unknown key; did you mean 'jwks'?"),
            ("effect", "efect", "policy.toml:11:1: rules[0].efect: unknown key; did you mean 'effect'?"),
            ('"allow"', '"maybe"', "policy.toml:11:1: rules[0].effect: expected "),
        ],
    )
    def test_what_is_wrong_is_said_with_its_place_and_the_nearest_name(
        self, world: World, old: str, new: str, said: str
    ) -> None:
        world.policy(POLICY.replace(old, new, 1))
        with pytest.raises(ConfigError) as caught:
            read_policy(str(world.folder / "policy.toml"))
        assert said in str(caught.value)
        assert "maybe" not in str(caught.value)

    def test_an_issuers_key_that_is_taken_away_no_longer_counts(self, world: World) -> None:
        record = world.sent(world.certificate())
        with world.chain().open(world.context("consumer")) as session:
            assert len(list(session.consume([record]))) == 1
            other = OKPKey.generate_key("Ed25519", {"kid": "issuer:2"}).as_dict(private=False)
            (world.folder / "issuer.jwks.json").write_text(json.dumps({"keys": [other]}))
            world.now_ms += 1_000
            with pytest.raises(AdmissionError, match="a key that its issuer does not have"):
                list(session.consume([record]))

    def test_a_key_that_was_added_a_moment_ago_counts_at_once(self, world: World) -> None:
        jwks = world.folder / "issuer.jwks.json"
        real = jwks.read_text()
        other = OKPKey.generate_key("Ed25519", {"kid": "other"}).as_dict(private=False)
        jwks.write_text(json.dumps({"keys": [other]}))
        record = world.sent(world.certificate())
        with world.chain().open(world.context("consumer")) as session:
            jwks.write_text(real)
            world.now_ms += 150
            assert len(list(session.consume([record]))) == 1

    def test_an_unknown_key_waits_while_the_key_set_cannot_be_read(self, world: World) -> None:
        jwks = world.folder / "issuer.jwks.json"
        real = jwks.read_text()
        other = OKPKey.generate_key("Ed25519", {"kid": "other"}).as_dict(private=False)
        jwks.write_text(json.dumps({"keys": [other]}))
        record = world.sent(world.certificate())
        with world.chain().open(world.context("consumer")) as session:
            jwks.unlink()
            world.now_ms += 1_000
            with pytest.raises(HeldBackError):
                list(session.consume([record]))
            jwks.write_text(real)
            world.now_ms += 1_000
            assert len(list(session.consume([record]))) == 1

    def test_a_child_that_is_forked_during_a_look_sees_a_denial(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = PolicyFile(str(world.folder / "policy.toml"), now_ms=NOW)
        before = file.current(NOW)
        world.policy(POLICY.replace("shop-banned", "shop-*"))
        assert succeeds_in_a_child_made_within(
            monkeypatch,
            "headerware.interceptors.admission.policy.read_toml",
            lambda: file.current(NOW + 2_000),
            lambda: file.current(NOW + 9_000) is not before,
        )

    @pytest.mark.parametrize("kind", ["private", "secret", "empty", "garbage"])
    def test_key_sets_that_hold_what_readers_must_not_have(self, world: World, kind: str) -> None:
        keys: dict[str, Any] = {
            "private": {"keys": [OKPKey.generate_key("Ed25519").as_dict(private=True)]},
            "secret": {"keys": [OctKey.generate_key(256).as_dict(private=True)]},
            "empty": {"keys": []},
            "garbage": {"keys": [{"kty": "none"}]},
        }
        (world.folder / "issuer.jwks.json").write_text(json.dumps(keys[kind]))
        with pytest.raises(ConfigError):
            read_policy(str(world.folder / "policy.toml"))

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ('["Ed25519"]', '["HS256"]'),
            ('["Ed25519"]', "[]"),
            ('"payments"', '""'),
            ("issuer.jwks.json", "missing.json"),
            ('["orders", "orders-*"]', '["orders-.*"]'),
        ],
    )
    def test_mistakes_are_refused_on_opening(self, world: World, before: str, after: str) -> None:
        world.policy(POLICY.replace(before, after))
        with pytest.raises(ConfigError):
            PolicyFile(str(world.folder / "policy.toml"))

    def test_a_pipe_or_a_huge_file_holds_nobody_up(self, world: World) -> None:
        path = world.folder / "policy.toml"
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(ConfigError, match="cannot be read"):
            read_policy(str(path))
        path.unlink()
        path.write_bytes(b"#" * (2 << 20))
        with pytest.raises(ConfigError, match="larger"):
            read_policy(str(path))


class TestSending:
    def open(self, world: World, text: str) -> Callable[[str], list[Record]]:
        path = world.folder / "certificate.jwt"
        path.write_text(text)
        own = [
            Admission(certificate=str(path)),
            Sign(keyring=str(world.folder / "shop.json"), key_id="shop", cluster="c"),
        ]
        session = Chain(own).open(world.context("producer"))
        return lambda topic: list(session.send([Record(topic, b"v", b"k")]))

    def test_an_expired_certificate_is_a_clear_error_until_it_is_replaced(self, world: World) -> None:
        send = self.open(world, world.certificate())
        assert send("orders")[0].headers.names() == ("hw.admit", "hw.sig")
        world.now_ms += HOUR_MS + 1
        with pytest.raises(AdmissionError, match="issued anew"):
            send("orders")
        (world.folder / "certificate.jwt").write_text(world.certificate(at_s=NOW_S + 3_600))
        world.now_ms += 1_000
        assert len(send("orders")) == 1

    def test_a_bad_replacement_leaves_the_old_one(self, world: World) -> None:
        send = self.open(world, world.certificate())
        (world.folder / "certificate.jwt").write_text("garbage")
        world.now_ms += 1_000
        assert len(send("orders")) == 1

    def test_a_topic_that_it_is_not_for(self, world: World) -> None:
        send = self.open(world, world.certificate(topics=["orders"]))
        with pytest.raises(AdmissionError, match="not for topic 'clicks'"):
            send("clicks")

    def test_a_chain_that_does_not_sign_is_refused(self, world: World) -> None:
        with pytest.raises(ConfigError, match="no step here signs"):
            Chain([Admission(policy=str(world.folder / "policy.toml"))]).open(world.context("consumer"))

    @pytest.mark.parametrize("side", ["producer", "consumer"])
    def test_each_side_needs_its_file(self, world: World, side: Any) -> None:
        chain = Chain([Admission(), Sign(keyring=str(world.folder / "shop.json"), key_id="shop")])
        with pytest.raises(ConfigError, match=r"interceptors\.admission\.(certificate|policy)"):
            chain.open(world.context(side))


class TestIssuing:
    def test_a_key_for_signing_records_cannot_certify(self, world: World) -> None:
        with pytest.raises(KeyringError, match="cannot certify"):
            certify(world.shop, world.thief, issuer=ISSUER, subject="x", audience=["payments"], topics=["*"])

    def test_an_issuers_key_signs_no_records(self, world: World) -> None:
        with pytest.raises(KeyringError, match="for certify"):
            Sign(keyring=str(world.folder / "issuer.json"), key_id="issuer").open(world.context("producer"))

    def test_hmac_proves_nobodys_identity(self, world: World) -> None:
        path = world.folder / "hmac.json"
        key = edit_keyring(path, lambda ring: with_new_key(ring, "h", "hmac-sha256"), create=True).keys[0]
        with pytest.raises(KeyringError, match="can also sign"):
            world.certificate(key=key)

    def test_a_time_of_issue_without_a_zone_is_refused(self, world: World) -> None:
        local = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
        said: Any = {"issuer": ISSUER, "subject": "x", "audience": ["payments"], "topics": ["*"]}
        with pytest.raises(KeyringError, match=r"^now: expected a moment with a time zone"):
            certify(world.issuer, world.shop, now=local, **said)

    def test_a_certificate_says_what_was_asked_for(self, world: World) -> None:
        found = read_certificate(world.certificate())
        assert (found.issuer, found.subject, found.topics) == (ISSUER, "shop-1", ("*",))
        assert found.thumbprint == key_thumbprint(world.shop)

    @pytest.mark.parametrize("algorithm", ["ed25519", "ecdsa-p256", "rsa-pss-sha256"])
    def test_thumbprints_are_those_of_the_library(self, world: World, algorithm: Any) -> None:
        path = world.folder / "other.json"
        ring = edit_keyring(path, lambda ring: with_new_key(ring, "o", algorithm), create=True)
        jwk = json.loads(encode_jwks(public_part(ring)[0]))["keys"][0]
        assert key_thumbprint(ring.keys[0]) == import_key(jwk).thumbprint()
        assert (
            read_certificate(world.certificate(key=ring.keys[0])).thumbprint == import_key(jwk).thumbprint()
        )
