"""Claim check; tests/attacks/test_claim_check.py has what it refuses."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headerware import Chain, ClaimError, ConfigError, Context, Record, load_chain
from headerware.core.headers import Headers
from headerware.core.order import sizes, weaknesses
from headerware.interceptors import ClaimCheck, Encrypt, Sign, Slice, decode_claim
from headerware.interceptors.claim_check import CLAIM_HEADER, STUB
from headerware.object_store import FolderObjects
from tests.object_server import ObjectServer

VALUE = b"a value of some size"


@pytest.fixture
def step(tmp_path: Path) -> ClaimCheck:
    return ClaimCheck(stores={"archive": FolderObjects(path=str(tmp_path))}, min_bytes=10)


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


class TestSending:
    @pytest.mark.parametrize("value", [None, b"", b"0123456789"])
    def test_leaves_small_values_and_nulls_alone(self, step: ClaimCheck, tmp_path: Path, value: Any) -> None:
        record = Record("orders", value)
        assert step.open(Context()).on_send(record) is record
        assert files(tmp_path) == []

    def test_stores_a_larger_value_and_leaves_a_claim(self, step: ClaimCheck, tmp_path: Path) -> None:
        sent = step.open(Context()).on_send(Record("orders", VALUE, b"k", Headers([("a", b"1")])))
        claim = decode_claim(sent.headers.last(CLAIM_HEADER))
        assert (sent.value, sent.key, sent.headers[:-1]) == (STUB, b"k", (("a", b"1"),))
        assert (claim.store, claim.topic, claim.length) == ("archive", "orders", len(VALUE))
        assert files(tmp_path) == [claim.name]
        assert (tmp_path / claim.name).read_bytes() == VALUE

    def test_shows_nobody_which_values_are_equal(self, step: ClaimCheck, tmp_path: Path) -> None:
        opened = step.open(Context())
        for _ in range(2):
            opened.on_send(Record("orders", VALUE))
        assert len(files(tmp_path)) == 2

    def test_refuses_what_is_larger_than_the_cap(self, step: ClaimCheck, tmp_path: Path) -> None:
        capped = ClaimCheck(stores=step.stores, min_bytes=10, max_object_bytes=len(VALUE) - 1)
        with pytest.raises(ClaimError, match="max_object_bytes"):
            capped.open(Context()).on_send(Record("orders", VALUE))
        assert files(tmp_path) == []

    def test_refuses_a_topic_that_kafka_does_not_take(self, step: ClaimCheck, tmp_path: Path) -> None:
        with pytest.raises(ClaimError, match="topic"):
            step.open(Context()).on_send(Record("../orders", VALUE))
        assert files(tmp_path) == []

    def test_stores_nothing_if_it_only_shows_what_it_does(self, step: ClaimCheck, tmp_path: Path) -> None:
        assert step.open(Context(dry_run=True)).on_send(Record("orders", VALUE)).value == STUB
        assert files(tmp_path) == []

    @pytest.mark.parametrize(("client", "least"), [(None, 900_000), (1_000_000, 900_000), (100_000, 90_000)])
    def test_begins_where_the_client_ends(
        self, step: ClaimCheck, tmp_path: Path, client: int | None, least: int
    ) -> None:
        opened = ClaimCheck(stores=step.stores).open(Context(side="producer", max_message_bytes=client))
        opened.on_send(Record("orders", bytes(least)))
        assert files(tmp_path) == []
        opened.on_send(Record("orders", bytes(least + 1)))
        assert len(files(tmp_path)) == 1


class TestConsuming:
    def test_gives_the_value_back_and_takes_the_header_off(self, step: ClaimCheck) -> None:
        opened = step.open(Context())
        record = Record("orders", VALUE, b"k", Headers([("a", b"1")]))
        assert opened.on_consume(opened.on_send(record)) == record
        assert opened.stats() == {
            "stored": 1,
            "stored_bytes": len(VALUE),
            "fetched": 1,
            "fetched_bytes": len(VALUE),
        }

    def test_reads_from_any_store_and_writes_to_one(self, tmp_path: Path) -> None:
        stores = {}
        for alias in ("old", "new"):
            (tmp_path / alias).mkdir()
            stores[alias] = FolderObjects(path=str(tmp_path / alias))
        old = ClaimCheck(stores=stores, store="old", min_bytes=10).open(Context())
        new = ClaimCheck(stores=stores, store="new", min_bytes=10).open(Context())
        assert new.on_consume(old.on_send(Record("orders", VALUE))).value == VALUE
        assert len(files(tmp_path / "old")) == 1
        reader = ClaimCheck(stores=stores).open(Context(side="consumer"))
        assert reader.on_consume(new.on_send(Record("orders", VALUE))).value == VALUE

    def test_works_in_a_forked_child(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "tests")
        with ObjectServer() as server:
            options = ClaimCheck(stores={"archive": server.options()}, min_bytes=10, timeout_ms=10_000)
            with closing(options.open(Context())) as opened:
                record = opened.on_send(Record("orders", VALUE))
                child = os.fork()
                if not child:
                    same = opened.on_consume(record).value == VALUE
                    sent = opened.on_send(Record("orders", VALUE)).value == STUB
                    os._exit(0 if same and sent else 1)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
                assert len(server.objects) == 2


class TestOptions:
    def test_come_from_a_file_with_folders_beside_it(self, tmp_path: Path) -> None:
        (tmp_path / "objects").mkdir()
        (tmp_path / "headerware.toml").write_text(
            '[[interceptors]]\ntype = "claim_check"\nmin_bytes = 10\n'
            'stores = {archive = {type = "folder", path = "objects"}}\n'
        )
        with closing(load_chain(tmp_path / "headerware.toml").open()) as session:
            session.send([Record("orders", VALUE)])
        assert len(files(tmp_path / "objects")) == 1

    def test_come_from_the_flat_form(self, tmp_path: Path) -> None:
        chain = Chain.from_config(
            {
                "interceptors": "claim_check",
                "interceptors.claim_check.stores.archive.type": "folder",
                "interceptors.claim_check.stores.archive.path": str(tmp_path),
            }
        )
        assert chain.interceptors[0].stores == {"archive": FolderObjects(path=str(tmp_path))}  # type: ignore[attr-defined]

    @pytest.mark.parametrize(
        ("wrong", "path"),
        [
            ({"stores": {}}, "stores"),
            ({"stores": {"../x": FolderObjects(path=".")}}, "stores"),
            ({"store": "attic"}, "store"),
            ({"min_bytes": 11, "max_object_bytes": 10}, "min_bytes"),
            ({"accept_topics": ("orders-.*",)}, "accept_topics"),
        ],
    )
    def test_that_cannot_work_are_refused(self, wrong: dict[str, Any], path: str) -> None:
        with pytest.raises(ConfigError) as caught:
            ClaimCheck(**{"stores": {"archive": FolderObjects(path=".")}, **wrong})
        assert caught.value.path == path

    def test_of_a_producer_say_where_to_write(self) -> None:
        stores = {alias: FolderObjects(path=".") for alias in ("old", "new")}
        with pytest.raises(ConfigError, match="expected the alias of the store to write to"):
            ClaimCheck(stores=stores).open(Context(side="producer"))


class TestOrder:
    @pytest.fixture
    def encrypt(self) -> Encrypt:
        return Encrypt(key_service={"type": "file", "keyring": "keys.json"}, key_id="k")

    def test_lets_values_be_encrypted_before_they_are_stored(
        self, step: ClaimCheck, encrypt: Encrypt
    ) -> None:
        Chain([encrypt, step])
        with pytest.raises(ConfigError, match="plaintext"):
            Chain([step, encrypt])

    def test_signs_the_claim(self, step: ClaimCheck, tmp_path: Path) -> None:
        sign = Sign(keyring=str(tmp_path / "keys.json"), key_id="k")
        Chain([step, sign])
        with pytest.raises(ConfigError, match="cannot work"):
            Chain([sign, step])

    def test_comes_before_slices(self, step: ClaimCheck) -> None:
        Chain([step, Slice()])
        with pytest.raises(ConfigError, match="cannot work"):
            Chain([Slice(), step])


class TestSizes:
    """Between one record, slices and claims, the size of the value decides."""

    def check(self, step: ClaimCheck, above: int | None) -> ClaimCheck:
        return ClaimCheck(stores=step.stores, min_bytes=above)

    def test_are_those_that_the_chain_keeps_to(self, step: ClaimCheck, tmp_path: Path) -> None:
        chain = Chain([self.check(step, 50_000), Slice(max_bytes=10_000)])
        with closing(chain.open()) as session:
            for size, count, stored in ((9_000, 1, 0), (40_000, 5, 0), (50_001, 1, 1)):
                sent = session.send([Record("orders", bytes(size))])
                assert (len(sent), len(files(tmp_path))) == (count, stored)
                received = session.consume(
                    [
                        record.replace(partition=0, offset=offset)
                        for offset, record in enumerate(sent, start=size)
                    ]
                )
                assert [record.value for record in received] == [bytes(size)]

    def test_are_told_for_a_chain(self, step: ClaimCheck) -> None:
        chain = [self.check(step, 50_000), Slice(max_bytes=10_000)]
        assert sizes(chain) == [("slice", 10_000, 50_000), ("claim_check", 50_000, 256 << 20)]
        assert sizes([Slice()]) == [("slice", 900_000, 256 << 20)]
        assert sizes([]) == []

    def test_that_nobody_takes_are_refused(self, step: ClaimCheck) -> None:
        with pytest.raises(ConfigError, match="values of the sizes between would be refused"):
            Chain([self.check(step, 50_000), Slice(max_bytes=10_000, max_message_bytes=40_000)])

    def test_that_leave_nothing_to_slices_are_a_warning(self, step: ClaimCheck) -> None:
        found = dict(weaknesses([self.check(step, 10_000), Slice(max_bytes=10_000)]))
        assert "never gets a large value" in found["slice"]
        assert "slice" not in dict(weaknesses([self.check(step, 50_000), Slice(max_bytes=10_000)]))

    @pytest.mark.parametrize(("min_bytes", "warnings"), [(None, 0), (999_999, 0), (1_000_000, 1)])
    def test_that_a_client_does_not_take_are_a_warning(
        self, step: ClaimCheck, min_bytes: int | None, warnings: int
    ) -> None:
        check = self.check(step, min_bytes)
        assert len([why for _, why in weaknesses([check]) if "message.max.bytes" in why]) == warnings
        assert not [why for _, why in weaknesses([check, Slice()]) if "message.max.bytes" in why]

    def test_do_not_matter_between_different_topics(self, step: ClaimCheck) -> None:
        check = ClaimCheck(stores=step.stores, min_bytes=50_000, topics=("orders",))
        slices = Slice(max_message_bytes=40_000, topics=("bills",))
        Chain([check, slices])
        assert sizes([check, slices]) == []


class TestWarnings:
    def test_say_that_objects_are_plaintext(self, step: ClaimCheck) -> None:
        encrypt = Encrypt(key_service={"type": "file", "keyring": "keys.json"}, key_id="k")
        assert "claim_check" in dict(weaknesses([step]))
        assert "claim_check" not in dict(weaknesses([encrypt, step]))
