"""TimestampRouter: name the topics of records by their timestamps, as ``${topic}-${timestamp}`` (KIP-66)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import ConfigDef, ConfigKey
from headerware.connect.data.times import from_epoch_ms
from headerware.connect.errors import ArgumentError, ConnectConfigError, ConnectDataError, NullValueError
from headerware.connect.fields.topics import new_topic
from headerware.connect.java.date_format import DateFormat
from headerware.connect.modes import STRICT, Mode
from headerware.connect.transforms.base import Transform

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOPIC_FORMAT: Final = "topic.format"
_TIMESTAMP_FORMAT: Final = "timestamp.format"
_TOPIC: Final = "${topic}"
_TIMESTAMP: Final = "${timestamp}"
_PLACEHOLDER: Final = re.compile(r"\$\{[^}]*\}?")


class TimestampRouter(Transform):
    """Name a record's topic by its timestamp and its topic.

    Args:
        config: ``topic.format``, in which ``${topic}`` and ``${timestamp}`` stand for the two, and
            ``timestamp.format``, a pattern of :class:`~headerware.connect.java.date_format.DateFormat`;
            times are in UTC.
        mode: strict immediately refuses unknown placeholders, a format without placeholders, and bad
            patterns. It does not replace ``${timestamp}`` in a topic's old name, and refuses a name that no
            topic can have.

    Raises:
        ConnectConfigError: a key is unknown, or its value is not valid.
    """

    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            name=_TOPIC_FORMAT,
            type="STRING",
            default="${topic}-${timestamp}",
            importance="HIGH",
            doc="The new topic's name, in which ${topic} and ${timestamp} are the record's own.",
        ),
        ConfigKey(
            name=_TIMESTAMP_FORMAT,
            type="STRING",
            default="yyyyMMdd",
            importance="HIGH",
            doc="The pattern of the timestamp, in the syntax of java.text.SimpleDateFormat.",
        ),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._topic_format: str | None = self.options[_TOPIC_FORMAT]
        self._timestamp_format: str | None = self.options[_TIMESTAMP_FORMAT]
        self._parts = _PLACEHOLDER.split(self._topic_format or "")
        self._placeholders = _PLACEHOLDER.findall(self._topic_format or "")
        self._format: DateFormat | None = None
        if mode == STRICT:
            self._check()

    def _check(self) -> None:
        if not self._placeholders:
            raise ConnectConfigError(
                f"expected {_TOPIC} or {_TIMESTAMP}, found neither: all records would go to one topic; a "
                "shell or a template may have removed the '$'",
                path=_TOPIC_FORMAT,
            )
        for placeholder in self._placeholders:
            if placeholder not in {_TOPIC, _TIMESTAMP}:
                raise ConnectConfigError(
                    f"there is no placeholder {placeholder!r}; there are {_TOPIC} and {_TIMESTAMP}",
                    path=_TOPIC_FORMAT,
                )
        try:
            self._format = DateFormat(self._timestamp_format or "", STRICT)
        except ArgumentError as error:
            raise ConnectConfigError(str(error), path=_TIMESTAMP_FORMAT) from error

    def apply(self, record: Any) -> Any:
        """Return the record with its new topic.

        Raises:
            ConnectDataError: the record has no timestamp; in the strict mode, the record has no topic, or
                no topic can have the new name.
            ArgumentError: in ``kafka_4_3``, the pattern is not valid.
        """
        if record.timestamp is None:
            raise ConnectDataError("expected a record with a timestamp to name its topic by, found none")
        written = self._dates().format(from_epoch_ms(record.timestamp))
        return record.with_topic(self._topic(record.topic, written))

    def _dates(self) -> DateFormat:
        if self._format is None:
            # Kafka reads the pattern at the first record.
            if self._timestamp_format is None:
                raise NullValueError(f"expected a pattern for {_TIMESTAMP_FORMAT}, found null")
            self._format = DateFormat(self._timestamp_format, self.mode)
        return self._format

    def _topic(self, topic: str | None, timestamp: str) -> str:
        if self.mode == STRICT:
            if topic is None:
                raise ConnectDataError("expected a record with a topic, found none")
            values = [topic if placeholder == _TOPIC else timestamp for placeholder in self._placeholders]
            return new_topic("".join(map("".join, zip(self._parts, [*values, ""], strict=True))), topic)
        if topic is None or self._topic_format is None:
            raise NullValueError("expected a topic and a format for it, found null")
        return self._topic_format.replace(_TOPIC, topic).replace(_TIMESTAMP, timestamp)
