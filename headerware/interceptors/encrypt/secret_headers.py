"""The layout of ``hw.secret``, which is base64 on the wire: the secret headers of a record (spec/encrypt.md).

    hw.secret     u8      version, 1
                  n       the block, encrypted, and its tag of 16 bytes

    block         u8      number of names that follow, in ascending order
                  u8 + n  for each: name of a header whose value is encrypted deterministically, UTF-8
                          and for each secret header, in order, until the end:
                  u32     its index among all headers that the record had
                  u8 + n  name, UTF-8
                  u32 + n value, 0xFFFFFFFF and nothing for null

    authenticated 22      domain, "headerware/hw.secret/1"
                  u32 + n the statement of hw.encrypt

The key is the record's AES-256 key, as for its value; the nonce is 11 zero bytes and 1. The statement binds
``hw.secret``. So the tag of the value, also of a null value, shows that the block is there as it was written,
or that the record had none. A reader opens a block only after this tag has fitted.
"""

from __future__ import annotations

from itertools import islice, pairwise
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headerware.core.boundary import is_wire_name
from headerware.core.errors import DecryptionError, InterceptorError, WireFormatError
from headerware.core.header_text import decode_text, encode_text, text_bytes
from headerware.interceptors.encrypt.envelope import (
    ALWAYS_BOUND,
    EVENT_PREFIX,
    KEY_BYTES,
    NULL,
    TAG_BYTES,
    LayoutReader,
    deriver,
    prefixed,
    short_text,
)
from headerware.interceptors.encrypt.names import BLOCK_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from headerware.core.headers import Headers, HeaderValue, Pair

MAX_BLOCK_HEADERS: Final = 10_000
_DOMAIN: Final = b"headerware/hw.secret/1"
_VERSION: Final = b"\x01"
_NONCE: Final = bytes(11) + b"\x01"
"""Another nonce than that of the value, which has the same key."""
_RESERVED: Final = "hw."
_MAX_NAME_BYTES: Final = 255
_u32: Final = Struct(">I")
_ENTRY_BYTES: Final = 9
"""What a secret header takes in a block in addition to its name and value."""


class Block(NamedTuple):
    """What a block says about a record's headers.

    Args:
        deterministic: the names of the headers whose values are encrypted deterministically, in ascending
            order.
        headers: the index, name and value of each secret header, in order.
    """

    deterministic: tuple[str, ...]
    headers: tuple[tuple[int, str, HeaderValue], ...]

    def encode(self) -> bytes:
        """Return the block's bytes."""
        parts = [bytes((len(self.deterministic),))]
        parts += [short_text("name of a header", name) for name in self.deterministic]
        for index, name, value in self.headers:
            parts += (
                _u32.pack(index),
                short_text("name of a header", name),
                NULL if value is None else prefixed(value),
            )
        return b"".join(parts)


def decode_block(encoded: bytes) -> Block:
    """Decode a block; a size that it claims reserves no memory.

    Raises:
        WireFormatError: the block is cut off or empty, has names that cannot be secret or too many headers,
            or its names or indices are not in ascending order.
    """
    reader = LayoutReader(encoded)
    deterministic = tuple(reader.text() for _ in range(reader.take(1)[0]))
    headers: list[tuple[int, str, HeaderValue]] = []
    while not reader.is_at_end():
        if len(headers) == MAX_BLOCK_HEADERS:
            raise WireFormatError(f"it has more than {MAX_BLOCK_HEADERS:,} headers")
        [index] = _u32.unpack(reader.take(4))
        name, length = reader.text(), reader.take(4)
        headers.append((index, name, None if length == NULL else reader.take(*_u32.unpack(length))))
    secret = {name for _, name, _ in headers}
    if not deterministic and not headers:
        raise WireFormatError("it has no header")
    if not all(map(may_be_secret, secret.union(deterministic))) or not secret.isdisjoint(deterministic):
        raise WireFormatError("it has a header that cannot be secret, or that is encrypted in both ways")
    if any(one >= next_ for one, next_ in pairwise(deterministic)):
        raise WireFormatError("its names are not in ascending order")
    if any(one[0] >= next_[0] for one, next_ in pairwise(headers)):
        raise WireFormatError("its headers are not in ascending order")
    return Block(deterministic, tuple(headers))


def may_be_secret(name: str) -> bool:
    """Return whether a header of this name may be encrypted; not Headerware's own, or one always bound."""
    return (
        name[: len(_RESERVED)].casefold() != _RESERVED
        and name not in ALWAYS_BOUND
        and not name.startswith(EVENT_PREFIX)
        and is_wire_name(name)
        and 1 <= len(name.encode()) <= _MAX_NAME_BYTES
    )


class BlockCipher:
    """Encrypt and decrypt the blocks of the records of a data key and a statement.

    ``derive`` derives a record's 64 bytes of key and commitment from its salt.
    """

    def __init__(self, data_key: bytes, statement: bytes) -> None:
        self.derive: Final = deriver(data_key)
        self._context = _DOMAIN + prefixed(statement)

    def encrypt(self, derived: bytes, block: bytes) -> bytes:
        """Return the value of ``hw.secret``."""
        return encode_text(_VERSION + AESGCM(derived[:KEY_BYTES]).encrypt(_NONCE, block, self._context))

    def decrypt(self, derived: bytes, text: HeaderValue) -> Block:
        """Return the block of a record whose value and bound headers are authentic.

        Raises:
            DecryptionError: the block cannot be read. Its writer had the data key.
        """
        try:
            sealed = _without_version(decode_text(text, BLOCK_HEADER))
            return decode_block(AESGCM(derived[:KEY_BYTES]).decrypt(_NONCE, sealed, self._context))
        except WireFormatError as error:
            raise DecryptionError(f"its hw.secret cannot be read: {error}") from error
        except (InvalidTag, ValueError):
            raise DecryptionError(
                "its hw.secret cannot be read: its tag does not fit, so it comes from another record"
            ) from None


def _without_version(layout: bytes) -> bytes:
    if layout[:1] != _VERSION:
        raise WireFormatError(f"expected version {_VERSION[0]}, found version {layout[0]}")
    return layout[1:]


def hidden(
    headers: Headers,
    secret: Collection[str],
    deterministic: Collection[str],
    encrypt: Callable[[str, HeaderValue], HeaderValue],
) -> tuple[tuple[Pair, ...], bytes]:
    """Return the headers that stay, and the encoded block; it is empty if no header is encrypted.

    Args:
        headers: the headers of the record.
        secret: the names of the headers that go into the block.
        deterministic: the names of the headers that stay with encrypted values.
        encrypt: returns the encrypted value of such a header.
    """
    stay: list[Pair] = []
    within: list[tuple[int, str, HeaderValue]] = []
    encrypted = set()
    for index, (name, value) in enumerate(headers):
        if name in secret:
            within.append((index, name, value))
        elif name in deterministic:
            stay.append((name, encrypt(name, value)))
            encrypted.add(name)
        elif name == BLOCK_HEADER:
            raise InterceptorError("the record carries an hw.secret already")
        else:
            stay.append((name, value))
    if len(within) > MAX_BLOCK_HEADERS:
        raise InterceptorError(
            f"expected at most {MAX_BLOCK_HEADERS:,} headers to encrypt, found {len(within):,}"
        )
    if not within and not encrypted:
        return headers, b""
    return tuple(stay), Block(tuple(sorted(encrypted)), tuple(within)).encode()


def revealed(
    headers: Iterable[Pair], block: Block, decrypt: Callable[[str, HeaderValue], HeaderValue]
) -> tuple[Pair, ...]:
    """Return the headers as they were before :func:`hidden`, with those that were added since.

    Args:
        headers: the headers of the record, without ``hw.secret``.
        block: its block.
        decrypt: returns the plain value of a header that is encrypted deterministically.

    Raises:
        DecryptionError: ``decrypt`` raises it.
    """
    encrypted = frozenset(block.deterministic)
    plain = iter([(name, decrypt(name, value) if name in encrypted else value) for name, value in headers])
    found: list[Pair] = []
    for index, name, value in block.headers:
        # Indices ascend, so this is never negative. If there are too few headers, it comes after the last.
        found += islice(plain, index - len(found))
        found.append((name, value))
    return *found, *plain


def added_bytes(headers: Headers, secret: Collection[str], deterministic: Collection[str]) -> int:
    """Return an upper bound of the bytes that encrypted headers add to a record, without framing."""
    within = [(name, value or b"") for name, value in headers if name in secret]
    encrypted = [(name, value or b"") for name, value in headers if name in deterministic]
    if not within and not encrypted:
        return 0
    block = 1 + sum(1 + len(name.encode()) for name in {name for name, _ in encrypted})
    block += sum(_ENTRY_BYTES + len(name.encode()) + len(value) for name, value in within)
    added = len(BLOCK_HEADER) + text_bytes(len(_VERSION) + block + TAG_BYTES)
    return added + sum(text_bytes(TAG_BYTES + len(value)) for _, value in encrypted)
