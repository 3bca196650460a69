"""Each limit of spec/limits.md is the constant in the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_type_hints

import msgspec

from headerware.core import commit_metadata, dead_letter, strict_json
from headerware.core.header_ids import MAX_ID
from headerware.dictionaries import dictionary
from headerware.dictionaries import topic as dictionary_topic
from headerware.interceptors import (
    ClaimCheck,
    Compress,
    Dedup,
    Expire,
    Sign,
    Slice,
    Trail,
    compress,
    sign,
    trail,
    trail_proof,
)
from headerware.interceptors.admission import policy
from headerware.interceptors.admission.interceptor import Admission
from headerware.interceptors.contract import document, schemas
from headerware.interceptors.contract import interceptor as contract
from headerware.interceptors.dedup import windows
from headerware.interceptors.encrypt import envelope, secret_headers
from headerware.interceptors.encrypt import interceptor as encrypt
from headerware.interceptors.slice import header, reassembly
from headerware.interceptors.times import moments
from headerware.interceptors.times.delay import Delay
from headerware.keyring import asymmetric, certificate, file, keyring, merkle, signature
from headerware.keyring.services import FileKeys, data_keys
from headerware.registry import header_names
from headerware.registry.stores import toml
from headerware.registry.stores import topic as registry_topic
from headerware.registry.wire import packed_block
from headerware.serdes import content_types
from headerware.serdes.avro import limits, schema
from headerware.sources.config import _SOURCE_NAME
from headerware.topic_table import snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = Path(__file__).parents[2] / "spec" / "limits.md"
LARGE_NUMBER: Final = r"(?<![\d,])(?:\d{1,3}(?:,\d{3})+|\d+ MiB)(?![\d,])"
UNITS: Final = {"MiB": 1 << 20}


def default(interceptor: type[msgspec.Struct], option: str) -> Any:
    """Return an option's default, without making an interceptor that needs others."""
    return next(field.default for field in msgspec.structs.fields(interceptor) if field.name == option)


def longest_burst_s() -> int:
    bounds = get_type_hints(policy.Quota, include_extras=True)["burst_s"].__metadata__[0]
    return int(bounds.le)


AVRO: Final = limits.Limits()
LARGE: Final = [10**digits - 1 for digits in range(1, 20)]
IN_CODE: Final[dict[str, int]] = {
    "`hw.trail`: its value": trail._MAX_TRAIL_BYTES,
    "`hw.trail`: a text, as it is written": trail._MAX_TEXT_BYTES,
    "`hw.trail`: entries that were left out": trail.MAX_LEFT_OUT,
    "`hw.trail`: entries": default(Trail, "max_entries"),
    "`hw.trail`: its value, when an entry is added": default(Trail, "max_bytes"),
    "`hw.trail.proof`: proofs": trail_proof.MAX_HOPS,
    "`hw.trail.proof`: its value, when a proof is added": default(Trail, "max_bytes"),
    "`hw.compress`: the decompressed value": default(Compress, "max_decompressed_bytes"),
    "`hw.compress`: a zstd window, beyond the stated size": compress._MAX_WINDOW_BYTES,
    "`hw.compress`: bytes that a byte of a frame may stand for, as stated": compress._MAX_RATIO,
    "`hw.encrypt`: each text": envelope._MAX_TEXT_BYTES,
    "`hw.encrypt`: the wrapped data key": envelope._MAX_WRAPPED_BYTES,
    "`hw.encrypt`: a wrapped data key that a key service is asked for": data_keys.MAX_WRAPPED_BYTES,
    "`hw.encrypt`: names of bound headers": envelope.MAX_BOUND_HEADERS,
    "`hw.encrypt`: names of secret headers, and of deterministic headers": encrypt._MAX_ENCRYPTED_NAMES,
    "`hw.secret`: a header's name": secret_headers._MAX_NAME_BYTES,
    "`hw.secret`: headers": secret_headers.MAX_BLOCK_HEADERS,
    "`hw.claim`: the object": default(ClaimCheck, "max_object_bytes"),
    "`hw.slice`: slices of a message": header.MAX_SLICES,
    "`hw.slice`: a message": default(Slice, "max_message_bytes"),
    "`hw.slice`: incomplete messages together": default(Slice, "max_pending_bytes"),
    "`hw.slice`: incomplete messages": default(Slice, "max_pending_messages"),
    "`hw.slice`: since the last slice of a message came": default(Slice, "expire_ms"),
    "`hw.slice`: offsets behind the last slice of a message": default(Slice, "max_gap"),
    "`hw.slice`: messages that are remembered as delivered or given up": reassembly.MAX_CLOSED,
    "`hw.sig`: key id, cluster, topic": signature._MAX_TEXT_BYTES,
    "`hw.sig`: records of a batch": merkle.MAX_RECORDS,
    "`hw.sig`: an RSA modulus": asymmetric.RSA_MAX_BITS,
    "`hw.sig`: how far the time of signing may lie ahead, where ages are bounded, and a key's beginning": (
        default(Sign, "clock_skew_ms")
    ),
    "`hw.sig`: since a record of the next version of a key came": default(Sign, "await_version_ms"),
    "`hw.sig`: producers in a replay window": sign.MAX_PRODUCERS,
    "`hw.admit`: the token": certificate.MAX_BYTES,
    "`hw.admit`: the lifetime of a certificate": default(policy.Issuer, "max_lifetime_s"),
    "`hw.admit`: the tolerance of clocks": default(Admission, "clock_skew_ms"),
    "`hw.id`: identities of one producer, at least": default(Dedup, "window"),
    "`hw.id`: producers": windows.MAX_PRODUCERS,
    "`hw.expires`, `hw.not-before`: a moment": moments._MAX_DIGITS,
    "`hw.expires`: the tolerance of clocks": default(Expire, "clock_skew_ms"),
    "`hw.not-before`: how long a record may hold a partition": default(Delay, "max_delay_ms"),
    "`hw.ids`: an id, a length, a count": MAX_ID,
    "`hw.ids`: headers in one block": packed_block.MAX_PACKED,
    "`hw.source`: a name": max(size for size in range(1, 1_000) if _SOURCE_NAME.fullmatch("t" * size)),
    "`hw.contract`: its value": contract._MAX_MARK_BYTES,
    "contract: the document": document._MAX_BYTES,
    "contract: values in the document, with YAML's aliases written in full": document._MAX_VALUES,
    "contract: parts of a schema, with all that it refers to": schemas._MAX_PARTS,
    "contract: bytes of a value, times the parts of its schema": schemas._MAX_WORK,
    "`content-type`: its value": content_types._MAX_BYTES,
    "Avro: a schema's text": AVRO.max_schema_bytes,
    "Avro: the depth of a schema and of a value": AVRO.max_depth,
    "Avro: values in one payload": AVRO.max_values,
    "Avro: named types, and branches of a union": AVRO.max_named_types,
    "Avro: all names of a schema, written in full": schema._MAX_NAMES_CHARS,
    "Avro: a decimal": limits.MAX_DECIMAL_BYTES,
    "Avro: a fixed": schema._MAX_FIXED_BYTES,
    "dead letter: the reason": dead_letter._LONGEST_REASON_BYTES,
    "dead letter: each other text": dead_letter._LONGEST_NAME_BYTES,
    "dead letter: a text that is read": dead_letter._MAX_TEXT,
    "dead letter: attempts": dead_letter._MAX_COUNT,
    "`headerware.redriven`: the count": max(
        count for count in LARGE if dead_letter.redrives([(dead_letter.REDRIVEN, b"%d" % count)])[0]
    ),
    "commit metadata: a worker's, as a whole": commit_metadata.MAX_BYTES,
    "commit metadata: a worker's own part": commit_metadata.MAX_OWN_BYTES,
    "commit metadata: the pending records": commit_metadata.MAX_PENDING_BYTES,
    "commit metadata: the field of bits": commit_metadata.MAX_FIELD_BYTES,
    "commit metadata: pending records": commit_metadata.MAX_PENDING,
    "commit metadata: a position": commit_metadata._LAST_OFFSET,
    "JSON of files that decide: its depth": strict_json._MAX_DEPTH,
    "JSON of files that decide: an integer": strict_json.MAX_INTEGER,
    "keyring: the file": file.MAX_BYTES,
    "keyring: a key's id": keyring._KEY_ID_MAX_BYTES,
    "keyring: a key's version": keyring.KEY_VERSION_MAX,
    "keyring: an HMAC secret": keyring._HMAC_SECRET_MAX_BYTES,
    "keyring: since the file was last good": file.MAX_STALE_MS,
    "wrapped data key: since one of the next version of a key came": default(FileKeys, "await_version_ms"),
    "policy: the file, and a key set": policy._MAX_BYTES,
    "policy: what a quota saves up": longest_burst_s(),
    "registry: a name": header_names.MAX_NAME_CHARACTERS,
    "registry: an owner": header_names.MAX_OWNER_CHARACTERS,
    "registry: a description": header_names.MAX_DESCRIPTION_CHARACTERS,
    "registry: a change in a topic": registry_topic.MAX_CHANGE_BYTES,
    "registry: a file": toml._MAX_BYTES,
    "dictionary: its bytes": dictionary.MAX_DICTIONARY_BYTES,
    "dictionary: a use": dictionary.MAX_USE_BYTES,
    "dictionary: versions of a use": dictionary.MAX_VERSIONS,
    "dictionary: all of a topic": dictionary_topic.MAX_TOTAL_BYTES,
    "a topic's snapshot on disk": snapshot._MAX_BYTES,
}


NO_LIMITS: Final[dict[str, int]] = {
    "1,317": trail.MAX_ENTRY_BYTES,
    "2,646": trail.MIN_BOUND_BYTES,
    "2,048": asymmetric.RSA_MIN_BITS,
    "65,537": asymmetric._RSA_EXPONENT,
    "1,949": 1_949,  # of how numbers look in a block
    "1,950": 1_950,
}
"""The other large numbers of the pages; a least size is none that a reader bounds."""


def rows() -> Iterator[tuple[str, int, str]]:
    """Yield each row of the page: the use, the limit, and whose it is."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 4 and cells[0] != "use" and not cells[0].startswith("-"):
            found = re.fullmatch(r"([0-9,]+)(?: (\S+))?", cells[1])
            assert found, f"{cells[0]}: expected a number and a unit, found {cells[1]}"
            yield cells[0], int(found[1].replace(",", "")) * UNITS.get(found[2], 1), cells[2]


def test_each_limit_is_that_of_the_code() -> None:
    assert {use: limit for use, limit, _ in rows()} == IN_CODE


def test_each_limit_is_of_the_layout_the_reader_or_the_writer() -> None:
    assert {whose for _, _, whose in rows()} == {"the layout's", "the reader's", "the writer's"}


def test_no_use_stands_twice() -> None:
    uses = [use for use, _, _ in rows()]
    assert len(uses) == len(set(uses))


def test_each_large_number_of_the_pages_is_a_limit() -> None:
    listed = PAGE.read_text(encoding="utf-8")
    found = {
        number
        for page in PAGE.parent.glob("*.md")
        for number in re.findall(LARGE_NUMBER, page.read_text(encoding="utf-8"))
    }
    assert found - set(re.findall(LARGE_NUMBER, listed)) == set(NO_LIMITS)
    assert all(int(text.replace(",", "")) == number for text, number in NO_LIMITS.items())
