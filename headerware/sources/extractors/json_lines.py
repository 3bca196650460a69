"""Extract the values of JSON lines, one per line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final, Literal

import msgspec

from headerware.core.errors import BadRecordError
from headerware.sources.extractor import Extracted, Found, Input, Split
from headerware.sources.extractors.lines import begin, line_splits, open_text
from headerware.sources.extractors.streams import StreamExtractor

_decode = msgspec.json.Decoder().decode
_LARGE_BYTES: Final = 1 << 16
_VALUE_BYTES: Final = 64
"""How many bytes a value takes in memory besides its text; counted for the queue's limits in a large line."""
_BEFORE_VALUES: Final = (b",", b"[", b"{")
_check = msgspec.json.Decoder(msgspec.Raw).decode


class JsonLinesExtractor(StreamExtractor, frozen=True, kw_only=True):
    """Yield the value of each line; skip blank lines. A line that is not JSON is one bad record.

    Args:
        max_record_bytes: the longest line; a longer one is a bad record.
        compression: see :class:`~headerware.sources.extractors.StreamExtractor`.
        max_expansion: see :class:`~headerware.sources.extractors.StreamExtractor`.
        values: ``parsed`` yields plain Python values; ``bytes`` yields the line unchanged, after a check that
            it is JSON in UTF-8, so that numbers keep all their digits.
    """

    type: ClassVar[str] = "jsonl"

    values: Literal["parsed", "bytes"] = "parsed"

    @property
    def gives(self) -> Any:
        """The type of the values: bytes, or any type of JSON."""
        return bytes if self.values == "bytes" else dict | list | str | int | float | bool | None

    @property
    def content_type(self) -> str | None:  # type: ignore[override]  # depends on the options
        """The media type of values that are bytes."""
        return "application/json" if self.values == "bytes" else None

    def extract(self, given: Input) -> Iterator[Found | list[Found]]:
        """Yield the value of each line."""
        text = open_text(self, given)
        end = begin(text, given)
        limit, as_bytes = self.max_record_bytes, self.values == "bytes"
        while True:
            began = position = text.position
            block = text.block(limit, end=end)
            if block is None:
                yield self._too_long(began)
                continue
            if not block:
                return
            last = began + len(block)
            run: list[Found] = []
            for line in block.split(b"\n"):
                began = position
                size = len(line)
                if size > limit + 1:
                    position = min(position + size + 1, last)
                    run.append(self._too_long(began))
                    continue
                position += size + 1
                if position > last:  # noqa: PLR1730 - a call of min takes a tenth of a line's time
                    position = last  # the last line has no line break
                try:
                    value: Any = _checked(line) if as_bytes else _decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    if not line or line.isspace():
                        continue
                    run.append(BadRecordError(f"the line at byte {began} is not JSON in UTF-8", raw=line))
                    continue
                if size > _LARGE_BYTES and not as_bytes:
                    size += _VALUE_BYTES * sum(map(line.count, _BEFORE_VALUES))
                run.append(Extracted(value, properties={"byte": position}, size_bytes=size))
            yield run
            text.advance(len(block))

    def splits(self, given: Input, size_bytes: int) -> Iterable[Split]:
        """Return parts by bytes, if the object is not compressed."""
        return line_splits(open_text(self, given), size_bytes)

    def _too_long(self, began: int) -> BadRecordError:
        return BadRecordError(
            f"the line at byte {began} has more than {self.max_record_bytes} bytes, the limit "
            "(max_record_bytes)"
        )


def _checked(line: bytes) -> bytes:
    """Return a line without the spaces around it; raise an error if it is not JSON in UTF-8."""
    found = line.strip()
    _check(found)
    if not found.isascii():
        found.decode()
    return found
