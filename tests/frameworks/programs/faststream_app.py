"""A service of FastStream, as its documentation has it."""

import asyncio
import sys

from faststream import FastStream
from faststream.confluent import KafkaBroker

_, servers, incoming, outgoing = sys.argv
broker = KafkaBroker(servers, allow_auto_create_topics=False)
app = FastStream(broker)
answered = asyncio.Event()


@broker.subscriber(incoming, group_id="orders", auto_offset_reset="earliest")
@broker.publisher(outgoing)
async def confirm(order: str) -> str:
    return f"confirmed {order}"


@broker.subscriber(outgoing, group_id="customers", auto_offset_reset="earliest")
async def receive(text: str) -> None:
    print(text, flush=True)
    answered.set()


async def main() -> None:
    async with broker:
        await broker.start()
        await broker.publish("order 1", topic=incoming, headers={"tenant": "north"})
        await asyncio.wait_for(answered.wait(), 40)


asyncio.run(main())
