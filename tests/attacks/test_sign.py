"""What an attacker can do to a signed record, and that each of it is refused.

For HMAC, for an algorithm with two halves, and for a record whose signature it shares with another.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from headerware.core.batch import Batch
from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import DelayedError, InterceptorError, SignatureError
from headerware.core.headers import Headers
from headerware.core.hooks import DROP
from headerware.core.record import Record, Verified
from headerware.core.session import Session
from headerware.interceptors.sign import MAX_PRODUCERS, ReplayWindow, Sign, SignStep
from headerware.interceptors.slice import Slice
from headerware.keyring import Key, Keyring, encode_keyring, read_keyring, with_new_key, with_revocation
from headerware.keyring.signature import (
    Statement,
    beginning,
    decode_statement,
    encode_stamp,
    rest_of_signed_bytes,
)
from tests.batches import sent_together

HEADERS = Headers([("tenant", b"blue"), ("type", b"json"), ("note", None), ("empty", b"")])
RECORD = Record("orders", b'{"id":1}', b"k-1", HEADERS, partition=3, offset=1042)
PROOF_BYTES = {"hmac": 32, "ed": 64, "shared": 4 + 32 + 64}
"""What follows the stamp."""

pytestmark = pytest.mark.parametrize("key_id", ["hmac", "ed", "shared"])


def ring() -> Keyring:
    keyring = with_new_key(with_new_key(Keyring(), "hmac", "hmac-sha256"), "ed", "ed25519")
    return with_new_key(keyring, "shared", "ed25519")


def saved(path: Path, keyring: Keyring) -> Path:
    path.write_bytes(encode_keyring(keyring))
    path.chmod(0o600)
    return path


def opened(path: Path, key_id: str | None = None, **options: Any) -> SignStep:
    step = Sign(keyring=str(path), key_id=key_id, batch_records=2, **options).open(
        Context(now_ms=lambda: 1000)
    )
    if key_id == "shared":

        def send(record: Record) -> Record:
            first: Record | Exception = sent_together(step, [record, record])[0]
            if isinstance(first, Exception):
                raise first
            return first

        step.on_send = send
    return step


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
    """Return the layout that a record's hw.sig holds."""
    return b64decode(record.headers.last("hw.sig") or b"", validate=True)


def with_signature(record: Record, value: bytes | None) -> Record:
    text = None if value is None else b64encode(value)
    return record.with_headers(Headers([*record.headers[:-1], ("hw.sig", text)]))


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
    @pytest.mark.parametrize(
        "name", ["tenant", "note", "empty", "hw.expires", "hw.", "hw.trail", "Tenant", "NOTE", "HW.x", "hW."]
    )
    def test_a_covered_or_reserved_name_is_refused(self, reader: SignStep, signed: Record, name: str) -> None:
        refused(reader, signed.with_headers(signed.headers.add(name, b"x")), "added after hw.sig")

    @pytest.mark.parametrize("name", ["x", "", "hw", "hwsig"])
    def test_another_name_is_taken_out(self, reader: SignStep, signed: Record, name: str) -> None:
        read = reader.on_consume(signed.with_headers(signed.headers.add(name, b"x")))
        assert read.headers == HEADERS
        assert read.verified is not None
        assert read.verified.uncovered == (name,)

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
        longer = with_signature(signed, signature_of(signed) + tail)
        refused(reader, longer, r"does not fit the record|its path and signature have \d+ bytes")

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

    @pytest.mark.parametrize("name", ["a\0b", "\0", "\ud800"])
    def test_a_name_that_clients_read_differently_is_not_signed(
        self, path: Path, key_id: str, name: str
    ) -> None:
        sender = opened(path, key_id, cluster="prod")
        with pytest.raises(SignatureError, match="name of a header"):
            sender.on_send(Record("orders", b"value", headers=Headers({name: b"1"})))

    def test_a_revoked_key(self, path: Path, signed: Record, key_id: str) -> None:
        saved(path, with_revocation(read_keyring(path), key_id))
        refused(opened(path, cluster="prod"), signed, f"key '{key_id}' version 1, which is revoked")

    @pytest.mark.parametrize(
        ("position", "verifies"), [((3, 1041), True), ((3, 1042), False), ((4, 1), False), ((3, None), False)]
    )
    def test_a_key_revoked_from_an_offset(
        self, path: Path, signed: Record, key_id: str, position: tuple[int, int | None], *, verifies: bool
    ) -> None:
        saved(path, with_revocation(read_keyring(path), key_id, revoked_from={"prod/orders[3]": 1042}))
        reader = opened(path, cluster="prod")
        arrived = signed.replace(partition=position[0], offset=position[1])
        if verifies:
            assert reader.on_consume(arrived).headers == HEADERS
        else:
            refused(reader, arrived, "revoked")

    @pytest.mark.parametrize("cluster", ["mirror", None])
    def test_a_thief_cannot_write_where_another_cluster_has_low_offsets(
        self, path: Path, signed: Record, key_id: str, cluster: str | None
    ) -> None:
        saved(path, with_revocation(read_keyring(path), key_id, revoked_from={"prod/orders[3]": 1042}))
        reader = opened(path, cluster=cluster, accept_origins=("prod/orders",))
        refused(reader, signed.replace(partition=3, offset=0), "revoked")

    def test_a_bad_signature_below_the_offset_is_still_bad(
        self, path: Path, signed: Record, key_id: str
    ) -> None:
        saved(path, with_revocation(read_keyring(path), key_id, revoked_from={"prod/orders[3]": 5000}))
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
            refused(reader, RECORD.with_headers(HEADERS.add("hw.sig", b64encode(statement + stamp + forged))))

    def test_errors_hold_no_secrets(self, path: Path, reader: SignStep, signed: Record) -> None:
        with pytest.raises(SignatureError) as caught:
            reader.on_consume(signed.replace(value=b"the-payload"))
        shown = str(caught.value) + repr(caught.value)
        assert "payload" not in shown
        assert "blue" not in shown
        assert signature_of(signed).hex() not in shown


class TestReplay:
    @staticmethod
    def reading(path: Path, *left: Any, **options: Any) -> Session:
        chain = Chain([*left, Sign(keyring=str(path), replay_window=10, **options)])
        return chain.open(Context(side="consumer", now_ms=lambda: 1000))

    def test_the_same_position_is_read_again(self, path: Path, signed: Record) -> None:
        session = self.reading(path)
        assert session.consume([signed]) == session.consume([signed])

    @pytest.mark.parametrize("changes", [{"offset": 2000}, {"partition": 4}, {"offset": None}])
    def test_elsewhere_is_refused(self, path: Path, signed: Record, changes: dict[str, Any]) -> None:
        session = self.reading(path)
        session.consume([signed])
        with pytest.raises(SignatureError, match=r"replayed: sequence 0 .* was seen at orders\[3\]@1042"):
            session.consume([signed.replace(**changes)])

    def test_elsewhere_in_one_batch_is_refused(self, path: Path, signed: Record) -> None:
        session = self.reading(path, InBatches())
        first, second = session.consume_outcomes([signed, signed.replace(offset=2000)])
        assert isinstance(first, Record)
        assert isinstance(second, SignatureError)

    def test_a_replay_is_answered_as_the_step_is_told_to(self, path: Path, signed: Record) -> None:
        session = self.reading(path, InBatches(), on_error="drop")
        first, second = session.consume_outcomes([signed, signed.replace(offset=2000)])
        assert isinstance(first, Record)
        assert second is DROP
        assert session.stats()["sign"]["dropped"] == 1
        assert session.stats()["sign"]["consumed"] == 2

    def test_without_a_position_nothing_is_a_second_reading(self, path: Path, signed: Record) -> None:
        session, nowhere = self.reading(path), signed.replace(offset=None)
        session.consume([nowhere])
        with pytest.raises(SignatureError, match="replayed"):
            session.consume([nowhere])

    def test_what_one_consumer_remembers_no_other_does_so_age_is_the_bound(
        self, path: Path, signed: Record
    ) -> None:
        self.reading(path).consume([signed])
        copy = signed.replace(partition=4)
        now_ms = 1_000
        other = Chain([Sign(keyring=str(path), replay_window=10, max_age_ms=500)])
        with other.open(Context(side="consumer", now_ms=lambda: now_ms)) as another_member:
            (accepted,) = another_member.consume([copy])
            assert accepted.verified is not None
            assert (accepted.verified.sequence, len(accepted.verified.producer)) == (0, 8)
        now_ms = 1_501
        after_a_restart = other.open(Context(side="consumer", now_ms=lambda: now_ms))
        with pytest.raises(SignatureError, match="max_age_ms is 500"):
            after_a_restart.consume([copy])

    def test_off_by_default(self, reader: SignStep, signed: Record) -> None:
        reader.on_consume(signed)
        assert reader.on_consume(signed.replace(offset=2000)).offset == 2000

    @pytest.mark.parametrize(
        "copy",
        [
            lambda record: record.replace(value=b"forged"),
            lambda record: record.with_headers(record.headers.add("tenant", b"red")),
            lambda record: record.with_headers(record.headers.add("hw.x", b"")),
            lambda record: record.with_headers(record.headers.add("x", b"")),
        ],
        ids=["forged", "repeats", "reserved", "uncovered"],
    )
    def test_a_refused_copy_uses_up_nothing(self, path: Path, signed: Record, copy: Any) -> None:
        session = self.reading(path, uncovered="refuse")
        with pytest.raises(SignatureError):
            session.consume([copy(signed).replace(offset=1)])
        assert len(session.consume([signed])) == 1

    def test_a_copy_that_another_step_refuses_uses_up_nothing(self, path: Path, signed: Record) -> None:
        session = self.reading(path, RefusesOnce())
        with pytest.raises(InterceptorError):
            session.consume([signed.replace(offset=1)])
        assert len(session.consume([signed])) == 1
        with pytest.raises(SignatureError, match=r"was seen at orders\[3\]@1042"):
            session.consume([signed.replace(offset=1)])

    def test_a_copied_slice_does_not_use_up_the_message(self, path: Path, key_id: str) -> None:
        steps = Chain([Slice(max_bytes=1_500), Sign(keyring=str(path), key_id=key_id)])
        sent = steps.open(Context(now_ms=lambda: 1000)).send(
            [RECORD.replace(value=bytes(3_000), offset=None)]
        )
        pieces = [piece.replace(offset=10 + at) for at, piece in enumerate(sent)]
        session = self.reading(path, Slice())
        for piece in pieces[1:]:
            assert session.consume([piece.replace(partition=9)]) == []
        assert len(session.consume(pieces)) == 1
        assert len(session.consume(pieces)) == 1, "read again, as after a seek"

    def test_a_copied_message_in_slices_is_refused(self, path: Path, key_id: str) -> None:
        steps = Chain([Slice(max_bytes=1_500), Sign(keyring=str(path), key_id=key_id)])
        sent = steps.open(Context(now_ms=lambda: 1000)).send(
            [RECORD.replace(value=bytes(3_000), offset=None)]
        )
        pieces = [piece.replace(offset=10 + at) for at, piece in enumerate(sent)]
        session = self.reading(path, Slice())
        session.consume(pieces)
        outcomes = session.consume_outcomes([piece.replace(partition=9) for piece in pieces])
        assert isinstance(outcomes[0], SignatureError)
        assert outcomes[1:] == [[]] * (len(pieces) - 1)

    def test_remembers_its_window_for_each_producer(self, key_id: str) -> None:
        window = ReplayWindow(3)
        for sequence in range(4):
            window.remember(seen(key_id, sequence), HERE)
        window.remember(seen(key_id, 0), ELSEWHERE)
        with pytest.raises(SignatureError, match="sequence 3"):
            window.check(seen(key_id, 3), ELSEWHERE)

    def test_remembers_nothing_of_what_it_only_looks_at(self, key_id: str) -> None:
        window = ReplayWindow(3)
        window.check(seen(key_id, 0), HERE)
        window.check(seen(key_id, 0), ELSEWHERE)

    def test_forgets_the_producer_not_heard_of_for_longest(self, key_id: str) -> None:
        window = ReplayWindow(1)
        window.remember(seen(key_id, 0, b"old"), HERE)
        for number in range(MAX_PRODUCERS):
            window.remember(seen(key_id, 0, number.to_bytes(8, "big")), HERE)
        window.remember(seen(key_id, 0, b"old"), ELSEWHERE)
        assert len(window._producers) == MAX_PRODUCERS

    def test_one_signer_cannot_push_out_anothers_producers(self, key_id: str) -> None:
        """A signer may draw as many producer ids as it likes; then copies of others' records would pass."""
        window = ReplayWindow(10)
        window.remember(seen(key_id, 0), HERE)
        for number in range(2 * MAX_PRODUCERS):
            window.remember(seen("mallory", 0, number.to_bytes(8, "big")), HERE)
        assert len(window._producers) == MAX_PRODUCERS
        with pytest.raises(SignatureError, match="replayed"):
            window.check(seen(key_id, 0), ELSEWHERE)

    def test_one_signer_cannot_use_up_anothers_sequences(self, key_id: str) -> None:
        window = ReplayWindow(10)
        window.remember(seen("mallory", 0), HERE)
        window.remember(seen(key_id, 0), ELSEWHERE)
        with pytest.raises(SignatureError):
            window.remember(seen(key_id, 0), HERE)


HERE, ELSEWHERE = ("orders", 3, 1042), ("orders", 3, 1)


def seen(key_id: str, sequence: int, producer: bytes = b"producer") -> Verified:
    return Verified(key_id, 1, 1000, "prod", "orders", producer, sequence)


class InBatches:
    """Takes many records at once."""

    def on_consume_batch(self, batch: Batch) -> Batch:
        return Batch.of(list(batch))


class RefusesOnce:
    """Refuses the first record that it sees."""

    def __init__(self) -> None:
        self.has_refused = False

    def on_consume(self, record: Record) -> Record:
        if not self.has_refused:
            self.has_refused = True
            raise InterceptorError("not now")
        return record


class TestRules:
    """What a reader may require beside a signature that fits."""

    def test_a_header_that_must_be_covered(self, path: Path, signed: Record) -> None:
        reader = opened(path, covered=("tenant", "note"))
        assert reader.on_consume(signed).headers == HEADERS
        with pytest.raises(SignatureError, match="to be covered by the signature: 'content-type'"):
            opened(path, covered=("tenant", "content-type")).on_consume(signed)

    def test_an_uncovered_one_does_not_count(self, path: Path, signed: Record) -> None:
        reader = opened(path, covered=("content-type",), uncovered="pass")
        refused(reader, signed.with_headers(signed.headers.add("content-type", b"x")), "to be covered")

    def test_of_a_message_in_slices_the_first_has_it(self, path: Path, key_id: str) -> None:
        steps = Chain([Slice(max_bytes=1_500), Sign(keyring=str(path), key_id=key_id)])
        sent = steps.open(Context(now_ms=lambda: 1000)).send(
            [RECORD.replace(value=bytes(3_000), offset=None)]
        )
        for covered, expected in ((("tenant",), Record), (("other",), SignatureError)):
            reader = Chain([Slice(), Sign(keyring=str(path), covered=covered)])
            *waiting, last = reader.open(Context(now_ms=lambda: 1000)).consume_outcomes(sent)
            assert waiting == [[]] * len(waiting)
            assert isinstance(last[0] if isinstance(last, list) else last, expected)

    @pytest.mark.parametrize(
        ("now", "match"),
        [
            (1000, None),
            (1500, None),
            (1501, "501 ms ago; max_age_ms is 500"),
            (900, None),
            (899, "101 ms in the future by the local clock; clock_skew_ms is 100"),
        ],
    )
    def test_an_age(self, path: Path, signed: Record, now: int, match: str | None) -> None:
        options: dict[str, Any] = {"max_age_ms": 500, "clock_skew_ms": 100}
        reader = Sign(keyring=str(path), **options).open(Context(now_ms=lambda: now))
        if match is None:
            assert reader.on_consume(signed).headers == HEADERS
        else:
            refused(reader, signed, match)

    def test_a_forged_time_does_not_fit(self, path: Path, signed: Record) -> None:
        layout = bytearray(signature_of(signed))
        layout[-PROOF_BYTES[signed_by(signed)] - 24] ^= 1
        reader = Sign(keyring=str(path), max_age_ms=500).open(Context(now_ms=lambda: 1000))
        refused(reader, with_signature(signed, bytes(layout)))

    @pytest.mark.parametrize("met_before", [False, True])
    @pytest.mark.parametrize(
        ("limits", "match"),
        [
            ({"topics": ("payments",)}, "is for topics payments, not for 'orders'"),
            ({"use": ("encrypt",)}, "is for encrypt, not for signing"),
            ({"not_before": datetime(2026, 1, 1, tzinfo=UTC)}, "is valid from"),
            ({"not_after": datetime(1970, 1, 1, tzinfo=UTC)}, "is valid until"),
        ],
    )
    def test_a_key_that_may_not_vouch(
        self, path: Path, signed: Record, limits: dict[str, Any], match: str, *, met_before: bool
    ) -> None:
        keys = read_keyring(path).keys
        reader = opened(path, cluster="prod")
        if met_before:
            reader.on_consume(signed)
        saved(path, Keyring(keys=tuple(msgspec.structs.replace(key, **limits) for key in keys)))
        refused(opened(path, cluster="prod"), signed, f"may not vouch for it: .*{match}")

    def test_a_key_that_may(self, path: Path, signed: Record) -> None:
        limits = {
            "topics": ("orders",),
            "not_before": datetime(1970, 1, 1, tzinfo=UTC),
            "not_after": datetime(2026, 1, 1, tzinfo=UTC),
        }
        keys = read_keyring(path).keys
        saved(path, Keyring(keys=tuple(msgspec.structs.replace(key, **limits) for key in keys)))
        reader = opened(path, cluster="prod")
        for _ in range(2):
            assert reader.on_consume(signed).headers == HEADERS


class TestFloodOfVersions:
    """Records of versions that nobody has made: each costs its writer nothing, and looks like a rotation."""

    WAIT_MS = 10_000
    RECORDS = 20_000

    @pytest.fixture
    def looks(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Return a list that grows with each look at the keyring's file."""
        seen: list[str] = []
        look = os.stat

        def counted(name: Any, *args: Any, **options: Any) -> os.stat_result:
            if name == str(path):
                seen.append(name)
            return look(name, *args, **options)

        monkeypatch.setattr(os, "stat", counted)
        return seen

    def test_holds_a_partition_for_a_bounded_time_and_its_neighbours_are_read(
        self, path: Path, signed: Record, key_id: str, looks: list[str]
    ) -> None:
        now = began = 1_000
        genuine = [opened(path, other, cluster="prod").on_send(RECORD) for other in ("hmac", "ed")]
        step = Sign(keyring=str(path), cluster="prod", await_version_ms=self.WAIT_MS)
        session = Chain([step]).open(
            Context(side="consumer", bootstrap_servers="localhost:9092", now_ms=lambda: now)
        )
        chance = Random(17)
        read = refused = waited = 0
        for number in range(self.RECORDS):
            if number % 100 == 50:
                record = genuine[number % 2]
            else:
                version = chance.choice([2, 2, 3, 65_535, 1 + number % 65_535])
                name = chance.choice([key_id, "hmac", "ed", f"nobody-{number}"])
                record = with_signature(signed, forged(signed, name, version))
            arrived = record.replace(offset=number)
            while isinstance(outcome := session.consume_outcome(arrived), DelayedError):
                assert record not in genuine
                waited += outcome.until_ms - now
                now = outcome.until_ms
            if record in genuine:
                assert isinstance(outcome, Record)
                read += 1
            else:
                assert isinstance(outcome, SignatureError)
                refused += 1
            now += 1
        assert (read, refused) == (self.RECORDS // 100, self.RECORDS - self.RECORDS // 100)
        assert self.WAIT_MS <= waited <= len(ring().keys) * self.WAIT_MS, "once for each key at most"
        assert waited <= self.WAIT_MS + (now - began) / 10, "a tenth of the time, but for the first one"
        assert len(looks) <= 10 + (now - began) / 100 + (now - began) / 1000, "by time, not by record"


def forged(record: Record, key_id: str, version: int) -> bytes:
    """Return a layout as if another version of a key had signed a record."""
    layout = signature_of(record)
    stated, end = decode_statement(layout)
    anew = Statement(key_id, version, stated.cluster, stated.topic)
    return anew.encode(layout[0]) + layout[end:]


def signed_by(record: Record) -> str:
    return decode_statement(signature_of(record))[0].key_id


class TestSpelling:
    """A layout has one spelling as base64."""

    @pytest.mark.parametrize(
        "spell",
        [
            lambda text: text + b"\n",
            lambda text: b" " + text,
            lambda text: text + b"=",
            lambda text: text + b"====",
            lambda text: text.rstrip(b"=") if text.endswith(b"=") else text + b"A===",
            b64decode,
            lambda text: text.replace(b"/", b"_").replace(b"+", b"-") + b"-",
            lambda _: b"====",
            lambda _: b"",
        ],
        ids=["newline", "blank", "padding", "more padding", "cut", "layout", "url", "nothing", "empty"],
    )
    @pytest.mark.parametrize("met_before", [False, True])
    def test_others_are_refused(
        self, reader: SignStep, signed: Record, spell: Any, *, met_before: bool
    ) -> None:
        if met_before:
            reader.on_consume(signed)
        text = spell(signed.headers.last("hw.sig"))
        refused(reader, signed.with_headers(Headers([*HEADERS, ("hw.sig", text)])), "expected base64")

    def test_it_is_text(self, signed: Record) -> None:
        assert (signed.headers.last("hw.sig") or b"").decode("ascii")


class TestOrigins:
    @pytest.mark.parametrize(
        ("origin", "accepts"),
        [
            ("prod/{topic}", True),
            ("*/{topic}", True),
            ("pr?d/{topic}", True),
            ("PROD/{topic}", False),
            ("prod/Orders", False),
            ("prod/orders-{topic}", False),
            ("backup/{topic}", False),
        ],
    )
    def test_the_same_topic(self, path: Path, signed: Record, origin: str, *, accepts: bool) -> None:
        reader = opened(path, cluster="backup", accept_origins=(origin,))
        if accepts:
            assert reader.on_consume(signed).headers == HEADERS
        else:
            refused(reader, signed, "accept_origins permits no such origin")

    def test_a_record_of_another_topic_is_refused(self, path: Path, key_id: str) -> None:
        paid = opened(path, key_id, cluster="prod").on_send(RECORD.replace(topic="payments"))
        reader = opened(path, cluster="backup", accept_origins=("prod/{topic}",))
        assert reader.on_consume(paid).headers == HEADERS
        refused(reader, paid.replace(topic="orders"), "signed for topic 'payments'")

    def test_a_prefix_of_the_mirror(self, path: Path, signed: Record) -> None:
        reader = opened(path, cluster="backup", accept_origins=("prod/order?",))
        assert reader.on_consume(signed.replace(topic="prod.orders")).headers == HEADERS

    @pytest.mark.parametrize("topic", ["*", "?rders", "[o]rders", "order*"])
    def test_what_is_read_is_no_pattern(self, path: Path, signed: Record, topic: str) -> None:
        reader = opened(path, cluster="backup", accept_origins=("prod/{topic}",))
        refused(reader, signed.replace(topic=topic), "permits no such origin")
