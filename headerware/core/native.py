"""Neighbouring steps in native code: the distribution headerware-native, if it is installed.

A step may offer a native form of its batch hook (:class:`OffersNative`). Such steps in a row are one
:class:`NativeRun`, which takes the usual records of a batch. It leaves all others, such as forged ones, to
the steps' single hooks, so that errors and their texts have one source. A run has no configuration: it is
made of what the steps state for each batch, and made anew when that changes.

A step that wraps hooks to measure them may measure runs, too (:class:`MetersNative`): native code then counts
the bytes before and after each step, and the time of the run is shared among its steps in proportion to their
time in native code.

With ``HEADERWARE_NATIVE=0`` in the environment, no native code runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import repeat
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from headerware.core.batch import ArrowColumn, Deferred, Repeated
from headerware.core.headers import Headers
from headerware.core.interrupts import pass_on_interrupt
from headerware.core.per_process import PerProcess
from headerware.core.record import bytes_of

if TYPE_CHECKING:
    from headerware.core.batch import Batch
    from headerware.core.services import Direction

NATIVE_VARIABLE: Final = "HEADERWARE_NATIVE"
_VERSION: Final = "0.1.0"
"""The version of headerware-native that has the steps as this version of Headerware states them."""
_PAUSE: Final = 16
"""How many batches are left to Python after native code did not take most records of one."""
_trusted: Final = tuple.__new__
Meter = Callable[[int, int, int], object]
"""Called with the nanoseconds of a step for the records of a batch, and their bytes before and after it."""


@cache
def native_module() -> tuple[Any | None, str]:
    """Return the native module, or None if it is not used, and which version of it is used or why none is."""
    if os.environ.get(NATIVE_VARIABLE) == "0":
        return None, f"off by {NATIVE_VARIABLE}"
    try:
        module = import_module("headerware_native")
    except ImportError:
        return None, "not installed"
    found: str = module.__version__
    if found != _VERSION:
        return None, f"not used: expected headerware-native {_VERSION}, found {found}"
    return module, found


class NativeState(NamedTuple):
    """What native code has to know about a step to take a batch."""

    step: str
    """The name of the step in the crate."""
    token: object
    """Equal to the token of an earlier batch as long as the arguments are equal."""
    arguments: Callable[[], tuple[Any, ...]]
    """Returns what the step is made of."""
    numbers: Callable[[], Sequence[int]] = tuple
    """Returns what differs from batch to batch, such as the time."""
    note: Callable[[Batch, Sequence[int], Any], Mapping[str, Sequence[Any]] | None] | None = None
    """Called with the batch, the indices not taken, and what the crate says about the records taken.

    It adds to the step's counters, and may return ``locals``: for each record what is added to its local
    state, or None. A step that is alone in its run may return ``not_taken``, too, with more indices behind
    those not taken."""
    undo: Callable[[], object] = int
    """Called after ``numbers`` in place of ``note``, if all records are left to the hooks."""


class NativeForm(NamedTuple):
    """The native form of a step's batch hook for one topic."""

    state: Callable[[Batch], NativeState | None]
    """Returns the state for a batch; None leaves the batch to the hooks."""
    pays: bool = False
    """Whether a run pays for this step alone; a step that is mostly C already does not."""
    ordered: bool = False
    """Whether all records of a batch have to come to the step in order, so that it is the last of its run."""
    alone: bool = False
    """Whether its run has no other step, because ``note`` leaves further records to the hooks."""


class OffersNative(Protocol):
    """Has a native form of its batch hook, for all records that are usual. For Headerware's own steps."""

    def native_form(self, direction: Direction, topic: str) -> NativeForm | None:
        """Return the form for a topic, or None if the hook has work that native code does not do."""


def offered_natively(opened: object) -> OffersNative | None:
    """Return a step that has a native form of its own hooks, or None.

    A class that inherits the form, or passes it on by ``__getattr__``, may have other hooks.
    """
    return cast("OffersNative", opened) if "native_form" in vars(type(opened)) else None


class MetersNative(Protocol):
    """Wraps hooks only to measure them, and can measure runs as well. For Headerware's own steps."""

    def native_meter(self, step: str, direction: Direction) -> Meter:
        """Return the function that is called for a step after each batch that a run has taken or left."""


def meters_natively(opened: object) -> MetersNative | None:
    """Return a step that can measure runs with its own ``wrap_hook``, or None."""
    return cast("MetersNative", opened) if "native_meter" in vars(type(opened)) else None


class _Made:
    """The steps in native code, and what they were made of; None if they could not be made of it."""

    __slots__ = ("latest",)

    def __init__(self) -> None:
        self.latest: tuple[list[Any], Any] = [], None
        """Replaced as a whole: several threads may send."""


class NativeRun:
    """Take batches of one topic through neighbouring steps; ``meters`` has the meters of each step."""

    __slots__ = ("_forms", "_made", "_make", "_meters", "_pause", "_takes_all", "_topic")

    def __init__(
        self, module: Any, topic: str, forms: Sequence[NativeForm], meters: Sequence[Sequence[Meter]]
    ) -> None:
        self._make: Final = module.Run
        self._topic: Final = topic
        self._forms: Final = forms
        self._meters: Final = meters if any(meters) else ()
        self._takes_all: Final = any(form.ordered for form in forms[1:])
        self._made: Final = PerProcess(_Made)
        self._pause = 0

    def __call__(self, batch: Batch) -> Batch | None:
        """Return the batch after the steps, with the records not taken; None leaves all to the hooks."""
        if self._pause:
            self._pause -= 1
            return None
        try:
            return self._taken(batch)
        except Exception as error:  # noqa: BLE001 - the hooks do the batch, and raise what there is to raise
            pass_on_interrupt(error)
            self._made.get().latest = [], None
            return None

    def _taken(self, batch: Batch) -> Batch | None:
        began_ns = perf_counter_ns()
        states = [form.state(batch) for form in self._forms]
        stated = [state for state in states if state is not None]
        if len(stated) < len(states):
            return None
        made, tokens = self._made.get(), [state.token for state in stated]
        made_of, run = made.latest
        if made_of != tokens:
            try:
                steps = [(state.step, state.arguments()) for state in stated]
                run = self._make(self._topic, steps, measured=bool(self._meters))
            except ValueError:  # such as a key of an algorithm that the crate does not have
                run = None
            made.latest = tokens, run
        if run is None:
            return None
        taken: Any = None
        numbers = [state.numbers() for state in stated]
        arrays = _arrays(batch.values, batch.keys, batch.headers)
        try:
            if arrays is None:
                taken = run.take(_listed(batch.values), _listed(batch.keys), _listed(batch.headers), numbers)
            else:
                taken = run.take_arrow(*(column.array for column in arrays), numbers)
        finally:
            left = len(batch) if taken is None else len(taken[0])
            is_left = left == len(batch) or (left > 0 and self._takes_all)
            for state in stated if is_left else ():
                state.undo()
        if taken is None:
            return None
        not_taken, values, rows, facts, measures = taken
        if is_left:
            self._pause = _PAUSE
            self._meter(began_ns, [(own_ns, 0, 0) for own_ns, _, _ in measures])
            return None
        if 2 * left > len(batch):
            self._pause = _PAUSE
        columns: dict[str, Any] = {}
        if arrays is None:
            columns["headers"] = list(map(_trusted, repeat(Headers), rows))
        else:
            columns["headers"] = ArrowColumn(rows, arrays[2].kind)
        if values is not None:
            columns["values"] = values if arrays is None else ArrowColumn(values, arrays[0].kind)
        columns["not_taken"] = not_taken
        for state, fact in zip(stated, facts, strict=True):
            noted = state.note(batch, not_taken, fact) if state.note is not None else None
            if noted:
                columns.update(noted, locals=_added(columns.get("locals", batch.locals), noted["locals"]))
        out = batch.replace(**columns)
        if self._meters and (refused := out.not_taken[left:]):
            # The hooks measure what a note has left to them.
            ((own_ns, bytes_in, bytes_out),) = measures
            bytes_in -= sum(bytes_of(batch[at]) for at in refused)
            bytes_out -= sum(bytes_of(out[at]) for at in refused)
            measures = [(own_ns, bytes_in, bytes_out)]
        self._meter(began_ns, measures)
        return out

    def _meter(self, began_ns: int, measures: Sequence[tuple[int, int, int]]) -> None:
        """Pass on what each step did; ``measures`` has the nanoseconds in native code, and the bytes."""
        if not self._meters:
            return
        taken_ns = perf_counter_ns() - began_ns
        all_ns = sum(own_ns for own_ns, _, _ in measures) or 1
        for meters, (own_ns, bytes_in, bytes_out) in zip(self._meters, measures, strict=True):
            for meter in meters:
                meter(taken_ns * own_ns // all_ns, bytes_in, bytes_out)


def _arrays(*columns: Sequence[Any]) -> list[ArrowColumn[Any]] | None:
    """Return the columns if all of them are Arrow arrays."""
    found = [column for column in columns if isinstance(column, ArrowColumn)]
    return found if len(found) == len(columns) else None


def _added(
    before: Sequence[Mapping[str, Any] | None], more: Sequence[Mapping[str, Any] | None]
) -> Sequence[Mapping[str, Any] | None]:
    """Return the local state of records with more in it."""
    if isinstance(before, Repeated) and before.entry is None:
        return more

    def made() -> list[Mapping[str, Any] | None]:
        pairs = zip(before, more, strict=True)
        return [had if own is None else own if had is None else {**had, **own} for had, own in pairs]

    return Deferred(made, len(before))


def _listed(column: Sequence[Any]) -> list[Any]:
    return column if isinstance(column, list) else list(column)
