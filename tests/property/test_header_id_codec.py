from __future__ import annotations

import tracemalloc
from contextlib import suppress
from typing import Literal

from hypothesis import example, given
from hypothesis import strategies as st

from headerware.core.errors import WireFormatError
from headerware.core.header_ids import HeaderId
from headerware.core.headers import Headers, Pair
from headerware.registry.wire.codec import HEADER, Form, HeaderIdCodec
from headerware.registry.wire.compact_keys import compact_key, escape, id_of_key, unescape
from headerware.registry.wire.packed_block import encode_number

ids = st.integers(1, 2**32 - 1) | st.integers(1, 300)
dotted = st.integers(0, 2**32 - 1).map(HeaderId).map(str)
names = (
    st.text(st.characters(codec="utf-8"), max_size=12)
    | st.text("~AB_", max_size=8)
    | st.sampled_from(["hw.trail", "hw.sig", "orders.total", "x"])
    | dotted
    | ids.map(compact_key)
).filter(lambda name: name != HEADER)
values = st.none() | st.binary(max_size=300)
pairs = st.lists(st.tuples(names, values), max_size=12)
registries = st.dictionaries(names, ids, max_size=12)
forms = st.sampled_from(["keys", "packed"])
blocks = st.builds(
    lambda items: b"1" + b"".join(items), st.lists(st.binary(max_size=4) | ids.map(encode_number))
)


def codec_of(registry: dict[str, int], form: Form = "packed") -> HeaderIdCodec:
    """Make a codec of any mapping, were it to give one id to several names."""
    return HeaderIdCodec(
        registry.get, {header_id: name for name, header_id in registry.items()}.get, form=form
    )


class TestHeaderIdCodec:
    @given(pairs, registries, forms)
    @example([("hw.trail", None), ("a", b"")], {"hw.trail": 1}, "packed")
    def test_any_headers_come_back_with_any_registry(
        self, given_pairs: list[Pair], registry: dict[str, int], form: Form
    ) -> None:
        headers = Headers(given_pairs)
        wire = codec_of(registry, form).encode(headers)
        assert codec_of(registry).decode(wire) == headers

    @given(pairs, registries)
    def test_both_forms_are_read_on_one_record(
        self, given_pairs: list[Pair], registry: dict[str, int]
    ) -> None:
        headers = Headers(given_pairs)
        packed = codec_of(registry, "packed").encode(headers)
        keys = codec_of(registry, "keys").encode(headers)
        assert codec_of(registry).decode(keys + packed) == headers + headers
        assert codec_of(registry).decode(packed + keys) == headers + headers

    @given(pairs, registries, st.lists(st.tuples(names.map(escape), values), max_size=3), forms)
    def test_headers_added_at_either_end_stay_there(
        self, given_pairs: list[Pair], registry: dict[str, int], added: list[Pair], form: Form
    ) -> None:
        wire = codec_of(registry, form).encode(Headers(given_pairs))
        found = codec_of(registry).decode(Headers(added) + wire + added)
        plain = [(unescape(name), value) for name, value in added]
        assert found == Headers([*plain, *given_pairs, *plain])

    @given(pairs, registries, forms)
    def test_one_that_knows_no_names_passes_them_on(
        self, given_pairs: list[Pair], registry: dict[str, int], form: Form
    ) -> None:
        # Only names that are dotted already could come to mean something else on the way.
        registry = {name: header_id for name, header_id in registry.items() if name.count(".") != 3}
        headers = Headers(given_pairs).keep(lambda name: name.count(".") != 3)
        stranger = codec_of({}, form)
        wire = codec_of(registry, form).encode(headers)
        assert codec_of(registry).decode(stranger.encode(stranger.decode(wire))) == headers

    @given(pairs, registries, forms)
    def test_nothing_changes_where_no_name_does(
        self, given_pairs: list[Pair], registry: dict[str, int], form: Form
    ) -> None:
        headers = Headers(given_pairs)
        codec = codec_of(registry, form)
        wire = codec.encode(headers)
        assert (wire is headers) == (wire == headers)
        assert (codec.decode(wire) is wire) == (wire is headers)


class TestGarbage:
    @given(pairs, registries, st.data())
    def test_a_changed_block_is_refused_or_read(
        self, given_pairs: list[Pair], registry: dict[str, int], data: st.DataObject
    ) -> None:
        wire = codec_of(registry).encode(Headers(given_pairs))
        block = bytearray(wire.last(HEADER) or b"1")
        for _ in range(data.draw(st.integers(0, 4))):
            change: Literal["cut", "set", "insert"] = data.draw(st.sampled_from(["cut", "set", "insert"]))
            at = data.draw(st.integers(0, len(block)))
            if change == "cut":
                del block[at:]
            elif change == "insert" or at == len(block):
                block[at:at] = data.draw(st.binary(max_size=6))
            else:
                block[at] = data.draw(st.integers(0, 255))
        changed = [(name, bytes(block) if name == HEADER else value) for name, value in wire]
        self.refused_or_canonical(Headers(changed))

    @given(blocks | st.binary(max_size=60).map(b"1".__add__) | st.binary(max_size=8), pairs)
    def test_any_block_is_refused_or_read(self, block: bytes, following: list[Pair]) -> None:
        self.refused_or_canonical(Headers([("a", b""), (HEADER, block), *following]))

    @given(blocks)
    def test_little_is_allocated_for_little(self, block: bytes) -> None:
        headers = Headers([(HEADER, block)])
        codec = codec_of({})
        tracemalloc.start()
        try:
            with suppress(WireFormatError):
                codec.decode(headers)
            assert tracemalloc.get_traced_memory()[1] < 20_000 + 200 * len(block)
        finally:
            tracemalloc.stop()

    def refused_or_canonical(self, wire: Headers) -> None:
        """Read garbage; what can be read would be written as the same bytes, for there is one form."""
        codec = codec_of({})
        try:
            found = codec.decode(wire)
        except WireFormatError:
            return
        assert HEADER not in found
        if not any(id_of_key(name) or name.count(".") == 3 for name in wire.names()):
            assert codec.encode(found).all(HEADER) == wire.all(HEADER)


class TestCompactKeys:
    @given(names)
    def test_any_name_comes_back(self, name: str) -> None:
        assert unescape(escape(name)) == name
        assert id_of_key(escape(name)) is None

    @given(ids)
    def test_any_id_comes_back(self, header_id: int) -> None:
        key = compact_key(header_id)
        assert id_of_key(key) == header_id
        assert len(key) <= 7
        assert key.isascii()

    @given(st.text("~" + "AB_9z-", max_size=9) | names)
    def test_each_id_has_one_key(self, name: str) -> None:
        header_id = id_of_key(name)
        assert header_id is None or compact_key(header_id) == name
