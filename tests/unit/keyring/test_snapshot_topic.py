"""Snapshots through a compacted topic into a file, which keyring readers follow."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from headerware.cli import main
from headerware.core.errors import KeyringError
from headerware.keyring import (
    Keyring,
    KeyringFile,
    Snapshot,
    encode_keyring,
    encode_snapshot,
    public_part,
    sign_snapshot,
    with_new_key,
    with_revocation,
)
from headerware.keyring.snapshot_topic import SnapshotFollower, publish_snapshot
from headerware.topic_table import Rows, TopicTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headerware.testing import EmbeddedCluster

NOW = datetime.now(UTC)
NOW_MS = int(NOW.timestamp() * 1000)
ROOTS = with_new_key(Keyring(), "root", "ed25519", use=("snapshots",))
TRUSTED = public_part(ROOTS)[0]
KEYS = public_part(with_new_key(Keyring(), "orders", "ed25519"))[0]
NAME = "orders"


def snapshot(counter: int, keyring: Keyring = KEYS, roots: Keyring = ROOTS, days: float = 1) -> Snapshot:
    created = NOW - timedelta(days=10)
    end = NOW + timedelta(days=days)
    return sign_snapshot(keyring, roots.keys[0], counter=counter, created=created, expires=end)


class Topic:
    def __init__(self, cluster: EmbeddedCluster, name: str, folder: Path) -> None:
        cluster.create_topic(name)
        self.name = name
        self.conf: dict[str, Any] = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
        self.table = TopicTable(self.conf, name, rows=Rows)
        self.path, self.root = folder / "keys.json", folder / "root.pub"
        self.root.write_bytes(encode_keyring(TRUSTED))
        self.root.chmod(0o644)

    def publish(self, what: Snapshot) -> None:
        publish_snapshot(self.table, NAME, encode_snapshot(what), TRUSTED, timeout_s=10)

    def follower(self) -> SnapshotFollower:
        return SnapshotFollower(self.table, NAME, TRUSTED, self.path)

    def run(self, *arguments: object) -> Result:
        common = ("--topic", self.name, "--name", NAME, "--root", self.root)
        servers = ("--bootstrap-servers", self.conf["bootstrap.servers"])
        return CliRunner().invoke(main, ["keys", *map(str, (*arguments, *common, *servers))])


@pytest.fixture
def topic(
    embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str], tmp_path: Path
) -> Iterator[Topic]:
    made = Topic(embedded_cluster, unique_topic("keyrings"), tmp_path)
    yield made
    made.table.close()


class TestFollowing:
    def test_keeps_a_file_up_to_date_which_readers_follow(self, topic: Topic) -> None:
        topic.publish(snapshot(1))
        follower = topic.follower()
        found = follower.look(NOW_MS)
        assert found is not None
        assert found.counter == 1
        assert follower.look(NOW_MS) is None
        file = KeyringFile(topic.path, root=topic.root, now_ms=NOW_MS)
        assert file.current(NOW_MS) == KEYS
        revoked = with_revocation(KEYS, "orders")
        topic.publish(snapshot(2, revoked))
        assert follower.look(NOW_MS) is not None
        assert file.current(NOW_MS + 2_000) == revoked

    @pytest.mark.parametrize(
        ("forged", "reason"),
        [
            (b"garbage", "is no snapshot"),
            (encode_keyring(KEYS), "is no snapshot"),
            (encode_snapshot(snapshot(1)), "older than the last snapshot"),
            (encode_snapshot(snapshot(2, Keyring())), "same counter"),
            (encode_snapshot(snapshot(9, days=-1)), "expired"),
            (
                encode_snapshot(
                    snapshot(9, roots=with_new_key(Keyring(), "root", "ed25519", use=("snapshots",)))
                ),
                "was changed, or was not signed",
            ),
        ],
        ids=["garbage", "a keyring", "an older one", "the same counter", "expired", "another root"],
    )
    def test_nothing_that_a_writer_of_the_topic_makes_up_reaches_the_file(
        self, topic: Topic, forged: bytes, reason: str
    ) -> None:
        topic.publish(snapshot(2))
        follower = topic.follower()
        follower.look(NOW_MS)
        written = topic.path.read_bytes()
        topic.table.put(NAME.encode(), forged)
        for each in (follower, topic.follower()):
            with pytest.raises(KeyringError, match=reason):
                each.look(NOW_MS)
        assert topic.path.read_bytes() == written
        topic.table.put(NAME.encode(), None)
        assert follower.look(NOW_MS) is None
        topic.publish(snapshot(3))
        assert follower.look(NOW_MS) is not None

    def test_another_roots_file_is_not_replaced(self, topic: Topic) -> None:
        topic.path.write_bytes(encode_keyring(KEYS))
        with pytest.raises(KeyringError, match="is no snapshot"):
            topic.follower()


class TestPublishing:
    def test_goes_forward(self, topic: Topic) -> None:
        topic.publish(snapshot(2))
        topic.publish(snapshot(2))
        for older in (snapshot(1), snapshot(2, Keyring())):
            with pytest.raises(KeyringError, match="expected more than"):
                topic.publish(older)

    def test_replaces_what_somebody_made_up(self, topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
        topic.table.put(NAME.encode(), b"garbage")
        topic.publish(snapshot(1))
        assert "had no valid snapshot" in caplog.text

    def test_puts_no_secrets_into_a_topic(self, topic: Topic) -> None:
        with pytest.raises(KeyringError, match="holds secrets"):
            topic.publish(snapshot(1, with_new_key(Keyring(), "orders", "aes-256")))


class TestCommands:
    def test_publish_and_follow_once(self, topic: Topic, tmp_path: Path) -> None:
        assert topic.run("follow-snapshot", "--out", topic.path, "--once").exit_code == 1
        made = tmp_path / "made.snapshot"
        made.write_bytes(encode_snapshot(snapshot(4)))
        published = topic.run("publish-snapshot", "--snapshot", made)
        assert (published.exit_code, "published snapshot 4" in published.output) == (0, True)
        followed = topic.run("follow-snapshot", "--out", topic.path, "--once")
        assert (followed.exit_code, f"snapshot 4 is in {topic.path}" in followed.output) == (0, True)
        assert KeyringFile(topic.path, root=topic.root, now_ms=NOW_MS).current(NOW_MS) == KEYS
        assert topic.run("follow-snapshot", "--out", topic.path, "--once").exit_code == 0

    def test_follow_until_interrupted(self, topic: Topic) -> None:
        topic.publish(snapshot(1))
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "headerware", "keys", "follow-snapshot", "--out", topic.path),
                *("--topic", topic.name, "--name", NAME, "--root", topic.root),
                *("--bootstrap-servers", topic.conf["bootstrap.servers"], "-X", "fetch.wait.max.ms=20"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == f"snapshot 1 is in {topic.path}\n"
            topic.table.put(NAME.encode(), b"garbage")
            topic.publish(snapshot(2))
            assert process.stdout.readline() == f"snapshot 2 is in {topic.path}\n"
            assert b'"counter": 2' in topic.path.read_bytes()
            rotated = with_new_key(Keyring(), "root-2", "ed25519", use=("snapshots",))
            both = Keyring(keys=(*with_revocation(TRUSTED, "root").keys, *public_part(rotated)[0].keys))
            topic.root.write_bytes(encode_keyring(both))
            topic.table.put(NAME.encode(), encode_snapshot(snapshot(3)))
            topic.table.put(NAME.encode(), encode_snapshot(snapshot(3, roots=rotated)))
            assert process.stdout.readline() == f"snapshot 3 is in {topic.path}\n"
            assert b'"root": "root-2"' in topic.path.read_bytes()
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
