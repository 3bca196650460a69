"""Sign records on send, and verify them on consume (spec/signature.md).

A signature covers the key, the value and the headers that stand before ``hw.sig``, with their order and
count, and where the record belongs: the cluster and the topic. It does not cover the partition, nor what
the broker writes.
"""

from __future__ import annotations

import math
import os
from itertools import count
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, get_args
from weakref import WeakSet

import msgspec

from headerware.core.errors import ConfigError, KeyringError, SignatureError, WireFormatError
from headerware.core.header_text import encode_text, text_bytes
from headerware.core.headers import Headers
from headerware.core.hooks import Interceptor, Place, Role
from headerware.core.options import PATH
from headerware.core.verified import Verified
from headerware.interceptors.sign_replay import ReplayWindow
from headerware.interceptors.sign_verify import TOPIC, Require, Rules, Uncovered, Verifying
from headerware.keyring import Keyring, KeyringFile, Permissions, key_id_problem
from headerware.keyring.file import MAX_STALE_MS
from headerware.keyring.signature import (
    HEADER,
    STAMP_BYTES,
    STATEMENT_FIXED_BYTES,
    Statement,
    beginning,
    encode_stamp,
    rest_of_signed_bytes,
)
from headerware.keyring.signing import SIGNATURE_BYTES, signer
from headerware.keyring.signing import Sign as SignBytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.context import Context
    from headerware.core.record import Record

__all__ = ["Sign", "SignStep", "Verified"]

_TOPICS_MAX: Final = 1024
_TEXT_MAX_BYTES: Final = 255
_SKEW_MAX_MS: Final = 3_600_000
_NO_ORIGIN: Final = frozenset("[]{}!")
_FRAMING_BYTES: Final = 10
"""What the record format spends on a header's two lengths, at most."""
_REQUIRE: Final[dict[bool | str, Require]] = {
    "off": "off",
    "warn": "warn",
    "enforce": "enforce",
    False: "off",
    True: "enforce",
    "false": "off",
    "true": "enforce",
}


class Sign(Interceptor, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sign each record, and refuse records whose signature is missing, wrong or out of place.

    Verification ends with the removal of ``hw.sig``, and ``record.verified`` then says what was verified. No
    other step sees a header that was added behind ``hw.sig`` later, for that takes no key. A bad signature is
    refused even where none is required, and so is a later header that repeats a signed name or begins with
    ``hw.``, in any case. Of a record without a signature nothing is claimed, and all its headers are shown.

    Args:
        keyring: path of the keyring file (spec/keyring.md); any ``os.PathLike`` is taken. In a TOML file it
            is relative to that file.
        key_id: the key to sign with. Consumers need none: a record names its key.
        require: what happens to records without a signature: ``off`` passes them, ``warn`` counts them and
            logs each topic once, ``enforce`` refuses them. False and True mean off and enforce.
        uncovered: what happens to headers that were added behind ``hw.sig`` later: ``strip`` takes them
            out, ``refuse`` refuses the record, ``pass`` gives them to the application alone, after all steps.
        covered: names of headers that each signed record must have, covered by the signature.
        max_age_ms: how old a signature may be, in milliseconds by the clock here; None is no limit.
        clock_skew_ms: with ``max_age_ms``, how far a signer's clock may run ahead of the one here.
        cluster: this cluster's id; None asks the client.
        accept_origins: other places whose records may also stand here, copied byte for byte by a mirror:
            ``cluster/topic``, both literal but for ``*`` and ``?``. ``{topic}`` is the topic that is read.
        keyring_permissions: ``owner``, or ``kubernetes`` for a mounted secret: symbolic links, and files
            that the group can read.
        keyring_max_stale_ms: how long the last good keyring is used while the file is missing or broken,
            in milliseconds; then nothing is signed or verified until it is good again.
        replay_window: how many records to remember for each producer, to refuse copies of them that
            stand elsewhere; 0 is off.

    Raises:
        ConfigError: an option that cannot work.
    """

    type: ClassVar[str] = "sign"
    role: ClassVar[Role] = Role.PROTECT
    place: ClassVar[Place | None] = Place.SIGN
    decodes: ClassVar[tuple[str, ...]] = (HEADER,)
    verifies: ClassVar[bool] = True

    keyring: Annotated[str, PATH, msgspec.Meta(min_length=1)]
    key_id: str | None = None
    require: bool | Literal["off", "warn", "enforce", "true", "false"] = "enforce"
    cluster: Annotated[str, msgspec.Meta(min_length=1, max_length=255)] | None = None
    uncovered: Literal["strip", "refuse", "pass"] = "strip"
    covered: tuple[Annotated[str, msgspec.Meta(min_length=1)], ...] = ()
    max_age_ms: Annotated[int, msgspec.Meta(ge=1)] | None = None
    clock_skew_ms: Annotated[int, msgspec.Meta(ge=0, le=_SKEW_MAX_MS)] = 60_000
    accept_origins: tuple[str, ...] = ()
    keyring_permissions: Permissions = "owner"
    keyring_max_stale_ms: Annotated[int, msgspec.Meta(ge=0)] = MAX_STALE_MS
    replay_window: Annotated[int, msgspec.Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        """Bring the options to one form, and refuse what cannot work."""
        msgspec.structs.force_setattr(self, "keyring", os.fspath(self.keyring))
        require = _REQUIRE.get(self.require)
        if require is None:
            raise ConfigError(f"off, warn or enforce, not {self.require!r}", path="require")
        msgspec.structs.force_setattr(self, "require", require)
        if self.uncovered not in get_args(Uncovered):  # in code nothing has checked it yet
            raise ConfigError(f"strip, refuse or pass, not {self.uncovered!r}", path="uncovered")
        for name in self.covered:
            if name.casefold() == HEADER:
                raise ConfigError(f"a signature does not cover {name!r}, which holds it", path="covered")
        if self.key_id is not None and (problem := key_id_problem(self.key_id)):
            raise ConfigError(problem, path="key_id")
        for origin in self.accept_origins:
            _origin(origin)

    def open(self, context: Context) -> SignStep:
        """Read the keyring, and give the hooks of one session.

        Raises:
            ConfigError: a producer's chain without a ``key_id``.
            KeyringError: a keyring that cannot be read, or no such key to sign with.
        """
        now_ms = context.now_ms()
        file = KeyringFile(
            self.keyring,
            permissions=self.keyring_permissions,
            max_stale_ms=self.keyring_max_stale_ms,
            now_ms=now_ms,
        )
        if context.side == "producer":
            if self.key_id is None:
                raise ConfigError("sending takes the id of a key to sign with", path="key_id")
            file.current(now_ms).signing_key(self.key_id)
        return SignStep(self, context, file)


_Ready = tuple[bytes, SignBytes, float]
"""What was prepared for a topic: the statement, the key at work, and until when it may sign."""


class SignStep:
    """The hooks of one session; sending is safe for several threads, consuming has one caller.

    Args:
        options: the interceptor.
        context: the session's surroundings.
        file: the keyring that both halves follow.
        producer: the session's producer id, 8 bytes; None draws one.
        sequence: the number of the session's first record.
    """

    __slots__ = (
        "__weakref__",
        "_cluster",
        "_file",
        "_options",
        "_producer",
        "_sequences",
        "_verifying",
        "on_consume",
        "on_send",
        "settle",
    )

    def __init__(
        self,
        options: Sign,
        context: Context,
        file: KeyringFile,
        *,
        producer: bytes | None = None,
        sequence: int = 0,
    ) -> None:
        self._options = options
        self._file = file
        self._cluster = _cluster_port(options, context)
        self._producer = producer or os.urandom(8)
        self._sequences = count(sequence)
        self._verifying = Verifying(
            file,
            now_ms=context.now_ms,
            own_cluster=self._cluster,
            rules=Rules(
                require=_REQUIRE[options.require],
                uncovered=options.uncovered,
                covered=frozenset(options.covered),
                max_age_ms=options.max_age_ms,
                clock_skew_ms=options.clock_skew_ms,
                origins=tuple(map(_origin, options.accept_origins)),
            ),
            window=ReplayWindow(options.replay_window) if options.replay_window else None,
        )
        self.on_send: Callable[[Record], Record] = self._sending_hook(context.now_ms)
        self.on_consume: Callable[[Record], Record] = self._verifying.on_consume
        self.settle: Callable[[Record], Record] | None = (
            self._verifying.settle if self._verifying.settles else None
        )
        _open_steps.add(self)

    def overhead_bytes(self, record: Record) -> int:
        """Return an upper bound of what the signature adds to a record on the wire, in bytes."""
        cluster = self._cluster()
        layout = (
            STATEMENT_FIXED_BYTES
            + len((self._options.key_id or "").encode())
            + (_TEXT_MAX_BYTES if cluster is None else len(cluster.encode()))
            + len(record.topic.encode())
            + STAMP_BYTES
            + max(SIGNATURE_BYTES.values())
        )
        return len(HEADER) + _FRAMING_BYTES + text_bytes(layout)

    def stats(self) -> dict[str, int]:
        """Count the records without a signature and with uncovered headers, and the keyring's reloads."""
        return {
            "unsigned": self._verifying.unsigned,
            "uncovered": self._verifying.uncovered,
            "keyring_reloads": self._file.reloads,
            "keyring_failures": self._file.failures,
        }

    def renew_producer(self) -> None:
        """Become another producer, as after a fork, so that no sequence is used twice."""
        self._producer = os.urandom(8)

    def _sending_hook(self, now_ms: Callable[[], int]) -> Callable[[Record], Record]:
        current, cluster_of, prepare = self._file.current, self._cluster, self._prepare
        rest, stamped, sequences = rest_of_signed_bytes(), encode_stamp, self._sequences
        new, to_text = tuple.__new__, encode_text
        # Keyring, cluster and what was prepared with them change together, so that a thread which still
        # holds the old ones cannot put a retired key among the new.
        state = self._fresh(now_ms())

        def on_send(record: Record) -> Record:
            nonlocal state
            now = now_ms()
            keyring, cluster, prepared = state
            if current(now) is not keyring or (cluster is None and cluster_of() is not None):
                keyring, cluster, prepared = state = self._fresh(now)
            topic = record.topic
            statement, sign, until_ms = prepared.get(topic) or prepare(keyring, cluster, prepared, topic, now)
            if now > until_ms:
                prepare(keyring, cluster, prepared, topic, now)
            headers = record.headers
            stamp = stamped(now, self._producer, next(sequences))
            signature = sign(rest(stamp, record.key, record.value, headers))
            text = to_text(statement + stamp + signature)
            return record.with_headers(new(Headers, (*headers, (HEADER, text))))

        return on_send

    def _fresh(self, now_ms: int) -> tuple[Keyring, str | None, dict[str, _Ready]]:
        return self._file.current(now_ms), self._cluster(), {}

    def _prepare(
        self,
        keyring: Keyring,
        cluster: str | None,
        prepared: dict[str, _Ready],
        topic: str,
        now_ms: int,
    ) -> _Ready:
        if self._options.key_id is None:
            raise SignatureError("sending takes a key_id to sign with, and none is configured")
        try:
            key = keyring.signing_key(self._options.key_id)
            statement = Statement(key.id, key.version, cluster or "", topic).encode()
        except (KeyringError, WireFormatError) as error:
            raise SignatureError(f"cannot sign: {error}") from error
        if refusal := key.refusal(topic, now_ms):
            raise SignatureError(f"cannot sign: {refusal}")
        until_ms = math.inf if key.not_after is None else key.not_after.timestamp() * 1000
        if len(prepared) >= _TOPICS_MAX:
            prepared.clear()
        ready = prepared[topic] = (statement, signer(key, beginning(key.algorithm, statement)), until_ms)
        return ready


def _origin(origin: str) -> tuple[str, str]:
    """Return the patterns of cluster and topic.

    Raises:
        ConfigError: one of them is missing, or holds what is no pattern here.
    """
    cluster, _, topic = origin.rpartition("/")
    if not cluster or not topic:
        raise ConfigError(f'"cluster/topic", such as "*/orders", not {origin!r}', path="accept_origins")
    if odd := _NO_ORIGIN & {*cluster, *topic.replace(TOPIC, "")}:
        raise ConfigError(
            f"expected names, * and ?, and {TOPIC} in the topic, found {' '.join(sorted(odd))} in {origin!r}",
            path="accept_origins",
        )
    return cluster, topic


def _cluster_port(options: Sign, context: Context) -> Callable[[], str | None]:
    cluster = options.cluster
    return context.cluster_id if cluster is None else lambda: cluster


_open_steps: WeakSet[SignStep] = WeakSet()


def _renew_producers() -> None:
    for step in tuple(_open_steps):
        step.renew_producer()


os.register_at_fork(after_in_child=_renew_producers)
