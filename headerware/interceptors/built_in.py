"""Tables of the built-in interceptors and of Headerware's own headers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headerware.core.boundary import OwnHeaders

if TYPE_CHECKING:
    from collections.abc import Mapping

INTERCEPTORS: Final[Mapping[str, str]] = {
    "admission": "headerware.interceptors.admission.interceptor:Admission",
    "audit": "headerware.interceptors.audit:Audit",
    "claim_check": "headerware.interceptors.claim_check:ClaimCheck",
    "compress": "headerware.interceptors.compress:Compress",
    "contract": "headerware.interceptors.contract:Contract",
    "dedup": "headerware.interceptors.dedup:Dedup",
    "delay": "headerware.interceptors.times.delay:Delay",
    "expire": "headerware.interceptors.times.expire:Expire",
    "encrypt": "headerware.interceptors.encrypt:Encrypt",
    "encrypt_fields": "headerware.interceptors.encrypt:EncryptFields",
    "header_ids": "headerware.interceptors.header_ids:HeaderIds",
    "metrics": "headerware.interceptors.metrics:Metrics",
    "lineage": "headerware.interceptors.lineage:Lineage",
    "schema": "headerware.interceptors.schema:Schema",
    "serialize": "headerware.interceptors.serialize:Serialize",
    "sign": "headerware.interceptors.sign:Sign",
    "slice": "headerware.interceptors.slice:Slice",
    "trace": "headerware.interceptors.trace:Trace",
    "trail": "headerware.interceptors.trail:Trail",
    "transforms": "headerware.interceptors.transforms:Transforms",
}
"""The class of each built-in interceptor, by its type in configuration."""

RENAMED: Final = {"compact": "header_ids"}
"""Former types in configuration, with the types that replace them."""

GROUP: Final = "headerware.interceptors"
"""The entry-point group of plug-ins."""

HEADERS: Final = OwnHeaders(
    lineage=frozenset(
        {
            "hw.trail",
            "hw.trail.proof",
            "hw.contract",
            "hw.owner",
            "hw.schema",
            "hw.expires",
            "hw.not-before",
            "hw.source",
            "hw.source.key",
            "hw.source.record",
        }
    ),
    encodings={
        "hw.compress": "compress",
        "hw.encrypt": "encrypt",
        "hw.claim": "claim_check",
        "hw.slice": "slice",
        "hw.ids": "header_ids",
    },
    signature="hw.sig",
    signature_interceptor="sign",
    compact_keys={  # spec/header-ids.md
        "~B": "hw.trail",
        "~C": "hw.compress",
        "~D": "hw.encrypt",
        "~E": "hw.slice",
        "~F": "hw.sig",
        "~G": "hw.schema",
        "~H": "hw.claim",
        "~I": "hw.id",
        "~J": "hw.expires",
        "~K": "hw.owner",
        "~L": "hw.admit",
        "~M": "hw.not-before",
        "~N": "hw.source",
        "~O": "hw.source.key",
        "~P": "hw.source.record",
        "~Q": "hw.contract",
        "~R": "hw.secret",
        "~S": "hw.trail.proof",
    },
    ids_interceptor="header_ids",
)
