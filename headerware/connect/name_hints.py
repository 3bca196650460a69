"""What a name that nothing has was probably meant to be."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

PARTS: Final = ("Key", "Value")
"""The two classes that a transform of keys and values has."""
_DEBEZIUM: Final = "io.debezium.transforms"
_CONFLUENT: Final = "io.confluent.connect"
_FOREIGN: Final[Mapping[str, str]] = MappingProxyType(
    {
        f"{_DEBEZIUM}.outbox.EventRouter": "OutboxRouter does what it does",
        f"{_DEBEZIUM}.ExtractNewRecordState": "use ExtractField$Value with field=after",
        f"{_CONFLUENT}.transforms.Filter": "use FilterByField or FilterByExpression",
        f"{_CONFLUENT}.transforms.ReplaceField": "use ReplaceField$Key or ReplaceField$Value",
        f"{_CONFLUENT}.avro.AvroConverter": "use the serde confluent-avro, in the serialize step",
    }
)
"""What there is here for what others have."""
_DRAFT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "NumericCasts": "Cast$Key or Cast$Value",
        "Replace": "ReplaceField$Key or ReplaceField$Value",
        **{
            draft.format(part): f"{name}${part}"
            for part in PARTS
            for draft, name in (
                ("Mask{}", "MaskField"),
                ("InsertIn{}", "InsertField"),
                ("Hoist{}ToStruct", "HoistField"),
                ("Extract{}FromStruct", "ExtractField"),
                ("Set{}SchemaMetadata", "SetSchemaMetadata"),
            )
        },
    }
)
"""What the draft of KIP-66 called transforms, and what they are called."""
DRAFT_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "blacklist": "exclude",
        "name": "schema.name",
        "offset": "offset.field",
        "partition": "partition.field",
        "rename": "renames",
        "timestamp": "timestamp.field",
        "topic": "topic.field",
        "version": "schema.version",
        "whitelist": "include",
    }
)
"""What the draft of KIP-66 called keys of transforms, and what they are called."""
_QUOTES: Final = "\"'"


def name_hint(name: str, known: Collection[str], elsewhere: Mapping[str, str]) -> str:
    """Say what was probably meant, or nothing.

    Args:
        name: what is configured.
        known: the short names that there are.
        elsewhere: short names that are of another kind, and what to say about them.
    """
    bare = name.strip(_QUOTES)
    if bare != name:
        return f"write it without quotes: {bare}"
    base, _, part = name.partition("$")
    if base in _FOREIGN:
        return _FOREIGN[base]
    simple = base.rpartition(".")[2]
    if not part and simple.capitalize() in PARTS:
        # Another language's way to name a class in a class: MaskField.Value.
        base, _, part = base.rpartition(".")
        simple = base.rpartition(".")[2]
    if simple in _DRAFT:
        return f"the draft of KIP-66 called it so; it is {_DRAFT[simple]} now"
    if simple in elsewhere:
        return elsewhere[simple]
    if not (near := _same_but_case(simple, known) or get_close_matches(simple, known, n=1)):
        return ""
    part = part.capitalize() if part.capitalize() in PARTS else part
    return f"did you mean {near[0]}{'$' + part if part else ''}?"


def _same_but_case(name: str, known: Collection[str]) -> list[str]:
    folded = name.casefold()
    return [each for each in known if each.casefold() == folded]
