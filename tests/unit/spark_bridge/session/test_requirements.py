from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from headerware.core.extras import install_command
from headerware.spark_bridge.session.requirements import REQUIREMENTS, Requirement, check, numbers, wanted
from headerware.testing import MissingPartError

PYPROJECT = Path(__file__).resolve().parents[4] / "pyproject.toml"


class TestRequirements:
    def test_are_those_of_the_spark_extra(self) -> None:
        extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
        assert {wanted(requirement).replace(".0,", ",") for requirement in REQUIREMENTS} == {
            text.replace(".0,", ",") for text in extras["spark"] if not text.startswith("protobuf")
        }  # without protobuf, which decode_stateful alone needs


class TestCheck:
    def test_accepts_what_is_fit(self) -> None:
        for requirement in REQUIREMENTS:
            check(requirement)

    def test_names_what_is_missing_and_how_to_install_it(self) -> None:
        with pytest.raises(MissingPartError, match="no_such_part is missing") as caught:
            check(Requirement("no_such_part", (1,)))
        assert str(caught.value).endswith(install_command("spark"))

    def test_refuses_what_is_too_old(self) -> None:
        with pytest.raises(MissingPartError, match=r"msgspec \S+ is too old: .* msgspec>=99.1: "):
            check(Requirement("msgspec", (99, 1)))

    def test_refuses_what_is_too_new(self) -> None:
        with pytest.raises(MissingPartError, match=r"msgspec \S+ is too new: .* msgspec>=0,<0.1: "):
            check(Requirement("msgspec", (0,), (0, 1)))

    def test_a_module_without_a_version_is_missing(self) -> None:
        with pytest.raises(MissingPartError, match="keyword is missing"):
            check(Requirement("keyword", (1,)))


class TestNumbers:
    @pytest.mark.parametrize(
        ("text", "expected"), [("4.1.0.dev2", (4, 1, 0)), ("3", (3,)), ("26.0.1", (26, 0, 1)), ("x", ())]
    )
    def test_reads_leading_numbers(self, text: str, expected: tuple[int, ...]) -> None:
        assert numbers(text) == expected
