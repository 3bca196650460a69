from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headerware import Chain, Headers, Record
from headerware.interceptors import Contract, Dedup, Encrypt, Trail
from headerware.interceptors.contract.document import document_of
from headerware.keyring import with_new_key
from headerware.keyring.services import FileKeys
from headerware.keyring.writing import edit_keyring
from headerware.ops.contract import added_headers, changes


def compare(old: dict[str, Any] | None, new: dict[str, Any] | None) -> list[tuple[str, str, bool, bool]]:
    """Return the changes of a message; None leaves the message out."""
    found = changes(
        *(
            document_of(
                {
                    "asyncapi": "3.0.0",
                    "channels": {
                        "orders": {"address": "orders", "messages": {} if each is None else {"Order": each}}
                    },
                },
                "f",
            )
            for each in (old, new)
        )
    )
    at = "#/channels/orders/messages/Order"
    return [(each.place.removeprefix(at), each.what, each.readers, each.writers) for each in found]


def fields(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"payload": {"type": "object", "required": required or [], "properties": properties}}


def avro(schema: Any) -> dict[str, Any]:
    return {"payload": {"schemaFormat": "application/vnd.apache.avro;version=1.9.0", "schema": schema}}


TEXT, WHOLE = {"type": "string"}, {"type": "integer"}


class TestChanges:
    @pytest.mark.parametrize(
        ("old", "new", "readers", "writers"),
        [
            (fields(a=TEXT), fields(a=TEXT, b=TEXT), True, True),
            (fields(a=TEXT), fields(["b"], a=TEXT, b=TEXT), True, False),
            (fields(["a"], a=TEXT), fields(a=TEXT), False, True),
            (fields(a={"enum": ["x"]}), fields(a={"enum": ["x", "y"]}), False, True),
            (fields(a={"enum": ["x", "y"]}), fields(a={"enum": ["x"]}), True, False),
            (fields(a=TEXT), fields(a=WHOLE), False, False),
            (fields(a=WHOLE), fields(a={"type": ["integer", "null"]}), False, True),
            (fields(a={**WHOLE, "minimum": 1}), fields(a={**WHOLE, "minimum": 0}), False, True),
            (fields(a={"type": "array", "items": fields(x=TEXT)["payload"]}),
             fields(a={"type": "array", "items": fields(x=TEXT, y=TEXT)["payload"]}), True, True),
            ({"payload": {"allOf": [{"properties": {"a": TEXT}}, {"properties": {"b": TEXT}}]}},
             {"payload": {"allOf": [{"properties": {"a": WHOLE}}, {"properties": {"b": TEXT}}]}},
             False, False),
            ({}, fields(a=TEXT), True, False),
            (avro("long"), avro("string"), False, False),
            ({"contentType": "text/plain"}, {"contentType": "application/json"}, False, False),
            ({}, {"x-headerware-rules": {"a": "true"}}, True, False),
            ({"x-headerware-rules": {"a": "true"}}, {}, False, True),
            ({"x-headerware-rules": {"a": "true"}}, {"x-headerware-rules": {"a": "1 < 2"}}, False, False),
            ({}, None, True, False),
            (None, {}, False, True),
        ],
    )  # fmt: skip
    def test_says_for_whom_a_change_is_compatible(
        self, old: dict[str, Any] | None, new: dict[str, Any] | None, readers: object, writers: object
    ) -> None:
        [(_, _, *found)] = compare(old, new)
        assert found == [readers, writers]

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (fields(a=TEXT), fields(a={**TEXT, "description": "a text", "examples": ["x"]})),
            (avro({"type": "long"}), avro("long")),
            ({"contentType": "text/plain"}, {"contentType": "text/plain", "title": "An order"}),
        ],
    )
    def test_what_allows_the_same_is_no_change(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        assert compare(old, new) == []

    def test_a_property_may_have_the_name_of_a_keyword(self) -> None:
        [(place, *_)] = compare(fields(title=TEXT), fields(title=WHOLE))
        assert place == "/payload"

    def test_a_channel_that_is_gone_and_a_new_one(self) -> None:
        documents = [
            document_of({"asyncapi": "3.0.0", "channels": {name: {"address": name, "messages": {}}}}, "f")
            for name in ("orders", "bills")
        ]
        found = [(each.place, each.readers, each.writers) for each in changes(*documents)]
        assert found == [("#/channels/orders", False, False), ("#/channels/bills", True, True)]


class TestAddedHeaders:
    def test_names_what_the_chain_adds(self, tmp_path: Path) -> None:
        path = tmp_path / "orders.json"
        path.write_text(json.dumps({"asyncapi": "3.0.0", "channels": {}}))
        chain = Chain([Contract(file=str(path), missing="refuse"), Trail(service="shop"), Dedup()])
        assert added_headers(chain, "orders") == ("hw.trail", "hw.id")
        assert added_headers(Chain(), "orders") == ()

    def test_has_the_header_of_those_that_are_encrypted(self, tmp_path: Path) -> None:
        edit_keyring(tmp_path / "k", lambda ring: with_new_key(ring, "cards", "aes-256"), create=True)
        keys = FileKeys(keyring=str(tmp_path / "k"))
        chain = Chain([Encrypt(key_service=keys, key_id="cards", headers=("customer",))])
        assert added_headers(chain, "orders") == ("hw.secret", "hw.encrypt")


def test_a_record_of_the_shape_that_is_compared_passes(tmp_path: Path) -> None:
    """What changes calls compatible for writers is what the interceptor lets pass."""
    old, new = fields(a=TEXT), fields(a=TEXT, b=TEXT)
    assert compare(old, new)[0][3]
    path = tmp_path / "new.json"
    channels = {"orders": {"address": "orders", "messages": {"Order": new}}}
    path.write_text(json.dumps({"asyncapi": "3.0.0", "channels": channels}))
    with Chain([Contract(file=str(path))]).open() as session:
        assert session.send([Record("orders", b'{"a": "x"}', headers=Headers())])
