from __future__ import annotations

from math import nan
from typing import Any

import pytest

from headerware.clients.run_options import RunOptions
from headerware.core.errors import ConfigError


class TestRunOptions:
    def test_pauses_grow_up_to_the_longest_and_are_partly_random(self) -> None:
        options = RunOptions(attempts=4, backoff_s=1.0, max_backoff_s=3.0)
        error = ValueError()

        assert [options.pause_s(n, error, lambda: 1.0) for n in range(1, 5)] == [1.0, 2.0, 3.0, None]
        assert options.pause_s(2, error, lambda: 0.0) == 1.0

    def test_tries_again_only_for_the_named_errors(self) -> None:
        options = RunOptions(attempts=4, retry_on=(ConnectionError,))

        assert options.pause_s(1, ValueError()) is None
        assert options.pause_s(1, ConnectionResetError()) is not None

    def test_takes_a_single_exception_without_a_tuple(self) -> None:
        single: Any = ConnectionError
        options = RunOptions(attempts=4, retry_on=single)

        assert options.pause_s(1, ValueError()) is None
        assert options.pause_s(1, ConnectionResetError()) is not None

    @pytest.mark.parametrize(
        ("name", "value", "expected"),
        [
            ("workers", 0, "workers: expected a whole number of at least 1, found 0"),
            ("workers", "8", "workers: expected a whole number of at least 1, found '8'"),
            ("order", "keys", "order: expected one of key, partition, none; found 'keys'"),
            ("on_failure", "drop", "on_failure: expected one of raise, skip, dead_letter; found 'drop'"),
            (
                "retry_on",
                (ValueError, "OSError"),
                "retry_on: expected subclasses of Exception, found 'OSError'",
            ),
            (
                "retry_on",
                (KeyboardInterrupt,),
                "retry_on: expected subclasses of Exception, found <class 'KeyboardInterrupt'>",
            ),
            ("retry_on", "OSError", "retry_on: expected subclasses of Exception, found 'OSError'"),
            ("backoff_s", -1, "backoff_s: expected a number of seconds of at least 0, found -1"),
            ("backoff_s", nan, "backoff_s: expected a number of seconds of at least 0, found nan"),
            ("stop_timeout_s", "5", "stop_timeout_s: expected a number of seconds of at least 0, found '5'"),
        ],
    )
    def test_refuses_options_that_cannot_work(self, name: str, value: Any, expected: str) -> None:
        with pytest.raises(ConfigError) as raised:
            RunOptions(**{name: value})
        assert str(raised.value) == expected
