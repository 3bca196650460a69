"""A signature binds the bytes to the schema that they are read by: its fingerprint must not be forged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import ConfigError, SerdeError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors import Schema, Serialize, Sign
from headerware.serdes import Avro, CloudEvents, Polyglot
from headerware.serdes.confluent.framing import encode_single_object
from headerware.serdes.schema_header import SCHEMA_HEADER, encode_mark
from headerware.serdes.serde import SerdeContext
from headerware.serdes.stores import Fingerprint
from headerware.serdes.stores.folder import FolderSchemas

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headerware.serdes.avro.schema import Algorithm

FIELDS = [{"name": "payer", "type": "string"}, {"name": "payee", "type": "string"}]
PAYMENT = json.dumps({"type": "record", "name": "Payment", "fields": FIELDS})
OBJECT = {"payer": "Ada", "payee": "Bob"}
WEAK = pytest.mark.parametrize("algorithm", ["md5", "rabin"])
_CANONICAL = (
    '{"name":"%s","type":"record","fields":'
    '[{"name":"payee","type":"string"},{"name":"payer","type":"string"}]}'
)
_NAME_BYTES = 96


def forged_schema(wanted: Fingerprint) -> str:
    """Make a schema with swapped fields and a Rabin fingerprint of choice, in the bits of its name.

    The fingerprint is linear in these bits, so they are the solution of 64 equations.
    """

    def rabin(bits: int) -> int:
        name = "".join("c" if bits >> index & 1 else "b" for index in range(_NAME_BYTES))
        return int.from_bytes(Fingerprint.of(_CANONICAL % name, "rabin").digest, "big")

    base = rabin(0)
    basis: dict[int, tuple[int, int]] = {}
    for index in range(_NAME_BYTES):
        value, bits = reduced(rabin(1 << index) ^ base, basis)
        if value:
            basis[value.bit_length()] = value, bits ^ 1 << index
    left, bits = reduced(base ^ int.from_bytes(wanted.digest, "big"), basis)
    assert left == 0
    name = "".join("c" if bits >> index & 1 else "b" for index in range(_NAME_BYTES))
    return _CANONICAL % name


def reduced(value: int, basis: dict[int, tuple[int, int]]) -> tuple[int, int]:
    bits = 0
    while value and (found := basis.get(value.bit_length())):
        value, bits = value ^ found[0], bits ^ found[1]
    return value, bits


@pytest.fixture
def store(tmp_path: Path) -> FolderSchemas:
    folder = tmp_path / "schemas"
    folder.mkdir()
    return FolderSchemas(path=str(folder), rescan_s=0)


@pytest.fixture
def sign(keys: str) -> Sign:
    return Sign(keyring=keys, key_id="k")


def deposited(store: FolderSchemas, text: str) -> None:
    Path(store.path, f"{Fingerprint.of(text).digest.hex()}.avsc").write_text(text, encoding="utf-8")


def read(chain: Chain, record: Record) -> Any:
    session = chain.open(Context(side="consumer"))
    try:
        (got,) = session.consume([record])
    finally:
        session.close()
    return got.value


def signed(sign: Sign, headers: Sequence[tuple[str, bytes]], payload: bytes) -> Record:
    session = Chain([sign]).open(Context(side="producer"))
    (sent,) = session.send([Record("t", payload, None, Headers(headers))])
    return sent


def mark(fingerprint: Fingerprint) -> tuple[str, bytes]:
    return SCHEMA_HEADER, encode_mark("value", fingerprint)


def payload_of(text: str) -> bytes:
    payload, _ = Avro(schema=text).open(SerdeContext()).serialize("t", Headers(), OBJECT)
    assert payload is not None
    return payload


class TestTheDefault:
    def test_is_sha256(self, store: FolderSchemas) -> None:
        assert Avro(store=store).fingerprint == Schema(store=store).fingerprint == "sha256"
        assert Fingerprint.of('"int"').algorithm == "sha256"


class TestAChainThatSigns:
    @WEAK
    @pytest.mark.parametrize(
        "step",
        [
            Schema,
            lambda **options: Serialize(value=Avro(schema=PAYMENT, **options)),
            lambda **options: Serialize(key=Avro(schema=PAYMENT, **options)),
            lambda **options: Serialize(
                value=Polyglot(types={"avro/binary": Avro(schema=PAYMENT, **options)})
            ),
            lambda **options: Serialize(value=Polyglot(default=Avro(schema=PAYMENT, **options))),
            lambda **options: Serialize(value=CloudEvents(data=Avro(schema=PAYMENT, **options))),
        ],
    )
    def test_refuses_a_digest_that_can_be_forged(
        self, store: FolderSchemas, sign: Sign, algorithm: Algorithm, step: Callable[..., Any]
    ) -> None:
        weak = step(store=store, fingerprint=algorithm)
        with pytest.raises(ConfigError, match=r"cannot be in a chain that signs: .*; use sha256"):
            Chain([weak, sign])
        Chain([weak])
        Chain([step(store=store), sign])

    @WEAK
    def test_minds_the_topics(self, store: FolderSchemas, tmp_path: Path, algorithm: Algorithm) -> None:
        weak = Schema(store=store, fingerprint=algorithm, topics=("logs",))
        keyring = str(tmp_path / "keys.json")
        Chain([weak, Sign(keyring=keyring, topics=("orders",))])
        with pytest.raises(ConfigError, match="use sha256"):
            Chain([weak, Sign(keyring=keyring, topics=("lo*",))])

    @WEAK
    def test_takes_it_where_no_fingerprint_is_written(
        self, store: FolderSchemas, sign: Sign, algorithm: Algorithm
    ) -> None:
        Chain([Serialize(value=Avro(store=store, write_as="schema", fingerprint=algorithm)), sign])


class TestAnotherSchemaUnderASignedPayload:
    """A writer that signs names a schema by a weak digest, and a depositor makes another one for it."""

    @pytest.fixture
    def victim(self) -> Fingerprint:
        return Fingerprint.of(PAYMENT, "rabin")

    @pytest.fixture
    def forged(self, victim: Fingerprint) -> str:
        text = forged_schema(victim)
        assert Fingerprint.of(text, "rabin") == victim
        return text

    def test_is_how_unsigned_records_are_read(
        self, store: FolderSchemas, victim: Fingerprint, forged: str
    ) -> None:
        deposited(store, forged)
        record = Record("t", payload_of(PAYMENT), None, Headers([mark(victim)]))
        swapped = {"payee": "Ada", "payer": "Bob"}
        assert read(Chain([Serialize(value=Avro(store=store))]), record) == swapped

    @pytest.mark.parametrize("text", [PAYMENT, None])
    @pytest.mark.parametrize(
        "chain",
        [
            lambda store: [Serialize(value=Avro(store=store))],
            lambda store: [Serialize(value=Avro(store=store, schema=PAYMENT))],
            lambda store: [Serialize(value=Polyglot(default=Avro(store=store)))],
            lambda store: [Schema(store=store)],
        ],
    )
    def test_is_refused_where_records_are_verified(
        self,
        store: FolderSchemas,
        sign: Sign,
        forged: str,
        text: str | None,
        chain: Callable[[Any], list[Any]],
    ) -> None:
        deposited(store, forged if text is None else text)
        for algorithm in ("rabin", "md5"):
            record = signed(sign, [mark(Fingerprint.of(PAYMENT, algorithm))], payload_of(PAYMENT))
            with pytest.raises(
                SerdeError, match=f"its {algorithm} fingerprint, expected sha256 where records"
            ):
                read(Chain([*chain(store), sign]), record)

    def test_is_refused_in_the_single_object_encoding(
        self, store: FolderSchemas, sign: Sign, victim: Fingerprint, forged: str
    ) -> None:
        deposited(store, forged)
        record = signed(sign, [], encode_single_object(victim) + payload_of(PAYMENT))
        with pytest.raises(SerdeError, match="its rabin fingerprint, expected sha256"):
            read(Chain([Serialize(value=Avro(store=store)), sign]), record)
        own = Chain([Serialize(value=Avro(store=store, schema=PAYMENT)), sign])
        assert read(own, record) == OBJECT

    def test_cannot_be_made_for_sha256(self, store: FolderSchemas, sign: Sign, forged: str) -> None:
        deposited(store, forged)
        deposited(store, PAYMENT)
        record = signed(sign, [mark(Fingerprint.of(PAYMENT))], payload_of(PAYMENT))
        assert read(Chain([Serialize(value=Avro(store=store)), sign]), record) == OBJECT
