"""Serialize: the step between objects and bytes, for a record's key and its value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import msgspec

from headerware.core.errors import HeldBackError, SerdeError, raised_at
from headerware.core.hooks import Interceptor, Place
from headerware.core.options import from_option, kinds
from headerware.serdes.plugins import first_unsignable, open_serde, require_serde, serde_type
from headerware.serdes.serde import PARTS, Part, SerdeContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.context import Context
    from headerware.core.headers import Headers
    from headerware.core.record import Record
    from headerware.core.record_run import RecordRun

    _Function = Callable[[str, Headers, Any], tuple[Any, Headers]]
    _Hook = Callable[[Record], Record]
    _RunHook = Callable[[RecordRun], RecordRun | None]


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
    def idle(self) -> str | None:
        """Why it does nothing, or None if it does something."""
        if self.key is None and self.value is None:
            return (
                "it has a serde neither for keys nor for values, so it does nothing; set key, value or both"
            )
        return None

    @property
    def unsignable(self) -> str | None:
        """Why it cannot be in a chain that signs, or None if it can."""
        return first_unsignable([self.key, self.value])

    def open(self, context: Context) -> _SerializeStep:
        """Return the hooks for one session."""
        return _SerializeStep(self, context)


class _SerializeStep:
    """The serdes of one client, and the two directions through them."""

    __slots__ = ("_opened", "on_consume", "on_send", "send_run")

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
        self.on_send: _Hook = _through(functions, "serialize")
        self.send_run: _RunHook | None = _run_through(functions)
        self.on_consume: _Hook = _through(functions, "deserialize")

    def close(self) -> None:
        """Close what was opened here; an application's own serdes stay open."""
        for serde in self._opened:
            close = getattr(serde, "close", None)
            if callable(close):
                close()


def _through(serdes: dict[Part, Any], name: Literal["serialize", "deserialize"]) -> _Hook:
    """Return a hook that calls the function for the key, and then the one for the value.

    Errors say which of the two it was.
    """
    of_key, of_value = (_function(serdes.get(part), name, part) for part in PARTS)

    def hook(record: Record) -> Record:
        topic, headers, key, value = record.topic, record.headers, record.key, record.value
        part: Part = "key"
        try:
            if of_key is not None:
                found = of_key(topic, headers, key)
                if found.__class__ is not tuple or len(found) != 2:
                    raise _no_pair(found, part, name)  # noqa: TRY301 - a call costs more than a look
                key, headers = found
            part = "value"
            if of_value is not None:
                found = of_value(topic, headers, value)
                if found.__class__ is not tuple or len(found) != 2:
                    raise _no_pair(found, part, name)  # noqa: TRY301 - a call costs more than a look
                value, headers = found
        except SerdeError as error:
            raise _of(part, error)  # noqa: B904 - it is the same error
        except HeldBackError:
            raise
        except Exception as error:
            # Only Headerware's own texts never quote a payload.
            problem = (
                f"the {part}'s serde raised {type(error).__name__}{raised_at(error)}; the cause says more"
            )
            raise _of(part, SerdeError(problem)) from error
        if key is record.key:
            return record.with_value(value, headers)
        return record.replace(key=key, value=value, headers=headers)

    return hook


def _run_through(serdes: dict[Part, Any]) -> _RunHook | None:
    """Return the same for runs, if all serdes take many values at once."""
    of_key, of_value = (_for_many(serdes.get(part)) for part in PARTS)
    if (of_key is None and "key" in serdes) or (of_value is None and "value" in serdes):
        return None

    def hook(run: RecordRun) -> RecordRun | None:
        headers, keys, values = run.headers, run.keys, run.values
        if of_key is not None:
            keys, headers = of_key(run.topic, headers, keys)
        if of_value is not None:
            values, headers = of_value(run.topic, headers, values)
        return run.having(headers, keys, values)

    return hook


def _for_many(serde: Any) -> Any:
    """Return what a serde serializes many values with; None where ``serialize`` is newer than that."""
    for kind in type(serde).__mro__:
        if "serialize_many" in vars(kind):
            return serde.serialize_many
        if "serialize" in vars(kind):
            return None
    return None


def _function(serde: Any, name: Literal["serialize", "deserialize"], part: Part) -> _Function | None:
    """Return a serde's function for one direction; one that it has not is an error for each record."""
    if serde is None:
        return None
    function: _Function | None = getattr(serde, name, None)

    def missing(*_: Any) -> tuple[Any, Headers]:
        raise SerdeError(f"the {part}'s serde, a {type(serde).__name__}, cannot {name}")

    return missing if function is None else function


def _no_pair(found: object, part: Part, name: str) -> SerdeError:
    return SerdeError(
        f"the {part}'s serde returned a {type(found).__name__} from {name}; expected a pair: what it made, "
        "and the headers"
    )


def _of(part: Part, error: SerdeError) -> SerdeError:
    error.part = part
    return error
