"""Extract an object's bytes, in pieces of equal size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import SEEK_END
from typing import Any, ClassVar

from headerware.core.errors import BadRecordError, ConfigError
from headerware.sources.extractor import Extracted, Input, Split
from headerware.sources.extractors.streams import Compression, StreamExtractor


class BytesExtractor(StreamExtractor, frozen=True, kw_only=True):
    """Yield pieces of an object; all but the last have the same size, and no piece is empty.

    Args:
        max_record_bytes: the upper limit of ``piece_bytes``.
        compression: see :class:`~headerware.sources.extractors.StreamExtractor`; the default here is
            ``none``, so that a compressed object arrives unchanged.
        max_expansion: see :class:`~headerware.sources.extractors.StreamExtractor`.
        piece_bytes: the size of a piece; the default fits Kafka's default limit of a record, with a tenth
            left for headers.
    """

    type: ClassVar[str] = "bytes"
    gives: ClassVar[Any] = bytes
    content_type: ClassVar[str | None] = "application/octet-stream"

    compression: Compression = "none"
    piece_bytes: int = 900_000

    def __post_init__(self) -> None:
        """Refuse sizes that cannot work."""
        super().__post_init__()
        if not 1 <= self.piece_bytes <= self.max_record_bytes:
            raise ConfigError(
                f"expected from 1 to {self.max_record_bytes} (max_record_bytes), found {self.piece_bytes}",
                path="piece_bytes",
            )

    def extract(self, given: Input) -> Iterator[Extracted | BadRecordError]:
        """Yield pieces in order; of a growing object, only complete pieces."""
        opened = self.open_plain(given)
        position, end = 0, None
        if given.split is not None:
            position, end = given.split.begin, given.split.end
        known = given.properties.get("byte")
        if given.skip and type(known) is int and known >= position:
            position, given.skipped = known, given.skip
        if opened.seekable:
            opened.stream.seek(position)
        else:
            opened.read_past(position)
        while end is None or position < end:
            piece = opened.stream.read(
                self.piece_bytes if end is None else min(self.piece_bytes, end - position)
            )
            if not piece or (given.item.context.grows and len(piece) < self.piece_bytes):
                return
            position += len(piece)
            yield Extracted(piece, properties={"byte": position}, size_bytes=len(piece))

    def splits(self, given: Input, size_bytes: int) -> Iterable[Split]:
        """Return parts of complete pieces, if the stream can seek."""
        opened = self.open_plain(given)
        if not opened.seekable:
            return
        end = opened.stream.seek(0, SEEK_END)
        pieces = max(1, size_bytes // self.piece_bytes)
        for begin in range(0, end, pieces * self.piece_bytes):
            yield Split(begin, min(begin + pieces * self.piece_bytes, end), begin // self.piece_bytes + 1)
