"""The transforms that configuration can name; plug-ins are in the group ``headerware.transforms``."""

from __future__ import annotations

from typing import Final

from headerware.connect.catalogue import Catalogue
from headerware.connect.transforms import KAFKA_TRANSFORMS, OWN_TRANSFORMS
from headerware.connect.transforms.base import Transform

GROUP: Final = "headerware.transforms"
_HERE: Final = "headerware.connect.transforms"
_KAFKA: Final = "org.apache.kafka.connect.transforms"

transform_type: Final[Catalogue[Transform]] = Catalogue(
    "transform",
    Transform,
    {
        **{f"{_KAFKA}.{name}": f"{_HERE}.{module}:{name}" for name, module in KAFKA_TRANSFORMS.items()},
        **{name: f"{_HERE}.{module}:{name}" for name, module in OWN_TRANSFORMS.items()},
    },
    GROUP,
    # KIP-145 describes it, but Kafka never shipped it.
    not_in_kafka=frozenset({f"{_KAFKA}.HeaderTo"}),
    other="headerware.connect.predicates.catalogue:predicate_type",
)
"""Load a transform by its name."""
