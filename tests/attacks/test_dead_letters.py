"""Dead letters whose headers lie, and floods of headers, before ``headerware redrive``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from headerware import Chain, ConfigError, Consumer, Headers, Producer
from headerware.interceptors import Encrypt
from headerware.keyring import with_new_key
from headerware.keyring.services import FileKeys
from headerware.keyring.writing import edit_keyring
from headerware.ops.redrive import Redrive, RedriveResult, Selection

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from confluent_kafka import Message

    from headerware.testing import EmbeddedCluster

PREFIX: Final = "headerware.dead_letter."
SECRET: Final = b"what others earn"


class Cluster:
    """A topic, its dead-letter topic, and one that nobody may read or write by way of a letter."""

    def __init__(self, embedded: EmbeddedCluster, unique_topic: Callable[[str], str]) -> None:
        self.topic = unique_topic("orders")
        self.letters = f"{self.topic}.dead-letter"
        self.secret = unique_topic("salaries")
        self.conf = {"bootstrap.servers": embedded.bootstrap_servers}
        for name in (self.topic, self.letters, self.secret):
            embedded.create_topic(name, partitions=1)
        self._wire = confluent_kafka.Producer(self.conf)
        for name in (self.letters, self.secret):
            self._wire.list_topics(name)  # else the first record waits a second for it
        self.put(self.secret, SECRET, [])

    def put(self, topic: str, value: bytes | None, headers: list[Any], key: bytes | None = None) -> None:
        self._wire.produce(topic, value, key, 0, headers=headers)
        assert self._wire.flush(60) == 0

    def wire(self, topic: str, count: int) -> list[Message]:
        reader = confluent_kafka.Consumer(
            {**self.conf, "group.id": f"{topic}-wire", "auto.offset.reset": "earliest"}
        )
        reader.assign([TopicPartition(topic, 0, 0)])
        try:
            return reader.consume(count, 60)
        finally:
            reader.close()

    def letter(self, *, value: bytes | None = b"value", **claims: Any) -> None:
        claims = {"topic": self.topic, "partition": 0, "offset": 0, "reason": "x"} | claims
        named = [(f"{PREFIX}{name}", str(claim).encode()) for name, claim in claims.items()]
        self.put(self.letters, value, named)

    def preview(self, **selection: Any) -> RedriveResult:
        with Redrive(self.conf, self.letters, Selection(**selection)) as work:
            return work.preview()


@pytest.fixture
def cluster(embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> Cluster:
    return Cluster(embedded_cluster, unique_topic)


class TestLies:
    def test_a_topic_that_is_not_allowed_gets_nothing(self, cluster: Cluster) -> None:
        cluster.letter(topic=cluster.secret)
        assert (cluster.preview().sent, cluster.preview().pending) == ({}, {"not_allowed": 1})
        assert cluster.preview(allow=("orders-*",)).pending == {"not_allowed": 1}

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
        assert result.pending == {"not_allowed": 1}

    @pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
    def test_a_topic_of_the_brokers_gets_nothing_even_if_a_glob_allows_it(
        self, cluster: Cluster, topic: str
    ) -> None:
        cluster.letter(topic=topic)
        assert cluster.preview(allow=("*",)).pending == {"not_allowed": 1}

    def test_the_dead_letter_topic_gets_nothing(self, cluster: Cluster) -> None:
        cluster.letter(topic=cluster.letters)
        assert cluster.preview(allow=("*",)).pending == {"not_allowed": 1}
        with pytest.raises(ConfigError, match=r"into .* itself"):
            cluster.preview(to=cluster.letters)

    @pytest.mark.parametrize("topic", ["../orders", "", ".", "ordérs", "o" * 250, "a b", "orders\n"])
    def test_a_name_that_is_none(self, cluster: Cluster, topic: str) -> None:
        cluster.letter(topic=topic)
        assert cluster.preview(allow=("*",)).pending == {"no_topic": 1}

    @pytest.mark.parametrize("partition", [1, 2**31 - 1])
    def test_a_partition_that_does_not_exist(self, cluster: Cluster, partition: int) -> None:
        cluster.letter(partition=partition)
        assert cluster.preview().pending == {"no_partition": 1}

    @pytest.mark.parametrize("offset", [1, 10**6, 2**63 - 1])
    def test_an_offset_out_of_range(self, cluster: Cluster, offset: int) -> None:
        facts = {"topic": cluster.topic, "partition": "0", "offset": str(offset)}
        cluster.put(cluster.letters, None, [(f"__dlq.errors.{name}", text) for name, text in facts.items()])
        assert cluster.preview().pending == {"gone": 1}

    def test_another_cluster(self, cluster: Cluster) -> None:
        cluster.letter(cluster="somewhere-else")
        assert cluster.preview().pending == {"another_cluster": 1}
        assert cluster.preview(to=cluster.topic).sent == {cluster.topic: 1}

    def test_a_count_that_is_hidden_behind_a_smaller_one(self, cluster: Cluster) -> None:
        counts = [("headerware.redriven", b"3"), ("headerware.redriven", b"1")]
        cluster.put(cluster.letters, b"v", [*counts, (f"{PREFIX}topic", cluster.topic.encode())])
        assert cluster.preview().pending == {"too_often": 1}

    def test_a_count_that_is_huge_or_is_none(self, cluster: Cluster) -> None:
        huge = [b"999999999;first=999999999999999999", b"3;first=0"]
        none = [
            b"1000000000",
            b"3;first=-1",
            b"-3",
            b"0",
            b"03",
            "\N{ARABIC-INDIC DIGIT THREE}".encode(),
            None,
        ]
        for count in [*huge, *none, b"9" * 500_000]:
            headers = [("headerware.redriven", count), (f"{PREFIX}topic", cluster.topic.encode())]
            cluster.put(cluster.letters, b"v", headers)
        result = cluster.preview()
        assert (result.pending, result.sent) == ({"too_often": 2}, {cluster.topic: 8})

    def test_attempts_of_a_letter_count_for_nothing(self, cluster: Cluster) -> None:
        for attempts in ["0", "-1", "2147483648", "9" * 100_000, "\N{SUPERSCRIPT TWO}"]:
            cluster.letter(attempts=attempts, first_failed=attempts)
        assert cluster.preview().sent == {cluster.topic: 5}

    def test_a_reason_that_the_sender_wrote_before_the_true_one(self, cluster: Cluster) -> None:
        forged = [
            (f"{PREFIX}topic", cluster.secret.encode()),
            ("__connect.errors.topic", cluster.secret.encode()),
        ]
        cluster.put(cluster.letters, b"v", [*forged, ("__connect.errors.topic", cluster.topic.encode())])
        assert cluster.preview(allow=("*",)).sent == {cluster.topic: 1}


class TestEncryptedRecords:
    def test_have_no_plaintext_in_their_letters_and_come_back_encrypted(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        keyring = tmp_path / "keys.json"
        edit_keyring(keyring, lambda found: with_new_key(found, "kek", "aes-256"), create=True)
        chain = Chain([Encrypt(key_service=FileKeys(keyring=str(keyring)), key_id="kek")])
        with Producer(cluster.conf, chain=chain) as producer:
            producer.produce(cluster.topic, SECRET, b"key", partition=0)

        def fails(_: object) -> None:
            consumer.stop()
            raise LookupError(SECRET)

        settings = {**cluster.conf, "group.id": cluster.topic, "auto.offset.reset": "earliest"}
        with Consumer(settings, chain=chain) as consumer:
            consumer.subscribe([cluster.topic])
            consumer.run(fails, on_failure="dead_letter", dead_letter_headers="headerware")
        (letter,) = cluster.wire(cluster.letters, 1)
        texts = [letter.value(), letter.key(), *(value for _, value in Headers(letter.headers()))]
        assert not any(SECRET in (text or b"") for text in texts)
        with Redrive(cluster.conf, cluster.letters, Selection()) as work:
            result = work.execute()
        assert SECRET.decode() not in str(result)
        first, again = cluster.wire(cluster.topic, 2)
        assert again.value() == first.value() != SECRET
        with Consumer({**settings, "group.id": f"{cluster.topic}-2"}, chain=chain) as reader:
            reader.subscribe([cluster.topic])
            assert [message.value() for message in reader.consume(2, 60)] == [SECRET, SECRET]


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
        assert cluster.preview().pending == {"no_reason": 3}
