"""spec/vectors/contract.json: records, compared with contracts, and marks, read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headerware import Chain, ConfigError, Context, Headers, Record, WireFormatError
from headerware.core.hooks import Interceptor, Place
from headerware.core.order import check_order
from headerware.interceptors import Contract, ContractError, decode_broken_rules
from headerware.interceptors.contract.document import document_of
from headerware.interceptors.contract.interceptor import MARK_HEADER, encode_broken_rules
from headerware.interceptors.contract.schemas import fragment

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "contract.json").read_text(encoding="utf-8")
)


def by_name(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["name"])


def bytes_of(plain: str | dict[str, str] | None) -> bytes | None:
    if isinstance(plain, dict):
        return bytes.fromhex(plain["hex"])
    return None if plain is None else plain.encode()


def record_of(case: dict[str, Any]) -> Record:
    headers = Headers([(name, bytes_of(value)) for name, value in case["headers"]])
    return Record("orders", bytes_of(case["value"]), bytes_of(case["key"]), headers, 0, offset=0)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("contracts")
    for name, tree in VECTORS["contracts"].items():
        (folder / f"{name}.json").write_text(json.dumps(tree), encoding="utf-8")
    return {name: str(folder / f"{name}.json") for name in VECTORS["contracts"]}


class TestContractVectors:
    @by_name("records")
    def test_finds_the_broken_rules(self, case: dict[str, Any], files: dict[str, str]) -> None:
        step = Contract(file=files[case["contract"]]).open(Context())
        found: tuple[str, ...] = ()
        try:
            step.on_consume(record_of(case))
        except ContractError as error:
            found = error.rules
        assert sorted(found) == sorted(case["breaks"])

    @by_name("records")
    def test_marks_on_both_ways(self, case: dict[str, Any], files: dict[str, str]) -> None:
        marking = Contract(file=files[case["contract"]], on_failure="mark")
        with Chain([marking]).open() as session:
            found = [*session.consume([record_of(case)]), *session.send([record_of(case)])]
        for record in found:
            mark = record.headers.last(MARK_HEADER)
            rules = () if mark is None else decode_broken_rules(mark)
            assert sorted(rules) == sorted(case["breaks"])

    @by_name("marks")
    def test_writes_and_reads_marks(self, case: dict[str, Any]) -> None:
        assert encode_broken_rules(case["rules"]).decode() == case["wire"]
        rules = [fragment(rule) for rule in dict.fromkeys(case["rules"])]
        found = [rule for rule in decode_broken_rules(case["wire"].encode()) if rule != "*"]
        assert found == rules[: len(found)]
        assert len(found) == len(rules) or case["wire"].endswith(" *")

    @by_name("refused")
    def test_refuses_other_forms(self, case: dict[str, Any]) -> None:
        with pytest.raises(WireFormatError, match=r"hw\.contract"):
            decode_broken_rules(bytes_of(case["wire"]))

    @pytest.mark.parametrize("case", VECTORS["topics"], ids=lambda case: case["topic"])
    def test_finds_the_channel(self, case: dict[str, Any]) -> None:
        channel = document_of(VECTORS["contracts"][case["contract"]], "f").channel_of(case["topic"])
        assert (None if channel is None else channel.name) == case["channel"]

    def test_has_its_place(self, files: dict[str, str]) -> None:
        class Other(Interceptor, frozen=True, kw_only=True):
            atomic = splits = verifies = writes_ids = True

        contract = Contract(file=files["order"])
        refused = []
        for place in Place:
            other = type("Other", (Other,), {"type": place.name.lower(), "place": place})()
            try:
                check_order([other, contract])
            except ConfigError:
                refused.append(place.name.lower())
        assert sorted(refused) == sorted(VECTORS["never"])
