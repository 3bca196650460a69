"""A consuming application with dedup: writes down what it was given, and commits; runs until it is killed.

python deliver_once.py SERVERS TOPIC PARTITION GROUP STORE LOG

Each line of LOG is on disk before the program goes on, and begins anew whatever became of the one before.
"""

import json
import os
import sys

from confluent_kafka import TopicPartition

from headerware import Consumer

servers, topic, partition, group, store, log = sys.argv[1:]
consumer = Consumer(
    {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "interceptors": "dedup",
        "interceptors.dedup.store": store,
    }
)
consumer.assign([TopicPartition(topic, int(partition))])
with open(log, "a", encoding="utf-8") as lines:  # noqa: PTH123 - a program of few words
    while True:
        for message in consumer.consume(20, 0.1):
            if message.error() is not None:
                raise SystemExit(str(message.error()))
            value = (message.value() or b"").decode()
            lines.write("\n" + json.dumps([value, message.partition(), message.offset()]))
            lines.flush()
            os.fsync(lines.fileno())
            consumer.commit(message, asynchronous=False)
