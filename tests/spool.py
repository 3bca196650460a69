"""A source of files in a folder and an extractor of lines, as small as they can be, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from headerware.core.errors import BadRecordError, ObjectError
from headerware.sources import Extracted, Extractor, Input, ItemContext, NativeItem, Source, TextKeys
from headerware.sources.extractor import Found


class Spool(Source[str], frozen=True, kw_only=True):
    """List the files of a folder by name."""

    type: ClassVar[str] = "spool"
    keys: ClassVar[TextKeys] = TextKeys()

    folder: str

    def items(self, start: str | None) -> Iterator[NativeItem]:
        for path in sorted(Path(self.folder).iterdir()):
            if start is None or path.name >= start:
                yield SpoolFile(path)


class SpoolFile(NativeItem):
    length_is_exact = True

    def __init__(self, path: Path) -> None:
        found = path.stat()
        version = f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"
        super().__init__(ItemContext(key=path.name, version=version), found.st_size)
        self._path = path

    def open_stream(self) -> BinaryIO:
        return self._path.open("rb")


class Lines(Extractor, frozen=True, kw_only=True):
    """Give each line as bytes, some of them together; ``!`` is a bad record, and ``!!`` damage."""

    type: ClassVar[str] = "lines"
    gives: ClassVar[Any] = bytes
    content_type: ClassVar[str | None] = "text/plain"

    seeks: bool = False
    together: int = 1

    def extract(self, given: Input) -> Iterator[Found | list[Found]]:
        if self.together == 1:
            yield from self._each(given)
            return
        run: list[Found] = []
        try:
            for found in self._each(given):
                run.append(found)
                if len(run) == self.together:
                    yield run
                    run = []
        except Exception:
            yield run
            raise
        yield run

    def _each(self, given: Input) -> Iterator[Found]:
        stream = given.open_stream()
        position = given.properties.get("byte", 0) if self.seeks else 0
        if position:
            stream.seek(position)
            given.skipped = given.skip
        for line in stream:
            position += len(line)
            if given.item.context.grows and not line.endswith(b"\n"):
                return
            text = line.rstrip(b"\n")
            if text.startswith(b"!!"):
                raise ObjectError(f"damaged at byte {position - len(line)}")
            if text.startswith(b"!"):
                yield BadRecordError(f"a bad line before byte {position}", raw=text)
                continue
            yield Extracted(text, properties={"byte": position} if self.seeks else None, size_bytes=len(line))
