"""A run: consecutive records of one topic, by columns, for work that costs less for many at once.

Records of a run differ in their keys, values and timestamps, and in the value of one header at most. A step
that knows this does its work on the columns; for any other the run is a sequence of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, overload

from headerware.core.headers import Headers, Pair
from headerware.core.record import Record

_trusted: Final = tuple.__new__  # as Headers.trusted, without its call


class RecordRun(Sequence[Record]):
    """Hold records by columns; what is taken out of it are records.

    Args:
        topic: their topic.
        partition: their partition; None leaves it to the partitioner.
        headers: those of the first record.
        numbered: the one of these pairs, by identity, of which each record has another value; None for none.
        numbers: these values; empty if there are none.
        keys: the keys.
        values: the values.
        timestamps_ms: the timestamps in milliseconds since the epoch, or None.
    """

    __slots__ = ("headers", "keys", "numbered", "numbers", "partition", "timestamps_ms", "topic", "values")

    def __init__(
        self,
        topic: str,
        partition: int | None,
        headers: Headers,
        numbered: Pair | None,
        numbers: list[bytes],
        keys: list[Any],
        values: list[Any],
        timestamps_ms: list[int | None],
    ) -> None:
        self.topic: Final = topic
        self.partition: Final = partition
        self.headers: Final = headers
        self.numbered: Final = numbered
        self.numbers: Final = numbers
        self.keys: Final = keys
        self.values: Final = values
        self.timestamps_ms: Final = timestamps_ms

    def probe(self) -> Record:
        """Return a record that stands for all where neither keys nor values count."""
        return Record(self.topic, None, None, self.headers, self.partition)

    def all_headers(self) -> Iterable[tuple[Pair, ...]]:
        """Return the pairs of each record, in order; without an end if all have the same."""
        if not self.headers:
            return repeat(())
        numbered = self.numbered
        columns: list[Iterable[Pair]] = [
            zip(repeat(pair[0]), self.numbers, strict=False) if pair is numbered else repeat(pair)
            for pair in self.headers
        ]
        return zip(*columns, strict=False)

    def having(self, headers: Headers, keys: list[Any], values: list[Any]) -> RecordRun:
        """Return a run with other headers (of the first record), keys and values.

        Raises:
            ValueError: there are not as many, or the headers have the numbered pair no more, or a copy of it.
        """
        if not len(keys) == len(values) == len(self):
            raise ValueError(f"expected {len(self)} keys and values, found {len(keys)} and {len(values)}")
        if self.numbered is not None and not any(pair is self.numbered for pair in headers):
            raise ValueError(f"expected the pair of header {self.numbered[0]!r} as it was")
        return RecordRun(
            self.topic,
            self.partition,
            headers,
            self.numbered,
            self.numbers,
            keys,
            values,
            self.timestamps_ms,
        )

    def joins(self, other: RecordRun) -> bool:
        """Return whether another run can be appended: all but the columns is the same."""
        return (
            self.topic == other.topic
            and self.partition == other.partition
            and (self.numbered is None) == (other.numbered is None)
            and self.headers.names() == other.headers.names()
            and all(
                mine is self.numbered if pair is other.numbered else mine == pair
                for mine, pair in zip(self.headers, other.headers, strict=True)
            )
        )

    def join(self, other: RecordRun) -> RecordRun:
        """Return this run followed by another one that joins it."""
        return RecordRun(
            self.topic,
            self.partition,
            self.headers,
            self.numbered,
            self.numbers + other.numbers,
            self.keys + other.keys,
            self.values + other.values,
            self.timestamps_ms + other.timestamps_ms,
        )

    def __len__(self) -> int:
        """Count the records."""
        return len(self.values)

    def __iter__(self) -> Iterator[Record]:
        """Go through the records."""
        topic, partition = self.topic, self.partition
        for pairs, key, value, timestamp_ms in zip(
            self.all_headers(), self.keys, self.values, self.timestamps_ms, strict=False
        ):
            yield Record(topic, value, key, _trusted(Headers, pairs), partition, timestamp_ms)

    @overload
    def __getitem__(self, at: int) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> RecordRun: ...
    def __getitem__(self, at: int | slice) -> Record | RecordRun:
        """Return a record, or a run of some of them, one after the other."""
        if isinstance(at, int):
            start = range(len(self))[at]
            return next(iter(self[start : start + 1]))
        numbers = self.numbers[at]
        headers, numbered = self.headers, self.numbered
        if numbered is not None and numbers:
            first = (numbered[0], numbers[0])
            headers = Headers.trusted(first if pair is numbered else pair for pair in headers)
            numbered = first
        return RecordRun(
            self.topic,
            self.partition,
            headers,
            numbered,
            numbers,
            self.keys[at],
            self.values[at],
            self.timestamps_ms[at],
        )
