"""The view of ``headerware tail`` in a terminal: a table that follows the topic, and one record in full.

One thread reads and runs the chain. It passes batches through a short queue, so that a fast topic neither
freezes the view nor fills the memory; while the view is paused, the records wait in Kafka.
"""

from __future__ import annotations

import json
import queue
from collections import deque
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, ClassVar, Final, get_args

import confluent_kafka
from rich.text import Text
from textual.app import App
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from headerware.cli.tail_lines import (
    NO_CHAIN,
    OUTCOMES,
    Values,
    as_json,
    chain_lines,
    encryption_lines,
    not_run_text,
    note,
    outcome_text,
    part_text,
    reason_lines,
    signature_lines,
    signer,
    sizes_text,
    timeline_lines,
    title,
    view_lines,
)
from headerware.core.errors import ConfigError, HeaderwareError
from headerware.core.printable import printable
from headerware.interceptors.trail_timeline import time_text
from headerware.ops.tail import Condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from textual import events
    from textual.app import ComposeResult

    from headerware.ops.tail import TailedRecord

_KEPT: Final = 1_000
_QUEUED_BATCHES: Final = 8
_MAX_DRAWN: Final = 400
"""How many records are drawn at once; the next ones come a moment later."""
_DRAW_S: Final = 0.1
_MODES: Final[tuple[Values, ...]] = get_args(Values)
_OF_THE_TABLE: Final = frozenset({"pause", "follow", "ask", "match", "refused"})
_COLUMNS: Final = (
    ("time (UTC)", 12),
    ("part", 4),
    ("offset", 10),
    ("wire -> application", 22),
    ("outcome", 13),
    ("signed by", 26),
    ("key", 16),
    ("what happened", 100),
)


class TailView(App[None]):
    """Show records as they come.

    Args:
        batches: the records; they are taken in a thread of the view's own, which ends with the view.
        topic: what is read, for the status line.
        chain: names of the interceptors that run.
        left_out: names of the interceptors that only observe, and do not run.
        values: whether keys and values are shown at first.
        kept: how many of the latest records can be looked at.
    """

    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False
    TITLE: str | None = "headerware tail"
    CSS: ClassVar[str] = """
    #status { height: 1; background: $primary-background; padding: 0 1; }
    #records { height: 1fr; }
    #prompt { dock: bottom; display: none; }
    #prompt.asked { display: block; }
    """
    BINDINGS: ClassVar[list[Any]] = [
        Binding("space", "pause", "Pause"),
        Binding("f", "follow", "Follow"),
        Binding("slash", "ask('search')", "Search"),
        Binding("n", "match(1)", "Next match", show=False),
        Binding("N", "match(-1)", "Previous match", show=False),
        Binding("w", "ask('where')", "Where"),
        Binding("r", "refused", "Refused only"),
        Binding("v", "values", "Values"),
        Binding("y", "copy", "Copy JSON"),
        Binding("e", "export", "Export"),
        Binding("question_mark", "help", "Help"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
    ]
    HELP: ClassVar[str | None] = """
    # headerware tail

    Each row is a record on the wire, with what the chain makes of it. Interceptors that only observe do not
    run, and nothing is committed, published or remembered.
    """

    def __init__(
        self,
        batches: Iterable[list[TailedRecord]],
        *,
        topic: str,
        chain: Sequence[str] = (),
        left_out: Sequence[str] = (),
        values: Values = "none",
        kept: int = _KEPT,
    ) -> None:
        super().__init__()
        self._reader = _Reader(batches)
        self._status = Static(id="status")
        self._table = _Records(id="records", cursor_type="row", zebra_stripes=True)
        self._prompt = Input(id="prompt")
        self._topic = topic
        self._chain = " -> ".join(reversed(chain)) or ("" if left_out else NO_CHAIN)
        self._left_out = f" ({not_run_text(left_out)})" if left_out else ""
        self.values: Values = values
        """How keys and values are shown."""
        self.paused: bool = False
        """Whether reading waits."""
        self.following: bool = True
        """Whether the cursor follows the latest record."""
        self.shown: list[TailedRecord] = []
        """The record of each row."""
        self._kept_rows = kept
        self._records: deque[TailedRecord] = deque(maxlen=kept)
        self._left: deque[TailedRecord] = deque()
        self._where: Condition | None = None
        self._only_refused = False
        self._sought = ""
        self._question = ""
        self._read = self._refused = self._held_back = 0

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        for label, width in _COLUMNS:
            self._table.add_column(label, width=width)
        yield self._status
        yield self._table
        yield self._prompt
        yield Footer()

    def on_mount(self) -> None:
        """Begin to read and to draw."""
        self._table.focus()
        self._reader.start()
        self.set_interval(_DRAW_S, self._draw)
        self._tell()

    def on_unmount(self) -> None:
        """End the reading thread."""
        self._reader.stop()

    @property
    def current(self) -> TailedRecord | None:
        """The record at the cursor."""
        at = self._table.cursor_row
        return self.shown[at] if 0 <= at < len(self.shown) else None

    # Drawing

    def _draw(self) -> None:
        """Draw what was read, a bounded number of records at once."""
        if not self._table.is_attached:
            return  # the view is being closed
        if not self.paused:
            while len(self._left) < _MAX_DRAWN and (batch := self._reader.take()) is not None:
                self._left.extend(batch)
            for _ in range(min(_MAX_DRAWN, len(self._left))):
                self._add(self._left.popleft())
            if len(self.shown) > 2 * self._kept_rows:
                self._draw_again()
            elif self.following:
                self._table.move_cursor(row=len(self.shown) - 1)
        self._tell()

    def _add(self, record: TailedRecord) -> None:
        self._read += 1
        self._refused += _is_refused(record)
        self._held_back += record.outcome == "held_back"
        self._records.append(record)
        if self._is_shown(record):
            self._add_row(record)

    def _add_row(self, record: TailedRecord) -> None:
        self.shown.append(record)
        self._table.add_row(*_row(record, self.values))

    def _draw_again(self) -> None:
        """Draw the kept records again; the cursor stays on its record."""
        current = self.current
        self._table.clear()
        self.shown = []
        for record in self._records:
            if self._is_shown(record):
                self._add_row(record)
        at = next((at for at, record in enumerate(self.shown) if record is current), 0)
        self._table.move_cursor(row=len(self.shown) - 1 if self.following else at)

    def _is_shown(self, record: TailedRecord) -> bool:
        if self._only_refused and not _is_refused(record):
            return False
        return self._where is None or self._where.holds(
            (name, part.beginning) for name, part in record.headers
        )

    def _tell(self) -> None:
        """Update the status line."""
        state = "paused" if self.paused else ("following" if self.following else "reading")
        if self._reader.failure is not None:
            state = f"stopped: {self._reader.failure}"
        elif self._reader.is_done:
            state = "at the end"
        parts = [f"{self._topic}: {state}", f"{self._read:,} read", f"{self._refused:,} refused"]
        if self._held_back:
            parts.append(f"{self._held_back:,} held back")
        if self._only_refused:
            parts.append("refused only")
        if self._where is not None:
            parts.append(f"where {self._where.text}")
        parts.append(f"{self._chain}{self._left_out}".strip())
        style = "bold red" if self._reader.failure is not None else ""
        self._status.update(Text(printable("  |  ".join(parts)), style, no_wrap=True))

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Return whether a key works on this screen; some keys work in the table only."""
        return not (action in _OF_THE_TABLE and isinstance(self.screen, RecordScreen))

    def stop_following(self) -> None:
        """Stop moving the cursor to the latest record."""
        self.following = False

    def action_follow(self) -> None:
        """Begin or stop to follow the latest record."""
        self.following = not self.following
        if self.following:
            self._table.move_cursor(row=len(self.shown) - 1)
        self._tell()

    def action_pause(self) -> None:
        """Pause or resume reading."""
        self.paused = not self.paused
        self._tell()

    def action_refused(self) -> None:
        """Show refused records only, or all."""
        self._only_refused = not self._only_refused
        self._draw_again()
        self._tell()

    def action_values(self) -> None:
        """Show keys and values as text, in hexadecimal, or not at all."""
        self.values = _MODES[(_MODES.index(self.values) + 1) % len(_MODES)]
        self._draw_again()
        if isinstance(self.screen, RecordScreen):
            self.screen.show()
        self.notify(f"values: {self.values}", timeout=2)

    def on_data_table_row_selected(self) -> None:
        """Open the record at the cursor."""
        if self.current is not None:
            self.stop_following()
            self.push_screen(RecordScreen())

    def action_copy(self) -> None:
        """Copy the record at the cursor as JSON."""
        if self.current is not None:
            self.copy_to_clipboard(self._json(self.current))
            self.notify("copied as JSON", timeout=2)

    def action_export(self) -> None:
        """Write the record at the cursor as JSON into a file of its own."""
        record = self.current
        if record is None:
            return
        path = Path(f"{record.topic}-{record.partition}-{record.offset}.json")
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(self._json(record) + "\n")
        except OSError as error:
            self.notify(f"{path}: {error.strerror}", severity="error", markup=False)
        else:
            self.notify(f"written to {path}", markup=False)

    def action_help(self) -> None:
        """Show all keys, or hide them."""
        if self.screen.query("HelpPanel"):
            self.action_hide_help_panel()
        else:
            self.action_show_help_panel()

    def _json(self, record: TailedRecord) -> str:
        return json.dumps(as_json(record, self.values), indent=2)

    # Questions

    def action_ask(self, question: str) -> None:
        """Ask for a text to search, or for a condition."""
        self._question = question
        self._prompt.placeholder = {
            "search": "search in all columns and in names of headers",
            "where": "HEADER=VALUE, HEADER~REGEX, HEADER or !HEADER; nothing shows all",
        }[question]
        self._prompt.value = ""
        self._prompt.add_class("asked")
        self._prompt.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search for the answer, or show only records that fit it."""
        if self._question == "search":
            self._sought = event.value.casefold()
            self.action_match(1)
        else:
            try:
                self._where = Condition.parse(event.value) if event.value else None
            except ConfigError as error:
                self.notify(str(error), severity="error", markup=False)
                return
            self._draw_again()
        self._leave_prompt()

    def key_escape(self) -> None:
        """Leave a question without an answer."""
        self._leave_prompt()

    def action_match(self, step: int) -> None:
        """Move to the next or the previous record that contains the searched text."""
        count, at = len(self.shown), self._table.cursor_row
        if not self._sought:
            return
        for distance in range(1, count + 1):
            row = (at + step * distance) % count
            if self._sought in _search_text(self.shown[row], self.values):
                self.stop_following()
                self._table.move_cursor(row=row)
                return
        self.notify(f"not found: {printable(self._sought)}", severity="warning", timeout=2, markup=False)

    def _leave_prompt(self) -> None:
        self._prompt.remove_class("asked")
        self._table.focus()
        self._tell()

    def move(self, step: int) -> None:
        """Go to a neighbour of the record at the cursor."""
        self.stop_following()
        self._table.move_cursor(row=max(0, min(len(self.shown) - 1, self._table.cursor_row + step)))


class RecordScreen(Screen[None]):
    """Show the record at the cursor in full."""

    app: TailView
    CSS: ClassVar[str] = """
    RecordScreen Static { padding: 0 1; }
    #title { height: auto; background: $primary-background; }
    .pane { border: round $primary; height: auto; }
    RecordScreen Horizontal { height: auto; }
    RecordScreen Horizontal .pane { width: 1fr; }
    """
    BINDINGS: ClassVar[list[Any]] = [
        Binding("escape,backspace,q", "app.pop_screen", "Back"),
        Binding("left,p", "move(-1)", "Previous record"),
        Binding("right,n", "move(1)", "Next record"),
    ]

    def compose(self) -> ComposeResult:
        """Make the panes."""
        yield Static(id="title")
        with VerticalScroll():
            yield _pane("chain", "chain, step by step")
            with Horizontal():
                yield _pane("signature", "signature")
                yield _pane("trail", "trail")
            yield _pane("encryption", "encryption")
            with Horizontal():
                yield _pane("wire", "on the wire")
                yield _pane("application", "application")
        yield Footer()

    def on_mount(self) -> None:
        """Fill the panes."""
        self.show()

    def show(self) -> None:
        """Fill the panes with the record at the cursor."""
        record, values = self.app.current, self.app.values
        if record is None:
            return
        application = [line for view in record.application for line in view_lines(view, values)]
        nothing = OUTCOMES[record.outcome]
        panes = {
            "title": [title(record), *reason_lines(record)],
            "wire": [] if record.wire is None else view_lines(record.wire, values, record.headers),
            "application": application or [Text(f"{nothing[0]} {nothing[1]}: gets nothing", nothing[2])],
            "chain": chain_lines(record),
            "signature": signature_lines(record),
            "encryption": encryption_lines(record),
            "trail": timeline_lines(record),
        }
        for name, lines in panes.items():
            self.query_one(f"#{name}", Static).update(Text("\n").join(lines))
        self.query_one("#encryption").display = bool(panes["encryption"])

    def action_move(self, step: int) -> None:
        """Show a neighbour."""
        self.app.move(step)
        self.show()


class _Records(DataTable[Text]):
    """The table of records; moving up in it stops following the latest record."""

    app: TailView
    BINDINGS: ClassVar[list[Any]] = [Binding("enter", "select_cursor", "Open")]

    def action_cursor_up(self) -> None:
        self.app.stop_following()
        super().action_cursor_up()

    def action_page_up(self) -> None:
        self.app.stop_following()
        super().action_page_up()

    def action_scroll_top(self) -> None:
        self.app.stop_following()
        super().action_scroll_top()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:  # noqa: ARG002 - an event's signature
        self.app.stop_following()

    def on_click(self, event: events.Click) -> None:  # noqa: ARG002 - likewise
        self.app.stop_following()


class _Reader(Thread):
    """Take batches from an iterator, and keep a few of them for the view."""

    def __init__(self, batches: Iterable[list[TailedRecord]]) -> None:
        super().__init__(name="headerware-tail", daemon=True)
        self._batches: Iterator[list[TailedRecord]] = iter(batches)
        self._queue: queue.Queue[list[TailedRecord]] = queue.Queue(_QUEUED_BATCHES)
        self._stopping = Event()
        self._ended = Event()
        self.failure: str | None = None
        """The reason if reading failed, else None."""

    @property
    def is_done(self) -> bool:
        """Whether nothing more will come."""
        return self._ended.is_set() and self._queue.empty()

    def run(self) -> None:
        try:
            for batch in self._batches:
                if self._stopping.is_set():
                    return
                if batch:
                    self._put(batch)
        except confluent_kafka.KafkaException as error:
            self.failure = error.args[0].str()
        except HeaderwareError as error:
            self.failure = str(error)
        except Exception as error:  # noqa: BLE001 - its text may quote a payload
            self.failure = type(error).__name__
        finally:
            self._ended.set()

    def take(self) -> list[TailedRecord] | None:
        """Return the next batch, or None if there is none yet."""
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            return None

    def stop(self) -> None:
        """Stop reading, and wait until the thread has ended."""
        self._stopping.set()
        if self.is_alive():
            self.join(5)

    def _put(self, batch: list[TailedRecord]) -> None:
        while not self._stopping.is_set():
            try:
                self._queue.put(batch, timeout=_DRAW_S)
            except queue.Full:
                continue
            return


def _pane(name: str, label: str) -> Static:
    pane = Static(id=name, classes="pane")
    pane.border_title = label
    return pane


def _is_refused(record: TailedRecord) -> bool:
    return record.outcome in ("refused", "dead_letter")


def _row(record: TailedRecord, values: Values) -> list[Text]:
    sign, word, style = outcome_text(record)
    when = "" if record.timestamp_ms is None else time_text(record.timestamp_ms)[11:23]
    key = "" if record.wire is None else part_text(record.wire.key, values)
    signed = "" if record.wire is None else signer(record)
    return [
        Text(when),
        Text(str(record.partition), justify="right"),
        Text(f"{record.offset}", justify="right"),
        Text(sizes_text(record), justify="right"),
        Text(f"{sign} {word}", style),
        Text(signed),
        Text(key),
        Text(note(record), "" if record.outcome in ("delivered", "waits", "dropped") else style),
    ]


def _search_text(record: TailedRecord, values: Values) -> str:
    parts = [cell.plain for cell in _row(record, values)]
    parts += [name for name, _ in record.headers]
    if values != "none":
        parts += [part_text(part, values) for _, part in record.headers]
        parts += [part_text(view.value, values) for view in record.application]
    return "\n".join(parts).casefold()
