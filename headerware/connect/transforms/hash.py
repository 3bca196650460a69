"""Hash: replace fields by their digests.

transforms=hash
transforms.hash.type=Hash$Value
transforms.hash.field.name=email,customer.phone
transforms.hash.function=sha256
transforms.hash.secret=${env:PEPPER}
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import ConfigDef, ConfigKey, StrictConfig, one_of
from headerware.connect.data.numbers import Int8, Int16, Int32
from headerware.connect.data.schema import Schema, Type
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.fields.paths import parse_path
from headerware.connect.fields.rewrites import Change, Edits, rewrite, rewrite_dict
from headerware.connect.fields.structs import require_map
from headerware.connect.modes import STRICT
from headerware.connect.transforms.base import PartTransform, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headerware.connect.data.schema import Field
    from headerware.connect.modes import Mode

_FUNCTIONS: Final = ("sha256", "sha384", "sha512", "sha3_256", "sha3_384", "sha3_512")
_ENCODINGS: Final[dict[str, Callable[[bytes], str]]] = {
    "hex": bytes.hex,
    "base64": lambda digest: b64encode(digest).decode(),
}
_HIDDEN: Final = "[hidden]"
_TYPES: Final = frozenset({Type.STRING, Type.BYTES, Type.INT8, Type.INT16, Type.INT32, Type.INT64})


class Hash(PartTransform):
    """Replace fields, or the key or value itself, by their digests, as text.

    Text is hashed as UTF-8, bytes as they are, integers as their decimal digits; other values are refused.
    With a ``secret`` the digest is an HMAC: without the secret, nobody can find, for example, a phone number
    in a table of the digests of all phone numbers. A ``salt`` is only put before each value. MD5 and SHA-1
    are not offered, because they are broken.
    """

    CONFIG: ClassVar[ConfigDef] = StrictConfig(
        ConfigKey(
            name="field.name",
            type="LIST",
            default=[],
            importance="HIGH",
            doc="The fields to hash, as a.b; by default the key or value itself.",
        ),
        ConfigKey(
            name="function",
            type="STRING",
            importance="HIGH",
            check=one_of(*_FUNCTIONS),
            doc="The hash function.",
        ),
        ConfigKey(name="secret", type="PASSWORD", default=None, doc="The key of an HMAC."),
        ConfigKey(name="salt", type="PASSWORD", default=None, doc="A text that is put before each value."),
        ConfigKey(
            name="encoding",
            type="STRING",
            default="hex",
            check=one_of(*_ENCODINGS),
            doc="How a digest is written as text.",
        ),
        ConfigKey(
            name="skip.missing.or.null",
            type="BOOLEAN",
            default=False,
            doc="Whether to skip a missing or null value; otherwise it is refused.",
        ),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        paths = [parse_path(text, STRICT, "field.name") for text in self.options["field.name"]]
        self._edits: Final = Edits([(path, path.text) for path in paths], "field.name")
        self._skips: Final[bool] = self.options["skip.missing.or.null"]
        self._digest: Final = _digest(self.options)
        # Hide both from code that shows the options.
        for name in ("secret", "salt"):
            if self.options[name] is not None:
                self.options[name] = _HIDDEN

    def null(self, record: Any, schema: Schema | None) -> Any:
        """Return the record as it is, unless its key or value itself is to be hashed.

        Raises:
            ConnectDataError: a null is to be hashed, and not to be skipped.
        """
        del schema
        # A tombstone has no fields that could be seen.
        if not self._edits.paths and not self._skips:
            raise _missing(f"the {self.part}")
        return record

    def schemaless(self, value: Any, record: Any) -> Any:
        """Return the value with the digests.

        Raises:
            ConnectDataError: a field is missing, or cannot be hashed.
        """
        del record
        if not self._edits.paths:
            return self._hashed(value, f"the {self.part}")
        fields = require_map(value, "the fields to hash")
        if not self._skips:
            for path in self._edits.paths:
                if path.from_dict(fields) is None:
                    raise _missing(f"the field {path.text!r}")
        return rewrite_dict(fields, self._edits.root, self._hashed_field)

    def plan(self, schema: Schema) -> Plan:
        """Return the plan for the values of a schema.

        Raises:
            ConnectDataError: a field is missing, or cannot be hashed.
        """
        if not self._edits.paths:
            made = _text_schema(schema, f"the {self.part}")
            return Plan(made, lambda value, _: self._hashed(value, f"the {self.part}"))
        if schema.type is not Type.STRUCT:
            raise ConnectDataError(f"expected a struct for the fields to hash, found {schema.type.value}")
        edits = self._edits.present_in(schema) if self._skips else self._edits
        work = rewrite(schema, edits, self._changed, mode=STRICT)
        # `work` does not reach fields in a struct that is null.
        nested = [] if self._skips else [path for path in edits.paths if len(path.steps) > 1]
        getters = [(path.getter(schema), path.text) for path in nested]

        def apply(value: Any, _record: Any) -> Any:
            struct = self._same.struct(value, schema, "the fields to hash")
            for get, text in getters:
                if get(struct) is None:
                    raise _missing(f"the field {text!r}")
            return work.apply(struct)

        return Plan(work.schema, apply)

    def _changed(self, field: Field, text: str) -> Change:
        where = f"the field {text!r}"
        return Change(
            field.name, _text_schema(field.schema, where), lambda value: self._hashed_field(value, text)
        )

    def _hashed_field(self, value: Any, text: str) -> str | None:
        if value is not None:
            return self._hashed(value, f"the field {text!r}")
        if self._skips:
            return None
        raise _missing(f"the field {text!r}")

    def _hashed(self, value: Any, where: str) -> str:
        if isinstance(value, str):
            return self._digest(_utf8(value, where))
        if isinstance(value, bytes | bytearray | memoryview):
            return self._digest(bytes(value))
        if type(value) in _INTEGERS:
            return self._digest(str(int(value)).encode())
        found = type(value).__name__
        raise ConnectDataError(
            f"expected text, bytes or an integer to hash for {where}, found a value of class {found}"
        )


_INTEGERS: Final = frozenset({int, Int8, Int16, Int32})


def _digest(options: Mapping[str, Any]) -> Callable[[bytes], str]:
    function, encode = options["function"], _ENCODINGS[options["encoding"]]
    secret, salt = options["secret"], options["salt"]
    if secret is not None and salt is not None:
        raise ConnectConfigError("expected a secret or a salt, found both", path="salt")
    if "" in {secret, salt}:
        name = "secret" if secret == "" else "salt"
        raise ConnectConfigError("expected a text that is not empty", path=name)
    if secret is not None:
        key = secret.encode()
        return lambda data: encode(hmac.digest(key, data, function))
    prefix = (salt or "").encode()
    new = getattr(hashlib, function)
    return lambda data: encode(new(prefix + data).digest())


def _utf8(value: str, where: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise ConnectDataError(f"{where} is a text that UTF-8 cannot encode") from None


def _text_schema(schema: Schema, where: str) -> Schema:
    """Return the schema of a field's digest, without the name of the field's logical type, such as a UUID."""
    if schema.type not in _TYPES or (schema.name is not None and schema.type is not Type.STRING):
        raise ConnectDataError(f"expected text, bytes or an integer to hash for {where}, found {schema}")
    if schema.type is Type.STRING and schema.name is None and schema.default is None:
        return schema
    return Schema(Type.STRING, optional=schema.optional, doc=schema.doc)


def _missing(where: str) -> ConnectDataError:
    return ConnectDataError(f"{where} is missing or null; set skip.missing.or.null=true to skip it")
