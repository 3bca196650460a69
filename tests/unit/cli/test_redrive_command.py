"""``headerware redrive``: what a dry run shows; the integration tests send, on a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.testing import CliRunner
from confluent_kafka import Producer

from headerware.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from headerware.testing import EmbeddedCluster


def test_a_dry_run_in_a_pipe_has_a_line_for_each_letter(embedded_cluster: EmbeddedCluster) -> None:
    source = "orders-of-the-northern-region"
    fill(embedded_cluster, source)  # so that it has a partition
    fill(embedded_cluster, f"{source}.dead-letter", headers=reason_of(source, "it was refused " * 5))
    result = redrive(embedded_cluster, f"{source}.dead-letter")
    titles, letter, *summary = result.stdout.splitlines()
    assert titles.split() == ["dead", "letter", "what", "to", "headers", "attempts", "step", "reason"]
    assert letter.startswith(f"{source}.dead-letter[0]@0  would be sent  {source}  connect  0 ")
    assert letter.endswith("it was refused " * 4 + "it was refused ")
    assert summary[0] == f"1 record would be sent to {source}"


class TestATopicThatHasADeadLetterTopic:
    def test_is_refused_if_the_names_were_mixed_up(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("orders")
        fill(embedded_cluster, topic, f"{topic}.dead-letter")
        result = redrive(embedded_cluster, topic)
        assert result.exit_code == 1
        assert f"expected a dead-letter topic, found {topic}, which does not begin" in result.stderr
        assert f"did you mean {topic}.dead-letter, which has its dead letters?" in result.stderr

    def test_is_refused_if_its_records_are_back_from_there(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("orders")
        fill(embedded_cluster, topic, f"{topic}.dead-letter", headers=reason_of(topic))
        assert "did you mean" in redrive(embedded_cluster, topic).stderr

    def test_is_refused_if_it_is_empty(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("orders")
        for name in (topic, f"{topic}.dead-letter"):
            embedded_cluster.create_topic(name)
        assert "did you mean" in redrive(embedded_cluster, topic).stderr

    def test_is_taken_if_it_has_dead_letters(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("connect-dlq")
        embedded_cluster.create_topic("orders-of-dlq")
        fill(embedded_cluster, topic, f"{topic}.dead-letter", headers=reason_of("orders-of-dlq"))
        result = redrive(embedded_cluster, topic, "--allow", "orders-of-dlq")
        assert result.exit_code == 0, result.stderr
        assert "1 record would be sent to orders-of-dlq" in result.stdout

    def test_is_taken_if_the_chain_names_it(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str], tmp_path: Path
    ) -> None:
        topic = unique_topic("dlq")
        for name in (topic, f"{topic}.dead-letter"):
            embedded_cluster.create_topic(name)
        config = tmp_path / "chain.toml"
        config.write_text(
            f"[[interceptors]]\ntype = 'compress'\ndead_letter_topic = '{topic}'\n"
            "[[interceptors]]\ntype = 'slice'\n"
        )
        result = redrive(embedded_cluster, topic, "--config", str(config))
        assert result.exit_code == 0, result.stderr
        assert f"no dead letters are left in {topic}" in result.stdout


def redrive(cluster: EmbeddedCluster, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["redrive", *arguments, "--bootstrap-servers", cluster.bootstrap_servers])


def fill(
    cluster: EmbeddedCluster, *topics: str, headers: dict[str, str | bytes | None] | None = None
) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for topic in topics:
            producer.produce(topic, b"{}", partition=0, headers=headers)


def reason_of(topic: str, message: str = "it was refused") -> dict[str, str | bytes | None]:
    reason = {"topic": topic, "partition": "0", "offset": "41", "exception.message": message}
    return {f"__connect.errors.{name}": text for name, text in reason.items()}
