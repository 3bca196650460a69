"""Serialize: the step between objects and bytes, for a record's key and its value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import msgspec

from headerware.core.batch import Batch, HeaderColumns, Repeated
from headerware.core.boundary import is_own
from headerware.core.errors import HeldBackError, SerdeError, raised_at
from headerware.core.headers import Headers, HeaderValue, Pair
from headerware.core.hooks import Interceptor, Place
from headerware.core.interrupts import pass_on_interrupt
from headerware.core.options import from_option, kinds
from headerware.serdes.plugins import first_unsignable, open_serde, require_serde, serde_type
from headerware.serdes.serde import PARTS, Part, SerdeContext

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headerware.core.context import Context
    from headerware.core.record import Record

    _Function = Callable[[str, Headers, Any], tuple[Any, Headers]]
    _Hook = Callable[[Record], Record]
    _Varying = list[tuple[Pair, Sequence[HeaderValue]]]  # the first record's pair, and all records' values
    _BatchHook = Callable[[Batch], Batch]


class Serialize(Interceptor, frozen=True, kw_only=True):
    """Serialize keys and values on send, and deserialize them on consume (KIP-82's extended serdes).

    Steps to the left of this step see objects; steps to the right see bytes. The key is handled before the
    value, so the value's serde sees the headers that the key's serde has added.

    Args:
        key: a serde for keys: in configuration, its type or a table; in code, a
            :class:`~headerware.serdes.Serde`, an object with ``serialize`` or ``deserialize``, or a
            serializer or deserializer of confluent-kafka. None leaves keys as they are.
        value: a serde for values, in the same forms.

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
        """The reason why the step does nothing, or None if it has a serde."""
        if self.key is None and self.value is None:
            return (
                "it has a serde neither for keys nor for values, so it does nothing; set key, value or both"
            )
        return None

    @property
    def unsignable(self) -> str | None:
        """The reason why a chain that signs cannot have this step, or None if it can."""
        return first_unsignable([self.key, self.value])

    def open(self, context: Context) -> _SerializeStep:
        """Return the hooks for one session."""
        return _SerializeStep(self, context)


class _SerializeStep:
    """The opened serdes of one client, with a hook for each direction."""

    __slots__ = ("_opened", "on_consume", "on_send", "on_send_batch")

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
        self.on_send_batch: _BatchHook | None = _through_many(functions)
        self.on_consume: _Hook = _through(functions, "deserialize")

    def close(self) -> None:
        """Close the serdes that were opened here; an application's own serdes stay open."""
        for serde in self._opened:
            close = getattr(serde, "close", None)
            if callable(close):
                close()


def _through(serdes: dict[Part, Any], name: Literal["serialize", "deserialize"]) -> _Hook:
    """Return a hook that calls the key's serde, then the value's serde.

    An error states which of the two raised it.
    """
    of_key, of_value = (_function(serdes.get(part), name, part) for part in PARTS)

    def hook(record: Record) -> Record:
        topic, headers, key, value = record.topic, record.headers, record.key, record.value
        part: Part = "key"
        try:
            if of_key is not None:
                found = of_key(topic, headers, key)
                if found.__class__ is not tuple or len(found) != 2:
                    raise _no_pair(found, part, name)  # noqa: TRY301 - a call costs more than the check
                key, headers = found
            part = "value"
            if of_value is not None:
                found = of_value(topic, headers, value)
                if found.__class__ is not tuple or len(found) != 2:
                    raise _no_pair(found, part, name)  # noqa: TRY301 - a call costs more than the check
                value, headers = found
        except SerdeError as error:
            raise _of(part, error)  # noqa: B904 - the same error is raised again
        except HeldBackError:
            raise
        except Exception as error:
            # The text of a foreign exception may quote a payload, so the message names only its type.
            problem = (
                f"the {part}'s serde raised {type(error).__name__}{raised_at(error)}; the cause says more"
            )
            raise _of(part, SerdeError(problem)) from error
        if key is record.key:
            return record.with_value(value, headers)
        return record.replace(key=key, value=value, headers=headers)

    return hook


def _through_many(serdes: dict[Part, Any]) -> _BatchHook | None:
    """Return the hook for batches, or None unless all serdes serialize many values at once.

    The hook leaves all records to the hook for single records if their headers differ, or if a serde refuses
    any record; the hook for single records then finds the refused record.
    """
    of_key, of_value = (_for_many(serdes.get(part)) for part in PARTS)
    if (of_key is None and "key" in serdes) or (of_value is None and "value" in serdes):
        return None

    def hook(batch: Batch) -> Batch:
        shared = _shared_headers(batch)
        if shared is None:
            return batch.leave()
        before, varying = shared
        headers, keys, values = before, batch.keys, batch.values
        try:
            if of_key is not None:
                keys, headers = of_key(batch.topic, headers, list(keys))
            if of_value is not None:
                values, headers = of_value(batch.topic, headers, list(values))
        except Exception as error:  # noqa: BLE001 - the hook for single records raises it for its record
            pass_on_interrupt(error)
            return batch.leave()
        if not len(keys) == len(values) == len(batch):
            return batch.leave()
        if headers is before:
            return batch.replace(keys=keys, values=values)
        columns = _columns_of(headers, varying, len(batch))
        return batch.leave() if columns is None else batch.replace(keys=keys, values=values, headers=columns)

    return hook


def _shared_headers(batch: Batch) -> tuple[Headers, _Varying] | None:
    """Return the first record's headers, and the header that varies among the records, if any.

    Return None if several headers vary, or if a header varies that is not one of Headerware's own.
    """
    headers = batch.headers
    if not isinstance(headers, HeaderColumns):
        first = headers[0]
        return (first, []) if isinstance(headers, Repeated) or headers.count(first) == len(batch) else None
    pairs: list[Pair] = []
    varying: _Varying = []
    for name, values in headers.columns:
        pairs.append((name, values[0]))
        if not isinstance(values, Repeated):
            varying.append((pairs[-1], values))
    if len(varying) > 1 or not all(is_own(pair[0]) for pair, _ in varying):
        return None
    return Headers.trusted(pairs), varying


def _columns_of(headers: Headers, varying: _Varying, count: int) -> HeaderColumns | None:
    """Return the headers that a serde made for the first record as columns for all records.

    Return None if the serde changed the header that varies.
    """
    columns: list[tuple[str, Sequence[HeaderValue]]] = []
    for pair in headers:
        values = next((values for mine, values in varying if mine is pair), None)
        columns.append((pair[0], Repeated(pair[1], count) if values is None else values))
    kept = [values for _, values in columns if not isinstance(values, Repeated)]
    return HeaderColumns(columns, count) if len(kept) == len(varying) else None


def _for_many(serde: Any) -> Any:
    """Return ``serialize_many``; None if the serde lacks it or a subclass overrides only ``serialize``."""
    for kind in type(serde).__mro__:
        if "serialize_many" in vars(kind):
            return serde.serialize_many
        if "serialize" in vars(kind):
            return None
    return None


def _function(serde: Any, name: Literal["serialize", "deserialize"], part: Part) -> _Function | None:
    """Return a serde's function for one direction, or one that raises SerdeError if the serde lacks it."""
    if serde is None:
        return None
    function: _Function | None = getattr(serde, name, None)

    def missing(*_: Any) -> tuple[Any, Headers]:
        raise SerdeError(f"the {part}'s serde, a {type(serde).__name__}, cannot {name}")

    return missing if function is None else function


def _no_pair(found: object, part: Part, name: str) -> SerdeError:
    return SerdeError(
        f"the {part}'s serde returned a {type(found).__name__} from {name}; expected a pair of the result "
        "and the headers"
    )


def _of(part: Part, error: SerdeError) -> SerdeError:
    error.part = part
    return error
