"""What the commands of ``headerware registry`` share: their options, how they read, and how they answer."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from rich.console import Console

from headerware.core.errors import RegistryError
from headerware.core.header_ids import HeaderId, parse_id
from headerware.registry.stores import Store, open_store
from headerware.registry.stores.store import require_sound
from headerware.registry.stores.toml import read_registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

    from headerware.registry import Registry
    from headerware.registry.stores.topic import TopicStore

STDIN: Final = "-"
"""A location, to read only: TOML that another program gives, such as ``git show``."""
LOCATION: Final[dict[str, Any]] = {"envvar": "HEADERWARE_REGISTRY", "default": "registry.toml"}
"""Where a registry is that nobody names."""
TOPIC: Final = "kafka://"
"""How the location of a topic begins."""

_STDIN_NAME: Final = "standard input"
_MAX_LINES: Final = 3
_PIPE_COLUMNS: Final = 10_000
_SIZE: Final = re.compile(r"/?([1-9]|[12][0-9]|3[0-2])")
_Command = TypeVar("_Command", bound="Callable[..., Any]")


class RegistryGroup(click.Group):
    """Show a refusal as one line, however many rules speak against something."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what the registry refuses becomes click's kind of error."""
        try:
            return super().invoke(ctx)
        except RegistryError as error:
            raise click.ClickException(_one_line(str(error))) from error


def network(text: str) -> IPv4Network:
    """Read a block's network, in the one form in which it is written everywhere."""
    try:
        found = IPv4Network(text)
    except ValueError as error:
        raise click.BadParameter(f"expected a block such as 0.1.0.0/16: {error}") from None
    if str(found) != text:
        raise click.BadParameter(f"expected a block such as 0.1.0.0/16, found {text!r}")
    return found


def dotted_id(text: str) -> HeaderId:
    """Read a header id in its dotted form."""
    header_id = parse_id(text)
    if header_id is None:
        raise click.BadParameter(f"expected an id such as 0.1.0.7, found {text!r}")
    return header_id


def size(text: str) -> int:
    """Read a block's size, as the length of its prefix."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"expected a size such as /24, which is 256 ids, found {text!r}")
    return int(found[1])


DAY: Final = click.DateTime(formats=["%Y-%m-%d"])

registry_option: Final = click.option(
    "--registry",
    "location",
    metavar="LOCATION",
    show_default=True,
    show_envvar=True,
    help="PATH.toml, PATH.db, sqlite:PATH, kafka://HOST:PORT/TOPIC, built-in; to read, also - for TOML.",
    **LOCATION,
)
json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def on_a_registry(command: _Command) -> _Command:
    """Return a command the options ``--registry`` and ``--json``."""
    return registry_option(json_option(command))


def day(given: datetime | None) -> str:
    """Return a day as a registry writes it; today, in UTC, where none was given."""
    return (given or datetime.now(UTC)).date().isoformat()


def load(location: str) -> Registry:
    """Read a registry; one that was read from a snapshot, for its brokers are away, is told of as such.

    Raises:
        RegistryError: it is out of reach, or has problems.
    """
    if location == STDIN:
        reading = read_registry(*read_toml(location))
        require_sound(reading.problems)
        return reading.registry
    with open_location(location) as store:
        registry = store.load()
        warn_of_age(store, location)
    return registry


def read_toml(location: str) -> tuple[str, str]:
    """Return the text of a registry's TOML, and what it is called in messages.

    Args:
        location: a path, or ``-`` for standard input.

    Raises:
        RegistryError: it cannot be read, is empty, or is no text.
    """
    source = _STDIN_NAME if location == STDIN else location
    try:
        with click.open_file(location, "rb") as file:
            text = file.read().decode()
    except OSError as error:
        raise RegistryError(f"{source}: {error.strerror or type(error).__name__}") from error
    except UnicodeDecodeError as error:
        raise RegistryError(f"{source}: expected UTF-8, as TOML is; byte {error.start} is none") from None
    if not text.strip():
        raise RegistryError(f"{source}: expected a registry's TOML, found nothing")
    return text, source


def open_location(location: str) -> Store:
    """Open the store at a location.

    Raises:
        RegistryError: there is no such form of location, or nothing there.
    """
    return open_topic(location, create=False) if location.startswith(TOPIC) else open_store(location)


def open_topic(location: str, *, create: bool) -> TopicStore:
    """Open a topic's store, whose clients log nothing: what goes wrong is told once.

    Raises:
        RegistryError: the location is of another form.
    """
    from headerware.registry.stores.topic import TopicStore, read_location  # noqa: PLC0415 - loaded for topics only

    conf, topic, snapshot = read_location(location)
    return TopicStore({"log_level": 0, **conf}, topic, snapshot=snapshot, create=create)


def as_topic(store: Store, location: str) -> TopicStore | None:
    """Return a store as a topic's, which knows more; None for any other."""
    return cast("TopicStore", store) if location.startswith(TOPIC) else None


def warn_of_age(store: Store, location: str) -> None:
    """Say on standard error that a topic's registry may have changed unseen."""
    topic = as_topic(store, location)
    if topic is not None and topic.stale is not None:
        read_at = f"{topic.stale:%Y-%m-%d %H:%M:%S} UTC"
        click.echo(f"Warning: the brokers are out of reach; this was read at {read_at}", err=True)


def show_table(table: Table) -> None:
    """Print a table; for another program neither cut to a terminal's width nor filled up with spaces."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(table)
        return
    console.width = _PIPE_COLUMNS
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        click.echo(line.rstrip())


def _one_line(text: str) -> str:
    lines = text.splitlines()
    shown = "; ".join(lines[:_MAX_LINES])
    more = len(lines) - _MAX_LINES
    return f"{shown}; and {more} more, which `headerware registry check` tells" if more > 0 else shown
