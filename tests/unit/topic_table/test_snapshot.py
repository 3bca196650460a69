from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.core.errors import WireFormatError
from headerware.topic_table.rows import TableRecord
from headerware.topic_table.snapshot import (
    Snapshot,
    decode_snapshot,
    encode_snapshot,
    read_snapshot,
    write_snapshot,
)

if TYPE_CHECKING:
    from pathlib import Path

SNAPSHOT = Snapshot("ids", 1_700_000_000_000, [TableRecord(3, b"a", b"1"), TableRecord(9, b"b", b"")])

rows = st.lists(st.builds(TableRecord, st.integers(0, 2**63 - 1), st.binary(), st.binary()), max_size=5)


def sealed(body: bytes) -> bytes:
    """Return a body the right checksum, as somebody does who means harm."""
    return body + hashlib.sha256(body).digest()


class TestLayout:
    @given(
        topic=st.text(st.characters(codec="utf-8"), max_size=20),
        complete_ms=st.integers(0, 2**63),
        records=rows,
    )
    def test_comes_back_as_it_was(self, topic: str, complete_ms: int, records: list[TableRecord]) -> None:
        snapshot = Snapshot(topic, complete_ms, records)
        assert decode_snapshot(encode_snapshot(snapshot)) == snapshot

    def test_leaves_out_what_is_no_row(self) -> None:
        snapshot = Snapshot("t", 0, [TableRecord(1, None, b"x"), TableRecord(2, b"k", None)])
        assert decode_snapshot(encode_snapshot(snapshot)).records == []

    def test_refuses_every_truncation(self) -> None:
        data = encode_snapshot(SNAPSHOT)
        for length in range(len(data)):
            with pytest.raises(WireFormatError):
                decode_snapshot(data[:length])

    def test_refuses_every_changed_byte(self) -> None:
        data = encode_snapshot(SNAPSHOT)
        for index in range(len(data)):
            changed = bytearray(data)
            changed[index] ^= 1
            with pytest.raises(WireFormatError, match="checksum"):
                decode_snapshot(bytes(changed))

    @given(st.binary(max_size=200))
    def test_garbage_with_a_right_checksum_is_refused_or_read(self, body: bytes) -> None:
        with contextlib.suppress(WireFormatError):
            assert decode_snapshot(sealed(body)).records == []

    @pytest.mark.parametrize(
        "body",
        [
            struct.pack(">BQH", 2, 0, 0) + bytes(4),
            struct.pack(">BQH", 1, 0, 65_535),
            struct.pack(">BQH", 1, 0, 0) + struct.pack(">I", 2**32 - 1),
            struct.pack(">BQH", 1, 0, 0) + struct.pack(">IQI", 1, 0, 2**32 - 1) + b"key",
            struct.pack(">BQH", 1, 0, 1) + b"\xff" + bytes(4),
            struct.pack(">BQH", 1, 0, 0) + bytes(4) + b"more",
        ],
        ids=["version", "topic's length", "count", "key's length", "topic is no text", "bytes behind"],
    )
    def test_refuses_a_lie_with_a_right_checksum(self, body: bytes) -> None:
        with pytest.raises(WireFormatError, match="snapshot"):
            decode_snapshot(sealed(body))


class TestFile:
    def test_comes_back_as_it_was(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "ids.snapshot"
        write_snapshot(path, SNAPSHOT)
        assert read_snapshot(path, "ids") == SNAPSHOT

    def test_is_its_owners_and_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "ids.snapshot"
        for _ in range(2):
            write_snapshot(path, SNAPSHOT)
        assert [file.name for file in tmp_path.iterdir()] == ["ids.snapshot"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_none_is_no_news(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        assert read_snapshot(tmp_path / "missing", "ids") is None
        assert caplog.records == []

    @pytest.mark.parametrize("data", [b"", b"garbage", encode_snapshot(SNAPSHOT)[:-1]])
    def test_corrupt_is_left_aside_with_a_warning(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, data: bytes
    ) -> None:
        path = tmp_path / "ids.snapshot"
        path.write_bytes(data)
        assert read_snapshot(path, "ids") is None
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert str(path) in caplog.text

    def test_of_another_topic_is_left_aside(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        path = tmp_path / "ids.snapshot"
        write_snapshot(path, SNAPSHOT)
        assert read_snapshot(path, "others") is None
        assert "it is of topic ids, not others" in caplog.text

    def test_a_folder_in_its_place_is_left_aside(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert read_snapshot(tmp_path, "ids") is None
        assert len(caplog.records) == 1

    def test_a_pipe_in_its_place_makes_nobody_wait(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        os.mkfifo(tmp_path / "ids.snapshot")
        assert read_snapshot(tmp_path / "ids.snapshot", "ids") is None
        assert "expected a plain file" in caplog.text

    def test_a_huge_one_is_left_aside(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        write_snapshot(tmp_path / "ids.snapshot", SNAPSHOT)
        os.truncate(tmp_path / "ids.snapshot", 1 << 40)
        assert read_snapshot(tmp_path / "ids.snapshot", "ids") is None
        assert "it is larger than 1,073,741,824 bytes" in caplog.text

    def test_one_that_others_can_write_is_left_aside(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        write_snapshot(tmp_path / "ids.snapshot", SNAPSHOT)
        (tmp_path / "ids.snapshot").chmod(0o620)
        assert read_snapshot(tmp_path / "ids.snapshot", "ids") is None
        assert "others than this process's user and root can write it" in caplog.text

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
    def test_another_users_is_left_aside(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        write_snapshot(tmp_path / "ids.snapshot", SNAPSHOT)
        os.chown(tmp_path / "ids.snapshot", 12345, 0)
        assert read_snapshot(tmp_path / "ids.snapshot", "ids") is None
        assert "others than this process's user and root can write it" in caplog.text
