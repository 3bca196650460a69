"""Signed trails: what they cost, how they go on, and what becomes of proofs at the bounds."""

from __future__ import annotations

import base64
import logging
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headerware.core.batch import Batch
from headerware.core.carry import AtWork
from headerware.core.chain import Chain
from headerware.core.config import from_flat
from headerware.core.errors import ConfigError, HeaderwareError, KeyringError, SignatureError
from headerware.core.headers import Headers
from headerware.core.hooks import Role
from headerware.core.native import offered_natively
from headerware.core.order import weaknesses
from headerware.core.record import Record
from headerware.interceptors.compress import Compress
from headerware.interceptors.dedup import Dedup
from headerware.interceptors.encrypt import Encrypt
from headerware.interceptors.header_ids import HeaderIds
from headerware.interceptors.sign import Sign
from headerware.interceptors.slice import Slice
from headerware.interceptors.trace import Trace
from headerware.interceptors.trail import PROOF_HEADER, TRAIL_HEADER, Trail, read_trail
from headerware.interceptors.trail_proof import PROVEN, is_covered, prove_trail, read_proofs
from headerware.keyring import read_keyring, with_new_key, with_revocation, with_rotation
from headerware.keyring.writing import edit_keyring
from tests.trails import ORDER, WHEN, Hops, proofs_of, trail_of, with_trail

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def hops(tmp_path: Path) -> Hops:
    return Hops(tmp_path)


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "path"),
        [
            ({"signed": True}, "keyring"),
            ({"keyring": "k"}, "keyring"),
            ({"key_id": "k"}, "key_id"),
            ({"require": True}, "require"),
            ({"batch_records": 2}, "batch_records"),
            ({"signers": ("a=b",)}, "signers"),
            ({"signed": True, "keyring": "k", "signers": ("a",)}, "signers"),
            ({"signed": True, "keyring": "k", "signers": ("=b",)}, "signers"),
            ({"signed": True, "keyring": "k", "require": "maybe"}, "require"),
            ({"signed": True, "keyring": "k", "batch_records": 70_000}, "batch_records"),
            ({"signed": True, "keyring": "k", "accept_origins": ("orders",)}, "accept_origins"),
            ({"signed": True, "keyring": "k", "keyring_counter": "c"}, "keyring_counter"),
        ],
    )
    def test_that_contradict_each_other_are_refused(self, options: dict[str, Any], path: str) -> None:
        with pytest.raises(ConfigError) as error:
            Trail(**options)
        assert error.value.path == path

    def test_a_signed_trail_protects(self, hops: Hops) -> None:
        (signed,) = hops.chain("shop")
        assert isinstance(signed, Trail)
        assert (Trail().role, signed.role) == (Role.OBSERVE, Role.PROTECT)
        assert hops.chain("shop").open().steps[0].on_error == "raise"
        with pytest.raises(ConfigError, match="unprotected record"):
            Chain([Trail(service="s", signed=True, keyring=hops.path, on_error="skip")])

    def test_come_from_a_flat_configuration(self, hops: Hops) -> None:
        found = from_flat({
            "interceptors": "trail",
            "interceptors.trail.signed": "true",
            "interceptors.trail.keyring": hops.path,
            "interceptors.trail.signers": "old=shop,old=pay*",
        })  # fmt: skip
        (step,) = found.interceptors
        assert isinstance(step, Trail)
        assert (step.signed, step.signers) == (True, ("old=shop", "old=pay*"))

    def test_a_producer_needs_a_key(self, hops: Hops) -> None:
        with pytest.raises(ConfigError, match="id of a key"):
            Chain([Trail(signed=True, keyring=hops.path)]).open(hops.context("producer"))
        with pytest.raises(KeyringError, match="nobody"):
            hops.chain("nobody").open(hops.context("producer"))
        hops.chain("nobody").open(hops.context("consumer")).close()

    def test_a_missing_keyring_is_named(self, tmp_path: Path) -> None:
        chain = Chain([Trail(service="shop", signed=True, keyring=str(tmp_path / "none.json"))])
        with pytest.raises(KeyringError, match=r"none\.json") as error:
            chain.open()
        assert "keyring" in str(error.value.path)

    def test_a_file_that_is_no_keyring_is_found_before_anything_opens(self, tmp_path: Path) -> None:
        (tmp_path / "keys.json").write_text("{}")
        step = Trail(service="shop", signed=True, keyring=str(tmp_path / "keys.json"))
        with pytest.raises(KeyringError):
            step.check_files()
        Trail().check_files()

    def test_there_is_no_native_form(self, hops: Hops) -> None:
        signed, plain = (chain.open().steps[0].opened for chain in (hops.chain("shop"), Chain([Trail()])))
        assert offered_natively(signed) is None
        assert offered_natively(plain) is not None

    def test_a_signed_trail_of_encrypted_values_is_a_weakness(self, hops: Hops) -> None:
        encrypt = Encrypt(key_service={"type": "file", "keyring": hops.path}, key_id="shop")
        (signed,) = hops.chain("shop")
        assert "trail" in [name for name, why in weaknesses([signed, encrypt]) if "test a guess" in why]
        assert "trail" not in [name for name, _ in weaknesses([Trail(), encrypt])]
        assert "trail" not in [name for name, _ in weaknesses([signed, Compress()])]


class TestHop:
    def test_is_about_the_schema_of_the_value(self, hops: Hops) -> None:
        record = hops.send("shop", ORDER.with_headers(Headers([("hw.schema", b"AAAA")])))
        other = Headers([("hw.schema", b"AAAB"), *record.headers[1:]])
        assert (hops.states(record), hops.states(record.with_headers(other))) == (["proven"], ["broken"])

    def test_costs_at_most_110_bytes(self, hops: Hops) -> None:
        record = hops.send("shop")
        sizes = [len(proofs_of(record))]
        for hop in range(1, 30):
            record = hops.forward("payment", record, f"t{hop}", b"%d" % hop)
            sizes.append(len(proofs_of(record)))
        assert all(size <= 110 * number + 6 for number, size in enumerate(sizes, 1))
        assert hops.states(record) == ["proven"] * 30

    def test_leaves_the_trail_as_it_is_without_signatures(self, tmp_path: Path) -> None:
        def trail(**options: Any) -> bytes:
            hops = Hops(tmp_path, create=False)
            first = hops.send("shop", **options)
            record = hops.forward("payment", first, "paid", b"1", max_entries=2, **options)
            return re.sub(rb"at=[0-9]+", b"at=0", trail_of(record))

        Hops(tmp_path)
        assert trail() == trail(signed=False, keyring=None)

    def test_of_a_tombstone_is_proven(self, hops: Hops) -> None:
        record = hops.forward("payment", hops.send("shop", Record("orders", None, b"k")), "paid", None)
        assert hops.states(record) == ["proven", "proven"]
        assert hops.states(record.replace(value=b"")) == ["proven", "broken"]

    @pytest.mark.parametrize("algorithm", ["hmac-sha256", "ecdsa-p256", "rsa-pss-sha256"])
    def test_is_signed_by_any_algorithm(self, tmp_path: Path, algorithm: str) -> None:
        hops = Hops(tmp_path, algorithm)
        assert prove_trail(hops.three(), hops.keyring).is_proven

    def test_of_a_job_is_proven_by_the_key_of_its_service(self, hops: Hops) -> None:
        step = hops.chain("shop").open(hops.context())
        step.begin("orders#17")
        (record,) = step.send([ORDER])
        assert read_trail(record.headers)[-1].by_whom == "shop/orders#17"
        assert hops.states(record) == ["proven"]

    def test_has_a_digest_that_differs_for_equal_records(self, hops: Hops) -> None:
        one, other = (base64.b64decode(proofs_of(hops.send("shop"))) for _ in range(2))
        assert one[5:21] != other[5:21]

    @pytest.mark.parametrize(
        ("name", "covered"),
        [
            ("tenant", True),
            ("content-type", True),
            ("x-request-id", True),
            ("hw.owner", True),
            ("hw.schema", True),
            ("HW.Owner", False),
            ("hw.expires", False),
            ("hw.contract", False),
            ("HW.sig", False),
            ("~F", False),
            ("traceparent", False),
            ("Baggage", False),
            ("x-b3-traceid", False),
            ("x-datadog-trace-id", False),
            ("headerware.redriven", False),
        ],
    )
    def test_covers_what_the_application_wrote(self, name: str, *, covered: bool) -> None:
        assert is_covered(name) == covered


class TestReading:
    def test_shows_the_readers_own_entry_as_read(self, hops: Hops) -> None:
        read = hops.read("payment", hops.send("shop"))
        proof = hops.prove(read)
        assert ([hop.state for hop in proof.hops], proof.is_proven) == (["proven", "read"], True)

    def test_is_left_to_each_record_of_a_batch(self, hops: Hops) -> None:
        records = [hops.send("shop").replace(offset=at) for at in range(3)]
        with hops.chain("payment", require="enforce").open(hops.context()) as session:
            found = session.consume(records)
        assert [hops.states(record) for record in found] == [["proven", "read"]] * 3

    def test_verifies_nothing_unless_it_is_required(self, hops: Hops) -> None:
        forged = hops.send("shop").replace(value=b"other")
        assert (hops.read("payment", forged).local or {}).get(PROVEN) is None

    def test_warns_once_for_each_topic_and_counts(self, hops: Hops, caplog: pytest.LogCaptureFixture) -> None:
        forged = hops.send("shop").replace(value=b"other")
        with (
            caplog.at_level(logging.WARNING),
            hops.chain("payment", require="warn").open(hops.context()) as session,
        ):
            assert len(session.consume([forged, forged, hops.send("shop")])) == 3
            assert session.stats()["trail"]["unproven"] == 2
        assert [each.getMessage() for each in caplog.records if "not proven" in each.getMessage()] == [
            "topic 'orders' has records whose trail is not proven"
        ]

    def test_keeps_a_malformed_trail_as_it_is(self, hops: Hops) -> None:
        record = ORDER.with_headers(Headers([(TRAIL_HEADER, b"2")]))
        assert hops.read("payment", record) == record

    def test_a_dry_run_proves_and_adds_nothing(self, hops: Hops) -> None:
        record, context = hops.send("shop"), hops.context("consumer")
        with hops.chain("payment").open(
            type(context)(side="consumer", now_ms=context.now_ms, dry_run=True)
        ) as session:
            (found,) = session.consume([record])
        assert found.headers == record.headers
        assert (found.local or {})[PROVEN].is_proven

    def test_fails_while_the_keyring_cannot_be_read(self, hops: Hops) -> None:
        record = hops.send("shop")
        chain = hops.chain("payment", require="enforce", keyring_max_stale_ms=1)
        with chain.open(hops.context()) as session:
            Path(hops.path).unlink()
            hops.clock += 5_000
            with pytest.raises(HeaderwareError, match="last good keyring"):
                session.consume([record])


class TestGoingOn:
    def test_copied_headers_go_on_as_carried_ones_do(self, hops: Hops) -> None:
        read = hops.read("payment", hops.send("shop"))
        assert hops.states(hops.send("payment", read.replace(topic="paid", value=b"1"))) == ["proven"] * 2

    def test_of_one_signature_only_the_last_header_counts(self, hops: Hops) -> None:
        record = hops.send("shop")
        headers = Headers([(PROOF_HEADER, b"*"), *record.headers])
        sent = hops.forward("payment", record.with_headers(headers), "paid")
        assert sent.headers.names().count(PROOF_HEADER) == 1
        assert hops.states(sent) == ["proven", "proven"]

    @pytest.mark.parametrize("keeps", [True, False])
    def test_a_service_that_does_not_sign_leaves_a_hop_without_proof(
        self, hops: Hops, *, keeps: bool
    ) -> None:
        plain: dict[str, Any] = {"signed": False, "keyring": None}
        value = b"" if keeps else b"changed"
        middle = hops.forward("payment", hops.send("shop"), "paid", value, **plain)
        assert hops.states(middle) == ["proven" if keeps else "unproven", "unproven"]
        sent = hops.forward("packing", middle, "packed", b"1")
        assert hops.states(sent) == ["proven" if keeps else "unproven", "unproven", "proven"]

    def test_what_was_seen_is_not_sent(self, hops: Hops) -> None:
        read = hops.read("payment", hops.send("shop"))
        sent = hops.send("payment", read.replace(topic="paid"))
        assert (read_proofs(proofs_of(read)).seen is None, read_proofs(proofs_of(sent)).seen) == (False, None)

    def test_proofs_and_trail_go_on_together_or_not_at_all(self, hops: Hops) -> None:
        read = hops.read("payment", hops.send("shop"))
        own = (TRAIL_HEADER, b"1,at=1;by=else;into=?/x")
        with hops.chain("payment").open(hops.context()) as session, AtWork([read]):
            (sent,) = session.send([Record("paid", b"1", headers=Headers([own]))])
        assert hops.states(sent) == ["unproven", "proven"]

    def test_the_last_hop_is_proven_after_a_redrive(self, hops: Hops) -> None:
        record = hops.send("shop")
        again = record.with_headers(Headers([*record.headers, ("headerware.redriven", b"1")]))
        assert hops.states(again) == ["proven"]

    def test_the_steps_to_the_right_change_nothing(self, hops: Hops) -> None:
        def chain(service: str) -> Chain:
            (trail,) = hops.chain(service, require="enforce")
            steps = [trail, Trace(), Dedup(), Compress(min_bytes=1), Slice(max_bytes=1000), Sign(
                keyring=hops.path, key_id=service
            ), HeaderIds()]  # fmt: skip
            return Chain(steps)

        order = ORDER.replace(value=os.urandom(1500))
        with chain("shop").open(hops.context()) as session:
            sent = session.send([order])
        assert len(sent) > 1
        wire = [record.replace(partition=0, offset=at) for at, record in enumerate(sent)]
        with chain("payment").open(hops.context()) as session:
            (read,) = session.consume(wire)
        assert (read.value, hops.states(read)) == (order.value, ["proven", "read"])


class TestBounds:
    def loop(self, hops: Hops, count: int, **options: Any) -> Record:
        record = hops.send("shop", **options)
        for hop in range(count):
            record = hops.forward("payment", record, f"t{hop}", b"%d" % hop, **options)
        return record

    @pytest.mark.parametrize("most", [2, 3, 5])
    def test_entries_that_are_dropped_are_folded(self, hops: Hops, most: int) -> None:
        record = self.loop(hops, 8, max_entries=most)
        found = read_trail(record.headers)
        assert (len(found), found.left_out) == (most, 9 - most)
        assert hops.states(record) == ["proven"] * most

    def test_proofs_that_are_too_long_are_folded_with_their_entries(self, tmp_path: Path) -> None:
        hops = Hops(tmp_path, "rsa-pss-sha256")
        record = self.loop(hops, 9, max_bytes=2646)
        found = read_trail(record.headers)
        assert len(proofs_of(record)) <= 2646
        assert (found.left_out + len(found), hops.states(record)) == (10, ["proven"] * len(found))

    def test_services_with_other_bounds_go_on(self, hops: Hops) -> None:
        record = self.loop(hops, 6, max_entries=4)
        record = hops.forward("packing", record, "packed", b"x", max_entries=2)
        record = hops.forward("payment", record, "paid", b"y", max_entries=9)
        assert hops.states(record) == ["proven"] * 3

    def test_a_service_without_signatures_that_drops_entries_ends_what_can_be_proven(
        self, hops: Hops
    ) -> None:
        plain: dict[str, Any] = {"signed": False, "keyring": None}
        record = hops.forward("packing", self.loop(hops, 5), "packed", b"x", max_entries=4, **plain)
        assert hops.states(record) == ["proven", "unproven", "unproven", "unproven"]
        record = hops.forward("payment", record, "paid", b"y")
        assert hops.states(record) == ["proven", "unproven", "unproven", "unproven", "proven"]
        assert hops.states(hops.forward("packing", record, "packed", b"z"))[-2:] == ["proven", "proven"]

    @pytest.mark.parametrize("left", [65_533, 65_534, 65_535])
    def test_counts_that_end_at_65535_are_proven(self, hops: Hops, left: int) -> None:
        first = hops.send("shop")
        start = b"1;left=%d," % left
        value = start + trail_of(first)[2:] + b",at=5;by=payment;into=eu/t"
        record = with_trail(first, value, base64.b64encode(b""))
        for hop in range(4):
            record = hops.forward("payment", record, f"t{hop}", b"%d" % hop, max_entries=4)
        assert hops.states(record) == ["unproven", "proven", "proven", "proven"]


class TestBatches:
    @pytest.mark.parametrize("count", [2, 7, 8, 9])
    def test_share_signatures(self, hops: Hops, count: int) -> None:
        with hops.chain("shop", batch_records=8).open(hops.context("producer")) as session:
            records = session.send([ORDER.replace(value=b"%d" % at) for at in range(count)])
        assert [hops.states(record) for record in records] == [["proven"]] * count
        signatures = {base64.b64decode(proofs_of(record))[-64:] for record in records}
        assert len(signatures) == {2: 1, 7: 1, 8: 1, 9: 2}[count]

    def test_go_on_like_others(self, hops: Hops) -> None:
        with hops.chain("shop", batch_records=8).open(hops.context("producer")) as session:
            first, *_ = session.send([ORDER.replace(value=b"%d" % at) for at in range(5)])
        assert hops.states(hops.forward("payment", first, "paid", b"x")) == ["proven", "proven"]

    @pytest.mark.parametrize(("algorithm", "most"), [("hmac-sha256", 8), ("ed25519", 1)])
    def test_do_not_share_where_it_does_not_pay(self, tmp_path: Path, algorithm: str, most: int) -> None:
        hops = Hops(tmp_path, algorithm)
        with hops.chain("shop", batch_records=most).open(hops.context("producer")) as session:
            records = session.send([ORDER.replace(value=b"%d" % at) for at in range(5)])
        assert all(prove_trail(record, hops.keyring).is_proven for record in records)
        assert len({base64.b64decode(proofs_of(record))[-32:] for record in records}) == 5

    def test_a_record_that_cannot_be_signed_does_not_stop_the_others(self, hops: Hops) -> None:
        bad = ORDER.with_headers(Headers([("a\0b", b"")]))
        step = hops.chain("shop", batch_records=8).open(hops.context()).steps[0].opened
        out = step.on_send_batch(Batch.of([ORDER, bad, ORDER]))
        assert list(out.failures) == [1]
        assert [hops.states(out[at]) for at in (0, 2)] == [["proven"], ["proven"]]


class TestKeys:
    def edit(self, hops: Hops, change: Callable[[Any], Any]) -> None:
        edit_keyring(hops.path, change)
        hops.clock += 2_000

    def test_rotation_needs_no_restart(self, hops: Hops) -> None:
        with hops.chain("shop").open(hops.context("producer")) as session:
            (before,) = session.send([ORDER])
            self.edit(hops, lambda ring: with_rotation(ring, "shop"))
            (after,) = session.send([ORDER])
        ring = read_keyring(hops.path)
        assert [prove_trail(record, ring).hops[0].key_version for record in (before, after)] == [1, 2]
        assert hops.states(after) == ["unproven"]  # by a keyring without the new version

    def test_a_revoked_key_proves_nothing(self, hops: Hops) -> None:
        record = hops.three()
        ring = with_revocation(hops.keyring, "payment", reason="lost")
        found = prove_trail(record, ring)
        assert [hop.state for hop in found.hops] == ["proven", "unproven", "proven"]
        assert "revoked" in (found.problem or "")

    def test_a_key_for_other_topics_neither_signs_nor_proves(self, hops: Hops) -> None:
        ring = with_new_key(hops.keyring, "billing", "ed25519", topics=("bills",))
        edit_keyring(hops.path, lambda _: ring)
        with pytest.raises(SignatureError, match="is for topics bills"):
            hops.send("billing")
        bill = hops.send("billing", ORDER.replace(topic="bills"))
        assert prove_trail(bill, ring).is_proven
        narrowed = type(ring)(keys=tuple(
            type(key)(**{name: getattr(key, name) for name in key.__struct_fields__} | {"topics": ("x",)})
            for key in ring.keys
        ))  # fmt: skip
        assert prove_trail(bill, narrowed).hops[0].state == "unproven"

    def test_a_key_that_has_ended_proves_nothing_later(self, hops: Hops) -> None:
        record = hops.send("shop")
        ended = datetime.fromtimestamp(WHEN / 1000 - 60, UTC)
        ring = type(hops.keyring)(keys=tuple(
            type(key)(**{name: getattr(key, name) for name in key.__struct_fields__} | {"not_after": ended})
            for key in hops.keyring.keys
        ))  # fmt: skip
        assert "valid until" in (prove_trail(record, ring).hops[0].reason or "")
