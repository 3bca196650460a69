"""Spark writes and reads records for subjects, each of which has a key of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headerware import Chain
from headerware.interceptors import Encrypt
from headerware.keyring.services import FileKeys
from headerware.spark_bridge import decode, encode
from headerware.testing import EmbeddedCluster
from tests.subjects import World

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COLUMNS = "topic string, key binary, value binary, headers array<struct<key string, value binary>>"


@pytest.mark.one_spark
def test_an_erased_subject_is_refused_and_others_are_read(spark: SparkSession, tmp_path: Path) -> None:
    with EmbeddedCluster(topics={"customer-keys": 1}) as cluster:
        world = World(tmp_path, cluster.bootstrap_servers, "customer-keys")
        encrypt = Encrypt(
            key_service=FileKeys(keyring=str(world.keyring)),
            key_id="customers",
            key_of="header:customer",
            subject_keys=world.place(),
            cluster="spark",
            key_service_timeout_ms=60_000,
        )
        plain = [("orders", b"k", b"%d" % at, [("customer", b"customer-%d" % (at % 4))]) for at in range(40)]
        wire = encode(spark.createDataFrame(plain, COLUMNS), Chain([encrypt])).collect()
        world.keys().erase("customer-0")
        rows = [(row.topic, row.key, row.value, row.headers, 0, offset) for offset, row in enumerate(wire)]
        frame = spark.createDataFrame(rows, f"{COLUMNS}, partition int, offset long")
        read = decode(frame, Chain([encrypt]), failures="route").collect()
        good = {bytes(row.value) for row in read if row.failure is None}
        assert good == {b"%d" % at for at in range(40) if at % 4}
        errors = {row.failure.error.rpartition(".")[2] for row in read if row.failure is not None}
        assert errors == {"ShreddedError"}
        world.close()
