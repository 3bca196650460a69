"""Real small records, and a dictionary that was trained on them."""

from __future__ import annotations

import json
from functools import cache

from vega_datasets import local_data

from headerware.core.headers import EMPTY
from headerware.dictionaries import Dictionary
from headerware.ops.dictionaries import Sample, train


@cache
def airports() -> list[bytes]:
    """Return the airports of the United States, as one JSON object of some 150 bytes each."""
    return [json.dumps(row).encode() for row in local_data.airports().to_dict("records")]


def samples() -> list[Sample]:
    return [Sample(None, value, EMPTY) for value in airports()]


@cache
def trained(size_bytes: int = 16 << 10) -> Dictionary:
    """Return a dictionary of a size; another size is another dictionary."""
    return train(samples(), size_bytes=size_bytes).dictionary
