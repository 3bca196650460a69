"""Interceptors are found by the word that configuration uses, and a wrong one says what is right."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from headerware import Interceptor, PluginError
from headerware.core.plugins import interceptor_type


class TestBuiltIn:
    @pytest.mark.parametrize("word", sorted(interceptor_type.built_in))
    def test_every_word_loads_the_class_of_that_type(self, word: str) -> None:
        loaded = interceptor_type(word)
        assert issubclass(loaded, Interceptor)
        assert loaded.type == word

    def test_are_not_hidden_by_a_plug_in_of_the_same_name(self, install_plugin: Any) -> None:
        install_plugin("trail", source="raise SystemExit")
        assert interceptor_type("trail").__module__ == "headerware.interceptors.trail"


class TestPlugIns:
    def test_are_found_by_their_entry_points(self, gadgets: str) -> None:
        loaded = interceptor_type("gadget")
        assert (loaded.__module__, loaded.__name__) == (gadgets, "Gadget")

    def test_are_not_imported_before_they_are_named(self, install_plugin: Any) -> None:
        module = install_plugin("gadget", source="raise RuntimeError('imported')")
        with pytest.raises(PluginError, match="there is no interceptor type 'gadgets'"):
            interceptor_type("gadgets")
        assert module not in sys.modules

    @pytest.mark.parametrize(("word", "near"), [("gadgte", "gadget"), ("singn", "sign"), ("Trail", "trail")])
    def test_an_unknown_word_gets_the_nearest_one(self, gadgets: str, word: str, near: str) -> None:
        with pytest.raises(PluginError, match=f"did you mean '{near}'") as caught:
            interceptor_type(word, path="interceptors.x.type")
        assert caught.value.path == "interceptors.x.type"
        assert str(caught.value).startswith("interceptors.x.type: there is no interceptor type")

    def test_an_unknown_word_near_nothing_lists_what_there_is(self, gadgets: str) -> None:
        with pytest.raises(PluginError) as caught:
            interceptor_type("qqq")
        assert "did you mean" not in str(caught.value)
        assert "add others by entry points of headerware.interceptors: install it" in str(caught.value)
        known = str(caught.value).partition("known: ")[2].split(", ")
        assert known == sorted(known)
        assert {"compress", "early", "gadget", "late", "sign"} <= set(known)

    def test_a_former_word_gets_the_one_that_took_its_place(self) -> None:
        with pytest.raises(PluginError, match="`compact` is `header_ids` now; known: ") as caught:
            interceptor_type("compact", path="interceptors.ids.type")
        assert caught.value.path == "interceptors.ids.type"

    def test_one_word_of_two_distributions_is_ambiguous(self, install_plugin: Any) -> None:
        install_plugin("gadget", distribution="first")
        install_plugin("gadget", distribution="second")
        with pytest.raises(PluginError, match="provided more than once, by first, second"):
            interceptor_type("gadget")

    def test_one_distribution_seen_twice_is_not(
        self, install_plugin: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install_plugin("gadget")
        monkeypatch.setattr(sys, "path", [*sys.path, sys.path[0]])
        assert interceptor_type("gadget").type == "gadget"

    @pytest.mark.parametrize(
        ("source", "told"),
        [
            ("import no_such_module_anywhere", "ModuleNotFoundError: No module named"),
            ("x = ", "SyntaxError"),
            ("x = 1", "AttributeError"),
            ("1 / 0", "ZeroDivisionError"),
        ],
    )
    def test_one_that_cannot_be_imported_says_which_and_why(
        self, install_plugin: Any, source: str, told: str
    ) -> None:
        module = install_plugin("gadget", source=source)
        with pytest.raises(PluginError, match=told) as caught:
            interceptor_type("gadget", path="interceptors.gadget")
        assert str(caught.value).startswith(
            "interceptors.gadget: interceptor type 'gadget' of gadgets "
            f"cannot be imported from {module}:Gadget"
        )
        assert caught.value.__cause__ is not None

    @pytest.mark.parametrize(
        "source", ["class Gadget:\n def on_send(self, r): return r", "def Gadget(): pass", "Gadget = 5"]
    )
    def test_one_that_is_no_interceptor_is_refused(self, install_plugin: Any, source: str) -> None:
        install_plugin("gadget", source=source)
        with pytest.raises(PluginError, match=r"expected a subclass of headerware\.core\.hooks\.Interceptor"):
            interceptor_type("gadget")

    def test_one_without_hooks_is_refused(self, install_plugin: Any) -> None:
        install_plugin(
            "gadget",
            source="""
                from headerware import Interceptor
                class Gadget(Interceptor, frozen=True): level: int = 1
            """,
        )
        with pytest.raises(PluginError, match="Gadget has none of the hooks"):
            interceptor_type("gadget")

    def test_one_that_only_opens_is_accepted(self, install_plugin: Any) -> None:
        install_plugin(
            "gadget",
            source="""
                from headerware import Interceptor
                class Gadget(Interceptor, frozen=True):
                    def open(self, context): return self
            """,
        )
        assert interceptor_type("gadget").__name__ == "Gadget"


def test_a_fresh_interpreter_asks_for_entry_points_only_when_a_word_is_not_built_in() -> None:
    program = """
import importlib.metadata
def refuse(**_): raise SystemExit("asked for entry points")
importlib.metadata.entry_points = refuse
from headerware.core.plugins import interceptor_type
interceptor_type("trail")
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
