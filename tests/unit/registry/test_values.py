from __future__ import annotations

from datetime import date, datetime
from ipaddress import IPv4Network
from typing import Any

import pytest

from headerware.core.errors import RegistryError
from headerware.core.header_ids import HeaderId
from headerware.registry import Allocate, Block, Change, Entry, Register, Retire
from headerware.registry.values import change_from_plain, from_plain, to_plain

ENTRY = Entry(
    id=HeaderId("0.1.0.7"),
    name="tenant",
    owner="a",
    encoding="utf-8",
    description="Whose it is.",
    since="2026-01-01",
)
BLOCK = Block(network=IPv4Network("0.1.0.0/16"), owner="a", description="Some.", since="2026-01-01")
PLAIN_ENTRY = {
    "id": "0.1.0.7",
    "name": "tenant",
    "owner": "a",
    "encoding": "utf-8",
    "description": "Whose it is.",
    "since": "2026-01-01",
}
PLAIN_BLOCK = {"network": "0.1.0.0/16", "owner": "a", "description": "Some.", "since": "2026-01-01"}


class TestEntry:
    def test_goes_there_and_back(self) -> None:
        assert to_plain(ENTRY) == PLAIN_ENTRY
        assert from_plain(PLAIN_ENTRY, Entry) == ENTRY

    def test_has_what_is_no_default(self) -> None:
        plain = {**PLAIN_ENTRY, "retired": "2026-02-01", "foreign": True}
        assert to_plain(from_plain(plain, Entry)) == plain

    def test_dates_may_be_dates(self) -> None:
        assert from_plain({**PLAIN_ENTRY, "since": date(2026, 1, 1)}, Entry) == ENTRY

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"id": 65543}, r"Expected an id such as 0\.1\.0\.7, found int"),
            ({"id": "0.1.0.07"}, "Expected an id .* found '0.1.0.07'"),
            ({"id": "0.1.0"}, "Expected an id"),
            ({"name": 7}, "name: expected text, found a whole number"),
            ({"name": None}, "expected text"),
            ({"encoding": "UTF-8"}, "encoding: expected one of 'bytes'"),
            ({"since": datetime(2026, 1, 1)}, "expected text"),  # noqa: DTZ001 - as TOML has them
            ({"foreign": 1}, "expected true or false"),
            ({"retierd": "2026-01-01"}, "unknown field 'retierd'"),
        ],
    )
    def test_refuses_wrong_types(self, wrong: dict[str, Any], message: str) -> None:
        with pytest.raises(RegistryError, match=message):
            from_plain({**PLAIN_ENTRY, **wrong}, Entry)

    def test_refusals_can_be_shown(self) -> None:
        for wrong in ({"encoding": "\x1b[2J"}, {"\x1b[2J": 1}, {"id": "\x1b[2J"}):
            with pytest.raises(RegistryError) as caught:
                from_plain({**PLAIN_ENTRY, **wrong}, Entry)
            assert str(caught.value).isprintable()

    @pytest.mark.parametrize("missing", sorted(PLAIN_ENTRY))
    def test_refuses_what_is_missing(self, missing: str) -> None:
        with pytest.raises(RegistryError, match=f"{missing}: is missing"):
            from_plain({key: value for key, value in PLAIN_ENTRY.items() if key != missing}, Entry)


class TestBlock:
    def test_goes_there_and_back(self) -> None:
        assert to_plain(BLOCK) == PLAIN_BLOCK
        assert from_plain(PLAIN_BLOCK, Block) == BLOCK

    @pytest.mark.parametrize(
        "network",
        ["0.1.0.0", "0.1.0.0/255.255.0.0", "0.1.0.1/16", "0.1.0.0/33", "0.1.0.0/016", 65536, "::/16", ""],
    )
    def test_refuses_what_is_no_network(self, network: object) -> None:
        with pytest.raises(RegistryError, match=r"Expected a block such as 0\.1\.0\.0/16"):
            from_plain({**PLAIN_BLOCK, "network": network}, Block)


class TestChange:
    @pytest.mark.parametrize(
        ("change", "plain"),
        [
            (Allocate(BLOCK, "registrar"), {"change": "allocate", "block": PLAIN_BLOCK, "by": "registrar"}),
            (Register(ENTRY, "a"), {"change": "register", "entry": PLAIN_ENTRY, "by": "a"}),
            (
                Retire(HeaderId("0.1.0.7"), "2026-02-01", "a"),
                {"change": "retire", "id": "0.1.0.7", "retired": "2026-02-01", "by": "a"},
            ),
        ],
        ids=["allocate", "register", "retire"],
    )
    def test_goes_there_and_back(self, change: Change, plain: dict[str, Any]) -> None:
        assert to_plain(change) == plain
        assert change_from_plain(plain) == change

    @pytest.mark.parametrize("wrong", [{"change": "delete"}, {"by": None}, {"more": 1}])
    def test_refuses_others(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(RegistryError):
            change_from_plain({**to_plain(Register(ENTRY, "a")), **wrong})
