"""Options of a type that configuration names by a word: an interceptor, a serde, a store, a service."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec


class TypedOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hold the options of one type; a subclass adds its options as fields.

    Configuration has the word for the type, or a table of ``type`` and its options.
    """

    type: ClassVar[str] = ""
    """The word for it in configuration."""
    removed: ClassVar[dict[str, str]] = {}
    """The options of earlier versions, each with the advice that its error gives."""

    def __post_init__(self) -> None:
        """Check nothing; a subclass that checks its options calls this method of its base first."""


class SecretOptions(TypedOptions, frozen=True, kw_only=True):
    """Hold options that are never shown, because addresses and properties may hold passwords."""

    def __repr__(self) -> str:
        """Show no option."""
        return f"{type(self).__name__}(...)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Show no option in rich's tracebacks either."""
        return []
