"""Tests that every object store must pass; a store's own tests inherit them.

    class TestMyStore(ObjectStoreConformance):
        def open_store(self):
            return open_object_store({"type": "mine", "url": URL}, path="store")

pytest collects the methods of the subclass. The test of an outage is skipped until the subclass
can cause one.
"""

from __future__ import annotations

import hashlib
import os
import time
import uuid
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from typing import Final

import pytest

from headerware.core.errors import NoSuchObjectError, ObjectStoreError
from headerware.object_store import ObjectStore

_TIMEOUT_S: Final = 30.0
_THREADS: Final = 8
_CLOCKS_APART_MS: Final = 600_000


class ObjectStoreConformance:
    """Test an object store; a subclass opens it. Each test has a folder of its own, and leaves objects."""

    def open_store(self) -> ObjectStore:
        """Return the store, opened anew; each test closes it."""
        raise NotImplementedError

    def outage(self) -> AbstractContextManager[None]:
        """Return a context in which the store is out of reach."""
        pytest.skip("this store's tests cannot take it down")

    @pytest.mark.parametrize("size", [0, 1, (3 << 20) + 1])
    def test_gives_back_what_was_put(self, size: int) -> None:
        """An object comes back as it was, also from another client of the store, with its size stated."""
        name, content = f"{_folder()}/object", os.urandom(size)
        with closing(self.open_store()) as store:
            _put(store, name, content)
        with closing(self.open_store()) as another:
            _require(_content(another, name) == content, "another object came back")

    def test_says_what_is_not_there(self) -> None:
        """A missing object raises NoSuchObjectError, in a folder with objects and in a missing folder."""
        folder = _folder()
        with closing(self.open_store()) as store:
            for _ in range(2):
                found = _error_of(store, f"{folder}/missing")
                _require(isinstance(found, NoSuchObjectError), f"expected NoSuchObjectError, found {found!r}")
                _put(store, f"{folder}/object", b"x")

    def test_lists_a_folder_and_no_other(self) -> None:
        """Objects are listed with their sizes and times; a folder whose name begins alike is another one."""
        folder = _folder()
        with closing(self.open_store()) as store:
            _require(not list(store.objects(folder)), "an empty folder has objects")
            for number in range(3):
                _put(store, f"{folder}/{number}", bytes(number))
            _put(store, f"{folder}-2/0", b"x")
            found = sorted(store.objects(folder))
        expected = [(f"{folder}/{number}", number) for number in range(3)]
        _require([(each.name, each.size_bytes) for each in found] == expected, f"listed {found}")
        now_ms = time.time() * 1000
        late = [each for each in found if abs(each.modified_ms - now_ms) > _CLOCKS_APART_MS]
        _require(not late, f"these were not stored now: {late}")

    def test_deletes(self) -> None:
        """A deleted object is gone, the others are not, and deleting it again is no error."""
        folder = _folder()
        with closing(self.open_store()) as store:
            for number in range(2):
                _put(store, f"{folder}/{number}", b"x")
            for _ in range(2):
                store.delete(f"{folder}/0")
            _require(isinstance(_error_of(store, f"{folder}/0"), NoSuchObjectError), "it is still there")
            _require([each.name for each in store.objects(folder)] == [f"{folder}/1"], "others are gone")

    def test_serves_several_threads(self) -> None:
        """Threads put and read at once, each its own object."""
        folder = _folder()
        with closing(self.open_store()) as store, ThreadPoolExecutor(_THREADS) as threads:

            def round_trip(number: int) -> bool:
                content = os.urandom(100_000)
                _put(store, f"{folder}/{number}", content)
                return _content(store, f"{folder}/{number}") == content

            _require(all(threads.map(round_trip, range(_THREADS * 2))), "a thread got another object")

    def test_serves_a_forked_child(self) -> None:
        """A child that was forked from a process with an open store uses it, and so does the parent."""
        folder = _folder()
        with closing(self.open_store()) as store:
            _put(store, f"{folder}/0", b"x")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, for threads
                child = os.fork()
            if child == 0:
                status = 1
                try:
                    _put(store, f"{folder}/1", b"y")
                    status = 0 if _content(store, f"{folder}/0") == b"x" else 2
                finally:
                    os._exit(status)
            _require(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child failed")
            _require(_content(store, f"{folder}/1") == b"y", "the parent does not see the child's object")

    def test_closes_twice(self) -> None:
        """A second close does nothing."""
        store = self.open_store()
        store.close()
        store.close()

    def test_an_outage_is_told_and_ends(self) -> None:
        """During an outage, no object counts as missing or stored; afterwards the store works again."""
        folder = _folder()
        with closing(self.open_store()) as store:
            _put(store, f"{folder}/0", b"x")
            check = getattr(store, "check", None)  # only a store on this machine has it
            if check is not None:
                check("write")
            with self.outage():
                if check is not None:
                    with pytest.raises(ObjectStoreError):
                        check("read")
                found = _error_of(store, f"{folder}/0", timeout_s=1.0)
                _require(
                    isinstance(found, ObjectStoreError) and not isinstance(found, NoSuchObjectError),
                    f"expected an ObjectStoreError, and that nothing is missing; found {found!r}",
                )
                with pytest.raises(ObjectStoreError):
                    _put(store, f"{folder}/1", b"y", timeout_s=1.0)
                with pytest.raises(ObjectStoreError):
                    list(store.objects(folder))
            _require(_content(store, f"{folder}/0") == b"x", "another object came back")


def _folder() -> str:
    return f"conformance-{uuid.uuid4().hex}"


def _put(store: ObjectStore, name: str, content: bytes, timeout_s: float = _TIMEOUT_S) -> None:
    store.put(name, content, hashlib.sha256(content).digest(), timeout_s)


def _content(store: ObjectStore, name: str, timeout_s: float = _TIMEOUT_S) -> bytes:
    with store.read(name, timeout_s) as found:
        content = b"".join(found.chunks)
    _require(found.size_bytes == len(content), "the store states another size than it gives")
    return content


def _error_of(store: ObjectStore, name: str, timeout_s: float = _TIMEOUT_S) -> ObjectStoreError | None:
    try:
        _content(store, name, timeout_s)
    except ObjectStoreError as error:
        return error
    return None


def _require(held: bool, otherwise: str) -> None:  # noqa: FBT001 - a statement, as in assert
    if not held:
        pytest.fail(otherwise)
