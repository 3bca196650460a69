"""Signatures of batches: one signature for the root of a Merkle tree of records (spec/signature.md).

The tree is the one of RFC 9162, section 2.1: a leaf is SHA-256 of 0x00 and the record's signed bytes, and a
node is SHA-256 of 0x01 and its two children. The last node of an odd level moves up unchanged. Each record
carries its index and the siblings on its path to the root, so each record can be verified alone.

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

The nodes of the tree are numbered as in a heap: the root is 1, and the children of n are 2n and 2n + 1. So
the number shows whether a node is a right child, and how far it is from the root.
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
"""The largest count that fits in two bytes."""
HASH_BYTES: Final = 32
MAX_PATH_BYTES: Final = HASH_BYTES * MAX_RECORDS.bit_length()
INDEX_AND_COUNT_BYTES: Final = 4

MAX_BATCHES: Final = 4_096
MAX_NODES: Final = 65_536
"""The limit for all batches together, some 30 MB. A batch that was read in order leaves its root only; one
that was read in part leaves more nodes."""
_NODE: Final = b"\x01"
_LEAF: Final = b"\x00"
_ROOT: Final = 1
_index_and_count = Struct(">HH")


def path_bytes(count: int) -> int:
    """Return the length of the longest path in a batch."""
    return HASH_BYTES * (count - 1).bit_length()


def leaf_beginning(key: Key, statement: bytes, domain: bytes | None = None) -> bytes:
    """Return the first bytes of a leaf before hashing; the signed bytes after the statement follow."""
    return _LEAF + beginning(key.algorithm, statement, domain=domain)


def batch_signer(
    key: Key, statement: bytes, domain: bytes | None = None
) -> Callable[[Sequence[bytes]], list[bytes]]:
    """Return a function that signs a batch, and returns the bytes after the stamp of each ``hw.sig``.

    ``domain`` is what is signed, if it is not ``hw.sig``.
    """
    sign = signer(key, beginning(key.algorithm, statement, stamped=False, domain=domain))

    def sign_batch(leaves: Sequence[bytes]) -> list[bytes]:
        count = len(leaves)
        root, paths = tree(leaves)
        signature = sign(count.to_bytes(2, "big") + root)
        encode = _index_and_count.pack
        return [encode(index, count) + path + signature for index, path in enumerate(paths)]

    return sign_batch


def tree(leaves: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
    """Return the root above hashed leaves, and each leaf's path to it."""
    levels = [list(leaves)]
    while len(below := levels[-1]) > 1:
        pairs = zip(below[::2], below[1::2], strict=False)
        level = [sha256(_NODE + left + right).digest() for left, right in pairs]
        if len(below) % 2:
            level.append(below[-1])  # the last node of an odd level moves up unchanged
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
    """A batch with a verified root, and the nodes that its records have proven.

    ``nodes`` has, by a node's number, the bytes of the node and of its path to the root. A record proves the
    siblings on its own path, and other records of the batch must have the same bytes. The upper path is
    compared, too, so that a record is refused if only its upper path is wrong: the result for a record never
    depends on the records before it.
    """

    root_beginning: bytes
    size: bytes
    nodes: dict[int, bytes]


class VerifiedBatches(BoundedCache[bytes, _Batch]):
    """Verify records of batches; remember verified roots and proven nodes, by signature.

    A batch costs one verification of a signature and, if it is read in order, some two hashes a record. The
    result is the same in any order, and a record that does not verify changes nothing. For one caller at a
    time.
    """

    def __init__(self) -> None:
        super().__init__(MAX_BATCHES)
        self.nodes: int = 0
        """How many nodes without roots are remembered, at most: nodes of forgotten batches still count."""

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self.nodes = 0

    def verifier(self, key: Key, statement: bytes, domain: bytes | None = None) -> Verify:
        """Return a function that verifies a record by its signed bytes and the bytes after its stamp.

        ``domain`` is what was signed, if it is not ``hw.sig``. The function raises WireFormatError for an
        impossible index, count or path.
        """
        root_beginning = beginning(key.algorithm, statement, stamped=False, domain=domain)
        check_root, leaf = verifier(key, root_beginning), leaf_beginning(key, statement, domain)
        size, find_number, unknown = signature_bytes(key), node_number, _Batch(b"", b"", {})

        def verify(rest: bytes, proof: bytes) -> bool:
            number, end = find_number(proof[:INDEX_AND_COUNT_BYTES])
            if len(proof) != end + size:
                raise WireFormatError(
                    f"its path and signature have {len(proof) - INDEX_AND_COUNT_BYTES} bytes, expected "
                    f"{end - INDEX_AND_COUNT_BYTES} and {size} for its index in the batch"
                )
            count, signature = proof[2:INDEX_AND_COUNT_BYTES], proof[end:]
            try:
                batch = self[signature]
            except KeyError:
                batch = unknown
            if batch.root_beginning is not root_beginning or batch.size != count:
                batch = unknown
            nodes, node, passed = batch.nodes, sha256(leaf + rest).digest(), []
            at = INDEX_AND_COUNT_BYTES
            while (proven := nodes.get(number)) is None and number > _ROOT:
                sibling = proof[at : at + HASH_BYTES]
                at += HASH_BYTES
                passed.append((number ^ 1, sibling + node + proof[at:end]))
                node = sha256(_NODE + (sibling + node if number & 1 else node + sibling)).digest()
                number >>= 1
            if proven is None:
                if not check_root(count + node, signature):
                    return False
                nodes = {_ROOT: node}
                self[signature] = _Batch(root_beginning, count, nodes)
            elif proven != node + proof[at:end]:  # nothing is secret, so the time may vary
                return False
            elif number > _ROOT:
                del nodes[number]  # no longer needed: a record is rarely read twice
                self.nodes -= 1
            if passed:
                nodes.update(passed)
                self.nodes += len(passed)
                if self.nodes > MAX_NODES:
                    self.clear()
            return True

        return verify


@lru_cache(maxsize=8192)
def node_number(index_and_count: bytes) -> tuple[int, int]:
    """Return the number of a leaf's node, and the end of its path in the bytes after the stamp.

    Raises:
        WireFormatError: no batch has this index and count.
    """
    if len(index_and_count) < INDEX_AND_COUNT_BYTES:
        raise WireFormatError("it is cut off in its index and count in the batch")
    index, count = _index_and_count.unpack(index_and_count)
    if count <= 1 or index >= count:
        raise WireFormatError(f"no batch has an index {index} among {count} records")
    # Above ``apart`` levels the path is the last leaf's path. Its nodes are right children, or move up alone.
    apart = (index ^ (count - 1)).bit_length()
    joins = (index >> apart).bit_count()
    number = (((2 << joins) - 1) << apart) | (index & ((1 << apart) - 1))
    return number, INDEX_AND_COUNT_BYTES + HASH_BYTES * (apart + joins)
