"""A plain consuming application: writes down what it was given, and commits; runs until it is killed.

python deliver.py SERVERS TOPIC GROUP LOG manual|auto

Each line of LOG is on disk before the program goes on: what was delivered, and what was committed.
"""

import hashlib
import json
import os
import sys

from headerware import Consumer

servers, topic, group, log, commits = sys.argv[1:]
consumer = Consumer(
    {
        "bootstrap.servers": servers,
        "group.id": group,
        "group.instance.id": "the-only-one",  # who comes back under this name need not wait for the dead one
        "auto.offset.reset": "earliest",
        "enable.auto.commit": commits == "auto",
        "auto.commit.interval.ms": 100,
        "interceptors": "slice",
    }
)
consumer.subscribe([topic])
with open(log, "a", encoding="utf-8") as lines:  # noqa: PTH123 - a program of few words

    def note(**line: object) -> None:
        lines.write(json.dumps(line) + "\n")
        lines.flush()
        os.fsync(lines.fileno())

    note(started=os.getpid())
    while True:
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error() is not None:
            raise SystemExit(str(message.error()))
        value = message.value() or b""
        name = value[:8].decode()
        note(delivered=name, offset=message.offset(), sha256=hashlib.sha256(value).hexdigest())
        if commits == "manual":
            consumer.commit(message, asynchronous=False)
            note(committed=name)
