"""A chain: what it refuses when it is made, what it is called, and that it may be shared and pickled."""

from __future__ import annotations

import pickle
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace as Hooks
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest

from headerware import (
    Chain,
    ConfigError,
    Context,
    HeaderwareError,
    Interceptor,
    PluginError,
    Record,
    load_chain,
)
from headerware.core.plugins import interceptor_type
from headerware.interceptors import Encrypt, Sign, Slice, Trail, built_in


class Stamp(Interceptor, frozen=True, kw_only=True):
    type: ClassVar[str] = "stamp"

    text: str = "stamped"
    level: Annotated[int, msgspec.Meta(ge=1, le=9)] = 3
    mode: Literal["fast", "small"] = "fast"
    names: tuple[str, ...] = ()

    def on_send(self, record: Record) -> Record:
        return record.with_headers(record.headers.add("stamp", self.text))


class Mute(Interceptor, frozen=True, kw_only=True):
    type: ClassVar[str] = "mute"


class TestRefusals:
    @pytest.mark.parametrize("thing", [object(), 5, None, Mute()])
    def test_what_has_no_hooks(self, thing: Any) -> None:
        with pytest.raises(PluginError, match="has none of the hooks"):
            Chain([thing])

    def test_a_hook_of_a_like_name_is_told(self) -> None:
        class Region(Interceptor, frozen=True):
            def on_sent(self, record: Record) -> Record:
                return record

        told = (
            r"none of the hooks .*: no hook is named 'on_sent', so nobody calls it; did you mean 'on_send'\?"
        )
        with pytest.raises(PluginError, match=told):
            Chain([Region()])

    def test_a_hook_of_a_like_name_beside_another_is_warned_of(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Step:
            def on_send(self, record: Record) -> Record:
                return record

            def on_consumed(self, record: Record) -> Record:
                return record

        class Region(Interceptor, frozen=True):
            def open(self, context: Context) -> Step:
                return Step()

        told = "no hook is named 'on_consumed', so nobody calls it; did you mean 'on_consume'?"
        for one in (Step(), Region(name="region")):
            Chain([one]).open().close()
        assert caplog.messages == [f"step: {told}", f"region: {told}"]

    def test_an_open_that_returns_nothing_says_so(self) -> None:
        class Region(Interceptor, frozen=True):
            def open(self, context: Context) -> None:
                return None

        with pytest.raises(PluginError, match=r"open\(\) of 'region' returned None; expected an object with"):
            Chain([Region(name="region")]).open()

    def test_a_word(self) -> None:
        with pytest.raises(PluginError, match=r"expected an interceptor, found text; .* Trail\(service="):
            Chain([untyped("sign")])

    def test_a_hook_that_cannot_be_called(self) -> None:
        with pytest.raises(PluginError, match="has none of the hooks"):
            Chain([Hooks(on_send=5)])

    @pytest.mark.parametrize(
        "pattern",
        [
            ".*",
            ".+",
            "!.*",
            "_.*",
            "orders-.*",
            "^orders",
            "orders$",
            r"orders\.eu",
            "(a|b)",
            "a|b",
            "a{2}",
            "[^a]",
            "a,b",
            "a/b",
            "",
            "!",
        ],
    )
    def test_a_pattern_of_topics_that_looks_like_a_regular_expression(self, pattern: str) -> None:
        with pytest.raises(ConfigError, match=r"expected a pattern such as .*, found ") as caught:
            Chain([Stamp(topics=("orders", pattern))])
        assert caught.value.path == "stamp.topics"
        with pytest.raises(ConfigError) as caught:
            Chain([Hooks(name="odd", on_send=lambda r: r, topics=[pattern])])
        assert caught.value.path == "odd.topics"

    def test_not_a_glob(self) -> None:
        Chain([Stamp(topics=("*", "orders.*", "orders-*", "*.eu", "!orders.raw", "a?", "*.*"))])

    @pytest.mark.parametrize(
        ("hooks", "expected", "found"),
        [
            ({"on_send": lambda: None}, "on_send(record)", "on_send()"),
            ({"on_send": lambda record, topic: record}, "on_send(record)", "on_send(record, topic)"),
            (
                {"on_consume": lambda record, *, key: record},
                "on_consume(record)",
                "on_consume(record, *, key)",
            ),
            ({"on_send_batch": lambda: None}, "on_send_batch(batch)", "on_send_batch()"),
            (
                {"on_acknowledgement": lambda record, error=b"secret": None},
                "on_acknowledgement(record, metadata, error)",
                "on_acknowledgement(record, error=...)",
            ),
            ({"on_processed": lambda record: None}, "on_processed(record, error)", "on_processed(record)"),
            ({"on_commit": lambda: None}, "on_commit(offsets)", "on_commit()"),
            ({"on_send": 5}, "on_send(record)", "on_send, a int"),
            ({"poll": lambda: None}, "poll(now_ms)", "poll()"),
            ({"close": lambda reason: None}, "close()", "close(reason)"),
            ({"open": lambda: None}, "open(context)", "open()"),
        ],
    )
    def test_a_hook_with_other_arguments(self, hooks: dict[str, Any], expected: str, found: str) -> None:
        with pytest.raises(PluginError) as caught:
            Chain([Hooks(**{"name": "odd", "on_consume": lambda record: record} | hooks)])
        assert str(caught.value) == f"interceptors.odd: SimpleNamespace: expected {expected}, found {found}"

    def test_a_hook_that_somebody_would_have_to_await(self) -> None:
        async def on_send(record: Record) -> Record:
            return record

        with pytest.raises(PluginError, match=r"found async on_send\(record\), which nobody awaits"):
            Chain([Hooks(on_send=on_send)])

    def test_a_hook_with_other_arguments_of_what_it_opens_into(self) -> None:
        chain = Chain([Hooks(name="odd", open=lambda _: Hooks(on_send=lambda: None))])
        with pytest.raises(
            PluginError, match=r"interceptors\.odd: .*expected on_send\(record\), found on_send\(\)"
        ):
            chain.open()

    @pytest.mark.parametrize("method", ["on_accepted", "on_accepted_batch"])
    def test_a_service_with_other_arguments(self, method: str) -> None:
        with pytest.raises(PluginError, match=rf"expected {method}\(\w+\), found {method}\(\)"):
            Chain([Hooks(on_send=lambda record: record, **{method: lambda: None})])

    @pytest.mark.parametrize(
        "hook",
        [lambda *given: given[0], lambda r, more=None: r, partial(lambda a, r: r, 1), Record.replace, str],
    )
    def test_not_a_hook_that_can_be_called(self, hook: Any) -> None:
        assert len(Chain([Hooks(on_send=hook)])) == 1

    def test_a_class_instead_of_an_object(self) -> None:
        with pytest.raises(PluginError, match=r"found the class Stamp; write Stamp\(\.\.\.\)"):
            Chain([Stamp])

    @pytest.mark.parametrize(
        ("options", "path"),
        [
            ({"text": 5}, "stamp.text"),
            ({"level": "3"}, "stamp.level"),
            ({"level": 10}, "stamp.level"),
            ({"mode": "secret-mode"}, "stamp.mode"),
            ({"names": "ab"}, "stamp.names"),
            ({"names": (1,)}, "stamp.names[0]"),
            ({"topics": "orders"}, "stamp.topics"),
            ({"on_error": "ignore"}, "stamp.on_error"),
            ({"dead_letter_headers": "kafka"}, "stamp.dead_letter_headers"),
            ({"name": 5}, "stamp.name"),
        ],
    )
    def test_an_option_of_a_wrong_type_given_in_code(self, options: dict[str, Any], path: str) -> None:
        with pytest.raises(ConfigError) as caught:
            Chain([Stamp(**options)])
        assert caught.value.path == path
        assert "`" not in str(caught.value)
        assert "secret-mode" not in str(caught.value)

    def test_a_wrong_choice_given_in_code_lists_the_right_ones(self) -> None:
        with pytest.raises(ConfigError, match=r"stamp\.mode: expected one of 'fast', 'small'"):
            Chain([Stamp(mode="fats")])  # type: ignore[arg-type]

    def test_an_unknown_option_given_in_code(self) -> None:
        with pytest.raises(TypeError, match="levle"):
            Stamp(levle=3)  # type: ignore[call-arg]

    def test_two_of_one_name(self) -> None:
        with pytest.raises(ConfigError, match="two interceptors are named 'mine'"):
            Chain([Stamp(name="mine"), Stamp(name="mine", topics=("other",))])


def untyped(found: Any) -> Any:
    """Return a class of which a type checker knows nothing."""
    return found


class TestOptionsWithoutNames:
    def test_say_how_they_are_given(self) -> None:
        with pytest.raises(
            TypeError, match=r"^Trail takes its options by name; write Trail\(service=\.\.\.\)$"
        ):
            untyped(Trail)("orders")
        with pytest.raises(TypeError, match=r"write Sign\(keyring=\.\.\., \w+=\.\.\.\)$"):
            untyped(Sign)("keys.json", "orders")
        with pytest.raises(TypeError, match=r"write Mute\(name=\.\.\.\)$"):
            untyped(Mute)("mute")

    def test_are_so_of_every_interceptor(self) -> None:
        for word in built_in.INTERCEPTORS:
            with pytest.raises(TypeError, match="takes its options by name; write"):
                untyped(interceptor_type(word))("value")

    def test_that_are_unknown_are_named(self) -> None:
        with pytest.raises(
            TypeError, match=r"^Trail has no option 'servce'; did you mean 'service'\? it has:"
        ):
            untyped(Trail)(servce="orders")
        with pytest.raises(TypeError, match=r"^Encrypt needs key_service; write Encrypt\(key_service="):
            untyped(Encrypt)()
        with pytest.raises(TypeError, match=r"^Mute has no option 'volume'; it has: dead_letter_headers, "):
            untyped(Mute)(volume=1)

    def test_of_an_earlier_version_say_what_to_do_now(self) -> None:
        with pytest.raises(TypeError, match=r"^Slice no longer has 'stream_above_bytes': .* claim_check"):
            untyped(Slice)(stream_above_bytes=1_000_000)

    def test_quote_no_value(self) -> None:
        with pytest.raises(TypeError) as caught:
            untyped(Stamp)("secret")
        assert "secret" not in str(caught.value)


class TestInterceptorsThatAreNoList:
    @pytest.mark.parametrize(
        ("given", "text"),
        [
            (Trail(), r"found Trail; write Chain\(\[Trail\(\.\.\.\)\]\)"),
            (Hooks(on_send=lambda record: record), r"found SimpleNamespace; write Chain\("),
            (Trail, r"found the class Trail; write Chain\(\[Trail\(\.\.\.\)\]\)"),
            ("headerware.toml", r"found str; from a file: load_chain\(path\)"),
            (5, "found int"),
            (None, "found NoneType"),
        ],
    )
    def test_are_refused(self, given: Any, text: str) -> None:
        with pytest.raises(ConfigError, match=f"^chain: expected a list of interceptors, {text}"):
            Chain(given)

    def test_are_one_argument(self) -> None:
        make: Any = Chain
        with pytest.raises(
            ConfigError, match=re.escape("found 2 arguments; write Chain([Stamp(...), Late(...)])")
        ):
            make(Stamp(name="a"), type("Late", (), {})())
        with pytest.raises(ConfigError, match=re.escape("found 2 arguments; write Chain([...])")):
            make([Stamp(name="a")], [])


class TestNames:
    def test_are_the_types_unless_given(self) -> None:
        assert Chain([Stamp(), Stamp(name="mine"), Hooks(on_send=print)]).names == (
            "stamp",
            "mine",
            "simplenamespace",
        )

    def test_of_one_type_are_numbered(self) -> None:
        assert Chain([Stamp(), Stamp(), Stamp()]).names == ("stamp", "stamp-2", "stamp-3")

    @pytest.mark.parametrize(
        ("given", "names"),
        [
            ((None, "stamp"), ("stamp-2", "stamp")),
            ((None, None, "stamp-2"), ("stamp", "stamp-3", "stamp-2")),
            (("stamp-2", None, None), ("stamp-2", "stamp", "stamp-3")),
        ],
    )
    def test_that_were_given_are_kept(self, given: tuple[str | None, ...], names: tuple[str, ...]) -> None:
        assert Chain([Stamp(name=name) for name in given]).names == names

    def test_are_keys_of_the_statistics(self) -> None:
        assert list(Chain([Stamp(), Stamp()]).open().stats()) == ["stamp", "stamp-2"]

    def test_for_a_topic_are_those_that_work_there(self) -> None:
        chain = Chain([Stamp(name="a", topics=("orders",)), Stamp(name="b", topics=("!orders",)), Stamp()])
        assert chain.for_topic("orders") == ["a", "stamp"]
        assert chain.for_topic("payments") == ["b", "stamp"]


class TestChain:
    def test_of_one_type_twice_for_different_topics_does_each_its_own(self) -> None:
        chain = Chain([Stamp(text="eu", topics=("*.eu",)), Stamp(text="us", topics=("*.us",))])
        records = chain.open().send([Record("orders.eu"), Record("orders.us"), Record("orders")])
        assert [record.headers.all("stamp") for record in records] == [(b"eu",), (b"us",), ()]

    def test_is_a_collection_of_its_interceptors(self) -> None:
        stamps = [Stamp(name="a"), Stamp(name="b")]
        chain = Chain(iter(stamps))
        assert (len(chain), list(chain), chain.interceptors) == (2, stamps, tuple(stamps))
        assert not Chain()

    def test_is_equal_and_hashes_by_content(self) -> None:
        assert Chain([Stamp()]) == Chain([Stamp()])
        assert len({Chain([Stamp()]), Chain([Stamp()]), Chain([Stamp(level=4)])}) == 2
        assert Chain() != ()

    def test_survives_pickling(self) -> None:
        chain = Chain([Stamp(text="x"), Stamp(name="mine")])
        assert pickle.loads(pickle.dumps(chain)) == chain  # noqa: S301 - our own bytes

    def test_shows_names_only(self) -> None:
        assert repr(Chain([Stamp(text="hunter2"), Stamp(name="mine")])) == "Chain(stamp -> mine)"

    def test_opens_without_a_context(self) -> None:
        assert Chain([Stamp()]).open().send([Record("t", b"")])[0].headers.last("stamp") == b"stamped"


def test_a_chain_with_other_interceptors_knows_its_files(tmp_path: Path) -> None:
    """An error of opening names the line, also if a client adds a step of its own."""
    file = tmp_path / "headerware.toml"
    file.write_text('[[interceptors]]\ntype = "sign"\nkey_id = "a"\nkeyring = "absent.json"\n')
    chain = load_chain(file)
    with pytest.raises(HeaderwareError) as raised:
        chain.with_interceptors([Trail(), *chain]).open(Context(side="producer"))
    assert (raised.value.file, raised.value.line) == (str(file), 4)
