"""Attacks on trained dictionaries, by those who write records or dictionaries: refused, within bounds."""

from __future__ import annotations

import tracemalloc
import uuid
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from headerware import Chain, Consumer, Context, Producer
from headerware.core.errors import CompressionError, DictionaryError, HeldBackError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.dictionaries import Dictionary, FolderDictionaries, TopicDictionaries
from headerware.dictionaries.dictionary import (
    COMPRESS_HEADER,
    MAX_DICTIONARY_BYTES,
    dictionary_key,
    encode_mark,
    id_of,
    use_key,
)
from headerware.dictionaries.store import publish
from headerware.dictionaries.topic import MAX_TOTAL_BYTES, DictionaryRows, TopicDictionaryStore
from headerware.interceptors.compress import Compress
from headerware.testing import EmbeddedCluster
from headerware.topic_table.rows import TableRecord
from tests.airports import airports, trained
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headerware.dictionaries.folder import FolderDictionaryStore

MIB = 1 << 20
VALUE = airports()[7]
UNKNOWN = "00" * 16


class Clock:
    """The clock of a session."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


class CountingStore:
    """A folder's store that counts how often it is asked for a dictionary."""

    def __init__(self, store: FolderDictionaryStore) -> None:
        self._store = store
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, dictionary_id: str) -> bytes | None:
        self.asked += 1
        return self._store.get(dictionary_id)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def folder(tmp_path: Path) -> FolderDictionaryStore:
    store = FolderDictionaries(path=str(tmp_path), rescan_s=0).open()
    publish(store, trained(), "airports")
    return store


def consumer_step(store: Any, clock: Clock | None = None, **options: Any) -> Any:
    context = Context(side="consumer", bootstrap_servers="any:9092", now_ms=clock or Clock())
    return Compress(dictionaries=store, **options).open(context)


def marked(value: bytes, dictionary_id: str) -> Record:
    return Record("airports", value, b"k", Headers([(COMPRESS_HEADER, encode_mark(dictionary_id))]))


def sent_with(store: Any, value: bytes = VALUE) -> Record:
    sent: Record = Compress(dictionaries=store).open(Context()).on_send(Record("airports", value, b"k"))
    assert sent.headers.last(COMPRESS_HEADER) not in {None, b"zstd"}
    return sent


def frame(plain: bytes, dictionary: Dictionary, **options: Any) -> bytes:
    known = zstandard.ZstdCompressionDict(dictionary.content)
    made: bytes = zstandard.ZstdCompressor(dict_data=known, **options).compress(plain)
    return made


class TestUnknownIds:
    def test_a_record_is_held_back_while_its_dictionary_may_come(self, folder: FolderDictionaryStore) -> None:
        clock = Clock()
        step = consumer_step(folder, clock)
        late = marked(frame(VALUE, trained(4096)), trained(4096).id)
        with pytest.raises(HeldBackError, match="does not have yet; records wait for it, 10 s at most"):
            step.on_consume(late)
        clock.ms += 9_999
        with pytest.raises(HeldBackError):
            step.on_consume(late)
        folder.put(trained(4096))
        assert step.on_consume(late).value == VALUE

    def test_it_is_refused_if_the_dictionary_does_not_come(self, folder: FolderDictionaryStore) -> None:
        clock = Clock()
        step = consumer_step(folder, clock)
        with pytest.raises(HeldBackError):
            step.on_consume(marked(b"x", UNKNOWN))
        clock.ms += 10_000
        with pytest.raises(CompressionError, match=f"{UNKNOWN}, which the store does not have; publish"):
            step.on_consume(marked(b"x", UNKNOWN))
        assert step.stats()["dictionary_held_back"] == step.stats()["dictionary_missing"] == 1

    def test_a_flood_takes_a_tenth_of_the_time_at_most(self, folder: FolderDictionaryStore) -> None:
        clock = Clock()
        step = consumer_step(folder, clock)
        began = clock.ms
        waited_ms = 0
        for number in range(5_000):
            hostile = marked(b"x", f"{number:032x}")
            while True:
                try:
                    step.on_consume(hostile)
                except HeldBackError:
                    clock.ms += 1_000
                    waited_ms += 1_000
                except CompressionError:
                    clock.ms += 100  # the next records take some time
                    break
        assert waited_ms >= 10_000
        assert waited_ms <= (clock.ms - began) / 10 + 10_000

    def test_one_id_again_and_again_does_not_keep_others_from_being_waited_for(
        self, folder: FolderDictionaryStore
    ) -> None:
        clock = Clock()
        step = consumer_step(folder, clock)
        with pytest.raises(HeldBackError):
            step.on_consume(marked(b"x", UNKNOWN))
        clock.ms += 10_000
        for _ in range(200):
            with pytest.raises(CompressionError):
                step.on_consume(marked(b"x", UNKNOWN))
            clock.ms += 1_000
        with pytest.raises(HeldBackError):
            step.on_consume(marked(b"x", "11" * 16))

    def test_a_flood_is_no_flood_of_requests_to_the_brokers(
        self, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster.create_topic(topic := uuid.uuid4().hex)
        now = [1e9]
        options = TopicDictionaries(servers=cluster.bootstrap_servers, topic=topic)
        store = TopicDictionaryStore(options, clock=lambda: now[0])
        publish(store, trained(), "airports")
        table = store._table
        assert table is not None
        refreshes = 0
        refresh = table.refresh

        def counted(timeout_s: float) -> bool:
            nonlocal refreshes
            refreshes += 1
            return refresh(timeout_s)

        monkeypatch.setattr(table, "refresh", counted)  # it still asks the brokers
        step = consumer_step(store, missing_dictionary_wait_ms=0)
        for number in range(2_000):
            with pytest.raises(CompressionError):
                step.on_consume(marked(b"x", f"{number:032x}"))
            now[0] += 0.001
        store.close()
        assert 1 <= refreshes <= 3

    def test_a_flood_takes_bounded_memory(self, folder: FolderDictionaryStore) -> None:
        step = consumer_step(folder, missing_dictionary_wait_ms=0)

        def flood(start: int) -> None:
            for number in range(start, start + 3_000):
                with pytest.raises(CompressionError):
                    step.on_consume(marked(b"x", f"{number:032x}"))

        flood(0)
        tracemalloc.start()
        try:
            flood(3_000)
            # Of ours alone: clients of other tests may be at work in this process.
            ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/headerware/*")])  # noqa: FBT003
            grown = sum(trace.size for trace in ours.traces)
        finally:
            tracemalloc.stop()
        assert grown < 200_000

    def test_a_store_out_of_reach_holds_the_stream(self, tmp_path: Path) -> None:
        clock = Clock()
        step = consumer_step(FolderDictionaries(path=str(tmp_path / "none")), clock)
        for _ in range(3):
            with pytest.raises(HeldBackError, match="cannot be fetched: there is no folder"):
                step.on_consume(marked(b"x", UNKNOWN))
            clock.ms += 3_600_000

    def test_a_consumer_passes_nothing_over_and_goes_on_when_the_dictionary_comes(
        self, cluster: EmbeddedCluster
    ) -> None:
        cluster.create_topic(topic := uuid.uuid4().hex)
        cluster.create_topic(records := uuid.uuid4().hex)
        settings = TopicDictionaries(servers=cluster.bootstrap_servers, topic=topic)
        conf = {"bootstrap.servers": cluster.bootstrap_servers}
        mark = encode_mark(trained().id)
        with Producer(conf) as plain:
            plain.produce(records, frame(VALUE, trained()), headers=[(COMPRESS_HEADER, mark)])
            plain.produce(records, b"the next one")
        group = {"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
        waits = Compress(dictionaries=settings, missing_dictionary_wait_ms=600_000)
        consumer = Consumer({**conf, **group}, chain=Chain([waits]))
        consumer.subscribe([records])
        found: list[bytes | None] = []
        held_back = 0

        def take() -> None:
            nonlocal held_back
            try:
                message = consumer.poll(0.1)
            except HeldBackError:
                held_back += 1
            else:
                if message is not None:
                    found.append(message.value())

        until(lambda: held_back, "the stream to wait", meanwhile=take)
        assert found == []
        store = settings.open()
        store.put(trained())
        store.close()
        until(lambda: len(found) == 2, "both records", meanwhile=take)
        consumer.close()
        assert found == [VALUE, b"the next one"]

    def test_without_a_client_nothing_is_waited_for(self, folder: FolderDictionaryStore) -> None:
        step = Compress(dictionaries=folder).open(Context(side="consumer"))
        with pytest.raises(CompressionError, match="publish it in the store"):
            step.on_consume(marked(b"x", UNKNOWN))


class TestTamperedRecords:
    def test_another_dictionarys_id_does_not_give_the_value(self, folder: FolderDictionaryStore) -> None:
        folder.put(trained(4096))
        named = marked(frame(VALUE, trained()), trained(4096).id)  # the frame names the other one
        with pytest.raises(CompressionError, match="names another dictionary"):
            consumer_step(folder).on_consume(named)

    def test_a_frame_that_names_no_dictionary_is_refused(self, folder: FolderDictionaryStore) -> None:
        """Libraries that find dictionaries by the frame's id could not open it."""
        named = marked(frame(VALUE, trained(), write_dict_id=False), trained().id)
        with pytest.raises(CompressionError, match="names no dictionary"):
            consumer_step(folder).on_consume(named)

    @pytest.mark.parametrize("name", [b"zstd", b"gzip"])
    def test_a_codecs_name_in_place_of_the_id_is_refused(
        self, folder: FolderDictionaryStore, name: bytes
    ) -> None:
        sent = sent_with(folder)
        forged = sent.with_headers(Headers([(COMPRESS_HEADER, name)]))
        with pytest.raises(CompressionError):
            consumer_step(folder).on_consume(forged)

    def test_a_cut_frame_is_refused_at_every_length(self, folder: FolderDictionaryStore) -> None:
        sent, step = sent_with(folder), consumer_step(folder)
        for length in range(len(sent.value or b"")):
            with pytest.raises(CompressionError):
                step.on_consume(sent.with_value((sent.value or b"")[:length], sent.headers))

    def test_bytes_behind_the_frame_are_refused(self, folder: FolderDictionaryStore) -> None:
        sent = sent_with(folder)
        for more in (b"\0", sent.value or b"", (sent.value or b"")[4:]):
            with pytest.raises(CompressionError):
                consumer_step(folder).on_consume(sent.with_value((sent.value or b"") + more, sent.headers))

    def test_a_cut_or_second_header_is_refused(self, folder: FolderDictionaryStore) -> None:
        sent, step = sent_with(folder), consumer_step(folder)
        mark = sent.headers.last(COMPRESS_HEADER) or b""
        for length in range(len(mark)):
            with pytest.raises(CompressionError, match="or a dictionary's id, found another codec"):
                step.on_consume(sent.with_headers(Headers([(COMPRESS_HEADER, mark[:length])])))
        with pytest.raises(CompressionError, match="appears 2 times"):
            step.on_consume(sent.with_headers(Headers([(COMPRESS_HEADER, mark)] * 2)))


class TestBombs:
    @pytest.mark.parametrize("states_size", [True, False])
    def test_one_behind_a_dictionary_stays_below_the_cap(
        self, folder: FolderDictionaryStore, *, states_size: bool
    ) -> None:
        bomb = marked(frame(bytes(64 * MIB), trained(), write_content_size=states_size), trained().id)
        assert len(bomb.value or b"") < 10_000
        step = consumer_step(folder, max_decompressed_bytes=16 * MIB)
        step.on_consume(sent_with(folder))  # the dictionary is ready
        tracemalloc.start()
        try:
            with pytest.raises(CompressionError, match="cap of 16777216"):
                step.on_consume(bomb)
            assert tracemalloc.get_traced_memory()[1] < 16 * MIB * 1.25
        finally:
            tracemalloc.stop()

    def test_one_in_the_dictionary_itself_stays_below_the_cap(self, folder: FolderDictionaryStore) -> None:
        zeros = trained().content[:-8_192] + bytes(8_192)  # a frame can refer to all of it in few bytes
        hostile = Dictionary(zeros)
        folder.put(hostile)
        bomb = marked(frame(bytes(32 * MIB), hostile, write_content_size=False), hostile.id)
        with pytest.raises(CompressionError, match="cap of 1048576"):
            consumer_step(folder, max_decompressed_bytes=MIB).on_consume(bomb)

    def test_a_huge_dictionary_is_none(self, tmp_path: Path) -> None:
        content = trained().content + bytes(MAX_DICTIONARY_BYTES)
        with pytest.raises(DictionaryError, match="at most 262,144 bytes"):
            Dictionary(content)
        (tmp_path / f"{id_of(content)}.dict").write_bytes(content)
        with pytest.raises(HeldBackError, match="larger than 262,144 bytes"):
            consumer_step(FolderDictionaries(path=str(tmp_path))).on_consume(marked(b"x", id_of(content)))


class TestForgedDictionaries:
    def test_other_bytes_under_an_id_are_not_there(
        self, folder: FolderDictionaryStore, tmp_path: Path
    ) -> None:
        sent = sent_with(folder)
        (tmp_path / f"{trained().id}.dict").write_bytes(trained(4096).content)
        step = consumer_step(folder, missing_dictionary_wait_ms=0)
        with pytest.raises(CompressionError, match="which the store does not have"):
            step.on_consume(sent)

    def test_a_damaged_one_is_refused_at_every_use(self, folder: FolderDictionaryStore) -> None:
        damaged = Dictionary(trained().content[:8] + bytes(1_000))  # it has the right magic number
        folder.put(damaged)
        with pytest.raises(CompressionError, match="zstd cannot use it, because it is damaged"):
            consumer_step(folder).on_consume(marked(b"x", damaged.id))
        publish(folder, damaged, "airports")
        step = Compress(dictionaries=folder).open(Context())
        assert step.on_send(Record("airports", VALUE * 9)).headers == Headers([(COMPRESS_HEADER, "zstd")])

    def test_one_that_is_not_trusted_is_neither_written_nor_read(self, folder: FolderDictionaryStore) -> None:
        sent = sent_with(folder)
        publish(folder, trained(4096), "airports")  # by somebody who should not
        step = consumer_step(folder, trusted_dictionaries=(trained().id,))
        assert step.on_consume(sent).value == VALUE
        with pytest.raises(CompressionError, match="not among trusted_dictionaries"):
            step.on_consume(marked(frame(VALUE, trained(4096)), trained(4096).id))
        plain = step.on_send(Record("airports", VALUE * 9))
        assert plain.headers == Headers([(COMPRESS_HEADER, "zstd")])


class TestForgedTopic:
    """Whoever may write to the dictionaries' topic can withhold dictionaries, but not change one."""

    @staticmethod
    def rows(*records: tuple[bytes, bytes | None]) -> DictionaryRows:
        rows = DictionaryRows()
        for offset, (key, value) in enumerate(records):
            rows.apply(TableRecord(offset, key, value))
        return rows

    def test_a_rewritten_dictionary_leaves_the_one_before(self) -> None:
        key = dictionary_key(trained().id)
        rows = self.rows((key, trained().content), (key, trained(4096).content), (key, b""))
        assert rows.get(key) == trained().content

    def test_an_earlier_version_does_not_come_back(self, folder: FolderDictionaryStore) -> None:
        from headerware.dictionaries.dictionary import encode_use  # noqa: PLC0415 - only here

        [first] = folder.uses()
        second = publish(folder, trained(4096), "airports")
        rows = self.rows(*((first.key, encode_use(each)) for each in (first, second, first)))
        assert rows.uses[first.key].current.dictionary == trained(4096).id

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            (b"use/airports", b"{}"),
            (b"use/airports", b"\xff"),
            (b"use/airports", b"[" * 70_000),
            (b"use/other", b""),
            (b"dictionary/../../x", b"\x37\xa4\x30\xec"),
            (b"dictionary/\xff", b"\x37\xa4\x30\xec"),
            (b"", b"x"),
        ],
    )
    def test_garbage_is_no_row(self, key: bytes, value: bytes) -> None:
        assert self.rows((key, value)).records() == []

    def test_a_flood_of_dictionaries_takes_bounded_memory(self) -> None:
        rows = DictionaryRows()
        content = trained().content + bytes(MAX_DICTIONARY_BYTES - 16_384 - 4)
        count = MAX_TOTAL_BYTES // MAX_DICTIONARY_BYTES + 50
        for number in range(count):
            own = content + number.to_bytes(4, "big")
            rows.apply(TableRecord(number, dictionary_key(id_of(own)), own))
        kept = sum(len(each.value or b"") for each in rows.records())
        assert MAX_TOTAL_BYTES * 0.9 < kept <= MAX_TOTAL_BYTES

    def test_room_comes_back_when_rows_are_removed(self) -> None:
        rows = DictionaryRows()
        content = trained().content + bytes(MAX_DICTIONARY_BYTES - 16_384 - 4)
        for number in range(2 * MAX_TOTAL_BYTES // MAX_DICTIONARY_BYTES):
            own = content + number.to_bytes(4, "big")
            assert rows.apply(TableRecord(2 * number, dictionary_key(id_of(own)), own))
            assert rows.apply(TableRecord(2 * number + 1, dictionary_key(id_of(own)), None))

    def test_a_rewritten_topic_changes_nothing_for_clients_at_work(self, cluster: EmbeddedCluster) -> None:
        cluster.create_topic(topic := uuid.uuid4().hex)
        cluster.create_topic(records := uuid.uuid4().hex)
        settings = TopicDictionaries(servers=cluster.bootstrap_servers, topic=topic)
        store = settings.open()
        publish(store, trained(), records)
        conf = {"bootstrap.servers": cluster.bootstrap_servers}
        chain = Chain([Compress(dictionaries=settings)])
        with Producer(conf, chain=chain) as producer:
            producer.produce(records, VALUE)
            producer.flush()
            with Producer(conf) as attacker:
                attacker.produce(topic, trained(4096).content, dictionary_key(trained().id))
                attacker.produce(topic, b"{}", use_key(records, None))
                attacker.produce(topic, b"the last one", b"the last one")
                attacker.flush()
            store.read()
            producer.produce(records, VALUE)
        store.close()
        consumer = Consumer(
            {**conf, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}, chain=chain
        )
        values: list[bytes | None] = []

        def take() -> None:
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None
                values.append(message.value())

        consumer.subscribe([records])
        until(lambda: len(values) == 2, "both records", meanwhile=take)
        consumer.close()
        assert values == [VALUE, VALUE]
