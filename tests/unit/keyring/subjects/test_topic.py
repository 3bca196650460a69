from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headerware.core.context import Context
from headerware.core.errors import (
    HeldBackError,
    KeyDeletedError,
    KeyServiceError,
    KeyServiceUnavailableError,
    RegistryError,
)
from headerware.keyring import with_new_key
from headerware.keyring.services import FileKeys
from headerware.keyring.subjects.rows import ERASURE, SUBJECT_KEY, ErasureRow, SubjectKeyRow, decode_row
from headerware.keyring.subjects.service import SubjectKeyService
from headerware.keyring.subjects.store import SubjectFile
from headerware.keyring.subjects.topic import SubjectTable
from headerware.keyring.writing import edit_keyring
from headerware.topic_table import TopicTable, UnreachableError
from headerware.topic_table.rows import TableRecord, TableState
from tests.subjects import DEADLINE_S, World, record_of, refusal_of


class TestNewSubjects:
    def test_writers_that_meet_a_new_subject_at_once_agree_on_one_key(self, world: World) -> None:
        writers = [world.keys() for _ in range(4)]
        subjects = [f"customer-{number}" for number in range(8)]
        with ThreadPoolExecutor(8) as pool:
            asked = [(keys, subject) for subject in subjects for keys in writers]
            found = list(pool.map(lambda each: each[0].to_send(each[0].pseudonym(each[1])), asked))
        by_subject = [set(found[at : at + 4]) for at in range(0, len(found), 4)]
        assert [len(keys) for keys in by_subject] == [1] * len(subjects)

    def test_a_batch_of_new_subjects_is_written_together(self, world: World) -> None:
        keys = world.keys()
        pseudonyms = [keys.pseudonym(f"customer-{number}") for number in range(50)]
        keys.prepare(pseudonyms)
        keys.prepare(pseudonyms)
        assert sum(key[0] == SUBJECT_KEY for _, key, _ in world.rows()) == len(pseudonyms)

    def test_a_batch_of_records_of_new_subjects(self, world: World) -> None:
        session = world.open()
        records = [record_of(f"customer-{number % 20}") for number in range(100)]
        assert [each.value for each in session.consume(session.send(records))] == [b"secret"] * 100
        assert sum(key[0] == SUBJECT_KEY for _, key, _ in world.rows()) == 20

    def test_an_erased_subject_gets_none(self, world: World) -> None:
        keys = world.keys()
        keys.erase("ann")
        keys.prepare([keys.pseudonym("ann")])
        assert [key[0] for _, key, _ in world.rows() if key[0] == SUBJECT_KEY] == []

    def test_a_key_that_an_erasure_overtakes_is_not_used_and_removed(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keys = world.keys()
        pseudonym, write = keys.pseudonym("ann"), SubjectTable.write

        def overtaken(table: SubjectTable, rows: Any, timeout_s: float) -> int:
            if rows[0][1] is not None and rows[0][0][0] == SUBJECT_KEY:
                world.write(ErasureRow(pseudonym, 1, 0, 0).row)
            return write(table, rows, timeout_s)

        monkeypatch.setattr(SubjectTable, "write", overtaken)
        with pytest.raises(KeyDeletedError, match="was erased"):
            keys.to_send(pseudonym)
        last = {key: value for _, key, value in world.rows()}
        assert [key for key, value in last.items() if key[0] == SUBJECT_KEY and value is not None] == []


class TestErasing:
    def test_removes_all_keys_and_leaves_the_erasure(self, world: World) -> None:
        keys = world.keys()
        name, _ = keys.to_send(keys.pseudonym("ann"))
        erased = keys.erase("ann")
        assert erased.key_ids == (name.id,)
        last = {key: value for _, key, value in world.rows() if key[0] != 1}
        assert [key[0] for key, value in last.items() if value is not None] == [ERASURE]

    def test_only_writers_are_told_of_a_new_key(self, world: World) -> None:
        keys = world.keys()
        pseudonym = keys.pseudonym("ann")
        name, _ = keys.to_send(pseudonym)
        keys.erase("ann")
        with pytest.raises(KeyDeletedError, match="was erased; headerware keys readmit"):
            keys.to_send(pseudonym)
        with pytest.raises(KeyDeletedError, match=r"was erased$"):
            keys.to_read(name)

    def test_a_subject_that_never_had_a_key_can_be_erased(self, world: World) -> None:
        erased = world.keys().erase("ann")
        assert (erased.row.generation, erased.row.keys, erased.key_ids) == (1, 0, ())

    def test_again_after_a_readmission_counts_on(self, world: World) -> None:
        keys = world.keys()
        keys.erase("ann")
        keys.readmit("ann")
        keys.to_send(keys.pseudonym("ann"))
        assert keys.erase("ann").row.generation == 2

    def test_an_erasure_that_the_topic_lost_is_written_again(self, world: World) -> None:
        keys = world.keys()
        pseudonym = keys.pseudonym("ann")
        erased = keys.erase("ann")
        world.write((erased.row.row[0], None))
        again = keys.erase("ann")
        assert (again.row.generation, again.offset is None) == (1, False)
        assert keys.look_up(pseudonym).is_erased


class TestReadmitting:
    def test_an_erasure_at_the_same_time_counts(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        keys, other = world.keys(), world.keys()
        pseudonym = keys.pseudonym("ann")
        keys.erase("ann")
        write, overtaken = SubjectTable.write, list[int]()

        def slow(table: SubjectTable, rows: Any, timeout_s: float) -> int:
            if not overtaken:
                overtaken.append(1)
                other.readmit("ann")
                other.to_send(pseudonym)
                other.erase("ann")
            return write(table, rows, timeout_s)

        monkeypatch.setattr(SubjectTable, "write", slow)
        with pytest.raises(KeyServiceUnavailableError, match="erased again meanwhile"):
            keys.readmit("ann")
        [last] = [value for _, key, value in world.rows() if key[0] == ERASURE][-1:]
        assert last is not None
        row = decode_row(bytes((ERASURE,)) + pseudonym, last)
        assert isinstance(row, ErasureRow)
        assert (row.generation, row.readmitted) == (2, False)


class TestSecrets:
    def test_under_a_key_that_is_not_accepted_here_records_wait(self, world: World) -> None:
        [ann] = world.open().send([record_of("ann")])
        edit_keyring(world.keyring, lambda ring: with_new_key(ring, "next", "aes-256"))
        wrapping = FileKeys(keyring=str(world.keyring)).open(Context())
        service = SubjectKeyService(
            world.place(),
            wrapping,
            key_id="next",
            key_ids=frozenset({"customers", "next"}),
            servers=None,
            timeout_ms=int(DEADLINE_S * 1000),
        )
        assert service.keys.rewrap(wrapping) == 2
        service.close()
        error = refusal_of(world.open(), ann)
        assert isinstance(error, HeldBackError)
        assert "add it to the option key_ids" in str(error)
        assert refusal_of(world.open(key_ids=("next",)), ann) is None


class TestFile:
    def test_the_next_process_reads_on_where_the_last_one_stopped(
        self, world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        place = world.place(file=str(tmp_path / "keys.db"))
        session = world.open(place=place)
        [ann] = session.send([record_of("ann")])
        session.close()
        end = len(world.rows())
        saved = SubjectFile(place.file, world.topic)
        assert saved.position == end
        saved.close()
        again = world.open(place=place)
        assert again.consume([ann])[0].value == b"secret"
        assert again.consume(again.send([record_of("bob")]))[0].value == b"secret"
        assert "from its beginning" not in caplog.text

    def test_equal_options_share_a_table_within_a_process(self, world: World, tmp_path: Path) -> None:
        place = world.place(file=str(tmp_path / "keys.db"))
        one, other = world.open(place=place), world.open(place=place)
        assert other.consume(one.send([record_of("ann")]))[0].value == b"secret"

    def test_another_process_is_refused(self, world: World, tmp_path: Path) -> None:
        held = SubjectFile(tmp_path / "keys.db", world.topic)
        with pytest.raises(RegistryError, match="is used by another process"):
            SubjectFile(tmp_path / "keys.db", world.topic)
        held.close()

    def test_the_second_of_several_workers_has_a_temporary_file(
        self, world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        held = SubjectFile(tmp_path / "keys.db", world.topic)
        session = world.open(place=world.place(file=str(tmp_path / "keys.db")))
        assert session.consume(session.send([record_of("ann")]))[0].value == b"secret"
        assert "is used by another process" in caplog.text
        held.close()

    def test_after_a_kill_rows_and_position_fit(self, tmp_path: Path) -> None:
        writing = (
            "import sys; from headerware.keyring.subjects.store import SubjectFile\n"
            "from headerware.topic_table.rows import TableRecord\n"
            "file = SubjectFile(sys.argv[1], 'customer-keys'); rows = file.rows()\n"
            "for offset in range(10**9):\n"
            "    rows.apply(TableRecord(offset, b'\\x02' + offset.to_bytes(24, 'big'), b'row'))\n"
            "    if offset % 7 == 6: rows.moved_to(offset + 1); print(offset, flush=True)\n"
        )
        path = tmp_path / "keys.db"
        with subprocess.Popen([sys.executable, "-c", writing, str(path)], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            for _ in range(50):
                written = int(child.stdout.readline())
            child.kill()
        file = SubjectFile(path, "customer-keys")
        assert file.position > written
        assert file.execute("SELECT count(*) FROM row")[0][0] == file.position
        file.close()

    def test_a_file_of_another_topic_is_refused(self, tmp_path: Path) -> None:
        SubjectFile(tmp_path / "keys.db", "customer-keys").close()
        with pytest.raises(RegistryError, match="has the keys of topic 'customer-keys', expected 'others'"):
            SubjectFile(tmp_path / "keys.db", "others")

    def test_a_file_that_others_can_write_is_refused(self, tmp_path: Path) -> None:
        SubjectFile(tmp_path / "keys.db", "customer-keys").close()
        (tmp_path / "keys.db").chmod(0o666)
        with pytest.raises(RegistryError, match="can be written by others"):
            SubjectFile(tmp_path / "keys.db", "customer-keys")

    def test_a_link_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "link.db").symlink_to(tmp_path / "keys.db")
        with pytest.raises(RegistryError, match="expected a regular file"):
            SubjectFile(tmp_path / "link.db", "customer-keys")

    def test_opening_it_twice_in_a_process_releases_no_lock(self, tmp_path: Path) -> None:
        held = SubjectFile(tmp_path / "keys.db", "customer-keys")
        with pytest.raises(RegistryError, match="is used by another process"):
            SubjectFile(tmp_path / "keys.db", "customer-keys")
        other = (
            "import sys; from headerware.keyring.subjects.store import SubjectFile\n"
            "SubjectFile(sys.argv[1], 'customer-keys')"
        )
        found = subprocess.run(
            [sys.executable, "-c", other, str(tmp_path / "keys.db")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "FileInUseError" in found.stderr
        held.close()

    def test_something_else_is_refused(self, tmp_path: Path) -> None:
        with sqlite3.connect(tmp_path / "other.db") as other:
            other.execute("CREATE TABLE orders (id INTEGER)")
        other.close()
        (tmp_path / "other.db").chmod(0o600)
        with pytest.raises(RegistryError, match="not a file of subjects' keys"):
            SubjectFile(tmp_path / "other.db", "customer-keys")

    def test_after_an_error_no_row_is_used(self, tmp_path: Path) -> None:
        file = SubjectFile(tmp_path / "keys.db", "customer-keys")
        rows = file.rows()
        assert not rows.subject(bytes(16)).keys
        file.close()  # as a full disk would, from now on
        rows.apply(TableRecord(0, *ErasureRow(bytes(16), 1, 0, 0).row))
        with pytest.raises(RegistryError, match="cannot be used"):
            rows.moved_to(1)
        with pytest.raises(RegistryError, match="restart it"):
            rows.subject(bytes(16))

    def test_erased_keys_do_not_stay_in_the_file(self, tmp_path: Path) -> None:
        key = SubjectKeyRow(
            bytes(range(16)), b"12345678", 0, bytes(8), b"n" * 12, b"sealed-key " * 4 + b"1234"
        )
        file = SubjectFile(tmp_path / "keys.db", "customer-keys")
        rows = file.rows()
        for offset, record in enumerate(
            [key.row, ErasureRow(key.pseudonym, 1, 0, 1).row, (key.row[0], None)]
        ):
            rows.apply(TableRecord(offset, *record))
            rows.moved_to(offset + 1)
        file.close()
        assert b"sealed-key" not in (tmp_path / "keys.db").read_bytes()

    @pytest.mark.parametrize(("hours", "stays"), [(11, True), (13, False)])
    def test_nor_if_the_brokers_may_have_forgotten_that_they_were_removed(
        self, tmp_path: Path, hours: int, *, stays: bool
    ) -> None:
        path = tmp_path / "keys.db"
        key = SubjectKeyRow(
            bytes(range(16)), b"12345678", 0, bytes(8), b"n" * 12, b"sealed-key " * 4 + b"1234"
        )
        file = SubjectFile(path, "customer-keys")
        rows = file.rows()
        rows.apply(TableRecord(0, *key.row))
        rows.moved_to(1)
        file.close()
        then = time.time() - hours * 3_600
        os.utime(path, (then, then))
        file = SubjectFile(path, "customer-keys")
        state = TableState(file.rows)
        state.begin(6, state.resume_at)
        kept = [TableRecord(0, *key.row)] if stays else []
        state.take([*kept, TableRecord(5, *ErasureRow(key.pseudonym, 1, 0, 1).row)], 6)
        assert state.rows.subject(key.pseudonym).is_erased
        file.close()
        assert (b"sealed-key" in path.read_bytes()) == stays


class TestOutOfReach:
    @pytest.mark.parametrize("raises", [False, True])
    def test_callers_do_not_wait_one_after_the_other(
        self,
        world: World,
        monkeypatch: pytest.MonkeyPatch,
        raises: bool,  # noqa: FBT001
    ) -> None:
        asked: list[float] = []

        def refresh(_table: object, timeout_s: float) -> bool:
            asked.append(timeout_s)
            if raises:
                raise UnreachableError("it is out of reach")
            return False

        keys = world.keys()
        monkeypatch.setattr(TopicTable, "refresh", refresh)
        said = "it is out of reach" if raises else f"at {world.servers} is out of reach"
        for _ in range(100):
            with pytest.raises(KeyServiceUnavailableError, match=said):
                keys.pseudonym("ann")
        assert len(asked) < 100
        assert all(timeout_s < 1 for timeout_s in asked[1:])


class TestSettings:
    def test_a_topic_that_does_not_exist(self, world: World) -> None:
        keys = world.keys(world.place(topic="missing"))
        with pytest.raises(KeyServiceError, match="there is no topic 'missing'"):
            keys.pseudonym("ann")
