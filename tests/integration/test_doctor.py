"""What the doctor finds on a real cluster, with topics that are deliberately wrong."""

from __future__ import annotations

import io
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
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
from rich.console import Console
from rich.text import Text

from headerware.cli import main
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.ops.doctor import Finding, examine
from headerware.testing import KafkaBroker, MissingPartError
from headerware.testing.pytest_plugin import cannot_run
from headerware.workers.ownership import Lease
from tests.screens import assert_is_in_docs
from tests.subjects import World
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.broker
CONFIG = """
[[interceptors]]
type = "trail"
service = "orders"

[[interceptors]]
type = "slice"

[[interceptors]]
type = "sign"
keyring = "keys.json"
key_id = "orders-2026"
on_error = "dead_letter"
"""
DEADLINE_S = 60.0
TOPICS: dict[str, Mapping[str, str]] = {
    "good": {},
    "small": {"max.message.bytes": "100000"},
    "compacted": {"cleanup.policy": "compact"},
    "strict": {"min.insync.replicas": "2"},
    "future": {},
    "locked": {},
    "ageing": {},
    "ageing.dead-letter": {"retention.ms": "604800000"},
    "reports": {},
    "good.dead-letter": {"max.message.bytes": "1000"},
    "orders": {"max.message.bytes": "500000"},
    "orders.dead-letter": {"max.message.bytes": "500000"},
}


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """Return a broker that asks for rights, with the topics; one of them admits reading only."""
    broker = KafkaBroker(
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "auto.create.topics.enable": "false",
        }
    )
    try:
        try:
            broker.start()
        except MissingPartError as error:
            cannot_run(str(error))
        for topic, config in TOPICS.items():
            broker.create_topic(topic, config=config)
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("good", b"v")
        producer.produce("future", b"v", timestamp=int(time.time() * 1000) + 600_000)
        assert producer.flush(DEADLINE_S) == 0
        _set_rules(broker, _rule(ResourceType.TOPIC, "locked", AclOperation.READ))
        with_group = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing"}
        consumer = confluent_kafka.Consumer(with_group)
        consumer.commit(offsets=[confluent_kafka.TopicPartition("good", 0, 1)], asynchronous=False)
        consumer.close()
        yield broker
    finally:
        broker.close()


def _rule(kind: Any, name: str, operation: Any, permission: Any = AclPermissionType.ALLOW) -> AclBinding:
    return AclBinding(kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission)


def _set_rules(broker: KafkaBroker, *rules: AclBinding) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for asked in admin.create_acls(list(rules)).values():
        asked.result(DEADLINE_S)
    names: Any = (ResourceType.ANY, None, ResourcePatternType.ANY, None, None)
    every: Any = (*names, AclOperation.ANY, AclPermissionType.ANY)
    found = AclBindingFilter(*every)
    until(lambda: set(rules) <= set(admin.describe_acls(found).result(DEADLINE_S)), "the rules are in force")


@pytest.fixture(scope="module")
def silent_broker() -> Iterator[KafkaBroker]:
    """Return a broker that tells this user only which topics there are, and what is in them."""
    authorizer = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with KafkaBroker({**authorizer, "allow.everyone.if.no.acl.found": "true"}) as broker:
        broker.create_topic("orders")
        broker.create_topic("orders.dead-letter")
        # With one rule for a resource, only what rules allow is allowed there; a denial counts for more.
        _set_rules(
            broker,
            _rule(ResourceType.TOPIC, "orders", AclOperation.READ),
            _rule(ResourceType.TOPIC, "orders", AclOperation.WRITE),
            _rule(ResourceType.GROUP, "billing", AclOperation.DELETE, AclPermissionType.DENY),
            _rule(ResourceType.BROKER, "kafka-cluster", AclOperation.ALL),
            _rule(
                ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY
            ),
        )
        yield broker


class TestWhatTheClusterDoesNotTell:
    def test_of_a_group_is_said_with_the_group_where_a_lease_needs_it(
        self, silent_broker: KafkaBroker
    ) -> None:
        settings = {"bootstrap.servers": silent_broker.bootstrap_servers}
        with pytest.raises(confluent_kafka.KafkaException, match=r"group billing: .*authorization failed"):
            Lease(settings, "orders", "billing", what="test", timeout_s=DEADLINE_S)

    def test_is_said_and_the_rest_goes_on(self, silent_broker: KafkaBroker, slicing: Path) -> None:
        settings = {"bootstrap.servers": silent_broker.bootstrap_servers}
        found = examine(slicing, settings, ["orders"], group="billing")
        unknown = {one.check: one.advice for one in found if one.status == "unknown"}
        assert unknown == {
            "cluster: settings": "DESCRIBE_CONFIGS on the cluster lets the doctor see it",
            "topic orders: settings": "DESCRIBE_CONFIGS on orders lets the doctor see it",
            "group billing": "DESCRIBE on the group lets the doctor see it",
            "topic orders: clocks": "compare the machines by NTP, with `chronyc tracking` for instance",
        }
        rest = [(one.check, one.status, one.found) for one in found]
        assert ("topic orders", "ok", "this user may read and write") in rest
        assert ("dead letters of slice from orders", "ok", "orders.dead-letter") in rest

    def test_is_one_line_each(self, silent_broker: KafkaBroker) -> None:
        servers = silent_broker.bootstrap_servers
        arguments = ["doctor", "orders", "--group", "billing", "--bootstrap-servers", servers]
        result = CliRunner().invoke(main, arguments, env={"HEADERWARE_CONFIG": ""})
        assert result.exit_code == 0
        lines = result.output.splitlines()
        (at,) = (n for n, line in enumerate(lines) if line.startswith("unknown topic orders: settings: "))
        assert "the cluster does not answer this: " in lines[at]
        assert lines[at + 1] == "        -> DESCRIBE_CONFIGS on orders lets the doctor see it"


@pytest.fixture
def slicing(tmp_path: Path) -> Path:
    path = tmp_path / "headerware.toml"
    path.write_text(
        '[[interceptors]]\ntype = "trail"\n[[interceptors]]\ntype = "slice"\non_error = "dead_letter"\n',
        encoding="utf-8",
    )
    return path


def problems(broker: KafkaBroker, *topics: str, config: Path | None = None, **options: Any) -> list[Finding]:
    """Return what the doctor finds about topics beside what is in order."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, **options.pop("settings", {})}
    found = examine(config, settings, topics, **options)
    return [one for one in found if one.status != "ok" and one.check.startswith(("topic", "group", "dead"))]


def told(found: list[Finding], check: str) -> tuple[str, str]:
    (finding,) = (one for one in found if one.check == check)
    assert finding.advice is not None
    return finding.status, finding.found


class TestTopics:
    def test_in_order_leaves_only_its_single_replica(self, broker: KafkaBroker) -> None:
        found = problems(broker, "good")
        assert [one.check for one in found] == ["topic good: replicas"]
        assert told(found, "topic good: replicas") == ("warn", "1 replica, min.insync.replicas 1")

    def test_that_is_not_there_fails(self, broker: KafkaBroker) -> None:
        status, text = told(problems(broker, "absent"), "topic absent")
        assert (status, text) == ("fail", "does not exist, or this user may not see it")

    def test_smaller_than_the_client_is_a_warning(self, broker: KafkaBroker) -> None:
        status, text = told(problems(broker, "small"), "topic small: size")
        assert (status, text) == ("warn", "the topic takes 100000 bytes, and the client sends up to 1000000")
        found = problems(broker, "small", settings={"message.max.bytes": "50000"})
        assert "topic small: size" not in {one.check for one in found}

    def test_smaller_than_slices_fails(self, broker: KafkaBroker, slicing: Path) -> None:
        status, text = told(problems(broker, "small", config=slicing), "topic small: size")
        assert (status, text) == ("fail", "slices are up to 900000 bytes, and the topic takes 100000")

    def test_that_is_compacted_fails_with_slices_only(
        self, broker: KafkaBroker, slicing: Path, tmp_path: Path
    ) -> None:
        check = "topic compacted: compaction"
        assert told(problems(broker, "compacted", config=slicing), check)[0] == "fail"
        without = tmp_path / "without.toml"
        without.write_text('[[interceptors]]\ntype = "slice"\ntopics = ["*", "!compacted"]\n')
        for config in (None, without):
            assert check not in {one.check for one in problems(broker, "compacted", config=config)}

    def test_that_takes_no_record_fails(self, broker: KafkaBroker) -> None:
        status, text = told(problems(broker, "strict"), "topic strict: replicas")
        assert (status, text) == ("fail", "1 replica, min.insync.replicas 2")

    def test_with_records_in_the_future_is_a_warning(self, broker: KafkaBroker) -> None:
        status, text = told(problems(broker, "future"), "topic future: clocks")
        assert status == "warn"
        assert text.endswith("ms in the future: a producer's clock is fast, or this machine's clock is slow")

    def test_without_records_tells_nothing_of_clocks(self, broker: KafkaBroker) -> None:
        assert told(problems(broker, "small"), "topic small: clocks")[0] == "unknown"

    @pytest.mark.parametrize(("side", "status"), [(None, "warn"), ("producer", "fail"), ("consumer", None)])
    def test_that_this_user_may_not_write(self, broker: KafkaBroker, side: Any, status: str | None) -> None:
        found = [one for one in problems(broker, "locked", side=side) if one.check == "topic locked"]
        assert [(one.status, one.found) for one in found] == (
            [(status, "this user may not write")] if status else []
        )


class TestDeadLetters:
    def test_without_a_topic_fail_if_this_user_may_not_create_one(
        self, broker: KafkaBroker, slicing: Path
    ) -> None:
        # Everyone may create topics here, so it is a warning.
        status, text = told(problems(broker, "small", config=slicing), "dead letters of slice from small")
        assert (status, text) == ("warn", "topic small.dead-letter does not exist")

    def test_in_a_topic_that_is_smaller_are_a_warning(self, broker: KafkaBroker, slicing: Path) -> None:
        status, text = told(problems(broker, "good", config=slicing), "dead letters of slice from good")
        assert status == "warn"
        assert text.startswith("max.message.bytes is 1000, less than the ")

    def test_that_are_deleted_by_the_times_of_their_records_are_a_warning(
        self, broker: KafkaBroker, slicing: Path
    ) -> None:
        status, text = told(problems(broker, "ageing", config=slicing), "dead letters of slice from ageing")
        assert status == "warn"
        assert text.startswith("ageing.dead-letter keeps dead letters no longer than ageing keeps records")


class TestAudit:
    @pytest.mark.parametrize(
        ("topic", "status", "text"),
        [
            ("reports", "ok", "this user may write to reports"),
            ("locked", "fail", "this user may not write to locked"),
            ("nowhere", "fail", "topic nowhere does not exist, or this user may not see it"),
        ],
    )
    def test_must_be_able_to_publish_its_reports(
        self, broker: KafkaBroker, tmp_path: Path, topic: str, status: str, text: str
    ) -> None:
        path = tmp_path / "headerware.toml"
        path.write_text(f'[[interceptors]]\ntype = "audit"\naudit_topic = "{topic}"\n', encoding="utf-8")
        found = examine(path, {"bootstrap.servers": broker.bootstrap_servers})
        assert [(one.status, one.found) for one in found if one.check == "reports of audit"] == [
            (status, text)
        ]


class TestSubjectKeys:
    def test_that_brokers_may_keep_for_ever_after_an_erasure_are_a_warning(
        self, broker: KafkaBroker, tmp_path: Path
    ) -> None:
        path = tmp_path / "headerware.toml"
        made = World(tmp_path, broker.bootstrap_servers, "keys-made")
        made.keys(made.place(create=True)).erase("ann")
        made.close()
        for topic, status, text in (
            ("keys-made", "ok", "compacted within 86400000 ms"),
            ("compacted", "warn", "max.compaction.lag.ms of compacted is not set"),
            ("good", "fail", "cleanup.policy of good is delete"),
            ("absent", "fail", "does not exist"),
        ):
            path.write_text(
                '[[interceptors]]\ntype = "encrypt"\nkey_id = "customers"\nkey_of = "header:customer"\n'
                'key_service = { type = "file", keyring = "keys.json" }\n'
                f'subject_keys = {{ type = "topic", topic = "{topic}" }}\n',
                encoding="utf-8",
            )
            found = examine(path, {"bootstrap.servers": broker.bootstrap_servers})
            [one] = [one for one in found if one.check == "keys of subjects of encrypt"]
            assert one.status == status
            assert text in one.found


class TestGroups:
    def test_that_is_not_there_yet_says_so(self, broker: KafkaBroker) -> None:
        found = examine(None, {"bootstrap.servers": broker.bootstrap_servers}, group="nobody")
        ((status, text),) = ((one.status, one.found) for one in found if one.check == "group nobody")
        assert text.startswith("not there yet; ")
        assert status in {"ok", "unknown"}


class TestStores:
    def test_in_a_topic_are_asked(self, broker: KafkaBroker, tmp_path: Path) -> None:
        broker.create_topic("schemas", config={"cleanup.policy": "compact"})
        path = tmp_path / "headerware.toml"
        for topic, status in (("schemas", "ok"), ("absent", "fail")):
            place = f'servers = "{broker.bootstrap_servers}", topic = "{topic}"'
            store = f'{{ type = "topic", {place}, timeout_s = 5 }}'
            path.write_text(f'[[interceptors]]\ntype = "schema"\nstore = {store}\n', encoding="utf-8")
            found = [one.status for one in examine(path) if one.check == "schema store topic"]
            assert found == [status]


class TestCommand:
    def run(self, broker: KafkaBroker, *arguments: str) -> Any:
        return CliRunner().invoke(
            main,
            ["doctor", *arguments, "--bootstrap-servers", broker.bootstrap_servers],
            env={"HEADERWARE_CONFIG": ""},
        )

    def test_exits_with_0_if_all_can_work(self, broker: KafkaBroker) -> None:
        result = self.run(broker, "good", "--group", "billing", "--json")
        answer = json.loads(result.output)
        assert (result.exit_code, answer["ok"]) == (0, True)
        assert {
            "check": "topic good",
            "status": "ok",
            "found": "this user may read and write",
            "advice": None,
        } in (answer["result"])
        assert [one["status"] for one in answer["result"] if one["check"] == "group billing"] == ["ok"]

    def test_exits_with_1_and_says_what_to_do(self, broker: KafkaBroker) -> None:
        result = self.run(broker, "strict")
        assert result.exit_code == 1
        assert (
            "fail    topic strict: replicas: 1 replica, min.insync.replicas 2\n        -> lower"
            in result.output
        )

    def test_takes_the_servers_from_a_file_of_properties(self, broker: KafkaBroker, tmp_path: Path) -> None:
        path = tmp_path / "client.properties"
        path.write_text(f"# ours\nbootstrap.servers = {broker.bootstrap_servers}\n", encoding="utf-8")
        result = CliRunner().invoke(main, ["doctor", "good", "-F", str(path)], env={"HEADERWARE_CONFIG": ""})
        assert "ok      topic good: this user may read and write" in result.output

    def test_needs_servers_for_topics(self) -> None:
        result = CliRunner().invoke(main, ["doctor", "orders"])
        assert result.exit_code == 2

    def test_changes_nothing(self, broker: KafkaBroker, slicing: Path) -> None:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        before = set(admin.list_topics(timeout=DEADLINE_S).topics)
        self.run(broker, "good", "absent", "--group", "nobody", "--config", str(slicing))
        assert set(admin.list_topics(timeout=DEADLINE_S).topics) == before
        groups = admin.list_consumer_groups().result(DEADLINE_S).valid
        assert "nobody" not in {group.group_id for group in groups}


class TestScreen:
    """The picture in the documentation; `make screens` draws it again."""

    def test_is_what_a_terminal_shows(
        self, broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setattr(
            "headerware.ops.doctor.examination.native_module", lambda: (None, "not installed")
        )
        Path("headerware.toml").write_text(CONFIG, encoding="utf-8")
        soon = datetime.now(UTC) + timedelta(days=5, hours=1)
        edit_keyring(
            "keys.json",
            lambda ring: with_new_key(ring, "orders-2026", "ed25519", not_after=soon),
            create=True,
        )
        arguments = ["doctor", "orders", "--config", "headerware.toml", "--group", "billing"]
        servers = broker.bootstrap_servers
        result = CliRunner().invoke(main, [*arguments, "--bootstrap-servers", servers])
        console = Console(record=True, width=120, file=io.StringIO())
        shown = " ".join(["headerware", *arguments, "--bootstrap-servers localhost:9092"])
        console.print(f"$ {shown}", highlight=False, soft_wrap=True)
        console.print(Text.from_ansi(result.stdout.replace(servers, "localhost:9092")))
        picture = console.export_svg(title="headerware doctor", unique_id="doctor")
        # Versions, the cluster's id, dates.
        assert_is_in_docs(
            "doctor.svg", picture, ignoring=r"\d+(\.\d+)+\S*|[\w-]{22},?|\d+-\d\d-\d\d|\d\d:\d\dZ"
        )
