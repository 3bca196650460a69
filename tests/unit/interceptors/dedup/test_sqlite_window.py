from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import sqlite3
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import ConfigError
from headerware.core.headers import Headers
from headerware.core.hooks import DROP
from headerware.core.record import Record
from headerware.interceptors.dedup import windows
from headerware.interceptors.dedup.identity import ID_HEADER, Identity
from headerware.interceptors.dedup.interceptor import Dedup, DedupStep
from tests.batches import accepted_together
from tests.forking import as_nobody

SWALLOWS = "CREATE TRIGGER swallows BEFORE INSERT ON seen BEGIN SELECT RAISE(IGNORE); END"
NOW = 1_760_000_000_000
PRODUCER = bytes(range(16))
CONTENDS = Path(__file__).parent / "programs" / "contend_for_identities.py"
DEADLINE_S = 60.0


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "identities.db")


@pytest.fixture
def clock() -> Clock:
    return Clock()


def opened(path: str, clock: Clock | None = None, group: str | None = "billing", **options: Any) -> DedupStep:
    return Dedup(store=path, **options).open(Context(group_id=group, now_ms=clock or Clock()))


def come(sequence: int, offset: int | None, partition: int = 0) -> Record:
    value = Identity.numbered(PRODUCER, sequence).encode()
    return Record("orders", b"v", headers=Headers([(ID_HEADER, value)]), partition=partition, offset=offset)


def took(step: DedupStep, record: Record) -> Any:
    """Return what becomes of a record that no other step refuses."""
    outcome: Any = step.on_consume(record)
    on_accepted = getattr(step, "on_accepted", None)
    return on_accepted(outcome) if on_accepted is not None and outcome is not DROP else outcome


def took_all(step: DedupStep, records: list[Record]) -> list[Any]:
    return accepted_together(step, [step.on_consume(record) for record in records])  # type: ignore[misc]  # none is dropped before


def delivered(step: DedupStep, *records: Record) -> list[int | None]:
    found = [took(step, record) for record in records]
    return [record.offset for record in found if isinstance(record, Record)]


def rows(path: str) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM seen").fetchone()[0])


class TestDedupStore:
    def test_knows_copies_after_a_restart(self, path: str) -> None:
        with contextlib.closing(opened(path)) as step:
            assert delivered(step, come(0, 5), come(1, 6)) == [5, 6]
        with contextlib.closing(opened(path)) as step:
            assert delivered(step, come(0, 7), come(1, 8), come(2, 9)) == [9]
            assert step.stats() == {"duplicates": 2, "without_id": 0, "store_failures": 0}

    def test_delivers_what_is_read_again_after_a_restart(self, path: str) -> None:
        with contextlib.closing(opened(path)) as step:
            delivered(step, come(0, 5), come(1, 6))
        with contextlib.closing(opened(path)) as step:
            assert delivered(step, come(0, 5), come(1, 6), come(0, 7), come(1, 6)) == [5, 6, 6]

    def test_is_shared_by_sessions_at_the_same_time(self, path: str) -> None:
        with contextlib.closing(opened(path)) as one, contextlib.closing(opened(path)) as other:
            assert delivered(one, come(0, 5)) == [5]
            assert delivered(other, come(0, 6, partition=1), come(1, 7, partition=1)) == [7]
            assert delivered(one, come(1, 8)) == []

    def test_each_group_remembers_for_itself(self, path: str) -> None:
        for group in ("billing", "shipping", None):
            with contextlib.closing(opened(path, group=group)) as step:
                assert delivered(step, come(0, 5), come(0, 6)) == [5]

    def test_a_position_that_is_not_known_is_none_read_again(self, path: str) -> None:
        with contextlib.closing(opened(path)) as step:
            assert delivered(step, come(0, None), come(0, None)) == [None]

    def test_batches_give_one_outcome_for_each_record(self, path: str) -> None:
        batch = [come(0, 5), Record("orders", b"plain"), come(0, 6), come(1, 7), come(0, 5)]
        with Chain([Dedup(store=path)]).open(Context(group_id="billing")) as session:
            outcomes = session.consume_outcomes(batch)
            assert [outcome is DROP for outcome in outcomes] == [False, False, True, False, False]
            assert [r.headers for r in outcomes if isinstance(r, Record)] == [Headers()] * 4
            assert session.stats()["dedup"]["without_id"] == 1

    def test_a_batch_without_identities_does_not_ask_the_store(self, path: str) -> None:
        with contextlib.closing(opened(path)) as step:
            step.close()
            assert took_all(step, [Record("orders", b"plain")]) == [Record("orders", b"plain")]
            assert step.stats()["store_failures"] == 0

    def test_a_session_that_only_sends_opens_none(self, path: str) -> None:
        Dedup(store=path).open(Context(side="producer"))
        assert not Path(path).exists()

    def test_is_found_beside_the_file_that_names_it(self, tmp_path: Path) -> None:
        (tmp_path / "headerware.toml").write_text('[[interceptors]]\ntype = "dedup"\nstore = "ids.db"\n')
        chain = Chain.from_config({"headerware.config": str(tmp_path / "headerware.toml")})
        assert chain.interceptors == (Dedup(store=str(tmp_path / "ids.db")),)

    def test_takes_a_path(self, tmp_path: Path) -> None:
        options: dict[str, Any] = {"store": tmp_path / "ids.db"}
        assert Dedup(**options).store == str(tmp_path / "ids.db")


class TestDedupStoreBounds:
    def test_forgets_what_is_older_than_it_retains(self, path: str, clock: Clock) -> None:
        with contextlib.closing(opened(path, clock, retain_ms=1_000)) as step:
            delivered(step, *(come(n, n) for n in range(200)))
            clock.now += 1_001
            delivered(step, *(come(n, n) for n in range(200, 400)))
            assert 200 <= rows(path) <= 264
            assert delivered(step, come(0, 900), come(399, 901)) == [900]

    def test_forgets_the_oldest_above_its_count(self, path: str) -> None:
        with contextlib.closing(opened(path, max_identities=100)) as step:
            delivered(step, *(come(n, n) for n in range(1_000)))
            assert 100 <= rows(path) <= 164
            assert delivered(step, come(0, 9_000), come(950, 9_001)) == [9_000]

    def test_never_forgets_much_at_a_time(self, path: str, clock: Clock) -> None:
        with contextlib.closing(opened(path, clock, retain_ms=1_000)) as step:
            took_all(step, [come(n, n) for n in range(5_000)])
            clock.now += 1_001
            left = [rows(path)]
            for number in range(10):
                took_all(step, [come(10_000 + 100 * number + n, n) for n in range(100)])
                left.append(rows(path))
        assert left[0] == 5_000
        assert [before - after for before, after in pairwise(left)] == [100] * 10

    def test_a_copy_makes_nothing_younger_and_nothing_longer(self, path: str) -> None:
        with contextlib.closing(opened(path)) as step:
            delivered(step, *(come(0, n) for n in range(100)))
        assert rows(path) == 1

    def test_the_file_stays_as_large_as_what_it_holds(self, path: str) -> None:
        with contextlib.closing(opened(path, max_identities=500)) as step:
            took_all(step, [come(n, n) for n in range(2_000)])
            for start in range(2_000, 20_000, 500):
                took_all(step, [come(n, n) for n in range(start, start + 500)])
        assert Path(path).stat().st_size < 500_000

    def test_holds_digests_only(self, path: str) -> None:
        with contextlib.closing(opened(path, group="secret-group")) as step:
            delivered(step, come(0, 5).replace(topic="secret-topic"))
        content = Path(path).read_bytes()
        assert b"secret" not in content
        assert PRODUCER not in content


class TestDedupStoreOpening:
    def test_refuses_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(
            ConfigError, match=r"^store: cannot open '.*': there is no folder '.*/none'; make it"
        ):
            opened(str(tmp_path / "none" / "ids.db"))

    def test_refuses_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"^store: cannot open '.*': unable to open database file$"):
            opened(str(tmp_path))

    def test_refuses_what_is_no_database(self, path: str) -> None:
        Path(path).write_bytes(b"a letter to my aunt. " * 100)
        with pytest.raises(ConfigError, match=r"^store: cannot open '.*': file is not a database$"):
            opened(path)

    def test_refuses_another_database_and_leaves_it_alone(self, path: str) -> None:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE seen (mine TEXT)")
        before = Path(path).read_bytes()
        with pytest.raises(
            ConfigError,
            match=r"^store: cannot open '.*': it is a SQLite file, but not a store of identities$",
        ):
            opened(path)
        assert Path(path).read_bytes() == before

    def test_refuses_a_later_version(self, path: str) -> None:
        opened(path).close()
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA user_version = 2")
        with pytest.raises(ConfigError, match=r"has version 2, but this Headerware reads 1$"):
            opened(path)

    @pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
    def test_refuses_a_file_that_cannot_be_written(self) -> None:
        def refused(folder: Path) -> str:
            path = folder / "ids.db"
            opened(str(path)).close()
            path.chmod(0o444)
            try:
                opened(str(path))
            except ConfigError as error:
                return str(error)
            return "it was opened"

        assert re.match(r"store: cannot open '.*': attempt to write a readonly", as_nobody(refused))

    def test_refuses_one_that_somebody_locked_after_a_while(
        self, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(windows, "_WAIT_S", 0.2)
        opened(path).close()
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            with pytest.raises(ConfigError, match=r"^store: cannot open '.*': database is locked$"):
                opened(path)


class TestDedupStoreFailures:
    def test_deliver_are_counted_and_logged_once(
        self, path: str, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        step = opened(path, clock)
        delivered(step, come(0, 5))
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("DROP TABLE seen")
        with caplog.at_level(logging.WARNING):
            assert delivered(step, come(0, 6), come(0, 7)) == [6, 7]
            clock.now += 1_001
            assert took_all(step, [come(0, 8)]) != [DROP]
        assert step.stats()["store_failures"] == 2, "one for each second of trying"
        (logged,) = [record.message for record in caplog.records]
        assert f"dedup store {path}: somebody changed its tables, triggers or views (" in logged
        assert "table seen); " in logged
        assert "; until the store works again, copies are delivered, too" in logged
        step.close()

    def test_of_a_moment_pass(self, path: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(windows, "_WAIT_S", 0.05)
        step = opened(path, clock)
        delivered(step, come(0, 5))
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            assert delivered(step, come(0, 6)) == [6]
        clock.now += 1_000
        assert delivered(step, come(0, 6)) == []
        step.close()

    def test_do_not_last_when_the_clock_is_put_back(self, path: str, clock: Clock) -> None:
        step = opened(path, clock)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute(SWALLOWS)
            delivered(step, come(0, 5))
            connection.execute("DROP TRIGGER swallows")
        clock.now -= 3_600_000
        assert delivered(step, come(0, 6), come(0, 7)) == [6]
        step.close()


class TestTamperedStores:
    """What somebody did who can write to the file: no record is refused, nor dropped for what is not ours."""

    @pytest.mark.parametrize(
        ("statements", "named"),
        [
            ([SWALLOWS], "trigger swallows"),
            (["CREATE TABLE other (x)"], "table other"),
            (["CREATE VIEW other AS SELECT 1"], "view other"),
            (["CREATE INDEX other ON seen (seen_ms)"], "index other"),
            (["ALTER TABLE seen ADD COLUMN more"], "table seen"),
            (["DROP TABLE seen"], "table seen"),
            (["DROP TABLE seen", "CREATE VIEW seen AS SELECT 1 AS identity, 2 AS place"], "view seen"),
            (["DROP TABLE seen", "CREATE TABLE seen (identity CHECK (0), place, seen_ms)"], "table seen"),
        ],
    )
    def test_are_refused_when_opened_and_pass_records_when_changed_at_work(
        self, path: str, statements: list[str], named: str
    ) -> None:
        step = opened(path)
        assert delivered(step, come(0, 5)) == [5]
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)
        assert delivered(step, come(0, 6), come(1, 7)) == [6, 7]
        assert step.stats()["store_failures"] == 1
        step.close()
        with pytest.raises(ConfigError, match=f"store: .*{named}.* move it away"):
            opened(path)

    @pytest.mark.parametrize("place", ["'text'", "5", "x''", "zeroblob(9)", "zeroblob(100000000)"])
    def test_rows_of_another_kind_drop_no_record(self, path: str, place: str) -> None:
        step = opened(path)
        delivered(step, come(0, 5))
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(f"UPDATE seen SET place = {place}")  # noqa: S608 - written above
        assert delivered(step, come(0, 6)) == [6]
        assert step.stats()["store_failures"] == 1
        step.close()

    def test_what_their_owner_does_is_no_tampering(self, path: str) -> None:
        step = opened(path)
        delivered(step, come(0, 5))
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("ANALYZE")
            connection.execute("VACUUM")
        assert delivered(step, come(0, 6), come(1, 7)) == [7]
        assert step.stats()["store_failures"] == 0
        step.close()
        opened(path).close()

    def test_with_damaged_pages_are_refused(self, path: str) -> None:
        with contextlib.closing(opened(path)) as step:
            delivered(step, *(come(sequence, sequence) for sequence in range(500)))
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with Path(path).open("r+b") as file:
            file.seek(2 * 4096)
            file.write(b"\xff" * 4096)
        with pytest.raises(ConfigError, match=r"store: .*(damaged|malformed)"):
            opened(path)

    def test_that_are_no_file_do_not_hang(self, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        for path in (pipe, Path("/dev/null"), Path("/dev/zero")):
            with pytest.raises(ConfigError, match="store: cannot open"):
                opened(str(path))


class TestDedupStoreProcesses:
    def test_that_make_it_at_once_deliver_each_record_once_in_all(self, path: str) -> None:
        processes = [self.start(path, str(partition), "2000") for partition in range(4)]
        for process in processes:
            self.wait_for(process)
        for process in processes:
            self.let_go(process)
        outputs = [process.communicate(timeout=DEADLINE_S)[0].split() for process in processes]
        assert [process.returncode for process in processes] == [0] * 4
        assert sorted(int(n) for output in outputs for n in output) == list(range(2_000))

    def test_one_that_is_killed_loses_nothing_and_lets_no_copy_pass(self, path: str) -> None:
        process = self.start(path, "0", "1000000")
        self.wait_for(process)
        self.let_go(process)
        assert process.stdin is not None
        assert process.stdout is not None
        known = [int(process.stdout.readline()) for _ in range(500)]
        os.kill(process.pid, signal.SIGKILL)
        known += [
            int(line) for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")
        ]
        process.wait()
        process.stdout.close()
        process.stdin.close()
        with contextlib.closing(opened(path)) as step:
            again = delivered(step, *(come(n, n) for n in range(len(known) + 5)))
            copies = delivered(step, *(come(n, n, partition=9) for n in range(len(known) + 5)))
        assert again == list(range(len(known) + 5)), "read again from their positions, all come"
        assert copies == []

    def start(self, path: str, partition: str, upto: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(CONTENDS), path, partition, upto]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def wait_for(self, process: subprocess.Popen[str]) -> None:
        """Wait until a process has opened the store."""
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    def let_go(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
