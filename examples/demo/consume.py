"""An ordinary consuming application: it reads all topics, and goes on when a record is refused."""

import hashlib
import json
import sys
import time

from headerware import Consumer, HeaderwareError  # instead of: from confluent_kafka import Consumer

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
    try:
        message = consumer.poll(1)
    except HeaderwareError as refused:
        seen += 1
        print(json.dumps({"refused": str(refused)}), flush=True)
        continue
    if message is None:
        continue
    if message.error() is not None:
        print(json.dumps({"error": str(message.error())}), flush=True)
        continue
    seen += 1
    headers = [(name, None if value is None else value.hex()) for name, value in message.headers() or []]
    digest = hashlib.sha256(message.value()).hexdigest()
    line = {"topic": message.topic(), "bytes": len(message.value()), "sha256": digest, "headers": headers}
    print(json.dumps(line), flush=True)
consumer.close()
