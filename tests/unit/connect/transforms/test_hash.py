from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any, Literal

import pytest

from headerware.connect.data import (
    FLOAT64_SCHEMA,
    INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Int32,
    SchemaBuilder,
    Struct,
    Timestamp,
    Type,
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.records import SinkRecord
from headerware.connect.transforms.hash import Hash

Mode = Literal["strict", "kafka_4_3"]
INNER = SchemaBuilder.struct().field("phone", OPTIONAL_STRING_SCHEMA).optional().build()
EMPTY = SchemaBuilder.struct().build()
SCHEMA = (
    SchemaBuilder.struct()
    .field("email", STRING_SCHEMA)
    .field("age", INT32_SCHEMA)
    .field("inner", INNER)
    .field("price", FLOAT64_SCHEMA)
    .build()
)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def schemad(**fields: Any) -> SinkRecord:
    values = {"email": "a@b", "age": 4, "inner": {"phone": "1"}, "price": 1.0} | fields
    return SinkRecord("t", value_schema=SCHEMA, value=Struct.of(SCHEMA, values))


class TestHash:
    def test_hashes_fields_of_structs(self) -> None:
        transform = Hash.Value({"field.name": "email,age,inner.phone", "function": "sha256"})
        made = transform.apply(schemad())
        assert made.value.to_dict() == {
            "email": digest(b"a@b"),
            "age": digest(b"4"),
            "inner": {"phone": digest(b"1")},
            "price": 1.0,
        }
        assert made.value_schema.by_name["email"].schema is STRING_SCHEMA
        assert made.value_schema.by_name["age"].schema.type is Type.STRING
        made.value.validate()

    def test_hashes_fields_of_dicts(self) -> None:
        transform = Hash.Value({"field.name": "email,inner.phone", "function": "sha256"})
        record = SinkRecord("t", value={"email": b"\x00", "inner": {"phone": Int32(5), "x": 1}})
        assert transform.apply(record).value == {
            "email": digest(b"\x00"),
            "inner": {"phone": digest(b"5"), "x": 1},
        }
        assert record.value["email"] == b"\x00"

    def test_hashes_the_value_itself(self) -> None:
        transform = Hash.Key({"function": "sha256"})
        made = transform.apply(SinkRecord("t", 0, INT32_SCHEMA, Int32(7)))
        assert (made.key, made.key_schema.type) == (digest(b"7"), Type.STRING)
        assert transform.apply(SinkRecord("t", key="é")).key == digest("é".encode())

    @pytest.mark.parametrize("function", ["sha256", "sha384", "sha512", "sha3_256", "sha3_512"])
    def test_keys_the_digest_with_a_secret(self, function: str) -> None:
        transform = Hash.Value({"function": function, "secret": "pepper"})
        expected = hmac.new(b"pepper", b"a", function).hexdigest()
        assert transform.apply(SinkRecord("t", value="a")).value == expected

    def test_puts_the_salt_before_the_value(self) -> None:
        transform = Hash.Value({"function": "sha256", "salt": "salt"})
        assert transform.apply(SinkRecord("t", value="a")).value == digest(b"salta")

    def test_writes_base64(self) -> None:
        transform = Hash.Value({"function": "sha512", "encoding": "base64"})
        expected = base64.b64encode(hashlib.sha512(b"a").digest()).decode()
        assert transform.apply(SinkRecord("t", value="a")).value == expected

    def test_never_shows_the_secret(self) -> None:
        transform = Hash.Value({"function": "sha256", "secret": "hunter2"})
        assert "hunter2" not in repr(transform)
        assert "hunter2" not in str(transform.options)
        with pytest.raises(ConnectConfigError) as caught:
            Hash.Value({"function": "sha256", "secret": "hunter2", "salt": "hunter3"})
        assert "hunter" not in str(caught.value)

    def test_takes_away_the_name_of_a_uuid(self) -> None:
        uuid = SchemaBuilder.string().name("io.debezium.data.Uuid").doc("an id").build()
        schema = SchemaBuilder.struct().field("id", uuid).build()
        transform = Hash.Value({"field.name": "id", "function": "sha256"})
        made = transform.apply(SinkRecord("t", value_schema=schema, value=Struct.of(schema, {"id": "x"})))
        own = made.value_schema.by_name["id"].schema
        assert (own.name, own.doc) == (None, "an id")

    def test_hashes_the_default_that_stands_for_a_null(self) -> None:
        own = SchemaBuilder.string().optional().default("nobody@b").build()
        schema = SchemaBuilder.struct().field("email", own).build()
        transform = Hash.Value({"field.name": "email", "function": "sha256"})
        made = transform.apply(SinkRecord("t", value_schema=schema, value=Struct.of(schema, {})))
        assert made.value["email"] == digest(b"nobody@b")
        assert made.value_schema.by_name["email"].schema.default is None

    @pytest.mark.parametrize(
        "record",
        [
            SinkRecord("t", value={"email": None}),
            SinkRecord("t", value={}),
            SinkRecord("t", value_schema=INNER, value=Struct.of(INNER, {})),
            SinkRecord("t", value_schema=EMPTY, value=Struct.of(EMPTY, {})),
        ],
    )
    @pytest.mark.parametrize("name", ["phone", "email"])
    def test_refuses_or_skips_missing_or_null_fields(self, record: SinkRecord, name: str) -> None:
        config = {"field.name": name, "function": "sha256"}
        with pytest.raises(ConnectDataError):
            Hash.Value(config).apply(record)
        made = Hash.Value({**config, "skip.missing.or.null": "true"}).apply(record)
        assert made.value == record.value

    @pytest.mark.parametrize("inner", [None, {"phone": None}])
    def test_refuses_a_field_in_a_null(self, inner: Any) -> None:
        transform = Hash.Value({"field.name": "inner.phone", "function": "sha256"})
        with pytest.raises(ConnectDataError, match=r"'inner\.phone' is missing or null"):
            transform.apply(schemad(inner=inner))
        with pytest.raises(ConnectDataError, match=r"'inner\.phone' is missing or null"):
            transform.apply(SinkRecord("t", value={"inner": inner}))

    def test_leaves_a_tombstone_where_fields_are_hashed(self) -> None:
        record = SinkRecord("t")
        assert Hash.Value({"field.name": "a", "function": "sha256"}).apply(record) is record
        with pytest.raises(ConnectDataError, match="missing or null"):
            Hash.Value({"function": "sha256"}).apply(record)

    @pytest.mark.parametrize("name", ["price", "inner"])
    def test_refuses_a_value_that_cannot_be_hashed(self, name: str) -> None:
        transform = Hash.Value({"field.name": name, "function": "sha256"})
        with pytest.raises(ConnectDataError, match="expected text, bytes or an integer"):
            transform.apply(schemad())
        with pytest.raises(ConnectDataError, match="expected text, bytes or an integer"):
            transform.apply(SinkRecord("t", value={"price": 1.0, "inner": {"a": "secret"}}))

    @pytest.mark.parametrize("value", [True, 1.5, [1], {"a": 1}])
    def test_refuses_to_hash_other_wholes(self, value: Any) -> None:
        with pytest.raises(ConnectDataError, match="expected text, bytes or an integer"):
            Hash.Value({"function": "sha256"}).apply(SinkRecord("t", value=value))

    def test_refuses_a_logical_type(self) -> None:
        schema = SchemaBuilder.struct().field("at", Timestamp.SCHEMA).build()
        with pytest.raises(ConnectDataError, match="expected text, bytes or an integer"):
            Hash.Value({"field.name": "at", "function": "sha256"}).plan(schema)

    def test_refuses_a_lone_surrogate(self) -> None:
        with pytest.raises(ConnectDataError, match="UTF-8 cannot encode"):
            Hash.Value({"function": "sha256"}).apply(SinkRecord("t", value="\ud800"))

    def test_refuses_a_struct_of_another_schema_than_the_record_says(self) -> None:
        other = SchemaBuilder.struct().field("other", STRING_SCHEMA).field("email", STRING_SCHEMA).build()
        record = SinkRecord(
            "t", value_schema=SCHEMA, value=Struct.of(other, {"other": "x", "email": "secret"})
        )
        with pytest.raises(ConnectDataError, match="another schema"):
            Hash.Value({"field.name": "email", "function": "sha256"}).apply(record)

    @pytest.mark.parametrize(
        "config",
        [
            {},
            {"function": "md5"},
            {"function": "sha256", "encoding": "raw"},
            {"function": "sha256", "secret": ""},
            {"function": "sha256", "salt": ""},
            {"function": "sha256", "field.nmae": "email"},
            {"function": "sha256", "field.name": "a,a.b"},
        ],
    )
    def test_refuses_a_configuration_that_would_leave_a_field_as_it_is(
        self, config: dict[str, str], mode: Mode
    ) -> None:
        with pytest.raises(ConnectConfigError):
            Hash.Value(config, mode=mode)
