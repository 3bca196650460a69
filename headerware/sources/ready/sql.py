"""The rows of tables, views and queries, by columns that increase.

A table is one object, and grows. Its rows are asked for page by page, each behind the last row of the one
before, so that no transaction stays open and an index answers it. What is kept of a row is the place of the
table's last row that was read: one offset a table, however long it is. A table never starts again by itself:
rows may be deleted, or hidden by ``where``, and those behind the place are the new ones all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
from headerware.core.printable import counted
from headerware.core.suggestions import did_you_mean
from headerware.sources.extractor import Extracted, Extractor, Input
from headerware.sources.extractors.connect_values import size_of
from headerware.sources.keys import TextKeys
from headerware.sources.source import ItemContext, NativeItem, OpenSource, Source, SourceContext

try:
    import sqlalchemy
    from sqlalchemy import ColumnElement, Connection, FromClause, Select, Table, exc
    from sqlalchemy.types import NullType
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
    leave the latest out by ``where``, for as long as transactions take. Reading goes on behind the last row
    that was read, whatever was deleted; ``headerware source offsets reset`` reads a table from its first row.

    Args:
        url: the database, as SQLAlchemy has it, such as ``postgresql+psycopg://host/shop``; its driver must
            be installed. A password belongs in the environment: ``${env:DATABASE_URL}``.
        tables: patterns of names, such as ``orders_*``. A view is read only if its whole name is here.
        queries: queries in SQL by the names of their objects; the rows of each are read as those of a table.
        order_by: the columns by which rows increase, together unique, and with an index. A row that is NULL
            there is an error of the table. A column that may be NULL is searched for such rows before the
            table is read.
        key: the columns that make the record's key: the value of one, or a dict of several.
        schema: the database's schema for tables and views; None is its default.
        where: a condition in SQL that rows must meet, such as ``changed_at < now() - interval '1 minute'``.
        page_rows: how many rows are asked for at once.

    Raises:
        ConfigError: an option that cannot work.
    """

    type: ClassVar[str] = "sql"
    keys: ClassVar[TextKeys] = TextKeys()
    fixed: ClassVar[dict[str, Any]] = {"extractor": RowExtractor()}

    url: str
    order_by: list[str]
    tables: list[str] = msgspec.field(default_factory=list)
    queries: dict[str, str] = msgspec.field(default_factory=dict)
    key: list[str] = msgspec.field(default_factory=list)
    schema: str | None = None
    where: str | None = None
    page_rows: int = 1_000

    def __post_init__(self) -> None:
        """Refuse what no row could be found with."""
        if not self.tables and not self.queries:
            raise ConfigError("expected the name of a table at least, or queries", path="tables")
        if not self.order_by:
            raise ConfigError("expected a column at least", path="order_by")
        if self.page_rows < 1:
            raise ConfigError(f"expected at least 1, found {self.page_rows}", path="page_rows")

    def open(self, context: SourceContext) -> OpenSource[str]:  # noqa: ARG002 - each task lists all
        """Return what lists the tables, once the database's driver and its tables are there.

        A table that a pattern stands for may be made later.

        Raises:
            ConfigError: there is no such database, table or view, or a query has the name of one.
        """
        try:
            sqlalchemy.create_engine(self.url).dispose()
        except ImportError as error:
            raise ConfigError(f"its driver {error.name!r} is not installed", path="source.url") from None
        except (exc.ArgumentError, exc.NoSuchModuleError) as error:
            raise ConfigError(f"names no database ({type(error).__name__})", path="source.url") from None
        tables, views = self._names()
        for name in self.tables:
            if name not in tables | views and not _WILD.intersection(name):
                near = did_you_mean(name, sorted(tables | views))
                problem = f"there is no table or view {name!r}; {near}".rstrip("; ")
                raise ConfigError(problem, path="source.tables")
        for name in self.queries:
            if self._reads(name, tables, views):
                raise ConfigError(
                    f"{name!r} is a table or a view that is read, too; give the query another name",
                    path="source.queries",
                )
        return self

    def _names(self) -> tuple[set[str], set[str]]:
        """Return the names of tables, and those of views."""
        if not self.tables:
            return set(), set()
        with _connected(self.url, SourceError) as connection:
            found = sqlalchemy.inspect(connection)
            views = set(found.get_view_names(schema=self.schema))
            with suppress(NotImplementedError):  # a database that has none
                views.update(found.get_materialized_view_names(schema=self.schema))
            return set(found.get_table_names(schema=self.schema)), views

    def _reads(self, name: str, tables: set[str], views: set[str]) -> bool:
        """Return whether the rows of a table or view are read."""
        return (name in tables and any_fits(self.tables, name)) or (name in views and name in self.tables)

    def items(self, start: str | None) -> Iterator[NativeItem]:
        """Yield the tables, views and queries from a name on."""
        tables, views = self._names()
        for name in sorted({*tables, *views, *self.queries}):
            if start is not None and name < start:
                continue
            if name in self.queries or self._reads(name, tables, views):
                with suppress(FileNotFoundError):  # it has gone since it was listed
                    yield SqlTable(self, name)


class SqlTable(NativeItem):
    """A table, a view or a query, as far as its rows went when it was listed."""

    def __init__(self, source: SqlTables, name: str) -> None:
        self._source: Final = source
        super().__init__(ItemContext(key=name, grows=True))
        with _connected(source.url, SourceError) as connection:
            table, columns = self._table(connection)
            present = [column.is_not(None) for column in columns]
            asked = self._select(table, columns).where(*present)
            last = connection.execute(asked.order_by(*(column.desc() for column in columns)).limit(1)).first()
        version = msgspec.json.encode(_kept(last or ())).decode()
        self.context: ItemContext = msgspec.structs.replace(self.context, version=version)

    def extends(self, version: str) -> bool:  # noqa: ARG002 - the place that was read says what is new
        """Return True: a table whose last row is another one has new rows, or none, behind the place."""
        return True

    def rows(self, after: list[Any] | None) -> Iterator[Extracted]:
        """Yield the rows behind a place, page by page.

        Raises:
            ObjectError: rows have no place, or the same one; or the place is one of other columns.
        """
        source = self._source
        with _connected(source.url, ObjectError) as connection:
            table, columns = self._table(connection)
            self._require_places(connection, table, columns)
        if after is not None and len(after) != len(columns):
            raise ObjectError(
                f"order_by has {counted(len(columns), 'column')}, and the row that was read last has a place "
                f"of {len(after)}; reset the table's offset, or take back the change of order_by"
            )
        more = True
        while more:
            asked = self._select(table, table.columns).order_by(*columns)
            if after is not None:
                asked = asked.where(_behind(columns, after))
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

    def _table(self, connection: Connection) -> tuple[FromClause, list[ColumnElement[Any]]]:
        source, name = self._source, self.context.key
        table: FromClause
        if (query := source.queries.get(name)) is None:
            table = Table(name, sqlalchemy.MetaData(), schema=source.schema, autoload_with=connection)
        else:
            # Who writes the configuration chooses the query, and `where`.
            asked = sqlalchemy.text(f"select * from ({query}) asked where 1 = 0")  # noqa: S608 - as said
            names = list(connection.execute(asked).keys())
            table = sqlalchemy.text(query).columns(*map(sqlalchemy.column, names)).subquery("asked")
        missing = [name for name in [*source.order_by, *source.key] if name not in table.columns]
        if missing:
            what = "table" if query is None else "query"
            raise ObjectError(f"the {what} has no column {missing[0]!r}")
        return table, [table.columns[name] for name in source.order_by]

    def _require_places(
        self, connection: Connection, table: FromClause, columns: list[ColumnElement[Any]]
    ) -> None:
        """Refuse rows that are NULL where the order needs a value: they would never be read."""
        for column, name in zip(columns, self._source.order_by, strict=True):
            if not getattr(column, "nullable", True):
                continue
            asked = self._select(table, [sqlalchemy.literal(1)]).where(column.is_(None))
            if connection.execute(asked.limit(1)).first() is not None:
                raise ObjectError(
                    f"a row is NULL in column {name!r} of order_by, so it has no place and would never be "
                    f'read; fill the column, or leave such rows out by where = "{name} is not null"'
                )

    def _select(self, table: FromClause, wanted: Iterable[ColumnElement[Any]]) -> Select[Any]:
        asked = sqlalchemy.select(*wanted).select_from(table)
        if self._source.where is not None:
            asked = asked.where(sqlalchemy.text(f"({self._source.where})"))
        return asked


def _behind(columns: list[ColumnElement[Any]], after: list[Any]) -> ColumnElement[bool]:
    """Return the condition of rows behind a place."""
    behind: Any = sqlalchemy.false()
    for column, kept in reversed(list(zip(columns, after, strict=True))):
        value = kept
        if isinstance(column.type, NullType):  # of a query: the database compares it as text that fits
            value = sqlalchemy.bindparam(None, kept, type_=NullType())
        else:
            with suppress(NotImplementedError):  # a type that tells no class in Python
                value = msgspec.convert(kept, column.type.python_type, strict=False)
        behind = sqlalchemy.or_(column > value, sqlalchemy.and_(column == value, behind))
    return cast("ColumnElement[bool]", behind)


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
