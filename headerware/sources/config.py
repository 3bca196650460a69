"""The configuration of a source, which is the same for all runtimes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

import msgspec
from msgspec import NODEFAULT
from msgspec.structs import fields, force_setattr

from headerware.core.errors import ConfigError, SourceError
from headerware.core.options import kinds, options_from
from headerware.core.topics import is_topic_name
from headerware.sources.extractor import extractor_from, extractor_type
from headerware.sources.source import Source, source_type
from headerware.sources.transformers import Transformers, transformer_type

if TYPE_CHECKING:
    from headerware.sources.source import ItemContext

OnError = Literal["raise", "skip", "drop", "dead_letter"]
Distribution = Literal["hash", "partition", "all"]

_SOURCE_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_MAX_TOPIC: Final = 249
_PARTITION: Final = re.compile(r"0*([0-9]{1,10})")
_MAX_PARTITION: Final = (1 << 31) - 1
_MAX_SHOWN: Final = 40
"""How many characters of a wrong topic or partition an error shows."""
_VARIABLE: Final = re.compile(r"\{([^{}]*)\}")
_VARIABLES: Final = ("name", "source", "topic", "partition")
_MINIMUMS: Final[Mapping[str, float]] = {
    "ring_buffer": 0,
    "rescan_interval_s": 0,
    "listing_pause_s": 0.01,
    "queue_records": 1,
    "queue_bytes": 1,
    "poll_records": 1,
    "poll_bytes": 1,
    "poll_wait_s": 0,
    "tasks": 1,
    "retry_deadline_s": 0,
    "retry_pause_s": 0.001,
    "retry_max_pause_s": 0.001,
}
_WAITS: Final = ("rescan_interval_s", "listing_pause_s", "poll_wait_s", "retry_max_pause_s")
"""The options that are waited for; the standard library cannot wait for longer than TIMEOUT_MAX."""


class SourceConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a source: what to read, how, and which topic to write.

    Args:
        name: the name under which the offsets are stored; a source with another name begins at the start.
        source: the source: a :class:`Source`, or a table of ``type`` and its options.
        extractor: the extractor that makes records of an object: an :class:`Extractor`, or a table of
            ``type`` and its options. Some sources have their own.
        topic: the topic, as a template. ``{topic}`` and ``{partition}`` stand for the item's hints,
            ``{source}`` for the source's type, ``{name}`` for the option ``name``, and other variables for
            named groups of ``key_pattern``.
        partition: the partition, as a number or a template such as ``{partition}``, with the variables of
            ``topic``. If None, the item's hint decides; without a hint, the partitioner.
        key_pattern: a regular expression that must match the complete text of the key; its named groups are
            variables for ``topic`` and ``partition``, so they have other names than the variables above. A
            key that does not match is an error of the object.
        transformers: native transformers, in order.
        headers: whether records get ``hw.source``, ``hw.source.key``, ``hw.source.record`` and
            ``content-type``.
        start_key: the first key, as text; None begins with the first object.
        ring_buffer: how many keys of completely read objects are remembered. A listing begins at the oldest
            of these keys, so that later keys are found even if their objects come late. 0 lists everything.
        rescan_interval_s: how often everything is listed, in seconds, to find late objects with earlier keys;
            0 means never.
        listing_pause_s: the longest pause between two listings that find no new object, in seconds.
        queue_records: how many records may wait for a poll.
        queue_bytes: how many bytes of records may wait for a poll, by the extractor's estimate.
        poll_records: how many records a poll returns at most.
        poll_bytes: how many bytes of records a poll returns at most; a larger record is returned alone.
        poll_wait_s: how long a poll waits for a record, in seconds.
        tasks: how many tasks share the source.
        distribution: how the tasks share the objects. ``hash``: by a hash of the key. ``partition``: by the
            item's partition, or by a hash of the key if the item has none. ``all``: one task reads all
            objects, for a source that must not be divided; ``tasks`` must be 1.
        retry_deadline_s: how long listing and opening are tried again, in seconds; 0 means never. Other
            objects are read in the meantime, unless ``on_object_error`` is ``raise``.
        retry_pause_s: the first pause between attempts, in seconds; each pause is twice as long as the last.
        retry_max_pause_s: the longest pause, in seconds.
        on_record_error: how a record that cannot be read is treated: ``raise`` stops the source, ``skip``
            logs and skips the record, ``drop`` only counts it, ``dead_letter`` publishes the object's key and
            the record's number.
        on_object_error: how an object that cannot be read or ends too early is treated. ``raise`` stops the
            source. ``skip`` logs the error, and tries the object again with a later listing. ``drop`` gives
            the object up until it changes. ``dead_letter`` does the same, and publishes the object's key and
            the number of the missing record.
        dead_letter_topic: the topic for dead letters; ``{topic}`` stands for the topic of the records, and is
            the only variable.

    Raises:
        ConfigError: an option cannot work, or the source sets the option itself.
    """

    name: str
    source: Annotated[Any, kinds(source_type)]
    extractor: Annotated[Any, kinds(extractor_type)] = None
    topic: str = "{topic}"
    partition: str | int | None = None
    key_pattern: str | None = None
    transformers: list[Annotated[Any, kinds(transformer_type)]] = []
    headers: bool = True
    start_key: str | None = None
    ring_buffer: int = 1_000
    rescan_interval_s: float = 3_600.0
    listing_pause_s: float = 5.0
    queue_records: int = 10_000
    queue_bytes: int = 64 << 20
    poll_records: int = 500
    poll_bytes: int = 8 << 20
    poll_wait_s: float = 1.0
    tasks: int = 1
    distribution: Distribution = "hash"
    retry_deadline_s: float = 300.0
    retry_pause_s: float = 0.5
    retry_max_pause_s: float = 30.0
    on_record_error: OnError = "raise"
    on_object_error: OnError = "raise"
    dead_letter_topic: str = "{topic}.dead-letter"

    @classmethod
    def from_table(cls, table: Mapping[str, Any], *, path: str = "", folder: str | None = None) -> Self:
        """Return the configuration in a table of a TOML file, or in a similar mapping.

        Args:
            table: the options; ``${env:NAME}`` is replaced.
            path: the table's path, for errors.
            folder: the folder of relative paths; None means the working directory.

        Raises:
            ConfigError: an option is unknown, or cannot work.
        """
        if "interceptors" in table:
            raise ConfigError(
                "expected the configuration of a source, found a chain; name a chain's file in the table "
                '"kafka" of the source: "headerware.config" = "chain.toml"',
                path=f"{path}.interceptors" if path else "interceptors",
            )
        made = options_from(table, cls, what="source configuration", path=path, folder=folder)
        for option in made.source.fixed:
            if option in table:
                raise _set_by_source_error(made.source, f"{path}.{option}" if path else option)
        return made

    def __post_init__(self) -> None:
        """Apply the options that the source sets, and refuse options that cannot work."""
        if not _SOURCE_NAME.fullmatch(self.name):
            raise ConfigError(
                "expected 1 to 249 letters, digits, '.', '_' and '-', found another name", path="name"
            )
        if not isinstance(self.source, Source):
            raise ConfigError(
                f"expected a Source, found {type(self.source).__name__}; a TOML file needs a table with "
                'type = "..."',
                path="source",
            )
        if self.extractor is not None:
            force_setattr(self, "extractor", extractor_from(self.extractor))
        self._apply_fixed()
        if self.extractor is None:
            raise ConfigError("this source needs an extractor, found none; name one", path="extractor")
        self._check_numbers()
        if self.distribution == "all" and self.tasks > 1:
            raise ConfigError(
                "'all' does not divide the source, and no object may be read twice; use 'hash', or one task",
                path="distribution",
            )
        if self.start_key is not None:
            self.first_key()
        self._check_templates()
        self.new_transformers()  # only to check their options and types

    def __repr__(self) -> str:
        """Show the name only, because some options may be secret."""
        return f"{type(self).__name__}(name={self.name!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Show only the name in rich's tracebacks too."""
        return [("name", self.name)]

    def first_key(self) -> Any:
        """Return the configured start key, or None.

        Raises:
            ConfigError: the source has no key serde, or the text is not a key.
        """
        if self.start_key is None:
            return None
        if self.source.keys is None:
            raise ConfigError(
                f"the source {self.source.type!r} cannot read keys from text; leave start_key out",
                path="start_key",
            )
        try:
            return self.source.keys.from_text(self.start_key)
        except SourceError as error:
            raise ConfigError(str(error), path="start_key") from error

    def new_transformers(self) -> Transformers:
        """Return new transformers; the caller initializes them."""
        return Transformers(self.transformers, given=self.extractor.gives)

    def key_text(self, key: Any) -> str:
        """Return a key as text, from the source's key serde if it has one, else from ``str``."""
        return self.source.keys.to_text(key) if self.source.keys is not None else str(key)

    def route(self, context: ItemContext) -> tuple[str, int | None]:
        """Return the topic and the partition of an object's records.

        Raises:
            SourceError: the key does not match the pattern, a variable has no value, or the result is not the
                name of a topic or the number of a partition.
        """
        built_in = (self.name, self.source.type, context.topic, context.partition)
        values = dict[str, Any](zip(_VARIABLES, built_in, strict=True))
        if self.key_pattern is not None:
            found = re.fullmatch(self.key_pattern, self.key_text(context.key))
            if found is None:
                raise SourceError("expected a key that key_pattern matches completely, found another")
            values |= {group: text for group, text in found.groupdict().items() if text is not None}
        topic = _fill_template(self.topic, values, "topic")
        if not is_topic_name(topic):
            raise SourceError(
                f"the template topic gives {topic[:_MAX_SHOWN]!r}, expected the name of a topic"
            )
        if problem := self._dead_letter_problem(topic):
            raise SourceError(f"dead_letter_topic: {problem}")
        if self.partition is None:
            return topic, context.partition
        if isinstance(self.partition, int):
            return topic, self.partition
        text = _fill_template(self.partition, values, "partition")
        number = _partition_of(text)
        if number is None:
            raise SourceError(
                f"the template partition gives {text[:_MAX_SHOWN]!r}, expected decimal digits of a number up "
                f"to {_MAX_PARTITION}"
            )
        return topic, number

    def _apply_fixed(self) -> None:
        options = {option.name: option for option in fields(type(self)) if not option.required}
        for name, fixed in self.source.fixed.items():
            if name not in options:
                raise ConfigError(
                    f"the source {self.source.type!r} sets this, but it is not an option", path=name
                )
            value = extractor_from(fixed) if name == "extractor" else fixed
            option, given = options[name], getattr(self, name)
            default = option.default if option.default_factory is NODEFAULT else option.default_factory()
            if given not in (default, value):  # a changed copy has the source's value already
                raise _set_by_source_error(self.source, name)
            force_setattr(self, name, value)

    def _check_numbers(self) -> None:
        for option, least in _MINIMUMS.items():
            if not getattr(self, option) >= least:  # nan is not
                raise ConfigError(f"expected at least {least}, found {getattr(self, option)}", path=option)
        for option in _WAITS:
            if getattr(self, option) > TIMEOUT_MAX:
                raise ConfigError(
                    f"expected at most {TIMEOUT_MAX:.0f} seconds, found {getattr(self, option):g}",
                    path=option,
                )
        if self.retry_pause_s > self.retry_max_pause_s:
            raise ConfigError(
                f"expected at most retry_max_pause_s = {self.retry_max_pause_s}, found {self.retry_pause_s}",
                path="retry_pause_s",
            )
        if self.poll_records > self.queue_records:
            raise ConfigError(
                f"expected at most queue_records = {self.queue_records}, found {self.poll_records}",
                path="poll_records",
            )

    def _check_templates(self) -> None:
        try:
            groups = re.compile(self.key_pattern or "").groupindex
        except re.error as error:
            raise ConfigError(f"expected a regular expression: {error}", path="key_pattern") from None
        for group in groups:
            if group in _VARIABLES:
                raise ConfigError(
                    f"expected groups with other names than the variables {', '.join(_VARIABLES)}, found "
                    f"{group!r}; rename the group",
                    path="key_pattern",
                )
        variables = (*_VARIABLES, *groups)
        _check_topic("topic", self.topic, variables)
        _check_topic("dead_letter_topic", self.dead_letter_topic, ("topic",))
        if problem := self._dead_letter_problem(self.name):  # the topic of an object without a topic
            raise ConfigError(problem, path="dead_letter_topic")
        if isinstance(self.partition, str):
            if _partition_of(_filled_for_check("partition", self.partition, variables)) is None:
                raise ConfigError(
                    "expected decimal digits and variables, which together give a number up to "
                    f"{_MAX_PARTITION}, found another template",
                    path="partition",
                )
        elif self.partition is not None and not 0 <= self.partition <= _MAX_PARTITION:
            raise ConfigError(
                f"expected a number from 0 to {_MAX_PARTITION}, found {self.partition}", path="partition"
            )

    def _dead_letter_problem(self, topic: str) -> str | None:
        """Return why a topic's dead letters cannot have a topic of their own, or None."""
        size = len(self.dead_letter_topic.replace("{topic}", topic))
        if size <= _MAX_TOPIC or "dead_letter" not in (self.on_record_error, self.on_object_error):
            return None
        return f"expected names of up to {_MAX_TOPIC} characters, found one of {size}"


def _set_by_source_error(source: Source[Any], path: str) -> ConfigError:
    return ConfigError(f"the source {source.type!r} sets this option itself; remove it", path=path)


def _check_topic(option: str, template: str, variables: Sequence[str]) -> None:
    if not is_topic_name(_filled_for_check(option, template, variables)):
        raise ConfigError(
            "expected letters, digits, '.', '_', '-' and variables, which together give the name of a topic, "
            "found another template",
            path=option,
        )


def _filled_for_check(option: str, template: str, variables: Sequence[str]) -> str:
    """Return the template with a digit for each variable; refuse unknown variables and other braces."""
    filled = _VARIABLE.sub("0", template)
    if not set("{}").isdisjoint(filled):
        raise ConfigError("expected braces only around variables, found another brace", path=option)
    for variable in _VARIABLE.findall(template):
        if variable not in variables:
            raise ConfigError(f"unknown variable {{{variable}}}; known: {', '.join(variables)}", path=option)
    return filled


def _partition_of(text: str) -> int | None:
    """Return the partition that a text of decimal digits names, or None for any other text."""
    found = _PARTITION.fullmatch(text)
    return int(found[1]) if found and int(found[1]) <= _MAX_PARTITION else None


def _fill_template(template: str, values: Mapping[str, Any], option: str) -> str:
    def value_of(variable: re.Match[str]) -> str:
        value = values.get(variable[1])
        if value is None:
            raise SourceError(
                f"the template {option} needs {{{variable[1]}}}, which the object does not have"
            )
        return str(value)

    return _VARIABLE.sub(value_of, template)
