from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headerware.core.errors import ConfigError, HeaderwareError
from headerware.ops.compaction.rules import Judged, Unresolved
from headerware.ops.compaction.winners import Sync, Winners, offset_in_target


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def single(offset: int, version: int, key: bytes = b"a" * 16, why: Unresolved | None = None) -> Judged:
    return Judged(0, offset, 10, None if why else key, version, why)


class TestWinners:
    def test_know_the_same_after_a_restart(self, path: str) -> None:
        with Winners(path, "p") as winners:
            winners.learn([single(0, 5), single(1, 4), single(2, 0, why="malformed")])
            winners.written({0: 1}, {}, {0: Sync(0, 0)})
        with Winners(path, "p") as winners:
            assert (winners.learned, winners.done) == ({0: 3}, {0: 1})
            verdicts = winners.verdicts([single(1, 4), single(2, 0, why="malformed")])
            assert [(each.outcome, each.why) for each in verdicts] == [
                ("loses", "older"),
                ("unresolved", "malformed"),
            ]

    def test_stop_if_what_was_judged_cannot_be_judged_any_more(self) -> None:
        with Winners(None, "p") as winners:
            winners.learn([single(0, 5)])
            with pytest.raises(HeaderwareError, match="a key or the chain has changed"):
                winners.verdicts([single(0, 0, why="unverified")])

    def test_leave_unresolved_what_could_not_be_judged_at_first(self) -> None:
        with Winners(None, "p") as winners:
            winners.learn([single(0, 0, why="unverified")])
            assert winners.verdicts([single(0, 5)])[0].outcome == "unresolved"

    def test_stay_known_up_to_where_they_were_if_a_new_leader_tells_of_less(self, path: str) -> None:
        with Winners(path, "p") as winners:
            winners.learn([single(0, 5), single(1, 4)])
            winners.learned_to({0: 1, 1: 3}, {})
            assert winners.learned == {0: 2, 1: 3}

    def test_read_again_from_the_first_slice_of_a_message_that_is_not_complete(self, path: str) -> None:
        with Winners(path, "p") as winners:
            winners.learn([single(0, 5), single(3, 4)])
            winners.learned_to({0: 5, 1: 2}, {0: 2})
            assert (winners.learned, winners.resume) == ({0: 5, 1: 2}, {0: 2, 1: 2})
            winners.written({0: 4}, {0: 1}, {})
        with Winners(path, "p") as winners:
            assert (winners.learned, winners.resume) == ({0: 5, 1: 2}, {0: 2, 1: 2})
            winners.written({0: 5}, {0: 5}, {})
            assert winners.resume == {0: 5, 1: 2}

    def test_forget_everything(self, path: str) -> None:
        with Winners(path, "p") as winners:
            winners.learn([single(0, 5)])
            winners.clear()
            assert winners.learned == {}
            winners.learn([single(0, 1)])
            assert winners.verdicts([single(0, 1)])[0].outcome == "wins"


class TestOffsetsInTheTarget:
    def test_are_those_before_an_offset(self, path: str) -> None:
        with Winners(path, "p") as winners:
            assert winners.needs_sync(0, 0)
            winners.written({}, {}, {0: Sync(0, 7)})
            assert not winners.needs_sync(0, 999)
            assert winners.needs_sync(0, 1_000)
            winners.written({}, {}, {0: Sync(1_000, 300)})
            # While it is in use.
            found = [offset_in_target(path, "p", 0, offset) for offset in (0, 999, 1_000, 5_000)]
            assert found == [7, 7, 300, 300]
            assert offset_in_target(path, "p", 1, 5) is None

    def test_of_other_topics_are_refused(self, path: str) -> None:
        with Winners(path, "p") as winners:
            winners.written({}, {}, {0: Sync(0, 7)})
        with pytest.raises(ConfigError, match="of other topics"):
            offset_in_target(path, "q", 0, 5)
        with pytest.raises(ConfigError, match="cannot be used"):
            offset_in_target(f"{path}.missing", "p", 0, 5)

    def test_are_not_noted_where_they_would_be_lost(self) -> None:
        with Winners(None, "p") as winners:
            assert not winners.needs_sync(0, 0)


class TestFile:
    def test_is_for_one_purpose(self, path: str) -> None:
        Winners(path, "p").close()
        with pytest.raises(ConfigError, match="copy of other topics, or by another rule"):
            Winners(path, "q")
        Winners(path, "p").close()

    def test_is_for_one_process(self, path: str) -> None:
        with Winners(path, "p"), pytest.raises(ConfigError, match="another process uses"):
            Winners(path, "p")
        Winners(path, "p").close()

    def test_of_another_kind_is_refused(self, path: str) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE other (a)")
        with pytest.raises(ConfigError, match="not a store of a compaction"):
            Winners(path, "p")

    def test_that_others_have_changed_is_refused(self, path: str) -> None:
        Winners(path, "p").close()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TRIGGER t AFTER INSERT ON winner BEGIN DELETE FROM winner; END")
        with pytest.raises(ConfigError, match="trigger t"):
            Winners(path, "p")

    def test_that_is_damaged_or_cannot_be_made_is_told(self, path: str, tmp_path: Path) -> None:
        Path(path).write_bytes(os.urandom(5_000))
        with pytest.raises(ConfigError, match="cannot be used"):
            Winners(path, "p")
        with pytest.raises(ConfigError, match="cannot be opened"):
            Winners(str(tmp_path / "missing" / "store"), "p")
