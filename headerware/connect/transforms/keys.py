"""Configuration keys that transforms share, and keys that differ between the modes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headerware.connect.config import ConfigDef, ConfigKey
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
"""KIP-1040."""


class KeysByMode(ConfigDef):
    """The keys of one class, some of which are others in the strict mode.

    Args:
        keys: the keys.
        strict: those that take the place of the ones of the same names.
    """

    def __init__(self, *keys: ConfigKey, strict: Sequence[ConfigKey]) -> None:
        super().__init__(*keys)
        self._strict: Final = {key.name: key for key in strict}

    def keys(self, mode: Mode = STRICT) -> tuple[ConfigKey, ...]:
        """Return the keys of a mode, in order."""
        keys = super().keys(mode)
        return tuple(self._strict.get(key.name, key) for key in keys) if mode == STRICT else keys
