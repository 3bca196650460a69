from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from headerware.core.chain import Chain
from headerware.spark_bridge.batches import observers
from headerware.spark_bridge.batches.observers import Observers

if TYPE_CHECKING:
    from collections.abc import Mapping


class TestNativeSteps:
    def logged(
        self, driver: tuple[object, str], tasks: Mapping[str, int], caplog: pytest.LogCaptureFixture
    ) -> list[str]:
        watching = Observers(Chain([]), "consumer", "job")
        with patch.object(observers, "native_module", return_value=driver):
            for _ in range(2):
                watching.done({"native": tasks})
        return caplog.messages

    def test_that_executors_do_not_have_are_told_once(self, caplog: pytest.LogCaptureFixture) -> None:
        (line,) = self.logged((object(), "0.1.0"), {"0.1.0": 3, "not installed": 2}, caplog)
        assert "the driver has native steps (0.1.0) and executors do not (not installed)" in line

    @pytest.mark.parametrize(
        ("driver", "tasks"),
        [
            ((object(), "0.1.0"), {"0.1.0": 3}),
            ((object(), "0.1.0"), {}),
            ((None, "not installed"), {"0.1.0": 3}),
            ((None, "off by HEADERWARE_NATIVE"), {"not installed": 3}),
        ],
    )
    def test_that_fit_are_not_told(
        self, driver: tuple[object, str], tasks: Mapping[str, int], caplog: pytest.LogCaptureFixture
    ) -> None:
        assert self.logged(driver, tasks, caplog) == []
