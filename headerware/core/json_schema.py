"""Make JSON Schemas of configuration files, with which editors complete and check them.

msgspec makes the schema of each class of options; this module adds the documentation of the options, the
types that have options of their own, and what files may have in place of a value: references to environment
variables, and lists as text.

A schema accepts every file that Headerware reads. It also accepts some files that Headerware refuses, because
not every check of options can be written as a schema, and because another file or the client may give an
interceptor the options that are missing.

Types are checked by ``if`` and ``else``, so that an error names the wrong option; with ``oneOf``, validators
only say that none of the types fits. Editors such as taplo complete only from ``anyOf``, so each check by
``if`` also has an ``anyOf`` for them; its last alternative is the empty schema, so it refuses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final, get_args, get_type_hints

import msgspec

from headerware.core.errors import HeaderwareError
from headerware.core.option_docs import option_docs, summary
from headerware.core.options import is_a_list, lookup_of, values_of
from headerware.core.plugins import Catalogue, interceptor_type

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_VARIABLE: Final[Schema] = {"type": "string", "pattern": r"\$\{env:"}
"""A text that refers to a variable of the environment; nobody knows its value before the file is read."""
_REFERENCE: Final = "#/$defs/{name}"
_NOT_IN_NAMES: Final = re.compile(r"[^\w.-]")


def chain_schema() -> Schema:
    """Return the schema of the TOML file of a chain (:mod:`headerware.core.files`)."""
    made = _Definitions(has_variables=True)
    tables = {"type": "array", "items": made.ref("interceptor", partial(_interceptor, made))}
    properties = {
        "include": _described(
            "The files that are read first, in this order; this file adds to them.",
            {"type": ["string", "array"], "items": _TEXT},
        ),
        "carry": _described(
            "The names of headers, and patterns of names, that go on from a record that is processed to the "
            "records that are sent meanwhile; false carries on nothing.",
            {
                "type": ["array", "string", "boolean"],
                "items": {"type": ["string", "integer"]},
                "not": {"const": True},
            },
        ),
        "interceptors": _described("The interceptors, in the order of sending.", tables),
        "stacks": _described(
            "Named lists of interceptors; `stack` inserts one.",
            {
                "type": "object",
                "additionalProperties": {
                    "type": "object",
                    "properties": {"interceptors": tables},
                    "additionalProperties": False,
                },
            },
        ),
        "last_line": _described("The last line of this file, without which it is refused as cut off.", _TEXT),
    }
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return made.document("A chain: its interceptors, in the order of sending.", schema)


def options_schema(kind: type[msgspec.Struct]) -> Schema:
    """Return the schema of a file that :func:`headerware.core.options.options_from` reads."""
    return _file_of(kind, has_variables=True)


def values_schema(kind: type[msgspec.Struct]) -> Schema:
    """Return the schema of a file that :func:`headerware.core.options.table_from` reads."""
    return _file_of(kind, has_variables=False)


def _file_of(kind: type[msgspec.Struct], *, has_variables: bool) -> Schema:
    made = _Definitions(has_variables=has_variables)
    return made.document(summary(kind), made.table(kind))


def _interceptor(made: _Definitions) -> Schema:
    stack = {
        "type": "object",
        "properties": {
            "stack": _described("The name of a stack, whose interceptors stand here.", _TEXT),
        },
        "additionalProperties": False,
    }
    table = made.ref(
        interceptor_type.what,
        partial(made.by_type, interceptor_type, _word(interceptor_type), are_complete=False),
    )
    return {
        "if": {"type": "object", "required": ["stack"]},
        "then": stack,
        "else": table,
        **_any_of(stack, table),
    }


class _Definitions:
    """The definitions that a schema refers to.

    Args:
        has_variables: whether the file may refer to variables of the environment, and have lists as text.
    """

    def __init__(self, *, has_variables: bool) -> None:
        self._has_variables: Final = has_variables
        self._found: Final[dict[str, Schema]] = {}
        self._names: Final[dict[type, str]] = {}
        """The names of the definitions of Structs."""

    def document(self, description: str, schema: Schema) -> Schema:
        """Return a complete schema."""
        return {"$schema": DIALECT, **_described(description, schema), "$defs": self._found}

    def ref(self, name: str, make: Callable[[], Schema]) -> Schema:
        """Return a reference to a definition; make the definition at its first use."""
        key = _NOT_IN_NAMES.sub("_", name)
        if key not in self._found:
            self._found[key] = {}  # a definition may refer to itself
            self._found[key] = make()
        return {"$ref": _REFERENCE.format(name=key)}

    def table(self, kind: type[msgspec.Struct], *, is_complete: bool = True) -> Schema:
        """Return the schema of a table of options; all of them may be missing unless it is complete."""
        hints = get_type_hints(kind, include_extras=True)
        structs = [kind, *dict.fromkeys(part for hint in hints.values() for part in _structs_in(hint))]
        # The references have the order of the classes, and msgspec's names of them.
        references, found = msgspec.json.schema_components(structs, ref_template="{name}")
        names = {each["$ref"]: struct for each, struct in zip(references, structs, strict=True)}

        def refer(name: str) -> Schema:
            return self._struct(names[name]) if name in names else self.ref(name, partial(dict, found[name]))

        bases = found[references[0]["$ref"]]["properties"]
        properties = {}
        for doc in option_docs(kind):
            default = {} if doc.default is None else {"default": doc.default}
            option = self._option(_with_references(bases[doc.name], refer), hints[doc.name])
            properties[doc.name] = _described(doc.text, {**option, **default})
        required = {"required": _required(kind)} if is_complete and _required(kind) else {}
        return {"type": "object", "properties": properties, **required, "additionalProperties": False}

    def _struct(self, kind: type[msgspec.Struct]) -> Schema:
        """Return a reference to the schema of a Struct; only the first class of a name has the short name."""
        if kind not in self._names:
            is_taken = kind.__name__ in self._found
            self._names[kind] = f"{kind.__module__}.{kind.__qualname__}" if is_taken else kind.__name__
        return self.ref(self._names[kind], partial(self.table, kind))

    def by_type(self, lookup: Catalogue[Any], word: Schema, *, are_complete: bool = True) -> Schema:
        """Return the schema of a table of ``type`` and the options of this type."""
        tables = {
            name: self.ref(f"{_kind_name(lookup)}.{name}", partial(self._typed, lookup, name, are_complete))
            for name in lookup.names()
        }
        return {
            "type": "object",
            "properties": {"type": word},
            "required": ["type"],
            **_cases(lookup, tables),
            **_any_of(*tables.values()),
        }

    def _typed(self, lookup: Catalogue[Any], name: str, is_complete: bool) -> Schema:  # noqa: FBT001 - a flag of by_type
        try:
            kind: type[msgspec.Struct] = lookup(name)
        except (HeaderwareError, ImportError) as error:  # it cannot be loaded here
            return {"description": str(error)}
        table = self.table(kind, is_complete=is_complete)
        of_type = _described(summary(kind), _type_word(lookup, name))
        required = ["type", *table.get("required", ())]
        return {**table, "properties": {"type": of_type, **table["properties"]}, "required": required}

    def _option(self, base: Schema, hint: Any) -> Schema:
        """Return the schema of an option; ``base`` is the schema that msgspec made."""
        if (lookup := lookup_of(hint)) is not None:
            return self._choice(lookup)
        if (lookup := lookup_of(values_of(hint))) is not None:
            return {"type": "object", "additionalProperties": self._choice(lookup)}
        schema = _in_a_file(base)
        if is_a_list(hint):
            if (lookup := lookup_of(_item_of(hint))) is not None:
                schema["items"] = self._choice(lookup)
            elif "items" in schema:
                schema["items"] = self._or_variable(schema["items"])
            return {**schema, "type": ["array", "string"]} if self._has_variables else schema
        if isinstance(schema.get("additionalProperties"), dict):
            return {**schema, "additionalProperties": self._or_variable(schema["additionalProperties"])}
        return self._or_variable(schema)

    def _choice(self, lookup: Any) -> Schema:
        """Return the schema of an option with options of its own: a word, or a table of type and options."""
        return (
            self.ref(_kind_name(lookup), partial(self._word_or_table, lookup))
            if hasattr(lookup, "names")
            else {}
        )

    def _word_or_table(self, lookup: Catalogue[Any]) -> Schema:
        word = self._or_variable(_word(lookup))
        table = self.ref(f"table of {_kind_name(lookup)}", partial(self.by_type, lookup, word))
        return {"if": _TEXT, "then": word, "else": table, **_any_of(word, table)}

    def _or_variable(self, schema: Schema) -> Schema:
        """Accept a reference to a variable, too, where the schema does not accept every text."""
        types = schema.get("type", "string")
        has_text = "string" in ([types] if isinstance(types, str) else types)
        accepts_text = has_text and not _LIMITS & schema.keys()
        if accepts_text or not self._has_variables:
            return schema
        return {"if": _VARIABLE, "else": schema, **_any_of(schema)}


_LIMITS: Final = frozenset({"enum", "pattern", "minLength", "maxLength", "format", "anyOf", "$ref"})


def _word(lookup: Catalogue[Any]) -> Schema:
    names = {"enum": list(lookup.names())}
    if not lookup.any_case:
        return names
    pattern = "|".join(_any_case(name) for name in lookup.names())
    return {"type": "string", "pattern": f"^(?:{pattern})$", **_any_of(names)}


def _type_word(lookup: Catalogue[Any], name: str) -> Schema:
    """Return the schema of the word for one type."""
    if not lookup.any_case:
        return {"const": name}
    return {"type": "string", "pattern": f"^{_any_case(name)}$", **_any_of({"const": name})}


def _any_case(word: str) -> str:
    """Return a pattern of a word in upper and lower case; schemas have no option that ignores case."""
    return "".join(f"[{each.lower()}{each.upper()}]" if each.isalpha() else re.escape(each) for each in word)


def _cases(lookup: Catalogue[Any], tables: dict[str, Schema]) -> Schema:
    """Return a schema that applies to each table the schema of its type."""
    cases: Schema = {}
    for name, schema in reversed(tables.items()):
        case = {
            "if": {"properties": {"type": _type_word(lookup, name)}, "required": ["type"]},
            "then": schema,
        }
        cases = {**case, "else": cases} if cases else case
    return cases


def _any_of(*schemas: Schema) -> Schema:
    """Return a part of a schema that refuses nothing, and from which editors complete."""
    return {"anyOf": [*schemas, {}]}


def _described(text: str, schema: Schema) -> Schema:
    return {"description": text, **schema} if text else schema


def _required(kind: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind) if field.required]


def _kind_name(lookup: Catalogue[Any]) -> str:
    return lookup.what.removesuffix(" type")


def _item_of(hint: Any) -> Any:
    return next(iter(get_args(hint)), None)


def _structs_in(hint: Any) -> list[type[msgspec.Struct]]:
    """Return the Structs in a type."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return [hint]
    return [found for part in get_args(hint) for found in _structs_in(part)]


def _with_references(schema: Any, refer: Callable[[str], Schema]) -> Any:
    """Return a schema of msgspec with other references in place of its own, which are plain names."""
    if isinstance(schema, list):
        return [_with_references(part, refer) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {**schema, **refer(schema["$ref"])}
    return {key: _with_references(part, refer) for key, part in schema.items()}


def _in_a_file(schema: Schema) -> Schema:
    """Return a schema of msgspec as files need it: TOML has no null, and Decimal is a number."""
    if schema.get("format") == "decimal":
        return {"type": ["number", "string"]}
    found = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    if "pattern" in found:
        found["pattern"] = found["pattern"].replace(r"\Z", "$")  # only Python has \Z
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict):
            found[key] = _in_a_file(found[key])
    parts = [_in_a_file(part) for part in schema.get("anyOf", ()) if part != {"type": "null"}]
    return {**found, **_either(parts)}


def _either(parts: list[Schema]) -> Schema:
    """Return the schema of several alternatives, as one schema where this is possible, for better errors."""
    if not parts:
        return {}
    if any("enum" in part for part in parts) and all("enum" in part or part == _BOOLEAN for part in parts):
        return {"enum": [value for part in parts for value in part.get("enum", (True, False))]}
    keys = [key for part in parts for key in part if key != "type"]
    if all(isinstance(part.get("type"), str) for part in parts) and len(keys) == len(set(keys)):
        types = [part["type"] for part in parts]
        merged = {key: value for part in parts for key, value in part.items()}
        return {**merged, "type": types if len(types) > 1 else types[0]}
    return parts[0] if len(parts) == 1 else {"anyOf": parts}


_BOOLEAN: Final[Schema] = {"type": "boolean"}
