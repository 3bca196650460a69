"""Read all topics as an ordinary consuming application, and go on when a record is refused."""

import hashlib
import json
import logging
import sys
import time

from confluent_kafka import KafkaError

from headerware import Consumer  # instead of: from confluent_kafka import Consumer

logging.disable(logging.WARNING)  # each cause of a refusal is also logged once, and run.py shows all causes

servers, expected, *topics = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
consumer = Consumer(
    {
        "bootstrap.servers": servers,
        "client.id": "billing",
        "group.id": f"billing-{time.time_ns()}",
        "auto.offset.reset": "earliest",
    }
)
consumer.subscribe(topics)
deadline, seen = time.monotonic() + 90, 0
while seen < expected and time.monotonic() < deadline:
    message = consumer.poll(1)
    if message is None:
        continue
    if message.error() is not None:
        refused = message.error().code() == KafkaError._BAD_MSG  # noqa: SLF001 - a public code
        seen += refused
        print(json.dumps({"refused" if refused else "error": message.error().str()}), flush=True)
        continue
    seen += 1
    headers = [(name, None if value is None else value.hex()) for name, value in message.headers() or []]
    digest = hashlib.sha256(message.value()).hexdigest()
    line = {"topic": message.topic(), "bytes": len(message.value()), "sha256": digest, "headers": headers}
    print(json.dumps(line), flush=True)
consumer.close()
