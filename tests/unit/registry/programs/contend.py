"""A writer among several: applies changes to a registry in a topic as fast as it can.

python contend.py SERVERS TOPIC NAME ROUNDS

Says "ready", waits for a line, then tries in each round to get an id, a name and a block that the others
want as well, and says what became of each; at last, it says what it makes of the whole.
"""

import json
import sys
from ipaddress import IPv4Network

from headerware.core.errors import RegistryError
from headerware.core.header_ids import HeaderId
from headerware.registry import Allocate, Block, Change, Entry, Register
from headerware.registry.stores.topic import TopicStore

DAY = "2026-01-31"
servers, topic, me, rounds = sys.argv[1:]


def entry(number: int, name: str) -> Register:
    return Register(
        Entry(
            id=HeaderId(number), name=name, owner="shop", encoding="bytes", description="a header", since=DAY
        ),
        "shop",
    )


def say(**line: object) -> None:
    print(json.dumps(line), flush=True)  # noqa: T201 - what the test reads


conf = {"bootstrap.servers": servers, "fetch.wait.max.ms": 20, "log_level": 0}
with TopicStore(conf, topic) as store:
    store.load()
    say(ready=me)
    sys.stdin.readline()
    private = int(HeaderId("0.1.128.0")) + 256 * (sum(me.encode()) % 128)
    for number in range(int(rounds)):
        wanted: dict[str, Change] = {
            f"id {number}": entry(int(HeaderId("0.1.0.0")) + number, f"{me}-{number}"),
            f"name {number}": entry(private + number, f"shared-{number}"),
            f"block {number}": Allocate(
                Block(network=IPv4Network(f"0.{number + 2}.0.0/16"), owner=me, description="mine", since=DAY),
                "registrar",
            ),
        }
        for what, change in wanted.items():
            try:
                store.apply(change)
                say(got=what)
            except RegistryError as error:
                say(lost=what, why=str(error))
    registry = store.load()
    say(
        entries=[[str(e.id), e.name] for e in registry.entries],
        blocks=[[str(b.network), b.owner] for b in registry.blocks],
    )
