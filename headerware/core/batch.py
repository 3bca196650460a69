"""A batch: many records of one topic, held by columns.

This is the one form in which many records go through a chain at once, and all of its contract is here:

- **Columns.** Each field of a :class:`~headerware.core.record.Record` except the topic is a sequence with one
  entry per record. A column whose entries are all the same is a :class:`Repeated`; headers with the same
  names in the same order are :class:`HeaderColumns`. A :class:`Deferred` makes its entries when somebody
  looks at them, such as an :class:`ArrowColumn`. A column may be shared, so nothing may change it.
- **Views.** A slice of a batch shares whatever is the same for all records; what :meth:`Batch.replace` does
  not change is shared, too. A record is only made when it is asked for.
- **Steps.** ``on_send_batch`` and ``on_consume_batch`` take a batch and return it, or one made of it by
  ``replace``, with as many records in the same order. A step treats and counts each record exactly as its
  single hook would. All records pass one step before any of them comes to the next step.
- **Failures** are given by index, as the error that the single hook would raise. The step's ``on_error``
  decides about each of these records, and the others go on.
- **Not taken**, also by index, are the records that the step has not processed. The session calls the single
  hook for each of them. So a batch hook need not handle a record to drop, to split, or to keep for later. No
  record is processed twice; a record that is named as failed and as not taken has failed.

In the columns that a step returns, the entries of failed and not taken records do not matter. A batch belongs
to one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import repeat
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeVar, overload

from headerware.core.errors import HeaderError
from headerware.core.headers import EMPTY, Headers, HeaderValue
from headerware.core.interrupts import pass_on_interrupt
from headerware.core.record import Record

Entry = TypeVar("Entry")

_trusted: Final = tuple.__new__  # as Headers.trusted, without its call
_NO_FAILURES: Final[Mapping[int, Exception]] = MappingProxyType({})
_COLUMNS: Final = Record.__struct_fields__[1:]
"""The fields of a record that a batch holds by columns, in the order of its arguments."""
_OFTEN_CHANGED: Final = frozenset({"value", "key", "headers", "local"})
_ARGUMENTS: Final = {"value": "values", "key": "keys", "headers": "headers", "local": "locals"}
"""The arguments for the columns of some fields."""
_GETTERS: Final = {field: attrgetter(field) for field in _COLUMNS}
_PLAIN: Final[Mapping[str, Any]] = MappingProxyType(
    dict(zip(_COLUMNS, Record.__struct_defaults__, strict=True))
)


class Repeated(Sequence[Entry]):
    """A column whose entries are all the same."""

    __slots__ = ("_count", "entry")

    def __init__(self, entry: Entry, count: int) -> None:
        self.entry: Final = entry
        self._count: Final = count

    def __len__(self) -> int:
        """Count the entries."""
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        """Go through the entries."""
        return repeat(self.entry, self._count)

    @overload
    def __getitem__(self, at: int) -> Entry: ...
    @overload
    def __getitem__(self, at: slice) -> Repeated[Entry]: ...
    def __getitem__(self, at: int | slice) -> Entry | Repeated[Entry]:
        """Return one entry, or a shorter column."""
        found = range(self._count)[at]
        return Repeated(self.entry, len(found)) if isinstance(found, range) else self.entry


class HeaderColumns(Sequence[Headers]):
    """The headers of records that have the same names in the same order.

    Args:
        columns: for each header its name, and its value in each record.
        count: how many records there are.
    """

    __slots__ = ("_count", "columns")

    def __init__(self, columns: Iterable[tuple[str, Sequence[HeaderValue]]], count: int) -> None:
        self.columns: Final = tuple(columns)
        self._count: Final = count

    def names(self) -> tuple[str, ...]:
        """Return the names in order, duplicates included."""
        return tuple(name for name, _ in self.columns)

    def append(self, name: str, values: Sequence[HeaderValue]) -> HeaderColumns:
        """Return headers with one more header at the end for each record."""
        return HeaderColumns((*self.columns, (name, values)), self._count)

    def __len__(self) -> int:
        """Count the records."""
        return self._count

    def __iter__(self) -> Iterator[Headers]:
        """Make the headers of each record."""
        if not self.columns:
            return repeat(EMPTY, self._count)
        return map(_trusted, repeat(Headers), zip(*map(_pairs, self.columns), strict=False))

    @overload
    def __getitem__(self, at: int) -> Headers: ...
    @overload
    def __getitem__(self, at: slice) -> HeaderColumns: ...
    def __getitem__(self, at: int | slice) -> Headers | HeaderColumns:
        """Return the headers of one record, or of some records in a row."""
        if isinstance(at, slice):
            count = len(range(self._count)[at])
            return HeaderColumns(((name, values[at]) for name, values in self.columns), count)
        return Headers.trusted((name, values[at]) for name, values in self.columns)


class Deferred(Sequence[Entry]):
    """A column whose entries are made together when somebody looks at one.

    Args:
        make: makes the entries.
        count: how many there are.
    """

    __slots__ = ("_count", "_made", "_make")

    def __init__(self, make: Callable[[], Sequence[Entry]], count: int) -> None:
        self._make: Final = make
        self._count: Final = count
        self._made: Sequence[Entry] | None = None

    def entries(self) -> Sequence[Entry]:
        """Return the entries; they are made once."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def __len__(self) -> int:
        """Count the entries."""
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        """Go through the entries."""
        return iter(self.entries())

    @overload
    def __getitem__(self, at: int) -> Entry: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Entry]: ...
    def __getitem__(self, at: int | slice) -> Entry | Sequence[Entry]:
        """Return one entry, or a shorter column."""
        return self.entries()[at]


class ArrowKind(NamedTuple):
    """What arrays of a kind hold, and how to read them, because this package does not import pyarrow."""

    entries: Callable[[Any], Sequence[Any]]
    """Returns the entries of an array."""
    types: frozenset[type]
    """The types that entries have."""
    names: Callable[[Any], Iterable[str]] = lambda _: ()
    """Returns the names of all headers of an array of headers."""


class ArrowColumn(Deferred[Entry]):
    """A column that is an Arrow array, which native steps take as it is.

    Args:
        array: the array, of pyarrow.
        kind: what it holds.
    """

    __slots__ = ("_names", "array", "kind")

    def __init__(self, array: Any, kind: ArrowKind) -> None:
        super().__init__(partial(kind.entries, array), len(array))
        self.array: Final = array
        self.kind: Final = kind
        self._names: frozenset[str] | None = None

    def names(self) -> frozenset[str]:
        """Return the names of all headers."""
        if self._names is None:
            self._names = frozenset(self.kind.names(self.array))
        return self._names

    @overload
    def __getitem__(self, at: int) -> Entry: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Entry]: ...
    def __getitem__(self, at: int | slice) -> Entry | Sequence[Entry]:
        """Return one entry, which is made alone, or a shorter column."""
        if isinstance(at, slice):
            return ArrowColumn(self.array[at], self.kind)
        if self._made is not None:
            return self._made[at]
        index = range(self._count)[at]
        found: Entry = self.kind.entries(self.array.slice(index, 1))[0]
        return found


class Batch(Sequence[Record]):
    """Many records of one topic: a sequence whose records are made when they are asked for.

    Each column is a sequence with one entry for each record; None stands for the default of a record's field.

    Args:
        topic: the topic of all.
        values: the values.
        keys: the keys.
        headers: the :class:`~headerware.core.headers.Headers`.
        partitions: the partitions.
        timestamps_ms: the timestamps, in milliseconds since the epoch.
        timestamp_types: the timestamps' types.
        offsets: the offsets.
        leader_epochs: the leader epochs.
        locals: the state of interceptors.

    Raises:
        ValueError: columns of different lengths.
    """

    __slots__ = ("_changed", "_columns", "_count", "_records", "failures", "not_taken", "topic")

    topic: str
    failures: Mapping[int, Exception]
    """The errors of the records that the latest step has refused, by index."""
    not_taken: Sequence[int]
    """The indices of the records that the latest step has left to its single hook, in order."""

    def __init__(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        keys: Sequence[Any] | None = None,
        headers: Sequence[Headers] | None = None,
        partitions: Sequence[int | None] | None = None,
        timestamps_ms: Sequence[int | None] | None = None,
        timestamp_types: Sequence[int] | None = None,
        offsets: Sequence[int | None] | None = None,
        leader_epochs: Sequence[int | None] | None = None,
        locals: Sequence[Mapping[str, Any] | None] | None = None,  # noqa: A002 - as the column is called
    ) -> None:
        self.topic = topic
        self.failures, self.not_taken = _NO_FAILURES, ()
        self._count = count = len(values)
        given = (
            values,
            keys,
            headers,
            partitions,
            timestamps_ms,
            timestamp_types,
            offsets,
            leader_epochs,
            locals,
        )
        self._columns: dict[str, Sequence[Any]] = {
            field: Repeated(_PLAIN[field], count) if column is None else column
            for field, column in zip(_COLUMNS, given, strict=True)
        }
        self._records: Sequence[Record] | None = None
        self._changed: frozenset[str] = frozenset()
        _require_length(self._columns, count)

    @classmethod
    def of(cls, records: Sequence[Record]) -> Batch:
        """Return a batch of one or more records of one topic."""
        batch: Batch = cls.__new__(cls)
        batch.topic = records[0].topic
        batch.failures, batch.not_taken = _NO_FAILURES, ()
        batch._count = len(records)
        batch._columns = {}
        batch._records = records
        batch._changed = frozenset()
        return batch

    # Columns

    @property
    def values(self) -> Sequence[Any]:
        """The values."""
        return self.column("value")

    @property
    def keys(self) -> Sequence[Any]:
        """The keys."""
        return self.column("key")

    @property
    def headers(self) -> Sequence[Headers]:
        """The headers."""
        return self.column("headers")

    @property
    def partitions(self) -> Sequence[int | None]:
        """The partitions."""
        return self.column("partition")

    @property
    def timestamps_ms(self) -> Sequence[int | None]:
        """The timestamps, in milliseconds since the epoch."""
        return self.column("timestamp_ms")

    @property
    def timestamp_types(self) -> Sequence[int]:
        """The timestamps' types."""
        return self.column("timestamp_type")

    @property
    def offsets(self) -> Sequence[int | None]:
        """The offsets."""
        return self.column("offset")

    @property
    def leader_epochs(self) -> Sequence[int | None]:
        """The leader epochs."""
        return self.column("leader_epoch")

    @property
    def locals(self) -> Sequence[Mapping[str, Any] | None]:
        """The state of interceptors."""
        return self.column("local")

    def column(self, field: str) -> Sequence[Any]:
        """Return the column of a field of records."""
        found = self._columns.get(field)
        if found is None:
            assert self._records is not None  # noqa: S101 - a batch has all columns or records
            found = self._columns[field] = list(map(_GETTERS[field], self._records))
        return found

    # Changes

    def replace(
        self,
        *,
        values: Sequence[Any] | None = None,
        keys: Sequence[Any] | None = None,
        headers: Sequence[Headers] | None = None,
        partitions: Sequence[int | None] | None = None,
        timestamps_ms: Sequence[int | None] | None = None,
        locals: Sequence[Mapping[str, Any] | None] | None = None,  # noqa: A002 - as the column is called
        failures: Mapping[int, Exception] | None = None,
        not_taken: Sequence[int] = (),
    ) -> Batch:
        """Return the batch with some columns changed, and with the failed and the not taken records.

        Raises:
            ValueError: a column has another length than the batch.
        """
        given = {
            "value": values,
            "key": keys,
            "headers": headers,
            "partition": partitions,
            "timestamp_ms": timestamps_ms,
            "local": locals,
        }
        changed = {field: column for field, column in given.items() if column is not None}
        _require_length(changed, self._count)
        return self._derived(
            self._count,
            {**self._columns, **changed},
            self._records,
            self._changed.union(changed),
            failures or _NO_FAILURES,
            not_taken,
        )

    def append_header(self, name: str, values: Sequence[HeaderValue], **others: Any) -> Batch:
        """Return the batch with one more header at the end for each record; ``others`` as for replace."""
        headers = self.headers
        if isinstance(headers, HeaderColumns):
            return self.replace(headers=headers.append(name, values), **others)
        if isinstance(values, Repeated):
            pair = (name, values.entry)
            made = [_trusted(Headers, (*own, pair)) for own in headers]
        else:
            made = [
                _trusted(Headers, (*own, (name, value))) for own, value in zip(headers, values, strict=True)
            ]
        return self.replace(headers=made, **others)

    def remake(
        self,
        fields: Sequence[Literal["value", "key", "headers", "local"]],
        make: Callable[..., tuple[Any, ...] | None],
        *columns: Iterable[Any],
    ) -> Batch:
        """Return the batch with some fields of each record made anew by a function.

        Args:
            fields: the fields of records that the function makes.
            make: called for each record, in order; returns one entry for each field, or None for a record
                that stays as it is. If it raises, this record has failed, and the others go on.
            columns: the arguments of the function; each call gets one entry of each column.
        """
        made: list[tuple[Any, ...] | None] = []
        failures: dict[int, Exception] = {}
        for at, entries in enumerate(zip(*columns, strict=False)):
            try:
                made.append(make(*entries))
            except Exception as error:  # noqa: BLE001 - it is this record's failure
                pass_on_interrupt(error)
                failures[at] = error
                made.append(None)
        if made.count(None) == len(made):
            return self.replace(failures=failures) if failures else self
        changed = {
            _ARGUMENTS[field]: [
                before if own is None else own[index]
                for before, own in zip(self.column(field), made, strict=True)
            ]
            for index, field in enumerate(fields)
        }
        return self.replace(**changed, failures=failures)

    def leave(self) -> Batch:
        """Return the batch of a step that takes none of its records."""
        return self.replace(not_taken=range(self._count))

    def select(self, indices: Sequence[int]) -> Batch:
        """Return the batch of some of its records."""
        columns = {field: _selected(column, indices) for field, column in self._columns.items()}
        records = None if self._records is None else [self._records[at] for at in indices]
        return self._derived(len(indices), columns, records, self._changed)

    def join(self, other: Batch) -> Batch:
        """Return this batch followed by another of the same topic.

        Raises:
            ValueError: the other batch is of another topic.
        """
        if other.topic != self.topic:
            raise ValueError(f"expected a batch of topic {self.topic!r}, found one of {other.topic!r}")
        columns = {field: _joined(self.column(field), other.column(field)) for field in _COLUMNS}
        return self._derived(self._count + other._count, columns, None, frozenset())

    def checked(self, before: Batch, *, keeps_local: bool) -> Batch:
        """Return this batch, which a step has made of ``before``, ready for the next step.

        Headers of other types become :class:`Headers`, or their record has failed. With ``keeps_local``, a
        record without local state gets the local state that it had before the step.
        """
        given: dict[str, Any] = {}
        failures = dict(self.failures)
        if not self._shares("headers", before):
            headers = self.headers
            if not entry_types(headers) <= {Headers}:
                given["headers"] = [_plain_headers(own, at, failures) for at, own in enumerate(headers)]
        if keeps_local and not self._shares("local", before):
            given["locals"] = [
                theirs if mine is None else mine
                for mine, theirs in zip(self.locals, before.locals, strict=True)
            ]
        return self.replace(**given, failures=failures, not_taken=self.not_taken) if given else self

    def _shares(self, field: str, other: Batch) -> bool:
        return self._records is other._records and self._columns.get(field) is other._columns.get(field)

    def _derived(
        self,
        count: int,
        columns: dict[str, Sequence[Any]],
        records: Sequence[Record] | None,
        changed: frozenset[str],
        failures: Mapping[int, Exception] = _NO_FAILURES,
        not_taken: Sequence[int] = (),
    ) -> Batch:
        batch = Batch.__new__(Batch)
        batch.topic, batch.failures, batch.not_taken = self.topic, failures, not_taken
        batch._count, batch._columns = count, columns  # noqa: SLF001 - a batch
        batch._records, batch._changed = records, changed  # noqa: SLF001 - as above
        return batch

    # Records

    def records(self) -> list[Record]:
        """Return all records; they are made once."""
        if self._records is None or self._changed:
            self._records, self._changed = self._made(), frozenset()
        return self._records if isinstance(self._records, list) else list(self._records)

    def _made(self) -> list[Record]:
        before, topic = self._records, self.topic
        if before is None or not self._changed <= _OFTEN_CHANGED:
            return list(map(Record, repeat(topic), *map(self.column, _COLUMNS)))
        return [  # half the cost of making a column of each field
            Record(
                topic,
                value,
                key,
                headers,
                record.partition,
                record.timestamp_ms,
                record.timestamp_type,
                record.offset,
                record.leader_epoch,
                local,
            )
            for record, value, key, headers, local in zip(
                before, self.values, self.keys, self.headers, self.locals, strict=True
            )
        ]

    def __len__(self) -> int:
        """Count the records."""
        return self._count

    def __iter__(self) -> Iterator[Record]:
        """Go through the records."""
        if self._records is not None and not self._changed:
            return iter(self._records)
        return map(Record, repeat(self.topic), *map(self.column, _COLUMNS))

    @overload
    def __getitem__(self, at: int) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> Batch: ...
    def __getitem__(self, at: int | slice) -> Record | Batch:
        """Return a record, or the batch of some records in a row."""
        if isinstance(at, slice):
            columns = {field: column[at] for field, column in self._columns.items()}
            records = None if self._records is None else self._records[at]
            return self._derived(len(range(self._count)[at]), columns, records, self._changed)
        if self._records is not None and not self._changed:
            return self._records[at]
        return Record(self.topic, *(self.column(field)[at] for field in _COLUMNS))


def entry_types(column: Sequence[Any]) -> AbstractSet[type]:
    """Return the types of the entries of a column."""
    if isinstance(column, ArrowColumn):
        return column.kind.types
    return {Headers} if isinstance(column, HeaderColumns) else set(map(type, column))


def header_names(headers: Sequence[Headers]) -> AbstractSet[str]:
    """Return the names of all headers of these records."""
    if isinstance(headers, HeaderColumns | ArrowColumn):
        return set(headers.names())
    if isinstance(headers, Repeated):
        headers = headers[:1]
    return {pair[0] for own in headers for pair in own}


def _plain_headers(headers: Any, at: int, failures: dict[int, Exception]) -> Headers:
    try:
        return Headers(headers)
    except HeaderError as error:
        failures.setdefault(at, error)
        return EMPTY


def _pairs(column: tuple[str, Sequence[HeaderValue]]) -> Iterable[tuple[str, HeaderValue]]:
    name, values = column
    if isinstance(values, Repeated):
        return repeat((name, values.entry), len(values))
    return zip(repeat(name), values, strict=False)


def _selected(column: Sequence[Any], indices: Sequence[int]) -> Sequence[Any]:
    if isinstance(column, Repeated):
        return Repeated(column.entry, len(indices))
    if isinstance(column, HeaderColumns):
        return HeaderColumns(
            ((name, _selected(values, indices)) for name, values in column.columns), len(indices)
        )
    if isinstance(column, Deferred):
        column = column.entries()
    return [column[at] for at in indices]


def _joined(first: Sequence[Any], second: Sequence[Any]) -> Sequence[Any]:
    if isinstance(first, Repeated) and isinstance(second, Repeated):
        mine, theirs = first.entry, second.entry
        if mine is theirs or (type(mine) is type(theirs) and mine == theirs):
            return Repeated(mine, len(first) + len(second))
    if (
        isinstance(first, HeaderColumns)
        and isinstance(second, HeaderColumns)
        and first.names() == second.names()
    ):
        columns = zip(first.columns, second.columns, strict=True)
        return HeaderColumns(
            ((name, _joined(mine, theirs)) for (name, mine), (_, theirs) in columns), len(first) + len(second)
        )
    return [*first, *second]


def _require_length(columns: Mapping[str, Sequence[Any]], count: int) -> None:
    for field, column in columns.items():
        if len(column) != count:
            raise ValueError(f"expected {count} entries in the column of {field}, found {len(column)}")
