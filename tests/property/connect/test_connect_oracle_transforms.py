"""Transforms, predicates and chains, beside Kafka Connect's own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.connect import oracle_transforms
from tests.property.connect.conftest import Check, oracle_settings

pytestmark = pytest.mark.broker


class TestTransforms:
    @pytest.mark.parametrize("kind", [*oracle_transforms.CONFIGS, *oracle_transforms.WHOLE])
    @oracle_settings(120)
    @given(data=st.data())
    def test_gives_what_kafka_gives(self, agree: Check, data: st.DataObject, kind: str) -> None:
        agree(data.draw(oracle_transforms.questions(kind)))

    @pytest.mark.parametrize("kind", [*oracle_transforms.CONFIGS, *oracle_transforms.WHOLE])
    def test_has_the_keys_that_kafka_has(self, agree: Check, kind: str) -> None:
        suffix = "$Value" if kind in oracle_transforms.CONFIGS else ""
        agree([{"op": "configdef", "class": kind + suffix}])

    @pytest.mark.parametrize(
        "kind", ["Cast", "HeaderTo", "HeaderTo$Value", "Cast$Nope", "Nope", "predicates.Filter"]
    )
    def test_knows_the_classes_that_kafka_has(self, agree: Check, kind: str) -> None:
        agree([{"op": "smt", "class": kind, "config": {}, "record": {}}])


class TestPredicates:
    @oracle_settings(100)
    @given(oracle_transforms.tests())
    def test_says_what_kafka_says(self, agree: Check, questions: list[Any]) -> None:
        agree(questions)

    @pytest.mark.parametrize("kind", [*oracle_transforms.PREDICATES])
    def test_has_the_keys_that_kafka_has(self, agree: Check, kind: str) -> None:
        agree([{"op": "configdef", "class": f"predicates.{kind}"}])


class TestChains:
    @oracle_settings(250)
    @given(oracle_transforms.chains())
    def test_gives_what_kafka_gives(self, agree: Check, questions: list[Any]) -> None:
        agree(questions)
