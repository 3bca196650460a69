"""Attacks on encrypted records; docs/security.md promises these outcomes.

Everybody here may write to the topic and change what is stored, and has no data key. Who has one is in
`TestHoldersOfOneDataKey`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import (
    CompressionError,
    DecryptionError,
    HeaderwareError,
    HeldBackError,
    InterceptorError,
    TransportHeaderError,
)
from headerware.core.header_text import decode_text, encode_text
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.core.session import Session
from headerware.interceptors import Compress, Encrypt, EncryptFields, Serialize, Sign, new_key_secret
from headerware.interceptors.encrypt.envelope import (
    SALT_BYTES,
    TAG_BYTES,
    TAIL_BYTES,
    Statement,
    decode_statement,
    deriver,
    opener,
    sealer,
)
from headerware.keyring import Algorithm, with_new_key
from headerware.keyring.services import FileKeys, KeyService, Wrapped
from headerware.keyring.services.data_keys import OTHER_SCOPE
from headerware.keyring.writing import edit_keyring

SELF_TEST: Final = OTHER_SCOPE.encode()
RECORD: Final = Record(
    "orders",
    b'{"id": 1, "card": "4111 1111 1111 1111"}',
    b"k-1",
    Headers([("tenant", b"blue"), ("region", None)]),
    partition=3,
    offset=1042,
)
TOMBSTONE: Final = RECORD.replace(value=None)


class CountingKeys:
    """A key service that counts its calls, except those of the self-test."""

    def __init__(self, service: KeyService) -> None:
        self._service = service
        self.calls = 0

    def wrap(self, key_id: str, data_key: bytes, context: bytes) -> Wrapped:
        self.calls += not context.startswith(SELF_TEST)
        return self._service.wrap(key_id, data_key, context)

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        self.calls += not context.startswith(SELF_TEST)
        return self._service.unwrap(key_id, wrapped, context)

    def close(self) -> None:
        self._service.close()


class World:
    """A keyring with its service, and sessions of one cluster."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        for key_id in ("orders", "others"):
            self.add(key_id, "aes-256")
        self.keys = self.service()

    def add(self, key_id: str, algorithm: Algorithm) -> None:
        edit_keyring(self.path, lambda keys: with_new_key(keys, key_id, algorithm), create=True)

    def service(self) -> CountingKeys:
        return CountingKeys(FileKeys(keyring=str(self.path)).open(Context()))

    def open(self, *right: Any, left: Any = (), cluster: str | None = "prod", **options: Any) -> Session:
        given = {"key_service": self.keys, "key_id": "orders", "bind_headers": ("tenant",), **options}
        return Chain([*left, Encrypt(**given), *right]).open(Context(cluster_id=lambda: cluster))

    def sent(self, record: Record = RECORD, *right: Any, **options: Any) -> Record:
        (wire,) = self.open(*right, **options).send([record])
        return wire

    def read(self, wire: Record, *right: Any, **options: Any) -> Record:
        (record,) = self.open(*right, **options).consume([wire])
        return record


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The same for tests with many examples, which do not change it."""
    return World(tmp_path_factory.mktemp("keys"))


def layout_of(wire: Record) -> bytes:
    return decode_text(wire.headers.last("hw.encrypt"), "hw.encrypt")


def with_layout(wire: Record, layout: bytes) -> Record:
    return wire.with_headers(wire.headers.put("hw.encrypt", encode_text(layout)))


def statement_of(wire: Record) -> Statement:
    tail = TAIL_BYTES + (TAG_BYTES if wire.value is None else 0)
    return decode_statement(layout_of(wire)[:-tail])


def flipped(content: bytes, bit: int) -> bytes:
    at, bit = divmod(bit % (8 * len(content)), 8)
    return content[:at] + bytes([content[at] ^ (1 << bit)]) + content[at + 1 :]


class TestMove:
    """Nothing that was encrypted fits anywhere else."""

    def test_a_value_under_the_header_of_another_record(self, world: World) -> None:
        session = world.open()
        first, second = session.send([RECORD, RECORD.replace(value=b"another")])
        with pytest.raises(DecryptionError, match="tag does not fit"):
            world.read(first.with_value(second.value))

    @pytest.mark.parametrize("key", [b"k-2", b"", None])
    def test_to_another_key(self, world: World, key: bytes | None) -> None:
        with pytest.raises(DecryptionError, match="tag does not fit"):
            world.read(world.sent().replace(key=key))

    @pytest.mark.parametrize(("sent", "found"), [(None, b""), (b"", None)])
    def test_a_null_key_is_not_an_empty_one(
        self, world: World, sent: bytes | None, found: bytes | None
    ) -> None:
        with pytest.raises(DecryptionError, match="tag does not fit"):
            world.read(world.sent(RECORD.replace(key=sent)).replace(key=found))

    def test_to_another_topic(self, world: World) -> None:
        with pytest.raises(DecryptionError, match=r"for topic 'orders' .* found in topic 'refunds'"):
            world.read(world.sent().replace(topic="refunds"))

    def test_to_another_topic_with_the_statement_changed(self, world: World) -> None:
        wire = world.sent()
        stated = statement_of(wire)
        moved = Statement(
            stated.key_id, stated.key_version, stated.wrapped, "prod", "refunds", bound=stated.bound
        )
        wire = with_layout(wire, moved.encode() + layout_of(wire)[-TAIL_BYTES:])
        with pytest.raises(DecryptionError, match="cannot be unwrapped"):
            world.read(wire.replace(topic="refunds"))

    def test_to_another_cluster(self, world: World) -> None:
        with pytest.raises(DecryptionError, match=r"of cluster 'prod', found in .* of cluster 'test'"):
            world.read(world.sent(), cluster="test")

    def test_the_wrapped_key_of_another_topic(self, world: World) -> None:
        """A writer of both topics does it, so that it knows the data key and all tags would fit."""
        ours, theirs = world.sent(), world.sent(RECORD.replace(topic="refunds"))
        stated = statement_of(theirs)
        secret = world.keys.unwrap("orders", stated.wrapped, b"prod/refunds")
        forged = Statement("orders", "1", stated.wrapped, "prod", "orders", bound=stated.bound)
        text, value = sealer(secret, forged.encode(), forged.bound)(
            os.urandom(SALT_BYTES), ours.key, b"forged", RECORD.headers
        )
        with pytest.raises(DecryptionError, match=r"not wrapped under .* for this context"):
            world.read(ours.with_value(value, ours.headers.put("hw.encrypt", text)))

    @pytest.mark.parametrize(
        "headers",
        [
            [("tenant", b"red"), ("region", None)],
            [("region", None)],
            [("tenant", b"blue"), ("region", None), ("tenant", b"red")],
            [("tenant", None), ("region", None)],
        ],
        ids=["changed", "removed", "added", "made null"],
    )
    def test_a_bound_header_is_changed(self, world: World, headers: list[tuple[str, bytes | None]]) -> None:
        wire = world.sent()
        with pytest.raises(DecryptionError, match="tag does not fit"):
            world.read(wire.with_headers(Headers([*headers, wire.headers[-1]])))

    @pytest.mark.parametrize(
        "name",
        [
            *("hw.compress", "hw.schema", "hw.id", "avro.schema", "avro.schema.key"),
            *("content-type", "Content-Type"),
            *("key-content-type", "__key_schema_id", "__value_schema_id", "ce_type", "ce_subject"),
        ],
    )
    def test_what_the_plaintext_is(self, world: World, name: str) -> None:
        wire = world.sent(bind_headers=())
        with pytest.raises(DecryptionError, match="tag does not fit"):
            world.read(wire.with_headers(Headers([(name, b"gzip"), *wire.headers])), bind_headers=())


class TestStrip:
    def test_the_header_is_removed(self, world: World) -> None:
        wire = world.sent()
        with pytest.raises(DecryptionError, match="found plaintext"):
            world.read(wire.with_headers(wire.headers.remove("hw.encrypt")))

    def test_plaintext_is_injected(self, world: World) -> None:
        with pytest.raises(DecryptionError, match="found plaintext"):
            world.read(RECORD)

    def test_a_reader_without_encrypt_takes_no_ciphertext_for_a_value(self, world: World) -> None:
        with pytest.raises(TransportHeaderError, match="nothing in this chain decodes that"):
            Chain([Compress()]).open().consume([world.sent()])

    @pytest.mark.parametrize("other", ["HW.ENCRYPT", "hw.encrypt ", "~D"])
    def test_the_header_is_renamed(self, world: World, other: str) -> None:
        wire = world.sent()
        renamed = (*wire.headers[:-1], (other, wire.headers[-1][1]))
        with pytest.raises(DecryptionError, match="found plaintext"):
            world.read(wire.with_headers(Headers.trusted(renamed)))

    def test_a_forged_tombstone(self, world: World) -> None:
        with pytest.raises(DecryptionError, match="found plaintext"):
            world.read(TOMBSTONE)

    def test_a_value_is_made_a_tombstone(self, world: World) -> None:
        wire = world.sent()
        with pytest.raises(DecryptionError):
            world.read(wire.replace(value=None))
        with pytest.raises(DecryptionError):
            world.read(with_layout(wire, layout_of(wire) + wire.value[-TAG_BYTES:]).replace(value=None))

    def test_a_tombstone_is_moved_to_another_key(self, world: World) -> None:
        with pytest.raises(DecryptionError, match="tag does not fit"):
            world.read(world.sent(TOMBSTONE).replace(key=b"k-2"))

    def test_a_tombstone_is_made_an_empty_value(self, world: World) -> None:
        wire = world.sent(TOMBSTONE)
        tag = layout_of(wire)[-TAG_BYTES:]
        with pytest.raises(DecryptionError, match="tag does not fit"):
            world.read(with_layout(wire, layout_of(wire)[:-TAG_BYTES]).replace(value=tag))

    def test_the_signature_is_removed(self, world: World) -> None:
        world.add("alice", "ed25519")
        sign = Sign(keyring=str(world.path), key_id="alice", require="off")
        wire = world.sent(RECORD, sign)
        with pytest.raises(DecryptionError, match="and has no signature"):
            world.read(wire.with_headers(wire.headers.remove("hw.sig")), sign)

    def test_who_cannot_sign_makes_no_reader_ask_the_key_service(self, world: World) -> None:
        world.add("alice", "ed25519")
        sign = Sign(keyring=str(world.path), key_id="alice", require="off")
        wire = world.sent(RECORD, sign)
        unsigned = wire.with_headers(wire.headers.remove("hw.sig"))
        stated, tail = statement_of(wire), layout_of(wire)[-TAIL_BYTES:]
        flood = [
            with_layout(unsigned, msgspec.structs.replace(stated, wrapped=os.urandom(63)).encode() + tail)
            for _ in range(100)
        ]
        before, session = world.keys.calls, world.open(sign)
        assert {type(outcome) for outcome in session.consume_outcomes(flood)} == {DecryptionError}
        assert world.keys.calls == before

    def test_the_signature_is_another_ones(self, world: World) -> None:
        for key_id in ("alice", "mallory"):
            world.add(key_id, "ed25519")
        wire = world.sent(RECORD, Sign(keyring=str(world.path), key_id="alice"))
        unsigned = wire.with_headers(wire.headers.remove("hw.sig"))
        mallory = Sign(keyring=str(world.path), key_id="mallory", cluster="prod")
        claimed = mallory.open(Context(side="producer")).on_send(unsigned)
        with pytest.raises(DecryptionError, match="signed with key 'alice', and is signed with 'mallory'"):
            world.read(claimed, Sign(keyring=str(world.path)))


class TestTamper:
    """One bit is flipped, a piece is cut off, bytes are added: anywhere, and each is refused."""

    @given(bit=st.integers(0, 1 << 16), record=st.sampled_from([RECORD, TOMBSTONE]))
    def test_of_the_header(self, lasting: World, bit: int, record: Record) -> None:
        wire = lasting.sent(record)
        with pytest.raises(DecryptionError):
            lasting.read(with_layout(wire, flipped(layout_of(wire), bit)))

    @given(bit=st.integers(0, 1 << 16))
    def test_of_the_value(self, lasting: World, bit: int) -> None:
        wire = lasting.sent()
        with pytest.raises(DecryptionError, match="tag does not fit"):
            lasting.read(wire.replace(value=flipped(wire.value, bit)))

    @given(bit=st.integers(0, 1 << 16))
    def test_of_the_encrypted_key(self, lasting: World, bit: int) -> None:
        secret = new_key_secret(lasting.keys, "orders")
        options: dict[str, Any] = {"key": "deterministic", "key_secret": secret}
        wire = lasting.sent(**options)
        with pytest.raises(DecryptionError, match="tag does not fit"):
            lasting.read(wire.replace(key=flipped(wire.key, bit)), **options)

    @given(size=st.integers(0, 400))
    def test_a_header_that_is_cut(self, lasting: World, size: int) -> None:
        wire = lasting.sent()
        with pytest.raises(DecryptionError):
            lasting.read(with_layout(wire, layout_of(wire)[: size % len(layout_of(wire))] or b"\0"))

    @given(size=st.integers(0, 400))
    def test_a_value_that_is_cut(self, lasting: World, size: int) -> None:
        wire = lasting.sent()
        with pytest.raises(DecryptionError, match="tag does not fit"):
            lasting.read(wire.replace(value=wire.value[: size % len(wire.value)]))

    @given(more=st.binary(min_size=1, max_size=80), first=st.booleans())
    def test_bytes_too_many(self, lasting: World, more: bytes, first: bool) -> None:  # noqa: FBT001 - drawn
        wire = lasting.sent()
        longer = more + wire.value if first else wire.value + more
        with pytest.raises(DecryptionError, match="tag does not fit"):
            lasting.read(wire.replace(value=longer))
        layout = layout_of(wire)
        with pytest.raises(DecryptionError):
            lasting.read(with_layout(wire, more + layout if first else layout + more))

    @given(text=st.binary(max_size=300))
    def test_any_text_as_the_header(self, lasting: World, text: bytes) -> None:
        wire = lasting.sent()
        with pytest.raises(DecryptionError):
            lasting.read(wire.with_headers(wire.headers.put("hw.encrypt", text)))

    def test_a_null_header(self, lasting: World) -> None:
        wire = lasting.sent()
        with pytest.raises(DecryptionError, match="expected base64, found null"):
            lasting.read(wire.with_headers(wire.headers.put("hw.encrypt", None)))

    def test_two_headers(self, lasting: World) -> None:
        wire = lasting.sent()
        with pytest.raises(DecryptionError, match=r"more than one hw\.encrypt"):
            lasting.read(wire.with_headers(wire.headers.append(wire.headers[-1])))

    @pytest.mark.parametrize("byte", [0, 1], ids=["version", "suite"])
    @pytest.mark.parametrize("other", [0, 2, 255])
    def test_a_downgrade(self, lasting: World, byte: int, other: int) -> None:
        layout = bytearray(layout_of(wire := lasting.sent()))
        layout[byte] = other
        with pytest.raises(DecryptionError, match="expected version 1 and suite 1"):
            lasting.read(with_layout(wire, bytes(layout)))


class TestKeys:
    def test_another_data_key(self, world: World) -> None:
        """The service unwraps it, for it was wrapped for this topic, but the record is of another one."""
        first, second = world.sent(), world.sent()
        wrapped = statement_of(second).wrapped
        assert wrapped != statement_of(first).wrapped
        layout = layout_of(first).replace(statement_of(first).wrapped, wrapped)
        with pytest.raises(DecryptionError, match="key commitment does not fit"):
            world.read(with_layout(first, layout))

    def test_one_ciphertext_for_two_keys(self, world: World) -> None:
        """AES-GCM alone lets one make a ciphertext that two keys decrypt, each to its own plaintext."""
        first, second = os.urandom(32), os.urandom(32)
        salt, statement = os.urandom(SALT_BYTES), Statement("orders", "1", b"w", "prod", "orders").encode()
        text, value = sealer(first, statement, ())(salt, b"k", b"meant for the first", Headers())
        tail = decode_text(text, "hw.encrypt")[len(statement) :]
        assert opener(first, statement, ())(tail, b"k", value, Headers()) == b"meant for the first"
        # The tag of the same ciphertext under the second key, so that only the commitment tells them apart.
        context_of = _context(statement, b"k")
        second_key = deriver(second)(salt)[:32]
        for forged in (_with_tag_for(second_key, value, context_of), value):
            with pytest.raises(DecryptionError, match="key commitment does not fit"):
                opener(second, statement, ())(tail, b"k", forged, Headers())

    def test_a_key_that_is_not_accepted_is_refused_without_a_call(self, world: World) -> None:
        wire = world.sent(key_id="others")
        before = world.keys.calls
        with pytest.raises(DecryptionError, match="'others', which is not among the key_ids"):
            world.read(wire)
        assert world.keys.calls == before

    def test_a_flood_of_unknown_keys_never_calls_the_service(self, world: World) -> None:
        session, wire = world.open(), world.sent()
        stated, tail, before = statement_of(wire), layout_of(wire)[-TAIL_BYTES:], world.keys.calls
        flood = []
        for number in range(2_000):
            forged = Statement(f"key-{number}", "1", os.urandom(63), "prod", "orders", bound=stated.bound)
            flood.append(with_layout(wire, forged.encode() + tail))
        outcomes = session.consume_outcomes(flood)
        assert {type(outcome) for outcome in outcomes} == {DecryptionError}
        assert world.keys.calls == before

    def test_a_flood_of_forged_data_keys_is_bounded_and_starves_nobody(self, world: World) -> None:
        session, wire = world.open(), world.sent()
        assert session.consume([wire]) == [RECORD]
        stated, tail, before = statement_of(wire), layout_of(wire)[-TAIL_BYTES:], world.keys.calls
        flood = []
        for _ in range(1_000):
            forged = Statement("orders", "1", stated.wrapped[:3] + os.urandom(60), "prod", "orders")
            flood.append(with_layout(wire, forged.encode() + tail))
        refused = [type(session.consume_outcomes([forged])[0]) for forged in flood]
        assert set(refused) <= {DecryptionError, HeldBackError}
        assert world.keys.calls - before <= 400
        assert session.consume([wire]) == [RECORD]

    def test_a_flood_of_statements_takes_no_memory(self, world: World) -> None:
        """Their data key is genuine, so that it is unwrapped, but nobody has made a tag for them."""
        session, wire = world.open(), world.sent()
        stated, tail = statement_of(wire), layout_of(wire)[-TAIL_BYTES:]
        for number in range(300):
            forged = Statement("orders", f"v{number}", stated.wrapped, "prod", "orders", bound=stated.bound)
            [outcome] = session.consume_outcomes([with_layout(wire, forged.encode() + tail)])
            assert isinstance(outcome, DecryptionError)
        [step] = session.steps
        assert step.opened._known._remembered.total() == 0

    def test_a_header_that_claims_to_be_large(self, world: World) -> None:
        for layout in (
            b"\x01\x01\x06orders\x011\xff\xff",
            b"\x01\x01\xff",
            b"\x01\x01\x06orders\x011" + b"\xff" * 70,
        ):
            with pytest.raises(DecryptionError, match="cut off"):
                world.read(with_layout(world.sent(), layout))


def _context(statement: bytes, key: bytes) -> bytes:
    parts = [b"headerware/hw.encrypt/1", statement]
    return (
        parts[0]
        + len(statement).to_bytes(4, "big")
        + statement
        + b"\0"
        + len(key).to_bytes(4, "big")
        + key
        + bytes(4)
    )


def _with_tag_for(key: bytes, sealed: bytes | None, context: bytes) -> bytes:
    """Return the same ciphertext with the tag that it has under another key."""
    ciphertext = (sealed or b"")[:-TAG_BYTES]
    stream = AESGCM(key).encrypt(bytes(12), bytes(len(ciphertext)), context)[: len(ciphertext)]
    plain = bytes(one ^ two for one, two in zip(ciphertext, stream, strict=True))
    again = AESGCM(key).encrypt(bytes(12), plain, context)
    assert again[:-TAG_BYTES] == ciphertext
    return again


class TestSalts:
    def test_forked_children_repeat_none(self, world: World) -> None:
        """With a counter, or random numbers that were drawn ahead, children would go on alike."""
        session = world.open()
        session.send([RECORD])
        pipes = []
        for _ in range(4):
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:  # pragma: no cover - in the child
                found = [layout_of(wire).hex() for wire in session.send([RECORD] * 50)]
                os.write(writing, json.dumps(found).encode())
                os._exit(0)
            os.close(writing)
            pipes.append((pid, reading))
        layouts = [layout_of(wire) for wire in session.send([RECORD] * 50)]
        for pid, reading in pipes:
            with os.fdopen(reading, "rb") as pipe:
                layouts += [bytes.fromhex(layout) for layout in json.load(pipe)]
            assert os.waitpid(pid, 0)[1] == 0
        assert len({layout[-TAIL_BYTES:-32] for layout in layouts}) == len(layouts) == 250

    def test_records_repeat_none(self, world: World) -> None:
        wires = world.open().send([RECORD] * 1_000)
        assert len({layout_of(wire)[-TAIL_BYTES:-32] for wire in wires}) == 1_000


class TestBombs:
    def test_what_is_behind_it_stays_capped(self, world: World) -> None:
        """Only a holder of a data key can make one, and not even that one fills a reader's memory."""
        wire = world.sent(RECORD.replace(value=bytes(50 << 20)), left=[Compress()])
        assert len(wire.value) < 10_000
        with pytest.raises(CompressionError, match="above the cap of 1048576"):
            world.read(wire, left=[Compress(max_decompressed_bytes=1 << 20)])

    def test_a_stranger_cannot_even_make_one(self, world: World) -> None:
        wire = world.sent(RECORD.replace(value=bytes(50 << 20)), left=[Compress()])
        with pytest.raises(DecryptionError, match="tag does not fit"):
            world.read(wire.replace(value=wire.value[:-1] + b"\0"), left=[Compress()])


class TestHoldersOfOneDataKey:
    """Whoever can read a topic has its data keys, and can write with them, unless records are signed."""

    def test_a_reader_can_write_without_sign(self, world: World) -> None:
        wire = world.sent(bind_headers=())
        stated = statement_of(wire)
        secret = world.keys.unwrap("orders", stated.wrapped, b"prod/orders")
        text, value = sealer(secret, stated.encode(), ())(os.urandom(24), b"k-9", b"forged", Headers())
        forged = Record("orders", value, b"k-9", Headers([("hw.encrypt", text)]))
        assert world.read(forged, bind_headers=()).value == b"forged"

    def test_and_not_with_it(self, world: World) -> None:
        world.add("alice", "ed25519")
        sign = Sign(keyring=str(world.path), key_id="alice")
        stated = statement_of(world.sent(RECORD, sign, bind_headers=()))
        secret = world.keys.unwrap("orders", stated.wrapped, b"prod/orders")
        text, value = sealer(secret, stated.encode(), ())(os.urandom(24), b"k-9", b"forged", Headers())
        forged = Record("orders", value, b"k-9", Headers([("hw.encrypt", text)]))
        with pytest.raises(InterceptorError, match=r"sign at orders: expected a signature"):
            world.read(forged, sign, bind_headers=())


class TestFields:
    @pytest.fixture
    def session(self, world: World) -> Session:
        step = EncryptFields(
            key_service=world.keys, key_id="orders", fields=("card", "owner.name", "items.price")
        )
        return Chain([step]).open(Context(cluster_id=lambda: "prod"))

    VALUE: Final = {"card": "4111", "owner": {"name": "A"}, "items": [{"price": 1}, {"price": 2}]}

    def wire(self, session: Session) -> dict[str, Any]:
        (sent,) = [step.opened.on_send(RECORD.replace(value=self.VALUE)) for step in session.steps]
        value: dict[str, Any] = sent.value
        return value

    def read(self, session: Session, value: Any, **changes: Any) -> Any:
        (step,) = session.steps
        return step.opened.on_consume(RECORD.replace(value=value, **changes)).value

    def test_they_come_back(self, session: Session) -> None:
        assert self.read(session, self.wire(session)) == self.VALUE

    def test_moved_to_another_field(self, session: Session) -> None:
        value = self.wire(session)
        with pytest.raises(DecryptionError, match="tag does not fit"):
            self.read(session, {**value, "card": value["owner"]["name"]})

    def test_moved_within_a_list(self, session: Session) -> None:
        value = self.wire(session)
        with pytest.raises(DecryptionError, match=r"'items\.0\.price'.* tag does not fit"):
            self.read(session, {**value, "items": value["items"][::-1]})

    def test_moved_to_another_record(self, session: Session) -> None:
        with pytest.raises(DecryptionError, match="tag does not fit"):
            self.read(session, self.wire(session), key=b"k-2")

    def test_moved_to_another_topic(self, session: Session) -> None:
        with pytest.raises(DecryptionError, match="found in topic 'refunds'"):
            self.read(session, self.wire(session), topic="refunds")

    def test_replaced_by_plaintext(self, session: Session) -> None:
        with pytest.raises(DecryptionError, match="expected an encrypted field, found plaintext"):
            self.read(session, {**self.wire(session), "card": "4111"})

    def test_removed(self, session: Session) -> None:
        value = self.wire(session)
        del value["card"]
        with pytest.raises(InterceptorError, match="expected a field 'card', found none"):
            self.read(session, value)

    def test_rolled_back_to_an_older_text(self, session: Session) -> None:
        """It is bound to its path and key, not to its record, so without sign this is accepted."""
        old, new = self.wire(session), self.wire(session)
        assert old["card"] != new["card"]
        assert self.read(session, {**new, "card": old["card"]}) == self.VALUE

    @pytest.mark.parametrize(
        ("keeps_signature", "require", "refusal"),
        [
            (True, "enforce", "does not fit the record"),
            (False, "enforce", "expected a signature"),
            (False, "off", "was encrypted to be signed with key 'shop'"),
        ],
    )
    def test_rolled_back_in_a_signed_record(
        self, world: World, *, keeps_signature: bool, require: Any, refusal: str
    ) -> None:
        world.add("shop", "hmac-sha256")
        chain = Chain(
            [
                EncryptFields(key_service=world.keys, key_id="orders", fields=("card",)),
                Serialize(value="json"),
                Sign(keyring=str(world.path), key_id="shop", require=require, cluster="prod"),
            ]
        )
        session = chain.open(Context(cluster_id=lambda: "prod"))
        old, new = session.send([Record("orders", {"card": card}, b"k-1") for card in ("4111", "4222")])
        names = new.headers if keeps_signature else new.headers.remove("hw.sig")
        with pytest.raises(InterceptorError, match=refusal):
            session.consume([new.replace(value=old.value, headers=names)])

    @given(bit=st.integers(0, 1 << 16))
    def test_changed(self, lasting: World, bit: int) -> None:
        step = EncryptFields(key_service=lasting.keys, key_id="orders", fields=("card",)).open(Context())
        text: str = step.on_send(RECORD.replace(value={"card": "4111"})).value["card"]
        changed = flipped(text.encode(), bit).decode("latin-1")
        # It is held back if it now names the next version of the key, which may be on its way.
        with pytest.raises((DecryptionError, HeldBackError)):
            step.on_consume(RECORD.replace(value={"card": changed}))


@pytest.mark.parametrize("attack", ["wrong key", "changed", "plaintext", "unknown key"])
def test_no_error_shows_a_payload_a_key_or_a_header(world: World, attack: str) -> None:
    wire = world.sent(RECORD, key_id="others" if attack == "unknown key" else "orders")
    secret = world.keys.unwrap(statement_of(wire).key_id, statement_of(wire).wrapped, b"prod/orders")
    wire = {
        "wrong key": with_layout(wire, flipped(layout_of(wire), -1)),
        "changed": wire.replace(value=flipped(wire.value, 0)),
        "plaintext": RECORD,
        "unknown key": wire,
    }[attack]
    with pytest.raises(HeaderwareError) as refused:
        world.read(wire)
    shown = f"{refused.value} {refused.value!r}"
    for hidden in ("4111", "blue", "k-1", secret.hex(), repr(secret)[2:-1]):
        assert hidden not in shown
