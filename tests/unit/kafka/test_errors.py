from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from confluent_kafka import KafkaError, KafkaException, cimpl

from headerware.kafka.errors import Kind, is_fatal, kind_of, with_text


class TestKind:
    def test_is_one_for_each_code(self) -> None:
        codes = Counter(getattr(KafkaError, name) for kind in Kind for name in kind.value)
        assert set(codes.values()) == {1}

    @pytest.mark.parametrize("kind", Kind)
    def test_has_the_codes_of_its_names(self, kind: Kind) -> None:
        for name in kind.value:
            assert kind_of(KafkaError(getattr(KafkaError, name))) is kind

    def test_is_that_of_the_error_that_an_exception_carries(self) -> None:
        assert kind_of(KafkaException(KafkaError(KafkaError._FENCED))) is Kind.FENCED

    @pytest.mark.parametrize(
        "error",
        [None, "text", KafkaException(), KafkaException("text"), ValueError("text"), OSError(3, "no")],
    )
    def test_is_other_where_there_is_no_error_of_kafka(self, error: object) -> None:
        assert kind_of(error) is Kind.OTHER

    def test_of_a_code_that_nobody_decides_by_is_other(self) -> None:
        assert kind_of(KafkaError(KafkaError._INVALID_ARG)) is Kind.OTHER


class TestIsFatal:
    def test_by_its_flag_and_without(self) -> None:
        assert is_fatal(KafkaError(KafkaError._FENCED, "fenced", fatal=True))
        assert is_fatal(KafkaError(KafkaError._FATAL))
        assert not is_fatal(KafkaError(KafkaError._FENCED))


class TestWithText:
    def test_keeps_the_code(self) -> None:
        raised = with_text(KafkaError(KafkaError._TIMED_OUT), "orders: no answer")
        assert isinstance(raised, cimpl.KafkaException)
        assert kind_of(raised) is Kind.TIMED_OUT
        assert raised.args[0].str() == "orders: no answer"


def test_knowing_the_kinds_loads_no_client() -> None:
    program = (
        "import sys, headerware.kafka.errors, headerware.kafka.reader, headerware.kafka.settings\n"
        "assert 'confluent_kafka' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
