"""Dead letters whose headers lie, and floods of headers, before ``headerware redrive``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import confluent_kafka
import pytest

from headerware import ConfigError
from headerware.ops.redrive import Redrive, Result, Selection

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.testing import EmbeddedCluster

PREFIX: Final = "headerware.dead_letter."
SECRET: Final = b"what others earn"


class Cluster:
    """A topic, its dead-letter topic, and one that nobody may read or write by way of a letter."""

    def __init__(self, embedded: EmbeddedCluster, unique_topic: Callable[[str], str]) -> None:
        self.topic = unique_topic("orders")
        self.letters = f"{self.topic}.dead-letter"
        self.secret = unique_topic("salaries")
        self._conf = {"bootstrap.servers": embedded.bootstrap_servers}
        for name in (self.topic, self.letters, self.secret):
            embedded.create_topic(name, partitions=1)
        self._wire = confluent_kafka.Producer(self._conf)
        self.put(self.secret, SECRET, [])

    def put(self, topic: str, value: bytes | None, headers: list[Any], key: bytes | None = None) -> None:
        self._wire.produce(topic, value, key, 0, headers=headers)
        assert self._wire.flush(30) == 0

    def letter(self, *, value: bytes | None = b"value", **claims: Any) -> None:
        claims = {"topic": self.topic, "partition": 0, "offset": 0, "reason": "x"} | claims
        named = [(f"{PREFIX}{name}", str(claim).encode()) for name, claim in claims.items()]
        self.put(self.letters, value, named)

    def preview(self, **selection: Any) -> Result:
        with Redrive(self._conf, self.letters, Selection(**selection)) as work:
            return work.preview()


@pytest.fixture
def cluster(embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> Cluster:
    return Cluster(embedded_cluster, unique_topic)


class TestLies:
    def test_a_topic_that_is_not_allowed_gets_nothing(self, cluster: Cluster) -> None:
        cluster.letter(topic=cluster.secret)
        assert (cluster.preview().sent, cluster.preview().stays) == ({}, {"not_allowed": 1})
        assert cluster.preview(allow=("orders-*",)).stays == {"not_allowed": 1}

    @pytest.mark.parametrize("dialect", ["stub", "kafka"])
    def test_a_topic_that_is_not_allowed_is_not_read(self, cluster: Cluster, dialect: str) -> None:
        if dialect == "stub":
            cluster.put(
                cluster.letters,
                None,
                [
                    ("headerware.stub.headers", b"0"),
                    (f"{PREFIX}topic", cluster.secret.encode()),
                    (f"{PREFIX}partition", b"0"),
                    (f"{PREFIX}offset", b"0"),
                ],
            )
        else:
            facts = {"topic": cluster.secret, "partition": "0", "offset": "0"}
            cluster.put(
                cluster.letters, None, [(f"__dlq.errors.{name}", text) for name, text in facts.items()]
            )
        # Also where all letters go to a topic that the command names.
        result = cluster.preview(to=cluster.topic)
        assert result.stays == {"not_allowed": 1}

    @pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
    def test_a_topic_of_the_brokers_gets_nothing_even_if_a_glob_allows_it(
        self, cluster: Cluster, topic: str
    ) -> None:
        cluster.letter(topic=topic)
        assert cluster.preview(allow=("*",)).stays == {"not_allowed": 1}

    def test_the_dead_letter_topic_gets_nothing(self, cluster: Cluster) -> None:
        cluster.letter(topic=cluster.letters)
        assert cluster.preview(allow=("*",)).stays == {"not_allowed": 1}
        with pytest.raises(ConfigError, match=r"into .* itself"):
            cluster.preview(to=cluster.letters)

    @pytest.mark.parametrize("topic", ["../orders", "", ".", "ordérs", "o" * 250, "a b", "orders\n"])
    def test_a_name_that_is_none(self, cluster: Cluster, topic: str) -> None:
        cluster.letter(topic=topic)
        assert cluster.preview(allow=("*",)).stays == {"no_topic": 1}

    @pytest.mark.parametrize("partition", [1, 2**31 - 1])
    def test_a_partition_that_does_not_exist(self, cluster: Cluster, partition: int) -> None:
        cluster.letter(partition=partition)
        assert cluster.preview().stays == {"no_partition": 1}

    @pytest.mark.parametrize("offset", [1, 10**6, 2**63 - 1])
    def test_an_offset_out_of_range(self, cluster: Cluster, offset: int) -> None:
        facts = {"topic": cluster.topic, "partition": "0", "offset": str(offset)}
        cluster.put(cluster.letters, None, [(f"__dlq.errors.{name}", text) for name, text in facts.items()])
        assert cluster.preview().stays == {"gone": 1}

    def test_another_cluster(self, cluster: Cluster) -> None:
        cluster.letter(cluster="somewhere-else")
        assert cluster.preview().stays == {"another_cluster": 1}
        assert cluster.preview(to=cluster.topic).sent == {cluster.topic: 1}

    def test_a_count_that_is_hidden_behind_a_smaller_one(self, cluster: Cluster) -> None:
        counts = [("headerware.redriven", b"3"), ("headerware.redriven", b"1")]
        cluster.put(cluster.letters, b"v", [*counts, (f"{PREFIX}topic", cluster.topic.encode())])
        assert cluster.preview().stays == {"too_often": 1}

    def test_a_reason_that_the_sender_wrote_before_the_true_one(self, cluster: Cluster) -> None:
        forged = [
            (f"{PREFIX}topic", cluster.secret.encode()),
            ("__connect.errors.topic", cluster.secret.encode()),
        ]
        cluster.put(cluster.letters, b"v", [*forged, ("__connect.errors.topic", cluster.topic.encode())])
        assert cluster.preview(allow=("*",)).sent == {cluster.topic: 1}


class TestFloods:
    def test_of_headers(self, cluster: Cluster) -> None:
        flood = [(f"__connect.errors.{number}", b"") for number in range(10_000)]
        cluster.put(cluster.letters, b"v", [*flood, ("__connect.errors.topic", cluster.topic.encode())])
        assert cluster.preview().sent == {cluster.topic: 1}

    def test_of_texts_are_cut_where_they_are_shown(self, cluster: Cluster) -> None:
        cluster.letter(reason="x" * 500_000, step="\x1b[2J" * 50_000)
        result = cluster.preview()
        assert result.sent == {cluster.topic: 1}
        assert sum(len(str(text)) for text in result.shown[0].values()) < 2_000

    def test_payloads_keys_and_other_headers_are_not_shown(self, cluster: Cluster) -> None:
        headers = [("password", SECRET), (f"{PREFIX}topic", cluster.topic.encode())]
        cluster.put(cluster.letters, SECRET, headers, SECRET)
        assert SECRET.decode() not in str(cluster.preview().shown)

    def test_of_records_that_are_no_letters(self, cluster: Cluster) -> None:
        for _ in range(3):
            cluster.put(cluster.letters, b"v", [])
        assert cluster.preview().stays == {"no_reason": 3}
