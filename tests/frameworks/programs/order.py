"""Produce one record, and say which classes are in between."""

import sys

from confluent_kafka import Producer

_, servers, topic = sys.argv
producer = Producer({"bootstrap.servers": servers, "log_level": 0})
producer.produce(topic, b"value", partition=0, headers=[])
print(producer.flush(20), *(kind.__module__.split(".")[0] for kind in Producer.__mro__), flush=True)
