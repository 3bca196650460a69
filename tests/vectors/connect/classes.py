"""The classes that cases name: Kafka's, as this package has them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar, Final

from headerware.connect.config import Configured
from headerware.connect.converters.base import Converter, HeaderConverter
from headerware.connect.converters.catalogue import converter_type, header_converter_type
from headerware.connect.errors import ConnectError, UnknownClassError, ValueClassError
from headerware.connect.modes import KAFKA_4_3
from headerware.connect.predicates.base import Predicate
from headerware.connect.predicates.catalogue import predicate_type
from headerware.connect.transforms.base import Transform
from headerware.connect.transforms.catalogue import transform_type
from tests.vectors.connect.nodes import as_text, member

_TRANSFORMS: Final = "org.apache.kafka.connect.transforms."
_PREDICATES: Final = _TRANSFORMS + "predicates."
_CONVERTERS: Final = "org.apache.kafka.connect.converters."
_WHOLE: Final = ("org.", "io.", "com.")
_KEPT: Final = 256
_HEADER_CONVERTERS: Final = {
    "Simple": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
    "String": "org.apache.kafka.connect.storage.StringConverter",
    "Json": "org.apache.kafka.connect.json.JsonConverter",
}
_NOT_FOR_US: Final = frozenset(
    {_TRANSFORMS + "Transformation", _PREDICATES + "Predicate", _CONVERTERS + "NumberConverter"}
)


class NoConstructorError(ConnectError):
    """A class that has no constructor for us: an interface, or one that others extend."""

    java: ClassVar[str] = "java.lang.NoSuchMethodException"


def _loaded(name: str, *catalogues: Callable[..., type[Any]]) -> type[Any]:
    """Return the class of a Java name, of the first catalogue that has it."""
    if name in _NOT_FOR_US:
        raise NoConstructorError("Kafka makes no object of this")
    *others, last = catalogues
    for catalogue in others:
        try:
            return catalogue(name, mode=KAFKA_4_3)
        except UnknownClassError:
            continue
    return last(name, mode=KAFKA_4_3)


def _class_of(name: str, base: type[Configured]) -> type[Any]:
    """Return the transform or predicate of a name as a case writes it."""
    found = _loaded(name if name.startswith(_WHOLE) else _TRANSFORMS + name, transform_type, predicate_type)
    if not issubclass(found, base):
        raise ValueClassError(f"{found.__name__} is no {base.__name__}")
    return found


def config_of(node: Any) -> dict[str, str | None]:
    """Read a configuration: all values are text, or null."""
    return {key: None if value is None else as_text(value) for key, value in (node or {}).items()}


_made: OrderedDict[str, Any] = OrderedDict()


def _kept(what: str, case: dict[str, Any], make: Callable[[], Any]) -> Any:
    """Return what the same configuration made before, as the oracle does, so that its cost is that of use."""
    key = f"{what} {case.get('class')} {case.get('converter')} {case.get('config')}"
    made = _made.get(key)
    if made is None:
        made = _made[key] = make()
        if len(_made) > _KEPT:
            _made.popitem(last=False)
    return made


def transform_of(case: dict[str, Any]) -> Transform:
    """Make the transform that a case names."""

    def make() -> Any:
        kind = _class_of(as_text(member(case, "class")), Transform)
        return kind(config_of(case.get("config")), mode=KAFKA_4_3)

    made: Transform = _kept("transform", case, make)
    return made


def predicate_of(case: dict[str, Any]) -> Predicate:
    """Make the predicate that a case names."""
    name = as_text(member(case, "class"))
    kind = _class_of(name if name.find(".") > 0 else f"predicates.{name}", Predicate)
    made: Predicate = kind(config_of(case.get("config")), mode=KAFKA_4_3)
    return made


def described(case: dict[str, Any]) -> type[Configured]:
    """Return the class whose configuration a case asks for."""
    return _class_of(as_text(member(case, "class")), Configured)


def header_converter_of(case: dict[str, Any]) -> HeaderConverter:
    """Make the header converter that a case names."""

    def make() -> Any:
        word = as_text(case.get("converter", "Simple"))
        name = _HEADER_CONVERTERS.get(word, word if "." in word else f"{_CONVERTERS}{word}Converter")
        config = {"converter.type": "header", **config_of(case.get("config"))}
        return _loaded(name, header_converter_type)(config, mode=KAFKA_4_3)

    made: HeaderConverter = _kept("header converter", case, make)
    return made


def converter_of(case: dict[str, Any]) -> Converter:
    """Make the converter of keys or values that a case names."""
    name = as_text(case.get("class", _HEADER_CONVERTERS["Json"]))
    config = {**config_of(case.get("config")), "converter.type": "key" if case.get("isKey") else "value"}
    made: Converter = _loaded(name, converter_type)(config, mode=KAFKA_4_3)
    return made
