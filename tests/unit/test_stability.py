"""What docs/stability.md promises, held to the code; ``make stability`` runs this as a program.

The page's list has each stable name with its signature and its own public members, without those of
``WITHOUT``. The program writes it.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "stability.md"
STABLE: Final = ("headerware", "headerware.testing")
LIST: Final = re.compile(r"(?<=^```text\n)headerware\..*?(?=^```$)", re.MULTILINE | re.DOTALL)
WITHOUT: Final = {
    # Ports of Headerware's own interceptors and clients.
    "headerware.Context": frozenset(
        [
            "awaited_cluster_id",
            "cannot_wait",
            "instrumented_by",
            "is_compacted",
            "is_duplicate",
            "max_message_bytes",
            "overhead_bytes",
            "pick_partition",
            "post",
            "signed",
            "signer",
            "stats",
            "tries_again",
            "wait_for_cluster_id",
            "warns",
        ]
    ),
    # Capabilities that the core treats in a special way, for Headerware's own interceptors.
    "headerware.Interceptor": frozenset(
        [
            "acknowledges_own",
            "atomic",
            "carries_bytes",
            "check_files",
            "decodes",
            "delays",
            "hides",
            "idle_on",
            "names_cluster",
            "needs_serializer",
            "removed",
            "reorders",
            "reveals",
            "splits",
            "unsignable",
            "verifies",
            "writes_ids",
        ]
    ),
    # What chains and readers of files add to an error on its way.
    "headerware.HeaderwareError": frozenset({"located", "named_by"}),
    "headerware.ConfigError": frozenset({"located", "named_by", "with_path"}),
    "headerware.InterceptorError": frozenset({"again", "at", "last_record"}),
    # Short cuts that check nothing, and what a session sets.
    "headerware.Headers": frozenset({"trusted"}),
    "headerware.Record": frozenset({"with_parts"}),
    "headerware.FanOut": frozenset({"whole"}),
    "headerware.Chain": frozenset({"check", "check_files", "configured", "located", "previous"}),
    # Faults of brokers, which are as new as headerware.testing.faults.
    "headerware.testing.EmbeddedCluster": frozenset({"broker_down", "fail_requests", "set_latency"}),
}
"""Members and arguments that stay provisional, by class; plug-ins and applications need few of them."""
PROVISIONAL: Final = sorted({path.parent for path in (ROOT / "headerware").glob("*/__init__.py")})


def promised() -> list[str]:
    """Return the lines of the page's list."""
    found = LIST.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    return found[0].splitlines()


def written_list() -> list[str]:
    """Return the lines that the code has."""
    modules = [importlib.import_module(package) for package in STABLE]
    named = {
        f"{module.__name__}.{name}": getattr(module, name) for module in modules for name in module.__all__
    }
    classes = {found for found in named.values() if inspect.isclass(found)}
    return [line for name, found in named.items() for line in described(name, found, classes - {found})]


def described(name: str, found: Any, others: set[type]) -> Iterator[str]:
    """Yield the line of a name, and of the members that a class does not have from the other classes."""
    if not inspect.isclass(found):
        yield f"{name}{signature(found)}" if callable(found) else name
        return
    if issubclass(found, enum.Enum):
        yield f"{name}: {', '.join(member.name for member in found)}"
        return
    base = next((each for each in found.__mro__ if each in others), None)
    without = WITHOUT.get(name, frozenset())
    yield f"{name}{signature(found, without)}{'' if base is None else f' extends {base.__name__}'}"
    inherited = {} if base is None else members(base)
    for member, value in sorted(members(found).items()):
        if member in without or inherited.get(member, inherited) is value:
            continue
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        yield f"    {member}{signature(function, without) if callable(function) else ''}"


def members(found: type) -> dict[str, Any]:
    """Return the public members that Headerware's own classes define, not those of confluent-kafka's."""
    own = [each for each in reversed(found.__mro__) if each.__module__.startswith("headerware")]
    return {
        name: value
        for each in own
        for name, value in vars(each).items()
        if not name.startswith("_") and not inspect.ismemberdescriptor(value)
    }


def qualified(lines: list[str]) -> Iterator[str]:
    """Yield the lines, those of members with the name of their class."""
    owner = ""
    for line in lines:
        is_member = line.startswith(" ")
        owner = owner if is_member else line.partition("(")[0]
        yield f"{owner}.{line.strip()}" if is_member else line


def signature(found: Any, without: frozenset[str] = frozenset()) -> str:
    """Return the arguments and their defaults, without some of them; pyright checks their types."""
    if inspect.isclass(found) and issubclass(found, msgspec.Struct):
        # Not inspect's, which resolves the types of fields, also those that only type checkers import.
        required = len(found.__struct_fields__) - len(found.__struct_defaults__)
        defaults = [*[msgspec.NODEFAULT] * required, *found.__struct_defaults__]
        fields = zip(found.__struct_fields__, defaults, strict=True)
        return f"({', '.join(field(*each) for each in fields if each[0] not in without)})"
    if inspect.isclass(found) and issubclass(found, Exception) and not inspect.isfunction(found.__init__):
        return "(*args)"
    arguments = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in inspect.signature(found).parameters.values()
        if each.name not in {"self", "cls", *without}
    ]
    return plain(str(inspect.Signature(arguments)))


def field(name: str, default: Any) -> str:
    factory = getattr(default, "factory", None)
    return plain(
        name if default is msgspec.NODEFAULT else f"{name}={(default if factory is None else factory())!r}"
    )


def plain(text: str) -> str:
    """Write classes as their names, and functions, whose names are nobody's business, as dots."""
    return re.sub(r"<function [^>]+>", "...", re.sub(r"<class '([\w.]+)'>", r"\1", text))


class TestStableNames:
    def test_have_the_signatures_of_the_page(self) -> None:
        ours, theirs = set(qualified(written_list())), set(qualified(promised()))
        assert not theirs - ours, (
            "a stable name changed or went. Keep it, and deprecate it first (docs/stability.md): "
            f"{sorted(theirs - ours)}"
        )
        assert not ours - theirs, (
            f"new stable names; `make stability` writes the list: {sorted(ours - theirs)}"
        )

    @pytest.mark.parametrize("name", WITHOUT)
    def test_are_without_members_that_exist(self, name: str) -> None:
        module, _, own_name = name.rpartition(".")
        found = getattr(importlib.import_module(module), own_name)
        methods = [found, *filter(inspect.isfunction, vars(found).values())]
        arguments = {argument for each in methods for argument in re.findall(r"\w+", signature(each))}
        assert not [each for each in WITHOUT[name] if not hasattr(found, each) and each not in arguments]


@pytest.mark.parametrize("package", PROVISIONAL, ids=lambda path: path.name)
def test_every_other_package_says_that_it_is_provisional(package: Path) -> None:
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    is_stable = f"headerware.{package.name}" in STABLE
    assert ("Provisional: a minor release may change" in text) is not is_stable


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(LIST.sub(lambda _: "\n".join([*written_list(), ""]), page), encoding="utf-8")
