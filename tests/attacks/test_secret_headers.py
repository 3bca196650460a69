"""Attacks on secret headers; docs/security.md promises these outcomes.

Everybody here may write to the topic and change what is stored, and has no data key. Who has one is in
`TestHoldersOfADataKey`.
"""

from __future__ import annotations

import os
import struct
import tracemalloc
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.core.errors import DecryptionError, HeaderwareError, InterceptorError
from headerware.core.header_text import decode_text, encode_text
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors import Sign, new_key_secret
from headerware.interceptors.encrypt.envelope import SALT_BYTES, TAIL_BYTES, opener, sealer
from headerware.interceptors.encrypt.secret_headers import Block, BlockCipher
from tests.attacks.test_encrypt import World, flipped, statement_of

if TYPE_CHECKING:
    from pathlib import Path

RECORD: Final = Record(
    "orders",
    b'{"total": 7}',
    b"k-1",
    Headers([("tenant", b"blue"), ("customer-id", b"c-4711"), ("diagnosis", b"J45"), ("region", None)]),
    partition=3,
    offset=1042,
)
BARE: Final = RECORD.replace(headers=Headers([("tenant", b"blue"), ("region", None)]))
TOMBSTONE: Final = RECORD.replace(value=None)
NAMES: Final = ("customer-id", "diagnosis")
TAG: Final = "tag does not fit"


class Secrets(World):
    """A keyring with its service, whose sessions hide headers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.secret = new_key_secret(self.keys, "orders")

    def open(self, *right: Any, **options: Any) -> Any:
        return super().open(*right, **{"bind_headers": (), "headers": NAMES, **options})

    def sent(self, record: Record = RECORD, *right: Any, **options: Any) -> Record:
        return super().sent(record, *right, **options)

    def deterministic(self) -> dict[str, Any]:
        names = ("customer-id", "tenant")
        return {"headers": (), "deterministic_headers": names, "key_secret": self.secret}


@pytest.fixture
def world(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Secrets:
    """The same for tests with many examples, which do not change it."""
    return Secrets(tmp_path_factory.mktemp("keys"))


def block_of(wire: Record) -> bytes:
    return decode_text(wire.headers.last("hw.secret"), "hw.secret")


def with_block(wire: Record, block: bytes | None) -> Record:
    """Replace the block of a record, in its place."""
    text = None if block is None else encode_text(block)
    pairs = [(name, text if name == "hw.secret" else value) for name, value in wire.headers]
    return wire.with_headers(Headers(pairs))


def with_first(wire: Record, name: str, value: bytes | None) -> Record:
    return wire.with_headers(Headers([(name, value), *wire.headers]))


@pytest.mark.parametrize("record", [RECORD, TOMBSTONE], ids=["value", "tombstone"])
class TestStrip:
    def test_the_block_is_removed(self, world: Secrets, record: Record) -> None:
        wire = world.sent(record)
        with pytest.raises(DecryptionError, match=TAG):
            world.read(wire.with_headers(wire.headers.remove("hw.secret")))

    def test_the_block_is_emptied(self, world: Secrets, record: Record) -> None:
        wire = world.sent(record)
        for block in (None, b"\x01", b"\x01" + bytes(16)):
            with pytest.raises(DecryptionError, match=TAG):
                world.read(with_block(wire, block))

    def test_the_block_is_removed_with_the_encryption(self, world: Secrets, record: Record) -> None:
        wire = world.sent(record)
        plain = wire.with_headers(wire.headers.remove("hw.secret").remove("hw.encrypt"))
        with pytest.raises(DecryptionError, match="found plaintext"):
            world.read(plain)

    @pytest.mark.parametrize("name", ["HW.SECRET", "hw.secret ", "~R", "x"])
    def test_the_block_is_renamed(self, world: Secrets, record: Record, name: str) -> None:
        wire = world.sent(record)
        pairs = [(name if own == "hw.secret" else own, value) for own, value in wire.headers]
        with pytest.raises(DecryptionError, match=TAG):
            world.read(wire.with_headers(Headers.trusted(pairs)))


class TestMove:
    def test_blocks_of_two_records_are_swapped(self, world: Secrets) -> None:
        one, other = world.open().send([RECORD, RECORD])
        assert statement_of(one) == statement_of(other)
        for into, out_of in ((one, other), (other, one)):
            with pytest.raises(DecryptionError, match=TAG):
                world.read(with_block(into, block_of(out_of)))

    def test_a_block_is_added_to_a_record_that_had_none(self, world: Secrets) -> None:
        one, bare = world.open().send([RECORD, BARE])
        with pytest.raises(DecryptionError, match=TAG):
            world.read(with_first(bare, "hw.secret", one.headers.last("hw.secret")))

    def test_a_block_is_added_to_a_record_of_another_writer(self, world: Secrets) -> None:
        """Its statement does not bind blocks, so that its tag does not show the addition."""
        bare, text = world.sent(BARE, headers=()), world.sent().headers.last("hw.secret")
        for options in ({}, {"headers": ()}, {"headers": (), "require": "off"}):
            with pytest.raises(DecryptionError, match=r"hw\.secret that its hw\.encrypt does not bind"):
                world.read(with_first(bare, "hw.secret", text), **options)

    def test_a_block_is_doubled(self, world: Secrets) -> None:
        wire = world.sent()
        for other in (wire.headers.last("hw.secret"), None, b""):
            with pytest.raises(DecryptionError, match=TAG):
                world.read(with_first(wire, "hw.secret", other))
            with pytest.raises(DecryptionError, match=TAG):
                world.read(wire.with_headers(wire.headers.add("hw.secret", other)))

    def test_a_record_with_its_block_is_moved_to_another_topic(self, world: Secrets) -> None:
        with pytest.raises(DecryptionError, match="found in topic 'refunds'"):
            world.read(world.sent().replace(topic="refunds"))

    def test_a_block_is_moved_to_another_topic(self, world: Secrets) -> None:
        ours, theirs = world.open().send([RECORD, RECORD.replace(topic="refunds")])
        with pytest.raises(DecryptionError, match=TAG):
            world.read(with_block(theirs, block_of(ours)))

    def test_a_value_is_taken_for_a_block_or_the_reverse(self, world: Secrets) -> None:
        """Both are encrypted under one key, with two nonces and two domains."""
        wire = world.sent()
        assert wire.value is not None
        with pytest.raises(DecryptionError, match=TAG):
            world.read(with_block(wire, b"\x01" + wire.value).replace(value=block_of(wire)[1:]))


class TestForged:
    """A header in plaintext with the name of a secret one, for applications that take the last one."""

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("value", [b"c-0", b"", None])
    @pytest.mark.parametrize("options", [{}, {"headers": ()}, {"require": "off"}], ids=str)
    def test_beside_the_block(self, world: Secrets, name: str, value: Any, options: Any) -> None:
        wire = world.sent()
        for forged in (with_first(wire, name, value), wire.with_headers(wire.headers.add(name, value))):
            with pytest.raises(DecryptionError, match="has the name of a secret header, so it was added"):
                world.read(forged, **options)

    def test_in_a_record_that_had_none(self, world: Secrets) -> None:
        wire = with_first(world.sent(BARE), "customer-id", b"c-0")
        with pytest.raises(DecryptionError, match="expected its headers to be encrypted"):
            world.read(wire)
        # which only a reader can notice that knows the names
        assert world.read(wire, headers=()).headers.last("customer-id") == b"c-0"
        assert world.read(wire, require="off").headers.last("customer-id") == b"c-0"

    @pytest.mark.parametrize("record", [RECORD, BARE])
    def test_after_the_signature(self, world: Secrets, record: Record) -> None:
        """The signature covers no such name, and no step sees what comes after it."""
        world.add("alice", "ed25519")
        sign = Sign(keyring=str(world.path), key_id="alice", uncovered="pass")
        wire = world.sent(record, sign)
        wire = wire.with_headers(wire.headers.add("customer-id", b"c-0"))
        with pytest.raises(DecryptionError, match=r"so it was added|expected its headers to be encrypted"):
            world.read(wire, sign)
        if record is RECORD:
            with pytest.raises(DecryptionError, match="so it was added"):
                world.read(wire, sign, headers=())
        strip = Sign(keyring=str(world.path), key_id="alice")
        assert world.read(wire, strip).headers == record.headers

    def test_with_the_name_of_a_deterministic_one(self, world: Secrets) -> None:
        for record in (RECORD, BARE):
            wire = with_first(world.sent(record, **world.deterministic()), "customer-id", b"c-0")
            with pytest.raises(DecryptionError, match=TAG):
                world.read(wire, **world.deterministic())


class TestTamper:
    @given(bit=st.integers(0, 1 << 16), record=st.sampled_from([RECORD, TOMBSTONE]))
    def test_of_the_block(self, lasting: Secrets, bit: int, record: Record) -> None:
        wire = lasting.sent(record)
        with pytest.raises(DecryptionError, match=TAG):
            lasting.read(with_block(wire, flipped(block_of(wire), bit)))

    @given(size=st.integers(1, 400), more=st.binary(max_size=30))
    def test_cut_or_longer(self, lasting: Secrets, size: int, more: bytes) -> None:
        wire = lasting.sent()
        block = block_of(wire)
        changed = block[: size % len(block)] + more
        if changed and changed != block:
            with pytest.raises(DecryptionError, match=TAG):
                lasting.read(with_block(wire, changed))

    @given(text=st.none() | st.binary(max_size=200))
    def test_any_text(self, lasting: Secrets, text: bytes | None) -> None:
        wire = lasting.sent()
        pairs = [(name, text if name == "hw.secret" else value) for name, value in wire.headers]
        with pytest.raises(DecryptionError, match=TAG):
            lasting.read(wire.with_headers(Headers(pairs)))

    def test_another_data_key(self, world: Secrets) -> None:
        with pytest.raises(DecryptionError, match="'others', which is not among the key_ids"):
            world.read(world.sent(key_id="others"))


class TestDeterministic:
    """Equal values of a topic and a name are equal; nothing else can be done with them."""

    def values(self, world: Secrets, record: Record) -> dict[str, bytes | None]:
        return dict(world.sent(record, **world.deterministic()).headers)

    def test_moved_to_another_name(self, world: Secrets) -> None:
        wire = world.sent(**world.deterministic())
        own = dict(wire.headers)
        swapped = {"tenant": own["customer-id"], "customer-id": own["tenant"]}
        pairs = [(name, swapped.get(name, value)) for name, value in wire.headers]
        with pytest.raises(DecryptionError, match=TAG):
            world.read(wire.with_headers(Headers(pairs)), **world.deterministic())

    def test_moved_to_another_record(self, world: Secrets) -> None:
        session = world.open(**world.deterministic())
        one, other = session.send([RECORD, RECORD.replace(headers=Headers([("customer-id", b"c-1")]))])
        pairs = [
            (name, other.headers.last(name) if name == "customer-id" else value)
            for name, value in one.headers
        ]
        with pytest.raises(DecryptionError, match=TAG):
            world.read(one.with_headers(Headers(pairs)), **world.deterministic())

    def test_moved_to_another_topic_or_name_by_a_holder_of_a_data_key(self, world: Secrets) -> None:
        record = RECORD.replace(headers=Headers([("customer-id", b"c-1"), ("tenant", b"blue")]))
        here = self.values(world, record)
        there = self.values(world, record.replace(topic="refunds"))
        for value in (
            here["tenant"],
            there["customer-id"],
            b"c-0",
            encode_text(b"short"),
            encode_text(bytes(40)),
        ):
            forged = crafted(world, Block(("customer-id",), ()), [("customer-id", value)])
            with pytest.raises(DecryptionError, match="for this topic and name, or was changed"):
                world.read(forged, **world.deterministic())

    def test_replaced_by_plaintext(self, world: Secrets) -> None:
        wire = world.sent(**world.deterministic())
        pairs = [(name, b"c-0" if name == "customer-id" else value) for name, value in wire.headers]
        with pytest.raises(DecryptionError, match=TAG):
            world.read(wire.with_headers(Headers(pairs)), **world.deterministic())

    def test_topics_and_names_cannot_be_joined(self, world: Secrets) -> None:
        record = RECORD.replace(headers=Headers([("customer-id", b"same"), ("tenant", b"same")]))
        here, there = self.values(world, record), self.values(world, record.replace(topic="refunds"))
        found = [each[name] for each in (here, there) for name in ("customer-id", "tenant")]
        assert len(set(found)) == 4
        keyed = world.sent(RECORD.replace(key=b"same"), **{**world.deterministic(), "key": "deterministic"})
        assert keyed.key not in {decode_text(value, "") for value in found}


def crafted(
    world: Secrets,
    block: Block | bytes,
    headers: list[tuple[str, bytes | None]] | None = None,
    *,
    bound: tuple[str, ...] = ("customer-id", "hw.secret"),
    version: bytes = b"\x01",
    times: int = 1,
) -> Record:
    """Return a record that a holder of a data key has made by hand."""
    stated = statement_of(world.sent())
    secret = world.keys.unwrap("orders", stated.wrapped, b"prod/orders")
    statement = type(stated)("orders", "1", stated.wrapped, "prod", "orders", bound=bound).encode()
    salt, cipher = os.urandom(SALT_BYTES), BlockCipher(secret, statement)
    encoded = block if isinstance(block, bytes) else block.encode()
    sealed = decode_text(cipher.encrypt(cipher.derive(salt), encoded), "hw.secret")[1:]
    pairs = Headers([*(headers or ()), *[("hw.secret", encode_text(version + sealed))] * times])
    text, value = sealer(secret, statement, bound)(salt, b"k-9", b"forged", pairs)
    return Record("orders", value, b"k-9", pairs.add("hw.encrypt", text))


class TestHoldersOfADataKey:
    """Whoever can read a topic can write to it, and yet not everything."""

    def test_what_they_can(self, world: Secrets) -> None:
        made = crafted(world, Block((), ((0, "customer-id", b"c-0"),)))
        assert world.read(made).headers == Headers([("customer-id", b"c-0")])

    @pytest.mark.parametrize(
        "name",
        [
            *("hw.sig", "hw.compress", "hw.id", "hw.encrypt", "hw.secret", "hw.trail", "HW.ADMIT", "hw."),
            *("content-type", "Content-Type", "avro.schema", "__value_schema_id", "ce_type", "ce_"),
            *("", "a\0b"),
        ],
    )
    def test_no_header_that_decides_about_bytes_or_trust(self, world: Secrets, name: str) -> None:
        for block in (Block((), ((0, name, b"1"),)), Block((name,), ())):
            with pytest.raises(DecryptionError, match="a header that cannot be secret"):
                world.read(crafted(world, block, bound=tuple(sorted({"hw.secret", name}))))

    def test_no_deterministic_header_that_is_not_bound(self, world: Secrets) -> None:
        """So that nobody without the data key can change it."""
        for bound in (("hw.secret",), ("hw.secret", "tenant")):
            made = crafted(world, Block(("customer-id",), ()), [("customer-id", b"")], bound=bound)
            with pytest.raises(DecryptionError, match=r"names an encrypted header that its hw\.encrypt does"):
                world.read(made, **world.deterministic())

    def test_no_header_of_both_kinds(self, world: Secrets) -> None:
        with pytest.raises(DecryptionError, match="encrypted in both ways"):
            world.read(crafted(world, Block(("customer-id",), ((0, "customer-id", b"1"),))))

    def test_not_two_blocks(self, world: Secrets) -> None:
        with pytest.raises(DecryptionError, match=r"more than one hw\.secret"):
            world.read(crafted(world, Block((), ((0, "a", b"1"),)), times=2))

    @pytest.mark.parametrize("version", [b"\0", b"\x02", b"\xff"])
    def test_no_other_version(self, world: Secrets, version: bytes) -> None:
        with pytest.raises(DecryptionError, match="expected version 1, found version"):
            world.read(crafted(world, Block((), ((0, "a", b"1"),)), version=version))

    @pytest.mark.parametrize(
        ("block", "problem"),
        [
            (b"", "cut off"),
            (b"\0", "it has no header"),
            (b"\xff\x01a", "cut off"),
            (b"\x02\x01b\x01a", "names are not in ascending order"),
            (b"\x02\x01a\x01a", "names are not in ascending order"),
            (b"\x01\x01\xff", "no UTF-8"),
            (b"\0\0\0\0\0", "cut off"),
            (b"\0\0\0\0\0\x01a", "cut off"),
            (b"\0\0\0\0\0\x01a\xff\xff\xff\xfe", "cut off"),
            (b"\0\0\0\0\0\x01a\0\0\0\x02x", "cut off"),
            (b"\0\0\0\0\0\xffa\0\0\0\0", "cut off"),
            (b"\0" + b"\0\0\0\x05\x01a\xff\xff\xff\xff" * 2, "headers are not in ascending order"),
            (b"\0\0\0\0\x05\x01a\xff\xff\xff\xff" + b"\0\0\0\x04\x01a\xff\xff\xff\xff", "ascending order"),
        ],
        ids=repr,
    )
    def test_a_block_that_is_cut_off_or_out_of_order(
        self, world: Secrets, block: bytes, problem: str
    ) -> None:
        with pytest.raises(DecryptionError, match=f"its hw.secret cannot be read: .*{problem}"):
            world.read(crafted(world, block))

    def test_a_large_length_or_index_reserves_no_memory(self, world: Secrets) -> None:
        wide = Block((), ((0xFFFFFFFE, "a", b"1"), (0xFFFFFFFF, "b", b"2")))
        records = [
            crafted(world, b"\0\0\0\0\0\x01a\xff\xff\xff\xfe" + bytes(100)),
            crafted(world, wide),
        ]
        session = world.open(headers=())
        session.consume_outcomes(records)
        tracemalloc.start()
        [refused, read] = session.consume_outcomes(records)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert isinstance(refused, DecryptionError)
        assert read.headers.names() == ("a", "b")
        assert peak < 1 << 20

    def test_no_more_headers_than_one_block_may_have(self, world: Secrets) -> None:
        entry = b"\x01a\xff\xff\xff\xff"
        block = b"\0" + b"".join(struct.pack(">I", at) + entry for at in range(10_001))
        with pytest.raises(DecryptionError, match="more than 10,000 headers"):
            world.read(crafted(world, block))


class TestErrors:
    @pytest.mark.parametrize("attack", ["stripped", "forged", "plaintext", "tampered", "secret"])
    def test_show_no_name_and_no_value(self, world: Secrets, attack: str) -> None:
        """The reason of a refusal goes into a dead letter, which others can read."""
        wire, options = world.sent(), {}
        if attack == "secret":
            options = {**world.deterministic(), "key_secret": new_key_secret(world.keys, "orders")}
            wire = world.sent(**world.deterministic())
        wire = {
            "stripped": wire.with_headers(wire.headers.remove("hw.secret")),
            "forged": with_first(wire, "diagnosis", b"J45"),
            "plaintext": with_first(world.sent(BARE), "diagnosis", b"J45"),
            "tampered": with_block(wire, flipped(block_of(wire), 5)),
            "secret": wire,
        }[attack]
        with pytest.raises(HeaderwareError) as refused:
            world.read(wire, **options)
        shown = f"{refused.value} {refused.value!r}"
        for word in ("c-4711", "diagnosis", "J45", "blue"):
            assert word not in shown

    def test_of_a_writer_show_none_either(self, world: Secrets) -> None:
        many = RECORD.replace(headers=Headers([("diagnosis", b"J45")] * 10_001))
        with pytest.raises(InterceptorError, match="at most 10,000 headers") as refused:
            world.sent(many)
        assert "diagnosis" not in str(refused.value)
        assert "J45" not in str(refused.value)

    def test_an_application_cannot_send_a_block(self, world: Secrets) -> None:
        with pytest.raises(HeaderwareError, match=r"'hw\.secret' is Headerware's own"):
            world.sent(RECORD.with_headers(Headers([("hw.secret", b"AQ==")])))

    def test_nor_a_step(self, world: Secrets) -> None:
        [step] = world.open().steps
        with pytest.raises(HeaderwareError, match=r"hw\.secret"):
            step.opened.on_send(RECORD.with_headers(Headers([("hw.secret", b"AQ=="), *RECORD.headers])))


def test_a_reader_that_knows_no_blocks_still_authenticates_them(world: Secrets) -> None:
    """Version 1 of hw.encrypt is unchanged: such a reader binds hw.secret as any name in a statement."""
    wire = world.sent()
    stated = statement_of(wire)
    secret = world.keys.unwrap("orders", stated.wrapped, b"prod/orders")
    layout = decode_text(wire.headers.last("hw.encrypt"), "hw.encrypt")
    open_ = opener(secret, stated.encode(), stated.bound)
    others = wire.headers.remove("hw.encrypt")
    assert open_(layout[-TAIL_BYTES:], wire.key, wire.value, others) == RECORD.value
    with pytest.raises(DecryptionError, match=TAG):
        open_(layout[-TAIL_BYTES:], wire.key, wire.value, others.remove("hw.secret"))
