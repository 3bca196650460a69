"""Both stores, by the same tests: on a disk, and in a topic of the embedded cluster."""

from __future__ import annotations

import os
import uuid
import warnings
from typing import TYPE_CHECKING

import pytest

from headerware.core.errors import DictionaryError
from headerware.dictionaries import Dictionaries, DictionaryStore, FolderDictionaries, TopicDictionaries
from headerware.dictionaries.store import open_shared, publish, use_for
from headerware.testing import EmbeddedCluster
from tests.airports import trained
from tests.forking import succeeds_in_a_child_made_within
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

UNKNOWN = "00" * 16


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture(params=["folder", "topic"])
def settings(request: pytest.FixtureRequest, tmp_path: Path, cluster: EmbeddedCluster) -> Dictionaries:
    if request.param == "folder":
        return FolderDictionaries(path=str(tmp_path), rescan_s=0)
    topic = f"dictionaries-{uuid.uuid4().hex}"
    cluster.create_topic(topic)
    return TopicDictionaries(servers=cluster.bootstrap_servers, topic=topic)


@pytest.fixture
def opened(settings: Dictionaries) -> Iterator[Callable[[], DictionaryStore]]:
    made: list[DictionaryStore] = []

    def open_one() -> DictionaryStore:
        store: DictionaryStore = settings.open()
        made.append(store)
        return store

    yield open_one
    for store in made:
        store.close()


class TestStore:
    def test_a_reader_finds_what_was_published(self, opened: Callable[[], DictionaryStore]) -> None:
        publish(opened(), trained(), "orders")
        reader = opened()
        assert reader.get(trained().id) == trained().content
        assert reader.known(trained().id) == trained().content
        reader.read()
        assert reader.ids() == [trained().id]
        assert [use.current.dictionary for use in reader.uses()] == [trained().id]

    def test_does_not_find_what_is_not_there(self, opened: Callable[[], DictionaryStore]) -> None:
        store = opened()
        publish(store, trained(), "orders")
        assert store.get(UNKNOWN) is None
        assert store.use("others", None) is None

    def test_a_follower_learns_of_a_new_version(self, opened: Callable[[], DictionaryStore]) -> None:
        publisher, follower = opened(), opened()
        publish(publisher, trained(), "orders")
        follower.start()
        before = follower.generation
        publish(publisher, trained(4096), "orders")
        until(lambda: follower.generation != before, "a new generation")

        def current() -> str | None:
            use = follower.use("orders", None)
            return None if use is None else use.current.dictionary

        until(lambda: current() == trained(4096).id, "the new version")
        assert follower.get(trained().id) == trained().content
        assert follower.get(trained(4096).id) == trained(4096).content

    def test_publishing_again_changes_nothing(self, opened: Callable[[], DictionaryStore]) -> None:
        first, second = opened(), opened()
        use = publish(first, trained(), "orders")
        second.read()
        assert publish(second, trained(), "orders") == use

    def test_a_content_type_has_its_own_dictionary(self, opened: Callable[[], DictionaryStore]) -> None:
        store = opened()
        publish(store, trained(), "orders")
        publish(store, trained(4096), "orders", "application/json")

        def of(content_type: bytes | None) -> str | None:
            use = use_for(store, "orders", content_type)
            return None if use is None else use.current.dictionary

        assert of(b"Application/JSON; charset=utf-8") == trained(4096).id
        assert of(b"text/csv") == of(None) == trained().id
        assert use_for(store, "others", b"application/json") is None

    def test_equal_settings_share_a_store_until_the_last_closes(self, settings: Dictionaries) -> None:
        one, two = open_shared(settings), open_shared(settings)
        assert one.store is two.store
        one.close()
        one.close()
        publish(two.store, trained(), "orders")
        two.close()
        again = open_shared(settings)
        assert again.store is not two.store
        again.close()

    def test_one_that_the_caller_has_opened_stays_open(self, opened: Callable[[], DictionaryStore]) -> None:
        store = opened()
        shared = open_shared(store)
        assert shared.store is store
        shared.close()
        publish(store, trained(), "orders")


class TestFolder:
    def test_says_that_there_is_no_folder(self, tmp_path: Path) -> None:
        store = FolderDictionaries(path=str(tmp_path / "none")).open()
        with pytest.raises(DictionaryError, match="none cannot be read: No such file"):
            store.read()
        with pytest.raises(DictionaryError, match="there is no folder"):
            store.get(UNKNOWN)

    @pytest.mark.parametrize("damaged", [b"{", b'{"uses":[{"topic":"\xff"}],"version":1}'])
    def test_a_damaged_list_leaves_what_was_read(self, tmp_path: Path, damaged: bytes) -> None:
        store = FolderDictionaries(path=str(tmp_path), rescan_s=0).open()
        publish(store, trained(), "orders")
        (tmp_path / "uses.json").write_bytes(damaged)
        with pytest.raises(DictionaryError, match=r"uses\.json: it is no list of uses"):
            store.read()
        assert store.use("orders", None) is not None
        with pytest.raises(DictionaryError, match=r"uses\.json"):  # it would be written over
            publish(store, trained(4096), "orders")
        assert (tmp_path / "uses.json").read_bytes() == damaged

    def test_a_child_that_is_forked_during_a_look_looks_for_itself(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = FolderDictionaries(path=str(tmp_path), rescan_s=0).open()
        publish(store, trained(), "orders")
        reader = FolderDictionaries(path=str(tmp_path), rescan_s=0).open()
        assert succeeds_in_a_child_made_within(
            monkeypatch,
            "headerware.dictionaries.folder.read_plain",
            lambda: reader.generation,
            lambda: reader.generation and reader.uses(),
        )

    def test_looks_no_more_often_than_it_should(self, tmp_path: Path) -> None:
        now = 0.0
        from headerware.dictionaries.folder import FolderDictionaryStore  # noqa: PLC0415 - only here

        store = FolderDictionaryStore(tmp_path, rescan_s=10, clock=lambda: now)
        before = store.generation
        publish(FolderDictionaries(path=str(tmp_path)).open(), trained(), "orders")
        now = 9.9
        assert store.generation == before
        now = 10.0
        assert store.generation != before


class TestTopic:
    def test_says_that_there_is_no_topic(self, cluster: EmbeddedCluster) -> None:
        store = TopicDictionaries(servers=cluster.bootstrap_servers, topic="none").open()
        try:
            with pytest.raises(DictionaryError, match="there is no topic 'none'"):
                store.read()
        finally:
            store.close()

    def test_takes_properties_as_tables(self, cluster: EmbeddedCluster) -> None:
        cluster.create_topic(name := f"tables-{uuid.uuid4().hex}")
        config = {"socket": {"timeout": {"ms": 5000}}, "client.id": "x"}
        store = TopicDictionaries(servers=cluster.bootstrap_servers, topic=name, config=config).open()
        try:
            publish(store, trained(), "orders")
        finally:
            store.close()

    def test_a_snapshot_stands_in_for_brokers_that_are_away(
        self, cluster: EmbeddedCluster, tmp_path: Path
    ) -> None:
        cluster.create_topic(name := f"saved-{uuid.uuid4().hex}")
        options = TopicDictionaries(
            servers=cluster.bootstrap_servers, topic=name, snapshot=str(tmp_path / "saved")
        )
        store = options.open()
        publish(store, trained(), "orders")
        store.close()
        away = TopicDictionaries(
            servers="127.0.0.1:1", topic=name, snapshot=str(tmp_path / "saved"), timeout_s=0.2
        ).open()
        try:
            assert away.get(trained().id) == trained().content
            assert away.use("orders", None) is not None
            with pytest.raises(DictionaryError, match=":1 is out of reach; it was last read at"):
                away.get(UNKNOWN)
        finally:
            away.close()

    def test_a_forked_child_reads_for_itself(self, cluster: EmbeddedCluster) -> None:
        cluster.create_topic(name := f"forked-{uuid.uuid4().hex}")
        store = TopicDictionaries(servers=cluster.bootstrap_servers, topic=name).open()
        publish(store, trained(), "orders")
        store.start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
            child = os.fork()
        if child == 0:
            found = store.get(trained().id)
            os._exit(0 if found == trained().content else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        store.close()
