from __future__ import annotations

from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any

import pytest

import headerware.registry.names as names_module
from headerware import Headers
from headerware.core.header_ids import HeaderId, header_name
from headerware.registry import (
    Block,
    Entry,
    Names,
    Registry,
    built_in,
    default_name_of,
    default_names,
    use_registry,
    with_built_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK = Block(network=IPv4Network("0.1.0.0/16"), owner="a", description="Some.", since="2026-01-01")
TENANT, GONE = HeaderId("0.1.0.1"), HeaderId("0.1.0.2")


def entry(header_id: HeaderId, name: str, **other: Any) -> Entry:
    fields = {"encoding": "bytes", "description": "One.", "since": "2026-01-01", **other}
    return Entry(id=header_id, name=name, owner="a", **fields)


@pytest.fixture
def registry() -> Registry:
    return with_built_in([BLOCK], [entry(TENANT, "tenant"), entry(GONE, "gone", retired="2026-02-01")])


@pytest.fixture
def _default_again() -> Iterator[None]:
    yield
    use_registry(None)


class TestNames:
    def test_reads_and_writes_what_is_in_use(self, registry: Registry) -> None:
        names = Names(registry)
        assert names.id_of("tenant") == TENANT
        assert names.name_of(TENANT) == "tenant"

    def test_reads_but_does_not_write_what_is_retired(self, registry: Registry) -> None:
        names = Names(registry)
        assert names.name_of(GONE) == "gone"
        assert names.id_of("gone") is None

    def test_knows_nothing_else(self, registry: Registry) -> None:
        names = Names(registry)
        assert names.id_of("Tenant") is None
        assert names.name_of(HeaderId("0.1.0.3")) is None

    def test_has_what_comes_with_headerware_in_any_case(self) -> None:
        names = Names(Registry())
        assert names.id_of("hw.trail") == 1
        assert names.name_of(1) == "hw.trail"

    def test_tells_names_of_others(self, registry: Registry) -> None:
        foreign = Names(registry).foreign
        assert {"traceparent", "content-type", "ce_id"} <= foreign
        assert not {"tenant", "hw.trail"} & foreign

    def test_a_name_that_somebody_had_first_is_his(self) -> None:
        names = Names(with_built_in([BLOCK], [entry(TENANT, "traceparent")]))
        assert names.id_of("traceparent") == TENANT
        assert names.name_of(TENANT) == names.name_of(257) == "traceparent"
        assert "traceparent" not in names.foreign


@pytest.mark.usefixtures("_default_again")
class TestDefault:
    def test_is_what_comes_with_headerware(self) -> None:
        assert default_names().id_of("hw.sig") == 5
        assert default_name_of(5) == "hw.sig"
        assert default_name_of(TENANT) is None

    def test_can_be_another(self, registry: Registry) -> None:
        assert use_registry(registry) is default_names()
        assert default_name_of(TENANT) == "tenant"
        assert default_name_of(5) == "hw.sig"
        use_registry(None)
        assert default_name_of(TENANT) is None

    def test_is_what_headers_go_by(self, registry: Registry) -> None:
        assert header_name(TENANT) == "0.1.0.1"
        use_registry(registry)
        assert header_name(TENANT) == header_name("0.1.0.1") == "tenant"
        assert Headers().add(TENANT, b"x").last("tenant") == b"x"

    def test_asking_never_undoes_what_another_thread_says(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first question takes a while, for the built-in registry is read from its file."""
        monkeypatch.setattr(names_module, "_default", None)

        def read_slowly() -> Registry:
            monkeypatch.setattr(names_module, "built_in", built_in)
            use_registry(registry)
            return built_in()

        monkeypatch.setattr(names_module, "built_in", read_slowly)
        names_module._built_in_names.cache_clear()
        default_names()
        assert default_name_of(TENANT) == "tenant"

    def test_stays_while_nothing_is_said(self) -> None:
        assert default_names() is default_names()
        assert len(built_in()) == len([n for n in range(512) if default_name_of(n) is not None])
