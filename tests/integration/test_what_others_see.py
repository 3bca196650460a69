"""docs/what-others-see.md, row by row."""

from __future__ import annotations

import gzip
import json
import random
import time
import uuid
from base64 import b64decode, urlsafe_b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
import zstandard
from opentelemetry import trace
from opentelemetry.baggage import set_baggage
from opentelemetry.context import attach, detach
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from headerware import (
    CompressionError,
    HeaderError,
    Headers,
    HeaderwareError,
    InterceptorError,
    SignatureError,
    TransportHeaderError,
)
from headerware.dictionaries import FolderDictionaries
from headerware.dictionaries.dictionary import encode_mark
from headerware.dictionaries.store import publish
from headerware.interceptors import (
    Admission,
    Compress,
    Delay,
    Expire,
    Sign,
    Slice,
    Trace,
    Trail,
    read_trail,
)
from headerware.keyring import certify, encode_jwks, read_keyring, with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.testing import JavaTools
from tests.airports import airports, trained

if TYPE_CHECKING:
    from confluent_kafka import Message

    from headerware import Producer
    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker

TEXT: Final = b"text that compresses well. " * 20
NOISE: Final = random.Random(1).randbytes(300)
LARGE: Final = random.Random(2).randbytes(4_000)
AIRPORT: Final = airports()[7]
HOUR_MS: Final = 3_600_000
MOMENTS: Final = ["hw.expires", "hw.not-before"]
POLICY: Final = """
version = 1
audience = "all"

[[issuers]]
issuer = "i"
jwks = "issuer.jwks.json"
algorithms = ["Ed25519"]

[[rules]]
effect = "allow"
subjects = ["the shop"]
"""
OWN: Final[list[tuple[str, bytes | None]]] = [("a", b"1"), ("a", None), ("b", b"")]
STATE: Final = TraceState([("vendor", "1")])
SPAN: Final = NonRecordingSpan(
    SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1), trace_state=STATE)
)
W3C: Final = ["traceparent", "tracestate", "baggage"]
DEADLINE_S: Final = 60.0


class Seen(NamedTuple):
    """One topic with a record of each kind, by key, as a plain consumer sees it."""

    topic: str
    folder: Path
    """Has the keys, the certificate, the policy and the dictionaries."""
    records: dict[str, list[Message]]

    @property
    def keyring(self) -> str:
        return str(self.folder / "keys.json")

    @property
    def dictionaries(self) -> FolderDictionaries:
        return FolderDictionaries(path=str(self.folder / "dictionaries"))

    @property
    def policy(self) -> str:
        return str(self.folder / "policy.toml")

    def one(self, key: str) -> tuple[bytes | None, dict[str, bytes | None], list[str]]:
        """Return value, headers and names of the headers of the one record that has this key."""
        (message,) = self.records[key]
        headers = Headers(message.headers())
        assert headers[: len(OWN)] == tuple(OWN), "the application's own come first, untouched"
        return message.value(), dict(headers), list(headers.names()[len(OWN) :])

    def key_at(self, offset: int | None) -> str:
        return next(key for key, found in self.records.items() if offset in {m.offset() for m in found})


@pytest.fixture(scope="module")
def seen(shared_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    seen = Seen(shared_cluster.topic("seen"), tmp_path_factory.mktemp("seen"), {})
    edit_keyring(seen.keyring, lambda keys: with_new_key(keys, "test", "hmac-sha256"), create=True)
    edit_keyring(seen.keyring, lambda keys: with_new_key(keys, "shop", "ed25519"))
    certify_shop(seen)
    publish(seen.dictionaries.open(), trained(), seen.topic)
    topic, sign = seen.topic, Sign(keyring=seen.keyring, key_id="test")
    sign_as_shop = Sign(keyring=seen.keyring, key_id="shop")
    sent: list[tuple[str, bytes | None, list[object]]] = [
        ("plain", TEXT, []),
        ("trace", TEXT, [Trace()]),
        ("trail", TEXT, [Trail(service="orders")]),
        ("zstd", TEXT, [Compress()]),
        ("gzip", TEXT, [Compress(codec="gzip")]),
        ("incompressible", NOISE, [Compress()]),
        ("fits", TEXT, [Slice()]),
        ("slice", LARGE, [Slice(max_bytes=1_500)]),
        ("sign", TEXT, [sign]),
        ("sliced and signed", LARGE, [Slice(max_bytes=1_500), sign]),
        ("tombstone", None, [Trace(), Trail(), Compress(), Slice(max_bytes=1_500), sign]),
        ("dictionary", AIRPORT, [Compress(dictionaries=seen.dictionaries)]),
        ("expire", TEXT, [Expire(after_ms=HOUR_MS)]),
        ("delay", TEXT, [Delay(after_ms=1)]),
        ("admission", TEXT, [Admission(certificate=str(seen.folder / "shop.jwt")), sign_as_shop]),
    ]
    for key, value, chain in sent:
        producer = shared_cluster.producer(*chain)
        token = attach(set_baggage("tenant", "a", trace.set_span_in_context(SPAN)))
        producer.produce(topic, value, key, headers=OWN)
        detach(token)
        assert producer.flush(DEADLINE_S) == 0
    producer = shared_cluster.producer(Sign(keyring=seen.keyring, key_id="shop", batch_records=2))
    batch = [{"value": TEXT, "key": "batch", "headers": OWN}] * 2
    assert producer.produce_many(topic, batch)
    assert producer.flush(DEADLINE_S) == 0
    for message in shared_cluster.on_the_wire(topic):
        seen.records.setdefault((message.key() or b"").decode(), []).append(message)
    return seen


def certify_shop(seen: Seen) -> None:
    """Write what ``admission`` needs at both ends."""
    folder = seen.folder
    [issuer] = edit_keyring(
        folder / "issuer.json",
        lambda keys: with_new_key(keys, "issuer", "ed25519", use=("certify",)),
        create=True,
    ).keys
    shop = read_keyring(seen.keyring).current_key("shop", "sign", 0)
    certificate = certify(issuer, shop, issuer="i", subject="the shop", audience=["all"], topics=["*"])
    (folder / "shop.jwt").write_text(certificate)
    keys = encode_jwks(read_keyring(folder / "issuer.json"), use="certify")
    (folder / "issuer.jwks.json").write_bytes(keys)
    Path(seen.policy).write_text(POLICY)


class TestPlainConsumer:
    def test_java_sees_what_python_sees(self, shared_cluster: Cluster, seen: Seen) -> None:
        python = [
            (message.key(), message.value(), message.headers() or [])
            for messages in seen.records.values()
            for message in messages
        ]
        assert len(python) > len(seen.records)
        assert [tuple(record) for record in shared_cluster.in_java(seen.topic, len(python))] == python

    def test_plain(self, seen: Seen) -> None:
        value, _, names = seen.one("plain")
        assert (value, names) == (TEXT, [])

    def test_trace(self, seen: Seen) -> None:
        value, headers, names = seen.one("trace")
        assert (value, names) == (TEXT, W3C)
        assert headers["traceparent"] == f"00-{1:032x}-{2:016x}-01".encode()
        assert (headers["tracestate"], headers["baggage"]) == (b"vendor=1", b"tenant=a")

    def test_trail(self, seen: Seen) -> None:
        value, headers, names = seen.one("trail")
        assert (value, names) == (TEXT, ["hw.trail"])
        assert b"orders" in (headers["hw.trail"] or b"")

    def test_compress_by_zstd(self, seen: Seen) -> None:
        value, headers, names = seen.one("zstd")
        assert names == ["hw.compress"]
        assert headers["hw.compress"] == b"zstd"
        assert value != TEXT
        assert zstandard.decompress(value or b"") == TEXT

    def test_compress_by_gzip(self, seen: Seen) -> None:
        value, headers, names = seen.one("gzip")
        assert names == ["hw.compress"]
        assert headers["hw.compress"] == b"gzip"
        assert gzip.decompress(value or b"") == TEXT

    def test_compress_leaves_alone_what_does_not_shrink(self, seen: Seen) -> None:
        value, _, names = seen.one("incompressible")
        assert (value, names) == (NOISE, [])

    def test_slice_leaves_alone_what_fits(self, seen: Seen) -> None:
        value, _, names = seen.one("fits")
        assert (value, names) == (TEXT, [])

    def test_slice(self, seen: Seen) -> None:
        pieces = seen.records["slice"]
        assert len(pieces) > 2
        assert b"".join(piece.value() or b"" for piece in pieces) == LARGE
        names = [Headers(piece.headers()).names() for piece in pieces]
        assert names == [("a", "a", "b", "hw.slice"), *[("hw.slice",)] * (len(pieces) - 1)]
        assert {piece.partition() for piece in pieces} == {0}

    def test_sign(self, seen: Seen) -> None:
        value, headers, names = seen.one("sign")
        assert (value, names) == (TEXT, ["hw.sig"])
        assert b64decode(headers["hw.sig"] or b"")[:6] == b"\x01\x04test"

    def test_slice_and_sign(self, seen: Seen) -> None:
        pieces = seen.records["sliced and signed"]
        assert b"".join(piece.value() or b"" for piece in pieces) == LARGE
        assert {Headers(piece.headers()).names()[-2:] for piece in pieces} == {("hw.slice", "hw.sig")}

    def test_compress_with_a_dictionary(self, seen: Seen) -> None:
        value, headers, names = seen.one("dictionary")
        assert names == ["hw.compress"]
        assert headers["hw.compress"] == encode_mark(trained().id)
        opened = zstandard.ZstdDecompressor(dict_data=zstandard.ZstdCompressionDict(trained().content))
        assert opened.decompress(value or b"") == AIRPORT

    @pytest.mark.parametrize(("key", "header"), [("expire", "hw.expires"), ("delay", "hw.not-before")])
    def test_moments_are_digits(self, seen: Seen, key: str, header: str) -> None:
        value, headers, names = seen.one(key)
        assert (value, names) == (TEXT, [header])
        assert abs(int(headers[header] or b"") - time.time() * 1_000) < 2 * HOUR_MS

    def test_admission_and_sign(self, seen: Seen) -> None:
        value, headers, names = seen.one("admission")
        assert (value, names) == (TEXT, ["hw.admit", "hw.sig"])
        token = (headers["hw.admit"] or b"").decode()
        claims = token.split(".")[1]
        said = json.loads(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
        assert (said["sub"], said["topics"]) == ("the shop", ["*"])
        assert 300 < len(token) < 600

    def test_sign_in_batches(self, seen: Seen) -> None:
        alone = seen.one("admission")[1]["hw.sig"] or b""
        found = [Headers(message.headers()) for message in seen.records["batch"]]
        assert [headers.names() for headers in found] == [("a", "a", "b", "hw.sig")] * 2
        layouts = [b64decode(headers.last("hw.sig") or b"") for headers in found]
        assert [layout[:1] for layout in layouts] == [b"\x02"] * 2
        assert len(layouts[0]) > len(b64decode(alone)) + 32, "a hash for the only doubling"

    def test_a_tombstone_stays_one(self, seen: Seen) -> None:
        value, _, names = seen.one("tombstone")
        assert (value, names) == (None, [*W3C, "hw.trail", "hw.sig"])

    @pytest.mark.parametrize("switched_off", [False, True])
    def test_a_consumer_of_ours_without_a_chain_is_a_plain_one(
        self, shared_cluster: Cluster, seen: Seen, monkeypatch: pytest.MonkeyPatch, *, switched_off: bool
    ) -> None:
        chain = [Compress(), Slice(), Sign(keyring=seen.keyring)] if switched_off else []
        if switched_off:
            monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        consumer = shared_cluster.consumer(seen.topic, *chain, group_id=uuid.uuid4().hex)
        shown = [(m.value(), m.headers()) for m in shared_cluster.rest_of(consumer, seen.topic)]
        assert shown == [(m.value(), m.headers()) for found in seen.records.values() for m in found]


class TestChainThatLacksOne:
    """Consumers whose chain has all interceptors but one, over the same topic."""

    Delivered = dict[str, list[tuple[bytes | None, list[str]]]]

    def read(
        self, cluster: Cluster, seen: Seen, *lacking: type
    ) -> tuple[Delivered, dict[str, list[HeaderwareError]]]:
        chain = [
            Trace(),
            Trail(service="me"),
            Expire(),
            Delay(),
            Compress(dictionaries=seen.dictionaries),
            Slice(),
            Admission(policy=seen.policy, require="off"),
            Sign(keyring=seen.keyring, require="off"),
        ]
        kept = [interceptor for interceptor in chain if not isinstance(interceptor, lacking)]
        consumer = cluster.consumer(seen.topic, *kept, group_id=uuid.uuid4().hex)
        errors: list[HeaderwareError] = []
        delivered: TestChainThatLacksOne.Delivered = {}
        for message in cluster.rest_of(consumer, seen.topic, errors):
            names = [name for name in Headers(message.headers()).names() if name not in {"a", "b"}]
            delivered.setdefault((message.key() or b"").decode(), []).append((message.value(), names))
        refused: dict[str, list[HeaderwareError]] = {}
        for error in errors:
            refused.setdefault(seen.key_at(getattr(error, "offset", None)), []).append(error)
        return delivered, refused

    def test_nothing(self, shared_cluster: Cluster, seen: Seen) -> None:
        delivered, refused = self.read(shared_cluster, seen)
        assert refused == {}
        assert {key: [value for value, _ in found] for key, found in delivered.items()} == {
            **{key: [TEXT] for key in ("plain", "trace", "trail", "zstd", "gzip", "fits", "sign")},
            **{key: [TEXT] for key in ("expire", "delay", "admission")},
            "batch": [TEXT, TEXT],
            "dictionary": [AIRPORT],
            "incompressible": [NOISE],
            "slice": [LARGE],
            "sliced and signed": [LARGE],
            "tombstone": [None],
        }
        names = {name for found in delivered.values() for _, names in found for name in names}
        assert names == {*W3C, "hw.trail", *MOMENTS}, "the rest was for transport, and is taken off"

    def test_trace_and_trail(self, shared_cluster: Cluster, seen: Seen) -> None:
        delivered, refused = self.read(shared_cluster, seen, Trace, Trail)
        assert refused == {}
        assert delivered["trace"] == [(TEXT, W3C)]
        assert delivered["trail"] == [(TEXT, ["hw.trail"])]

    def test_expire_and_delay(self, shared_cluster: Cluster, seen: Seen) -> None:
        delivered, refused = self.read(shared_cluster, seen, Expire, Delay)
        assert refused == {}
        assert delivered["expire"] == [(TEXT, ["hw.expires", "hw.trail"])]
        assert delivered["delay"] == [(TEXT, ["hw.not-before", "hw.trail"])]
        producer = shared_cluster.producer(Trail())  # both may be sent on
        for key in ("expire", "delay"):
            producer.produce(shared_cluster.topic("on"), TEXT, headers=seen.records[key][0].headers())
        assert producer.flush(DEADLINE_S) == 0

    def test_admission(self, shared_cluster: Cluster, seen: Seen) -> None:
        delivered, refused = self.read(shared_cluster, seen, Admission)
        assert refused == {}
        assert delivered["admission"] == [(TEXT, ["hw.admit", "hw.trail"])]
        producer = shared_cluster.producer(Trail())
        with pytest.raises(HeaderError, match=r"hw\.admit"):
            producer.produce(seen.topic, TEXT, headers=[("hw.admit", b"a token")])

    def test_admission_is_in_the_chain(self, shared_cluster: Cluster, seen: Seen) -> None:
        chain = [
            Slice(),
            Admission(policy=seen.policy, require="off"),
            Sign(keyring=seen.keyring, require="off"),
        ]
        consumer = shared_cluster.consumer(seen.topic, *chain, group_id=uuid.uuid4().hex)
        subjects = {}
        for message in shared_cluster.rest_of(consumer, seen.topic, []):
            verified = consumer.verified(message)
            subjects[message.key()] = None if verified is None else verified.subject
        assert subjects[b"admission"] == "the shop"
        assert {subjects[b"sign"], subjects[b"batch"], subjects[b"plain"]} == {"", None}

    def test_compress(self, shared_cluster: Cluster, seen: Seen) -> None:
        delivered, refused = self.read(shared_cluster, seen, Compress)
        assert {key: [type(error) for error in found] for key, found in refused.items()} == {
            "zstd": [TransportHeaderError],
            "gzip": [TransportHeaderError],
            "dictionary": [TransportHeaderError],
        }
        assert "'compress'" in str(refused["zstd"][0]), "it says what to add"
        assert set(delivered) == set(seen.records) - {"zstd", "gzip", "dictionary"}

    def test_slice(self, shared_cluster: Cluster, seen: Seen) -> None:
        delivered, refused = self.read(shared_cluster, seen, Slice)
        assert {key: len(found) for key, found in refused.items()} == {
            key: len(seen.records[key]) for key in ("slice", "sliced and signed")
        }
        assert {type(error) for found in refused.values() for error in found} == {TransportHeaderError}
        assert set(delivered) == set(seen.records) - set(refused)

    def test_sign(self, shared_cluster: Cluster, seen: Seen) -> None:
        delivered, refused = self.read(shared_cluster, seen, Admission, Sign)  # which needs sign
        assert refused == {}
        for key, value in (("sign", TEXT), ("sliced and signed", LARGE), ("tombstone", None)):
            ((found, names),) = delivered[key]
            assert found == value
            assert names[-2:] == ["hw.sig", "hw.trail"], "left alone, and nobody has verified it"

    def test_a_signature_that_was_left_alone_is_not_sent_on(
        self, shared_cluster: Cluster, seen: Seen
    ) -> None:
        headers = seen.records["sign"][0].headers()
        producer = shared_cluster.producer(Trail())
        with pytest.raises(HeaderError, match=r"hw\.sig"):
            producer.produce(seen.topic, TEXT, headers=headers)


@pytest.fixture(scope="module")
def from_java(shared_cluster: Cluster) -> str:
    topic = shared_cluster.topic("from-java")
    JavaTools().console_producer(
        shared_cluster.servers,
        topic,
        ["a:1,b:2\tkey\tvalue"],
        properties={"parse.headers": "true", "parse.key": "true"},
        producer_config={"compression.type": "zstd"},  # of batches, which has nothing to do with ours
    )
    return topic


class TestPlainProducer:
    def read(
        self, cluster: Cluster, topic: str, *chain: object
    ) -> tuple[list[tuple[bytes | None, Headers]], list[HeaderwareError], dict[str, dict[str, int]]]:
        consumer = cluster.consumer(topic, *chain, group_id=uuid.uuid4().hex)
        refused: list[HeaderwareError] = []
        found = [(m.value(), Headers(m.headers())) for m in cluster.rest_of(consumer, topic, refused)]
        return found, refused, consumer.stats()

    @pytest.mark.parametrize("require", ["off", "warn"])
    def test_passes_while_signatures_are_not_required(
        self,
        shared_cluster: Cluster,
        from_java: str,
        seen: Seen,
        caplog: pytest.LogCaptureFixture,
        require: Any,
    ) -> None:
        chain = [Trace(), Compress(), Slice(), Sign(keyring=seen.keyring, require=require)]
        found, refused, stats = self.read(shared_cluster, from_java, *chain)
        assert (found, refused) == ([(b"value", (("a", b"1"), ("b", b"2")))], [])
        assert stats["sign"]["unsigned"] == 1
        logged = [f"topic {from_java!r} has records without a signature"] if require == "warn" else []
        assert [each for each in caplog.messages if "signature" in each] == logged

    def test_is_refused_where_signatures_are_required(
        self, shared_cluster: Cluster, from_java: str, seen: Seen
    ) -> None:
        sign = Sign(keyring=seen.keyring, require="enforce")
        found, (refused,), _ = self.read(shared_cluster, from_java, sign)
        assert found == []
        assert isinstance(refused, SignatureError)
        told = f"sign at {from_java}[0]@0: expected a signature, found no hw.sig header"
        assert str(refused).startswith(f"{told}; likely its producer has no chain")

    def test_its_trail_begins_where_we_read(self, shared_cluster: Cluster, from_java: str) -> None:
        ((_, headers),), _, _ = self.read(shared_cluster, from_java, Trail(service="billing", cluster="here"))
        (entry,) = read_trail(headers)
        assert (entry.by_whom, entry.read_from_cluster) == ("billing", "here")
        assert entry.read_from_topic == from_java
        assert entry.produced_into_topic is None

    @pytest.mark.parametrize(("key", "error"), [("zstd", CompressionError), ("sign", SignatureError)])
    def test_transport_headers_sent_on_where_they_do_not_fit_are_noticed(
        self, shared_cluster: Cluster, seen: Seen, key: str, error: type[HeaderwareError]
    ) -> None:
        # As by an application that reads with a chain, and sends what a plain consumer's headers say.
        topic = shared_cluster.topic("copies")
        producer = shared_cluster.plain_producer()
        producer.produce(topic, TEXT, key, headers=seen.records[key][0].headers())
        assert producer.flush(DEADLINE_S) == 0
        chain = [Compress(), Sign(keyring=seen.keyring, require="off")]
        found, refused, _ = self.read(shared_cluster, topic, *chain)
        assert (found, [type(each) for each in refused]) == ([], [error])

    def test_a_header_under_our_prefix_that_nobody_knows_is_left_alone(
        self, shared_cluster: Cluster, seen: Seen
    ) -> None:
        topic = shared_cluster.topic("unknown")
        producer = shared_cluster.plain_producer()
        producer.produce(topic, b"value", headers=[("hw.other", b"?")])
        producer.flush(DEADLINE_S)
        found, refused, _ = self.read(shared_cluster, topic, Compress(), Slice())
        assert (found, refused) == ([(b"value", (("hw.other", b"?"),))], [])


AT_ONCE: Final = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}


def put(producer: Producer, topic: str, *records: tuple[str, bytes]) -> None:
    """Send records with timestamps a second apart: each begins a segment, and the last stays as it is."""
    for number, (key, value) in enumerate(records):
        producer.produce(topic, value, key, timestamp=1_700_000_000_000 + 1_000 * number)
        assert producer.flush(DEADLINE_S) == 0


class TestCompactedTopics:
    def test_a_message_is_not_cut(self, second_cluster: Cluster) -> None:
        topic = second_cluster.topic("compacted", config=AT_ONCE)
        producer = second_cluster.producer(Slice(max_bytes=1_500))
        with pytest.raises(InterceptorError, match=r"is compacted.*claim_check"):
            put(producer, topic, ("large", LARGE))
        put(producer, topic, ("small", b"old"))
        assert [message.value() for message in second_cluster.on_the_wire(topic)] == [b"old"]

    def test_what_fits_one_record_is_compacted_as_ever(self, second_cluster: Cluster, keyring: str) -> None:
        # A compressed and signed tombstone deletes: see TestPlainConsumer.test_a_tombstone_stays_one.
        topic = second_cluster.topic("compacted", config=AT_ONCE)
        chain = [Trail(), Compress(), Slice(), Sign(keyring=keyring, key_id="test")]
        producer = second_cluster.producer(*chain)
        put(producer, topic, ("one", TEXT), ("two", b"old"), ("two", NOISE), ("end", b"end"))
        deadline = time.monotonic() + DEADLINE_S
        while len(second_cluster.on_the_wire(topic)) != 3:
            assert time.monotonic() < deadline, f"not compacted within {DEADLINE_S:.0f} s"
        consumer = second_cluster.consumer(topic, *chain)
        found = [(m.key(), m.value()) for m in second_cluster.rest_of(consumer, topic)]
        assert found == [(b"one", TEXT), (b"two", NOISE), (b"end", b"end")]
