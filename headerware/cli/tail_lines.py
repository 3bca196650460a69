"""A tailed record as lines of text, for pipes and for the view in a terminal.

Names, keys and payloads, which the writer of a record chose, are escaped, so that a terminal does not act on
them. An outcome has a sign and a word beside its colour.
"""

from __future__ import annotations

import codecs
import json
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from rich.text import Text

from headerware.cli.trail import trail_lines
from headerware.core.errors import position
from headerware.core.printable import printable
from headerware.interceptors.trail_timeline import time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headerware.ops.tail import (
        EncryptedFieldView,
        EncryptionView,
        Outcome,
        Part,
        RecordView,
        SignatureView,
        StepView,
        TailedRecord,
    )

Values = Literal["none", "text", "hex"]
"""How keys, values and headers' values are shown; ``none`` shows their sizes."""

OUTCOMES: Final[dict[Outcome, tuple[str, str, str]]] = {
    "delivered": ("✓", "delivered", "green"),
    "waits": ("…", "waits", "cyan"),
    "dropped": ("-", "dropped", "yellow"),
    "dead_letter": ("→", "dead letter", "bold yellow"),
    "refused": ("✗", "refused", "bold red"),
    "held_back": ("?", "held back", "bold yellow"),
}
"""The sign, the word and the colour of each outcome."""
_AS_STORED: Final = ("·", "as stored", "")
"""The same for a record on the wire that no step has looked at."""
NO_CHAIN: Final = "no chain: name its file with -c"
_STEP_STYLES: Final = {
    "refused": "bold red",
    "held_back": "bold yellow",
    "skipped": "yellow",
    "dropped": "yellow",
    "unchanged": "dim",
}


def record_lines(record: TailedRecord, values: Values) -> list[Text]:
    """Return all that is known about a record, one fact a line."""
    lines = [title(record)]
    for label, found in (
        ("", reason_lines(record)),
        ("wire", [] if record.wire is None else view_lines(record.wire, values, record.headers)),
        ("chain", chain_lines(record)),
        ("signature", signature_lines(record)),
        ("encryption", encryption_lines(record)),
        ("trail", timeline_lines(record)),
        *(("application", view_lines(view, values)) for view in record.application),
    ):
        for number, line in enumerate(found):
            lines.append(Text.assemble("  ", (f"{'' if number else label:<12}", "dim"), line))
    return lines


def brief_line(record: TailedRecord) -> Text:
    """Return the most important facts about a record on one line."""
    return title(record).append(f"  {signer(record)}", "not bold dim").append(f"  {note(record)}", "not bold")


def title(record: TailedRecord) -> Text:
    """Return a record's position, time, outcome and sizes."""
    sign, word, style = outcome_text(record)
    text = Text(printable(position(record.topic, record.partition, record.offset)), style="bold")
    if record.timestamp_ms is not None:
        text.append(f"  {time_text(record.timestamp_ms)}", "not bold dim")
    text.append(f"  {sign} {word}", f"not bold {style}")
    return text.append(f"  {sizes_text(record)}", "not bold")


def outcome_text(record: TailedRecord) -> tuple[str, str, str]:
    """Return the sign, the word and the colour of a record's outcome; no tick if no step has run."""
    is_as_stored = record.outcome == "delivered" and record.wire is not None and not record.steps
    return _AS_STORED if is_as_stored else OUTCOMES[record.outcome]


def sizes_text(record: TailedRecord) -> str:
    """Return the size on the wire, and the size that the application gets; an object has no size."""
    wire = "" if record.wire is None else _size_text(record.wire.size_bytes)
    if not record.application:
        return wire
    sizes = [view.size_bytes for view in record.application]
    known = [size for size in sizes if size is not None]
    return f"{wire} -> {_size_text(sum(known) if len(known) == len(sizes) else None)}".strip()


def note(record: TailedRecord) -> str:
    """Return a few words about a record: its slice, why it is not delivered, or which steps changed it."""
    parts = []
    if record.slice is not None:
        part = record.slice
        parts.append(f"slice {part.index + 1} of {part.count} of message {part.message_id[:8]}")
    if record.refusal is not None:
        step = f"{record.refusal.step}: " if record.refusal.step else ""
        parts.append(f"{step}{record.refusal.reason}")
    elif record.outcome == "dropped":
        parts.append(f"by {_last_step(record)}")
    if record.dead_letter_topic is not None:
        parts.append(f"its dead letter would go to {record.dead_letter_topic}")
    if not parts:
        parts.append(" -> ".join(step.step for step in record.steps if step.outcome != "unchanged"))
    return printable("; ".join(parts))


def signer(record: TailedRecord) -> str:
    """Return the signer of a record in a few words."""
    if record.signature is None:
        return "unsigned"
    name = f"{printable(record.signature.key_id)} v{record.signature.key_version}"
    return name if record.signature.verified else f"{name}, not verified"


def reason_lines(record: TailedRecord) -> list[Text]:
    """Return why a record does not reach an application, or not yet."""
    if record.outcome == "delivered" and record.slice is None:
        return []
    return [Text(note(record), OUTCOMES[record.outcome][2])]


def view_lines(
    view: RecordView, values: Values, named: tuple[tuple[str, Part], ...] | None = None
) -> list[Text]:
    """Return a record's key, value and headers; ``named`` has the headers with names instead of ids."""
    names = view.headers if named is None else named
    count = f"{len(view.headers)}"
    if len(names) != len(view.headers):
        count = f"{len(names)} by name, {len(view.headers)} on the wire"
    return [
        Text(f"{'key':<8}{part_text(view.key, values)}"),
        *_value_lines(view.value, values),
        Text(f"{'headers':<8}{count}, {view.header_bytes:,} B"),
        *_header_lines(names, values),
    ]


def chain_lines(record: TailedRecord) -> list[Text]:
    """Return the steps of the chain, each with the size after it and what it did."""
    if record.wire is None:
        return []
    wide = max((len(step.step) for step in record.steps), default=0)
    wide = max(wide, len("on the wire"))
    before = record.wire.size_bytes
    lines = [Text(f"{'on the wire':<{wide}}  {_size_text(before):>13}")]
    for step in record.steps:
        size, change = step.size_bytes, ""
        if size is not None and before is not None and size != before:
            change = f"{size - before:+,}"
        lines.append(
            Text(
                f"{step.step:<{wide}}  {_size_text(size):>13}  {change:>11}  {_did(step)}".rstrip(),
                _STEP_STYLES.get(step.outcome, ""),
            )
        )
        before = size
    if record.not_run:
        lines.append(Text(not_run_text(record.not_run), "dim"))
    return lines


def not_run_text(names: Sequence[str]) -> str:
    """Return a line about the interceptors of a chain that only observe, and are left out."""
    return f"not run: {', '.join(names)}"


def signature_lines(record: TailedRecord) -> list[Text]:
    """Return who signed a record, when and for which topic, and whether that was verified."""
    found = record.signature
    if found is None:
        return [Text("unsigned", "dim")]
    lines = [
        _verdict(found),
        Text(f"signed {time_text(found.signed_at_ms)} for {_topic_text(found.cluster, found.topic)}"),
        Text(f"record {found.sequence:,} of session {found.producer}", "dim"),
    ]
    if found.uncovered:
        names = ", ".join(map(printable, found.uncovered))
        lines.append(Text(f"not covered, added later: {names}", "yellow"))
    return lines


def encryption_lines(record: TailedRecord) -> list[Text]:
    """Return under which key a record and its fields are encrypted, and whether they were decrypted."""
    lines = []
    if record.encryption is not None:
        lines = _encrypted_lines("", record.encryption)
        if record.encryption.encrypts_key:
            lines.append(Text("the record's key is encrypted, too", "dim"))
        if record.encryption.encrypts_headers:
            lines.append(Text("some of its headers are encrypted, too", "dim"))
    alike: dict[EncryptedFieldView, list[str]] = {}
    for view in record.encrypted_fields:
        alike.setdefault(msgspec.structs.replace(view, field=""), []).append(printable(view.field))
    for view, fields in alike.items():
        lines += _encrypted_lines(f"{', '.join(fields)} ", view)
    return lines


def _encrypted_lines(what: str, found: EncryptionView | EncryptedFieldView) -> list[Text]:
    version = f" v{printable(found.key_version)}" if found.key_version else ""
    done = Text("decrypted", "green") if found.decrypted else Text("not decrypted", "yellow")
    lines = [
        Text.assemble(f"{what}under {printable(found.key_id)}{version}, ", done),
        Text(f"for {_topic_text(found.cluster, found.topic)}"),
    ]
    if found.signer:
        lines.append(Text(f"to be signed with {printable(found.signer)}", "dim"))
    return lines


def timeline_lines(record: TailedRecord) -> list[Text]:
    """Return the lines of a record's trail."""
    if record.trail is None:
        return [Text("a trail that cannot be read", "yellow")]
    is_verified = record.signature is not None and record.signature.verified
    if record.dead_letter_of is not None:
        return trail_lines(
            record.trail,
            found_in=(record.cluster, record.topic),
            dead_letter_of=record.dead_letter_of,
            is_verified=is_verified,
            hops=record.trail_hops or (),
            problem=record.trail_problem,
        )
    if not record.trail.entries:
        return [Text("no trail", "dim")]
    return trail_lines(
        record.trail,
        found_in=(None, record.topic),
        is_verified=is_verified,
        hops=record.trail_hops or (),
        problem=record.trail_problem,
    )


def part_text(part: Part, values: Values) -> str:
    """Return a key or a value on one line."""
    if part.kind == "null":
        return "null"
    size = part.kind if part.size_bytes is None else _size_text(part.size_bytes)
    if values == "none":
        return size
    return f"{size}  {payload_text(part, values)}"


def payload_text(part: Part, values: Values) -> str:
    """Return a payload on one line, as text if it is text and text was asked for, else as hexadecimal."""
    cut = "..." if part.is_cut else ""
    text = None if values == "hex" else _decoded(part.beginning)
    return f"0x{part.beginning.hex()}{cut}" if text is None else f"{printable(text)}{cut}"


def as_json(record: TailedRecord, values: Values) -> dict[str, Any]:
    """Return a record as builtins for ``--json``, with payloads only if they were asked for."""
    found: dict[str, Any] = msgspec.to_builtins(record, builtin_types=(bytes,))
    found["wire"] = None if record.wire is None else _view_json(record.wire, values)
    found["headers"] = _headers_json(record.headers, values)
    found["application"] = [_view_json(view, values) for view in record.application]
    return found


def _value_lines(part: Part, values: Values) -> list[Text]:
    lines = [Text(f"{'value':<8}{part_text(part, values)}")]
    if values != "text" or part.kind == "null" or part.is_cut:
        return lines
    try:
        found = json.loads(part.beginning)
    except (ValueError, RecursionError):
        return lines
    if not isinstance(found, dict | list) or not found:
        return lines
    size = part.kind if part.size_bytes is None else _size_text(part.size_bytes)
    pretty = json.dumps(found, indent=2, ensure_ascii=False).splitlines()
    return [Text(f"{'value':<8}{size}, JSON"), *(Text(f"  {printable(line)}") for line in pretty)]


def _header_lines(headers: tuple[tuple[str, Part], ...], values: Values) -> list[Text]:
    names = [printable(name) for name, _ in headers]
    wide = max(map(len, names), default=0)
    return [
        Text.assemble(f"  {name:<{wide}}  ", (part_text(part, values), "dim"))
        for name, (_, part) in zip(names, headers, strict=True)
    ]


def _size_text(size_bytes: int | None) -> str:
    return "object" if size_bytes is None else f"{size_bytes:,} B"


def _did(step: StepView) -> str:
    names = [*(f"-{name}" for name in step.removed), *(f"+{name}" for name in step.added)]
    said = f"{step.outcome}: {step.reason}" if step.reason else step.outcome
    return printable(" ".join([said, *names]))


def _verdict(found: SignatureView) -> Text:
    name = f"{printable(found.key_id)} version {found.key_version}"
    if found.verified:
        by = f", admitted as {printable(found.subject)}" if found.subject else ""
        return Text.assemble(("✓ verified", "green"), f", signed with {name}{by}")
    return Text.assemble(("? not verified", "yellow"), f": it claims to be signed with {name}")


def _topic_text(cluster: str, topic: str) -> str:
    return f"{printable(cluster) or '?'}/{printable(topic)}"


def _last_step(record: TailedRecord) -> str:
    return record.steps[-1].step if record.steps else "the chain"


def _decoded(data: bytes) -> str | None:
    """Return the text of UTF-8, without a character that is cut at the end; None if it is not UTF-8."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return None


def _view_json(view: RecordView, values: Values) -> dict[str, Any]:
    return {
        "topic": view.topic,
        "size_bytes": view.size_bytes,
        "header_bytes": view.header_bytes,
        "key": _part_json(view.key, values),
        "value": _part_json(view.value, values),
        "headers": _headers_json(view.headers, values),
    }


def _headers_json(headers: tuple[tuple[str, Part], ...], values: Values) -> list[dict[str, Any]]:
    return [{"name": name, **_part_json(part, values)} for name, part in headers]


def _part_json(part: Part, values: Values) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": part.kind, "size_bytes": part.size_bytes}
    if values == "none" or part.kind == "null":
        return found
    text = None if values == "hex" else _decoded(part.beginning)
    found |= {"hex": part.beginning.hex()} if text is None else {"text": text}
    return found | {"cut": part.is_cut}
