from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import uuid
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import fastavro
import msgspec
import pytest

from headerware.core.errors import ConfigError, SerdeError, UnknownSchemaError
from headerware.core.headers import EMPTY, Headers
from headerware.core.options import from_option
from headerware.serdes.avro.schema import Fingerprint
from headerware.serdes.avro.serde import Avro
from headerware.serdes.plugins import serde_type
from headerware.serdes.serde import SerdeContext
from headerware.serdes.stores import cache
from headerware.serdes.stores.folder import FolderSchemas
from tests.unit.serdes.conftest import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headerware.core.headers import Pair

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "doc": "An order.",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"], "default": None},
    ],
}
KEY = {"type": "record", "name": "OrderKey", "fields": [{"name": "region", "type": "string"}]}
VALUE = {"id": 7, "customer": "Ada"}
PAYLOAD = b"\x0e\x02\x06Ada"
CONTENT_TYPE = ("content-type", b"application/avro-binary")


_opened: list[Any] = []


def opened(part: Any = "value", **options: Any) -> Any:
    _opened.append(Avro(**options).open(SerdeContext(part=part)))
    return _opened[-1]


@pytest.fixture(autouse=True)
def _all_closed() -> Iterator[None]:
    """Close what a test opened, and see that no store stays behind."""
    before = len(cache._stores)
    yield
    while _opened:
        _opened.pop().close()
    assert len(cache._stores) == before


def written(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


@pytest.fixture
def store(tmp_path: Path) -> FolderSchemas:
    """Return the options of a store whose folder is not there yet."""
    return FolderSchemas(path=str(tmp_path / "schemas"))


def _refusal(headers: Headers) -> str:
    with pytest.raises(UnknownSchemaError) as raised:
        opened().deserialize("t", headers, PAYLOAD)
    return str(raised.value)


class TestAvroWithAStore:
    def test_writes_bare_avro_and_the_fingerprint(self, store: FolderSchemas) -> None:
        serde = opened(schema=ORDER, store=store, fingerprint="md5")
        payload, headers = serde.serialize("orders", EMPTY, VALUE)
        digest = Fingerprint.of(json.dumps(ORDER), "md5").digest
        assert payload == PAYLOAD == written(ORDER, VALUE)
        assert headers == Headers([("hw.schema", b"value:md5:" + digest.hex().encode()), CONTENT_TYPE])

    @pytest.mark.parametrize(("algorithm", "size"), [("md5", 42), ("rabin", 28), ("sha256", 77)])
    def test_a_reader_understands_every_fingerprint(
        self, store: FolderSchemas, algorithm: str, size: int
    ) -> None:
        payload, headers = opened(schema=ORDER, store=store, fingerprint=algorithm).serialize(
            "t", EMPTY, VALUE
        )
        assert [len(value) for value in headers.all("hw.schema")] == [size]
        assert opened(store=store).deserialize("t", headers, payload) == (VALUE, Headers([CONTENT_TYPE]))

    def test_deposits_the_schema_before_the_first_record_is_out(self, store: FolderSchemas) -> None:
        writer = opened(schema=ORDER, store=store)
        assert not Path(store.path).exists()
        writer.serialize("orders", EMPTY, VALUE)
        (file,) = Path(store.path).iterdir()
        assert file.name.startswith("shop.Order-")
        assert json.loads(file.read_text()) == ORDER

    def test_a_record_whose_schema_cannot_be_deposited_is_not_sent(self, tmp_path: Path) -> None:
        (tmp_path / "schemas").write_text("a file in the place of the folder")
        with pytest.raises(SerdeError, match="cannot write a schema"):
            opened(schema=ORDER, store=FolderSchemas(path=str(tmp_path / "schemas"))).serialize(
                "t", EMPTY, VALUE
            )

    def test_an_unknown_fingerprint(self, store: FolderSchemas, tmp_path: Path) -> None:
        payload, headers = opened(schema=ORDER, store=store).serialize("t", EMPTY, VALUE)
        (tmp_path / "others").mkdir()
        with pytest.raises(UnknownSchemaError, match="no file in"):
            opened(store=FolderSchemas(path=str(tmp_path / "others"))).deserialize("t", headers, payload)

    def test_a_reader_without_a_store_says_what_is_missing(self, store: FolderSchemas) -> None:
        payload, headers = opened(schema=ORDER, store=store).serialize("t", EMPTY, VALUE)
        with pytest.raises(UnknownSchemaError, match="option store"):
            opened().deserialize("t", headers, payload)

    def test_a_reader_needs_no_store_for_a_schema_of_its_own(self, store: FolderSchemas) -> None:
        payload, headers = opened(schema=ORDER, store=store).serialize("t", EMPTY, VALUE)
        assert opened(schema=ORDER).deserialize("t", headers, payload)[0] == VALUE

    def test_serdes_of_equal_options_share_one_store_until_the_last_is_closed(
        self, store: FolderSchemas, tmp_path: Path
    ) -> None:
        before = len(cache._stores)
        serdes = [opened(part, store=FolderSchemas(path=store.path)) for part in ("key", "value", "key")]
        other = opened(store=FolderSchemas(path=str(tmp_path)))
        assert len(cache._stores) == before + 2
        for serde in (*serdes, *serdes, other):  # twice is once
            serde.close()
        assert len(cache._stores) == before


class TestAvroWithoutAStore:
    def test_the_schema_travels_in_a_header(self) -> None:
        payload, headers = opened(schema=ORDER).serialize("orders", EMPTY, VALUE)
        assert payload == PAYLOAD
        assert headers.names() == ("avro.schema", "content-type")
        assert json.loads(headers.last("avro.schema") or b"") == ORDER

    def test_a_reader_that_knows_nothing_reads_it(self) -> None:
        payload, headers = opened(schema=ORDER).serialize("orders", EMPTY, VALUE)
        assert opened().deserialize("orders", headers, payload) == (VALUE, Headers([CONTENT_TYPE]))

    def test_the_last_of_several_texts_counts(self) -> None:
        headers = Headers([("avro.schema", b'"string"'), ("avro.schema", b'"long"')])
        assert opened().deserialize("t", headers, b"\x0e") == (7, EMPTY)

    def test_a_fingerprint_goes_before_a_text(self, store: FolderSchemas) -> None:
        payload, headers = opened(schema=ORDER, store=store).serialize("t", EMPTY, VALUE)
        both = Headers([("avro.schema", b'"string"'), *headers])
        assert opened(store=store).deserialize("t", both, payload)[0] == VALUE

    def test_payloads_without_a_header_follow_the_serdes_own_schema(self) -> None:
        assert opened(schema=ORDER).deserialize("t", EMPTY, PAYLOAD) == (VALUE, EMPTY)

    def test_payloads_that_nothing_names_a_schema_of(self) -> None:
        with pytest.raises(UnknownSchemaError, match="no header names the value's schema"):
            opened().deserialize("t", EMPTY, PAYLOAD)

    def test_payloads_of_another_content_type_are_named_by_its_format(self) -> None:
        headers = Headers([("content-type", b"application/json")])
        with pytest.raises(
            UnknownSchemaError, match="its content type is one of json: read it with the json"
        ):
            opened().deserialize("t", headers, b'{"id": 1}')
        assert "content type" not in _refusal(Headers([("content-type", b"application/avro")]))
        assert "content type" not in _refusal(Headers([("content-type", b"secret")]))

    def test_payloads_of_another_format_are_not_read_by_the_serdes_own_schema(self) -> None:
        fields = ", ".join(f'{{"name": "f{number}", "type": "int"}}' for number in range(8))
        numbers = opened(schema=f'{{"type": "record", "name": "R", "fields": [{fields}]}}')
        json = Headers([("content-type", b"application/json")])
        assert numbers.deserialize("t", EMPTY, b'{"id":1}')[0]["f0"] == -62, "small JSON objects are numbers"
        with pytest.raises(SerdeError, match="expected Avro, but its content type is one of json: read it"):
            numbers.deserialize("t", json, b'{"id":1}')
        for stated in (b"application/octet-stream", b"avro/binary", b"x-own"):
            assert numbers.deserialize("t", Headers([("content-type", stated)]), b'{"id":1}')[0]["f0"] == -62

    @pytest.mark.parametrize(("codec", "first"), [("null", b"Obj\x01"), ("deflate", b"Obj\x01")])
    def test_a_container_file_is_named_as_what_it_is(self, codec: str, first: bytes) -> None:
        out = BytesIO()
        fastavro.writer(out, ORDER, [VALUE], codec=codec)
        assert out.getvalue().startswith(first)
        for serde in (opened(), opened(schema=ORDER)):
            with pytest.raises(SerdeError, match="object container file"):
                serde.deserialize("t", EMPTY, out.getvalue())


class TestAvroHeaders:
    def test_key_and_value_have_schemas_of_their_own(self, store: FolderSchemas) -> None:
        key, value = opened("key", schema=KEY, store=store), opened(schema=ORDER, store=store)
        key_bytes, headers = key.serialize("t", Headers([("a", b"1")]), {"region": "north"})
        value_bytes, headers = value.serialize("t", headers, VALUE)
        assert headers.names() == ("a", "hw.schema", "key-content-type", "hw.schema", "content-type")
        reader = opened("key", store=store)
        read_key, rest = reader.deserialize("t", headers, key_bytes)
        assert read_key == {"region": "north"}
        assert rest.names() == ("a", "key-content-type", "hw.schema", "content-type")
        read_value, rest = opened(store=store).deserialize("t", rest, value_bytes)
        assert read_value == VALUE
        assert rest.names() == ("a", "key-content-type", "content-type")

    def test_key_and_value_without_a_store(self) -> None:
        key_bytes, headers = opened("key", schema=KEY).serialize("t", EMPTY, {"region": "north"})
        value_bytes, headers = opened(schema=ORDER).serialize("t", headers, VALUE)
        assert headers.names() == ("avro.schema.key", "key-content-type", "avro.schema", "content-type")
        assert opened("key").deserialize("t", headers, key_bytes)[0] == {"region": "north"}
        assert opened().deserialize("t", headers, value_bytes)[0] == VALUE

    @pytest.mark.parametrize("other", [{}, {"fingerprint": "rabin"}, {"write_as": "schema"}])
    def test_headers_that_are_sent_again_do_not_accumulate(
        self, store: FolderSchemas, other: dict[str, Any]
    ) -> None:
        key = opened("key", schema=KEY, store=store)
        _, headers = key.serialize("t", Headers([("a", b"1")]), {"region": "north"})
        first, second = opened(schema=ORDER, store=store), opened(schema=ORDER, store=store, **other)
        for serde in (first, second, first, second):
            payload, headers = serde.serialize("t", headers, VALUE)
        assert len(headers) == 5
        assert opened("key", store=store).deserialize("t", headers, b"\x0anorth")[0] == {"region": "north"}
        assert opened(store=store).deserialize("t", headers, payload)[0] == VALUE

    def test_a_null_goes_through_and_takes_stale_schemas_off(self, store: FolderSchemas) -> None:
        serde = opened(schema=ORDER, store=store)
        plain = Headers([("a", b"1")])
        assert serde.serialize("t", plain, None) == (None, plain)
        assert serde.serialize("t", plain, None)[1] is plain
        assert serde.deserialize("t", plain, None)[1] is plain
        _, headers = serde.serialize("t", plain, VALUE)
        for tombstone, rest in (serde.serialize("t", headers, None), serde.deserialize("t", headers, None)):
            assert tombstone is None
            assert rest == Headers([("a", b"1"), CONTENT_TYPE])

    def test_headers_without_a_schema_come_back_as_they_are(self) -> None:
        headers = Headers([("a", b"1")])
        assert opened(schema=ORDER).deserialize("t", headers, PAYLOAD)[1] is headers

    @pytest.mark.parametrize(
        ("stated", "left"),
        [
            (b"application/vnd.shop.order+avro", b"application/vnd.shop.order+avro"),
            (b"avro/binary; v=1", b"avro/binary; v=1"),
            (b"application/json", b"application/avro-binary"),
            (None, b"application/avro-binary"),
        ],
    )
    def test_a_content_type_stays_where_it_means_avro(self, stated: bytes | None, left: bytes) -> None:
        _, headers = opened(schema=ORDER).serialize("t", Headers([("content-type", stated)]), VALUE)
        assert headers.all("content-type") == (left,)

    def test_the_content_type_is_an_option(self) -> None:
        _, headers = opened(schema=ORDER, content_type="avro/binary").serialize("t", EMPTY, VALUE)
        assert headers.all("content-type") == (b"avro/binary",)
        _, headers = opened(schema=ORDER, content_type="").serialize("t", EMPTY, VALUE)
        assert headers.names() == ("avro.schema",)

    @pytest.mark.parametrize(
        "headers",
        [
            [("hw.schema", b"value:md5:" + b"0" * 32)] * 2,
            [("hw.schema", None)],
            [("hw.schema", b"")],
            [("hw.schema", b"both:md5:" + b"0" * 32)],
            [("avro.schema", None)],
            [("avro.schema", b"")],
            [("avro.schema", b"\xff\xfe")],
            [("avro.schema", b'"no_such_type"')],
            [("__value_schema_id", None)],
            [("__value_schema_id", b"\x07")],
        ],
    )
    def test_headers_that_lead_nowhere_are_refused(self, store: FolderSchemas, headers: list[Pair]) -> None:
        with pytest.raises(SerdeError):
            opened(schema=ORDER, store=store).deserialize("t", Headers(headers), PAYLOAD)

    def test_a_broken_header_of_the_value_does_not_trouble_the_key(self) -> None:
        headers = Headers([("hw.schema", b"\x01")])
        assert opened("key", schema='"long"').deserialize("t", headers, b"\x0e") == (7, headers)


@dataclasses.dataclass
class Customer:
    name: str
    since: dt.date


class Level(enum.Enum):
    GOLD = "GOLD"


class Purchase(msgspec.Struct):
    __avro_schema__: ClassVar[dict[str, Any]] = record(
        ("id", "long"), ("level", {"type": "enum", "name": "Level", "symbols": ["GOLD"]}), name="Purchase"
    )
    id: int
    level: Level


class Refund(msgspec.Struct):
    __avro_schema__: ClassVar[str] = json.dumps(record(("id", "long"), ("data", "bytes"), name="Refund"))
    id: int
    data: bytes


class TestAvroObjects:
    def test_dataclasses_at_the_top_and_inside(self) -> None:
        customer = record(
            ("name", "string"), ("since", {"type": "int", "logicalType": "date"}), name="Customer"
        )
        outer = record(("customers", {"type": "array", "items": customer}))
        ada = Customer("Ada", dt.date(2020, 2, 29))
        fields = {"name": "Ada", "since": dt.date(2020, 2, 29)}
        for schema, given, expected in [
            (customer, ada, fields),
            (outer, {"customers": [ada, fields]}, {"customers": [fields, fields]}),
        ]:
            payload, headers = opened(schema=schema).serialize("t", EMPTY, given)
            assert opened().deserialize("t", headers, payload)[0] == expected

    def test_each_type_may_bring_its_own_schema(self) -> None:
        serde = opened(schema=ORDER)
        for given, expected in [
            (Purchase(1, Level.GOLD), {"id": 1, "level": "GOLD"}),
            (Refund(2, b"\x00\xff"), {"id": 2, "data": b"\x00\xff"}),
            (VALUE, VALUE),
            (Purchase(3, Level.GOLD), {"id": 3, "level": "GOLD"}),
        ]:
            payload, headers = serde.serialize("t", EMPTY, given)
            assert opened().deserialize("t", headers, payload)[0] == expected

    def test_a_type_that_brings_a_schema_needs_none_in_the_options(self, store: FolderSchemas) -> None:
        payload, headers = opened(store=store).serialize("t", EMPTY, Refund(2, b""))
        assert opened(store=store).deserialize("t", headers, payload)[0] == {"id": 2, "data": b""}

    def test_an_object_without_any_schema(self) -> None:
        with pytest.raises(SerdeError, match="there is no schema to write dict by"):
            opened().serialize("t", EMPTY, VALUE)

    def test_tuples_name_the_branch_of_a_union(self) -> None:
        branches = [record(("id", "long"), name=name) for name in ("A", "B")]
        payload, headers = opened(schema=branches).serialize("t", EMPTY, ("B", {"id": 1}))
        assert payload == b"\x02\x02"
        assert opened().deserialize("t", headers, payload)[0] == {"id": 1}

    @pytest.mark.parametrize(
        ("schema", "value"),
        [
            (
                {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
                decimal.Decimal("-12.34"),
            ),
            ({"type": "int", "logicalType": "date"}, dt.date(1969, 12, 31)),
            ({"type": "int", "logicalType": "time-millis"}, dt.time(23, 59, 59, 999000)),
            ({"type": "long", "logicalType": "time-micros"}, dt.time(23, 59, 59, 999999)),
            (
                {"type": "long", "logicalType": "timestamp-millis"},
                dt.datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=dt.UTC),
            ),
            (
                {"type": "long", "logicalType": "timestamp-micros"},
                dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC),
            ),
            ({"type": "string", "logicalType": "uuid"}, uuid.UUID(int=7)),
        ],
    )
    def test_logical_types_both_ways(self, store: FolderSchemas, schema: Any, value: Any) -> None:
        wrapped = record(("x", schema), ("y", ["null", schema]))
        given = {"x": value, "y": value}
        payload, headers = opened(schema=wrapped, store=store).serialize("t", EMPTY, given)
        assert opened(store=store).deserialize("t", headers, payload)[0] == given

    def test_schemas_that_differ_in_a_logical_type_alone_are_kept_apart(self, store: FolderSchemas) -> None:
        plain, day = record(("x", "int")), record(("x", {"type": "int", "logicalType": "date"}))
        first = opened(schema=plain, store=store).serialize("t", EMPTY, {"x": 1})
        second = opened(schema=day, store=store).serialize("t", EMPTY, {"x": dt.date(1970, 1, 2)})
        assert first[0] == second[0]
        read = [
            opened(store=store).deserialize("t", headers, payload)[0] for payload, headers in (first, second)
        ]
        assert read == [{"x": 1}, {"x": dt.date(1970, 1, 2)}]


class TestAvroEvolution:
    @pytest.mark.parametrize(
        ("written_by", "value", "read_by", "expected"),
        [
            (record(("a", "int")), {"a": 1}, record(("a", "long")), {"a": 1}),
            (record(("a", "int")), {"a": 1}, record(("a", "double")), {"a": 1.0}),
            (record(("a", "int"), ("b", "string")), {"a": 1, "b": "x"}, record(("a", "int")), {"a": 1}),
            (
                record(("a", "int")),
                {"a": 1},
                record(("a", "int"), {"name": "b", "type": "string", "default": "none"}),
                {"a": 1, "b": "none"},
            ),
            (
                record(("a", "int")),
                {"a": 1},
                record({"name": "new", "type": "int", "aliases": ["a"]}),
                {"new": 1},
            ),
            (
                record(("a", "int"), name="Old"),
                {"a": 1},
                {**record(("a", "int"), name="New"), "aliases": ["Old"]},
                {"a": 1},
            ),
            (record(("a", "int")), {"a": 1}, record(("a", ["null", "long"])), {"a": 1}),
        ],
    )
    def test_resolves_what_was_written_to_what_is_wanted(
        self, store: FolderSchemas, written_by: Any, value: Any, read_by: Any, expected: Any
    ) -> None:
        payload, headers = opened(schema=written_by, store=store).serialize("t", EMPTY, value)
        read, _ = opened(reader_schema=read_by, store=store).deserialize("t", headers, payload)
        assert read == expected
        assert [type(field) for field in read.values()] == [type(field) for field in expected.values()]

    def test_defaults_are_values_and_not_their_json(self) -> None:
        fields: list[dict[str, Any]] = [
            {"name": "raw", "type": "bytes", "default": "\u00ff"},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 1},
            {"name": "days", "type": {"type": "array", "items": {"type": "int", "logicalType": "date"}}},
            {"name": "inner", "type": record(("raw", "bytes"), name="Inner"), "default": {"raw": "\u0001"}},
            {"name": "also", "type": "Inner", "default": {"raw": "\u0002"}},
        ]
        fields[2]["default"] = [0, 1]
        reader = opened(reader_schema=record(("a", "int"), *fields))
        payload, headers = opened(schema=record(("a", "int"))).serialize("t", EMPTY, {"a": 1})
        assert reader.deserialize("t", headers, payload)[0] == {
            "a": 1,
            "raw": b"\xff",
            "day": dt.date(1970, 1, 2),
            "days": [dt.date(1970, 1, 1), dt.date(1970, 1, 2)],
            "inner": {"raw": b"\x01"},
            "also": {"raw": b"\x02"},
        }

    @pytest.mark.parametrize(
        ("wrapped", "value", "read"),
        [
            (
                lambda inner: {"type": "array", "items": inner},
                [{"a": 1}],
                [{"a": 1, "day": dt.date(1970, 1, 2)}],
            ),
            (
                lambda inner: {"type": "map", "values": inner},
                {"k": {"a": 1}},
                {"k": {"a": 1, "day": dt.date(1970, 1, 2)}},
            ),
            (
                lambda inner: ["null", {"type": "array", "items": inner}],
                [{"a": 1}],
                [{"a": 1, "day": dt.date(1970, 1, 2)}],
            ),
            (lambda inner: ["null", inner], {"a": 1}, {"a": 1, "day": dt.date(1970, 1, 2)}),
        ],
    )
    def test_defaults_wherever_a_record_stands(self, wrapped: Any, value: Any, read: Any) -> None:
        day = {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 1}
        payload, headers = opened(schema=wrapped(record(("a", "int"), day))).serialize("t", EMPTY, value)
        assert opened().deserialize("t", headers, payload)[0] == read
        old, headers = opened(schema=wrapped(record(("a", "int")))).serialize("t", EMPTY, value)
        newer = opened(reader_schema=wrapped(record(("a", "int"), day)))
        assert newer.deserialize("t", headers, old)[0] == read

    def test_records_do_not_share_a_default_that_can_change(self) -> None:
        tags = {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []}
        inner = record(("n", "int"), tags, name="Inner")
        reader = opened(reader_schema=record(("items", {"type": "array", "items": inner})))
        old = record(("items", {"type": "array", "items": record(("n", "int"), name="Inner")}))
        payload, headers = opened(schema=old).serialize("t", EMPTY, {"items": [{"n": 1}, {"n": 2}]})
        first, _ = reader.deserialize("t", headers, payload)
        first["items"][0]["tags"].append("changed")
        assert first["items"][1]["tags"] == []
        assert reader.deserialize("t", headers, payload)[0]["items"][0]["tags"] == []

    @pytest.mark.parametrize(
        "read_by", [record(("a", "int"), ("b", "string")), record(("a", "string")), '"int"']
    )
    def test_schemas_that_do_not_resolve(self, read_by: Any) -> None:
        payload, headers = opened(schema=record(("a", "int"))).serialize("t", EMPTY, {"a": 1})
        with pytest.raises(SerdeError, match="does not resolve to the reader's"):
            opened(reader_schema=read_by).deserialize("t", headers, payload)

    def test_without_a_reader_schema_values_come_as_they_were_written(self) -> None:
        payload, headers = opened(schema=ORDER).serialize("t", EMPTY, VALUE)
        assert opened(schema=record(("id", "long"))).deserialize("t", headers, payload)[0] == VALUE


class TestAvroOptions:
    @pytest.mark.parametrize("text", [json.dumps(ORDER), f"  {json.dumps([ORDER])}", '"string"'])
    def test_a_schema_may_be_json(self, text: str) -> None:
        assert Avro(schema=text).schema == text

    def test_a_schema_may_be_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
        serde = opened(schema=str(tmp_path / "order.avsc"))
        assert serde.serialize("t", EMPTY, VALUE)[0] == PAYLOAD

    def test_a_schema_may_be_what_fastavro_parsed(self) -> None:
        assert opened(schema=fastavro.parse_schema(ORDER)).serialize("t", EMPTY, VALUE)[0] == PAYLOAD

    @pytest.mark.parametrize("option", ["schema", "reader_schema"])
    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ("no/such/file.avsc", "cannot read no/such/file.avsc: No such file"),
            ("{", "is not JSON"),
            ('{"type": "record"}', '"name" is a required field'),
            ('"strin"', "UnknownType: strin"),
            (5, "a JSON int"),
            ({"type": {1, 2}}, "is not JSON"),
            ("nul\0", "cannot read"),
        ],
    )
    def test_an_invalid_schema_is_refused_at_once(self, option: str, given: Any, said: str) -> None:
        with pytest.raises(ConfigError, match=said) as caught:
            Avro(**{option: given})
        assert caught.value.path == option

    @pytest.mark.parametrize(
        ("options", "path"),
        [
            ({"write_as": "fingerprint"}, "write_as"),
            ({"write_as": "prefix"}, "write_as"),
            ({"store": 5}, "store"),
            ({"content_type": "no content type"}, "content_type"),
            ({"subject": "{nobody}"}, "subject"),
        ],
    )
    def test_options_that_cannot_work_are_refused_at_once(self, options: dict[str, Any], path: str) -> None:
        with pytest.raises(ConfigError) as caught:
            Avro(schema=ORDER, **options)
        assert caught.value.path == path

    def test_ids_need_a_store_that_keeps_them(self, store: FolderSchemas) -> None:
        before = len(cache._stores)
        with pytest.raises(ConfigError, match="type 'registry'"):
            opened(schema=ORDER, store=store, write_as="prefix")
        assert len(cache._stores) == before

    def test_configuration_names_it_and_its_store(self, tmp_path: Path) -> None:
        table = {
            "type": "avro",
            "schema": json.dumps(ORDER),
            "store": {"type": "folder", "path": str(tmp_path)},
        }
        made = from_option(table, serde_type, path="value")
        assert made == Avro(schema=json.dumps(ORDER), store=FolderSchemas(path=str(tmp_path)))

    def test_configuration_says_where_it_is_wrong(self) -> None:
        with pytest.raises(ConfigError, match=r"value\.store\.pth") as caught:
            from_option({"type": "avro", "store": {"type": "folder", "pth": "x"}}, serde_type, path="value")
        assert caught.value.path == "value.store.pth"
