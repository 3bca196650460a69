"""Serde errors as confluent-kafka knows them: what our serdes raise in its clients.

Importing this module imports confluent_kafka. Both classes pickle as other Headerware errors do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka.serialization import SerializationError

from headerware.core.errors import SerdeError, UnknownSchemaError

if TYPE_CHECKING:
    from headerware.serdes.serde import Part


class ConfluentSerdeError(SerdeError, SerializationError):
    """A :class:`~headerware.SerdeError` that is confluent-kafka's ``SerializationError``, too."""


class ConfluentUnknownSchemaError(UnknownSchemaError, ConfluentSerdeError):
    """An :class:`~headerware.UnknownSchemaError` that is confluent-kafka's ``SerializationError``, too."""


def as_confluent(error: SerdeError, part: Part) -> ConfluentSerdeError:
    """Return a serde's error as one that is confluent-kafka's, too; raise it from the error itself.

    Args:
        error: what a serde raised.
        part: which part of the record it was for.
    """
    kind = ConfluentUnknownSchemaError if isinstance(error, UnknownSchemaError) else ConfluentSerdeError
    made = kind(error.message)
    made.__dict__.update(error.__dict__, part=part)
    return made
