from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import cbor2
import msgspec
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from headerware import DROP, Chain, ConfigError, Context, Headers, Record, SerdeError
from headerware.clients import Consumer, Producer
from headerware.core.options import from_option
from headerware.interceptors import Serialize
from headerware.serdes import (
    Avro,
    Cbor,
    CloudEvent,
    CloudEvents,
    Json,
    Polyglot,
    Protobuf,
    SerdeContext,
    Text,
)
from headerware.serdes.plugins import serde_type
from headerware.serdes.polyglot import _MAX_CACHED
from headerware.serdes.serde import Serde

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headerware.testing import EmbeddedCluster

NONE = Headers()
VALUE = SerdeContext()
TIME = Timestamp(seconds=7)
SECRET = "hunter2"


class Order(msgspec.Struct):
    id: int


class RushOrder(Order):
    pass


@dataclass
class Item:
    price: float


class Size(IntEnum):
    SMALL = 1


class Marked(Serde, frozen=True, kw_only=True):
    """Says which functions were used, and whether they were closed."""

    word: bytes = b"marked"
    opens: list[Any] = msgspec.field(default_factory=list)

    def open(self, context: SerdeContext) -> Any:
        self.opens.append(_Marked(self.word, context))
        return self.opens[-1]


class _Marked:
    closed = 0

    def __init__(self, word: bytes, context: SerdeContext) -> None:
        self.word, self.context = word, context

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
        return self.word, headers.add("schema", b"1")

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
        return self.word, headers.remove("schema")

    def close(self) -> None:
        self.closed += 1


class OnlyReads:
    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
        return payload, headers


def opened(part: Any = "value", **options: Any) -> Any:
    return Polyglot(**options).open(SerdeContext(part=part))


def typed(content_type: str | bytes | None, name: str = "content-type") -> Headers:
    return Headers([("other", b"1"), (name, content_type)])


class TestPolyglotOnConsume:
    @pytest.mark.parametrize(
        ("content_type", "payload", "value"),
        [
            ("application/json", b'{"a":1}', {"a": 1}),
            ("APPLICATION/JSON; Charset=UTF-8", b'{"a":1}', {"a": 1}),
            ("application/json;charset=utf-16", '"é"'.encode("utf-16"), "é"),
            ("text/json", b"1", 1),
            ("application/vnd.orders+json; v=2", b"[1]", [1]),
            ("application/msgpack", b"\x93\x01\x02\x03", [1, 2, 3]),
            ("application/x-msgpack", b"\x01", 1),
            ("application/cbor", cbor2.dumps({"a": b"\xff"}), {"a": b"\xff"}),
            ("application/senml+cbor", b"\x81\x01", [1]),
            ("text/plain", "é".encode(), "é"),
            ("text/csv; charset=iso-8859-1", b"\xe9", "é"),
            ("application/octet-stream", b"\xff", b"\xff"),
        ],
    )
    def test_the_content_type_chooses(self, content_type: str, payload: bytes, value: Any) -> None:
        headers = typed(content_type)
        functions = opened()
        for _ in range(2):  # found, and remembered
            found, after = functions.deserialize("t", headers, payload)
            assert (found, after is headers) == (value, True)

    def test_the_last_of_several_counts_however_it_is_spelled(self) -> None:
        headers = Headers([("content-type", b"text/plain"), ("Content-Type", b"application/json")])
        assert opened().deserialize("t", headers, b"1")[0] == 1
        assert opened().deserialize("t", Headers(reversed(headers)), b"1")[0] == "1"

    def test_however_it_is_spelled_its_charset_counts(self) -> None:
        headers = typed("text/plain; charset=utf-16le", "Content-Type")
        assert opened().deserialize("t", headers, "ab".encode("utf-16le"))[0] == "ab"
        assert opened().serialize("t", headers, "ab") == ("ab".encode("utf-16le"), headers)
        json = typed("application/json", "Content-Type")
        assert opened().serialize("t", json, {}) == (b"{}", json)

    def test_keys_have_a_header_of_their_own(self) -> None:
        headers = Headers([("key-content-type", b"application/json"), ("content-type", b"text/plain")])
        assert opened("key").deserialize("t", headers, b"1")[0] == 1
        assert opened("value").deserialize("t", headers, b"1")[0] == "1"

    def test_the_header_may_be_another(self) -> None:
        functions = opened(header="format", types={"application/x-own": Marked()})
        assert (
            functions.deserialize("t", typed("text/plain; charset=iso-8859-1", "format"), b"\xe9")[0] == "é"
        )
        assert functions.deserialize("t", typed("text/plain"), b"1")[0] == b"1"
        assert functions.serialize("t", NONE, "x")[1] == Headers({"format": "text/plain; charset=utf-8"})

    def test_the_header_may_be_an_id(self) -> None:
        functions = opened(header="10.9.8.7")
        headers = functions.serialize("t", NONE, [1])[1]
        assert len(headers) == 1
        assert functions.deserialize("t", headers, b"[1]")[0] == [1]

    def test_without_a_content_type_it_is_the_default(self) -> None:
        assert opened().deserialize("t", NONE, b"1") == (b"1", NONE)
        assert opened(default="json").deserialize("t", NONE, b"1") == (1, NONE)

    def test_a_null_goes_through(self) -> None:
        for headers in (NONE, typed("application/json"), typed("a/b")):
            assert opened().deserialize("t", headers, None) == (None, headers)
            assert opened().serialize("t", headers, None) == (None, headers)

    @pytest.mark.parametrize(
        "content_type", [f"application/{SECRET}", "application/xml", SECRET, "", None, b"\xff/\xff"]
    )
    def test_unknown_and_malformed_types_are_refused_or_bytes(self, content_type: str | bytes | None) -> None:
        headers = typed(content_type)
        with pytest.raises(SerdeError) as caught:
            opened().deserialize("t", headers, b"1")
        assert SECRET not in str(caught.value)
        assert opened(unknown="bytes").deserialize("t", headers, b"1") == (b"1", headers)

    def test_says_which_types_there_are(self) -> None:
        with pytest.raises(SerdeError, match=r"there is no serde .*: .*application/json, .*text/plain"):
            opened().deserialize("t", typed("application/xml"), b"1")

    def test_a_flood_of_types_takes_no_memory(self) -> None:
        functions = opened(unknown="bytes")
        for number in range(3 * _MAX_CACHED):
            functions.deserialize("t", typed(f"a/b{number}"), b"")
            functions.serialize("t", typed(f"a/b{number}"), b"")
        functions.deserialize("t", typed("a/b; c=" + "d" * 500), b"")
        assert functions._readers.total() <= _MAX_CACHED
        assert functions._writers.total() <= _MAX_CACHED
        assert all(len(known) < 200 for known in functions._readers)

    def test_a_corrupt_payload_is_its_serdes_error(self) -> None:
        with pytest.raises(SerdeError, match="expected JSON"):
            opened().deserialize("t", typed("application/json"), b"{")


class TestPolyglotTypes:
    def test_a_serde_serves_its_types_aliases_and_suffix(self) -> None:
        functions = opened(types={"application/avro-binary": Marked()})
        for content_type in ("avro/binary", "application/avro", "application/vnd.orders+avro"):
            assert functions.deserialize("t", typed(content_type), b"")[0] == b"marked"
        assert functions.deserialize("t", typed("application/json"), b"1")[0] == 1

    def test_the_very_type_comes_before_its_format(self) -> None:
        functions = opened(
            types={"Application/vnd.Orders+JSON": Marked(word=b"orders"), "text/json": Marked(word=b"x")}
        )
        assert functions.deserialize("t", typed("application/vnd.orders+json"), b"1")[0] == b"orders"
        assert functions.deserialize("t", typed("application/json"), b"1")[0] == b"x"

    @pytest.mark.parametrize(
        ("content_type", "serde", "value"),
        [
            ("application/x-duration", Protobuf(message=Duration), Duration(seconds=3)),
            ("application/vnd.durations+protobuf", Protobuf(message=Duration), Duration(seconds=3)),
            ("application/x-any", Cbor(keys="any"), {1: 2}),
            ("application/x-order", Avro(schema='"string"'), "x"),
        ],
    )
    def test_what_chose_a_serde_on_send_chooses_it_on_consume(
        self, content_type: str, serde: Any, value: Any
    ) -> None:
        types = {"application/protobuf": Protobuf(message=Timestamp), content_type: serde}
        by_header, by_type = opened(types=types), opened(types=types, by_type={type(value): content_type})
        for functions, headers in ((by_header, Headers({"content-type": content_type})), (by_type, NONE)):
            payload, after = functions.serialize("t", headers, value)
            assert after.all("content-type") == (content_type.encode(),)
            assert functions.deserialize("t", after, payload)[0] == value
            functions.close()

    def test_what_a_serde_adds_to_headers_and_takes_off_is_kept(self) -> None:
        functions = opened(types={"a/b": Marked()})
        sent = functions.serialize("t", typed("a/b"), 1)
        assert sent == (b"marked", typed("a/b").add("schema", b"1"))
        assert functions.deserialize("t", sent[1], sent[0])[1] == typed("a/b")

    def test_each_serde_is_opened_and_closed_once(self) -> None:
        serde = Marked()
        functions = opened("key", types={"a/b": serde, "a/c": serde})
        assert len(serde.opens) == 1
        assert serde.opens[0].context.part == "key"
        functions.close()
        functions.close()
        assert serde.opens[0].closed == 1

    def test_what_was_opened_is_closed_where_another_cannot_be_opened(self) -> None:
        serde = Marked()
        with pytest.raises(ConfigError):
            opened(types={"a/b": serde, "a/c": Protobuf(message="no_such:Message")})
        assert serde.opens[0].closed == 1

    def test_half_a_serde_says_what_it_cannot_do(self) -> None:
        functions = opened(types={"a/b": OnlyReads()})
        assert functions.deserialize("t", typed("a/b"), b"1")[0] == b"1"
        with pytest.raises(SerdeError, match="cannot serialize"):
            functions.serialize("t", typed("a/b"), 1)

    def test_is_configured_by_words_and_tables(self) -> None:
        table = {
            "type": "polyglot",
            "default": "json",
            "unknown": "bytes",
            "types": {"application/x-latin": {"type": "text", "encoding": "iso-8859-1"}, "a/b": "json"},
            "by_type": {"str": "application/x-latin"},
        }
        assert from_option(table, serde_type, path="value") == Polyglot(
            default=Json(),
            unknown="bytes",
            types={"application/x-latin": Text(encoding="iso-8859-1"), "a/b": Json()},
            by_type={"str": "application/x-latin"},
        )

    @pytest.mark.parametrize(
        ("options", "path"),
        [
            ({"types": {"json": Json()}}, r"types\.json"),
            ({"types": {"": Json()}}, r"types\."),
            ({"types": {"a/b; c=d": Json()}}, r"types\.a/b; c=d"),
            ({"types": {"a/b": "jsn"}}, r"types\.a/b"),
            ({"types": {"a/b": 3}}, r"types\.a/b"),
            ({"default": "jsn"}, "default"),
            ({"unknown": "skip"}, "unknown"),
            ({"by_type": {"str": "application/xml"}}, r"by_type\.str"),
            ({"by_type": {"str": "json"}}, r"by_type\.str"),
            ({"by_type": {"str": ""}}, r"by_type\.str"),
            ({"by_type": {3: "text/plain"}}, "by_type"),
        ],
    )
    def test_refuses_options_that_cannot_work(self, options: dict[str, Any], path: str) -> None:
        with pytest.raises(ConfigError, match=f"^{path}: "):
            Polyglot(**options)

    @pytest.mark.parametrize(
        "name", ["no_such_module:X", "NoSuchType", "builtins:len", "builtins.NoSuch", ":", "a:", ".a:B"]
    )
    def test_refuses_types_that_cannot_be_imported(self, name: str) -> None:
        with pytest.raises(ConfigError, match=rf"^by_type\.{name}: "):
            opened(by_type={name: "text/plain"})


class TestPolyglotOnSend:
    @pytest.mark.parametrize(
        ("value", "payload", "content_type"),
        [
            (b"\xff", b"\xff", b"application/octet-stream"),
            (bytearray(b"a"), b"a", b"application/octet-stream"),
            (memoryview(b"a"), b"a", b"application/octet-stream"),
            ("é", "é".encode(), b"text/plain; charset=utf-8"),
            ({"a": 1}, b'{"a":1}', b"application/json"),
            ([1], b"[1]", b"application/json"),
            ((1,), b"[1]", b"application/json"),
            (1, b"1", b"application/json"),
            (1.5, b"1.5", b"application/json"),
            (True, b"true", b"application/json"),
            (Size.SMALL, b"1", b"application/json"),
            (RushOrder(1), b'{"id":1}', b"application/json"),
            (Item(1.5), b'{"price":1.5}', b"application/json"),
        ],
    )
    def test_the_objects_type_chooses(self, value: Any, payload: bytes, content_type: bytes) -> None:
        functions = opened()
        for _ in range(2):  # found, and remembered
            sent = functions.serialize("t", Headers({"a": b"1"}), value)
            assert sent == (payload, Headers([("a", b"1"), ("content-type", content_type)]))

    @pytest.mark.parametrize("kind", [OrderedDict, "collections:OrderedDict", "collections.OrderedDict"])
    def test_by_type_comes_first(self, kind: Any) -> None:
        functions = opened(by_type={kind: "application/msgpack"})
        sent = functions.serialize("t", NONE, OrderedDict(id=1))
        assert sent == (b"\x81\xa2id\x01", Headers({"content-type": "application/msgpack"}))
        assert functions.serialize("t", NONE, {"id": 1})[0] == b'{"id":1}'

    def test_by_type_holds_for_subtypes(self) -> None:
        functions = opened(by_type={Order: "application/msgpack"})
        assert functions.serialize("t", NONE, RushOrder(1))[0] == b"\x81\xa2id\x01"

    def test_the_nearest_ancestor_counts(self) -> None:
        functions = opened(by_type={Order: "application/msgpack", RushOrder: "application/cbor"})
        assert functions.serialize("t", NONE, RushOrder(1))[1] == Headers(
            {"content-type": "application/cbor"}
        )

    @pytest.mark.parametrize("name", ["dict", "builtins.dict", "builtins:dict"])
    def test_a_content_type_of_ones_own_is_stated(self, name: str) -> None:
        sent = opened(by_type={name: "application/vnd.orders+json"}).serialize("t", NONE, {"a": 1})
        assert sent == (b'{"a":1}', Headers({"content-type": "application/vnd.orders+json"}))

    def test_text_is_written_in_the_charset_that_is_stated(self) -> None:
        by_type = opened(by_type={str: "text/plain; charset=iso-8859-1"}).serialize("t", NONE, "é")
        assert by_type == (b"\xe9", Headers({"content-type": "text/plain; charset=iso-8859-1"}))
        by_serde = opened(types={"text/plain": Text(encoding="utf-16")}).serialize("t", NONE, "é")
        assert by_serde == ("é".encode("utf-16"), Headers({"content-type": "text/plain; charset=utf-16"}))

    def test_a_content_type_is_stated_where_the_serde_states_none(self) -> None:
        for serde in (Json(content_type=""), OnlyJson()):
            sent = opened(types={"application/json": serde}).serialize("t", NONE, [1])
            assert sent == (b"[1]", Headers({"content-type": "application/json"}))

    @pytest.mark.parametrize(
        ("content_type", "value", "payload"),
        [
            ("application/msgpack", {"a": 1}, b"\x81\xa1a\x01"),
            ("application/json", "text", b'"text"'),
            ("application/vnd.orders+json", [1], b"[1]"),
            ("text/csv; charset=iso-8859-1", "é", b"\xe9"),
            ("application/octet-stream", b"1", b"1"),
        ],
    )
    def test_an_applications_own_content_type_chooses_and_stays(
        self, content_type: str, value: Any, payload: bytes
    ) -> None:
        headers = typed(content_type)
        sent = opened().serialize("t", headers, value)
        assert (sent[0], sent[1] is headers) == (payload, True)

    def test_an_unknown_content_type_is_refused_or_takes_bytes(self) -> None:
        headers = typed("image/png")
        with pytest.raises(SerdeError, match="there is no serde"):
            opened().serialize("t", headers, b"1")
        assert opened(unknown="bytes").serialize("t", headers, b"1") == (b"1", headers)
        with pytest.raises(SerdeError, match="expected bytes"):
            opened(unknown="bytes").serialize("t", headers, {})

    @pytest.mark.parametrize("value", [object(), {1}, 1j, TIME])
    def test_objects_of_other_types_are_refused(self, value: Any) -> None:
        with pytest.raises(
            SerdeError, match=f"there is no content type for objects of type {type(value).__name__}"
        ):
            opened().serialize("t", NONE, value)

    def test_messages_are_written_where_protobuf_is_there(self) -> None:
        functions = opened(types={"application/protobuf": Protobuf(message=Timestamp)})
        payload, headers = functions.serialize("t", NONE, TIME)
        assert headers == Headers({"content-type": "application/protobuf; proto=google.protobuf.Timestamp"})
        assert functions.deserialize("t", headers, payload)[0] == TIME
        assert functions.deserialize("t", typed("application/x-protobuf"), payload)[0] == TIME

    def test_avro_with_its_schema_in_a_header_is_one_of_them(self) -> None:
        schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
        avro = Polyglot(
            types={"application/avro-binary": Avro(schema=schema)}, by_type={Order: "application/avro-binary"}
        )
        functions = avro.open(VALUE)
        payload, headers = functions.serialize("t", NONE, Order(3))
        assert (payload, headers.last("content-type")) == (b"\x06", b"application/avro-binary")
        assert functions.deserialize("t", headers, payload)[0] == {"id": 3}
        functions.close()

    def test_events_are_written_where_cloudevents_are_there(self) -> None:
        functions = opened(types={"application/cloudevents+json": CloudEvents(mode="structured")})
        event = CloudEvent(id="1", source="/a", type="b", data=[1])
        payload, headers = functions.serialize("t", NONE, event)
        assert headers == Headers({"content-type": "application/cloudevents+json"})
        assert functions.deserialize("t", headers, payload)[0].data == [1]


class OnlyJson:
    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
        return msgspec.json.encode(value), headers


class TestPolyglotInAChain:
    def test_an_unknown_type_goes_to_the_dead_letters_and_the_stream_goes_on(self) -> None:
        letters: list[Record] = []
        chain = Chain([Serialize(value=Polyglot(), on_error="dead_letter")])
        session = chain.open(Context(publish=letters.append))
        good = Record("t", b"1", None, typed("application/json"), 0, offset=1)
        bad = Record("t", b"<a/>", b"k", typed("application/xml"), 0, offset=2)
        outcomes: Sequence[Any] = session.consume_outcomes([good, bad, good])
        assert [getattr(outcome, "value", None) for outcome in outcomes] == [1, DROP.value, 1]
        (letter,) = letters
        assert (letter.topic, letter.value, letter.key) == ("t.dead-letter", b"<a/>", b"k")
        assert tuple(letter.headers)[:2] == tuple(bad.headers)

    def test_one_topic_holds_many_formats(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        topic, servers = unique_topic("polyglot"), {"bootstrap.servers": embedded_cluster.bootstrap_servers}
        embedded_cluster.create_topic(topic)
        polyglot = Polyglot(
            types={"application/protobuf": Protobuf(message=Timestamp)}, by_type={Order: "application/cbor"}
        )
        chain = Chain([Serialize(key=Polyglot(), value=polyglot)])
        values = [{"a": 1}, "é", b"\xff", Order(3), TIME, None, [1.5]]
        producer = Producer(servers, chain=chain)
        for value in values:
            producer.produce(topic, value, key="k")
        producer.produce(topic, {"b": 2}, headers={"content-type": "application/x-msgpack"})
        assert producer.flush(60) == 0
        with Consumer(
            {**servers, "group.id": topic, "auto.offset.reset": "earliest"}, chain=chain
        ) as consumer:
            consumer.subscribe([topic])
            found: list[Any] = []
            deadline = time.monotonic() + 60
            while len(found) < len(values) + 1 and time.monotonic() < deadline:
                found += consumer.consume(10, 0.5)
        assert [message.value() for message in found] == [*values[:3], {"id": 3}, *values[4:], {"b": 2}]
        assert [message.key() for message in found] == ["k"] * len(values) + [None]
        assert dict(found[0].headers()) == {
            "key-content-type": b"text/plain; charset=utf-8",
            "content-type": b"application/json",
        }
        assert dict(found[5].headers()) == {"key-content-type": b"text/plain; charset=utf-8"}
        assert found[-1].headers() == [("content-type", b"application/x-msgpack")]
