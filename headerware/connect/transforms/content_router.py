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
from headerware.connect.modes import STRICT
from headerware.connect.predicates.conditions import MISSING
from headerware.connect.predicates.field_matches import FieldReader
from headerware.connect.transforms.base import Transform
from headerware.connect.transforms.topics import legal_topic, legal_topic_option, topic_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headerware.connect.modes import Mode

_ROUTED: Final = "${routed}"
_TOPIC: Final = "${topic}"
_FORMAT: Final = "topic.format"
_FALLBACK: Final = "topic.fallback"


class ContentRouter(Transform):
    """Send each record to the topic that it names itself.

    One of ``topic.field`` (of the value), ``topic.key.field``, ``topic.header`` and ``topic.expression`` says
    what names it; ``topic.format`` what is made of that, where ``${routed}`` is it, and ``${topic}`` the
    topic that the record comes with. What is missing, null or empty goes to ``topic.fallback`` where there
    is one; else ``missing.or.null.behavior`` refuses it or keeps the topic that it has. A name that Kafka
    does not take, or that begins with two underscores as Kafka's internal topics do, is refused.
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
                "topic.expression": "The expression that chooses the topic; null where it chooses none.",
            }.items()
        ),
        ConfigKey(
            name=_FORMAT,
            type="STRING",
            default=_ROUTED,
            doc="The topic's name, in which ${routed} is what was read, and ${topic} the record's own topic.",
        ),
        ConfigKey(
            name=_FALLBACK,
            type="STRING",
            default=None,
            doc="The topic where what was read is missing or null.",
        ),
        ConfigKey(
            name=MISSING,
            type="STRING",
            default="fail",
            check=one_of("fail", "keep"),
            doc="What becomes of a record that chooses no topic, where there is no fallback.",
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
                f"expected {_ROUTED} in it, or all records go to one topic", path=_FORMAT
            )
        fallback = self.options[_FALLBACK]
        self._fallback: Final = None if fallback is None else legal_topic_option(fallback, _FALLBACK)
        self._keeps: Final = self.options[MISSING] == "keep"
        self._legal: dict[tuple[str, str | None], str] = {}

    def apply(self, record: Any) -> Any:
        """Return the record for its topic.

        Raises:
            ConnectDataError: it chooses no topic, and that is an error, or one that Kafka does not take.
        """
        try:
            routed = self._read(record)
        except AbsentValueError:
            if self._fallback is None and not self._keeps:
                raise
            routed = None
        if routed is not None and routed != "":
            return record.with_topic(self._topic(topic_text(routed), record.topic))
        if self._fallback is not None:
            return record.with_topic(self._fallback)
        if self._keeps:
            return record
        raise ConnectDataError(
            f"{self._source} gives nothing for this record; {_FALLBACK} and {MISSING} say what to do then"
        )

    def _topic(self, routed: str, topic: str | None) -> str:
        known = self._legal.get((routed, topic))
        if known is None:
            if len(self._legal) >= _NAMES:
                self._legal = {}
            # Filled in at one go: what was read may look like a placeholder.
            if topic is None and _TOPIC in self._format:
                raise ConnectDataError(
                    f"expected a record with a topic, for {_TOPIC} is configured; found none"
                )
            parts = [part.replace(_TOPIC, topic or "") for part in self._format.split(_ROUTED)]
            known = self._legal[routed, topic] = legal_topic(routed.join(parts))
        return known


_NAMES: Final = 1024
"""The names that are kept; a flood of them must not fill the memory."""


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
            f"expected an expression that gives a text, this one gives {expression.result_type}", path=key
        )
    return expression.evaluate


_NAMING: Final = frozenset({"STRING", "INT", "UINT", "DYN"})
_SOURCES: Final[dict[str, Callable[[str, str], Callable[[Any], Any]]]] = {
    "topic.field": _of_field,
    "topic.key.field": _of_key_field,
    "topic.header": _of_header,
    "topic.expression": _of_expression,
}
"""Makes what reads the topic's name, by its key."""
