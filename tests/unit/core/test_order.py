"""What can and cannot work in a chain, each rule on its own."""

from __future__ import annotations

import re
from itertools import permutations
from types import SimpleNamespace as Hooks
from typing import Any, ClassVar

import pytest

from headerware import Chain, ConfigError, Interceptor, Place, Record, Role, Stage
from headerware.core.order import _NEVER_BEFORE, check_order, idle_steps, in_order


class Squeeze(Interceptor, frozen=True, kw_only=True):
    type: ClassVar[str] = "squeeze"
    place: ClassVar[Place | None] = Place.COMPRESS

    def on_send(self, record: Record) -> Record:
        return record


def placed(place: Place | None, name: str = "", /, **options: Any) -> Hooks:
    options = {"atomic": True, "splits": True, "verifies": True, "writes_ids": True, **options}
    options.setdefault("stage", Stage.OBJECTS if place is Place.TRANSFORM else Stage.BYTES)
    return Hooks(
        place=place,
        name=name or (place.name.lower() if place else "custom"),
        on_send=lambda record: record,
        **options,
    )


RIGHT_ORDER = list(Place)


class TestRules:
    @pytest.mark.parametrize(
        ("left", "right", "why"), _NEVER_BEFORE, ids=lambda part: getattr(part, "name", None)
    )
    def test_each_refuses_its_pair_names_both_and_says_why(self, left: Place, right: Place, why: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(why)) as caught:
            Chain([placed(left), placed(right)])
        assert str(caught.value).startswith(f"{right.name.lower()!r} comes after {left.name.lower()!r}")
        assert f"Put {right.name.lower()!r} before {left.name.lower()!r}" in str(caught.value)

    @pytest.mark.parametrize(
        ("left", "right", "why"), _NEVER_BEFORE, ids=lambda part: getattr(part, "name", None)
    )
    def test_each_allows_its_pair_the_other_way(self, left: Place, right: Place, why: str) -> None:
        assert len(Chain([placed(right), placed(left)])) == 2

    @pytest.mark.parametrize(
        ("left", "right", "why"), _NEVER_BEFORE, ids=lambda part: getattr(part, "name", None)
    )
    def test_each_holds_across_what_stands_between(self, left: Place, right: Place, why: str) -> None:
        between = placed(None, "between", role=Role.OBSERVE)
        with pytest.raises(ConfigError, match=re.escape(why)):
            check_order([placed(left), between, placed(right)])

    @pytest.mark.parametrize(
        ("left", "right", "why"), _NEVER_BEFORE, ids=lambda part: getattr(part, "name", None)
    )
    def test_each_agrees_with_the_order_of_places(self, left: Place, right: Place, why: str) -> None:
        assert left > right

    def test_all_places_in_order_are_allowed(self) -> None:
        assert len(Chain([placed(place) for place in RIGHT_ORDER])) == len(Place)

    def test_what_works_on_bytes_may_not_stand_before_serialize(self) -> None:
        with pytest.raises(ConfigError, match="'custom' works on bytes, once objects are serialized"):
            Chain([placed(None), placed(Place.SERIALIZE)])

    def test_what_works_on_objects_may_not_stand_behind_serialize(self) -> None:
        with pytest.raises(ConfigError, match="it works on objects, before they are serialized"):
            Chain([placed(Place.SERIALIZE), placed(Place.TRANSFORM)])

    @pytest.mark.parametrize(
        ("first", "second", "works"),
        [
            (("*",), ("*",), False),
            (("*",), ("orders",), False),
            (("orders", "bills"), ("orders",), False),
            (("orders",), ("bills",), True),
            (("orders.*",), ("bills.*",), True),
        ],
    )
    def test_two_that_serialize_the_same_records_are_refused(
        self,
        first: tuple[str, ...],
        second: tuple[str, ...],
        works: bool,  # noqa: FBT001 - parametrized
    ) -> None:
        steps = [
            placed(Place.SERIALIZE, "one", topics=first),
            placed(Place.SERIALIZE, "two", topics=second),
        ]
        if works:
            assert Chain(steps).names == ("one", "two")
        else:
            with pytest.raises(ConfigError, match="'one' and 'two' would both serialize the same records"):
                Chain(steps)

    @pytest.mark.parametrize("place", [Place.ENCRYPT, Place.SIGN])
    def test_what_protects_a_record_twice_is_refused(self, place: Place) -> None:
        steps = [placed(place, name, key_id="k") for name in ("one", "two")]
        with pytest.raises(ConfigError, match="'one' and 'two' would both protect the same records"):
            Chain(steps)
        assert Chain([placed(place, "one", key_id="k"), placed(place, "two", key_id=None)])
        assert Chain([placed(place, name, key_id="k", topics=(name,)) for name in ("one", "two")])

    def test_a_second_trail_is_warned_of(self) -> None:
        steps = [placed(Place.TRAIL, "one"), placed(Place.TRAIL, "two")]
        assert idle_steps(steps) == [("two", "records have the entries of 'one', too; remove one of them")]

    def test_compress_after_encrypt_is_refused(
        self,
    ) -> None:  # the rule that every reader knows, without the table
        with pytest.raises(ConfigError, match="encrypted bytes cannot be compressed"):
            Chain([placed(Place.ENCRYPT), placed(Place.COMPRESS)])

    @pytest.mark.parametrize("role", list(Role))
    def test_nothing_of_ones_own_comes_after_header_ids(self, role: Role) -> None:
        with pytest.raises(ConfigError, match="so it comes last"):
            Chain([placed(Place.HEADER_IDS), placed(None, role=role)])

    def test_an_own_transform_behind_sign_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="after sign has signed"):
            Chain([placed(Place.SIGN), placed(None)])

    @pytest.mark.parametrize("role", [Role.OBSERVE, Role.PROTECT])
    def test_an_own_observer_or_protector_behind_sign_is_allowed(self, role: Role) -> None:
        assert len(Chain([placed(Place.SIGN), placed(None, role=role)])) == 2

    def test_objects_behind_bytes_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="works on objects"):
            Chain([placed(None, "b"), placed(None, "o", stage=Stage.OBJECTS)])

    def test_the_error_of_a_configured_one_has_its_path(self) -> None:
        with pytest.raises(ConfigError) as caught:
            check_order([placed(Place.SIGN), Squeeze()])
        assert caught.value.path == "interceptors.squeeze"


class TestTopics:
    def test_those_that_never_meet_may_stand_in_any_order(self) -> None:
        assert len(Chain([placed(Place.SIGN, topics=("a", "b")), placed(Place.COMPRESS, topics=("c",))])) == 2

    @pytest.mark.parametrize("topics", [("a", "c"), ("*",), ("c*",), ("!a",), ("[a]",), ("?",), ()])
    def test_those_that_may_meet_are_checked(self, topics: tuple[str, ...]) -> None:
        with pytest.raises(ConfigError):
            Chain([placed(Place.SIGN, topics=("a", "b")), placed(Place.COMPRESS, topics=topics)])


class TestComposing:
    def names(self, *sources: list[Any]) -> list[str]:
        return [item.name for item in in_order(sources)]  # type: ignore[attr-defined]

    def test_puts_placed_ones_into_their_places(self) -> None:
        platform = [placed(Place.TRACE), placed(Place.SIGN)]
        application = [placed(Place.COMPRESS), placed(Place.TRAIL)]
        assert self.names(platform, application) == ["trail", "trace", "compress", "sign"]

    def test_any_split_of_the_right_order_comes_back_in_it(self) -> None:
        for first in permutations(RIGHT_ORDER[4:8]):
            sources = [[placed(place) for place in first], [placed(place) for place in RIGHT_ORDER[8:]]]
            assert self.names(*sources) == [place.name.lower() for place in RIGHT_ORDER[4:]]

    def test_one_without_a_place_stays_behind_its_neighbour(self) -> None:
        application = [placed(Place.TRAIL), placed(None, "mine")]
        assert self.names([placed(Place.TRACE), placed(Place.SIGN)], application) == [
            "trail",
            "mine",
            "trace",
            "sign",
        ]

    def test_one_without_place_or_neighbour_comes_before_the_built_in_ones(self) -> None:
        assert self.names([placed(Place.TRACE)], [placed(None, "mine")]) == ["mine", "trace"]

    def test_one_for_objects_comes_first_of_all(self) -> None:
        objects = placed(None, "objects", stage=Stage.OBJECTS)
        assert self.names([placed(None, "mine"), placed(Place.TRACE)], [placed(Place.SIGN), objects]) == [
            "objects",
            "mine",
            "trace",
            "sign",
        ]

    def test_equals_keep_the_order_of_their_sources(self) -> None:
        assert self.names([placed(None, "a"), placed(None, "b")], [placed(None, "c")]) == ["a", "b", "c"]


def test_a_record_passes_a_whole_ordered_chain() -> None:
    chain = Chain([placed(place) for place in RIGHT_ORDER])
    record = Record("t", b"v")
    assert chain.open().send([record]) == [record]


class TestCapabilities:
    """What a session does for an interceptor only if the interceptor states it."""

    @pytest.mark.parametrize(
        ("place", "capability"),
        [
            (Place.SLICE, "atomic"),
            (Place.SLICE, "splits"),
            (Place.SIGN, "verifies"),
            (Place.HEADER_IDS, "writes_ids"),
        ],
    )
    def test_a_place_that_needs_one_is_refused_without_it(self, place: Place, capability: str) -> None:
        with pytest.raises(ConfigError, match=f"write {capability}: ClassVar"):
            Chain([placed(place, place.name, **{capability: False})])

    def test_an_option_of_that_name_states_nothing(self) -> None:
        class Optional(Squeeze, frozen=True, kw_only=True):
            place: ClassVar[Place | None] = Place.HEADER_IDS
            writes_ids: bool = True  # type: ignore[misc]

        with pytest.raises(ConfigError, match="does not state"):
            Chain([Optional()])

    def test_a_method_of_that_name_states_nothing(self) -> None:
        class Method(Squeeze, frozen=True, kw_only=True):
            place: ClassVar[Place | None] = Place.HEADER_IDS

            def writes_ids(self) -> None:  # type: ignore[override]
                """Do something else."""

        with pytest.raises(ConfigError, match="does not state"):
            Chain([Method()])
