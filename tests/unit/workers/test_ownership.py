"""Who comes after whom: former owners are on record until they have ended."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headerware.workers.ownership import succeed


class Record:
    """What is on record, and what was done, in order."""

    def __init__(self, *owners: str) -> None:
        self.owners: Sequence[str] = owners
        self.done: list[object] = []
        self.living: set[str] = set()

    def owned(self) -> Sequence[str]:
        return self.owners

    def keep(self, owners: Sequence[str]) -> None:
        self.done.append(list(owners))
        self.owners = owners

    def end(self, owner: str) -> None:
        if owner in self.living:
            raise TimeoutError(owner)
        self.done.append(owner)

    def take(self, owner: str) -> None:
        succeed(owner, self.owned, self.keep, self.end)


class TestSucceed:
    def test_notes_former_owners_before_it_ends_them_and_takes_them_out_after(self) -> None:
        record = Record("three")
        record.take("two")
        assert record.done == [["two", "three"], "three", ["two"]]

    def test_of_the_first_owner_only_notes_it(self) -> None:
        record = Record()
        record.take("two")
        assert record.done == [["two"]]

    def test_that_fails_leaves_the_rest_to_the_next_one(self) -> None:
        record = Record("three")
        record.living.add("three")
        with pytest.raises(TimeoutError):
            record.take("two")
        assert record.owners == ["two", "three"]
        record.living.clear()
        record.take("one")
        assert record.done[1:] == [["one", "two", "three"], "two", "three", ["one"]]
