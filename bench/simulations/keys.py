"""Key services: producers make data keys, and consumers unwrap each data key that they meet."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np
from simulations.section import MB, Anchor, Rows, Section, Table, count

from headerware.core.bounded_cache import BoundedCache
from headerware.keyring.services import DataKeys, Wrapped
from headerware.keyring.services.data_keys import CACHE_ENTRIES

KEY_LIFE_S: Final = 3_600.0
RENEWED_AT: Final = 0.8
SPREAD: Final = 0.2
"""A successor is asked for at a random age between 0.6 and 0.8 of a life."""
RENEWED_MEAN_S: Final = (RENEWED_AT - SPREAD / 2) * KEY_LIFE_S
DATA_KEY_BYTES: Final = 600
QUOTA: Final = 10_000.0
"""Calls a second: a usual quota of a cloud's key service for an account and a region."""


@dataclass(frozen=True)
class Calls:
    """Calls a second: the mean over 24 hours, and the maxima of the first and of the last hour."""

    mean: float
    first: float
    last: float


def renewals(producers: int, deploy_s: float, records_per_s: float, spread: float, seed: int) -> Calls:
    """Return how often new data keys are asked for.

    A producer asks for its first key when it starts, and for the next one with the first record that comes
    after a random part of a key's life: between 0.8 less ``spread``, and 0.8.
    """
    rng = np.random.default_rng(seed)
    at = rng.random(producers) * deploy_s
    buckets = np.zeros(24 * 3600 + 1, dtype=np.int64)
    while at.size:
        buckets += np.bincount(at.astype(np.int64), minlength=buckets.size)
        lives = KEY_LIFE_S * (RENEWED_AT - spread * rng.random(at.size))
        at = at + lives - np.log1p(-rng.random(at.size)) / records_per_s
        at = at[at < 24 * 3600]
    return Calls(float(buckets.mean()), float(buckets[:3600].max()), float(buckets[-3600:].max()))


def misses(
    keys: int, cache_entries: int, records: int, skew: float, seed: int, renewed_by: float = 0.0
) -> float:
    """Return the share of records whose data key is not in the cache; each key was asked for once before.

    A random share of the records, ``renewed_by``, come first under a new key of their producers.
    """
    rng = np.random.default_rng(seed)
    weights = np.cumsum(np.arange(1, keys + 1, dtype=np.float64) ** -skew)
    drawn = np.searchsorted(weights, rng.random(records) * weights[-1])
    renewed = rng.random(records) < renewed_by
    newest = list(range(keys))
    made = 0

    def make(key: int) -> int:
        nonlocal made
        made += 1
        return key

    cache: BoundedCache[int, int] = BoundedCache(cache_entries, make)
    for key in range(keys):
        cache[key]
    before, drawn_keys = made, 0
    for producer, is_renewed in zip(drawn.tolist(), renewed.tolist(), strict=True):
        if is_renewed:
            drawn_keys += 1
            newest[producer] = keys + drawn_keys
        cache[newest[producer]]
    return (made - before) / records


def measured_data_key_bytes() -> float:
    class Service:
        is_local = True

        def wrap(self, key_id: str, data_key: bytes, context: bytes) -> Wrapped:
            raise NotImplementedError

        def unwrap(self, _key_id: str, wrapped: bytes, _context: bytes) -> bytes:
            return wrapped[:32]

        def close(self) -> None:
            pass

    number = 10_000
    with closing(DataKeys(Service(), cache_entries=4 * number)) as keys:
        tracemalloc.start()
        for at in range(number):
            # A key that a cloud's service has wrapped has some 180 bytes; each record is read anew.
            keys.to_read("orders", at.to_bytes(184, "big"), b"cluster-of-22-letters/orders".decode())
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    return size / number


def key_tables(size: float) -> Iterator[Table]:
    rows: Rows = []
    producers = max(100, int(100_000 * size))
    for deploy_s, rate in ((60.0, 1.0), (600.0, 1.0), (3600.0, 1.0), (60.0, 1 / 60), (60.0, 1 / 600)):
        calls = renewals(producers, deploy_s, rate, SPREAD, seed=1)
        found = calls.mean, calls.first, calls.last, renewals(producers, deploy_s, rate, 0.0, seed=1).last
        rows.append((f"{deploy_s / 60:g} min", f"{count(rate * 60)} a minute", *map(count, found)))
    yield Table(
        "keys-made",
        (
            "100,000 producers start within",
            "records of each",
            "calls to wrap, a second",
            "most in a second of the first hour",
            "of the 24th hour",
            "the same, were the age not random",
        ),
        rows,
    )
    rows = []
    for producers in (1_000, 10_000, 100_000):
        for consumers in (10, 100, 1_000):
            wraps = producers / RENEWED_MEAN_S
            unwraps = wraps * consumers
            life = (wraps + unwraps) / QUOTA * KEY_LIFE_S / 3600
            rows.append(
                (f"{producers:,}", f"{consumers:,}", count(wraps), count(unwraps), count(max(life, 1.0)))
            )
    yield Table(
        "keys-unwrapped",
        (
            "producers",
            "processes that read all of them",
            "calls to wrap, a second",
            "calls to unwrap, a second",
            "life of a key that 10,000 calls a second allow, h",
        ),
        rows,
    )
    rows = []
    records = int(60_000 * size)
    renewed_by = 60.0 / RENEWED_MEAN_S
    for keys in (500, 1_000, 2_000, 8_000, 10_000, 100_000):
        found = (
            misses(keys, 1_024, records, 0.0, seed=2),
            misses(keys, CACHE_ENTRIES, records, 0.0, seed=2),
            misses(keys, CACHE_ENTRIES, records, 1.0, seed=2),
            misses(keys, CACHE_ENTRIES, records, 0.0, seed=2, renewed_by=renewed_by),
        )
        size = min(keys, CACHE_ENTRIES) * DATA_KEY_BYTES / MB
        rows.append((f"{keys:,}", *(f"{part:.1%}" for part in found), count(size)))
    yield Table(
        "keys-remembered",
        (
            "data keys in use on the partitions of a process",
            "records that need a call, 1,024 entries",
            f"{CACHE_ENTRIES:,} entries, the default",
            "the same, Zipf's producers",
            "producers alike, keys renewed",
            "memory of the keys, MB",
        ),
        rows,
    )


SECTION: Final = Section(
    "keys",
    key_tables,
    (Anchor("memory of a data key, bytes", DATA_KEY_BYTES, "bytes", measured_data_key_bytes),),
)
