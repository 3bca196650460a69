"""Avro's binary encoding by fastavro, within limits, and with errors that quote no payload.

Dicts are written as they are. msgspec converts dataclasses, Structs, attrs classes, enumerations and sets to
builtin types, at the top or inside of dicts and lists. Bytes, datetimes, dates, times, decimals and UUIDs
stay as they are, because Avro has logical types for them. Fields have the names that msgspec encodes; fields
that a Struct with ``omit_defaults`` leaves out get the schema's defaults.
"""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Mapping
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import msgspec
from fastavro import schemaless_reader, schemaless_writer
from fastavro.validation import ValidationError, validate

from headerware.core.errors import SerdeError
from headerware.core.suggestions import closest
from headerware.serdes.avro.defaults import default_values, has_mutable_default
from headerware.serdes.avro.dropped_fields import dropped_fields_warner, is_due
from headerware.serdes.avro.limits import survey, walk_object, walk_payload
from headerware.serdes.avro.value_checks import LossyValueError, value_check
from headerware.serdes.confluent.framing import PREFIX_BYTES
from headerware.serdes.formats.refusals import WRITER_ADVICE

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.serdes.avro.schema import AvroSchema

_CONTAINER: Final = b"Obj\x01"
_SHOWN_PROBLEMS: Final = 3
_NEARLY_EQUAL: Final = 0.8
"""How alike names must be; a name that is less alike may be a part of the payload."""
_KEPT: Final = (
    bytes,
    bytearray,
    memoryview,
    dt.datetime,
    dt.date,
    dt.time,
    dt.timedelta,
    decimal.Decimal,
    uuid.UUID,
)
_DIRECT: Final = frozenset({dict, list, tuple, str, int, float, bool, *_KEPT})
"""The types whose objects fastavro takes as they are."""


def writer(schema: AvroSchema, *, strict: bool = False) -> Callable[[Any], bytes]:
    """Return a function that writes objects by a schema, and refuses objects that do not fit or are too big.

    If it is strict, it also refuses an object with a field that the schema does not have, or without a field
    that has no default; otherwise such a field is left out, with a warning, or written as null.
    """
    tree = schema.with_defaults().tree
    safe_bytes = schema.shape.safe_bytes(schema.limits)
    checks = _checks(schema)
    write_by, buffer, direct = schemaless_writer, BytesIO, _DIRECT
    warn_of_dropped, looks = dropped_fields_warner(schema), is_due()

    def write(value: Any, *, converted: bool = False) -> bytes:
        if converted or value.__class__ in direct:
            try:
                for check in checks:
                    check(value)
                out = buffer()
                if strict:
                    write_by(out, tree, value, strict_allow_default=True)
                else:
                    write_by(out, tree, value)
                    if looks():
                        warn_of_dropped(value)
                payload = out.getvalue()
                if len(payload) > safe_bytes:  # a reader with these limits might refuse it
                    walk_payload(payload, tree, schema.named, schema.limits)
            except SerdeError:
                raise
            except Exception as error:  # noqa: BLE001 - fastavro raises errors of many types
                if converted:
                    raise _unfit(
                        value, schema, error, strict=strict
                    ) from None  # the cause may quote the object
            else:
                return payload
        return write_plain(value)

    def write_plain(value: Any) -> bytes:
        try:
            return write(_plain(value), converted=True)
        except SerdeError:
            raise
        except RecursionError:
            raise SerdeError("the object is nested too deeply, or contains itself") from None
        except Exception as error:  # noqa: BLE001 - msgspec raises errors of several types
            raise _unfit(value, schema, error, strict=strict) from None  # the cause may quote the object

    return write


def reader(schema: AvroSchema, wanted: AvroSchema | None = None) -> Callable[..., Any]:
    """Return a function that reads payloads that were written by a schema, resolved to the reader's schema.

    It takes a payload and the position at which Avro begins. It refuses payloads that are truncated, too
    long, not of this schema or beyond its limits.
    """
    tree = schema.tree
    wanted_tree = (
        None if wanted is None or wanted.canonical == schema.canonical else wanted.with_defaults().tree
    )
    resolved = {} if wanted is None or wanted_tree is None else wanted.named
    shares, per_record = has_mutable_default(resolved), default_values(resolved)
    shape = survey(tree, schema.named, schema.limits, per_record) if per_record else schema.shape
    safe_bytes = shape.safe_bytes(schema.limits)
    # fastavro skips fields that the reader's schema leaves out, even after the end. Then it reads this byte.
    fence = b"" if wanted_tree is None else b"\0"
    read_by, buffer = schemaless_reader, BytesIO

    def read(payload: bytes, start: int = 0) -> Any:
        if len(payload) > safe_bytes:
            walk_payload(payload, tree, schema.named, schema.limits, start=start, per_record=per_record)
        source = buffer(payload + fence)
        if start:
            source.seek(start)
        try:
            value = read_by(source, tree, wanted_tree)
        except Exception as error:  # noqa: BLE001 - fastavro raises errors of many types
            raise SerdeError(_unreadable(error, payload, start)) from None  # the cause may quote the payload
        left = len(payload) - source.tell()
        if left < 0:
            raise SerdeError(_unreadable(EOFError(), payload, start))
        if left:
            raise SerdeError(_hinted(f"the payload has {left} more bytes after its end", payload, start))
        return _plain(value) if shares else value  # a copy, because its defaults belong to the schema

    return read


def format_hint(payload: bytes, start: int = 0) -> str:
    """Return a hint at the format of a payload that is not bare Avro, or an empty text."""
    if payload[start : start + 4] == _CONTAINER:
        return "it begins like an Avro object container file; a record carries one bare Avro value"
    if start == 0 and payload[:1] == b"\x00" and len(payload) >= PREFIX_BYTES:
        return "it may begin with Confluent's prefix, which needs a store of type 'registry'"
    return ""


def _checks(schema: AvroSchema) -> tuple[Callable[[Any], None], ...]:
    """Return the checks of objects before they are written."""
    deep = partial(walk_object, limits=schema.limits) if schema.shape.recursive else None
    return tuple(check for check in (deep, value_check(schema.tree, schema.named)) if check is not None)


_UNREADABLE: Final[tuple[tuple[type[Exception], str], ...]] = (
    (EOFError, "the payload is truncated: its schema needs more bytes" + WRITER_ADVICE),
    (UnicodeDecodeError, "the payload holds text that is not UTF-8"),
    (IndexError, "the payload names a branch or symbol that its schema does not have"),
    (OverflowError, "the payload holds a number beyond its type's range"),
)


def _unreadable(error: Exception, payload: bytes, start: int) -> str:
    kind = type(error).__name__
    if kind == "SchemaResolutionError":
        return "the writer's schema does not resolve to the reader's, in which a type or a default is missing"
    told = next((text for known, text in _UNREADABLE if isinstance(error, known)), None)
    return _hinted(told or f"the payload cannot be read by its schema ({kind})", payload, start)


def _hinted(problem: str, payload: bytes, start: int) -> str:
    hint = format_hint(payload, start)
    return f"{problem}; {hint}" if hint else problem


def _unfit(value: Any, schema: AvroSchema, error: Exception, *, strict: bool) -> SerdeError:
    """Return an error that says where an object does not fit, without quoting the value."""
    shown = f"schema {schema.name!r}" if schema.name else "the schema"
    absent: dict[str, str] = {}
    try:
        plain = _plain(value)
        absent = _absent(plain, schema, strict=strict)
        validate(plain, schema.tree, raise_errors=True)
    except ValidationError as found:
        problems = _problems(found, absent)
        if problems:
            return SerdeError(f"the object does not fit {shown}: {'; '.join(problems[:_SHOWN_PROBLEMS])}")
    except Exception:  # noqa: BLE001, S110 - then only the first error is known
        pass
    reason = type(error).__name__
    if isinstance(error, LossyValueError):
        reason = str(error) or reason
    elif strict and isinstance(error, ValueError):
        reason = "strict: it has a field that the schema does not have, or lacks a field without a default"
        reason = "; ".join([reason, *absent.values()][: 1 + _SHOWN_PROBLEMS])
    return SerdeError(f"the object, of type {type(value).__name__}, does not fit {shown} ({reason})")


def _absent(value: Any, schema: AvroSchema, *, strict: bool) -> dict[str, str]:
    """Describe the fields without a default that the object for a record lacks, by their full names.

    Of the object's other fields, only one that is nearly equal is named: any other may quote the payload.
    """
    tree = schema.tree
    if not (isinstance(tree, dict) and tree["type"] == "record" and isinstance(value, Mapping)):
        return {}
    names = {field["name"]: "default" in field for field in tree["fields"]}
    others = [name for name in value if isinstance(name, str) and name not in names]
    found, advice = {}, "" if strict else " (strict refuses such a field in any record)"
    for name, has_default in names.items():
        if name not in value and not has_default:
            near = closest(name, others, cutoff=_NEARLY_EQUAL)
            instead = f", and has {near!r}, which the schema lacks{advice}"
            found[f"{schema.name}.{name}"] = f"it lacks {name!r}{instead if near else ''}"
    return found


def _problems(found: ValidationError, absent: Mapping[str, str]) -> list[str]:
    """Describe each field once, with all branches of a union."""
    expected: dict[tuple[str, str], list[str]] = {}
    for problem in found.errors:
        if hasattr(problem, "schema"):
            field = (problem.field or "the object", type(problem.datum).__name__)
            expected.setdefault(field, []).append(_kind(problem.schema))
    return [
        absent[field]
        if kind == "NoneType" and field in absent
        else f"{field} is of type {kind} and beyond the range of {wanted[-1]}"
        if kind == "int" and wanted[-1].split()[0] in {"int", "long"}
        else f"{field} is of type {kind}, expected {' or '.join(wanted)}"
        for (field, kind), wanted in expected.items()
    ]


def _kind(node: Any) -> str:
    if isinstance(node, list):
        return " or ".join(map(_kind, node))
    if isinstance(node, str):
        return node
    kind = node.get("name", node["type"])
    return f"{kind} ({node['logicalType']})" if "logicalType" in node else str(kind)


def _plain(value: Any) -> Any:
    """Convert an object to builtin types, deeply.

    Raise TypeError for a type that msgspec cannot convert, RecursionError for an object that contains itself.
    """
    return msgspec.to_builtins(value, builtin_types=_KEPT)
