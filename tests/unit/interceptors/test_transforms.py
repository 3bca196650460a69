"""A connector's transforms as an interceptor."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from headerware import DROP, Chain, ConfigError, Headers, Record, load_chain
from headerware.connect.data import (
    INT32_SCHEMA,
    STRING_SCHEMA,
    Int32,
    SchemaAndValue,
    SchemaBuilder,
    Struct,
)
from headerware.connect.properties import parse_connector
from headerware.core.context import Context
from headerware.core.errors import TransformError
from headerware.interceptors import Serialize, Transforms

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE = "org.apache.kafka.connect.transforms."
MASK = f"""
transforms=mask
transforms.mask.type={PACKAGE}MaskField$Value
transforms.mask.fields=ssn
"""
PERSON = SchemaBuilder.struct().name("Person").field("id", INT32_SCHEMA).field("ssn", STRING_SCHEMA).build()
ADA = Struct(PERSON).put("id", Int32(1)).put("ssn", "123-45")


def transforms(lines: str, **options: Any) -> Transforms:
    return Transforms(config=lines, **options)


def sent(step: Transforms, *records: Record) -> list[Any]:
    """What the step makes of records on send, before they are serialized."""
    hooks = step.open(Context())
    return [outcome(hooks.on_send, record) for record in records]


def outcome(hook: Any, record: Record) -> Any:
    try:
        return hook(record)
    except TransformError as error:
        return error


def one(alias: str, kind: str, **keys: str) -> str:
    lines = [f"transforms={alias}", f"transforms.{alias}.type={PACKAGE}{kind}"]
    return "\n".join(
        [*lines, *(f"transforms.{alias}.{key.replace('_', '.')}={value}" for key, value in keys.items())]
    )


class TestValues:
    def test_without_a_schema_are_dicts_before_and_after(self) -> None:
        (made,) = sent(transforms(MASK), Record("people", {"id": 1, "ssn": "123-45"}))
        assert made.value == {"id": 1, "ssn": ""}

    def test_with_a_schema_are_structs_before_and_after(self) -> None:
        (made,) = sent(transforms(MASK), Record("people", ADA))
        assert made.value == Struct(PERSON).put("id", Int32(1)).put("ssn", "")
        assert ADA["ssn"] == "123-45"

    def test_can_be_handed_on_as_plain_python(self) -> None:
        (made,) = sent(transforms(MASK, plain=True), Record("people", ADA))
        assert made.value == {"id": 1, "ssn": ""}
        assert type(made.value["id"]) is int

    def test_that_are_no_structs_go_on_beside_their_schema(self) -> None:
        (made,) = sent(transforms(one("id", "ExtractField$Value", field="id")), Record("people", ADA))
        assert made.value == SchemaAndValue(INT32_SCHEMA, Int32(1))

    def test_that_come_beside_a_schema_are_transformed_by_it(self) -> None:
        given = Record("people", SchemaAndValue(INT32_SCHEMA, Int32(7)))
        (made,) = sent(transforms(one("text", "Cast$Value", spec="string")), given)
        assert made.value == SchemaAndValue(STRING_SCHEMA, "7")

    def test_may_be_tombstones(self) -> None:
        (made,) = sent(transforms(one("id", "ExtractField$Value", field="id")), Record("people", None, b"k"))
        assert (made.value, made.key) == (None, b"k")


class TestRecords:
    def test_change_topic_key_and_headers(self) -> None:
        lines = f"""
        transforms=route,key,tag
        transforms.route.type={PACKAGE}RegexRouter
        transforms.route.regex=(.*)
        transforms.route.replacement=eu.$1
        transforms.key.type={PACKAGE}ValueToKey
        transforms.key.fields=id
        transforms.tag.type={PACKAGE}InsertHeader
        transforms.tag.header=team
        transforms.tag.value.literal=people
        """
        (made,) = sent(transforms(lines), Record("people", {"id": 1}))
        assert (made.topic, made.key, made.headers.last("team")) == ("eu.people", {"id": 1}, b"people")

    def test_that_a_filter_drops_are_dropped(self) -> None:
        lines = f"""
        transforms=drop
        transforms.drop.type={PACKAGE}Filter
        transforms.drop.predicate=tombstone
        predicates=tombstone
        predicates.tombstone.type={PACKAGE}predicates.RecordIsTombstone
        """
        outcomes = sent(transforms(lines), Record("t", None), Record("t", {"a": 1}))
        assert outcomes[0] is DROP
        assert outcomes[1].value == {"a": 1}

    def test_that_nothing_changes_are_the_same(self) -> None:
        record = Record("t", {"a": 1}, headers=Headers([("h", b"1,000")]))
        (made,) = sent(transforms(one("drop", "DropHeaders", headers="other")), record)
        assert made.headers == record.headers

    def test_keep_what_is_the_clients_own(self) -> None:
        record = Record("people", {"ssn": "x"}, timestamp_ms=7, partition=3, local={"a": 1})
        (made,) = sent(transforms(MASK), record)
        assert (made.timestamp_ms, made.partition, made.local) == (7, 3, {"a": 1})


class TestHeaders:
    RAW = (("a", b"1,000"), ("a", b"\xff\xfe"), ("b", None), ("c", b""), ("d", b"007"))

    def test_that_nobody_touches_stay_byte_for_byte(self) -> None:
        (made,) = sent(transforms(MASK), Record("t", {"ssn": "x"}, headers=Headers(self.RAW)))
        assert tuple(made.headers) == self.RAW

    def test_that_others_touch_do_not_change_their_neighbours(self) -> None:
        lines = one("tag", "InsertHeader", header="n", value_literal="42")
        (made,) = sent(transforms(lines), Record("t", {}, headers=Headers(self.RAW)))
        assert tuple(made.headers) == (*self.RAW, ("n", b"42"))

    def test_go_through_the_header_converter_of_the_lines(self) -> None:
        lines = one("to", "HeaderTo$Value", fields="n", headers="n", operation="copy")
        record = Record("t", {}, headers=Headers({"n": b"42"}))
        (simple,) = sent(transforms(lines), record)
        text = f"{lines}\nheader.converter=org.apache.kafka.connect.storage.StringConverter"
        (plain_text,) = sent(transforms(text), record)
        assert (simple.value, plain_text.value) == ({"n": 42}, {"n": "42"})


class TestDirections:
    RECORD = Record("people", {"ssn": "x"}, partition=2, offset=5)

    @pytest.mark.parametrize(
        ("on", "send", "consume"), [("send", "", "x"), ("consume", "x", ""), ("both", "", "")]
    )
    def test_are_where_the_option_says(self, on: str, send: str, consume: str) -> None:
        hooks: Any = transforms(MASK, on=on).open(Context())
        assert hooks.on_send(self.RECORD).value["ssn"] == send
        assert hooks.on_consume(self.RECORD).value["ssn"] == consume

    def test_of_consuming_know_the_offset(self) -> None:
        lines = one("where", "InsertField$Value", offset_field="at", partition_field="in")
        (made,) = (
            Chain([transforms(lines, on="consume")]).open().consume([Record("t", {}, partition=2, offset=5)])
        )
        assert made.value == {"at": 5, "in": 2}

    def test_of_sending_have_no_offset(self) -> None:
        lines = one("where", "InsertField$Value", offset_field="at")
        (outcome,) = sent(transforms(lines), Record("t", {}))
        assert isinstance(outcome, TransformError)


class TestRefusals:
    def test_name_alias_class_and_javas_exception(self) -> None:
        (outcome,) = sent(transforms(one("mask", "MaskField$Value", fields="ssn")), Record("t", "secret"))
        assert isinstance(outcome, TransformError)
        assert "mask" in str(outcome)
        assert "secret" not in str(outcome)
        assert outcome.transform == f"{PACKAGE}MaskField$Value"
        assert outcome.java == "org.apache.kafka.connect.errors.DataException"

    @pytest.mark.parametrize(("value", "is_told"), [(b"{}", True), ("{}", True), (5, False)])
    def test_of_a_value_that_is_serialized_say_what_to_do(self, value: Any, is_told: bool) -> None:  # noqa: FBT001 - a parameter of the test
        (outcome,) = sent(transforms(one("mask", "MaskField$Value", fields="ssn")), Record("t", value))
        assert ("so serialize after them, and deserialize before them" in str(outcome)) == is_told

    def test_take_no_other_record_along(self) -> None:
        session = Chain([transforms(MASK), Serialize(value="json")]).open()
        bad, good = session.send_outcomes([Record("t", 5), Record("t", {"ssn": "x"})])
        assert isinstance(bad, TransformError)
        assert isinstance(good, Record)
        assert good.value == b'{"ssn":""}'

    def test_bury_with_connects_headers(self) -> None:
        published: list[Record] = []
        chain = Chain([transforms(MASK, on="consume", on_error="dead_letter")])
        session = chain.open(Context(publish=published.append))
        original = Record("people", b"raw", partition=1, offset=9)
        session.consume([original])
        (dead_letter,) = published
        reason = {name.removeprefix("__connect.errors."): value for name, value in dead_letter.headers}
        assert dead_letter.value == b"raw"
        assert reason["stage"] == b"TRANSFORMATION"
        assert reason["class.name"] == f"{PACKAGE}MaskField$Value".encode()
        assert reason["exception.class.name"] == b"org.apache.kafka.connect.errors.DataException"
        assert (reason["topic"], reason["partition"], reason["offset"]) == (b"people", b"1", b"9")

    def test_cannot_be_skipped_for_what_is_to_be_masked_would_pass(self) -> None:
        with pytest.raises(ConfigError, match="skip"):
            transforms(MASK, on_error="skip")


class TestConfiguration:
    def test_is_a_mapping_or_text_or_a_connectors_json(self) -> None:
        lines = {
            "transforms": "mask",
            "transforms.mask.type": "MaskField$Value",
            "transforms.mask.fields": "ssn",
        }
        connector = json.dumps({"name": "people", "config": {"connector.class": "x", **lines}})
        for config in (lines, "\n".join(f"{key}={value}" for key, value in lines.items()), connector):
            (made,) = sent(Transforms(config=config), Record("t", {"ssn": "x"}))
            assert made.value == {"ssn": ""}

    def test_may_stand_in_a_file_beside_the_chains(self, tmp_path: Path) -> None:
        (tmp_path / "connector.properties").write_text(f"name=people\n{MASK}")
        toml = tmp_path / "chain.toml"
        toml.write_text('[[interceptors]]\ntype = "transforms"\nfile = "connector.properties"\n')
        (step,) = load_chain(toml)
        assert isinstance(step, Transforms)
        (made,) = sent(step, Record("t", {"ssn": "x"}))
        assert made.value == {"ssn": ""}

    def test_needs_the_file_when_it_is_opened(self, tmp_path: Path) -> None:
        chain = Chain([Transforms(file=str(tmp_path / "missing.properties"))])
        with pytest.raises(ConfigError, match=r"missing\.properties"):
            chain.open()

    def test_in_a_file_may_refer_to_the_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("INSTEAD", "$1")
        file = tmp_path / "connector.properties"
        file.write_text(
            MASK + "transforms.mask.replacement=<${env:INSTEAD}>\nconnection.password=${env:NOBODY}"
        )
        (made,) = sent(Transforms(file=str(file)), Record("t", {"ssn": "x"}))
        assert made.value == {"ssn": "<$1>"}

    @pytest.mark.parametrize(
        "value",
        [
            "x\ntransforms=",
            "x\r\ntransforms.mask.fields=id",
            'x", "transforms.mask.fields": "id',
            "x\\",
            "x\\u000atransforms=",
        ],
    )
    @pytest.mark.parametrize("form", ["properties", "json", "a client's configuration", "a file"])
    def test_has_no_lines_that_a_variable_of_the_environment_brings(
        self, form: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("INSTEAD", value)
        text = f"{MASK}transforms.mask.replacement=${{env:INSTEAD}}\n"
        if form == "json":
            text = json.dumps(parse_connector(text))
        toml = tmp_path / "chain.toml"
        if form == "a file":
            (tmp_path / "connector.properties").write_text(text)
            toml.write_text('[[interceptors]]\ntype = "transforms"\nfile = "connector.properties"\n')
        else:
            toml.write_text(f"[[interceptors]]\ntype = \"transforms\"\nconfig = '''{text}'''\n")
        flat = {"interceptors": "transforms", "interceptors.transforms.config": text}
        chain = Chain.from_config(flat) if form.startswith("a client") else load_chain(toml)
        [step] = chain
        assert isinstance(step, Transforms)
        (made,) = sent(step, Record("t", {"id": "1", "ssn": "x"}))
        assert made.value == {"id": "1", "ssn": value}

    def test_as_text_says_which_line_is_wrong(self, tmp_path: Path) -> None:
        toml = tmp_path / "chain.toml"
        text = f"{MASK}transforms.mask.fields=id\n"
        toml.write_text(f"[[interceptors]]\ntype = \"transforms\"\nconfig = '''{text}'''\n")
        with pytest.raises(ConfigError, match=r"interceptors\[0\].*\.transforms\.mask\.fields: .* twice"):
            load_chain(toml)

    @pytest.mark.parametrize(
        "reference", ["${file:/etc/secrets:pepper}", "${env:PEPPER}", "a${vault:x}", "${env:HOME}${file:x}"]
    )
    def test_is_refused_where_a_reference_would_be_taken_for_the_value(
        self, reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("PEPPER", raising=False)
        lines = f"{MASK}transforms.mask.replacement={reference}\n"
        with pytest.raises(ConfigError, match=r"transforms\.mask\.replacement"):
            transforms(lines)
        (tmp_path / "connector.properties").write_text(lines)
        with pytest.raises(ConfigError, match=r"transforms\.mask\.replacement"):
            Chain([Transforms(file=str(tmp_path / "connector.properties"))]).open()

    def test_in_a_file_is_refused_with_the_files_name(self, tmp_path: Path) -> None:
        file = tmp_path / "connector.properties"
        file.write_text(MASK.replace("mask.fields", "mask.feilds"))
        with pytest.raises(ConfigError, match=r"connector\.properties:4:1: transforms\.mask\.feilds"):
            Chain([Transforms(file=str(file))]).open()

    @pytest.mark.parametrize("config", [5, ["transforms=mask"], object()])
    def test_of_another_kind_is_refused(self, config: Any) -> None:
        with pytest.raises(ConfigError, match="mapping or as text"):
            Transforms(config=config)

    @pytest.mark.parametrize("mode", ["Strict", "kafka", ""])
    def test_of_a_mode_that_there_is_not_is_refused(self, mode: Any) -> None:
        with pytest.raises(ConfigError, match="strict"):
            transforms(MASK, mode=mode)

    @pytest.mark.parametrize("options", [{}, {"config": MASK, "file": "x"}])
    def test_is_one_of_the_two(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=r"config.*file"):
            Transforms(**options)

    def test_that_is_wrong_is_refused_before_anything_is_sent(self) -> None:
        with pytest.raises(ConfigError, match="feilds"):
            transforms(MASK.replace("mask.fields", "mask.feilds"))

    def test_may_ask_for_kafkas_own_ways(self) -> None:
        typo = MASK.replace("mask.fields", "mask.fields") + "transforms.mask.replacment=x\n"
        (made,) = sent(transforms(typo, mode="kafka_4_3"), Record("t", {}))
        assert made.value == {"ssn": None}


class TestWithSerialize:
    def test_stand_before_it(self) -> None:
        chain = Chain([transforms(MASK, plain=True), Serialize(value="json")])
        (made,) = chain.open().send([Record("t", ADA)])
        assert json.loads(made.value) == {"id": 1, "ssn": ""}

    def test_cannot_stand_behind_it(self) -> None:
        with pytest.raises(ConfigError, match="objects"):
            Chain([Serialize(value="json"), transforms(MASK)])

    def test_meet_connects_own_converters_on_both_ends(self) -> None:
        chain = Chain.from_config(
            {
                "transforms": "mask",
                "transforms.mask.type": "MaskField$Value",
                "transforms.mask.fields": "ssn",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            }
        )
        session = chain.open()
        (wire,) = session.send([Record("people", ADA, partition=0, offset=0)])
        envelope = json.loads(wire.value)
        assert envelope["payload"] == {"id": 1, "ssn": ""}
        assert envelope["schema"]["name"] == "Person"
        (back,) = session.consume([wire])
        assert back.value == Struct(PERSON).put("id", Int32(1)).put("ssn", "")
