from __future__ import annotations

import functools
import importlib
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import InterceptorError
from headerware.core.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Signals:
    """Be interrupted in the hook, as by an alarm that comes just then."""

    def __init__(self, *, on_error: str = "raise", wraps: bool = False) -> None:
        self.on_error, self._wraps = on_error, wraps

    def on_send(self, record: Record) -> Record:
        try:
            signal.raise_signal(signal.SIGUSR1)
        except TimeoutError as error:
            if self._wraps:
                raise InterceptorError("could not be done") from error
            raise
        return record

    def on_acknowledgement(self, *_: Any) -> None:
        signal.raise_signal(signal.SIGUSR1)


class Finder:
    """Interrupt an import, whose own frames Python takes out of tracebacks."""

    def find_spec(self, name: str, *_: Any) -> None:
        """Find nothing."""
        if name == "interrupted_import":
            signal.raise_signal(signal.SIGUSR1)


class Imports:
    """Import something in the hook."""

    def on_send(self, record: Record) -> Record:
        importlib.import_module("interrupted_import")
        return record


def plain(_number: int, _frame: Any) -> None:
    raise TimeoutError("in time")


class Handler:
    def method(self, number: int, frame: Any) -> None:
        plain(number, frame)

    def __call__(self, *arguments: Any) -> None:
        raise TimeoutError("in time")


@pytest.fixture(params=["function", "method", "object", "partial"])
def _handler(request: pytest.FixtureRequest) -> Iterator[None]:
    handlers: dict[str, Callable[..., None]] = {
        "function": plain,
        "method": Handler().method,
        "object": Handler(),
        "partial": functools.partial(lambda _own, number, frame: plain(number, frame), "own"),
    }
    before = signal.signal(signal.SIGUSR1, handlers[request.param])
    yield
    signal.signal(signal.SIGUSR1, before)


def of_importing(_number: int, frame: Any) -> None:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back  # as if the signal had come a step later
    raise TimeoutError("in time")


class TestWhatComesWhileSomethingIsImported:
    def test_is_no_failure_of_the_interceptor(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
        before = signal.signal(signal.SIGUSR1, of_importing)
        try:
            with Chain([Imports()]).open(Context()) as session, pytest.raises(TimeoutError, match="in time"):
                session.send_outcome(Record("orders", b"1"))
        finally:
            signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("_handler")
class TestWhatASignalsHandlerRaises:
    @pytest.mark.parametrize("on_error", ["raise", "skip", "drop"])
    @pytest.mark.parametrize("wraps", [False, True])
    def test_is_no_failure_of_the_interceptor_that_it_interrupts(self, on_error: str, *, wraps: bool) -> None:
        with Chain([Signals(on_error=on_error, wraps=wraps)]).open(Context()) as session:
            with pytest.raises(TimeoutError, match="in time"):
                session.send_outcome(Record("orders", b"1"))
            with pytest.raises(TimeoutError, match="in time"):
                session.send_outcomes([Record("orders", b"1")])
            with pytest.raises(TimeoutError, match="in time"):
                session.acknowledge(Record("orders", b"1"), None, None)
            (counts,) = session.stats().values()
        assert not counts["failed"] + counts["skipped"] + counts["dropped"]

    def test_is_no_failure_of_a_hook_that_has_failed_by_itself_before(self) -> None:
        """The calls of the earlier failures are familiar by then, also those of a hook that calls back."""

        class Fails:
            signals = False

            def on_send(self, record: Record) -> Record:
                if self.signals:
                    signal.raise_signal(signal.SIGUSR1)
                Handler()("no frame")
                return record

        hook = Fails()
        with Chain([hook]).open(Context()) as session:
            for _ in range(3):
                assert isinstance(session.send_outcome(Record("orders", b"1")), InterceptorError)
            hook.signals = True
            with pytest.raises(TimeoutError, match="in time"):
                session.send_outcome(Record("orders", b"1"))


class TestWhatAHookRaises:
    def test_is_the_hooks_in_the_middle_of_a_handled_timeout(self) -> None:
        """As where the application goes on in the ``except`` of what its handler raised."""

        class Fails:
            def on_send(self, record: Record) -> Record:
                raise ValueError

        before = signal.signal(signal.SIGUSR1, plain)
        with Chain([Fails()]).open(Context()) as session:
            try:
                signal.raise_signal(signal.SIGUSR1)
                time.sleep(1)
            except TimeoutError:
                assert isinstance(session.send_outcome(Record("orders", b"1")), InterceptorError)
            finally:
                signal.signal(signal.SIGUSR1, before)

    def test_is_the_hooks_in_other_threads(self) -> None:
        def hook(frame: Any) -> None:
            raise TimeoutError(frame)

        class Fails:
            def on_send(self, record: Record) -> Record:
                hook(threading.current_thread())
                return record

        outcomes: list[Any] = []
        with Chain([Fails()]).open(Context()) as session:
            thread = threading.Thread(
                target=lambda: outcomes.append(session.send_outcome(Record("orders", b"1")))
            )
            thread.start()
            thread.join()
        assert isinstance(outcomes[0], InterceptorError)

    def test_is_the_hooks_if_it_gives_its_arguments_another_value(self) -> None:
        class Fails:
            def on_send(self, *records: Any) -> Record:
                records = len(records)  # type: ignore[assignment]
                raise KeyError(records)

        with Chain([Fails()]).open(Context()) as session:
            assert isinstance(session.send_outcome(Record("orders", b"1")), InterceptorError)

    def test_is_the_handlers_though_the_same_function_failed_as_a_hook_before(self) -> None:
        def fails(number: Any, frame: Any) -> None:
            raise TimeoutError(number)

        class Calls:
            signals = False

            def on_send(self, record: Record) -> Record:
                given: Any = (signal.raise_signal, (signal.SIGUSR1,)) if self.signals else (fails, (1, None))
                given[0](*given[1])
                return record

        hook, before = Calls(), signal.signal(signal.SIGUSR1, fails)
        try:
            with Chain([hook]).open(Context()) as session:
                assert isinstance(session.send_outcome(Record("orders", b"1")), InterceptorError)
                hook.signals = True
                with pytest.raises(TimeoutError):
                    session.send_outcome(Record("orders", b"1"))
        finally:
            signal.signal(signal.SIGUSR1, before)
