"""A connector's list of transforms, with their predicates (KIP-66, KIP-585).

transforms=mask,route                        the aliases, in order
transforms.mask.type=...MaskField$Value      the class
transforms.mask.fields=ssn                   its own keys
transforms.mask.predicate=isUser             apply it where this predicate holds,
transforms.mask.negate=true                  or does not
predicates=isUser
predicates.isUser.type=...TopicNameMatches
predicates.isUser.pattern=user-.*
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Final, Self

from msgspec.structs import replace

from headerware.connect.config import ConfigKey
from headerware.connect.errors import ConnectError
from headerware.connect.modes import STRICT, Mode
from headerware.connect.pipeline_config import (
    IMPLICIT,
    NAMES,
    PREDICATES,
    TRANSFORMS,
    TYPE,
    Stage,
    read_stages,
)
from headerware.connect.predicates.base import Predicate
from headerware.connect.records import ConnectRecord
from headerware.core.errors import HeaderwareError, raised_at

__all__ = ["Pipeline", "Stage", "StageError"]


class StageError(ConnectError):
    """A record that one of the transforms, or its predicate, could not take.

    Args:
        message: what was wrong, without any payload.
        alias: the transform's alias.
        transform: its class, as configuration names it.
        java: the exception that Kafka Connect raises there.
    """

    def __init__(self, message: str, *, alias: str = "", transform: str = "", java: str = "") -> None:
        super().__init__(message)
        self.alias: str = alias
        self.transform: str = transform
        self.java: str = java or ConnectError.java  # type: ignore[misc]  # of the cause, not of the class


class Pipeline:
    """Put records through transforms, one after the other.

    Args:
        stages: the transforms, in order; :meth:`from_config` makes them of a connector's own lines.

    Safe for use by several threads at once where the transforms and predicates are; ours are. Close it once
    at the end, or use it in a ``with`` statement.
    """

    def __init__(self, stages: Iterable[Stage]) -> None:
        self.stages: Final[tuple[Stage, ...]] = tuple(stages)
        self._steps: Final = [
            (_test(stage.predicate), stage.negate, stage.transform.apply, stage) for stage in self.stages
        ]
        self._open: Final = ExitStack()
        parts = [part for stage in self.stages for part in (stage.transform, stage.predicate)]
        for part in {id(part): part for part in parts if part is not None}.values():
            self._open.callback(part.close)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, mode: Mode = STRICT) -> Self:
        """Make the transforms that a connector's configuration names.

        Args:
            config: ``transforms``, ``predicates`` and what stands below them, as text or as Python has it. A
                connector's other keys are passed over, so that all of it can be given.
            mode: ``strict`` refuses a key below ``transforms.`` or ``predicates.`` that belongs to no alias,
                a predicate that no transform uses, a :class:`Filter` without a predicate, keys that nobody
                knows, and those that look like a slip of the pen; ``kafka_4_3`` does not.

        Raises:
            ConnectConfigError: the configuration cannot work; ``path`` is the whole key. Kafka wraps some of
                these in a ConnectException.
        """
        return cls(read_stages(config, mode))

    def apply(self, record: Any) -> Any:
        """Return what the transforms make of a record, or None where one drops it.

        Args:
            record: a :class:`~headerware.connect.records.ConnectRecord`.

        Raises:
            StageError: a transform or predicate could not take it.
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
            problem = TypeError(f"gave a {type(record).__name__} in place of a record")
            raise _stage_error(step[-1], problem)
        return record

    def config(self) -> tuple[ConfigKey, ...]:
        """Describe all keys of the configuration, by their whole names."""
        found = [*NAMES]
        for stage in self.stages:
            own = stage.transform.config(stage.transform.mode)
            found += _below(f"{TRANSFORMS}.{stage.alias}", (TYPE, *IMPLICIT, *own))
        used = {stage.predicate_alias: stage.predicate for stage in self.stages}
        for alias, predicate in used.items():
            if predicate is not None:
                found += _below(f"{PREDICATES}.{alias}", (TYPE, *predicate.config(predicate.mode)))
        return tuple(found)

    def close(self) -> None:
        """Close every transform and predicate, each once; a second call does nothing."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _test(predicate: Predicate | None) -> Callable[[Any], bool] | None:
    return None if predicate is None else predicate.test


def _below(prefix: str, keys: Iterable[ConfigKey]) -> list[ConfigKey]:
    return [replace(key, name=f"{prefix}.{key.name}") for key in keys]


def _stage_error(stage: Stage, error: Exception) -> StageError:
    # The text of an error that is not ours may quote the record.
    problem = (
        str(error)
        if isinstance(error, HeaderwareError)
        else f"it raised {type(error).__name__}{raised_at(error)}"
    )
    return StageError(
        f"{TRANSFORMS}.{stage.alias} ({stage.kind}): {problem}",
        alias=stage.alias,
        transform=stage.kind,
        java=getattr(error, "java", ""),
    )
