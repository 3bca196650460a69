from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import ConfigError, SerdeError, UnknownSchemaError
from headerware.core.headers import Headers
from headerware.core.hooks import Role, Stage
from headerware.core.plugins import interceptor_type
from headerware.core.record import Record
from headerware.interceptors.schema import Schema
from headerware.serdes.avro.schema import DIGEST_BYTES
from headerware.serdes.avro.serde import Avro
from headerware.serdes.schema_header import encode_mark
from headerware.serdes.serde import SerdeContext
from headerware.serdes.stores import Fingerprint
from headerware.serdes.stores import Schema as StoredSchema
from headerware.serdes.stores.folder import FolderSchemas

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headerware.serdes.avro.schema import Algorithm

TEXT = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
KEY_TEXT = '"string"'
SCHEMA, KEY_SCHEMA = ("avro.schema", TEXT.encode()), ("avro.schema.key", KEY_TEXT.encode())


class MemoryStore:
    """Keep schemas in memory, and count what is asked; fail when told to."""

    def __init__(self) -> None:
        self.texts: dict[Fingerprint, str] = {}
        self.asked: list[str] = []
        self.error: Exception | None = None

    def get(self, fingerprint: Fingerprint) -> str:
        self._ask("get")
        if fingerprint not in self.texts:
            raise UnknownSchemaError("not there")
        return self.texts[fingerprint]

    def put(self, schema: StoredSchema) -> None:
        self._ask("put")
        self.texts[schema.fingerprint] = schema.text

    def close(self) -> None:
        """Do nothing."""

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.error is not None:
            raise self.error


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def step(store: MemoryStore) -> Iterator[Any]:
    opened = Schema(store=store).open(Context())
    yield opened
    opened.close()


def record(*headers: tuple[str, bytes | None]) -> Record:
    return Record("orders", b"\x0e", b"\x02k", Headers(headers), 3, 5, 1, 7)


def mark(part: int, text: str, algorithm: Algorithm = "sha256") -> tuple[str, bytes]:
    return "hw.schema", encode_mark(("key", "value")[part], Fingerprint.of(text, algorithm))


class TestSchemaOnSend:
    def test_puts_the_fingerprint_where_the_text_stood(self, step: Any, store: MemoryStore) -> None:
        sent = step.on_send(record(("a", b"1"), SCHEMA, ("b", b"2"), KEY_SCHEMA, ("c", None)))
        assert sent.headers == Headers(
            [("a", b"1"), mark(1, TEXT), ("b", b"2"), mark(0, KEY_TEXT), ("c", None)]
        )
        assert sent.replace(headers=Headers()) == record()
        assert store.texts == {Fingerprint.of(TEXT): TEXT, Fingerprint.of(KEY_TEXT): KEY_TEXT}

    @pytest.mark.parametrize("algorithm", DIGEST_BYTES)
    def test_the_fingerprint_is_an_option(self, store: MemoryStore, algorithm: Algorithm) -> None:
        step = Schema(store=store, fingerprint=algorithm).open(Context())
        assert step.on_send(record(SCHEMA)).headers == Headers([mark(1, TEXT, algorithm)])
        step.close()

    def test_deposits_once(self, step: Any, store: MemoryStore) -> None:
        for _ in range(5):
            step.on_send(record(SCHEMA))
        assert store.asked == ["put"]

    def test_a_record_without_a_text_stays_the_same_object(self, step: Any) -> None:
        given = record(("a", b"1"), mark(1, TEXT))
        assert step.on_send(given) is given

    def test_takes_off_the_fingerprint_of_an_earlier_pass(self, step: Any) -> None:
        stale = mark(1, '"int"')
        sent = step.on_send(record(stale, mark(0, KEY_TEXT), SCHEMA))
        assert sent.headers == Headers([mark(0, KEY_TEXT), mark(1, TEXT)])

    def test_a_store_out_of_reach_stops_the_record(self, step: Any, store: MemoryStore) -> None:
        store.error = SerdeError("out of reach")
        with pytest.raises(SerdeError, match="out of reach"):
            step.on_send(record(SCHEMA))

    @pytest.mark.parametrize(
        ("headers", "match"),
        [
            ([("avro.schema", None)], "is null"),
            ([("avro.schema", b"secret")], "is not JSON"),
            ([("avro.schema", b'"secret"')], "not an Avro schema"),
            ([("avro.schema", b" " * (2 << 20))], "max_schema_bytes"),
            ([SCHEMA, SCHEMA], "one header .* for each part, found two of one name"),
        ],
    )
    def test_texts_that_are_no_schema(self, step: Any, store: MemoryStore, headers: Any, match: str) -> None:
        with pytest.raises(SerdeError, match=match) as caught:
            step.on_send(record(*headers))
        assert "secret" not in str(caught.value)
        assert store.asked == []

    def test_a_schema_as_deep_as_a_serde_may_allow(self, step: Any) -> None:
        text = '{"type":"array","items":' * 200 + '"long"' + "}" * 200
        sent = step.on_send(record(("avro.schema", text.encode())))
        assert sent.headers.names() == ("hw.schema",)
        assert step.on_consume(sent).headers.last("avro.schema") == text.encode()


class TestSchemaOnConsume:
    def test_puts_the_text_where_the_fingerprint_stood(self, step: Any) -> None:
        given = record(("a", b"1"), SCHEMA, ("b", b"2"), KEY_SCHEMA)
        assert step.on_consume(step.on_send(given)) == given

    @pytest.mark.parametrize("algorithm", DIGEST_BYTES)
    def test_understands_every_fingerprint(self, step: Any, store: MemoryStore, algorithm: Algorithm) -> None:
        store.texts[Fingerprint.of(TEXT, algorithm)] = TEXT
        for _ in range(3):
            assert step.on_consume(record(mark(1, TEXT, algorithm))).headers == Headers([SCHEMA])
        assert store.asked == ["get"]

    def test_a_record_without_a_fingerprint_stays_the_same_object(self, step: Any) -> None:
        given = record(("a", b"1"), SCHEMA)
        assert step.on_consume(given) is given

    def test_the_text_that_belongs_to_the_fingerprint_counts(self, step: Any) -> None:
        step.on_send(record(SCHEMA))
        assert step.on_consume(record(("avro.schema", b'"int"'), mark(1, TEXT))).headers == Headers([SCHEMA])

    def test_an_unknown_fingerprint(self, step: Any) -> None:
        with pytest.raises(UnknownSchemaError):
            step.on_consume(record(mark(1, TEXT)))

    def test_a_store_that_lies(self, step: Any, store: MemoryStore) -> None:
        store.texts[Fingerprint.of(TEXT)] = '"int"'
        with pytest.raises(SerdeError, match="a schema whose fingerprint is"):
            step.on_consume(record(mark(1, TEXT)))

    @pytest.mark.parametrize("value", [None, b"", b"value:sha1:" + b"0" * 40, b"value:md5:" + b"0" * 30])
    def test_headers_of_another_layout(self, step: Any, value: bytes | None) -> None:
        with pytest.raises(SerdeError, match="expected"):
            step.on_consume(record(("hw.schema", value)))

    def test_two_fingerprints_for_one_part(self, step: Any) -> None:
        step.on_send(record(SCHEMA))
        with pytest.raises(SerdeError, match="found two for one part"):
            step.on_consume(record(mark(1, TEXT), mark(1, TEXT)))


class TestSchemaInAChain:
    def test_serializers_that_know_no_registry_share_one(self, tmp_path: Path) -> None:
        value = Avro(schema=TEXT).open(SerdeContext())
        key = Avro(schema=KEY_TEXT).open(SerdeContext(part="key"))
        key_bytes, headers = key.serialize("orders", Headers(), "north")
        value_bytes, headers = value.serialize("orders", headers, {"id": 7})
        chain = Chain([Schema(store=FolderSchemas(path=str(tmp_path)))])
        with_chain = chain.open(Context())
        (sent,) = with_chain.send([Record("orders", value_bytes, key_bytes, headers)])
        assert sent.headers.names() == ("hw.schema", "key-content-type", "hw.schema", "content-type")
        assert len(list(tmp_path.iterdir())) == 2

        other = Chain.from_config(
            {"interceptors": "schema", "interceptors.schema.store": {"type": "folder", "path": str(tmp_path)}}
        ).open(Context())
        (got,) = other.consume([sent])
        reader = Avro()
        assert reader.open(SerdeContext(part="key")).deserialize("orders", got.headers, got.key)[0] == "north"
        assert reader.open(SerdeContext()).deserialize("orders", got.headers, got.value)[0] == {"id": 7}
        with_chain.close()
        other.close()

    def test_an_avro_serde_with_a_store_reads_what_it_sent(self, tmp_path: Path) -> None:
        store = FolderSchemas(path=str(tmp_path))
        payload, headers = Avro(schema=TEXT).open(SerdeContext()).serialize("orders", Headers(), {"id": 7})
        session = Chain([Schema(store=store)]).open(Context())
        (sent,) = session.send([Record("orders", payload, None, headers)])
        session.close()
        reader = Avro(store=store).open(SerdeContext())
        assert reader.deserialize("orders", sent.headers, sent.value)[0] == {"id": 7}
        reader.close()

    def test_the_text_that_comes_back_may_be_anothers_but_reads_the_same(
        self, step: Any, store: MemoryStore
    ) -> None:
        documented = json.dumps({**json.loads(TEXT), "doc": "An order."})
        store.texts[Fingerprint.of(TEXT)] = documented
        (back,) = step.on_consume(record(mark(1, TEXT))).headers.all("avro.schema")
        assert json.loads(back) == json.loads(documented)

    def test_is_a_transform_of_bytes_by_its_word(self) -> None:
        assert interceptor_type("schema") is Schema
        assert (Schema.role, Schema.stage, Schema.decodes) == (Role.TRANSFORM, Stage.BYTES, ("hw.schema",))

    def test_needs_a_store(self) -> None:
        with pytest.raises(ConfigError) as caught:
            Schema(store="folder")
        assert caught.value.path == "store"

    def test_a_closed_step_says_so(self, store: MemoryStore) -> None:
        step = Schema(store=store).open(Context())
        step.close()
        step.close()
        with pytest.raises(SerdeError, match="is closed"):
            step.on_send(record(SCHEMA))
