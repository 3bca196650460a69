"""Native code sends what Python sends: the same headers and values, or others that mean the same."""

from __future__ import annotations

import os
import random
from base64 import b64decode
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from gzip import compress as gzip
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
import zstandard

from headerware import Headers, Record
from headerware.core import native, runner
from headerware.core.hooks import FanOut
from headerware.interceptors import Compress, Dedup, Encrypt, Expire, HeaderIds, Metrics, Sign, Slice, Trail
from headerware.interceptors.dedup.identity import Identity
from headerware.interceptors.encrypt.envelope import SALT_BYTES, TAG_BYTES, TAIL_BYTES, statement_of
from headerware.interceptors.trail import TRAIL_HEADER
from headerware.keyring import with_rotation
from headerware.keyring.services import FileKeys
from headerware.keyring.writing import edit_keyring
from tests.airports import airports
from tests.native.test_equal import (
    LARGEST,
    NOW,
    TOPIC,
    Clock,
    Steps,
    Watched,
    exported,
    opened,
    require_equal_reports,
    shown,
    ticking,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from headerware.dictionaries import FolderDictionaries
    from tests.native.test_equal import Reported

BATCHES = 60
RANDOM_PARTS = frozenset({"hw.encrypt", "hw.sig", "hw.slice"})
CONTENT_TYPES = [None, b"", b"application/json", b"image/png", b"IMAGE/PNG; a=b", b"text/plain", b"\xff"]
TRAILS = [
    b"1,at=5;by=x;from=c/t",
    b"1,at=5;by=x;into=c/t",
    b"1",
    b"1" + b",at=5;by=x;from=c/t" * 40,
    b"2",
    None,
]

MOMENTS = [b"%d" % (NOW + 60_000), b"%d" % NOW, b"0", b"", b"01", b"-1", b"9" * 15, b"9" * 16, None]


def without_native() -> Any:
    return patch.object(runner, "native_module", return_value=(None, "off"))


class Plain:
    """Records that an application may send."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._values = [
            None, b"", b"x", b"x" * 63, b"x" * 64, b"x" * 127, b"x" * 128, *airports()[:20],
            b"[" + b",".join(airports()[:10]) + b"]", self._draw.randbytes(300), bytes(40_000),
            gzip(bytes(999), mtime=0), zstandard.compress(bytes(999)), b"BZh91AY&SY" + bytes(200),
            b"BZh9" + bytes(200), b"RIFF1234WEBP" + bytes(200), b"RIFF1234WAVE" + bytes(200),
        ]  # fmt: skip

    def record(self, *, is_odd: bool) -> Record:
        draw = self._draw.choice
        pairs = [(draw("ab"), draw([None, b"", b"1"])) for _ in range(self._draw.randrange(3))]
        if is_odd:
            name = draw(["content-type", "Content-Type"])
            pairs.insert(self._draw.randrange(len(pairs) + 1), (name, draw(CONTENT_TYPES)))
            pairs += [(TRAIL_HEADER, draw(TRAILS)) for _ in range(draw([0, 0, 1, 1, 2]))]
            pairs += [("hw.expires", draw(MOMENTS)) for _ in range(draw([0, 0, 1, 1, 2]))]
        return Record(TOPIC, draw(self._values), draw([None, b"", b"key"]), Headers(pairs))

    def batch(self, odd_share: float) -> list[Record]:
        count = self._draw.randrange(1, LARGEST)
        return [self.record(is_odd=self._draw.random() < odd_share) for _ in range(count)]

    def batches(self) -> list[list[Record]]:
        return [self.batch(self._draw.choice([0, 0, 0.01, 0.5])) for _ in range(BATCHES)]


def sent(
    steps: Steps, batches: Sequence[Sequence[Record]], between: Callable[[int, Clock], object]
) -> tuple[list[Any], dict[str, dict[str, int]], Reported]:
    clock = Clock()
    found: list[Any] = []
    with exported() as reported, opened(steps(), "producer", clock, []) as session:
        for number, batch in enumerate(batches):
            between(number, clock)
            for outcome in session.send_outcomes(batch):
                found += outcome if isinstance(outcome, FanOut) else [shown(outcome)]
        stats, metrics = session.stats(), reported()
    return found, stats, metrics


def read(steps: Steps, outcomes: Sequence[Any]) -> list[Any]:
    """Return what a reader gets; the time, producer and sequence of signatures do not matter."""
    records = [outcome for outcome in outcomes if isinstance(outcome, Record)]
    records = [record.replace(partition=1, offset=at) for at, record in enumerate(records)]
    with opened(steps(), "consumer", Clock(), []) as session:
        found = session.consume(records)
    return [(record.replace(local=None), record.verified and record.verified.key_id) for record in found]


def without_random_parts(outcome: Any) -> Any:
    if not isinstance(outcome, Record):
        return outcome
    headers = [(name, None if name in RANDOM_PARTS else value) for name, value in outcome.headers]
    is_encrypted = "hw.encrypt" in outcome.headers or "hw.slice" in outcome.headers
    size = None if outcome.value is None else len(outcome.value)
    own = {name: state for name, state in (outcome.local or {}).items() if name != "metrics"}  # a time
    value = size if is_encrypted else outcome.value
    return outcome.replace(headers=Headers(headers), value=value, local=own or None)


def compare(
    steps: Steps,
    batches: Sequence[Sequence[Record]],
    between: Callable[[int, Clock], object] = ticking,
    restore: Callable[[], object] = lambda: None,
) -> Watched:
    watched = Watched()
    with watched.watching():
        mine, my_stats, my_metrics = sent(steps, batches, between)
    restore()
    with without_native():
        theirs, their_stats, their_metrics = sent(steps, batches, between)
        # The same libzstd compresses for both, so that values are equal, too.
        assert zstandard.ZSTD_VERSION == (1, 5, 7)
        assert list(map(without_random_parts, mine)) == list(map(without_random_parts, theirs))
        by_python = read(steps, mine)
        assert by_python == read(steps, theirs)
    assert by_python == read(steps, mine)
    for name, counts in their_stats.items():
        different = dict(my_stats[name].items() ^ counts.items())
        assert [count for count in different if not count.startswith("data_keys_")] == [], name
    require_equal_reports(my_metrics, their_metrics)
    return watched


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"level": 19, "min_bytes": 0, "margin": 0},
        {"level": -7, "min_bytes": 64, "margin": 0.5, "skip_content_types": ("text/*", "!text/plain")},
    ],
)
def test_compressed_and_trailed(options: dict[str, Any]) -> None:
    watched = compare(lambda: [Trail(service="s"), Compress(**options)], Plain(1).batches())
    assert watched.taken > 0.7 * watched.given


@pytest.mark.parametrize(
    "options", [{}, {"min_bytes": 0}, {"min_bytes": 64, "trusted_dictionaries": ("0" * 32,)}]
)
def test_dictionaries(dictionaries: FolderDictionaries, keyring: str, options: dict[str, Any]) -> None:
    def steps() -> list[Any]:
        compress = Compress(dictionaries=dictionaries, **options)
        return [Trail(service="s"), compress, Sign(keyring=keyring, key_id="hmac")]

    watched = compare(steps, Plain(2).batches())
    assert watched.taken > 0.3 * watched.given


@pytest.mark.parametrize("nulls", ["authenticate", "pass"])
@pytest.mark.parametrize("key_id", ["hmac", "ed25519"])
def test_encrypted_and_signed(keyring: str, nulls: Any, key_id: str) -> None:
    def steps() -> list[Any]:
        encrypt = Encrypt(
            key_service=FileKeys(keyring=keyring), key_id="aes", nulls=nulls, bind_headers=("a",)
        )
        return [Trail(service="s"), Compress(), encrypt, Sign(keyring=keyring, key_id=key_id)]

    watched = compare(steps, Plain(3).batches())
    assert watched.taken > 0.3 * watched.given


@pytest.mark.parametrize("after_ms", [None, 3_600_000])
def test_the_chain_of_six(keyring: str, dictionaries: FolderDictionaries, after_ms: int | None) -> None:
    def steps() -> list[Any]:
        return [
            Trail(service="s", on_error="drop"),
            Expire(after_ms=after_ms, clock_skew_ms=3_600_000, on_error="drop"),
            Compress(dictionaries=dictionaries),
            Encrypt(key_service=FileKeys(keyring=keyring), key_id="aes"),
            Slice(max_bytes=9_000),
            Sign(keyring=keyring, key_id="hmac"),
        ]

    watched = compare(steps, Plain(9).batches())
    assert watched.taken > 0.2 * watched.given


def test_what_metrics_reports(keyring: str) -> None:
    def steps() -> list[Any]:
        return [
            Metrics(),
            Trail(),
            Compress(min_bytes=64),
            Encrypt(key_service=FileKeys(keyring=keyring), key_id="aes"),
            Slice(max_bytes=30_000),
            Sign(keyring=keyring, key_id="hmac"),
        ]

    assert compare(steps, Plain(8).batches()).taken > 1_000


@pytest.mark.parametrize("options", [{}, {"form": "keys"}, {"also": ("content-type",)}])
def test_header_ids(keyring: str, options: dict[str, Any]) -> None:
    """The name of a block is no name of an application's; a name is written by its bytes."""

    def steps() -> list[Any]:
        return [
            Trail(service="s"),
            Sign(keyring=keyring, key_id="hmac"),
            HeaderIds(on_error="drop", **options),
        ]

    plain = Plain(10)
    batches = plain.batches()
    names = ["~", "~~x", "~B", "0.0.0.5", "9.9.9.9", "1.2.3", "ä", "hw.ids", "hw.compress"]
    for batch in batches[::5]:
        for at, name in enumerate(names[: len(batch)]):
            pairs = [*batch[at].headers, (name, b"v" * 70), (name, None), ("z", b"")]
            batch[at] = batch[at].with_headers(Headers(pairs))
    with patch("os.urandom", bytes):  # both sessions have one producer id, so that blocks are the same
        watched = compare(steps, batches)
    assert watched.taken > 0.6 * watched.given


@pytest.mark.parametrize(
    "options", [{}, {"id_from": ("a", "b"), "producer": "p"}, {"id_from": ("a",), "id_from_key": True}]
)
@pytest.mark.parametrize("is_signed", [True, False])
def test_identities(
    keyring: str,
    options: dict[str, Any],
    is_signed: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Sequences are the same, too, where records are left to Python, and none is left out."""

    def steps() -> list[Any]:
        sign = [Sign(keyring=keyring, key_id="hmac")] if is_signed else []
        return [Trail(service="s"), Dedup(**options), Compress(), *sign]

    batches = Plain(11).batches()
    for batch in batches[::4]:
        for at in range(0, len(batch), 50):
            batch[at] = batch[at].replace(local={"dedup": Identity.numbered(bytes(16), at)})
    for batch in batches[1::4] if options else ():
        for at, record in enumerate(batch):  # what identities are made from
            whole = Headers([("a", b"%d" % at), *record.headers, ("b", b"2"), ("a", b"1")])
            batch[at] = record.replace(key=b"k", headers=whole)
    with patch("os.urandom", bytes):  # both sessions have one producer id
        watched = compare(steps, batches)
    assert watched.taken > (0.15 if options else 0.5) * watched.given


def test_encrypted_alone(keyring: str) -> None:
    watched = compare(
        lambda: [Encrypt(key_service=FileKeys(keyring=keyring), key_id="aes")], Plain(4).batches()
    )
    assert watched.taken == watched.given


@pytest.mark.parametrize(
    ("key_id", "cluster", "batch_records", "is_signed_natively"),
    [
        ("hmac", "here", 2, True),
        ("hmac", None, 1, True),
        ("ed25519", None, 1, True),
        ("ed25519", None, 2, False),
        ("ecdsa-p256", None, 1, False),
    ],
)
def test_signatures_are_the_same_bytes(
    keyring: str,
    key_id: str,
    cluster: str | None,
    batch_records: int,
    is_signed_natively: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    def steps() -> list[Any]:
        sign = Sign(keyring=keyring, key_id=key_id, cluster=cluster, batch_records=batch_records)
        return [Trail(service="s"), Compress(min_bytes=1), sign]

    plain = Plain(5)
    refused = [Record(TOPIC, b"v", None, Headers([(name, b"1")])) for name in ("a\0", "hw.sig", "hw.x")]
    # Sequences are the same, too, where native code leaves a record or a batch to Python.
    batches = [[*plain.batch(0.02), *(refused if number % 4 else [])] for number in range(BATCHES)]
    with patch("os.urandom", bytes):  # both sessions have one producer id
        mine, *_ = sent(steps, batches, ticking)
        with without_native():
            theirs, *_ = sent(steps, batches, ticking)
    if key_id == "ecdsa-p256":  # each signature is another
        mine, theirs = (list(map(without_random_parts, each)) for each in (mine, theirs))
    assert mine == theirs
    assert any(isinstance(outcome, tuple) for outcome in mine)
    with opened(steps(), "producer", Clock(), []) as session:
        stages = session._send.hooks_of(TOPIC).stages
    runs = [stage.end - stage.first for stage in stages if stage.native is not None]
    assert runs == [3 if is_signed_natively else 2]


def test_gzip_is_written_by_python(keyring: str) -> None:
    def steps() -> list[Any]:
        return [Trail(service="s"), Compress(codec="gzip"), Sign(keyring=keyring, key_id="hmac")]

    compare(steps, Plain(6).batches())


def test_records_come_to_the_signature_in_order(keyring: str) -> None:
    """A reader with a small replay window refuses records that come after many later ones."""

    def steps(window: int = 0) -> list[Any]:
        return [Trail(service="s"), Compress(), Sign(keyring=keyring, key_id="hmac", replay_window=window)]

    plain = Plain(7)
    usual = [plain.record(is_odd=False) for _ in range(100)]
    twice = plain.record(is_odd=False).with_headers(Headers([(TRAIL_HEADER, b"1"), (TRAIL_HEADER, b"1")]))
    watched = Watched()
    with watched.watching(), opened(steps(), "producer", Clock(), []) as session:
        records = [record for at in (0, 50, 99) for record in session.send([*usual[:at], twice, *usual[at:]])]
        records += session.send(usual)
    # With an unusual record, a batch goes through native code in two parts.
    assert watched.taken == 3 * (len(usual) + len(usual) + 1) + len(usual)
    with opened(steps(1), "consumer", Clock(), []) as reader:
        reader.consume([record.replace(partition=1, offset=at) for at, record in enumerate(records)])


def salts(records: Sequence[Record]) -> list[tuple[bytes, bytes]]:
    """Return the wrapped data key and the salt of each record."""
    found = []
    for record in records:
        layout = b64decode(record.headers.last("hw.encrypt") or b"")
        statement, end = statement_of(layout, is_null=record.value is None)
        assert len(layout) == end + TAIL_BYTES + TAG_BYTES * (record.value is None)
        found.append((statement.wrapped, layout[end : end + SALT_BYTES]))
    return found


def encrypting(keyring: str, **options: Any) -> list[Any]:
    return [Compress(), Encrypt(key_service=FileKeys(keyring=keyring), key_id="aes", **options)]


def test_no_salt_is_used_twice(keyring: str) -> None:
    """By native code, by Python's batch hook and its single hook, by threads, and by a child."""
    draw = random.Random(9)
    records = [Record(TOPIC, draw.randbytes(1_000)) for _ in range(LARGEST)]  # so large that threads meet
    watched = Watched()
    read_end, write_end = os.pipe()
    with watched.watching(), opened(encrypting(keyring), "producer", Clock(), []) as session:

        def send(number: int) -> list[Record]:
            if number % 3 == 0:
                return list(map(session.send_outcome, records))  # type: ignore[arg-type]  # no errors
            return session.send(records)

        with ThreadPoolExecutor(8) as pool:
            parts = list(pool.map(send, range(90)))
        taken = watched.taken
        with patch.object(native.NativeRun, "__call__", return_value=None):
            parts.append(session.send(records))
        parts.append(session.send(records))
        child = os.fork()
        if not child:  # pragma: no cover - in the child
            try:
                found = [salt for _, salt in salts(session.send(records))]
                os.write(write_end, b"".join(found))
                os._exit(0)
            finally:
                os._exit(1)
        parts.append(session.send(records))
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        of_child = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    found = [salt for part in parts for _, salt in salts(part)]
    found += [of_child[at : at + SALT_BYTES] for at in range(0, len(of_child), SALT_BYTES)]
    assert len(found) == len(set(found)) == sum(map(len, parts)) + len(records)
    assert 0 < taken < sum(map(len, parts[:90]))
    assert watched.taken >= taken + 2 * len(records)


@pytest.mark.parametrize(("max_uses", "is_taken"), [(12_800, True), (1_000, False)])
def test_a_data_key_encrypts_as_many_records_as_it_may(
    keyring: str,
    max_uses: int,
    is_taken: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    records = [Record(TOPIC, b"%d" % number) for number in range(50)]
    most = max_uses + max_uses // 128  # a data key is checked after this part of its uses
    steps, watched, used = encrypting(keyring, data_key_max_uses=max_uses), Watched(), []
    for patched in (watched.watching(), without_native()):
        found: list[Any] = []
        with patched, opened(steps, "producer", Clock(), []) as session:
            for number in range(520):
                found += session.send(records) if number % 5 else map(session.send_outcome, records)
            assert session.stats()["encrypt"]["encrypted"] == len(found)
        used.append(Counter(wrapped for wrapped, _ in salts(found)))
    assert all(max(counts.values()) <= most for counts in used)
    assert abs(len(used[0]) - len(used[1])) <= 1
    assert watched.taken == (watched.given if is_taken else 0)


def test_a_data_key_encrypts_as_many_bytes_as_it_may(keyring: str) -> None:
    max_bytes, size = 1 << 20, 1_000
    draw = random.Random(1)
    records = [Record(TOPIC, draw.randbytes(size)) for _ in range(8)]
    steps, watched, used = encrypting(keyring, data_key_max_bytes=max_bytes), Watched(), []
    for patched in (watched.watching(), without_native()):
        with patched, opened(steps, "producer", Clock(), []) as session:
            found = [record for _ in range(500) for record in session.send(records)]
        used.append(Counter(wrapped for wrapped, _ in salts(found)))
    assert all(max(counts.values()) * size <= max_bytes + max_bytes // 128 + size for counts in used)
    assert abs(len(used[0]) - len(used[1])) <= 1
    assert watched.taken == watched.given


def test_a_rotated_key_is_used_at_once(keyring: str, tmp_path: Path) -> None:
    before = (tmp_path / "keys.json").read_bytes()

    def between(number: int, clock: Clock) -> None:
        clock.now += 5_000  # so that the file is looked at again
        if number in {10, 20}:
            edit_keyring(keyring, lambda keys: with_rotation(keys, "hmac" if number == 10 else "aes"))

    def restore() -> None:
        (tmp_path / "keys.json").write_bytes(before)

    def steps() -> list[Any]:
        return [*encrypting(keyring), Sign(keyring=keyring, key_id="hmac")]

    edit_keyring(keyring, lambda keys: with_rotation(keys, "hmac"))
    before = (tmp_path / "keys.json").read_bytes()
    plain = Plain(8)
    mine, *_ = sent(steps, batches := [plain.batch(0) for _ in range(30)], between)
    found = read(steps, mine)
    restore()
    with without_native():
        theirs, *_ = sent(steps, batches, between)
        assert found == read(steps, theirs)
