"""Values on disk: read whole, in parts and as files, by several readers, and gone when nobody needs them."""

from __future__ import annotations

import copy
import io
import os
import pickle
import random
from pathlib import Path

import pytest

from headerware import StoredBytes
from headerware.core.stored_bytes import UnnamedFile

CONTENT = random.Random(3).randbytes(100_000)


@pytest.fixture
def value(tmp_path: Path) -> StoredBytes:
    file = UnnamedFile(tmp_path)
    for begin in range(0, len(CONTENT), 30_000):
        file.write(CONTENT[begin : begin + 30_000], begin)
    return StoredBytes(file, len(CONTENT))


class TestStoredBytes:
    def test_has_the_length_and_the_bytes(self, value: StoredBytes) -> None:
        assert (len(value), bytes(value)) == (len(CONTENT), CONTENT)

    @pytest.mark.parametrize(
        "part",
        [
            slice(None),
            slice(5, 9),
            slice(-7, None),
            slice(99_990, 200_000),
            slice(9, 5),
            slice(200_000, None),
        ],
        ids=str,
    )
    def test_gives_parts_as_bytes_do(self, value: StoredBytes, part: slice) -> None:
        assert value[part] == CONTENT[part]

    def test_gives_no_single_bytes_and_no_steps(self, value: StoredBytes) -> None:
        with pytest.raises(TypeError, match="begin:end"):
            value[0]  # type: ignore[index]
        with pytest.raises(TypeError, match="begin:end"):
            value[::2]

    def test_is_not_pickled_by_the_number_of_its_descriptor(self, value: StoredBytes) -> None:
        with pytest.raises(TypeError, match=r"bytes\(value\)"):
            pickle.dumps(value)

    def test_is_its_own_copy(self, value: StoredBytes) -> None:
        for copied in (copy.copy(value), copy.deepcopy(value)):
            assert bytes(copied) == CONTENT
            del copied
        assert bytes(value) == CONTENT

    def test_shows_nothing_of_itself(self, value: StoredBytes) -> None:
        assert repr(value) == "<StoredBytes of 100000 bytes>"

    def test_is_read_as_a_file_is(self, value: StoredBytes) -> None:
        with value.open() as file, io.BytesIO(CONTENT) as expected:
            for size in (1, 70_000, 10):
                assert file.read(size) == expected.read(size)
            for offset, whence in ((-10, os.SEEK_CUR), (-500, os.SEEK_END), (3, os.SEEK_SET), (200_000, 0)):
                assert file.seek(offset, whence) == expected.seek(offset, whence)
                assert file.read() == expected.read()
            with pytest.raises(ValueError, match="-1"):
                file.seek(-1)

    def test_readers_do_not_disturb_each_other(self, value: StoredBytes) -> None:
        with value.open() as one, value.open() as other:
            assert one.read(10) == other.read(10) == CONTENT[:10]
            assert one.read() == CONTENT[10:]
            assert other.read(5) == CONTENT[10:15]

    def test_a_reader_outlives_the_value(self, tmp_path: Path) -> None:
        file = UnnamedFile(tmp_path)
        file.write(b"abc", 0)
        reader = StoredBytes(file, 3).open()
        del file
        assert reader.read() == b"abc"

    def test_has_no_name(self, value: StoredBytes, tmp_path: Path) -> None:
        assert len(value) == len(CONTENT)
        assert list(tmp_path.iterdir()) == []

    def test_needs_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            UnnamedFile(tmp_path / "none")
