"""The rows of the conformance table that need a real broker: what share consumers do with records."""

from __future__ import annotations

import confluent_kafka
import pytest

from headerware.testing import KafkaBroker
from tests.unit.clients import test_conformance as table

pytestmark = pytest.mark.broker
CELLS = [cell for cell in table.CELLS if cell[:2] in table.ON_A_BROKER]


@pytest.fixture(scope="module")
def answers(kafka_broker: KafkaBroker) -> table.Answers:
    if not hasattr(confluent_kafka, "ShareConsumer"):
        pytest.skip("this confluent-kafka has no share consumers")
    return table.run_all(kafka_broker.bootstrap_servers, CELLS)


@pytest.mark.parametrize("cell", CELLS, ids=" ".join)
def test_cell(answers: table.Answers, cell: table.Cell) -> None:
    table.check(answers, cell)
