"""An empty chain is the raw client: a private subclass whose attributes are the C methods themselves.

Never ``self.produce = super().produce``: that makes a cycle which keeps the client's threads alive after
``del``, and hides a subclass's own ``produce``.
"""

from __future__ import annotations

from functools import cache
from typing import Any


def become_raw(client: Any, raw: type) -> None:
    """Turn a client whose chain is empty into the raw one, before it is initialised."""
    own: Any = type(client)
    client.__class__ = _raw_class(own, raw)


@cache
def _raw_class(cls: Any, raw: Any) -> Any:
    """Give the class whose methods, behind those of an application's own subclass, are the C ones."""
    if cls is raw.__base__:
        return raw
    own = {"__slots__": (), "__module__": cls.__module__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls, raw), own)
