"""Processes that meet new subjects at once, and are killed meanwhile: no record is sent without its key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import IO

from headerware import Consumer
from headerware.keyring import with_new_key
from headerware.keyring.subjects.rows import SUBJECT_KEY
from headerware.keyring.writing import edit_keyring
from headerware.testing import EmbeddedCluster
from tests.subjects import World
from tests.waiting import DEADLINE_S

PROGRAM = Path(__file__).parent / "programs" / "sends_for_subjects.py"
CONFIG = """
[[interceptors]]
type = "encrypt"
key_service = { type = "file", keyring = "keys.json" }
key_id = "customers"
key_of = "header:customer"
key_service_timeout_ms = 30_000
subject_keys = { type = "topic", topic = "customer-keys", config = { "fetch.wait.max.ms" = 20 } }
"""
DELIVERED = 30


def lines_of(output: IO[bytes] | None) -> IO[bytes]:
    assert output is not None
    return output


def test_killed_writers_leave_no_record_without_its_key(tmp_path: Path) -> None:
    edit_keyring(tmp_path / "keys.json", lambda ring: with_new_key(ring, "customers", "aes-256"), create=True)
    config = tmp_path / "chain.toml"
    config.write_text(CONFIG)
    with EmbeddedCluster(topics={"orders": 1, "customer-keys": 1}) as cluster:
        servers = cluster.bootstrap_servers
        writers = [
            subprocess.Popen([sys.executable, PROGRAM, servers, config], stdout=subprocess.PIPE)
            for _ in range(3)
        ]
        for writer in writers:
            for _ in range(DELIVERED):
                assert lines_of(writer.stdout).readline()
        for writer in writers:
            writer.kill()
            writer.communicate()
        settings = {"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest"}
        read: list[bytes | None] = []
        with Consumer({**settings, "headerware.config": str(config), "log_level": 0}) as consumer:
            consumer.subscribe(["orders"])
            while len(read) < len(writers) * DELIVERED:
                message = consumer.poll(DEADLINE_S)
                assert message is not None
                assert message.error() is None, message.error()
                read.append(message.value())
        assert {b"customer-%d" % number for number in range(DELIVERED)} <= set(read)
        # A loser's key may stay in the topic, and nothing was encrypted under it.
        keys = [
            key for _, key, _ in World(tmp_path, servers, "customer-keys").rows() if key[0] == SUBJECT_KEY
        ]
        assert len({key[1:17] for key in keys}) >= DELIVERED
