"""What a real broker is asked and told through the admin client."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import KafkaException

from headerware.kafka.admin import Admin
from headerware.kafka.errors import Kind, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker
DEADLINE_S: Final = 60.0


@pytest.fixture
def admin(cluster: Cluster) -> Admin:
    return Admin({"bootstrap.servers": cluster.servers, "group.id": "ignored"}, timeout_s=DEADLINE_S)


class TestTopics:
    def test_are_described(self, admin: Admin, cluster: Cluster) -> None:
        name = cluster.topic("described", partitions=3)
        first, second = admin.describe_topic(name), admin.describe_topic(cluster.topic("described"))
        assert (first.partitions, first.replicas) == (3, 1)
        assert "WRITE" in first.operations
        assert first.id != second.id
        assert admin.describe_topic(name) == first

    def test_are_created_once(self, admin: Admin) -> None:
        name = f"created-{uuid.uuid4().hex}"
        options = {"cleanup.policy": "compact"}
        admin.create_topic(name, partitions=2, replication_factor=-1, settings=options)
        assert admin.topic_settings(name)["cleanup.policy"] == "compact"
        assert admin.describe_topic(name).partitions == 2
        with pytest.raises(KafkaException, match=name) as raised:
            admin.create_topic(name, partitions=2, replication_factor=-1, settings=options)
        assert kind_of(raised.value) is Kind.TOPIC_EXISTS

    @pytest.mark.parametrize("ask", [Admin.describe_topic, Admin.topic_settings, Admin.metadata])
    def test_that_are_not_there_are_named_and_not_made(
        self, admin: Admin, ask: Callable[[Admin, str], object]
    ) -> None:
        name = f"missing-{uuid.uuid4().hex}"
        if ask is Admin.metadata:
            assert kind_of(admin.metadata(name).topics[name].error) is Kind.UNKNOWN_TOPIC
        else:
            with pytest.raises(KafkaException, match=name) as raised:
                ask(admin, name)
            assert kind_of(raised.value) is Kind.UNKNOWN_TOPIC
        assert name not in admin.metadata().topics

    def test_that_cannot_be_seen_are_left_out(self, admin: Admin, cluster: Cluster) -> None:
        name = cluster.topic("told", config={"max.message.bytes": "4321"})
        told = admin.told_settings([name, f"missing-{uuid.uuid4().hex}", name])
        assert list(told) == [name]
        assert told[name]["max.message.bytes"] == "4321"


class TestOffsets:
    def test_begin_and_end_with_and_without_open_transactions(self, admin: Admin, cluster: Cluster) -> None:
        name = cluster.topic("offsets", partitions=2)
        producer = cluster.plain_producer(**{"transactional.id": name})
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        for number in range(3):
            producer.produce(name, b"v", partition=0, timestamp=1_000 + number)
        assert producer.flush(DEADLINE_S) == 0
        assert admin.ends(name, 2) == {0: 3, 1: 0}
        assert admin.ends(name, 2, isolation="read_committed") == {0: 0, 1: 0}
        assert admin.latest_timestamps(name, 2) == {0: 1_002, 1: -1}  # later the transaction's marker has one
        producer.commit_transaction(DEADLINE_S)
        admin.delete_records(name, 0, 2)
        assert admin.beginnings(name, 2) == {0: 2, 1: 0}

    def test_that_cannot_be_deleted_are_named(self, admin: Admin, cluster: Cluster) -> None:
        name = cluster.topic("offsets")
        with pytest.raises(KafkaException, match=name):
            admin.delete_records(name, 0, 7)


class TestGroups:
    def test_have_the_offsets_that_were_set(self, admin: Admin, cluster: Cluster) -> None:
        name = cluster.topic("groups", partitions=2)
        admin.set_committed(name, name, {1: 5})
        assert name in admin.groups()
        assert admin.committed([name]) == {(name, name, 1): 5}
        assert admin.describe_group(name).members == []

    def test_with_members_are_left_as_they_are(self, admin: Admin, cluster: Cluster) -> None:
        name = cluster.topic("groups")
        consumer = cluster.consumer(name)
        while not consumer.assignment():
            consumer.poll(0.1)
        assert len(admin.describe_group(name).members) == 1
        with pytest.raises(KafkaException, match=f"group {name}"):
            admin.set_committed(name, name, {0: 5})


class TestCluster:
    def test_tells_its_settings_and_what_this_user_may_do(self, admin: Admin) -> None:
        found = admin.describe_cluster()
        settings = admin.broker_settings(found.controller.id)
        assert "offset.metadata.max.bytes" in settings
        assert None not in settings.values()

    def test_that_does_not_answer_is_not_waited_for(self) -> None:
        nobody = Admin({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=0)
        assert nobody.told_settings(["orders"]) == {}
        with pytest.raises(KafkaException, match=r"127\.0\.0\.1:1 cannot be reached"):
            nobody.describe_topic("orders")
