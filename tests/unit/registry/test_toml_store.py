from __future__ import annotations

import os
import stat
from difflib import ndiff
from pathlib import Path

import pytest

from headerware.core.errors import RegistryError
from headerware.core.header_ids import HeaderId
from headerware.registry import (
    Allocate,
    Change,
    Register,
    Registry,
    Retire,
    built_in,
    with_built_in,
)
from headerware.registry.stores.toml import TomlStore, registry_text
from tests.unit.registry.conftest import DAY, block, entry

BY_HAND = """\
# The registry of Example Ltd.
# Reviews: ask the platform team.
registrar = 'platform'   # not the database team
version = 1

  [[ entry ]]   # the oldest of all
  name = '''tenant'''
  id = "0.1.0.5"
  since = "2027-01-01"
  owner = "a"
  description = \"\"\"Whose the record is.\"\"\"
  encoding = "utf-8"
  # ask before changing

# Everything of a:
[[block]]
network = "0.1.0.0/16"
owner = "a"
description = "Orders: [[entry]] and # are text here."
since = 2027-01-01

# -- the end --
"""


def full() -> Registry:
    return with_built_in(
        [block("0.1.0.0/16", "a"), block("0.3.0.0/16", "c")],
        [
            entry("0.1.0.2", "two"),
            entry("0.1.0.4", "four"),
            entry("0.3.0.1", "\u00fc\"\\'\u65e5", "c", foreign=True),
        ],
        registrar="platform",
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "registry.toml"


@pytest.fixture
def store(path: Path) -> TomlStore:
    return TomlStore.create(path, full())


def lines_changed(before: str, after: str) -> list[str]:
    return [
        line
        for line in ndiff(before.splitlines(), after.splitlines())
        if line.startswith(("+", "-")) and line[2:]
    ]


class TestCreate:
    def test_holds_what_it_was_given(self, store: TomlStore) -> None:
        assert store.load() == full()

    def test_leaves_out_what_comes_with_headerware(self, store: TomlStore, path: Path) -> None:
        assert 'headerware"' not in path.read_text()
        assert "hw.trail" not in path.read_text()

    def test_tells_what_the_file_is_at_its_head(self, store: TomlStore, path: Path) -> None:
        head, _, rest = path.read_text().partition("\n\n")
        assert all(line.startswith("# ") or line == "#" for line in head.split("\n"))
        assert rest.startswith('version = 1\nregistrar = "platform"\n\n[[block]]\n')

    def test_overwrites_nothing(self, store: TomlStore, path: Path) -> None:
        before = path.read_bytes()
        with pytest.raises(RegistryError, match=r"registry\.toml: the file exists, and is not overwritten"):
            TomlStore.create(path, with_built_in())
        assert path.read_bytes() == before
        assert list(path.parent.iterdir()) == [path]

    def test_refuses_what_has_problems(self, path: Path) -> None:
        with pytest.raises(RegistryError, match=r"0\.9\.0\.1: the id lies in no block"):
            TomlStore.create(path, with_built_in(entries=[entry("0.9.0.1", "x")]))
        assert not path.exists()

    def test_refuses_what_lacks_the_built_in(self, path: Path) -> None:
        with pytest.raises(RegistryError, match="lacks the built-in blocks and entries"):
            TomlStore.create(path, Registry())
        assert not path.exists()

    def test_needs_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(RegistryError, match=r"none/registry\.toml: "):
            TomlStore.create(tmp_path / "none" / "registry.toml", built_in())


class TestApply:
    def test_a_new_entry_touches_its_own_lines_only(self, store: TomlStore, path: Path) -> None:
        before = path.read_text()
        store.apply(Register(entry("0.1.0.3", "three"), "a"))
        assert sorted(lines_changed(before, path.read_text())) == [
            "+ [[entry]]",
            '+ description = "One."',
            '+ encoding = "bytes"',
            '+ id = "0.1.0.3"',
            '+ name = "three"',
            '+ owner = "a"',
            "+ since = 2027-01-01",
        ]

    def test_retiring_touches_one_line(self, store: TomlStore, path: Path) -> None:
        before = path.read_text()
        store.apply(Retire(HeaderId("0.1.0.2"), "2027-02-01", "a"))
        assert lines_changed(before, path.read_text()) == ["+ retired = 2027-02-01"]

    @pytest.mark.parametrize(
        "change",
        [
            Register(entry("0.1.0.1", "first"), "a"),
            Register(entry("0.3.255.255", "last", "c"), "c"),
            Allocate(block("0.1.2.0/24", "b"), "a"),
            Allocate(block("0.2.0.0/16", "b"), "platform"),
            Allocate(block("200.0.0.0/8", "b"), "platform"),
        ],
        ids=["first-entry", "last-entry", "inner-block", "middle-block", "last-block"],
    )
    def test_writes_as_if_it_had_always_been_there(
        self, store: TomlStore, path: Path, change: Change
    ) -> None:
        after = store.apply(change)
        assert store.load() == after
        assert path.read_text() == registry_text(after)

    def test_begins_with_an_empty_file(self, path: Path) -> None:
        store = TomlStore.create(path, with_built_in(registrar="platform"))
        store.apply(Allocate(block("0.1.0.0/16", "a"), "platform"))
        after = store.apply(Register(entry("0.1.0.3", "three"), "a"))
        assert path.read_text() == registry_text(after)

    def test_gives_the_registry_after_it(self, store: TomlStore) -> None:
        change = Register(entry("0.1.0.3", "three"), "a")
        assert store.apply(change) == full().apply(change) == store.load()

    @pytest.mark.parametrize(
        "refused",
        [
            Register(entry("0.1.0.2", "other"), "a"),
            Allocate(block("0.1.0.0/16", "z"), "platform"),
            Retire(HeaderId("0.1.0.9"), DAY, "a"),
        ],
        ids=["register", "allocate", "retire"],
    )
    def test_leaves_the_file_alone_when_refused(self, store: TomlStore, path: Path, refused: Change) -> None:
        before, stamp = path.read_bytes(), path.stat().st_ino
        with pytest.raises(RegistryError):
            store.apply(refused)
        assert (path.read_bytes(), path.stat().st_ino) == (before, stamp)

    def test_leaves_nothing_beside_the_file(self, store: TomlStore, path: Path) -> None:
        store.apply(Register(entry("0.1.0.3", "three"), "a"))
        assert list(path.parent.iterdir()) == [path]

    def test_keeps_the_mode(self, store: TomlStore, path: Path) -> None:
        path.chmod(0o640)
        store.apply(Register(entry("0.1.0.3", "three"), "a"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o640

    def test_goes_through_a_link(self, store: TomlStore, path: Path, tmp_path: Path) -> None:
        link = tmp_path / "link.toml"
        link.symlink_to(path)
        after = TomlStore(link).apply(Register(entry("0.1.0.3", "three"), "a"))
        assert link.is_symlink()
        assert store.load() == after

    def test_a_loop_of_links_is_told(self, tmp_path: Path) -> None:
        loop = tmp_path / "loop.toml"
        loop.symlink_to(loop)
        for attempt in (TomlStore(loop).load, lambda: TomlStore(loop).apply(Retire(HeaderId(9), DAY, "a"))):
            with pytest.raises(RegistryError, match=r"loop\.toml: Too many levels of symbolic links"):
                attempt()

    def test_a_failure_to_write_leaves_the_file_alone(
        self, store: TomlStore, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = path.read_bytes()

        def full_disk(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full_disk)
        with pytest.raises(RegistryError, match=r"registry\.toml: No space left on device"):
            store.apply(Register(entry("0.1.0.3", "three"), "a"))
        assert path.read_bytes() == before
        assert list(path.parent.iterdir()) == [path]

    def test_needs_a_file(self, path: Path) -> None:
        with pytest.raises(RegistryError, match="there is no such file; `headerware header-ids init`"):
            TomlStore(path).apply(Register(entry("0.1.0.3", "three"), "a"))
        assert not path.exists()

    def test_a_pipe_in_its_place_makes_nobody_wait(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "ids.toml")
        with pytest.raises(RegistryError, match="expected a plain file"):
            TomlStore(tmp_path / "ids.toml").load()

    def test_a_huge_file_is_not_read(self, tmp_path: Path) -> None:
        (tmp_path / "ids.toml").touch()
        os.truncate(tmp_path / "ids.toml", 1 << 40)
        with pytest.raises(RegistryError, match="it is larger than 67,108,864 bytes"):
            TomlStore(tmp_path / "ids.toml").load()


class TestWrittenByHand:
    @pytest.fixture(autouse=True)
    def _written(self, path: Path) -> None:
        path.write_text(BY_HAND)

    def test_is_read(self, path: Path) -> None:
        registry = TomlStore(path).load()
        assert registry.registrar == "platform"
        found = registry.by_name("tenant")
        assert found == entry("0.1.0.5", "tenant", encoding="utf-8", description="Whose the record is.")

    @pytest.mark.parametrize(
        "change",
        [
            Register(entry("0.1.0.4", "before"), "a"),
            Register(entry("0.1.0.6", "behind"), "a"),
            Allocate(block("0.2.0.0/16", "b"), "platform"),
            Allocate(block("0.1.2.0/24", "b"), "a"),
            Retire(HeaderId("0.1.0.5"), "2027-02-01", "a"),
        ],
        ids=["before", "behind", "next-block", "inner-block", "retire"],
    )
    def test_changes_remove_nothing(self, path: Path, change: Change) -> None:
        store = TomlStore(path)
        after = store.apply(change)
        changed = lines_changed(BY_HAND, path.read_text())
        assert changed
        assert all(line.startswith("+") for line in changed)
        assert store.load() == after

    def test_a_comment_right_above_a_table_stays_with_it(self, path: Path) -> None:
        path.write_text(BY_HAND.replace("  [[ entry ]]", "# about the tenant\n# of a record\n  [[ entry ]]"))
        TomlStore(path).apply(Register(entry("0.1.0.4", "before"), "a"))
        text = path.read_text()
        assert "2027-01-01\n\n# about the tenant\n# of a record\n  [[ entry ]]" in text
        assert text.index('"before"') < text.index("# about the tenant")

    def test_retired_stands_with_its_entry(self, path: Path) -> None:
        TomlStore(path).apply(Retire(HeaderId("0.1.0.5"), "2027-02-01", "a"))
        assert 'encoding = "utf-8"\nretired = 2027-02-01\n  # ask before changing\n' in path.read_text()

    def test_a_missing_line_end_is_made_good(self, path: Path) -> None:
        path.write_text(BY_HAND.rstrip())
        after = TomlStore(path).apply(Register(entry("0.1.0.6", "behind"), "a"))
        assert TomlStore(path).load() == after

    def test_windows_line_ends_are_read_and_extended(self, path: Path) -> None:
        path.write_bytes(BY_HAND.replace("\n", "\r\n").encode())
        store = TomlStore(path)
        store.apply(Register(entry("0.1.0.4", "before"), "a"))
        after = store.apply(Retire(HeaderId("0.1.0.5"), "2027-02-01", "a"))
        assert store.load() == after
        assert b"\n" not in path.read_bytes().replace(b"\r\n", b"")

    def test_a_table_inside_a_string_is_none(self, path: Path) -> None:
        fake = BY_HAND.replace('"Orders:', '"""\n[[entry]]\nid = 1\n""" # "')
        path.write_text(fake)
        with pytest.raises(RegistryError, match="expected each block and entry as a"):
            TomlStore(path).load()

    def test_inline_tables_are_refused(self, path: Path) -> None:
        path.write_text('version = 1\nregistrar = "p"\nentry = []\nblock = [{network = "0.1.0.0/16"}]\n')
        with pytest.raises(RegistryError, match="expected each block and entry as a"):
            TomlStore(path).load()

    def test_a_string_that_looks_like_a_table_is_not_taken_for_one(self, path: Path) -> None:
        # As many headers as tables, but in the wrong places: a change would be written into the string.
        path.write_text(
            'version = 1\nregistrar = "platform"\n'
            '[[block]]\nnetwork = "0.1.0.0/16"\nowner = "a"\nsince = 2027-01-01\n'
            "description = \"Some.\"\n[['entry']]\n"
            'id = "0.1.0.5"\nname = "tenant"\nowner = "a"\nencoding = "bytes"\nsince = 2027-01-01\n'
            'description = """\\\n[[entry]]\n"""\n'
        )
        with pytest.raises(RegistryError, match="a description is one line"):
            TomlStore(path).load()


class TestProblems:
    def told(self, path: Path, text: str) -> list[str]:
        path.write_text(text)
        return [str(problem).removeprefix(str(path)) for problem in TomlStore(path).problems()]

    def test_of_a_sound_file_are_none(self, path: Path) -> None:
        assert self.told(path, BY_HAND) == []

    def test_say_the_line_of_the_table(self, path: Path) -> None:
        told = self.told(path, BY_HAND.replace('owner = "a"', 'owner = "z"', 1))
        assert told == [":6: 0.1.0.5: the id lies in 0.1.0.0/16, which is a's, not z's"]

    def test_say_the_line_of_the_second_of_two(self, path: Path) -> None:
        text = registry_text(full())
        again = text[text.index("[[entry]]") : text.index('id = "0.1.0.4"')].removesuffix("[[entry]]\n")
        line = text.count("\n") + 1
        told = self.told(path, text + again)
        assert [each.partition(": the ")[0] for each in told] == [f":{line}: 0.1.0.2"] * 2

    def test_tell_everything_at_once(self, path: Path) -> None:
        wrong = (
            BY_HAND.replace("version = 1", "version = 2\nblocks = 1")
            .replace('"0.1.0.5"', '"0.1.0.05"')
            .replace("0.1.0.0/16", "10.1.0.0/16")
        )
        told = self.told(path, wrong)
        assert [each.partition(": ")[2].partition(": ")[0] for each in told] == [
            "blocks",
            "version",
            "[[entry]]",
            "10.1.0.0/16",
        ]
        with pytest.raises(RegistryError) as caught:
            TomlStore(path).load()
        assert str(caught.value).count("\n") == len(told) - 1

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("version = ", "TOML: Invalid value"),
            ("a = " + "[" * 100_000, "TOML: "),
            ("version = " + "1" * 10_000, "TOML: "),
            ("", "version: expected version = 1"),
            ("version = true\nregistrar = 'p'", "version: expected version = 1"),
            ("version = 1\nregistrar = 7", "registrar: expected registrar"),
            ("version = 1\nregistrar = ''", "registrar: the registrar's name is not empty"),
            ("version = 1\nregistrar = 'p'\nentry = 1", "TOML: expected each block"),
            ("version = 1\nregistrar = 'p'\nentrys = []", "entrys: unknown key; did you mean 'entry'"),
            (
                "version = 1\nregistrar = 'p'\n[[entry]]\nid = '10.0.0.1'",
                ":3: [[entry]]: name: is missing",
            ),
            (
                "version = 1\nregistrar = 'p'\n[[entry]]\ncolour = 1",
                ":3: [[entry]]: Object contains unknown field",
            ),
        ],
    )
    def test_are_told(self, path: Path, text: str, message: str) -> None:
        assert message in self.told(path, text)[0]

    def test_of_bytes_that_are_no_text(self, path: Path) -> None:
        path.write_bytes(b"version = 1\n\xff")
        with pytest.raises(
            RegistryError, match=r"registry\.toml: expected UTF-8, as in TOML; byte 12 is invalid"
        ):
            TomlStore(path).load()

    def test_a_file_with_problems_takes_no_changes(self, path: Path) -> None:
        wrong = BY_HAND.replace('owner = "a"', 'owner = "z"', 1)
        path.write_text(wrong)
        with pytest.raises(RegistryError, match="which is a's, not z's"):
            TomlStore(path).apply(Register(entry("0.1.0.4", "before"), "a"))
        assert path.read_text() == wrong
