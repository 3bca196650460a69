"""Objects that a ``with`` block closes at its end."""

from __future__ import annotations

from typing import Any, Self


class Closing:
    """Close the object at the end of a ``with`` block."""

    __slots__ = ()

    def close(self) -> Any:
        """Close the object; each subclass implements this."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
