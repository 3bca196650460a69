from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from headerware.core.chain import Chain
from headerware.core.errors import ConfigError, KeyringError
from headerware.interceptors.compress import Compress
from headerware.interceptors.sign import Sign
from headerware.interceptors.slice import Slice
from headerware.interceptors.trail import Trail
from headerware.ops.trail_proofs import TrailProofs
from tests.trails import ORDER, Hops

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def hops(tmp_path: Path) -> Hops:
    return Hops(tmp_path)


@pytest.fixture
def chain(hops: Hops) -> Chain:
    steps = Compress(min_bytes=1), Slice(max_bytes=4000), Sign(keyring=hops.path, key_id="shop")
    return Chain([*hops.chain("shop", require="enforce"), *steps])


@pytest.fixture
def proofs(hops: Hops, chain: Chain) -> Iterator[TrailProofs]:
    found = TrailProofs(chain, "orders", now_ms=hops.context().now_ms)
    yield found
    found.close()


class TestTrailProofs:
    def test_proves_a_record_from_the_wire(self, hops: Hops, chain: Chain, proofs: TrailProofs) -> None:
        with chain.open(hops.context("producer")) as session:
            (wire,) = session.send([ORDER])
        found = proofs.prove(wire)
        assert found is not None
        assert ([hop.state for hop in found.hops], found.problem) == (["proven"], None)

    def test_says_why_a_record_is_refused_before_its_trail(
        self, hops: Hops, chain: Chain, proofs: TrailProofs
    ) -> None:
        with chain.open(hops.context("producer")) as session:
            (wire,) = session.send([ORDER])
        found = proofs.prove(wire.replace(value=b"other"))
        assert found is not None
        assert "its record is refused: the signature by key 'shop'" in (found.problem or "")

    @pytest.mark.parametrize("on_error", ["drop", "dead_letter"])
    def test_says_so_whatever_the_chain_does_with_a_refused_record(
        self, hops: Hops, chain: Chain, on_error: str
    ) -> None:
        with chain.open(hops.context("producer")) as session:
            (wire,) = session.send([ORDER])
        steps: list[Any] = [*chain]
        reading = Chain(msgspec.structs.replace(step, on_error=on_error) for step in steps)
        with closing(TrailProofs(reading, "orders", now_ms=hops.context().now_ms)) as proofs:
            found = proofs.prove(wire.replace(value=b"other"))
        assert found is not None
        assert "its record is refused: the signature by key 'shop'" in (found.problem or "")

    def test_says_which_hop_is_broken_although_proofs_are_required(
        self, hops: Hops, chain: Chain, proofs: TrailProofs
    ) -> None:
        forged = hops.send("shop").replace(value=b"other")
        with Chain(chain.interceptors[1:]).open(hops.context("producer")) as session:
            (wire,) = session.send([forged])
        found = proofs.prove(wire)
        assert found is not None
        assert [hop.state for hop in found.hops] == ["broken"]

    def test_is_none_for_a_slice(self, hops: Hops, chain: Chain, proofs: TrailProofs) -> None:
        large = ORDER.replace(value=bytes(range(256)) * 64)
        uncompressed = Chain([chain.interceptors[0], *chain.interceptors[2:]])
        with uncompressed.open(hops.context("producer")) as session:
            first, *others = session.send([large])
        assert others
        assert proofs.prove(first.replace(partition=0, offset=0)) is None

    def test_needs_a_signed_trail_for_the_topic(self, hops: Hops) -> None:
        for steps in ([Trail()], [*hops.chain("shop", topics=("bills",))]):
            with pytest.raises(ConfigError, match="signed trail for topic 'orders'"):
                TrailProofs(Chain(steps), "orders")

    def test_a_keyring_that_cannot_be_read_is_no_proof(self, hops: Hops) -> None:
        chain = hops.chain("shop", keyring_max_stale_ms=1)
        proofs = TrailProofs(chain, "orders", now_ms=hops.context().now_ms)
        record = hops.send("shop")
        (hops.folder / "keys.json").unlink()
        hops.clock += 5_000
        with pytest.raises(KeyringError, match="last good keyring"):
            proofs.prove(record)
        proofs.close()
