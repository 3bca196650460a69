"""Serialize: the step between objects and bytes, for a record's key and its value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import msgspec

from headerware.core.errors import SerdeError, raised_at
from headerware.core.hooks import Interceptor, Place
from headerware.core.options import from_option, kinds
from headerware.serdes.plugins import first_unsignable, open_serde, require_serde, serde_type
from headerware.serdes.serde import PARTS, Part, SerdeContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.context import Context
    from headerware.core.headers import Headers
    from headerware.core.record import Record

    _Function = Callable[[str, Headers, Any], tuple[Any, Headers]]


class Serialize(Interceptor, frozen=True, kw_only=True):
    """Serialize keys and values on send, and deserialize them on consume (KIP-82's extended serdes).

    Steps to the left of it see objects, steps to the right see bytes. The key comes first, and the value's
    serde sees the headers that the key's serde has added.

    Args:
        key: a serde for keys: in configuration its word or table; in code a
            :class:`~headerware.serdes.Serde`, an object with ``serialize`` or ``deserialize``, or a
            serializer or deserializer of confluent-kafka's. None leaves keys as they are.
        value: likewise for values.

    Safe for use by several threads at once if the serdes are; those of Headerware are.
    """

    type: ClassVar[str] = "serialize"
    place: ClassVar[Place | None] = Place.SERIALIZE
    blocks: ClassVar[bool] = True

    key: Annotated[Any, kinds(serde_type)] = None
    value: Annotated[Any, kinds(serde_type)] = None

    def __post_init__(self) -> None:
        for part in PARTS:
            serde = from_option(getattr(self, part), serde_type, path=part)
            require_serde(serde, path=part)
            msgspec.structs.force_setattr(self, part, serde)

    @property
    def unsignable(self) -> str | None:
        """Why it cannot be in a chain that signs, or None if it can."""
        return first_unsignable([self.key, self.value])

    def open(self, context: Context) -> _SerializeStep:
        """Return the hooks for one session."""
        return _SerializeStep(self, context)


class _SerializeStep:
    """The serdes of one client, and the two directions through them."""

    __slots__ = ("_opened", "on_consume", "on_send")

    def __init__(self, options: Serialize, context: Context) -> None:
        self._opened: Final[list[Any]] = []
        functions: dict[Part, Any] = {}
        try:
            for part in PARTS:
                serde = getattr(options, part)
                if serde is not None:
                    own = SerdeContext(part=part, side=context.side, signed=context.signed)
                    functions[part] = open_serde(serde, own, path=part)
                    if functions[part] is not serde:
                        self._opened.append(functions[part])
        except BaseException:
            self.close()
            raise
        self.on_send: Callable[[Record], Record] = _through(
            [_function(functions.get(part), "serialize", part) for part in PARTS]
        )
        self.on_consume: Callable[[Record], Record] = _through(
            [_function(functions.get(part), "deserialize", part) for part in PARTS]
        )

    def close(self) -> None:
        """Close what was opened here; an application's own serdes stay open."""
        for serde in self._opened:
            close = getattr(serde, "close", None)
            if callable(close):
                close()


def _through(functions: list[_Function | None]) -> Callable[[Record], Record]:
    """Return a hook that calls the function for the key, and then the one for the value."""
    of_key, of_value = functions

    def hook(record: Record) -> Record:
        topic, headers, key, value = record.topic, record.headers, record.key, record.value
        if of_key is not None:
            key, headers = of_key(topic, headers, key)
        if of_value is not None:
            value, headers = of_value(topic, headers, value)
        if key is record.key:
            return record.with_value(value, headers)
        return record.replace(key=key, value=value, headers=headers)

    return hook


def _function(serde: Any, name: Literal["serialize", "deserialize"], part: Part) -> _Function | None:
    """Return a serde's function for one direction; its errors say whether it was the key or the value."""
    if serde is None:
        return None
    function: _Function | None = getattr(serde, name, None)

    def guarded(topic: str, headers: Headers, given: Any) -> tuple[Any, Headers]:
        if function is None:
            raise _of(part, SerdeError(f"the {part}'s serde, a {type(serde).__name__}, cannot {name}"))
        try:
            found = function(topic, headers, given)
        except SerdeError as error:
            raise _of(part, error)  # noqa: B904 - it is the same error
        except Exception as error:
            # Only Headerware's own texts never quote a payload.
            problem = (
                f"the {part}'s serde raised {type(error).__name__}{raised_at(error)}; the cause says more"
            )
            raise _of(part, SerdeError(problem)) from error
        if found.__class__ is not tuple or len(found) != 2:
            problem = f"the {part}'s serde returned a {type(found).__name__} from {name}"
            raise _of(part, SerdeError(f"{problem}; expected a pair: what it made, and the headers"))
        return found

    return guarded


def _of(part: Part, error: SerdeError) -> SerdeError:
    error.part = part
    return error
