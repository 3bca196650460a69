from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from headerware.core.errors import RegistryError
from headerware.registry import Allocate, Block, built_in, with_built_in
from headerware.registry.stores import BuiltInStore, create_store, open_store
from headerware.registry.stores.toml import TomlStore

BLOCK = Block(network=IPv4Network("0.1.0.0/16"), owner="a", description="Some.", since="2027-01-01")
FILE = "r.toml"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class TestOpenStore:
    def test_opens_files_by_their_suffix(self) -> None:
        registry = with_built_in([BLOCK], registrar="platform")
        create_store(FILE, registry).close()
        with open_store(FILE) as store:
            assert type(store) is TomlStore
            assert store.load() == registry
            assert store.problems() == []

    @pytest.mark.parametrize("location", ["", "r", "r.json", "registry.toml.bak", "http://x/r", "builtin"])
    def test_refuses_other_locations(self, location: str) -> None:
        with pytest.raises(RegistryError, match=r"expected a registry's location, .* or built-in; found "):
            open_store(location)

    @pytest.mark.parametrize("location", ["r.db", "r.sqlite", "sqlite:r.registry", "/etc/sqlite:ids.toml"])
    def test_says_where_registries_are_kept_that_were_in_sqlite(self, location: str) -> None:
        said = r"no longer kept in SQLite files; expected PATH\.toml, kafka://HOST:PORT/TOPIC or built-in"
        with pytest.raises(RegistryError, match=said):
            open_store(location)
        with pytest.raises(RegistryError, match=said):
            create_store(location, with_built_in())

    def test_missing_files_are_told(self) -> None:
        with pytest.raises(RegistryError, match="there is no such file"):
            open_store(FILE).load()

    def test_what_comes_with_headerware_is_read_only(self) -> None:
        with open_store("built-in") as store:
            assert type(store) is BuiltInStore
            assert store.load() is built_in()
            assert store.problems() == []
            with pytest.raises(RegistryError, match="the built-in registry does not change"):
                store.apply(Allocate(BLOCK, "registrar"))


class TestCreateStore:
    def test_copies_a_registry_from_store_to_store(self) -> None:
        registry = with_built_in([BLOCK], registrar="platform")
        with create_store(FILE, registry) as first, create_store("copy.toml", first.load()) as second:
            assert second.load() == registry

    def test_makes_nothing_of_what_comes_with_headerware(self) -> None:
        with pytest.raises(RegistryError, match="built-in comes with Headerware; expected a file or a topic"):
            create_store("built-in", built_in())

    def test_overwrites_nothing(self) -> None:
        create_store(FILE, with_built_in([BLOCK])).close()
        with pytest.raises(RegistryError, match="the file exists"):
            create_store(FILE, with_built_in())
        with open_store(FILE) as store:
            assert store.load() == with_built_in([BLOCK])
