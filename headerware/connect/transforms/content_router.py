"""ContentRouter: choose the topic by a field, a header or an expression.

transforms=route
transforms.route.type=ContentRouter
transforms.route.topic.field=customer.region
transforms.route.topic.format=orders-${routed}
transforms.route.topic.fallback=orders-unknown

transforms.route.topic.expression=value.amount > 1000 ? "orders-large" : topic
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import NOT_EMPTY_TEXT, ConfigDef, ConfigKey, StrictConfig, one_of
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.expressions import AbsentValueError, CompiledExpression
from headerware.connect.fields.topics import legal_topic, legal_topic_option, topic_text
from headerware.connect.modes import STRICT
from headerware.connect.predicates.conditions import MISSING
from headerware.connect.predicates.field_matches import FieldReader
from headerware.connect.transforms.base import Transform
from headerware.core.bounded_cache import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headerware.connect.modes import Mode

_ROUTED: Final = "${routed}"
_TOPIC: Final = "${topic}"
_FORMAT: Final = "topic.format"
_FALLBACK: Final = "topic.fallback"
_MAX_NAMES: Final = 2048


class ContentRouter(Transform):
    """Send each record to the topic that its contents name.

    One of ``topic.field`` (of the value), ``topic.key.field``, ``topic.header`` and ``topic.expression`` says
    where to read the name. ``topic.format`` is the new topic, in which ``${routed}`` is this name and
    ``${topic}`` the record's own topic. A record without a name goes to ``topic.fallback``; without a
    fallback, ``missing.or.null.behavior`` refuses the record or keeps its topic. A name that no topic can
    have, or that begins with two underscores as Kafka's internal topics do, is refused.
    """

    CONFIG: ClassVar[ConfigDef] = StrictConfig(
        *(
            ConfigKey(
                name=name, type="STRING", default=None, importance="HIGH", check=NOT_EMPTY_TEXT, doc=doc
            )
            for name, doc in {
                "topic.field": "The field of the value, as a.b, that chooses the topic.",
                "topic.key.field": "The field of the key, as a.b, that chooses the topic.",
                "topic.header": "The header that chooses the topic; the last one of its name.",
                "topic.expression": "The expression that chooses the topic; null if it chooses none.",
            }.items()
        ),
        ConfigKey(
            name=_FORMAT,
            type="STRING",
            default=_ROUTED,
            doc="The topic's name; ${routed} is the value that was read, ${topic} the record's own topic.",
        ),
        ConfigKey(
            name=_FALLBACK,
            type="STRING",
            default=None,
            doc="The topic if the value that was read is missing or null.",
        ),
        ConfigKey(
            name=MISSING,
            type="STRING",
            default="fail",
            check=one_of("fail", "keep"),
            doc="What to do with a record that chooses no topic if there is no fallback.",
        ),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        given = [name for name in _SOURCES if self.options[name] is not None]
        if len(given) != 1:
            raise ConnectConfigError(
                f"expected one of {', '.join(_SOURCES)}, found {', '.join(given) or 'none'}",
                path=next(iter(_SOURCES)),
            )
        self._source: Final = given[0]
        self._read: Final = _SOURCES[given[0]](self.options[given[0]], given[0])
        self._format: Final[str] = self.options[_FORMAT]
        if _ROUTED not in self._format:
            raise ConnectConfigError(
                f"expected a text with {_ROUTED}, or all records would go to one topic", path=_FORMAT
            )
        fallback = self.options[_FALLBACK]
        self._fallback: Final = None if fallback is None else legal_topic_option(fallback, _FALLBACK)
        self._keeps: Final = self.options[MISSING] == "keep"
        # By the value that was read, and the record's own topic.
        self._legal: Final[BoundedCache[tuple[str, str | None], str]] = BoundedCache(_MAX_NAMES, self._topic)

    def apply(self, record: Any) -> Any:
        """Return the record for its topic.

        Raises:
            ConnectDataError: the record chooses no topic, without a fallback and with
                ``missing.or.null.behavior=fail``; or it chooses a topic that Kafka refuses.
        """
        try:
            routed = self._read(record)
        except AbsentValueError:
            if self._fallback is None and not self._keeps:
                raise
            routed = None
        if routed is not None and routed != "":
            return record.with_topic(self._legal[topic_text(routed), record.topic])
        if self._fallback is not None:
            return record.with_topic(self._fallback)
        if self._keeps:
            return record
        raise ConnectDataError(
            f"{self._source} is missing or null in this record; set {_FALLBACK}, or {MISSING}=keep"
        )

    def _topic(self, both: tuple[str, str | None]) -> str:
        routed, topic = both
        # Both placeholders are replaced at once, because the value that was read may look like a placeholder.
        if topic is None and _TOPIC in self._format:
            raise ConnectDataError(
                f"expected a record with a topic, because {_TOPIC} is configured, found none"
            )
        parts = [part.replace(_TOPIC, topic or "") for part in self._format.split(_ROUTED)]
        return legal_topic(routed.join(parts))


def _of_field(path: str, key: str) -> Callable[[Any], Any]:
    read = FieldReader(path, key)
    return lambda record: read(record.value)


def _of_key_field(path: str, key: str) -> Callable[[Any], Any]:
    read = FieldReader(path, key)
    return lambda record: read(record.key)


def _of_header(name: str, _key: str) -> Callable[[Any], Any]:
    def read(record: Any) -> Any:
        header = record.headers.last_with_name(name)
        return None if header is None else header.value

    return read


def _of_expression(text: str, key: str) -> Callable[[Any], Any]:
    expression = CompiledExpression(text, path=key)
    if expression.result_type not in _NAMING:
        raise ConnectConfigError(
            f"expected an expression that returns text, this one returns {expression.result_type}", path=key
        )
    return expression.evaluate


_NAMING: Final = frozenset({"STRING", "INT", "UINT", "DYN"})
_SOURCES: Final[dict[str, Callable[[str, str], Callable[[Any], Any]]]] = {
    "topic.field": _of_field,
    "topic.key.field": _of_key_field,
    "topic.header": _of_header,
    "topic.expression": _of_expression,
}
"""For each key, makes the function that reads the topic's name."""
