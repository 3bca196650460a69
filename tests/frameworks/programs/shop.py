"""A WSGI application, whose client each worker makes for itself."""

import os
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from confluent_kafka import Producer


@cache
def producer(_process: int) -> Producer:
    return Producer({"bootstrap.servers": os.environ["SERVERS"], "log_level": 0})


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    client = producer(os.getpid())
    client.produce(os.environ["TOPIC"], environ["PATH_INFO"].encode(), partition=0)
    left = client.flush(20)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {left}".encode()]
