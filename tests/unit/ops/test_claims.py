"""Orphans: objects that no record claims are found, and nothing else is ever deleted."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner, Result

from headerware import Chain, ConfigError, HeaderwareError, ObjectStoreError, Producer, Record
from headerware.cli import main
from headerware.core.header_text import encode_text
from headerware.interceptors import ClaimCheck, HeaderIds, Slice, decode_claim
from headerware.interceptors.claim_check import CLAIM_HEADER, STUB
from headerware.object_store import FolderObjects
from headerware.ops.claims import OrphanReport, delete_orphans, find_orphans
from headerware.testing import EmbeddedCluster
from tests.unit.clients.test_messages import put_raw

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


class Claims:
    """A topic whose values are in a folder."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path) -> None:
        self.conf = {"bootstrap.servers": cluster.bootstrap_servers}
        self.topic = f"scans-{uuid.uuid4().hex[:8]}"
        self.folder = folder
        self.check = ClaimCheck(stores={"archive": FolderObjects(path=str(folder))}, min_bytes=10)
        self.chain = Chain([self.check])
        self.raw = confluent_kafka.Producer(self.conf)

    def send(self, count: int, *more: object, topic: str = "") -> None:
        with Producer(self.conf, chain=Chain([self.check, *more])) as producer:
            for number in range(count):
                producer.produce(topic or self.topic, b"a value of some size", b"%d" % number)

    def put(self, headers: list[Any], topic: str = "") -> None:
        self.raw.produce(topic or self.topic, STUB, headers=headers)
        assert self.raw.flush(60) == 0

    def lose(self, count: int) -> None:
        """Store values whose records are never sent."""
        with self.chain.open() as session:
            for _ in range(count):
                session.send([record(self.topic)])

    def age(self, days: float) -> None:
        """Make all objects older."""
        moment = time.time() - days * 86_400
        for path in self.files():
            os.utime(path, (moment, moment))

    def files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]

    def find(self, *topics: str, chain: Chain | None = None, days: float = 7) -> OrphanReport:
        before_ms = int(time.time() * 1000 - days * DAY_MS)
        return find_orphans(self.conf, topics or [self.topic], chain or self.chain, before_ms=before_ms)


def record(topic: str) -> Any:

    return Record(topic, b"a value of some size")


@pytest.fixture
def claims(cluster: EmbeddedCluster, tmp_path: Path) -> Claims:
    (tmp_path / "objects").mkdir()
    return Claims(cluster, tmp_path / "objects")


class TestFinding:
    def test_tells_claimed_objects_from_orphans(self, claims: Claims) -> None:
        claims.send(5)
        claims.lose(2)
        claims.age(8)
        report = claims.find()
        assert (report.records, report.objects, report.claimed, len(report.orphans)) == (5, 7, 5, 2)
        assert (report.young, report.missing, report.foreign, report.unreadable) == (0, 0, 0, 0)
        assert report.size_bytes == 2 * len(b"a value of some size")
        assert len(claims.files()) == 7

    def test_leaves_young_objects_alone(self, claims: Claims) -> None:
        claims.send(1)
        claims.lose(2)
        claims.age(6)
        report = claims.find()
        assert (report.young, report.orphans) == (2, ())

    def test_leaves_files_alone_that_it_has_not_made(self, claims: Claims) -> None:
        claims.send(1)
        (claims.folder / claims.topic / "README").write_text("ours")
        claims.age(8)
        report = claims.find()
        assert (report.foreign, report.objects, report.orphans) == (1, 1, ())

    def test_finds_what_a_killed_process_has_not_finished(self, claims: Claims) -> None:
        claims.send(1)
        half = claims.folder / claims.topic / ".tmp-0123456789abcdef"
        half.write_bytes(b"half")
        claims.age(8)
        report = claims.find()
        assert [each.name for each in report.orphans] == [f"{claims.topic}/{half.name}"]
        assert delete_orphans(report, claims.chain) == 1
        assert (half.exists(), len(claims.files())) == (False, 1)

    def test_counts_a_record_whose_headers_cannot_be_read(self, claims: Claims) -> None:
        put_raw(claims.conf, claims.topic, (b"a", b"fine"), (b"b", b"\xff\xfe"), (b"c", b"fine"))
        report = claims.find()
        assert (report.records, report.unreadable) == (3, 1)
        assert report.unreadable_at == f"{claims.topic}[0]@1: the name of a header is not UTF-8"

    def test_reads_dead_letters_that_are_there(self, claims: Claims) -> None:
        claims.send(1)
        claims.lose(1)
        lost = next(path for path in claims.files())
        with claims.chain.open() as session:
            (kept,) = session.send([record(claims.topic)])
        claims.put(list(kept.headers), f"{claims.topic}.dead-letter")
        claims.age(8)
        report = claims.find()
        assert report.topics == (claims.topic, f"{claims.topic}.dead-letter")
        assert (report.claimed, len(report.orphans)) == (2, 1)
        assert lost.exists()

    def test_reads_topics_with_copies(self, claims: Claims) -> None:
        with claims.chain.open() as session:
            (kept,) = session.send([record(claims.topic)])
        claims.send(1)
        copies = f"copies-{claims.topic}"
        claims.put(list(kept.headers), copies)
        claims.age(8)
        assert len(claims.find().orphans) == 1
        assert claims.find(claims.topic, copies).orphans == ()

    def test_reads_ids_in_place_of_names(self, claims: Claims) -> None:
        for ids in (HeaderIds(), HeaderIds(form="keys")):
            claims.send(2, ids)
        claims.age(8)
        report = claims.find(chain=Chain([claims.check, HeaderIds()]))
        assert (report.claimed, report.orphans, report.unreadable) == (4, (), 0)

    def test_follows_claims_through_slices(self, claims: Claims) -> None:
        claims.send(2, Slice(max_bytes=1_000))
        claims.age(8)
        assert claims.find().orphans == ()

    def test_compares_objects_of_two_aliases_of_one_place_by_their_names(self, claims: Claims) -> None:
        claims.send(2)
        claims.age(8)
        store = FolderObjects(path=str(claims.folder))
        both = Chain([ClaimCheck(stores={"new": store, "old": store}, store="new")])
        assert claims.find(chain=both).orphans == ()

    def test_counts_claims_on_objects_that_are_gone(self, claims: Claims) -> None:
        claims.send(3)
        claims.files()[0].unlink()
        assert claims.find(days=-1).missing == 1
        assert claims.find().missing == 0

    def test_needs_a_chain_that_says_where_to_look(self, claims: Claims) -> None:
        with pytest.raises(ConfigError, match="has no claim_check for any of the topics"):
            claims.find(chain=Chain([Slice()]))

    def test_fails_if_the_store_is_not_there(self, claims: Claims) -> None:
        claims.send(1)
        claims.folder.rename(claims.folder.with_name("elsewhere"))
        with pytest.raises(ObjectStoreError):
            claims.find()


class TestDeleting:
    def test_deletes_what_the_report_lists_and_nothing_else(self, claims: Claims) -> None:
        claims.send(5)
        kept = set(claims.files())
        claims.lose(2)
        claims.age(8)
        assert delete_orphans(claims.find(), claims.chain) == 2
        assert set(claims.files()) == kept

    @pytest.mark.parametrize(
        "header",
        [
            (CLAIM_HEADER, encode_text(b"\x02" + bytes(80))),
            (CLAIM_HEADER, b"not readable"),
            ("hw.ids", b"anything"),
            ("~H", b"anything"),
        ],
    )
    def test_deletes_nothing_while_a_claim_cannot_be_read(self, claims: Claims, header: Any) -> None:
        claims.send(1)
        claims.lose(1)
        claims.age(8)
        claims.put([header])
        report = claims.find()
        assert (report.unreadable, len(report.orphans)) == (1, 1)
        with pytest.raises(HeaderwareError, match="no object is deleted: 1 records may contain claims"):
            delete_orphans(report, claims.chain)
        assert len(claims.files()) == 2

    def test_deletes_nothing_that_may_be_on_its_way(self, claims: Claims) -> None:
        claims.send(1)
        claims.lose(1)
        report = claims.find(days=-1)
        assert len(report.orphans) == 1
        with pytest.raises(HeaderwareError, match="objects younger than an hour"):
            delete_orphans(report, claims.chain)
        assert len(claims.files()) == 2


class TestCommand:
    @pytest.fixture
    def run(self, claims: Claims, tmp_path: Path) -> Callable[..., Result]:
        config = tmp_path / "headerware.toml"
        config.write_text(
            '[[interceptors]]\ntype = "claim_check"\n'
            'stores = {archive = {type = "folder", path = "objects"}}\n'
        )
        servers = claims.conf["bootstrap.servers"]
        given = ["--config", str(config), "--bootstrap-servers", servers]

        def run_command(*arguments: str) -> Result:
            return CliRunner().invoke(main, ["claims", "orphans", claims.topic, *given, *arguments])

        return run_command

    def test_shows_first_and_deletes_when_told(self, claims: Claims, run: Callable[..., Result]) -> None:
        claims.send(3)
        claims.lose(2)
        claims.age(8)
        shown = run()
        assert shown.exit_code == 0, shown.output
        assert "5 objects: 3 claimed, 0 too young" in shown.output
        assert "2 orphans of 40 bytes found, nothing was deleted" in shown.output
        assert len(claims.files()) == 5
        deleted = run("--older-than", "7d", "--delete")
        assert (deleted.exit_code, "2 orphans of 40 bytes deleted" in deleted.output) == (0, True)
        assert len(claims.files()) == 3
        assert "no orphans" in run().output

    def test_prints_json(self, claims: Claims, run: Callable[..., Result]) -> None:
        claims.send(1)
        claims.lose(1)
        claims.age(8)
        printed = json.loads(run("--json").stdout)
        assert printed["ok"]
        assert (printed["result"]["claimed"], printed["result"]["deleted"]) == (1, 0)
        (orphan,) = printed["result"]["orphans"]
        assert (orphan["store"], orphan["size_bytes"]) == ("archive", 20)
        assert orphan["name"].startswith(f"{claims.topic}/")

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            (["--delete"], "needs --older-than"),
            (["--delete", "--older-than", "5m"], "1h or more"),
            (["--older-than", "beginning"], "an age such as"),
            (["--older-than", "long"], "an age such as"),
        ],
    )
    def test_refuses_what_would_delete_too_much(
        self, claims: Claims, run: Callable[..., Result], arguments: list[str], problem: str
    ) -> None:
        claims.lose(1)
        claims.age(8)
        refused = run(*arguments)
        assert (refused.exit_code, problem in refused.output) == (2, True)
        assert len(claims.files()) == 1


def test_a_claim_that_was_sent_can_be_read(claims: Claims) -> None:
    """The tests above would prove nothing if no record had a claim."""
    with claims.chain.open() as session:
        (sent,) = session.send([record(claims.topic)])
    assert decode_claim(sent.headers.last(CLAIM_HEADER)).topic == claims.topic
