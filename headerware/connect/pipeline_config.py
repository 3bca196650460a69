"""Read a connector's lines about transforms and predicates, and make what they name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, TypeVar

from headerware.connect.catalogue import Catalogue
from headerware.connect.config import NOT_NULL, ConfigDef, ConfigKey, Configured
from headerware.connect.errors import ConnectConfigError
from headerware.connect.modes import STRICT, Mode
from headerware.connect.predicates.base import Predicate
from headerware.connect.predicates.catalogue import predicate_type
from headerware.connect.transforms.base import Transform
from headerware.connect.transforms.catalogue import transform_type
from headerware.connect.transforms.filter import Filter
from headerware.core.errors import HeaderwareError

Kind = TypeVar("Kind", bound=Configured)
Lines = dict[str, Any]

TRANSFORMS: Final = "transforms"
PREDICATES: Final = "predicates"
NAMES: Final = (
    ConfigKey(
        name=TRANSFORMS,
        type="LIST",
        default=[],
        importance="LOW",
        check=NOT_NULL,
        doc="The transforms' aliases, in the order in which they are applied.",
    ),
    ConfigKey(
        name=PREDICATES,
        type="LIST",
        default=[],
        importance="LOW",
        check=NOT_NULL,
        doc="The predicates' aliases.",
    ),
)
TYPE: Final = ConfigKey(name="type", type="STRING", importance="HIGH", check=NOT_NULL, doc="The class.")
IMPLICIT: Final = (
    ConfigKey(
        name="predicate",
        type="STRING",
        default=None,
        doc="The alias of the predicate that says which records are transformed.",
    ),
    ConfigKey(
        name="negate",
        type="BOOLEAN",
        default=False,
        doc="Whether those are transformed for which the predicate does not hold.",
    ),
)
"""What every transform has beside its own keys."""
_ALIKE: Final = 0.85
"""How near a word must be to be taken for a slip of the pen: transform, tranforms, predicate."""


class Stage(NamedTuple):
    """One transform, and when it is applied.

    Args:
        alias: its name in the configuration.
        kind: its class, as the configuration names it.
        transform: the transform.
        predicate: which records it is for; None for all.
        negate: whether it is for those for which the predicate does not hold.
        predicate_alias: the predicate's name in the configuration.
    """

    alias: str
    kind: str
    transform: Transform
    predicate: Predicate | None = None
    negate: bool = False
    predicate_alias: str | None = None


def read_stages(config: Mapping[str, Any], mode: Mode) -> list[Stage]:
    """Make the stages that a configuration names.

    Args:
        config: a connector's configuration, whole or in part.
        mode: see :meth:`~headerware.connect.pipeline.Pipeline.from_config`.

    Raises:
        ConnectConfigError: it cannot work; ``path`` is the whole key.
    """
    aliases = _aliases(config, mode)
    if mode == STRICT:
        _refuse_slips(config)
    transforms = _lines(config, TRANSFORMS, aliases[TRANSFORMS], mode)
    predicates = _lines(config, PREDICATES, aliases[PREDICATES], mode)
    with ExitStack() as made:
        tests = {alias: _predicate(alias, lines, mode, made) for alias, lines in predicates.items()}
        stages = [_stage(alias, lines, tests, mode, made) for alias, lines in transforms.items()]
        if mode == STRICT:
            _refuse_unused(tests, stages)
        made.pop_all()
    return stages


def _aliases(config: Mapping[str, Any], mode: Mode) -> dict[str, list[str]]:
    given = {name: config[name] for name in (TRANSFORMS, PREDICATES) if name in config}
    found = ConfigDef(*NAMES).parse(given, mode)
    for name, aliases in found.items():
        if len(set(aliases)) < len(aliases):
            raise ConnectConfigError("an alias stands there twice", path=name)
        if "" in aliases:
            raise ConnectConfigError("an alias is empty", path=name)
    return found


def _refuse_slips(config: Mapping[str, Any]) -> None:
    """Refuse keys that look like ours: a slip of the pen must not leave what is secret unmasked."""
    for key in config:
        root = key.partition(".")[0]
        if root not in {TRANSFORMS, PREDICATES} and (
            near := get_close_matches(root.lower(), (TRANSFORMS, PREDICATES), n=1, cutoff=_ALIKE)
        ):
            raise ConnectConfigError(f"did you mean {near[0]}{key.removeprefix(root)}?", path=key)


def _lines(config: Mapping[str, Any], root: str, aliases: Iterable[str], mode: Mode) -> dict[str, Lines]:
    """Return each alias its lines, without the prefix."""
    found: dict[str, Lines] = {alias: {} for alias in aliases}
    for key, value in config.items():
        if not key.startswith(f"{root}."):
            continue
        owners = [alias for alias in found if key.startswith(f"{root}.{alias}.")]
        if mode == STRICT:
            # An alias may begin with another one and a dot.
            owners = sorted(owners, key=len)[-1:] or _no_owner(key, root, found)
        for alias in owners:
            found[alias][key.removeprefix(f"{root}.{alias}.")] = value
    return found


def _no_owner(key: str, root: str, aliases: Iterable[str]) -> list[str]:
    known = list(aliases)
    near = get_close_matches(key.split(".")[1], known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ConnectConfigError(
        f"this belongs to none of the aliases in {root!r}; {hint}there are: {', '.join(known) or 'none'}",
        path=key,
    )


def _predicate(alias: str, lines: Lines, mode: Mode, made: ExitStack) -> Predicate:
    prefix = f"{PREDICATES}.{alias}"
    _, predicate = _made(predicate_type, prefix, lines, mode)
    made.callback(predicate.close)
    return predicate


def _stage(alias: str, lines: Lines, tests: dict[str, Predicate], mode: Mode, made: ExitStack) -> Stage:
    prefix = f"{TRANSFORMS}.{alias}"
    implicit = {key.name: lines.pop(key.name) for key in IMPLICIT if key.name in lines}
    options = _parsed(ConfigDef(*IMPLICIT), implicit, prefix, mode)
    name, negate = options["predicate"], options["negate"]
    if name is None and "negate" in implicit:
        raise ConnectConfigError("there is no predicate that this could negate", path=f"{prefix}.negate")
    if name is not None and name not in tests:
        raise ConnectConfigError(
            f"there is no predicate {name!r}; there are: {', '.join(tests) or 'none'}",
            path=f"{prefix}.predicate",
        )
    kind, transform = _made(transform_type, prefix, lines, mode)
    made.callback(transform.close)
    if mode == STRICT and name is None and isinstance(transform, Filter):
        raise ConnectConfigError("this would drop every record; give it a predicate", path=prefix)
    return Stage(alias, kind, transform, None if name is None else tests[name], bool(negate), name)


def _made(catalogue: Catalogue[Kind], prefix: str, lines: Lines, mode: Mode) -> tuple[str, Kind]:
    """Take the class out of the lines, and give its name, and one of its objects."""
    named = {TYPE.name: lines.pop(TYPE.name)} if TYPE.name in lines else {}
    kind = named.get(TYPE.name)
    if kind is None or isinstance(kind, str):
        kind = _parsed(ConfigDef(TYPE), named, prefix, mode)[TYPE.name]
    found = catalogue(kind, path=f"{prefix}.{TYPE.name}", mode=mode)
    if not isinstance(kind, str):
        kind = f"{found.__module__}.{found.__qualname__}"
    try:
        return kind, found(lines, mode=mode)
    except ConnectConfigError as error:
        raise _at(error, prefix) from error
    except Exception as error:
        problem = str(error) if isinstance(error, HeaderwareError) else type(error).__name__
        raise ConnectConfigError(f"{kind} cannot be made: {problem}", path=prefix) from error


def _parsed(keys: ConfigDef, given: Lines, prefix: str, mode: Mode) -> Lines:
    try:
        return keys.parse(given, mode)
    except ConnectConfigError as error:
        raise _at(error, prefix) from error


def _at(error: ConnectConfigError, prefix: str) -> ConnectConfigError:
    """Return the error with the whole key."""
    path = f"{prefix}.{error.path}" if error.path else prefix
    return ConnectConfigError(str(error).removeprefix(f"{error.path}: "), path=path)


def _refuse_unused(tests: Iterable[str], stages: Iterable[Stage]) -> None:
    used = {stage.predicate_alias for stage in stages}
    for alias in tests:
        if alias not in used:
            raise ConnectConfigError(
                f"no transform uses predicate {alias!r}: add predicate={alias} to one, or take it out",
                path=f"{PREDICATES}.{alias}",
            )
