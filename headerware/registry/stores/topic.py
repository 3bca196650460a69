"""A registry in a compacted Kafka topic, which many services follow live (spec/registry-topic.md).

Each record is a change, in JSON in UTF-8:

    {"version": 1, "change": "found",    "registrar": ...}
    {"version": 1, "change": "allocate", "block": {...}, "by": ...}
    {"version": 1, "change": "register", "entry": {...}, "by": ...}
    {"version": 1, "change": "retire",   "id": ..., "retired": ..., "by": ...}

A topic cannot be locked: between a writer's read of the registry and its record, another writer's record may
come first. So a record is only a claim. All readers apply the log in the order of offsets, and so all come to
the same result: a change counts if the rules admit it at its offset. A change that the rules refuse by then
(the id, the name or the block is taken, or the block is another owner's) changes nothing. It is kept as a
conflict. Its writer reads it back before reporting success, and so learns that it lost.

Compaction keeps the last record of each key. If writers contended for one key, the last record would be the
loser's. So each change has a key of its own, 16 random bytes, and compaction removes nothing. This costs
nothing: a registry never removes an entry, it only retires it.

A record is damaged if it has no value, no proper key or a key that was used before, or if its value is not a
change. It is reported, and all other records count as if it were not there.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlsplit

import msgspec

from headerware.core.errors import HeaderwareError, RegistryError, WireFormatError
from headerware.core.files import read_text
from headerware.core.plain_files import why_unreadable
from headerware.core.topics import is_topic_name
from headerware.registry.differences import changes, diff
from headerware.registry.registry import Draft, Registry, built_in, with_built_in
from headerware.registry.stores.store import Store
from headerware.registry.values import Change, change_from_plain, to_plain
from headerware.topic_table.rows import Rows
from headerware.topic_table.table import TIMEOUT_S, TopicTable
from headerware.topic_table.topic import UnreachableError

if TYPE_CHECKING:
    from headerware.registry.registry import Registry
    from headerware.topic_table.rows import TableRecord

VERSION: Final = 1
MAX_CHANGE_BYTES: Final = 65_536
"""The largest value that is read; a change has some hundred bytes."""
_KEY_BYTES: Final = 16
_BATCH: Final = 500
"""How many changes are written together, if many are known."""

_log = logging.getLogger("headerware.registry")
_FORM: Final = "kafka://HOST:PORT[,HOST:PORT]/TOPIC"
_SECRET: Final = re.compile(
    r"password|passphrase|secret|\.pem$|token(?!\.endpoint)|jaas|oauthbearer\.config", re.IGNORECASE
)


class Found(msgspec.Struct, frozen=True, tag_field="change", tag="found", forbid_unknown_fields=True):
    """Begin a registry with another registrar than the default one; it must be the first change."""

    registrar: str


class Conflict(msgspec.Struct, frozen=True):
    """A record that changed nothing; a damaged record has no change."""

    offset: int
    change: Change | Found | None
    reason: str

    def __str__(self) -> str:
        """Describe it in one line."""
        what = "damage" if self.change is None else type(self.change).__name__.lower()
        return f"offset {self.offset}: {what}: {self.reason}"


class TopicLocation(NamedTuple):
    conf: dict[str, Any]
    topic: str
    snapshot: Path | None


class TopicStore(Store):
    """A registry in a topic.

    While the brokers are out of reach, it returns the registry as it was last read, by this process or by one
    that left a snapshot, and refuses changes. Safe for use by several threads; a forked child opens its own.

    Args:
        conf: librdkafka's properties, ``bootstrap.servers`` among them.
        topic: the topic, which has one partition.
        snapshot: the file for the changes as they were last read, or None for none.
        create: whether to create the topic if it does not exist.
        replication_factor: of a created topic; -1 leaves it to the brokers.
        timeout_s: how long `load` and `apply` wait for the brokers, in seconds.

    Raises:
        RegistryError: librdkafka refuses the configuration.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topic: str,
        *,
        snapshot: str | os.PathLike[str] | None = None,
        create: bool = False,
        replication_factor: int = -1,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._table = TopicTable(
            conf,
            topic,
            rows=Ledger,
            snapshot=snapshot,
            create=create,
            replication_factor=replication_factor,
        )
        self._topic = topic
        self._timeout_s = timeout_s

    @classmethod
    def from_location(cls, location: str) -> TopicStore:
        """Open the store at ``kafka://HOST:PORT[,HOST:PORT]/TOPIC``.

        Args:
            location: the location, with the options of :func:`read_location`. Without the option
                ``snapshot``, the snapshot is a file in the user's cache.

        Raises:
            RegistryError: the location has another form, or its file of properties cannot be read.
        """
        return _opened(cls, read_location(location), create=False)

    @classmethod
    def create(cls, location: str, registry: Registry) -> TopicStore:
        """Write a registry to a topic, which is created if it does not exist.

        A topic that already has changes gets the changes that it lacks.
        """
        store = _opened(cls, read_location(location), create=True)
        try:
            store.fill(registry)
        except BaseException:
            store.close()
            raise
        return store

    def fill(self, registry: Registry) -> None:
        """Write the changes that lead from the current registry to another one, many at once.

        Raises:
            UnreachableError: the brokers are out of reach; some of the changes may have been written.
            RegistryError: the topic has something different; or another writer was first with one of the
                changes, and others may have been written.
        """
        present = self._present()
        with self._table.rows() as ledger:
            is_new = ledger.is_new
        if is_new and present.registrar != registry.registrar:
            self._write(Found(registry.registrar))
            present = self._registry()
        wrong = [d for d in diff(present, registry) if d.kind in ("forbidden", "handed-over")]
        if wrong:
            raise RegistryError("\n".join(map(str, wrong)))
        draft = Draft(present)
        wanted = iter(changes(present, registry))
        while batch := list(islice(wanted, _BATCH)):
            for change in batch:
                draft.apply(change)  # a refused change would stay in the topic for ever
            self._write(*batch)

    def load(self) -> Registry:
        """Read the topic to its end, and return the registry; offline, return it as it was last read."""
        self._table.refresh(self._timeout_s)
        return self._registry()

    def apply(self, change: Change) -> Registry:
        """Write a change, read it back, and return the registry after it.

        Raises:
            UnreachableError: the brokers are out of reach; the change may have been written.
            RegistryError: the change is refused; another writer may have been first.
        """
        self._refresh()
        self._claim(change)
        return self._registry()

    def follow(self, on_change: Callable[[Registry], object]) -> None:
        """Follow the topic in the background until `close`.

        Args:
            on_change: called with each new registry, from a thread of the store, such as
                :func:`headerware.registry.use_registry`. Its exceptions are logged.
        """
        with self._table.rows() as ledger:  # no change may come between this read and the first call
            self._table.on_change(_RegistryListener(self._table, ledger.registry, on_change))
        self._table.follow()

    @property
    def conflicts(self) -> list[Conflict]:
        """The records that changed nothing, in the order of the topic, as far as it was read."""
        with self._table.rows() as ledger:
            return list(ledger.conflicts)

    @property
    def stale(self) -> datetime | None:
        """The time since which the registry may have changed unseen, or None if the brokers answered last."""
        return self._table.stale

    def close(self) -> None:
        """Stop following, disconnect and save the snapshot; a second call does nothing."""
        self._table.close()

    def _present(self) -> Registry:
        self._refresh()
        return self._registry()

    def _registry(self) -> Registry:
        with self._table.rows() as ledger:
            return ledger.registry

    def _refresh(self) -> None:
        if not self._table.refresh(self._timeout_s):
            raise UnreachableError(
                f"the registry in topic {self._topic!r} does not change while its brokers are out of reach "
                f"(it was last read at {self.stale:%Y-%m-%d %H:%M:%S} UTC)"
            )

    def _claim(self, change: Change) -> None:
        """Write a change, unless the rules refuse it: a refused change would stay in the topic for ever."""
        with self._table.rows() as ledger:
            ledger.require(change)
        self._write(change)

    def _write(self, *written: Change | Found) -> None:
        """Write changes and read them back; each is judged at its own offset, after all records before it."""
        rows = [(secrets.token_bytes(_KEY_BYTES), encode_change(change)) for change in written]
        self._table.put_many(rows, self._timeout_s)
        with self._table.rows() as ledger:
            refused = [refusal for key, _ in rows if (refusal := ledger.refusal(key)) is not None]
        if refused:
            more = f"; and {len(refused) - 1} more of {len(rows)} changes" if len(refused) > 1 else ""
            raise RegistryError(f"another writer was first: {refused[0]}{more}")


class _RegistryListener:
    """Call a function when the registry has changed; a refused change is a new row, too."""

    def __init__(
        self, table: TopicTable[Ledger], seen: Registry, on_change: Callable[[Registry], object]
    ) -> None:
        self._table = table
        self._on_change = on_change
        self._seen = seen
        self._lock = Lock()

    def __call__(self, _key: bytes, _value: bytes | None) -> None:
        with self._lock:
            with self._table.rows() as ledger:
                registry = ledger.registry
            if registry is self._seen:
                return
            self._seen = registry
        self._on_change(registry)


def _opened(cls: type[TopicStore], location: TopicLocation, *, create: bool) -> TopicStore:
    return cls(location.conf, location.topic, snapshot=location.snapshot, create=create)


class Ledger(Rows):
    """Build a registry from the records of a topic; equal logs make equal ledgers.

    Each row is a change, and the first record of a key counts.
    """

    def __init__(self) -> None:
        super().__init__()
        self._draft = Draft(built_in())
        self.conflicts: list[Conflict] = []
        """The records that changed nothing, in the order of the topic."""
        self.is_new: bool = True
        """Whether no change has counted yet."""
        self._refusals: dict[bytes, str] = {}

    def apply(self, record: TableRecord) -> bool:
        """Apply the next record; a broken record does not stop the records after it."""
        damage = self._damage(record)
        if damage is not None or record.key is None or record.value is None:
            self._note(record, None, damage or "")
            return False
        self._records[record.key] = record
        try:
            change = decode_change(record.value)
        except WireFormatError as error:
            self._refuse(record, record.key, None, str(error))
        else:
            self._apply_change(record, record.key, change)
        return True

    @property
    def registry(self) -> Registry:
        """The registry after the changes so far; the same object as before unless it has changed."""
        return self._draft.registry()

    def require(self, change: Change) -> None:
        """Raise RegistryError if the rules refuse a change now."""
        self._draft.require(change)

    def refusal(self, key: bytes) -> str | None:
        """Return why the change under a key was refused, or None if it was not."""
        return self._refusals.get(key)

    def _damage(self, record: TableRecord) -> str | None:
        if record.key is None or len(record.key) != _KEY_BYTES:
            return f"its key is not {_KEY_BYTES} bytes long"
        if record.value is None:
            return "it is a tombstone, and changes are never taken back"
        if record.key in self._records:
            return f"its key was used at offset {self._records[record.key].offset}, and a key is used once"
        return None

    def _apply_change(self, record: TableRecord, key: bytes, change: Change | Found) -> None:
        try:
            if isinstance(change, Found):
                self._draft = self._found(change)
            else:
                self._draft.apply(change)
        except HeaderwareError as error:
            self._refuse(record, key, change, str(error))
        except Exception as error:  # noqa: BLE001 - one bad record must not stop the others
            self._refuse(record, key, change, f"it cannot be applied ({type(error).__name__})")
        else:
            self.is_new = False

    def _found(self, change: Found) -> Draft:
        if not self.is_new:
            raise RegistryError("a registry is founded once, before all other changes")
        return Draft(with_built_in(registrar=change.registrar))

    def _refuse(self, record: TableRecord, key: bytes, change: Change | Found | None, reason: str) -> None:
        self._refusals[key] = reason
        self._note(record, change, reason)

    def _note(self, record: TableRecord, change: Change | Found | None, reason: str) -> None:
        conflict = Conflict(record.offset, change, reason)
        self.conflicts.append(conflict)
        _log.debug("%s", conflict)


def encode_change(change: Change | Found) -> bytes:
    return msgspec.json.encode({"version": VERSION, **_plain(change)})


def decode_change(value: bytes) -> Change | Found:
    """Read a change; if a member occurs twice, the last one counts."""
    if len(value) > MAX_CHANGE_BYTES:
        raise WireFormatError(f"the value has {len(value)} bytes, a change at most {MAX_CHANGE_BYTES}")
    plain = _object(value)
    version = plain.pop("version", None)
    if type(version) is not int or version != VERSION:
        raise WireFormatError(f"the change is not of version {VERSION}")
    try:
        change = msgspec.convert(plain, Found) if plain.get("change") == "found" else change_from_plain(plain)
    except (RegistryError, msgspec.ValidationError, ValueError) as error:
        raise WireFormatError(f"the value is not a change: {error}") from error
    if _plain(change) != plain:
        # Readers in other languages see only the members, and all must come to the same registry.
        raise WireFormatError("a member is false or null; expected it to be left out")
    return change


def _plain(change: Change | Found) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(change) if isinstance(change, Found) else to_plain(change)
    return plain


def _object(value: bytes) -> dict[str, object]:
    try:
        return msgspec.json.decode(value, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        # The parser's message may quote the value.
        raise WireFormatError("the value is not a JSON object") from error


def read_location(location: str) -> TopicLocation:
    """Read a location: ``kafka://HOST:PORT[,HOST:PORT]/TOPIC[?OPTION=VALUE&...]``.

    Options are ``snapshot`` (a file, or empty for none), ``config`` (a file of client properties, one
    ``name=value`` on each line) and client properties themselves, such as ``security.protocol=ssl``. Secrets
    belong in the file, because process lists and logs show locations.
    """
    scheme, servers, path, query, fragment = _parts(location)
    topic = path.removeprefix("/")
    if "@" in servers:
        raise RegistryError(
            "a registry's location must not have a user and a password: name a file with ?config=FILE"
        )
    if scheme != "kafka" or not servers or not is_topic_name(topic):
        raise RegistryError(f"expected a registry's location {_FORM}, found {location.partition('?')[0]!r}")
    if fragment:
        raise RegistryError(f"a registry's location {_FORM} ends before a '#', which is %23 in an option")
    options = dict(parse_qsl(query, keep_blank_values=True))
    snapshot = options.pop("snapshot", None)
    properties = _properties(options.pop("config", None))
    return TopicLocation(
        {**properties, **_checked(options), "bootstrap.servers": servers},
        topic,
        _default_snapshot(servers, topic) if snapshot is None else Path(snapshot) if snapshot else None,
    )


def _parts(location: str) -> SplitResult:
    try:
        return urlsplit(location)
    except ValueError:  # brackets and characters that no host has; its text may quote a password
        raise RegistryError(f"expected a registry's location {_FORM}; its HOST:PORT cannot be read") from None


def _checked(options: dict[str, str]) -> dict[str, str]:
    for name in options:
        if _SECRET.search(name):
            raise RegistryError(f"{name} is secret, and is not allowed in a location: use ?config=FILE")
        if "." not in name:
            raise RegistryError(
                f"{name!r} is no option of a registry's location; known: snapshot, config, and properties of "
                "Kafka clients such as security.protocol"
            )
    return options


def _properties(path: str | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        lines = read_text(Path(path)).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RegistryError(
            f"the client properties in {path} cannot be read: {why_unreadable(path, error)}"
        ) from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        name, separator, value = line.partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not separator:
            raise RegistryError(f"{path}, line {number}: expected name=value")
        found[name.strip()] = value.strip()
    return found


def _default_snapshot(servers: str, topic: str) -> Path:
    """Return the path of a file in the user's cache, named after topic and cluster."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cluster = hashlib.sha256(",".join(sorted(servers.split(","))).encode()).hexdigest()[:16]
    return Path(cache) / "headerware" / "registry" / f"{topic}-{cluster}.snapshot"
