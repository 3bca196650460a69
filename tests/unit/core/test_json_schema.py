"""Schemas of configuration files, against the files that Headerware reads."""

from __future__ import annotations

import enum
import tomllib
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_type_hints

import msgspec
import pytest
from jsonschema import Draft202012Validator

from headerware.cli.schema import SCHEMAS
from headerware.core import plugins
from headerware.core.errors import ConfigError
from headerware.core.files import read_sources
from headerware.core.hooks import Interceptor
from headerware.core.json_schema import chain_schema, options_schema, values_schema
from headerware.core.option_docs import option_docs
from headerware.core.options import _converted, is_a_list, lookup_of, setting, values_of
from headerware.core.plugins import interceptor_type
from headerware.interceptors import Trail

VALUES: tuple[Any, ...] = (
    *(True, 0, 1, -1, 70_000, 0.5, "", "text", "off", "enforce", "zstd", "5", "true"),
    *([], [1], ["a"], ["send"], {}, {"a": 1}, {"a": "b"}),
)
"""Values of an option: some of them are of its type."""
VARIABLES: tuple[Any, ...] = tuple(
    value
    for word in ("1", "true", "enforce", "raise", "send", "5000", "0.5")
    for text in [f"${{env:HEADERWARE_NOT_SET:-{word}}}"]
    for value in (text, [text], {"a": text})
)
OPTIONS = [
    (word, doc.name)
    for word in interceptor_type.built_in
    for doc in option_docs(interceptor_type(word))
    if word == "trail" or doc.name not in Interceptor.__struct_fields__  # all have these
    for hint in [get_type_hints(interceptor_type(word), include_extras=True)[doc.name]]
    if not (lookup_of(hint) or lookup_of(values_of(hint)))
]
"""The options of all interceptors that have no options of their own."""


def converts(kind: str, option: str, value: Any) -> bool:
    hint = get_type_hints(interceptor_type(kind), include_extras=True)[option]
    try:
        _converted(setting(value, "test", path="x"), hint, "x")
    except ConfigError:
        return False
    return True


@cache
def validator(kind: str) -> Any:
    return Draft202012Validator(SCHEMAS[kind]())


def problems(kind: str, document: dict[str, Any]) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator(kind).iter_errors(document)]


def accepts(kind: str, document: dict[str, Any]) -> bool:
    return bool(validator(kind).is_valid(document))


def chain(**table: Any) -> dict[str, Any]:
    return {"interceptors": [table]}


class TestChain:
    @pytest.mark.parametrize(("kind", "option"), OPTIONS)
    def test_accepts_the_values_that_can_be_converted(self, kind: str, option: str) -> None:
        hint = get_type_hints(interceptor_type(kind), include_extras=True)[option]
        # A schema does not look into a text that stands for a list.
        values = [value for value in VALUES if not (is_a_list(hint) and isinstance(value, str))]
        found = {repr(value): self.accepts(kind, option, value) for value in values}
        assert found == {repr(value): converts(kind, option, value) for value in values}

    @pytest.mark.parametrize(("kind", "option"), OPTIONS)
    def test_accepts_variables_of_the_environment(self, kind: str, option: str) -> None:
        refused = [value for value in VARIABLES if not self.accepts(kind, option, value)]
        assert not any(converts(kind, option, value) for value in refused)

    def accepts(self, kind: str, option: str, value: Any) -> bool:
        # An included file may have the required options.
        return accepts("chain", {"include": [], **chain(type=kind, **{option: value})})

    @pytest.mark.parametrize("kind", interceptor_type.built_in)
    def test_refuses_an_option_that_there_is_not(self, kind: str) -> None:
        assert "'nam' was unexpected" in problems("chain", {"include": [], **chain(type=kind, nam="x")})[0]

    def test_refuses_an_unknown_type_by_the_known_ones(self) -> None:
        [problem] = problems("chain", chain(type="trial"))
        assert problem.startswith("$.interceptors[0].type: 'trial' is not one of ['admission', 'audit',")

    def test_required_options_may_come_from_another_file(self, tmp_path: Path) -> None:
        files = {
            "platform.toml": """[[interceptors]]\ntype = "sign"\nrequire = "enforce"\n""",
            "chain.toml": """include = "platform.toml"\n[[interceptors]]\ntype = "sign"\nkeyring = "k"\n""",
        }
        for name, text in files.items():
            (tmp_path / name).write_text(text)
            assert problems("chain", tomllib.loads(text)) == []
        assert len(read_sources(tmp_path / "chain.toml")) == 2

    def test_required_options_may_come_from_a_client(self) -> None:
        assert problems("chain", chain(type="sign")) == []

    def test_asks_for_the_type_of_an_interceptor(self) -> None:
        assert problems("chain", chain(key_id="orders")) == [
            "$.interceptors[0]: 'type' is a required property"
        ]

    def test_names_the_wrong_option_of_a_serde(self) -> None:
        wrong = chain(type="serialize", value={"type": "avro", "store": {"type": "folder", "path": 1}})
        assert problems("chain", wrong) == ["$.interceptors[0].value.store.path: 1 is not of type 'string'"]

    def test_asks_for_required_options_of_a_store(self) -> None:
        wrong = chain(type="schema", store={"type": "topic", "servers": "localhost"})
        assert problems("chain", wrong) == ["$.interceptors[0].store: 'topic' is a required property"]

    def test_a_type_of_an_option_may_come_from_the_environment(self) -> None:
        assert accepts("chain", chain(type="serialize", value="${env:SERDE}"))
        assert accepts("chain", chain(type="serialize", value={"type": "${env:SERDE}", "schema": "a.avsc"}))

    def test_knows_stacks(self) -> None:
        stacks = {"lineage": {"interceptors": [{"type": "trail"}]}}
        assert accepts("chain", {"stacks": stacks, "interceptors": [{"stack": "lineage"}]})
        assert not accepts("chain", {"interceptors": [{"stack": "lineage", "name": "x"}]})
        assert not accepts("chain", {"stacks": {"lineage": {"interceptors": [{"type": "trial"}]}}})

    @pytest.mark.parametrize("carry", [False, [], "tenant, x-*", ["tenant", 167772161]])
    def test_accepts_headers_to_carry(self, carry: Any, tmp_path: Path) -> None:
        shown = str(carry).lower() if carry is False else repr(carry)
        (tmp_path / "chain.toml").write_text(f"carry = {shown}\n")
        read_sources(tmp_path / "chain.toml")
        assert accepts("chain", {"carry": carry})

    @pytest.mark.parametrize("document", [{"carry": True}, {"carry": 1}, {"interceptor": []}, {"include": 1}])
    def test_refuses_what_no_chain_has(self, document: dict[str, Any]) -> None:
        assert not accepts("chain", document)


class TestPlugins:
    def test_are_in_the_schema(self, monkeypatch: pytest.MonkeyPatch) -> None:
        entry = EntryPoint("mine", "headerware.interceptors.trail:Trail", "headerware.interceptors")
        monkeypatch.setattr(plugins, "_entry_points", lambda _: (entry,))
        schema = Draft202012Validator(chain_schema())
        assert schema.is_valid(chain(type="mine", service="orders"))
        assert not schema.is_valid(chain(type="mine", servce="orders"))

    def test_that_cannot_be_imported_may_have_any_option(self, monkeypatch: pytest.MonkeyPatch) -> None:
        entry = EntryPoint("mine", "no_such_module:Mine", "headerware.interceptors")
        monkeypatch.setattr(plugins, "_entry_points", lambda _: (entry,))
        schema = chain_schema()
        assert Draft202012Validator(schema).is_valid(chain(type="mine", service="orders"))
        assert "no_such_module" in schema["$defs"]["interceptor.mine"]["description"]


class First:
    class Rule(msgspec.Struct, forbid_unknown_fields=True):
        limit: int


class Second:
    class Rule(msgspec.Struct, forbid_unknown_fields=True):
        topic: Annotated[str, msgspec.Meta(min_length=9)]


class Colour(enum.Enum):
    RED = "red"


class BothRules(msgspec.Struct, forbid_unknown_fields=True):
    first: list[First.Rule] = []
    second: dict[str, Second.Rule] = {}
    colour: Colour = Colour.RED


class FirstRule(Trail, frozen=True, kw_only=True):
    rule: First.Rule | None = None


class SecondRule(Trail, frozen=True, kw_only=True):
    rule: Second.Rule | None = None


class TestDefinitions:
    def test_of_classes_of_one_name_stay_apart(self) -> None:
        schema = Draft202012Validator(values_schema(BothRules))
        assert schema.is_valid({"first": [{"limit": 1}], "second": {"a": {"topic": "t" * 9}}})
        assert not schema.is_valid({"first": [{"topic": "t" * 9}]})
        assert not schema.is_valid({"second": {"a": {"limit": 1}}})

    def test_of_plug_ins_stay_apart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        entries = tuple(
            EntryPoint(word, f"{__name__}:{found}", "headerware.interceptors")
            for word, found in (("first", "FirstRule"), ("second", "SecondRule"))
        )
        monkeypatch.setattr(plugins, "_entry_points", lambda _: entries)
        schema = Draft202012Validator(chain_schema())
        assert schema.is_valid(chain(type="first", service="a", rule={"limit": 1}))
        assert schema.is_valid(chain(type="second", service="a", rule={"topic": "t" * 9}))
        assert not schema.is_valid(chain(type="second", service="a", rule={"limit": 1}))

    def test_of_enumerations_are_there(self) -> None:
        schema = Draft202012Validator(values_schema(BothRules))
        assert schema.is_valid({"colour": "red"})
        assert not schema.is_valid({"colour": "blue"})

    def test_accept_a_variable_for_text_of_a_least_length(self) -> None:
        assert Draft202012Validator(options_schema(Second.Rule)).is_valid({"topic": "${env:T}"})
        assert not Draft202012Validator(values_schema(Second.Rule)).is_valid({"topic": "${env:T}"})


class TestSource:
    SOURCE: ClassVar[dict[str, Any]] = {
        "name": "orders",
        "source": {"type": "files", "folder": "in"},
        "extractor": "jsonl",
    }

    def test_accepts_a_source(self) -> None:
        assert accepts("source", {**self.SOURCE, "kafka": {"bootstrap.servers": "localhost:9092"}})

    @pytest.mark.parametrize("extractor", ["CSV", {"type": "Csv", "header": False}])
    def test_finds_extractors_in_any_case(self, extractor: Any) -> None:
        assert accepts("source", {**self.SOURCE, "extractor": extractor})

    @pytest.mark.parametrize(
        "change",
        [
            {"extractor": "cvs"},
            {"extractor": {"type": "CSV", "heder": True}},
            {"source": {"type": "files"}},
            {"transformers": ["none"]},
            {"tasks": "2"},
            {"delivery": "once"},
            {"nam": "x"},
        ],
    )
    def test_refuses_mistakes(self, change: dict[str, Any]) -> None:
        assert not accepts("source", {**self.SOURCE, **change})

    def test_accepts_variables(self) -> None:
        assert accepts("source", {**self.SOURCE, "tasks": "${env:TASKS:-2}"})


class TestValues:
    """Files of values, without variables."""

    POLICY: ClassVar[dict[str, Any]] = {
        "version": 1,
        "audience": "orders",
        "issuers": [{"issuer": "ca", "jwks": "ca.json", "algorithms": ["EdDSA"]}],
        "rules": [{"effect": "allow"}],
    }

    def test_accepts_a_policy(self) -> None:
        assert accepts("policy", {**self.POLICY, "audience": ["a", "b"], "last_line": "# end"})

    @pytest.mark.parametrize(
        "change",
        [{"rules": []}, {"version": 2}, {"rules": [{"effect": "permit"}]}, {"quotas": [{"over": 1}]}],
    )
    def test_refuses_a_wrong_policy(self, change: dict[str, Any]) -> None:
        assert not accepts("policy", {**self.POLICY, **change})

    @pytest.mark.parametrize("price", [1, 0.09, "0.09"])
    def test_accepts_prices(self, price: Any) -> None:
        assert accepts("prices", {"incoming": {"per_gib": price}, "budgets": {"payments": price}})

    @pytest.mark.parametrize("price", [True, [], {}])
    def test_refuses_other_prices(self, price: Any) -> None:
        assert not accepts("prices", {"incoming": {"per_gib": price}})

    def test_accepts_rules(self) -> None:
        assert accepts("rules", {"lifetimes": [{"topics": ["clicks-*"], "after_ms": 1_000}]})

    def test_refuses_variables(self) -> None:
        assert not accepts("rules", {"clock_skew_ms": "${env:SKEW}"})
