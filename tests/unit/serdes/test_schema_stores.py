from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import Schema as ConfluentSchema
from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient, SchemaRegistryError
from rich.pretty import pretty_repr

from headerware.core.errors import ConfigError, HeldBackError, PluginError, SerdeError, UnknownSchemaError
from headerware.core.extras import install_command
from headerware.serdes.avro.limits import Limits
from headerware.serdes.avro.schema import DIGEST_BYTES, AvroSchema
from headerware.serdes.avro.serde import Avro
from headerware.serdes.confluent.client import shared_client
from headerware.serdes.stores import Fingerprint, Schema, SchemaStore, Store, store_type
from headerware.serdes.stores.cache import CachedStore, Patience, open_shared
from headerware.serdes.stores.folder import FolderSchemas, FolderStore
from headerware.serdes.stores.schema_registry import RegistrySchemas, RegistryStore
from headerware.serdes.stores.topic import TopicSchemas
from tests.forking import as_nobody
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.serdes.avro.schema import Algorithm

LONG = AvroSchema.parsed('"long"').deposit("md5")
ORDER = AvroSchema.parsed(
    '{"type":"record","name":"shop.Order","fields":[{"name":"id","type":"long"}]}'
).deposit("md5")
UNKNOWN = Fingerprint("md5", bytes(16))
DEEP = AvroSchema.parsed(
    '{"type":"array","items":' * 200 + '"long"' + "}" * 200, Limits(max_depth=300)
).deposit("md5")
ALGORITHMS = pytest.mark.parametrize("algorithm", DIGEST_BYTES)


class Clock:
    """A clock that goes when it is told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class CountingStore:
    """Keep schemas in memory, count what is asked, and fail or wait when told to."""

    def __init__(self) -> None:
        self.texts: dict[Fingerprint, str] = {}
        self.asked: list[str] = []
        self.error: Exception | None = None
        self.open_gate = threading.Event()
        self.open_gate.set()
        self.takes_s = 0.0
        self.clock: Clock | None = None

    def get(self, fingerprint: Fingerprint) -> str:
        self._answer("get")
        try:
            return self.texts[fingerprint]
        except KeyError:
            raise UnknownSchemaError("not there") from None

    def put(self, schema: Schema) -> None:
        self._answer("put")
        self.texts[schema.fingerprint] = schema.text

    def close(self) -> None:
        self.asked.append("close")

    def _answer(self, what: str) -> None:
        self.asked.append(what)
        assert self.open_gate.wait(60)
        if self.clock is not None:
            self.clock.now += self.takes_s
        if self.error is not None:
            raise self.error


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cached(store: CountingStore, clock: Clock) -> CachedStore:
    return CachedStore(store, patience=Patience(unknown_s=30, failure_s=1), clock=clock)


class TestCachedStore:
    def test_five_threads_that_ask_for_one_schema_make_one_fetch(
        self, store: CountingStore, cached: CachedStore
    ) -> None:
        store.texts[LONG.fingerprint] = LONG.text
        store.open_gate.clear()
        with ThreadPoolExecutor(5) as threads:
            answers = [threads.submit(cached.get, LONG.fingerprint) for _ in range(5)]
            until(lambda: sum(answer.running() for answer in answers) == 5)
            store.open_gate.set()
            assert [answer.result(60) for answer in answers] == [LONG.text] * 5
        assert store.asked == ["get"]

    def test_threads_that_wait_get_the_error_each_one_of_its_own(
        self, store: CountingStore, cached: CachedStore
    ) -> None:
        store.open_gate.clear()
        store.error = SerdeError("out of reach")
        with ThreadPoolExecutor(5) as threads:
            answers = [threads.submit(cached.get, LONG.fingerprint) for _ in range(5)]
            until(lambda: sum(answer.running() for answer in answers) == 5)
            store.open_gate.set()
            errors = [answer.exception(10) for answer in answers]
        assert {str(error) for error in errors} == {"out of reach"}
        assert len({id(error) for error in errors}) == 5
        assert store.asked == ["get"]

    def test_other_schemas_do_not_wait(self, store: CountingStore, cached: CachedStore) -> None:
        store.texts = {LONG.fingerprint: LONG.text, ORDER.fingerprint: ORDER.text}
        cached.get(ORDER.fingerprint)
        store.open_gate.clear()
        with ThreadPoolExecutor(1) as threads:
            slow = threads.submit(cached.get, LONG.fingerprint)
            until(lambda: len(store.asked) == 2)
            assert cached.get(ORDER.fingerprint) == ORDER.text
            store.open_gate.set()
            assert slow.result(60) == LONG.text

    def test_an_unknown_schema_stays_unknown_for_a_while(
        self, store: CountingStore, cached: CachedStore, clock: Clock
    ) -> None:
        for _ in range(3):
            with pytest.raises(UnknownSchemaError):
                cached.get(LONG.fingerprint)
        assert store.asked == ["get"]
        store.texts[LONG.fingerprint] = LONG.text
        clock.now += 29.9
        with pytest.raises(UnknownSchemaError):
            cached.get(LONG.fingerprint)
        clock.now += 0.2
        assert cached.get(LONG.fingerprint) == LONG.text

    def test_a_store_that_fails_is_asked_again_soon(
        self, store: CountingStore, cached: CachedStore, clock: Clock
    ) -> None:
        store.texts[LONG.fingerprint] = LONG.text
        store.error = SerdeError("out of reach")
        for _ in range(3):
            with pytest.raises(SerdeError, match="out of reach"):
                cached.get(LONG.fingerprint)
        assert store.asked == ["get"]
        store.error = None
        clock.now += 1.1
        assert cached.get(LONG.fingerprint) == LONG.text

    def test_a_deposit_is_made_once_and_answers_what_was_unknown(
        self, store: CountingStore, cached: CachedStore
    ) -> None:
        with pytest.raises(UnknownSchemaError):
            cached.get(LONG.fingerprint)
        for _ in range(3):
            cached.put(LONG)
        assert cached.get(LONG.fingerprint) == LONG.text
        assert store.asked == ["get", "put"]

    def test_a_deposit_that_failed_is_made_again(
        self, store: CountingStore, cached: CachedStore, clock: Clock
    ) -> None:
        store.error = SerdeError("out of reach")
        for _ in range(2):
            with pytest.raises(SerdeError, match="out of reach"):
                cached.put(LONG)
        store.error = None
        clock.now += 1.1
        cached.put(LONG)
        assert store.asked == ["put", "put"]
        assert store.texts == {LONG.fingerprint: LONG.text}

    def test_an_interrupted_fetch_leaves_no_trace(self, store: CountingStore, cached: CachedStore) -> None:
        store.texts[LONG.fingerprint] = LONG.text
        store.error = KeyboardInterrupt()  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            cached.get(LONG.fingerprint)
        store.error = None
        assert cached.get(LONG.fingerprint) == LONG.text

    def test_remembers_no_more_than_it_was_told(self, store: CountingStore, clock: Clock) -> None:
        cached = CachedStore(store, max_schemas=2, clock=clock)
        store.texts = {Fingerprint("md5", bytes((index,)) * 16): "x" for index in range(3)}
        first, second, third = store.texts
        for fingerprint in (first, second, first, third, first, second):
            cached.get(fingerprint)
        assert store.asked == ["get"] * 4  # the first stayed, for it was asked for in between

    def test_a_flood_of_unknown_fingerprints_is_not_remembered(
        self, store: CountingStore, clock: Clock
    ) -> None:
        cached = CachedStore(store, max_schemas=10, clock=clock)
        for index in range(1000):
            with pytest.raises(UnknownSchemaError):
                cached.get(Fingerprint("md5", index.to_bytes(16, "big")))
        assert len(cached._answers._refused) <= 10

    @pytest.mark.parametrize("what", ["unknown", "out of reach"])
    def test_a_flood_of_unknown_fingerprints_takes_bounded_time(
        self, store: CountingStore, cached: CachedStore, clock: Clock, what: str
    ) -> None:
        store.takes_s, store.clock = 0.2, clock
        store.error = SerdeError(what) if what == "out of reach" else None
        began = clock.now
        for index in range(10_000):
            clock.now += 0.01
            with pytest.raises((SerdeError, HeldBackError)):
                cached.get(Fingerprint("md5", index.to_bytes(16, "big")))
        passed = clock.now - began
        # Two seconds at once, and a tenth of the time.
        assert 0.2 * len(store.asked) < 2 + 0.1 * passed + 0.4

    def test_a_new_schema_arrives_soon_in_a_flood(
        self, store: CountingStore, cached: CachedStore, clock: Clock
    ) -> None:
        store.takes_s, store.clock = 0.2, clock
        unknown = (Fingerprint("md5", index.to_bytes(16, "big")) for index in range(10_000))
        for fingerprint in islice(unknown, 1000):
            with pytest.raises((UnknownSchemaError, HeldBackError)):
                cached.get(fingerprint)
        store.texts[LONG.fingerprint] = LONG.text
        began, text = clock.now, ""
        while not text:
            clock.now += 0.1
            with suppress(HeldBackError):
                text = cached.get(LONG.fingerprint)
            with suppress(UnknownSchemaError, HeldBackError):
                cached.get(next(unknown))
        assert clock.now - began < 10

    def test_a_record_that_waits_long_comes_before_those_of_the_flood(
        self, store: CountingStore, cached: CachedStore, clock: Clock
    ) -> None:
        """Where the flood goes on, a record is tried again at once; one that waits, every ten seconds."""
        store.takes_s, store.clock, store.texts = 0.2, clock, {LONG.fingerprint: LONG.text}
        unknown = (Fingerprint("md5", index.to_bytes(16, "big")) for index in range(10_000))
        floods = [next(unknown) for _ in range(10)]
        text, pause_s, due_s, tries = "", 0.1, clock.now + 60, 0
        while not text and tries < 15:
            clock.now += 0.05
            for at, fingerprint in enumerate(floods):
                with suppress(HeldBackError):
                    try:
                        cached.get(fingerprint)
                    except UnknownSchemaError:
                        floods[at] = next(unknown)
            if clock.now >= due_s:
                tries += 1
                pause_s = min(2 * pause_s, 10.0)
                due_s = clock.now + pause_s
                with suppress(HeldBackError):
                    text = cached.get(LONG.fingerprint)
        assert text == LONG.text

    def test_whoever_has_stopped_waiting_stops_nobody(
        self, store: CountingStore, cached: CachedStore, clock: Clock
    ) -> None:
        store.takes_s, store.clock, store.texts = 3.0, clock, {LONG.fingerprint: LONG.text}
        with pytest.raises(UnknownSchemaError):
            cached.get(ORDER.fingerprint)
        for _ in range(3):
            with pytest.raises(HeldBackError):
                cached.get(UNKNOWN)  # and never again
        clock.now += 16
        assert cached.get(LONG.fingerprint) == LONG.text

    def test_a_flood_of_records_that_do_not_wait_stops_nobody(
        self, store: CountingStore, cached: CachedStore, clock: Clock
    ) -> None:
        """Readers that cannot hold a record back ask for each schema once."""
        store.takes_s, store.clock = 0.2, clock
        for index in range(10_000):
            clock.now += 0.01
            with suppress(UnknownSchemaError, HeldBackError):
                cached.get(Fingerprint("md5", index.to_bytes(16, "big")))
        assert len(store.asked) > 40

    def test_a_flood_is_logged_once(
        self, store: CountingStore, cached: CachedStore, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        store.takes_s, store.clock = 0.2, clock
        for index in range(1_000):
            clock.now += 0.1
            with suppress(UnknownSchemaError, HeldBackError):
                cached.get(Fingerprint("md5", index.to_bytes(16, "big")))
        assert len(caplog.records) == 1

    def test_a_slow_failure_keeps_nobody_from_asking_for_more_than_ten_seconds(
        self, store: CountingStore, cached: CachedStore, clock: Clock
    ) -> None:
        store.takes_s, store.clock = 3600.0, clock
        with pytest.raises(UnknownSchemaError):
            cached.get(ORDER.fingerprint)
        store.texts[LONG.fingerprint] = LONG.text
        with pytest.raises(HeldBackError, match=r"asked again in 10\.0 s"):
            cached.get(LONG.fingerprint)
        clock.now += 10.1
        assert cached.get(LONG.fingerprint) == LONG.text

    def test_good_answers_and_deposits_are_not_counted(
        self, store: CountingStore, cached: CachedStore, clock: Clock
    ) -> None:
        store.takes_s, store.clock = 60.0, clock
        cached.put(LONG)
        store.texts = {Fingerprint("md5", bytes((index,)) * 16): "x" for index in range(9)}
        for fingerprint in store.texts:
            assert cached.get(fingerprint) == "x"

    def test_a_store_without_ids_says_so(self, cached: CachedStore) -> None:
        assert not cached.is_numbered
        for ask in (
            lambda: cached.by_id(1),
            lambda: cached.by_guid(bytes(16)),
            lambda: cached.register("s", "x"),
        ):
            with pytest.raises(SerdeError, match="keeps no ids"):
                ask()


class TestConfluentsOwnClient:
    @pytest.mark.parametrize("ask", ["get_schema", "get_schema_by_guid"])
    def test_is_asked_once_for_a_schema_that_the_registry_does_not_have(
        self, ask: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[Any] = []

        def unknown(_: Any, what: Any) -> Any:
            asked.append(what)
            raise SchemaRegistryError(404, 40403, "no schema")

        monkeypatch.setattr(type(SchemaRegistryClient.new_client({"url": "mock://"})), ask, unknown)
        shared = shared_client(f"mock://{ask}", {})
        for _ in range(3):
            with pytest.raises(SchemaRegistryError):
                getattr(shared.client, ask)("7")
        assert asked == ["7"]
        shared.close()


class TestOpenShared:
    def test_an_opened_store_is_shared_and_belongs_to_its_maker(self, store: CountingStore) -> None:
        first, second = open_shared(store), open_shared(store)
        assert first is second
        first.close()
        second.close()
        assert store.asked == []
        assert open_shared(CountingStore()) is not first

    def test_options_are_closed_with_their_last_user(self) -> None:
        closed: list[str] = []

        class Counting(Store, frozen=True, kw_only=True):
            url: str

            def open(self) -> Any:
                store = CountingStore()
                store.close = lambda: closed.append(self.url)  # type: ignore[method-assign]
                return store

        first, second, other = (
            open_shared(Counting(url="a")),
            open_shared(Counting(url="a")),
            open_shared(Counting(url="b")),
        )
        assert first is second is not other
        first.close()
        assert closed == []
        second.close()
        assert closed == ["a"]
        again = open_shared(Counting(url="a"))
        assert again is not first
        again.close()
        other.close()
        assert closed == ["a", "a", "b"]

    def test_the_words_stand_for_the_stores(self) -> None:
        assert store_type("folder") is FolderSchemas
        assert store_type("registry") is RegistrySchemas
        with pytest.raises(PluginError, match="did you mean 'folder'"):
            store_type("foldr")


class TestFolderStore:
    @ALGORITHMS
    def test_finds_any_file_by_any_digest(self, tmp_path: Path, algorithm: Algorithm) -> None:
        (tmp_path / "whatever.avsc").write_text('{ "type": "long" }')
        assert FolderStore(tmp_path).get(Fingerprint.of('"long"', algorithm)) == '{"type":"long"}'

    def test_scans_again_for_missing_schemas_but_not_all_the_time(self, tmp_path: Path, clock: Clock) -> None:
        store = FolderStore(tmp_path, rescan_s=5, clock=clock)
        with pytest.raises(UnknownSchemaError, match="put the schema there"):
            store.get(LONG.fingerprint)
        (tmp_path / "long.avsc").write_text(LONG.text)
        clock.now += 4.9
        with pytest.raises(UnknownSchemaError):
            store.get(LONG.fingerprint)
        clock.now += 0.2
        assert store.get(LONG.fingerprint) == LONG.text

    def test_a_file_that_changes_is_read_again(self, tmp_path: Path) -> None:
        store = FolderStore(tmp_path, rescan_s=0)
        (tmp_path / "a.avsc").write_text(LONG.text)
        assert store.get(LONG.fingerprint) == LONG.text
        (tmp_path / "a.avsc").write_text(ORDER.text)
        assert store.get(ORDER.fingerprint) == ORDER.text
        with pytest.raises(UnknownSchemaError):
            store.get(LONG.fingerprint)

    def test_bad_files_are_skipped_with_one_warning_each(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "bad.avsc").write_text('{"type": "recrd"}')
        (tmp_path / "broken.avsc").write_bytes(b"\xff")
        (tmp_path / "folder.avsc").mkdir()
        (tmp_path / "long.avsc").write_text(LONG.text)
        (tmp_path / "readme.md").write_text("no schema, and no warning")
        store = FolderStore(tmp_path, rescan_s=0)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert store.get(LONG.fingerprint) == LONG.text
                with pytest.raises(UnknownSchemaError):
                    store.get(UNKNOWN)
        warned = [record.getMessage() for record in caplog.records]
        assert len(warned) == 3
        for name in ("bad.avsc", "broken.avsc", "folder.avsc"):
            assert sum(str(tmp_path / name) in text for text in warned) == 1

    def test_links_that_lead_nowhere_and_pipes_are_skipped(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "link.avsc").symlink_to(tmp_path / "gone")
        os.mkfifo(tmp_path / "pipe.avsc")
        (tmp_path / "long.avsc").write_text(LONG.text)
        store = FolderStore(tmp_path, rescan_s=0)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert store.get(LONG.fingerprint) == LONG.text
                with pytest.raises(UnknownSchemaError):
                    store.get(UNKNOWN)
        assert len(caplog.records) == 2

    def test_a_huge_file_is_skipped(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / "huge.avsc").touch()
        os.truncate(tmp_path / "huge.avsc", 1 << 40)
        (tmp_path / "long.avsc").write_text(LONG.text)
        assert FolderStore(tmp_path).get(LONG.fingerprint) == LONG.text
        assert "it is larger than 16,777,216 bytes" in caplog.text

    def test_a_schema_as_deep_as_a_serde_may_allow(self, tmp_path: Path) -> None:
        store = FolderStore(tmp_path)
        store.put(DEEP)
        assert store.get(DEEP.fingerprint) == DEEP.text

    def test_a_missing_folder(self, tmp_path: Path) -> None:
        with pytest.raises(HeldBackError, match="cannot read the schema folder"):
            FolderStore(tmp_path / "none").get(LONG.fingerprint)

    def test_a_deposit_makes_a_file_with_a_name_for_people(self, tmp_path: Path) -> None:
        store = FolderStore(tmp_path / "new")
        store.put(ORDER)
        store.put(LONG)
        names = sorted(path.name for path in (tmp_path / "new").iterdir())
        assert names == [
            f"schema-{LONG.fingerprint.digest.hex()}.avsc",
            f"shop.Order-{ORDER.fingerprint.digest.hex()}.avsc",
        ]
        assert FolderStore(tmp_path / "new").get(ORDER.fingerprint) == ORDER.text

    def test_a_schema_that_a_file_has_is_not_written_again(self, tmp_path: Path) -> None:
        (tmp_path / "long.avsc").write_text('{"type": "long", "doc": "the same"}')
        FolderStore(tmp_path).put(LONG)
        assert [path.name for path in tmp_path.iterdir()] == ["long.avsc"]

    @pytest.mark.parametrize("name", ["../../escape", "/etc/passwd", "..", "a" * 500, "", "né\0"])
    def test_a_name_does_not_lead_out_of_the_folder(self, tmp_path: Path, name: str) -> None:
        folder = tmp_path / "inner"
        FolderStore(folder).put(Schema(LONG.fingerprint, LONG.text, name))
        assert len(list(folder.iterdir())) == 1
        assert [path.name for path in tmp_path.iterdir()] == ["inner"]

    def test_processes_that_deposit_at_once_do_no_harm(self, tmp_path: Path) -> None:
        program = (
            "import sys; from pathlib import Path\n"
            "from headerware.serdes.avro.schema import AvroSchema\n"
            "from headerware.serdes.stores.folder import FolderStore\n"
            "store = FolderStore(Path(sys.argv[1]))\n"
            "for size in range(20):\n"
            '    text = \'{"type":"fixed","name":"F","size":%d}\' % size\n'
            "    store.put(AvroSchema.parsed(text).deposit('md5'))\n"
        )
        writers = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) for _ in range(2)]
        assert [writer.wait(60) for writer in writers] == [0, 0]
        assert len(list(tmp_path.iterdir())) == 20
        text = '{"type":"fixed","name":"F","size":7}'
        assert FolderStore(tmp_path).get(Fingerprint.of(text)) == text

    def test_a_folder_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(SerdeError, match="cannot write a schema"):
            FolderStore(tmp_path / "file").put(LONG)

    def test_a_folder_without_permission(self, tmp_path: Path) -> None:
        FolderStore(tmp_path).put(LONG)  # nobody may be unable to read what this imports

        def told(folder: Path) -> str:
            folder.chmod(0o500)
            try:
                FolderStore(folder).put(LONG)
            except SerdeError as error:
                return str(error)
            finally:
                folder.chmod(0o700)
            return "written"

        assert re.search("cannot write a schema.*Permission denied", as_nobody(told))


class TestRegistryStore:
    @pytest.fixture
    def client(self) -> Any:
        return SchemaRegistryClient.new_client({"url": "mock://"})

    def test_is_a_store(self, client: Any) -> None:
        assert isinstance(RegistryStore(client), SchemaStore)

    @ALGORITHMS
    def test_finds_a_deposit_under_the_subject_of_its_fingerprint(
        self, client: Any, algorithm: Algorithm
    ) -> None:
        schema = AvroSchema.parsed(ORDER.text).deposit(algorithm)
        store = RegistryStore(client)
        store.put(schema)
        assert store.get(schema.fingerprint) == ORDER.text
        assert client.get_subjects() == [f"headerware-{algorithm}-{schema.fingerprint.digest.hex()}"]

    def test_ids_and_guids(self, client: Any) -> None:
        store = RegistryStore(client)
        schema_id, guid = store.register("orders-value", ORDER.text)
        assert store.by_id(schema_id) == store.by_guid(guid) == ORDER.text
        assert client.get_schema(schema_id).schema_str == ORDER.text

    def test_what_it_does_not_have(self, client: Any) -> None:
        store = RegistryStore(client)
        asks: tuple[Callable[[], str], ...] = (
            lambda: store.get(UNKNOWN),
            lambda: store.by_id(99),
            lambda: store.by_guid(bytes(16)),
        )
        for ask in asks:
            with pytest.raises(
                UnknownSchemaError, match=r"the schema registry at mock:.* has no schema under"
            ):
                ask()

    def test_a_registry_out_of_reach(self) -> None:
        url = "http://me:hunter2@127.0.0.1:9"
        store = RegistrySchemas(url=url, config={"timeout": 1, "max.retries": 0}).open()
        with pytest.raises(
            HeldBackError, match=r"the schema registry at http://127\.0\.0\.1:9 cannot be reached"
        ):
            store.get(UNKNOWN)
        store.close()

    def test_schemas_of_another_type_and_with_references(self, client: Any) -> None:
        number = client.register_schema("j-value", ConfluentSchema('{"type":"object"}', "JSON"))
        with pytest.raises(SerdeError, match="of type JSON under id 1, expected Avro"):
            RegistryStore(client).by_id(number)
        reference = SchemaReference("Other", "other-value", 1)
        number = client.register_schema("r-value", ConfluentSchema('"Other"', "AVRO", [reference]))
        with pytest.raises(SerdeError, match="refers to other schemas"):
            RegistryStore(client).by_id(number)

    @pytest.mark.parametrize(
        "subject", ["fixed", "{algorithm}", "{digest}{nobody}", "{", "{digest.x}", "{0}"]
    )
    def test_a_subject_needs_the_digest(self, subject: str) -> None:
        with pytest.raises(ConfigError, match=r"\{digest\}"):
            RegistrySchemas(url="mock://", subject=subject)

    @pytest.mark.parametrize(
        "settings", [{"url": ""}, {"url": "mock://", "config": {"no.such.setting": "hunter2"}}]
    )
    def test_settings_that_the_client_refuses(self, settings: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match="refuses its settings") as caught:
            RegistrySchemas(**settings).open()
        assert "hunter2" not in str(caught.value)

    def test_without_the_extra_it_says_what_to_install(self) -> None:
        program = (
            "import sys; sys.modules['certifi'] = None\n"
            "from headerware.serdes.stores.schema_registry import RegistrySchemas\n"
            "try: RegistrySchemas(url='mock://').open()\n"
            "except Exception as error: print(type(error).__name__, error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout.startswith("ConfigError")
        assert install_command("confluent") in done.stdout


class TestStoreOptions:
    @pytest.mark.parametrize(
        "options",
        [
            RegistrySchemas(
                url="http://user:hunter2@localhost", config={"basic.auth.user.info": "u:hunter2"}
            ),
            TopicSchemas(servers="localhost:9092", topic="schemas", config={"sasl.password": "hunter2"}),
        ],
    )
    def test_do_not_show_secrets(self, options: Any) -> None:
        serde = Avro(store=options, schema='"string"')
        for shown in (repr(options), str(options), repr(serde), pretty_repr(serde)):
            assert type(options).__name__ in shown
            assert "hunter2" not in shown


class TestSchemaStoresPackage:
    def test_imports_nothing_heavy(self) -> None:
        program = (
            "import sys, headerware.serdes.stores\n"
            "print(sorted({'fastavro', 'confluent_kafka'} & set(sys.modules)))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout.strip() == "[]"

    def test_a_fingerprint_shows_what_it_is(self) -> None:
        assert str(Fingerprint("rabin", bytes(8))) == "rabin 0000000000000000"
        assert Fingerprint("sha256", bytes(32)).code == b"\x03" + bytes(32)
        assert json.loads(ORDER.text)["name"] == ORDER.name == "shop.Order"
