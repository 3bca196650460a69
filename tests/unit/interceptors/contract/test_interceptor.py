from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headerware import Chain, ConfigError, Context, Headers, Record, WireFormatError
from headerware.interceptors import Compress, Contract, ContractError, Sign, Trail, decode_broken_rules
from headerware.interceptors.contract.interceptor import MARK_HEADER, encode_broken_rules
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.registry import Entry, Registry
from headerware.registry.names import use_registry
from headerware.serdes.avro.schema import Fingerprint

ID = "7b1a4a8e-0f0a-4b0f-9d2e-111111111111"
ORDER: dict[str, Any] = {
    "contentType": "application/json",
    "headers": {
        "type": "object",
        "required": ["event-id"],
        "properties": {
            "event-id": {"type": "string", "format": "uuid"},
            "attempt": {"type": "integer", "minimum": 1},
            "kind": {"enum": ["open", "paid"]},
        },
    },
    "payload": {
        "type": "object",
        "required": ["id"],
        "properties": {"id": {"type": "string"}, "amount": {"type": "number", "minimum": 0}},
    },
    "bindings": {"kafka": {"key": {"type": "string", "pattern": "^[a-z0-9-]+$"}}},
    "x-headerware-rules": {
        "paid-has-amount": "!('kind' in headers) || headers.kind != 'paid' || value.amount > 0"
    },
}
AT = "#/channels/orders/messages/Order"
GOOD = (("event-id", ID.encode()),)
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a document with these messages of topic orders, and return its path."""

    def write(*messages: dict[str, Any], **parts: Any) -> str:
        named = {"Order" if index == 0 else f"Other{index}": each for index, each in enumerate(messages)}
        channels = {"orders": {"address": "orders", "messages": named}}
        path = tmp_path / "orders.json"
        path.write_text(json.dumps({"asyncapi": "3.0.0", "channels": channels, **parts}))
        return str(path)

    return write


def record(
    value: bytes | None = b'{"id": "1"}',
    key: bytes | None = b"k-1",
    headers: Any = GOOD,
    topic: str = "orders",
) -> Record:
    return Record(topic, value, key, Headers(headers))


def rules(file: str, given: Record, **options: Any) -> tuple[str, ...]:
    """Return the rules that a record breaks, without the message's own part of the pointer."""
    step = Contract(file=file, **options).open(Context())
    try:
        assert step.on_send(given) is given
    except ContractError as error:
        return tuple(rule.removeprefix(AT) for rule in error.rules)
    return ()


class TestHeaders:
    @pytest.mark.parametrize(
        ("headers", "broken"),
        [
            (GOOD, ()),
            ((*GOOD, ("attempt", b"2"), ("kind", b"open"), ("other", b"\xff")), ()),
            ((), ("/headers/required",)),
            ((("event-id", b"7"),), ("/headers/properties/event-id/format",)),
            ((("event-id", None),), ("/headers/properties/event-id/type",)),
            ((*GOOD, *GOOD), ("/headers/properties/event-id",)),
            ((*GOOD, ("attempt", b"0")), ("/headers/properties/attempt/minimum",)),
            ((*GOOD, ("attempt", b"two")), ("/headers/properties/attempt",)),
            ((*GOOD, ("attempt", b'"2"')), ("/headers/properties/attempt/type",)),
            ((*GOOD, ("kind", b"\xff")), ("/headers/properties/kind",)),
            ((*GOOD, ("kind", b"gone")), ("/headers/properties/kind/enum",)),
            (
                (("kind", b"gone"), ("attempt", b"0")),
                ("/headers/required", "/headers/properties/attempt/minimum", "/headers/properties/kind/enum"),
            ),
        ],
    )
    def test_are_judged_by_their_schema(self, write: Write, headers: Any, broken: tuple[str, ...]) -> None:
        found = rules(write({"headers": ORDER["headers"]}), record(headers=headers))
        assert sorted(found) == sorted(broken)

    def test_own_headers_are_seen_only_if_they_are_named(self, write: Write) -> None:
        closed = {
            "type": "object",
            "additionalProperties": False,
            "properties": {"hw.owner": {"const": "shop"}},
        }
        file = write({"headers": closed})
        assert rules(file, record(headers=[("hw.trail", b"x"), ("hw.owner", b"shop")])) == ()
        assert rules(file, record(headers=[("hw.owner", b"other")])) == (
            "/headers/properties/hw.owner/const",
        )
        assert rules(file, record(headers=[("other", b"x")])) == ("/headers/additionalProperties",)

    def test_are_decoded_by_their_registered_encoding(self, write: Write) -> None:
        entry = Entry(
            id=0x00010001,  # type: ignore[arg-type]  # a plain number is accepted
            name="attempt",
            owner="shop",
            encoding="int32",
            description="The attempt.",
            since="2026-11-30",
        )
        use_registry(Registry(entries=[entry]))
        try:
            file = write({"headers": ORDER["headers"]})
            assert rules(file, record(headers=(*GOOD, ("attempt", struct.pack(">i", 2))))) == ()
            found = rules(file, record(headers=(*GOOD, ("attempt", b"2"))))
            assert found == ("/headers/properties/attempt",)
        finally:
            use_registry(None)


class TestParts:
    @pytest.mark.parametrize(
        ("given", "broken"),
        [
            (record(), ()),
            (record(value=b'{"id": 1}'), ("/payload/properties/id/type",)),
            (record(value=b'{"amount": -1}'), ("/payload/required", "/payload/properties/amount/minimum")),
            (record(value=b"{"), ("/payload",)),
            (record(value=b"[" * 5_000), ("/payload",)),
            (record(value=b'"\\ud800"'), ("/payload",)),
            (record(value=None), ()),
            (record(key=b"K"), ("/bindings/kafka/key/pattern",)),
            (record(key=b"\xff"), ("/bindings/kafka/key",)),
            (record(key=None), ("/bindings/kafka/key/type",)),
            (record(headers=[*GOOD, ("content-type", b"application/json; charset=utf-8")]), ()),
            (record(headers=[*GOOD, ("Content-Type", b"text/plain")]), ("/contentType",)),
            (record(headers=[*GOOD, ("content-type", b"?")]), ("/contentType",)),
            (record(headers=[*GOOD, ("kind", b"paid")]), ("/x-headerware-rules/paid-has-amount",)),
            (record(b'{"id": "1", "amount": 3}', headers=[*GOOD, ("kind", b"paid")]), ()),
            (record(b'{"id": "1", "amount": "3"}', headers=[*GOOD, ("kind", b"paid")]),
             ("/payload/properties/amount/type",)),
        ],
    )  # fmt: skip
    def test_are_judged(self, write: Write, given: Record, broken: tuple[str, ...]) -> None:
        assert rules(write(ORDER), given) == broken

    def test_a_key_that_is_a_number_is_read_as_json(self, write: Write) -> None:
        file = write({"bindings": {"kafka": {"key": {"type": "integer"}}}})
        assert rules(file, record(key=b"12")) == ()
        assert rules(file, record(key=b"twelve")) == ("/bindings/kafka/key",)

    def test_rules_read_the_topic_and_the_key(self, write: Write) -> None:
        file = write({"x-headerware-rules": {"a": "topic == 'orders' && key.startsWith('k-')"}})
        assert rules(file, record(value=b"\xff")) == ()
        assert rules(file, record(key=b"x")) == ("/x-headerware-rules/a",)

    def test_a_value_is_read_for_a_rule_without_a_schema(self, write: Write) -> None:
        message = {"contentType": "application/json", "x-headerware-rules": {"a": "value.amount > 0"}}
        file = write(message)
        assert rules(file, record(b'{"amount": 1}')) == ()
        assert rules(file, record(b'{"amount": 0}')) == ("/x-headerware-rules/a",)
        assert rules(file, record(b"{")) == ("/contentType",)

    def test_a_format_that_is_not_checked_passes(self, write: Write) -> None:
        payload = {"schemaFormat": "application/vnd.google.protobuf;version=3", "schema": "message A {}"}
        assert rules(write({"payload": payload}), record(b"\xff")) == ()


class TestAvro:
    PAYLOAD: dict[str, Any] = {  # noqa: RUF012 - a table of the test
        "schemaFormat": "application/vnd.apache.avro;version=1.9.0",
        "schema": {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "long"}]},
    }
    TEXT = json.dumps(PAYLOAD["schema"])
    SIX = b"\x0c"

    @pytest.mark.parametrize(
        ("value", "headers", "broken"),
        [
            (SIX, (), ()),
            (SIX + b"\x00", (), ("/payload/schema",)),
            (b"", (), ("/payload/schema",)),
            (b"\0\0\0\0\7" + SIX, (), ()),
            (SIX, (("avro.schema", TEXT.encode()),), ()),
            (SIX, (("avro.schema", b'"long"'),), ("/payload/schema",)),
            (SIX, (("avro.schema", b"{"),), ("/payload/schema",)),
            (SIX, (("hw.schema", b"value:sha256:" + Fingerprint.of(TEXT).digest.hex().encode()),), ()),
            (SIX, (("hw.schema", b"value:sha256:" + b"0" * 64),), ("/payload/schema",)),
            (SIX, (("hw.schema", b"key:sha256:" + b"0" * 64),), ()),
            (SIX, (("hw.schema", b"x"),), ("/payload/schema",)),
        ],
    )
    def test_values_are_read_by_their_schema(
        self, write: Write, value: bytes, headers: Any, broken: tuple[str, ...]
    ) -> None:
        assert rules(write({"payload": self.PAYLOAD}), record(value, headers=headers)) == broken

    def test_rules_see_the_fields(self, write: Write) -> None:
        file = write({"payload": self.PAYLOAD, "x-headerware-rules": {"a": "value.amount == 6"}})
        assert rules(file, record(self.SIX)) == ()
        assert rules(file, record(b"\x0e")) == ("/x-headerware-rules/a",)


class TestSeveralMessages:
    OPEN: dict[str, Any] = {"payload": {"required": ["open"], "properties": {"open": {"const": True}}}}  # noqa: RUF012
    PAID: dict[str, Any] = {"payload": {"required": ["paid", "by"]}}  # noqa: RUF012

    def test_a_record_is_one_of_them(self, write: Write) -> None:
        file = write(self.OPEN, self.PAID)
        assert rules(file, record(b'{"open": true}')) == ()
        assert rules(file, record(b'{"paid": 1, "by": 2}')) == ()

    def test_the_nearest_message_says_what_is_wrong(self, write: Write) -> None:
        assert rules(write(self.PAID, self.OPEN), record(b'{"open": false}')) == (
            "#/channels/orders/messages/Other1/payload/properties/open/const",
        )

    def test_the_content_type_chooses(self, write: Write) -> None:
        file = write(
            {**self.OPEN, "contentType": "application/vnd.open+json"},
            {**self.PAID, "contentType": "application/vnd.paid+json"},
        )
        headers = [("content-type", b"application/vnd.open+json")]
        assert rules(file, record(b'{"open": true}', headers=headers)) == ()
        assert rules(file, record(b'{"paid": 1, "by": 2}', headers=headers)) == ("/payload/required",)


class TestChains:
    def test_refuses_on_both_ways(self, write: Write) -> None:
        with Chain([Contract(file=write(ORDER))]).open() as session:
            for go in (session.send, session.consume):
                with pytest.raises(ContractError, match=r"header event-id: #/channels/.*/headers/required"):
                    go([record(headers=[])])

    def test_marks_on_both_ways_in_place_of_a_former_mark(self, write: Write) -> None:
        marking = Contract(file=write(ORDER), on_failure="mark")
        with Chain([marking]).open() as session:
            for go in (session.send, session.consume):
                [marked] = go([record(headers=[(MARK_HEADER, b"#/old")])])
                assert marked.headers == Headers([(MARK_HEADER, f"{AT}/headers/required".encode())])
                [good] = go([record(headers=[*GOOD, (MARK_HEADER, b"#/old")])])
                assert good.headers == Headers(GOOD)

    def test_a_refused_record_can_be_a_dead_letter(self, write: Write) -> None:
        letters: list[Record] = []
        step = Contract(file=write(ORDER), on_error="dead_letter")
        context = Context(side="consumer", publish=letters.append)
        with Chain([step]).open(context) as session:
            assert session.consume([record(headers=[])]) == []
        assert [letter.topic for letter in letters] == ["orders.dead-letter"]

    def test_a_topic_without_a_contract_passes_or_is_refused(self, write: Write) -> None:
        file = write(ORDER)
        other = record(topic="other")
        with Chain([Contract(file=file)]).open() as session:
            assert session.send([other]) == [other]
            assert session.stats()["contract"]["missing"] == 1
        with (
            Chain([Contract(file=file, missing="refuse")]).open() as session,
            pytest.raises(ContractError, match="no channel for this topic") as refused,
        ):
            session.send([other])
        assert refused.value.rules == ()

    def test_reads_what_the_steps_to_the_right_decode(self, write: Write, keyring: str) -> None:
        chain = [
            Contract(file=write(ORDER)),
            Trail(service="shop"),
            Compress(codec="gzip", min_bytes=1),
            Sign(keyring=keyring, key_id="k"),
        ]
        given = record(b'{"id": "1", "text": "' + b"a" * 500 + b'"}')
        with Chain(chain).open() as session:
            [sent] = session.send([given])
            assert sent.headers.last("hw.compress") is not None
            [read] = session.consume([sent.replace(partition=0, offset=0)])
        assert read.value == given.value

    @pytest.mark.parametrize("left", ["compress", "sign"])
    def test_is_refused_where_it_cannot_read_or_be_signed(
        self, write: Write, left: str, keyring: str
    ) -> None:
        first = Compress() if left == "compress" else Sign(keyring=keyring, key_id="k")
        with pytest.raises(ConfigError, match=f"'contract' comes after '{left}'"):
            Chain([first, Contract(file=write(ORDER))])

    @pytest.mark.parametrize("options", [{"on_failure": "drop"}, {"missing": "mark"}, {"on_error": "skip"}])
    def test_refuses_unknown_words(self, write: Write, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigError):
            Chain([Contract(file=write(ORDER), **options)])

    def test_says_which_channels_have_no_topic(self, write: Write) -> None:
        step = Contract(file=write(ORDER))
        assert step.idle_on(["orders"]) == []
        assert step.idle_on(["other"]) == [f"channel 'orders' of {step.file}"]


@pytest.fixture
def keyring(tmp_path: Path) -> str:
    path = tmp_path / "keys.json"
    edit_keyring(path, lambda keyring: with_new_key(keyring, "k", "hmac-sha256"), create=True)
    return str(path)


class TestFollowing:
    def test_uses_a_new_version_and_keeps_the_last_good_one(
        self, write: Write, caplog: pytest.LogCaptureFixture
    ) -> None:
        now = [0]
        file = write({})
        step = Contract(file=file).open(Context(now_ms=lambda: now[0]))
        given = record(headers=[])
        assert step.on_send(given) is given
        write(ORDER)
        assert step.on_send(given) is given  # not looked at yet
        now[0] = 2_000
        with pytest.raises(ContractError):
            step.on_send(given)
        Path(file).write_text("{")
        now[0] = 4_000
        with caplog.at_level(logging.ERROR), pytest.raises(ContractError):
            step.on_send(given)
        assert "the last good contract stays in use" in caplog.text
        assert step.stats()["reloads"] == step.stats()["reload_failures"] == 1


class TestMarks:
    def test_is_bounded(self) -> None:
        value = encode_broken_rules([f"/{'x' * 200}/{index}" for index in range(9)])
        assert len(value) <= 1_024
        assert decode_broken_rules(value)[-1] == "*"
        assert encode_broken_rules(["/" + "x" * 2_000]) == b"*"

    @pytest.mark.parametrize("value", [None, b"", b"a", b"#/a  #/b", b"* #/a", b"#/\xff", b"#" * 1_025])
    def test_refuses_other_text(self, value: bytes | None) -> None:
        with pytest.raises(WireFormatError):
            decode_broken_rules(value)
