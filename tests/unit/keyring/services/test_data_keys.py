"""Data keys of a session, on the service of a keyring file with a gate before it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from threading import Barrier, Event, Lock
from typing import TYPE_CHECKING, Any

import pytest

from headerware import Context, HeldBackError
from headerware.keyring import with_deletion, with_new_key, with_rotation
from headerware.keyring.services import (
    DataKey,
    DataKeys,
    FileKeys,
    InvalidWrappedKeyError,
    KeyDeletedError,
    KeyDeniedError,
    KeyServiceError,
    KeyServiceUnavailableError,
    UnboundKeyError,
    Wrapped,
)
from headerware.keyring.services.data_keys import OTHER_SCOPE
from headerware.keyring.writing import edit_keyring
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headerware.keyring.services import KeyService

SCOPE = "cluster/orders"
SELF_TEST = OTHER_SCOPE.encode()
HOUR_MS = 3_600_000


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class Plain:
    """A key service on this machine that wraps nothing."""

    is_local = True

    def wrap(self, key_id: str, data_key: bytes, context: bytes) -> Wrapped:
        raise NotImplementedError

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        raise NotImplementedError

    def close(self) -> None:
        pass


class Gated:
    """A key service behind a gate: it counts calls but the self-test's, and can be shut, broken or slow."""

    def __init__(self, service: KeyService) -> None:
        self.service = service
        self.open = Event()
        self.open.set()
        self.error: Exception | None = None
        self.failing: str | None = None
        self.barrier: Barrier | None = None
        self.answer: Any = None
        self.wraps = self.unwraps = self.closed = 0
        self._lock = Lock()

    def wrap(self, key_id: str, data_key: bytes, context: bytes) -> Wrapped:
        with self._lock:
            self.wraps += not context.startswith(SELF_TEST)
        self._pass(key_id)
        return self.service.wrap(key_id, data_key, context) if self.answer is None else self.answer

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        with self._lock:
            self.unwraps += not context.startswith(SELF_TEST)
        self._pass(key_id)
        return self.service.unwrap(key_id, wrapped, context) if self.answer is None else self.answer

    def close(self) -> None:
        self.closed += 1

    def _pass(self, key_id: str) -> None:
        if self.barrier is not None:
            self.barrier.wait(60)
        assert self.open.wait(60)
        if self.error is not None:
            raise self.error
        if key_id == self.failing:
            raise KeyServiceUnavailableError("its store is disconnected")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    edit_keyring(path, lambda ring: with_new_key(ring, "orders", "aes-256"), create=True)
    return path


@pytest.fixture
def service(path: Path, clock: Clock) -> Gated:
    return Gated(FileKeys(keyring=str(path)).open(Context(now_ms=clock.now_ms)))


@pytest.fixture
def make(service: Gated, clock: Clock) -> Iterator[Callable[..., DataKeys]]:
    made: list[DataKeys] = []

    def make(**options: Any) -> DataKeys:
        made.append(DataKeys(service, now_ms=clock.now_ms, **{"monotonic": clock.monotonic, **options}))
        return made[-1]

    yield make
    service.open.set()
    for data_keys in made:
        data_keys.close()


def wrapped_in(service: Gated, scope: str = SCOPE) -> tuple[str, bytes, str]:
    """Return what a record of another producer carries."""
    return "orders", service.service.wrap("orders", os.urandom(32), scope.encode()).wrapped, scope


class TestToSend:
    def test_gives_one_key_for_a_scope(self, make: Callable[..., DataKeys], service: Gated) -> None:
        keys = make()
        first = keys.to_send("orders", SCOPE, 100)
        assert keys.to_send("orders", SCOPE, 100) is first
        assert (first.key_id, len(first.secret), first.version) == ("orders", 32, "1")
        assert service.service.unwrap("orders", first.wrapped, SCOPE.encode()) == first.secret
        assert service.wraps == 1

    def test_gives_each_scope_its_own(self, make: Callable[..., DataKeys]) -> None:
        keys = make()
        one, other = (keys.to_send("orders", scope, 1) for scope in (SCOPE, "cluster/payments"))
        assert one.secret != other.secret
        with pytest.raises(InvalidWrappedKeyError):
            make().to_read("orders", one.wrapped, "cluster/payments")

    @pytest.mark.parametrize(
        ("limits", "records", "size_bytes"),
        [({"max_uses": 10}, 10, 0), ({"max_bytes": 1000}, 10, 100)],
        ids=["uses", "bytes"],
    )
    def test_a_key_is_used_up(
        self, make: Callable[..., DataKeys], limits: dict[str, int], records: int, size_bytes: int
    ) -> None:
        keys = make(**limits)
        given = [keys.to_send("orders", SCOPE, size_bytes).secret for _ in range(3 * records)]
        assert all(given.count(secret) <= records for secret in given)
        assert len(set(given)) >= 3

    def test_a_key_grows_old(self, make: Callable[..., DataKeys], clock: Clock) -> None:
        keys = make()
        first = keys.to_send("orders", SCOPE, 1)
        clock.ms += HOUR_MS
        assert keys.to_send("orders", SCOPE, 1).secret != first.secret

    def test_a_clock_that_is_set_back_makes_no_key_younger(
        self, make: Callable[..., DataKeys], clock: Clock
    ) -> None:
        keys = make(monotonic=time.monotonic)
        first = keys.to_send("orders", SCOPE, 1)
        clock.ms -= 1
        assert keys.to_send("orders", SCOPE, 1).secret != first.secret

    def test_processes_that_start_together_do_not_renew_together(
        self, make: Callable[..., DataKeys], service: Gated, clock: Clock
    ) -> None:
        sessions = [make() for _ in range(40)]
        asked = []
        for minute in range(50):
            for keys in sessions:
                keys.to_send("orders", SCOPE, 1)
            until(lambda: all(not keys._pending for keys in sessions))
            asked.append(service.wraps)
            assert minute >= 36 or service.wraps == 40
            clock.ms += 60_000
        assert asked[-1] == 80
        assert max(later - earlier for earlier, later in pairwise(asked)) < 20

    def test_the_successor_is_made_ahead_of_time_and_nobody_waits_for_it(
        self, make: Callable[..., DataKeys], service: Gated, clock: Clock
    ) -> None:
        keys = make()
        first = keys.to_send("orders", SCOPE, 1)
        clock.ms += int(HOUR_MS * 0.9)
        service.open.clear()
        assert keys.to_send("orders", SCOPE, 1) is first
        assert keys.to_send("orders", SCOPE, 1) is first
        until(lambda: service.wraps == 2)
        service.open.set()
        until(lambda: keys.to_send("orders", SCOPE, 1) is not first)
        assert service.wraps == 2

    def test_the_last_key_goes_on_through_an_outage_until_it_expires_and_then_it_is_an_error(
        self, make: Callable[..., DataKeys], service: Gated, clock: Clock
    ) -> None:
        keys = make(timeout_ms=100)
        first = keys.to_send("orders", SCOPE, 1)
        service.error = KeyServiceUnavailableError("down")
        for _ in range(9):
            clock.ms += HOUR_MS // 10
            assert keys.to_send("orders", SCOPE, 1) is first
        clock.ms += HOUR_MS // 10
        with pytest.raises(KeyServiceUnavailableError):
            keys.to_send("orders", SCOPE, 1)
        service.error = None
        clock.ms += 1_000
        until(lambda: not isinstance(_sent(keys), Exception))

    def test_threads_share_the_first_call(self, make: Callable[..., DataKeys], service: Gated) -> None:
        keys = make()
        service.open.clear()
        with ThreadPoolExecutor(16) as threads:
            given = [threads.submit(keys.to_send, "orders", SCOPE, 1) for _ in range(16)]
            until(lambda: service.wraps == 1)
            service.open.set()
            assert len({future.result().secret for future in given}) == 1
        assert service.wraps == 1

    def test_waits_for_a_bounded_time_and_then_not_again(
        self, make: Callable[..., DataKeys], service: Gated, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headerware.keyring.services.data_keys._PROBE_WAIT_S", 0.0)
        keys = make(timeout_ms=1_000, monotonic=time.monotonic)
        service.open.clear()
        began = time.monotonic()
        with pytest.raises(KeyServiceUnavailableError, match=r"did not answer within 1 s"):
            keys.to_send("orders", SCOPE, 1)
        assert time.monotonic() - began >= 1.0
        for _ in range(100):
            with pytest.raises(KeyServiceUnavailableError):
                keys.to_send("orders", SCOPE, 1)
        assert time.monotonic() - began < 50  # a wait for each call would take 100 s
        assert service.wraps == 1

    def test_calls_that_hang_are_bounded(self, make: Callable[..., DataKeys], service: Gated) -> None:
        keys = make(timeout_ms=20, max_calls=3)
        service.open.clear()
        for number in range(10):
            with pytest.raises(KeyServiceUnavailableError):
                keys.to_send("orders", f"cluster/{number}", 1)
        assert service.wraps <= 3

    def test_a_rotated_key_wraps_the_next_one(
        self, make: Callable[..., DataKeys], path: Path, clock: Clock
    ) -> None:
        keys = make()
        old = keys.to_send("orders", SCOPE, 1)
        edit_keyring(path, lambda ring: with_rotation(ring, "orders"))
        clock.ms += HOUR_MS
        new = keys.to_send("orders", SCOPE, 1)
        assert (old.version, new.version) == ("1", "2")
        reader = make()
        assert reader.to_read("orders", old.wrapped, SCOPE).secret == old.secret
        assert reader.to_read("orders", new.wrapped, SCOPE).secret == new.secret

    @pytest.mark.parametrize("answer", [Wrapped(b""), Wrapped(bytes(8193))], ids=["nothing", "too much"])
    def test_refuses_what_cannot_be_a_wrapped_key(
        self, make: Callable[..., DataKeys], service: Gated, answer: Wrapped
    ) -> None:
        service.answer = answer
        with pytest.raises(KeyServiceError, match="wrapped a key into"):
            make().to_send("orders", SCOPE, 1)

    def test_what_a_service_raises_is_not_quoted(self, make: Callable[..., DataKeys], service: Gated) -> None:
        service.error = ValueError("the secret is 1234")
        with pytest.raises(KeyServiceUnavailableError, match="raised ValueError") as caught:
            make().to_send("orders", SCOPE, 1)
        assert "1234" not in str(caught.value)


class TestToRead:
    def test_remembers_what_was_unwrapped(self, make: Callable[..., DataKeys], service: Gated) -> None:
        keys, wanted = make(), wrapped_in(service)
        first = keys.to_read(*wanted)
        assert keys.to_read(*wanted) is first
        assert service.unwraps == 1
        assert {name: keys.stats()[name] for name in ("unwraps", "hits", "misses")} == {
            "unwraps": 1,
            "hits": 1,
            "misses": 1,
        }

    def test_remembers_for_a_bounded_time(
        self, make: Callable[..., DataKeys], service: Gated, clock: Clock
    ) -> None:
        keys, wanted = make(cache_age_ms=1_000), wrapped_in(service)
        keys.to_read(*wanted)
        service.error = KeyServiceUnavailableError("down")
        clock.ms += 999
        keys.to_read(*wanted)
        clock.ms += 1
        with pytest.raises(HeldBackError):
            keys.to_read(*wanted)
        clock.ms -= 5_000
        with pytest.raises(HeldBackError):
            keys.to_read(*wanted)

    def test_remembers_a_bounded_number(self, make: Callable[..., DataKeys], service: Gated) -> None:
        keys = make(cache_entries=10)
        for _ in range(30):
            keys.to_read(*wrapped_in(service))
        assert keys._known.total() <= 10

    def test_asks_again_ahead_of_time(
        self, make: Callable[..., DataKeys], service: Gated, clock: Clock
    ) -> None:
        keys, wanted = make(cache_age_ms=10_000), wrapped_in(service)
        keys.to_read(*wanted)
        clock.ms += 9_000
        keys.to_read(*wanted)
        until(lambda: keys.stats()["unwraps"] == 2)
        clock.ms += 9_000
        service.open.clear()
        keys.to_read(*wanted)

    def test_a_key_that_is_deleted_meanwhile_is_forgotten_when_it_is_asked_for_again(
        self, make: Callable[..., DataKeys], service: Gated, clock: Clock, path: Path
    ) -> None:
        keys, wanted = make(cache_age_ms=10_000), wrapped_in(service)
        keys.to_read(*wanted)
        keys.to_send("orders", SCOPE, 1)
        edit_keyring(path, lambda ring: with_deletion(ring, "orders"))
        clock.ms += 9_000
        keys.to_read(*wanted)
        until(lambda: keys.stats()["failures"] == 1)
        with pytest.raises(KeyDeletedError):
            keys.to_read(*wanted)

    def test_threads_share_a_call(self, make: Callable[..., DataKeys], service: Gated) -> None:
        keys, wanted = make(), wrapped_in(service)
        service.open.clear()
        with ThreadPoolExecutor(16) as threads:
            given = [threads.submit(keys.to_read, *wanted) for _ in range(16)]
            until(lambda: service.unwraps == 1)
            service.open.set()
            assert len({future.result().secret for future in given}) == 1
        assert service.unwraps == 1

    def test_8_000_keys_in_use_take_one_call_each(self) -> None:
        class Counting(Plain):
            calls = 0

            def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
                if context == SELF_TEST:
                    raise InvalidWrappedKeyError("wrapped for another context")
                self.calls += 1
                return wrapped[:32]

        service = Counting()
        with closing(DataKeys(service)) as keys:
            for _ in range(3):
                for number in range(8_000):
                    keys.to_read("orders", number.to_bytes(64), SCOPE)
        assert service.calls == 8_000

    def test_refused_keys_of_any_size_take_bounded_memory(self) -> None:
        class Refusing(Plain):
            def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
                raise InvalidWrappedKeyError("nobody wrapped it")

        with closing(DataKeys(Refusing(), max_failed_unwraps_per_s=100_000)) as keys:
            for number in range(4_000):
                with pytest.raises(InvalidWrappedKeyError):
                    keys.to_read("orders", number.to_bytes(8_000), SCOPE)
            remembered = sum(len(question[2] or b"") for question in keys._refused.entries())
            assert 8 << 20 > remembered > 1 << 20

    def test_a_refusal_is_remembered_for_a_while(
        self, make: Callable[..., DataKeys], service: Gated, clock: Clock
    ) -> None:
        keys, (_, wrapped, _) = make(negative_ms=30_000), wrapped_in(service)
        for _ in range(5):
            with pytest.raises(InvalidWrappedKeyError):
                keys.to_read("orders", wrapped, "cluster/payments")
        assert (service.unwraps, keys.stats()["refused_again"]) == (1, 4)
        clock.ms += 30_000
        with pytest.raises(InvalidWrappedKeyError):
            keys.to_read("orders", wrapped, "cluster/payments")
        assert service.unwraps == 2

    @pytest.mark.parametrize("error", [KeyDeniedError("no"), KeyServiceUnavailableError("down")])
    def test_what_may_be_mended_holds_the_record_back(
        self, make: Callable[..., DataKeys], service: Gated, clock: Clock, error: KeyServiceError
    ) -> None:
        keys, wanted = make(monotonic=clock.monotonic), wrapped_in(service)
        service.error = error
        for _ in range(3):
            with pytest.raises(HeldBackError, match="not available now"):
                keys.to_read(*wanted)
        assert service.unwraps == 1
        service.error = None
        clock.ms += 6_000
        assert keys.to_read(*wanted).secret

    def test_a_slow_service_is_waited_for_once(self, make: Callable[..., DataKeys], service: Gated) -> None:
        keys = make(timeout_ms=1_000, monotonic=time.monotonic)
        wanted = [wrapped_in(service) for _ in range(60)]
        service.open.clear()
        began = time.monotonic()
        for one in wanted:
            with pytest.raises(HeldBackError):
                keys.to_read(*one)
        assert time.monotonic() - began < 1.0 * len(wanted) / 2
        service.open.set()
        until(lambda: isinstance(_read(keys, wanted[0]), DataKey))

    def test_an_unlisted_key_never_reaches_the_service(
        self, make: Callable[..., DataKeys], service: Gated
    ) -> None:
        keys, (_, wrapped, scope) = make(key_ids=["payments"]), wrapped_in(service)
        with pytest.raises(InvalidWrappedKeyError, match="which is not accepted here"):
            keys.to_read("orders", wrapped, scope)
        assert service.unwraps == 0

    @pytest.mark.parametrize("size", [0, 8193])
    def test_what_cannot_be_a_wrapped_key_never_reaches_the_service(
        self, make: Callable[..., DataKeys], service: Gated, size: int
    ) -> None:
        with pytest.raises(InvalidWrappedKeyError):
            make().to_read("orders", bytes(size), SCOPE)
        assert service.unwraps == 0

    def test_a_wrapped_key_of_another_size_is_refused(
        self, make: Callable[..., DataKeys], service: Gated
    ) -> None:
        wrapped = service.service.wrap("orders", bytes(range(16)), SCOPE.encode()).wrapped
        with pytest.raises(InvalidWrappedKeyError, match="16 bytes"):
            make().to_read("orders", wrapped, SCOPE)


class TestPrefetch:
    def test_unwraps_in_parallel(self, make: Callable[..., DataKeys], service: Gated) -> None:
        keys, wanted = make(), [wrapped_in(service) for _ in range(4)]
        service.barrier = Barrier(4)  # none passes before all four are there
        keys.prefetch([*wanted, *wanted])
        assert service.unwraps == 4
        for one in wanted:
            keys.to_read(*one)
        keys.prefetch(wanted)
        assert service.unwraps == 4

    def test_leaves_failures_to_those_that_ask(self, make: Callable[..., DataKeys], service: Gated) -> None:
        keys, good = make(key_ids=["orders"]), wrapped_in(service)
        keys.prefetch([("orders", b"forged", SCOPE), ("other", good[1], SCOPE), good])
        assert keys.to_read(*good).secret
        with pytest.raises(InvalidWrappedKeyError):
            keys.to_read("orders", b"forged", SCOPE)

    def test_waits_no_longer_than_one_call_may_take(
        self, make: Callable[..., DataKeys], service: Gated
    ) -> None:
        keys = make(timeout_ms=1_000, monotonic=time.monotonic)
        wanted = [wrapped_in(service) for _ in range(60)]
        service.open.clear()
        began = time.monotonic()
        keys.prefetch(wanted)
        for one in wanted:
            with pytest.raises(HeldBackError):
                keys.to_read(*one)
        assert time.monotonic() - began < 1.0 * len(wanted) / 2


class TestKeysApart:
    def test_one_that_is_out_of_reach_does_not_stop_another(
        self, make: Callable[..., DataKeys], service: Gated, path: Path, clock: Clock
    ) -> None:
        edit_keyring(path, lambda ring: with_new_key(ring, "payments", "aes-256"))
        clock.ms += 2_000
        keys, wanted = make(), wrapped_in(service)
        service.failing = "payments"
        with pytest.raises(KeyServiceUnavailableError):
            keys.to_send("payments", SCOPE, 1)
        assert keys.to_send("orders", SCOPE, 1).secret
        assert keys.to_read(*wanted).secret
        with pytest.raises(KeyServiceUnavailableError):
            keys.to_send("payments", SCOPE, 1)


class Unbound:
    """A key service that wraps well, and binds no context."""

    def __init__(self, service: KeyService) -> None:
        self.service = service

    def wrap(self, key_id: str, data_key: bytes, context: bytes) -> Wrapped:
        return self.service.wrap(key_id, data_key, b"any")

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        return self.service.unwrap(key_id, wrapped, b"any")

    def close(self) -> None:
        self.service.close()


class Listening:
    """A key service that remembers for which contexts it unwraps."""

    def __init__(self, service: KeyService) -> None:
        self.service = service
        self.asked: list[bytes] = []

    def wrap(self, key_id: str, data_key: bytes, context: bytes) -> Wrapped:
        return self.service.wrap(key_id, data_key, context)

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        self.asked.append(context)
        return self.service.unwrap(key_id, wrapped, context)

    def close(self) -> None:
        self.service.close()


class TestSelfTest:
    def test_refuses_a_service_that_binds_no_context(
        self, make: Callable[..., DataKeys], service: Gated
    ) -> None:
        service.service = Unbound(service.service)
        keys = make()
        with pytest.raises(UnboundKeyError, match="for another context than it was wrapped for"):
            keys.require_bound("orders")
        with pytest.raises(UnboundKeyError):
            keys.to_send("orders", SCOPE, 1)
        with pytest.raises(HeldBackError, match="for another context"):
            keys.to_read(*wrapped_in(service))

    def test_asks_once_for_each_key(self, make: Callable[..., DataKeys], service: Gated) -> None:
        service.service = listening = Listening(service.service)
        keys = make()
        for _ in range(3):
            keys.to_read(*wrapped_in(service))
        assert [context.startswith(SELF_TEST) for context in listening.asked] == [False, True, False, False]

    @pytest.mark.parametrize("error", [KeyServiceUnavailableError("down"), KeyDeniedError("no")])
    def test_judges_nobody_who_does_not_answer(
        self, make: Callable[..., DataKeys], service: Gated, clock: Clock, error: KeyServiceError
    ) -> None:
        service.service, service.error = Unbound(service.service), error
        keys = make()
        keys.require_bound("orders")
        service.error = None
        clock.ms += 10_000
        with pytest.raises(UnboundKeyError):
            keys.to_send("orders", SCOPE, 1)

    def test_waits_for_a_bounded_time(self, service: Gated) -> None:
        service.open.clear()
        with closing(DataKeys(service, timeout_ms=100)) as keys:
            keys.require_bound("orders")
            service.open.set()
            assert keys.to_send("orders", SCOPE, 1).wrapped

    def test_leaves_no_key_that_counts(self, make: Callable[..., DataKeys], clock: Clock) -> None:
        keys = make()
        keys.require_bound("orders")
        clock.ms += HOUR_MS
        assert (keys.stats()["oldest_ms"], keys.stats()["wraps"]) == (0, 0)


class TestBudget:
    def test_a_flood_in_vain_is_paced_and_genuine_keys_cost_nothing(
        self, make: Callable[..., DataKeys], service: Gated, clock: Clock
    ) -> None:
        keys = make(max_failed_unwraps_per_s=10, timeout_ms=50)
        for _ in range(100):
            keys.to_read(*wrapped_in(service))
        known = wrapped_in(service)
        keys.to_read(*known)
        outcomes = [_read(keys, ("orders", b"forged %d" % number, SCOPE)) for number in range(50)]
        assert [type(outcome) for outcome in outcomes] == [InvalidWrappedKeyError] * 20 + [HeldBackError] * 30
        assert keys.to_read(*known).secret
        assert service.unwraps == 121
        clock.ms += 1_000
        assert keys.to_read(*wrapped_in(service)).secret
        assert keys.stats()["rate_limited"] == 30

    def test_is_counted_for_each_key(
        self, make: Callable[..., DataKeys], service: Gated, path: Path, clock: Clock
    ) -> None:
        edit_keyring(path, lambda ring: with_new_key(ring, "payments", "aes-256"))
        clock.ms += 2_000
        keys = make(max_failed_unwraps_per_s=1, timeout_ms=50)
        for number in range(5):
            _read(keys, ("payments", b"forged %d" % number, SCOPE))
        assert isinstance(_read(keys, wrapped_in(service)), DataKey)


class TestLife:
    @pytest.mark.parametrize("limit", ["max_age_ms", "max_uses", "max_failed_unwraps_per_s", "max_calls"])
    def test_needs_limits_that_let_something_pass(self, service: Gated, limit: str) -> None:
        with pytest.raises(ValueError, match="1 or more"):
            DataKeys(service, **{limit: 0})  # type: ignore[arg-type]

    def test_closes_the_service_once_and_forgets(self, make: Callable[..., DataKeys], service: Gated) -> None:
        keys, wanted = make(), wrapped_in(service)
        keys.to_read(*wanted)
        keys.close()
        keys.close()
        assert service.closed == 1
        with pytest.raises(HeldBackError, match="closed"):
            keys.to_read(*wanted)
        with pytest.raises(KeyServiceError, match="closed"):
            keys.to_send("orders", SCOPE, 1)

    def test_tells_the_age_of_the_oldest_key(self, make: Callable[..., DataKeys], clock: Clock) -> None:
        keys = make()
        assert keys.stats()["oldest_ms"] == 0
        keys.to_send("orders", SCOPE, 1)
        clock.ms += 5_000
        assert keys.stats()["oldest_ms"] == 5_000
        for number in range(600):  # so that the first is among the cache's older entries
            keys.to_send("orders", f"cluster/{number}", 1)
        assert keys.stats()["oldest_ms"] == 5_000

    def test_shows_no_secret(self, make: Callable[..., DataKeys]) -> None:
        key = make().to_send("orders", SCOPE, 1)
        shown = f"{key!r} {key} {key.__rich_repr__()}"
        assert repr(key.secret)[2:-1] not in shown

    def test_a_forked_child_makes_its_own_keys_whatever_the_parent_was_about(self, path: Path) -> None:
        program = f"""
import os, sys, threading
from headerware import Context
from headerware.keyring.services import DataKeys, FileKeys
service = FileKeys(keyring={str(path)!r}).open(Context())
shut = threading.Event()
class Slow:
    def wrap(self, *given):
        if given[2] == b"slow":
            shut.wait(60)
        return service.wrap(*given)
    unwrap, close = service.unwrap, service.close
keys = DataKeys(Slow(), timeout_ms=2000)
mine = keys.to_send("orders", "cluster/orders", 1)
threading.Thread(target=lambda: keys.to_send("orders", "slow", 1)).start()
while not keys._pending:
    pass
keys._lock.acquire()
child = os.fork()
if child == 0:
    theirs = keys.to_send("orders", "cluster/orders", 1)
    same = keys.to_read("orders", mine.wrapped, "cluster/orders").secret == mine.secret
    os._exit(0 if same and theirs.secret != mine.secret else 1)
keys._lock.release()
shut.set()
assert keys.to_send("orders", "cluster/orders", 1) is mine
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")


def _read(keys: DataKeys, wanted: tuple[str, bytes, str]) -> DataKey | Exception:
    try:
        return keys.to_read(*wanted)
    except (HeldBackError, KeyServiceError) as error:
        return error


def _sent(keys: DataKeys) -> DataKey | Exception:
    try:
        return keys.to_send("orders", SCOPE, 1)
    except KeyServiceError as error:
        return error
