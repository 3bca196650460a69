"""``headerware tail`` in a terminal: the view, driven by keys."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ
from threading import Event
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from headerware import Chain, Context, Headers, Record
from headerware.cli.tail_lines import brief_line
from headerware.cli.tail_view import _QUEUED_BATCHES, RecordScreen, TailView
from headerware.core import runner
from headerware.interceptors import Compress, Encrypt, HeaderIds, Sign, Slice, Trail
from headerware.keyring.lifecycle import with_new_key
from headerware.keyring.services import FileKeys
from headerware.keyring.writing import edit_keyring
from headerware.ops.tail import ChainView
from tests.screens import SCREENS, assert_is_in_docs, words_of
from tests.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headerware.ops.tail import TailedRecord
    from headerware.testing import EmbeddedCluster

Play = Callable[[TailView, Pilot[None]], Awaitable[None]]
NOW = 1_767_225_600_000
ATTACK = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e[bold]"
SIZE = (140, 40)


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    keyring = tmp_path / "keys.json"
    edit_keyring(keyring, lambda keys: with_new_key(keys, "orders-2026", "hmac-sha256"), create=True)
    sign = Sign(keyring=str(keyring), key_id="orders-2026", cluster="eu", on_error="dead_letter")
    trail = Trail(service="orders", cluster="eu")
    return Chain([trail, Compress(), Slice(max_bytes=2_000), sign, HeaderIds()])


@pytest.fixture
def records(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> list[TailedRecord]:
    """Return five records: delivered, forged, unsigned, delivered, and the first of four slices."""
    # The clock ticks at each look, and native code looks once for a batch.
    monkeypatch.setattr(runner, "native_module", lambda: (None, "off"))
    clock = iter(range(NOW, NOW + 100_000, 700))
    body = b'{"order": 17, "items": [' + b'"apples and pears", ' * 20 + b'"plums"]}'
    with chain.open(Context(side="producer", now_ms=lambda: next(clock))) as session:
        wire = session.send(
            [
                Record("orders", body, b"customer-1", Headers({"tenant": "north"})),
                Record("orders", body, b"customer-2", Headers({"tenant": "south"})),
                Record("orders", body, b"customer-3", Headers({"tenant": "south"})),
            ]
        )
        wire[1] = wire[1].with_value(wire[1].value[:-1] + b"?")
        wire.insert(2, Record("orders", ATTACK.encode(), ATTACK.encode(), Headers([(ATTACK, ATTACK)])))
        wire += session.send([Record("orders", os.urandom(5_000), b"customer-4")])[:1]
    return looked(chain, wire)


def looked(chain: Chain, wire: Sequence[Record]) -> list[TailedRecord]:
    view = ChainView(chain, now_ms=lambda: NOW)
    try:
        found = [
            view.look(record.replace(partition=0, offset=42 + at, timestamp_ms=NOW + 700 * at))
            for at, record in enumerate(wire)
        ]
    finally:
        view.close()
    return [record for record in found if record is not None]


def many(count: int) -> Iterator[list[TailedRecord]]:
    """Yield records in batches, as a fast topic does."""
    view = ChainView(Chain())
    for at in range(0, count, 100):
        found = [view.look(Record("orders", b"v", partition=0, offset=at + more)) for more in range(100)]
        yield [record for record in found if record is not None]


def driven(app: TailView, play: Callable[[Pilot[None]], Awaitable[None]]) -> None:
    async def run() -> None:
        async with app.run_test(size=SIZE) as pilot:
            await play(pilot)

    asyncio.run(run())


def text_of(app: TailView, name: str) -> str:
    shown = app.screen.query_one(f"#{name}", Static).visual
    return str(shown)


class TestView:
    def played(
        self,
        records: list[TailedRecord],
        play: Callable[[TailView, Pilot[None]], Awaitable[None]],
        **options: Any,
    ) -> TailView:
        """Play keys once the records are there."""
        app = TailView([records], topic="orders", chain=["sign"], **options)

        async def begin(pilot: Pilot[None]) -> None:
            await until_async(lambda: len(app.shown) == len(records), pilot.pause)
            await play(app, pilot)

        driven(app, begin)
        return app

    def test_shows_a_row_for_each_record_and_counts_them(self, records: list[TailedRecord]) -> None:
        async def play(app: TailView, pilot: Pilot[None]) -> None:
            await pilot.pause()
            table = app.query_one(DataTable)
            outcomes = [table.get_row_at(at)[4].plain for at in range(5)]
            assert outcomes == ["✓ delivered", "→ dead letter", "→ dead letter", "✓ delivered", "… waits"]
            assert table.cursor_row == 4
            await until_async(lambda: "5 read  |  2 refused" in text_of(app, "status"), pilot.pause)

        self.played(records, play)

    def test_opens_a_record_and_goes_through_its_neighbours(self, records: list[TailedRecord]) -> None:
        async def play(app: TailView, pilot: Pilot[None]) -> None:
            await pilot.press("home", "ctrl+home", "down", "enter")
            await until_async(lambda: isinstance(app.screen, RecordScreen), pilot.pause)
            await pilot.pause()
            assert "orders[0]@43" in text_of(app, "title")
            assert "does not fit the record" in text_of(app, "title")
            assert "refused" in text_of(app, "chain")
            assert "? not verified: it claims to be signed with orders-2026" in text_of(app, "signature")
            assert "gets nothing" in text_of(app, "application")
            assert "orders  produced into eu/orders" in text_of(app, "trail")
            await pilot.press("left")
            assert "✓ verified" in text_of(app, "signature")
            assert "tenant" in text_of(app, "application")
            await pilot.press("escape")
            assert not isinstance(app.screen, RecordScreen)

        self.played(records, play)

    def test_an_encrypted_record_has_a_box_for_it(self, tmp_path: Path) -> None:
        keyring = tmp_path / "keys.json"
        edit_keyring(keyring, lambda keys: with_new_key(keys, "cards", "aes-256"), create=True)
        encrypt = Encrypt(key_service=FileKeys(keyring=str(keyring)), key_id="cards")
        with Chain([encrypt]).open(Context(side="producer", now_ms=lambda: NOW)) as session:
            wire = session.send([Record("orders", b"v", b"k")])
        shown = looked(Chain([encrypt]), [*wire, Record("orders", b"v", b"k")])

        async def play(app: TailView, pilot: Pilot[None]) -> None:
            await pilot.press("home", "ctrl+home", "enter")
            await until_async(lambda: isinstance(app.screen, RecordScreen), pilot.pause)
            await pilot.pause()
            pane = app.screen.query_one("#encryption", Static)
            assert (pane.display, pane.border_title) == (True, "encryption")
            assert "under cards v1, decrypted" in text_of(app, "encryption")
            assert "under cards" not in text_of(app, "signature")
            await pilot.press("right")
            assert not pane.display

        self.played(shown, play)

    def test_says_that_no_chain_was_given(self, records: list[TailedRecord]) -> None:
        for chain, left_out, said in (
            ([], [], "  |  no chain: name its file with -c"),
            ([], ["trail"], "  |  (not run: trail)"),
            (["sign"], ["trail"], "  |  sign (not run: trail)"),
        ):
            app = TailView([records], topic="orders", chain=chain, left_out=left_out)

            async def play(pilot: Pilot[None], app: TailView = app, said: str = said) -> None:
                await until_async(lambda: text_of(app, "status").endswith(said), pilot.pause)

            driven(app, play)

    def test_q_goes_back_from_a_record_and_ends_the_view(self, records: list[TailedRecord]) -> None:
        async def play(app: TailView, pilot: Pilot[None]) -> None:
            await pilot.press("home", "enter")
            await until_async(lambda: isinstance(app.screen, RecordScreen), pilot.pause)
            await pilot.press("q")
            await until_async(lambda: not isinstance(app.screen, RecordScreen), pilot.pause)
            assert app.is_running
            await pilot.press("q")
            await until_async(lambda: not app.is_running, pilot.pause)

        self.played(records, play)

    def test_whoever_goes_up_stays_there(self, records: list[TailedRecord]) -> None:
        more = Event()

        def batches() -> Iterator[list[TailedRecord]]:
            yield records
            assert more.wait(60)
            yield records

        app = TailView(batches(), topic="orders")

        async def play(pilot: Pilot[None]) -> None:
            await until_async(lambda: len(app.shown) == 5, pilot.pause)
            await pilot.press("up")
            more.set()
            await until_async(lambda: len(app.shown) == 10, pilot.pause)
            assert app.query_one(DataTable).cursor_row == 3
            await pilot.press("f")
            assert app.query_one(DataTable).cursor_row == 9

        driven(app, play)

    def test_pausing_leaves_the_rest_unread(self) -> None:
        taken = []

        def batches() -> Iterator[list[TailedRecord]]:
            for batch in many(1_000_000):
                taken.append(batch)
                yield batch

        app = TailView(batches(), topic="orders")

        async def play(pilot: Pilot[None]) -> None:
            await until_async(lambda: len(app.shown) > 0, pilot.pause)
            await pilot.press("space")
            last, before = app.shown[-1], len(taken)
            await until_async(app._reader._queue.full, pilot.pause)
            await pilot.pause(0.25)  # longer than the reader waits for room
            assert app.shown[-1] is last
            assert len(taken) <= before + _QUEUED_BATCHES + 1  # one is in the reader's hand
            await pilot.press("space")
            await until_async(lambda: app.shown[-1] is not last, pilot.pause)

        driven(app, play)

    def test_many_records_take_no_more_room_than_the_last_ones(self) -> None:
        app = TailView(many(2_000), topic="orders", kept=200)

        async def play(pilot: Pilot[None]) -> None:
            most = 0
            while not (app.shown and app.shown[-1].offset == 1_999):
                most = max(most, len(app.shown))
                await pilot.pause(0.01)
            assert most <= 400 + 400
            await pilot.press("v")
            assert [record.offset for record in app.shown] == list(range(1_800, 2_000))

        driven(app, play)

    def test_a_source_that_hangs_does_not_stop_the_keys(self, records: list[TailedRecord]) -> None:
        release = Event()

        def batches() -> Iterator[list[TailedRecord]]:
            yield records
            release.wait(60)

        app = TailView(batches(), topic="orders")

        async def play(pilot: Pilot[None]) -> None:
            await until_async(lambda: len(app.shown) == 5, pilot.pause)
            await pilot.press("v")
            assert app.values == "text"
            release.set()

        driven(app, play)

    def test_says_why_reading_has_stopped_and_keeps_what_was_read(self, records: list[TailedRecord]) -> None:
        def batches() -> Iterator[list[TailedRecord]]:
            yield records
            raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(29, "not for you"))

        app = TailView(batches(), topic="orders")

        async def play(pilot: Pilot[None]) -> None:
            await until_async(lambda: "stopped: not for you" in text_of(app, "status"), pilot.pause)
            await until_async(lambda: len(app.shown) == 5, pilot.pause)

        driven(app, play)

    def test_refused_only(self, records: list[TailedRecord]) -> None:
        async def play(app: TailView, pilot: Pilot[None]) -> None:
            await pilot.press("r")
            assert [record.offset for record in app.shown] == [43, 44]
            await pilot.press("r")
            assert len(app.shown) == 5

        self.played(records, play)

    def test_where(self, records: list[TailedRecord]) -> None:
        async def play(app: TailView, pilot: Pilot[None]) -> None:
            await pilot.press("w", *"tenant=south", "enter")
            await pilot.pause()
            assert [record.offset for record in app.shown] == [43, 45]
            await pilot.press("w", *"=", "enter")
            await pilot.pause()
            assert app.query_one(Input).has_class("asked")
            await pilot.press("backspace", "enter")
            await pilot.pause()
            assert len(app.shown) == 5

        self.played(records, play)

    def test_search_goes_from_match_to_match(self, records: list[TailedRecord]) -> None:
        async def play(app: TailView, pilot: Pilot[None]) -> None:
            await pilot.press("slash", *"DEAD", "enter")
            await pilot.pause()
            table = app.query_one(DataTable)
            assert table.cursor_row == 1
            await pilot.press("n")
            assert table.cursor_row == 2
            await pilot.press("n")
            assert table.cursor_row == 1
            await pilot.press("N")
            assert table.cursor_row == 2

        self.played(records, play)

    def test_values_are_hidden_until_they_are_asked_for(self, records: list[TailedRecord]) -> None:
        async def play(app: TailView, pilot: Pilot[None]) -> None:
            table = app.query_one(DataTable)
            assert "customer-1" not in table.get_row_at(0)[6].plain
            await pilot.press("v")
            assert "customer-1" in table.get_row_at(0)[6].plain
            await pilot.press("v")
            assert b"customer-1".hex() in table.get_row_at(0)[6].plain

        self.played(records, play)

    def test_copies_and_exports_a_record_as_json(
        self, records: list[TailedRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)

        async def play(app: TailView, pilot: Pilot[None]) -> None:
            await pilot.press("y", "e")
            written = (tmp_path / "orders-0-46.json").read_text()
            assert json.loads(app.clipboard) == json.loads(written)
            assert json.loads(written)["slice"]["count"] == 4
            await pilot.press("e")  # it is there already, and stays

        self.played(records, play)

    def test_nothing_that_a_terminal_would_obey_is_drawn(self, records: list[TailedRecord]) -> None:
        async def play(app: TailView, pilot: Pilot[None]) -> None:
            table = app.query_one(DataTable)
            cells = [cell.plain for at in range(5) for cell in table.get_row_at(at)]
            assert all(cell.isprintable() for cell in cells)
            await pilot.press("up", "up", "enter")
            await until_async(lambda: isinstance(app.screen, RecordScreen), pilot.pause)
            await pilot.pause()
            assert "[bold]" in text_of(app, "wire")  # no markup either
            assert "\\x1b[2J" in text_of(app, "wire")
            panes = "".join(text_of(app, name) for name in ("title", "wire", "chain", "trail"))
            assert all(character.isprintable() or character == "\n" for character in panes)

        self.played(records, play, values="text")

    def test_help_lists_the_keys(self, records: list[TailedRecord]) -> None:
        async def play(app: TailView, pilot: Pilot[None]) -> None:
            await pilot.press("question_mark")
            assert app.screen.query("HelpPanel")
            await pilot.press("question_mark")
            assert not app.screen.query("HelpPanel")

        self.played(records, play)


class TestScreens:
    """The pictures in the documentation; `make screens` draws them again."""

    def test_are_what_the_view_shows(self, records: list[TailedRecord]) -> None:
        found = {}

        async def play(app: TailView, pilot: Pilot[None]) -> None:
            await until_async(
                lambda: len(app.shown) == 5 and "at the end" in text_of(app, "status"), pilot.pause
            )
            await pilot.pause()
            found["tail.svg"] = app.export_screenshot(title="headerware tail orders")
            await pilot.press("up", "up", "up", "enter")
            await until_async(lambda: isinstance(app.screen, RecordScreen), pilot.pause)
            await pilot.pause()
            found["tail-record.svg"] = app.export_screenshot(title="headerware tail orders")

        app = TailView(
            [records],
            topic="orders",
            chain=["compress", "slice", "sign", "header_ids"],
            left_out=["trail"],
            values="text",
        )

        async def whole(pilot: Pilot[None]) -> None:
            await play(app, pilot)

        driven(app, whole)
        for name, picture in found.items():
            assert_is_in_docs(name, picture)

    def test_the_lines_of_the_page_are_what_is_printed(self, records: list[TailedRecord]) -> None:
        lines = [brief_line(record).plain for record in records]
        page = (SCREENS.parent / "tail.md").read_text(encoding="utf-8")
        (shown,) = [
            block for block in re.findall(r"```text\n(.*?)```", page, re.DOTALL) if "orders[0]" in block
        ]
        assert [words_of(line) for line in shown.splitlines()] == [words_of(line) for line in lines]


MOVES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class TestTerminal:
    def test_is_drawn_in_a_real_one_and_leaves_it_as_it_was(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("orders")
        embedded_cluster.create_topic(topic)
        producer = confluent_kafka.Producer({"bootstrap.servers": embedded_cluster.bootstrap_servers})
        producer.produce(topic, b"value", ATTACK.encode())
        assert producer.flush(60) == 0
        ours, theirs = pty.openpty()
        ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
        command = [sys.executable, "-m", "headerware", "tail", topic, "--values", "text"]
        # pytest-xdist says how large a terminal is, which this one is not.
        inherited = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
        environment = {**inherited, "TERM": "xterm-256color", "HEADERWARE_CONFIG": ""}
        with subprocess.Popen(
            [*command, "--bootstrap-servers", embedded_cluster.bootstrap_servers],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        ) as process:
            os.close(theirs)
            try:
                drawn = read_until(ours, "\\x1b]0;")
                assert "\x1b]0;" not in drawn
                assert "\x1b[?1049h" in drawn  # the alternate screen
                os.write(ours, b"q")
                read_until(ours, "\x1b[?1049l")
                drain(ours)
                assert process.wait(60) == 0
            finally:
                process.kill()
        os.close(ours)


def read_until(terminal: int, wanted: str) -> str:
    """Return all that is drawn until a text comes, whatever colours and moves are in the midst of it."""
    found, deadline = "", time.monotonic() + 60
    while wanted not in found and wanted not in MOVES.sub("", found):
        assert time.monotonic() < deadline, found[-2000:]
        if select.select([terminal], [], [], 0.5)[0]:
            found += os.read(terminal, 65_536).decode(errors="replace")
    return found


def drain(terminal: int) -> None:
    """Read what still comes, so that the writer is not held up, until it closes the terminal."""
    try:
        while select.select([terminal], [], [], 30)[0] and os.read(terminal, 65_536):
            pass
    except OSError:  # the other end is closed
        return
