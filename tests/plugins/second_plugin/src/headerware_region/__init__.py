"""A second plug-in, by other people: it adds a region on send and takes it off on consume."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from headerware import Interceptor

if TYPE_CHECKING:
    from headerware import Record


class Region(Interceptor, frozen=True, kw_only=True):
    """Say where a record was sent; stateless, so it has its hooks itself."""

    type: ClassVar[str] = "region"

    code: str

    def on_send(self, record: Record) -> Record:
        """Add the region."""
        return record.with_headers(record.headers.add("region", self.code))

    def on_consume(self, record: Record) -> Record:
        """Take the region off."""
        return record.with_headers(record.headers.remove("region"))
