from __future__ import annotations

import pytest

from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.records import SinkRecord
from headerware.connect.transforms.change_case import ChangeCase


class TestChangeCase:
    @pytest.mark.parametrize(
        ("source", "target", "name", "expected"),
        [
            ("LOWER_CAMEL", "LOWER_UNDERSCORE", "userId", "user_id"),
            ("LOWER_CAMEL", "LOWER_UNDERSCORE", "userID", "user_i_d"),
            ("LOWER_CAMEL", "UPPER_UNDERSCORE", "userId", "USER_ID"),
            ("UPPER_CAMEL", "LOWER_HYPHEN", "UserId", "user-id"),
            ("LOWER_UNDERSCORE", "LOWER_CAMEL", "user_id", "userId"),
            ("LOWER_UNDERSCORE", "UPPER_CAMEL", "user_id", "UserId"),
            ("UPPER_UNDERSCORE", "LOWER_CAMEL", "USER_ID", "userId"),
            ("LOWER_HYPHEN", "LOWER_UNDERSCORE", "user-id", "user_id"),
            ("LOWER_CAMEL", "LOWER_CAMEL", "any_thing", "any_thing"),
        ],
    )
    def test_writes_names_in_another_convention(
        self, source: str, target: str, name: str, expected: str
    ) -> None:
        transform = ChangeCase.Key({"from": source, "to": target})
        assert transform.apply(SinkRecord("t", key={name: 1})).key == {expected: 1}

    def test_refuses_to_lose_a_field(self) -> None:
        transform = ChangeCase.Value({"from": "LOWER_CAMEL", "to": "LOWER_UNDERSCORE"})
        with pytest.raises(ConnectDataError, match="one name"):
            transform.apply(SinkRecord("t", value={"userId": 1, "user_id": 2}))

    def test_refuses_an_unknown_convention(self) -> None:
        with pytest.raises(ConnectConfigError, match="LOWER_CAMEL"):
            ChangeCase.Value({"from": "snake", "to": "LOWER_CAMEL"})
