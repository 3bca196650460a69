"""The description of a chain and a task that the driver sends to the executors; never an open chain.

A file or a mapping is sent as it is written, so that ``${env:NAME}`` is filled in on the executor, and key
files are not sent. A :class:`Chain` is sent with its options. If an executor does not have a file under its
path, it looks for a file of that name that Spark shipped to it (``--files``).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Collection, Mapping
from inspect import get_annotations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from headerware.core.chain import Chain
from headerware.core.client_chain import Side, is_disabled, what_is_left
from headerware.core.config import FILE, from_file, from_flat
from headerware.core.context import Context
from headerware.core.errors import ConfigError, HeaderwareError, KeyringError
from headerware.core.files import read_text
from headerware.core.hooks import HOOKS, Interceptor, Place, Role, Stage, label, states
from headerware.core.options import with_files
from headerware.core.order import idle_steps, place_of, role_of, stage_of
from headerware.interceptors.audit import Audit
from headerware.interceptors.claim_check import ClaimCheck
from headerware.interceptors.lineage import Lineage
from headerware.interceptors.metrics import Metrics
from headerware.interceptors.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


log: Final = logging.getLogger("headerware.spark_bridge")
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
ChainLike = Chain | Mapping[str, Any] | str | os.PathLike[str]
"""A chain made in code, a flat configuration such as a client's own, or a path to TOML."""
Failures = Literal["fail", "route"]
"""The treatment of a refused row: it fails the job, or is kept with a column ``failure``."""
Work = Literal["decode", "encode", "foreach_batch", "kafka_sink", "source"]
"""What the tasks do with a chain; the tasks of a source serialize objects."""
_READS: Final = frozenset({"decode", "foreach_batch"})
_WRITES: Final = frozenset({"encode", "kafka_sink", "source"})
CANNOT_WAIT: Final = "a task of Spark has no partition to pause"


class ChainSource(msgspec.Struct, frozen=True):
    """The source of a chain, to make it again elsewhere: a chain, a flat configuration or a TOML file."""

    chain: Chain | None = None
    config: dict[str, Any] | None = None
    path: str | None = None
    files: dict[str, str] = {}
    """The text of each TOML file that was read, by its path."""
    is_disabled: bool = False
    """Whether only the steps that serialize remain."""

    def load(self, found: Callable[[str], str] | None = None) -> Chain:
        """Make the chain; ``found`` returns the path to use for a file that an option names."""
        chain = what_is_left(self._made()) if self.is_disabled else self._made()
        if found is None:
            return chain
        steps = [with_files(step, found) if isinstance(step, msgspec.Struct) else step for step in chain]
        return Chain(steps, carry=chain.carry)

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that differ between configurations and reveal nothing about them."""
        if self.chain is not None:
            parts = [
                repr(step) if isinstance(step, msgspec.Struct) else type(step).__qualname__
                for step in self.chain
            ]
            parts += [repr(self.chain.carry)] if self.chain.carry != () else []
        else:
            parts = [json.dumps([self.config, self.files], sort_keys=True, default=repr)]
        # An object's address in memory is not part of the configuration.
        text = _ADDRESS.sub("", "\n".join([*parts, *(["disabled"] if self.is_disabled else [])]))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _made(self) -> Chain:
        if self.chain is not None:
            return self.chain
        if self.config is not None:
            return Chain.configured(from_flat(self.config, self._text))
        return Chain.configured(from_file(str(self.path), self._text))

    def _text(self, path: Path) -> str:
        text = self.files.get(str(path))
        if text is None:
            raise FileNotFoundError(2, "was not there when the chain was first loaded", str(path))
        return text


class LoadedChain(NamedTuple):
    """A chain and its source; only the source is pickled, so that no value from the environment is."""

    source: ChainSource
    chain: Chain

    def __reduce__(self) -> tuple[Callable[[ChainSource], LoadedChain], tuple[ChainSource]]:
        """Pickle the source; where it is unpickled the chain is loaded again."""
        return _reloaded, (self.source,)


def _reloaded(source: ChainSource) -> LoadedChain:
    return LoadedChain(source, source.load())


class TaskSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a task: one side of a chain over a frame's rows; it is sent with each task."""

    source: ChainSource
    side: Side
    job: str
    """The name of the job in trails, before the number of the batch."""
    failures: Failures = "fail"
    schema: str = ""
    """The schema of the resulting frame, as Spark's JSON."""
    typed: frozenset[str] = frozenset()
    """The parts (key, value) whose columns hold objects."""
    verified: bool = False
    """Whether a column says who signed each row."""
    cluster_id: str | None = None
    group_id: str | None = None
    """The consumer group that dead letters name."""
    max_message_bytes: int | None = None
    scope: str | None = None
    """The query or job within which identities of rows differ; None if rows get none."""
    dead_letter_topic: str = "{topic}.dead-letter"
    """The topic of dead letters, unless the step names one; the same holds for ``dead_letter_headers``."""
    dead_letter_headers: Literal["connect", "spring", "headerware"] = "connect"

    def replace(self, **changes: Any) -> TaskSpec:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)


def chain_source(chain: ChainLike, work: Work | None = None) -> LoadedChain:
    """Load and check a chain; return its source, to be shipped, and the chain.

    A step that cannot work in such tasks is refused; one that does nothing there is logged.
    """
    side: Side = "producer" if work in _WRITES else "consumer"
    source, loaded = _loaded(chain, side)
    for name, step in zip(loaded.names, loaded, strict=True):
        for why in _unfit(step, work):
            raise ConfigError(why, path=f"interceptors.{name}")
    if work is not None:
        _check_material(loaded, side)
        idle = [(label(step), why) for step in loaded for why in _idle(step, work)]
        for name, why in [*idle_steps(tuple(loaded)), *idle]:
            log.warning("%s: %s", name, why)
    return LoadedChain(source, loaded)


def _loaded(chain: ChainLike, side: Side) -> tuple[ChainSource, Chain]:
    if not is_disabled(side):
        source, loaded = _read(chain)
        if source.chain is not None:
            require_importable((f"interceptors.{label(step)}", step) for step in loaded)
        return source, loaded
    try:
        source, loaded = _read(chain)
    except ConfigError as error:
        log.warning("HEADERWARE_DISABLED is set, so this error is ignored: %s", error)
        return ChainSource(chain=Chain()), Chain()
    # Keep the source as it was written: a loaded chain would hold values from the environment.
    return msgspec.structs.replace(source, is_disabled=True), what_is_left(loaded)


def _check_material(chain: Chain, side: Side) -> None:
    """Open the steps for which readers and writers need different files, such as keys and certificates.

    A file, package or service that only the driver lacks is logged, because the workers may have it.
    """
    steps = [
        without_dead_letters(step, name)
        for step, name in zip(chain, chain.names, strict=True)
        if role_of(step) is Role.PROTECT or isinstance(step, ClaimCheck)
    ]
    try:
        Chain(steps).open(Context(side=side, dry_run=True, warns=False)).close()
    except HeaderwareError as error:
        if isinstance(error, ConfigError | KeyringError) and not _misses_a_file(error):
            raise
        log.warning("the driver cannot check the chain, and each worker must open it: %s", error)


def _misses_a_file(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error is not None


def without_dead_letters(step: Any, name: str) -> Any:
    """Make a step raise instead of writing dead letters: here the writer of the frame writes them."""
    if isinstance(step, Interceptor) and step.on_error == "dead_letter":
        return msgspec.structs.replace(step, on_error="raise", name=name)
    return step


def require_importable(options: Iterable[tuple[str, object]]) -> None:
    """Raise ConfigError if executors cannot import, and so cannot unpickle, the class of an option."""
    for path, made in options:
        for kind in type(made).__mro__ if isinstance(made, msgspec.Struct) else ():
            local = kind.__module__ == "__main__" or "<locals>" in kind.__qualname__
            if local and get_annotations(kind):
                raise ConfigError(
                    f"the class {kind.__qualname__} has options and is defined in the program itself, where "
                    "executors cannot import it; put it into a module, and ship the module with --py-files "
                    "or addPyFile",
                    path=path,
                )


def _unfit(step: object, work: Work | None) -> Iterator[str]:
    """Yield why a step cannot work in tasks."""
    if states(step, "delays") and work in _READS:
        yield (
            f"{label(step)!r} holds records back until their moment, and {CANNOT_WAIT}; take the step out of "
            "this chain, and read such topics with a Consumer or an AsyncConsumer"
        )
    subject_keys = getattr(step, "subject_keys", None)
    if subject_keys is not None and subject_keys.servers is None and work is not None:
        yield "subject_keys needs servers, the brokers that have the topic of keys: tasks have no client"
    if isinstance(step, Audit) and work is not None and work != "foreach_batch":
        yield f"{label(step)!r} cannot count here: {_UNCOUNTED[work]}; take the step out of this chain"


_UNTOLD: Final = "Spark's Kafka sink does not report which records it has stored, where and with which time"
_UNCOUNTED: Final[Mapping[Work, str]] = {
    "decode": (
        "Spark computes a frame whenever its rows are needed, perhaps several times, and does not report "
        "when all rows were read. foreach_batch() counts each batch once"
    ),
    **dict.fromkeys(("encode", "kafka_sink", "source"), _UNTOLD),
}


def _idle(step: Any, work: Work) -> Iterator[str]:
    """Yield why a step does nothing, or less than its options say, in such tasks."""
    opens = getattr(type(step), "open", None)
    if opens in {None, Interceptor.open} and not any(getattr(step, hook, None) for hook in _CALLED):
        uncalled = ", ".join(hook for hook in HOOKS if hook not in _CALLED)
        yield f"it has no hook that Spark calls, so it does nothing ({uncalled} are for clients)"
    if isinstance(step, Lineage) and work in {"decode", "encode"}:
        yield "nothing is reported, because only foreach_batch() knows when a batch was read and written"
    if isinstance(step, Metrics) and work in {"decode", "encode"}:
        yield "nothing is measured, because only foreach_batch() knows when rows were read and written"
    if isinstance(step, Trace) and work == "decode":
        yield "it makes no spans, and rows keep their headers; foreach_batch() makes a span for each batch"
    if place_of(step) is Place.DEDUP and getattr(step, "store", None) is not None:
        yield "'store' does nothing in Spark, where foreach_batch() remembers identities in its ledger"


_CALLED: Final = ("on_send", "on_consume", "on_send_batch", "on_consume_batch")
"""The hooks that tasks call."""


def _read(chain: ChainLike) -> tuple[ChainSource, Chain]:
    if isinstance(chain, Chain):
        return ChainSource(chain=chain), chain
    files: dict[str, str] = {}

    def read(path: Path) -> str:
        files[str(path)] = text = read_text(path)
        return text

    if isinstance(chain, Mapping):
        config = {**chain, FILE: os.path.abspath(chain[FILE])} if FILE in chain else dict(chain)  # noqa: PTH100 - a path in configuration is text
        loaded = Chain.configured(from_flat(config, read))
        return ChainSource(config=config, files=files), loaded
    if isinstance(chain, str | os.PathLike):
        path = os.path.abspath(chain)  # noqa: PTH100 - it keeps links, and includes are beside the link
        loaded = Chain.configured(from_file(path, read))
        return ChainSource(path=path, files=files), loaded
    raise ConfigError(
        f"expected a Chain, a mapping, or a path to TOML, found {type(chain).__name__}", path="chain"
    )


def require_typed(chain: Chain, types: Collection[str]) -> None:
    """Raise ConfigError for types without a ``serialize`` step, and for steps on objects without types."""
    serializes = has_step(chain, Place.SERIALIZE)
    if types and not serializes:
        raise ConfigError(
            "the chain has no 'serialize' step, so this column holds bytes; add one, or drop the type",
            path=next(iter(types)),
        )
    needing = [name for name, step in zip(chain.names, chain, strict=True) if stage_of(step) is Stage.OBJECTS]
    if needing and serializes and not types:
        raise ConfigError(
            f"{needing[0]!r} works on objects; give the type of the column, as in value=avro_type(schema)",
            path="value",
        )


def has_step(chain: Chain, place: Place) -> bool:
    """Return whether a chain has a step at a place."""
    return any(place_of(step) is place for step in chain)
