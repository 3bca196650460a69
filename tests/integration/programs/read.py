"""The loop that people write around a consumer, in some of its forms; ends at the end of the partition.

python read.py SERVERS TOPIC GROUP CONFIG CHAIN LOOP CALL LOG

CONFIG is the chain's file. CHAIN is "code" or "configuration", LOOP what the program does with an error,
CALL "poll", "consume" or "deserializing". It closes nothing, for not every application does.
"""

import json
import os
import sys
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from headerware import Consumer, DeserializingConsumer, load_chain

servers, topic, group, config, chain, loop, call, log = sys.argv[1:]
settings = {
    "bootstrap.servers": servers,
    "group.id": group,
    "group.instance.id": "the-only-one",  # who comes back under this name need not wait for the dead one
    "auto.offset.reset": "earliest",
    "enable.partition.eof": True,
}
lines = open(log, "a", encoding="utf-8")  # noqa: PTH123, SIM115 - a program of few words


def note(**line: object) -> None:
    lines.write(json.dumps(line) + "\n")
    lines.flush()
    os.fsync(lines.fileno())


def main() -> None:
    own = {**settings, **({"headerware.config": config} if chain == "configuration" else {})}
    kind = DeserializingConsumer if call == "deserializing" else Consumer
    consumer = kind(own, chain=load_chain(config) if chain == "code" else None)
    consumer.subscribe([topic])
    note(started=True)
    while True:
        if call == "consume":
            messages = consumer.consume(10, 1.0)
        else:
            messages = [message for message in [consumer.poll(1.0)] if message is not None]
        for message in messages:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return
            if error is not None and loop != "unchecked":
                note(error=error.str(), code=error.name(), offset=message.offset())
                if loop == "raise":
                    raise KafkaException(error)
                continue
            value: Any = message.value()  # None for an error, which an unchecked loop dies of
            note(value=value.decode(), offset=message.offset())


try:
    main()
except Exception as failure:
    if "PARTITION_EOF" in str(failure):  # which a deserializing consumer raises
        sys.exit(0)
    note(died=type(failure).__name__, reason=str(failure))
    raise
