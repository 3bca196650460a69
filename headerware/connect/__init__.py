"""Kafka Connect in Python: records, headers, configuration and pipelines (KIP-145, KIP-66, KIP-585).

Each name has one home: the transforms are in :mod:`headerware.connect.transforms`, the predicates in
:mod:`headerware.connect.predicates`, the converters in :mod:`headerware.connect.converters`, schemas and
structs in :mod:`headerware.connect.data`, conversions of values in :mod:`headerware.connect.values`. Each is
loaded when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.lazy import lazy

if TYPE_CHECKING:
    from headerware.connect.config import Check as Check
    from headerware.connect.config import ConfigDef as ConfigDef
    from headerware.connect.config import ConfigKey as ConfigKey
    from headerware.connect.errors import ConnectConfigError as ConnectConfigError
    from headerware.connect.errors import ConnectDataError as ConnectDataError
    from headerware.connect.errors import ConnectError as ConnectError
    from headerware.connect.errors import ConversionError as ConversionError
    from headerware.connect.headers import ConnectHeader as ConnectHeader
    from headerware.connect.headers import ConnectHeaders as ConnectHeaders
    from headerware.connect.modes import Mode as Mode
    from headerware.connect.pipeline import Pipeline as Pipeline
    from headerware.connect.pipeline import Stage as Stage
    from headerware.connect.pipeline import StageError as StageError
    from headerware.connect.properties import parse_connector as parse_connector
    from headerware.connect.properties import parse_properties as parse_properties
    from headerware.connect.records import ConnectRecord as ConnectRecord
    from headerware.connect.records import SinkRecord as SinkRecord
    from headerware.connect.records import SourceRecord as SourceRecord
    from headerware.connect.records import TimestampType as TimestampType
    from headerware.connect.wire_records import from_connect as from_connect
    from headerware.connect.wire_records import to_connect as to_connect

_HOMES: Final = {
    "Check": "config",
    "ConfigDef": "config",
    "ConfigKey": "config",
    "ConnectConfigError": "errors",
    "ConnectDataError": "errors",
    "ConnectError": "errors",
    "ConnectHeader": "headers",
    "ConnectHeaders": "headers",
    "ConnectRecord": "records",
    "ConversionError": "errors",
    "Mode": "modes",
    "Pipeline": "pipeline",
    "SinkRecord": "records",
    "SourceRecord": "records",
    "Stage": "pipeline",
    "StageError": "pipeline",
    "TimestampType": "records",
    "from_connect": "wire_records",
    "parse_connector": "properties",
    "parse_properties": "properties",
    "to_connect": "wire_records",
}
__all__ = sorted(_HOMES)  # noqa: PLE0605 - a list, made of the table

_load: Final = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return [*__all__]
