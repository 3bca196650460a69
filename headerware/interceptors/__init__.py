"""Interceptors: one concern a file, in both directions; each is loaded when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.lazy import lazy

if TYPE_CHECKING:
    from headerware.interceptors.admission import Admission, Policy, PolicyFile, read_policy
    from headerware.interceptors.audit import Audit, AuditCount, AuditReport, decode_report
    from headerware.interceptors.claim_check import Claim, ClaimCheck, decode_claim
    from headerware.interceptors.compress import Compress
    from headerware.interceptors.dedup import Dedup, Identity
    from headerware.interceptors.encrypt import (
        Encrypt,
        EncryptFields,
        new_key_secret,
        rewrapped_key_secret,
    )
    from headerware.interceptors.header_ids import HeaderIds
    from headerware.interceptors.lineage import Lineage
    from headerware.interceptors.metrics import Metrics
    from headerware.interceptors.schema import Schema
    from headerware.interceptors.serialize import Serialize
    from headerware.interceptors.sign import Sign
    from headerware.interceptors.slice import Slice
    from headerware.interceptors.times import Delay, Expire, expires_header, not_before_header
    from headerware.interceptors.trace import Trace, extract_context
    from headerware.interceptors.trail import Trail, TrailEntry, TrailReading, read_trail
    from headerware.interceptors.trail_timeline import timeline
    from headerware.interceptors.transforms import Transforms

__all__ = [
    "Admission",
    "Audit",
    "AuditCount",
    "AuditReport",
    "Claim",
    "ClaimCheck",
    "Compress",
    "Dedup",
    "Delay",
    "Encrypt",
    "EncryptFields",
    "Expire",
    "HeaderIds",
    "Identity",
    "Lineage",
    "Metrics",
    "Policy",
    "PolicyFile",
    "Schema",
    "Serialize",
    "Sign",
    "Slice",
    "Trace",
    "Trail",
    "TrailEntry",
    "TrailReading",
    "Transforms",
    "decode_claim",
    "decode_report",
    "expires_header",
    "extract_context",
    "new_key_secret",
    "not_before_header",
    "read_policy",
    "read_trail",
    "rewrapped_key_secret",
    "timeline",
]

_HOMES: Final = {
    "Admission": "admission",
    "Policy": "admission",
    "PolicyFile": "admission",
    "read_policy": "admission",
    "Audit": "audit",
    "AuditCount": "audit",
    "AuditReport": "audit",
    "Claim": "claim_check",
    "ClaimCheck": "claim_check",
    "decode_claim": "claim_check",
    "Compress": "compress",
    "Dedup": "dedup",
    "Delay": "times",
    "Expire": "times",
    "Encrypt": "encrypt",
    "EncryptFields": "encrypt",
    "HeaderIds": "header_ids",
    "Identity": "dedup",
    "Metrics": "metrics",
    "Lineage": "lineage",
    "Schema": "schema",
    "Serialize": "serialize",
    "Sign": "sign",
    "Slice": "slice",
    "Trace": "trace",
    "Trail": "trail",
    "TrailEntry": "trail",
    "TrailReading": "trail",
    "Transforms": "transforms",
    "decode_report": "audit",
    "expires_header": "times",
    "extract_context": "trace",
    "not_before_header": "times",
    "new_key_secret": "encrypt",
    "read_trail": "trail",
    "rewrapped_key_secret": "encrypt",
    "timeline": "trail_timeline",
}

_load: Final = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return [*__all__]
