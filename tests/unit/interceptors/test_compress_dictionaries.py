from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from headerware import Chain, Context, load_chain
from headerware.core.errors import CompressionError, ConfigError, DictionaryError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.dictionaries import Dictionary, FolderDictionaries
from headerware.dictionaries.dictionary import COMPRESS_HEADER, decode_mark, encode_mark
from headerware.dictionaries.folder import FolderDictionaryStore
from headerware.dictionaries.store import DictionaryStore, publish
from headerware.interceptors.compress import Compress
from tests.airports import airports, trained

if TYPE_CHECKING:
    from pathlib import Path

VALUE = airports()[7]


@pytest.fixture
def store(tmp_path: Path) -> FolderDictionaryStore:
    store = FolderDictionaries(path=str(tmp_path), rescan_s=0).open()
    publish(store, trained(), "airports")
    return store


def step(store: Any, **options: Any) -> Any:
    return Compress(dictionaries=store, **options).open(Context())


def record(
    value: bytes | None = VALUE, *headers: tuple[str, bytes | None], topic: str = "airports"
) -> Record:
    return Record(topic, value, b"k", Headers(headers))


def dictionary_of(sent: Record) -> str:
    return decode_mark(sent.headers.last(COMPRESS_HEADER))


class TestOnSend:
    def test_names_the_dictionary(self, store: FolderDictionaryStore) -> None:
        sent = step(store).on_send(record(VALUE, ("a", b"1")))
        assert sent.headers == Headers([("a", b"1"), (COMPRESS_HEADER, encode_mark(trained().id))])

    def test_makes_small_records_smaller_than_zstd_does(self, store: FolderDictionaryStore) -> None:
        with_it, plain = step(store), zstandard.ZstdCompressor().compress
        values = airports()[::10]
        small = sum(len(with_it.on_send(record(value)).value) for value in values)
        assert sum(len(plain(value)) for value in values) > 2.2 * small
        assert with_it.stats()["compressed_with_dictionary"] == len(values)

    def test_any_zstd_reads_the_frame_with_the_dictionary(self, store: FolderDictionaryStore) -> None:
        sent = step(store).on_send(record())
        dictionary = zstandard.ZstdCompressionDict(trained().content)
        reader = zstandard.ZstdDecompressor(dict_data=dictionary)
        assert reader.decompress(sent.value) == VALUE

    def test_a_library_finds_the_dictionary_by_the_id_in_the_frame(
        self, store: FolderDictionaryStore
    ) -> None:
        named = zstandard.get_frame_parameters(step(store).on_send(record()).value).dict_id
        assert named == zstandard.ZstdCompressionDict(trained().content).dict_id() != 0

    def test_another_topic_has_none(self, store: FolderDictionaryStore) -> None:
        sent = step(store).on_send(record(VALUE * 20, topic="others"))
        assert sent.headers == Headers([(COMPRESS_HEADER, "zstd")])

    def test_a_small_value_is_tried_only_with_a_dictionary(self, store: FolderDictionaryStore) -> None:
        short = VALUE[:120]
        assert step(store).on_send(record(short)).headers
        assert not step(store).on_send(record(b"a" * 120, topic="others")).headers
        assert not step(store, min_bytes=121).on_send(record(short)).headers

    def test_what_does_not_shrink_enough_stays_as_it_is(self, store: FolderDictionaryStore) -> None:
        odd = bytes(range(130))
        opened = step(store)
        assert opened.on_send(record(odd)) == record(odd)
        assert opened.stats()["left_alone_incompressible"] == 1

    def test_a_content_type_has_its_own(self, store: FolderDictionaryStore) -> None:
        publish(store, trained(4096), "airports", "application/json")
        opened = step(store)
        json = ("content-type", b"application/json; charset=utf-8")
        assert dictionary_of(opened.on_send(record(VALUE, json))) == trained(4096).id
        assert dictionary_of(opened.on_send(record(VALUE, ("content-type", b"text/json")))) == trained().id

    def test_a_new_one_takes_over_without_a_restart(
        self, store: FolderDictionaryStore, tmp_path: Path
    ) -> None:
        opened = step(store)
        early = opened.on_send(record())
        publish(FolderDictionaries(path=str(tmp_path)).open(), trained(4096), "airports")
        late = opened.on_send(record())
        assert [dictionary_of(each) for each in (early, late)] == [trained().id, trained(4096).id]
        assert {opened.on_consume(each) for each in (early, late)} == {record()}

    def test_a_store_out_of_reach_does_not_stop_a_producer(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = FolderDictionaries(path=str(tmp_path / "later"), rescan_s=0).open()
        with caplog.at_level(logging.WARNING):
            opened = step(store)
        assert "without a dictionary until the store answers" in caplog.text
        assert opened.on_send(record(VALUE * 9)).headers == Headers([(COMPRESS_HEADER, "zstd")])
        publish(store, trained(), "airports")
        assert dictionary_of(opened.on_send(record())) == trained().id

    def test_a_chosen_one_that_is_not_there_is_told_once(
        self, store: FolderDictionaryStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / f"{trained().id}.dict").unlink()
        opened = step(store)
        for topic in ("airports", "airports"):
            assert opened.on_send(record(VALUE * 9, topic=topic)).headers == Headers(
                [(COMPRESS_HEADER, "zstd")]
            )
        assert caplog.text.count("is not in the store") == 1
        assert opened.stats()["dictionary_unusable"] == 1


class TestOnConsume:
    def test_gives_back_what_was_sent(self, store: FolderDictionaryStore) -> None:
        opened = step(store)
        for value in airports()[::50]:
            sent = record(value, ("a", None), ("content-type", b"application/json"))
            assert opened.on_consume(opened.on_send(sent)) == sent

    def test_reads_all_others_too(self, store: FolderDictionaryStore) -> None:
        for codec in ("zstd", "gzip"):
            sent = Compress(codec=codec).open(Context()).on_send(record(VALUE * 9))
            assert step(store).on_consume(sent) == record(VALUE * 9)

    def test_takes_a_frame_of_any_zstd(self, store: FolderDictionaryStore) -> None:
        dictionary = zstandard.ZstdCompressionDict(trained().content)
        frame = zstandard.ZstdCompressor(dict_data=dictionary).compress(VALUE)
        sent = record(frame, (COMPRESS_HEADER, encode_mark(trained().id)))
        assert step(store).on_consume(sent) == record()

    def test_without_a_store_it_says_what_is_missing(self, store: FolderDictionaryStore) -> None:
        sent = step(store).on_send(record())
        with pytest.raises(CompressionError, match=f"dictionary {trained().id}; name the store"):
            Compress().open(Context()).on_consume(sent)

    def test_is_the_same_in_many_threads(self, store: FolderDictionaryStore) -> None:
        opened = step(store)

        def there_and_back(value: bytes) -> bool:
            return all(opened.on_consume(opened.on_send(record(value))) == record(value) for _ in range(20))

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(there_and_back, airports()[:200]))


class TestOptions:
    def test_come_from_configuration(self, store: FolderDictionaryStore, tmp_path: Path) -> None:
        path = tmp_path / "chain.toml"
        path.write_text(
            '[[interceptors]]\ntype = "compress"\n'
            f'trusted_dictionaries = ["{trained().id}"]\n'
            '[interceptors.dictionaries]\ntype = "folder"\npath = "."\n'
        )
        with load_chain(path).open() as session:
            [sent] = session.send([record()])
            assert dictionary_of(sent) == trained().id
            assert session.consume([sent]) == [record()]

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"dictionaries": 7}, "dictionaries: expected a store of dictionaries, found int"),
            (
                {"dictionaries": FolderDictionaries(path="x"), "codec": "gzip"},
                "dictionaries: expected the codec 'zstd' for dictionaries, found 'gzip'",
            ),
            ({"trusted_dictionaries": ("x",)}, "trusted_dictionaries: expected a dictionary's id"),
        ],
    )
    def test_that_cannot_work_are_refused(self, options: dict[str, Any], problem: str) -> None:
        with pytest.raises(ConfigError, match=problem):
            Compress(**options)

    def test_of_another_class_have_all_members(self) -> None:
        members = {name: lambda *_: None for name in vars(DictionaryStore) if not name.startswith("_")}
        Compress(dictionaries=type("Complete", (), members)())

        for missing in members:
            without = {name: member for name, member in members.items() if name != missing}
            with pytest.raises(ConfigError, match="expected a store of dictionaries, found Incomplete"):
                Compress(dictionaries=type("Incomplete", (), without)())

    def test_closing_releases_the_store(self, tmp_path: Path) -> None:
        session = Chain([Compress(dictionaries=FolderDictionaries(path=str(tmp_path)))]).open()
        session.close()
        session.close()

    def test_show_no_passwords(self) -> None:
        from headerware.dictionaries import TopicDictionaries  # noqa: PLC0415 - only here

        shown = repr(
            Compress(
                dictionaries=TopicDictionaries(servers="a", topic="b", config={"sasl.password": "pssst"})
            )
        )
        assert "pssst" not in shown
        with pytest.raises(DictionaryError) as refused:
            Dictionary(b"pssst")
        assert "pssst" not in str(refused.value)
