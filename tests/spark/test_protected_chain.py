"""Spark writes and reads what is compressed with a dictionary, encrypted, certified and signed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headerware import Chain, Context, Headers, Record
from headerware.dictionaries import FolderDictionaries
from headerware.dictionaries.dictionary import encode_mark
from headerware.dictionaries.store import publish
from headerware.interceptors import Admission, Compress, Encrypt, Sign
from headerware.keyring import certify, encode_jwks, with_new_key
from headerware.keyring.services import FileKeys
from headerware.keyring.writing import edit_keyring
from headerware.spark_bridge import decode, encode
from tests.airports import airports, trained

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COLUMNS = "topic string, key binary, value binary, headers array<struct<key string, value binary>>"
POLICY = """
version = 1
audience = "all"

[[issuers]]
issuer = "i"
jwks = "issuer.jwks.json"
algorithms = ["Ed25519"]

[[rules]]
effect = "allow"
subjects = ["the shop"]
"""


def written_by() -> Any:
    """Return a step that writes the subject of a record into a header, as docs/admission.md has it."""

    class WrittenBy:  # local, so that it is pickled by value
        def on_consume(self, record: Record) -> Record:
            verified = record.verified
            subject = verified.subject.encode() if verified else b""
            return record.with_headers(record.headers.put("written-by", subject))

    return WrittenBy()


def protected(folder: Path) -> Chain:
    keyring = folder / "keys.json"
    edit_keyring(keyring, lambda keys: with_new_key(keys, "cards", "aes-256"), create=True)
    shop = edit_keyring(keyring, lambda keys: with_new_key(keys, "shop", "ed25519")).current_key(
        "shop", "sign", 0
    )
    issuer = edit_keyring(
        folder / "issuer.json",
        lambda keys: with_new_key(keys, "issuer", "ed25519", use=("certify",)),
        create=True,
    )
    certificate = certify(
        issuer.keys[0], shop, issuer="i", subject="the shop", audience=["all"], topics=["*"]
    )
    (folder / "shop.jwt").write_text(certificate)
    (folder / "issuer.jwks.json").write_bytes(encode_jwks(issuer, use="certify"))
    (folder / "policy.toml").write_text(POLICY)
    store = FolderDictionaries(path=str(folder / "dictionaries"))
    publish(store.open(), trained(), "airports")
    return Chain(
        [
            Compress(dictionaries=store),
            Encrypt(key_service=FileKeys(keyring=str(keyring)), key_id="cards", cluster="spark"),
            written_by(),
            Admission(certificate=str(folder / "shop.jwt"), policy=str(folder / "policy.toml")),
            Sign(keyring=str(keyring), key_id="shop", cluster="spark"),
        ]
    )


@pytest.mark.one_spark
def test_a_protected_chain_there_and_back(spark: SparkSession, tmp_path: Path) -> None:
    chain, values = protected(tmp_path), airports()[:30]
    plain = spark.createDataFrame([("airports", b"k", value, []) for value in values], COLUMNS)
    wire = encode(plain, chain).collect()
    for row in wire:
        assert [name for name, _ in row.headers] == ["hw.compress", "hw.encrypt", "hw.admit", "hw.sig"]
        assert row.headers[0].value == encode_mark(trained().id)
    assert sum(len(row.value) for row in wire) < sum(map(len, values)) / 1.5
    records = [
        Record(
            row.topic,
            bytes(row.value),
            bytes(row.key),
            Headers((name, bytes(value)) for name, value in row.headers),
            partition=0,
            offset=offset,
        )
        for offset, row in enumerate(wire)
    ]
    with chain.open(Context(side="consumer")) as session:
        assert [record.value for record in session.consume(records)] == values
    rows = [
        (each.topic, each.key, each.value, list(each.headers), each.partition, each.offset)
        for each in records
    ]
    read = decode(spark.createDataFrame(rows, f"{COLUMNS}, partition int, offset long"), chain).collect()
    assert sorted(bytes(row.value) for row in read) == sorted(values)
    assert {tuple((name, bytes(value)) for name, value in row.headers) for row in read} == {
        (("written-by", b"the shop"),)
    }


@pytest.mark.one_spark
def test_secret_headers_there_and_back(spark: SparkSession, tmp_path: Path) -> None:
    keyring = tmp_path / "keys.json"
    edit_keyring(keyring, lambda keys: with_new_key(keys, "cards", "aes-256"), create=True)
    keys = FileKeys(keyring=str(keyring))
    chain = Chain([Encrypt(key_service=keys, key_id="cards", cluster="spark", headers=("customer",))])
    own = [("tenant", b"blue"), ("customer", b"c-4711"), ("customer", None), ("region", b"north")]
    plain = spark.createDataFrame([("orders", b"k", b"%d" % at, own) for at in range(20)], COLUMNS)
    wire = encode(plain, chain).collect()
    assert {tuple(name for name, _ in row.headers) for row in wire} == {
        ("tenant", "region", "hw.secret", "hw.encrypt")
    }
    rows = [(row.topic, row.key, row.value, row.headers, 0, offset) for offset, row in enumerate(wire)]
    read = decode(spark.createDataFrame(rows, f"{COLUMNS}, partition int, offset long"), chain).collect()
    assert {bytes(row.value) for row in read} == {b"%d" % at for at in range(20)}
    assert all([(name, value and bytes(value)) for name, value in row.headers] == own for row in read)
