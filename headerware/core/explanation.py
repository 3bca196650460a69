"""Explain a configuration: the interceptors in order, the origins of options, the bytes added to a record."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from headerware.core.batch import Batch
from headerware.core.chain import Chain, resolved_on_error
from headerware.core.config import Configured, built, carried, carry_source
from headerware.core.context import Context
from headerware.core.files import read_sources
from headerware.core.hooks import Interceptor, Place, Role
from headerware.core.options import Declared
from headerware.core.order import place_of, precedes_bytes, role_of, stage_of
from headerware.core.printable import without_secrets
from headerware.core.record import Record
from headerware.core.toml import within_file
from headerware.core.topics import works_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headerware.core.services import Direction

PROBE_BYTES: Final = 1_000
"""The size of the value that :func:`growth` sends through a chain: random bytes, with a key, no headers."""


class ExplainedOption(msgspec.Struct, frozen=True):
    """An option: its value as it was written, without secrets, and its file or ``default``.

    Variables are not replaced.
    """

    name: str
    value: Any
    origin: str


class ExplainedInterceptor(msgspec.Struct, frozen=True):
    """An interceptor of a chain, with all of its options."""

    name: str
    type: str
    implementation: str
    role: str
    stage: str
    on_error: str
    options: tuple[ExplainedOption, ...]


def explain(path: str | os.PathLike[str], topic: str | None = None) -> tuple[ExplainedInterceptor, ...]:
    """Return the chain of a TOML file in the order of sending, or only its interceptors for ``topic``."""
    sources = read_sources(path)
    pairs = built(sources)
    with within_file(path):
        found = Configured([interceptor for _, interceptor in pairs], carried(sources), sources)
        chain = Chain.configured(found)
    return tuple(
        ExplainedInterceptor(
            name=name,
            type=declared.type,
            implementation=f"{type(interceptor).__module__}.{type(interceptor).__qualname__}",
            role=role_of(interceptor).value,
            stage=stage_of(interceptor).value,
            on_error=resolved_on_error(interceptor),
            options=tuple(_explained(declared, interceptor)),
        )
        for name, (declared, interceptor) in zip(chain.names, pairs, strict=True)
        if topic is None or works_on(interceptor, topic)
    )


def explain_carry(path: str | os.PathLike[str]) -> ExplainedOption:
    """Return the option ``carry`` of the chain of a TOML file."""
    found = carry_source(read_sources(path)).carry
    if found is None:
        return ExplainedOption("carry", (), "default")
    return ExplainedOption("carry", found.shown, found.origin)


class Growth(msgspec.Struct, frozen=True):
    """What an interceptor costs for a small record on its way to Kafka.

    Args:
        name: the interceptor's name.
        size_bytes: the bytes that it adds to the record on the wire; below 0 if it removes some.
        microseconds: how long it takes for one record, here and now, as the median of some records.
    """

    name: str
    size_bytes: int
    microseconds: float


class NotMeasured(msgspec.Struct, frozen=True):
    """An interceptor whose cost was not measured, and why."""

    name: str
    reason: str


def growth(chain: Chain, topic: str) -> tuple[tuple[Growth, ...], tuple[NotMeasured, ...]]:
    """Return the cost of each interceptor for a small record of a topic, and which were not measured.

    Both are in the order of sending. The chain is opened as a producer in a dry run, and nothing is sent or
    stored: no record, object, metric or span. Each interceptor that encrypts asks for one data key.
    Interceptors that work on objects, or make bytes of them, are not measured, because their cost depends on
    the object, and a contract is not, because the record does not fulfil it.

    Raises:
        HeaderwareError: the chain cannot be opened here, or an interceptor refuses the record.
    """
    unmeasured = {
        name: _JUDGES if place_of(step) is Place.CONTRACT else _ON_OBJECTS
        for name, step in zip(chain.names, chain, strict=True)
        if precedes_bytes(step) or place_of(step) is Place.CONTRACT
    }
    steps = [step for name, step in zip(chain.names, chain, strict=True) if name not in unmeasured]
    meter = _Meter(added={}, taken_ns=defaultdict(list))
    context = Context(side="producer", cluster_id=lambda: "0" * _CLUSTER_ID_CHARACTERS, dry_run=True)
    session = Chain([meter, *steps]).open(context)
    try:
        deadline = time.monotonic() + _MEASURING_S
        for _ in range(_MEASURED_RECORDS):
            session.send([Record(topic, os.urandom(PROBE_BYTES), b"key")])
            if time.monotonic() > deadline:
                break
    finally:
        session.close()
    measured = tuple(
        Growth(name, size, round(median(meter.taken_ns[name]) / 1_000, 1))
        for name, size in meter.added.items()
    )
    not_measured = []
    for name in chain.for_topic(topic):
        if name in unmeasured:
            not_measured.append(NotMeasured(name, unmeasured[name]))
        elif name not in meter.taken_ns:
            not_measured.append(NotMeasured(name, "it does nothing while a record is sent"))
        elif name not in meter.added:
            not_measured.append(NotMeasured(name, "no record of the sample came out of it"))
    return measured, tuple(not_measured)


_ON_OBJECTS: Final = "it works on objects, and its cost depends on the object"
_JUDGES: Final = "it judges records, and its cost depends on the record"
_CLUSTER_ID_CHARACTERS: Final = 22
_MEASURED_RECORDS: Final = 30
_MEASURING_S: Final = 1.0


class _Meter(Interceptor, frozen=True, kw_only=True):
    """Measure a record before and after each hook of the chain, and the time that the hook takes."""

    type: ClassVar[str] = "headerware-explain"
    role: ClassVar[Role] = Role.OBSERVE

    added: dict[str, int]
    taken_ns: defaultdict[str, list[int]]

    def on_send(self, record: Record) -> Record:
        """Change nothing; the hook is here because a chain refuses interceptors without hooks."""
        return record

    def wrap_hook(self, step: str, direction: Direction, hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a hook that measures its records."""
        if direction != "send":
            return hook
        taken_ns = self.taken_ns[step]

        def measured(given: Any) -> Any:
            began_ns = time.perf_counter_ns()
            out = hook(given)
            took_ns = time.perf_counter_ns() - began_ns
            if isinstance(out, Batch) and out.not_taken:
                return out  # the step takes the record with its other hook
            taken_ns.append(took_ns)
            # A batch has one record here.
            before = given[0] if isinstance(given, Batch) else given
            after = out[0] if isinstance(out, Batch) else out
            if isinstance(after, Record):
                self.added.setdefault(step, _wire_bytes(after) - _wire_bytes(before))
            return out

        return measured


def _wire_bytes(record: Record) -> int:
    """Return how many bytes key, value and headers take in Kafka's batch, their length fields included."""
    parts = [record.key, record.value]
    for name, value in record.headers:
        parts += [name.encode("utf-8", "surrogateescape"), value]
    return sum(len(part or b"") + _varint_bytes(len(part or b"")) for part in parts)


def _varint_bytes(length: int) -> int:
    return ((2 * length | 1).bit_length() + 6) // 7


def _explained(declared: Declared, interceptor: Interceptor) -> Iterator[ExplainedOption]:
    for option in interceptor.__struct_fields__:
        given = declared.settings.get(option)
        if given is not None:
            shown = without_secrets(interceptor.shown(option, given.shown), option)
            yield ExplainedOption(option, shown, given.origin)
        elif option != "name":
            found = resolved_on_error(interceptor) if option == "on_error" else getattr(interceptor, option)
            yield ExplainedOption(option, found, "default")
