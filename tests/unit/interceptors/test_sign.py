from __future__ import annotations

import logging
import subprocess
import sys
from base64 import b64decode
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import pytest

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import ConfigError, DelayedError, HeldBackError, KeyringError, SignatureError
from headerware.core.headers import Headers
from headerware.core.record import Record, Verified
from headerware.interceptors.header_ids import HeaderIds
from headerware.interceptors.sign import Sign, SignStep
from headerware.keyring import (
    Keyring,
    encode_jwks,
    encode_keyring,
    encode_snapshot,
    public_part,
    read_keyring,
    sign_snapshot,
    with_new_key,
    with_revocation,
    with_rotation,
)
from headerware.keyring.file import KeyringFile
from headerware.keyring.signature import decode_stamp, decode_statement
from headerware.keyring.writing import edit_keyring
from tests.batches import sent_together

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.session import Session

RECORD = Record(
    "orders", b'{"id":1}', b"k-1", Headers([("a", b"1"), ("b", None), ("a", b"")]), partition=3, offset=1042
)


class Clock:
    def __init__(self) -> None:
        self.now = 1_760_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    ring = with_new_key(with_new_key(Keyring(), "hmac", "hmac-sha256"), "ed", "ed25519")
    path = tmp_path / "keys.json"
    path.write_bytes(encode_keyring(ring))
    path.chmod(0o600)
    return path


@pytest.fixture
def clock() -> Clock:
    return Clock()


def opened(path: Path, clock: Clock | None = None, *, side: Any = None, **options: Any) -> SignStep:
    options = {"keyring": str(path), "key_id": "hmac", **options}
    return Sign(**options).open(Context(now_ms=clock or Clock(), side=side))


def layout_of(record: Record) -> bytes:
    return b64decode(record.headers.last("hw.sig") or b"", validate=True)


def read_by(step: SignStep, record: Record) -> Record:
    """Return what a reader makes of a record, without what was verified of it."""
    return step.on_consume(record).replace(local=None)


def stated(record: Record) -> Any:
    return decode_statement(layout_of(record))[0]


class TestWithoutASignature:
    @pytest.mark.parametrize("form", ["packed", "keys"])
    def test_names_that_are_ids_still_are_said_to_be(self, path: Path, form: Any) -> None:
        sign = Sign(keyring=str(path), key_id="hmac", require="enforce")
        with Chain([sign, HeaderIds(form=form)]).open(Context(side="producer")) as sending:
            (wire,) = sending.send([Record("orders", b"v")])
        said = r"no hw\.sig header; header names are ids here: add the 'header_ids'"
        with (
            Chain([sign]).open(Context(side="consumer")) as reading,
            pytest.raises(SignatureError, match=said),
        ):
            reading.consume([wire.replace(offset=0)])

    def test_plain_names_are_not(self, path: Path) -> None:
        sign = Sign(keyring=str(path), key_id="hmac", require="enforce")
        with Chain([sign]).open(Context(side="consumer")) as reading:
            with pytest.raises(SignatureError) as raised:
                reading.consume([Record("orders", b"v", offset=0)])
            assert "header names are ids" not in str(raised.value)

    def test_the_error_says_what_to_look_at_on_the_side_of_the_producer(self, path: Path) -> None:
        with Chain([Sign(keyring=str(path), key_id="hmac")]).open(Context(side="consumer")) as reading:
            with pytest.raises(SignatureError) as raised:
                reading.consume([Record("orders", b"v", offset=0)])
            assert str(raised.value).endswith(
                "found no hw.sig header; likely its producer has no chain, or a chain without 'sign' for "
                "this topic: look at the producer's chain, its topics, HEADERWARE_CONFIG and "
                "HEADERWARE_DISABLED"
            )


class TestSignOptions:
    @pytest.mark.parametrize(
        ("given", "meant"),
        [(True, "enforce"), (False, "off"), ("true", "enforce"), ("false", "off"), ("warn", "warn")],
    )
    def test_require_takes_booleans_and_words(self, given: Any, meant: str) -> None:
        assert Sign(keyring="k", require=given).require == meant
        assert msgspec.convert({"keyring": "k", "require": given}, Sign, strict=False).require == meant

    def test_require_refuses_other_words(self) -> None:
        with pytest.raises(ConfigError, match=r"require: expected off, warn or enforce, found 'maybe'"):
            Sign(keyring="k", require="maybe")  # type: ignore[arg-type]  # what a user may mistype

    @pytest.mark.parametrize("key_id", ["", "a\nb", "a\u202eb", "é" * 128])
    def test_a_key_id_is_checked_at_once(self, key_id: str) -> None:
        with pytest.raises(ConfigError, match="key_id: a key's id must be 1 to 255 bytes of printable text"):
            Sign(keyring="k", key_id=key_id)

    def test_keyring_takes_a_path(self, tmp_path: Path) -> None:
        options: dict[str, Any] = {"keyring": tmp_path / "k.json"}
        assert Sign(**options).keyring == str(tmp_path / "k.json")

    @pytest.mark.parametrize(
        "origin",
        ["orders", "/orders", "prod/", "", "prod/[o]rders", "!prod/orders", "{topic}/orders", "prod/{name}"],
    )
    def test_an_origin_is_a_cluster_and_a_topic(self, origin: str) -> None:
        with pytest.raises(ConfigError, match="accept_origins: "):
            Sign(keyring="k", accept_origins=(origin,))

    def test_replay_window_is_not_negative(self) -> None:
        with pytest.raises(msgspec.ValidationError, match="replay_window"):
            msgspec.convert({"keyring": "k", "replay_window": -1}, Sign)


class TestSignOpen:
    def test_missing_keyring_is_told_at_once(self, tmp_path: Path) -> None:
        with pytest.raises(KeyringError, match=r"none\.json cannot be read"):
            opened(tmp_path / "none.json")

    def test_producer_without_a_key_id_is_told_at_once(self, path: Path) -> None:
        with pytest.raises(ConfigError, match="key_id: "):
            opened(path, side="producer", key_id=None)

    def test_producer_with_an_unknown_key_is_told_at_once(self, path: Path) -> None:
        with pytest.raises(KeyringError, match="no key 'nobody'"):
            opened(path, side="producer", key_id="nobody")

    def test_consumer_needs_no_key_id(self, path: Path) -> None:
        signed = opened(path).on_send(RECORD)
        assert read_by(opened(path, side="consumer", key_id=None), signed) == RECORD

    def test_consumer_with_a_public_keyring_may_name_the_key_that_producers_use(
        self, path: Path, tmp_path: Path
    ) -> None:
        public = tmp_path / "public.json"
        public.write_bytes(encode_keyring(public_part(read_keyring(path))[0]))
        public.chmod(0o644)
        signed = opened(path, key_id="ed").on_send(RECORD)
        assert read_by(opened(public, side="consumer", key_id="ed"), signed) == RECORD

    def test_sending_without_a_key_id_is_refused_where_the_side_was_open(self, path: Path) -> None:
        with pytest.raises(SignatureError, match="key_id"):
            opened(path, key_id=None).on_send(RECORD)


@pytest.mark.parametrize("key_id", ["hmac", "ed"])
class TestSignRoundTrip:
    @pytest.mark.parametrize(
        "record",
        [
            RECORD,
            Record("t"),
            Record("t", b"", b"", Headers([("", b""), ("", None)])),
            Record("t", bytes(100_000), None, Headers([(f"n{i}", bytes(i)) for i in range(300)])),
            Record("t", b"v", headers=Headers([("größe", b"\xff")])),
        ],
    )
    def test_gives_back_what_was_sent(self, path: Path, key_id: str, record: Record) -> None:
        step = opened(path, key_id=key_id)
        for _ in range(2):
            assert read_by(step, step.on_send(record)) == record

    def test_overhead_is_an_upper_bound(self, path: Path, key_id: str) -> None:
        for cluster in (None, "abcdefghijklmnopqrstuv"):
            step = opened(path, key_id=key_id, cluster=cluster)
            value = step.on_send(RECORD).headers.last("hw.sig")
            assert value is not None
            assert (
                6 + 4 + len(value)
                <= step.overhead_bytes(RECORD)
                <= 6 + 10 + len(value) + 4 * (32 + 255) // 3 + 4
            )


class TestSignSend:
    def test_stands_last_and_leaves_the_others(self, path: Path) -> None:
        sent = opened(path).on_send(RECORD)
        assert sent.headers.names() == ("a", "b", "a", "hw.sig")
        assert (sent.key, sent.value, sent.partition) == (RECORD.key, RECORD.value, RECORD.partition)

    def test_states_key_and_place_and_time(self, path: Path, clock: Clock) -> None:
        sent = opened(path, clock, cluster="prod").on_send(RECORD)
        value = layout_of(sent)
        statement, end = decode_statement(value)
        assert (statement.key_id, statement.key_version) == ("hmac", 1)
        assert (statement.cluster, statement.topic) == ("prod", "orders")
        assert decode_stamp(value[end : end + 24])[0] == clock.now

    def test_counts_records_and_tells_sessions_apart(self, path: Path) -> None:
        def stamps(step: SignStep) -> list[tuple[int, bytes, int]]:
            values = [layout_of(step.on_send(RECORD)) for _ in range(3)]
            return [decode_stamp(value[-56:-32]) for value in values]

        first, second = stamps(opened(path)), stamps(opened(path))
        assert [sequence for _, _, sequence in first] == [0, 1, 2]
        assert len({producer for _, producer, _ in first + second}) == 2

    def test_learns_the_cluster_when_the_client_does(self, path: Path) -> None:
        known: list[str] = []
        context = Context(now_ms=Clock(), cluster_id=lambda: known[0] if known else None)
        step = Sign(keyring=str(path), key_id="hmac").open(context)
        before = stated(step.on_send(RECORD)).cluster
        known.append("prod")
        assert (before, stated(step.on_send(RECORD)).cluster) == ("", "prod")

    def test_refuses_a_record_that_is_signed_already(self, path: Path) -> None:
        step = opened(path)
        with pytest.raises(SignatureError, match=r"more than one hw\.sig"):
            step.on_send(step.on_send(RECORD))

    def test_refuses_a_topic_that_the_header_cannot_state(self, path: Path) -> None:
        with pytest.raises(SignatureError, match="cannot sign: the topic has 256 bytes"):
            opened(path).on_send(Record("t" * 256))

    def test_threads_use_no_sequence_twice(self, path: Path) -> None:
        step, seen = opened(path), list[int]()

        def send() -> None:
            for _ in range(500):
                seen.append(decode_stamp(layout_of(step.on_send(RECORD))[-56:-32])[2])

        threads = [Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(seen) == list(range(2000))

    def test_a_forked_process_is_another_producer(self, path: Path) -> None:
        # In a process of its own, for forking one that has threads is not safe.
        script = """
import base64, os, sys
from headerware.core.context import Context
from headerware.core.record import Record
from headerware.core.record import Verified
from headerware.interceptors.sign import Sign
step = Sign(keyring=sys.argv[1], key_id="hmac").open(Context())
child = os.fork()
if child:
    os.waitpid(child, 0)
print(base64.b64decode(step.on_send(Record("orders")).headers[-1][1])[-56:-32].hex(), flush=True)
"""
        done = subprocess.run(
            [sys.executable, "-c", script, path], capture_output=True, check=True, text=True
        )
        there, here = (decode_stamp(bytes.fromhex(line)) for line in done.stdout.split())
        assert here[2] == there[2] == 0
        assert here[1] != there[1]


class TestSignKeyLimits:
    """A signer refuses what each reader would refuse: a key outside its topics, its times or its use."""

    @staticmethod
    def limited(path: Path, clock: Clock, **limits: Any) -> SignStep:
        ring = Keyring(keys=tuple(msgspec.structs.replace(key, **limits) for key in read_keyring(path).keys))
        path.write_bytes(encode_keyring(ring))
        return opened(path, clock, key_id="hmac")

    def test_other_topics(self, path: Path, clock: Clock) -> None:
        step = self.limited(path, clock, topics=("orders.*",))
        with pytest.raises(
            SignatureError, match=r"cannot sign: key 'hmac' version 1 is for topics orders\.\*"
        ):
            step.on_send(RECORD)
        step.on_send(Record("orders.eu"))

    def test_too_early(self, path: Path, clock: Clock) -> None:
        step = self.limited(path, clock, not_before=at(clock.now + 1))
        with pytest.raises(SignatureError, match="cannot sign: key 'hmac' version 1 is valid from"):
            step.on_send(RECORD)
        clock.now += 1
        step.on_send(RECORD)

    def test_too_late_in_a_running_session(self, path: Path, clock: Clock) -> None:
        step = self.limited(path, clock, not_after=at(clock.now))
        step.on_send(RECORD)
        clock.now += 1
        with pytest.raises(SignatureError, match="cannot sign: key 'hmac' version 1 is valid until"):
            step.on_send(RECORD)

    def test_another_use_is_told_at_once(self, path: Path, clock: Clock) -> None:
        self.limited(path, clock, use=("encrypt",))
        with pytest.raises(KeyringError, match="is for encrypt, not for signing records"):
            opened(path, clock, side="producer")


def at(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


class TestAFloodOfForgedRecords:
    def test_finds_its_key_once_and_each_record_is_refused(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reader, sender = opened(path), opened(path)
        found: list[Any] = []
        find = KeyringFile.find

        def counted(*given: Any) -> Any:
            found.append(given)
            return find(*given)

        monkeypatch.setattr(KeyringFile, "find", counted)
        for number in range(100):
            forged = sender.on_send(RECORD.replace(value=b"%d" % number)).replace(value=b"forged")
            with pytest.raises(SignatureError, match="does not fit"):
                reader.on_consume(forged)
        assert len(found) == 1
        assert read_by(reader, sender.on_send(RECORD)) == RECORD

    def test_in_another_topic_is_judged_by_that_topic(self, path: Path) -> None:
        reader, sender = opened(path), opened(path)
        for _ in range(2):
            signed = sender.on_send(RECORD)
            with pytest.raises(SignatureError, match="does not fit"):
                reader.on_consume(signed.replace(value=b"forged"))
            with pytest.raises(SignatureError, match="signed for topic"):
                reader.on_consume(signed.replace(topic="payments", value=b"forged"))

    def test_keeps_no_revoked_key(self, path: Path, clock: Clock) -> None:
        reader, signed = opened(path, clock), opened(path, clock).on_send(RECORD)
        with pytest.raises(SignatureError, match="does not fit"):
            reader.on_consume(signed.replace(value=b"forged"))
        edit_keyring(path, lambda ring: with_revocation(ring, "hmac"))
        clock.now += 1000
        with pytest.raises(SignatureError, match="revoked"):
            reader.on_consume(signed)


class TestSignRotation:
    def test_running_sessions_take_up_a_rotation(self, path: Path, clock: Clock) -> None:
        sender, reader = opened(path, clock), opened(path, clock)
        before = sender.on_send(RECORD)
        edit_keyring(path, lambda ring: with_rotation(ring, "hmac"))
        clock.now += 1000
        after = sender.on_send(RECORD)
        assert (stated(before).key_version, stated(after).key_version) == (1, 2)
        assert read_by(reader, before) == read_by(reader, after) == RECORD

    def test_a_reader_meets_a_new_version_before_its_next_look(self, path: Path, clock: Clock) -> None:
        reader = opened(path, clock)
        edit_keyring(path, lambda ring: with_rotation(ring, "hmac"))
        assert read_by(reader, opened(path, clock).on_send(RECORD)) == RECORD

    @pytest.mark.parametrize("batch", [False, True])
    @pytest.mark.parametrize("key_id", ["hmac", "ed"])
    def test_a_new_version_signs_from_its_beginning_on_and_the_old_one_until_then(
        self, path: Path, clock: Clock, key_id: str, *, batch: bool
    ) -> None:
        begins = clock.now + 60_000
        edit_keyring(path, lambda ring: with_rotation(ring, key_id, not_before=at(begins)))
        sender = opened(path, clock, key_id=key_id, side="producer", batch_records=64)
        reader = opened(path, clock)
        path.unlink()  # so the switch takes no look at the file

        def version() -> int:
            made = sent_together(sender, [RECORD, RECORD])[1] if batch else sender.on_send(RECORD)
            assert isinstance(made, Record)
            assert read_by(reader, made) == RECORD
            return int(stated(made).key_version)

        found = []
        for clock.now in (begins - 60_000, begins - 1, begins, begins + 1, begins - 1, begins):
            found.append(version())
        assert found == [1, 1, 2, 2, 1, 2]

    def test_each_of_several_versions_has_its_turn(self, path: Path, clock: Clock) -> None:
        began = clock.now
        for later in (at(began + 10_000), at(began + 20_000)):
            edit_keyring(path, partial(with_rotation, key_id="hmac", not_before=later))
        sender = opened(path, clock)
        found = []
        for clock.now in range(began, began + 25_000, 5_000):
            found.append(stated(sender.on_send(RECORD)).key_version)
        assert found == [1, 1, 2, 2, 3]

    def test_room_is_left_for_the_signature_of_the_next_version(self, path: Path, clock: Clock) -> None:
        ring = with_new_key(Keyring(), "k", "hmac-sha256")
        rsa = msgspec.structs.replace(
            with_new_key(Keyring(), "k", "rsa-pss-sha256").keys[0], version=2, not_before=at(clock.now + 1000)
        )
        old = msgspec.structs.replace(ring.keys[0], status="retired")
        path.write_bytes(encode_keyring(Keyring(keys=(old, rsa))))
        step = opened(path, clock, key_id="k")
        room = step.overhead_bytes(RECORD)
        clock.now += 1000
        sent = step.on_send(RECORD)
        assert stated(sent).key_version == 2
        assert len(sent.headers[-1][1] or b"") <= room

    def test_a_producer_whose_key_cannot_sign_now_does_not_open(self, path: Path, clock: Clock) -> None:
        ring = with_new_key(Keyring(), "hmac", "hmac-sha256", not_before=at(clock.now + 60_000))
        path.write_bytes(encode_keyring(ring))
        with pytest.raises(
            KeyringError, match=r"keys\.json: key 'hmac' version 1 is valid from .*: wait, or"
        ):
            opened(path, clock, side="producer")

    def test_a_reader_whose_clock_is_behind_takes_a_version_that_has_begun_for_its_signer(
        self, path: Path, clock: Clock
    ) -> None:
        edit_keyring(path, lambda ring: with_rotation(ring, "hmac", not_before=at(clock.now)))
        signed, reader = opened(path, clock).on_send(RECORD), opened(path, clock, clock_skew_ms=500)
        clock.now -= 500
        assert read_by(reader, signed) == RECORD
        clock.now -= 1
        with pytest.raises(SignatureError, match=r"is valid from .* and the local clock is"):
            opened(path, clock, clock_skew_ms=500).on_consume(signed)

    def test_a_deleted_keyring_stops_nobody_at_first(self, path: Path, clock: Clock) -> None:
        step = opened(path, clock)
        path.unlink()
        clock.now += 5000
        assert read_by(step, step.on_send(RECORD)) == RECORD
        assert step.stats()["keyring_failures"] == 1

    @pytest.mark.parametrize("on_error", ["raise", "drop", "dead_letter"])
    def test_a_keyring_that_stays_broken_holds_back_what_nobody_can_judge(
        self, path: Path, clock: Clock, on_error: Any
    ) -> None:
        chain = Chain([Sign(keyring=str(path), key_id="hmac", on_error=on_error, keyring_max_stale_ms=6000)])
        session = chain.open(Context(now_ms=clock, publish=lambda _: pytest.fail("made a dead letter")))
        signed = session.send_outcome(RECORD)
        assert isinstance(signed, Record)
        good = path.read_bytes()
        path.write_bytes(b"{")
        clock.now += 6000
        for outcome in (session.send_outcome(RECORD), session.consume_outcome(signed)):
            assert isinstance(outcome, HeldBackError)
            assert "keys.json is no keyring" in str(outcome)
            assert "older than 6 s" in str(outcome)
        path.write_bytes(good)
        clock.now += 1000
        (read,) = session.consume([signed])
        assert read.replace(local=None) == RECORD

    @pytest.mark.parametrize("waits_ms", [0, 5000])
    def test_a_key_may_stand_in_a_keyring_that_is_broken(
        self, path: Path, clock: Clock, waits_ms: int
    ) -> None:
        session = Chain([Sign(keyring=str(path))]).open(Context(side="consumer", now_ms=clock))
        edit_keyring(path, lambda ring: with_rotation(ring, "hmac"))
        signed = opened(path, clock).on_send(RECORD)
        good = path.read_bytes()
        path.write_bytes(b"{")
        clock.now += waits_ms
        outcome = session.consume_outcome(signed)
        assert isinstance(outcome, HeldBackError)
        assert "no version 2 of a key 'hmac'" in str(outcome)
        assert "keys.json is no keyring" in str(outcome)
        path.write_bytes(good)
        clock.now += 1000
        (read,) = session.consume([signed])
        assert read.replace(local=None) == RECORD

    def test_revocation_stops_a_running_sender(self, path: Path, clock: Clock) -> None:
        sender = opened(path, clock)
        sender.on_send(RECORD)
        edit_keyring(path, lambda ring: with_revocation(ring, "hmac"))
        clock.now += 1000
        with pytest.raises(SignatureError, match="no active version"):
            sender.on_send(RECORD)

    def test_revocation_stops_a_running_reader(self, path: Path, clock: Clock) -> None:
        reader, signed = opened(path, clock), opened(path, clock).on_send(RECORD)
        reader.on_consume(signed)
        edit_keyring(path, lambda ring: with_revocation(ring, "hmac"))
        clock.now += 1000
        with pytest.raises(SignatureError, match="revoked"):
            reader.on_consume(signed)


ROOT = with_new_key(Keyring(), "root", "ed25519", use=("snapshots",))


def as_snapshot(ring: Keyring) -> bytes:
    """Return a snapshot that is newer the more versions there are."""
    times = {"created": datetime(2025, 1, 1, tzinfo=UTC), "expires": datetime(2099, 1, 1, tzinfo=UTC)}
    return encode_snapshot(sign_snapshot(ring, ROOT.keys[0], counter=len(ring.keys), **times))


class TestANewVersionIsWaitedFor:
    """The signer has the next version of a key already, and the reader's file, of whatever kind, has not."""

    FORMS: ClassVar[dict[str, Callable[[Keyring], bytes]]] = {
        "keyring": encode_keyring,
        "jwks": encode_jwks,
        "snapshot": as_snapshot,
    }

    @pytest.fixture(params=FORMS)
    def publish(self, request: pytest.FixtureRequest, path: Path) -> Callable[[], None]:
        """Write the public halves of what the signer has into the file of the reader."""
        file, form = path.with_name("public.json"), self.FORMS[request.param]

        def write() -> None:
            beside = file.with_name("new")
            beside.write_bytes(form(public_part(read_keyring(path))[0]))
            beside.replace(file)

        write()
        return write

    def session(
        self, path: Path, clock: Clock, context: dict[str, Any] | None = None, **options: Any
    ) -> Session:
        root = path.with_name("root.pub")
        root.write_bytes(encode_keyring(public_part(ROOT)[0]))
        file = path.with_name("public.json")
        if b"snapshot" in file.read_bytes():
            options["keyring_root"] = str(root)
        context = {"bootstrap_servers": "localhost:9092", **(context or {})}
        return Chain([Sign(keyring=str(file), **options)]).open(
            Context(side="consumer", now_ms=clock, **context)
        )

    def signed_anew(self, path: Path, clock: Clock) -> Record:
        edit_keyring(path, lambda ring: with_rotation(ring, "ed"))
        return opened(path, clock, key_id="ed").on_send(RECORD)

    def test_and_taken_when_it_comes_without_waiting_for_the_next_look(
        self, path: Path, clock: Clock, publish: Callable[[], None]
    ) -> None:
        reading = self.session(path, clock)
        signed = self.signed_anew(path, clock)
        held = reading.consume_outcome(signed)
        assert isinstance(held, DelayedError)
        assert "no version 2 of a key 'ed' in the keyring yet" in str(held)
        assert held.until_ms == clock.now + 100
        publish()
        clock.now = held.until_ms
        (read,) = reading.consume([signed])
        assert read.replace(local=None) == RECORD

    def test_and_refused_after_a_moment(
        self, path: Path, clock: Clock, publish: Callable[[], None], caplog: pytest.LogCaptureFixture
    ) -> None:
        del publish
        reading = self.session(path, clock, await_version_ms=2_000)
        signed, began = self.signed_anew(path, clock), clock.now
        while isinstance(held := reading.consume_outcome(signed), DelayedError):
            clock.now = held.until_ms
        assert isinstance(held, SignatureError)
        assert "not trusted here: there is no version 2" in str(held)
        assert clock.now - began == 2_000
        assert isinstance(reading.consume_outcome(signed), SignatureError)
        assert reading.stats()["sign"]["awaited"] == 20
        told = [record.getMessage() for record in caplog.records if "records wait" in record.getMessage()]
        assert len(told) == 1

    @pytest.mark.parametrize(
        "cannot", [{"bootstrap_servers": None}, {"dry_run": True}], ids=["a task of Spark", "a tool"]
    )
    def test_but_not_by_who_does_not_try_again(
        self, path: Path, clock: Clock, publish: Callable[[], None], cannot: dict[str, Any]
    ) -> None:
        reading = self.session(path, clock, cannot)
        signed = self.signed_anew(path, clock)
        assert isinstance(reading.consume_outcome(signed), SignatureError)
        edit_keyring(path, lambda ring: with_rotation(ring, "ed"))
        publish()
        assert isinstance(reading.consume_outcome(opened(path, clock, key_id="ed").on_send(RECORD)), Record)

    def test_but_not_in_another_topic_than_it_was_signed_for(
        self, path: Path, clock: Clock, publish: Callable[[], None]
    ) -> None:
        del publish
        reading = self.session(path, clock)
        signed = self.signed_anew(path, clock)
        assert isinstance(reading.consume_outcome(signed.replace(topic="bills")), SignatureError)


class TestSignRequire:
    def test_off_passes_what_is_unsigned(self, path: Path) -> None:
        assert opened(path, require="off").on_consume(RECORD) is RECORD

    def test_warn_counts_and_logs_each_topic_once(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        step = opened(path, require="warn")
        with caplog.at_level(logging.WARNING):
            for topic in ("a", "b", "a"):
                step.on_consume(Record(topic))
        assert [record.getMessage() for record in caplog.records] == [
            "topic 'a' has records without a signature",
            "topic 'b' has records without a signature",
        ]
        assert step.stats()["unsigned"] == 3

    def test_enforce_refuses(self, path: Path) -> None:
        with pytest.raises(SignatureError, match=r"found no hw\.sig"):
            opened(path).on_consume(RECORD)

    @pytest.mark.parametrize("require", ["off", "warn"])
    def test_a_bad_signature_is_refused_even_where_none_is_required(self, path: Path, require: str) -> None:
        signed = opened(path).on_send(RECORD)
        with pytest.raises(SignatureError, match="does not fit"):
            opened(path, require=require).on_consume(signed.replace(value=b"other"))


class TestVerified:
    def test_says_what_was_verified(self, path: Path, clock: Clock) -> None:
        step = opened(path, clock, cluster="prod")
        signed = step.on_send(RECORD)
        _, producer, sequence = decode_stamp(layout_of(signed)[-56:-32])
        verified = step.on_consume(signed).verified
        assert verified == Verified("hmac", 1, clock.now, "prod", "orders", producer, sequence)

    def test_names_what_was_added_later(self, path: Path, clock: Clock) -> None:
        step = opened(path, clock)
        signed = step.on_send(RECORD)
        read = step.on_consume(signed.with_headers(signed.headers.add("x", b"1").add("y", None)))
        assert read.headers == RECORD.headers
        assert read.verified is not None
        assert read.verified.uncovered == ("x", "y")
        assert step.stats()["uncovered"] == 1

    def test_nothing_of_what_is_unsigned(self, path: Path) -> None:
        assert opened(path, require="off").on_consume(RECORD).verified is None

    def test_what_others_know_of_the_record_stays(self, path: Path) -> None:
        step = opened(path)
        read = step.on_consume(step.on_send(RECORD).with_local("mine", 1))
        assert read.local is not None
        assert read.local["mine"] == 1
        assert read.verified is not None


class TestSignOrigins:
    def test_a_mirror_is_accepted_where_it_is_permitted(self, path: Path) -> None:
        signed = opened(path, cluster="prod").on_send(RECORD)
        mirrored = signed.replace(topic="prod.orders")
        reader = opened(path, cluster="backup", accept_origins=("test/*", "prod/ord*"))
        assert reader.on_consume(mirrored).topic == "prod.orders"

    def test_any_cluster_may_be_permitted(self, path: Path) -> None:
        signed = opened(path, cluster="prod").on_send(RECORD)
        reader = opened(path, cluster="backup", accept_origins=("*/orders",))
        assert read_by(reader, signed) == RECORD

    @pytest.mark.parametrize("stated_cluster", [None, "prod"])
    def test_the_cluster_is_not_compared_while_one_of_both_is_unknown(
        self, path: Path, stated_cluster: str | None
    ) -> None:
        signed = opened(path, cluster=stated_cluster).on_send(RECORD)
        own = None if stated_cluster else "prod"
        assert read_by(opened(path, cluster=own), signed) == RECORD

    def test_the_cluster_is_compared_as_soon_as_it_is_known(self, path: Path) -> None:
        known: list[str] = []
        context = Context(now_ms=Clock(), cluster_id=lambda: known[0] if known else None)
        reader = Sign(keyring=str(path)).open(context)
        signed = opened(path, cluster="prod").on_send(RECORD)
        reader.on_consume(signed)
        known.append("backup")
        with pytest.raises(
            SignatureError, match=r"of cluster 'prod', found in topic 'orders' of cluster 'backup'"
        ):
            reader.on_consume(signed)
