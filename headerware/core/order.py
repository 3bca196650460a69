"""The order of a chain: a table of the pairs that cannot work."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from headerware.core.errors import ConfigError
from headerware.core.hooks import Interceptor, Place, Role, Stage, label, states
from headerware.core.plugins import misnamed_hooks
from headerware.core.suggestions import closest
from headerware.core.topics import suspicious, topics_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from headerware.core.topics import TopicPatterns

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_CHANGES_BYTES: Final = "it would change the bytes after sign has signed them"
_LAST: Final = "header_ids rewrites header names, so it comes last"
_UNCOVERED: Final = "the signature would not cover {}"
_FIRST_SLICE: Final = "only the first slice of a message has its headers, so {} before the message is cut"
_UNREADABLE: Final = "a contract is about the value as it was serialized, which it could not read here"
_NEVER_BEFORE: Final[tuple[tuple[Place, Place, str], ...]] = (
    (Place.ENCRYPT, Place.COMPRESS, "encrypted bytes cannot be compressed"),
    (
        Place.SLICE,
        Place.COMPRESS,
        "it would compress each slice on its own; compress the whole message first",
    ),
    (Place.SLICE, Place.ENCRYPT, "it would encrypt each slice on its own; encrypt the whole message first"),
    (Place.CLAIM_CHECK, Place.COMPRESS, "it would compress the claim, and the value is stored as it is"),
    (Place.CLAIM_CHECK, Place.ENCRYPT, "it would encrypt the claim, and the value is stored in plaintext"),
    (Place.SLICE, Place.CLAIM_CHECK, "a message that is stored elsewhere does not have to be cut"),
    (Place.COMPRESS, Place.CONTRACT, _UNREADABLE),
    (Place.ENCRYPT, Place.CONTRACT, _UNREADABLE),
    (Place.CLAIM_CHECK, Place.CONTRACT, _UNREADABLE),
    (Place.SLICE, Place.CONTRACT, "a contract is about messages; let it judge a message before it is cut"),
    (Place.SIGN, Place.CONTRACT, _UNCOVERED.format("the mark of a record that breaks its contract")),
    (Place.COMPRESS, Place.SCHEMA, "a schema describes the bytes as they were serialized, not compressed"),
    (Place.SLICE, Place.SCHEMA, _FIRST_SLICE.format("the schema is replaced")),
    (Place.SIGN, Place.SCHEMA, _UNCOVERED.format("the schema's fingerprint")),
    (Place.SLICE, Place.TRAIL, _FIRST_SLICE.format("the trail is written")),
    (Place.SLICE, Place.TRACE, _FIRST_SLICE.format("the trace context is written")),
    (Place.SLICE, Place.DEDUP, _FIRST_SLICE.format("the identity is written")),
    (Place.ADMISSION, Place.SLICE, "each slice needs a token of its own, so the message is cut first"),
    (Place.SIGN, Place.ADMISSION, _UNCOVERED.format("the token")),
    (Place.SLICE, Place.EXPIRE, _FIRST_SLICE.format("the time is written")),
    (Place.SIGN, Place.EXPIRE, _UNCOVERED.format("the time")),
    (Place.SIGN, Place.TRAIL, _UNCOVERED.format("the trail")),
    (Place.SIGN, Place.TRACE, _UNCOVERED.format("the trace context")),
    (Place.SIGN, Place.DEDUP, _UNCOVERED.format("the identity")),
    (Place.SIGN, Place.COMPRESS, _CHANGES_BYTES),
    (Place.SIGN, Place.ENCRYPT, _CHANGES_BYTES),
    (Place.SIGN, Place.CLAIM_CHECK, _CHANGES_BYTES),
    (Place.SIGN, Place.SLICE, "each slice needs a signature of its own, so the message is cut first"),
    *(
        (Place.HEADER_IDS, place, _LAST)
        for place in Place
        if place not in {Place.HEADER_IDS, Place.TRANSFORM}
    ),
)
"""(left, right, why right may not come after left)."""
_ONCE: Final = frozenset({Place.ENCRYPT, Place.SIGN})
"""What can be done to a record once; a record with two such headers is refused."""
_MUST_STATE: Final = {
    Place.SLICE: ("atomic", "splits"),
    Place.SIGN: ("verifies",),
    Place.HEADER_IDS: ("writes_ids",),
}
"""The capabilities that an interceptor must state for its position; without them it would protect less."""


def in_order(sources: Iterable[Sequence[object]]) -> list[object]:
    """Return the interceptors of several sources in one order, by their positions (``place``).

    An interceptor without a position comes after the interceptor that it follows in its own source. If it
    follows none, it comes after the serializers, or before them if it works on objects.
    """
    ranked: list[tuple[int, object]] = []
    for source in sources:
        rank = int(Place.SERIALIZE)
        for interceptor in source:
            place = place_of(interceptor)
            if place is not None:
                rank = int(place)
            objects = place is None and stage_of(interceptor) is Stage.OBJECTS
            ranked.append((int(Place.TRANSFORM) if objects else rank, interceptor))
    return [interceptor for _, interceptor in sorted(ranked, key=lambda pair: pair[0])]


def check_order(interceptors: Sequence[object]) -> None:
    """Refuse a chain that cannot work."""
    for interceptor in interceptors:
        place = place_of(interceptor)
        if place is None:
            continue
        for capability in _MUST_STATE.get(place, ()):
            if not states(interceptor, capability):
                raise ConfigError(
                    f"{label(interceptor)!r} claims the position {place.name} but does not state what a "
                    f"session does for it there; write {capability}: ClassVar[bool] = True in its class",
                    path=f"interceptors.{label(interceptor)}",
                )
    for left_index, left in enumerate(interceptors):
        for right in interceptors[left_index + 1 :]:
            if not _share_topics(left, right):
                continue
            for first, second, why in _NEVER_BEFORE:
                if place_of(left) is first and place_of(right) is second:
                    raise _misplaced(right, left, why)
            if place_of(left) is Place.SIGN and place_of(right) is None and _transforms(right):
                raise _misplaced(right, left, _CHANGES_BYTES)
            if place_of(left) is Place.HEADER_IDS and place_of(right) is None:
                raise _misplaced(right, left, _LAST)
    for interceptor in interceptors:
        unsignable: str | None = getattr(interceptor, "unsignable", None)
        if unsignable and is_signed(interceptor, interceptors):
            raise ConfigError(
                f"{label(interceptor)!r} cannot be in a chain that signs: {unsignable}",
                path=f"interceptors.{label(interceptor)}",
            )
    _check_sizes(interceptors)
    for left, right in pairwise(interceptors):
        if stage_of(right) is Stage.OBJECTS and stage_of(left) is not Stage.OBJECTS:
            raise _misplaced(right, left, "it works on objects, before they are serialized")
        if place_of(right) is Place.SERIALIZE and not precedes_bytes(left):
            raise _misplaced(right, left, f"{label(left)!r} works on bytes, once objects are serialized")
    for left, right in combinations(interceptors, 2):
        if place_of(left) is place_of(right) is Place.SERIALIZE and surely_share_topics(left, right):
            raise ConfigError(
                f"{label(left)!r} and {label(right)!r} would both serialize the same records; give each its "
                f"own topics, or remove one of them",
                path=f"interceptors.{label(right)}",
            )
        if _do_twice(left, right, _ONCE) and None not in (_key_id(left), _key_id(right)):
            raise ConfigError(
                f"{label(left)!r} and {label(right)!r} would both protect the same records, "
                f"and a record has only one such header; give each its own topics, or remove one of them (to "
                f"use another key from now on, rotate the key)",
                path=f"interceptors.{label(right)}",
            )


def _do_twice(left: object, right: object, places: Container[Place | None]) -> bool:
    place = place_of(left)
    return place is place_of(right) and place in places and surely_share_topics(left, right)


def _key_id(interceptor: object) -> str | None:
    return getattr(interceptor, "key_id", None)


def require_no_plain_dead_letters(interceptors: Sequence[object]) -> None:
    """Refuse ``dead_letter`` in a producer's chain that encrypts: it would publish records as they were."""
    for interceptor in interceptors:
        if getattr(interceptor, "on_error", None) != "dead_letter":
            continue
        for hiding in interceptors:
            if states(hiding, "hides") and _share_topics(hiding, interceptor):
                raise ConfigError(
                    f"'dead_letter' would publish what {label(hiding)!r} hides: while sending, a dead letter "
                    f"has the record as the application gave it. Use raise or drop in producers' chains, and "
                    f"dead_letter in a chain for consumers, whose dead letters are still encrypted",
                    path=f"interceptors.{label(interceptor)}.on_error",
                )


class Sizes(NamedTuple):
    """The sizes of values that an interceptor carries in another way than in one record, in bytes."""

    name: str
    above_bytes: int
    up_to_bytes: int


def sizes(interceptors: Sequence[object]) -> list[Sizes]:
    """Return the sizes of values that each interceptor carries, small first; empty if topics differ.

    A value that an interceptor takes never reaches the interceptors after it. So only the size of the value
    decides between a record, slices and a claim.
    """
    carriers = [each for each in interceptors if getattr(each, "carries_bytes", None) is not None]
    if not all(surely_share_topics(left, right) for left, right in combinations(carriers, 2)):
        return []
    found: list[Sizes] = []
    for carrier in carriers:
        above, up_to = carrier.carries_bytes  # type: ignore[attr-defined]
        if not found:
            found.append(Sizes(label(carrier), above, up_to))
        elif above < found[-1].above_bytes:
            found.append(Sizes(label(carrier), above, min(up_to, found[-1].above_bytes)))
    return found[::-1]


def _check_sizes(interceptors: Sequence[object]) -> None:
    """Refuse a chain whose interceptors carry small and large values, but not the sizes between."""
    for left, right in _carriers(interceptors):
        above, up_to = left.carries_bytes[0], right.carries_bytes[1]
        if up_to < above:
            raise ConfigError(
                f"takes values up to {up_to} bytes, and {label(left)!r} takes values above {above} bytes, so "
                f"values of the sizes between would be refused; let the two limits meet",
                path=f"interceptors.{label(right)}",
            )


def _carriers(interceptors: Sequence[object]) -> list[tuple[Any, Any]]:
    """Return the pairs of interceptors that carry values of the same topics by their size."""
    carriers = [each for each in interceptors if getattr(each, "carries_bytes", None) is not None]
    return [pair for pair in combinations(carriers, 2) if _share_topics(*pair)]


_WRITABLE: Final = (
    "no step signs what it encrypts, so everybody who can decrypt the records can also write records that "
    "are accepted; put sign after it if that is not intended"
)

_PLAIN_OBJECTS: Final = (
    "values are stored as they come, so everybody who can read the store can read them; put encrypt before "
    "it if that is not intended"
)


_TOO_SHORT_MS: Final = 100
"""A shorter time is more likely a number of seconds."""
_USUAL_SECONDS: Final = frozenset({1_800, 3_600, 7_200, 86_400, 604_800})
"""Half an hour, an hour, two hours, a day and a week, in seconds."""
_TAKES_OBJECTS: Final = (
    "the application passes objects to produce, such as dicts, and gets objects from poll; a value that is "
    "bytes already, as of json.dumps, is refused"
)


CLIENT_TAKES_BYTES: Final = 1_000_000
"""``message.max.bytes`` of a client that does not set it."""
TOPIC_TAKES_BYTES: Final = 1_048_588
"""``max.message.bytes`` of a topic whose brokers do not set it."""


def idle_steps(interceptors: Sequence[object]) -> list[tuple[str, str]]:
    """Return the names of the interceptors that do not do what their options seem to say, and the reasons."""
    found = [(label(each), str(why)) for each in interceptors if (why := getattr(each, "idle", None))]
    found += [(label(each), why) for each in interceptors for why in _unexpanded(each)]
    found += [(label(each), why) for each in interceptors if (why := misnamed_hooks(type(each)))]
    found += [
        (label(right), f"records have the entries of {label(left)!r}, too; remove one of them")
        for left, right in combinations(interceptors, 2)
        if _do_twice(left, right, {Place.TRAIL})
    ]
    for each in interceptors:
        lacking = getattr(each, "needs_serializer", None)
        if lacking and not _is_serialized(each, interceptors):
            found.append((label(each), str(lacking)))
    return found


def notes(interceptors: Sequence[object]) -> list[tuple[str, str]]:
    """Return the names of the interceptors of which somebody should know something, each with a sentence."""
    found = [(label(each), str(note)) for each in interceptors if (note := getattr(each, "caution", None))]
    found += [
        (label(each), _TAKES_OBJECTS)
        for each in interceptors
        if getattr(each, "needs_serializer", None) and _is_serialized(each, interceptors)
    ]
    return found + [(label(each), note) for each in interceptors for note in _in_seconds(each)]


def _in_seconds(interceptor: object) -> Iterator[str]:
    """Yield a sentence for each time in milliseconds that looks like a number of seconds."""
    if not isinstance(interceptor, msgspec.Struct):
        return
    for field in msgspec.structs.fields(interceptor):
        given = getattr(interceptor, field.name)
        if field.name.endswith("_ms") and given != field.default:
            times = {field.name: given}
        elif field.name.endswith("_ms_by_topic") and isinstance(given, Mapping):
            times = {f"{field.name}.{pattern!r}": each for pattern, each in given.items()}
        else:
            continue
        for name, time_ms in times.items():
            if isinstance(time_ms, int) and (0 < time_ms < _TOO_SHORT_MS or time_ms in _USUAL_SECONDS):
                yield f"{name} = {time_ms} is {time_ms / 1000:g} s, because its unit is milliseconds"


def _is_serialized(interceptor: object, interceptors: Iterable[object]) -> bool:
    """Return whether some of the records that an interceptor works on are serialized by the chain."""
    return any(
        place_of(other) is Place.SERIALIZE and _share_topics(interceptor, other) for other in interceptors
    )


def idle_on(interceptors: Sequence[object], topics: Iterable[str]) -> list[tuple[str, str]]:
    """Return the patterns and rules that match none of these topics, by the names of the interceptors."""
    known = list(topics)
    return [(label(each), f"no topic fits {idle}") for each in interceptors for idle in _idle_on(each, known)]


def _idle_on(interceptor: object, topics: Sequence[str]) -> Iterator[str]:
    """Yield an interceptor's patterns, in one text, and its rules that match none of these topics."""
    patterns = topics_of(interceptor)
    for topic in topics:
        patterns.note(topic)
    if patterns.unmatched:
        yield ", ".join(map(repr, patterns.unmatched))
    if topics and (of_rules := getattr(interceptor, "idle_on", None)):
        yield from of_rules(topics)


def unprotected(topic: str, missing: Sequence[tuple[str, TopicPatterns]]) -> str:
    """Return a warning that records of a topic pass without steps that protect, if a slip may be the reason.

    Args:
        topic: the topic.
        missing: the names of the steps, with their topics.
    """
    written = [pattern for _, topics in missing for pattern in topics.patterns]
    found = "; ".join(f"{name} is for {', '.join(map(repr, topics.patterns))}" for name, topics in missing)
    near = closest(topic, written)
    meant = "" if near is None else f"; did you mean {topic!r} where {near!r} is?"
    return (
        f"records of topic {topic!r} pass without {' and '.join(name for name, _ in missing)} ({found}, and "
        f"no topic has fitted yet){meant}; if that is meant, add '!{topic}' to these topics"
    )


def unprotected_by(interceptors: Iterable[object], topic: str) -> str | None:
    """Return this warning for a chain that has only this topic, or None."""
    missing = [
        (label(each), topics)
        for each in interceptors
        if role_of(each) is Role.PROTECT and (topics := topics_of(each)).misses(topic)
    ]
    return unprotected(topic, missing) if missing else None


def weaknesses(interceptors: Sequence[object]) -> list[tuple[str, str]]:
    """Return the names of interceptors that do nothing or protect less than it seems, with the reasons."""
    hiding = (each for each in interceptors if states(each, "hides"))
    found = idle_steps(interceptors)
    found += [(label(each), why) for each in interceptors for why in suspicious(getattr(each, "topics", ()))]
    found += [(label(each), _WRITABLE) for each in hiding if not is_signed(each, interceptors)]
    for each in interceptors:
        reveals: str | None = getattr(each, "reveals", None)
        if reveals and any(states(other, "hides") and _share_topics(each, other) for other in interceptors):
            found.append((label(each), reveals))
    for index, each in enumerate(interceptors):
        left = interceptors[:index]
        if place_of(each) is Place.CLAIM_CHECK and not any(
            place_of(other) is Place.ENCRYPT and _share_topics(other, each) for other in left
        ):
            found.append((label(each), _PLAIN_OBJECTS))
        above = 0 if place_of(each) is not Place.CLAIM_CHECK else each.carries_bytes[0]  # type: ignore[attr-defined]
        if above >= CLIENT_TAKES_BYTES and not any(left is each for left, _ in _carriers(interceptors)):
            why = (
                f"a value of up to {above:,} bytes goes in one record, and a client takes "
                f"{CLIENT_TAKES_BYTES:,} (message.max.bytes) unless told otherwise; put slice after it, or "
                "lower min_bytes"
            )
            found.append((label(each), why))
    for left, right in _carriers(interceptors):
        above = left.carries_bytes[0]
        if above <= right.carries_bytes[0]:
            why = f"it never gets a large value: {label(left)!r} takes all above {above:,} bytes"
            found.append((label(right), why))
    return found


def _unexpanded(interceptor: object) -> Iterator[str]:
    """Yield a sentence for each option that looks like a variable of the environment, and stands as it is."""
    for option in getattr(interceptor, "__struct_fields__", ()):
        value = getattr(interceptor, option)
        if isinstance(value, str) and (found := _VARIABLE.fullmatch(value)):
            yield f"{option} = '{value}' stands as it is; for a variable write '${{env:{found[1]}}}'"


def is_signed(interceptor: object, interceptors: Iterable[object]) -> bool:
    """Return whether some of the records that an interceptor works on are signed."""
    return bool(signing(interceptor, interceptors))


def signing(interceptor: object, interceptors: Iterable[object]) -> list[object]:
    """Return the interceptors that sign some of the records that an interceptor works on."""
    return [
        other for other in interceptors if place_of(other) is Place.SIGN and _share_topics(interceptor, other)
    ]


def precedes_bytes(interceptor: object) -> bool:
    """Return whether an interceptor sees objects on send: it works on objects, or serializes them."""
    return stage_of(interceptor) is Stage.OBJECTS or place_of(interceptor) is Place.SERIALIZE


def place_of(interceptor: object) -> Place | None:
    place: Place | None = getattr(interceptor, "place", None)
    return place


def stage_of(interceptor: object) -> Stage:
    stage: Stage = getattr(interceptor, "stage", Stage.BYTES)
    return stage


def role_of(interceptor: object) -> Role:
    role: Role = getattr(interceptor, "role", Role.TRANSFORM)
    return role


def _transforms(interceptor: object) -> bool:
    """Return whether an interceptor may change sent records; it is not opened yet, so any ``open`` counts."""
    sends = any(callable(getattr(interceptor, hook, None)) for hook in ("on_send", "on_send_batch", "open"))
    return sends and role_of(interceptor) is Role.TRANSFORM


def _share_topics(left: object, right: object) -> bool:
    """Return whether two interceptors may meet on a topic; different literal names never do."""
    ours, theirs = (_literal_topics(interceptor) for interceptor in (left, right))
    return ours is None or theirs is None or bool(ours & theirs)


def surely_share_topics(left: object, right: object) -> bool:
    """Return whether two interceptors certainly meet: patterns do only if they match every topic."""
    ours, theirs = (_literal_topics(interceptor) for interceptor in (left, right))
    if ours is not None and theirs is not None:
        return bool(ours & theirs)
    return any(tuple(getattr(step, "topics", ("*",))) in {(), ("*",)} for step in (left, right))


def _literal_topics(interceptor: object) -> set[str] | None:
    patterns: Sequence[str] = getattr(interceptor, "topics", ("*",))
    if not patterns or any(character in pattern for pattern in patterns for character in "*?!"):
        return None  # an empty list of patterns means all topics
    return set(patterns)


def _misplaced(right: object, left: object, why: str) -> ConfigError:
    return ConfigError(
        f"{label(right)!r} comes after {label(left)!r}, which cannot work: {why}. "
        f"Put {label(right)!r} before {label(left)!r} (chains are written in the order of sending).",
        path=f"interceptors.{label(right)}" if isinstance(right, Interceptor) else "",
    )
