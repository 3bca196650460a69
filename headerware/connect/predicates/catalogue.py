"""The predicates that configuration can name; plug-ins are in the group ``headerware.predicates``."""

from __future__ import annotations

from typing import Final

from headerware.connect.catalogue import Catalogue
from headerware.connect.predicates import KAFKA_PREDICATES, OWN_PREDICATES
from headerware.connect.predicates.base import Predicate

_HERE: Final = "headerware.connect.predicates"
_KAFKA: Final = "org.apache.kafka.connect.transforms.predicates"

predicate_type: Final[Catalogue[Predicate]] = Catalogue(
    "predicate",
    Predicate,
    {
        **{f"{_KAFKA}.{name}": f"{_HERE}.{module}:{name}" for name, module in KAFKA_PREDICATES.items()},
        **{name: f"{_HERE}.{module}:{name}" for name, module in OWN_PREDICATES.items()},
    },
    "headerware.predicates",
    other="headerware.connect.transforms.catalogue:transform_type",
)
"""Load a predicate by its name."""
