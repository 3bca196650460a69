"""Steps that make a new record of the one that came: what the chain knows of that is not lost with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headerware.core.batch import Batch
from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import SignatureError
from headerware.core.hooks import Stage
from headerware.core.record import Record
from headerware.core.session import Session
from headerware.interceptors.dedup import Dedup
from headerware.interceptors.sign import Sign
from headerware.interceptors.slice import Slice
from tests.unit.interceptors.conftest import RECORD, sent


def anew(record: Record, topic: str | None = None) -> Record:
    """Return what an application writes that knows nothing of ``local``."""
    return Record(
        topic or record.topic,
        record.value,
        record.key,
        record.headers,
        partition=record.partition,
        offset=record.offset,
    )


class One:
    def on_consume(self, record: Record) -> Record:
        return anew(record)


class Several:
    def on_consume(self, record: Record) -> list[Record]:
        return [anew(record)]


class Lazily:
    def on_consume(self, record: Record) -> Iterator[Record]:
        yield anew(record)


class InBatches:
    def on_consume_batch(self, batch: Batch) -> Batch:
        return Batch.of(list(map(anew, batch)))


class Elsewhere:
    stage = Stage.OBJECTS

    def on_consume(self, record: Record) -> Record:
        return anew(record, "clean")


EACH = pytest.mark.parametrize("made", [One, Several, Lazily, InBatches, Elsewhere])


def reading(*steps: Any) -> Session:
    return Chain(steps).open(Context(side="consumer"))


@EACH
def test_what_was_verified_stays(keys: str, made: Callable[[], Any]) -> None:
    (seen,) = reading(made(), Sign(keyring=keys)).consume(sent(keys))
    assert seen.verified is not None
    assert seen.verified.key_id == "k"


@EACH
def test_a_copy_is_a_replay(keys: str, made: Callable[[], Any]) -> None:
    (signed,) = sent(keys)
    session = reading(made(), Sign(keyring=keys, replay_window=10))
    assert len(session.consume([signed])) == 1
    with pytest.raises(SignatureError, match="replayed"):
        session.consume([signed.replace(offset=2000)])


@EACH
def test_a_copy_is_dropped(keys: str, made: Callable[[], Any]) -> None:
    (signed,) = sent(keys, Dedup())
    session = reading(made(), Dedup(), Sign(keyring=keys))
    assert len(session.consume([signed])) == 1
    assert session.consume([signed.replace(offset=2000)]) == []


@EACH
def test_headers_that_must_be_covered_are_looked_for(keys: str, made: Callable[[], Any]) -> None:
    slices = sent(keys, Slice(max_bytes=1_500), record=RECORD.replace(value=bytes(3_000)))
    with pytest.raises(SignatureError, match="to be covered"):
        reading(made(), Slice(), Sign(keyring=keys, covered=("role",))).consume(slices)
