"""Whatever a record holds, confluent-kafka's deserializers behind ours raise nothing but a SerdeError."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware import Headers, SerdeError
from headerware.serdes import ConfluentAvro, ConfluentJson, ConfluentProtobuf, SerdeContext

SCHEMA = json.dumps(
    {
        "title": "Order",
        "type": "record",
        "name": "Order",
        "fields": [{"name": "tags", "type": {"type": "map", "values": ["null", "string", "long"]}}],
    }
)
JSON_SCHEMA = json.dumps({"title": "Order", "type": "object", "required": ["id"]})
URL = "mock://garbage"
SERDES = {
    "avro": (ConfluentAvro(url=URL, schema=SCHEMA), {"tags": {"a": 1}}),
    "json": (ConfluentJson(url=URL, schema=JSON_SCHEMA), {"id": 1}),
    "protobuf": (ConfluentProtobuf(url=URL, message="google.rpc.error_details_pb2:LocalizedMessage"), None),
}
ID_HEADER = "__value_schema_id"


def written(word: str, id_in: str) -> tuple[Any, bytes, Headers]:
    """Return the opened serde, and a payload of its own with its headers."""
    options, value = SERDES[word]
    opened = type(options)(
        **{name: getattr(options, name) for name in options.__struct_fields__} | {"id_in": id_in}
    ).open(SerdeContext())
    if value is None:
        from google.rpc import error_details_pb2  # noqa: PLC0415 - heavy

        value = error_details_pb2.LocalizedMessage(locale="de", message="x")
    payload, headers = opened.serialize(word, Headers(), value)
    assert payload is not None
    return opened, payload, headers


class TestGarbage:
    @pytest.mark.parametrize("id_in", ["prefix", "header"])
    @pytest.mark.parametrize("word", list(SERDES))
    @given(data=st.data())
    def test_is_refused_or_read(self, word: str, id_in: str, data: st.DataObject) -> None:
        opened, payload, headers = written(word, id_in)
        cut = data.draw(st.integers(0, len(payload)))
        given_payload = data.draw(
            st.one_of(st.binary(max_size=40), st.binary(max_size=20).map(lambda tail: payload[:cut] + tail))
        )
        known = headers.last(ID_HEADER) or b"\x01"
        marks = st.one_of(
            st.none(), st.binary(max_size=20), st.binary(max_size=4).map(lambda tail: known[:17] + tail)
        )
        given_headers = Headers([(ID_HEADER, mark) for mark in data.draw(st.lists(marks, max_size=2))])
        try:
            _, left = opened.deserialize(word, given_headers, given_payload)
        except SerdeError as error:
            assert error.message  # noqa: PT017 - most are refused, some are good by chance
        else:
            assert left == Headers()
        assert opened.deserialize(word, headers, payload)[0] is not None
