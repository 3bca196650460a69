"""Policies: which certificates are accepted, and which records their holders may write (spec/admission.md).

A record is admitted if a rule allows it and no rule denies it. The order of the rules does not matter, and a
record that no rule matches is denied. The same policy decides in a consumer's chain and in the guard: it
takes a record whose signature has been verified, and needs no client.
"""

from __future__ import annotations

import logging
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import msgspec

from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import AdmissionError, ConfigError, HeldBackError, WireFormatError, of_file
from headerware.core.file_versions import require_whole
from headerware.core.followed_file import FollowedFile
from headerware.core.options import table_from
from headerware.core.patterns import any_fits, fits
from headerware.core.plain_files import changeable_by_others, read_plain, why_unreadable
from headerware.core.printable import printable
from headerware.core.record import TimestampType
from headerware.core.suggestions import did_you_mean
from headerware.core.toml import naming_lines, read_toml
from headerware.core.topics import TopicPatterns, check_patterns
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.keyring.certificate import ALGORITHMS, DAY_S, IssuerKeys, read_certificate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from headerware.core.record import Record, Verified
    from headerware.keyring.certificate import Certificate

ADMIT_HEADER: Final = "hw.admit"
_MAX_BYTES: Final = 1 << 20
_MAX_CERTIFICATES: Final = 1_024
_EXTRA_LOOK_MS: Final = 100
_SHOWN: Final = 3
_SHOWN_CHARACTERS: Final = 200
_log: Final = logging.getLogger("headerware.interceptors.admission")

_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Texts = Annotated[tuple[_Text, ...], msgspec.Meta(min_length=1)]
_Rate = Annotated[float, msgspec.Meta(ge=1e-6)]
"""With a smaller rate, a record would wait practically for ever."""


class Issuer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An issuer whose certificates are accepted.

    Args:
        issuer: the issuer's name, as in the claim ``iss``.
        jwks: path of a file with the issuer's public keys; relative to the policy's file.
        algorithms: the algorithms that the issuer signs certificates with; others are refused.
        max_lifetime_s: the longest time from ``iat``, or ``nbf`` if that is earlier, to ``exp``, in seconds.
    """

    issuer: _Text
    jwks: _Text
    algorithms: _Texts
    max_lifetime_s: Annotated[int, msgspec.Meta(ge=1)] = DAY_S

    def __post_init__(self) -> None:
        """Refuse algorithms that no issuer may have."""
        for algorithm in self.algorithms:
            if algorithm not in ALGORITHMS:
                expected = f"expected algorithms of {', '.join(ALGORITHMS)}"
                raise ValueError(f"{expected}, found {algorithm!r}{did_you_mean(algorithm, ALGORITHMS)}")


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule that allows or denies the records for which all of its conditions hold.

    Args:
        effect: ``allow``, or ``deny``, which no other rule can outweigh.
        issuers: patterns of issuers, with ``*`` and ``?``.
        subjects: patterns of subjects, with ``*`` and ``?``.
        topics: patterns of topics, as interceptors take them; a leading ``!`` excludes.
        headers: patterns of values, by header name. A rule allows a record only if the record has the header
            and all its values match. A rule denies a record if one value matches; then the case of the name
            is ignored.
    """

    effect: Literal["allow", "deny"]
    issuers: _Texts = ("*",)
    subjects: _Texts = ("*",)
    topics: _Texts = ("*",)
    headers: dict[_Text, str] = {}

    def __post_init__(self) -> None:
        """Refuse patterns that match no topic."""
        try:
            check_patterns(self.topics, path="topics")
        except ConfigError as error:
            raise ValueError(str(error)) from None


class Quota(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much each holder of a certificate may write; ``headerware guard`` enforces it.

    Each pair of issuer and subject that matches has the quota for itself. If several quotas match, all apply.

    Args:
        issuers: patterns of issuers, with ``*`` and ``?``.
        subjects: patterns of subjects, with ``*`` and ``?``.
        topics: patterns of topics, as interceptors take them; a leading ``!`` excludes.
        records_per_s: how many records a second, 0.000001 or more.
        bytes_per_s: how many bytes of keys, values and headers a second, 0.000001 or more.
        burst_s: for how many seconds an unused quota can be saved up.
        over: what happens to a record above the quota: ``wait`` holds its partition back, ``refuse`` refuses
            the record.
    """

    issuers: _Texts = ("*",)
    subjects: _Texts = ("*",)
    topics: _Texts = ("*",)
    records_per_s: _Rate | None = None
    bytes_per_s: _Rate | None = None
    burst_s: Annotated[float, msgspec.Meta(gt=0, le=3_600)] = 1.0
    over: Literal["wait", "refuse"] = "wait"

    def __post_init__(self) -> None:
        """Refuse patterns that match no topic, and a quota without a limit."""
        if self.records_per_s is None and self.bytes_per_s is None:
            raise ValueError("expected records_per_s, bytes_per_s or both, found neither")
        try:
            check_patterns(self.topics, path="topics")
        except ConfigError as error:
            raise ValueError(str(error)) from None


class PolicyTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy: whose certificates are accepted, and which records their holders may write.

    Args:
        version: the version of the layout of this file.
        audience: the name, or names, by which certificates may name this reader.
        issuers: the issuers whose certificates are accepted.
        rules: the rules that allow and deny; their order does not matter.
        quotas: how much may be written.
        last_line: the last line of this file, without which it is refused as cut off.
    """

    version: Literal[1]
    audience: _Text | _Texts
    issuers: Annotated[tuple[Issuer, ...], msgspec.Meta(min_length=1)]
    rules: Annotated[tuple[Rule, ...], msgspec.Meta(min_length=1)]
    quotas: tuple[Quota, ...] = ()
    last_line: str | None = None


class _Known(NamedTuple):
    """A verified certificate, and the rules that apply to its records in a topic."""

    certificate: Certificate
    permits: bool
    rules: tuple[Rule, ...]
    """The rules whose conditions hold, except for conditions on headers, which each record decides."""


class Policy:
    """Decide which records are admitted; for several threads at once.

    Args:
        audience: the names by which certificates may name this reader.
        issuers: each issuer with its keys.
        rules: the rules; their order does not matter.
        quotas: how much may be written; :meth:`admit` does not count.
    """

    def __init__(
        self,
        audience: Iterable[str],
        issuers: Iterable[tuple[Issuer, IssuerKeys]],
        rules: Iterable[Rule],
        quotas: Iterable[Quota] = (),
    ) -> None:
        self._audience = frozenset(audience)
        self._issuers = {issuer.issuer: (issuer, keys) for issuer, keys in issuers}
        self._rules = tuple((rule, TopicPatterns(rule.topics)) for rule in rules)
        self._known: BoundedCache[tuple[bytes, str, str], _Known] = BoundedCache(_MAX_CERTIFICATES)
        self._quotas = tuple((quota, TopicPatterns(quota.topics)) for quota in quotas)
        self._quotas_of: BoundedCache[tuple[str, str, str], tuple[Quota, ...]] = BoundedCache(
            _MAX_CERTIFICATES, self._fitting_quotas
        )

    def admit(
        self,
        record: Record,
        *,
        now_ms: int,
        clock_skew_ms: int = 60_000,
        valid_at: Literal["signing", "reading"] = "signing",
    ) -> Certificate:
        """Return the certificate by which a record is admitted.

        Args:
            record: the record, with its ``hw.admit`` and with its verified signature.
            now_ms: the time by the local clock, in milliseconds since the epoch.
            clock_skew_ms: how far clocks may be apart, in milliseconds.
            valid_at: the time at which the certificate must be valid: ``signing``, the time that the signer
                states, or ``reading``, the present time.

        Raises:
            AdmissionError: the record is not admitted; the message states why.
        """
        verified = record.verified
        if verified is None:
            raise AdmissionError("expected a verified signature, to which a certificate is bound; found none")
        found = [pair[1] for pair in record.headers if pair[0] == ADMIT_HEADER]
        if len(found) != 1 or found[0] is None:
            raise AdmissionError(f"expected one {ADMIT_HEADER} header with a certificate, found {len(found)}")
        asked = found[0], record.topic, verified.topic
        known = self._known.get(asked)
        if known is None:
            known = self._known[asked] = self._examined(*asked)
        certificate = known.certificate
        if not compare_digest(certificate.thumbprint.encode(), verified.thumbprint.encode()):
            raise AdmissionError(
                f"its certificate is for another key than {verified.key_id!r} version "
                f"{verified.key_version}, which signed the record"
            )
        at_ms = verified.signed_at_ms if valid_at == "signing" else now_ms
        _require_valid(certificate, record, at_ms, now_ms, clock_skew_ms)
        if not known.permits:
            raise AdmissionError(f"its certificate is not for topic {verified.topic!r}")
        _require_allowed(known.rules, record, verified)
        return certificate

    def has_unknown_key(self, record: Record) -> bool:
        """Return whether a record's certificate names a key that its issuer is not known to have."""
        value = record.headers.last(ADMIT_HEADER)
        try:
            certificate = read_certificate((value or b"").decode("ascii", "replace"))
        except AdmissionError:
            return False
        known = self._issuers.get(certificate.issuer)
        return known is not None and not known[1].knows(certificate)

    def quotas(self, issuer: str, subject: str, topic: str) -> tuple[Quota, ...]:
        """Return the quotas for the holder of a certificate in a topic; none if there is no limit."""
        return self._quotas_of[issuer, subject, topic] if self._quotas else ()

    def idle_on(self, topics: Iterable[str]) -> list[str]:
        """Return the rules and quotas that match none of some topics; their patterns may be misspelled."""
        known = tuple(topics)
        rules = [(f"rules[{at}]", each.topics, fits) for at, (each, fits) in enumerate(self._rules)]
        quotas = [(f"quotas[{at}]", each.topics, fits) for at, (each, fits) in enumerate(self._quotas)]
        return [
            f"{name} ({', '.join(patterns)})"
            for name, patterns, fits in (*rules, *quotas)
            if not any(map(fits.matches, known))
        ]

    def _fitting_quotas(self, asked: tuple[str, str, str]) -> tuple[Quota, ...]:
        issuer, subject, topic = asked
        return tuple(
            quota
            for quota, topics in self._quotas
            if topics.matches(topic) and any_fits(quota.issuers, issuer) and any_fits(quota.subjects, subject)
        )

    def _examined(self, value: bytes, topic: str, signed_topic: str) -> _Known:
        certificate = self._verified(value)
        rules = tuple(
            rule
            for rule, topics in self._rules
            if topics.matches(topic)
            and any_fits(rule.issuers, certificate.issuer)
            and any_fits(rule.subjects, certificate.subject)
        )
        return _Known(certificate, certificate.permits(signed_topic), rules)

    def _verified(self, value: bytes) -> Certificate:
        text = value.decode("ascii", "replace")
        certificate = read_certificate(text)
        known = self._issuers.get(certificate.issuer)
        if known is None:
            raise AdmissionError("its certificate is by an issuer that the policy does not have")
        issuer, keys = known
        keys.verify(text, certificate)
        if self._audience.isdisjoint(certificate.audience):
            raise AdmissionError(
                f"its certificate is for another audience, {_shown(certificate.audience)}, "
                f"than the policy's, {_shown(self._audience)}"
            )
        begins_ms = min(certificate.issued_ms, certificate.not_before_ms)
        lifetime_s = (certificate.expires_ms - begins_ms) / 1_000
        if lifetime_s > issuer.max_lifetime_s:
            raise AdmissionError(
                f"its certificate is valid for {lifetime_s:.0f} s; max_lifetime_s of its issuer is "
                f"{issuer.max_lifetime_s}"
            )
        return certificate


def _shown(audience: Collection[str]) -> str:
    """Return the names of an audience, which a certificate may have many and long ones of."""
    names = ", ".join(repr(name) for name in sorted(audience)[:_SHOWN]) or "of nobody"
    return printable(names[:_SHOWN_CHARACTERS] + (", ..." if len(audience) > _SHOWN else ""))


def _require_allowed(rules: tuple[Rule, ...], record: Record, verified: Verified) -> None:
    # Each slice is judged, and only the first has the message's headers. Conditions on headers are not
    # checked for later slices: without its first slice a message is nothing, and all slices have one signer.
    without_headers = any(rule.headers for rule in rules) and _is_later_slice(record)
    allowed = False
    for rule in rules:
        if rule.effect == "deny":
            if all(_some_value_fits(record, *wanted) for wanted in rule.headers.items()):
                raise AdmissionError(
                    f"a rule denies it to the holder of key {verified.key_id!r} in topic {record.topic!r}"
                )
        elif without_headers or all(_all_values_fit(record, *each) for each in rule.headers.items()):
            allowed = True
    if not allowed:
        raise AdmissionError(
            f"no rule allows it to the holder of key {verified.key_id!r} in topic {record.topic!r}"
        )


def read_policy(path: str, *, trusted: bool = True) -> Policy:
    """Read a policy file and the key sets that it names.

    Args:
        path: the policy file.
        trusted: whether to refuse files that others can change.

    Raises:
        ConfigError: a file is missing or wrong; the message states where.
        MissingPartError: joserfc is not installed.
    """
    return _read(Path(path), trusted=trusted)[0]


class PolicyFile(FollowedFile[Policy]):
    """Follow a policy file and its key sets; a bad version is refused, and the last good policy stays in use.

    Safe for use by several threads at once.

    Args:
        path: the policy file.
        now_ms: the present time of the caller's clock, in milliseconds.

    Raises:
        ConfigError: a file is missing or wrong.
        MissingPartError: joserfc is not installed.
    """

    def __init__(self, path: str, *, now_ms: int = 0) -> None:
        super().__init__(path, _read, what="policy", log=_log, now_ms=now_ms)

    def admit(self, record: Record, *, now_ms: int, **options: Any) -> Certificate:
        """Return the certificate by which the present policy admits a record; see :meth:`Policy.admit`.

        Raises:
            AdmissionError: the record is not admitted; the message states why.
            HeldBackError: the record's certificate names an unknown key, and a file cannot be read.
        """
        policy = self.current(now_ms)
        try:
            return policy.admit(record, now_ms=now_ms, **options)
        except AdmissionError:
            if not policy.has_unknown_key(record):
                raise
            newer = self.current(now_ms, within_ms=_EXTRA_LOOK_MS)
            if newer is policy:
                if self.failure is None:
                    raise
                raise HeldBackError(
                    f"its issuer's key is not known, and the policy cannot be read anew: {self.failure}"
                ) from None
        return newer.admit(record, now_ms=now_ms, **options)


def _read(path: Path, *, trusted: bool = True) -> tuple[Policy, tuple[Path, ...]]:
    """Return the policy, and its files; with ``trusted``, refuse files that others can change."""
    texts: dict[str, str] = {}
    table = read_toml(path, lambda file: _content(file, trusted=trusted).decode(), texts)
    require_whole(table, texts[str(path)], str(path))
    with naming_lines(texts):
        policy = table_from(table, PolicyTable, source=str(path))
        files = [path.parent / issuer.jwks for issuer in policy.issuers]
        issuers: list[tuple[Issuer, IssuerKeys]] = []
        for index, (issuer, file) in enumerate(zip(policy.issuers, files, strict=True)):
            place = f"{path}: issuers[{index}]"
            if any(issuer.issuer == other.issuer for other, _ in issuers):
                raise ConfigError("an issuer appears twice", path=f"{place}.issuer")
            with of_file(f"{place}.jwks"):
                keys = IssuerKeys(_content(file, trusted=trusted), issuer.algorithms, source=str(file))
            issuers.append((issuer, keys))
    audience = (policy.audience,) if isinstance(policy.audience, str) else policy.audience
    return Policy(audience, issuers, policy.rules, policy.quotas), (path, *files)


def _content(path: Path, *, trusted: bool) -> bytes:
    try:
        content, status = read_plain(path, _MAX_BYTES)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot be read: {why_unreadable(path, error)}", path=str(path)) from error
    if trusted and (problem := changeable_by_others(path, status)):
        raise ConfigError(problem, path=str(path))
    return content


def _require_valid(
    certificate: Certificate, record: Record, at_ms: int, now_ms: int, clock_skew_ms: int
) -> None:
    begins_ms = certificate.not_before_ms - clock_skew_ms
    ends_ms = certificate.expires_ms + clock_skew_ms
    if at_ms > ends_ms:
        raise AdmissionError(f"its certificate had expired {at_ms - certificate.expires_ms} ms before")
    if at_ms < begins_ms or now_ms < begins_ms:
        raise AdmissionError("its certificate is not valid yet")
    # Otherwise an issuer could make certificates look younger by issuing them in the future.
    if now_ms < certificate.issued_ms - clock_skew_ms:
        raise AdmissionError("its certificate was issued in the future, by its iat")
    written_ms = record.timestamp_ms
    by_broker = record.timestamp_type == TimestampType.LOG_APPEND_TIME
    # The broker's timestamp shows a record that states an early time of signing, but was sent much later.
    if by_broker and written_ms is not None and written_ms > ends_ms:
        raise AdmissionError(
            f"its certificate had expired {written_ms - certificate.expires_ms} ms before the broker stored "
            "the record"
        )


def _is_later_slice(record: Record) -> bool:
    value = record.headers.last(SLICE_HEADER)
    if value is None:
        return False
    try:
        return SliceHeader.decode(value).index > 0
    except WireFormatError:
        return False


def _all_values_fit(record: Record, name: str, pattern: str) -> bool:
    values = [pair[1] for pair in record.headers if pair[0] == name]
    return bool(values) and all(_value_fits(value, pattern, unreadable=False) for value in values)


def _some_value_fits(record: Record, name: str, pattern: str) -> bool:
    wanted = name.casefold()
    return any(
        _value_fits(pair[1], pattern, unreadable=True)
        for pair in record.headers
        if pair[0].casefold() == wanted
    )


def _value_fits(value: bytes | None, pattern: str, *, unreadable: bool) -> bool:
    """Return whether a value matches a pattern, or ``unreadable`` if the value is not text."""
    try:
        return unreadable if value is None else fits(pattern, value.decode())
    except UnicodeDecodeError:
        return unreadable
