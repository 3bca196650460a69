"""What an attacker can do to a signed record, and that each of it is refused, for both algorithms."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headerware.core.context import Context
from headerware.core.errors import SignatureError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors.sign import Sign, SignStep
from headerware.interceptors.sign_replay import PRODUCERS_MAX, ReplayWindow
from headerware.keyring import Key, Keyring, encode_keyring, read_keyring, with_new_key, with_revocation
from headerware.keyring.signature import Statement, beginning, encode_stamp, rest_of_signed_bytes

HEADERS = Headers([("tenant", b"blue"), ("type", b"json"), ("note", None), ("empty", b"")])
RECORD = Record("orders", b'{"id":1}', b"k-1", HEADERS, partition=3, offset=1042)
SIGNATURE_BYTES = {"hmac": 32, "ed": 64}

pytestmark = pytest.mark.parametrize("key_id", ["hmac", "ed"])


def ring() -> Keyring:
    return with_new_key(with_new_key(Keyring(), "hmac", "hmac-sha256"), "ed", "ed25519")


def saved(path: Path, keyring: Keyring) -> Path:
    path.write_bytes(encode_keyring(keyring))
    path.chmod(0o600)
    return path


def opened(path: Path, key_id: str | None = None, **options: Any) -> SignStep:
    return Sign(keyring=str(path), key_id=key_id, **options).open(Context(now_ms=lambda: 1000))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return saved(tmp_path / "keys.json", ring())


@pytest.fixture
def reader(path: Path) -> SignStep:
    return opened(path, cluster="prod")


@pytest.fixture
def signed(path: Path, key_id: str) -> Record:
    return opened(path, key_id, cluster="prod").on_send(RECORD)


def refused(reader: SignStep, record: Record, match: str = "does not fit the record") -> None:
    with pytest.raises(SignatureError, match=match):
        reader.on_consume(record)


def signature_of(record: Record) -> bytes:
    value = record.headers.last("hw.sig")
    assert value is not None
    return value


def with_signature(record: Record, value: bytes | None) -> Record:
    return record.with_headers(Headers([*record.headers[:-1], ("hw.sig", value)]))


class TestTampering:
    @pytest.mark.parametrize(
        "changes",
        [
            {"value": b'{"id":2}'},
            {"value": None},
            {"value": b""},
            {"key": b"k-2"},
            {"key": None},
            {"key": b""},
            {"key": b"k-1{", "value": b'"id":1}'},
            {"key": b"", "value": b'k-1{"id":1}'},
        ],
    )
    def test_key_and_value(self, reader: SignStep, signed: Record, changes: dict[str, Any]) -> None:
        refused(reader, signed.replace(**changes))

    @pytest.mark.parametrize("before", [None, b""])
    @pytest.mark.parametrize("field", ["key", "value"])
    def test_null_and_empty_are_not_swapped(
        self, path: Path, reader: SignStep, key_id: str, field: str, before: bytes | None
    ) -> None:
        signed = opened(path, key_id, cluster="prod").on_send(RECORD.replace(**{field: before}))
        refused(reader, signed.replace(**{field: b"" if before is None else None}))

    @pytest.mark.parametrize(
        "headers",
        [
            [("tenant", b"red"), *HEADERS[1:]],
            [("Tenant", b"blue"), *HEADERS[1:]],
            [("tenan", b"tblue"), *HEADERS[1:]],
            [HEADERS[1], HEADERS[0], *HEADERS[2:]],
            [*HEADERS[:2], ("note", b""), HEADERS[3]],
            [*HEADERS[:3], ("empty", None)],
            HEADERS[1:],
            HEADERS[:-1],
            [],
            [("x", b"1"), *HEADERS],
            [*HEADERS, ("x", b"1")],
            [*HEADERS, HEADERS[3]],
        ],
    )
    def test_headers(self, reader: SignStep, signed: Record, headers: list[Any]) -> None:
        refused(reader, signed.with_headers(Headers([*headers, signed.headers[-1]])))

    def test_what_the_broker_decides_is_not_covered(self, reader: SignStep, signed: Record) -> None:
        moved = signed.replace(partition=9, offset=1, timestamp_ms=5, timestamp_type=2)
        assert reader.on_consume(moved).headers == HEADERS


class TestAddedHeaders:
    @pytest.mark.parametrize("name", ["tenant", "note", "empty", "hw.expires", "hw.", "hw.trail"])
    def test_a_covered_or_reserved_name_is_refused(self, reader: SignStep, signed: Record, name: str) -> None:
        refused(reader, signed.with_headers(signed.headers.add(name, b"x")), "added behind hw.sig")

    @pytest.mark.parametrize("name", ["x", "", "hw", "Tenant", "hwsig"])
    def test_another_name_passes(self, reader: SignStep, signed: Record, name: str) -> None:
        read = reader.on_consume(signed.with_headers(signed.headers.add(name, b"x")))
        assert read.headers == HEADERS.add(name, b"x")

    def test_a_covered_header_does_not_move_behind(self, reader: SignStep, signed: Record) -> None:
        refused(reader, signed.with_headers(Headers([*signed.headers[1:], signed.headers[0]])))

    def test_a_second_signature_does_not_hide_behind_another_header(
        self, reader: SignStep, signed: Record
    ) -> None:
        pairs = [*signed.headers, signed.headers[-1], ("x", b"1")]
        refused(reader, signed.with_headers(Headers(pairs)), "begins with hw")

    @pytest.mark.parametrize("at", [0, 2, 4, 5])
    def test_two_signatures_are_refused(self, reader: SignStep, signed: Record, at: int) -> None:
        pairs = list(signed.headers)
        pairs.insert(at, signed.headers[-1])
        refused(reader, signed.with_headers(Headers(pairs)), "more than one hw.sig")


class TestDamagedSignature:
    def test_stripped(self, reader: SignStep, signed: Record) -> None:
        refused(reader, signed.with_headers(HEADERS), "expected a signature, found no hw.sig")

    def test_null(self, reader: SignStep, signed: Record) -> None:
        refused(reader, with_signature(signed, None), "null")

    def test_cut_off_anywhere(self, reader: SignStep, signed: Record) -> None:
        reader.on_consume(signed)
        value = signature_of(signed)
        for length in range(len(value)):
            refused(reader, with_signature(signed, value[:length]), ".")

    @pytest.mark.parametrize("tail", [b"\0", bytes(32), bytes(64)])
    def test_longer(self, reader: SignStep, signed: Record, tail: bytes) -> None:
        refused(reader, with_signature(signed, signature_of(signed) + tail))

    @pytest.mark.parametrize("met_before", [False, True])
    def test_any_bit_flipped(self, path: Path, signed: Record, *, met_before: bool) -> None:
        value = signature_of(signed)
        reader = opened(path, cluster="prod")
        if met_before:
            reader.on_consume(signed)
        for bit in range(len(value) * 8):
            flipped = bytearray(value)
            flipped[bit // 8] ^= 1 << bit % 8
            refused(reader, with_signature(signed, bytes(flipped)), ".")

    def test_signature_of_another_record(
        self, path: Path, reader: SignStep, signed: Record, key_id: str
    ) -> None:
        other = opened(path, key_id, cluster="prod").on_send(RECORD.replace(value=b"other"))
        refused(reader, with_signature(signed, signature_of(other)))


class TestMovedElsewhere:
    @pytest.mark.parametrize("met_before", [False, True])
    def test_to_another_topic(self, reader: SignStep, signed: Record, *, met_before: bool) -> None:
        if met_before:
            reader.on_consume(signed)
        expected = r"signed for topic 'orders' of cluster 'prod', found in topic 'payments'"
        refused(reader, signed.replace(topic="payments"), expected)

    def test_to_another_cluster(self, path: Path, signed: Record) -> None:
        refused(
            opened(path, cluster="backup"),
            signed,
            "cluster 'prod', found in topic 'orders' of cluster 'backup'",
        )

    def test_from_an_origin_that_is_not_permitted(self, path: Path, signed: Record) -> None:
        reader = opened(path, cluster="backup", accept_origins=("prod/payments", "test/*"))
        refused(reader, signed, "accept_origins permits no such origin")

    def test_with_a_statement_written_anew(self, reader: SignStep, signed: Record, key_id: str) -> None:
        old = Statement(key_id, 1, "prod", "orders").encode()
        new = Statement(key_id, 1, "prod", "payments").encode()
        value = new + signature_of(signed)[len(old) :]
        refused(reader, with_signature(signed, value).replace(topic="payments"))


class TestKeys:
    def test_another_key_of_the_same_name(self, tmp_path: Path, signed: Record) -> None:
        refused(opened(saved(tmp_path / "other.json", ring()), cluster="prod"), signed)

    def test_an_unknown_key(self, tmp_path: Path, signed: Record, key_id: str) -> None:
        stranger = with_new_key(Keyring(), "stranger", "hmac-sha256")
        reader = opened(saved(tmp_path / "other.json", stranger), cluster="prod")
        refused(reader, signed, f"not trusted here: there is no version 1 of a key '{key_id}'")

    def test_a_revoked_key(self, path: Path, signed: Record, key_id: str) -> None:
        saved(path, with_revocation(read_keyring(path), key_id))
        refused(opened(path, cluster="prod"), signed, f"key '{key_id}' version 1, which is revoked")

    @pytest.mark.parametrize(
        ("place", "verifies"), [((3, 1041), True), ((3, 1042), False), ((4, 1), False), ((3, None), False)]
    )
    def test_a_key_revoked_from_an_offset(
        self, path: Path, signed: Record, key_id: str, place: tuple[int, int | None], *, verifies: bool
    ) -> None:
        saved(path, with_revocation(read_keyring(path), key_id, revoked_from={"orders[3]": 1042}))
        reader = opened(path, cluster="prod")
        arrived = signed.replace(partition=place[0], offset=place[1])
        if verifies:
            assert reader.on_consume(arrived).headers == HEADERS
        else:
            refused(reader, arrived, "revoked")

    def test_a_bad_signature_below_the_offset_is_still_bad(
        self, path: Path, signed: Record, key_id: str
    ) -> None:
        saved(path, with_revocation(read_keyring(path), key_id, revoked_from={"orders[3]": 5000}))
        refused(opened(path, cluster="prod"), signed.replace(value=b"forged"))

    @pytest.mark.parametrize("length", [32, 64])
    def test_a_public_half_is_no_hmac_key(
        self, path: Path, reader: SignStep, key_id: str, length: int
    ) -> None:
        public = read_keyring(path).versions("ed")[0].public
        assert public is not None
        confused = Key(
            id="ed",
            version=1,
            algorithm="hmac-sha256",
            status="active",
            created=datetime(2026, 1, 1, tzinfo=UTC),
            secret=public,
        )
        statement, stamp = Statement("ed", 1, "prod", "orders").encode(), encode_stamp(1000, b"attacker", 0)
        for algorithm in (confused.algorithm, "ed25519"):
            start = beginning(algorithm, statement)
            covered = start + rest_of_signed_bytes()(stamp, RECORD.key, RECORD.value, RECORD.headers)
            forged = (hmac.new(public, covered, hashlib.sha256).digest() * 2)[:length]
            refused(reader, RECORD.with_headers(HEADERS.add("hw.sig", statement + stamp + forged)))

    def test_errors_hold_no_secrets(self, path: Path, reader: SignStep, signed: Record) -> None:
        with pytest.raises(SignatureError) as caught:
            reader.on_consume(signed.replace(value=b"the-payload"))
        shown = str(caught.value) + repr(caught.value)
        assert "payload" not in shown
        assert "blue" not in shown
        assert signature_of(signed).hex() not in shown


class TestReplay:
    def test_the_same_place_is_read_again(self, path: Path, signed: Record) -> None:
        reader = opened(path, replay_window=10)
        assert reader.on_consume(signed) == reader.on_consume(signed)

    @pytest.mark.parametrize("changes", [{"offset": 2000}, {"partition": 4}, {"offset": None}])
    def test_elsewhere_is_refused(self, path: Path, signed: Record, changes: dict[str, Any]) -> None:
        reader = opened(path, replay_window=10)
        reader.on_consume(signed)
        refused(reader, signed.replace(**changes), r"replayed: sequence 0 .* was seen at orders\[3\]@1042")

    def test_without_a_place_nothing_is_a_second_reading(self, path: Path, signed: Record) -> None:
        reader, nowhere = opened(path, replay_window=10), signed.replace(offset=None)
        reader.on_consume(nowhere)
        refused(reader, nowhere, "replayed")

    def test_off_by_default(self, reader: SignStep, signed: Record) -> None:
        reader.on_consume(signed)
        assert reader.on_consume(signed.replace(offset=2000)).offset == 2000

    def test_a_forged_copy_uses_up_nothing(self, path: Path, signed: Record) -> None:
        reader = opened(path, replay_window=10)
        refused(reader, signed.replace(value=b"forged", offset=1))
        assert reader.on_consume(signed).headers == HEADERS

    def test_remembers_its_window_for_each_producer(self, key_id: str) -> None:
        window = ReplayWindow(3)
        for sequence in range(4):
            window.check(key_id, b"producer", sequence, RECORD)
        window.check(key_id, b"producer", 0, RECORD.replace(offset=1))
        with pytest.raises(SignatureError, match="sequence 3"):
            window.check(key_id, b"producer", 3, RECORD.replace(offset=1))

    def test_forgets_the_producer_not_heard_of_for_longest(self, key_id: str) -> None:
        window = ReplayWindow(1)
        window.check(key_id, b"old", 0, RECORD)
        for number in range(PRODUCERS_MAX):
            window.check(key_id, number.to_bytes(8, "big"), 0, RECORD)
        window.check(key_id, b"old", 0, RECORD.replace(offset=1))
        assert len(window._producers) == PRODUCERS_MAX

    def test_one_signer_cannot_use_up_anothers_sequences(self, key_id: str) -> None:
        window = ReplayWindow(10)
        window.check("mallory", b"producer", 0, RECORD)
        window.check(key_id, b"producer", 0, RECORD.replace(offset=1))
        with pytest.raises(SignatureError):
            window.check(key_id, b"producer", 0, RECORD)
