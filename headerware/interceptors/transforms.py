"""Transforms: a connector's list of single message transforms, with its predicates (KIP-66, KIP-585)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from headerware.connect.converters.catalogue import header_converter_from
from headerware.connect.errors import ConnectError
from headerware.connect.modes import STRICT, Mode
from headerware.connect.pipeline import Pipeline, StageError
from headerware.connect.properties import parse_connector, position_of_key
from headerware.connect.wire_records import from_connect, to_connect
from headerware.core.context import Context
from headerware.core.errors import ConfigError, TransformError, of_file
from headerware.core.files import read_text
from headerware.core.hooks import DROP, Interceptor, Place, Stage
from headerware.core.options import PATH, lines, with_environment
from headerware.core.plain_files import why_unreadable
from headerware.core.printable import HIDDEN
from headerware.core.record import Record

if TYPE_CHECKING:
    from headerware.connect.records import ConnectRecord
    from headerware.core.hooks import HookResult

_HEADS: Final = ("transforms.", "predicates.")
_ENV: Final = "${env:"

_REFERENCE: Final = re.compile(r"\$\{(?P<provider>[^}:]*):[^}]*\}")
"""A reference that a worker of Kafka Connect resolves, such as to a secret in a file."""


def _read_lines(text: str) -> dict[str, Any]:
    """Read a connector's text, then resolve the references in its lines of transforms and predicates."""
    written = parse_connector(text)
    # Other lines of the connector may have references that cannot be resolved here.
    referring = {key: value for key, value in written.items() if key.startswith(_HEADS) and _ENV in value}
    filled = {key: with_environment(value, path=key) for key, value in referring.items()}
    _require_resolved(written | {key: value.replace(_ENV, "") for key, value in referring.items()})
    return {**written, **filled}


class Transforms(Interceptor, frozen=True, kw_only=True):
    """Apply a connector's transforms to records, before a serializer or after a deserializer.

    Keys and values have a schema if they are a :class:`~headerware.connect.data.Struct` or a
    :class:`~headerware.connect.data.SchemaAndValue`; others are schemaless. The header converter decodes a
    header when a transform reads it; headers that no transform reads keep their bytes.

    Args:
        config: the connector's own lines: a mapping, or text as in a ``.properties`` file or a connector's
            JSON. ``transforms``, ``transforms.<alias>.*``, ``predicates``, ``predicates.<alias>.*`` and
            ``header.converter`` are used; a connector's other lines are ignored.
        file: a file with such text, instead of ``config``; ``${env:NAME}`` in it is resolved when the chain
            is opened.
        mode: ``strict`` refuses ambiguous cases, ``kafka_4_3`` does what Kafka Connect 4.3 does.
        on: when the transforms are applied: on ``send``, on ``consume``, or on ``both``.
        plain: whether to pass on plain Python values: dicts for structs, and no schemas.

    Raises:
        ConfigError: a line is not valid; ``path`` is its key.

    A record that a transform drops counts as dropped. Safe for use by several threads at once if the
    transforms are; ours are.
    """

    type: ClassVar[str] = "transforms"
    stage: ClassVar[Stage] = Stage.OBJECTS
    place: ClassVar[Place | None] = Place.TRANSFORM

    config: Annotated[dict[str, Any] | str | None, lines(_read_lines)] = None
    file: Annotated[str | None, PATH] = None
    mode: Mode = STRICT
    on: Literal["send", "consume", "both"] = "send"
    plain: bool = False

    def __post_init__(self) -> None:
        """Refuse invalid lines; a file is read when the chain is opened."""
        if (self.config is None) == (self.file is None):
            raise ConfigError(
                "expected either config, a connector's lines, or file, the path of a file with such lines"
            )
        if not isinstance(self.config, dict | str | None):
            raise ConfigError(
                f"expected a connector's lines, as a mapping or as text, found {type(self.config).__name__}",
                path="config",
            )
        if self.on_error == "skip":
            raise ConfigError(
                "'skip' would pass on a record that is not transformed; use raise, drop or dead_letter",
                path="on_error",
            )
        if self.config is not None:
            _TransformsStep(self, self._lines()).close()

    def open(self, context: Context) -> _TransformsStep:  # noqa: ARG002 - transforms know nothing of a client
        """Return the hooks for one session."""
        if self.file is None:
            return _TransformsStep(self, self._lines())
        with of_file("file"), _in_file(self.file, text := _text_of(self.file)):
            return _TransformsStep(self, _required(_read_lines(text)))

    def check_files(self) -> None:
        """Read the file, and make the transforms once."""
        if self.file is not None:
            self.open(Context()).close()

    def shown(self, option: str, written: Any) -> Any:
        """Return an option as it may be printed, with passwords in the lines hidden."""
        if option != "config" or written is None:
            return written
        given = parse_connector(written) if isinstance(written, str) else written
        with Pipeline.from_config(self._lines(), mode=self.mode) as pipeline:
            secret = {key.name for key in pipeline.config() if key.type == "PASSWORD"}
        return {key: HIDDEN if key in secret else value for key, value in given.items()}

    def __repr__(self) -> str:
        """Return the options without the connector's lines, because these may hold passwords."""
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._printed())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return the same options to rich, which also prints the local variables of a traceback."""
        return self._printed()

    def _printed(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.__struct_fields__ if name != "config"]

    def _lines(self) -> dict[str, Any]:
        if self.config is None:
            return _required(_read_lines(_text_of(self.file or "")))
        found = self.config if isinstance(self.config, dict) else parse_connector(self.config)
        _require_resolved(found)
        return _required(found)


def _required(lines: dict[str, Any]) -> dict[str, Any]:
    if not any(f"{key}.".startswith(_HEADS) for key in lines):
        raise ConfigError("expected a line of transforms, found none; 'transforms=' is an empty list")
    return lines


class _TransformsStep:
    """The transforms of one session."""

    __slots__ = ("_converter", "_pipeline", "_plain", "on_consume", "on_send")

    def __init__(self, options: Transforms, lines: dict[str, Any]) -> None:
        self._converter: Final = header_converter_from(lines, mode=options.mode)
        self._pipeline: Final = Pipeline.from_config(lines, mode=options.mode)
        self._plain: Final = options.plain
        self.on_send: Callable[[Record], HookResult] = self._send if options.on != "consume" else _as_it_is
        self.on_consume: Callable[[Record], HookResult] = self._consume if options.on != "send" else _as_it_is

    def close(self) -> None:
        """Close the transforms, the predicates and the header converter, once."""
        self._pipeline.close()
        self._converter.close()

    def _send(self, record: Record) -> HookResult:
        return self._through(to_connect(record, self._converter), record)

    def _consume(self, record: Record) -> HookResult:
        return self._through(to_connect(record, self._converter, side="consumer"), record)

    def _through(self, given: ConnectRecord, record: Record) -> HookResult:
        try:
            made = self._pipeline.apply(given)
            if made is None:
                return DROP
            if made.topic is None:
                raise TransformError("the transforms returned a record without a topic")
            return from_connect(made, record, self._converter, plain=self._plain)
        except ConnectError as error:
            raise _refusal(error) from error


def _as_it_is(record: Record) -> Record:
    return record


def _refusal(error: ConnectError) -> TransformError:
    refusal = TransformError(str(error))
    refusal.java = error.java
    if isinstance(error, StageError):
        refusal.transform = error.transform
    return refusal


def _require_resolved(lines: Mapping[str, Any]) -> None:
    """Refuse references that are not resolved: a reference's own text would be used as the secret."""
    for key, value in lines.items():
        found = _REFERENCE.search(value) if key.startswith(_HEADS) and isinstance(value, str) else None
        if found is not None:
            raise ConfigError(
                f"found a reference to the provider {found['provider']!r}, which only a worker of Kafka "
                "Connect resolves; use ${env:NAME} in a file or a client's configuration, the value in code",
                path=key,
            )


@contextmanager
def _in_file(path: str, text: str) -> Iterator[None]:
    """Put the file's name before the path of an error, with the line and the column of the key."""
    try:
        yield
    except ConfigError as error:
        found = error.with_path(f"{path}: {error.path}" if error.path else path)
        place = position_of_key(text, error.path)
        raise (found if place is None else found.located(path, *place)) from error


def _text_of(path: str) -> str:
    try:
        return read_text(Path(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {why_unreadable(path, error)}", path=path) from error
