"""A connector's list of transforms, with their predicates (KIP-66, KIP-585).

transforms=mask,route                        the aliases, in order
transforms.mask.type=...MaskField$Value      the class
transforms.mask.fields=ssn                   its own keys
transforms.mask.predicate=isUser             transform only records for which this predicate holds,
transforms.mask.negate=true                  or for which it does not hold
predicates=isUser
predicates.isUser.type=...TopicNameMatches
predicates.isUser.pattern=user-.*
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Final, NamedTuple, Self, TypeVar

from msgspec.structs import replace

from headerware.connect.catalogue import Catalogue
from headerware.connect.config import NOT_NULL, ConfigDef, ConfigKey, Configured
from headerware.connect.errors import ConnectConfigError, ConnectError
from headerware.connect.modes import STRICT, Mode
from headerware.connect.predicates.base import Predicate
from headerware.connect.predicates.catalogue import predicate_type
from headerware.connect.records import ConnectRecord
from headerware.connect.transforms.base import Transform
from headerware.connect.transforms.catalogue import transform_type
from headerware.connect.transforms.filter import Filter
from headerware.core.closing import Closing
from headerware.core.errors import HeaderwareError, raised_at
from headerware.core.suggestions import closest, did_you_mean

_Kind = TypeVar("_Kind", bound=Configured)
_Lines = dict[str, Any]

_TRANSFORMS: Final = "transforms"
_PREDICATES: Final = "predicates"
_NAMES: Final = (
    ConfigKey(
        name=_TRANSFORMS,
        type="LIST",
        default=[],
        importance="LOW",
        check=NOT_NULL,
        doc="The transforms' aliases, in the order in which they are applied.",
    ),
    ConfigKey(
        name=_PREDICATES,
        type="LIST",
        default=[],
        importance="LOW",
        check=NOT_NULL,
        doc="The predicates' aliases.",
    ),
)
_TYPE: Final = ConfigKey(name="type", type="STRING", importance="HIGH", check=NOT_NULL, doc="The class.")
_IMPLICIT: Final = (
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
        doc="Whether to transform the records for which the predicate does not hold.",
    ),
)
"""The keys that every transform has in addition to its own."""
_ALIKE: Final = 0.85
"""How similar a word must be to count as a typing error: transform, tranforms, predicate."""


class Stage(NamedTuple):
    """One transform and its condition.

    Args:
        alias: its name in the configuration.
        kind: its class, by the name in the configuration.
        transform: the transform.
        predicate: holds for the records that are transformed; None for all records.
        negate: whether to transform the records for which the predicate does not hold.
        predicate_alias: the predicate's name in the configuration.
    """

    alias: str
    kind: str
    transform: Transform
    predicate: Predicate | None = None
    negate: bool = False
    predicate_alias: str | None = None


class StageError(ConnectError):
    """A transform or its predicate failed on a record.

    Args:
        message: the problem, without any payload.
        alias: the transform's alias.
        transform: its class, as configuration names it.
        java: the exception that Kafka Connect raises in this case.
    """

    def __init__(self, message: str, *, alias: str = "", transform: str = "", java: str = "") -> None:
        super().__init__(message)
        self.alias: str = alias
        self.transform: str = transform
        self.java: str = java or ConnectError.java  # type: ignore[misc]  # of the cause, not of the class


class Pipeline(Closing):
    """Apply transforms to records, one after the other.

    Args:
        stages: the transforms, in order; :meth:`from_config` makes them from a connector's configuration.

    Safe for use by several threads at once if the transforms and predicates are; ours are. Close it once at
    the end, or use it in a ``with`` statement.
    """

    def __init__(self, stages: Iterable[Stage]) -> None:
        self.stages: Final[tuple[Stage, ...]] = tuple(stages)
        self._steps: Final = [
            (
                None if stage.predicate is None else stage.predicate.test,
                stage.negate,
                stage.transform.apply,
                stage,
            )
            for stage in self.stages
        ]
        self._open: Final = ExitStack()
        parts = [part for stage in self.stages for part in (stage.transform, stage.predicate)]
        for part in {id(part): part for part in parts if part is not None}.values():
            self._open.callback(part.close)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, mode: Mode = STRICT) -> Self:
        """Make the transforms that a connector's configuration names.

        Args:
            config: ``transforms``, ``predicates`` and the keys below them, as text or as Python objects. A
                connector's other keys are ignored, so that its complete configuration can be given.
            mode: ``strict`` refuses a key below ``transforms.`` or ``predicates.`` that belongs to no alias,
                a predicate that no transform uses, a :class:`Filter` without a predicate, unknown keys, and
                keys that look like a typing error; ``kafka_4_3`` does not.

        Raises:
            ConnectConfigError: the configuration cannot work; ``path`` is the full key. Kafka wraps some of
                these in a ConnectException.
        """
        return cls(_read_stages(config, mode))

    def apply(self, record: Any) -> Any:
        """Return the transformed record, or None if a transform drops it.

        Args:
            record: a :class:`~headerware.connect.records.ConnectRecord`.

        Raises:
            StageError: a transform or predicate failed on it.
        """
        step = None
        try:
            for step in self._steps:
                test, negate, transform, _ = step
                if test is None or (not test(record)) is negate:
                    record = transform(record)
                    if record is None:
                        return None
        except Exception as error:
            if step is None:
                raise
            raise _stage_error(step[-1], error) from error
        if step is not None and not isinstance(record, ConnectRecord):
            problem = f"expected a record or None from apply(), found {type(record).__name__}"
            raise _stage_error(step[-1], ConnectError(problem))
        return record

    def config(self) -> tuple[ConfigKey, ...]:
        """Describe all keys of the configuration, by their full names."""
        found = [*_NAMES]
        for stage in self.stages:
            own = stage.transform.config(stage.transform.mode)
            found += _below(f"{_TRANSFORMS}.{stage.alias}", (_TYPE, *_IMPLICIT, *own))
        used = {stage.predicate_alias: stage.predicate for stage in self.stages}
        for alias, predicate in used.items():
            if predicate is not None:
                found += _below(f"{_PREDICATES}.{alias}", (_TYPE, *predicate.config(predicate.mode)))
        return tuple(found)

    def close(self) -> None:
        """Close every transform and predicate, each once; a second call does nothing."""
        self._open.close()


def _below(prefix: str, keys: Iterable[ConfigKey]) -> list[ConfigKey]:
    return [replace(key, name=f"{prefix}.{key.name}") for key in keys]


def _stage_error(stage: Stage, error: Exception) -> StageError:
    # The text of a foreign error may quote the record.
    problem = (
        str(error)
        if isinstance(error, HeaderwareError)
        else f"it raised {type(error).__name__}{raised_at(error)}"
    )
    return StageError(
        f"{_TRANSFORMS}.{stage.alias} ({stage.kind}): {problem}",
        alias=stage.alias,
        transform=stage.kind,
        java=getattr(error, "java", ""),
    )


def _read_stages(config: Mapping[str, Any], mode: Mode) -> list[Stage]:
    """Make the stages that a configuration names."""
    aliases = _aliases(config, mode)
    if mode == STRICT:
        _refuse_misspelt(config)
    transforms = _lines(config, _TRANSFORMS, aliases[_TRANSFORMS], mode)
    predicates = _lines(config, _PREDICATES, aliases[_PREDICATES], mode)
    with ExitStack() as made:
        tests = {alias: _predicate(alias, lines, mode, made) for alias, lines in predicates.items()}
        stages = [_stage(alias, lines, tests, mode, made) for alias, lines in transforms.items()]
        if mode == STRICT:
            _refuse_unused(tests, stages)
        made.pop_all()
    return stages


def _aliases(config: Mapping[str, Any], mode: Mode) -> dict[str, list[str]]:
    given = {name: config[name] for name in (_TRANSFORMS, _PREDICATES) if name in config}
    found = ConfigDef(*_NAMES).parse(given, mode)
    for name, aliases in found.items():
        if len(set(aliases)) < len(aliases):
            raise ConnectConfigError("an alias is listed twice", path=name)
        if "" in aliases:
            raise ConnectConfigError("an alias is empty", path=name)
    return found


def _refuse_misspelt(config: Mapping[str, Any]) -> None:
    """Refuse keys that look like a misspelt ``transforms`` or ``predicates``: secrets might stay unmasked."""
    for key in config:
        root = key.partition(".")[0]
        if root not in {_TRANSFORMS, _PREDICATES} and (
            near := closest(root.lower(), (_TRANSFORMS, _PREDICATES), cutoff=_ALIKE)
        ):
            meant = near + key.removeprefix(root)
            raise ConnectConfigError(f"unknown key{did_you_mean(meant, [meant])}", path=key)


def _lines(config: Mapping[str, Any], root: str, aliases: Iterable[str], mode: Mode) -> dict[str, _Lines]:
    """Return the lines of each alias, without the prefix."""
    found: dict[str, _Lines] = {alias: {} for alias in aliases}
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
    hint = did_you_mean(key.split(".")[1], known, then=f"there are: {', '.join(known) or 'none'}")
    raise ConnectConfigError(f"this belongs to none of the aliases in {root!r}{hint}", path=key)


def _predicate(alias: str, lines: _Lines, mode: Mode, made: ExitStack) -> Predicate:
    prefix = f"{_PREDICATES}.{alias}"
    _, predicate = _made(predicate_type, prefix, lines, mode)
    made.callback(predicate.close)
    return predicate


def _stage(alias: str, lines: _Lines, tests: dict[str, Predicate], mode: Mode, made: ExitStack) -> Stage:
    prefix = f"{_TRANSFORMS}.{alias}"
    implicit = {key.name: lines.pop(key.name) for key in _IMPLICIT if key.name in lines}
    options = _parsed(ConfigDef(*_IMPLICIT), implicit, prefix, mode)
    name, negate = options["predicate"], options["negate"]
    if name is None and "negate" in implicit:
        raise ConnectConfigError("there is no predicate to negate", path=f"{prefix}.negate")
    if name is not None and name not in tests:
        raise ConnectConfigError(
            f"there is no predicate {name!r}; there are: {', '.join(tests) or 'none'}",
            path=f"{prefix}.predicate",
        )
    kind, transform = _made(transform_type, prefix, lines, mode)
    made.callback(transform.close)
    if mode == STRICT and name is None and isinstance(transform, Filter):
        raise ConnectConfigError("a Filter without a predicate would drop every record; add one", path=prefix)
    return Stage(alias, kind, transform, None if name is None else tests[name], bool(negate), name)


def _made(catalogue: Catalogue[_Kind], prefix: str, lines: _Lines, mode: Mode) -> tuple[str, _Kind]:
    """Take the class out of the lines, and return its name and an instance."""
    named = {_TYPE.name: lines.pop(_TYPE.name)} if _TYPE.name in lines else {}
    kind = named.get(_TYPE.name)
    if kind is None or isinstance(kind, str):
        kind = _parsed(ConfigDef(_TYPE), named, prefix, mode)[_TYPE.name]
    found = catalogue(kind, path=f"{prefix}.{_TYPE.name}", mode=mode)
    if not isinstance(kind, str):
        kind = f"{found.__module__}.{found.__qualname__}"
    try:
        return kind, found(lines, mode=mode)
    except ConnectConfigError as error:
        raise _at(error, prefix) from error
    except Exception as error:
        problem = str(error) if isinstance(error, HeaderwareError) else type(error).__name__
        raise ConnectConfigError(f"{kind} cannot be created: {problem}", path=prefix) from error


def _parsed(keys: ConfigDef, given: _Lines, prefix: str, mode: Mode) -> _Lines:
    try:
        return keys.parse(given, mode)
    except ConnectConfigError as error:
        raise _at(error, prefix) from error


def _at(error: ConnectConfigError, prefix: str) -> ConnectConfigError:
    """Return the error with the full key as its path."""
    path = f"{prefix}.{error.path}" if error.path else prefix
    return ConnectConfigError(str(error).removeprefix(f"{error.path}: "), path=path)


def _refuse_unused(tests: Iterable[str], stages: Iterable[Stage]) -> None:
    used = {stage.predicate_alias for stage in stages}
    for alias in tests:
        if alias not in used:
            raise ConnectConfigError(
                f"no transform uses predicate {alias!r}: add predicate={alias} to one, or remove it",
                path=f"{_PREDICATES}.{alias}",
            )
