"""An application whose chain refuses each record, and keeps it as a dead letter; it runs until it is killed.

python refuse.py SERVERS TOPIC
"""

import sys

from confluent_kafka import TopicPartition

from headerware import Chain, Consumer, Interceptor, InterceptorError, Record


class Refuses(Interceptor, frozen=True, kw_only=True):
    """Refuses every record."""

    def on_consume(self, record: Record) -> Record:
        raise InterceptorError("no")


servers, topic = sys.argv[1:]
settings = {
    "bootstrap.servers": servers,
    "group.id": topic,
    "auto.offset.reset": "earliest",
    "auto.commit.interval.ms": 20,
}
consumer = Consumer(
    settings, chain=Chain([Refuses(on_error="dead_letter", dead_letter_headers="headerware")])
)
consumer.assign([TopicPartition(topic, 0)])  # a new process need not wait for the group
while True:
    assert not consumer.consume(50, 0.1)
