"""Attacks on signatures that a batch shares: each is refused, as with a signature of its own."""

from __future__ import annotations

import hmac
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import SignatureError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors.sign import Sign, SignStep
from headerware.keyring import Key, Keyring, encode_keyring, read_keyring, with_new_key, with_revocation
from headerware.keyring.merkle import batch_signer, leaf_beginning, tree
from headerware.keyring.signature import (
    BATCH,
    Statement,
    beginning,
    decode_statement,
    encode_stamp,
    rest_of_signed_bytes,
    verifier,
)
from tests.batches import sent_together

COUNT = 11
STAMP = encode_stamp(1000, b"attacker", 7)
HEADERS = Headers([("tenant", b"blue"), ("note", None)])


def plain(at: int, topic: str = "orders") -> Record:
    return Record(topic, b'{"id":%d}' % at, b"k-%d" % at, HEADERS, partition=3, offset=1000 + at)


def saved(path: Path, keyring: Keyring) -> Path:
    path.write_bytes(encode_keyring(keyring))
    path.chmod(0o600)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    keyring = with_new_key(with_new_key(Keyring(), "orders", "ed25519"), "mallory", "ed25519")
    return saved(tmp_path / "keys.json", with_new_key(keyring, "services", "ecdsa-p256"))


def opened(path: Path, key_id: str | None = None, **options: Any) -> SignStep:
    given = {"batch_records": 64, "cluster": "prod", **options}
    return Sign(keyring=str(path), key_id=key_id, **given).open(Context(now_ms=lambda: 1000))


def batch_of(path: Path, records: Sequence[Record], key_id: str = "orders", **options: Any) -> list[Record]:
    signed = sent_together(opened(path, key_id, **options), records)
    return [record for record in signed if isinstance(record, Record)]


@pytest.fixture
def batch(path: Path) -> list[Record]:
    return batch_of(path, [plain(at) for at in range(COUNT)])


@pytest.fixture(params=[0, 1, 2], ids=["a new batch", "a batch that was read", "a batch half read"])
def reader(request: pytest.FixtureRequest, path: Path, batch: list[Record]) -> SignStep:
    """Return a reader; what it has verified before must not change its answers."""
    step = opened(path)
    for record in batch[:: request.param] if request.param else ():
        step.on_consume(record)
    return step


def layout_of(record: Record) -> bytes:
    return b64decode(record.headers.last("hw.sig") or b"", validate=True)


def parts_of(record: Record) -> tuple[bytes, bytes, bytes, bytes]:
    """Return statement and stamp, place, path, signature."""
    layout = layout_of(record)
    end = decode_statement(layout)[1] + 24
    return layout[:end], layout[end : end + 4], layout[end + 4 : -64], layout[-64:]


def with_layout(record: Record, *parts: bytes) -> Record:
    text = b64encode(b"".join(parts))
    return record.with_headers(Headers([*record.headers[:-1], ("hw.sig", text)]))


def place(index: int, count: int) -> bytes:
    return struct.pack(">HH", index, count)


def node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def leaves_of(path: Path, batch: Sequence[Record]) -> list[bytes]:
    hashed, rest = None, rest_of_signed_bytes()
    leaves = []
    for record in batch:
        head = parts_of(record)[0]
        if hashed is None:
            hashed = leaf_beginning(read_keyring(path).current_key("orders", "sign", 0), head[:-24])
        signed = rest(hashed + head[-24:], record.key, record.value, record.headers[:-1])
        leaves.append(sha256(signed).digest())
    return leaves


def refused(reader: SignStep, record: Record, match: str = "does not fit the record") -> None:
    with pytest.raises(SignatureError, match=match):
        reader.on_consume(record)


class TestEachRecordVerifiesAlone:
    @pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 31, 33])
    def test_from_any_offset_after_any_loss(self, path: Path, count: int) -> None:
        for signed in batch_of(path, [plain(at) for at in range(count)]):
            assert opened(path).on_consume(signed).headers == HEADERS  # a reader that saw no other

    @pytest.mark.parametrize("step", [1, -1, 2, 3, 7])
    def test_reordered_and_filtered_records_are_accepted(
        self, path: Path, batch: list[Record], step: int
    ) -> None:
        reader = opened(path)
        for signed in batch[::step]:
            assert reader.on_consume(signed).value == signed.value

    def test_each_can_be_read_again(self, path: Path, batch: list[Record]) -> None:
        reader = opened(path)
        for signed in [*batch, *batch[::-1], *batch]:
            assert reader.on_consume(signed).headers == HEADERS

    def test_a_batch_costs_one_verification(
        self, path: Path, batch: list[Record], verifications: list[int]
    ) -> None:
        reader = opened(path)
        for signed in batch:
            reader.on_consume(signed)
        assert len(verifications) == 1

    def test_in_a_mirror_that_the_reader_permits(self, path: Path, batch: list[Record]) -> None:
        mirror = opened(path, cluster="backup", accept_origins=("prod/{topic}",))
        for signed in batch:
            assert mirror.on_consume(signed).verified is not None


@pytest.fixture
def verifications(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that has an entry for each signature that is verified; nothing else changes."""
    counted: list[int] = []

    def counting(key: Key, begun: bytes) -> Callable[[bytes, bytes], bool]:
        verify = verifier(key, begun)

        def noted(rest: bytes, signature: bytes) -> bool:
            counted.append(1)
            return verify(rest, signature)

        return noted

    monkeypatch.setattr("headerware.keyring.merkle.verifier", counting)
    return counted


class TestChangedRecords:
    @pytest.mark.parametrize(
        "changes",
        [
            {"value": b"forged"},
            {"value": None},
            {"key": b"forged"},
            {"key": None},
        ],
    )
    def test_tampered(self, reader: SignStep, batch: list[Record], changes: dict[str, Any]) -> None:
        for signed in batch:
            refused(reader, signed.replace(**changes))

    def test_headers_changed_or_taken_out(self, reader: SignStep, batch: list[Record]) -> None:
        for headers in ([("tenant", b"red"), HEADERS[1]], HEADERS[1:], [HEADERS[1], HEADERS[0]], []):
            refused(reader, batch[3].with_headers(Headers([*headers, batch[3].headers[-1]])))

    def test_stripped(self, reader: SignStep, batch: list[Record]) -> None:
        refused(reader, batch[0].with_headers(HEADERS), "expected a signature")

    def test_moved_to_another_topic_or_cluster(self, path: Path, batch: list[Record]) -> None:
        refused(opened(path), batch[0].replace(topic="payments"), "signed for topic 'orders'")
        refused(opened(path, cluster="stage"), batch[0], "of cluster 'prod', found in")

    def test_replayed(self, path: Path, batch: list[Record]) -> None:
        chain = Chain([Sign(keyring=str(path), cluster="prod", replay_window=100)])
        session = chain.open(Context(side="consumer", now_ms=lambda: 1000))
        assert session.consume(batch) == session.consume(batch)  # read again
        for signed in batch:
            with pytest.raises(SignatureError, match="replayed"):
                session.consume([signed.replace(offset=5000)])

    def test_truncated_headers(self, reader: SignStep, batch: list[Record]) -> None:
        layout = layout_of(batch[4])
        for length in range(len(layout)):
            refused(reader, with_layout(batch[4], layout[:length]), ".")

    def test_a_byte_changed_anywhere(self, reader: SignStep, batch: list[Record]) -> None:
        layout = layout_of(batch[4])
        for at in range(len(layout)):
            changed = bytearray(layout)
            changed[at] ^= 0x10
            refused(reader, with_layout(batch[4], bytes(changed)), ".")


class TestProofs:
    def test_the_hw_sig_of_another_record(self, reader: SignStep, batch: list[Record]) -> None:
        for mine, other in pairwise(batch):
            refused(reader, with_layout(mine, layout_of(other)))

    def test_the_path_of_another_record(self, reader: SignStep, batch: list[Record]) -> None:
        for mine in batch:
            head, where, _, signature = parts_of(mine)
            for other in batch:
                if other is not mine:
                    refused(reader, with_layout(mine, head, where, parts_of(other)[2], signature), ".")

    def test_each_wrong_index(self, reader: SignStep, batch: list[Record]) -> None:
        head, _, path, signature = parts_of(batch[4])
        for index in {*range(COUNT + 3), 0xFFFF} - {4}:
            refused(reader, with_layout(batch[4], head, place(index, COUNT), path, signature), ".")

    def test_each_wrong_count(self, reader: SignStep, batch: list[Record]) -> None:
        head, _, path, signature = parts_of(batch[4])
        for count in {*range(40), 0xFFFF} - {COUNT}:
            refused(reader, with_layout(batch[4], head, place(4, count), path, signature), ".")

    @pytest.mark.parametrize("more", [-64, -32, -1, 1, 32, 64, 32 * 16, 32 * 1000])
    def test_a_path_that_is_too_short_or_too_long(
        self, reader: SignStep, batch: list[Record], more: int
    ) -> None:
        head, where, path, signature = parts_of(batch[4])
        changed = path[:more] if more < 0 else path + bytes(more)
        refused(reader, with_layout(batch[4], head, where, changed, signature), "for its index in the batch")

    def test_a_path_with_its_upper_part_changed(self, reader: SignStep, batch: list[Record]) -> None:
        """What is known of the lower nodes does not excuse the rest of a path."""
        head, where, path, signature = parts_of(batch[4])
        for at in range(0, len(path), 32):
            changed = bytearray(path)
            changed[at] ^= 1
            refused(reader, with_layout(batch[4], head, where, bytes(changed), signature))

    def test_leaf_and_node_confused(self, path: Path, reader: SignStep, batch: list[Record]) -> None:
        """An inner node is not passed off as a leaf: leaves and nodes are hashed apart."""
        leaves = leaves_of(path, batch)
        head, _, proof, signature = parts_of(batch[0])
        forged = Record("orders", leaves[0] + leaves[1], None, Headers([("hw.sig", b"")]), 3, offset=1)
        for count in range(2, 16):
            refused(reader, with_layout(forged, head, place(0, count), proof[32:], signature), ".")

    def test_the_last_leaf_doubled(self, path: Path, reader: SignStep, batch: list[Record]) -> None:
        """A tree that fills up its levels with copies has the root of a longer one; this one has not."""
        leaves = leaves_of(path, batch)
        head, _, proof, signature = parts_of(batch[-1])
        refused(reader, with_layout(batch[-1], head, place(11, 12), leaves[-1] + proof, signature), ".")
        full = [*leaves, *[leaves[-1]] * (16 - COUNT)]
        _, paths = tree(full)
        for index in range(COUNT - 1, 16):
            refused(reader, with_layout(batch[-1], head, place(index, 16), paths[index], signature))

    def test_the_root_itself_as_a_leaf(self, path: Path, reader: SignStep, batch: list[Record]) -> None:
        root, _ = tree(leaves_of(path, batch))
        head, _, _, signature = parts_of(batch[0])
        forged = Record("orders", root, None, Headers([("hw.sig", b"")]), 3, offset=1)
        refused(reader, with_layout(forged, head, place(0, 1), signature), "no batch has an index 0 among 1")
        refused(reader, with_layout(forged, b"\x01" + head[1:], signature))


class TestCutAndPaste:
    @pytest.mark.parametrize(
        ("topic", "options"),
        [("orders", {}), ("payments", {}), ("orders", {"cluster": "stage"}), ("orders", {"cluster": ""})],
    )
    def test_path_and_root_of_another_batch(
        self, path: Path, reader: SignStep, batch: list[Record], topic: str, options: dict[str, Any]
    ) -> None:
        other = Sign(keyring=str(path), key_id="orders", batch_records=64, **without_empty(options)).open(
            Context(now_ms=lambda: 1000)
        )
        signed = sent_together(other, [plain(at, topic) for at in range(COUNT)])
        for mine, theirs in zip(batch, signed, strict=True):
            assert isinstance(theirs, Record)
            head = parts_of(mine)[0]
            refused(reader, with_layout(mine, head, *parts_of(theirs)[1:]))
            refused(reader, with_layout(mine, head, *parts_of(mine)[1:3], parts_of(theirs)[3]))

    def test_a_key_that_signs_another_keys_statement(self, path: Path, batch: list[Record]) -> None:
        """Mallory has a key, and puts a leaf under the statement of `orders` into a tree of her own."""
        keys = read_keyring(path)
        own, stolen = (
            Statement(key_id, 1, "prod", "orders").encode(BATCH) for key_id in ("mallory", "orders")
        )
        forged, honest = plain(0), plain(1)
        leaves = [
            sha256(
                leaf_beginning(keys.current_key(key_id, "sign", 0), statement)
                + rest_of_signed_bytes()(STAMP, record.key, record.value, record.headers)
            ).digest()
            for key_id, statement, record in (("orders", stolen, forged), ("mallory", own, honest))
        ]
        proofs = batch_signer(keys.current_key("mallory", "sign", 0), own)(leaves)
        reader = opened(path)
        signed = [
            record.with_headers(HEADERS.add("hw.sig", b64encode(statement + STAMP + proof)))
            for record, statement, proof in ((forged, stolen, proofs[0]), (honest, own, proofs[1]))
        ]
        verified = reader.on_consume(signed[1]).verified
        assert verified is not None
        assert verified.key_id == "mallory"
        refused(reader, signed[0])
        reader.on_consume(batch[0])
        refused(reader, signed[0])


def without_empty(options: dict[str, Any]) -> dict[str, Any]:
    given = {"cluster": "prod", **options}
    return {name: value for name, value in given.items() if value}


class TestAlgorithms:
    def test_another_algorithm_is_not_the_records_choice(
        self, path: Path, reader: SignStep, batch: list[Record]
    ) -> None:
        other = batch_of(path, [plain(at) for at in range(COUNT)], "services")
        refused(reader, with_layout(batch[0], parts_of(batch[0])[0], *parts_of(other[0])[1:]))

    def test_an_hmac_made_with_the_public_half(
        self, path: Path, reader: SignStep, batch: list[Record]
    ) -> None:
        public = read_keyring(path).verifying_key("orders", 1).public or b""
        head, where, proof, _ = parts_of(batch[0])
        root, _ = tree(leaves_of(path, batch))
        for algorithm in ("ed25519", "hmac-sha256"):
            begun = beginning(algorithm, head[:-24], stamped=False)
            mac = hmac.digest(public, begun + place(0, COUNT)[2:] + root, "sha256")
            refused(reader, with_layout(batch[0], head, where, proof, mac * 2))
            refused(reader, with_layout(batch[0], head, where, proof, mac), "for its index in the batch")

    def test_a_key_that_was_revoked_or_replaced_meanwhile(self, path: Path, batch: list[Record]) -> None:
        """A root that was verified once counts no longer than its key."""
        now = [1000]
        reader = Sign(keyring=str(path), cluster="prod").open(Context(now_ms=lambda: now[0]))
        reader.on_consume(batch[0])
        before = read_keyring(path)
        saved(path, with_revocation(before, "orders"))
        now[0] += 2000
        refused(reader, batch[1], "revoked")
        fresh = with_new_key(Keyring(), "orders", "ed25519", now=datetime(2026, 1, 1, tzinfo=UTC))
        saved(path, fresh)
        now[0] += 2000
        refused(reader, batch[1])
        saved(path, before)
        now[0] += 2000
        assert reader.on_consume(batch[1]).headers == HEADERS


class TestFloods:
    def test_forged_roots_leave_nothing_behind(
        self, path: Path, batch: list[Record], verifications: list[int]
    ) -> None:
        """Each costs a verification, as a forged signature of its own would, and no memory."""
        reader = opened(path)
        reader.on_consume(batch[0])
        head, where, proof, signature = parts_of(batch[1])
        floods = 2_000
        for number in range(floods):
            forged = proof[:-4] + struct.pack(">I", number ^ 0xA5A5A5A5)
            text = signature if number % 2 else sha256(forged).digest() * 2
            refused(reader, with_layout(batch[1], head, where, forged, text), ".")
        assert len(verifications) <= 1 + floods
        batches = reader._verification._batches
        assert batches.total() == 1
        assert opened(path).on_consume(batch[1]).headers == reader.on_consume(batch[1]).headers
        assert len(verifications) <= 3 + floods

    def test_longest_paths_cost_sixteen_hashes(
        self, path: Path, batch: list[Record], verifications: list[int]
    ) -> None:
        head, _, _, signature = parts_of(batch[0])
        refused(opened(path), with_layout(batch[0], head, place(0, 0xFFFF), bytes(32 * 16), signature))
        assert len(verifications) == 1

    def test_a_signer_of_many_batches_fills_no_memory(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also for those who have a key, what is remembered is bounded: batches, and nodes in all of them."""
        monkeypatch.setattr("headerware.keyring.merkle.MAX_BATCHES", 64)
        monkeypatch.setattr("headerware.keyring.merkle.MAX_NODES", 500)
        reader = opened(path)
        batches = reader._verification._batches
        most = 0
        for number in range(100):
            for record in batch_of(path, [plain(number + at) for at in range(40)])[::5]:
                reader.on_consume(record)
                most = max(most, sum(len(known.nodes) for known in batches.values()))
                assert batches.total() <= 64
        assert 100 < most <= 500 + 64

    def test_a_batch_that_is_read_in_order_leaves_one_node_a_level(self, path: Path) -> None:
        reader = opened(path)
        signed = batch_of(path, [plain(at) for at in range(1000)], batch_records=1000)
        most = 0
        for record in signed:
            reader.on_consume(record)
            (known,) = reader._verification._batches.values()
            most = max(most, len(known.nodes))
        assert most <= 1 + 10
        assert list(known.nodes) == [1]
