"""The interceptor ``contract``: records must be what their topic's AsyncAPI document says (spec/contract.md).

Header ``hw.contract`` marks a record that breaks its contract: the rules, with a space between. A rule is the
fragment of its JSON pointer in the document, such as ``#/channels/orders/messages/Paid/headers/required``.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, get_args

import msgspec

from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import ConfigError, InterceptorError, WireFormatError, of_file
from headerware.core.followed_file import FollowedFile
from headerware.core.hooks import Interceptor, Place, Role
from headerware.core.options import PATH, path_unless
from headerware.interceptors.contract.document import Document, read_document
from headerware.interceptors.contract.judge import judge_of
from headerware.interceptors.contract.schemas import fragment
from headerware.interceptors.header_ids import is_no_path
from headerware.registry.names import NamesSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headerware.core.context import Context
    from headerware.core.record import Record
    from headerware.interceptors.contract.judge import Judge
    from headerware.interceptors.contract.schemas import Failure
    from headerware.registry.names import Names

MARK_HEADER: Final = "hw.contract"
_OnFailure = Literal["refuse", "mark"]
_Missing = Literal["pass", "refuse"]
_MAX_TOPICS: Final = 1_024
_REFRESH_MS: Final = 1_000
_MAX_MARKED: Final = 8
_MAX_MARK_BYTES: Final = 1_024
_FRAMING_BYTES: Final = 10
"""The largest size of a header's two lengths in the record format."""
_log: Final = logging.getLogger("headerware.interceptors.contract")


class Contract(Interceptor, frozen=True, kw_only=True):
    """Require records to be what an AsyncAPI document says, on send and on consume.

    The document's channels are topics, by their addresses. Each message of a channel may state the headers,
    the key, the value and the content type of records, and rules (``x-headerware-rules``). A record must be
    one of the messages. An error names the rules that the record breaks, and never a part of a value.

    Args:
        file: path of the AsyncAPI 3 document, in YAML or JSON. The file is read again when it changes; a bad
            version is refused, and the last good contract stays in use.
        on_failure: what happens to a record that breaks its contract: ``refuse`` raises ContractError, which
            ``on_error`` handles, for example with ``dead_letter``; ``mark`` lets it pass with the header
            ``hw.contract``, which names the rules.
        missing: what happens to records of topics that the document does not have: ``pass`` counts them,
            ``refuse`` raises ContractError.
        registry: where the encodings of headers are registered, as ``header_ids`` takes it. None is the
            registry of the process.

    Raises:
        ConfigError: an option has an unknown value; on opening, the document is missing or wrong.
        MissingPartError: on opening, the packages of the extra ``contract`` are not installed.

    Safe for use by several threads at once.
    """

    type: ClassVar[str] = "contract"
    role: ClassVar[Role] = Role.PROTECT
    place: ClassVar[Place | None] = Place.CONTRACT

    file: Annotated[str, PATH, msgspec.Meta(min_length=1)]
    on_failure: _OnFailure = "refuse"
    missing: _Missing = "pass"
    registry: Annotated[str, path_unless(is_no_path)] | None = None

    def __post_init__(self) -> None:
        """Normalize the path, and refuse unknown values."""
        msgspec.structs.force_setattr(self, "file", os.fspath(self.file))
        if self.on_failure not in get_args(_OnFailure):  # options from code are not checked before
            raise ConfigError(f"expected refuse or mark, found {self.on_failure!r}", path="on_failure")
        if self.missing not in get_args(_Missing):
            raise ConfigError(f"expected pass or refuse, found {self.missing!r}", path="missing")

    def idle_on(self, topics: Iterable[str]) -> list[str]:
        """Return the document's channels that match none of some topics."""
        known = list(topics)
        return [
            f"channel {channel.name!r} of {self.file}"
            for channel in read_document(Path(self.file))[0].channels
            if not any(map(channel.topics.matches, known))
        ]

    def check_files(self) -> None:
        """Read the document."""
        with of_file("file"):
            read_document(Path(self.file))

    def open(self, context: Context) -> ContractStep:
        """Read the document, and return the hooks of one session."""
        return ContractStep(self, context)


class ContractError(InterceptorError):
    """A record that breaks the contract of its topic.

    Args:
        message: the rules that it breaks, with their places.
        rules: the JSON pointers of these rules in the document, as fragments; empty if there is no contract.
    """

    def __init__(self, message: str, *, rules: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.rules = rules


class ContractStep:
    """The hooks of one session; safe for use by several threads at once."""

    def __init__(self, options: Contract, context: Context) -> None:
        self._marks: Final = options.on_failure == "mark"
        self._passes_missing: Final = options.missing == "pass"
        self._now_ms: Final = context.now_ms
        with of_file("registry"):
            self._source: Final = NamesSource(options.registry)
        try:
            with of_file("file"):
                self._file: Final[FollowedFile[Document]] = FollowedFile(
                    options.file, read_document, what="contract", log=_log, now_ms=context.now_ms()
                )
        except BaseException:
            self._source.close()
            raise
        self._looked_ms = context.now_ms()
        self._judges = _Judges(self._file.current(self._looked_ms), self._source.current())
        self._refused = self._marked = self._missing = 0

    def on_send(self, record: Record) -> Record:
        """Return a record that keeps its contract; refuse or mark any other."""
        now_ms = self._now_ms()
        if not 0 <= now_ms - self._looked_ms < _REFRESH_MS:
            self._look(now_ms)
        judge = self._judges[record.topic]
        if judge is None:
            self._missing += 1
            if self._passes_missing:
                return record
            self._refused += 1
            raise ContractError(
                "the contract has no channel for this topic; add one with this address, or leave the topic "
                'out by topics, or let such records pass by missing = "pass"'
            )
        failures = judge(record)
        if self._marks:
            return self._with_mark(record, failures)
        if failures:
            self._refused += 1
            broken = "; ".join(f"{place}: {fragment(rule)}" for rule, place in failures[:_MAX_MARKED])
            raise ContractError(
                f"it breaks its contract: {broken}", rules=tuple(fragment(rule) for rule, _ in failures)
            )
        return record

    on_consume = on_send

    def overhead_bytes(self, record: Record) -> int:  # noqa: ARG002 - the same for each
        """Return an upper bound of the bytes that a mark adds to a record on the wire."""
        return len(MARK_HEADER) + _MAX_MARK_BYTES + _FRAMING_BYTES if self._marks else 0

    def stats(self) -> dict[str, int]:
        """Return the counts of refused and marked records, of records without contract, and of reloads."""
        return {
            "broken": self._refused,
            "marked": self._marked,
            "missing": self._missing,
            "reloads": self._file.reloads,
            "reload_failures": self._file.failures,
        }

    def close(self) -> None:
        """Release the registry; calling it again does nothing."""
        self._source.close()

    def _with_mark(self, record: Record, failures: Sequence[Failure]) -> Record:
        """Return a record with its own mark, in place of any that it came with."""
        headers = record.headers
        for name, _ in headers:
            if name == MARK_HEADER:
                headers = headers.remove(MARK_HEADER)
                break
        if failures:
            self._marked += 1
            headers = headers.append((MARK_HEADER, encode_broken_rules(rule for rule, _ in failures)))
        return record if headers is record.headers else record.with_headers(headers)

    def _look(self, now_ms: int) -> None:
        """Use the present versions of the document and of the registry."""
        document, names = self._file.current(now_ms), self._source.current()
        if self._judges.document is not document or self._judges.names is not names:
            self._judges = _Judges(document, names)
        self._looked_ms = now_ms


class _Judges(BoundedCache[str, "Judge | None"]):
    """The judges of topics, by one version of a document and of a registry."""

    __slots__ = ("document", "names")

    def __init__(self, document: Document, names: Names) -> None:
        super().__init__(_MAX_TOPICS, self._judge)
        self.document: Final = document
        self.names: Final = names

    def _judge(self, topic: str) -> Judge | None:
        channel = self.document.channel_of(topic)
        return None if channel is None else judge_of(channel, self.names.encoding_of)


def encode_broken_rules(rules: Iterable[str]) -> bytes:
    """Write the value of ``hw.contract``; ``*`` at its end stands for rules that do not fit.

    Args:
        rules: JSON pointers in the document.
    """
    written: list[str] = []
    left = _MAX_MARK_BYTES - len(" *")
    for rule in dict.fromkeys(map(fragment, rules)):
        left -= len(rule) + 1
        if left < 0 or len(written) == _MAX_MARKED:
            written.append("*")
            break
        written.append(rule)
    return " ".join(written).encode()


def decode_broken_rules(value: bytes | None) -> tuple[str, ...]:
    """Read the value of ``hw.contract``: the rules as fragments, and ``*`` for further rules.

    Raises:
        WireFormatError: the value is not a mark.
    """
    try:
        rules = ("" if value is None else value.decode("ascii")).split(" ")
    except UnicodeDecodeError:
        rules = [""]
    is_mark = all(rule.startswith("#") for rule in rules[:-1]) and (
        rules[-1].startswith("#") or rules[-1] == "*"
    )
    if not is_mark or len(value or b"") > _MAX_MARK_BYTES:
        raise WireFormatError(
            f"{MARK_HEADER}: expected fragments such as '#/channels/orders' and spaces between"
        )
    return tuple(rules)
