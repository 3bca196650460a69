"""How ``sign`` signs records together; what is done to them later is in tests/attacks."""

from __future__ import annotations

import os
import time
from base64 import b64decode
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from headerware import Consumer, Producer
from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import ConfigError, HeldBackError, SignatureError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors import Compress, HeaderIds, Slice, Trail
from headerware.interceptors.sign import Sign, SignStep
from headerware.keyring import Keyring, encode_keyring, with_new_key, with_revocation
from headerware.keyring.signature import decode_stamp, decode_statement
from headerware.keyring.writing import edit_keyring
from tests.batches import sent_together

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headerware.testing import EmbeddedCluster

NOW = 1_760_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    keyring = Keyring()
    for algorithm in ("hmac-sha256", "ed25519", "ecdsa-p256"):
        keyring = with_new_key(keyring, algorithm, algorithm)
    path = tmp_path / "keys.json"
    path.write_bytes(encode_keyring(keyring))
    path.chmod(0o600)
    return path


def opened(path: Path, key_id: str = "ed25519", most: int = 8, **context: Any) -> SignStep:
    options: dict[str, Any] = {"now_ms": lambda: NOW, **context}
    return Sign(keyring=str(path), key_id=key_id, batch_records=most).open(Context(**options))


def plain(number: int, topic: str = "orders") -> Record:
    return Record(topic, b"%d" % number, b"k", Headers([("a", b"1")]), partition=0, offset=number)


def layout_of(record: Record) -> bytes:
    return b64decode(record.headers.last("hw.sig") or b"", validate=True)


def together(step: SignStep, records: Sequence[Record]) -> list[Record]:
    signed = sent_together(step, records)
    assert [out for out in signed if isinstance(out, SignatureError)] == []
    return [out for out in signed if isinstance(out, Record)]


def places(signed: Sequence[Record]) -> list[tuple[int, int]]:
    """Return each record's index and count; of one with a signature of its own, (0, 1)."""
    found = []
    for record in signed:
        layout = layout_of(record)
        end = decode_statement(layout)[1] + 24
        two = (int.from_bytes(layout[end : end + 2], "big"), int.from_bytes(layout[end + 2 : end + 4], "big"))
        found.append(two if layout[0] == 2 else (0, 1))
    return found


def stamp_of(record: Record) -> tuple[int, bytes, int]:
    layout = layout_of(record)
    end = decode_statement(layout)[1]
    found: tuple[int, bytes, int] = decode_stamp(layout[end : end + 24])
    return found


class TestOptions:
    @pytest.mark.parametrize("most", [0, -1, 65_536])
    def test_refuses_what_no_count_can_say(self, most: int) -> None:
        with pytest.raises(ConfigError, match="batch_records: expected 1 to 65535"):
            Sign(keyring="k", batch_records=most)
        with pytest.raises(msgspec.ValidationError, match="batch_records"):
            msgspec.convert({"keyring": "k", "batch_records": most}, Sign)

    def test_is_off_by_default(self, path: Path) -> None:
        assert Sign(keyring=str(path), key_id="ed25519").batch_records == 1
        assert places(together(opened(path, most=1), [plain(0), plain(1)])) == [(0, 1), (0, 1)]

    @pytest.mark.parametrize("key_id", ["ed25519", "ecdsa-p256", "hmac-sha256"])
    @pytest.mark.parametrize("most", [1, 2, 9, 64])
    def test_overhead_is_an_upper_bound(self, path: Path, key_id: str, most: int) -> None:
        step = opened(path, key_id, most)
        signed = [step.on_send(plain(0)), *together(step, list(map(plain, range(64))))]
        largest = max(len(record.headers.last("hw.sig") or b"") for record in signed)
        assert largest <= step.overhead_bytes(plain(0)) <= largest + 16 + 4 * (32 + 255) // 3 + 4


class TestBatches:
    def test_records_share_signatures_up_to_the_limit(self, path: Path) -> None:
        signed = together(opened(path), list(map(plain, range(18))))
        assert places(signed) == [
            *((at, 8) for at in range(8)),
            *((at, 8) for at in range(8)),
            (0, 2),
            (1, 2),
        ]
        assert len({layout_of(record)[-64:] for record in signed}) == 3

    def test_what_is_alone_has_a_signature_of_its_own(self, path: Path) -> None:
        step = opened(path)
        assert places(together(step, [plain(0)])) == [(0, 1)]
        assert places([step.on_send(plain(0))]) == [(0, 1)]
        assert places(together(step, list(map(plain, range(9))))) == [*((at, 8) for at in range(8)), (0, 1)]

    def test_hmac_signs_each_record(self, path: Path) -> None:
        signed = together(opened(path, "hmac-sha256"), list(map(plain, range(3))))
        assert places(signed) == [(0, 1)] * 3

    def test_each_has_a_sequence_of_its_own(self, path: Path) -> None:
        step = opened(path)
        signed = [*together(step, list(map(plain, range(5)))), step.on_send(plain(0))]
        assert [stamp_of(record)[2] for record in signed] == list(range(6))
        assert {stamp_of(record)[:2] for record in signed} == {(NOW, stamp_of(signed[0])[1])}

    def test_a_bad_record_takes_no_neighbour_along(self, path: Path) -> None:
        step = opened(path)
        twice = step.on_send(plain(1))
        first, refused, last = sent_together(step, [plain(0), twice, plain(2)])
        assert isinstance(refused, SignatureError)
        assert isinstance(first, Record)
        assert isinstance(last, Record)
        assert places([first, last]) == [(0, 2), (1, 2)]
        alone, refused = sent_together(step, [plain(0), twice])
        assert isinstance(refused, SignatureError)
        assert isinstance(alone, Record)
        assert places([alone]) == [(0, 1)]
        for record in (first, last, alone):
            assert step.on_consume(record).headers == plain(0).headers

    def test_threads_share_no_sequence_and_no_tree(self, path: Path) -> None:
        step, signed = opened(path, most=16), []

        def send(begin: int) -> None:
            signed.extend(together(step, list(map(plain, range(begin, begin + 160)))))

        threads = [Thread(target=send, args=(begin,)) for begin in range(0, 1600, 160)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({stamp_of(record)[2] for record in signed}) == 1600
        reader = opened(path)
        assert len({reader.on_consume(record).value for record in signed}) == 1600

    def test_a_fork_signs_under_another_producer(self, path: Path) -> None:
        step = opened(path)
        (before, *_) = together(step, [plain(0), plain(1)])
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                (after, *_) = together(step, [plain(0), plain(1)])
                os.write(writing, stamp_of(after)[1])
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reading, 8) not in {b"", stamp_of(before)[1]}
        os.close(reading)
        os.close(writing)

    def test_a_key_that_cannot_sign_fails_each_record(self, path: Path) -> None:
        clock = [NOW]
        chain = Chain([Sign(keyring=str(path), key_id="ed25519", batch_records=8)])
        session = chain.open(Context(side="producer", now_ms=lambda: clock[0]))
        assert isinstance(session.send_outcomes([plain(0), plain(1)])[0], Record)
        edit_keyring(path, lambda ring: with_revocation(ring, "ed25519"))
        clock[0] += 1_000
        outcomes = session.send_outcomes([plain(0), plain(1)])
        assert [type(outcome) for outcome in outcomes] == [SignatureError] * 2
        path.unlink()
        clock[0] += 600_000
        assert [type(out) for out in session.send_outcomes([plain(0)] * 2)] == [HeldBackError] * 2

    def test_records_of_no_known_cluster_are_counted(self, path: Path) -> None:
        step = opened(path)
        together(step, list(map(plain, range(9))))
        assert step.stats()["unbound"] == 9


class TestChains:
    def test_a_session_signs_the_records_of_each_topic_together(self, path: Path) -> None:
        chain = Chain(
            [
                Trail(service="s"),
                Compress(min_bytes=1),
                Slice(max_bytes=2_000),
                Sign(keyring=str(path), key_id="ed25519", batch_records=64),
                HeaderIds(),
            ]
        )
        session = chain.open(Context(now_ms=lambda: NOW))
        large = plain(3).replace(value=os.urandom(6_000), offset=None)
        given = [plain(0), plain(1, "bills"), plain(2), large, plain(4), plain(5, "bills")]
        wire = session.send(given)
        assert [record.topic for record in wire[:3]] == ["orders", "bills", "orders"]
        back = session.consume([record.replace(offset=at) for at, record in enumerate(wire)])
        assert [record.value for record in back] == [record.value for record in given]
        assert [record.verified is not None for record in back] == [True] * 6

    def test_in_produce_many_on_the_way_to_a_plain_consumer(
        self, path: Path, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("batches")
        embedded_cluster.create_topic(topic)
        chain = Chain([Sign(keyring=str(path), key_id="ecdsa-p256", batch_records=100)])
        conf = {"bootstrap.servers": embedded_cluster.bootstrap_servers}
        delivered: list[Any] = []
        with Producer(conf, chain=chain) as producer:
            errors = producer.produce_many(
                topic,
                [{"value": b"%d" % number, "key": b"k"} for number in range(250)],
                on_delivery=lambda error, message: delivered.append((error, message.value())),
            )
            producer.produce(topic, b"250", b"k")
        assert errors == [None] * 250
        assert delivered == [(None, b"%d" % number) for number in range(250)]
        settings = {**conf, "group.id": topic, "auto.offset.reset": "earliest"}
        found: list[Any] = []
        deadline = time.monotonic() + 60
        with Consumer(settings, chain=chain) as consumer:
            consumer.subscribe([topic])
            while len(found) < 251 and time.monotonic() < deadline:
                found += [(each.value(), consumer.verified(each)) for each in consumer.consume(100, 0.5)]
        assert [value for value, _ in found] == [b"%d" % number for number in range(251)]
        assert [verified.sequence for _, verified in found] == list(range(251))
