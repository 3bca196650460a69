"""The interceptor ``admission``: certificates are sent, and checked on consume (spec/admission.md)."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, get_args

import msgspec

from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import AdmissionError, ConfigError, of_file
from headerware.core.hooks import Interceptor, Place, Role
from headerware.core.options import PATH
from headerware.core.per_process import PerProcess
from headerware.core.plain_files import changeable_by_others, read_if_there, read_plain
from headerware.core.record import CERTIFIED, VERIFIED
from headerware.interceptors.admission.policy import ADMIT_HEADER, PolicyFile, Quota, read_policy
from headerware.keyring.certificate import MAX_BYTES, read_certificate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headerware.core.batch import Batch
    from headerware.core.context import Context
    from headerware.core.headers import Headers
    from headerware.core.record import Record
    from headerware.keyring.certificate import Certificate

_Require = Literal["off", "warn", "enforce"]
_ValidAt = Literal["signing", "reading"]
_MAX_TOPICS: Final = 1_024
_REFRESH_MS: Final = 1_000
_FRAMING_BYTES: Final = 10
"""The largest size of a header's two lengths in the record format."""
_log: Final = logging.getLogger("headerware.interceptors.admission")


class Admission(Interceptor, frozen=True, kw_only=True):
    """Send the signing key's certificate with each record, and admit records by a policy.

    The certificate is a JSON Web Token that is bound to a key. Each record has the complete certificate in
    ``hw.admit``, so a reader can begin anywhere and needs no other service. ``sign`` to the right covers the
    header; a certificate that is copied from a record is useless without the key that it is bound to.

    On consume the record's signature has been verified by ``sign``. The certificate must be by an issuer of
    the policy, for the policy's audience, for the key that signed and for the topic, and valid; and the
    policy's rules must allow the record. The header is removed, and ``record.verified`` has the certificate's
    ``subject`` and ``issuer``.

    Args:
        certificate: path of the file with the certificate; producers need it. The file is read again when it
            changes.
        policy: path of the policy file; consumers need it. The file and the key sets that it names are read
            again when they change; a bad version is refused, and the last good policy stays in use.
        require: what happens on consume to records without a certificate: ``enforce`` refuses them, ``warn``
            counts them and logs each topic once, ``off`` counts them. A wrong certificate is always refused.
        valid_at: the time at which a certificate must be valid: ``signing``, so that stored records can
            be read later, or ``reading``, for consumers that read records as they arrive.
        clock_skew_ms: how far the clocks of signers, issuers and readers may be apart, in milliseconds; an
            hour at most.

    Raises:
        ConfigError: an option has an unknown value; on opening, a file is missing or wrong, or the chain has
            no ``sign``.
        MissingPartError: on opening, joserfc is not installed.
    """

    type: ClassVar[str] = "admission"
    role: ClassVar[Role] = Role.PROTECT
    place: ClassVar[Place | None] = Place.ADMISSION
    decodes: ClassVar[tuple[str, ...]] = (ADMIT_HEADER,)

    certificate: Annotated[str, PATH, msgspec.Meta(min_length=1)] | None = None
    policy: Annotated[str, PATH, msgspec.Meta(min_length=1)] | None = None
    require: _Require = "enforce"
    valid_at: _ValidAt = "signing"
    clock_skew_ms: Annotated[int, msgspec.Meta(ge=0, le=3_600_000)] = 60_000

    def __post_init__(self) -> None:
        """Normalize the paths, and refuse unknown values."""
        for name in ("certificate", "policy"):
            if (path := getattr(self, name)) is not None:
                msgspec.structs.force_setattr(self, name, os.fspath(path))
        if self.require not in get_args(_Require):  # options from code are not checked before
            raise ConfigError(f"expected off, warn or enforce, found {self.require!r}", path="require")
        if self.valid_at not in get_args(_ValidAt):
            raise ConfigError(f"expected signing or reading, found {self.valid_at!r}", path="valid_at")

    def idle_on(self, topics: Iterable[str]) -> list[str]:
        """Return the policy's rules and quotas that match none of some topics.

        Raises:
            ConfigError: the policy cannot be read.
        """
        if self.policy is None:
            return []
        policy = read_policy(self.policy, trusted=False)
        return [f"{each} of {self.policy}" for each in policy.idle_on(topics)]

    def check_files(self) -> None:
        """Read the policy, and the certificate if this machine has it."""
        if self.policy is not None:
            with of_file("policy"):
                read_policy(self.policy, trusted=False)
        if self.certificate is not None:
            with _certificate_errors(self.certificate):
                raw = read_if_there(self.certificate, MAX_BYTES)
                if raw is not None:
                    _parsed(raw.strip())

    def open(self, context: Context) -> AdmissionStep:
        """Read the files, and return the hooks of one session.

        Raises:
            ConfigError: a file is missing or wrong, or the chain does not sign.
            MissingPartError: joserfc is not installed.
        """
        if not context.signed:
            raise ConfigError(
                "a certificate names the holder of the key that signs, and no step here signs; put a sign "
                "step to the right of this one, for the same topics"
            )
        if context.side == "producer" and self.certificate is None:
            raise ConfigError("sending needs a certificate", path="certificate")
        if context.side == "consumer" and self.policy is None:
            raise ConfigError("consuming needs a policy", path="policy")
        return AdmissionStep(self, context)


class AdmissionStep:
    """The hooks of one session; sending is safe for several threads, consuming has one caller."""

    def __init__(self, options: Admission, context: Context) -> None:
        self._options = options
        self._now_ms = context.now_ms
        now_ms = context.now_ms()
        self._shown = None
        if context.side != "consumer" and options.certificate is not None:
            self._shown = _CertificateFile(options.certificate, now_ms)
        self._policy = None
        if context.side != "producer" and options.policy is not None:
            with of_file("policy"):
                self._policy = PolicyFile(options.policy, now_ms=now_ms)
        self._warned: set[str] = set()
        self._missing = self._refused = 0

    def on_send(self, record: Record) -> Record:
        """Add the certificate; refuse a record for which the certificate is not valid."""
        if self._shown is None:
            raise AdmissionError("there is no certificate to send; set the option certificate")
        certificate, value = self._shown.valid_for(record.topic, self._now_ms())
        # Readers would refuse a record that another key signs, so sign refuses to sign it.
        shown = record.with_headers(record.headers.add(ADMIT_HEADER, value))
        return shown.with_local(CERTIFIED, certificate.thumbprint)

    def on_consume(self, record: Record) -> Record:
        """Return an admitted record with its subject instead of its certificate; refuse any other record."""
        made = self._admitted(record)
        return record if made is None else record.with_parts(record.value, record.key, *made)

    def on_consume_batch(self, batch: Batch) -> Batch:
        """Do as :meth:`on_consume` for each record."""
        return batch.remake(("headers", "local"), self._admitted, batch.records())

    def _admitted(self, record: Record) -> tuple[Headers, dict[str, Any]] | None:
        if self._policy is None:
            raise AdmissionError("there is no policy to admit records by; set the option policy")
        if ADMIT_HEADER not in record.headers.names() and self._options.require != "enforce":
            self._note_missing(record.topic)
            return None
        try:
            certificate = self._policy.admit(
                record,
                now_ms=self._now_ms(),
                clock_skew_ms=self._options.clock_skew_ms,
                valid_at=self._options.valid_at,
            )
        except AdmissionError:
            self._refused += 1
            raise
        local = record.local or {}  # it has what was verified, or nothing is admitted
        holder = {"subject": certificate.subject, "issuer": certificate.issuer}
        verified = msgspec.structs.replace(local[VERIFIED], **holder)
        return record.headers.remove(ADMIT_HEADER), {**local, VERIFIED: verified}

    def quotas(self, record: Record) -> tuple[Quota, ...]:
        """Return the quotas of the present policy for the holder whose admitted record this is."""
        verified = record.verified
        if self._policy is None or verified is None or not verified.subject:
            return ()
        policy = self._policy.current(self._now_ms())
        return policy.quotas(verified.issuer, verified.subject, record.topic)

    def idle_on(self, topics: Iterable[str]) -> list[str]:
        """Return the present policy's rules and quotas that match none of some topics."""
        return [] if self._policy is None else self._policy.current(self._now_ms()).idle_on(topics)

    def overhead_bytes(self, record: Record) -> int:  # noqa: ARG002 - the same for each
        """Return an upper bound of the bytes that a certificate adds to a record on the wire."""
        own = 0 if self._shown is None else self._shown.size_bytes
        return len(ADMIT_HEADER) + own + _FRAMING_BYTES

    def stats(self) -> dict[str, int]:
        """Return the counts of records without a certificate, of refused records, and of reloads."""
        files = [file for file in (self._shown, self._policy) if file is not None]
        return {
            "missing": self._missing,
            "not_admitted": self._refused,
            "reloads": sum(file.reloads for file in files),
            "reload_failures": sum(file.failures for file in files),
        }

    def _note_missing(self, topic: str) -> None:
        self._missing += 1
        if self._options.require == "warn" and topic not in self._warned:
            if len(self._warned) < _MAX_TOPICS:
                self._warned.add(topic)
            _log.warning("topic %r has records without a certificate", topic)


class _CertificateFile:
    """Follow the file of a certificate, which is replaced before it expires; safe for several threads."""

    def __init__(self, path: str, now_ms: int) -> None:
        self._path = path
        self._lock = PerProcess(Lock)
        self._looked_ms = now_ms
        self._failure: str | None = None
        self.reloads: int = 0
        self.failures: int = 0
        self._raw = b""
        self._certificate: Certificate
        self._value = b""
        with _certificate_errors(path):
            self._take(self._read())

    @property
    def size_bytes(self) -> int:
        """An upper bound of a certificate's length; the next certificate may be twice as long."""
        return min(2 * len(self._value), MAX_BYTES)

    def valid_for(self, topic: str, now_ms: int) -> tuple[Certificate, bytes]:
        """Return the certificate and the header's value; raise AdmissionError if it is not valid now."""
        if not 0 <= now_ms - self._looked_ms < _REFRESH_MS:
            self._look(now_ms)
        certificate, value, permitted = self._current
        if now_ms > certificate.expires_ms:
            raise AdmissionError(
                f"the certificate in {self._path} expired {now_ms - certificate.expires_ms} ms ago; have it "
                "issued anew, and replace the file"
            )
        if now_ms < certificate.not_before_ms:
            raise AdmissionError(f"the certificate in {self._path} is not valid yet")
        if not permitted[topic]:
            raise AdmissionError(f"the certificate in {self._path} is not for topic {topic!r}")
        return certificate, value

    def _look(self, now_ms: int) -> None:
        with self._lock.get():
            self._looked_ms = now_ms
            try:
                raw = self._read()
                if raw != self._raw:
                    self._take(raw)
                    self.reloads += 1
                self._failure = None
            except (AdmissionError, OSError, ValueError) as error:
                self.failures += 1
                reason = _reason(error)
                if reason != self._failure:
                    _log.error(
                        "%s: %s; the last good certificate is used until it expires", self._path, reason
                    )
                self._failure = reason

    def _read(self) -> bytes:
        content, status = read_plain(self._path, MAX_BYTES)
        if problem := changeable_by_others(self._path, status):
            raise ValueError(problem)
        return content.strip()

    def _take(self, raw: bytes) -> None:
        certificate = _parsed(raw)
        permitted: BoundedCache[str, bool] = BoundedCache(_MAX_TOPICS, certificate.permits)
        self._raw = self._value = raw
        # In one assignment, so that a thread never sees parts of two certificates.
        self._current = certificate, raw, permitted


@contextmanager
def _certificate_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (AdmissionError, OSError, ValueError) as error:
        raise ConfigError(f"{path}: {_reason(error)}", path="certificate") from None


def _parsed(raw: bytes) -> Certificate:
    return read_certificate(raw.decode("ascii", "replace"))


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, AdmissionError) else str(error)
