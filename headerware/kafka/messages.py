"""Make records of confluent-kafka's messages, and headers in the form that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headerware.core.errors import HeaderError, position
from headerware.core.headers import EMPTY, Headers
from headerware.core.record import Record

if TYPE_CHECKING:
    from confluent_kafka import Message

_new_headers = tuple.__new__


class UnreadHeaders(Mapping[str, bytes | None]):
    """Headers that cannot be read, or must not be; the session's boundary refuses their record.

    Not a dict, of which confluent-kafka's producer would read the items without a call of these methods.

    Args:
        where: the position of the record.
        why: the reason, as a sentence without a full stop.
    """

    def __init__(self, where: str, why: str) -> None:
        self._where: Final = where
        self.why: Final = why

    def __len__(self) -> int:
        """Return 1, so that they are not taken for no headers."""
        return 1

    def items(self) -> Any:
        """Raise a HeaderError."""
        raise HeaderError(f"{self._where}: {self.why}, so the record is refused")

    def __iter__(self) -> Any:
        """Raise a HeaderError."""
        return self.items()

    def __getitem__(self, name: str) -> Any:
        """Raise a HeaderError."""
        return self.items()


def record_of(message: Message) -> Record:
    """Return the record of a consumed message; its headers are known to be pairs of text and bytes."""
    kind, timestamp_ms = message.timestamp()
    headers: Any
    try:
        # Both in the try block: the interpreter may notice only at the second call that the first failed.
        headers = message.headers()
        headers = _new_headers(Headers, headers) if headers else EMPTY
    except (SystemError, UnicodeError):
        # confluent-kafka fails on a name that is not UTF-8; asking it again would crash the process.
        headers = unread_headers(message)
    return Record(
        message.topic(),  # type: ignore[arg-type]  # None only where the message is an error event
        message.value(),
        message.key(),
        headers,
        message.partition(),
        timestamp_ms if kind else None,
        kind,
        message.offset(),
        message.leader_epoch(),
    )


def unread_headers(message: Message) -> UnreadHeaders:
    """Return what stands for the headers of a consumed message that cannot be read."""
    where = position(message.topic() or "", message.partition(), message.offset())
    return UnreadHeaders(where, "a header's name is not UTF-8")


def headers_of(message: Message) -> Headers | None:
    """Return the headers of a consumed message; None if a name is not UTF-8: do not read them again then.

    This costs less than making a record.
    """
    headers: Any
    try:
        headers = message.headers()
        return _new_headers(Headers, headers) if headers else EMPTY  # as in record_of
    except (SystemError, UnicodeError):
        return None


def is_readable(record: Record) -> bool:
    """Return whether a consumed record has its headers, rather than :class:`UnreadHeaders`."""
    return isinstance(record.headers, Headers)


def wire_headers(headers: Headers) -> Any:
    """Return headers in the form that confluent-kafka takes: a list of tuples, or None."""
    return list(headers) if headers else None
