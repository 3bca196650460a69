"""Send records as an ordinary producing application: only the import of Producer is Headerware's."""

import json
import sys

from confluent_kafka import KafkaError, Message
from data import large_file, records
from request import within_a_request

from headerware import Producer  # instead of: from confluent_kafka import Producer

servers, prefix, size = sys.argv[1], sys.argv[2], sys.argv[3]
failed: list[str] = []
JSON = {"content-type": "application/json"}


def delivered(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        failed.append(f"{message.topic()}: {error}")


with within_a_request():
    producer = Producer({"bootstrap.servers": servers, "client.id": "orders", "linger.ms": 5})
    sent = 0
    for topic, key, value in records():
        producer.produce(prefix + topic, value, key, headers=JSON, callback=delivered)
        producer.poll(0)
        sent += 1
    path = large_file(size)
    producer.produce(prefix + "files", path.read_bytes(), path.name, callback=delivered)
    producer.flush()
    sent += 1

print(json.dumps({"sent": sent, "failed": failed, "stats": producer.stats()}))
