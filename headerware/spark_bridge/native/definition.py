"""The definition of a source in Spark: a file of the plain runtime, or a configuration made in code."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from headerware.core.config import is_ours
from headerware.core.errors import ConfigError
from headerware.core.hooks import Place, Stage, label
from headerware.core.order import place_of, stage_of
from headerware.core.toml import naming_lines, within_file
from headerware.sources.config import SourceConfig
from headerware.sources.toml_files import read_source_file
from headerware.spark_bridge.chain_source import TaskSpec, chain_source, require_importable

_OF_THE_PLAIN_RUNTIME: Final = ("offsets", "delivery", "commit_interval_s", "commit_records")
_MAKES_BYTES: Final = (Place.TRANSFORM, Place.SERIALIZE)


class SourceDefinition(msgspec.Struct, frozen=True):
    """A source, sent to tasks as it is written, so that the tasks fill in ``${env:NAME}``.

    Args:
        table: the table of a TOML file without ``[kafka]``, or a configuration made in code.
        folder: the folder of relative paths.
        serializer: the pickled description of the steps that serialize objects; None if there are none.
    """

    table: dict[str, Any] | SourceConfig
    folder: str | None = None
    serializer: bytes | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of the plain runtime; its offsets and delivery are ignored here.

        Raises:
            ConfigError: the file cannot be read, or an option in it cannot work.
        """
        file = Path(path).absolute()
        texts: dict[str, str] = {}
        with naming_lines(texts):
            table = read_source_file(file, texts)
            kafka = table.pop("kafka")
            for option in _OF_THE_PLAIN_RUNTIME:
                table.pop(option, None)
            with within_file(file):
                name = cls(table, str(file.parent)).config().name
        return cls(table, str(file.parent), _serializer(kafka, name))

    @classmethod
    def of(cls, config: SourceConfig, kafka: Mapping[str, Any] | None = None) -> Self:
        """Return the definition of a configuration made in code, and of its ``[kafka]``.

        Raises:
            ConfigError: executors cannot import one of its classes, or ``kafka`` cannot work.
        """
        listed = [("transformers", each) for each in config.transformers]
        require_importable([("source", config.source), ("extractor", config.extractor), *listed])
        return cls(config, None, _serializer(dict(kafka or {}), config.name))

    def config(self) -> SourceConfig:
        """Return the configuration.

        Raises:
            ConfigError: an option is unknown or cannot work.
        """
        if isinstance(self.table, SourceConfig):
            return self.table
        return SourceConfig.from_table(self.table, folder=self.folder)


def _serializer(kafka: dict[str, Any], name: str) -> bytes | None:
    """Return the pickled task that serializes objects; raise if a step does anything else."""
    lines = {key: value for key, value in kafka.items() if is_ours(key)}
    if not lines:
        return None
    source, chain = chain_source(lines, "source")
    for step in chain:
        if place_of(step) not in _MAKES_BYTES and stage_of(step) is not Stage.OBJECTS:
            raise ConfigError(
                f"{label(step)!r} works on bytes, which is the work of encode() in Spark: give encode() a "
                "chain of its own, and leave only transforms, converters and 'serialize' here",
                path=f"kafka.interceptors.{label(step)}",
            )
    spec = TaskSpec(source=source, side="producer", job=name, typed=frozenset({"key", "value"}))
    return pickle.dumps(spec)
