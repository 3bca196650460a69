from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headerware.core.errors import InvalidWrappedKeyError, WireFormatError
from headerware.keyring.subjects.rows import (
    OWN_OFFSET,
    ErasureRow,
    Row,
    SecretRow,
    SubjectKeyRow,
    WrappedName,
    decode_row,
    name_in,
    pseudonym_of,
    unwrap_data_key,
    wrap_data_key,
)
from headerware.keyring.subjects.store import SubjectFile, SubjectRows
from headerware.topic_table.rows import TableRecord

VECTORS = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "subject-keys.json").read_text(encoding="utf-8")
)
raw = bytes.fromhex


def each(part: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[part], ids=lambda case: str(case["name"]))


def plain(row: Row) -> dict[str, Any]:
    kinds = {SecretRow: "secret", SubjectKeyRow: "key", ErasureRow: "erasure"}
    fields = {name: v.hex() if isinstance(v, bytes) else v for name, v in row._asdict().items()}
    if fields.get("since") == OWN_OFFSET:
        fields["since"] = None
    return {"kind": kinds[type(row)], **fields}


def rows_of(case: dict[str, Any]) -> SubjectRows:
    rows = SubjectFile(None, "customer-keys").rows()
    for offset, key, value in case["records"]:
        rows.apply(TableRecord(offset, raw(key), None if value is None else raw(value)))
    rows.moved_to(100)
    return rows


def test_vectors_are_of_this_format() -> None:
    assert (VECTORS["format"], VECTORS["version"]) == ("subject-keys", 1)


@each("pseudonyms")
def test_pseudonyms(case: dict[str, Any]) -> None:
    assert pseudonym_of(raw(case["secret"]), case["subject"]).hex() == case["pseudonym"]


@each("rows")
def test_rows_are_read_and_written_so(case: dict[str, Any]) -> None:
    row = decode_row(raw(case["key"]), raw(case["value"]))
    assert plain(row) == case["means"]
    assert row.row == (raw(case["key"]), raw(case["value"]))


@each("damaged")
def test_damaged_rows_are_refused(case: dict[str, Any]) -> None:
    with pytest.raises(WireFormatError):
        decode_row(raw(case["key"]), raw(case["value"]))


def subject_key_in(case: dict[str, Any]) -> bytes:
    row = decode_row(raw(case["key"]), raw(case["value"]))
    assert isinstance(row, SubjectKeyRow)
    return row.open(raw(case["table_key"]), case["topic"])


@each("sealed")
def test_keys_of_subjects_open(case: dict[str, Any]) -> None:
    assert subject_key_in(case).hex() == case["subject_key"]


@each("refused_keys")
def test_moved_and_changed_keys_of_subjects_do_not_open(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidWrappedKeyError):
        subject_key_in(case)


@each("wrapped")
def test_data_keys_are_wrapped_so(case: dict[str, Any]) -> None:
    name = WrappedName(raw(case["pseudonym"]), raw(case["id"]))
    key, context, wrapped = raw(case["subject_key"]), case["context"].encode(), raw(case["wrapped"])
    assert wrap_data_key(key, raw(case["data_key"]), name, context, raw(case["nonce"])) == wrapped
    assert name_in(wrapped) == name
    assert unwrap_data_key(key, wrapped, context).hex() == case["data_key"]


@each("refused_wrapped")
def test_moved_and_changed_data_keys_do_not_open(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidWrappedKeyError):  # noqa: PT012 - either may refuse it
        name_in(raw(case["wrapped"]))
        unwrap_data_key(raw(case["subject_key"]), raw(case["wrapped"]), case["context"].encode())


@each("logs")
def test_logs_come_to_this(case: dict[str, Any]) -> None:
    subject = rows_of(case).subject(raw(case["pseudonym"]))
    assert (subject.generation, subject.is_erased) == (case["generation"], case["erased"])
    assert [key.hex() for key in subject.keys] == case["keys"]
    assert [key.hex() for key in subject.others] == case["others"]


@each("secrets")
def test_secrets_come_in_this_order(case: dict[str, Any]) -> None:
    assert [row.id.hex() for row in rows_of(case).secrets(case["purpose"])] == case["ids"]
