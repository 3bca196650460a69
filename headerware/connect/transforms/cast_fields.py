"""Change the values of some fields, and keep the rest of a struct: what Cast and TimestampConverter share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from headerware.connect.data.schema import Field, Schema, SchemaBuilder
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectDataError
from headerware.connect.fields.copying import copier, may_be_null, null_in_required
from headerware.connect.fields.requirements import require_struct
from headerware.connect.fields.rewrites import Change, Edits, rewrite
from headerware.connect.modes import KAFKA_4_3, STRICT
from headerware.connect.transforms.base import Plan

_MOST_KNOWN = 64
E = TypeVar("E")
"""What is to be done to a field."""


def fields_plan(
    schema: Schema,
    change: Callable[[Field], Change],
    *,
    with_default: bool,
    purpose: str,
    of_default: Callable[[Any], Any] | None = None,
) -> Plan:
    """Compile what Kafka does to a struct's fields; whether the struct may be null, and its default, stay.

    Args:
        schema: the struct's schema.
        change: says what becomes of each field.
        with_default: whether nulls become their field's default.
        purpose: what for, for errors.
        of_default: gives the new default of the struct's own; where None, it is changed as any value is.

    Raises:
        ConnectDataError: this is no struct, or the default cannot be changed.
    """
    fields = schema.fields
    changes = [change(field) for field in fields]
    builder = SchemaBuilder.like(schema)
    for made in changes:
        builder.field(made.name, made.schema)
    if schema.optional:
        builder.optional()
    updated = builder.build()
    convert = _converter(fields, changes, with_default=with_default)
    own = own_structs(schema, purpose)
    if schema.default is not None:
        default = of_default(schema.default) if of_default else convert(updated, schema.default)
        updated = builder.default(default).build()

    def apply(value: Any, _: Any) -> Struct:
        return convert(updated, own(value))

    return Plan(updated, apply)


def _converter(
    fields: tuple[Field, ...], changes: list[Change], *, with_default: bool
) -> Callable[[Schema, Struct], Struct]:
    copy = copier(
        fields,
        [made.schema for made in changes],
        mode=KAFKA_4_3,
        with_default=with_default,
        unchecked=range(len(fields)),
    )
    work = [(at, made.apply) for at, made in enumerate(changes) if made.apply is not None]
    required = {at for at, made in enumerate(changes) if not may_be_null(made.schema, KAFKA_4_3)}

    def convert(schema: Schema, struct: Struct) -> Struct:
        values = copy(struct.values)
        if None in values:
            # Field by field, so that the first one that is wrong is the one that is named.
            for at, value in enumerate(values):
                function = changes[at].apply
                made = values[at] = value if function is None else function(value)
                if made is None and at in required:
                    raise null_in_required(changes[at].name)
        else:
            for at, function in work:
                values[at] = function(values[at])
        return Struct.trusted(schema, values)

    return convert


def exact_fields_plan(
    schema: Schema,
    edits: Edits[E],
    change: Callable[[Field, E], Change],
    *,
    with_default: bool,
    purpose: str,
) -> Plan:
    """Compile what the strict mode does to the fields at some paths.

    Args:
        schema: the struct's schema.
        edits: the paths, and what is to be done there.
        change: says what becomes of a field.
        with_default: whether nulls become their field's default.
        purpose: what for, for errors.

    Raises:
        ConnectDataError: a path leads to no field.
    """
    rewritten = rewrite(schema, edits, change, mode=STRICT, with_default=with_default)
    own = own_structs(schema, purpose)
    return Plan(rewritten.schema, lambda value, _: rewritten.apply(own(value)))


def own_structs(schema: Schema, purpose: str) -> Callable[[Any], Struct]:
    """Return a function that passes structs of a schema, and refuses anything else with a ConnectDataError.

    Args:
        schema: the schema, which is the record's.
        purpose: what for, for errors.
    """
    # Schemas that were found to be equal, with themselves so that their identities stay theirs.
    known = {id(schema): schema}

    def own(value: Any) -> Struct:
        struct = require_struct(value, purpose)
        found = struct.schema
        if id(found) not in known:
            if found != schema:
                raise ConnectDataError(
                    f"expected a struct of {schema} for {purpose}, as the record says, found one of {found}"
                )
            if len(known) >= _MOST_KNOWN:
                known.clear()
            known[id(found)] = found
        return struct

    return own
