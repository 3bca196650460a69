"""Everything that Headerware raises on purpose.

    HeaderwareError
    ├── ConfigError              a configuration that cannot work: where, what was found, what is right
    │   └── PluginError          a plug-in that is missing, ambiguous or of the wrong shape
    ├── HeaderError              a header key or value of a wrong type, or a frozen builder changed
    ├── RecordError              a record whose topic, key or value is of a wrong type
    ├── WireFormatError          bytes that are not what spec/ says they are
    ├── KeyringError             a keyring that cannot be read or written, or a key that is not there
    │   └── KeyServiceError      a data key that a key service did not wrap or unwrap
    │       ├── KeyServiceUnavailableError   it did not answer, or asks for fewer requests: try again
    │       ├── KeyDeniedError               a policy forbids it
    │       ├── NoSuchKeyError               the service has no such key, or not yet
    │       ├── KeyDeletedError              the key is deleted or disabled: what it wrapped is lost
    │       ├── InvalidWrappedKeyError       not a data key that this key wrapped for this context
    │       └── UnboundKeyError              the service unwraps a data key for any context
    ├── RegistryError            a header id or block that the registry refuses, or a registry out of reach
    ├── DictionaryError          an invalid dictionary, or a store of dictionaries out of reach
    ├── SourceError              a source that cannot be listed or read, or whose offsets cannot be kept
    │   ├── SourceUnavailableError  a source that fails for now, and is tried again; also an OSError
    │   ├── NotAStreamError      an object that has no bytes to read
    │   ├── ObjectError          an object that cannot be opened, or that is cut off or damaged
    │   └── BadRecordError       one unreadable record of an object; later records can be read
    ├── ObjectStoreError         an object store out of reach, or one that refuses
    │   └── NoSuchObjectError    a store that works, and does not have the object
    ├── MissingPartError         a part that is missing on this machine, such as Java, a jar or a package
    └── InterceptorError         a record that an interceptor refused, with its step and position
        ├── SerdeError           a key or value that cannot be serialized or deserialized
        │   └── UnknownSchemaError
        ├── TransformError       a record that one of a connector's transforms refused
        ├── SignatureError
        ├── DecryptionError
        │   └── ShreddedError
        ├── CompressionError
        ├── ReassemblyError
        ├── ClaimError
        │   └── MissingObjectError
        ├── TransportHeaderError
        ├── ExpiredError
        ├── AdmissionError
        └── HeldBackError
            ├── DelayedError
            └── DeadLetterError

A message never holds a payload, a header's value or key material.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headerware.core.record import Record

_MAX_KEPT_CHARACTERS: Final = 2_000
_MAX_KEPT_VALUES: Final = 100
_ABSENT: Final = object()
Kept = TypeVar("Kept", bound=BaseException)


class HeaderwareError(Exception):
    """The root of all errors that Headerware raises on purpose.

    ``file``, ``line`` and ``column`` say where the option is that the error is about, if it is in a file and
    this is known.
    """

    file: str | None = None
    line: int | None = None
    column: int | None = None
    path: str = ""
    """The option's full path, such as ``interceptors.sign.key_id``, if the error is about an option."""
    named_by: str = ""
    """The option that names ``file``, with its line if this is known, if another file names it."""

    def located(self, file: str, line: int, column: int) -> Self:
        """Add where the option is, as editors read it, and return the error itself.

        Args:
            file: the file, with which the path begins.
            line: the line, from 1.
            column: the column, from 1.
        """
        self.file, self.line, self.column = file, line, column
        return self

    def __str__(self) -> str:
        if self.file is None:
            return super().__str__()
        return f"{self.file}:{self.line}:{self.column}: {self.problem}"

    @property
    def problem(self) -> str:
        """The message without the position."""
        return self._with_naming(super().__str__())

    def _with_naming(self, text: str) -> str:
        """Return a text with the option that names the file behind its first line."""
        if not self.named_by:
            return text
        first, line_end, others = text.partition("\n")
        return f"{first}; {self.named_by} names this file{line_end}{others}"


class ConfigError(HeaderwareError):
    """A configuration that cannot work.

    Args:
        message: what was expected and what was found.
        path: the option's full path, such as ``interceptors.sign.key_id``; it opens the message.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.message = message
        self.path = path

    def with_path(self, path: str) -> Self:
        """Return the same error with another path, such as one that also names the file."""
        return type(self)(self.message, path=path)

    @property
    def problem(self) -> str:
        """The message with the path inside the file."""
        place = self.path.removeprefix(self.file or "").removeprefix(": ")
        return self._with_naming(f"{place}: {self.message}" if place else self.message)


class PluginError(ConfigError):
    """A plug-in that cannot be found, is provided twice, or is of another kind than its entry point says."""


class HeaderError(HeaderwareError, TypeError):
    """A header key that is not text, a value that is not bytes, text or None, or a frozen builder changed."""


class RecordError(HeaderwareError, TypeError):
    """A record whose topic, key or value is of a type that cannot be sent."""


class WireFormatError(HeaderwareError, ValueError):
    """Bytes that do not follow the layout in spec/."""


class KeyringError(HeaderwareError):
    """A keyring that cannot be read or written, or a key that it does not hold.

    ``missing`` is the path of a keyring file that does not exist. ``of_root`` says that the error is about
    the keyring file of the roots that sign snapshots. ``public_only`` says that the keyring has only the
    public half of the key that is to sign.
    """

    missing: str | None = None
    of_root: bool = False
    public_only: bool = False


class KeyServiceError(KeyringError):
    """A data key that a key service did not wrap or unwrap; the class says what may help."""


class KeyServiceUnavailableError(KeyServiceError):
    """A key service that did not answer in time, failed, or asks for fewer requests; try again."""


class KeyDeniedError(KeyServiceError):
    """A request that a policy of the key service forbids; only its administrators can change that."""


class NoSuchKeyError(KeyServiceError):
    """A key-encryption key, or a version of it, that the key service does not have, or not yet."""


class KeyDeletedError(KeyServiceError):
    """A key-encryption key that is deleted or disabled, so that what it wrapped can no longer be read."""


class InvalidWrappedKeyError(KeyServiceError):
    """Bytes that are not a data key wrapped by this key for this context: changed, moved or made up."""


class UnboundKeyError(KeyServiceError):
    """A key service that unwraps a data key for another context than it was wrapped for."""


class SourceError(HeaderwareError):
    """A source that cannot be listed or read, or whose offsets cannot be kept."""


class SourceUnavailableError(SourceError, OSError):
    """A source that cannot be listed or read now; the source is tried again, as after any ``OSError``.

    The text of any other ``OSError`` is not shown, because it may quote anything.

    Args:
        message: what is not available now.
        after_s: how long to wait at least, in seconds, if the source says so.
    """

    def __init__(self, message: str, *, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


class NotAStreamError(SourceError):
    """An object that has no bytes to read, such as a row of a table; only some extractors can read it."""


class ObjectError(SourceError):
    """An object that cannot be opened, is cut off or damaged: nothing after the damage can be read."""


class BadRecordError(SourceError):
    """One unreadable record of an object; the records after it can be read.

    ``raw`` holds its bytes if they are known and not too many, for a dead letter; it is not part of the text.
    """

    raw: bytes | None = None

    def __init__(self, message: str, *, raw: bytes | None = None) -> None:
        super().__init__(message)
        self.raw = raw


class MissingPartError(HeaderwareError):
    """A part that is missing on this machine, such as Java or a jar; the message says what to install."""


class InterceptorError(HeaderwareError):
    """A record that an interceptor refused or failed on.

    Args:
        message: what was expected and what was found, without any payload.
        step: the interceptor's name in the chain.
        topic: the record's topic.
        partition: its partition, or None if it has none yet.
        offset: its offset, or None if it has none yet.

    The chain fills in the position if an interceptor left it open.
    """

    # Defaults, because a subclass's constructor may not call ours.
    message: str = ""
    step: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    last_record: Record | None = None
    """The last good record, for acknowledgements; not part of the text, and not pickled."""

    def __init__(
        self,
        message: str,
        *,
        step: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.step = step
        self.topic = topic
        self.partition = partition
        self.offset = offset

    def at(self, step: str, record: Record) -> InterceptorError:
        """Fill in the position if it is still open, and return the error itself."""
        if self.step is None:
            self.step = step
        if self.topic is None:
            self.topic, self.partition, self.offset = record.topic, record.partition, record.offset
        self.last_record = record
        return self

    def again(self) -> Self:
        """Return the same error without a position, for another of several records that it concerns."""
        again: Self = _rebuilt(type(self), self.args, self.__dict__)
        again.step = again.topic = again.partition = again.offset = again.last_record = None
        return again

    def __str__(self) -> str:
        where = [] if self.step is None else [self.step]
        if self.topic is not None:
            where.append(position(self.topic, self.partition, self.offset))
        text = self.message or type(self).__name__
        return f"{' at '.join(where)}: {text}" if where else text

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, {**self.__dict__, "last_record": None})


def cause_of(error: BaseException) -> str:
    """Return a short name of an error's cause, for counters: its class, or the name of Kafka's error code."""
    cause = error.__cause__ or error
    code = cause.args[0] if cause.args else None
    name = getattr(code, "name", None)
    return str(name()) if callable(name) else type(cause).__name__


class RegistryError(HeaderwareError):
    """A change that the registry of header ids refuses, or a registry that cannot be read."""


class DictionaryError(HeaderwareError):
    """A dictionary that is invalid or cannot be trained, or a store of dictionaries out of reach."""


class ObjectStoreError(HeaderwareError):
    """An object store that cannot be reached, does not answer in time, or refuses what it is asked."""


class NoSuchObjectError(ObjectStoreError):
    """An object that a store does not have, although the store works."""


class SerdeError(InterceptorError):
    """A key or value that a serializer or deserializer refused.

    ``part`` says which of the two, if it is known. If one of Kafka Connect's converters refused it,
    ``converter`` is its class, and ``java`` the exception that Connect raises there; dead letters carry both.
    """

    part: Literal["key", "value"] | None = None
    converter: str | None = None
    java: str | None = None


class UnknownSchemaError(SerdeError):
    """A record whose schema no store knows."""


class TransformError(InterceptorError):
    """A record that one of a connector's transforms refused.

    ``transform`` is the transform's class as configuration names it, and ``java`` the exception that Kafka
    Connect raises there; dead letters carry both.
    """

    transform: str | None = None
    java: str | None = None


class SignatureError(InterceptorError):
    """A record whose signature is missing, wrong, replayed, or by a key that is not trusted."""


class DecryptionError(InterceptorError):
    """A record that cannot be decrypted, was changed or moved, or is plaintext where none is accepted."""


class ShreddedError(DecryptionError):
    """A record that nobody can read any more, because its key-encryption key was deleted or disabled."""


class CompressionError(InterceptorError):
    """A compressed value that is corrupt, states a wrong size, or is larger than the limit."""


class ReassemblyError(InterceptorError):
    """A set of slices that contradict each other, stayed incomplete, or exceed the limits.

    ``offsets`` are the offsets of the slices that had arrived and are given up, too. ``arrived`` makes these
    slices again, as they were on the wire, until their dead letters are stored; None if they are not kept.
    """

    offsets: tuple[int, ...] = ()
    arrived: Callable[[], Iterable[Record]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, {**self.__dict__, "last_record": None, "arrived": None})


class ClaimError(InterceptorError):
    """A record whose claim on an object is wrong or not permitted, or whose object is another one."""


class MissingObjectError(ClaimError):
    """A record whose object the store no longer has, or never had."""


class TransportHeaderError(InterceptorError):
    """A record that carries an encoding which no interceptor of this chain decodes."""


class ExpiredError(InterceptorError):
    """A record that has expired, where the chain refuses such records."""


class AdmissionError(InterceptorError):
    """A record that is not admitted: its certificate is missing, wrong or stolen, or no rule allows it."""


class HeldBackError(InterceptorError):
    """A record that cannot be processed yet, and that a consumer must not skip.

    A part that a step needs does not work, such as a keyring that has been unreadable for too long.
    ``on_error`` neither drops the record nor makes a dead letter of it; consumers try the record again.
    """


class DelayedError(HeldBackError):
    """A record that waits for its moment or key; only its partition waits, and the application is not told.

    Args:
        message: why it waits.
        until_ms: when it is tried again, in milliseconds since the epoch by the session's clock.
    """

    until_ms: int = 0

    def __init__(self, message: str, *, until_ms: int) -> None:
        super().__init__(message)
        self.until_ms = until_ms


class DeadLetterError(HeldBackError):
    """A refused record whose dead letter could not be delivered, so that a consumer must not skip it yet.

    ``unfit`` says that the topic takes other dead letters but not this one, such as one that is too large.
    """

    unfit: bool = False

    def __init__(self, message: str, *, unfit: bool = False) -> None:
        super().__init__(message)
        self.unfit = unfit


@contextmanager
def below(path: str) -> Iterator[None]:
    """Put a path before the option of an error; an error at a line of another file keeps its place there."""
    try:
        yield
    except HeaderwareError as error:
        option = error.path if error.file is None else error.named_by
        if not path or option == path or option.startswith((f"{path}.", f"{path}[")):
            raise
        option = f"{path}.{option}" if option else path
        if error.file is not None:
            error.named_by = option
        elif isinstance(error, ConfigError):
            raise error.with_path(option) from error
        else:
            error.path = option
        raise


@contextmanager
def of_file(option: str) -> Iterator[None]:
    """Say which option names the file that an error is about.

    An error at a line of the file keeps this place. Any other error, such as that the file is missing, gets
    the option as its path.
    """
    try:
        yield
    except HeaderwareError as error:
        if error.file is not None:
            error.named_by = error.named_by or option
        elif isinstance(error, ConfigError):
            text = f"{error.path}: {error.message}" if error.path else error.message
            raise type(error)(text, path=option) from error
        else:
            error.path = option
        raise


def position(topic: str, partition: int | None, offset: int | None) -> str:
    """Return a record's position as text: ``orders[3]@1042``."""
    text = topic if partition is None else f"{topic}[{partition}]"
    return text if offset is None else f"{text}@{offset}"


def raised_at(error: BaseException) -> str:
    """Return where an error was raised, such as `` at rules.py:12 in on_send``.

    The text has only the innermost frame's file name, line and function: the error's own text may quote a
    payload.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    code = trace.tb_frame.f_code
    return f" at {PurePath(code.co_filename).name}:{trace.tb_lineno} in {code.co_name}"


def described(error: BaseException) -> str:
    """Return the text of our own error; of others, whose text may quote a payload, the class and position.

    An ``OSError`` also has the operating system's own text for its number.
    """
    if isinstance(error, HeaderwareError):
        return str(error)
    reason = f" ({os.strerror(error.errno)})" if isinstance(error, OSError) and error.errno else ""
    return f"{type(error).__name__}{reason}{raised_at(error)}"


class KeptError(Generic[Kept]):
    """The parts of an error that are kept to raise it again: its class, its text and its attributes.

    An exception has a traceback, a traceback has frames, and frames have the record. So code that remembers a
    failure keeps this value instead of the exception, and makes a new exception for each record. Positions,
    bytes and objects are not kept, and a text is cut at 2,000 characters. An exception of another library
    whose arguments are not plain values becomes a :class:`HeaderwareError`.
    """

    __slots__ = ("_args", "_cause", "_facts", "kind")

    def __init__(self, error: Kept) -> None:
        args = _plain(error.args)
        can_be_rebuilt = args is not _ABSENT or isinstance(error, HeaderwareError)
        self.kind: type[BaseException] = type(error) if can_be_rebuilt else HeaderwareError
        self._args: tuple[Any, ...] = (_plain(_text_of(error)),) if args is _ABSENT else args
        dropped = _POSITION if isinstance(error, InterceptorError) else ()
        self._facts: dict[str, Any] = {
            name: plain
            for name, value in error.__dict__.items()
            if name not in dropped and (plain := _plain(value)) is not _ABSENT
        }
        self._cause: KeptError[BaseException] | None = (
            None if error.__cause__ is None else KeptError(error.__cause__)
        )

    def is_a(self, *kinds: type[BaseException]) -> bool:
        """Return whether the error is of one of these classes."""
        return issubclass(self.kind, kinds)

    def again(self) -> Kept:
        """Return a new exception, without a position and without a traceback."""
        error: Kept = _rebuilt(self.kind, self._args, self._facts)
        error.__cause__ = None if self._cause is None else self._cause.again()
        return error


def _text_of(error: BaseException) -> str:
    return error.message if isinstance(error, InterceptorError) else described(error)


_POSITION: Final = frozenset({"step", "topic", "partition", "offset", "last_record"})


def _plain(value: Any) -> Any:
    """Return a value that cannot refer to a record; _ABSENT for other values."""
    if isinstance(value, str):
        return value if len(value) <= _MAX_KEPT_CHARACTERS else value[:_MAX_KEPT_CHARACTERS] + "..."
    if value is None or isinstance(value, int | float | type):
        return value
    if type(value) is tuple and len(value) <= _MAX_KEPT_VALUES:
        found = tuple(map(_plain, value))
        return _ABSENT if _ABSENT in found else found
    return _ABSENT


def _rebuilt(kind: type[Any], args: tuple[Any, ...], facts: dict[str, Any]) -> Any:
    """Make an error again without its constructor, which may have other arguments in a plug-in."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error
