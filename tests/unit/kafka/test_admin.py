"""Requests to a cluster that does not answer them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException

from headerware.kafka.admin import Admin

if TYPE_CHECKING:
    from headerware.testing import EmbeddedCluster


def test_says_that_the_embedded_cluster_answers_none(embedded_cluster: EmbeddedCluster) -> None:
    admin = Admin({"bootstrap.servers": embedded_cluster.bootstrap_servers}, timeout_s=0.5)
    with pytest.raises(KafkaException, match=r"orders: .*the embedded cluster of headerware dev answers no"):
        admin.topic_settings("orders")
