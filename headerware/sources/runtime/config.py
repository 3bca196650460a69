"""The configuration of the plain runtime, in one TOML file.

    name = "orders"
    topic = "orders"
    extractor = "jsonl"

    [source]
    type = "files"
    folder = "incoming"

    [offsets]
    type = "topic"

    [kafka]                                     # the settings of the producers and their chain
    "bootstrap.servers" = "localhost:9092"
    "headerware.config" = "chain.toml"

``[kafka]``, ``[offsets]``, ``delivery`` and the two ``commit_`` options belong to the runtime; all other
options belong to the engine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import msgspec
from msgspec.structs import force_setattr

from headerware.core.errors import ConfigError
from headerware.core.options import kinds
from headerware.core.toml import naming_lines, within_file
from headerware.kafka.settings import dotted, number
from headerware.sources.config import SourceConfig
from headerware.sources.runtime.stores import OffsetStore, Sharing, offsets_type
from headerware.sources.runtime.topic_offsets import TRANSACTION_MS, TRANSACTION_TIMEOUT, TopicOffsets
from headerware.sources.toml_files import read_source_file, source_files

_SERVERS: Final = ("bootstrap.servers", "metadata.broker.list")


class RunConfig(SourceConfig, frozen=True, kw_only=True):
    """Hold the options of a source and of its delivery to Kafka.

    These options come in addition to the options of :class:`SourceConfig`.

    Args:
        kafka: the settings of the producers, together with the settings of a chain, and with a connector's
            properties for transforms and converters.
        offsets: the store of offsets: ``topic``, ``sqlite``, or a table of ``type`` and its options.
        delivery: ``exactly_once`` puts records and offsets into one transaction, and needs offsets in a
            topic of the same cluster; ``at_least_once`` stores offsets after the records, so a process that
            is killed sends some records again.
        commit_interval_s: how often offsets are stored, in seconds; with ``exactly_once``, how long a
            transaction is open and its records are invisible to consumers.
        commit_records: after how many records offsets are stored before the interval ends.
    """

    kafka: dict[str, Any] = msgspec.field(default_factory=dict)
    offsets: Annotated[Any, kinds(offsets_type)] = TopicOffsets()
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    commit_interval_s: float = 1.0
    commit_records: int = 20_000

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a TOML file, and ``kafka.toml`` in the same folder, if any; paths are relative to the folder.

        Raises:
            ConfigError: a file cannot be read, or an option is invalid.
        """
        texts: dict[str, str] = {}
        with naming_lines(texts):
            table = read_source_file(path, texts)
            with within_file(path):
                return cls.from_table(table, folder=str(Path(path).parent))

    @classmethod
    def load_all(cls, path: str | os.PathLike[str]) -> list[Self]:
        """Read the file of a source, or each ``*.toml`` of a folder except ``kafka.toml``, which they share.

        Raises:
            ConfigError: a file cannot be read, an option is invalid, or two sources have the same name.
        """
        made: dict[str, tuple[Path, Self]] = {}
        for file in source_files(path):
            loaded = cls.load(file)
            if loaded.name in made:
                raise ConfigError(
                    f"{made[loaded.name][0]} also has the name {loaded.name!r}; offsets are stored under the "
                    "name, so give each source another name",
                    path=str(file),
                )
            made[loaded.name] = file, loaded
        return [loaded for _, loaded in made.values()]

    def __post_init__(self) -> None:
        """Check the options of the runtime."""
        SourceConfig.__post_init__(self)
        force_setattr(self, "kafka", dotted(self.kafka))
        if not any(self.kafka.get(name) for name in _SERVERS):
            raise ConfigError("expected bootstrap.servers, found none", path="kafka")
        if not isinstance(self.offsets, OffsetStore):
            raise ConfigError(
                f"expected a store of offsets, found {type(self.offsets).__name__}", path="offsets"
            )
        if self.delivery == "exactly_once" and not self.offsets.transactional:
            raise ConfigError(
                f"offsets of type {self.offsets.type!r} cannot go into the transaction of the records; use "
                "offsets of type 'topic', or set delivery = 'at_least_once', which may send records twice",
                path="delivery",
            )
        if "transactional.id" in self.kafka:
            raise ConfigError(
                "a source derives its transactional ids from its name and its tasks; remove it",
                path="kafka.transactional.id",
            )
        for option in ("commit_interval_s", "commit_records"):
            if not getattr(self, option) > 0:  # false for NaN, too
                raise ConfigError(f"expected more than 0, found {getattr(self, option)}", path=option)
        if self.delivery == "exactly_once":
            self._check_transactions()
        self._check_queue()

    @property
    def sharing(self) -> Sharing:
        """Return how the tasks share the source."""
        return Sharing(self.tasks, self.distribution)

    def _check_transactions(self) -> None:
        """Refuse transactions that the brokers would abort if records came slowly."""
        open_s = self.commit_interval_s + self.poll_wait_s
        limit_s = number(self.kafka, TRANSACTION_TIMEOUT, TRANSACTION_MS) / 2_000
        if open_s > limit_s:
            longer = "commit_interval_s" if self.commit_interval_s > self.poll_wait_s else "poll_wait_s"
            raise ConfigError(
                f"a transaction is open for commit_interval_s + poll_wait_s; expected at most {limit_s:g} s, "
                f"half of the time after which brokers abort it, found {open_s:g} s; lower one of the two "
                f"options, or raise {TRANSACTION_TIMEOUT} of [kafka]",
                path=longer,
            )

    def _check_queue(self) -> None:
        """Refuse polls that do not fit half of the client's queue."""
        settings = ("queue.buffering.max.messages", "queue.buffering.max.kbytes")
        for option, setting, limit in zip(
            ("poll_records", "poll_bytes"), settings, queue_halves(self.kafka), strict=True
        ):
            found = getattr(self, option)
            if found > limit:
                raise ConfigError(
                    f"expected at most {limit}, found {found}; a poll must fit half of the client's queue, "
                    f"so lower this, or raise {setting} of [kafka]",
                    path=option,
                )


def queue_halves(kafka: Mapping[str, Any]) -> tuple[float, float]:
    """Return half of the records and half of the bytes that fit the client's queue."""
    records = number(kafka, "queue.buffering.max.messages", 100_000)
    return records // 2 or inf, number(kafka, "queue.buffering.max.kbytes", 1_048_576) * 512
