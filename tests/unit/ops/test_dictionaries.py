from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from headerware import Chain, Context
from headerware.core.errors import DictionaryError
from headerware.core.headers import EMPTY, Headers
from headerware.core.record import Record
from headerware.dictionaries import FolderDictionaries
from headerware.dictionaries.store import publish
from headerware.interceptors import Compress, Sign, Slice
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.ops.dictionaries import Evaluation, Figures, Sample, Samples, evaluate, split, train
from tests.airports import airports, samples, trained

if TYPE_CHECKING:
    from pathlib import Path


def record(value: bytes | None, *headers: tuple[str, bytes | None]) -> Record:
    return Record("airports", value, b"k", Headers(headers), partition=0, offset=1)


class TestSamples:
    def test_are_of_all_records_alike(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("random.SystemRandom", lambda: Random(1))
        drawn = Samples(max_bytes=3_000)
        for number in range(10_000):
            drawn.add(record(b"%06d" % number))
        values = [int(each.value) for each in drawn.taken()]
        assert len(values) == 500
        assert values == sorted(values)
        halves = Counter(value < 5_000 for value in values)
        assert abs(halves[True] - halves[False]) < 50

    def test_are_bounded_in_bytes(self) -> None:
        drawn = Samples(max_bytes=10_000)
        for _ in range(1_000):
            drawn.add(record(bytes(100 + os.urandom(1)[0])))
        assert 9_000 < sum(len(each.value) for each in drawn.taken()) <= 10_000

    def test_leave_out_what_teaches_nothing(self) -> None:
        drawn = Samples(content_type="application/json")
        json = ("content-type", b"Application/JSON; charset=utf-8")
        drawn.add(record(b"taken", json))
        drawn.add(record(b"no type"))
        drawn.add(record(b"text", ("content-type", b"text/plain")))
        drawn.add(record(None, json))
        drawn.add(record(b"\x1f\x8b\x08 and so on", json))
        drawn.add(record(bytes(200_000), json))
        drawn.add(record(b"x", json, ("hw.slice", b"x")))
        assert [each.value for each in drawn.taken()] == [b"taken"]
        skipped = drawn.skipped
        assert (skipped.empty, skipped.large, skipped.compressed) == (1, 1, 1)
        assert (skipped.content_type, skipped.encoded) == (2, 1)
        assert drawn.seen == 7

    @pytest.mark.parametrize("on_error", ["raise", "drop", "dead_letter"])
    def test_count_what_the_chain_refuses(self, tmp_path: Path, on_error: Any) -> None:
        ring = tmp_path / "keys.json"
        edit_keyring(ring, lambda keys: with_new_key(keys, "a", "ed25519"), create=True)
        sign = Sign(keyring=str(ring), key_id="a", require="enforce", on_error=on_error)
        with closing(Samples(Chain([sign]), cluster_id="c")) as drawn:
            drawn.add(record(b"unsigned"))
            assert drawn.skipped.encoded == 1

    def test_are_decompressed(self) -> None:
        drawn = Samples()
        value = airports()[0] * 9
        drawn.add(Compress().open(Context()).on_send(record(value)))
        assert drawn.taken() == [Sample(b"k", value, EMPTY)]

    def test_come_through_the_chain_that_readers_have(self, tmp_path: Path) -> None:
        keyring = str(tmp_path / "keys.json")
        edit_keyring(keyring, lambda ring: with_new_key(ring, "k", "hmac-sha256"), create=True)
        store = FolderDictionaries(path=str(tmp_path / "dictionaries"))
        publish(store.open(), trained(), "airports")
        chain = Chain(
            [
                Compress(dictionaries=store),
                Slice(max_bytes=1_000),
                Sign(keyring=keyring, key_id="k", cluster="c"),
            ]
        )
        values = [airports()[0], os.urandom(2_000).hex().encode()]
        drawn = Samples(chain)
        offset = 0
        with chain.open(Context(side="producer")) as session:
            for value in values:
                for sent in session.send([Record("airports", value, b"k", partition=0)]):
                    drawn.add(sent.replace(offset=offset))
                    offset += 1
        assert offset > 2
        assert [each.value for each in drawn.taken()] == values
        drawn.close()


class TestTrain:
    def test_is_measured_on_what_it_has_not_seen(self) -> None:
        made = train(samples())
        assert len(made.dictionary.content) == 16_384
        assert made.samples == len(airports())
        assert made.held_out == len(airports()[::5])
        assert made.plain_bytes == sum(map(len, airports()[::5]))
        # The bar of this dictionary: 2.5 times smaller than zstd without one.
        assert made.without_bytes > 2.2 * made.with_bytes

    @pytest.mark.parametrize(
        ("values", "problem"),
        [
            ([], "at least 50 records to train on, found 0"),
            (
                [b"{}"] * 60,
                (
                    "too little in common for a dictionary: 24 bytes of records outside the training become "
                    "132 with zstd alone, and 180 with the dictionary"
                ),
            ),
        ],
    )
    def test_says_what_is_missing(self, values: list[bytes], problem: str) -> None:
        with pytest.raises(DictionaryError, match=problem):
            train([Sample(None, value, EMPTY) for value in values])


@cache
def evaluated() -> Evaluation:
    learnt, measured = split(samples())
    return evaluate(measured, train(learnt).dictionary)


class TestEvaluate:
    @pytest.fixture
    def found(self) -> Evaluation:
        return evaluated()

    @staticmethod
    def figures(found: Evaluation, way: str) -> Figures:
        record, *more = way.split()
        wanted = (record, "batch" in more, "encrypted" in more)
        return next(each for each in found.figures if (each.record, each.batch, each.encrypted) == wanted)

    def test_measures_every_way(self, found: Evaluation) -> None:
        assert len(found.figures) == len({(e.record, e.batch, e.encrypted) for e in found.figures}) == 12
        assert found.records == len(airports()) // 2
        assert self.figures(found, "none").ratio == 1
        for each in found.figures:
            assert each.write_us > 0
            assert each.read_us > 0

    def test_counts_what_lies_on_the_wire(self, found: Evaluation) -> None:
        # length 2, attributes, time, offset 1 or 2, no key 1, value's length 2, no headers 1
        plain = self.figures(found, "none").bytes_per_record
        mean = sum(len(each.value) for each in samples()[::2]) / found.records
        assert mean + 8 <= plain <= mean + 10
        encrypted = self.figures(found, "none encrypted").bytes_per_record
        # tag 16, hw.encrypt with its name and lengths
        assert 200 <= encrypted - plain <= 270
        smaller = self.figures(found, "dictionary").bytes_per_record
        assert smaller < plain - 50
        both = self.figures(found, "dictionary encrypted").bytes_per_record
        assert encrypted - plain == pytest.approx(both - smaller, abs=2)

    def test_batches_compress_well_unless_values_are_encrypted(self, found: Evaluation) -> None:
        assert self.figures(found, "none batch").ratio > 3
        assert self.figures(found, "none batch encrypted").ratio < 1.1
        with_dictionary = self.figures(found, "dictionary batch encrypted").ratio
        assert with_dictionary > 1.5 * self.figures(found, "none batch encrypted").ratio

    def test_says_in_words_what_follows(self, found: Evaluation) -> None:
        assert found.plain_advice.startswith("Without encryption, set compression.type=zstd: ")
        assert found.encrypted_advice.startswith(
            "If values are encrypted, use the dictionary and set compression.type=zstd: "
        )

    def test_says_if_nothing_pays(self) -> None:
        noise = [Sample(None, os.urandom(200), EMPTY) for _ in range(60)]
        found = evaluate(noise, trained())
        assert "do not compress" in found.plain_advice
        # nothing but hw.encrypt, most of which is the same in all records
        assert found.encrypted_advice.startswith("If values are encrypted, set compression.type=zstd: ")

    def test_recommends_a_dictionary_for_lone_records(self) -> None:
        found = evaluate(samples()[:200], trained(), batch_records=1)
        assert found.plain_advice.startswith("Without encryption, use the dictionary: ")

    def test_of_nothing_is_refused(self) -> None:
        with pytest.raises(DictionaryError, match="found none"):
            evaluate([], trained())
