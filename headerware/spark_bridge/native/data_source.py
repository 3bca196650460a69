"""The data source of objects: what Spark's Python data source API asks for, and its options.

It runs a source, as `headerware source run` does: files, objects of a store, tables of SQL, answers of HTTP.
Their rows go to Kafka; Kafka itself is read by Spark's connector, see `kafka_source`.

    create        in a process of its own; reads the file, and is pickled
    plan, commit  in a process that lives as long as the query; the planner has its state there
    read          in the executors' tasks, from what is pickled

pyspark 4.0 and 4.1 ask for the latest offset without a start or a limit; later versions give both, and say
whether the query ends with the present objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headerware.core.errors import ConfigError
from headerware.core.suggestions import did_you_mean
from headerware.sources.config import SourceConfig
from headerware.spark_bridge.driver import driver_of
from headerware.spark_bridge.executors.shipping import spare_next_task
from headerware.spark_bridge.frames.schema import HEADERS
from headerware.spark_bridge.native.definition import SourceDefinition
from headerware.spark_bridge.native.manifests import ManifestFolder
from headerware.spark_bridge.native.planner import INITIAL, Limits, Planner, all_tasks
from headerware.spark_bridge.native.reading import SourcePartition, rows
from headerware.spark_bridge.session import speculates

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

if TYPE_CHECKING:

    class SupportsTriggerAvailableNow:
        """The base class, from pyspark 4.2 on, of sources that can end with the present objects."""
else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:
        SupportsTriggerAvailableNow = object


FORMAT: Final = "headerware-objects"
COLUMNS: Final = StructType([
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("headers", HEADERS),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("timestamp", TimestampType()),
])  # fmt: skip
"""The columns that Spark's Kafka connector writes, and ``timestamp``."""
_SIZES: Final = {
    "maxobjectspertrigger": "objects",
    "maxbytespertrigger": "size_bytes",
    "maxpartitionbytes": "partition_bytes",
    "minpartitions": "partitions",
}
_OPTIONS: Final = (
    "path",
    "source",
    "manifestLocation",
    "maxObjectsPerTrigger",
    "maxBytesPerTrigger",
    "maxPartitionBytes",
    "minPartitions",
)
_OPTIONS_OF_KAFKA: Final = ("kafka.", "subscribe", "assign", "startingoffsets", "endingoffsets")


def register_source(
    spark: SparkSession,
    *sources: SourceConfig,
    kafka: Mapping[str, Any] | None = None,
) -> None:
    """Register the format ``headerware-objects`` with a session; a second call replaces the first.

    The format reads what a source brings into Kafka: files, objects of a store, tables of SQL, answers of
    HTTP. It does not read Kafka, which is the work of :func:`kafka_source`.
    ``spark.readStream.format("headerware-objects")`` takes the file of a source:

        .option("manifestLocation", checkpoint + "/headerware-objects").load("orders.toml")

    Args:
        spark: the session.
        sources: sources made in code, each of which ``.option("source", name)`` finds by its name. Their
            classes must be in modules that executors can import.
        kafka: the table ``[kafka]`` of these sources, as in a file: transforms, converters and ``serialize``.

    Raises:
        ConfigError: an option cannot work, or two sources have the same name.
    """
    definitions: dict[str, SourceDefinition] = {}
    for source in sources:
        if source.name in definitions:
            raise ConfigError(f"there are two sources of the name {source.name!r}", path="sources")
        definitions[source.name] = SourceDefinition.of(source, kafka)
    made = type(
        "ObjectsSource",
        (ObjectsSource,),
        {
            "definitions": definitions,
            "parallelism": driver_of(spark).parallelism(),
            "speculates": speculates(spark),
            "__module__": __name__,
        },
    )
    spark.dataSource.register(made)


class ObjectsSource(DataSource):
    """The data source; :func:`register_source` makes a class of it that knows the session."""

    definitions: ClassVar[Mapping[str, SourceDefinition]] = {}
    parallelism: ClassVar[int] = 1
    speculates: ClassVar[bool] = False

    def __init__(self, options: dict[str, str]) -> None:
        """Read the file and the options, on the driver."""
        super().__init__(options)
        self.definition: Final[SourceDefinition] = _definition(options, self.definitions)
        self.limits: Final[Limits] = _limits(options, self.parallelism)
        self.location: Final[str | None] = options.get("manifestLocation")

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns."""
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of everything that the source lists now."""
        _require_columns(schema)
        return _BatchReader(self.definition, self.limits)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader of a stream."""
        _require_columns(schema)
        if not self.location:
            raise ConfigError(
                "expected a folder, in which a stream keeps which objects each batch has read; name a folder "
                "that lives as long as the checkpoint, such as one in the checkpoint",
                path="manifestLocation",
            )
        folder = ManifestFolder(self.location)
        return SourceStreamReader(self.definition, self.limits, folder, speculates=self.speculates)


class _BatchReader(DataSourceReader):
    """Read everything that a source lists now."""

    def __init__(self, definition: SourceDefinition, limits: Limits) -> None:
        self._definition: Final = definition
        self._limits: Final = limits

    def partitions(self) -> list[SourcePartition]:  # type: ignore[override,unused-ignore]  # a subclass
        """Return the tasks; if there are none, Spark calls ``read`` once with None."""
        return all_tasks(self._definition.config(), self._limits)

    def read(self, partition: SourcePartition | None) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """Yield the rows of a task."""
        return _task_rows(self._definition, partition, None)


class SourceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Read a stream of a source's objects."""

    def __init__(
        self,
        definition: SourceDefinition,
        limits: Limits,
        folder: ManifestFolder,
        *,
        speculates: bool = False,
    ) -> None:
        self._definition: Final = definition
        self._limits: Final = limits
        self._folder: Final = folder
        self._speculates: Final = speculates
        self._made: Planner | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset before the first batch."""
        return INITIAL

    def latestOffset(  # noqa: N802 - Spark's name
        self,
        start: dict[str, Any] | None = None,
        limit: Any = None,  # noqa: ARG002 - our own options are the limit
    ) -> dict[str, Any]:
        """Plan the next batch, and return the offset after it."""
        return self._planner.latest(start)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note that the query ends with the present objects."""
        self._planner.available_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[SourcePartition]:
        """Return the tasks between two offsets."""
        return self._planner.partitions(start, end)

    def read(self, partition: SourcePartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """Yield the rows of a task, on an executor."""
        return _task_rows(self._definition, partition, self._folder)

    def commit(self, end: dict[str, Any]) -> None:
        """Clean up after a batch."""
        self._planner.commit(end)

    def stop(self) -> None:
        """Close the source."""
        if self._made is not None:
            self._made.close()

    @property
    def _planner(self) -> Planner:
        if self._made is None:
            config = self._definition.config()
            self._made = Planner(config, self._folder, self._limits, speculates=self._speculates)
        return self._made


def _task_rows(
    definition: SourceDefinition, partition: SourcePartition | None, folder: ManifestFolder | None
) -> Iterator[pa.RecordBatch]:
    try:
        yield from rows(definition, [] if partition is None else partition.parts, folder)
    finally:
        spare_next_task()


def _definition(options: Mapping[str, str], definitions: Mapping[str, SourceDefinition]) -> SourceDefinition:
    known = {option.lower() for option in _OPTIONS}
    for option in options:
        if option.lower().startswith(_OPTIONS_OF_KAFKA):
            raise ConfigError(
                f"{FORMAT} reads files, objects, SQL tables and HTTP; Kafka is read by Spark's own "
                "connector: use kafka_source(spark.readStream, options)",
                path=option,
            )
        if option.lower() not in known:
            known_are = f"known: {', '.join(_OPTIONS)}"
            hint = did_you_mean(option, _OPTIONS, then=known_are)
            raise ConfigError(f"there is no such option{hint}", path=option)
    path, name = options.get("path"), options.get("source")
    if (path is None) == (name is None):
        raise ConfigError(
            'name either a file, as in .load("orders.toml"), or a registered source', path="path"
        )
    if path is not None:
        return SourceDefinition.load(path)
    if name is None or name not in definitions:
        raise ConfigError(
            f"register_source() was given no source of the name {name!r}; it has: "
            f"{', '.join(sorted(definitions)) or 'none'}",
            path="source",
        )
    return definitions[name]


def _limits(options: Mapping[str, str], parallelism: int) -> Limits:
    found: dict[str, int] = {"partitions": parallelism}
    for option in _OPTIONS:
        text, field = options.get(option), _SIZES.get(option.lower())
        if text is None or field is None:
            continue
        if not (text.isascii() and text.isdigit() and int(text)):
            raise ConfigError(f"expected a number from 1, found {text!r}", path=option)
        found[field] = int(text)
    return msgspec.convert(found, Limits)


def _require_columns(schema: StructType) -> None:
    if schema.names != COLUMNS.names:
        raise ConfigError(
            f"the columns are {', '.join(COLUMNS.names)}; leave .schema(...) out", path="schema"
        )
