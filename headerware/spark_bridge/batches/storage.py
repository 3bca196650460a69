"""The text files of a ledger, in any file system that Spark's driver reaches.

A text is written under a temporary name in ``tmp/`` and then renamed, so that a half-written file never has
its final name, even after a kill. On HDFS and on local disks the renaming is one step. In object stores it is
a copy on the server followed by a delete: the copy appears completely or not at all, and a kill in between
leaves a file in ``tmp/``. Names are written once and never replaced.

In a classic session the files are read and written by Hadoop's FileSystem in the driver's JVM, as Spark's own
checkpoint is. A session of Spark Connect has no JVM: there pyarrow's file systems do it, in the worker that
runs the query's function, which is next to the driver.

Local disks are used without Hadoop's checksums: its ``.crc`` files are written apart from their files, so a
kill between the two would make a good file unreadable. After a loss of power, files are as safe as the file
system makes them, like Spark's own checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from headerware.core.errors import HeaderwareError
from headerware.spark_bridge.driver import driver_of, spark_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

MAX_TEXT_BYTES: Final = 16 * 2**20
"""A larger file is not a ledger's, and is not read into the driver's memory."""

_TEMPORARY: Final = "tmp"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//[^/]*)?(.*)", re.DOTALL)
_LOCAL: Final = {"file": "", "dbfs": "/dbfs"}
"""The schemes of paths that the driver's machine has in its own file system, below these folders."""
_VOLUMES: Final = "/Volumes/"
"""Databricks has the paths of volumes in the file system of the machine, under the same names."""
_ARROW_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's names of schemes that pyarrow calls otherwise."""

_WITHOUT_FOLDERS: Final = frozenset({"s3", "gcs", "abfs"})
"""The stores of pyarrow in which a folder is only the beginning of names."""


class LedgerError(HeaderwareError):
    """A ledger of micro-batches that cannot be read, written or continued."""


class _Files(Protocol):
    """The files below one folder, by their names."""

    root: str
    """The folder, as Spark's readers and writers take it."""

    def exists(self, name: str) -> bool: ...
    def names(self, name: str) -> list[str]:
        """Return the names in a folder, which exists."""

    def read(self, name: str, limit_bytes: int) -> bytes: ...
    def write(self, name: str, content: bytes) -> None:
        """Write a new file, and make its folder."""

    def rename(self, name: str, to: str) -> bool:
        """Rename a file, and make the folder; return False, or raise, if the new name is taken."""

    def delete(self, name: str) -> None: ...


class Storage:
    """Read and write small files under one folder of any file system that Spark reaches.

    A relative path is relative to the working directory of Spark's driver, like that of a checkpoint.
    """

    def __init__(self, spark: SparkSession, root: str | os.PathLike[str]) -> None:
        root = str(os.fspath(root))
        jvm = driver_of(spark).jvm
        self._files: _Files = _ArrowFiles(root) if jvm is None else _HadoopFiles(spark, jvm, root)
        self._root: Final = self._files.root

    def path(self, name: str = "") -> str:
        """Return the full path of a name, as Spark's readers and writers take it."""
        return f"{self._root.rstrip('/')}/{name}" if name else self._root

    def exists(self, name: str) -> bool:
        """Return whether there is a file or folder of this name."""
        with self._translated_errors("look for", name):
            return self._files.exists(name)

    def names(self, name: str = "") -> tuple[str, ...]:
        """Return the names in a folder, sorted, without hidden ones; none if there is no folder."""
        with self._translated_errors("list", name):
            # Check first, since file systems differ in what they throw for a missing folder.
            found = self._files.names(name) if self._files.exists(name) else ()
        return tuple(sorted(each for each in found if not each.startswith((".", "_"))))

    def read_text(self, name: str) -> str:
        """Read a file; refuse one of more than `MAX_TEXT_BYTES`."""
        with self._translated_errors("read", name):
            content = self._files.read(name, MAX_TEXT_BYTES + 1)
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
            self._files.write(temporary, text.encode())
        return self._renamed(temporary, name)

    def delete(self, name: str) -> None:
        """Delete a file or a folder with its contents, if it exists."""
        with self._translated_errors("delete", name):
            self._files.delete(name)

    def delete_temporary(self) -> None:
        """Delete temporary files of killed writers."""
        self.delete(_TEMPORARY)

    def _renamed(self, temporary: str, name: str) -> bool:
        """Give a written file its name; return False, and delete it, if another file has the name."""
        try:
            with self._translated_errors("write", name):
                renamed = self._files.rename(temporary, name)
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

    @contextlib.contextmanager
    def _translated_errors(self, verb: str, name: str) -> Iterator[None]:
        with _translated_errors(f"cannot {verb} {self.path(name)}"):
            yield


class _HadoopFiles:
    """Files by Hadoop's FileSystem, in the driver's JVM."""

    def __init__(self, spark: SparkSession, jvm: Any, root: str) -> None:
        conf = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001  with what the session sets; no public way
        self._new_path = jvm.org.apache.hadoop.fs.Path
        with _translated_errors(f"cannot reach {root}"):
            path = self._new_path(root)
            found = path.getFileSystem(conf)
            self.root = str(found.makeQualified(path).toString())
            local = found.getUri().getScheme() == "file"
            self._files = jvm.org.apache.hadoop.fs.FileSystem.getLocal(conf).getRaw() if local else found

    def exists(self, name: str) -> bool:
        return bool(self._files.exists(self._at(name)))

    def names(self, name: str) -> list[str]:
        return [status.getPath().getName() for status in self._files.listStatus(self._at(name))]

    def read(self, name: str, limit_bytes: int) -> bytes:
        with _closing(self._files.open(self._at(name))) as stream:
            return bytes(stream.readNBytes(limit_bytes))

    def write(self, name: str, content: bytes) -> None:
        with _closing(self._files.create(self._at(name), False)) as stream:  # noqa: FBT003  Java's; makes the folder
            stream.write(bytearray(content))

    def rename(self, name: str, to: str) -> bool:
        self._files.mkdirs(self._at(to).getParent())
        return bool(self._files.rename(self._at(name), self._at(to)))

    def delete(self, name: str) -> None:
        self._files.delete(self._at(name), True)  # noqa: FBT003  Java's

    def _at(self, name: str) -> Any:
        return self._new_path(f"{self.root.rstrip('/')}/{name}" if name else self.root)


class _ArrowFiles:
    """Files by pyarrow's file systems, or by those of fsspec, if it is installed, for other schemes."""

    def __init__(self, root: str) -> None:
        found = _SCHEME.fullmatch(root)
        scheme, authority, path = found.groups(default="") if found else ("file", "", os.path.abspath(root))  # noqa: PTH100  it keeps links
        self.root = root if found else path  # Spark decides what a path without a scheme means
        if scheme in _LOCAL:
            self._folder = path if path.startswith(_VOLUMES) else _LOCAL[scheme] + path
            from pyarrow.fs import LocalFileSystem  # noqa: PLC0415  with Spark, not before

            self._files: Any = LocalFileSystem()
        else:
            with _translated_errors(f"cannot reach {root}"):
                self._files, base = _file_system(_ARROW_SCHEMES.get(scheme, scheme), authority)
            self._folder = base.rstrip("/") + path

    def exists(self, name: str) -> bool:
        from pyarrow.fs import FileType  # noqa: PLC0415  as above

        return bool(self._files.get_file_info(self._at(name)).type != FileType.NotFound)

    def names(self, name: str) -> list[str]:
        from pyarrow.fs import FileSelector  # noqa: PLC0415  as above

        return [each.base_name for each in self._files.get_file_info(FileSelector(self._at(name)))]

    def read(self, name: str, limit_bytes: int) -> bytes:
        with self._files.open_input_stream(self._at(name), compression=None) as stream:
            return bytes(stream.read(limit_bytes))

    def write(self, name: str, content: bytes) -> None:
        self._make_folder_of(name)
        with self._files.open_output_stream(self._at(name), compression=None) as stream:
            stream.write(content)

    def rename(self, name: str, to: str) -> bool:
        self._make_folder_of(to)
        if self._files.type_name == "local":
            with contextlib.suppress(FileExistsError):
                return _renamed_locally(Path(self._at(name)), Path(self._at(to)))
        elif not self.exists(to):
            self._files.move(self._at(name), self._at(to))
            return True
        return False

    def delete(self, name: str) -> None:
        from pyarrow.fs import FileType  # noqa: PLC0415  as above

        kind = self._files.get_file_info(self._at(name)).type
        if kind == FileType.Directory:
            self._files.delete_dir(self._at(name))
        elif kind != FileType.NotFound:
            self._files.delete_file(self._at(name))

    def _make_folder_of(self, name: str) -> None:
        if self._files.type_name not in _WITHOUT_FOLDERS:
            self._files.create_dir(self._at(name).rpartition("/")[0], recursive=True)

    def _at(self, name: str) -> str:
        return f"{self._folder.rstrip('/')}/{name}" if name else self._folder


def _renamed_locally(written: Path, target: Path) -> bool:
    """Rename a file, and raise FileExistsError if the new name is taken, which a rename would replace."""
    try:
        target.hardlink_to(written)
    except FileExistsError:
        raise
    except OSError:  # mounted stores, such as Databricks' volumes, have no links
        if target.exists():
            raise FileExistsError(str(target)) from None
        written.rename(target)
    else:
        written.unlink()
    return True


def _file_system(scheme: str, authority: str) -> tuple[Any, str]:
    """Return the file system of a URI's scheme and authority, and its name for the root."""
    import pyarrow as pa  # noqa: PLC0415  with Spark, not before
    from pyarrow import fs  # noqa: PLC0415  as above

    try:
        found: tuple[Any, str] = fs.FileSystem.from_uri(f"{scheme}:{authority}/")
    except pa.ArrowInvalid as error:
        try:
            import fsspec  # type: ignore[import-not-found]  # noqa: PLC0415  it need not be there

            other = fsspec.filesystem(scheme)
        except (ImportError, ValueError):
            raise error from None
        return fs.PyFileSystem(fs.FSSpecHandler(other)), authority.strip("/")
    return found


@contextlib.contextmanager
def _translated_errors(failure: str) -> Iterator[None]:
    """Turn an error of a file system into a LedgerError that says what failed, and where."""
    import pyarrow as pa  # noqa: PLC0415  with Spark, not before

    try:
        yield
    except (OSError, pa.ArrowException, *spark_errors()) as error:
        raise LedgerError(f"{failure}: {_reason(error)}") from error


@contextlib.contextmanager
def _closing(stream: Any) -> Iterator[Any]:
    try:
        yield stream
    finally:
        stream.close()


def _reason(error: Exception) -> str:
    """Return an error in one line: for Java's, its class and the first line of its message."""
    from pyspark.errors import PySparkException  # noqa: PLC0415  with Spark, not before

    if isinstance(error, PySparkException):
        return str(error.getMessage())
    thrown = getattr(error, "java_exception", None)
    message = str(error if thrown is None else thrown.getMessage() or "").partition("\n")[0]
    kind = type(error).__name__ if thrown is None else str(thrown.getClass().getSimpleName())
    return f"{kind}: {message}" if message else kind
