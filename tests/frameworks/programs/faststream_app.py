"""A service of FastStream, as its documentation has it, with a middleware that carries on."""

import asyncio
import sys

from faststream import BaseMiddleware, FastStream
from faststream.confluent import KafkaBroker

from headerware import carrying

_, servers, incoming, outgoing = sys.argv


class CarryOn(BaseMiddleware):
    async def on_receive(self) -> None:
        self.block = carrying(self.msg)  # FastStream polls on another thread
        self.block.__enter__()

    async def after_processed(self, *error: object) -> None:
        self.block.__exit__(*error)


broker = KafkaBroker(servers, allow_auto_create_topics=False, middlewares=[CarryOn])
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
