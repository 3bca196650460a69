"""What a walk over a signed topic finds, without any Kafka."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from headerware import Chain, ConfigError, Context, Headers, Record
from headerware.core.errors import KeyringError
from headerware.interceptors import Compress, HeaderIds, Sign, Slice, Trail
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.ops.verify import Report, Verification

NOW = 1_767_225_600_000
DAY_MS = 86_400_000


@pytest.fixture
def keyring(tmp_path: Path) -> str:
    path = tmp_path / "keys.json"
    edit_keyring(path, lambda keys: with_new_key(keys, "orders", "ed25519"), create=True)
    edit_keyring(path, lambda keys: with_new_key(keys, "hmac", "hmac-sha256"))
    return str(path)


def order(number: int = 0, **headers: str) -> Record:
    return Record("orders", b'{"id":%d}' % number * 20, b"key", Headers(headers or {"tenant": "blue"}))


def sent(chain: Chain, *records: Record, partition: int = 0, offset: int = 0) -> list[Record]:
    """Return records as they are on the wire, with offsets."""
    with chain.open(Context(side="producer", now_ms=lambda: NOW)) as session:
        wire = session.send(records)
    return [record.replace(partition=partition, offset=offset + at) for at, record in enumerate(wire)]


def verified(chain: Chain, wire: list[Record], topic: str = "orders", **options: Any) -> Report:
    verification = Verification(chain, topic, now_ms=lambda: NOW + 1000, **options)
    try:
        for record in wire:
            verification.look(record)
        return verification.report()
    finally:
        verification.close()


@pytest.mark.parametrize("options", [{"key_id": "hmac"}, {"key_id": "orders", "batch_records": 8}])
class TestReport:
    def test_counts_what_verifies_by_signer(self, keyring: str, options: dict[str, Any]) -> None:
        chain = Chain([Sign(keyring=keyring, **options)])
        wire = sent(chain, *map(order, range(5))) + sent(chain, order(), order(), partition=1, offset=7)
        report = verified(chain, wire)
        assert report.ok
        assert (report.records, report.verified, report.refused, report.unsigned) == (7, 7, 0, 0)
        first, second = report.signers
        assert (first.key_id, first.key_version, first.records) == (options["key_id"], 1, 5)
        assert (first.first_sequence, first.last_sequence, first.gaps, first.missing) == (0, 4, 0, 0)
        assert first.producer != second.producer
        (places,) = second.partitions.items()
        assert (places[0], places[1].records, places[1].first, places[1].last) == (1, 2, 7, 8)

    def test_finds_gaps_and_repeated_sequences(self, keyring: str, options: dict[str, Any]) -> None:
        chain = Chain([Sign(keyring=keyring, **options)])
        wire = sent(chain, *map(order, range(3000)))
        kept = [record for at, record in enumerate(wire) if at not in {5, 6, 1023, 1024, 2000}]
        report = verified(chain, [*kept, wire[0].replace(offset=9000)])
        (signer,) = report.signers
        assert (signer.gaps, signer.missing, signer.repeated) == (3, 5, 1)
        assert (signer.first_sequence, signer.last_sequence) == (0, 2999)
        assert report.ok  # a producer without idempotence does so, too

    def test_a_replay_window_refuses_what_is_repeated(self, keyring: str, options: dict[str, Any]) -> None:
        chain = Chain([Sign(keyring=keyring, replay_window=10, **options)])
        wire = sent(chain, order(), order())
        report = verified(chain, [*wire, wire[0].replace(offset=9000)])
        assert (report.verified, report.refused, report.ok) == (2, 1, False)
        assert "replayed" in report.refusals[0].reason

    def test_says_why_others_do_not_verify(self, keyring: str, options: dict[str, Any]) -> None:
        chain = Chain([Sign(keyring=keyring, **options)])
        wire = sent(chain, *map(order, range(6)))
        wire[1] = wire[1].replace(value=b"forged")
        wire[4] = wire[4].replace(value=b"forged")
        wire[2] = wire[2].with_headers(Headers([("hw.sig", b"!")]))
        wire[3] = wire[3].with_headers(Headers())
        report = verified(chain, wire)
        assert (report.verified, report.refused, report.unsigned, report.ok) == (2, 3, 1, False)
        forged, unreadable = sorted(report.refusals, key=lambda refusal: -refusal.records)
        assert "does not fit the record" in forged.reason
        assert (forged.key_id, forged.records) == (options["key_id"], 2)
        assert forged.producer == report.signers[0].producer
        assert (forged.partitions[0].first, forged.partitions[0].last) == (1, 4)
        assert "expected base64" in unreadable.reason
        assert unreadable.key_id is None
        assert report.unsigned_partitions[0].first == 3

    def test_names_headers_that_were_added_later(self, keyring: str, options: dict[str, Any]) -> None:
        chain = Chain([Sign(keyring=keyring, **options)])
        wire = sent(chain, *map(order, range(3)))
        wire[1] = wire[1].with_headers(wire[1].headers.add("x", b"1").add("y", b"2"))
        report = verified(chain, wire)
        assert (report.verified, report.uncovered) == (3, 1)
        assert report.uncovered_names == {"x": 1, "y": 1}
        assert report.signers[0].uncovered == 1
        refusing = Chain([Sign(keyring=keyring, uncovered="refuse", **options)])
        assert verified(refusing, wire).refused == 1


class TestChains:
    def test_a_whole_chain_is_verified_at_its_signature(self, keyring: str) -> None:
        def chain(**options: Any) -> Chain:
            sign = Sign(keyring=keyring, key_id="hmac", **options)
            return Chain(
                [Trail(service="s"), Compress(min_bytes=1), Slice(max_bytes=1000), sign, HeaderIds()]
            )

        large = order(1).replace(value=random.Random(1).randbytes(5_000))
        wire = sent(chain(), order(), large)
        assert len(wire) > 4
        assert verified(chain(), wire).verified == len(wire)
        # the first slice has the headers that must be covered, and the others need none
        assert verified(chain(covered=("tenant",)), wire).verified == len(wire)
        assert verified(chain(covered=("other",)), wire).refused == 2

    def test_what_is_old_is_judged_as_it_was_then(self, keyring: str) -> None:
        chain = Chain([Sign(keyring=keyring, key_id="hmac", max_age_ms=1)])
        verification = Verification(chain, "orders", now_ms=lambda: NOW + 400 * DAY_MS)
        for record in sent(chain, order()):
            verification.look(record)
        assert verification.report().ok
        verification.close()

    def test_the_cluster_counts(self, keyring: str) -> None:
        wire = sent(Chain([Sign(keyring=keyring, key_id="hmac", cluster="prod")]), order())
        report = verified(Chain([Sign(keyring=keyring)]), wire, cluster_id="stage")
        assert "signed for topic 'orders' of cluster 'prod'" in report.refusals[0].reason

    @pytest.mark.parametrize("on_error", ["drop", "dead_letter"])
    def test_no_record_is_dropped_or_published(self, keyring: str, on_error: Any) -> None:
        chain = Chain([Sign(keyring=keyring, key_id="hmac", on_error=on_error)])
        wire = [record.replace(value=b"forged") for record in sent(chain, order())]
        assert verified(chain, wire).refused == 1

    def test_a_chain_without_a_signature_for_the_topic_is_refused(self, keyring: str) -> None:
        for chain in (Chain([Compress()]), Chain([Sign(keyring=keyring, topics=("payments",))])):
            with pytest.raises(ConfigError, match="a chain with sign for topic 'orders'"):
                Verification(chain, "orders")

    def test_a_keyring_that_is_gone_is_no_verdict(self, keyring: str) -> None:
        chain = Chain([Sign(keyring=keyring, key_id="hmac", keyring_max_stale_ms=0)])
        wire = sent(chain, order())
        clock = [NOW]
        verification = Verification(chain, "orders", now_ms=lambda: clock[0])
        Path(keyring).unlink()
        clock[0] += 2_000
        with pytest.raises(KeyringError, match="cannot be read"):
            verification.look(wire[0])
        verification.close()


class TestBounds:
    def test_a_flood_of_claims_fills_no_report(self, keyring: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("headerware.ops.verify._MAX_REFUSALS", 10)
        chain = Chain([Sign(keyring=keyring, key_id="hmac")])
        forged = [
            record.replace(value=b"x", offset=at) for at in range(30) for record in sent(chain, order())
        ]
        report = verified(chain, forged)
        assert report.refused == 30
        assert len(report.refusals) == 11
        assert report.refusals[-1].reason == "(further reasons)"
        assert report.refusals[-1].records == 20

    def test_sequences_too_far_apart_are_not_followed(
        self, keyring: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headerware.ops.verify._MAX_PAGES", 2)
        chain = Chain([Sign(keyring=keyring, key_id="hmac")])
        wire = sent(chain, *map(order, range(3_000)))
        (signer,) = verified(chain, wire[::1024]).signers
        assert (signer.records, signer.gaps, signer.missing) == (3, None, None)

    def test_signers_beyond_the_limit_are_counted(
        self, keyring: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headerware.ops.verify._MAX_SIGNERS", 1)
        chain = Chain([Sign(keyring=keyring, key_id="hmac")])
        report = verified(chain, sent(chain, order()) + sent(chain, order(), order()))
        assert (report.verified, len(report.signers), report.signers_left_out) == (3, 1, 2)
        assert report.ok

    def test_signers_beyond_the_limit_take_no_room_of_the_others(
        self, keyring: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headerware.ops.verify._MAX_SIGNERS", 1)
        monkeypatch.setattr("headerware.ops.verify._MAX_PAGES", 3)
        chain = Chain([Sign(keyring=keyring, key_id="hmac", replay_window=10)])
        wire = sent(chain, *map(order, range(1_030)))
        report = verified(chain, [wire[0], *sent(chain, *map(order, range(5))), wire[-1], wire[-1]])
        assert (report.signers[0].records, report.signers[0].missing) == (2, 1_028)
        assert (report.signers_left_out, report.refused) == (5, 1)
