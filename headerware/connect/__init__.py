"""Kafka Connect in Python: records, headers, configuration and pipelines (KIP-145, KIP-66, KIP-585).

Each name has one home: the transforms are in :mod:`headerware.connect.transforms`, the predicates in
:mod:`headerware.connect.predicates`, the converters in :mod:`headerware.connect.converters`, schemas and
structs in :mod:`headerware.connect.data`, conversions of values in :mod:`headerware.connect.values`. Each is
loaded when it is first used.

Provisional: a minor release may change the names of this package (docs/stability.md).
"""

from headerware.core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__)
