"""The text files of a ledger, in any file system that Hadoop's FileSystem reaches.

A text is written under a temporary name in ``tmp/`` and then renamed, so that a half-written file never has
its final name, even after a kill. On HDFS and on local disks the renaming is one step. In object stores it is
a copy on the server followed by a delete: the copy appears completely or not at all, and a kill in between
leaves a file in ``tmp/``. Names are written once and never replaced.

Local disks are used without Hadoop's checksums: its ``.crc`` files are written apart from their files, so a
kill between the two would make a good file unreadable. After a loss of power, files are as safe as the file
system makes them, like Spark's own checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from typing import TYPE_CHECKING, Any, Final

from headerware.core.errors import HeaderwareError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

MAX_TEXT_BYTES: Final = 16 * 2**20
"""A larger file is not a ledger's, and is not read into the driver's memory."""

_TEMPORARY: Final = "tmp"


class LedgerError(HeaderwareError):
    """A ledger of micro-batches that cannot be read, written or continued."""


class Storage:
    """Read and write small files under one folder of any file system that Spark reaches.

    A relative path is relative to the working directory of Spark's driver, like that of a checkpoint.
    """

    def __init__(self, spark: SparkSession, root: str | os.PathLike[str]) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001  pyspark has no public way to Hadoop's FileSystem
        conf = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001  with what the session sets
        self._new_path = jvm.org.apache.hadoop.fs.Path
        self._root = str(root := os.fspath(root))
        with self._translated_errors("reach", ""):
            path = self._new_path(root)
            found = path.getFileSystem(conf)
            self._root = found.makeQualified(path).toString()
            local = found.getUri().getScheme() == "file"
            self._files = jvm.org.apache.hadoop.fs.FileSystem.getLocal(conf).getRaw() if local else found

    def path(self, name: str = "") -> str:
        """Return the full path of a name, as Spark's readers and writers take it."""
        return f"{self._root.rstrip('/')}/{name}" if name else self._root

    def exists(self, name: str) -> bool:
        """Return whether there is a file or folder of this name."""
        with self._translated_errors("look for", name):
            return bool(self._files.exists(self._at(name)))

    def names(self, name: str = "") -> tuple[str, ...]:
        """Return the names in a folder, sorted, without hidden ones; none if there is no folder."""
        with self._translated_errors("list", name):
            # Check first, since file systems differ in what they throw for a missing folder.
            at = self._at(name)
            found = self._files.listStatus(at) if self._files.exists(at) else ()
            names = [status.getPath().getName() for status in found]
        return tuple(sorted(each for each in names if not each.startswith((".", "_"))))

    def read_text(self, name: str) -> str:
        """Read a file; refuse one of more than `MAX_TEXT_BYTES`."""
        with self._translated_errors("read", name), _closing(self._files.open(self._at(name))) as stream:
            content = bytes(stream.readNBytes(MAX_TEXT_BYTES + 1))
        if len(content) > MAX_TEXT_BYTES:
            raise LedgerError(f"{self.path(name)}: expected at most {MAX_TEXT_BYTES} bytes, found more")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise LedgerError(f"{self.path(name)}: expected UTF-8, found other bytes") from error

    def write_text(self, name: str, text: str) -> bool:
        """Write a file completely or not at all; return False, and change nothing, if the name is taken."""
        if self.exists(name):
            return False
        temporary = f"{_TEMPORARY}/{uuid.uuid4().hex}"
        with self._translated_errors("write", name):
            self._files.mkdirs(self._at(name).getParent())
            with _closing(self._files.create(self._at(temporary), False)) as stream:  # noqa: FBT003  Java's
                stream.write(bytearray(text.encode()))
        return self._renamed(temporary, name)

    def delete(self, name: str) -> None:
        """Delete a file or a folder with its contents, if it exists."""
        with self._translated_errors("delete", name):
            self._files.delete(self._at(name), True)  # noqa: FBT003  Java's

    def delete_temporary(self) -> None:
        """Delete temporary files of killed writers."""
        self.delete(_TEMPORARY)

    def _renamed(self, temporary: str, name: str) -> bool:
        """Give a written file its name; return False, and delete it, if another file has the name."""
        try:
            with self._translated_errors("write", name):
                renamed = bool(self._files.rename(self._at(temporary), self._at(name)))
        except LedgerError:
            # If the name is taken, some file systems throw and others return False.
            if not self.exists(name):
                raise
            renamed = False
        if not renamed:
            self.delete(temporary)
            if not self.exists(name):
                raise LedgerError(f"cannot write {self.path(name)}: the file system refused to rename to it")
        return renamed

    def _at(self, name: str) -> Any:
        return self._new_path(self.path(name))

    @contextlib.contextmanager
    def _translated_errors(self, verb: str, name: str) -> Iterator[None]:
        """Turn an error of the JVM into a LedgerError that says what failed, and where."""
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415  with pyspark
        from pyspark.errors import PySparkException  # noqa: PLC0415  where Spark is needed, not before

        try:
            yield
        except PySparkException as error:
            raise LedgerError(f"cannot {verb} {self.path(name)}: {error.getMessage()}") from error
        except Py4JJavaError as error:
            raise LedgerError(f"cannot {verb} {self.path(name)}: {_reason(error.java_exception)}") from error


@contextlib.contextmanager
def _closing(stream: Any) -> Iterator[Any]:
    try:
        yield stream
    finally:
        stream.close()


def _reason(thrown: Any) -> str:
    """Return a Java exception in one line: its class and the first line of its message."""
    message = str(thrown.getMessage() or "").partition("\n")[0]
    kind = thrown.getClass().getSimpleName()
    return f"{kind}: {message}" if message else str(kind)
