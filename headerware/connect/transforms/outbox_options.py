"""What an outbox router can be configured with: Debezium's own keys."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, cast

from headerware.connect.config import NOT_EMPTY_TEXT, ConfigKey, StrictConfig, one_of
from headerware.connect.errors import ConnectConfigError
from headerware.connect.fields.lists import split_escaped, unescaped
from headerware.connect.java.regex import VALID_PATTERN

Placement = Literal["header", "envelope", "partition"]
_PLACEMENTS: Final = ("header", "envelope", "partition")
PLACEMENTS: Final = "table.fields.additional.placement"


class Additional(NamedTuple):
    """A further column, and where it goes.

    Args:
        column: the column.
        placement: where to.
        alias: what it is called there.
    """

    column: str
    placement: Placement
    alias: str


def _column(name: str, default: str | None, doc: str) -> ConfigKey:
    return ConfigKey(
        name=name, type="STRING", default=default, importance="LOW", check=NOT_EMPTY_TEXT, doc=doc
    )


def _flag(name: str, doc: str, *, default: bool = False) -> ConfigKey:
    return ConfigKey(name=name, type="BOOLEAN", default=default, doc=doc)


OUTBOX: Final = StrictConfig(
    _column("table.field.event.id", "id", "The column with the event's id, which becomes the header id."),
    _column("table.field.event.key", "aggregateid", "The column with the record's key."),
    _column(
        "table.field.event.type",
        "type",
        f"The column with the event's type; Debezium does nothing with it: {PLACEMENTS} places it.",
    ),
    _column(
        "table.field.event.timestamp",
        None,
        "The column with the record's timestamp; that of the change where it is not given.",
    ),
    _column("table.field.event.payload", "payload", "The column with the record's value."),
    _column(
        "table.field.event.schema.version", None, "The column with the version of the envelope's schema."
    ),
    ConfigKey(
        name=PLACEMENTS,
        type="LIST",
        default=[],
        importance="HIGH",
        doc="Further columns as column:placement or column:placement:alias; placements are header, envelope "
        "and partition.",
    ),
    _flag(
        "table.fields.additional.error.on.missing",
        "Whether a further column that a row lacks is an error; else it is passed over.",
        default=True,
    ),
    _flag(
        "table.expand.json.payload", "Whether a payload that is a JSON text becomes a value with a schema."
    ),
    ConfigKey(
        name="table.json.payload.null.behavior",
        type="STRING",
        default="ignore",
        check=one_of("ignore", "optional_bytes"),
        doc="Whether nulls in a JSON payload are left out, or become optional bytes.",
    ),
    ConfigKey(
        name="table.op.invalid.behavior",
        type="STRING",
        default="warn",
        check=one_of("warn", "error", "fatal"),
        doc="What becomes of a change that is no insert and no delete: logged and dropped, or refused.",
    ),
    ConfigKey(
        name="route.by.field",
        type="STRING",
        default="aggregatetype",
        importance="HIGH",
        check=NOT_EMPTY_TEXT,
        doc="The column that chooses the topic.",
    ),
    ConfigKey(
        name="route.topic.regex",
        type="STRING",
        default="(?<routedByValue>.*)",
        importance="LOW",
        check=VALID_PATTERN,
        doc="What that column must match for its replacement.",
    ),
    ConfigKey(
        name="route.topic.replacement",
        type="STRING",
        default="outbox.event.${routedByValue}",
        importance="HIGH",
        doc="The topic, with the groups of route.topic.regex.",
    ),
    _flag("route.tombstone.on.empty.payload", "Whether an empty payload makes a tombstone."),
)
"""The keys of an outbox router."""


def additional(texts: list[str]) -> list[Additional]:
    """Read where further columns go.

    Args:
        texts: each as ``column:placement`` or ``column:placement:alias``.

    Raises:
        ConnectConfigError: one is neither.
    """
    return [_additional(text) for text in texts]


def _additional(text: str) -> Additional:
    parts = [unescaped(part, PLACEMENTS).strip() for part in split_escaped(text, ":")]
    if len(parts) not in {2, 3} or "" in parts:
        raise ConnectConfigError(
            f"expected column:placement or column:placement:alias, found {text!r}", path=PLACEMENTS
        )
    placement: Any = parts[1].lower()
    if placement not in _PLACEMENTS:
        raise ConnectConfigError(
            f"expected a placement of {', '.join(_PLACEMENTS)}, found {parts[1]!r}", path=PLACEMENTS
        )
    return Additional(parts[0], cast("Placement", placement), parts[-1] if len(parts) == 3 else parts[0])
