"""The source ``sql``, with SQLite; tests/integration has PostgreSQL."""

from __future__ import annotations

import datetime as dt
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headerware.core.errors import ConfigError, ObjectError, SourceUnavailableError
from headerware.sources import Extracted, Input, NativeItem, Source, SourceConfig, SourceContext, open_source
from headerware.sources.conformance import SourceConformance
from headerware.sources.extractor import extracted
from headerware.sources.ready import SqlTables
from headerware.sources.ready.sql import RowExtractor


class Shop:
    """A database with some tables."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name, rows in {"orders_a": 3, "orders_c": 5, "orders_d": 0, "other": 1}.items():
            self.run(
                f"create table {name} (id integer primary key, city text, price numeric(9, 2), at datetime)"
            )
            for _ in range(rows):
                self.add(name)

    def run(self, *statement: Any) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(*statement)

    def add(self, table: str, at: str = "2026-11-23 04:05:06.789") -> None:
        self.run(f"insert into {table} (city, price, at) values ('Bern', 1.5, ?)", (at,))  # noqa: S608

    def source(self, **options: Any) -> SqlTables:
        given = {"tables": ["orders_*"], "order_by": ["id"], **options}
        return SqlTables(url=f"sqlite:///{self.path}", **given)

    def item(self, table: str = "orders_a", **options: Any) -> NativeItem:
        opened = open_source(self.source(**options), SourceContext())
        return next(item for item in opened.items(table) if item.context.key == table)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "shop.db")


def rows(item: NativeItem, **given: Any) -> list[Extracted]:
    found = [record for _, record in extracted(RowExtractor(), Input(item, **given))]
    assert all(isinstance(record, Extracted) for record in found)
    return found  # type: ignore[return-value]


class TestConformance(SourceConformance):
    @pytest.fixture(autouse=True)
    def filled(self, shop: Shop) -> None:
        self.shop = shop

    def make_source(self) -> Source[Any]:
        return self.shop.source()

    def add_late(self) -> None:
        self.shop.run("create table orders_b (id integer primary key)")

    def change(self, key: Any) -> None:
        self.shop.add(key)

    def remove(self, key: Any) -> None:
        self.shop.run(f"drop table {key}")


class TestRows:
    def test_are_plain_values(self, shop: Shop) -> None:
        row = rows(shop.item())[0].value
        assert (row["id"], row["city"], str(row["price"])) == (1, "Bern", "1.50")
        assert row["at"] == dt.datetime(2026, 11, 23, 4, 5, 6, 789_000)  # noqa: DTZ001 - as the table has it

    @pytest.mark.parametrize("page", [1, 2, 4, 5, 6])
    def test_are_the_same_whatever_the_page(self, shop: Shop, page: int) -> None:
        assert [row.value["id"] for row in rows(shop.item("orders_c", page_rows=page))] == [1, 2, 3, 4, 5]

    def test_that_are_added_are_read_from_the_place_of_the_last(self, shop: Shop) -> None:
        before = shop.item()
        last = rows(before)[-1]
        shop.add("orders_a")
        after = shop.item()
        assert after.context.version != before.context.version
        assert after.extends(before.context.version or "")
        assert [row.value["id"] for row in rows(after, skip=3, properties=last.properties)] == [4]

    def test_that_were_deleted_bring_none_again(self, shop: Shop) -> None:
        before = shop.item()
        last = rows(before)[-1]
        for statement in ("delete from orders_a where id = 3", "delete from orders_a"):
            shop.run(statement)
            after = shop.item()
            assert after.extends(before.context.version or "")
            assert rows(after, skip=3, properties=last.properties) == []

    def test_increase_as_the_database_has_it(self, shop: Shop) -> None:
        shop.run("create table codes (code text collate nocase primary key)")
        options: dict[str, Any] = {"tables": ["codes"], "order_by": ["code"], "key": ["code"]}
        shop.run("insert into codes values ('a')")
        before = shop.item("codes", **options)
        shop.run("insert into codes values ('C')")  # whose byte is before
        after = shop.item("codes", **options)
        assert after.extends(before.context.version or "")
        assert [row.key for row in rows(after)] == ["a", "C"]

    def test_may_increase_by_several_columns(self, shop: Shop) -> None:
        shop.run("delete from orders_c")
        for at in ("2026-01-02", "2026-01-01", "2026-01-02", "2026-01-01"):
            shop.add("orders_c", at=f"{at} 00:00:00.000000")
        item = shop.item("orders_c", order_by=["at", "id"], page_rows=1)
        found = rows(item)
        assert [row.value["id"] for row in found] == [2, 4, 1, 3]
        rest = rows(item, skip=2, properties=found[1].properties)
        assert [row.value["id"] for row in rest] == [1, 3]

    def test_may_have_a_key_and_a_condition(self, shop: Shop) -> None:
        found = rows(shop.item(key=["id"], where="id <> 2"))
        assert [row.key for row in found] == [1, 3]
        assert rows(shop.item(key=["id", "city"]))[0].key == {"id": 1, "city": "Bern"}

    def test_without_a_place_are_refused(self, shop: Shop) -> None:
        shop.run("insert into orders_a (city) values ('Basel')")
        with pytest.raises(ObjectError, match="NULL in column 'at' of order_by"):
            rows(shop.item(order_by=["at", "id"]))
        assert len(rows(shop.item(order_by=["at", "id"], where="at is not null"))) == 3

    def test_behind_the_place_of_another_order_are_refused(self, shop: Shop) -> None:
        last = rows(shop.item(order_by=["at", "id"]))[-1]
        with pytest.raises(ObjectError, match="order_by has 1 column"):
            rows(shop.item(), skip=3, properties=last.properties)

    def test_with_the_same_place_are_refused(self, shop: Shop) -> None:
        with pytest.raises(ObjectError, match="order_by"):
            rows(shop.item(order_by=["city"]))

    def test_whose_place_is_rounded_are_refused_rather_than_given_for_ever(self, shop: Shop) -> None:
        shop.run("create table rounded (price numeric(9, 1))")
        shop.run("insert into rounded values (1.23), (1.34), (1.45)")
        with pytest.raises(ObjectError, match="rounded"):
            rows(shop.item("rounded", tables=["rounded"], order_by=["price"], page_rows=1))


class TestViewsAndQueries:
    QUERY = "select o.id, o.at, x.city as other from orders_c o, other x where o.id > 1"

    def test_of_a_whole_name_are_read(self, shop: Shop) -> None:
        shop.run("create view orders_b as select * from orders_c where id > 3")
        assert [row.value["id"] for row in rows(shop.item("orders_b", tables=["orders_b"]))] == [4, 5]

    def test_are_not_meant_by_patterns(self, shop: Shop) -> None:
        shop.run("create view orders_b as select * from orders_c")
        found = [item.context.key for item in shop.source().items(None)]
        assert found == ["orders_a", "orders_c", "orders_d"]

    @pytest.mark.parametrize("order_by", [["id"], ["at", "id"]])
    def test_go_on_behind_each_row(self, shop: Shop, order_by: list[str]) -> None:
        item = shop.item("joined", queries={"joined": self.QUERY}, order_by=order_by, page_rows=2)
        found = rows(item)
        assert [row.value["other"] for row in found] == ["Bern"] * 4
        for number, row in enumerate(found, 1):
            rest = rows(item, skip=number, properties=row.properties)
            assert [each.value["id"] for each in rest] == [2, 3, 4, 5][number:]

    def test_need_no_tables(self, shop: Shop) -> None:
        source = SqlTables(url=f"sqlite:///{shop.path}", queries={"joined": self.QUERY}, order_by=["id"])
        assert [item.context.key for item in source.items(None)] == ["joined"]

    def test_have_names_of_their_own(self, shop: Shop) -> None:
        with pytest.raises(ConfigError, match="give the query another name"):
            shop.item(queries={"orders_a": self.QUERY})

    def test_have_the_columns_of_the_order(self, shop: Shop) -> None:
        with pytest.raises(ObjectError, match="expected a column 'price' in the query"):
            shop.item("joined", queries={"joined": self.QUERY}, order_by=["price"])


class TestErrors:
    def test_of_a_table_that_goes_while_it_is_listed_leave_it_out(self, shop: Shop) -> None:
        listing = open_source(shop.source(), SourceContext()).items(None)
        assert next(listing).context.key == "orders_a"
        shop.run("drop table orders_c")
        assert [item.context.key for item in listing] == ["orders_d"]

    def test_of_a_value_quote_nothing(self, shop: Shop) -> None:
        shop.add("orders_a", at="SECRET")
        with pytest.raises(ObjectError, match="a value does not fit") as raised:
            rows(shop.item())
        assert "SECRET" not in str(raised.value)

    def test_of_columns_that_are_not_there(self, shop: Shop) -> None:
        with pytest.raises(ObjectError, match="expected a column 'nr' in the table"):
            shop.item(order_by=["nr"])

    def test_of_a_condition_quote_nothing(self, shop: Shop) -> None:
        with pytest.raises(Exception, match=r"does not answer|refuses") as raised:
            shop.item(where="SECRET = 1")
        assert "SECRET" not in str(raised.value)

    def test_of_a_database_that_is_not_there_are_tried_again(self, tmp_path: Path) -> None:
        source = SqlTables(url=f"sqlite:///{tmp_path}/none/shop.db", tables=["*"], order_by=["id"])
        with pytest.raises(SourceUnavailableError, match="does not answer"):
            list(open_source(source, SourceContext()).items(None))

    def test_of_a_table_that_is_not_there_come_at_the_start(self, shop: Shop) -> None:
        with pytest.raises(
            ConfigError, match=r"tables: the table or view 'othe' does not exist; did you mean 'other'"
        ):
            open_source(shop.source(tables=["orders_a", "othe"]), SourceContext())

    def test_are_none_where_a_pattern_stands_for_no_table_yet(self, shop: Shop) -> None:
        opened = open_source(shop.source(tables=["later_*"]), SourceContext())
        assert list(opened.items(None)) == []

    @pytest.mark.parametrize(
        ("options", "path"),
        [({"order_by": []}, "order_by"), ({"page_rows": 0}, "page_rows")],
    )
    def test_of_options(self, shop: Shop, options: dict[str, Any], path: str) -> None:
        with pytest.raises(ConfigError, match=path):
            shop.source(**options)

    def test_of_a_missing_driver_name_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pymysql", None)
        with pytest.raises(ConfigError, match=r"^source\.url: the driver 'pymysql' is not installed$"):
            open_source(SqlTables(url="mysql+pymysql://h/x", tables=["*"], order_by=["id"]), SourceContext())

    @pytest.mark.parametrize("url", ["nonsense", "klingon://host/db"])
    def test_of_addresses(self, url: str) -> None:
        with pytest.raises(ConfigError, match="url"):
            open_source(SqlTables(url=url, tables=["*"], order_by=["id"]), SourceContext())


class TestConfiguration:
    def test_needs_no_extractor(self, shop: Shop) -> None:
        table = {"type": "sql", "url": f"sqlite:///{shop.path}", "tables": ["*"], "order_by": ["id"]}
        config = SourceConfig.from_table({"name": "shop", "source": table, "topic": "orders"})
        assert config.extractor.type == "rows"
        with pytest.raises(ConfigError, match="extractor"):
            SourceConfig.from_table({"name": "shop", "source": table, "extractor": "jsonl"})
