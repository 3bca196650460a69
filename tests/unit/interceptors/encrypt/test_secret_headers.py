from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.core.batch import Batch, HeaderColumns
from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import ConfigError, DecryptionError, InterceptorError, WireFormatError
from headerware.core.header_text import decode_text
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.core.session import Session
from headerware.interceptors import Compress, Encrypt, Expire, HeaderIds, Sign, Slice, Trail, new_key_secret
from headerware.interceptors.encrypt import envelope
from headerware.interceptors.encrypt.envelope import Statement
from headerware.interceptors.encrypt.secret_headers import (
    MAX_BLOCK_HEADERS,
    Block,
    decode_block,
    hidden,
    may_be_secret,
    revealed,
)
from headerware.keyring import with_new_key
from headerware.keyring.services import FileKeys, KeyService
from headerware.keyring.writing import edit_keyring

RECORD = Record(
    "orders",
    b'{"card": "4111 1111 1111 1111"}',
    b"k-1",
    Headers(
        [
            ("customer-id", b"c-4711"),
            ("tenant", b"blue"),
            ("diagnosis", None),
            ("region", b"north"),
            ("customer-id", b""),
            ("content-type", b"application/json"),
            ("diagnosis", b"\x00\xff"),
        ]
    ),
    partition=3,
    offset=1042,
)
SECRET = ("customer-id", "diagnosis")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    edit_keyring(path, lambda keys: with_new_key(keys, "orders", "aes-256"), create=True)
    edit_keyring(path, lambda keys: with_new_key(keys, "shop", "ed25519"))
    return path


@pytest.fixture
def keys(path: Path) -> KeyService:
    return FileKeys(keyring=str(path)).open(Context())


@pytest.fixture
def secret(keys: KeyService) -> str:
    return new_key_secret(keys, "orders")


Open = Callable[..., Session]


@pytest.fixture
def opened(keys: KeyService) -> Open:
    """Open a chain with encrypt, and the steps given by position."""

    def opened(*right: Any, left: Any = (), **options: Any) -> Session:
        given = {"key_service": keys, "key_id": "orders", **options}
        return Chain([*left, Encrypt(**given), *right]).open(Context(cluster_id=lambda: "prod"))

    return opened


def sent(session: Session, record: Record = RECORD) -> Record:
    (record,) = session.send([record])
    return record


def read(session: Session, record: Record) -> Record:
    (record,) = session.consume([record])
    return record


def statement_of(record: Record) -> Statement:
    layout = decode_text(record.headers.last("hw.encrypt"), "hw.encrypt")
    return envelope.statement_of(layout, is_null=record.value is None)[0]


class TestSecret:
    @pytest.mark.parametrize("value", [RECORD.value, b"", None, bytes(50_000)])
    @pytest.mark.parametrize("key", [b"k-1", None])
    def test_a_reader_needs_no_option(self, opened: Open, value: bytes | None, key: bytes | None) -> None:
        record = RECORD.replace(value=value, key=key)
        assert read(opened(), sent(opened(headers=SECRET), record)) == record

    def test_the_wire_has_neither_names_nor_values(self, opened: Open) -> None:
        wire = sent(opened(headers=SECRET))
        assert wire.headers.names() == ("tenant", "region", "content-type", "hw.secret", "hw.encrypt")
        on_wire = b"".join(
            part or b"" for name, value in wire.headers for part in (name.encode(), value)
        ) + b"".join(
            decode_text(wire.headers.last(name), name) for name in ("hw.secret", "hw.encrypt")
        )  # fmt: skip
        for word in (b"customer", b"4711", b"diagnosis"):
            assert word not in on_wire + wire.value

    def test_equal_headers_do_not_look_alike(self, opened: Open) -> None:
        session = opened(headers=SECRET)
        assert len({sent(session).headers.last("hw.secret") for _ in range(3)}) == 3

    def test_a_record_without_such_headers_has_no_block(self, opened: Open) -> None:
        session, record = opened(headers=SECRET), RECORD.replace(headers=Headers([("tenant", b"blue")]))
        wire = sent(session, record)
        assert wire.headers.names() == ("tenant", "hw.encrypt")
        assert statement_of(wire).bound == ("hw.secret",)
        assert read(session, wire) == record

    def test_a_record_of_secret_headers_alone(self, opened: Open) -> None:
        record = RECORD.replace(headers=Headers([("diagnosis", b"x")] * 3))
        assert read(opened(), sent(opened(headers=SECRET), record)) == record

    def test_names_are_compared_byte_for_byte(self, opened: Open) -> None:
        record = RECORD.replace(headers=Headers([("Customer-Id", b"1"), ("customer-id", b"2")]))
        wire = sent(opened(headers=SECRET), record)
        assert wire.headers.names() == ("Customer-Id", "hw.secret", "hw.encrypt")
        assert read(opened(headers=SECRET), wire) == record

    def test_bound_headers_stay_bound(self, opened: Open) -> None:
        options = {"headers": SECRET, "bind_headers": ("tenant",)}
        wire = sent(opened(**options))
        assert statement_of(wire).bound == ("hw.secret", "tenant")
        assert read(opened(**options), wire) == RECORD
        with pytest.raises(DecryptionError, match="tag does not fit"):
            read(opened(), wire.with_headers(wire.headers.remove("tenant")))

    def test_headers_that_were_added_later_stay_behind(self, opened: Open) -> None:
        wire = sent(opened(headers=SECRET))
        later = wire.with_headers(wire.headers.add("mirrored-from", b"a"))
        assert read(opened(), later).headers == RECORD.headers.add("mirrored-from", b"a")

    def test_headers_that_were_removed_or_reordered_on_the_way(self, opened: Open) -> None:
        record = RECORD.replace(headers=Headers([("a", b"1"), ("customer-id", b"2"), ("b", b"3")]))
        a, b, *ours = sent(opened(headers=SECRET), record).headers
        for pairs, expected in (
            ([b, a, *ours], ["b", "customer-id", "a"]),
            ([*ours, a, b], ["a", "customer-id", "b"]),
            ([b, *ours], ["b", "customer-id"]),
            (ours, ["customer-id"]),
        ):
            wire = sent(opened(headers=SECRET), record)
            own = dict(wire.headers)
            moved = Headers([(name, own[name]) for name, _ in pairs])
            assert list(read(opened(), wire.with_headers(moved)).headers.names()) == expected

    def test_batches_are_as_records(self, opened: Open, secret: str) -> None:
        options = {"headers": SECRET, "deterministic_headers": ("region",), "key_secret": secret}
        session = opened(**options)
        records = [RECORD.replace(value=b"%d" % number) for number in range(20)]
        out = session.send(Batch("orders", [r.value for r in records], headers=[r.headers for r in records]))
        wires = list(out)
        assert all("hw.secret" in wire.headers for wire in wires)
        read_ = session.consume(wires)
        assert [(r.value, r.headers) for r in read_] == [(r.value, r.headers) for r in records]

    def test_columns_of_headers_are_as_records(self, opened: Open) -> None:
        session = opened(headers=SECRET)
        columns = HeaderColumns([("tenant", [b"a"] * 9), ("customer-id", [b"1"] * 9)], 9)
        wires = list(session.send(Batch("orders", [b"v"] * 9, headers=columns)))
        assert {wire.headers.names() for wire in wires} == {("tenant", "hw.secret", "hw.encrypt")}
        assert [read(session, wire).headers for wire in wires] == list(columns)

    def test_counts(self, opened: Open) -> None:
        session = opened(headers=SECRET)
        read(session, sent(session))
        read(session, sent(session, RECORD.replace(headers=Headers())))
        stats = session.stats()["encrypt"]
        assert (stats["encrypted"], stats["decrypted"]) == (2, 2)
        assert (stats["headers_encrypted"], stats["headers_decrypted"], stats["headers_plaintext"]) == (
            1,
            1,
            0,
        )

    def test_states_an_upper_bound_before_the_first_statement(self, opened: Open, secret: str) -> None:
        names = tuple(f"{number:0255}" for number in range(64))
        session = opened(deterministic_headers=names, key_secret=secret)
        [step] = session.steps
        bound = step.opened.overhead_bytes(RECORD)
        assert len(sent(session).headers.last("hw.encrypt") or b"") + len("hw.encrypt") <= bound

    def test_states_an_upper_bound_of_what_it_adds(self, opened: Open, secret: str) -> None:
        names = ("customer-id", "diagnosis", "ä" * 100)
        session = opened(headers=names, deterministic_headers=("region", "tenant"), key_secret=secret)
        [step] = session.steps
        for number in (0, 1, 7, 200):
            many = Headers([("ä" * 100, b"x" * number)] * number)
            record = RECORD.replace(headers=RECORD.headers + many)
            bound = step.opened.overhead_bytes(record)
            grown = _size(sent(session, record)) - _size(record)
            assert grown + 20 <= bound  # the lengths of two more headers take up to 20 bytes


def _size(record: Record) -> int:
    headers = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    return headers + len(record.value or b"") + len(record.key or b"")


class TestDeterministic:
    @pytest.fixture
    def options(self, secret: str) -> dict[str, Any]:
        return {"deterministic_headers": ("customer-id", "region"), "key_secret": secret}

    def test_a_reader_gets_the_same_headers(self, opened: Open, options: dict[str, Any]) -> None:
        wire = sent(opened(**options))
        assert wire.headers.names() == (*RECORD.headers.names(), "hw.secret", "hw.encrypt")
        assert b"c-4711" not in b"".join(value or b"" for _, value in wire.headers)
        assert wire.headers[0][1].decode("ascii")
        assert read(opened(**options), wire) == RECORD

    def test_equal_values_stay_equal_in_a_topic_and_a_name(
        self, opened: Open, options: dict[str, Any]
    ) -> None:
        record = RECORD.replace(headers=Headers([("customer-id", b"1"), ("region", b"1")]))
        wires = [sent(opened(**options), record.replace(topic=topic)) for topic in ("a", "a", "b")]
        values = [dict(wire.headers) for wire in wires]
        assert values[0]["customer-id"] == values[1]["customer-id"]
        assert len({each[name] for each in values for name in ("customer-id", "region")}) == 4

    def test_null_and_empty_stay(self, opened: Open, options: dict[str, Any]) -> None:
        record = RECORD.replace(headers=Headers([("region", None), ("region", b"")]))
        wire = sent(opened(**options), record)
        assert wire.headers[:2] == record.headers
        assert read(opened(**options), wire) == record

    def test_both_kinds_in_one_record(self, opened: Open, secret: str) -> None:
        options = {"headers": ("customer-id",), "deterministic_headers": ("region",), "key_secret": secret}
        wire = sent(opened(**options))
        assert statement_of(wire).bound == ("hw.secret", "region")
        assert read(opened(**options), wire) == RECORD

    def test_with_encrypted_keys(self, opened: Open, options: dict[str, Any]) -> None:
        wire = sent(opened(key="deterministic", **options))
        assert wire.key != RECORD.key
        assert read(opened(key="deterministic", **options), wire) == RECORD
        # the reader has the secret
        assert read(opened(**options), wire) == RECORD

    def test_keys_stay_plain_without_the_option(self, opened: Open, options: dict[str, Any]) -> None:
        assert sent(opened(**options)).key == RECORD.key

    def test_a_reader_needs_the_secret(self, opened: Open, options: dict[str, Any]) -> None:
        with pytest.raises(DecryptionError, match="header 'customer-id' is encrypted deterministically"):
            read(opened(), sent(opened(**options)))

    def test_another_secret_is_refused(self, opened: Open, options: dict[str, Any], keys: KeyService) -> None:
        other = {**options, "key_secret": new_key_secret(keys, "orders")}
        with pytest.raises(DecryptionError, match="not encrypted with this key_secret"):
            read(opened(**other), sent(opened(**options)))

    def test_they_are_bound(self, opened: Open, options: dict[str, Any]) -> None:
        wire = sent(opened(**options))
        with pytest.raises(DecryptionError, match="tag does not fit"):
            read(opened(**options), wire.with_headers(wire.headers.remove("region")))


class TestRequire:
    def test_a_header_in_plaintext_is_refused(self, opened: Open) -> None:
        with pytest.raises(DecryptionError, match="expected its headers to be encrypted"):
            read(opened(headers=("tenant",)), sent(opened()))

    def test_also_beside_a_block(self, opened: Open) -> None:
        with pytest.raises(DecryptionError, match="expected its headers to be encrypted"):
            read(opened(headers=("tenant",)), sent(opened(headers=SECRET)))

    def test_also_one_that_is_to_be_encrypted_deterministically(self, opened: Open, secret: str) -> None:
        reader = opened(deterministic_headers=("tenant",), key_secret=secret)
        for writer in (opened(), opened(headers=SECRET)):
            with pytest.raises(DecryptionError, match="expected its headers to be encrypted"):
                read(reader, sent(writer))

    def test_either_encryption_will_do(self, opened: Open, secret: str) -> None:
        deterministic = {"deterministic_headers": ("customer-id",), "key_secret": secret}
        hiding = {"headers": ("customer-id",)}
        assert read(opened(**deterministic), sent(opened(**hiding))) == RECORD
        reader = opened(**hiding, deterministic_headers=("other",), key_secret=secret)
        assert read(reader, sent(opened(**deterministic))) == RECORD

    def test_warn_counts_and_logs_topics_once(self, opened: Open, caplog: pytest.LogCaptureFixture) -> None:
        session, writer = opened(headers=SECRET, require="warn"), opened()
        with caplog.at_level(logging.WARNING, "headerware"):
            for topic in ("a", "a", "b"):
                record = RECORD.replace(topic=topic)
                assert read(session, sent(writer, record)) == record
        assert [record.getMessage() for record in caplog.records] == [
            "topic 'a' has records with headers in plaintext that are to be encrypted",
            "topic 'b' has records with headers in plaintext that are to be encrypted",
        ]
        assert session.stats()["encrypt"]["headers_plaintext"] == 3

    def test_off_passes_them(self, opened: Open) -> None:
        assert read(opened(headers=SECRET, require=False), sent(opened())) == RECORD

    def test_a_record_in_plaintext_counts_as_one(self, opened: Open) -> None:
        session = opened(headers=SECRET, require="warn")
        assert read(session, RECORD) == RECORD
        stats = session.stats()["encrypt"]
        assert (stats["plaintext"], stats["headers_plaintext"]) == (1, 0)


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"headers": ("hw.trail",)}, "headers: 'hw.trail' cannot be encrypted"),
            ({"headers": ("HW.x",)}, "headers: 'HW.x' cannot be encrypted"),
            ({"headers": ("content-type",)}, "headers: 'content-type' cannot be encrypted"),
            ({"headers": ("ce_type",)}, "headers: 'ce_type' cannot be encrypted"),
            ({"headers": ("avro.schema",)}, "headers: 'avro.schema' cannot be encrypted"),
            ({"headers": ("",)}, "headers: '' cannot be encrypted"),
            ({"headers": ("x" * 256,)}, "headers: .* cannot be encrypted"),
            ({"headers": ("a\0b",)}, "headers: .* cannot be encrypted"),
            ({"headers": tuple(map(str, range(65)))}, "headers: expected at most 64 names"),
            ({"headers": ("a",), "bind_headers": ("a",)}, "headers: 'a' is among the bind_headers"),
            ({"headers": ("a",), "nulls": "pass"}, 'nulls: expected "authenticate"'),
            ({"deterministic_headers": ("a",)}, "key_secret: .* deterministic_headers need a key_secret"),
        ],
    )
    def test_refuses_what_cannot_work(self, keys: KeyService, options: Any, problem: str) -> None:
        with pytest.raises(ConfigError, match=problem):
            Encrypt(key_service=keys, key_id="orders", **options)

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"deterministic_headers": ("hw.id",)}, "deterministic_headers: 'hw.id' cannot be encrypted"),
            ({"deterministic_headers": ("a",), "headers": ("a",)}, "'a' is among the headers, too"),
            ({"deterministic_headers": ("a",), "nulls": "pass"}, 'nulls: expected "authenticate"'),
            ({}, "key_secret: .* nothing else takes one"),
        ],
    )
    def test_also_with_a_secret(self, keys: KeyService, secret: str, options: Any, problem: str) -> None:
        with pytest.raises(ConfigError, match=problem):
            Encrypt(key_service=keys, key_id="orders", key_secret=secret, **options)

    def test_native_code_does_none_of_it(self, opened: Open) -> None:
        [step] = opened(headers=SECRET).steps
        assert [step.opened.native_form(side, "orders") for side in ("send", "consume")] == [None, None]

    def test_native_code_gets_no_statement_that_binds_a_block(self, opened: Open) -> None:
        session = opened()
        [step] = session.steps
        state = step.opened.native_form("consume", "orders").state
        read(session, sent(opened(headers=SECRET)))
        plain = sent(opened(), RECORD.replace(headers=Headers()))
        assert state(Batch.of([plain])) is None
        read(session, plain)
        _, _, given = state(Batch.of([plain])).arguments()
        assert len(given) == 1
        forged = plain.with_headers(Headers([("hw.secret", b"AQ=="), *plain.headers]))
        assert state(Batch.of([plain, forged])) is None


class TestInAChain:
    def test_of_all_steps(self, opened: Open, path: Path, secret: str) -> None:
        left = Trail(service="shop"), Compress()
        right = (
            Expire(after_ms=60_000),
            Slice(max_bytes=2_000),
            Sign(keyring=str(path), key_id="shop", require="enforce"),
            HeaderIds(),
        )
        options = {"headers": SECRET, "deterministic_headers": ("region",), "key_secret": secret}
        big = RECORD.replace(value=b"".join(b"%d," % number for number in range(3_000)))
        parts = opened(*right, left=left, **options).send([big])
        assert len(parts) > 2
        parts = [part.replace(offset=offset) for offset, part in enumerate(parts)]
        (whole,) = opened(*right, left=left, **options).consume(parts)
        assert whole.value == big.value
        assert [pair for pair in whole.headers if not pair[0].startswith("hw.")] == list(big.headers)

    def test_as_an_id(self, opened: Open) -> None:
        session = opened(HeaderIds(form="keys"), headers=SECRET)
        wire = sent(session)
        assert "~R" in wire.headers
        assert "hw.secret" not in wire.headers
        assert read(session, wire) == RECORD

    def test_a_signature_covers_the_block(self, opened: Open, path: Path) -> None:
        sign = Sign(keyring=str(path), key_id="shop", require="enforce", covered=("hw.secret",))
        wire = sent(opened(sign, headers=SECRET))
        assert read(opened(sign), wire).headers == RECORD.headers


NAMES = st.text(min_size=1, max_size=20).filter(may_be_secret)
VALUES = st.none() | st.binary(max_size=40)


class TestBlock:
    @given(
        pairs=st.lists(st.tuples(st.sampled_from("abcdef"), VALUES), max_size=12),
        secret=st.sets(st.sampled_from("abcdef")),
        deterministic=st.sets(st.sampled_from("abcdef")),
        later=st.lists(st.tuples(st.sampled_from("xyz"), VALUES), max_size=3),
    )
    def test_round_trip(self, pairs: Any, secret: Any, deterministic: Any, later: Any) -> None:
        headers, deterministic = Headers(pairs), deterministic - secret
        left, encoded = hidden(headers, secret, deterministic, lambda _, value: value and value[::-1])
        assert secret.isdisjoint(name for name, _ in left)
        assert bool(encoded) == any(name in secret | deterministic for name, _ in pairs)
        if encoded:
            back = revealed((*left, *later), decode_block(encoded), lambda _, value: value and value[::-1])
            assert back == (*pairs, *later)

    @given(names=st.sets(NAMES, max_size=4), headers=st.lists(st.tuples(NAMES, VALUES), max_size=4))
    def test_each_block_has_one_spelling(self, names: Any, headers: Any) -> None:
        block = Block(
            tuple(sorted(names.difference(name for name, _ in headers))),
            tuple((3 * at, *pair) for at, pair in enumerate(headers)),
        )
        if block != Block((), ()):
            assert decode_block(block.encode()) == block

    @given(encoded=st.binary(max_size=60))
    def test_what_can_be_read_is_written_the_same_way(self, encoded: bytes) -> None:
        try:
            block = decode_block(encoded)
        except WireFormatError:
            return
        assert block.encode() == encoded

    def test_a_writer_refuses_too_many(self) -> None:
        many = Headers([("a", b"")] * (MAX_BLOCK_HEADERS + 1))
        with pytest.raises(InterceptorError, match="at most 10,000 headers to encrypt, found 10,001"):
            hidden(many, {"a"}, (), lambda _, value: value)
        _, encoded = hidden(Headers(many[1:]), {"a"}, (), lambda _, value: value)
        assert len(decode_block(encoded).headers) == MAX_BLOCK_HEADERS
