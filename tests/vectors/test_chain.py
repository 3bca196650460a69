"""spec/vectors/chain.json: chains as configuration, records on the wire, and what readers make of them."""

from __future__ import annotations

import json
import re
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.baggage import get_all
from opentelemetry.trace import get_current_span

from headerware import Chain, load_chain
from headerware.core.context import Context
from headerware.core.errors import ConfigError, DelayedError, HeaderwareError, HeldBackError, InterceptorError
from headerware.core.headers import Headers
from headerware.core.hooks import DROP
from headerware.core.record import Record
from headerware.core.step import PendingDeadLetter
from headerware.interceptors import extract_context

if TYPE_CHECKING:
    from headerware.core.runner import Outcome

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "chain.json").read_text(encoding="utf-8")
)


def by_name(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["name"])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain")
    for name, text in VECTORS["files"].items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o600)
    return folder


def toml_of(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml_of(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_of, value)) + "]"
    return json.dumps(value)


def chain_of(steps: list[dict[str, Any]], files: Path) -> Chain:
    if not steps:
        return Chain()
    tables = (
        "\n".join(["[[interceptors]]", *(f"{name} = {toml_of(value)}" for name, value in step.items())])
        for step in steps
    )
    path = files / "chain.toml"
    path.write_text("\n".join(tables).replace("{files}", str(files)), encoding="utf-8")
    return load_chain(path)


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def value_of(plain: str | dict[str, str] | None) -> bytes | None:
    if isinstance(plain, dict):
        return unhex(plain["hex"])
    return None if plain is None else plain.encode()


def plain_value(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def record_of(plain: dict[str, Any]) -> Record:
    return Record(
        plain["topic"],
        value_of(plain["value"]),
        value_of(plain["key"]),
        Headers([(name, value_of(value)) for name, value in plain["headers"]]),
        plain.get("partition"),
        plain.get("timestamp_ms"),
        offset=plain.get("offset"),
    )


def delivered(record: Record) -> dict[str, Any]:
    return {
        "key": plain_value(record.key),
        "value": plain_value(record.value),
        "headers": [[name, plain_value(value)] for name, value in record.headers],
    }


def outcome_of(found: Outcome, *, itself: str = "the reader") -> dict[str, Any] | str:
    if found is DROP:
        return "dropped"
    if isinstance(found, DelayedError):
        return "waits"
    if isinstance(found, HeldBackError):
        return "held back"
    if isinstance(found, InterceptorError):
        return {"refused by": found.step if found.step in VECTORS["types"] else itself}
    if isinstance(found, HeaderwareError):
        return {"refused by": itself}
    if isinstance(found, Record):
        return delivered(found)
    assert not isinstance(found, PendingDeadLetter)
    records = list(found)
    return delivered(records[0]) if records else "nothing yet"


def read(case: dict[str, Any], files: Path) -> list[dict[str, Any] | str]:
    """Return what becomes of each record of a case, in one session."""
    clock = [0]
    context = Context(
        side="consumer", now_ms=lambda: clock[0], cluster_id=lambda: case.get("cluster"), group_id="g"
    )
    outcomes = []
    with chain_of(VECTORS["chains"][case["chain"]], files).open(context) as session:
        for arriving in case["arrives"]:
            clock[0] = arriving["now_ms"]
            outcomes.append(outcome_of(session.consume_outcome(record_of(arriving))))
    return outcomes


@by_name("reads")
def test_a_reader(case: dict[str, Any], files: Path) -> None:
    assert read(case, files) == case["outcomes"]


@by_name("writes")
def test_a_writer(case: dict[str, Any], files: Path) -> None:
    context = Context(side="producer", now_ms=lambda: 1_767_225_600_000, cluster_id=lambda: "c1")
    with chain_of(VECTORS["chains"][case["chain"]], files).open(context) as session:
        written = session.send([record_of(case["sends"])])
    assert [list(record.headers.names()) for record in written] == case["names"]


@by_name("refused_writes")
def test_a_writer_refuses(case: dict[str, Any], files: Path) -> None:
    context = Context(side="producer", now_ms=lambda: 1_767_225_600_000, cluster_id=lambda: "c1")
    with chain_of(VECTORS["chains"][case["chain"]], files).open(context) as session:
        found = session.send_outcomes([record_of(case["sends"])])
    assert outcome_of(found[0], itself="the writer") == {"refused by": case["by"]}


@by_name("trace_contexts")
def test_a_trace_context(case: dict[str, Any]) -> None:
    found = extract_context([(name, value and value.encode()) for name, value in case["headers"]])
    context = get_current_span(found).get_span_context()
    assert (f"{context.trace_id:032x}" if context.is_valid else None) == case["trace_id"]
    assert dict(context.trace_state) == case["tracestate"]
    assert dict(get_all(found)) == case["baggage"]


def loads(steps: list[dict[str, Any]], files: Path) -> bool:
    try:
        chain_of(steps, files)
    except ConfigError as error:
        assert "comes after" in str(error) or "would both serialize" in str(error)  # noqa: PT017 - which it is
        return False
    return True


def test_the_order_of_steps(files: Path) -> None:
    types = VECTORS["types"]
    refused = {
        f"{left} before {right}"
        for left, right in permutations(types, 2)
        if not loads([{"type": left, **types[left]}, {"type": right, **types[right]}], files)
    }
    assert refused == {f"{left} before {right}" for left, rights in VECTORS["never"] for right in rights}


def test_the_page_has_the_same_order() -> None:
    page = (Path(__file__).parents[2] / "spec" / "chain.md").read_text(encoding="utf-8")
    table = page.partition("| step | never before |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`(\w+)`", line) for line in table.splitlines()[2:]]
    assert [[left, rights] for left, *rights in rows] == VECTORS["never"]


def test_every_kind_of_outcome_is_there() -> None:
    outcomes = [each for case in VECTORS["reads"] for each in case["outcomes"]]
    texts = {each for each in outcomes if isinstance(each, str)}
    refusing = {each["refused by"] for each in outcomes if isinstance(each, dict) and "refused by" in each}
    assert texts == {"dropped", "waits", "nothing yet"}
    assert refusing == {
        *("the reader", "schema", "dedup", "compress", "encrypt", "claim_check", "expire", "delay"),
        *("slice", "admission", "sign", "header_ids"),
    }
