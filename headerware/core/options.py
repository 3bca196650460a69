"""Make interceptors of declared options, which are converted and checked.

An option may itself name an object that is built from options (a serde, a store). Configuration has the word
for its type, or a table of ``type`` and its options; code passes the object.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from headerware.core.errors import ConfigError, below
from headerware.core.plain_files import require_path
from headerware.core.plain_words import plain_words
from headerware.core.plugins import interceptor_type
from headerware.core.suggestions import did_you_mean
from headerware.core.topics import check_topics
from headerware.core.typed_options import TypedOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.hooks import Interceptor

PATH: Final = msgspec.Meta(extra={"path": True})
"""Marks an option that names a file, as in ``keyring: Annotated[str, PATH]``.

A relative path begins at the folder of the TOML file that names it; ``~`` is the user's home.
"""


def from_home(path: str) -> str:
    """Return a path with the user's home for a ``~`` at its beginning; refuse the content of a file."""
    require_path(path)
    return os.path.expanduser(path)  # noqa: PTH111 - options are plain text


def path_unless(means_more: Callable[[str], bool]) -> msgspec.Meta:
    """Mark an option that names a file, unless its text means something else, such as an address."""
    return msgspec.Meta(extra={"path": lambda text: not means_more(text)})


def lines(read: Callable[[str], Any]) -> msgspec.Meta:
    """Mark an option whose text is split into lines before environment variables are filled in.

    So a line break in a variable cannot begin another line. ``read`` gets the text as it was written, and
    returns its lines with the environment filled in.
    """
    return msgspec.Meta(extra={"lines": read})


def kinds(lookup: Callable[..., type[msgspec.Struct]]) -> msgspec.Meta:
    """Mark an option that has options of its own.

    It is written ``store: Annotated[Any, kinds(store_type)]``. ``lookup(word, path=path)`` returns the Struct
    that a word stands for.
    """
    return msgspec.Meta(extra={"kinds": lookup})


_ENVIRONMENT: Final = re.compile(r"\$\$\{|\$\{env:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{env:")
_MISSING: Final = re.compile(r"Object missing required field `(\w+)`")
_UNKNOWN_KEY: Final = re.compile(
    r"Object contains unknown field `(?P<key>.*?)`(?: - at `\$(?P<place>.*)`)?", re.DOTALL
)
_STEP: Final = re.compile(r"\.\w+|\[[\d.]*\]")
_REFUSED_AT: Final = re.compile(r"^(?P<problem>.*?)(?: - at `\$(?P<place>.*)`)?$", re.DOTALL)


class Setting(NamedTuple):
    """One option as it was written.

    ``value`` has environment variables filled in; ``shown`` is the text before that, which may be printed.
    ``loose`` says that text may stand for a value of another type. ``folder`` is the folder in which relative
    paths begin; None is the working directory.
    """

    value: Any
    origin: str
    shown: Any
    loose: bool = False
    folder: str | None = None

    def laid_over(self, earlier: Setting | None) -> Setting:
        """Return this setting, completed by an earlier source if it is only a part of a table.

        An example is ``interceptors.converters.value.plain``: a connector's line in an earlier source has
        named the type.
        """
        if earlier is None or self.folder != earlier.folder or not _is_part_of(self.value, earlier.value):
            return self
        return self._replace(
            value={**earlier.value, **self.value},
            shown={**earlier.shown, **self.shown},
            loose=self.loose or earlier.loose,
        )


class Declared(NamedTuple):
    """An interceptor as configuration declares it.

    ``name`` is its alias, ``type`` the word for its class, and ``path`` its position, for errors.
    """

    name: str
    type: str
    path: str
    settings: dict[str, Setting]

    def overridden_by(self, later: Declared) -> Declared:
        """Return this declaration with the options of a later source of the same type over its own."""
        if later.type != self.type:
            raise ConfigError(
                f"is of type {later.type!r}, but {self.path} declares {self.name!r} as {self.type!r}; "
                f"give it a name of its own",
                path=later.path,
            )
        settings = {
            option: given.laid_over(self.settings.get(option)) for option, given in later.settings.items()
        }
        return Declared(self.name, self.type, later.path, {**self.settings, **settings})


def _is_part_of(later: Any, earlier: Any) -> bool:
    """Return whether a table names no type, and the earlier table does."""
    tables = isinstance(later, Mapping) and isinstance(earlier, Mapping)
    return tables and "type" in earlier and "type" not in later


def setting(value: Any, origin: str, *, path: str, loose: bool = False, folder: str | None = None) -> Setting:
    """Make a setting, with ``${env:NAME}`` and ``${env:NAME:-default}`` replaced in text."""
    filled = with_environment(value, path=path)
    return Setting(filled, origin, value, loose or filled != value, folder)


def build(declared: Declared) -> Interceptor:
    """Make the interceptor that was declared."""
    built = _built(declared, interceptor_type(declared.type, path=declared.path))
    check_topics(built.topics, path=_below(declared.path, "topics"))
    return built


def from_option(value: Any, lookup: Callable[..., type[msgspec.Struct]], *, path: str) -> Any:
    """Make the object that an option names, for options that :func:`build` did not read.

    ``value`` is a type's word, a mapping of ``type`` and options (text is read loosely), or the object
    itself.
    """
    given = setting(value, "client configuration", path=path, loose=True)
    return _nested(given.value, given, lookup, path)


_AnyStruct = TypeVar("_AnyStruct", bound=msgspec.Struct)


def options_from(
    values: Mapping[str, Any], kind: type[_AnyStruct], *, what: str, path: str = "", folder: str | None = None
) -> _AnyStruct:
    """Make a Struct of options from a table of a TOML file, or from a mapping like one.

    Args:
        values: the table; ``${env:NAME}`` is filled in.
        kind: the Struct; options that name files and options with options of their own are marked in it.
        what: what the options are of, for errors.
        path: the table's path, for errors.
        folder: the folder in which relative paths begin; None is the working directory.

    Raises:
        ConfigError: an option that does not exist, or whose value cannot work.
    """
    settings = {
        option: setting(value, path or what, path=_below(path, option), folder=folder)
        for option, value in values.items()
    }
    return _built(Declared(what, what, path, settings), kind)


def _built(declared: Declared, kind: type[_AnyStruct]) -> _AnyStruct:
    """Make a Struct of options from declared ones."""
    hints = get_type_hints(kind, include_extras=True)
    known = set(kind.__struct_fields__)
    values: dict[str, Any] = {}
    for option, given in declared.settings.items():
        if option not in known:
            raise _unknown(option, kind, declared)
        values[option] = _converted(given, hints[option], _below(declared.path, option))
    if declared.name != declared.type and "name" in known:
        values.setdefault("name", declared.name)
    try:
        with below(declared.path):
            return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        shown = {option: given.shown for option, given in declared.settings.items()}
        raise refused(error, declared.path, kind, shown) from None  # the cause may quote the value


def with_files(options: _AnyStruct, found: Callable[[str], str]) -> _AnyStruct:
    """Return options, also nested ones, with their files' paths replaced by ``found(path)``."""
    hints = get_type_hints(type(options), include_extras=True)
    changes = {}
    for option in options.__struct_fields__:
        before = getattr(options, option)
        with below(option):
            after = _with_files(before, hints[option], found)
        if after is not before:
            changes[option] = after
    return msgspec.structs.replace(options, **changes) if changes else options


def _with_files(value: Any, hint: Any, found: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return found(value) if _names_a_file(hint, value) else value
    if lookup_of(hint) is not None and isinstance(value, msgspec.Struct):
        return with_files(value, found)
    if isinstance(value, Mapping) and lookup_of(inner := values_of(hint)) is not None:
        return {name: _with_files(own, inner, found) for name, own in value.items()}
    return value


def check_files(options: msgspec.Struct) -> None:
    """Read the files that options name, also nested ones, and raise the error of a file that is wrong."""
    if isinstance(options, TypedOptions):
        options.check_files()
    hints = get_type_hints(type(options), include_extras=True)
    for option in options.__struct_fields__:
        value = getattr(options, option)
        of_names = isinstance(value, Mapping) and lookup_of(values_of(hints[option])) is not None
        for place, inner in value.items() if of_names else [("", value)]:
            if isinstance(inner, TypedOptions):
                with below(_below(option, place) if place else option):
                    check_files(inner)


def _below(path: str, option: str) -> str:
    return f"{path}.{option}" if path else option


def _unknown(option: str, kind: type[msgspec.Struct], declared: Declared) -> ConfigError:
    path = _below(declared.path, option)
    instead = getattr(kind, "removed", {}).get(option)
    if instead is not None:
        return ConfigError(f"{declared.type!r} no longer has this option: {instead}", path=path)
    known = sorted(kind.__struct_fields__)
    it_has = f"it has: {', '.join(known)}"
    instead = getattr(kind, "written_as", {}).get(option)
    hint = f"; {instead}; {it_has}" if instead else did_you_mean(option, known, then=it_has)
    return ConfigError(f"{declared.type!r} has no such option{hint}", path=path)


def _nested(value: Any, given: Setting, lookup: Callable[..., type[msgspec.Struct]], path: str) -> Any:
    """Make the object that an option names, by the word for a type or by a table of type and options."""
    if isinstance(value, str):
        value = {"type": value}
    if not isinstance(value, Mapping):
        return value
    word = value.get("type")
    if not isinstance(word, str):
        names = getattr(lookup, "names", None)
        known = f"; known: {', '.join(names())}" if names is not None else ""
        raise ConfigError(f'expected the word for a type, or a table with type = "..."{known}', path=path)
    shown = given.shown if isinstance(given.shown, Mapping) else {}
    settings = {
        option: given._replace(value=own, shown=shown.get(option, own))
        for option, own in value.items()
        if option != "type"
    }
    return _built(Declared(word, word, path, settings), lookup(word, path=path))


def _converted(given: Setting, hint: Any, path: str) -> Any:
    value = given.value
    lookup = lookup_of(hint)
    if lookup is not None:
        return _nested(value, given, lookup, path)
    read = _extras(hint).get("lines")
    if read is not None and isinstance(given.shown, str):
        try:
            value = read(given.shown)
        except ConfigError as error:
            above = path.rpartition(".")[0] if error.path else path
            place = _below(above, error.path) if above else error.path
            raise error.with_path(place) from error
    inner = values_of(hint)
    if isinstance(value, Mapping) and (lookup := lookup_of(inner)) is not None:
        return {name: _nested(own, given, lookup, f"{path}.{name}") for name, own in value.items()}
    if isinstance(value, str) and is_a_list(hint):
        value = [part.strip() for part in value.split(",") if part.strip()]
    try:
        converted = msgspec.convert(value, hint, strict=not given.loose)
    except msgspec.ValidationError as error:
        raise refused(error, path, hint, given.shown) from None  # the cause may quote the value
    if isinstance(converted, str) and _names_a_file(hint, converted):
        with below(path):
            return os.path.join(given.folder or "", from_home(converted))  # noqa: PTH118 - options are plain text
    return converted


def refused(error: msgspec.ValidationError, path: str, hint: Any = None, given: Any = None) -> ConfigError:
    """Return msgspec's error as a ConfigError with our path.

    The value that was found may be a secret, and is not shown, except a number, and a word that is like a
    choice.

    Args:
        error: msgspec's error.
        path: the path of the value.
        hint: the type of the value, or of an interceptor whose options were checked together.
        given: the value as it was written, before environment variables were filled in.
    """
    found = _REFUSED_AT.match(str(error))
    problem, place = (found["problem"], found["place"] or "") if found else (str(error), "")
    if missing := _MISSING.fullmatch(problem):
        word = getattr(hint, "type", "")
        page = f"; an example: headerware docs {word}" if word in interceptor_type.built_in else ""
        return ConfigError(f"is missing, and has no default{page}", path=_below(path + place, missing[1]))
    at = _value_at(given, place)
    if problem.startswith("Invalid enum value"):  # the rest of it quotes the value
        problem = _expected_choice(_hint_at(hint, place), at)
    elif isinstance(at, int | float) and "got" not in problem:  # a number out of its bounds
        problem = f"{problem}, got `{at}`"
    place = path + place if path else place.removeprefix(".")
    return ConfigError(plain_words(problem, place.rpartition(".")[2], at), path=place)


def _value_at(value: Any, place: str) -> Any:
    """Return the value at a path within another, or None."""
    for step in _STEP.findall(place):
        try:
            value = value[step[1:] if step.startswith(".") else int(step[1:-1])]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return value


def table_from(table: Mapping[str, Any], kind: type[_AnyStruct], *, source: str) -> _AnyStruct:
    """Make a Struct of a table from a file that has only values, such as rules, prices or a policy.

    Args:
        table: the table.
        kind: the Struct; a key that it does not have is refused, with the nearest known name.
        source: the file, for errors.

    Raises:
        ConfigError: what is wrong, and where; its path begins with the file.
    """
    try:
        return msgspec.convert(table, kind, strict=True)
    except msgspec.ValidationError as error:
        unknown = _UNKNOWN_KEY.fullmatch(str(error))
        if unknown is None:
            plain = refused(error, "", kind, table)
            raise plain.with_path(_within(source, plain.path)) from None  # the cause may quote the value
        place = unknown["place"] or ""
        known = _struct_at(kind, place).__struct_fields__
        hint = did_you_mean(unknown["key"], known, then=f"known: {', '.join(known)}")
        raise ConfigError(f"unknown key{hint}", path=_within(source, f"{place}.{unknown['key']}")) from None
    except ConfigError as error:
        raise error.with_path(_within(source, error.path)) from error


def _within(source: str, place: str) -> str:
    place = place.removeprefix(".")
    return f"{source}: {place}" if place else source


def _struct_at(kind: Any, place: str) -> type[msgspec.Struct]:
    """Return the Struct at a path within another, such as ``.rules[0]`` or ``.topics[...].incoming``."""
    return _struct_in(_hint_at(kind, place))


def _hint_at(hint: Any, place: str) -> Any:
    """Return the type at a path within another type."""
    for step in _STEP.findall(place):
        if step.startswith("."):
            hint = get_type_hints(_struct_in(hint, step[1:]), include_extras=True)[step[1:]]
        else:
            hint = get_args(_bare(hint))[-1 if get_origin(_bare(hint)) is dict else 0]
    return hint


def _struct_in(hint: Any, field: str | None = None) -> type[msgspec.Struct]:
    """Return the Struct that a type is, or may be; if a field is given, one that has the field."""
    plain = _bare(hint)
    parts = [plain, *map(_bare, get_args(plain))]
    found: type[msgspec.Struct] = next(
        part
        for part in parts
        if isinstance(part, type)
        and issubclass(part, msgspec.Struct)
        and (field is None or field in part.__struct_fields__)
    )
    return found


def _expected_choice(hint: Any, given: Any) -> str:
    plain = _bare(hint)
    literals = [part for part in (plain, *get_args(plain)) if get_origin(part) is Literal]
    values = [value for literal in literals for value in get_args(literal)]
    if not values:
        return "expected another value"
    expected = f"expected one of {', '.join(map(repr, values))}"
    near = did_you_mean(given, values)
    return f"{expected}, found {given!r}{near}" if near else expected  # another value may be a secret


def is_a_list(hint: Any) -> bool:
    """Return whether an option is a list, which text may stand for."""
    plain = _bare(hint)
    return any(get_origin(_bare(part)) in (tuple, list) for part in (plain, *get_args(plain)))


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _names_a_file(hint: Any, text: str) -> bool:
    for part in (hint, *get_args(_bare(hint))):
        marked = _extras(part).get("path")
        if marked:
            return bool(marked(text)) if callable(marked) else True
    return False


def lookup_of(hint: Any) -> Callable[..., type[msgspec.Struct]] | None:
    """Return the look-up of an option that has options of its own (:func:`kinds`), or None."""
    found: Callable[..., type[msgspec.Struct]] | None = _extras(hint).get("kinds")
    return found


def values_of(hint: Any) -> Any:
    """Return the type of a mapping's values, or None if it is not a mapping."""
    plain = _bare(hint)
    return get_args(plain)[1] if get_origin(plain) in (dict, Mapping) else None


def _extras(hint: Any) -> dict[str, Any]:
    """Return the marks of an annotated type."""
    metas = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return {key: value for meta in metas for key, value in (getattr(meta, "extra", None) or {}).items()}


def with_environment(value: Any, *, path: str) -> Any:
    """Replace ``${env:NAME}`` and ``${env:NAME:-default}`` in text, and in the text of lists and mappings."""
    if isinstance(value, str):
        return _ENVIRONMENT.sub(lambda found: _from_environment(found, path), value)
    if isinstance(value, list):
        return [with_environment(item, path=path) for item in value]
    if isinstance(value, Mapping):
        return {key: with_environment(item, path=f"{path}.{key}") for key, item in value.items()}
    return value


def _from_environment(found: re.Match[str], path: str) -> str:
    if found[0] == "$${":
        return "${"
    if found[1] is None:
        raise ConfigError("expected ${env:NAME} or ${env:NAME:-default}; $${ is a literal ${", path=path)
    value = os.environ.get(found[1], found[2])
    if value is None:
        raise ConfigError(
            f"the environment has no variable {found[1]!r}; set it, or write ${{env:{found[1]}:-default}}",
            path=path,
        )
    return value
