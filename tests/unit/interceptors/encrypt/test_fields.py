from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import ConfigError, DecryptionError, InterceptorError
from headerware.core.record import Record
from headerware.interceptors import EncryptFields, Serialize, Sign
from headerware.keyring import with_new_key
from headerware.keyring.services import FileKeys
from headerware.keyring.writing import edit_keyring
from headerware.serdes import Json

VALUE = {
    "card": {"number": "4111 1111", "expires": "2027-01"},
    "items": [{"price": 1}, {"price": 2.5}],
    "id": 7,
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    edit_keyring(path, lambda keys: with_new_key(keys, "cards", "aes-256"), create=True)
    edit_keyring(path, lambda keys: with_new_key(keys, "shop", "hmac-sha256"))
    return path


def step(path: Path, *fields: str, **options: Any) -> EncryptFields:
    return EncryptFields(
        key_service=FileKeys(keyring=str(path)), key_id="cards", fields=fields or ("card.number",), **options
    )


def record(value: Any = VALUE, key: Any = "k-1") -> Record:
    return Record("orders", value, key)


def round_trip(path: Path, value: Any, *fields: str, **options: Any) -> tuple[Any, Any]:
    opened = step(path, *fields, **options).open(Context())
    sent = opened.on_send(record(value))
    return sent.value, opened.on_consume(sent).value


class TestFields:
    def test_each_becomes_a_text_and_comes_back(self, path: Path) -> None:
        wire, read = round_trip(path, VALUE, "card.number", "items.price")
        assert read == VALUE
        assert wire["card"]["number"].startswith("hw-encrypted:")
        assert [item["price"][:13] for item in wire["items"]] == ["hw-encrypted:"] * 2
        assert (wire["card"]["expires"], wire["id"]) == ("2027-01", 7)

    def test_what_the_application_sent_is_not_changed(self, path: Path) -> None:
        before = {"card": {"number": "4111"}}
        round_trip(path, before)
        assert before == {"card": {"number": "4111"}}

    def test_the_whole_of_a_dict_or_list(self, path: Path) -> None:
        wire, read = round_trip(path, VALUE, "card", "items")
        assert type(wire["card"]) is type(wire["items"]) is str
        assert read == VALUE

    def test_a_name_with_a_dot(self, path: Path) -> None:
        wire, read = round_trip(path, {"card.number": 1, "card": {"number": 2}}, r"card\.number")
        assert wire["card"] == {"number": 2}
        assert wire["card.number"] != 1
        assert read == {"card.number": 1, "card": {"number": 2}}

    @given(
        value=st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**63), 2**64 - 1)
            | st.floats(allow_nan=False)
            | st.text()
            | st.binary(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=8,
        )
    )
    def test_a_field_comes_back_as_it_was(self, path: Path, value: Any) -> None:
        _, read = round_trip(path, {"x": value}, "x")
        assert read == {"x": value}
        assert type(read["x"]) is type(value)

    def test_numbers_that_are_none(self, path: Path) -> None:
        assert math.isnan(round_trip(path, {"x": math.nan}, "x")[1]["x"])

    @pytest.mark.parametrize(
        "value", [Decimal(1), datetime.now(UTC), {1: 2}, (1, 2), {"a": [object()]}, 2**64, "\ud800"]
    )
    def test_what_would_not_come_back_is_refused_and_not_shown(self, path: Path, value: Any) -> None:
        with pytest.raises(InterceptorError, match="the field 'card' ") as refused:
            round_trip(path, {"card": value}, "card")
        assert str(2**64) not in str(refused.value)

    def test_a_null_value_has_no_fields(self, path: Path) -> None:
        assert round_trip(path, None) == (None, None)

    @pytest.mark.parametrize("value", ["text", b"bytes", [1], 5])
    def test_other_values_are_refused(self, path: Path, value: Any) -> None:
        with pytest.raises(InterceptorError, match="expected a dict to find fields in"):
            round_trip(path, value)

    def test_bytes_are_refused_with_the_remedy(self, path: Path) -> None:
        opened = step(path).open(Context())
        with pytest.raises(InterceptorError, match="found bytes: pass the dict itself to produce"):
            opened.on_send(record(b"{}"))
        with pytest.raises(InterceptorError, match="found bytes: put a serialize step after this step"):
            opened.on_consume(record(b"{}"))

    @pytest.mark.parametrize("value", [{}, {"card": None}, {"card": "x"}, {"card": {"other": 1}}])
    def test_a_missing_field_is_refused_or_passed(self, path: Path, value: Any) -> None:
        with pytest.raises(InterceptorError, match=r"expected a field 'card\.number', found none"):
            round_trip(path, value)
        assert round_trip(path, value, missing="pass") == (value, value)

    def test_plaintext_may_be_passed(self, path: Path) -> None:
        opened = step(path, require="warn").open(Context())
        assert opened.on_consume(record()).value == VALUE
        assert opened.stats()["plaintext"] == 1

    @pytest.mark.parametrize("rest", ["", "AQE=", "AQE=.?", "é.é"])
    def test_a_text_that_only_begins_like_it(self, path: Path, rest: str) -> None:
        opened = step(path).open(Context())
        with pytest.raises(DecryptionError, match=r"'card\.number'"):
            opened.on_consume(record({"card": {"number": f"hw-encrypted:{rest}"}}))

    @pytest.mark.parametrize("key", [None, b"k", "k", b"", ""])
    def test_keys_are_bound_as_bytes(self, path: Path, key: Any) -> None:
        opened = step(path).open(Context())
        sent = opened.on_send(record(key=key))
        read = key.encode() if isinstance(key, str) else key
        assert opened.on_consume(sent.replace(key=read)).value == VALUE
        with pytest.raises(DecryptionError, match="tag does not fit"):
            opened.on_consume(sent.replace(key=b"other"))

    def test_other_keys_are_not(self, path: Path) -> None:
        with pytest.raises(InterceptorError, match="found int; set bind_key = false"):
            step(path).open(Context()).on_send(record(key=5))
        opened = step(path, bind_key=False).open(Context())
        assert opened.on_consume(opened.on_send(record(key=5)).replace(key="5")).value == VALUE


class TestChain:
    def test_the_wire_has_json_with_ciphertext(self, path: Path) -> None:
        chain = Chain([step(path), Serialize(value=Json()), Sign(keyring=str(path), key_id="shop")])
        session = chain.open(Context())
        (wire,) = session.send([record()])
        assert b"4111" not in wire.value
        assert b"2027-01" in wire.value
        (read,) = session.consume([wire])
        assert read.value == VALUE

    def test_a_reader_without_the_key_reads_the_rest(self, path: Path) -> None:
        (wire,) = Chain([step(path), Serialize(value=Json())]).open().send([record()])
        (read,) = Chain([Serialize(value=Json())]).open().consume([wire])
        assert read.value["card"]["expires"] == "2027-01"
        assert read.value["card"]["number"].startswith("hw-encrypted:")

    def test_a_removed_signature_is_noticed(self, path: Path) -> None:
        sign = Sign(keyring=str(path), key_id="shop", require="off")
        session = Chain([step(path), Serialize(value=Json()), sign]).open()
        (wire,) = session.send([record()])
        with pytest.raises(DecryptionError, match="and has no signature"):
            session.consume([wire.with_headers(wire.headers.remove("hw.sig"))])

    def test_it_stands_before_the_serializer(self, path: Path) -> None:
        with pytest.raises(ConfigError, match="before they are serialized"):
            Chain([Serialize(value=Json()), step(path)])


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"fields": ()}, "fields"),
            ({"fields": ("a..b",)}, "fields"),
            ({"fields": ("a", "a.b")}, "fields: the field 'a.b' is within 'a'"),
            ({"fields": ("a", "a")}, "fields"),
            ({"fields": ("a",), "missing": "ignore"}, "missing"),
            ({"fields": ("a",), "key_id": None}, "key_id"),
        ],
    )
    def test_refuses_what_cannot_work(self, path: Path, options: dict[str, Any], problem: str) -> None:
        with pytest.raises(ConfigError, match=problem):
            Chain(
                [EncryptFields(**{"key_service": FileKeys(keyring=str(path)), "key_id": "cards", **options})]
            )
