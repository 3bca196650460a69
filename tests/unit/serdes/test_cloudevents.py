from __future__ import annotations

import copy
import pickle
import time
from base64 import b64encode
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from headerware import Chain, ConfigError, Headers, SerdeError
from headerware.clients import Consumer, Producer
from headerware.core.options import from_option
from headerware.interceptors import Serialize
from headerware.serdes import CloudEvent, CloudEvents, Json, Polyglot, SerdeContext
from headerware.serdes.cloudevents.event import attribute_text, parse_time
from headerware.serdes.plugins import serde_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.testing import EmbeddedCluster

NONE = Headers()
SECRET = "hunter2"
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
MODES = pytest.mark.parametrize("mode", ["binary", "structured"])
JSON_EVENT = Headers({"content-type": "application/cloudevents+json"})
CE = {"ce_specversion": "1.0", "ce_id": "7", "ce_source": "/shop", "ce_type": "placed"}
MEMBERS = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "placed"}


def opened(**options: Any) -> Any:
    return CloudEvents(**options).open(SerdeContext())


def event(**attributes: Any) -> CloudEvent:
    return CloudEvent(**{"id": "7", "source": "/shop", "type": "placed"} | attributes)


def read(headers: Any, payload: bytes | None) -> Any:
    return opened().deserialize("t", Headers(headers), payload)[0]


def read_json(members: Any) -> Any:
    return read(JSON_EVENT, msgspec.json.encode(members))


class TestCloudEvent:
    def test_key_is_the_partition_key(self) -> None:
        assert event(extensions={"partitionkey": "k"}).key == "k"
        assert event(extensions={"partitionkey": 7}).key == "7"
        assert event().key is None

    def test_survives_pickling_and_copying(self) -> None:
        event = CloudEvent(id="1", source="/shop", type="placed", data={"a": 1})
        assert pickle.loads(pickle.dumps(event)) == event  # noqa: S301 - our own
        assert copy.deepcopy(event) == event

    def test_attributes_make_it_again(self) -> None:
        whole = event(
            time=NOON, subject="s", dataschema="urn:x", datacontenttype="a/b", extensions={"x": 1}, data=b""
        )
        assert CloudEvent.of(whole.attributes(), whole.data) == whole
        assert event().attributes() == MEMBERS

    def test_none_is_not_there(self) -> None:
        assert CloudEvent.of({**MEMBERS, "subject": None, "x": None}) == event()

    @pytest.mark.parametrize("name", ["specversion", "id", "source", "type"])
    def test_names_missing_parts(self, name: str) -> None:
        with pytest.raises(SerdeError, match=f"required {name}$"):
            CloudEvent.of({key: value for key, value in MEMBERS.items() if key != name})

    @pytest.mark.parametrize(
        "attributes",
        [
            {"id": ""},
            {"id": 7},
            {"id": None},
            {"id": "a\n"},
            {"id": "\ud800"},
            {"type": ""},
            {"specversion": "0.3"},
            {"specversion": "1.0.2"},
            {"source": ""},
            {"source": "a b"},
            {"source": "/%zz"},
            {"source": "<x>"},
            {"source": "/é"},
            {"subject": ""},
            {"dataschema": "/relative"},
            {"dataschema": "http://a b"},
            {"datacontenttype": "json"},
            {"datacontenttype": ""},
            {"time": datetime(2026, 1, 2)},  # noqa: DTZ001 - without a zone is what is tested
            {"time": "2026-01-02T12:00:00Z"},
            {"extensions": {"Upper": "x"}},
            {"extensions": {"a_b": "x"}},
            {"extensions": {"": "x"}},
            {"extensions": {"data": "x"}},
            {"extensions": {"id": "x"}},
            {"extensions": {"é": "x"}},
            {"extensions": {7: "x"}},
            {"extensions": {"a": 2**31}},
            {"extensions": {"a": 1.5}},
            {"extensions": {"a": None}},
            {"extensions": {"a": ["x"]}},
            {"extensions": {"a": "\x00"}},
            {"extensions": {"a": datetime(2026, 1, 2)}},  # noqa: DTZ001 - likewise
        ],
    )
    def test_refuses_what_cloudevents_does_not_allow(self, attributes: dict[str, Any]) -> None:
        with pytest.raises(SerdeError, match="CloudEvent"):
            event(**attributes)

    @pytest.mark.parametrize(
        "source", ["/a", "urn:uuid:1", "https://a.b/c?d=e#f", "../x", "%C3%A9", "mailto:a@b"]
    )
    def test_a_source_is_any_uri_reference(self, source: str) -> None:
        assert event(source=source).source == source

    def test_errors_never_hold_a_value(self) -> None:
        for attributes in (
            {"source": f"{SECRET} "},
            {"extensions": {"a": f"{SECRET}\n"}},
            {"extensions": {f"{SECRET}_": "a"}},
        ):
            with pytest.raises(SerdeError) as caught:
                event(**attributes)
            assert SECRET not in str(caught.value)


class TestTimes:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("2026-01-02T12:00:00Z", NOON),
            ("2026-01-02t12:00:00z", NOON),
            ("2026-01-02T13:30:00+01:30", NOON),
            ("2026-01-02T12:00:00.5Z", NOON + timedelta(milliseconds=500)),
            ("2026-01-02T12:00:00.123456789Z", NOON + timedelta(microseconds=123456)),
        ],
    )
    def test_are_read(self, text: str, value: datetime) -> None:
        assert parse_time(text) == value

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "2026-01-02",
            "2026-01-02T12:00:00",
            "2026-01-02 12:00:00Z",
            "2026-13-02T12:00:00Z",
            "2026-01-02T25:00:00Z",
            "2026-01-02T12:00:00+01",
            "20260102T120000Z",
            "2026-01-02T12:00:00Zx",
            "٢٠٢٦-01-02T12:00:00Z",
        ],
    )
    def test_refuses_others(self, text: str) -> None:
        with pytest.raises(SerdeError, match="RFC 3339"):
            parse_time(text)

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (NOON, "2026-01-02T12:00:00Z"),
            (NOON.astimezone(timezone(timedelta(hours=-3))), "2026-01-02T09:00:00-03:00"),
            (NOON.astimezone(timezone(timedelta(seconds=19))), "2026-01-02T12:00:00Z"),
            (True, "true"),
            (-3, "-3"),
            (b"\xff", "/w=="),
            ("x", "x"),
        ],
    )
    def test_attributes_are_written_as_text(self, value: Any, text: str) -> None:
        assert attribute_text(value) == text


class TestCloudEvents:
    @MODES
    @pytest.mark.parametrize(
        ("data", "content_type", "found"),
        [
            ({"a": [1.5, None]}, "application/json", {"a": [1.5, None]}),
            ("text", "application/json", "text"),
            ({"a": 1}, "application/vnd.orders+json", {"a": 1}),
            ("é", "text/plain; charset=iso-8859-1", "é"),
            (b"\xff", "image/png", b"\xff"),
            (b'{"a":1}', "application/json", {"a": 1}),
            (bytearray(b"<a/>"), "application/xml", b"<a/>"),
            ({"a": b"\xff"}, "application/cbor", {"a": b"\xff"}),
            (None, "application/json", None),
            ("", "text/plain", ""),
            (b"", "image/png", b""),
        ],
    )
    def test_data_goes_both_ways_by_its_content_type(
        self, mode: str, data: Any, content_type: str, found: Any
    ) -> None:
        sent = event(datacontenttype=content_type, data=data, time=NOON, subject="é", extensions={"x": "1"})
        payload, headers = opened(mode=mode).serialize("t", Headers({"own": b"1"}), sent)
        received, after = opened().deserialize("t", headers, payload)
        assert received == msgspec.structs.replace(sent, data=found)
        assert after == Headers([("own", b"1"), ("content-type", content_type.encode())])

    @MODES
    @pytest.mark.parametrize(
        ("data", "content_type"),
        [
            ([1], "application/json"),
            ("é", "text/plain; charset=utf-8"),
            (b"\xff", "application/octet-stream"),
        ],
    )
    def test_without_a_content_type_the_datas_type_decides(
        self, mode: str, data: Any, content_type: str
    ) -> None:
        payload, headers = opened(mode=mode).serialize("t", NONE, event(data=data))
        received, _ = opened().deserialize("t", headers, payload)
        assert (received.data, received.datacontenttype) == (data, content_type)

    @MODES
    def test_a_none_is_a_tombstone_both_ways(self, mode: str) -> None:
        headers = Headers({"own": b"1"})
        assert opened(mode=mode).serialize("t", headers, None) == (None, headers)
        for given in (headers, JSON_EVENT, Headers({"content-type": "application/json"})):
            assert opened(mode=mode).deserialize("t", given, None) == (None, given)

    @MODES
    def test_replaces_an_events_headers_and_keeps_the_others(self, mode: str) -> None:
        stale = Headers(
            [("a", b"1"), ("ce_id", b"old"), ("content-type", b"x/y"), ("a", b"2"), ("ce_gone", b"")]
        )
        payload, headers = opened(mode=mode).serialize("t", stale, event(data=[1]))
        names = headers.names()
        assert headers.all("a") == (b"1", b"2")
        assert (names.count("content-type"), "ce_gone" in names, headers.all("ce_id") == (b"old",)) == (
            1,
            False,
            False,
        )
        assert read(headers, payload) == event(data=[1], datacontenttype="application/json")

    @MODES
    def test_a_content_type_may_be_spelled_as_bridges_from_http_do(self, mode: str) -> None:
        payload, headers = opened(mode=mode).serialize("t", NONE, event(data=[1]))
        bridged = Headers((name.replace("content-type", "Content-Type"), value) for name, value in headers)
        assert read(bridged, payload) == event(data=[1], datacontenttype="application/json")
        stale = Headers({"Content-Type": "text/plain"})
        assert opened(mode=mode).serialize("t", stale, event(data=[1])) == (payload, headers)

    @MODES
    def test_what_was_read_can_be_sent_on(self, mode: str) -> None:
        payload, headers = opened(mode=mode).serialize(
            "t", NONE, event(data={"a": 1}, time=NOON, extensions={"x": "1"})
        )
        received, after = opened().deserialize("t", headers, payload)
        assert opened(mode=mode).serialize("t", after, received) == (payload, headers)

    def test_is_found_by_its_word(self) -> None:
        table = {"type": "cloudevents", "mode": "structured", "data": "json"}
        assert from_option(table, serde_type, path="value") == CloudEvents(mode="structured", data=Json())

    def test_data_may_have_a_serde_of_its_own(self) -> None:
        functions = opened(data=Polyglot(types={"image/png": Json()}))
        payload, headers = functions.serialize("t", NONE, event(datacontenttype="image/png", data=[1]))
        assert payload == b"[1]"
        assert functions.deserialize("t", headers.put("content-type", "image/png"), payload)[0].data == [1]

    def test_closes_the_serde_that_it_opened(self) -> None:
        closed: list[int] = []

        class Own:
            def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
                return payload, headers

            def close(self) -> None:
                closed.append(1)

        opened(data=Own()).close()
        assert not closed  # the application's own
        opened().close()

    @pytest.mark.parametrize(("options", "path"), [({"mode": "batch"}, "mode"), ({"data": "jsn"}, "data")])
    def test_refuses_options_that_cannot_work(self, options: dict[str, Any], path: str) -> None:
        with pytest.raises(ConfigError, match=f"^{path}: "):
            CloudEvents(**options)

    def test_is_not_for_keys(self) -> None:
        with pytest.raises(ConfigError, match=r"key=event\.key"):
            CloudEvents().open(SerdeContext(part="key"))

    @pytest.mark.parametrize("value", [{"id": "7"}, b"x", "x", 3])
    def test_requires_an_event(self, value: Any) -> None:
        with pytest.raises(SerdeError, match=r"expected a CloudEvent, found (dict|bytes|str|int)"):
            opened().serialize("t", NONE, value)

    @MODES
    @pytest.mark.parametrize(
        ("data", "content_type"), [({"a": object()}, None), ({}, "image/png"), (1, "text/plain")]
    )
    def test_refuses_data_that_cannot_be_written(
        self, mode: str, data: Any, content_type: str | None
    ) -> None:
        with pytest.raises(SerdeError):
            opened(mode=mode).serialize("t", NONE, event(data=data, datacontenttype=content_type))


class TestBinaryMode:
    def test_has_attributes_in_headers(self) -> None:
        whole = event(
            data={"a": 1},
            time=NOON,
            subject="é",
            dataschema="urn:x",
            extensions=MappingProxyType({"flag": True, "count": 3, "blob": b"\xff", "at": NOON}),
        )
        payload, headers = opened().serialize("t", NONE, whole)
        assert payload == b'{"a":1}'
        assert dict(headers) == {
            "ce_specversion": b"1.0",
            "ce_id": b"7",
            "ce_source": b"/shop",
            "ce_type": b"placed",
            "ce_time": b"2026-01-02T12:00:00Z",
            "ce_subject": "é".encode(),
            "ce_dataschema": b"urn:x",
            "ce_flag": b"true",
            "ce_count": b"3",
            "ce_blob": b"/w==",
            "ce_at": b"2026-01-02T12:00:00Z",
            "content-type": b"application/json",
        }

    def test_an_event_without_data_is_a_null_value(self) -> None:
        payload, headers = opened().serialize("t", NONE, event())
        assert payload is None
        assert read(headers, None) == event()

    @pytest.mark.parametrize("content_type", [None, "application/json"])
    def test_an_empty_value_is_no_data_where_nothing_else_can_be_meant(
        self, content_type: str | None
    ) -> None:
        headers = CE if content_type is None else {**CE, "content-type": content_type}
        assert read(headers, b"") == event(datacontenttype=content_type)

    def test_without_a_content_type_data_is_bytes(self) -> None:
        assert read(CE, b"{}") == event(data=b"{}")

    @pytest.mark.parametrize(
        ("headers", "problem"),
        [
            ({}, "required specversion, id, source, type"),
            ({"content-type": "application/json"}, "required specversion, id, source, type"),
            *(
                ({name: value for name, value in CE.items() if name != gone}, f"required {gone[3:]}$")
                for gone in CE
            ),
            ([*CE.items(), ("ce_id", b"7")], "each header of a CloudEvent once"),
            ({**CE, "ce_specversion": "0.3"}, "specversion 1.0, found another"),
            ({**CE, "ce_id": b""}, "as id of a CloudEvent"),
            ({**CE, "ce_id": None}, "found a null header"),
            ({**CE, "ce_id": b"\xff"}, "expected UTF-8"),
            ({**CE, "ce_time": b"noon"}, "RFC 3339"),
            ({**CE, "ce_Upper": b"x"}, "small letters and digits"),
            ({**CE, "ce_": b"x"}, "small letters and digits"),
            ({**CE, "ce_data": b"x"}, "found one called data"),
            ({**CE, "ce_datacontenttype": b"a/b"}, "in content-type, found ce_datacontenttype"),
            ({**CE, "content-type": b"json"}, "as datacontenttype"),
            ({**CE, "content-type": b"\xff"}, "expected UTF-8"),
            ({**CE, "content-type": b"application/json"}, "expected JSON, but the payload"),
        ],
    )
    def test_requires_an_event(self, headers: Any, problem: str) -> None:
        with pytest.raises(SerdeError, match=problem):
            read(headers, b"{")


class TestStructuredMode:
    def test_is_one_json_object(self) -> None:
        whole = event(data={"a": 1}, time=NOON, extensions={"flag": True, "count": 3, "blob": b"\xff"})
        payload, headers = opened(mode="structured").serialize("t", Headers({"own": b"1"}), whole)
        assert headers == Headers([("own", b"1"), ("content-type", b"application/cloudevents+json")])
        assert msgspec.json.decode(payload) == {
            **MEMBERS,
            "time": "2026-01-02T12:00:00Z",
            "flag": True,
            "count": 3,
            "blob": "/w==",
            "datacontenttype": "application/json",
            "data": {"a": 1},
        }

    @pytest.mark.parametrize(
        ("data", "content_type", "members"),
        [
            ("é", "text/plain; charset=iso-8859-1", {"data": "é"}),
            (b"\xff", "image/png", {"data_base64": "/w=="}),
            (b"{}", "application/json", {"data_base64": "e30="}),
            (1, "application/msgpack", {"data_base64": "AQ=="}),
            (None, None, {}),
        ],
    )
    def test_data_stands_as_its_content_type_asks(
        self, data: Any, content_type: str | None, members: Any
    ) -> None:
        sent = event(data=data, datacontenttype=content_type)
        payload, _ = opened(mode="structured").serialize("t", NONE, sent)
        found = msgspec.json.decode(payload)
        assert {
            name: found[name] for name in found if name.startswith("data") and name != "datacontenttype"
        } == members

    @pytest.mark.parametrize("written", [b"\x00\x00\x00\x00\x01{}", b"{}{}", b"\xff", b'"\xff"'])
    def test_framed_data_that_is_called_json_is_base64(self, written: bytes) -> None:
        class Framing:
            def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
                return written, headers

            def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
                return payload, headers

        functions = opened(mode="structured", data=Framing())
        payload, headers = functions.serialize("t", NONE, event(data={}, datacontenttype="application/json"))
        assert functions.deserialize("t", headers, payload)[0].data == written

    @pytest.mark.parametrize(
        "content_type", ["application/cloudevents+json", "Application/CloudEvents+JSON; charset=UTF-8"]
    )
    def test_is_known_by_its_content_type(self, content_type: str) -> None:
        payload = msgspec.json.encode({**MEMBERS, "data": [1], "subject": None})
        headers = {"content-type": content_type, "ce_id": b"ignored", "ce_id2": None}
        found, after = opened().deserialize("t", Headers(headers), payload)
        assert found == event(data=[1])
        assert after == Headers({"content-type": "application/json"})

    @pytest.mark.parametrize("charset", ["iso-8859-1", "utf-16", "us-ascii"])
    def test_the_datas_charset_is_for_its_bytes_alone(self, charset: str) -> None:
        """As a member, data is in the event's own charset; as Base64, it is in the one that is stated."""
        members = {**MEMBERS, "datacontenttype": f"application/json; charset={charset}"}
        assert read_json({**members, "data": {"a": "é€"}}).data == {"a": "é€"}
        encoded = b64encode('{"a":"e"}'.encode(charset)).decode()
        assert read_json({**members, "data_base64": encoded}).data == {"a": "e"}

    def test_is_read_in_the_charset_that_is_stated(self) -> None:
        headers = {"content-type": "application/cloudevents+json; charset=utf-16"}
        payload = msgspec.json.encode({**MEMBERS, "data": "é"}).decode().encode("utf-16")
        assert read(headers, payload).data == "é"

    @pytest.mark.parametrize(
        ("members", "data"),
        [
            ({"data": {"a": 1.0}}, {"a": 1.0}),
            ({"data": None}, None),
            ({}, None),
            ({"data": "<a/>", "datacontenttype": "application/xml"}, b"<a/>"),
            ({"data": {"a": 1}, "datacontenttype": "application/xml"}, {"a": 1}),
            ({"data_base64": "AQ==", "datacontenttype": "application/msgpack"}, 1),
            ({"data_base64": "AQ=="}, b"\x01"),
            ({"data_base64": None}, None),
        ],
    )
    def test_reads_what_others_write(self, members: Any, data: Any) -> None:
        assert read_json({**MEMBERS, **members}).data == data

    @pytest.mark.parametrize(
        ("content_type", "problem"),
        [
            ("application/cloudevents-batch+json", "found a batch"),
            ("Application/CloudEvents-Batch+JSON; charset=utf-8", "found a batch"),
            ("application/cloudevents+avro", "found another event format"),
            ("application/cloudevents", "found another event format"),
            ("application/cloudevents+json; charset", "expected a content type's parameter"),
            ("application/cloudevents+json; charset=punycode", "expected a charset"),
        ],
    )
    def test_refuses_batches_and_other_formats(self, content_type: str, problem: str) -> None:
        with pytest.raises(SerdeError, match=problem):
            read({"content-type": content_type}, b"[]")

    @pytest.mark.parametrize(
        "members",
        [
            [],
            "x",
            {},
            *({name: value for name, value in MEMBERS.items() if name != gone} for gone in MEMBERS),
            {**MEMBERS, "specversion": 1.0},
            {**MEMBERS, "specversion": "0.3"},
            {**MEMBERS, "id": 7},
            {**MEMBERS, "id": ""},
            {**MEMBERS, "time": "noon"},
            {**MEMBERS, "time": 1700000000},
            {**MEMBERS, "x": {"a": 1}},
            {**MEMBERS, "x": [1]},
            {**MEMBERS, "x": 1.5},
            {**MEMBERS, "x": 2**40},
            {**MEMBERS, "Upper": "x"},
            {**MEMBERS, "data": 1, "data_base64": "AQ=="},
            {**MEMBERS, "data_base64": "?"},
            {**MEMBERS, "data_base64": 7},
            {**MEMBERS, "data_base64": "é"},
            {**MEMBERS, "data": "€", "datacontenttype": "text/plain; charset=iso-8859-1"},
            {**MEMBERS, "data": "x", "datacontenttype": "text/plain; charset=punycode"},
            {**MEMBERS, "datacontenttype": "json"},
        ],
    )
    def test_requires_an_event(self, members: Any) -> None:
        with pytest.raises(SerdeError):
            read_json(members)

    @pytest.mark.parametrize(
        "payload", [b"", b"{", b"{}x", b"\xff", b'{"id":\xff}', b'{"data":' + b"[" * 200_000, b"[" * 200_000]
    )
    def test_requires_json(self, payload: bytes) -> None:
        with pytest.raises(SerdeError, match="expected a CloudEvent as a JSON object"):
            read(JSON_EVENT, payload)


class TestCloudEventsThroughKafka:
    @MODES
    def test_events_and_tombstones_arrive(
        self, mode: str, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        topic, servers = unique_topic("events"), {"bootstrap.servers": embedded_cluster.bootstrap_servers}
        embedded_cluster.create_topic(topic)
        value = {"type": "cloudevents", "mode": mode}
        chain = Chain.from_config({"interceptors": "serialize", "interceptors.serialize.value": value})
        sent = [
            event(
                data={"a": 1}, datacontenttype="application/json", extensions={"partitionkey": "k"}, time=NOON
            ),
            event(data="é", datacontenttype="text/plain"),
            event(),
        ]
        producer = Producer(servers, chain=chain)
        for one in sent:
            producer.produce(topic, one, key=one.key, headers={"own": "1"})
        producer.produce(topic, None, key="gone")
        assert producer.flush(60) == 0
        with Consumer(
            {**servers, "group.id": topic, "auto.offset.reset": "earliest"},
            chain=Chain([Serialize(value=CloudEvents())]),
        ) as consumer:
            consumer.subscribe([topic])
            found: list[Any] = []
            deadline = time.monotonic() + 60
            while len(found) < 4 and time.monotonic() < deadline:
                found += consumer.consume(10, 0.5)
        assert [message.value() for message in found] == [*sent, None]
        assert [message.key() for message in found] == [b"k", None, None, b"gone"]
        assert found[0].headers() == [("own", b"1"), ("content-type", b"application/json")]
