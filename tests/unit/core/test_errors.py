"""Errors carry their position and their facts, and travel between processes."""

from __future__ import annotations

import pickle
from typing import TypeVar

import pytest
from confluent_kafka.schema_registry import SchemaRegistryError

from headerware import (
    ConfigError,
    HeaderwareError,
    InterceptorError,
    Record,
    SignatureError,
    UnknownSchemaError,
)
from headerware.core import errors
from headerware.core.errors import KeptError, KeyServiceError, position


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


class TestKeptError:
    def test_makes_the_same_error_again_without_position_and_traceback(self) -> None:
        error = raised(UnknownSchemaError("not there"))
        error.part = "key"
        error.at("serialize", Record("orders", b"v"))
        again = KeptError(error).again()
        assert (type(again), str(again), again.part) == (UnknownSchemaError, "not there", "key")
        assert (again.topic, again.last_record, again.__traceback__) == (None, None, None)

    def test_keeps_the_cause_in_the_same_way(self) -> None:
        error = KeyServiceError("no")
        error.__cause__ = raised(ValueError("why"))
        again = KeptError(error).again()
        assert repr(again.__cause__) == "ValueError('why')"
        assert again.__cause__ is not None
        assert again.__cause__.__traceback__ is None

    def test_keeps_numbers_that_another_library_puts_into_attributes(self) -> None:
        again = KeptError(raised(SchemaRegistryError(404, 40403, "none"))).again()
        assert (type(again), again.http_status_code, again.error_code) == (SchemaRegistryError, 404, 40403)

    def test_an_error_of_another_library_that_holds_objects_becomes_one_of_ours(self) -> None:
        with pytest.raises(UnicodeDecodeError) as raised:
            b"\xff secret".decode()
        again: BaseException = KeptError(raised.value).again()
        assert type(again) is HeaderwareError
        assert str(again).startswith("UnicodeDecodeError at test_errors.py:")
        assert "secret" not in str(again)

    def test_cuts_long_texts(self) -> None:
        assert len(str(KeptError(ValueError("x" * 10_000)).again())) == 2_003


Raised = TypeVar("Raised", bound=BaseException)


def raised(error: Raised) -> Raised:
    """Return an error with a traceback."""
    with pytest.raises(type(error)):
        raise error
    return error


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
