"""``headerware redrive``: what a dry run shows; the integration tests send, on a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.testing import CliRunner
from confluent_kafka import Producer

from headerware.cli import main

if TYPE_CHECKING:
    from headerware.testing import EmbeddedCluster


def test_a_dry_run_in_a_pipe_has_a_line_for_each_letter(embedded_cluster: EmbeddedCluster) -> None:
    servers = embedded_cluster.bootstrap_servers
    source = "orders-of-the-northern-region"
    reason = {"topic": source, "partition": "0", "offset": "41", "exception.message": "it was refused " * 5}
    headers: dict[str, str | bytes | None] = {f"__connect.errors.{name}": reason[name] for name in reason}
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.produce(source, b"so that it has a partition")
        producer.produce(f"{source}.dead-letter", b"{}", partition=0, headers=headers)
    result = CliRunner().invoke(main, ["redrive", f"{source}.dead-letter", "--bootstrap-servers", servers])
    titles, letter, *summary = result.stdout.splitlines()
    assert titles.split() == ["dead", "letter", "what", "to", "headers", "attempts", "step", "reason"]
    assert letter.startswith(f"{source}.dead-letter[0]@0  would be sent  {source}  connect  0 ")
    assert letter.endswith("it was refused " * 4 + "it was refused ")
    assert summary[0] == f"1 record would be sent to {source}"
    result = CliRunner().invoke(main, ["redrive", source, "--bootstrap-servers", servers])
    assert result.exit_code == 1
    assert f"expected a dead-letter topic, found {source}; did you mean {source}.dead-letter" in result.stderr
