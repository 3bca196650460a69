"""Floods of records that are refused: whatever remembers a failure keeps nothing of the records.

An exception has a traceback, a traceback has frames, and frames have the record. So memory is looked at in
two ways: the resident size, and the exceptions that are still alive.
"""

from __future__ import annotations

import gc
import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import (
    HeaderwareError,
    InterceptorError,
    InvalidWrappedKeyError,
    KeyDeniedError,
    KeyServiceError,
    KeyServiceUnavailableError,
    SerdeError,
)
from headerware.core.header_text import encode_text
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.dictionaries import FolderDictionaries, TopicDictionaries
from headerware.dictionaries.dictionary import encode_mark as dictionary_mark
from headerware.interceptors import (
    Claim,
    ClaimCheck,
    Compress,
    Encrypt,
    EncryptFields,
    HeaderIds,
    Schema,
    Serialize,
    Sign,
)
from headerware.interceptors.claim_check import CLAIM_HEADER, STUB
from headerware.interceptors.encrypt.envelope import TAIL_BYTES, Statement
from headerware.interceptors.encrypt.names import FIELD_PREFIX
from headerware.keyring import with_new_key
from headerware.keyring.services import FileKeys, Wrapped
from headerware.keyring.writing import edit_keyring
from headerware.serdes.avro.serde import Avro
from headerware.serdes.confluent.client import shared_client
from headerware.serdes.schema_header import encode_mark as schema_mark
from headerware.serdes.stores import Fingerprint
from headerware.serdes.stores.folder import FolderSchemas
from headerware.serdes.stores.schema_registry import RegistrySchemas
from tests.attacks.test_admission import HEAD
from tests.attacks.test_admission import World as AdmissionWorld

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.session import Session

RECORD_BYTES: Final = 1 << 20
RECORDS: Final = 200
MOST_BYTES: Final = RECORDS * RECORD_BYTES // 4
"""How much memory may grow: a quarter of the flood, and some twenty times what was seen."""


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def flood(session: Session, make: Callable[[int], Record]) -> None:
    """Read records that are refused or held back, one by one, and look at what is left of them."""

    def read(record: Record) -> None:
        [outcome] = session.consume_outcomes([record])
        assert isinstance(outcome, InterceptorError)
        raise outcome

    flood_of(read, make)


def flood_of(read: Callable[[Record], object], make: Callable[[int], Record]) -> None:
    refuse(read, make(0))
    gc.collect()
    gc.freeze()  # the search below is for objects that come from now on
    before = resident_bytes()
    for number in range(1, RECORDS):
        refuse(read, make(number))
    grown = resident_bytes() - before
    assert grown < MOST_BYTES
    gc.collect()
    left = [type(each) for each in gc.get_objects() if isinstance(each, HeaderwareError)]
    assert left == []


def refuse(read: Callable[[Record], object], record: Record) -> None:
    with pytest.raises(InterceptorError):
        read(record)


def large(name: str, value: bytes, *, before: bytes = b"") -> Record:
    payload = before + b"x" * RECORD_BYTES
    return Record("orders", payload, b"k", Headers([(name, value)]), partition=0, offset=1)


READER: Final = Context(side="consumer", cluster_id=lambda: "prod")


@pytest.fixture
def keyring(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    edit_keyring(path, lambda keys: with_new_key(keys, "orders", "aes-256"), create=True)
    return path


class RefusingKeys:
    """A key service over a network that refuses all there is."""

    def __init__(self, refusal: type[KeyServiceError]) -> None:
        self._refusal = refusal
        self.calls = 0

    def wrap(self, key_id: str, data_key: bytes, context: bytes) -> Wrapped:
        raise self._refusal("it is refused")

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        self.calls += 1
        raise self._refusal("it is refused")

    def close(self) -> None:
        """Do nothing."""


def forged(number: int, signer: str = "") -> Record:
    wrapped = bytes((1, 0, 1)) + number.to_bytes(60, "big")
    statement = Statement("orders", "1", wrapped, "prod", "orders", signer)
    return large("hw.encrypt", encode_text(statement.encode() + bytes(TAIL_BYTES)))


def forged_field(number: int) -> Record:
    wrapped = bytes((1, 0, 1)) + number.to_bytes(60, "big")
    statement = encode_text(Statement("orders", "1", wrapped, "prod", "orders").encode()).decode()
    field = f"{FIELD_PREFIX}{statement}.{encode_text(bytes(TAIL_BYTES + 16)).decode()}"
    return Record("orders", {"card": field, "rest": "x" * RECORD_BYTES}, b"k", partition=0, offset=1)


class TestDataKeys:
    def test_keep_no_record_whose_wrapped_key_is_forged(self, keyring: Path) -> None:
        service = FileKeys(keyring=str(keyring)).open(Context())
        chain = Chain([Encrypt(key_service=service, key_ids=("orders",))])
        with chain.open(READER) as session:
            flood(session, forged)

    def test_keep_no_record_with_a_forged_field(self, keyring: Path) -> None:
        service = FileKeys(keyring=str(keyring)).open(Context())
        with closing(
            EncryptFields(key_service=service, key_ids=("orders",), fields=("card",)).open(READER)
        ) as step:
            flood_of(step.on_consume, forged_field)

    @pytest.mark.parametrize("refusal", [KeyDeniedError, KeyServiceUnavailableError, InvalidWrappedKeyError])
    def test_keep_no_record_where_a_service_refuses(self, refusal: type[KeyServiceError]) -> None:
        encrypt = Encrypt(key_service=RefusingKeys(refusal), key_ids=("orders",), key_service_timeout_ms=200)
        with Chain([encrypt]).open(READER) as session:
            flood(session, forged)


class TestSchemas:
    def test_keep_no_record_with_an_unknown_fingerprint(self, tmp_path: Path) -> None:
        with Chain([Schema(store=FolderSchemas(path=str(tmp_path)))]).open(READER) as session:
            flood(
                session,
                lambda number: large(
                    "hw.schema", schema_mark("value", Fingerprint("sha256", number.to_bytes(32, "big")))
                ),
            )

    def test_keep_no_record_with_an_unknown_id(self) -> None:
        chain = Chain([Serialize(value=Avro(store=RegistrySchemas(url="mock://refused")))])
        with chain.open(READER) as session:
            flood(
                session,
                lambda number: large("a", b"", before=b"\0" + (number + 1).to_bytes(4, "big")),
            )

    def test_of_confluents_own_client_keep_none(self) -> None:
        shared = shared_client("mock://refused-too", {})

        def ask(record: Record) -> None:
            deserialize = AvroDeserializer(shared.client)
            try:
                deserialize(record.value, SerializationContext("orders", MessageField.VALUE))
            except Exception as error:
                raise SerdeError("refused") from error

        flood_of(ask, lambda number: large("a", b"", before=b"\0" + (number + 1).to_bytes(4, "big")))
        shared.close()


class TestDictionaries:
    def test_keep_no_record_that_names_an_unknown_one(self, tmp_path: Path) -> None:
        with Chain([Compress(dictionaries=FolderDictionaries(path=str(tmp_path)))]).open(READER) as session:
            flood(session, lambda number: large("hw.compress", dictionary_mark(f"{number:032x}")))

    def test_of_a_topic_out_of_reach_keep_none(self) -> None:
        """The failure is remembered for a second, and raised for each record that comes meanwhile."""
        store = TopicDictionaries(servers="127.0.0.1:1", topic="dictionaries", timeout_s=0.1)
        with Chain([Compress(dictionaries=store)]).open(READER) as session:
            flood(session, lambda number: large("hw.compress", dictionary_mark(f"{number:032x}")))


class TestObjects:
    def test_that_are_missing_keep_no_record(self, tmp_path: Path) -> None:
        stores = {"archive": {"type": "folder", "path": str(tmp_path)}}
        with closing(ClaimCheck(stores=stores).open(READER)) as step:
            flood_of(step.on_consume, missing_object)


def missing_object(number: int) -> Record:
    claim = Claim("archive", "orders", number.to_bytes(16, "big"), bytes(32), 900_000)
    headers = Headers([(CLAIM_HEADER, claim.encode()), ("rest", b"x" * RECORD_BYTES)])
    return Record("orders", STUB, b"k", headers, partition=0, offset=1)


class TestSignatures:
    def test_that_are_missing_or_name_unknown_keys_keep_no_record(self, keyring: Path) -> None:
        edit_keyring(keyring, lambda keys: with_new_key(keys, "shop", "hmac-sha256"))
        with Chain([Sign(keyring=str(keyring))]).open(READER) as session:
            flood(session, lambda _number: large("a", b""))


class TestCertificates:
    def record(self, world: AdmissionWorld, number: int) -> Record:
        forged = world.forged({**HEAD, "kid": f"forged:{number}"}, subject=f"shop-{number}")
        return world.sent(forged, headers=[("rest", b"x" * RECORD_BYTES)])

    def test_that_are_forged_keep_no_record(self, tmp_path: Path) -> None:
        world = AdmissionWorld(tmp_path)
        with world.chain().open(world.context("consumer")) as session:
            flood(session, lambda number: self.record(world, number))

    def test_beside_a_broken_policy_keep_no_record(self, tmp_path: Path) -> None:
        """The failure to read it is remembered until it can be read."""
        world = AdmissionWorld(tmp_path)
        with world.chain().open(world.context("consumer")) as session:
            (tmp_path / "issuer.jwks.json").write_text("no key set")
            (tmp_path / "policy.toml").write_text("no policy")
            world.now_ms += 3_600_000
            flood(session, lambda number: self.record(world, number))


class TestHeaderIds:
    def test_that_cannot_be_read_keep_no_record(self) -> None:
        with Chain([HeaderIds()]).open(READER) as session:
            flood(session, lambda number: large("hw.ids", b"\xff%d" % number))
