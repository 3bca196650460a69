"""What a registry refuses in itself, and why: a table of rules for blocks, and one for entries.

A whole registry is checked by :func:`problems`; a change goes by the same tables, and by those of
:mod:`headerware.registry.change_rules` besides.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar, get_args

import msgspec

from headerware.registry.built_in_tables import built_in_tables
from headerware.registry.entries import NO_ID, OWN_NETWORK, PRIVATE_NETWORK, Block, Encoding, Entry
from headerware.registry.header_names import (
    MAX_DESCRIPTION_CHARACTERS,
    MAX_OWNER_CHARACTERS,
    line_problem,
    look,
    name_problem,
    printable,
)

if TYPE_CHECKING:
    from headerware.registry.registry import Registry

_ENCODINGS: Final = frozenset(get_args(Encoding))
_OWN_PREFIX: Final = look("hw.")


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong with a registry or a change.

    Args:
        about: the id, the block, or the setting that it is about, as it is written.
        rule: the rule that is broken, in a word.
        message: what is wrong, and what would be right.
        where: the file and line, for what was read from a file.
    """

    about: str
    rule: str
    message: str
    where: str = ""

    def __str__(self) -> str:
        """Say it in one line."""
        where = f"{self.where}: " if self.where else ""
        return f"{where}{self.about}: {self.message}"


def gives_way(ours: Entry, entry: Entry) -> bool:
    """Return whether a name of others that came with Headerware is left to an entry that had it first.

    A newer Headerware may know more names than the one with which a registry was begun, and must not take
    a name away there.
    """
    return ours.foreign and is_ours(ours.id) and entry.since < ours.since


_Subject = TypeVar("_Subject")
Rules = tuple[tuple[str, Callable[[_Subject, "Registry"], str | None]], ...]


def problems(registry: Registry) -> list[Problem]:
    """Check a whole registry, and give all that is wrong with it."""
    found = line_problem(registry.registrar, MAX_OWNER_CHARACTERS, "the registrar's name")
    return [
        *([Problem("registrar", "owner", found)] if found else []),
        *(each for block in registry.blocks for each in broken(BLOCK_RULES, block, registry, block.network)),
        *(each for entry in registry.entries for each in broken(ENTRY_RULES, entry, registry, entry.id)),
    ]


def broken(rules: Rules[_Subject], subject: _Subject, registry: Registry, about: object) -> list[Problem]:
    """Return the rules of a table that a subject breaks."""
    checked = ((rule, check(subject, registry)) for rule, check in rules)
    return [Problem(str(about), rule, printable(message)) for rule, message in checked if message is not None]


# Of blocks and entries alike.


def _owner(subject: Block | Entry, _: Registry) -> str | None:
    return line_problem(subject.owner, MAX_OWNER_CHARACTERS, "an owner's name")


def _description(subject: Block | Entry, _: Registry) -> str | None:
    return line_problem(subject.description, MAX_DESCRIPTION_CHARACTERS, "a description")


def _since(subject: Block | Entry, _: Registry) -> str | None:
    return _day_problem(subject.since, "since")


def _day_problem(text: str, field: str) -> str | None:
    try:
        if date.fromisoformat(text).isoformat() == text:  # it takes weeks and compact forms, too
            return None
    except ValueError:
        pass
    return f"{field} is a day such as 2026-01-31; found {text[:40]!a}"


# Of blocks.


def _block_is_not_ours(block: Block, _: Registry) -> str | None:
    if not block.network.overlaps(OWN_NETWORK) or block in built_in_tables().blocks:
        return None
    return f"the block overlaps {OWN_NETWORK}, which is headerware's own and comes with Headerware"


def _block_is_not_private(block: Block, _: Registry) -> str | None:
    if not block.network.overlaps(PRIVATE_NETWORK):
        return None
    return f"the block overlaps {PRIVATE_NETWORK}, which is private: its ids are used without a registry"


def _block_is_free(block: Block, registry: Registry) -> str | None:
    other = registry.block(block.network)
    if other is None or other is block:
        return None
    return f"the block is {other.owner}'s since {other.since}"


def _block_is_younger_than_what_is_around_it(block: Block, registry: Registry) -> str | None:
    around = registry.around(block.network)
    if around is None or around.owner == block.owner or block.since >= around.since:
        return None
    return (
        f"the block is {block.owner}'s since {block.since}, but {around.network} around it is "
        f"{around.owner}'s since {around.since}: a block is not laid over one of another owner"
    )


BLOCK_RULES: Final[Rules[Block]] = (
    ("own", _block_is_not_ours),
    ("private", _block_is_not_private),
    ("owner", _owner),
    ("description", _description),
    ("since", _since),
    ("taken", _block_is_free),
    ("overlap", _block_is_younger_than_what_is_around_it),
)


# Of entries.


def _id_is_one(entry: Entry, _: Registry) -> str | None:
    return f"{NO_ID} stands for no id, and is never registered" if entry.id == NO_ID else None


def _id_is_not_ours(entry: Entry, _: Registry) -> str | None:
    if not is_ours(entry.id) or entry.id == NO_ID or entry == _built_in_ids().get(entry.id):
        return None
    return f"the id lies in {OWN_NETWORK}, whose ids come with Headerware; this is none of them"


def _id_is_not_private(entry: Entry, _: Registry) -> str | None:
    if not _is_private(entry.id):
        return None
    return f"the id lies in {PRIVATE_NETWORK}, which is private: use it as it is, without registering it"


def _id_is_free(entry: Entry, registry: Registry) -> str | None:
    other = registry.by_id(entry.id)
    if other is None or other is entry:
        return None
    return f"the id is {other.name!r}, {whose(other)}; an id is never used for anything else"


def _id_lies_in_a_block_of_its_owner(entry: Entry, registry: Registry) -> str | None:
    block = registry.block_of(entry.id)
    if block is None and _is_private(entry.id):
        return None  # no block would help
    if block is None:
        return f"the id lies in no block; {registry.registrar!r} allocates them"
    if block.owner != entry.owner:
        return f"the id lies in {block.network}, which is {block.owner}'s, not {entry.owner}'s"
    return None


def _name(entry: Entry, _: Registry) -> str | None:
    if look(entry.name).startswith(_OWN_PREFIX) and not is_ours(entry.id):
        return "names that begin with hw. are Headerware's own"
    return name_problem(entry.name)


def _name_is_free(entry: Entry, registry: Registry) -> str | None:
    if is_ours(entry.id):
        return None  # what has a name of Headerware's is told of it
    for other in (registry.named_like(entry.name), _built_in_looks().get(look(entry.name))):
        if other is None or other is entry or gives_way(other, entry):
            continue
        if other.name == entry.name:
            return f"the name {entry.name!r} is {other.id}'s, {whose(other)}; a name is never used again"
        return f"the name {entry.name!r} looks like {other.name!r}, {other.id}, {whose(other)}"
    return None


def _encoding(entry: Entry, _: Registry) -> str | None:
    if entry.encoding in _ENCODINGS:
        return None
    return f"an encoding is one of {', '.join(get_args(Encoding))}"


def _retired(entry: Entry, _: Registry) -> str | None:
    return None if entry.retired is None else retired_problem(entry.retired, entry)


def retired_problem(retired: str, entry: Entry) -> str | None:
    """Say why an entry cannot be retired on a day, or give None for a day on which it can."""
    problem = _day_problem(retired, "retired")
    if problem is None and retired < entry.since:
        return f"retired is {retired}, before its registration on {entry.since}"
    return problem


ENTRY_RULES: Final[Rules[Entry]] = (
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


def is_ours(header_id: int) -> bool:
    """Return whether an id lies in Headerware's own block."""
    return header_id >> 16 == 0


def _is_private(header_id: int) -> bool:
    return header_id >> 24 == 10


def whose(entry: Entry) -> str:
    """Say who has an entry, since when, and until when he used it."""
    ended = "" if entry.retired is None else f", retired since {entry.retired}"
    return f"{entry.owner}'s since {entry.since}{ended}"


@cache
def _built_in_ids() -> dict[int, Entry]:
    return {entry.id: entry for entry in built_in_tables().entries}


@cache
def _built_in_looks() -> dict[str, Entry]:
    return {look(entry.name): entry for entry in built_in_tables().entries}
