from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from headerware import Headers, SerdeError
from headerware.serdes import Polyglot, SerdeContext
from headerware.serdes.content_types import FORMATS, parse_content_type

TOKEN = st.text("abcXYZ019!#$%&'*+-.^_`|~", min_size=1, max_size=12)
QUOTABLE = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
INTEGERS = st.integers(-(2**63), 2**64 - 1)
LEAVES = st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | TEXT
TREES = st.recursive(LEAVES, lambda own: st.lists(own) | st.dictionaries(TEXT, own), max_leaves=20)
SERVED = st.sampled_from([known for known, form in FORMATS.items() if form not in {"avro", "protobuf"}])
CONTENT_TYPES = (
    st.binary(max_size=30) | SERVED.map(str.encode) | st.just(b"application/x+json; charset=utf-16")
)

polyglot = Polyglot().open(SerdeContext())


def typed(content_type: bytes | str | None) -> Headers:
    return Headers([("content-type", content_type)])


class TestContentTypes:
    @given(TOKEN, TOKEN, st.dictionaries(TOKEN.map(str.lower), QUOTABLE, max_size=5))
    def test_what_was_written_is_read(self, kind: str, subtype: str, parameters: dict[str, str]) -> None:
        quoted = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in parameters.items()}
        text = f"{kind}/{subtype}" + "".join(f' ; {name.upper()}="{value}"' for name, value in quoted.items())
        read = parse_content_type(text)
        assert (read.essence, dict(read.parameters)) == (f"{kind}/{subtype}".lower(), parameters)

    @given(st.text(max_size=60) | st.text('a/;="\\ ', max_size=40))
    def test_anything_else_is_refused_or_read(self, text: str) -> None:
        with contextlib.suppress(SerdeError):
            assert "/" in parse_content_type(text).essence


class TestPolyglot:
    @given(TREES | st.binary())
    def test_any_object_comes_back_by_its_type(self, value: Any) -> None:
        payload, headers = polyglot.serialize("t", Headers(), value)
        assert polyglot.deserialize("t", headers, payload) == (value, headers)

    @given(st.sampled_from(["application/json", "application/msgpack", "application/cbor"]), TREES)
    def test_any_tree_comes_back_by_its_content_type(self, content_type: str, value: Any) -> None:
        payload, headers = polyglot.serialize("t", typed(content_type), value)
        assert headers == typed(content_type)
        assert polyglot.deserialize("t", headers, payload)[0] == value

    @given(CONTENT_TYPES, st.binary(max_size=200))
    @example(b"application/cbor", bytes.fromhex("d81c81d81d00"))
    def test_garbage_is_refused_or_read(self, content_type: bytes, payload: bytes) -> None:
        with contextlib.suppress(SerdeError):
            polyglot.deserialize("t", typed(content_type), payload)

    @given(st.sampled_from(["application/msgpack", "application/cbor"]), TREES, st.data())
    def test_a_payload_that_was_cut_is_refused(
        self, content_type: str, value: Any, data: st.DataObject
    ) -> None:
        payload, headers = polyglot.serialize("t", typed(content_type), value)
        if payload is None:
            return
        size = data.draw(st.integers(0, len(payload) - 1))
        try:
            polyglot.deserialize("t", headers, payload[:size])
        except SerdeError as error:
            assert "expected" in str(error)  # noqa: PT017 - the other outcome is the failure
        else:
            message = "a payload that was cut was read"
            raise AssertionError(message)
