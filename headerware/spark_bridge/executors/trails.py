"""Decode and prove trails on the executors."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from headerware.core.errors import HeaderwareError, WireFormatError
from headerware.core.headers import Headers
from headerware.core.origins import Origins
from headerware.core.record import Record
from headerware.interceptors.trail import TrailEntry, decode_trail
from headerware.interceptors.trail_proof import TrailProver
from headerware.keyring import decode_keyring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pandas as pd

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def decode_trails() -> Callable[[Iterable[pd.Series]], Iterator[pd.Series]]:
    """Begin a task that decodes the values of trails, which may be null."""
    return lambda batches: (values.map(_entries, na_action="ignore") for values in batches)


def prove_trails(
    keyring: bytes, signers: bytes, accept_origins: bytes
) -> Callable[[Iterable[Sequence[pd.Series]]], Iterator[pd.Series]]:
    """Begin a task that proves the trails of records, given as topics, keys, values and headers."""
    import pandas as pd  # noqa: PLC0415 - it is there where Spark calls this

    trusted = decode_keyring(pickle.loads(keyring))  # noqa: S301 - from the driver
    prover = TrailProver(pickle.loads(signers), Origins(pickle.loads(accept_origins)))  # noqa: S301 - as above

    def proven(topic: str, key: Any, value: Any, headers: Any) -> list[dict[str, Any]] | None:
        pairs = () if headers is None else ((each["key"], _bytes(each["value"])) for each in headers)
        try:
            record = Record(topic, _bytes(value), _bytes(key), Headers(pairs))
            proof = prover.prove(record, trusted, None, delivered=True)
        except (HeaderwareError, TypeError):  # such as no topic, or a name of a header that is null
            return None
        hops = zip(proof.trail, proof.hops, strict=True)
        return [{**_plain(entry), "state": hop.state, "key_id": hop.key_id} for entry, hop in hops]

    return lambda batches: (pd.Series(list(map(proven, *columns)), dtype=object) for columns in batches)


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _entries(value: bytes) -> list[dict[str, Any]] | None:
    try:
        return list(map(_plain, decode_trail(value)))
    except WireFormatError:
        return None


def _plain(entry: TrailEntry) -> dict[str, Any]:
    return {
        "when": _time(entry.when_ms),
        "by_whom": entry.by_whom,
        "read_from_cluster": entry.read_from_cluster,
        "read_from_topic": entry.read_from_topic,
        "produced_into_cluster": entry.produced_into_cluster,
        "produced_into_topic": entry.produced_into_topic,
    }


def _time(when_ms: int) -> datetime | None:
    """Return a time, or None if it is not in the years 1 to 9999, for the writer chooses it."""
    try:
        return _EPOCH + timedelta(milliseconds=when_ms)
    except OverflowError:
        return None
