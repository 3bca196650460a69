from __future__ import annotations

import logging
from typing import Any

import pytest

from headerware.core.errors import ConfigError, InterceptorError
from headerware.core.record import Record
from headerware.core.requirement import Unprotected, requirement

LOG = logging.getLogger("headerware.tests")


def unprotected(require: Any) -> Unprotected:
    return Unprotected(
        require,
        log=LOG,
        without="without it",
        step="it",
        refusal=lambda advice: InterceptorError(f"without it{advice}"),
    )


class TestRequirement:
    @pytest.mark.parametrize(
        ("given", "level"), [(True, "enforce"), ("false", "off"), (False, "off"), ("warn", "warn")]
    )
    def test_has_one_form(self, given: Any, level: str) -> None:
        assert requirement(given) == level

    def test_refuses_others(self) -> None:
        with pytest.raises(ConfigError, match=r"found 'enforced'; did you mean 'enforce'\?"):
            requirement("enforced")  # type: ignore[arg-type]  # on purpose
        with pytest.raises(ConfigError, match="require: expected off, warn or enforce, found 'maybe'"):
            requirement("maybe")  # type: ignore[arg-type]  # as an application might


class TestUnprotected:
    def test_enforce_raises(self) -> None:
        judge = unprotected("enforce")
        with pytest.raises(InterceptorError, match=r"likely its producer has no chain, or .* without 'it'"):
            judge.judge(Record("t"))
        assert judge.count == 0

    @pytest.mark.parametrize(("require", "lines"), [("off", 0), ("warn", 2)])
    def test_others_count(self, require: str, lines: int, caplog: pytest.LogCaptureFixture) -> None:
        judge = unprotected(require)
        with caplog.at_level(logging.WARNING, LOG.name):
            for topic in ("a", "b", "a"):
                judge.judge(Record(topic))
        assert (judge.count, len(caplog.records)) == (3, lines)

    def test_topics_that_were_logged_are_remembered_within_bounds(self) -> None:
        judge = unprotected("warn")
        for number in range(2_000):
            judge.judge(Record(f"t-{number}"))
        assert len(judge._warned) == 1_024
