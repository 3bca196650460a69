"""An interceptor: its options in one class, the hooks of one session in another class."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from headerware import ConfigError, Interceptor, InterceptorError, Role

if TYPE_CHECKING:
    from headerware import Context, Record


class Stamp(Interceptor, frozen=True, kw_only=True):
    """Add a header with a text and the current time; read it on consume.

    The header is for the application, so it stays on the record; ``record.local["stamp"]`` is the time in
    milliseconds since the epoch. Put ``stamp`` to the left of ``sign``, so the signature covers the header.

    Args:
        text: the text of the stamp.
        header: the name of the header.

    Raises:
        ConfigError: the header's name is one of Headerware's own.
    """

    type: ClassVar[str] = "stamp"
    role: ClassVar[Role] = Role.TRANSFORM

    text: Annotated[str, msgspec.Meta(min_length=1)]
    header: Annotated[str, msgspec.Meta(min_length=1)] = "stamp"

    def __post_init__(self) -> None:
        """Check rules that annotations cannot express; the path is the option's own name."""
        if self.header.startswith("hw."):
            raise ConfigError("names that begin with 'hw.' are Headerware's own", path="header")

    def open(self, context: Context) -> StampStep:
        """Return the hooks of one session."""
        return StampStep(self, context)


class StampStep:
    """The hooks of one session.

    ``on_send`` may run on several threads at once, so its counter has a lock. ``on_consume`` has one
    caller at a time.
    """

    __slots__ = ("_header", "_lock", "_now_ms", "_stamped", "_text")

    def __init__(self, options: Stamp, context: Context) -> None:
        self._header = options.header
        self._text = options.text.encode()
        self._now_ms = context.now_ms  # interceptors read no other clock, so tests can set it
        self._lock = Lock()
        self._stamped = 0

    def on_send(self, record: Record) -> Record:
        """Add the stamp; the passed record does not change."""
        with self._lock:
            self._stamped += 1
        stamp = b"%s;%d" % (self._text, self._now_ms())
        return record.with_headers(record.headers.append((self._header, stamp)))

    def on_consume(self, record: Record) -> Record:
        """Read the last stamp; return a record without a stamp as the same object."""
        stamp = record.headers.last(self._header)
        if stamp is None:
            return record
        _, separator, time_ms = stamp.rpartition(b";")
        if not separator or not time_ms.isdigit():
            # The chain adds step and position. Never quote the value: it may be secret.
            raise InterceptorError(f"header {self._header!r} is no stamp")
        return record.with_local("stamp", int(time_ms))

    def overhead_bytes(self, record: Record) -> int:  # noqa: ARG002 - a stamp is as large on any record
        """Return an upper bound of the added bytes, for a ``slice`` to the left of this step."""
        return len(self._header.encode()) + len(self._text) + 32

    def stats(self) -> dict[str, int]:
        """Return the counters, for the client's ``stats()``."""
        return {"stamped": self._stamped}
