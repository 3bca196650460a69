"""Tests that every key service must pass; a service's own tests inherit them.

    class TestMyService(KeyServiceConformance):
        key_id, other_key_id = "orders", "payments"

        def open_service(self):
            return open_key_service({"type": "mine", "url": URL}, Context())

pytest collects the methods of the subclass. A part that a service cannot show in a test (an outage, a
deletion) is skipped, with its reason, until the subclass implements it.
"""

from __future__ import annotations

import base64
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, Final

import pytest

from headerware.keyring.services import (
    DataKeys,
    KeyDeletedError,
    KeyService,
    KeyServiceError,
    KeyServiceUnavailableError,
    Wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_KEY: Final = bytes(range(32))
_CONTEXT: Final = b"cluster-1/orders"
_UNKNOWN: Final = "no-such-key"
_THREADS: Final = 8
_ROUNDS: Final = 5


class KeyServiceConformance:
    """Test a key service; a subclass opens it, and names two keys that it holds."""

    key_id: str = "orders"
    """A key-encryption key of the service."""
    other_key_id: str = "payments"
    """Another key-encryption key."""

    def open_service(self) -> KeyService:
        """Return the service, opened anew; each test closes it."""
        raise NotImplementedError

    def delete_key(self, key_id: str) -> None:
        """Delete or disable a key in the service; tests after it begin with both keys again."""
        pytest.skip(f"this service's tests cannot delete {key_id!r}")

    def outage(self) -> AbstractContextManager[None]:
        """Return a context in which the service is out of reach."""
        pytest.skip("this service's tests cannot take it down")

    @pytest.mark.parametrize("size", [16, 32, 64])
    def test_gives_back_the_key_that_it_wrapped(self, size: int) -> None:
        """A data key comes back as it was, also from another client of the service."""
        key = os.urandom(size)
        with closing(self.open_service()) as service:
            wrapped = service.wrap(self.key_id, key, _CONTEXT).wrapped
        with closing(self.open_service()) as another:
            _require(another.unwrap(self.key_id, wrapped, _CONTEXT) == key, "another key came back")

    def test_tells_nothing_of_the_key(self) -> None:
        """The wrapped key does not contain the plain key, and has other bytes each time."""
        with closing(self.open_service()) as service:
            first, second = (service.wrap(self.key_id, _KEY, _CONTEXT) for _ in range(2))
        for wrapped in (first, second):
            _require(isinstance(wrapped, Wrapped), f"expected a Wrapped, found a {type(wrapped).__name__}")
            _require_hidden(wrapped.wrapped, "the wrapped key")
        _require(first.wrapped != second.wrapped, "a key was wrapped into the same bytes twice")

    @pytest.mark.parametrize(
        "context",
        [b"cluster-1/orders2", b"cluster-1/order", b"cluster-2/orders", b"\xff\xfe\x00", b"x" * 1024],
    )
    def test_binds_the_context(self, context: bytes) -> None:
        """A wrapped key is refused for any other context, and every context may be bound."""
        with closing(self.open_service()) as service:
            wrapped = service.wrap(self.key_id, _KEY, _CONTEXT).wrapped
            self._require_refused(service, self.key_id, wrapped, context)
            moved = service.wrap(self.key_id, _KEY, context).wrapped
            _require(service.unwrap(self.key_id, moved, context) == _KEY, "another key came back")
            self._require_refused(service, self.key_id, moved, _CONTEXT)

    def test_passes_the_self_test(self) -> None:
        """A session opens with the service: its first data key is unwrapped for no other context."""
        with closing(DataKeys(self.open_service())) as keys:
            keys.require_bound(self.key_id)
            keys.to_send(self.key_id, _CONTEXT.decode(), 1)

    def test_refuses_what_another_key_wrapped(self) -> None:
        """A key-encryption key does not unwrap a data key that another one wrapped."""
        with closing(self.open_service()) as service:
            wrapped = service.wrap(self.key_id, _KEY, _CONTEXT).wrapped
            self._require_refused(service, self.other_key_id, wrapped, _CONTEXT)

    def test_refuses_changed_bytes(self) -> None:
        """Bytes that were changed, cut or made up are refused, and not taken for an outage."""
        with closing(self.open_service()) as service:
            wrapped = service.wrap(self.key_id, _KEY, _CONTEXT).wrapped
            for made_up in (b"", b"\0", b"\xff" * 64, os.urandom(len(wrapped)), wrapped[:-1], wrapped[:8]):
                self._require_refused(service, self.key_id, made_up, _CONTEXT)
            for at in range(0, len(wrapped), max(1, len(wrapped) // 12)):
                changed = wrapped[:at] + bytes((wrapped[at] ^ 1,)) + wrapped[at + 1 :]
                self._require_refused(service, self.key_id, changed, _CONTEXT)

    def test_tells_of_a_key_that_it_does_not_have(self) -> None:
        """An unknown key-encryption key raises a KeyServiceError, and not the error of an outage."""
        with closing(self.open_service()) as service:
            found = _error_of(lambda: service.wrap(_UNKNOWN, _KEY, _CONTEXT))
            _require_final(found)

    def test_serves_several_threads_at_once(self) -> None:
        """Threads wrap and unwrap with one service, and none gets another's key."""
        with closing(self.open_service()) as service:

            def round_trips(number: int) -> bool:
                keys = [bytes((number, count)) * 16 for count in range(_ROUNDS)]
                context = b"topic-%d" % number
                wrapped = [service.wrap(self.key_id, key, context).wrapped for key in keys]
                return [service.unwrap(self.key_id, one, context) for one in wrapped] == keys

            with ThreadPoolExecutor(_THREADS) as threads:
                _require(all(threads.map(round_trips, range(_THREADS))), "a thread got another key")

    def test_serves_a_forked_child(self) -> None:
        """A child that was forked from a process with an open service uses it, and so does the parent."""
        with closing(self.open_service()) as service:
            wrapped = service.wrap(self.key_id, _KEY, _CONTEXT).wrapped
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, for threads
                child = os.fork()
            if child == 0:
                status = 1
                try:
                    status = 0 if service.unwrap(self.key_id, wrapped, _CONTEXT) == _KEY else 2
                finally:
                    os._exit(status)
            _require(service.unwrap(self.key_id, wrapped, _CONTEXT) == _KEY, "another key came back")
            _require(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the child got no key")

    def test_closes_twice(self) -> None:
        """A second close does nothing."""
        service = self.open_service()
        service.close()
        service.close()

    def test_a_deleted_key_is_gone(self) -> None:
        """A data key that a deleted or disabled key wrapped is refused as deleted; other keys still work."""
        with closing(self.open_service()) as service:
            wrapped = service.wrap(self.key_id, _KEY, _CONTEXT).wrapped
            other = service.wrap(self.other_key_id, _KEY, _CONTEXT).wrapped
        self.delete_key(self.key_id)
        with closing(self.open_service()) as service:
            found = _error_of(lambda: service.unwrap(self.key_id, wrapped, _CONTEXT))
            _require(isinstance(found, KeyDeletedError), f"expected KeyDeletedError, found {_name(found)}")
            _require_final(_error_of(lambda: service.wrap(self.key_id, _KEY, _CONTEXT)))
            _require(service.unwrap(self.other_key_id, other, _CONTEXT) == _KEY, "another key came back")

    def test_an_outage_is_told_and_ends(self) -> None:
        """In an outage, both calls raise the error that asks for another attempt; afterwards they work."""
        with closing(self.open_service()) as service:
            wrapped = service.wrap(self.key_id, _KEY, _CONTEXT).wrapped
            with self.outage():
                for call in (
                    lambda: service.wrap(self.key_id, _KEY, _CONTEXT),
                    lambda: service.unwrap(self.key_id, wrapped, _CONTEXT),
                ):
                    found = _error_of(call)
                    _require(
                        isinstance(found, KeyServiceUnavailableError),
                        f"expected KeyServiceUnavailableError, found {_name(found)}",
                    )
            _require(service.unwrap(self.key_id, wrapped, _CONTEXT) == _KEY, "another key came back")

    def _require_refused(self, service: KeyService, key_id: str, wrapped: bytes, context: bytes) -> None:
        try:
            # Base64 can write the same bytes in several ways; then it is the same key.
            unwrapped = service.unwrap(key_id, wrapped, context)
        except KeyServiceError as error:
            _require_final(error)
        else:
            same = key_id == self.key_id and context == _CONTEXT and unwrapped == _KEY
            _require(same, "expected a refusal, but the key was unwrapped")


def _error_of(call: Callable[[], object]) -> KeyServiceError | None:
    try:
        call()
    except KeyServiceError as error:
        return error
    return None


def _require_final(error: KeyServiceError | None) -> None:
    """Require an error that does not call for another attempt, and that quotes no key."""
    _require(error is not None, "it was not refused")
    _require(
        not isinstance(error, KeyServiceUnavailableError),
        f"expected a refusal, found {_name(error)}, which asks for another attempt",
    )
    _require_hidden(str(error).encode(), "the error")


def _require_hidden(shown: bytes, where: str) -> None:
    for form in (_KEY, _KEY.hex().encode(), base64.b64encode(_KEY), repr(_KEY).encode()):
        _require(form not in shown, f"{where} shows the data key")


def _require(held: bool, otherwise: str) -> None:  # noqa: FBT001 - a statement, as in assert
    if not held:
        pytest.fail(otherwise)


def _name(error: BaseException | None) -> str:
    return "no error" if error is None else f"{type(error).__name__}: {error}"
