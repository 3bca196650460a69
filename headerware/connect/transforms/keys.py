"""Configuration keys that transforms share, and keys that differ between the modes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headerware.connect.config import ConfigDef, ConfigKey, one_of
from headerware.connect.data.schema import Type
from headerware.connect.modes import STRICT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headerware.connect.modes import Mode

REPLACE_NULL_WITH_DEFAULT: Final = ConfigKey(
    name="replace.null.with.default",
    type="BOOLEAN",
    default=True,
    doc="Whether a null in a field that has a default becomes that default.",
)
"""The key of KIP-1040."""
FILTER_TYPE: Final = ConfigKey(
    name="filter.type",
    type="STRING",
    default="include",
    importance="HIGH",
    check=one_of("include", "exclude"),
    doc="include keeps the records that match, exclude drops them.",
)
"""The key that says whether to keep or to drop matching records, as in Confluent's Filter."""
PRIMITIVES: Final = {kind.value: kind for kind in Type if kind.is_primitive}
"""The types of single values, by their names."""
OPERATION: Final = ConfigKey(
    name="operation",
    type="STRING",
    importance="HIGH",
    check=one_of("copy", "move"),
    doc="copy keeps the source, move removes it.",
)
"""The key that says whether to copy or to move, as in HeaderFrom."""


class KeysByMode(ConfigDef):
    """The keys of one class; the keys in ``strict`` replace keys of the same names in the strict mode."""

    def __init__(self, *keys: ConfigKey, strict: Sequence[ConfigKey]) -> None:
        super().__init__(*keys)
        self._strict: Final = {key.name: key for key in strict}

    def keys(self, mode: Mode = STRICT) -> tuple[ConfigKey, ...]:
        """Return the keys of a mode, in order."""
        keys = super().keys(mode)
        return tuple(self._strict.get(key.name, key) for key in keys) if mode == STRICT else keys
