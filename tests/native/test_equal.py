"""Native code makes of a batch what Python makes of it: of good, changed and crafted records."""

from __future__ import annotations

import logging
import os
import random
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from gzip import compress as gzip
from threading import Event
from time import sleep
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
import zstandard
from msgspec import structs
from opentelemetry.metrics import _internal as metrics_api
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from headerware import Chain, Context, Headers, Record
from headerware.core import native, runner
from headerware.core.batch import Batch, HeaderColumns, Repeated
from headerware.core.record import ORIGINAL
from headerware.dictionaries import FolderDictionaries
from headerware.interceptors import (
    Compress,
    Dedup,
    Encrypt,
    Expire,
    HeaderIds,
    Metrics,
    Sign,
    Slice,
    Trail,
)
from headerware.keyring import with_revocation, with_rotation
from headerware.keyring.services import FileKeys
from headerware.keyring.writing import edit_keyring
from tests.airports import airports, trained

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from headerware.core.session import Session

NOW = 1_760_000_000_000
CLUSTER = "c" * 22
TOPIC = "airports"
BATCHES = 130
LARGEST = 200
CHAINS, EACH = (1_000, 1_000) if os.environ.get("HYPOTHESIS_PROFILE") == "full" else (45, 450)
"""How many chains with drawn options are compared, and with how many records each."""
Steps = Callable[[], list[Any]]


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


def opened(steps: Sequence[Any], side: Any, clock: Clock, letters: list[Record]) -> Session:
    context = Context(
        side=side,
        client_id="client",
        now_ms=clock,
        cluster_id=lambda: CLUSTER,
        publish=letters.append,
        warns=False,
    )
    return Chain(list(steps)).open(context)


class Crafted:
    """Records that a producer with a key has sent, and records that somebody changed or crafted."""

    def __init__(self, seed: int, steps: Sequence[Any]) -> None:
        self.random = random.Random(seed)
        with opened(steps, "producer", Clock(), []) as session:
            self.good = [wire for record in self.plain() for wire in session.send([record])]
            self.good += session.send([record for record in self.plain() if record.value])
        self.crafted = list(self._with_odd_headers())
        for sign in (step for step in steps if isinstance(step, Sign)):
            signing = sign.open(Context(now_ms=Clock(), cluster_id=lambda: CLUSTER))
            self.crafted = list(map(signing.on_send, self.crafted))

    def plain(self) -> Iterator[Record]:
        for value in [*airports()[:12], b"", None, b"x" * 5_000, bytes(40_000)]:
            count = self.random.randrange(4)
            draw = self.random.choice
            headers = Headers((draw("abc"), draw([None, b"", b"1"])) for _ in range(count))
            yield Record(TOPIC, value, self.random.choice([None, b"", b"key"]), headers)

    def _with_odd_headers(self) -> Iterator[Record]:
        frame = zstandard.ZstdCompressor().compress(b"plain" * 50)
        sizeless = zstandard.ZstdCompressor(write_content_size=False).compress(b"plain" * 50)
        skippable = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
        values = [
            None, b"", b"x", frame, frame[:-1], frame + b"\0", frame + frame, skippable, skippable + frame,
            frame + skippable, sizeless, sizeless + frame, zstandard.compress(b""),
            zstandard.compress(bytes(1 << 20)), zstandard.ZstdCompressor(write_checksum=True).compress(frame),
            gzip(b"g" * 400, mtime=0), gzip(b"", mtime=0), gzip(b"g", mtime=0) * 2,
            b"\x28\xb5\x2f\xfd\xa0\xff\xff\xff\x7f\0\0\0", trained().content,
        ]  # fmt: skip
        named = [b64encode(bytes([version]) + bytes(16)) for version in (1, 2)]
        marks = [None, b"", b"zstd", b"ZSTD", b"gzip", b"br", *named]
        for value in values:
            for mark in marks:
                yield Record(TOPIC, value, None, Headers([("hw.compress", mark)]))
            yield Record(
                TOPIC, value, b"k", Headers([("hw.compress", b"zstd"), ("a", b"1"), ("hw.compress", b"zstd")])
            )
        entry = b",at=5;by=x;from=c/t"
        trails = [
            None, b"", b"1", b"2", b"11" + entry, b"1, at=1", b"1,at=5;by=\xc3\xa9", b"1,,,," * 9,
            b"1" + entry, b"1" + entry * 31, b"1" + entry * 32, b"1" + entry * 40, b"1,x,y" * 40,
            b"1;left=9" + entry * 40, b"1;left=65535" + entry * 40, b"1;left=0" + entry * 40,
            b"1;left=65536" + entry * 40, b"1;garbage" + entry, b"1" + entry + b";into=a/b",
            b"1," + b"x" * 5_000, b"1" + entry + b",at=6" + b"y" * 4_000, b"1" + entry * 3_000,
            b"1" + entry * 4_000,
        ]  # fmt: skip
        for trail in trails:
            yield Record(TOPIC, b"v", b"k", Headers([("hw.trail", trail), ("b", b"2")]))
            yield Record(TOPIC, b"v", b"k", Headers([("hw.trail", trail), ("hw.trail", b"1"), ("b", b"2")]))
            yield Record(TOPIC, b"v", b"k", Headers([("hw.trail", b"1" + entry), ("hw.trail", trail)]))

        names = [
            "~",
            "~A",
            "~B",
            "~BAAE",
            "~~x",
            "~~",
            "~_____",
            "~____________",
            "~ä",
            "0.0.0.5",
            "9.9.9.9",
            "1.2.3",
        ]
        for name in names:
            yield Record(TOPIC, b"v", b"k", Headers([(name, None), ("b", b"2"), (name, b"1")]))
        blocks = [
            None, b"", b"1", b'1"!', b'1"#a', b'1"$a', b'1!"', b'1"!!#"!', b'1"!!!', b'2"!', b"1~~~~~~",
            b'1"~~~~~', b"1~~~~~!!", b'1"!' * 9, b'1"!' + b'#"v' * 50,
        ]  # fmt: skip
        for block in blocks:
            yield Record(
                TOPIC, b"v", b"k", Headers([("a", b"1"), ("hw.ids", block), ("~~b", b"2"), ("c", b"")])
            )
            yield Record(TOPIC, b"v", b"k", Headers([("hw.ids", b'1"!'), ("hw.ids", block)]))

    def changed(self) -> Record:
        """Return a record in which somebody changed some parts."""
        record = self.random.choice(self.good)
        for _ in range(self.random.choice([1, 1, 1, 2, 4])):
            record = self._changed(record)
        return record

    def _changed(self, record: Record) -> Record:
        draw, headers = self.random, list(record.headers)
        at = draw.randrange(len(headers) + 1)
        match draw.randrange(10):
            case 0:
                return record.replace(value=self._other(record.value))
            case 1:
                return record.replace(key=self._other(record.key))
            case 2:
                headers.insert(
                    at,
                    draw.choice(
                        [("x", b"1"), ("hw.sig", b"1"), ("hw.x", b""), ("a\0b", b""), ("hw.trail", b"1")]
                    ),
                )
            case 3 if headers:
                headers.insert(at, draw.choice(headers))
            case 4 if headers:
                del headers[at - 1]
            case 5:
                draw.shuffle(headers)
            case 6 if headers:
                name, content = headers[at - 1]
                headers[at - 1] = (draw.choice([name + "x", name[:-1], name.upper(), "ä", ""]), content)
            case 7:
                other = draw.choice(self.good)
                return draw.choice([record.with_headers(other.headers), record.replace(value=other.value)])
            case _ if headers:
                name, content = headers[at - 1]
                headers[at - 1] = name, self._other_layout(content)
        return record.replace(headers=Headers(headers))

    def _other_layout(self, content: bytes | None) -> bytes | None:
        """Change a header's value, or the layout that it has in base64."""
        try:
            layout = b64decode(content or b"", validate=True)
        except ValueError:
            return self._other(content)
        if not layout or self.random.random() < 0.3:
            return self._other(content)
        if self.random.random() < 0.2:
            return b64encode(bytes([self.random.randrange(4)]) + layout[1:])  # another version
        return b64encode(self._other(layout) or b"")

    def _other(self, content: bytes | None) -> bytes | None:
        draw = self.random
        if not content:
            return draw.choice([None, b"", b"1"])
        at = draw.randrange(draw.choice([len(content), min(len(content), 16)]))
        size = draw.choice([1, 2, 4, 8])
        return draw.choice([
            None, b"", content[:at], content + content[:1], content[at:], content[:at] + content[at + size :],
            content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :],
            content[:at] + draw.choice([b"\0", b"\x7f", b"\xff"]) * size + content[at + size :],
        ])  # fmt: skip

    def batch(self, offset: int) -> Sequence[Record]:
        """Return good records, and a share of others, at positions from an offset on."""
        draw = self.random
        share = draw.choice([0, 0, 0, 0.02, 0.3, 1])
        records = []
        for index in range(draw.randrange(1, LARGEST)):
            if draw.random() >= share:
                record = draw.choice(self.good)
            else:
                record = draw.choice(self.crafted) if draw.random() < 0.5 else self.changed()
            local = draw.choice([None, None, {"mine": index}]) if share else None
            records.append(record.replace(partition=1, offset=offset + index, timestamp_ms=NOW, local=local))
        return _columns(records) if draw.random() < 0.5 else records


def _columns(records: Sequence[Record]) -> Batch:
    first = records[0]
    same = [record for record in records if record.headers.names() == first.headers.names()]
    names = first.headers.names()
    headers = HeaderColumns(
        [(name, [record.headers[at][1] for record in same]) for at, name in enumerate(names)], len(same)
    )
    return Batch(
        TOPIC,
        [record.value for record in same],
        keys=[record.key for record in same],
        headers=headers,
        partitions=Repeated(1, len(same)),
        offsets=[record.offset for record in same],
        timestamps_ms=Repeated(NOW, len(same)),
    )


def shown(outcome: Any) -> Any:
    if isinstance(outcome, BaseException):
        return type(outcome), str(outcome), type(outcome.__cause__), str(outcome.__cause__)
    return [_without_own_state(record) for record in outcome] if isinstance(outcome, list) else outcome


def _without_own_state(record: Record) -> Record:
    """Take from the original of an assembled message what `sign` left to do, which knows its own session."""
    original: Record | None = (record.local or {}).get(ORIGINAL)
    if original is None or not original.local:
        return record
    kept = {name: state for name, state in original.local.items() if name != "hw.unaccepted"}
    return record.with_local(ORIGINAL, original.replace(local=kept))


class Watched:
    """How many records native code was given, and how many it took."""

    def __init__(self) -> None:
        self.given = self.taken = 0

    def watching(self) -> Any:
        take: Any = native.NativeRun.__call__

        def call(run: native.NativeRun, batch: Batch) -> Batch | None:
            out: Batch | None = take(run, batch)
            self.count(batch, out)
            return out

        return patch.object(native.NativeRun, "__call__", call)

    def count(self, batch: Batch, out: Batch | None) -> None:
        self.given += len(batch)
        self.taken += 0 if out is None else len(batch) - len(out.not_taken)


Reported = dict[str, dict[frozenset[tuple[str, Any]], Any]]
"""Metrics by name and attributes."""


@contextmanager
def exported() -> Iterator[Callable[[], Reported]]:
    """Let ``metrics`` report to a real SDK, and read there what an exporter would get."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)

    def reported() -> Reported:
        found = reader.get_metrics_data()
        metrics = [] if found is None else found.resource_metrics[0].scope_metrics[0].metrics
        return {
            metric.name: {
                frozenset((point.attributes or {}).items()): point.value  # type: ignore[union-attr]
                for point in metric.data.data_points
            }
            for metric in metrics
        }

    with patch.object(metrics_api, "_METER_PROVIDER", provider):
        yield reported
    provider.shutdown()


def require_equal_reports(mine: Reported, theirs: Reported) -> None:
    """Require the same counts, and some time for the same steps."""
    for reported in mine, theirs:
        events = reported.pop("headerware.interceptor.events", {})
        # For data keys, a batch asks together, and single hooks do not.
        reported["events"] = {
            by: value for by, value in events.items() if not any("data_keys_" in str(each) for each in by)
        }
    times = [reported.pop("headerware.interceptor.time", {}) for reported in (mine, theirs)]
    assert times[0].keys() == times[1].keys()
    assert all(time_s > 0 for time in times for time_s in time.values())
    assert mine == theirs


def outcomes(
    steps: Sequence[Any], side: Any, batches: Sequence[Any], between: Callable[[int, Clock], object] | None
) -> dict[str, Any]:
    letters: list[Record] = []
    clock = Clock()
    with exported() as reported:
        session = opened(steps, side, clock, letters)
        go = session.send_outcomes if side == "producer" else session.consume_outcomes
        found: list[Any] = []
        for number, batch in enumerate(batches):
            if between is not None:
                between(number, clock)
            found.append(list(map(shown, go(batch))))
        counts, metrics = session.stats(), reported()
        session.close()
    return {"outcomes": found, "stats": counts, "letters": letters, "metrics": metrics}


def compare(
    steps: Steps, side: Any, batches: Sequence[Any], restore: Callable[[], object] = lambda: None,
    between: Callable[[int, Clock], object] | None = None,
) -> Watched:  # fmt: skip
    watched = Watched()
    with (
        watched.watching(),
        patch("headerware.core.dead_letter._stacktrace", return_value="a line"),
        patch("os.urandom", bytes),  # a large dead letter is sent in slices, whose message has a random id
    ):
        mine = outcomes(steps(), side, batches, between)
        restore()
        with patch.object(runner, "native_module", return_value=(None, "off")):
            theirs = outcomes(steps(), side, batches, between)
    for name, counts in theirs["stats"].items():
        # For data keys, a batch asks together, and single hooks do not.
        different = dict(mine["stats"][name].items() ^ counts.items())
        assert [count for count in different if not count.startswith("data_keys_")] == [], name
    for number, (own, other) in enumerate(zip(mine["outcomes"], theirs["outcomes"], strict=True)):
        for index, (one, two) in enumerate(zip(own, other, strict=True)):
            assert one == two, (number, index)
            assert type(one) is type(two)
    assert mine["letters"] == theirs["letters"]
    require_equal_reports(mine["metrics"], theirs["metrics"])
    return watched


def consumed(steps: Steps, seed: int, **others: Any) -> Watched:
    crafted = Crafted(seed, steps())
    batches = [crafted.batch(number * LARGEST) for number in range(BATCHES)]
    return compare(steps, "consumer", batches, **others)


@pytest.mark.parametrize("on_error", ["raise", "drop", "dead_letter"])
@pytest.mark.parametrize("key_id", ["hmac", "ed25519", "ecdsa-p256"])
def test_signed_compressed_and_trailed(keyring: str, key_id: str, on_error: Any) -> None:
    def steps() -> list[Any]:
        return [
            Trail(service="s", on_error=on_error),
            Compress(on_error=on_error, min_bytes=10),
            Sign(keyring=keyring, key_id=key_id, on_error=on_error),
        ]

    watched = consumed(steps, 1)
    assert watched.taken > 0.6 * watched.given


@pytest.mark.parametrize("codec", ["zstd", "gzip"])
@pytest.mark.parametrize("require", ["off", "warn", "enforce"])
def test_steps_that_are_lenient(keyring: str, codec: Any, require: Any) -> None:
    def steps() -> list[Any]:
        return [
            Trail(max_entries=2, max_bytes=2_700),
            Compress(codec=codec, on_error="drop", min_bytes=0, margin=0, max_decompressed_bytes=4_000),
            Sign(keyring=keyring, key_id="hmac", require=require, cluster="other", max_age_ms=50),
        ]

    def between(number: int, clock: Clock) -> None:
        clock.now = NOW + number % 60

    assert consumed(steps, 2, between=between).taken > 3_000


def test_dictionaries(keyring: str, dictionaries: FolderDictionaries) -> None:
    def steps() -> list[Any]:
        return [Trail(), Compress(dictionaries=dictionaries), Sign(keyring=keyring, key_id="hmac")]

    watched = consumed(steps, 3)
    assert watched.taken > 0.6 * watched.given


def ticking(number: int, clock: Clock) -> None:
    """Let data keys need another check now and then."""
    clock.now = NOW + 150 * number


@pytest.mark.parametrize("nulls", ["authenticate", "pass"])
@pytest.mark.parametrize("window", [0, 9])
def test_encrypted(keyring: str, nulls: Any, window: int) -> None:
    def steps() -> list[Any]:
        return [
            Trail(),
            Compress(),
            Encrypt(key_service=FileKeys(keyring=keyring), key_id="aes", nulls=nulls, bind_headers=("a",)),
            Sign(keyring=keyring, key_id="hmac", replay_window=window, on_error="drop"),
        ]

    assert consumed(steps, 10, between=ticking).taken > 2_000


@pytest.mark.parametrize("require", ["off", "enforce"])
def test_encrypted_and_not_signed(keyring: str, require: Any) -> None:
    def steps() -> list[Any]:
        return [Encrypt(key_service=FileKeys(keyring=keyring), key_id="aes", require=require)]

    assert consumed(steps, 11, between=ticking).taken > 2_000


@pytest.mark.parametrize("on_error", ["drop", "dead_letter"])
def test_the_chain_of_six(keyring: str, dictionaries: FolderDictionaries, on_error: Any) -> None:
    """Some records are slices, and after a while the records have expired."""

    def steps(on_error: Any = on_error) -> list[Any]:
        return [
            Trail(on_error=on_error),
            Expire(after_ms=10_000, clock_skew_ms=1_000, on_error=on_error),
            Compress(dictionaries=dictionaries, on_error=on_error),
            Encrypt(key_service=FileKeys(keyring=keyring), key_id="aes", on_error=on_error),
            Slice(max_bytes=30_000, max_gap=300, on_error=on_error),
            Sign(keyring=keyring, key_id="hmac", on_error=on_error),
        ]

    crafted = Crafted(13, steps("drop"))
    noise = Record(TOPIC, random.Random(1).randbytes(50_000))
    with opened(steps("drop"), "producer", Clock(), []) as session:
        slices = session.send([noise])
    assert len(slices) > 1
    batches = [crafted.batch(number * LARGEST) for number in range(BATCHES)]
    for number in range(5, BATCHES, 10):
        whole = [each.replace(partition=1, offset=number * LARGEST, timestamp_ms=NOW) for each in slices]
        batches[number] = [*batches[number], *(whole[1:] if number % 20 == 5 else whole)]
    watched = compare(steps, "consumer", batches, between=ticking)
    assert watched.taken > 1_000


@pytest.mark.parametrize("form", ["packed", "keys"])
def test_header_ids(keyring: str, form: Any) -> None:
    def steps() -> list[Any]:
        return [
            Trail(on_error="drop"),
            Compress(on_error="drop"),
            Sign(keyring=keyring, key_id="hmac", on_error="drop"),
            HeaderIds(form=form, on_error="drop"),
        ]

    watched = consumed(steps, 14)
    assert watched.taken > 0.6 * watched.given


def test_header_ids_alone() -> None:
    watched = consumed(lambda: [HeaderIds(on_error="dead_letter")], 15)
    assert watched.taken > 0.6 * watched.given


@pytest.mark.parametrize("options", [{}, {"id_from": ("a",)}, {"store": "ids.db"}])
@pytest.mark.parametrize("window", [0, 1_000])
def test_identities(keyring: str, tmp_path: Path, options: dict[str, Any], window: int) -> None:
    """Most records are copies of others; some are dead letters, whose identity is another one."""
    store = tmp_path / "ids.db"
    options = options | ({"store": str(store)} if "store" in options else {})

    def steps(on_error: Any = "drop") -> list[Any]:
        return [
            Trail(on_error=on_error),
            Dedup(**options, on_error=on_error),
            Compress(on_error=on_error),
            Sign(keyring=keyring, key_id="hmac", replay_window=window, on_error=on_error),
        ]

    crafted = Crafted(17, steps())
    signing = steps()[-1].open(Context(now_ms=Clock(), cluster_id=lambda: CLUSTER))
    for value in [None, b"", b"1", *(record.headers.last("hw.id") for record in crafted.good[:5])]:
        for reasons in [(), ("__connect.errors.topic",), ("kafka_dlt-original-offset", "a")]:
            names = [("hw.id", value), *((name, b"7") for name in reasons)]
            crafted.crafted.append(signing.on_send(Record(TOPIC, b"v", b"k", Headers(names))))
    batches = [crafted.batch(number * LARGEST) for number in range(BATCHES)]
    watched = compare(steps, "consumer", batches, restore=lambda: store.unlink(missing_ok=True))
    assert watched.taken > (0.05 if window else 0.5) * watched.given  # replays are not taken


def test_encrypted_for_another_signer(keyring: str) -> None:
    """The records are genuine, but another trusted key has signed them."""

    def steps(key_id: str = "hmac") -> list[Any]:
        encrypt = Encrypt(key_service=FileKeys(keyring=keyring), key_id="aes")
        return [Compress(), encrypt, Sign(keyring=keyring, key_id=key_id)]

    crafted = Crafted(12, steps())
    other = steps("ed25519")[-1].open(Context(now_ms=Clock(), cluster_id=lambda: CLUSTER))
    resigned = [other.on_send(record.with_headers(Headers(record.headers[:-1]))) for record in crafted.good]
    assert all(record.headers.last("hw.sig") for record in resigned)
    crafted.crafted = resigned
    batches = [crafted.batch(number * LARGEST) for number in range(40)]
    assert compare(steps, "consumer", batches).taken > 1_000


def test_signatures_alone(keyring: str) -> None:
    def steps() -> list[Any]:
        return [Sign(keyring=keyring, key_id="hmac", uncovered="refuse", on_error="drop")]

    watched = consumed(steps, 9)
    assert watched.taken > 0.6 * watched.given


@pytest.mark.parametrize("on_error", ["raise", "dead_letter"])
def test_what_metrics_reports(keyring: str, on_error: Any) -> None:
    def steps() -> list[Any]:
        return [
            Metrics(),
            Trail(on_error=on_error),
            Compress(on_error=on_error),
            Encrypt(key_service=FileKeys(keyring=keyring), key_id="aes", on_error=on_error),
            Sign(keyring=keyring, key_id="hmac", on_error=on_error),
            HeaderIds(on_error=on_error),
        ]

    crafted = Crafted(16, [structs.replace(step, on_error="raise") for step in steps()])
    crafted.good += [record.with_headers(record.headers.add("\u00e4\u20ac", b"1")) for record in crafted.good]
    batches = [crafted.batch(number * LARGEST) for number in range(BATCHES)]
    watched = compare(steps, "consumer", batches, between=ticking)
    assert watched.taken > 0.3 * watched.given


def test_signatures_of_batches(keyring: str) -> None:
    def steps() -> list[Any]:
        return [Trail(), Compress(), Sign(keyring=keyring, key_id="ed25519", batch_records=8)]

    assert consumed(steps, 4).taken > 3_000


@pytest.mark.parametrize(
    "options", [{"replay_window": 9}, {"replay_window": 5_000}, {"covered": ("a",)}, {"uncovered": "pass"}]
)
def test_what_is_finished_once_records_are_accepted(keyring: str, options: Any) -> None:
    """Most records are copies of others, at other positions, and some lack a header that must be covered."""

    def steps() -> list[Any]:
        sign = Sign(keyring=keyring, key_id="hmac", on_error="dead_letter", **options)
        return [Metrics(), Trail(), Compress(on_error="drop"), sign, HeaderIds(on_error="drop")]

    crafted = Crafted(5, steps())
    watched = compare(steps, "consumer", [crafted.batch(number * LARGEST) for number in range(40)])
    assert watched.taken > 0.2 * watched.given


def test_records_that_come_again(keyring: str) -> None:
    """At the same positions they pass, as after a restart; at others they are replays."""

    def steps() -> list[Any]:
        return [Trail(), Compress(), Sign(keyring=keyring, key_id="hmac", replay_window=1_000)]

    with opened(steps(), "producer", Clock(), []) as session:
        sent = session.send([Record(TOPIC, b"%d" % number) for number in range(100)])
    placed = [record.replace(partition=1, offset=at) for at, record in enumerate(sent)]
    moved = [record.replace(offset=(record.offset or 0) + 1_000) for record in placed]
    batches = [placed, placed, [*placed[:50], *moved[:50]], moved, placed + moved]
    watched = compare(steps, "consumer", batches)
    assert watched.taken >= 350


def test_originals_that_are_kept(keyring: str) -> None:
    def steps() -> list[Any]:
        return [
            Trail(),
            Compress(),
            Slice(max_bytes=100_000, on_error="dead_letter"),
            Sign(keyring=keyring, key_id="hmac", on_error="dead_letter"),
        ]

    consumed(steps, 6)


def test_a_keyring_that_changes(keyring: str, tmp_path: Path) -> None:
    before = (tmp_path / "keys.json").read_bytes()

    def steps() -> list[Any]:
        return [Trail(), Compress(), Sign(keyring=keyring, key_id="hmac")]

    def between(number: int, clock: Clock) -> None:
        clock.now += 5_000  # so that the file is looked at again
        if number == 10:
            edit_keyring(keyring, lambda keys: with_rotation(keys, "hmac"))
        if number == 20:
            edit_keyring(keyring, lambda keys: with_revocation(keys, "hmac", version=1))

    def restore() -> None:
        (tmp_path / "keys.json").write_bytes(before)

    crafted = Crafted(7, steps())
    batches = [crafted.batch(number * LARGEST) for number in range(30)]
    watched = compare(steps, "consumer", batches, restore, between)
    assert 0 < watched.taken < watched.given


def drawn(seed: int, keyring: str, dictionaries: FolderDictionaries) -> Steps:
    """Return any steps of a chain with any options."""
    draw = random.Random(seed)
    pick = draw.choice
    codec = pick(["zstd", "gzip"])
    options: list[tuple[Any, dict[str, Any]]] = [
        (Trail, {"service": "s", "max_entries": pick([2, 32]), "max_bytes": pick([2_700, 4_096])}),
        (
            Expire,
            {
                "after_ms": pick([None, 1_000, 10_000]),
                "clock_skew_ms": pick([0, 500]),
                "expired": pick(["drop", "refuse"]),
                "malformed": pick(["keep", "refuse"]),
            },
        ),
        (Dedup, {"window": pick([9, 10_000])}),
        (
            Compress,
            {
                "codec": codec,
                "dictionaries": pick([None, dictionaries]) if codec == "zstd" else None,
                "min_bytes": pick([0, 10]),
                "max_decompressed_bytes": pick([4_000, 1 << 28]),
            },
        ),
        (
            Encrypt,
            {
                "key_service": FileKeys(keyring=keyring),
                "key_id": "aes",
                "nulls": pick(["authenticate", "pass"]),
                "bind_headers": pick([(), ("a",)]),
                "require": pick(["off", "enforce"]),
            },
        ),
        (Slice, {"max_bytes": pick([None, None, None, 4_000]), "max_gap": pick([10, 1_000_000])}),
        (
            Sign,
            {
                "keyring": keyring,
                "key_id": pick(["hmac", "ed25519", "ecdsa-p256"]),
                "require": pick(["off", "warn", "enforce"]),
                "uncovered": pick(["pass", "refuse"]),
                "batch_records": pick([1, 1, 8]),
                "max_age_ms": pick([None, 5_000]),
                "replay_window": pick([0, 0, 9, 1_000]),
                "covered": pick([(), (), ("a",)]),
            },
        ),
        (
            HeaderIds,
            {
                "form": pick(["packed", "keys"]),
                "also": pick([(), ("traceparent", "content-type")]),
                "never": pick([(), (), ("hw.trail",)]),
            },
        ),
    ]
    subset = 1 + seed % 255
    metrics = pick([[], [Metrics()]])
    chosen = [
        (step, given | {"on_error": pick(["raise", "drop", "dead_letter"])})
        for at, (step, given) in enumerate(options)
        if subset >> at & 1
    ]
    return lambda: [*metrics, *(step(**given) for step, given in chosen)]


@pytest.mark.hypothesis
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("part", range(4))
def test_any_chain(
    keyring: str, dictionaries: FolderDictionaries, part: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Compare a million records of all kinds, if all examples are asked for."""
    caplog.set_level(logging.CRITICAL)  # what is logged keeps the records that it is about
    taken = 0
    for seed in range(part, CHAINS, 4):
        steps = drawn(seed, keyring, dictionaries)
        # What a producer sends is encrypted, but its dead letters would not be.
        crafted = Crafted(seed, [structs.replace(step, on_error="raise") for step in steps()])
        batches, records = list[Any](), 0
        while records < EACH:
            batches.append(crafted.batch(records))
            records += len(batches[-1])
        taken += compare(steps, "consumer", batches, between=ticking).taken
    assert taken > CHAINS * EACH / 20


def test_large_values(keyring: str) -> None:
    def steps() -> list[Any]:
        return [Trail(), Compress(), Sign(keyring=keyring, key_id="hmac")]

    values = [bytes(3_000_000), random.Random(1).randbytes(2_000_000), b"x" * 5_000]
    with opened(steps(), "producer", Clock(), []) as session:
        sent = session.send([Record(TOPIC, value) for value in values * 3])
    records = [record.replace(partition=1, offset=at) for at, record in enumerate(sent)]
    watched = compare(steps, "consumer", [records] * 3)
    assert watched.taken == 2 * len(records)


def test_threads_that_send_at_once(keyring: str) -> None:
    sign = Sign(keyring=keyring, key_id="hmac")
    records = [Record(TOPIC, b"%d" % number) for number in range(100)]
    with opened([sign], "producer", Clock(), []) as session, ThreadPoolExecutor(8) as pool:
        sent = [record for batch in pool.map(session.send, [records] * 200) for record in batch]
    with opened([sign], "consumer", Clock(), []) as session:
        read = session.consume(sent)
    assert [record.value for record in read] == [record.value for record in records] * 200
    assert len({record.verified.sequence for record in read if record.verified}) == len(sent)


@pytest.mark.parametrize("codec", ["zstd", "gzip"])
def test_other_threads_run_while_a_small_value_becomes_large(codec: str) -> None:
    large = bytes(16_000_000 if codec == "zstd" else 8_000_000)
    value = zstandard.compress(large) if codec == "zstd" else gzip(large, mtime=0)
    assert len(value) < 16_384
    record = Record(TOPIC, value, None, Headers([("hw.compress", codec.encode())]), partition=1, offset=1)
    is_inside, seen = Event(), 0

    def consume(session: Session) -> None:
        for _ in range(200):
            is_inside.set()
            (read,) = session.consume([record])
            is_inside.clear()
            assert read.value == large

    interval = sys.getswitchinterval()
    sys.setswitchinterval(600)  # only a thread that gives up the interpreter's lock lets another one run
    try:
        with opened([Trail(), Compress()], "consumer", Clock(), []) as session, ThreadPoolExecutor(1) as pool:
            consuming = pool.submit(consume, session)
            while not seen and not consuming.done():
                sleep(0.0001)
                seen += is_inside.is_set()
            consuming.result()
    finally:
        sys.setswitchinterval(interval)
    assert seen


def test_a_child_makes_its_own_run(keyring: str) -> None:
    sign = Sign(keyring=keyring, key_id="hmac")
    records = [Record(TOPIC, b"%d" % number) for number in range(10)]
    with (
        opened([sign], "producer", Clock(), []) as session,
        opened([sign], "consumer", Clock(), []) as reader,
    ):
        before = reader.consume(session.send(records))
        child = os.fork()
        if not child:  # pragma: no cover - in the child
            try:
                read = reader.consume(session.send(records))
                assert [record.value for record in read] == [record.value for record in records]
                assert read[0].verified.producer != before[0].verified.producer  # type: ignore[union-attr]
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
