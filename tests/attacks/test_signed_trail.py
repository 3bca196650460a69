"""Somebody who may write to topics changes signed trails: who handled a record cannot be invented."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from headerware.core.chain import Chain
from headerware.core.errors import SignatureError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors import trail_proof
from headerware.interceptors.trail import PROOF_HEADER, TRAIL_HEADER, Trail
from headerware.interceptors.trail_proof import MAX_HOPS, TrailProver, prove_trail
from tests.trails import ORDER, Hops, own_headers, proofs_of, trail_of, with_trail

if TYPE_CHECKING:
    from pathlib import Path

HOP_BYTES = 2 + 16 + 64
ENTRY = b",at=1767225600009;by=audit;from=eu/packed;into=eu/packed"


@pytest.fixture
def hops(tmp_path: Path) -> Hops:
    return Hops(tmp_path)


def layout(record: Record) -> bytes:
    return base64.b64decode(proofs_of(record))


def proofs(layout: bytes) -> bytes:
    return base64.b64encode(layout)


def parts(record: Record) -> tuple[list[bytes], list[bytes]]:
    """Return the entries and the proofs of a trail from which nothing was left out."""
    found = layout(record)
    return trail_of(record).split(b",")[1:], [
        found[at : at + HOP_BYTES] for at in range(3, len(found), HOP_BYTES)
    ]


def made_of(record: Record, entries: list[bytes], hops: list[bytes]) -> Record:
    return with_trail(record, b",".join([b"1", *entries]), proofs(b"\x01\0\0" + b"".join(hops)))


def refusal(hops: Hops, record: Record, reader: str = "payment") -> str:
    """Return why a reader that requires proofs refuses the record."""
    with (
        hops.chain(reader, require="enforce").open(hops.context("consumer")) as session,
        pytest.raises(SignatureError) as error,
    ):
        session.consume([record])
    return str(error.value)


class TestHonest:
    def test_is_proven_and_passes(self, hops: Hops) -> None:
        record = hops.three()
        assert hops.prove(record).is_proven
        assert [hop.key_id for hop in hops.prove(record).hops] == ["shop", "payment", "packing"]
        assert hops.read("mallory", record, require="enforce").value == record.value


class TestEntries:
    def test_nobody_invents_a_hop_at_the_end(self, hops: Hops) -> None:
        record = hops.three()
        forged = with_trail(record, trail_of(record) + ENTRY)
        assert hops.states(forged) == ["proven", "proven", "proven", "unproven"]
        assert "hop 4 of 'audit' is unproven" in refusal(hops, forged)

    @pytest.mark.parametrize("at", [0, 1, 2])
    def test_nobody_invents_a_hop_before_the_end(self, hops: Hops, at: int) -> None:
        record = hops.three()
        entries, signed = parts(record)
        entries.insert(at, ENTRY[1:])
        forged = made_of(record, entries, [*signed[:at], b"\0\0", *signed[at:]])
        assert hops.states(forged) == [*["proven"] * at, "unproven", *["broken"] * (3 - at)]
        assert refusal(hops, forged)

    def test_nobody_invents_a_hop_with_the_proof_of_another(self, hops: Hops) -> None:
        record = hops.three()
        entries, signed = parts(record)
        forged = made_of(record, [*entries, ENTRY[1:]], [*signed, signed[2]])
        assert hops.states(forged)[2:] == ["unproven", "broken"]

    @pytest.mark.parametrize("at", [0, 1])
    def test_nobody_removes_a_hop_before_the_end(self, hops: Hops, at: int) -> None:
        record = hops.three()
        entries, signed = parts(record)
        del entries[at], signed[at]
        assert hops.states(made_of(record, entries, signed))[-1] == "broken"
        assert refusal(hops, made_of(record, entries, signed))

    def test_nobody_removes_a_hop_as_if_it_was_left_out(self, hops: Hops) -> None:
        record = hops.three()
        entries, signed = parts(record)
        for link in (bytes(32), b"\x07" * 32):
            proven = b"\x01\0\x02" + link + signed[0] + signed[2]
            forged = with_trail(record, b"1;left=1," + entries[0] + b"," + entries[2], proofs(proven))
            assert hops.states(forged) == ["proven", "broken"]

    def test_nobody_says_that_more_was_left_out(self, hops: Hops) -> None:
        record = hops.send("shop")
        for hop in range(6):
            record = hops.forward("payment", record, f"t{hop}", max_entries=3)
        start = trail_of(record).partition(b",")[0]
        assert (start, hops.states(record)) == (b"1;left=4", ["proven"] * 3)
        for left in (b"1", b"1;left=3", b"1;left=5"):
            assert not hops.prove(with_trail(record, trail_of(record).replace(start, left))).is_proven
        changed = bytearray(layout(record))
        changed[2] += 1
        both = with_trail(record, trail_of(record).replace(start, b"1;left=5"), proofs(bytes(changed)))
        assert hops.states(both)[1] == "broken"

    def test_nobody_says_that_entries_were_left_out_after_the_only_one(self, hops: Hops) -> None:
        record = hops.send("shop")
        found = layout(record)
        forged = with_trail(
            record, b"1;left=7" + trail_of(record)[1:], proofs(b"\x01\0\x08" + bytes(32) + found[3:])
        )
        assert hops.states(forged) == ["proven"]
        assert "how many entries were left out" in (hops.prove(forged).problem or "")
        assert "how many entries were left out" in refusal(hops, forged)

    def test_nobody_swaps_hops(self, hops: Hops) -> None:
        record = hops.three()
        entries, signed = parts(record)
        for order in ((1, 0, 2), (0, 2, 1), (2, 1, 0)):
            swapped = made_of(record, [entries[at] for at in order], [signed[at] for at in order])
            assert hops.states(swapped)[-1] == "broken", order

    @pytest.mark.parametrize(
        ("old", "new"),
        [(b"by=shop", b"by=snop"), (b"eu/orders", b"eu/others"), (b"at=17672256", b"at=17672257")],
    )
    def test_nobody_changes_an_entry(self, hops: Hops, old: bytes, new: bytes) -> None:
        record = hops.three()
        changed = with_trail(record, trail_of(record).replace(old, new, 1))
        assert set(hops.states(changed)) == {"broken"}

    def test_nobody_takes_a_proof_away_from_an_earlier_hop(self, hops: Hops) -> None:
        record = hops.three()
        entries, signed = parts(record)
        assert hops.states(made_of(record, entries, [b"\0\0", *signed[1:]])) == [
            "unproven",
            "broken",
            "broken",
        ]

    def test_the_end_can_be_cut_off_as_long_as_nobody_changes_the_record(self, hops: Hops) -> None:
        """Said in spec/trail.md: a trail proves who has handled a record, not that nobody else has."""
        record = hops.three()
        entries, signed = parts(record)
        cut = made_of(record, entries[:2], signed[:2])
        assert hops.states(cut) == ["proven", "broken"]  # its record is no longer known
        as_it_was = hops.forward("payment", hops.send("shop"), "paid", b"1")
        copied = as_it_was.replace(topic="packed")
        assert hops.states(copied) == ["proven", "proven"]
        assert "for topic 'paid'" in refusal(hops, copied)  # it was not sent into this topic


class TestRecords:
    def test_nobody_cuts_the_end_off_before_a_service_that_does_not_look(self, hops: Hops) -> None:
        """The services before the cut and after it have signed, and name different topics."""
        first = hops.send("shop").replace(topic="paid")  # as if payment had never sent it there
        record = hops.forward("packing", first, "packed", b"1")
        assert hops.states(record) == ["proven", "proven"]
        expected = "hop 1 sent it for topic 'orders' of cluster 'eu', found in topic 'paid'"
        assert expected in (hops.prove(record).problem or "")
        assert expected in refusal(hops, record)
        assert hops.prove(record, accept_origins=["eu/orders"]).is_proven

    def test_nobody_moves_a_trail_to_another_record(self, hops: Hops) -> None:
        one, other = hops.send("shop"), hops.send("shop", ORDER.replace(value=b'{"id": 2}'))
        moved = other.with_headers(
            Headers([*own_headers(other), *(pair for pair in one.headers if pair[0].startswith("hw."))])
        )
        assert hops.states(moved) == ["broken"]
        assert "hop 1 of 'shop' is broken" in refusal(hops, moved)

    @pytest.mark.parametrize(
        "changes",
        [
            {"value": b'{"id": 9}'},
            {"value": None},
            {"key": None},
            {"key": b"k-2"},
            {"value": b'{"id": 1}k', "key": b"-1"},
        ],
    )
    def test_nobody_changes_the_record_after_the_last_hop(
        self, hops: Hops, changes: dict[str, bytes | None]
    ) -> None:
        assert hops.states(hops.send("shop").replace(**changes)) == ["broken"]

    @pytest.mark.parametrize("pair", [("tenant", b"south"), ("Tenant", b"north"), ("x", None)])
    def test_nobody_adds_a_header(self, hops: Hops, pair: tuple[str, bytes | None]) -> None:
        record = hops.send("shop")
        assert hops.states(record.with_headers(Headers([pair, *record.headers]))) == ["broken"]

    def test_nobody_frees_the_last_hop_from_its_record(self, hops: Hops) -> None:
        """A proof with a digest instead of a salt fits any record, so the last hop must have the salt."""
        read = hops.read("payment", hops.send("shop"))
        found = layout(read)
        digest, head = found[-16:], int.from_bytes(found[3:5]) & ~0x1000
        freed = found[:3] + head.to_bytes(2) + digest + found[21:-18]
        other = ORDER.replace(value=b"other").with_headers(
            Headers(
                [*ORDER.headers, (TRAIL_HEADER, trail_of(hops.send("shop"))), (PROOF_HEADER, proofs(freed))]
            )
        )
        assert hops.states(other) == ["broken"]

    def test_what_a_writer_says_that_was_seen_counts_for_nothing(self, hops: Hops) -> None:
        record = hops.send("shop")
        forged = with_trail(record, proofs=proofs(layout(record) + b"\xe0\0" + b"x" * 16))
        assert hops.states(forged) == ["proven"]
        sent = hops.forward("payment", forged, "paid", b"other")
        assert hops.states(sent) == ["proven", "proven"]
        (plain,) = Chain([Trail(service="payment", cluster="eu")]).open(hops.context()).consume([forged])
        assert hops.states(hops.send("payment", plain.replace(topic="paid", value=b"x")))[0] == "broken"

    def test_a_service_that_reads_without_proofs_and_signs_takes_what_was_seen_from_anybody(
        self, hops: Hops
    ) -> None:
        """Said in spec/trail.md: the chain that reads must be signed, too."""
        record = hops.send("shop")
        digest = layout(hops.read("payment", record))[-16:]
        forged = with_trail(record, proofs=proofs(layout(record) + b"\xe0\0" + digest)).replace(value=b"x")
        (plain,) = Chain([Trail(service="payment", cluster="eu")]).open(hops.context()).consume([forged])
        sent = hops.send("payment", plain.replace(topic="paid", value=b"y"))
        assert hops.states(sent) == ["proven", "proven"]
        assert hops.states(hops.forward("payment", forged, "paid", b"y")) == ["broken", "proven"]

    def test_a_record_is_not_proven_in_another_topic(self, hops: Hops) -> None:
        record = hops.send("shop").replace(topic="refunds")
        assert "for topic 'orders'" in refusal(hops, record)
        assert "for topic 'orders'" in (hops.prove(record).problem or "")
        assert hops.prove(record, accept_origins=["eu/orders"]).is_proven
        allowed = hops.read("payment", record, require="enforce", accept_origins=("eu/orders",))
        assert allowed.value == ORDER.value


class TestKeys:
    def test_nobody_signs_with_a_key_that_readers_do_not_have(self, hops: Hops, tmp_path: Path) -> None:
        (tmp_path / "own").mkdir()
        forged = Hops(tmp_path / "own").send("shop")
        assert hops.states(forged) == ["broken"]
        others = prove_trail(forged, type(hops.keyring)(keys=()))
        assert [hop.state for hop in others.hops] == ["unproven"]
        assert "broken" in refusal(hops, forged)

    def test_nobody_speaks_for_another_service(self, hops: Hops) -> None:
        forged = hops.send("shop", key_id="mallory")
        (hop,) = hops.prove(forged).hops
        assert (hop.state, hop.key_id) == ("broken", "mallory")
        assert "may not speak for service 'shop'" in (hop.reason or "")
        assert hops.states(forged, signers=["mallory=s*"]) == ["proven"]
        assert "may not speak" in refusal(hops, forged)

    def test_a_hint_of_another_key_does_not_help(self, hops: Hops) -> None:
        shop, mallory = hops.send("shop"), hops.send("mallory")
        head = layout(shop)[3:5]
        assert hops.states(with_trail(mallory, proofs=proofs(b"\x01\0\0" + head + layout(mallory)[5:]))) == [
            "broken"
        ]


class TestBatches:
    def test_nobody_uses_a_shared_signature_for_another_record(self, hops: Hops) -> None:
        with hops.chain("shop", batch_records=8).open(hops.context("producer")) as session:
            records = session.send([ORDER.replace(value=b"%d" % number) for number in range(8)])
        assert all(hops.states(record) == ["proven"] for record in records)
        one, other = records[2], records[3]
        moved = other.with_headers(one.headers)
        assert hops.states(moved) == ["broken"]
        found, theirs = layout(one), layout(other)
        swapped = found[:21] + theirs[21:]  # the salt of one, and the path of the other
        assert hops.states(with_trail(one, proofs=proofs(swapped))) == ["broken"]
        outside = ORDER.replace(value=b"9").with_headers(one.headers)
        assert hops.states(outside) == ["broken"]

    def test_an_hmac_key_is_not_taken_for_one_of_a_batch(self, tmp_path: Path) -> None:
        hops = Hops(tmp_path, "hmac-sha256")
        record = hops.send("shop", batch_records=8)
        head = int.from_bytes(layout(record)[3:5]) & 0x1FFF | 4 << 13
        found = b"\x01\0\0" + head.to_bytes(2) + layout(record)[5:21] + (4 + 32 + 32).to_bytes(2)
        forged = found + b"\0\0\0\x02" + bytes(32) + layout(record)[-32:]
        assert prove_trail(with_trail(record, proofs=proofs(forged)), hops.keyring).hops[0].state == "broken"


class TestGarbage:
    @pytest.mark.parametrize(
        "value",
        [b"", b"*", b"AQ==", b"AQAA", b"AgAA", b"AQABAAAA", proofs(b"\x01\0\0\xa0\0" + bytes(80))],
        ids=["empty", "no base64", "short", "no proofs", "version", "the first is folded", "kind"],
    )
    def test_unreadable_proofs_prove_nothing_and_stop_no_service(self, hops: Hops, value: bytes) -> None:
        record = hops.send("shop")
        broken = with_trail(record, proofs=value)
        assert hops.states(broken) == ["unproven"]
        assert "proofs cannot be read" in refusal(hops, broken)
        assert hops.states(hops.forward("payment", broken, "paid", b"1")) == ["unproven", "proven"]

    def test_every_prefix_is_refused(self, hops: Hops) -> None:
        record = hops.three()
        found = layout(record)
        for end in range(len(found)):
            assert not hops.prove(with_trail(record, proofs=proofs(found[:end]))).is_proven, end

    def test_every_flipped_bit_is_found(self, hops: Hops) -> None:
        record = hops.three()
        found = layout(record)
        for bit in range(8 * len(found)):
            changed = bytearray(found)
            changed[bit // 8] ^= 1 << bit % 8
            assert not hops.prove(with_trail(record, proofs=proofs(bytes(changed)))).is_proven, bit

    def test_a_flood_of_proofs_is_refused_before_any_is_verified(self, hops: Hops) -> None:
        record = hops.send("shop")
        one = layout(record)[3:]
        flood = with_trail(record, proofs=proofs(b"\x01\0\0" + one * (MAX_HOPS + 1)))
        assert f"at most {MAX_HOPS}" in (hops.prove(flood).problem or "")
        entries = trail_of(record) + ENTRY * 1_000
        assert not hops.prove(with_trail(record, entries, proofs_of(flood))).is_proven

    def test_entries_that_no_proofs_can_have_are_refused_before_they_are_read(self, hops: Hops) -> None:
        record = hops.send("shop")
        assert "more than 1,000 entries" in refusal(
            hops, with_trail(record, trail_of(record) + b",at=0" * MAX_HOPS)
        )
        assert "hop 1000 is unproven" in refusal(
            hops, with_trail(record, trail_of(record) + b",at=0" * (MAX_HOPS - 1))
        )

    def test_a_forged_record_costs_one_signature(self, hops: Hops, monkeypatch: pytest.MonkeyPatch) -> None:
        record = hops.send("shop")
        one = layout(record)[3:]
        forged = with_trail(record, trail_of(record) + ENTRY * 500, proofs(b"\x01\0\0" + one * 501))
        tried: list[object] = []

        def fits(_prover: TrailProver, _key: object, hop: object, _link: object) -> bool:
            tried.append(hop)
            return False

        monkeypatch.setattr(TrailProver, "_fits", fits)
        assert "hop 501 of 'audit' is broken" in refusal(hops, forged)
        assert len(tried) == 1

    def test_what_others_wrote_does_not_make_headers_grow(self, hops: Hops) -> None:
        record = hops.send("shop")
        one = layout(record)[3:]
        full = with_trail(record, trail_of(record) + ENTRY * 500, proofs(b"\x01\0\0" + one * 500))
        sent = hops.forward("payment", full, "paid", b"1")
        assert len(trail_of(sent)) <= 4096
        assert len(proofs_of(sent)) <= 4096
        assert hops.states(sent)[-1] == "proven"

    def test_a_proof_that_never_fits_costs_one_hash_for_each_entry(
        self, hops: Hops, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        long = b"\x60\0" + bytes(16) + (60_000).to_bytes(2, "big") + bytes(60_000)
        count = 5_000
        full = with_trail(hops.send("shop"), b"1" + b",at=0" * count, proofs(b"\x01\0\0" + long))
        made: list[int] = []
        link = trail_proof._link

        def counted(number: int, *given: Any) -> bytes:
            made.append(number)
            return link(number, *given)

        monkeypatch.setattr(trail_proof, "_link", counted)
        read = hops.read("payment", full, max_entries=MAX_HOPS, max_bytes=0xFFFF)
        assert trail_of(read).startswith(b"1;left=%d,at=0," % (count - 1))
        assert len(made) == count + 1

    @pytest.mark.parametrize("value", [b"", b"2,at=1", b"1;left=x,at=1", b"1,at=1;by=" + b"x" * 5_000])
    def test_a_forged_trail_stops_no_service(self, hops: Hops, value: bytes) -> None:
        forged = ORDER.with_headers(Headers([*ORDER.headers, (TRAIL_HEADER, value)]))
        assert hops.states(hops.forward("payment", forged, "paid", b"1"))[-1] == "proven"
        assert refusal(hops, forged)

    def test_a_name_that_nobody_can_sign_stops_only_readers_that_require_proofs(self, hops: Hops) -> None:
        record = hops.send("shop")
        odd = record.with_headers(Headers.trusted((("a\0b", b"1"), *record.headers)))
        assert hops.states(hops.forward("payment", odd, "paid", b"1")) == ["broken", "proven"]
        assert "hop 1 of 'shop' is broken" in refusal(hops, odd)

    def test_a_record_without_a_trail_is_refused_where_proofs_are_required(self, hops: Hops) -> None:
        assert "it has no trail" in refusal(hops, ORDER)
        removed = hops.send("shop").with_headers(ORDER.headers)
        assert "it has no trail" in refusal(hops, removed)
