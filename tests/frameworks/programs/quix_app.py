"""A streaming application of Quix Streams, as its documentation has it."""

import sys

from quixstreams import Application

_, servers, incoming, outgoing = sys.argv
app = Application(
    broker_address=servers, consumer_group="words", auto_offset_reset="earliest", loglevel="WARNING"
)
source = app.topic(incoming, value_deserializer="json")
sink = app.topic(outgoing, value_serializer="json")

with app.get_producer() as producer:
    message = source.serialize(key="a", value={"text": "two words"})
    producer.produce(source.name, message.value, message.key)

frame = app.dataframe(source)
frame = frame.apply(lambda value: {"words": len(value["text"].split())})
frame = frame.to_topic(sink)
app.run(count=1, timeout=60)
