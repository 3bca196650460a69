"""librdkafka's local error codes; confluent-kafka writes them with an underscore, though they are public."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError

BAD_MSG: Final = KafkaError._BAD_MSG  # noqa: SLF001 - a public code, see above
APPLICATION: Final = KafkaError._APPLICATION  # noqa: SLF001
INVALID_ARG: Final = KafkaError._INVALID_ARG  # noqa: SLF001
KEY_DESERIALIZATION: Final = KafkaError._KEY_DESERIALIZATION  # noqa: SLF001
KEY_SERIALIZATION: Final = KafkaError._KEY_SERIALIZATION  # noqa: SLF001
NO_OFFSET: Final = KafkaError._NO_OFFSET  # noqa: SLF001
QUEUE_FULL: Final = KafkaError._QUEUE_FULL  # noqa: SLF001
RETRY: Final = KafkaError._RETRY  # noqa: SLF001
STATE: Final = KafkaError._STATE  # noqa: SLF001
TIMED_OUT: Final = KafkaError._TIMED_OUT  # noqa: SLF001
UNKNOWN_TOPIC: Final = KafkaError._UNKNOWN_TOPIC  # noqa: SLF001
VALUE_DESERIALIZATION: Final = KafkaError._VALUE_DESERIALIZATION  # noqa: SLF001
VALUE_SERIALIZATION: Final = KafkaError._VALUE_SERIALIZATION  # noqa: SLF001
