"""Arguments of wrong types, with a chain: the error says which argument of which topic, and what to do.

Without a chain the errors are confluent-kafka's own (``test_without_a_chain.py``).
"""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from headerware import Chain, Consumer, HeaderwareError, Producer
from headerware.clients.aio import AsyncProducer
from headerware.interceptors import Serialize, Trail
from headerware.testing import EmbeddedCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

CHAIN = Chain([Trail(service="orders")])
WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"partition": "0"}, "the partition of a record for topic 'orders' is an int, not str; convert it"),
    ({"partition": 0.5}, "the partition of a record for topic 'orders' is an int, not float; convert it"),
    ({"timestamp": "2026"}, "the timestamp of a record for topic 'orders' is an int, not str; give milli"),
    ({"timestamp": 1.5}, "the timestamp of a record for topic 'orders' is an int, not float; give milli"),
    ({"key": 3}, "the key of a record for topic 'orders' is bytes, str or None, not int; put a step"),
    ({"value": {"a": 1}}, "the value of a record for topic 'orders' is bytes, str or None, not dict; put"),
    ({"headers": {"a": 1}}, "the value of header 'a' is bytes, str or None, not int; convert"),
    ({"headers": 3}, "headers are a mapping or (name, value) pairs, not int"),
)
TOO_LARGE = ({"partition": 1 << 31}, {"timestamp": 1 << 63})


@pytest.fixture(scope="module")
def conf() -> Iterator[dict[str, Any]]:
    with EmbeddedCluster() as cluster:
        yield {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}


@pytest.mark.parametrize(("given", "told"), WRONG)
def test_are_refused_with_their_names(conf: dict[str, Any], given: dict[str, Any], told: str) -> None:
    producer = Producer(conf, chain=CHAIN)
    arguments = {"value": b"v", **given}
    with pytest.raises(TypeError) as caught:
        producer.produce("orders", **arguments)
    assert isinstance(caught.value, HeaderwareError)
    assert str(caught.value).startswith(told)
    (error,) = producer.produce_many("orders", [arguments])
    assert str(error).startswith(told)


def test_a_value_in_the_place_of_the_key_is_told_where_it_goes(conf: dict[str, Any]) -> None:
    """The serializing clients have the key first."""
    hint = "the second argument is the value here, and the third the key"
    for chain in (CHAIN, Chain([Serialize(value="json")])):
        producer = Producer(conf, chain=chain)
        with pytest.raises(HeaderwareError, match=f"the key of a record .* not dict; .*; {hint}$"):
            producer.produce("orders", "k-1", {"id": 1})
        with pytest.raises(HeaderwareError) as raised:
            producer.produce("orders", "v", 3)
        assert hint not in str(raised.value)


@pytest.mark.parametrize(("given", "told"), WRONG)
def test_are_refused_by_the_client_of_asyncio_too(
    conf: dict[str, Any], given: dict[str, Any], told: str
) -> None:
    async def produce() -> None:
        async with AsyncProducer(conf, chain=CHAIN) as producer:
            await producer.produce("orders", **{"value": b"v", **given})

    with pytest.raises(TypeError) as caught:
        asyncio.run(produce())
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize("given", TOO_LARGE)
def test_numbers_that_are_too_large_are_named(conf: dict[str, Any], given: dict[str, Any]) -> None:
    with pytest.raises(OverflowError, match=f"^the {next(iter(given))} of a record for topic 'orders' has"):
        Producer(conf, chain=CHAIN).produce("orders", b"v", **given)


def test_what_may_be_left_open_may_be_none(conf: dict[str, Any]) -> None:
    nothing: Any = None
    producer = Producer(conf, chain=CHAIN)
    producer.produce("orders", b"v", partition=nothing, timestamp=nothing)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("kind", [Producer, Consumer])
@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy])
def test_a_client_that_is_copied_says_what_to_pass(kind: Any, copied: Any) -> None:
    conf = {"bootstrap.servers": "localhost:1", "log_level": 0}
    if kind is Consumer:
        conf["group.id"] = "g"
    with pytest.raises(
        TypeError, match=f"cannot pickle or copy a {kind.__name__}: .* pass its configuration"
    ):
        copied(kind(conf, chain=Chain([Trail(service="a")])))


def test_a_topic_in_place_of_a_list_says_what_to_write() -> None:
    conf = {"bootstrap.servers": "localhost:1", "group.id": "g", "log_level": 0}
    topics: Any = "orders"
    with (
        Consumer(conf, chain=Chain([Trail(service="a")])) as consumer,
        pytest.raises(
            TypeError, match=r"expected a list of topics, found text; write subscribe\(\['orders'\]\)"
        ),
    ):
        consumer.subscribe(topics)


def test_a_poll_without_a_subscription_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    conf = {"bootstrap.servers": "localhost:1", "group.id": "g", "log_level": 0}
    with Consumer(conf, chain=Chain([Trail(service="a")])) as consumer:
        assert [consumer.poll(0), consumer.poll(0), consumer.consume(1, 0)] == [None, None, []]
    assert [text.partition(" waits")[0] for text in caplog.messages] == ["Consumer: poll"]
