"""Requests to an embedded cluster, which does not answer them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException

from headerware.kafka.admin import Admin

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.testing import EmbeddedCluster


@pytest.mark.parametrize(
    ("request_name", "ask"),
    [
        ("DescribeCluster", lambda admin: admin.describe_cluster()),
        ("DescribeConfigs", lambda admin: admin.broker_settings(1)),
        ("DescribeConfigs", lambda admin: admin.topic_settings("orders")),
        ("DescribeTopics", lambda admin: admin.describe_topic("orders")),
        (
            "CreateTopics",
            lambda admin: admin.create_topic("new", partitions=1, replication_factor=-1, settings={}),
        ),
        ("DeleteRecords", lambda admin: admin.delete_records("orders", 0, 0)),
        ("DescribeGroups", lambda admin: admin.describe_group("billing")),
        ("ListGroups", lambda admin: admin.groups()),
    ],
)
def test_says_at_once_that_an_embedded_cluster_answers_no_such_request(
    embedded_cluster: EmbeddedCluster, request_name: str, ask: Callable[[Admin], object]
) -> None:
    servers = embedded_cluster.bootstrap_servers
    # A request without an answer would end with another text, after a minute.
    with pytest.raises(KafkaException) as raised:
        ask(Admin({"bootstrap.servers": servers}, timeout_s=60))
    assert raised.value.args[0].str() == (
        f"{servers} is an embedded cluster (librdkafka's mock brokers): it answers no {request_name} "
        "requests; headerware dev --kafka runs a real Kafka; see headerware dev --help"
    )


def test_an_embedded_cluster_tells_no_settings(
    embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
) -> None:
    topic = unique_topic("orders")
    embedded_cluster.create_topic(topic)
    admin = Admin({"bootstrap.servers": embedded_cluster.bootstrap_servers}, timeout_s=60)
    assert admin.told_settings([topic]) == {}
