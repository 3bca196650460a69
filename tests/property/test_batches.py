"""The outcomes of a batch are those of its records one by one: any chain, good records and bad ones."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware import DROP, Chain, Context, Headers, Interceptor, InterceptorError, Record
from headerware.core.batch import Batch, HeaderColumns, Repeated
from headerware.core.hooks import FanOut
from headerware.interceptors import Compress, Dedup, Encrypt, HeaderIds, Serialize, Sign, Slice, Trace, Trail
from headerware.keyring import with_new_key
from headerware.keyring.services import FileKeys
from headerware.keyring.writing import edit_keyring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from headerware.core.session import Session

NOW = 1_700_000_000_000
CLUSTER = "c" * 22
BAD = b"bad"


class Judge:
    """A step that knows records only, and treats some of them in another way."""

    name = "judge"
    refusal: type[Exception] = ValueError

    def __init__(self, on_error: str | None = None) -> None:
        self.on_error = on_error

    def on_send(self, record: Record) -> Any:
        value = record.value
        if not isinstance(value, bytes):
            return record
        if value.startswith(BAD):
            raise self.refusal("no")
        if value.startswith(b"drop"):
            return DROP
        if value.startswith(b"wait"):
            return []
        return 5 if value.startswith(b"wrong") else record

    on_consume = on_send


class Columns(Judge):
    """The same for batches: it refuses some, and leaves others to its single hook."""

    name = "columns"
    refusal = InterceptorError

    def on_send_batch(self, batch: Batch) -> Batch:
        failures, not_taken = {}, []
        for at, value in enumerate(batch.values):
            if isinstance(value, bytes) and value.startswith(BAD):
                failures[at] = self.refusal("no")
            elif isinstance(value, bytes) and value.startswith((b"drop", b"wait", b"wrong")):
                not_taken.append(at)
        return batch.replace(failures=failures, not_taken=not_taken)

    on_consume_batch = on_send_batch


class Spread(Judge):
    """A step that makes several records of some, and each only when it is taken."""

    name = "spread"

    def on_send(self, record: Record) -> Any:
        if record.value != b"several":
            return record
        return FanOut(2, lambda: iter([record.with_value(b"one"), record.with_value(b"two")]))

    on_consume = on_send


@pytest.fixture(scope="module")
def keyring(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("keys") / "keys.json"
    edit_keyring(path, lambda keys: with_new_key(keys, "hmac", "hmac-sha256"), create=True)
    edit_keyring(path, lambda keys: with_new_key(keys, "ed", "ed25519"))
    edit_keyring(path, lambda keys: with_new_key(keys, "aes", "aes-256"))
    return str(path)


@pytest.fixture(autouse=True)
def _same_ids() -> Iterator[None]:
    """Let both sessions draw the same ids and salts."""
    with patch.object(os, "urandom", bytes):
        yield


# The steps of a chain, in their order; each is there or not, in one of its forms.
Make = "Callable[[str, str], object]"
TOPICS = ("orders", "payments")
errors = st.sampled_from(["raise", "drop", "dead_letter"])
STEPS: list[st.SearchStrategy[Any]] = [
    st.builds(lambda on_error: lambda _: Judge(on_error), st.sampled_from([None, "skip", "drop"])),
    st.builds(lambda on_error: lambda _: Columns(on_error), st.sampled_from([None, "skip", "dead_letter"])),
    st.just(lambda _: Spread()),
    st.builds(lambda on_error: lambda _: Trail(service="s", on_error=on_error), errors | st.just("skip")),
    st.just(lambda _: Trace()),
    st.builds(
        lambda by_key, on_error: lambda _: Dedup(id_from_key=by_key, on_error=on_error), st.booleans(), errors
    ),
    st.builds(
        lambda codec, on_error: lambda _: Compress(codec=codec, min_bytes=1, on_error=on_error),
        st.sampled_from(["zstd", "gzip"]),
        errors,
    ),
    st.builds(
        lambda nulls, on_error: (
            lambda keys: Encrypt(
                key_service=FileKeys(keyring=keys),
                key_id="aes",
                nulls=nulls,
                on_error=on_error,
                topics=("orders",),
            )
        ),
        st.sampled_from(["pass", "authenticate"]),
        errors,
    ),
    st.builds(lambda on_error: lambda _: Slice(max_bytes=1_500, on_error=on_error), errors),
    st.builds(
        lambda key_id, require, window, uncovered, on_error: (
            lambda keys: Sign(
                keyring=keys,
                key_id=key_id,
                require=require,
                replay_window=window,
                uncovered=uncovered,
                covered=("must",) if window == 2 else (),
                on_error=on_error,
            )
        ),
        st.sampled_from(["hmac", "ed"]),
        st.sampled_from(["off", "warn", "enforce"]),
        st.sampled_from([0, 2, 50]),
        st.sampled_from(["strip", "refuse", "pass"]),
        errors,
    ),
    st.builds(lambda form: lambda _: HeaderIds(form=form), st.sampled_from(["packed", "keys"])),
]


@st.composite
def chains(draw: st.DrawFn) -> list[Callable[[str], Any]]:
    kept = draw(st.lists(st.booleans(), min_size=len(STEPS), max_size=len(STEPS)))
    return [draw(step) for step, is_kept in zip(STEPS, kept, strict=True) if is_kept]


names = st.sampled_from(
    ["a", "must", "content-type", "hw.trail", "hw.sig", "hw.compress", "traceparent", "~A"]
)
contents = st.none() | st.sampled_from(
    [b"", b"1", b"zstd", b"image/png", b"1,at=5;by=x;from=c/t", b"1;left=9,at=5", b"2,at=5"]
)
pairs = st.lists(st.tuples(names, contents), max_size=3)
good_pairs = st.lists(
    st.tuples(st.sampled_from(["a", "must", "content-type"]), st.sampled_from([b"1", b"image/png"])),
    max_size=2,
)
values = st.sampled_from(
    [None, b"", b"v" * 90, b"bad", b"drop", b"wait", b"wrong", b"several", bytes(4_000), "text", 5, {"n": 1}]
) | st.binary(max_size=30)
keys = st.none() | st.sampled_from([b"k", b"", "text"])


def record_of(topic: str, value: Any, key: Any, headers: Any, offset: int) -> Record:
    return Record(topic, value, key, Headers(headers), 0, NOW, 1, offset, None, {"mine": offset})


sent_records = st.lists(
    st.builds(record_of, st.sampled_from(TOPICS), values, keys, pairs | good_pairs, st.integers(0, 5)),
    min_size=1,
    max_size=8,
)


def opened(makes: Iterable[Callable[[str], Any]], keyring: str, side: str, letters: list[Record]) -> Session:
    steps = [make(keyring) for make in makes]
    if side == "producer" and any(isinstance(step, Encrypt) for step in steps):
        steps = list(map(_without_dead_letters, steps))
    return Chain(steps).open(
        Context(
            side=side,  # type: ignore[arg-type]  # one of the two
            client_id="client",
            now_ms=lambda: NOW,
            cluster_id=lambda: CLUSTER,
            publish=letters.append,
            warns=False,
        )
    )


@pytest.fixture(scope="module", autouse=True)
def one_trace() -> Iterator[None]:
    """Let all dead letters have one trace: other code runs for a batch, and slices count bytes."""
    with patch("headerware.core.dead_letter._stacktrace", return_value="a line of code"):
        yield


def _without_dead_letters(step: Any) -> Any:
    """Return a step for a chain that encrypts, in which a producer has no dead letters."""
    if step.on_error != "dead_letter":
        return step
    if isinstance(step, Interceptor):
        return msgspec.structs.replace(step, on_error="drop")
    step.on_error = "drop"
    return step


def shown(outcome: Any) -> Any:
    """Return what tells one outcome from another; an error's position and texts included."""
    if isinstance(outcome, Record):
        local = dict(outcome.local or {})
        mine = {name: local.get(name) for name in ("mine", "headerware.verified")}
        return outcome.replace(local=None), mine
    if isinstance(outcome, BaseException):
        return type(outcome), str(outcome), type(outcome.__cause__)
    return outcome if outcome is DROP else list(taken(outcome))


def taken(several: Iterable[Record]) -> Iterator[Any]:
    try:
        for each in several:
            yield shown(each)
    except Exception as error:  # noqa: BLE001 - what a lazy record raises is shown, too
        yield shown(error)


def seen(outcomes: Iterable[Any], session: Session, letters: list[Record]) -> dict[str, Any]:
    """Return all that a session has done."""
    found = {
        "outcomes": list(map(shown, outcomes)),
        "stats": {name: _without_cache(counts) for name, counts in session.stats().items()},
        "letters": sorted(repr(shown(letter)) for letter in letters),
        "offsets": (session.safe_offsets(), session.waiting_offsets()),
    }
    session.close()
    return found


def _without_cache(counts: Mapping[str, int]) -> dict[str, int]:
    """Return counters without those of data keys, for which a batch asks together."""
    return {name: count for name, count in counts.items() if not name.startswith("data_keys_")}


def one_by_one(
    makes: Sequence[Callable[[str], Any]], keyring: str, side: str, records: Sequence[Record]
) -> dict[str, Any]:
    letters: list[Record] = []
    session = opened(makes, keyring, side, letters)
    go = session.send_outcome if side == "producer" else session.consume_outcome
    return seen([go(record) for record in records], session, letters)


def together(
    makes: Sequence[Callable[[str], Any]], keyring: str, side: str, records: Sequence[Record]
) -> dict[str, Any]:
    letters: list[Record] = []
    session = opened(makes, keyring, side, letters)
    go = session.send_outcomes if side == "producer" else session.consume_outcomes
    return seen(go(records), session, letters)


def of_one_topic(records: Sequence[Record]) -> list[Record]:
    return [record.replace(topic=records[0].topic) for record in records]


class TestSending:
    @given(makes=chains(), records=sent_records)
    def test_records(self, keyring: str, makes: Any, records: list[Record]) -> None:
        given = of_one_topic(records)
        assert together(makes, keyring, "producer", given) == one_by_one(makes, keyring, "producer", given)

    @given(makes=chains(), records=sent_records)
    def test_records_of_several_topics(self, keyring: str, makes: Any, records: list[Record]) -> None:
        """Each topic is a batch, so that sequences, which go over all topics, are given in another order."""
        unnumbered = [make for make in makes if not isinstance(make(keyring), Dedup | Sign)]
        expected = one_by_one(unnumbered, keyring, "producer", records)
        assert together(unnumbered, keyring, "producer", records) == expected

    @given(makes=chains(), given_values=st.lists(values, min_size=1, max_size=8), own=good_pairs, key=keys)
    def test_columns(self, keyring: str, makes: Any, given_values: list[Any], own: Any, key: Any) -> None:
        count = len(given_values)
        headers = [
            *((name, Repeated(content, count)) for name, content in own),
            ("number", [b"%d" % number for number in range(count)]),
        ]
        batch = Batch(
            "orders",
            given_values,
            keys=Repeated(key, count),
            headers=HeaderColumns(headers, count),
            timestamps_ms=Repeated(NOW, count),
        )
        expected = one_by_one(makes, keyring, "producer", list(batch))
        assert together(makes, keyring, "producer", batch) == expected

    @given(
        makes=chains(),
        given_values=st.lists(st.sampled_from([None, {"n": 1}, "text", float("nan"), object()]), min_size=1),
        key=st.none() | st.just({"id": 5}),
        form=st.sampled_from(["columns", "records"]),
    )
    def test_objects(self, keyring: str, makes: Any, given_values: list[Any], key: Any, form: str) -> None:
        serialize = Serialize(value="json", key="json" if key else None)
        count = len(given_values)
        numbers = [b"%d" % number for number in range(count)]
        batch = Batch(
            "orders",
            given_values,
            keys=[key] * count,
            headers=HeaderColumns([("hw.source.record", numbers)] if form == "columns" else [], count),
        )
        whole = [lambda _: serialize, *makes]
        records = list(batch)
        expected = one_by_one(whole, keyring, "producer", records)
        assert together(whole, keyring, "producer", batch if form == "columns" else records) == expected


damage = st.sampled_from(
    ["", "", "", "value", "headers", "no header", "appended", "unsigned", "topic", "again"]
)


def damaged(record: Record, how: str, offset: int) -> Record:
    """Return a record as it might come, at an offset."""
    value, headers, topic = record.value, record.headers, record.topic
    if how == "value":
        value = (value or b"") + b"x"
    elif how == "headers" and headers:
        name, content = headers[0]
        headers = Headers([(name, (content or b"") + b"A"), *headers[1:]])
    elif how == "no header":
        headers = Headers(headers[1:])
    elif how == "appended":
        headers = Headers([*headers, ("late", b"1")])
    elif how == "unsigned":
        headers = headers.remove("hw.sig")
    elif how == "topic":
        topic = TOPICS[topic == TOPICS[0]]
    return Record(topic, value, record.key, headers, 0, NOW, 1, offset, 3)


def on_the_wire(makes: Any, keyring: str, records: Sequence[Record]) -> list[Record]:
    letters: list[Record] = []
    session = opened(makes, keyring, "producer", letters)
    found: list[Record] = []
    for record in records:
        outcome = session.send_outcome(record)
        if isinstance(outcome, Record):
            found.append(outcome)
        elif isinstance(outcome, list | FanOut):
            found.extend(outcome)
    session.close()
    return found


readable = st.sampled_from([None, b"v" * 90, b"x", b"bad", b"drop", bytes(4_000), b"several"])
read_records = st.lists(
    st.builds(
        record_of, st.sampled_from(TOPICS), readable, st.sampled_from([None, b"k"]), good_pairs, st.just(0)
    ),
    min_size=1,
    max_size=6,
)


class TestConsuming:
    @given(
        makes=chains(),
        records=read_records,
        damages=st.lists(damage, min_size=12, max_size=12),
        leaves_out=st.none() | st.integers(0, len(STEPS)),
    )
    def test_records(
        self, keyring: str, makes: Any, records: list[Record], damages: list[str], leaves_out: int | None
    ) -> None:
        quiet = [make for make in makes if not isinstance(make(keyring), Judge)]
        wire = on_the_wire(quiet, keyring, of_one_topic(records))
        remembers = any(getattr(make(keyring), "replay_window", 0) for make in makes)
        came: list[Record] = []
        for record, how in zip(wire, damages * len(wire), strict=False):
            came.append(damaged(record, how, len(came)))
            # A replay within one batch is refused only when it is to be accepted: more steps have counted it.
            if how == "again" and not remembers:
                came.append(damaged(record, "", len(came)))
        readers = [make for at, make in enumerate(makes) if at != leaves_out]
        expected = one_by_one(readers, keyring, "consumer", came)
        assert together(readers, keyring, "consumer", came) == expected
