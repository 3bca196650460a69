"""An application with workers that writes down what it has processed; it runs until SIGTERM, or a kill.

python workers.py SERVERS TOPIC LOG
"""

import os
import signal
import sys
import time

from confluent_kafka import Message

from headerware import Consumer

servers, topic, log = sys.argv[1:]
consumer = Consumer(
    {
        "bootstrap.servers": servers,
        "group.id": topic,
        "group.instance.id": "the-only-one",  # who comes back under this name need not wait for the dead one
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 100,
        "headerware.processing": "explicit",
    }
)
consumer.subscribe([topic])
lines = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)


def handle(message: Message) -> None:
    time.sleep(0.01)
    os.write(lines, b"%d %d %s\n" % (message.partition() or 0, message.offset() or 0, message.key() or b""))


signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
os.write(lines, b"started\n")
consumer.run(handle, workers=8)
consumer.close()
