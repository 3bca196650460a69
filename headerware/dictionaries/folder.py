"""A folder as a store of dictionaries: it suits a git repository, an image or a mounted volume.

A dictionary is the file ``<id>.dict``, as zstd's tools write and read it; ``uses.json`` has the dictionary of
each topic. A file whose content does not fit its id counts as missing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

import msgspec

from headerware.core.atomic_files import locked, replace_file
from headerware.core.errors import DictionaryError, WireFormatError, of_file
from headerware.core.options import PATH
from headerware.core.per_process import PerProcess
from headerware.core.plain_files import read_plain, require_folder
from headerware.core.printable import without_values
from headerware.dictionaries.dictionary import (
    MAX_DICTIONARY_BYTES,
    Dictionary,
    Use,
    decode_use,
    encode_use,
    is_dictionary,
    use_key,
)
from headerware.dictionaries.store import Dictionaries

_USES: Final = "uses.json"
_SUFFIX: Final = ".dict"
_MAX_USES_BYTES: Final = 16 << 20


class FolderDictionaries(Dictionaries, frozen=True, kw_only=True):
    """Keep dictionaries in a folder.

    Args:
        path: the folder; publishing creates a missing one.
        rescan_s: the least time between two looks at the folder, in seconds.
    """

    type: ClassVar[str] = "folder"

    path: Annotated[str, PATH]
    rescan_s: Annotated[float, msgspec.Meta(ge=0)] = 1.0

    def check_files(self) -> None:
        """Read the folder if this machine has it."""
        require_folder(self.path)
        if Path(self.path).exists():
            with of_file("path"):
                self.open().read()

    def open(self) -> FolderDictionaryStore:
        """Return the store."""
        return FolderDictionaryStore(Path(self.path), rescan_s=self.rescan_s)


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of ``uses.json``."""

    uses: tuple[Use, ...]
    version: Literal[1] = 1


class FolderDictionaryStore:
    """The dictionaries of a folder; safe for use by several threads and processes at once."""

    def __init__(
        self, folder: Path, *, rescan_s: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder: Final = folder
        self._rescan_s: Final = rescan_s
        self._clock: Final = clock
        self._lock: Final = PerProcess(threading.Lock)
        self._look_at = float("-inf")
        self._stamp: tuple[int, ...] = ()
        self._failure: str | None = None
        self._uses: dict[bytes, Use] = {}

    @property
    def generation(self) -> tuple[int, ...]:
        """A value that changes when the folder changes; the folder is read again when that is due."""
        if self._clock() >= self._look_at:
            self._look()
        return self._stamp

    def read(self) -> None:
        """Read the folder."""
        self._look()
        if self._failure is not None:
            raise DictionaryError(self._failure)

    def start(self) -> None:
        """Read the folder; :attr:`generation` reads it again later."""
        self.read()

    def use(self, topic: str, content_type: str | None) -> Use | None:
        """Return the use of exactly this topic and content type."""
        return self._uses.get(use_key(topic, content_type))

    def known(self, dictionary_id: str) -> bytes | None:
        """Return a dictionary if its file is there and undamaged."""
        try:
            return self.get(dictionary_id)
        except DictionaryError:
            return None

    def get(self, dictionary_id: str) -> bytes | None:
        """Return a dictionary; None if there is no undamaged file of it."""
        try:
            content, _ = read_plain(self._folder / f"{dictionary_id}{_SUFFIX}", MAX_DICTIONARY_BYTES)
        except FileNotFoundError:
            if self._folder.is_dir():
                return None
            raise DictionaryError(f"there is no folder {self._folder} to read dictionaries from") from None
        except OSError as error:
            raise DictionaryError(
                f"a dictionary in {self._folder} cannot be read: {error.strerror}"
            ) from error
        return content if is_dictionary(content, dictionary_id) else None

    def uses(self) -> list[Use]:
        """Return all uses."""
        return list(self._uses.values())

    def ids(self) -> list[str]:
        """Return the ids of the dictionaries whose files are undamaged."""
        found = sorted(path.stem for path in self._folder.glob(f"*{_SUFFIX}"))
        return [each for each in found if self.known(each) is not None]

    def put(self, dictionary: Dictionary) -> None:
        """Write a dictionary to a file of its own."""
        with self._writing():
            if self.known(dictionary.id) is None:
                replace_file(self._folder / f"{dictionary.id}{_SUFFIX}", dictionary.content, new_mode=0o666)

    def assign(self, use: Use) -> None:
        """Write a use into ``uses.json``, among the others."""
        with self._writing():
            self._look()
            if self._failure is not None:
                raise DictionaryError(self._failure)  # the damaged file must not be overwritten
            uses = {**self._uses, use.key: use}
            content = msgspec.json.format(msgspec.json.encode(_Document(tuple(uses.values()))), indent=2)
            replace_file(self._folder / _USES, content + b"\n", new_mode=0o666)
        self._look()

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    def _look(self) -> None:
        """Read ``uses.json`` if the folder has changed; if the file is damaged, keep the former uses."""
        with self._lock.get():
            self._look_at = self._clock() + self._rescan_s
            try:
                folder = self._folder.stat()
                path = self._folder / _USES
                file = path.stat() if path.exists() else None
                stamp = (
                    folder.st_mtime_ns,
                    *(() if file is None else (file.st_mtime_ns, file.st_size, file.st_ino)),
                )
                if stamp == self._stamp and self._failure is None:
                    return
                uses = [] if file is None else _read_uses(read_plain(path, _MAX_USES_BYTES)[0])
            except OSError as error:
                self._failure = f"the dictionaries' folder {self._folder} cannot be read: {error.strerror}"
            except WireFormatError as error:
                self._failure = f"{self._folder / _USES}: {error}"
            else:
                self._uses = {use.key: use for use in uses}
                self._stamp, self._failure = stamp, None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Make the writers of all processes wait for each other, so that no change is lost."""
        try:
            with locked(self._folder / ".lock"):
                yield
        except OSError as error:
            raise DictionaryError(
                f"a dictionary cannot be written to {self._folder}: {error.strerror}"
            ) from error


def _read_uses(content: bytes) -> list[Use]:
    try:
        document = msgspec.json.decode(content, type=_Document)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WireFormatError(f"it is no list of uses: {without_values(error)}") from None
    return [decode_use(use.key, encode_use(use)) for use in document.uses]
