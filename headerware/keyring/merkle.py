"""Signatures of batches: one signature for the root of a Merkle tree of records (spec/signature.md).

The tree is that of RFC 9162, section 2.1: a leaf is SHA-256 of 0x00 and what is signed of the record, a node
is SHA-256 of 0x01 and its two children, and nothing is doubled where a level has an odd end. Each record
carries its place and the siblings on its way to the root, so it is verified alone.

    hw.sig        u8      version, 2
                  ...     the rest of the statement and the stamp, as in version 1
                  u16     index of the record in its batch, from 0
                  u16     count of records in the batch, from 2
                  32 * k  path: the siblings from the leaf to the root; k follows from index and count
                  n       signature

    signed        19      "headerware/hw.sig/2"
                  u32 + n algorithm of the key
                  u32 + n statement
                  u16     count
                  32      root

Places in the tree are numbered as in a heap: the root is 1, and the children of n are 2n and 2n + 1. So a
number says whether a node is a right child, and how far it is from the root.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha256
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import WireFormatError
from headerware.keyring.signature import beginning, signature_bytes, signer, verifier

if TYPE_CHECKING:
    from headerware.keyring.keyring import Key
    from headerware.keyring.signature import Verify

MAX_RECORDS: Final = 0xFFFF
"""The most that a count can say."""
HASH_BYTES: Final = 32
MAX_PATH_BYTES: Final = HASH_BYTES * MAX_RECORDS.bit_length()
PLACE_BYTES: Final = 4

MAX_BATCHES: Final = 4_096
MAX_NODES: Final = 65_536
"""Of all batches together, some 30 MB. One that is read in order leaves its root in the end; one of which
parts are read leaves more."""
_NODE: Final = b"\x01"
_LEAF: Final = b"\x00"
_ROOT: Final = 1
_place = Struct(">HH")


def path_bytes(count: int) -> int:
    """Return the length of the longest path in a batch."""
    return HASH_BYTES * (count - 1).bit_length()


def leaf_beginning(key: Key, statement: bytes) -> bytes:
    """Return what is hashed for a leaf before what is signed of the record behind the statement."""
    return _LEAF + beginning(key.algorithm, statement)


def batch_signer(key: Key, statement: bytes) -> Callable[[Sequence[bytes]], list[bytes]]:
    """Return a function that signs a batch; it returns what follows the stamp in each ``hw.sig``."""
    sign = signer(key, beginning(key.algorithm, statement, stamped=False))

    def sign_batch(leaves: Sequence[bytes]) -> list[bytes]:
        count = len(leaves)
        root, paths = tree(leaves)
        signature = sign(count.to_bytes(2, "big") + root)
        place = _place.pack
        return [place(index, count) + path + signature for index, path in enumerate(paths)]

    return sign_batch


def tree(leaves: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
    """Return the root above hashed leaves, and each leaf's path to it."""
    levels = [list(leaves)]
    while len(below := levels[-1]) > 1:
        pairs = zip(below[::2], below[1::2], strict=False)
        level = [sha256(_NODE + left + right).digest() for left, right in pairs]
        if len(below) % 2:
            level.append(below[-1])  # the odd one goes up as it is
        levels.append(level)
    paths = [b""]
    for level in reversed(levels[:-1]):
        below = []
        for at, path in enumerate(paths):
            if 2 * at + 1 < len(level):
                below += (level[2 * at + 1] + path, level[2 * at] + path)
            else:
                below.append(path)
        paths = below
    return levels[-1][0], paths


class _Batch(NamedTuple):
    """A batch whose root was verified, and what else is proven below it.

    ``nodes`` has the bytes of a node and of its path by the node's place, as they must be in other records
    of the batch: a record proves the siblings on its way to the root. The path is compared as well, so that a
    record below a known node is refused if its upper path is wrong: what verifies never depends on what was
    read before.
    """

    root_beginning: bytes
    size: bytes
    nodes: dict[int, bytes]


class VerifiedBatches(BoundedCache[bytes, _Batch]):
    """Verify records of batches; remember verified roots and proven nodes, by signature.

    So a batch costs one verification of a signature and, if it is read in order, some two hashes a record.
    The result is the same in any order, and what does not verify leaves nothing behind. For one caller at a
    time.
    """

    def __init__(self) -> None:
        super().__init__(MAX_BATCHES)
        self.nodes: int = 0
        """How many nodes are remembered, roots aside, if none was forgotten with its batch."""

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self.nodes = 0

    def verifier(self, key: Key, statement: bytes) -> Verify:
        """Return a function that verifies a record by what is signed of it, and what follows its stamp.

        The function raises WireFormatError for a place or a path that cannot be.
        """
        root_beginning = beginning(key.algorithm, statement, stamped=False)
        check_root, leaf = verifier(key, root_beginning), leaf_beginning(key, statement)
        size, find_place, unknown = signature_bytes(key), place_of, _Batch(b"", b"", {})

        def verify(rest: bytes, proof: bytes) -> bool:
            place, end = find_place(proof[:PLACE_BYTES])
            if len(proof) != end + size:
                raise WireFormatError(
                    f"its path and signature have {len(proof) - PLACE_BYTES} bytes; its place in the batch "
                    f"asks for {end - PLACE_BYTES} and {size}"
                )
            count, signature = proof[2:PLACE_BYTES], proof[end:]
            try:
                batch = self[signature]
            except KeyError:
                batch = unknown
            if batch.root_beginning is not root_beginning or batch.size != count:
                batch = unknown
            nodes, node, at, passed = batch.nodes, sha256(leaf + rest).digest(), PLACE_BYTES, []
            while (proven := nodes.get(place)) is None and place > _ROOT:
                sibling = proof[at : at + HASH_BYTES]
                at += HASH_BYTES
                passed.append((place ^ 1, sibling + node + proof[at:end]))
                node = sha256(_NODE + (sibling + node if place & 1 else node + sibling)).digest()
                place >>= 1
            if proven is None:
                if not check_root(count + node, signature):
                    return False
                nodes = {_ROOT: node}
                self[signature] = _Batch(root_beginning, count, nodes)
            elif proven != node + proof[at:end]:  # nothing of it is secret, so the time may tell
                return False
            elif place > _ROOT:
                del nodes[place]  # it has served: a record is rarely read twice
                self.nodes -= 1
            if passed:
                nodes.update(passed)
                self.nodes += len(passed)
                if self.nodes > MAX_NODES:
                    self.clear()
            return True

        return verify


@lru_cache(maxsize=8192)
def place_of(index_and_count: bytes) -> tuple[int, int]:
    """Return a leaf's place in the tree, and the end of its path in what follows the stamp.

    Raises:
        WireFormatError: it has no place.
    """
    if len(index_and_count) < PLACE_BYTES:
        raise WireFormatError("it is cut off in the place in its batch")
    index, count = _place.unpack(index_and_count)
    if count <= 1 or index >= count:
        raise WireFormatError(f"no batch has an index {index} among {count} records")
    # From the last leaf's way to the root it joins it, always from the left.
    apart = (index ^ (count - 1)).bit_length()
    joins = (index >> apart).bit_count()
    place = (((2 << joins) - 1) << apart) | (index & ((1 << apart) - 1))
    return place, PLACE_BYTES + HASH_BYTES * (apart + joins)
