"""Errors carry their position and their facts, and travel between processes."""

from __future__ import annotations

import pickle

import pytest

from headerware import ConfigError, HeaderwareError, InterceptorError, Record, SignatureError
from headerware.core import errors
from headerware.core.errors import position


class CostlyError(InterceptorError):
    def __init__(self, cents: int) -> None:
        super().__init__("too dear")
        self.cents = cents


class ForgetfulError(InterceptorError):
    def __init__(self, code: int) -> None:
        self.code = code


class TestInterceptorError:
    def test_opens_with_step_and_position(self) -> None:
        error = SignatureError("no signature", step="sign", topic="orders", partition=3, offset=42)
        assert str(error) == "sign at orders[3]@42: no signature"

    @pytest.mark.parametrize(
        ("place", "shown"),
        [
            (("orders", None, None), "orders"),
            (("orders", 0, None), "orders[0]"),
            (("orders", 0, 0), "orders[0]@0"),
        ],
    )
    def test_a_position_leaves_out_what_is_unknown(
        self, place: tuple[str, int | None, int | None], shown: str
    ) -> None:
        assert position(*place) == shown

    def test_a_position_that_the_interceptor_gave_stays(self) -> None:
        error = InterceptorError("incomplete", topic="orders", partition=1, offset=5)
        error.at("slice", Record("other", partition=9, offset=9))
        assert str(error) == "slice at orders[1]@5: incomplete"

    def test_survives_pickling_with_type_and_position_but_without_the_record(self) -> None:
        error = SignatureError("no signature").at("sign", Record("orders", b"secret", partition=3, offset=42))
        loaded = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert type(loaded) is SignatureError
        assert str(loaded) == str(error)
        assert loaded.last_record is None

    def test_again_keeps_type_and_facts_and_forgets_the_position(self) -> None:
        error = CostlyError(5).at("cost", Record("orders", partition=3, offset=42))
        again = error.again()
        assert isinstance(again, CostlyError)
        assert (str(again), again.cents, again.last_record) == ("too dear", 5, None)
        assert error.topic == "orders"

    def test_of_a_plug_in_survives_pickling_with_its_facts(self) -> None:
        error = CostlyError(5).at("cost", Record("orders", partition=3, offset=42))
        loaded = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert isinstance(loaded, CostlyError)
        assert (str(loaded), loaded.cents) == ("cost at orders[3]@42: too dear", 5)

    def test_whose_own_constructor_forgets_ours_still_has_a_position(self) -> None:
        error = ForgetfulError(7).at("odd", Record("orders", partition=3, offset=42))
        assert str(error) == "odd at orders[3]@42: ForgetfulError"


class TestConfigError:
    def test_opens_with_the_path(self) -> None:
        assert str(ConfigError("expected a number", path="interceptors.sign.level")) == (
            "interceptors.sign.level: expected a number"
        )

    def test_survives_pickling_with_its_path(self) -> None:
        loaded = pickle.loads(pickle.dumps(ConfigError("wrong", path="a.b")))  # noqa: S301 - our own bytes
        assert (str(loaded), loaded.path) == ("a.b: wrong", "a.b")


def test_everything_raised_on_purpose_has_one_root() -> None:
    found = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(found) > 10
    assert all(issubclass(kind, HeaderwareError) for kind in found)
