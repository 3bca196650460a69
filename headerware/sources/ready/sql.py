"""A source of the rows of tables, views and queries, in the order of columns that increase.

A table is one object, which grows. Its rows are requested page by page, each after the last row of the page
before, so that no transaction stays open and an index can be used. The offset of a table is the position of
the last row that was read: its values in these columns. There is one offset per table, for any number of
rows. A table never starts again by itself: even if rows are deleted, or hidden by ``where``, the rows after
the position are the new ones.
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
"""The characters that make a name a pattern."""


class RowExtractor(Extractor, frozen=True, kw_only=True):
    """Yield the rows of a table as dicts of plain Python values."""

    type: ClassVar[str] = "rows"
    gives: ClassVar[Any] = dict

    def extract(self, given: Input) -> Iterator[Extracted | BadRecordError]:
        """Yield the rows after the last stored one."""
        if not isinstance(given.item, SqlTable):
            raise ObjectError("expected a table of the source 'sql', found another object")
        after = given.properties.get("after") if given.skip else None
        given.skipped = 0 if after is None else given.skip
        yield from given.item.rows(after)


class SqlTables(Source[str], frozen=True, kw_only=True):
    """List the tables of a database by name; the rows of a table are read in the order of some columns.

    New rows must have rising values in these columns, such as an identity or the time of the last change. A
    row that becomes visible after other rows with higher values is missed, as with every source of this kind;
    use ``where`` to leave out the latest rows, for as long as transactions take. Reading continues after the
    last row that was read, even if rows were deleted. ``headerware source offsets reset`` reads a table from
    its first row again.

    Args:
        url: SQLAlchemy's address of the database, such as ``postgresql+psycopg://host/shop``; its driver must
            be installed. Keep a password in the environment: ``${env:DATABASE_URL}``.
        tables: patterns of names, such as ``orders_*``. A view is read only if its complete name is given.
        queries: SQL queries by the names of their objects; the rows of a query are read like those of a
            table.
        order_by: the columns by which rows increase; together they must be unique, and should have an index.
            A row with NULL in one of them is an error of the table. If a column may be NULL, the table is
            searched for such rows before it is read.
        key: the columns that make the record's key: the value of one column, or a dict of several.
        schema: the database's schema for tables and views; None means the default.
        where: an SQL condition that rows must meet, such as ``changed_at < now() - interval '1 minute'``.
        page_rows: how many rows are requested at once.

    Raises:
        ConfigError: an option cannot work.
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
        """Refuse options with which no row can be found."""
        if not self.tables and not self.queries:
            raise ConfigError("expected at least one table or query, found none", path="tables")
        if not self.order_by:
            raise ConfigError("expected at least one column, found none", path="order_by")
        if self.page_rows < 1:
            raise ConfigError(f"expected at least 1, found {self.page_rows}", path="page_rows")

    def open(self, context: SourceContext) -> OpenSource[str]:  # noqa: ARG002 - each task lists all
        """Return the source itself, after a check of the driver, the tables and the views.

        Tables that match a pattern may be created later.

        Raises:
            ConfigError: the database, a table or a view does not exist, or a query has the name of one.
        """
        try:
            sqlalchemy.create_engine(self.url).dispose()
        except ImportError as error:
            raise ConfigError(f"the driver {error.name!r} is not installed", path="source.url") from None
        except (exc.ArgumentError, exc.NoSuchModuleError) as error:
            raise ConfigError(
                f"expected SQLAlchemy's address of a database ({type(error).__name__})", path="source.url"
            ) from None
        tables, views = self._names()
        for name in self.tables:
            if name not in tables | views and not _WILD.intersection(name):
                near = did_you_mean(name, sorted(tables | views))
                raise ConfigError(f"the table or view {name!r} does not exist{near}", path="source.tables")
        for name in self.queries:
            if self._reads(name, tables, views):
                raise ConfigError(
                    f"{name!r} is also the name of a table or view that is read; give the query another name",
                    path="source.queries",
                )
        return self

    def _names(self) -> tuple[set[str], set[str]]:
        """Return the names of the tables, and the names of the views."""
        if not self.tables:
            return set(), set()
        with _connected(self.url, SourceError) as connection:
            found = sqlalchemy.inspect(connection)
            views = set(found.get_view_names(schema=self.schema))
            with suppress(NotImplementedError):  # the database has no materialized views
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
                with suppress(FileNotFoundError):  # the table was dropped after it was listed
                    yield SqlTable(self, name)


class SqlTable(NativeItem):
    """A table, a view or a query; its version is the position of the last row when it was listed."""

    def __init__(self, source: SqlTables, name: str) -> None:
        self._source: Final = source
        super().__init__(ItemContext(key=name, grows=True))
        with _connected(source.url, SourceError) as connection:
            table, columns = self._table(connection)
            present = [column.is_not(None) for column in columns]
            asked = self._select(table, columns).where(*present)
            last = connection.execute(asked.order_by(*(column.desc() for column in columns)).limit(1)).first()
        version = msgspec.json.encode(_stored(last or ())).decode()
        self.context: ItemContext = msgspec.structs.replace(self.context, version=version)

    def extends(self, version: str) -> bool:  # noqa: ARG002 - the stored position tells which rows are new
        """Return True: after any change, the new rows are those after the stored position."""
        return True

    def rows(self, after: list[Any] | None) -> Iterator[Extracted]:
        """Yield the rows after a position, page by page.

        Raises:
            ObjectError: a row has no position, two rows have the same one, or the stored position has another
                number of columns.
        """
        source = self._source
        with _connected(source.url, ObjectError) as connection:
            table, columns = self._table(connection)
            self._require_positions(connection, table, columns)
        if after is not None and len(after) != len(columns):
            raise ObjectError(
                f"order_by has {counted(len(columns), 'column')}, but the table's offset has {len(after)}; "
                f"reset the offset, or undo the change of order_by"
            )
        more = True
        while more:
            asked = self._select(table, table.columns).order_by(*columns)
            if after is not None:
                asked = asked.where(_after(columns, after))
            with _connected(source.url, ObjectError) as connection:
                found = connection.execute(asked.limit(source.page_rows + 1)).mappings().all()
            positions = [_stored([row[column.name] for column in columns]) for row in found]
            if any(one == other for one, other in pairwise([after, *positions])):
                raise ObjectError("two rows have the same values in order_by, perhaps rounded; add a column")
            more = len(found) > source.page_rows
            for row, position in zip(found[: source.page_rows], positions, strict=False):
                value, after = dict(row), position
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
            # The query and `where` come from the configuration, whose author may read the database.
            asked = sqlalchemy.text(f"select * from ({query}) asked where 1 = 0")  # noqa: S608 - see above
            names = list(connection.execute(asked).keys())
            table = sqlalchemy.text(query).columns(*map(sqlalchemy.column, names)).subquery("asked")
        missing = [name for name in [*source.order_by, *source.key] if name not in table.columns]
        if missing:
            what = "table" if query is None else "query"
            raise ObjectError(f"expected a column {missing[0]!r} in the {what}, found none")
        return table, [table.columns[name] for name in source.order_by]

    def _require_positions(
        self, connection: Connection, table: FromClause, columns: list[ColumnElement[Any]]
    ) -> None:
        """Refuse rows with NULL in a column of ``order_by``: they would never be read."""
        for column, name in zip(columns, self._source.order_by, strict=True):
            if not getattr(column, "nullable", True):
                continue
            asked = self._select(table, [sqlalchemy.literal(1)]).where(column.is_(None))
            if connection.execute(asked.limit(1)).first() is not None:
                raise ObjectError(
                    f"a row has NULL in column {name!r} of order_by and would never be read; fill the "
                    "column, or "
                    f'leave such rows out with where = "{name} is not null"'
                )

    def _select(self, table: FromClause, wanted: Iterable[ColumnElement[Any]]) -> Select[Any]:
        asked = sqlalchemy.select(*wanted).select_from(table)
        if self._source.where is not None:
            asked = asked.where(sqlalchemy.text(f"({self._source.where})"))
        return asked


def _after(columns: list[ColumnElement[Any]], position: list[Any]) -> ColumnElement[bool]:
    """Return the condition for rows after a position."""
    condition: Any = sqlalchemy.false()
    for column, stored in reversed(list(zip(columns, position, strict=True))):
        value = stored
        if isinstance(column.type, NullType):  # a query's column: the database converts the value
            value = sqlalchemy.bindparam(None, stored, type_=NullType())
        else:
            with suppress(NotImplementedError):  # a type without a Python class
                value = msgspec.convert(stored, column.type.python_type, strict=False)
        condition = sqlalchemy.or_(column > value, sqlalchemy.and_(column == value, condition))
    return cast("ColumnElement[bool]", condition)


@contextmanager
def _connected(url: str, refusal: type[SourceError]) -> Iterator[Connection]:
    """Connect; replace SQLAlchemy's errors, because they may quote values."""
    try:
        with sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool).connect() as connection:
            yield connection
    except (exc.OperationalError, exc.InterfaceError, exc.InternalError, exc.TimeoutError) as error:
        raise SourceUnavailableError(f"the database does not answer ({type(error).__name__})") from None
    except exc.NoSuchTableError:
        raise FileNotFoundError("the table was dropped") from None
    except (exc.SQLAlchemyError, ValueError, ArithmeticError) as error:
        raise refusal(
            f"the database refuses the query, or a value does not fit ({type(error).__name__})"
        ) from None


def _stored(values: Any) -> list[Any]:
    """Return values as an offset stores them: numbers unchanged, others as text."""
    return cast("list[Any]", msgspec.to_builtins(list(values)))
