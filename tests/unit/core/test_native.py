"""The seam for native steps, with a crate made of Python."""

from __future__ import annotations

import os
import tomllib
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from headerware import Chain, Context, Headers, Record
from headerware.core import native, runner
from headerware.core.native import NativeForm, NativeState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headerware.core.batch import Batch


class Crate:
    """Upper case, step by step; it takes no value that begins with ``x``, and counts what it is asked."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.batches = 0
        self.fails: type[BaseException] | None = None

    def run(self, topic: str, steps: list[Any], *, measured: bool) -> Any:
        if any(arguments == ("refused",) for _, arguments in steps):
            raise ValueError
        self.made.append((topic, steps))
        self.measures = [(1 + 2 * at, 10 * at, 10 * at + 10) for at in range(len(steps))] if measured else []
        return SimpleNamespace(take=self.take)

    def take(self, values: list[Any], keys: list[Any], headers: list[Any], numbers: list[Any]) -> Any:
        self.batches += 1
        if self.fails:
            raise self.fails
        assert len(keys) == len(headers) == len(values)
        not_taken = [at for at, value in enumerate(values) if value.startswith(b"x")]
        return (
            not_taken,
            [value.upper() for value in values],
            list(map(tuple, headers)),
            [len(numbers)] * len(numbers),
            self.measures,
        )


class Step:
    """A step that tells which of its hooks a record has passed."""

    def __init__(self, name: str, argument: str = "a", *, pays: bool = False, ordered: bool = False) -> None:
        self.name = name
        self.pays, self.ordered = pays, ordered
        self.argument = argument
        self.noted: list[Any] = []
        self.undone = 0

    def on_consume(self, record: Record) -> Record:
        return record.with_value(record.value + b"-single")

    def on_consume_batch(self, batch: Batch) -> Batch:
        return batch.replace(values=[value + b"-batch" for value in batch.values])

    def native_form(self, direction: str, topic: str) -> Any:
        assert (direction, topic) == ("consume", "t")

        def state(batch: Batch) -> NativeState:
            argument = self.argument
            return NativeState(
                self.name, argument, lambda: (argument,), lambda: (len(batch),), self.note, self.undo
            )

        return NativeForm(state, self.pays, self.ordered)

    def note(self, _batch: Batch, not_taken: Sequence[int], facts: Any) -> None:
        self.noted.append((list(not_taken), facts))

    def undo(self) -> None:
        self.undone += 1


class Meter:
    """Measures hooks and runs."""

    name = "meter"

    def __init__(self) -> None:
        self.measured: list[tuple[str, int, int]] = []
        self.times: list[int] = []

    def on_send(self, record: Record) -> Record:
        return record

    def wrap_hook(self, step: str, _direction: str, hook: Any) -> Any:
        def measured(given: Any) -> Any:
            self.measured.append((step, -1, -1))
            return hook(given)

        return measured

    def native_meter(self, step: str, direction: str) -> Any:
        assert direction == "consume"

        def add(taken_ns: int, bytes_in: int, bytes_out: int) -> None:
            self.measured.append((step, bytes_in, bytes_out))
            self.times.append(taken_ns)

        return add


@pytest.fixture
def crate() -> Iterator[Crate]:
    crate = Crate()
    module = SimpleNamespace(Run=crate.run)
    with patch.object(runner, "native_module", return_value=(module, "1")):
        yield crate


def values_of(steps: list[Any], *values: bytes, times: int = 1) -> list[list[bytes]]:
    records = [Record("t", value, headers=Headers([("h", b"1")])) for value in values]
    with Chain(steps).open(Context(side="consumer")) as session:
        return [[record.value for record in session.consume(records)] for _ in range(times)]


class TestRuns:
    def test_neighbours_are_one_run(self, crate: Crate) -> None:
        assert values_of([Step("a"), Step("b")], b"v") == [[b"V"]]
        assert crate.made == [("t", [("b", ("a",)), ("a", ("a",))])]

    def test_a_step_alone_is_none(self, crate: Crate) -> None:
        assert values_of([Step("a")], b"v") == [[b"v-batch"]]
        assert crate.made == []

    def test_a_step_alone_that_pays_is_one(self, crate: Crate) -> None:
        assert values_of([Step("a", pays=True)], b"v") == [[b"V"]]

    def test_a_step_in_order_is_the_last_of_its_run(self, crate: Crate) -> None:
        steps = [Step("a"), Step("b", pays=True, ordered=True), Step("c")]
        assert values_of(steps, b"v") == [[b"V-batch"]]
        assert crate.made == [("t", [("c", ("a",)), ("b", ("a",))])]

    def test_a_step_in_order_gets_all_records_or_none(self, crate: Crate) -> None:
        steps = [Step("b", ordered=True), Step("c")]
        assert values_of(steps, b"v", b"x", times=18) == [[b"v-batch-batch", b"x-batch-batch"]] * 18
        assert crate.batches == 2
        assert [step.noted for step in steps] == [[], []]

    def test_a_step_in_order_alone_leaves_single_records(self, crate: Crate) -> None:
        assert values_of([Step("b", pays=True, ordered=True)], b"v", b"x") == [[b"V", b"x-single"]]

    @pytest.mark.parametrize(
        ("steps", "values"),
        [
            ([Step("b", pays=True, ordered=True)], (b"x", b"x")),
            ([Step("a"), Step("b")], (b"x", b"x")),
            ([Step("b", ordered=True), Step("c")], (b"v", b"x")),
        ],
    )
    def test_a_batch_that_is_left_is_undone(
        self, crate: Crate, steps: list[Step], values: tuple[bytes, ...]
    ) -> None:
        values_of(steps, *values)
        assert crate.batches == 1
        assert [(step.noted, step.undone) for step in steps] == [([], 1)] * len(steps)

    def test_records_not_taken_pass_each_single_hook(self, crate: Crate) -> None:
        one, two = Step("a"), Step("b")
        assert values_of([one, two], b"v", b"x", b"w") == [[b"V", b"x-single-single", b"W"]]
        assert one.noted == two.noted == [([1], 2)]

    def test_is_made_once_for_equal_arguments(self, crate: Crate) -> None:
        assert values_of([Step("a"), Step("b")], b"v", times=3) == [[b"V"]] * 3
        assert len(crate.made) == 1

    def test_is_made_anew_for_others(self, crate: Crate) -> None:
        one = Step("a")
        with Chain([one, Step("b")]).open(Context(side="consumer")) as session:
            session.consume([Record("t", b"v")])
            one.argument = "c"
            session.consume([Record("t", b"v")])
        assert [dict(steps)["a"] for _, steps in crate.made] == [("a",), ("c",)]

    def test_is_made_anew_in_a_child(self, crate: Crate) -> None:
        with Chain([Step("a"), Step("b")]).open(Context(side="consumer")) as session:
            session.consume([Record("t", b"v")])

            with patch("os.getpid", return_value=-1):
                session.consume([Record("t", b"v")])
        assert len(crate.made) == 2

    @pytest.mark.parametrize("steps", [[Step("a", "refused"), Step("b")], [Step("a"), Step("b", "refused")]])
    def test_steps_that_cannot_be_made_are_done_in_python(self, crate: Crate, steps: list[Any]) -> None:
        assert values_of(steps, b"v", times=2) == [[b"v-batch-batch"]] * 2

    def test_a_failure_in_native_code_leaves_the_batch_to_python(self, crate: Crate) -> None:
        crate.fails = RuntimeError
        assert values_of([Step("a"), Step("b")], b"v") == [[b"v-batch-batch"]]

    def test_pauses_after_a_batch_that_was_mostly_not_taken(self, crate: Crate) -> None:
        values_of([Step("a"), Step("b")], b"x", times=18)
        assert crate.batches == 2

    @pytest.mark.parametrize(
        ("wrap", "value"), [(partial, b"v-batch-batch"), (lambda hook: hook, b"V")], ids=["wraps", "idles"]
    )
    def test_steps_that_are_watched_are_not_taken(self, crate: Crate, wrap: Any, value: bytes) -> None:
        watching: Any = SimpleNamespace(
            name="watch",
            on_send=lambda record: record,
            wrap_hook=lambda _step, _direction, hook: wrap(hook),
        )
        assert values_of([watching, Step("a"), Step("b")], b"v") == [[value]]

    def test_steps_that_are_only_measured_are_taken(self, crate: Crate) -> None:
        meter = Meter()
        assert values_of([meter, Step("a"), Step("b")], b"v") == [[b"V"]]
        assert meter.measured == [("b", 0, 10), ("a", 10, 20)]

    def test_the_time_of_a_run_is_shared_among_its_steps(self, crate: Crate) -> None:
        meter = Meter()
        with patch.object(native, "perf_counter_ns", side_effect=[1_000, 5_000]):
            values_of([meter, Step("a"), Step("b")], b"v")
        assert meter.times == [1_000, 3_000]

    def test_a_batch_that_is_left_is_measured_by_the_hooks(self, crate: Crate) -> None:
        meter = Meter()
        assert values_of([meter, Step("a"), Step("b")], b"x") == [[b"x-batch-batch"]]
        assert meter.measured == [("b", 0, 0), ("a", 0, 0), ("b", -1, -1), ("a", -1, -1)]
        assert min(meter.times) > 0

    def test_a_record_that_is_left_is_measured_by_the_hooks(self, crate: Crate) -> None:
        meter = Meter()
        assert values_of([meter, Step("a"), Step("b")], b"v", b"x") == [[b"V", b"x-single-single"]]
        assert meter.measured == [("b", 0, 10), ("a", 10, 20), ("b", -1, -1), ("a", -1, -1)]

    def test_steps_that_another_step_wraps_as_well_are_not_taken(self, crate: Crate) -> None:
        class Other(Meter):
            name = "other"

        steps = [Meter(), Other(), Step("a"), Step("b")]
        assert values_of(steps, b"v") == [[b"v-batch-batch"]]

    def test_steps_with_other_hooks_are_not_taken(self, crate: Crate) -> None:
        class Inherits(Step):
            def on_consume_batch(self, batch: Batch) -> Batch:
                return super().on_consume_batch(batch).replace(keys=[b"seen"] * len(batch))

        class Delegates:
            def __init__(self, inner: Step) -> None:
                self._inner = inner

            def __getattr__(self, name: str) -> Any:
                return getattr(self._inner, name)

        for step in (Inherits("a", pays=True), Delegates(Step("a", pays=True))):
            assert values_of([step], b"v") == [[b"v-batch"]]
        assert crate.made == []


class TestModule:
    @pytest.fixture(autouse=True)
    def _forgotten(self) -> Iterator[None]:
        native.native_module.cache_clear()
        with patch.dict(os.environ):
            os.environ.pop(native.NATIVE_VARIABLE, None)
            yield
        native.native_module.cache_clear()

    def test_off(self) -> None:
        os.environ[native.NATIVE_VARIABLE] = "0"
        assert native.native_module() == (None, "off by HEADERWARE_NATIVE")

    def test_not_installed(self) -> None:
        with patch.object(native, "import_module", side_effect=ImportError):
            assert native.native_module() == (None, "not installed")

    def test_another_version(self) -> None:
        with patch.object(native, "import_module", return_value=SimpleNamespace(__version__="9")):
            module, found = native.native_module()
        assert module is None
        assert found.startswith("not used: expected headerware-native ")

    def test_the_extra_and_both_crates_have_the_version_that_is_wanted(self) -> None:
        root = Path(__file__).parents[3]
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        crates = [
            tomllib.loads((root / "native" / name / "Cargo.toml").read_text(encoding="utf-8"))["package"]
            for name in ("headerware-native", "headerware-wire")
        ]
        assert [crate["version"] for crate in crates] == [native._VERSION] * 2
        assert project["version"] == native._VERSION
        assert project["optional-dependencies"]["native"] == [f"headerware-native=={native._VERSION}"]

    def test_installed(self) -> None:
        module = SimpleNamespace(__version__=native._VERSION)
        with patch.object(native, "import_module", return_value=module):
            assert native.native_module() == (module, native._VERSION)
