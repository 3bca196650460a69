from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any

from headerware.core.header_ids import HeaderId
from headerware.registry import Block, Entry

DAY = "2027-01-01"


def block(network: str, owner: str, *, since: str = DAY, description: str = "Some.") -> Block:
    return Block(network=IPv4Network(network), owner=owner, description=description, since=since)


def entry(header_id: str, name: str, owner: str = "a", **other: Any) -> Entry:
    fields = {"encoding": "bytes", "description": "One.", "since": DAY, **other}
    return Entry(id=HeaderId(header_id), name=name, owner=owner, **fields)
