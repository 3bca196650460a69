"""Configuration of what Kafka does not have: it is strict in both modes, for there is nothing to be like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headerware.connect.config import ConfigDef, ConfigKey
from headerware.connect.modes import STRICT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect.modes import Mode


class StrictConfig(ConfigDef):
    """The keys of one class, read strictly in both modes.

    Args:
        keys: the keys.
    """

    def keys(self, mode: Mode = STRICT) -> tuple[ConfigKey, ...]:
        """Return the keys, in order; they are the same in both modes."""
        del mode
        return super().keys(STRICT)

    def parse(self, given: Mapping[str, Any] | None, mode: Mode = STRICT) -> dict[str, Any]:
        """Return every key's value, of its type.

        Args:
            given: what is configured, as text or as Python has it.
            mode: of no matter here.

        Raises:
            ConnectConfigError: a key is missing, not known, or has a value that it cannot have.
        """
        del mode
        return super().parse(given, STRICT)
