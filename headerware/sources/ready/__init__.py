"""Sources that are ready to use; each is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.lazy import lazy

if TYPE_CHECKING:
    from headerware.sources.ready.files import Files as Files
    from headerware.sources.ready.http_pages import HttpPages as HttpPages
    from headerware.sources.ready.objects import ObjectStorage as ObjectStorage
    from headerware.sources.ready.sql import SqlTables as SqlTables

_HOMES: Final = {
    "Files": "files",
    "HttpPages": "http_pages",
    "ObjectStorage": "objects",
    "SqlTables": "sql",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605 - made of the table

_load: Final = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return [*__all__]
