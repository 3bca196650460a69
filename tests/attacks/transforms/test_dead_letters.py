"""Dead letters of poisoned records: they say what was wrong, quote no value, and are of limited size."""

from __future__ import annotations

from typing import Final

import pytest

from headerware import DROP, Chain, Context, Record
from headerware.interceptors.serialize import Serialize
from headerware.interceptors.transforms import Transforms
from headerware.serdes.connect import Connect

SECRET: Final = "hunter2"
LONG: Final = "n" * 900_000
LINES: Final = {
    "transforms": "mask,cast",
    "transforms.mask.type": "MaskField$Value",
    "transforms.mask.fields": "a.ssn",
    "transforms.cast.type": "Cast$Value",
    "transforms.cast.spec": "number:int8",
}


@pytest.mark.parametrize("names", ["connect", "spring"])
@pytest.mark.parametrize(
    "payload",
    [
        f'{{"a": ["{SECRET}"]}}',
        f'{{"a.ssn": "{SECRET}"}}',
        f'{{"number": "{SECRET}"}}',
        f'{{"number": 3000, "x": "{SECRET}"}}',
        f'{{"{LONG}": 1, "{LONG}": "{SECRET}"}}',
        f'{{"x": "{SECRET}", {"[" * 5000}',
        f'"{SECRET}"',
    ],
    ids=["list", "dotted", "text", "number", "long name", "malformed", "no object"],
)
def test_of_a_poisoned_record(payload: str, names: str) -> None:
    published: list[Record] = []
    policy = {"on_error": "dead_letter", "dead_letter_headers": names}
    chain = Chain(
        [
            Transforms(config=LINES, on="consume", **policy),  # type: ignore[arg-type]  # words, one by one
            Serialize(value=Connect(options={"schemas.enable": False}), **policy),  # type: ignore[arg-type]  # likewise
        ]
    )
    session = chain.open(Context(publish=published.append))
    record = Record("people", payload.encode(), offset=7, partition=0)
    assert session.consume_outcome(record) is DROP
    (letter,) = published
    assert letter.value == record.value
    reason = b"".join(value or b"" for _, value in letter.headers)
    assert SECRET.encode() not in reason
    assert len(reason) < 20_000
