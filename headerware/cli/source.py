"""``headerware source``: run a source, show what it would read, and show its progress."""

from __future__ import annotations

import gc
import time
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from headerware.cli.health import Health, health_option, served_health
from headerware.cli.json_output import answer, show_json
from headerware.cli.options import json_option
from headerware.cli.signals import stopped_by_signals
from headerware.cli.source_check import check
from headerware.cli.source_status import object_text, source_errors, status
from headerware.cli.tables import output_console
from headerware.core.context import wall_clock_ms
from headerware.core.errors import HeaderwareError, SourceError
from headerware.core.printable import counted, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headerware.sources import OffsetEntry, OffsetKey
    from headerware.sources.engine.plan import Planned
    from headerware.sources.engine.worker import ObjectProgress
    from headerware.sources.runtime import RunConfig, SourceRunner
    from headerware.sources.runtime.stores import OffsetStore, StoredOffsets

_COLLECTOR_THRESHOLDS: Final = (250_000, 20, 20)
_REFRESH_S: Final = 0.5
_LINE_S: Final = 30.0
"""How often a line is written if there is no terminal."""
_BAR_WIDTH: Final = 10
_SHOWN: Final = {
    "complete": "complete",
    "failed": "failed",
    "retries": "retries",
    "bad": "bad_records",
    "records": "records",
}
"""The counts of a task that are shown, by their titles; together they fit into 80 columns."""
_FLOW: Final = ("records/s", "in flight")
_config = click.argument("config", type=click.Path(exists=True, dir_okay=False))


@click.group()
def source() -> None:
    """Bring objects of other systems into Kafka.

    docs/sources.md says how.
    """


source.add_command(check)
source.add_command(status)


@source.command()
@click.argument("path", type=click.Path(exists=True))
@click.option("--once", is_flag=True, help="Read the objects that exist now, and end.")
@click.option(
    "--task", "tasks", type=click.IntRange(0), multiple=True, help="Run this task only; repeatable, from 0."
)
@health_option
@click.option("--fail-fast", is_flag=True, help="With a folder: stop all sources when one fails.")
@json_option
def run(
    path: str,
    once: bool,  # noqa: FBT001 - click passes flags by name
    tasks: tuple[int, ...],
    health: tuple[str, int] | None,
    fail_fast: bool,  # noqa: FBT001 - likewise
    as_json: bool,  # noqa: FBT001 - likewise
) -> None:
    """Run the source of a file, or all sources of a folder, until SIGINT or SIGTERM.

    Each *.toml of a folder is a source, except kafka.toml, which has the [kafka] of all sources. All files
    are checked before any source runs. A source that fails does not stop the others, but the exit code is 1
    when all have ended.

    After a signal, the command stops reading, waits for the records that were sent, and stores the offsets. A
    second signal ends the process at once, without loss.

    Exit codes: 0 the source was stopped, or all is read; 1 it failed; 2 wrong use.
    """
    from headerware.sources import runtime  # noqa: PLC0415 - only this needs a client

    configs = runtime.RunConfig.load_all(path)
    if not Path(path).is_dir():
        (loaded,) = configs
        for number in tasks:
            if number >= loaded.tasks:
                raise click.BadParameter(f"{path} has {counted(loaded.tasks, 'task')}", param_hint="--task")
        runner = runtime.SourceRunner(loaded, tasks=tasks or None, once=once)
        with _working([runner], runner.stop, health):
            runner.run()
        _tell_of_include(runner)
        answer(_counts(runner), lambda: click.echo(_summary(runner)), as_json=as_json)
        return
    if tasks:
        raise click.UsageError("--task is for the source of one file; a folder runs all tasks of its sources")
    group = runtime.RunnerGroup(configs, once=once, fail_fast=fail_fast, on_failure=_tell_failure)
    with _working(group.runners, group.stop, health):
        group.run()
    for each in group.runners:
        _tell_of_include(each)
    failures = group.failures
    found = [
        {
            **_counts(each),
            "error": str(failures[each.config.name]) if each.config.name in failures else None,
        }
        for each in group.runners
    ]
    answer(
        found,
        lambda: click.echo("\n".join(map(_summary, group.runners))),
        as_json=as_json,
        ok=not failures,
    )


@contextmanager
def _working(
    runners: list[SourceRunner], stop: Callable[[], object], health: tuple[str, int] | None
) -> Iterator[None]:
    """Show the progress, serve the health, and stop at a signal."""

    def look() -> Health:
        sources = {
            each.config.name: {
                "live": each.is_live,
                "ready": each.is_ready,
                "tasks": {number: msgspec.to_builtins(found) for number, found in each.statistics.items()},
            }
            for each in runners
        }
        return Health(
            live=any(each.is_live for each in runners),  # a source that fails leaves the others at work
            ready=all(each.is_ready for each in runners),
            details={"sources": sources},
        )

    with stopped_by_signals(stop), served_health(health, look), _status(runners), rare_collections():
        yield


def _tell_of_include(runner: SourceRunner) -> None:
    """Say so if a source has read nothing because its ``include`` fits none of its objects."""
    from headerware.sources.engine.plan import include_problem  # noqa: PLC0415 - only few commands need it

    if any(each.objects for each in runner.statistics.values()):
        return
    with suppress(HeaderwareError, OSError, *runner.config.source.retried):  # the run has told its own errors
        if problem := include_problem(runner.config):
            click.echo(f"{runner.config.name}: {problem}", err=True)


def _tell_failure(name: str, error: HeaderwareError) -> None:
    click.echo(f"{name}: failed: {printable(str(error))}", err=True)


def _counts(runner: SourceRunner) -> dict[str, Any]:
    tasks = {number: msgspec.to_builtins(found) for number, found in runner.statistics.items()}
    return {"source": runner.config.name, "tasks": tasks}


@source.command()
@click.argument("path", type=click.Path(exists=True))
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Show this many objects of a source at most.",
)
@click.option("--all", "everything", is_flag=True, help="Show also objects that are not read.")
@json_option
def plan(path: str, limit: int, everything: bool, as_json: bool) -> None:  # noqa: FBT001 - as above
    """Show which objects would be read now, and why; open no object, and store nothing.

    PATH is the file of a source, or a folder of such files.
    """
    from headerware.sources.engine.plan import plan as planned  # noqa: PLC0415 - as above
    from headerware.sources.runtime import RunConfig  # noqa: PLC0415 - as above

    shown = []
    for loaded in (configs := RunConfig.load_all(path)):
        listed, found = 0, []
        with closing(_offsets_of(loaded)) as offsets, source_errors(loaded):
            for each in planned(loaded, offsets):
                listed += 1
                if everything or each.reads:
                    found.append(each)
                    if len(found) > limit:
                        break
        shown += [{"source": loaded.name, **each._asdict()} for each in found[:limit]]
        if not as_json:
            if found and len(configs) > 1:
                click.echo(f"{loaded.name}:")
            _print_plan(loaded.name, found, listed, limit)
    if as_json:
        show_json(shown)


def _print_plan(name: str, found: list[Planned], listed: int, limit: int) -> None:
    if not found:
        click.echo(f"{name}: there is nothing to read ({counted(listed, 'object')} listed)")
        return
    table = Table("object", "task", "goes to", "from record", "why", box=None, pad_edge=False)
    for each in found[:limit]:
        target = "?" if each.topic is None else each.topic
        partition = "" if each.partition is None else f"[{each.partition}]"
        table.add_row(
            Text(printable(each.key)),
            str(each.task),
            Text(printable(target) + partition),
            str(each.known_records + 1) if each.reads else "",
            Text(printable(each.why)),
        )
    output_console().print(table)
    if len(found) > limit:
        click.echo(f"and more; --limit {10 * limit} shows more objects")


@source.group()
def offsets() -> None:
    """Look at the offsets of a source, and reset them."""


@offsets.command()
@_config
@click.argument("keys", nargs=-1)
@json_option
def show(config: str, keys: tuple[str, ...], as_json: bool) -> None:  # noqa: FBT001 - as above
    """Show how far objects were read: all objects, or those named by KEYS."""
    loaded, store = _opened(config)
    with closing(store):
        found = _chosen(loaded, store, keys)
    shown = [{"key": object_text(key), **_entry(entry)} for key, entry in found]
    if as_json:
        show_json(shown)
        return
    table = Table("object", "record", "complete", "version", "properties", box=None, pad_edge=False)
    for each in shown:
        cells = (
            each["key"],
            each["record_number"],
            "yes" if each["complete"] else "no",
            each["version"] or "",
            each["properties"] or "",
        )
        table.add_row(*(Text(printable(str(cell))) for cell in cells))
    output_console().print(table)
    click.echo(f"{loaded.name}: {counted(len(shown), 'object')}")


@offsets.command()
@_config
@click.argument("keys", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Forget all objects of the source.")
@json_option
def reset(config: str, keys: tuple[str, ...], everything: bool, as_json: bool) -> None:  # noqa: FBT001 - as above
    """Forget the offsets of KEYS, so that these objects are read again from their first record.

    Stop the source first. A running source never overwrites a reset. If its offsets are in a file, the reset
    is refused. If they are in a topic, the source ends with an error, within 30 seconds if it is idle, and
    reads the objects when it is started again.
    """
    from headerware.sources.runtime.stores import OtherWriterError, sharings_in  # noqa: PLC0415 - as above

    if bool(keys) == everything:
        raise click.UsageError("name the objects, or give --all")
    loaded, store = _opened(config)
    with closing(store):
        found = [key for key, _ in _chosen(loaded, store, keys)]
        sharings = dict.fromkeys([loaded.sharing, *sharings_in(store, loaded.name)])
        ends = _still_at_work(store) if loaded.offsets.transactional else []
    writers = [writer for sharing in sharings for writer in sharing.writers(loaded.name)]
    try:
        # Opening the store for writing ends all tasks before anything is forgotten.
        with closing(loaded.offsets.open(loaded.kafka, source=loaded.name, writers=writers)) as writing:
            if found:
                writing.put(dict.fromkeys(found))
    except OtherWriterError as error:
        raise SourceError(
            f"nothing was reset: source {loaded.name!r} is at work, as {error.writer!r} in another process; "
            "stop the source, then reset"
        ) from error
    if as_json:
        show_json({"reset": [object_text(key) for key in found], "ends": ends})
    else:
        click.echo(f"{loaded.name}: {counted(len(found), 'object')} will be read again")
        for task in ends:
            within = f"within {_sign_interval():.0f} s"
            click.echo(
                f"{task} was at work a moment ago; if it still is, it ends {within}, and reads these "
                "objects when it is started again"
            )


def _sign_interval() -> float:
    from headerware.sources.runtime import stores  # noqa: PLC0415 - as above

    return stores.SIGN_INTERVAL_S


def _still_at_work(store: StoredOffsets) -> list[str]:
    """Return the tasks that may be at work, because their last sign is recent."""
    since_ms = wall_clock_ms() - 2_000 * _sign_interval()
    return [sign.task for sign in store.signs() if sign.at_ms >= since_ms]


def _opened(config: str) -> tuple[RunConfig, StoredOffsets]:
    from headerware.sources.runtime import RunConfig  # noqa: PLC0415 - as above

    loaded = RunConfig.load(config)
    return loaded, _offsets_of(loaded)


def _offsets_of(loaded: RunConfig) -> StoredOffsets:
    store: OffsetStore = loaded.offsets
    return store.open(loaded.kafka, source=loaded.name)


def _chosen(
    loaded: RunConfig, store: StoredOffsets, keys: tuple[str, ...]
) -> list[tuple[OffsetKey, OffsetEntry]]:
    """Return the entries of these keys, or all entries if no key is given."""
    from headerware.sources.engine.decision import offset_key  # noqa: PLC0415 - as above

    if not keys:
        return store.items()
    serde, found = loaded.source.keys, []
    for text in keys:
        key = offset_key(loaded, text if serde is None else serde.from_text(text))
        entry = store.get(key)
        if entry is None:
            raise SourceError(f"source {loaded.name!r} has no offset of object {text!r}")
        found.append((key, entry))
    return found


def _entry(entry: OffsetEntry) -> dict[str, Any]:
    return {
        "record_number": entry.record_number,
        "complete": entry.complete,
        "version": entry.version,
        "properties": {
            name: value.hex() if isinstance(value, bytes) else value
            for name, value in entry.properties.items()
        },
    }


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the garbage collector look at all objects less often.

    Tens of thousands of records are alive at a time, and none is part of a cycle. Looking at all of them
    after each 700 new objects would take a fifth of the time.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _status(runners: list[SourceRunner]) -> Iterator[None]:
    """Show the counts of the tasks on standard error: live on a terminal, else a line every 30 seconds.

    Without a terminal, the first line says at once what the source does.
    """
    console = Console(stderr=True)
    done = Event()
    if not console.is_terminal:
        for runner in runners:
            click.echo(_work(runner), err=True)
    with (
        Live(console=console, transient=True, auto_refresh=False)
        if console.is_terminal
        else nullcontext() as live
    ):

        def refresh() -> None:
            looked_at = [(runner, _Rates(runner)) for runner in runners]
            while not done.wait(_LINE_S if live is None else _REFRESH_S):
                if live is None:
                    for each in looked_at:
                        click.echo(_summary(*each), err=True)
                else:
                    live.update(
                        Group(*(_table(*each, named=len(runners) > 1) for each in looked_at)), refresh=True
                    )

        thread = Thread(target=refresh, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


class _Rates:
    """The records a second that each task has read since the last look."""

    def __init__(self, runner: SourceRunner) -> None:
        self._runner: Final = runner
        self._before: dict[int, int] = {}
        self._at = time.monotonic()

    def look(self) -> dict[int, float]:
        """Return the rates by the number of the task."""
        now = time.monotonic()
        counts = {number: found.records for number, found in self._runner.statistics.items()}
        passed_s, self._at, before = max(now - self._at, 0.001), now, self._before
        self._before = counts
        return {number: (count - before.get(number, 0)) / passed_s for number, count in counts.items()}


def _table(runner: SourceRunner, rates: _Rates, *, named: bool) -> Table:
    found, progress = rates.look(), runner.progress
    name = printable(runner.config.name)
    title = f"{name}: stopping; a second signal ends it at once" if runner.is_stopping else name
    table = Table(
        *(Column(name, justify="right", no_wrap=True) for name in ("task", *_SHOWN, *_FLOW)),
        Column("reads", no_wrap=True),
        "",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        title=title if named or runner.is_stopping else None,
        title_justify="left",
    )
    for number, counts in sorted(runner.statistics.items()):
        reads = progress.get(number)
        table.add_row(
            str(number),
            *(f"{getattr(counts, name):,}" for name in _SHOWN.values()),
            f"{found.get(number, 0.0):,.0f}",
            f"{counts.in_flight:,}",
            "" if reads is None else Text(printable(reads.key), overflow="ellipsis"),
            "" if reads is None or not 0 < reads.position <= reads.length else _bar(reads),
        )
    return table


def _bar(reads: ObjectProgress) -> ProgressBar:
    return ProgressBar(total=reads.length, completed=reads.position, width=_BAR_WIDTH)


def _work(runner: SourceRunner) -> str:
    """Return a line about what a source does."""
    config = runner.config
    given, topic, how = config.source.type, printable(config.topic), config.delivery.replace("_", " ")
    return f"{config.name}: reads {given}, sends to topic {topic}, {how}"


def _summary(runner: SourceRunner, rates: _Rates | None = None) -> str:
    """Return the counts of all tasks in one line."""
    counts = list(runner.statistics.values())

    def total(name: str) -> int:
        return sum(getattr(each, name) for each in counts)

    going = ""
    if rates is not None:
        in_flight = total("in_flight")
        going = f"; {sum(rates.look().values()):,.0f} records/s, {in_flight:,} in flight"
    return (
        f"{runner.config.name}: {counted(total('acknowledged'), 'record')} of "
        f"{counted(total('objects'), 'object')}, {total('complete'):,} complete; "
        f"{counted(total('bad_records'), 'bad record')}, {counted(total('failed'), 'object')} failed{going}"
    )
