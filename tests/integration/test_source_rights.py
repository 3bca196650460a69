"""The rights of a source (docs/sources.md), on a broker that grants these and nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # their stub
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from headerware.cli import main
from headerware.sources.extractor import extractor_type
from headerware.sources.source import source_type
from headerware.testing import KafkaBroker, MissingPartError
from headerware.testing.pytest_plugin import cannot_run
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.broker

DEADLINE_S: Final = 60.0
TOPIC, TRANSACTIONAL_ID, GROUP = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID, ResourceType.GROUP
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
Right = tuple[Any, str, Any, Any]


def rights(name: str) -> dict[str, list[Right]]:
    """Return the rights of docs/sources.md for a source with its own topic, by what they are for."""
    return {
        "topic": [(TOPIC, name, LITERAL, each) for each in (WRITE, DESCRIBE)],
        "dead letters": [(TOPIC, f"{name}.dead-letter", LITERAL, each) for each in (WRITE, DESCRIBE)],
        "offsets": [(TOPIC, "headerware-offsets", LITERAL, each) for each in (READ, WRITE, DESCRIBE)],
        "transactions": [
            (TRANSACTIONAL_ID, f"headerware-source-{name}-", PREFIXED, each) for each in (WRITE, DESCRIBE)
        ],
        "group": [(GROUP, "headerware-table", LITERAL, DESCRIBE)],
    }


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """Return a broker that grants this user no topic, group or transaction without a rule."""
    made = KafkaBroker(
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "auto.create.topics.enable": "false",
        }
    )
    try:
        try:
            made.start()
        except MissingPartError as error:
            cannot_run(str(error))
        made.create_topic("headerware-offsets", config={"cleanup.policy": "compact"})
        for name in ("all", "missing"):
            made.create_topic(name)
            made.create_topic(f"{name}.dead-letter")
        # With a rule for all of them, nobody else may.
        rule(
            made,
            *((kind, "*", LITERAL, AclOperation.ALL) for kind in (TOPIC, GROUP, TRANSACTIONAL_ID)),
            who="User:nobody",
        )
        yield made
    finally:
        made.close()


def rule(broker: KafkaBroker, *wanted: Right, who: str = "User:ANONYMOUS") -> list[AclBinding]:
    """Grant rights, and wait until they are in force."""
    made = [
        AclBinding(kind, name, pattern, who, "*", operation, AclPermissionType.ALLOW)
        for kind, name, pattern, operation in wanted
    ]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for asked in admin.create_acls(made).values():
        asked.result(DEADLINE_S)
    until(lambda: set(made) <= rules(admin), "the rules are in force")
    return made


def rules(admin: AdminClient) -> set[AclBinding]:
    names: Any = (ResourceType.ANY, None, ResourcePatternType.ANY, None, None)
    every: Any = (*names, AclOperation.ANY, AclPermissionType.ANY)
    return set(admin.describe_acls(AclBindingFilter(*every)).result(DEADLINE_S))


def drop(broker: KafkaBroker, granted: list[AclBinding]) -> None:
    """Take rights away again."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    filters = [
        AclBindingFilter(
            each.restype,
            each.name,
            each.resource_pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for each in granted
    ]
    for asked in admin.delete_acls(filters).values():
        asked.result(DEADLINE_S)
    until(lambda: not set(granted) & rules(admin), "the rules are gone")


@pytest.fixture
def config(broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(source_type._built_in, "spool", "tests.spool:Spool")
    monkeypatch.setitem(extractor_type._built_in, "lines", "tests.spool:Lines")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("1\n!\n2\n")
    path = tmp_path / "source.toml"
    path.write_text(
        'name = "NAME"\ntopic = "NAME"\nextractor = "lines"\non_record_error = "dead_letter"\nDELIVERY'
        f'retry_deadline_s = 1\n[source]\ntype = "spool"\nfolder = "{tmp_path / "in"}"\n'
        f'[kafka]\n"bootstrap.servers" = "{broker.bootstrap_servers}"\nlog_level = 0\n'
    )
    return path


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["source", *map(str, arguments)])


@pytest.mark.parametrize("delivery", ["", 'delivery = "at_least_once"\n'])
def test_of_the_table_are_enough(broker: KafkaBroker, config: Path, delivery: str) -> None:
    config.write_text(config.read_text().replace("NAME", "all").replace("DELIVERY", delivery))
    granted = rule(broker, *(right for each in rights("all").values() for right in each))
    try:
        checked = invoke("check", config, "--open", "--json")
        ran = invoke("run", config, "--once")
        reset = invoke("offsets", "reset", config, "--all")
        status = invoke("status", "--bootstrap-servers", broker.bootstrap_servers)
    finally:
        drop(broker, granted)
    assert checked.exit_code == 0, checked.output
    assert ran.exit_code == 0, ran.output
    assert "2 records of 1 object, 1 complete; 1 bad record" in ran.output
    assert reset.exit_code == 0, reset.output
    assert (status.exit_code, "all" in status.output) == (0, True), status.output


@pytest.mark.parametrize("missing", ["topic", "dead letters", "offsets", "transactions", "group"])
def test_one_that_is_missing_is_found_by_check(broker: KafkaBroker, config: Path, missing: str) -> None:
    text = config.read_text().replace("NAME", "missing").replace("DELIVERY", "")
    # Who may not see a topic cannot tell it from one that a run creates.
    config.write_text(f'{text}[offsets]\ntype = "topic"\ncreate = false\n')
    wanted = rights("missing")
    granted = rule(broker, *(right for what, each in wanted.items() if what != missing for right in each))
    try:
        checked = invoke("check", config, "--open", "--json")
        ran = invoke("run", config, "--once")
    finally:
        drop(broker, granted)
    assert checked.exit_code == 1, checked.output
    (found,) = json.loads(checked.output)["result"]
    failed = {each["check"] for each in found["findings"] if each["status"] in ("fail", "warn")} - {"cluster"}
    name = {
        "topic": "topic missing",
        "dead letters": "topic missing.dead-letter",
        "offsets": "topic headerware-offsets",
        "transactions": "transactional ids headerware-source-missing-*",
        "group": "offsets in headerware-offsets",
    }[missing]
    assert name in failed
    assert ran.exit_code == 1, ran.output
