"""The rows of tables, by columns that increase.

A table is one object, and grows. Its rows are asked for page by page, each behind the last row of the one
before, so that no transaction stays open and an index answers it. What is kept of a row is the place of the
table's last row that was read: one offset a table, however long it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any, ClassVar, Final, cast

import msgspec

from headerware.core.errors import (
    BadRecordError,
    ConfigError,
    MissingPartError,
    ObjectError,
    SourceError,
    SourceUnavailableError,
)
from headerware.core.extras import install_command
from headerware.core.patterns import any_fits
from headerware.core.suggestions import did_you_mean
from headerware.sources.extractor import Extracted, Extractor, Input
from headerware.sources.extractors.connect_values import size_of
from headerware.sources.keys import TextKeys
from headerware.sources.source import ItemContext, NativeItem, OpenSource, Source, SourceContext

try:
    import sqlalchemy
    from sqlalchemy import Column, Connection, Select, Table, exc
except ImportError as _missing:
    raise MissingPartError(f"sql needs SQLAlchemy: {install_command('sources')}") from _missing


_WILD: Final = frozenset("*?")
"""What makes a pattern of a name."""


class RowExtractor(Extractor, frozen=True, kw_only=True):
    """Yield the rows of a table as dicts of plain Python values."""

    type: ClassVar[str] = "rows"
    gives: ClassVar[Any] = dict

    def extract(self, given: Input) -> Iterator[Extracted | BadRecordError]:
        """Yield the rows behind the last one that is known."""
        if not isinstance(given.item, SqlTable):
            raise ObjectError("expected a table of the source 'sql'")
        after = given.properties.get("after") if given.skip else None
        given.skipped = 0 if after is None else given.skip
        yield from given.item.rows(after)


class SqlTables(Source[str], frozen=True, kw_only=True):
    """List the tables of a database by name; each one's rows are read in the order of some columns.

    Rows must be added with rising values there, such as an identity or the time of the last change. A row
    that becomes visible later than others with higher values is missed, as with every source of this kind:
    leave the latest out by ``where``, for as long as transactions take.

    Args:
        url: the database, as SQLAlchemy has it, such as ``postgresql+psycopg://host/shop``; its driver must
            be installed. A password belongs in the environment: ``${env:DATABASE_URL}``.
        tables: patterns of names, such as ``orders_*``.
        order_by: the columns by which rows increase, together unique, not null, and with an index.
        key: the columns that make the record's key: the value of one, or a dict of several.
        schema: the database's schema; None is its default.
        where: a condition in SQL that rows must meet, such as ``changed_at < now() - interval '1 minute'``.
        page_rows: how many rows are asked for at once.

    Raises:
        ConfigError: an option that cannot work.
    """

    type: ClassVar[str] = "sql"
    keys: ClassVar[TextKeys] = TextKeys()
    fixed: ClassVar[dict[str, Any]] = {"extractor": RowExtractor()}

    url: str
    tables: list[str]
    order_by: list[str]
    key: list[str] = msgspec.field(default_factory=list)
    schema: str | None = None
    where: str | None = None
    page_rows: int = 1_000

    def __post_init__(self) -> None:
        """Refuse what no row could be found with."""
        if not self.order_by:
            raise ConfigError("expected a column at least", path="order_by")
        if self.page_rows < 1:
            raise ConfigError(f"expected at least 1, found {self.page_rows}", path="page_rows")

    def open(self, context: SourceContext) -> OpenSource[str]:  # noqa: ARG002 - each task lists all
        """Return what lists the tables, once the database's driver and its tables are there.

        A table that a pattern stands for may be made later.

        Raises:
            ConfigError: there is no such database, or no such table.
        """
        try:
            sqlalchemy.create_engine(self.url).dispose()
        except ImportError as error:
            raise ConfigError(f"its driver {error.name!r} is not installed", path="source.url") from None
        except (exc.ArgumentError, exc.NoSuchModuleError) as error:
            raise ConfigError(f"names no database ({type(error).__name__})", path="source.url") from None
        known = self._names()
        for name in self.tables:
            if name not in known and not _WILD.intersection(name):
                near = did_you_mean(name, known)
                raise ConfigError(f"there is no table {name!r}; {near}".rstrip("; "), path="source.tables")
        return self

    def _names(self) -> list[str]:
        with _connected(self.url, SourceError) as connection:
            return sorted(sqlalchemy.inspect(connection).get_table_names(schema=self.schema))

    def items(self, start: str | None) -> Iterator[NativeItem]:
        """Yield the tables from a name on."""
        for name in self._names():
            if (start is None or name >= start) and any_fits(self.tables, name):
                with suppress(FileNotFoundError):  # it has gone since it was listed
                    yield SqlTable(self, name)


class SqlTable(NativeItem):
    """A table, as far as its rows went when it was listed."""

    def __init__(self, source: SqlTables, name: str) -> None:
        self._source: Final = source
        super().__init__(ItemContext(key=name, grows=True))
        with _connected(source.url, SourceError) as connection:
            table, columns = self._table(connection)
            asked = self._select(table, columns, columns).order_by(*(column.desc() for column in columns))
            last = connection.execute(asked.limit(1)).first()
        version = msgspec.json.encode(_kept(last or ())).decode()
        self.context: ItemContext = msgspec.structs.replace(self.context, version=version)

    def extends(self, version: str) -> bool:
        """Return whether there are rows behind the one that was the last, if there was one."""
        with _connected(self._source.url, ObjectError) as connection:  # whose order may not be Python's
            table, columns = self._table(connection)
            asked = self._select(table, columns, columns, msgspec.json.decode(version) or None)
            return connection.execute(asked.limit(1)).first() is not None

    def rows(self, after: list[Any] | None) -> Iterator[Extracted]:
        """Yield the rows behind a place, page by page."""
        source = self._source
        with _connected(source.url, ObjectError) as connection:
            table, columns = self._table(connection)
        more = True
        while more:
            asked = self._select(table, columns, list(table.columns), after).order_by(*columns)
            with _connected(source.url, ObjectError) as connection:
                found = connection.execute(asked.limit(source.page_rows + 1)).mappings().all()
            places = [_kept([row[column.name] for column in columns]) for row in found]
            if any(one == other for one, other in pairwise([after, *places])):
                raise ObjectError("two rows have the same place by order_by, perhaps rounded; add a column")
            more = len(found) > source.page_rows
            for row, place in zip(found[: source.page_rows], places, strict=False):
                value, after = dict(row), place
                size = size_of(value)
                yield Extracted(value, key=self._key(value), properties={"after": after}, size_bytes=size)

    def _key(self, row: dict[str, Any]) -> Any:
        found = {name: row[name] for name in self._source.key}
        return found if len(found) > 1 else next(iter(found.values()), None)

    def _table(self, connection: Connection) -> tuple[Table, list[Column[Any]]]:
        source = self._source
        table = Table(self.context.key, sqlalchemy.MetaData(), schema=source.schema, autoload_with=connection)
        missing = [name for name in [*source.order_by, *source.key] if name not in table.columns]
        if missing:
            raise ObjectError(f"the table has no column {missing[0]!r}")
        return table, [table.columns[name] for name in source.order_by]

    def _select(
        self, table: Table, columns: list[Column[Any]], wanted: list[Column[Any]], after: Any = None
    ) -> Select[Any]:
        present = [column.is_not(None) for column in columns]
        asked = sqlalchemy.select(*wanted).select_from(table).where(*present)
        if self._source.where is not None:
            asked = asked.where(sqlalchemy.text(f"({self._source.where})"))
        if after is not None:
            behind: Any = sqlalchemy.false()
            for column, kept in reversed(list(zip(columns, after, strict=True))):
                value = kept
                with suppress(NotImplementedError):  # a type that tells no class in Python
                    value = msgspec.convert(kept, column.type.python_type, strict=False)
                behind = sqlalchemy.or_(column > value, sqlalchemy.and_(column == value, behind))
            asked = asked.where(behind)
        return asked


@contextmanager
def _connected(url: str, refusal: type[SourceError]) -> Iterator[Connection]:
    """Connect, and turn SQLAlchemy's errors, which may quote values, into ours."""
    try:
        with sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool).connect() as connection:
            yield connection
    except (exc.OperationalError, exc.InterfaceError, exc.InternalError, exc.TimeoutError) as error:
        raise SourceUnavailableError(f"the database does not answer ({type(error).__name__})") from None
    except exc.NoSuchTableError:
        raise FileNotFoundError("the table is gone") from None
    except (exc.SQLAlchemyError, ValueError, ArithmeticError) as error:
        raise refusal(f"the database refuses it, or a value misfits ({type(error).__name__})") from None


def _kept(values: Any) -> list[Any]:
    """Return values as an offset keeps them: numbers, and the text of others."""
    return cast("list[Any]", msgspec.to_builtins(list(values)))
