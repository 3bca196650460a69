"""Classes are found by the names that a connector's configuration uses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from headerware.connect.catalogue import Catalogue
from headerware.connect.converters.catalogue import converter_type
from headerware.connect.errors import ConnectPluginError, NoPartError, UnknownClassError
from headerware.connect.predicates.catalogue import predicate_type
from headerware.connect.predicates.record_is_tombstone import RecordIsTombstone
from headerware.connect.transforms.catalogue import GROUP, transform_type
from headerware.connect.transforms.drop_headers import DropHeaders
from headerware.connect.transforms.header_from import HeaderFrom
from headerware.core import plugins
from headerware.core.errors import PluginError

PACKAGE = "org.apache.kafka.connect.transforms"
PLUGINS = """
    from headerware.connect.transforms import PartTransform, Transform

    class Shout(PartTransform):
        pass

    class Drop(Transform):
        pass

    class Other:
        pass
"""
Install = Callable[..., str]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return a function that installs entry points ``Name = module:Class``, and gives the module's name."""
    installed: list[str] = []

    def installed_as(distribution: str = "shouting", source: str = PLUGINS, **entries: str) -> str:
        folder = tmp_path / distribution
        module = f"{distribution}_{tmp_path.name.replace('-', '_')}"
        information = folder / f"{distribution}-1.0.dist-info"
        information.mkdir(parents=True)
        (folder / f"{module}.py").write_text(dedent(source), encoding="utf-8")
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        lines = [f"{name} = {module}:{target}" for name, target in entries.items()]
        (information / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines]) + "\n")
        monkeypatch.syspath_prepend(folder)
        installed.append(module)
        plugins._entry_points.cache_clear()
        return module

    yield installed_as
    for module in installed:
        sys.modules.pop(module, None)
    plugins._entry_points.cache_clear()


class TestBuiltIn:
    @pytest.mark.parametrize("known", [transform_type, predicate_type])
    def test_every_name_loads_a_class(self, known: Catalogue[Any]) -> None:
        for name, home in known.built_in.items():
            simple = name.rpartition(".")[2]
            try:
                loaded = known(name)
            except NoPartError:
                loaded = known(f"{name}$Value")
                assert known(f"{simple}$Key") is not loaded
            module, _, symbol = home.partition(":")
            assert loaded.__module__ == module
            assert loaded.__qualname__.split(".")[0] == symbol

    @pytest.mark.parametrize("name", [f"{PACKAGE}.DropHeaders", "DropHeaders"])
    def test_go_by_their_java_class_and_by_its_simple_name(self, name: str) -> None:
        assert transform_type(name) is DropHeaders

    @pytest.mark.parametrize("name", [f"{PACKAGE}.HeaderFrom", "HeaderFrom"])
    def test_of_keys_and_values_have_two_classes(self, name: str) -> None:
        assert transform_type(f"{name}$Key") is HeaderFrom.Key
        assert transform_type(f"{name}$Value") is HeaderFrom.Value

    def test_of_keys_and_values_are_refused_without_saying_which(self) -> None:
        with pytest.raises(NoPartError, match=r"write HeaderFrom\$Key or HeaderFrom\$Value") as caught:
            transform_type("HeaderFrom", path="transforms.a.type")
        assert caught.value.path == "transforms.a.type"
        assert caught.value.java == "java.lang.InstantiationException"

    @pytest.mark.parametrize(
        ("name", "hint"),
        [
            ("HeaderFrom$Vlaue", "did you mean 'HeaderFrom$Value'? known: HeaderFrom$Key, HeaderFrom$Value"),
            ("DropHeaders$Value", "did you mean 'DropHeaders'?"),
            ("org.apache.kafka.connect.transforms.InsertInValue", "use InsertField$Value;"),
            ("MaskKey", "use MaskField$Key;"),
            ("HoistValueToStruct", "use HoistField$Value;"),
            ("ExtractKeyFromStruct", "use ExtractField$Key;"),
            ("SetValueSchemaMetadata", "use SetSchemaMetadata$Value;"),
            ("NumericCasts", "use Cast$Key or Cast$Value;"),
            ("Replace", "use ReplaceField$Key or ReplaceField$Value;"),
            ("MaskFeild$Value", "did you mean 'MaskField$Value'?"),
            ("com.example.MaskField$Value", "did you mean 'MaskField$Value'?"),
            ("maskfield", "there is no transform 'maskfield'; did you mean 'MaskField'?"),
            ("org.apache.kafka.connect.transforms.DropHeader", "did you mean 'DropHeaders'?"),
        ],
    )
    def test_an_unknown_name_gets_the_nearest_one(self, name: str, hint: str) -> None:
        with pytest.raises(UnknownClassError) as caught:
            transform_type(name, path="transforms.a.type")
        assert hint in str(caught.value)
        assert caught.value.path == "transforms.a.type"

    @pytest.mark.parametrize(
        ("name", "hint"),
        [
            ('"MaskField$Value"', "write it without quotes: MaskField$Value;"),
            ("MaskField.Value", "did you mean 'MaskField$Value'?"),
            (f"{PACKAGE}.MaskField.Key", "did you mean 'MaskField$Key'?"),
            ("maskfield$value", "did you mean 'MaskField$Value'?"),
            ("regexrouter", "did you mean 'RegexRouter'?"),
            ("MaskField$value", "did you mean 'MaskField$Value'?"),
            ("HasHeaderKey", "HasHeaderKey is a predicate: name it under 'predicates';"),
            (f"{PACKAGE}.predicates.TopicNameMatches", "TopicNameMatches is a predicate"),
            ("io.debezium.transforms.outbox.EventRouter", "use OutboxRouter;"),
            ("io.debezium.transforms.ExtractNewRecordState", "use ExtractField$Value with field=after"),
            ("io.confluent.connect.transforms.Filter$Value", "use FilterByField or FilterByExpression"),
            ("io.confluent.connect.transforms.Filter$Key", "use FilterByField or FilterByExpression"),
            ("io.confluent.connect.transforms.ReplaceField$Value", "ReplaceField$Value"),
        ],
    )
    def test_an_unknown_name_gets_what_it_was_meant_to_be(self, name: str, hint: str) -> None:
        with pytest.raises(UnknownClassError) as caught:
            transform_type(name)
        assert hint in str(caught.value).replace(repr(name), "")

    def test_a_transform_among_predicates_is_called_one(self) -> None:
        with pytest.raises(UnknownClassError, match="RegexRouter is a transform: name it under 'transforms'"):
            predicate_type("RegexRouter")

    def test_a_converter_of_others_is_a_serde_here(self) -> None:
        with pytest.raises(UnknownClassError, match="serde confluent-avro, in the serialize step"):
            converter_type("io.confluent.connect.avro.AvroConverter")

    def test_an_unknown_name_near_nothing_lists_what_there_is(self) -> None:
        with pytest.raises(UnknownClassError, match=r"HasHeaderKey.*RecordIsTombstone") as caught:
            predicate_type("qqq")
        assert "did you mean" not in str(caught.value)
        assert caught.value.java == "java.lang.ClassNotFoundException"

    def test_a_class_that_kafka_never_shipped_is_unknown_in_its_mode(self) -> None:
        assert transform_type("HeaderTo$Value").__qualname__ == "HeaderTo.Value"
        with pytest.raises(UnknownClassError, match="only the strict mode"):
            transform_type("HeaderTo$Value", mode="kafka_4_3")
        assert "HeaderTo" not in transform_type.names("kafka_4_3")

    def test_errors_are_both_of_plug_ins_and_of_connect(self) -> None:
        with pytest.raises(PluginError):
            transform_type("qqq")

    def test_are_not_imported_before_they_are_named(self) -> None:
        program = (
            "import sys; from headerware.connect.transforms.catalogue import transform_type\n"
            "assert 'headerware.connect.transforms.drop_headers' not in sys.modules\n"
            "transform_type('DropHeaders')\n"
            "assert 'headerware.connect.transforms.drop_headers' in sys.modules\n"
            "assert 'headerware.connect.transforms.cast' not in sys.modules\n"
        )
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


class TestClasses:
    def test_stand_for_themselves(self) -> None:
        assert transform_type(DropHeaders) is DropHeaders
        assert transform_type(HeaderFrom.Key, mode="kafka_4_3") is HeaderFrom.Key

    def test_of_keys_and_values_are_refused_without_saying_which(self) -> None:
        with pytest.raises(NoPartError):
            transform_type(HeaderFrom)

    @pytest.mark.parametrize("given", [str, RecordIsTombstone, 5, None, ["Filter"], object()])
    def test_of_another_kind_are_refused(self, given: Any) -> None:
        with pytest.raises(ConnectPluginError, match=r"expected a subclass of .*Transform") as caught:
            transform_type(given, path="transforms.a.type")
        assert caught.value.path == "transforms.a.type"


class TestPlugIns:
    def test_are_found_by_their_entry_points(self, install: Install) -> None:
        module = install(Drop="Drop")
        assert transform_type("Drop").__module__ == module

    def test_of_keys_and_values_are_found_by_their_base_name(self, install: Install) -> None:
        install(Shout="Shout")
        assert transform_type("Shout$Key").__qualname__ == "Shout.Key"
        assert transform_type("Shout$Value", mode="kafka_4_3").__qualname__ == "Shout.Value"
        with pytest.raises(NoPartError, match=r"Shout\$Key or Shout\$Value"):
            transform_type("Shout")

    def test_may_have_an_entry_point_for_each_part(self, install: Install) -> None:
        install(**{"Loud$Value": "Shout.Value"})
        assert transform_type("Loud$Value").__qualname__ == "Shout.Value"

    def test_are_suggested_for_a_name_that_is_nearly_theirs(self, install: Install) -> None:
        install(Shout="Shout")
        with pytest.raises(UnknownClassError, match=r"did you mean 'Shout\$Key'\?"):
            transform_type("Shuot$Key")

    def test_do_not_hide_our_own(self, install: Install) -> None:
        install(DropHeaders="Other")
        assert transform_type("DropHeaders") is DropHeaders

    def test_of_another_kind_are_refused(self, install: Install) -> None:
        install(Other="Other")
        with pytest.raises(ConnectPluginError, match=r"'Other' is Other; expected a subclass of .*Transform"):
            transform_type("Other")

    def test_that_cannot_be_imported_say_why(self, install: Install) -> None:
        install(source="raise RuntimeError('no such library')", Drop="Drop")
        with pytest.raises(ConnectPluginError, match=r"cannot be imported .*RuntimeError: no such library"):
            transform_type("Drop")

    def test_of_two_distributions_are_ambiguous(self, install: Install) -> None:
        install("first", Drop="Drop")
        install("second", Drop="Drop")
        with pytest.raises(ConnectPluginError, match="provided more than once, by first, second"):
            transform_type("Drop")
