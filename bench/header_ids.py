"""Rows for header ids: the size of names as ids, and the cost of the codec against the plain list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pairing import compare
from report import Row

from headerware import Headers
from headerware.registry import built_in, default_names
from headerware.registry.wire.codec import HeaderIdCodec

CHUNK = 5_000
TRACE = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
CONTENT_TYPE = ("content-type", b"application/avro-binary")
OWN = tuple(entry.name for entry in built_in().entries if not entry.foreign)
SIZES = {"hw.trail": 63, "hw.sig": 108, "hw.schema": 77, "hw.compress": 4, "hw.id": 36, "hw.slice": 52}
FULL = Headers([TRACE, CONTENT_TYPE, *((name, bytes(SIZES.get(name, 16))) for name in OWN)])
USUAL = Headers([TRACE, CONTENT_TYPE, *((name, bytes(SIZES[name])) for name in tuple(SIZES)[:4])])


def rows(*, pairs: int) -> Iterator[Row]:
    """Measure all rows for header ids; no broker takes part."""
    own = Headers([(name, b"") for name in OWN])
    for form in ("keys", "packed"):
        yield _names(f"header ids: names of a full chain's headers, {form}", own, form, "at most 0.4")
        yield _section(f"header ids: all of a full chain's header bytes, {form}", FULL, form)
    for form in ("keys", "packed"):
        yield _codec(form, pairs)


def _names(name: str, headers: Headers, form: Any, bar: str) -> Row:
    """Compare the bytes of names; for the packed block, all bytes except values, with the block's name."""
    plain = sum(len(each) for each, _ in headers)
    wire = _codec_of(form).encode(headers)
    found = sum(len(each) + (len(value or b"") if each == "hw.ids" else 0) for each, value in wire)
    # A value's length takes a byte in the block, too, as it does in a header of its own.
    found -= len(headers) if form == "packed" else 0
    note = f"{len(headers)} headers, {', '.join(OWN)}"
    return Row(name, found, plain, "bytes", found / plain, bar, note)


def _section(name: str, headers: Headers, form: Any) -> Row:
    plain, found = _wire_bytes(headers), _wire_bytes(_codec_of(form).encode(headers))
    note = f"{len(headers)} headers as Kafka writes them, values included; traceparent and content-type stay"
    return Row(name, found, plain, "bytes", found / plain, "", note)


def _codec(form: Any, pairs: int) -> Row:
    codec = _codec_of(form)

    def ours() -> int:
        for _ in range(CHUNK):
            codec.decode(Headers(list(codec.encode(USUAL))))
        return CHUNK

    def reference() -> int:
        for _ in range(CHUNK):
            Headers(list(USUAL))
        return CHUNK

    found = compare(ours, reference, pairs=pairs)
    extra = 1e6 / found.ours - 1e6 / found.reference
    return Row(
        f"header ids: write and read {len(USUAL)} headers, {form}, against the plain list",
        found.ours,
        found.reference,
        "records/s",
        found.ratio,
        "",
        f"{extra:+.2f} us a record, both ways together; {pairs} pairs of {CHUNK:,}, in process",
    )


def _codec_of(form: Any) -> HeaderIdCodec:
    names = default_names()
    return HeaderIdCodec(names.id_of, names.name_of, form=form, stays=names.foreign.__contains__)


def _wire_bytes(headers: Headers) -> int:
    """Return the bytes that Kafka's record format takes for headers."""
    return _varint(len(headers)) + sum(
        _varint(len(name)) + len(name) + _varint(len(value or b"")) + len(value or b"")
        for name, value in headers
    )


def _varint(number: int) -> int:
    """Return the bytes of a zigzag varint, as records have them."""
    return max(1, ((number << 1).bit_length() + 6) // 7)
