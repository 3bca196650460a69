"""A registry of header ids: its contents, its rules, and how changes are applied.

The rules are tables. :func:`problems` checks a complete registry by the tables for blocks and for entries.
:func:`refusals` checks a change by the table for its kind, and by the same two tables.
"""

from __future__ import annotations

import tomllib
from bisect import bisect_left, insort
from collections.abc import Callable
from datetime import date
from functools import cache
from importlib.resources import files
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from headerware.core.errors import RegistryError
from headerware.registry.header_names import (
    MAX_DESCRIPTION_CHARACTERS,
    MAX_OWNER_CHARACTERS,
    line_problem,
    look,
    name_problem,
    printable,
)
from headerware.registry.values import (
    NO_ID,
    OWN_NETWORK,
    PRIVATE_NETWORK,
    Allocate,
    Block,
    Change,
    Encoding,
    Entry,
    Register,
    Retire,
    from_plain,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


REGISTRAR: Final = "registrar"
"""The default name of the owner who allocates the blocks that lie in no other block."""

_BlockKey = tuple[int, int]
_ENCODINGS: Final = frozenset(get_args(Encoding))
_OWN_PREFIX: Final = look("hw.")
_Subject = TypeVar("_Subject")
_Rules = tuple[tuple[str, Callable[[_Subject, "_Tables"], str | None]], ...]


class Problem(msgspec.Struct, frozen=True):
    """A rule that a registry or a change breaks.

    Args:
        about: the id, the block or the setting, as it is written.
        rule: a word for the rule that is broken.
        message: what is wrong, and what would be right.
        where: the file and line, if the registry was read from a file.
    """

    about: str
    rule: str
    message: str
    where: str = ""

    def __str__(self) -> str:
        """Describe it in one line."""
        where = f"{self.where}: " if self.where else ""
        return f"{where}{self.about}: {self.message}"


class _Tables:
    """The blocks and entries of a registry, with their indexes, and the look-ups that its rules need.

    If several blocks or entries have the same number, look-ups find the first.
    """

    __slots__ = ("_blocks", "_entries", "_ids", "_looks", "_networks", "_prefixes", "_registrar")

    _registrar: str
    _entries: list[Entry]
    _ids: dict[int, Entry]
    _looks: dict[str, Entry]
    _blocks: list[Block]
    _networks: dict[_BlockKey, Block]
    _prefixes: list[int]

    @property
    def registrar(self) -> str:
        """The owner who allocates the blocks that lie in no other block."""
        return self._registrar

    def by_id(self, header_id: int) -> Entry | None:
        """Return the entry of an id, retired or not; None for an id that is not registered."""
        return self._ids.get(header_id)

    def by_name(self, name: str) -> Entry | None:
        """Return the entry of a name, retired or not; names are exact."""
        entry = self.named_like(name)
        return entry if entry is not None and entry.name == name else None

    def named_like(self, name: str) -> Entry | None:
        """Return the entry whose name differs by case or Unicode form at most."""
        return self._looks.get(look(name))

    def block(self, network: IPv4Network) -> Block | None:
        """Return the block that is exactly this network."""
        return self._networks.get(_block_key(network))

    def block_of(self, header_id: int) -> Block | None:
        """Return the most specific block around an id, whose owner decides about the id."""
        return self._nearest(int(header_id), 32)

    def around(self, network: IPv4Network) -> Block | None:
        """Return the nearest block around a network, other than itself."""
        return self._nearest(int(network.network_address), network.prefixlen - 1)

    def blocks_in(self, network: IPv4Network) -> tuple[Block, ...]:
        """Return the blocks that lie inside a network, without itself."""
        first = int(network.network_address)
        start = bisect_left(self._blocks, (first, network.prefixlen + 1), key=_block_order)
        end = bisect_left(self._blocks, (first + network.num_addresses, 0), key=_block_order)
        return tuple(self._blocks[start:end])

    def entries_in(self, network: IPv4Network) -> tuple[Entry, ...]:
        """Return the entries whose ids lie in a network."""
        first = int(network.network_address)
        start = bisect_left(self._entries, first, key=_entry_order)
        end = bisect_left(self._entries, first + network.num_addresses, key=_entry_order)
        return tuple(self._entries[start:end])

    def _nearest(self, address: int, longest: int) -> Block | None:
        for prefix in self._prefixes:
            if prefix <= longest:
                block = self._networks.get((address >> (32 - prefix), prefix))
                if block is not None:
                    return block
        return None


class Registry(_Tables):
    """Hold blocks and entries, and never change: a change returns another registry.

    A registry that breaks rules can be made, so that it can be examined:
    :func:`headerware.registry.problems` lists the problems. If several blocks or entries have the same
    number, look-ups find the first.

    Args:
        blocks: the blocks, in any order.
        entries: the entries, in any order.
        registrar: the owner who allocates the blocks that lie in no other block.
    """

    __slots__ = ()

    def __init__(
        self, blocks: Iterable[Block] = (), entries: Iterable[Entry] = (), *, registrar: str = REGISTRAR
    ) -> None:
        self._registrar = registrar
        self._entries = sorted(entries, key=_entry_order)
        self._ids = {}
        self._looks = {}
        for entry in self._entries:
            self._ids.setdefault(entry.id, entry)
            held = self._looks.setdefault(look(entry.name), entry)
            if _gives_way(held, entry):
                self._looks[look(entry.name)] = entry
        self._blocks = sorted(blocks, key=_block_order)
        self._networks = {}
        for block in self._blocks:
            self._networks.setdefault(_block_key(block.network), block)
        self._prefixes = _longest_first(prefix for _, prefix in self._networks)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks, by their first id, the largest first."""
        return tuple(self._blocks)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, by their ids; retired ones are among them."""
        return tuple(self._entries)

    def apply(self, change: Change) -> Registry:
        """Return a registry with a change applied; it costs a copy of the indexes.

        Args:
            change: the change and its author.

        Raises:
            RegistryError: a rule refuses the change; the message names the rule and what was there first.
        """
        draft = Draft(self)
        draft.apply(change)
        return draft.registry()

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Registry):
            return NotImplemented
        return self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        return f"<Registry of {self._registrar!r}: {len(self._blocks)} blocks, {len(self._entries)} entries>"

    def _parts(self) -> tuple[Any, ...]:
        return self._registrar, self.blocks, self.entries


class Draft(_Tables):
    """A registry to which many changes are applied, one after another, each at the cost of the change.

    A registry that is taken from a draft shares its indexes; the next change copies the indexes that it
    touches. So a log of n changes costs n changes and one copy, not n copies.

    For one thread at a time.
    """

    __slots__ = ("_made", "_own")

    def __init__(self, registry: Registry) -> None:
        for slot in _Tables.__slots__:
            setattr(self, slot, getattr(registry, slot))
        self._made = registry
        self._own: set[str] = set()

    def apply(self, change: Change) -> None:
        """Apply a change.

        Raises:
            RegistryError: a rule refuses the change, and nothing has changed.
        """
        self.require(change)
        match change:
            case Allocate(block):
                self._add_block(block)
            case Register(entry):
                self._put_entry(entry)
            case Retire(header_id, retired):
                self._put_entry(replace(self._ids[header_id], retired=retired))

    def require(self, change: Change) -> None:
        """Raise RegistryError if a rule refuses a change."""
        against = refusals(change, self)
        if against:
            raise RegistryError("\n".join(map(str, against)))

    def registry(self) -> Registry:
        """Return the registry as it is now; the same object as before unless it has changed."""
        if self._own:
            self._own.clear()
            self._made = Registry.__new__(Registry)
            for slot in _Tables.__slots__:
                setattr(self._made, slot, getattr(self, slot))
        return self._made

    def _add_block(self, block: Block) -> None:
        self._make_own("_blocks", "_networks", "_prefixes")
        insort(self._blocks, block, key=_block_order)
        self._networks.setdefault(_block_key(block.network), block)
        if block.network.prefixlen not in self._prefixes:
            self._prefixes = _longest_first((*self._prefixes, block.network.prefixlen))

    def _put_entry(self, entry: Entry) -> None:
        self._make_own("_entries", "_ids", "_looks")
        at = bisect_left(self._entries, int(entry.id), key=_entry_order)
        self._entries[at : at + (entry.id in self._ids)] = [entry]
        self._ids[entry.id] = entry
        self._looks[look(entry.name)] = entry

    def _make_own(self, *slots: str) -> None:
        """Copy indexes that a registry shares."""
        for slot in slots:
            if slot not in self._own:
                setattr(self, slot, getattr(self, slot).copy())
                self._own.add(slot)


def _longest_first(prefixes: Iterable[int]) -> list[int]:
    return sorted(set(prefixes), reverse=True)


def _entry_order(entry: Entry) -> int:
    return int(entry.id)


def _block_order(block: Block) -> tuple[int, int]:
    return int(block.network.network_address), block.network.prefixlen


def _block_key(network: IPv4Network) -> _BlockKey:
    prefix = network.prefixlen
    return int(network.network_address) >> (32 - prefix), prefix


@cache
def built_in() -> Registry:
    """Return the registry that comes with Headerware: its own headers, and well-known names of others."""
    return with_built_in()


def with_built_in(
    blocks: Iterable[Block] = (), entries: Iterable[Entry] = (), *, registrar: str = REGISTRAR
) -> Registry:
    """Return a registry of an organisation's blocks and entries, and of those that come with Headerware.

    Stores hold only the organisation's, so that a newer Headerware brings its own.

    Args:
        blocks: the organisation's blocks.
        entries: its entries.
        registrar: who allocates its blocks.
    """
    ours = _built_in_tables()
    return Registry((*ours.blocks, *blocks), (*ours.entries, *entries), registrar=registrar)


def without_built_in(registry: Registry) -> Registry:
    """Return a registry without the built-in blocks and entries, as stores hold it."""
    blocks, entries = map(frozenset, _built_in_tables())
    return Registry(
        (block for block in registry.blocks if block not in blocks),
        (entry for entry in registry.entries if entry not in entries),
        registrar=registry.registrar,
    )


class _BuiltInTables(NamedTuple):
    blocks: tuple[Block, ...]
    entries: tuple[Entry, ...]


@cache
def _built_in_tables() -> _BuiltInTables:
    """Read ``built_in.toml``, in the order of the file; the package may be a folder or a zip."""
    tables = tomllib.loads(files("headerware.registry").joinpath("built_in.toml").read_text(encoding="utf-8"))
    blocks = tuple(from_plain(table, Block) for table in tables["block"])
    return _BuiltInTables(blocks, tuple(from_plain(table, Entry) for table in tables["entry"]))


# The rules of a complete registry.


def _gives_way(ours: Entry, entry: Entry) -> bool:
    """Return whether a built-in foreign name gives way to an entry that was registered earlier.

    A newer Headerware may have more built-in names than the one that began a registry, and must not take a
    name away from an entry there.
    """
    return ours.foreign and _is_ours(ours.id) and entry.since < ours.since


def problems(registry: Registry) -> list[Problem]:
    """Check a whole registry, and return all problems."""
    found = line_problem(registry.registrar, MAX_OWNER_CHARACTERS, "the registrar's name")
    return [
        *([Problem("registrar", "owner", found)] if found else []),
        *(
            each
            for block in registry.blocks
            for each in _broken(_BLOCK_RULES, block, registry, block.network)
        ),
        *(each for entry in registry.entries for each in _broken(_ENTRY_RULES, entry, registry, entry.id)),
    ]


def _broken(rules: _Rules[_Subject], subject: _Subject, registry: _Tables, about: object) -> list[Problem]:
    """Return the rules of a table that a subject breaks."""
    checked = ((rule, check(subject, registry)) for rule, check in rules)
    return [Problem(str(about), rule, printable(message)) for rule, message in checked if message is not None]


# Of blocks and entries alike.


def _owner(subject: Block | Entry, _: _Tables) -> str | None:
    return line_problem(subject.owner, MAX_OWNER_CHARACTERS, "an owner's name")


def _description(subject: Block | Entry, _: _Tables) -> str | None:
    return line_problem(subject.description, MAX_DESCRIPTION_CHARACTERS, "a description")


def _since(subject: Block | Entry, _: _Tables) -> str | None:
    return _day_problem(subject.since, "since")


def _day_problem(text: str, field: str) -> str | None:
    try:
        if date.fromisoformat(text).isoformat() == text:  # fromisoformat also takes weeks and compact forms
            return None
    except ValueError:
        pass
    return f"{field} is a day such as 2026-01-31; found {text[:40]!a}"


# Of blocks.


def _block_is_not_ours(block: Block, _: _Tables) -> str | None:
    if not block.network.overlaps(OWN_NETWORK) or block in _built_in_tables().blocks:
        return None
    return f"the block overlaps {OWN_NETWORK}, which is headerware's own and comes with Headerware"


def _block_is_not_private(block: Block, _: _Tables) -> str | None:
    if not block.network.overlaps(PRIVATE_NETWORK):
        return None
    return f"the block overlaps {PRIVATE_NETWORK}, which is private: its ids are used without a registry"


def _block_is_free(block: Block, registry: _Tables) -> str | None:
    other = registry.block(block.network)
    if other is None or other is block:
        return None
    return f"the block is {other.owner}'s since {other.since}"


def _block_is_younger_than_the_one_around_it(block: Block, registry: _Tables) -> str | None:
    around = registry.around(block.network)
    if around is None or around.owner == block.owner or block.since >= around.since:
        return None
    return (
        f"the block is {block.owner}'s since {block.since}, but {around.network} around it is "
        f"{around.owner}'s since {around.since}: a block must not overlap a block of another owner"
    )


_BLOCK_RULES: Final[_Rules[Block]] = (
    ("own", _block_is_not_ours),
    ("private", _block_is_not_private),
    ("owner", _owner),
    ("description", _description),
    ("since", _since),
    ("taken", _block_is_free),
    ("overlap", _block_is_younger_than_the_one_around_it),
)


# Of entries.


def _id_is_one(entry: Entry, _: _Tables) -> str | None:
    return f"{NO_ID} stands for no id, and is never registered" if entry.id == NO_ID else None


def _id_is_not_ours(entry: Entry, _: _Tables) -> str | None:
    if not _is_ours(entry.id) or entry.id == NO_ID or entry == _built_in_ids().get(entry.id):
        return None
    return f"the id lies in {OWN_NETWORK}, whose ids come with Headerware; this is none of them"


def _id_is_not_private(entry: Entry, _: _Tables) -> str | None:
    if not _is_private(entry.id):
        return None
    return f"the id lies in {PRIVATE_NETWORK}, which is private: use it as it is, without registering it"


def _id_is_free(entry: Entry, registry: _Tables) -> str | None:
    other = registry.by_id(entry.id)
    if other is None or other is entry:
        return None
    return f"the id is {other.name!r}, {_whose(other)}; an id is never used for anything else"


def _id_lies_in_a_block_of_its_owner(entry: Entry, registry: _Tables) -> str | None:
    block = registry.block_of(entry.id)
    if block is None and _is_private(entry.id):
        return None  # no block would help
    if block is None:
        return f"the id lies in no block; {registry.registrar!r} allocates them"
    if block.owner != entry.owner:
        return f"the id lies in {block.network}, which is {block.owner}'s, not {entry.owner}'s"
    return None


def _name(entry: Entry, _: _Tables) -> str | None:
    if look(entry.name).startswith(_OWN_PREFIX) and not _is_ours(entry.id):
        return "names that begin with hw. are Headerware's own"
    return name_problem(entry.name)


def _name_is_free(entry: Entry, registry: _Tables) -> str | None:
    if _is_ours(entry.id):
        return None  # the problem is reported for the entry that has taken the name
    for other in (registry.named_like(entry.name), _built_in_looks().get(look(entry.name))):
        if other is None or other is entry or _gives_way(other, entry):
            continue
        if other.name == entry.name:
            return f"the name {entry.name!r} is {other.id}'s, {_whose(other)}; a name is never used again"
        return f"the name {entry.name!r} looks like {other.name!r}, {other.id}, {_whose(other)}"
    return None


def _encoding(entry: Entry, _: _Tables) -> str | None:
    if entry.encoding in _ENCODINGS:
        return None
    return f"an encoding is one of {', '.join(get_args(Encoding))}"


def _retired(entry: Entry, _: _Tables) -> str | None:
    return None if entry.retired is None else _retired_problem(entry.retired, entry)


def _retired_problem(retired: str, entry: Entry) -> str | None:
    """Return why an entry cannot be retired on a day, or None if it can."""
    problem = _day_problem(retired, "retired")
    if problem is None and retired < entry.since:
        return f"retired is {retired}, before its registration on {entry.since}"
    return problem


_ENTRY_RULES: Final[_Rules[Entry]] = (
    ("reserved", _id_is_one),
    ("own", _id_is_not_ours),
    ("private", _id_is_not_private),
    ("name", _name),
    ("owner", _owner),
    ("encoding", _encoding),
    ("description", _description),
    ("since", _since),
    ("retired", _retired),
    ("taken", _id_is_free),
    ("name-taken", _name_is_free),
    ("block", _id_lies_in_a_block_of_its_owner),
)


def _is_ours(header_id: int) -> bool:
    """Return whether an id lies in Headerware's own block."""
    return header_id >> 16 == 0


def _is_private(header_id: int) -> bool:
    return header_id >> 24 == 10


def _whose(entry: Entry) -> str:
    """Describe an entry's owner, registration and retirement."""
    ended = "" if entry.retired is None else f", retired since {entry.retired}"
    return f"{entry.owner}'s since {entry.since}{ended}"


@cache
def _built_in_ids() -> dict[int, Entry]:
    return {entry.id: entry for entry in _built_in_tables().entries}


@cache
def _built_in_looks() -> dict[str, Entry]:
    return {look(entry.name): entry for entry in _built_in_tables().entries}


# The rules of changes. The author of a change is not verified: the store, not the registry, controls who may
# write to it.


def _allocates_its_own(change: Allocate, registry: _Tables) -> str | None:
    around = registry.around(change.block.network)
    if around is None:
        rightful, why = registry.registrar, "the registrar"
    else:
        rightful, why = around.owner, f"the owner of {around.network} around it"
    return None if change.by == rightful else f"{change.by!r} may not allocate it: {rightful!r} may, as {why}"


def _lays_nothing_over_blocks_of_others(change: Allocate, registry: _Tables) -> str | None:
    network = change.block.network
    around = registry.around(network)
    for inner in registry.blocks_in(network):
        if inner.owner != change.block.owner and registry.around(inner.network) is around:
            return f"the block would lie over {inner.network}, which is {inner.owner}'s since {inner.since}"
    return None


def _takes_no_ids_along(change: Allocate, registry: _Tables) -> str | None:
    around = registry.around(change.block.network)
    for entry in registry.entries_in(change.block.network):
        if entry.owner != change.block.owner and registry.block_of(entry.id) is around:
            return f"the block would take {entry.id} along, which is {entry.name!r}, {_whose(entry)}"
    return None


_ALLOCATE_RULES: Final[_Rules[Allocate]] = (
    ("by", _allocates_its_own),
    ("overlap", _lays_nothing_over_blocks_of_others),
    ("takes-along", _takes_no_ids_along),
)


def _registers_its_own(change: Register, _: _Tables) -> str | None:
    entry = change.entry
    if _is_ours(entry.id):
        return f"ids in {OWN_NETWORK} come with Headerware"
    if change.by != entry.owner:
        return f"{change.by!r} may not register it for {entry.owner!r}: owners register their ids themselves"
    return None


def _is_in_use(change: Register, _: _Tables) -> str | None:
    return None if change.entry.retired is None else "an id is registered first and retired later"


_REGISTER_RULES: Final[_Rules[Register]] = (("by", _registers_its_own), ("retired", _is_in_use))


def _retires_its_own(change: Retire, registry: _Tables) -> str | None:
    entry = registry.by_id(change.id)
    if entry is None:
        return "the id is not registered, and so cannot be retired"
    if _is_ours(entry.id):
        return f"ids in {OWN_NETWORK} come with Headerware, and are retired by it"
    return None if change.by == entry.owner else f"{change.by!r} may not retire it: {entry.owner!r} may"


def _retires_once(change: Retire, registry: _Tables) -> str | None:
    entry = registry.by_id(change.id)
    if entry is None:
        return None
    if entry.retired is not None:
        return f"the id is retired since {entry.retired}, for good"
    return _retired_problem(change.retired, entry)


_RETIRE_RULES: Final[_Rules[Retire]] = (("by", _retires_its_own), ("retired", _retires_once))


def refusals(change: Change, registry: _Tables) -> list[Problem]:
    """Check a change against the registry that it is meant for, and return all problems."""
    match change:
        case Allocate():
            rules = _broken(_ALLOCATE_RULES, change, registry, change.block.network)
            return [*rules, *_broken(_BLOCK_RULES, change.block, registry, change.block.network)]
        case Register():
            rules = _broken(_REGISTER_RULES, change, registry, change.entry.id)
            return [*rules, *_broken(_ENTRY_RULES, change.entry, registry, change.entry.id)]
        case Retire():
            return _broken(_RETIRE_RULES, change, registry, change.id)
