"""ReplaceField: drop, keep or rename fields (KIP-66, KIP-629).

transforms=tidy
transforms.tidy.type=org.apache.kafka.connect.transforms.ReplaceField$Value
transforms.tidy.exclude=password,address.street
transforms.tidy.renames=id:customer_id
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import DISTINCT, Check, ConfigDef, ConfigKey
from headerware.connect.errors import ConnectConfigError, NullValueError
from headerware.connect.fields.keys import REPLACE_NULL_WITH_DEFAULT, KeysByMode
from headerware.connect.fields.lists import java_split, pairs
from headerware.connect.fields.requirements import require_map
from headerware.connect.modes import STRICT
from headerware.connect.transforms.base import Plan
from headerware.connect.transforms.replace_field_choice import Choice
from headerware.connect.transforms.replace_field_kafka import KafkaChoice
from headerware.connect.transforms.structs import StructTransform

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect.data.schema import Schema
    from headerware.connect.modes import Mode

_PAIR: Final = 2
_PAIRS: Final = "list of colon-delimited pairs, e.g. <code>foo:bar,abc:xyz</code>"


def _refuse_renames(value: Any) -> str | None:
    if value is None:
        raise NullValueError("expected a list of renames, found null")
    wrong = next((pair for pair in value if len(java_split(pair, ":")) != _PAIR), None)
    return None if wrong is None else f"expected pairs like a:b, found {wrong!r}"


_OLD_NAMES: Final = {"blacklist": "exclude", "whitelist": "include"}


def _refuse_old_names(config: Mapping[str, Any]) -> None:
    for name, now in _OLD_NAMES.items():
        if name in config:
            raise ConnectConfigError(f"this is called {now!r} now, and Kafka ignores the old name", path=name)


def _renames(check: Check | None) -> ConfigKey:
    return ConfigKey(
        name="renames", type="LIST", default=[], check=check, doc="Old and new names of fields: old:new."
    )


class ReplaceField(StructTransform):
    """Drop the fields in ``exclude``, keep those in ``include`` alone where there are some, rename others.

    In the strict mode ``a.b`` is the field b in a, which is renamed where it is (``a.b:c``); ``c!`` makes it
    required, ``c?`` optional; a field that a schema does not have is refused, for its name may be misspelt.
    """

    CONFIG: ClassVar[ConfigDef] = KeysByMode(
        ConfigKey(name="exclude", type="LIST", default=[], check=DISTINCT, doc="The fields to drop."),
        ConfigKey(
            name="include", type="LIST", default=[], check=DISTINCT, doc="The fields to keep; all if none."
        ),
        _renames(Check(_PAIRS, _refuse_renames)),
        REPLACE_NULL_WITH_DEFAULT,
        strict=[_renames(None)],
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        if mode == STRICT:
            _refuse_old_names(config or {})
        super().__init__(config, mode=mode)
        options = self.options
        kind = Choice if mode == STRICT else KafkaChoice
        self._choice: Final = kind(
            options["exclude"],
            options["include"],
            pairs(options["renames"], mode, "renames"),
            with_default=options[REPLACE_NULL_WITH_DEFAULT.name],
        )

    def schemaless(self, value: Any, record: Any) -> dict[Any, Any]:
        """Return a dict of what is left.

        Raises:
            ConnectDataError: this is no dict, or two fields would get one name.
            ValueClassError: a name is no text, in ``kafka_4_3``.
        """
        del record
        return self._choice.of_dict(require_map(value, "the choice of fields"))

    def plan(self, schema: Schema) -> Plan:
        """Say what is left of structs of a schema.

        Raises:
            ConnectDataError: there is no such field.
            SchemaBuilderError: two fields would get one name.
        """
        updated, apply = self._choice.of_schema(schema)
        return Plan(updated, lambda struct, _: apply(struct))
