"""Every decoder of bytes that others may have written, against mutations of what it accepts, and garbage.

`TARGETS` is the table of decoders. Hypothesis draws how to change an input, and the change is made to many of
the decoder's inputs, most of them from spec/vectors. Whatever comes of it,

- it is accepted, or refused by one of our errors, whose text does not quote it;
- that takes no more CPU time and memory than `_CPU_S` and the target allow;
- what was accepted holds what the target says: a layout with one spelling is written so again, and behind a
  signature, a tag or a digest nothing is accepted but what was written there.

The profile says how often. With FUZZ_MINUTES set, as `make fuzz` does, the targets share that time, and each
prints its figures.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import json
import os
import re
import resource
import time
import tracemalloc
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar
from uuid import UUID

import msgspec
import pytest
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headerware.connect.converters import JsonConverter, SimpleHeaderConverter
from headerware.connect.modes import Mode
from headerware.connect.values.parse import parse_nested, parse_string
from headerware.core.chain import Chain
from headerware.core.commit_metadata import MAX_PENDING, Committed, decode_metadata, encode_metadata
from headerware.core.context import Context
from headerware.core.dead_letter import origin_of, read_reason, redrives, without_reason
from headerware.core.errors import BadRecordError, HeaderwareError
from headerware.core.header_ids import HeaderId
from headerware.core.header_text import decode_text, encode_text
from headerware.core.headers import Headers
from headerware.core.patterns import fits
from headerware.core.record import VERIFIED, Record, Verified
from headerware.core.strict_json import decode_json
from headerware.dictionaries import Dictionary, FolderDictionaries
from headerware.dictionaries.dictionary import decode_mark as decode_dictionary
from headerware.dictionaries.dictionary import encode_mark as encode_dictionary
from headerware.dictionaries.folder import _read_uses
from headerware.dictionaries.store import publish
from headerware.dictionaries.topic import DictionaryRows
from headerware.interceptors import (
    ClaimCheck,
    Compress,
    Contract,
    Dedup,
    Delay,
    Encrypt,
    EncryptFields,
    Expire,
    Sign,
    Slice,
    Trail,
    decode_broken_rules,
    decode_claim,
    extract_context,
    new_key_secret,
)
from headerware.interceptors.admission.policy import Issuer, Policy, Rule, read_policy
from headerware.interceptors.audit import decode_report
from headerware.interceptors.contract.document import read_document
from headerware.interceptors.dedup.identity import Identity
from headerware.interceptors.encrypt.envelope import decode_statement as decode_encryption
from headerware.interceptors.encrypt.record_keys import decode_key_secret
from headerware.interceptors.encrypt.secret_headers import decode_block
from headerware.interceptors.slice.header import SliceHeader
from headerware.interceptors.times.moments import decode_moment, encode_moment
from headerware.interceptors.trail import decode_trail, encode_trail
from headerware.interceptors.trail_proof import read_proofs
from headerware.keyring import Key, Keyring, decode_keyring, encode_keyring, with_new_key
from headerware.keyring.certificate import IssuerKeys
from headerware.keyring.keyring import Algorithm
from headerware.keyring.services import FileKeys
from headerware.keyring.signature import STAMP_BYTES, decode_statement
from headerware.keyring.snapshot import verify_snapshot
from headerware.keyring.subjects.rows import decode_row, name_in, unwrap_data_key
from headerware.object_store import FolderObjects
from headerware.registry.stores.toml import read_registry, registry_text
from headerware.registry.stores.topic import Ledger, decode_change
from headerware.registry.wire.codec import HeaderIdCodec
from headerware.serdes import (
    Avro,
    Cbor,
    CloudEvents,
    Json,
    MessagePack,
    Polyglot,
    Protobuf,
    SerdeContext,
    Text,
)
from headerware.serdes.avro.schema import AvroSchema
from headerware.serdes.cloudevents import CloudEvent
from headerware.serdes.confluent.framing import (
    decode_id_header,
    encode_single_object,
    prefix_of,
    single_object_digest,
)
from headerware.serdes.content_types import parse_content_type
from headerware.serdes.formats.primitives import Double, Integer, Long, Short, String, Uuid
from headerware.serdes.schema_header import decode_mark, encode_mark
from headerware.sources import Input
from headerware.sources.extractor import extracted
from headerware.topic_table.rows import TableRecord
from headerware.topic_table.snapshot import decode_snapshot, encode_snapshot
from tests.source_objects import MemoryObject
from tests.source_samples import SAMPLES
from tests.vectors import test_chain, test_slice_arrivals

_MINUTES: Final = float(os.environ.get("FUZZ_MINUTES", "0"))
_VECTORS: Final = Path(__file__).parents[2] / "spec" / "vectors"
_CPU_S: Final = 10.0
"""The most that an input may take; the largest have 64 KiB, so what takes quadratic time takes longer."""
_MAX_BYTES: Final = 1 << 16
_HEADROOM_BYTES: Final = 2 << 30
"""How much the process may grow while a target runs, so that a length of 32 bits cannot be allocated."""
_INPUTS_AT_ONCE: Final = 12
_QUOTED_BYTES: Final = 24
"""So much of an input in an error's text is a quotation; names of topics and keys are shorter here."""
_LOOKED_AT_BYTES: Final = 1024
_SHOWN: Final = 2000
_NOW_MS: Final = 1_795_392_000_000

_PHASES: Final = (Phase.explicit, Phase.reuse, Phase.generate)
"""What was drawn is short, and a failure shows the input: nothing is made shorter, which takes minutes."""

Parts = tuple[bytes | None, ...]
"""An input: one value, or all the parts of a record."""


class Target(NamedTuple):
    """A decoder, and what is true of it."""

    seeds: Sequence[Parts]
    read: Callable[[Parts], Any]
    """Returns what it accepts, or raises one of our errors."""
    holds: Callable[[Parts, Any], bool] = lambda _parts, _accepted: True
    """Whether something accepted is what it must be."""
    free_bytes: int = 1 << 20
    bytes_per_byte: int = 256
    """What may be allocated: so much, and so much for each byte of the input."""
    pairs_at: int | None = None
    """From which part on there are the names and values of headers, which may be moved and doubled."""
    named: Sequence[int] = ()
    """The parts that an error may quote: those that name a topic or a key, or are settings."""
    refusals: tuple[type[Exception], ...] = (HeaderwareError,)


# Mutations


_Choice = TypeVar("_Choice")


class _Script:
    """The numbers that Hypothesis drew, and zeros behind them: what is shorter changes less."""

    def __init__(self, drawn: bytes) -> None:
        self._drawn: Final = drawn
        self._at = 0

    def byte(self) -> int:
        self._at += 1
        return self._drawn[self._at - 1] if self._at <= len(self._drawn) else 0

    def below(self, limit: int) -> int:
        return (self.byte() << 8 | self.byte()) % limit if limit > 1 else 0

    def choose(self, among: Sequence[_Choice]) -> _Choice:
        return among[self.byte() % len(among)]

    def span(self, content: bytes) -> tuple[int, int]:
        start = self.below(len(content) + 1)
        return start, min(len(content), start + 1 + self.byte() % 32)

    def rest(self) -> bytes:
        rest, self._at = self._drawn[self._at :], len(self._drawn)
        return rest


_NUMBERS: Final = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**53 + 1)
_LARGE: Final = (2**63 - 1, 2**63, 2**64 - 1, 2**61 - 1)
_EXTREMES: Final = tuple(
    each
    for size, number in itertools.product((1, 2, 4, 8), (*_NUMBERS, *_LARGE))
    if number < 1 << 8 * size
    for each in (number.to_bytes(size, "big"), number.to_bytes(size, "little"))
)
_VALUES: Final = (
    *(b"null true -1 0 1e400 -0.0 1e-999999999 1E2147483648 [] {} [[]] 0x10 NaN Infinity 01".split()),
    *(b"%d" % number for number in (*_NUMBERS[4:], *_LARGE, 2**64, 10**30)),
    b'""',
    b'"\\ud800"',
    b'"\\u0000"',
    b'"\xff"',
    b'"\xc0\x80"',
    b'"\xed\xa0\x80"',
    b'"A"',
    b"1" * 5000,
    b"9999-12-31T23:59:59.999Z",
    b'"0001-01-01T00:00:00Z"',
)
"""What may stand where a value stands in text."""
_HEX: Final = (
    "dfffffffff ddffffffff c6ffffffff c9ffffffff dbffffffff de0041 dc0040 81c0 "
    "9bffffffffffffffff 5bffffffffffffffff 9f bf 5f 7f d81c d81d c249 d9d9f7 fb "
    "0a ffffffffff0f ffffffffffffffffff01 80808080808080808001 28b52ffd 1f8b08"
)
_TOKENS: Final = (
    *(bytes((byte,)) for byte in (*range(0x80, 0xA4), *range(0xC0, 0xE4), 0, 0xFF)),
    *(b', : ; . = " \\ / ~ % %00 %ff \\u0000 \xf0\x9f\x98\x80 \xed\xa0\x80 \xef\xbb\xbf'.split()),
    *(b'[ { [[ {"a": [{ (" * ** !( a=b; ,at=1 $schema'.split()),
    *map(
        bytes.fromhex,
        (["dfffffffff", "ddffffffff", "c6ffffffff", "c9ffffffff", "dbffffffff", "de0041", "dc0040", "81c0"]),
    ),
    *map(
        bytes.fromhex,
        (
            [
                "9bffffffffffffffff",
                "5bffffffffffffffff",
                "9f",
                "bf",
                "5f",
                "7f",
                "d81c",
                "d81d",
                "c249",
                "d9d9f7",
                "fb",
            ]
        ),
    ),
    *map(
        bytes.fromhex,
        (["0a", "ffffffffff0f", "ffffffffffffffffff01", "80808080808080808001", "28b52ffd", "1f8b08"]),
    ),
    *map(bytes.fromhex, _HEX.split()),
    b" ",
    b"\n",
    b"\x00" * 8,
)
"""What means something to one of the formats: openings, lengths, tags, escapes, magic numbers."""
_TIMES: Final = (1, 2, 3, 17, 300, 5000, _MAX_BYTES)
_VALUE: Final = re.compile(rb'"[^"\\]*"|-?[0-9]+(?:\.[0-9]+)?|true|false|null|\[\]|\{\}')


def _flipped(content: bytes, script: _Script, _seeds: Sequence[bytes]) -> bytes:
    if not content:
        return content
    at = script.below(len(content))
    return content[:at] + bytes((content[at] ^ 1 << script.byte() % 8,)) + content[at + 1 :]


def _cut(content: bytes, script: _Script, _seeds: Sequence[bytes]) -> bytes:
    return content[: script.below(len(content) + 1)]


def _cut_in_front(content: bytes, script: _Script, _seeds: Sequence[bytes]) -> bytes:
    return content[script.below(len(content) + 1) :]


def _removed(content: bytes, script: _Script, _seeds: Sequence[bytes]) -> bytes:
    start, end = script.span(content)
    return content[:start] + content[end:]


def _inserted(content: bytes, script: _Script, _seeds: Sequence[bytes]) -> bytes:
    at = script.below(len(content) + 1)
    return content[:at] + script.choose(_TOKENS) * script.choose(_TIMES) + content[at:]


def _overwritten(content: bytes, script: _Script, _seeds: Sequence[bytes]) -> bytes:
    at, number = script.below(len(content) + 1), script.choose(_EXTREMES)
    return content[:at] + number + content[at + len(number) :]


def _revalued(content: bytes, script: _Script, _seeds: Sequence[bytes]) -> bytes:
    found = list(_VALUE.finditer(content))
    if not found:
        return script.choose(_VALUES)
    start, end = found[script.below(len(found))].span()
    return content[:start] + script.choose(_VALUES) + content[end:]


def _spliced(content: bytes, script: _Script, seeds: Sequence[bytes]) -> bytes:
    other = script.choose(seeds)
    return content[: script.below(len(content) + 1)] + other[script.below(len(other) + 1) :]


def _pasted(content: bytes, script: _Script, seeds: Sequence[bytes]) -> bytes:
    other = script.choose(seeds)
    start, end = script.span(other)
    at = script.below(len(content) + 1)
    return content[:at] + other[start:end] + content[at + end - start :]


def _repeated(content: bytes, script: _Script, _seeds: Sequence[bytes]) -> bytes:
    start, end = script.span(content)
    return content[:start] + content[start:end] * script.choose(_TIMES) + content[end:]


def _replaced(_content: bytes, script: _Script, _seeds: Sequence[bytes]) -> bytes:
    return script.rest()


_MUTATIONS: Final = (
    _flipped,
    _cut,
    _revalued,
    _overwritten,
    _inserted,
    _removed,
    _spliced,
    _pasted,
    _repeated,
    _cut_in_front,
    _replaced,
)


def _mutated(target: Target, seed: Parts, drawn: bytes) -> Parts:
    script, parts = _Script(drawn), list(seed)
    for _ in range(1 + script.byte() % 4):
        kind = script.byte()
        if kind >= 0xF0 and target.pairs_at is not None:
            _rearrange(parts, target, script)
            continue
        at = script.byte() % len(parts)
        if kind >= 0xE0:
            parts[at] = None if kind < 0xE8 or len(parts) == 1 else parts[script.byte() % len(parts)]
            continue
        others = [other[at] or b"" for other in target.seeds if at < len(other)]
        mutation = _MUTATIONS[kind % len(_MUTATIONS)]
        parts[at] = mutation(parts[at] or b"", script, others or [b""])[:_MAX_BYTES]
    return tuple(parts)


def _rearrange(parts: list[bytes | None], target: Target, script: _Script) -> None:
    """Drop, double or move a header, or take one from another record."""
    first = target.pairs_at or 0
    pairs = [tuple(parts[at : at + 2]) for at in range(first, len(parts), 2)]
    action, at = script.byte() % 4, script.below(len(pairs))
    if action == 0 and pairs:
        del pairs[at]
    elif action == 1 and pairs:
        pairs.insert(script.below(len(pairs) + 1), pairs[at])
    elif action == 2 and pairs:
        pairs.insert(script.below(len(pairs)), pairs.pop(at))
    else:
        other = script.choose(target.seeds)[first:]
        if len(other) > 1:
            pick = script.below(len(other) // 2) * 2
            pairs.insert(script.below(len(pairs) + 1), tuple(other[pick : pick + 2]))
    parts[first:] = [part for pair in pairs for part in pair]


# The properties


class _Run:
    """One target at work, and what is counted of it."""

    def __init__(self, target: Target) -> None:
        self._target: Final = target
        self.inputs = self.accepted = 0
        self.cpu_s = 0.0

    def try_mutations(self, drawn: bytes) -> None:
        """Change some of the seeds as drawn; if there are few, each in several ways."""
        seeds = self._target.seeds
        start = (drawn[-1] if drawn else 0) * _INPUTS_AT_ONCE
        for at in range(_INPUTS_AT_ONCE):
            turn = at // len(seeds)
            seed = seeds[(start + at) % len(seeds)]
            self.try_one(_mutated(self._target, seed, drawn[turn:] + drawn[:turn]))

    def try_one(self, parts: Parts) -> None:
        target = self._target
        most = target.free_bytes + target.bytes_per_byte * sum(len(part or b"") for part in parts)
        self.inputs += 1
        accepted, error, took_s, grown = self._tried(parts)
        if grown > most or took_s > _CPU_S:
            # It may have been the first to import a part of ours, or have met a garbage collection.
            accepted, error, took_s, grown = self._tried(parts)
        self.cpu_s += took_s
        assert took_s <= _CPU_S, f"{took_s:.1f} s of CPU time for {_shown(parts)}"
        assert grown <= most, f"{grown} bytes were allocated, and not {most}, for {_shown(parts)}"
        if error is None:
            self.accepted += 1
            assert target.holds(parts, accepted), f"accepted: {_shown(parts)}"
        else:
            _require_sound(error, parts, target)

    def _tried(self, parts: Parts) -> tuple[Any, Exception | None, float, int]:
        """Return what was accepted, or the error, and the CPU time and memory that it took."""
        accepted, error = None, None
        tracemalloc.reset_peak()
        before, started = tracemalloc.get_traced_memory()[0], time.thread_time()
        try:
            accepted = self._target.read(parts)
        except self._target.refusals as refused:
            error = refused
        except Exception as escaped:
            escaped.add_note(f"of {_shown(parts)}")
            raise
        took_s = time.thread_time() - started
        return accepted, error, took_s, tracemalloc.get_traced_memory()[1] - before

    def figures(self, name: str) -> str:
        """Return how many inputs were tried, how fast, and the share that was accepted."""
        rate, accepted = self.inputs / self.cpu_s, self.accepted / self.inputs
        return f"{name:40}{self.inputs:>12,} inputs{rate:>10,.0f}/s{accepted:>8.0%} accepted"


def _shown(parts: Parts) -> str:
    """Return an input as text, without the middle of a long one."""
    whole = repr(parts)
    return whole if len(whole) <= _SHOWN else f"{whole[: _SHOWN // 2]} ... {whole[-_SHOWN // 2 :]}"


def _require_sound(error: Exception, parts: Parts, target: Target) -> None:
    """Refuse an error that hides that there was no memory, or quotes what came."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    assert not any(isinstance(each, MemoryError | SystemError) for each in causes), _shown(parts)
    ids = [found for part in parts for found in _KEY_ID.findall(part or b"")]  # errors name keys by them
    nameable = " ".join(map(_text, [*(parts[at] for at in target.named), *ids]))
    if target.pairs_at:  # a record has a topic, and layouts with the names of topics, clusters and keys
        ours = [content for name, content in itertools.pairwise(parts) if _text(name) in _IN_BASE64]
        nameable = " ".join(map(_text, (parts[0], *ours)))
    text = str(error)
    for part in parts:
        for at in range(0, min(len(part or b""), _LOOKED_AT_BYTES) - _QUOTED_BYTES, _QUOTED_BYTES // 2):
            quoted = _text((part or b"")[at : at + _QUOTED_BYTES])
            if quoted in text and not quoted.isdecimal():
                assert quoted in nameable, f"quoted: {_shown(parts)}"


@contextmanager
def _watched() -> Iterator[None]:
    """Count allocations, and let a huge one fail rather than swap."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    sizes = Path("/proc/self/statm")
    if sizes.exists():
        now_bytes = int(sizes.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now_bytes + _HEADROOM_BYTES, hard))
    tracemalloc.start()
    gc.freeze()  # what is there already need not be looked at again
    try:
        yield
    finally:
        gc.unfreeze()
        tracemalloc.stop()
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


# What the targets are made of


def _vectors(name: str) -> Any:
    return json.loads((_VECTORS / f"{name}.json").read_text(encoding="utf-8"))


def _single(values: Iterable[bytes | str | None]) -> list[Parts]:
    """Return inputs of one part, without nulls and repetitions."""
    found = (value.encode() if isinstance(value, str) else value for value in values)
    return [(value,) for value in dict.fromkeys(found) if value is not None]


def _hex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _text(part: bytes | None) -> str:
    return (part or b"").decode("utf-8", "replace")


_KEY_ID: Final = re.compile(rb'"kid": ?"([^"]*)"')
_IN_BASE64: Final = frozenset({"hw.sig", "hw.encrypt", "hw.secret", "hw.slice", "hw.id"})
_NOT_IN_TOPICS: Final = re.compile(r"[^A-Za-z0-9._-]")


def _record(parts: Parts, in_base64: frozenset[str] = _IN_BASE64) -> Record:
    """Return the record of a topic, a key, a value, and names and values of headers; layouts become text."""
    topic, key, value, *headers = parts
    pairs = [(_text(name), content) for name, content in zip(headers[::2], headers[1::2], strict=True)]
    wire = [
        (name, encode_text(content) if content and name in in_base64 else content) for name, content in pairs
    ]
    name = _NOT_IN_TOPICS.sub("_", _text(topic))[:249] or "_"
    return Record(name, value, key, Headers.trusted(wire), partition=0, offset=7)


def _parts(record: Record, in_base64: frozenset[str] = _IN_BASE64) -> Parts:
    parts = [record.topic.encode(), record.key, record.value]
    for name, value in record.headers:
        parts += (name.encode(), decode_text(value, name) if name in in_base64 else value)
    return tuple(parts)


def _layouts(texts: Iterable[str | bytes | None]) -> list[Parts]:
    """Return the binary layouts of texts in base64, of those that are some."""
    found = []
    for text in texts:
        with suppress(HeaderwareError):
            found.append(decode_text(text.encode() if isinstance(text, str) else text, "seed"))
    return _single(found)


def _one(read: Callable[[bytes], Any]) -> Callable[[Parts], Any]:
    return lambda parts: read(parts[0] or b"")


def _or_null(read: Callable[[bytes | None], Any]) -> Callable[[Parts], Any]:
    return lambda parts: read(parts[0])


def _as_text(read: Callable[[bytes], Any]) -> Callable[[Parts], Any]:
    """Return a decoder of layouts in base64 as one of bare layouts, so that mutations get past the base64."""
    return lambda parts: read(encode_text(parts[0] or b""))


def _written_so(write: Callable[[Any], bytes | None]) -> Callable[[Parts, Any], bool]:
    return lambda parts, accepted: write(accepted) == parts[0]


def _clock() -> Callable[[], int]:
    """Return a clock that goes on by a second each time, so that no budget of calls runs out."""
    return itertools.count(_NOW_MS, 1000).__next__


def _records(topic: str = "orders") -> list[Record]:
    headers = Headers([("tenant", b"blue"), ("region", None), ("", b"")])
    return [
        Record(topic, b'{"id": %d}' % at, key, headers if at % 2 else Headers(), partition=0, offset=7)
        for at, key in enumerate([b"k-1", None, b"", b"a longer key than the others", b"k-1"])
    ]


def _written_there(found: Record) -> tuple[Any, ...]:
    return found.topic, found.key, found.value, tuple(found.headers)


def _unforged(
    reader: Any, sent: Sequence[Record], said_by: Callable[[Record], Any] = _written_there
) -> Target:
    """Return the target of a chain that accepts nothing but what was sent, in the parts that it protects."""
    seeds = list(map(_parts, sent))
    genuine = []
    for seed in seeds:
        (found,) = reader.consume([_record(seed)])
        genuine.append(said_by(found))

    def holds(_parts: Parts, accepted: list[Record]) -> bool:
        return all(said_by(found) in genuine for found in accepted)

    return Target(seeds, lambda parts: reader.consume([_record(parts)]), holds, pairs_at=3)


def _keyring(folder: Path, *algorithms: Algorithm) -> str:
    """Write a keyring with a key of each algorithm, by its name, and return its path."""
    keys = Keyring()
    for algorithm in algorithms:
        keys = with_new_key(keys, algorithm, algorithm)
    path = folder / "keys.json"
    path.write_bytes(encode_keyring(keys))
    path.chmod(0o600)
    return str(path)


# The targets


def _slices(_folder: Path) -> Target:
    """Slices of a few messages, in any order: the bytes that wait stay within the bound."""
    options: dict[str, Any] = {
        "max_message_bytes": 100_000,
        "max_pending_bytes": 200_000,
        "max_pending_messages": 20,
    }
    session = Chain([Slice(max_bytes=1000, **options)]).open(Context(now_ms=_clock()))
    wire = [
        part
        for message in _vectors("slice")["messages"]
        for part in session.send([Record("orders", bytes.fromhex(message["value_hex"]) * 9, b"k")])
    ]
    arrivals = [event for script in _vectors("slice-arrivals")["scripts"] for event in script["events"]]
    wire += [test_slice_arrivals.record_of(event["arrives"]) for event in arrivals if "arrives" in event]
    offsets = itertools.count(1000)

    def read(parts: Parts) -> Any:
        session.poll()
        return session.consume([_record(parts).replace(offset=next(offsets))])

    def holds(_parts: Parts, _accepted: Any) -> bool:
        return session.stats()["slice"]["pending_bytes"] <= int(options["max_pending_bytes"])

    return Target(list(_seeds(wire)), read, holds, pairs_at=3)


def _chained(folder: Path) -> Target:
    """Records of one step and of several, each through the steps that let pass what is not theirs."""
    vectors = _vectors("chain")
    for name, text in vectors["files"].items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o600)
    chain = test_chain.chain_of(vectors["chains"]["all that may let plain records pass"], folder)
    context = Context(side="consumer", now_ms=_clock(), cluster_id=lambda: "c1", group_id="g")
    session = chain.open(context)
    offsets = itertools.count(1000)

    def read(parts: Parts) -> Any:
        session.poll()
        return session.consume([_record(parts).replace(offset=next(offsets))])

    wire = [test_chain.record_of(arrives) for case in vectors["reads"] for arrives in case["arrives"]]
    return Target(list(_seeds(wire)), read, pairs_at=3)


def _seeds(wire: Iterable[Record]) -> Iterator[Parts]:
    """Yield the parts of records whose layouts are text that can be read."""
    for record in wire:
        with suppress(HeaderwareError):
            yield _parts(record)


def _compressed(folder: Path) -> Target:
    """Values of both codecs and with dictionaries: nothing is longer than the cap."""
    vectors, cap = _vectors("compress"), 50_000
    store = FolderDictionaries(path=str(folder))
    for known in vectors["dictionaries"]["known"]:
        publish(store.open(), Dictionary(bytes.fromhex(known["hex"])), "orders", None)
    session = Chain([Compress(dictionaries=store, max_decompressed_bytes=cap)]).open(Context(now_ms=_clock()))
    cases = [*vectors["cases"], *vectors["refused"], *vectors["dictionaries"]["cases"]]
    seeds = [
        (case["header"].encode(), _hex(case["wire_hex"])) for case in cases if case["header"] is not None
    ]

    def read(parts: Parts) -> bytes:
        headers = Headers([("hw.compress", parts[0])])
        (found,) = session.consume([Record("orders", parts[1], headers=headers)])
        return found.value or b""

    return Target(seeds, read, lambda _, plain: len(plain) <= cap)


def _claimed(folder: Path) -> Target:
    """Records with claims on objects of a folder: no value but an object of the one that was sent so."""
    cases = _vectors("claim-check")["cases"]
    for case in cases:
        path = folder / case["object_name"]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes.fromhex(case["object_hex"]))
    store = FolderObjects(path=str(folder))
    stores = {case["store"]: store for case in cases}
    session = Chain([ClaimCheck(stores=stores, store="archive", accept_topics=("*",))]).open()
    objects = {bytes.fromhex(case["object_hex"]) for case in cases}
    stub = bytes.fromhex(_vectors("claim-check")["stub_hex"])

    def read(parts: Parts) -> Any:
        claims = [("hw.claim", encode_text(part) if part else part) for part in parts[1:]]
        (found,) = session.consume([Record("orders", parts[0], headers=Headers(claims))])
        return found.value

    seeds = [(stub, decode_text(case["header"].encode(), "seed")) for case in cases]

    def holds(parts: Parts, value: bytes | None) -> bool:
        return value in objects or (len(parts) == 1 and value != stub)

    # A store reads a mebibyte at once; errors name the store and the topic that are claimed.
    return Target(seeds, read, holds, free_bytes=3 << 20, named=(1,))


def _signed(algorithm: Algorithm, folder: Path, **options: Any) -> Target:
    """Signed records: nothing is accepted but what was signed."""
    chain = Chain([Sign(keyring=_keyring(folder, algorithm), key_id=algorithm, cluster="c", **options)])
    context = Context(now_ms=lambda: _NOW_MS)
    sent = chain.open(context).send_outcomes(_records())
    return _unforged(chain.open(context), [record for record in sent if isinstance(record, Record)])


def _admitted(_folder: Path) -> Target:
    """Certificates, as head, claims and signature: none counts but those that were issued."""
    vectors = _vectors("admission")
    (issuer,) = msgspec.convert(vectors["policy"]["issuers"], list[Issuer])
    rules = msgspec.convert(vectors["policy"]["rules"], list[Rule])
    issuer_keys = IssuerKeys(json.dumps(vectors["jwks"]).encode(), issuer.algorithms)
    policy = Policy(vectors["policy"]["audience"], [(issuer, issuer_keys)], rules)
    thumbprints = {case["name"]: case["thumbprint"] for case in vectors["thumbprints"]}
    case = next(case for case in vectors["judged"] if case["outcome"] == "admitted")
    genuine = {each["certificate"] for each in vectors["judged"]}
    verified = Verified(
        key_id="shop",
        key_version=1,
        signed_at_ms=case["signed_at_ms"],
        cluster="c",
        topic=case["topic"],
        producer=bytes(8),
        sequence=0,
        thumbprint=thumbprints[case["signed_with"]],
    )

    def text(parts: Parts) -> str:
        return ".".join(urlsafe_b64encode(part or b"").decode().rstrip("=") for part in parts)

    def read(parts: Parts) -> Any:
        headers = Headers([("hw.admit", text(parts))])
        record = Record(case["topic"], b"v", headers=headers, local={VERIFIED: verified})
        return policy.admit(record, now_ms=case["now_ms"])

    split = (each.split(".") for each in genuine)
    seeds = [tuple(urlsafe_b64decode(part + "==") for part in parts) for parts in split if len(parts) == 3]
    return Target(seeds, read, lambda parts, _: text(parts) in genuine)


def _encrypted(
    folder: Path, *, key: Literal["plain", "deterministic"] = "plain", signed: bool = False
) -> Target:
    """Encrypted values, null ones among them: nothing comes out but what went in, at its key."""
    service = FileKeys(keyring=_keyring(folder, "aes-256", "ed25519"))
    secret = new_key_secret(service.open(Context()), "aes-256") if key == "deterministic" else None
    encrypt = Encrypt(
        key_service=service, key_id="aes-256", key=key, key_secret=secret, bind_headers=("tenant",)
    )
    sign = [Sign(keyring=service.keyring, key_id="ed25519")] if signed else []
    chain, context = Chain([Compress(), encrypt, *sign]), Context(now_ms=_clock(), cluster_id=lambda: "c")
    records = [*_records(), Record("orders", None, b"k-9"), Record("orders", b"long " * 400, b"k-9")]
    sent = chain.open(context).send(records)

    def protected(found: Record) -> Any:
        bound = [pair for pair in found.headers if pair[0] == "tenant"]
        return found.topic, found.key, found.value, tuple(found.headers if signed else bound)

    return _unforged(chain.open(context), sent, protected)


def _secret_headers(folder: Path) -> Target:
    """Secret and deterministic headers: none comes out but one that went in, in a record that had it."""
    service = FileKeys(keyring=_keyring(folder, "aes-256"))
    secret = new_key_secret(service.open(Context()), "aes-256")
    encrypt = Encrypt(
        key_service=service,
        key_id="aes-256",
        headers=("tenant",),
        deterministic_headers=("region",),
        key_secret=secret,
    )
    chain, context = Chain([encrypt]), Context(now_ms=_clock(), cluster_id=lambda: "c")
    headers = Headers([("tenant", b"blue"), ("region", b"north"), ("a", b"1"), ("tenant", None)])
    records = [*_records(), Record("orders", b"v", b"k-9", headers), Record("orders", None, b"k-9", headers)]
    sent = chain.open(context).send(records)

    def protected(found: Record) -> Any:
        encrypted = tuple(pair for pair in found.headers if pair[0] in {"tenant", "region"})
        return found.topic, found.key, found.value, encrypted

    return _unforged(chain.open(context), sent, protected)


def _encrypted_fields(folder: Path) -> Target:
    """Fields that are encrypted by themselves, each of which fits its place and the record's key alone."""
    service = FileKeys(keyring=_keyring(folder, "aes-256"))
    options = EncryptFields(key_service=service, key_id="aes-256", fields=("card", "more.note"))
    context = Context(now_ms=_clock(), cluster_id=lambda: "c")
    values = [
        {"card": card, "more": {"note": note}} for card, note in [("4111", 1), ([1, None, {"a": 2.5}], b"x")]
    ]
    writer, reader = options.open(context), options.open(context)
    seeds = []
    for key, value in zip((b"k-1", None), values, strict=True):
        wire = writer.on_send(Record("orders", value, key)).value
        seeds.append((b"orders", key, wire["card"].encode(), wire["more"]["note"].encode()))
    genuine = list(zip((b"k-1", None), values, strict=True))

    def read(parts: Parts) -> Any:
        topic, key, card, note = parts
        value = {"card": _text(card), "more": {"note": _text(note)}}
        return key, reader.on_consume(Record(_text(topic), value, key)).value

    return Target(seeds, read, lambda _, accepted: accepted in genuine, named=(0,))


def _wrapped_keys(folder: Path) -> Target:
    """Data keys wrapped under keys of a file: none comes out but one that went in."""
    cases = _vectors("keyring")["wrapped"]
    keys = {case["key"]["id"] + str(case["key"]["version"]): case["key"] for case in cases}
    path = folder / "keys.json"
    path.write_bytes(encode_keyring(Keyring(keys=msgspec.convert(list(keys.values()), tuple[Key, ...]))))
    path.chmod(0o600)
    service = FileKeys(keyring=str(path)).open(Context(now_ms=_clock()))
    genuine = {bytes.fromhex(case["data_key"]) for case in cases}
    seeds = [
        tuple(map(bytes.fromhex, (case["key"]["id"].encode().hex(), case["wrapped"], case["context"])))
        for case in cases
    ]

    def read(parts: Parts) -> bytes:
        return service.unwrap(_text(parts[0]), parts[1] or b"", parts[2] or b"")

    return Target(seeds, read, lambda _, accepted: accepted in genuine, named=(0,))


def _snapshots(_folder: Path) -> Target:
    """Keyrings that a root has signed: none is accepted but with what was signed."""
    cases = _vectors("keyring")["snapshots"]
    roots = Keyring(keys=tuple(msgspec.convert([cases[0]["public_root"]], tuple[Key, ...])))
    genuine = [verify_snapshot(case["text"].encode(), roots) for case in cases]
    return Target(
        _single(case["text"] for case in (*cases, *_vectors("keyring")["snapshots_refused"])),
        lambda parts: verify_snapshot(parts[0] or b"", roots),
        lambda _, accepted: accepted in genuine,
    )


_POLICY: Final = b"""
version = 1
audience = "a"
[[issuers]]
issuer = "i"
jwks = "issuer.jwks.json"
algorithms = ["Ed25519"]
[[rules]]
effect = "allow"
subjects = ["s-*"]
topics = ["orders", "!o-*"]
headers = { tenant = "b*" }
"""


def _certificates_policy(folder: Path) -> Target:
    """Policy files, and the key sets that they name."""
    vectors = _vectors("admission")
    policy = folder / "policy.toml"
    (folder / "issuer.jwks.json").write_text("{}", encoding="utf-8")

    def read(parts: Parts) -> Any:
        policy.write_bytes(parts[0] or b"")
        (folder / "issuer.jwks.json").write_bytes(parts[1] or b"")
        return read_policy(str(policy))

    return Target([(_POLICY, json.dumps(vectors["jwks"]).encode())], read, free_bytes=4 << 20, named=(0,))


def _registry_rows(_folder: Path) -> Target:
    """Rows of a registry's topic: each is a change or a conflict, and what comes behind it is read."""
    changes = [change["value"].encode() for change in _vectors("registry-topic")["changes"]]
    keys = itertools.count()

    def read(parts: Parts) -> Ledger:
        ledger = Ledger()
        for offset, value in enumerate((*changes, parts[0])):
            ledger.apply(TableRecord(offset, next(keys).to_bytes(16, "big"), value))
        return ledger

    return Target(_single([*changes, *_texts("registry-topic", "damaged", "value")]), read, named=(0,))


def _dictionary_rows(_folder: Path) -> Target:
    """Rows of a topic of dictionaries: none is of another content than its key says."""
    vectors = _vectors("dictionaries")
    rows = DictionaryRows()
    seeds = [
        (row["key"].encode(), row["value"].encode() if "value" in row else _hex(row["value_hex"]))
        for row in (*vectors["rows"], *vectors["refused"])
    ]

    def read(parts: Parts) -> Any:
        rows.apply(TableRecord(0, *parts))
        return rows.get(parts[0] or b"")

    def holds(parts: Parts, found: bytes | None) -> bool:
        name = (parts[0] or b"").removeprefix(b"dictionary/").decode("utf-8", "replace")
        if found is None or not (parts[0] or b"").startswith(b"dictionary/"):
            return True
        return hashlib.sha256(found).hexdigest()[:32] == name

    return Target(seeds, read, holds)


def _texts(name: str, kind: str, field: str) -> list[str]:
    return [case[field] for case in _vectors(name)[kind] if case.get(field) is not None]


_SCHEMA: Final = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "tags", "type": {"type": "map", "values": ["null", "string", "double", "shop.Order"]}},
        {"name": "lines", "type": {"type": "array", "items": ["null", "long", "shop.Order"]}},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 4}},
    ],
}
_ORDER: Final = {
    "id": -(2**40),
    "tags": {"a": None, "b": "text", "c": 2.5},
    "lines": [None, 3, 2**62],
    "total": Decimal("12.30"),
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "day": date(2026, 1, 1),
    "kind": "B",
    "digest": b"\x00\xff\x00\xff",
}
_AVRO_FREE_BYTES: Final = 8 << 20
_AVRO_BYTES_PER_BYTE: Final = 64 * 250
"""Avro's limits are 10,000 values and 64 for each byte; one takes up to 250 bytes here."""


def _avro(folder: Path, *, resolved: bool = False) -> Target:
    """Payloads of a recursive schema, bare and in single-object encoding."""
    wanted = {
        **_SCHEMA,
        "fields": [*_SCHEMA["fields"][:2], {"name": "new", "type": ["null", "long"], "default": None}],
    }
    serde = Avro(schema=_SCHEMA, reader_schema=wanted if resolved else None).open(SerdeContext())
    nested = {**_ORDER, "lines": [{**_ORDER, "lines": [_ORDER]}], "tags": {"x": _ORDER}}
    bare = [serde.serialize("t", Headers(), value)[0] for value in (_ORDER, nested)]
    fingerprint = AvroSchema.parsed(json.dumps(_SCHEMA)).fingerprint("rabin")
    seeds = [*bare, *(encode_single_object(fingerprint) + (payload or b"") for payload in bare)]
    return _avro_target(
        [(payload,) for payload in seeds], lambda parts: serde.deserialize("t", Headers(), parts[0])
    )


def _avro_left_out(_folder: Path) -> Target:
    """Payloads with fields that the reader's schema leaves out, in blocks that state their size."""
    blocks = {"a": {"type": "array", "items": "int"}, "b": {"type": "map", "values": "bytes"}}
    nulls = {"name": "nulls", "type": {"type": "array", "items": "null"}}
    fields = [*({"name": name, "type": kind} for name, kind in blocks.items()), nulls]
    written, wanted = ({"type": "record", "name": "R", "fields": each} for each in (fields, [nulls]))
    serde = Avro(schema=written, reader_schema=wanted).open(SerdeContext())
    # Two ints in a block of 2 bytes, an entry in one of 5, three nulls in one of none; far more behind it.
    whole = bytes.fromhex("03 04 02 04 00 01 0a 02 6b 04 ff 00 00 05 00 00")
    behind = bytes.fromhex("03 0c 02 04 00 00 00 80 80 80 80 01 00 00 80 80 80 80 01 00")
    return _avro_target([(whole,), (behind,)], lambda parts: serde.deserialize("t", Headers(), parts[0]))


def _avro_target(seeds: Sequence[Parts], read: Callable[[Parts], Any]) -> Target:
    return Target(seeds, read, free_bytes=_AVRO_FREE_BYTES, bytes_per_byte=_AVRO_BYTES_PER_BYTE)


def _avro_schemas(_folder: Path) -> Target:
    """Schemas as the text of a header, with a payload."""
    serde = Avro().open(SerdeContext())
    schemas = [*_texts("schema", "schemas", "schema"), json.dumps(_SCHEMA)]
    seeds = [
        (schema.encode(), payload) for schema in schemas for payload in (b"\x02", b"\x02\x06Ada\x00\x00")
    ]
    return _avro_target(
        seeds, lambda parts: serde.deserialize("t", Headers([("avro.schema", parts[0])]), parts[1])
    )


_TREE: Final = {
    "id": 1042,
    "names": ["a", "Ünï", "\u0000", ""],
    "numbers": [0, -1, 2**63, -(2**63), 1.5, 1e300],
    "nested": {"a": [{"b": None}, True, False, [[]], {}]},
    **{f"field {number}": number for number in range(70)},
}


def _serde(options: Any, *values: Any, part: str = "value") -> Target:
    opened = options.open(SerdeContext())
    seeds = [opened.serialize("t", Headers(), value)[0] for value in values]
    return Target(_single(seeds), lambda parts: opened.deserialize("t", Headers(), parts[0]))


def _protobuf(_folder: Path) -> Target:
    from google.protobuf import descriptor_pb2, struct_pb2, timestamp_pb2  # noqa: PLC0415 - heavy

    value = struct_pb2.Value()
    value.struct_value.update({"a": [1, "x", None, {"b": [True]}]})
    file = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(file)
    structs, files = (Protobuf(message=kind).open(SerdeContext()) for kind in (type(value), type(file)))
    seeds = [(b"", value.SerializeToString()), (b"f", file.SerializeToString())]
    return Target(seeds, lambda parts: (files if parts[0] else structs).deserialize("t", Headers(), parts[1]))


def _polyglot(_folder: Path) -> Target:
    """Payloads that a content type chooses the format of."""
    serde = Polyglot().open(SerdeContext())
    types = (
        "application/json",
        "application/msgpack",
        "application/cbor",
        "text/plain; charset=utf-16",
        'a/b+json; x="q\\"q"',
    )
    seeds = []
    for content_type in types:
        value = "text" if content_type.startswith("text") else _TREE
        payload, _ = serde.serialize("t", Headers([("content-type", content_type.encode())]), value)
        seeds.append((content_type.encode(), payload))
    return Target(
        seeds, lambda parts: serde.deserialize("t", Headers([("content-type", parts[0])]), parts[1])
    )


def _cloudevents(_folder: Path, *, mode: Literal["binary", "structured"]) -> Target:
    serde = CloudEvents(mode=mode).open(SerdeContext())
    common: dict[str, Any] = {
        "id": "1",
        "source": "/shop",
        "type": "order.placed",
        "extensions": {"partitionkey": "k", "n": "1"},
    }
    events = [
        CloudEvent(**common, data={"a": [1, "x"]}),
        CloudEvent(**common, data=b"\x00\xff", datacontenttype="application/octet-stream"),
        CloudEvent(**common, subject="s", time=datetime(2026, 1, 1, tzinfo=UTC)),
        CloudEvent(**common, data="text", datacontenttype="text/plain; charset=utf-16"),
    ]
    seeds = []
    for event in events:
        payload, headers = serde.serialize("t", Headers(), event)
        seeds.append(_parts(Record("t", payload, headers=headers)))

    def read(parts: Parts) -> Any:
        record = _record(parts)
        return serde.deserialize("t", record.headers, record.value)

    return Target(seeds, read, pairs_at=3)


_ENVELOPES: Final = (
    *(
        (json.dumps({"type": kind, "optional": True, **more}).encode(), json.dumps(payload).encode(), b"")
        for kind, more, payload in (
            ("int64", {}, 2**40),
            ("float", {}, 1.1),
            ("boolean", {}, None),
            ("bytes", {}, "AP8="),
            (
                "bytes",
                {"name": "org.apache.kafka.connect.data.Decimal", "version": 1, "parameters": {"scale": "2"}},
                "ATQ=",
            ),
            ("int64", {"name": "org.apache.kafka.connect.data.Timestamp", "version": 1}, 1795392000000),
            ("int32", {"name": "org.apache.kafka.connect.data.Date", "version": 1, "default": 7}, 20000),
            ("array", {"items": {"type": "string"}}, ["a", "b"]),
            ("map", {"keys": {"type": "string"}, "values": {"type": "int32"}}, {"a": 1}),
            ("map", {"keys": {"type": "int32"}, "values": {"type": "int32"}}, [[1, 2], [3, 4]]),
            (
                "struct",
                {
                    "fields": [
                        {"field": "a", "type": "int8"},
                        {"field": "b", "type": "string", "optional": True},
                    ]
                },
                {"a": 1},
            ),
        )
    ),
    (b"null", json.dumps(_TREE).encode(), b""),
)
"""Schema, payload, and what follows the envelope."""


def _connect_json(_folder: Path, *, mode: Mode) -> Target:
    """JSON without schemas."""
    converter = JsonConverter({"schemas.enable": False}, mode=mode)
    seeds = _single([json.dumps(_TREE), "1.50", "-0.0", '"text"', "[1e5, 12345678901234567890]"])
    return Target(seeds, lambda parts: converter.to_connect_data("t", parts[0]))


def _connect_envelopes(_folder: Path, *, mode: Mode) -> Target:
    """JSON with schemas, whose names stand in errors."""
    converter = JsonConverter(mode=mode)

    def read(parts: Parts) -> Any:
        schema, payload, rest = (part or b"" for part in parts)
        return converter.to_connect_data("t", b'{"schema":%b,"payload":%b}%b' % (schema, payload, rest))

    return Target(_ENVELOPES, read, named=(0,))


_VALUES_OF_HEADERS: Final = (
    *[
        "null",
        "true",
        "1042",
        "-1",
        "2.5",
        "1.0E7",
        "2017-05-21",
        "16:31:05.387Z",
        "2017-05-21T16:31:05.387Z",
        "text",
        "[]",
        "{}",
    ],
    "[1, 2, null, 3.0]",
    '["a\\"b", "c"]',
    '{"a": 1, "b": [2]}',
    "{1: {2: {3: [[4]]}}}",
    '{"a":"2017-05-21"}',
    "[1,[2,[3,[4,[5]]]]]",
    "12345678901234567890123",
)


def _connect_values(_folder: Path, *, mode: Mode) -> Target:
    converter = SimpleHeaderConverter(mode=mode)

    def read(parts: Parts) -> Any:
        return converter.to_connect_header("t", "h", parts[0]), parse_string(_text(parts[0]), mode=mode)

    return Target(_single(_VALUES_OF_HEADERS), read)


def _nested_values(_folder: Path) -> Target:
    return Target(_single(_VALUES_OF_HEADERS), lambda parts: parse_nested(_text(parts[0])))


def _w3c(_folder: Path) -> Target:
    """Trace context and baggage: whatever they are, the application goes on without them."""
    trace = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    baggage = b"tenant=blue;p=1,user=%C3%BC,empty="
    names = ("traceparent", "tracestate", "baggage", "baggage")
    seeds: list[Parts] = [(trace, b"a=1,b@c=2", baggage, b"more=1"), (trace, None, None, baggage)]
    return Target(seeds, lambda parts: extract_context(list(zip(names, parts, strict=True))), refusals=())


def _ids(_folder: Path) -> Target:
    """Header ids, packed and as keys: what is read is read again as it would be written."""
    vectors = _vectors("header-ids")
    names = {int(HeaderId(dotted)): name for dotted, name in vectors["names"].items()}
    codec = HeaderIdCodec({name: known for known, name in names.items()}.get, names.get)
    wires = [case[form] for case in vectors["cases"] for form in ("keys", "packed")]
    wires += [case["wire"] for kind in ("read", "refused") for case in vectors[kind]]
    seeds = [
        _parts(
            Record("t", headers=Headers.trusted([(name, _hex(value)) for name, value in wire])), frozenset()
        )
        for wire in wires
    ]

    def holds(_parts: Parts, accepted: Headers) -> bool:
        return "hw.ids" in accepted.names() or codec.decode(codec.encode(accepted)) == accepted

    return Target(
        list(dict.fromkeys(seeds)),
        lambda parts: codec.decode(_record(parts, frozenset()).headers),
        holds,
        pairs_at=3,
    )


def _metadata(_folder: Path) -> Target:
    """Metadata of commits, which is never refused: what is not ours is the application's."""
    vectors = _vectors("commit-metadata")
    seeds = _single(case["text"] for case in (*vectors["cases"], *vectors["foreign"]))

    def holds(_: Parts, accepted: Committed) -> bool:
        position, pending, own = accepted
        if not pending:
            again = decode_metadata(0, encode_metadata(position, own))
            return again == accepted and (position is None or 0 <= position < 1 << 63)
        return position is not None and len(pending) <= MAX_PENDING and max(pending) < position

    return Target(
        seeds, lambda parts: decode_metadata(0, _text(parts[0])), holds, refusals=(), free_bytes=150 << 20
    )


def _contract_documents(folder: Path) -> Target:
    """AsyncAPI documents, as a chain reads them."""
    path = folder / "contract.yaml"
    trees = _vectors("contract")["contracts"].values()
    seeds = [(text.encode(),) for tree in trees for text in (json.dumps(tree), yaml.safe_dump(tree))]

    def read(parts: Parts) -> Any:
        path.write_bytes(parts[0] or b"")
        return read_document(path)

    return Target(seeds, read, free_bytes=64 << 20, named=(0,))


def _contract_records(folder: Path) -> Target:
    """Records, as they are compared with a contract."""
    path = folder / "contract.json"
    path.write_text(json.dumps(_vectors("contract")["contracts"]["order"]))
    session = Chain([Contract(file=str(path))]).open()
    headers = [("event-id", b"7b1a4a8e-0f0a-4b0f-9d2e-111111111111"), ("attempt", b"2"), ("kind", b"paid")]
    seeds = [
        _parts(Record("orders", value, key, Headers(headers)))
        for value, key in ((b'{"id": "1", "amount": 3}', b"k-1"), (b"{}", b"K"), (None, None))
    ]
    return Target(seeds, lambda parts: session.consume([_record(parts)]), pairs_at=3)


def _moments(_folder: Path) -> Target:
    """Lifetimes and delays of records, as steps read them."""
    session = Chain([Expire(), Delay(max_delay_ms=60_000)]).open(Context(now_ms=lambda: _NOW_MS))
    seeds = [
        _parts(Record("t", b"v", headers=Headers([("hw.expires", expires), ("hw.not-before", not_before)])))
        for expires, not_before in ((b"1795392000000", b"1795392000001"), (b"0", b"4102444800000"))
    ]
    return Target(seeds, lambda parts: session.consume([_record(parts)]), pairs_at=3)


def _duplicates(_folder: Path) -> Target:
    """Identities of records, and of dead letters."""
    vectors = _vectors("dedup")
    session = Chain([Dedup()]).open(Context(now_ms=_clock()))
    seeds = [
        _parts(Record("t", b"v", headers=Headers([("hw.id", wire), ("__connect.errors.topic", b"t")])))
        for wire in _texts("dedup", "identities", "wire") + _texts("dedup", "derived", "wire")
    ]
    del vectors
    return Target(seeds, lambda parts: session.consume([_record(parts)]), pairs_at=3)


def _letters(_folder: Path) -> Target:
    """What dead letters say of themselves, in all dialects, and how often they were sent back."""
    vectors = _vectors("dead-letter")
    counts = [[["headerware.redriven", case["value"]]] for case in vectors["counts"]]
    seeds = [
        _parts(Record("t", headers=Headers.trusted([(name, _hex(value)) for name, value in headers])))
        for headers in (*(case["headers"] for case in vectors["reasons"]), *counts)
    ]

    def read(parts: Parts) -> Any:
        headers = _record(parts).headers
        return read_reason(headers), redrives(headers), origin_of(headers, "t"), without_reason(headers)

    return Target(seeds, read, pairs_at=3, refusals=())


def _trails(_folder: Path) -> Target:
    """Trails that a step goes on with."""
    step = Trail(service="s", cluster="c", max_entries=4).open(Context(now_ms=lambda: _NOW_MS))

    def read(parts: Parts) -> Any:
        record = Record("t", headers=Headers([("hw.trail", parts[0])]))
        return step.on_consume(step.on_send(record)).headers.last("hw.trail")

    return Target(
        _single(_texts("trail", "cases", "wire") + _texts("trail", "refused", "wire")),
        read,
        lambda _, value: value.count(b",at=") <= 4 and len(value) <= 4096,
    )


def _table_snapshots(_folder: Path) -> Target:
    """Files of a table's rows, with the digest that belongs to them."""
    files = (bytes.fromhex(case["file"])[:-32] for case in _vectors("registry-topic")["snapshots"])

    def whole(body: bytes | None) -> bytes:
        return (body or b"") + hashlib.sha256(body or b"").digest()

    return Target(
        _single(files),
        lambda parts: decode_snapshot(whole(parts[0])),
        lambda parts, accepted: encode_snapshot(accepted) == whole(parts[0]),
    )


def _extracted(name: str, _: Path) -> Target:
    """Read an object to its end, and refuse it by the first of its bad records."""
    extractor, sample = SAMPLES[name]

    def read(parts: Parts) -> int:
        bad = None
        count = 0
        for _, record in extracted(extractor, Input(MemoryObject(parts[0] or b""))):
            count += 1
            if bad is None and isinstance(record, BadRecordError):
                bad = record
        if bad is not None:
            raise bad
        return count

    # A block of text is 256 KiB, and a window of Parquet 1 MiB.
    return Target([(sample,)], read, free_bytes=8 << 20)


def _subject_rows(_: Path) -> Target:
    found = _vectors("subject-keys")
    cases = [*found["rows"], *found["damaged"], *found["sealed"]]
    seeds = [(bytes.fromhex(case["key"]), bytes.fromhex(case["value"])) for case in cases]

    def read(parts: Parts) -> Any:
        return decode_row(parts[0] or b"", parts[1] or b"")

    return Target(seeds, read, lambda parts, accepted: accepted.row == (parts[0] or b"", parts[1] or b""))


def _subject_wrapped(_: Path) -> Target:
    [case] = _vectors("subject-keys")["wrapped"]
    key, context, data_key = bytes.fromhex(case["subject_key"]), case["context"].encode(), case["data_key"]

    def read(parts: Parts) -> Any:
        wrapped = parts[0] or b""
        return None if name_in(wrapped) is None else unwrap_data_key(key, wrapped, context)

    return Target(
        [(bytes.fromhex(case["wrapped"]),)],
        read,
        lambda parts, accepted: (
            accepted is None or ((parts[0] or b"").hex(), accepted.hex()) == (case["wrapped"], data_key)
        ),
    )


TARGETS: Final[dict[str, Callable[[Path], Target]]] = {
    "admission: certificates": _admitted,
    "admission: policy files": _certificates_policy,
    "audit": lambda _: Target(
        _single(_texts("audit", "reports", "value") + _texts("audit", "refused", "value")),
        _or_null(decode_report),
    ),
    "avro": _avro,
    "avro: resolved to a reader's schema": lambda folder: _avro(folder, resolved=True),
    "avro: fields left out": _avro_left_out,
    "avro: schemas in headers": _avro_schemas,
    "chain": _chained,
    "cbor": lambda _: _serde(Cbor(), _TREE, [b"\x00", 2**80, -1.5]),
    "cbor: any keys": lambda _: _serde(Cbor(keys="any"), _TREE, {1: {2.5: [None]}}),
    "claims": _claimed,
    "claims: headers": lambda _: Target(
        _layouts(_texts("claim-check", "cases", "header") + _texts("claim-check", "refused", "header")),
        _as_text(decode_claim),
        lambda parts, accepted: accepted.encode() == encode_text(parts[0] or b""),
    ),
    "claims: headers as text": lambda _: Target(
        _single(_texts("claim-check", "cases", "header") + _texts("claim-check", "refused", "header")),
        _or_null(decode_claim),
        _written_so(lambda claim: claim.encode()),
    ),
    "cloudevents: binary": lambda folder: _cloudevents(folder, mode="binary"),
    "cloudevents: structured": lambda folder: _cloudevents(folder, mode="structured"),
    "commit metadata": _metadata,
    "compress": _compressed,
    "compress: names of dictionaries": lambda _: Target(
        _layouts(case["header"] for case in _vectors("compress")["dictionaries"]["cases"]),
        _as_text(decode_dictionary),
        lambda parts, accepted: encode_dictionary(accepted) == encode_text(parts[0] or b""),
    ),
    "confluent: headers": lambda _: Target(
        [(b"\x00\x00\x00\x01\x02",), (b"\x01" + bytes(range(16)),), (b"\xc3\x01" + bytes(range(9)),)],
        lambda parts: (
            prefix_of(parts[0] or b""),
            single_object_digest(parts[0] or b""),
            decode_id_header("__value_schema_id", parts[0]),
        ),
    ),
    "connect: headers, strict": lambda folder: _connect_values(folder, mode="strict"),
    "connect: headers, kafka": lambda folder: _connect_values(folder, mode="kafka_4_3"),
    "connect: json, strict": lambda folder: _connect_json(folder, mode="strict"),
    "connect: json, kafka": lambda folder: _connect_json(folder, mode="kafka_4_3"),
    "connect: json with schemas, strict": lambda folder: _connect_envelopes(folder, mode="strict"),
    "connect: json with schemas, kafka": lambda folder: _connect_envelopes(folder, mode="kafka_4_3"),
    "connect: nested values": _nested_values,
    "content types": lambda _: Target(
        _single(["application/json; charset=utf-8", 'a/b; x="q\\"q;"; y=z', "application/cloudevents+json"]),
        lambda parts: parse_content_type(_text(parts[0])),
    ),
    "contract: documents": _contract_documents,
    "contract: records": _contract_records,
    "contract: marks": lambda _: Target(
        _single(_texts("contract", "marks", "wire")), _or_null(decode_broken_rules)
    ),
    "dead letters": _letters,
    "dedup": _duplicates,
    "dedup: identities": lambda _: Target(
        _layouts(_texts("dedup", "identities", "wire") + _texts("dedup", "derived", "wire")),
        _as_text(Identity.decode),
        lambda parts, accepted: accepted.encode() == encode_text(parts[0] or b""),
    ),
    "dictionaries: rows": _dictionary_rows,
    "dictionaries: folders": lambda _: Target(
        [(b'{"uses":[%b],"version":1}' % b",".join(uses),) for uses in ([], _uses())],
        _one(_read_uses),
        named=(0,),
    ),
    "encrypt": _encrypted,
    "encrypt: keys, too": lambda folder: _encrypted(folder, key="deterministic"),
    "encrypt: signed": lambda folder: _encrypted(folder, signed=True),
    "encrypt: fields": _encrypted_fields,
    "encrypt: headers": _secret_headers,
    "encrypt: blocks": lambda _: Target(
        [
            (_hex(case["block_hex"]),)
            for kind in ("cases", "blocks_refused")
            for case in _vectors("encrypt-headers")[kind]
            if case["block_hex"]
        ],
        _one(decode_block),
        _written_so(lambda block: block.encode()),
    ),
    "encrypt: statements": lambda _: Target(
        [(bytes.fromhex(case["layout_hex"])[:-56],) for case in _vectors("encrypt")["cases"]],
        _one(decode_encryption),
        _written_so(lambda statement: statement.encode()),
    ),
    "encrypt: secrets of keys": lambda _: Target(
        _layouts(_texts("encrypt", "key_secrets", "text")),
        _as_text(lambda text: decode_key_secret(text.decode())),
        lambda parts, accepted: accepted.encode() == encode_text(parts[0] or b"").decode(),
    ),
    "encrypt: wrapped keys": _wrapped_keys,
    "expire and delay": _moments,
    "expire and delay: moments": lambda _: Target(
        _single(_texts("expires", "moments", "wire") + _texts("expires", "refused", "wire")),
        _or_null(partial(decode_moment, name="hw.expires")),
        _written_so(encode_moment),
    ),
    "ids": _ids,
    "json: profile": lambda _: Target(
        [
            (bytes.fromhex(case["hex"]) if "hex" in case else case["text"].encode(),)
            for kind in ("accepted", "refused")
            for case in _vectors("json")[kind]
        ],
        _one(lambda text: decode_json(text, object)),
        lambda parts, accepted: json.loads(parts[0] or b"") == accepted,
        refusals=(ValueError,),
    ),
    "json": lambda _: _serde(Json(), _TREE, "text", 2.5),
    "keyring": lambda _: Target(
        _single(_texts("keyring", "accepted", "text") + _texts("keyring", "refused", "text")),
        _one(decode_keyring),
    ),
    "keyring: snapshots": _snapshots,
    "messagepack": lambda _: _serde(MessagePack(), _TREE, [b"\x00", 2**63, -1.5, {1: {2: None}}]),
    "patterns": lambda _: Target(
        [(case["pattern"].encode(), case["text"].encode()) for case in _vectors("patterns")["patterns"]],
        # A pattern stands in a configuration, and is read once; texts are those of strangers.
        lambda parts: fits(_text(parts[0])[:5_000], _text(parts[1])),
        refusals=(),
    ),
    "polyglot": _polyglot,
    "primitives": lambda _: _primitives(),
    "protobuf": _protobuf,
    "registry: changes": lambda _: Target(
        _single(
            [
                *_texts("registry-topic", "changes", "value"),
                *_texts("registry-topic", "damaged", "value"),
                *(json.dumps(case["change"]) for case in _vectors("registry")["changes"]),
            ]
        ),
        _one(decode_change),
        named=(0,),
    ),
    "registry: rows": _registry_rows,
    "registry: files": lambda _: Target(
        [(_registry_file().encode(),)], lambda parts: read_registry(_text(parts[0]), "ids.toml"), named=(0,)
    ),
    "schema": lambda _: Target(
        _single(
            mark
            for record in _vectors("schema")["records"]
            for part in record["headers"].values()
            for mark in part.values()
        ),
        _or_null(decode_mark),
        _written_so(lambda found: encode_mark(*found)),
    ),
    **{
        f"sources: {name}": partial(_extracted, name)
        for name in ("avro", "avro deflate", "csv", "jsonl", "parquet", "gzip", "zstd", "snappy")
    },
    "sign: hmac": lambda folder: _signed("hmac-sha256", folder),
    "sign: ed25519": lambda folder: _signed("ed25519", folder),
    "sign: ecdsa": lambda folder: _signed("ecdsa-p256", folder),
    "sign: rsa": lambda folder: _signed("rsa-pss-sha256", folder),
    "sign: batches": lambda folder: _signed("ed25519", folder, batch_records=64),
    "sign: statements": lambda _: Target(
        _layouts([*_texts("signature", "cases", "wire"), *_signatures_of_batches()]),
        _one(decode_statement),
        lambda parts, found: (
            found[0].encode((parts[0] or b"")[0]) == (parts[0] or b"")[: found[1]]
            and len(parts[0] or b"") > found[1] + STAMP_BYTES
        ),
    ),
    "slice": _slices,
    "slice: headers": lambda _: Target(
        _layouts(_texts("slice", "cases", "wire") + _texts("slice", "refused", "wire")),
        _as_text(SliceHeader.decode),
        lambda parts, accepted: accepted.encode() == encode_text(parts[0] or b""),
    ),
    "slice: headers as text": lambda _: Target(
        _single(_texts("slice", "cases", "wire") + _texts("slice", "refused", "wire")),
        _or_null(SliceHeader.decode),
        _written_so(lambda header: header.encode()),
    ),
    "subjects: rows": _subject_rows,
    "subjects: wrapped data keys": _subject_wrapped,
    "tables: snapshots": _table_snapshots,
    "text": lambda _: _serde(Text(encoding="utf-16"), "text", "\U0001f600"),
    "trace": _w3c,
    "trail": lambda _: Target(
        _single(_texts("trail", "cases", "wire") + _texts("trail", "refused", "wire")),
        _or_null(decode_trail),
        _written_so(encode_trail),
    ),
    "trail: continued": _trails,
    "trail: proofs": lambda _: Target(
        _layouts(_texts("trail-proof", "hops", "wire") + _texts("trail-proof", "refused", "wire")),
        _as_text(read_proofs),
        lambda parts, accepted: accepted.encode() == encode_text(parts[0] or b""),
    ),
}
"""The decoders by name, each with what makes its target in an empty folder."""


def _signatures_of_batches() -> list[bytes]:
    found = [dict(case["headers"])["hw.sig"] for case in _vectors("signature-batch")["accepted"]]
    return list(map(bytes.fromhex, found))


def _uses() -> list[bytes]:
    return [row["value"].encode() for row in _vectors("dictionaries")["rows"] if "value" in row]


def _registry_file() -> str:
    ledger = Ledger()
    for offset, (_, key, value) in enumerate(_vectors("registry-topic")["logs"][1]["records"]):
        ledger.apply(TableRecord(offset, bytes.fromhex(key), value.encode()))
    return registry_text(ledger.registry)


def _primitives() -> Target:
    opened: list[tuple[Any, Any]] = [
        (Short(), 1),
        (Integer(), -1),
        (Long(), 2**40),
        (Double(), 2.5),
        (Uuid(), UUID(int=7)),
        (String(), "ü"),
    ]
    seeds = [serde.serialize("t", Headers(), value)[0] for serde, value in opened]

    def read(parts: Parts) -> None:
        for serde, _ in opened:
            with suppress(HeaderwareError):
                serde.deserialize("t", Headers(), parts[0])

    return Target(_single(seeds), read, refusals=())


class TestFuzzing:
    @pytest.mark.parametrize("name", sorted(path.stem for path in _VECTORS.glob("*.json")))
    def test_begins_with_the_vectors_of_each_format(self, name: str) -> None:
        assert f'"{name}"' in Path(__file__).read_text(encoding="utf-8")

    @pytest.mark.parametrize("name", TARGETS)
    def test_is_refused_or_holds(self, name: str, tmp_path: Path) -> None:
        target = TARGETS[name](tmp_path)
        for seed in target.seeds:  # what is imported or kept with the first use is no input's
            with suppress(*target.refusals):
                target.read(seed)
        run = _Run(target)
        until = time.monotonic() + 60 * _MINUTES / len(TARGETS)

        @settings(phases=_PHASES)
        @given(st.binary(max_size=40))
        def mutate(drawn: bytes) -> None:
            run.try_mutations(drawn)

        with _watched():
            mutate()
            while time.monotonic() < until:
                mutate()
        if _MINUTES:
            print(run.figures(name))  # noqa: T201 - what it is run for
