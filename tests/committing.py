"""Committing what a consumer has stored, whether or not an automatic commit came first."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException


def commit_stored(consumer: Any) -> None:
    """Commit the stored offsets; on a slow machine an automatic commit may have left none to commit."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._NO_OFFSET:
            raise
