"""Dead letters: the untouched original, and a reason that others can read and that does not grow."""

from __future__ import annotations

import hashlib
import logging
import struct
from types import SimpleNamespace as Hooks
from typing import TYPE_CHECKING, Any

import pytest

from headerware import (
    DROP,
    Chain,
    Context,
    DeadLetterError,
    Headers,
    HeldBackError,
    InterceptorError,
    Place,
    Record,
    SignatureError,
)
from headerware.core.dead_letter import (
    is_dead_letter_topic,
    read_reason,
    redriven,
    redrives,
    without_reason,
)
from headerware.interceptors import Slice

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "hunter2"
ORIGINAL = Record(
    "orders",
    b"value",
    b"key",
    Headers([("traceparent", b"00-1"), ("a", None), ("a", b""), ("hw.sig", b"\x01")]),
    partition=3,
    timestamp_ms=1_700_000_000_123,
    timestamp_type=1,
    offset=42,
)


def refusing(error: Exception | None = None, **options: Any) -> Hooks:
    def hook(record: Record) -> Record:
        raise error or SignatureError("no signature")

    return Hooks(**{"name": "sign", "on_consume": hook, "on_send": hook, "on_error": "dead_letter"} | options)


def letters(*chain: Any, record: Record = ORIGINAL, group_id: str | None = None) -> list[Record]:
    published: list[Record] = []
    session = Chain(chain).open(Context(publish=published.append, group_id=group_id))
    assert session.consume_outcome(record) is DROP
    return published


class TestLetter:
    def test_is_the_untouched_original_for_the_dead_letter_topic(self) -> None:
        (letter,) = letters(refusing())
        assert (letter.topic, letter.value, letter.key) == ("orders.dead-letter", b"value", b"key")
        assert tuple(letter.headers)[:4] == tuple(ORIGINAL.headers)
        assert letter.timestamp_ms == ORIGINAL.timestamp_ms
        assert (letter.partition, letter.offset, letter.local) == (None, None, None)

    def test_is_cut_from_what_came_and_not_from_what_steps_before_made(self) -> None:
        decoder = Hooks(on_consume=lambda record: record.with_value(b"decoded", Headers()))
        (letter,) = letters(refusing(), decoder)
        assert letter.value == b"value"
        assert "hw.sig" in letter.headers

    def test_of_a_record_out_of_a_list_is_that_record(self) -> None:
        glue = Hooks(on_consume=lambda record: [record.with_value(b"glued", Headers({"g": b""}))])
        (letter,) = letters(refusing(), glue)
        assert letter.value == b"glued"
        assert "g" in letter.headers
        assert "traceparent" not in letter.headers

    def test_of_a_record_that_was_read_elsewhere_and_is_sent_says_so(self) -> None:
        published: list[Record] = []
        session = Chain([refusing()]).open(Context(publish=published.append))
        assert session.send_outcome(ORIGINAL.replace(headers=Headers())) is DROP
        assert published[0].headers.last("__connect.errors.stage") == b"ON_SEND"

    @pytest.mark.parametrize(
        ("pattern", "topic"), [("dlq", "dlq"), ("{topic}-dlq", "orders-dlq"), ("x.{topic}.y", "x.orders.y")]
    )
    def test_goes_where_the_pattern_says(self, pattern: str, topic: str) -> None:
        assert letters(refusing(dead_letter_topic=pattern))[0].topic == topic

    def test_of_a_record_that_was_never_on_the_wire_has_no_partition_or_offset(self) -> None:
        published: list[Record] = []
        session = Chain([refusing()]).open(Context(publish=published.append))
        assert session.send_outcome(Record("orders", b"v")) is DROP
        names = published[0].headers.names()
        assert "__connect.errors.offset" not in names
        assert "__connect.errors.partition" not in names
        assert published[0].headers.last("__connect.errors.stage") == b"ON_SEND"


class TestConnectNames:
    def test_are_decimal_text(self) -> None:
        (letter,) = letters(refusing())
        reason = {name: value for name, value in letter.headers if name.startswith("__connect.")}
        stacktrace = reason.pop("__connect.errors.exception.stacktrace")
        assert reason == {
            "__connect.errors.topic": b"orders",
            "__connect.errors.partition": b"3",
            "__connect.errors.offset": b"42",
            "__connect.errors.stage": b"ON_CONSUME",
            "__connect.errors.class.name": b"sign",
            "__connect.errors.exception.class.name": b"headerware.core.errors.SignatureError",
            "__connect.errors.exception.message": b"sign at orders[3]@42: no signature",
        }
        assert stacktrace is not None
        assert b"in hook" in stacktrace

    @pytest.mark.parametrize("names", ["connect", "spring"])
    def test_never_quote_a_foreign_error(self, names: str) -> None:
        (letter,) = letters(refusing(ValueError(SECRET), dead_letter_headers=names))
        assert not any(SECRET.encode() in (value or b"") for _, value in letter.headers)

    def test_tell_each_frame_of_a_foreign_error_once(self) -> None:
        (letter,) = letters(refusing(ValueError(SECRET)))
        stacktrace = letter.headers.last("__connect.errors.exception.stacktrace", b"")
        assert stacktrace is not None
        assert stacktrace.count(b"in hook") == 1

    def test_bound_the_stacktrace(self) -> None:
        def hook(record: Record, depth: int = 200) -> Record:
            return other(record, depth)

        def other(record: Record, depth: int) -> Record:  # one frame repeated would be shortened anyway
            if depth:
                return hook(record, depth - 1)
            raise SignatureError("deep")

        (letter,) = letters(refusing(on_consume=hook))
        stacktrace = letter.headers.last("__connect.errors.exception.stacktrace", b"")
        assert stacktrace is not None
        assert 4_000 < len(stacktrace) <= 4_096
        assert stacktrace.endswith(b'raise SignatureError("deep")\n')


class TestSpringNames:
    def test_are_binary(self) -> None:
        (letter,) = letters(refusing(ValueError(SECRET), dead_letter_headers="spring"), group_id="billing")
        reason = {name.removeprefix("kafka_dlt-"): value for name, value in letter.headers if "dlt" in name}
        assert reason.pop("exception-stacktrace")
        message = reason.pop("exception-message")
        assert message is not None
        assert message.startswith(b"sign at orders[3]@42: raised ValueError at test_dead_letter.py:")
        assert reason == {
            "original-topic": b"orders",
            "original-partition": b"\x00\x00\x00\x03",
            "original-offset": b"\x00\x00\x00\x00\x00\x00\x00\x2a",
            "original-timestamp": struct.pack(">q", 1_700_000_000_123),
            "original-timestamp-type": b"CreateTime",
            "original-consumer-group": b"billing",
            "exception-fqcn": b"headerware.core.errors.InterceptorError",
            "exception-cause-fqcn": b"builtins.ValueError",
        }

    def test_name_what_the_application_s_processing_raised(self) -> None:
        published: list[Record] = []
        session = Chain([]).open(Context(publish=published.append))
        error = InterceptorError("the handler raised ValueError")
        error.__cause__ = ValueError(SECRET)
        error.__cause__.__cause__ = KeyError(SECRET)
        original = Record("orders", b"", offset=0, partition=0)
        assert session.dead_letter(original, error, topic="{topic}.dead-letter", names="spring")
        reason = dict(published[0].headers)
        assert reason["kafka_dlt-exception-fqcn"] == b"builtins.ValueError"
        assert reason["kafka_dlt-exception-cause-fqcn"] == b"builtins.KeyError"
        assert not any(SECRET.encode() in (value or b"") for value in reason.values())

    def test_leave_out_what_is_unknown(self) -> None:
        bare = Record("orders", b"", offset=0, partition=0)
        (letter,) = letters(refusing(dead_letter_headers="spring"), record=bare)
        names = letter.headers.names()
        assert "kafka_dlt-original-timestamp" not in names
        assert "kafka_dlt-original-consumer-group" not in names
        assert "kafka_dlt-exception-cause-fqcn" not in names


class TestGoingRound:
    @pytest.mark.parametrize("names", ["connect", "spring"])
    def test_a_reason_replaces_the_earlier_one(self, names: str) -> None:
        (first,) = letters(refusing(dead_letter_headers=names))
        (second,) = letters(
            refusing(dead_letter_headers=names), record=first.replace(topic="orders", partition=3, offset=42)
        )
        assert second.headers.names() == first.headers.names()
        assert second.headers.last("traceparent") == b"00-1"

    @pytest.mark.parametrize(
        ("pattern", "topic", "answer"),
        [
            ("{topic}.dead-letter", "orders.dead-letter", True),
            ("{topic}.dead-letter", "orders", False),
            ("{topic}.dead-letter", ".dead-letter", False),
            ("dlq", "dlq", True),
            ("dlq", "dlq2", False),
            ("dlq-{topic}", "dlq-orders", True),
            ("a-{topic}-a", "a-a", False),
            ("a-{topic}-a", "a-x-a", True),
        ],
    )
    def test_a_dead_letter_topic_is_known(self, pattern: str, topic: str, answer: bool) -> None:  # noqa: FBT001 - parametrized
        assert is_dead_letter_topic(pattern, topic) is answer

    def test_a_letter_that_fails_again_raises_instead_of_going_round(self) -> None:
        published: list[Record] = []
        session = Chain([refusing()]).open(Context(publish=published.append))
        outcome = session.consume_outcome(ORIGINAL.replace(topic="orders.dead-letter"))
        assert isinstance(outcome, SignatureError)
        assert published == []
        assert session.stats()["sign"]["failed"] == 1
        assert session.stats()["sign"]["dead_lettered"] == 0


class TestFailureToPublish:
    def failed(self, publish: Callable[[Record], None] | None) -> DeadLetterError:
        session = Chain([refusing()]).open(Context(publish=publish))
        outcome = session.consume_outcome(ORIGINAL)
        assert isinstance(outcome, DeadLetterError)
        assert session.stats()["sign"]["failed"] == 1
        assert session.stats()["sign"]["dead_lettered"] == 0
        return outcome

    def test_holds_the_record_back_and_says_both_reasons(self) -> None:
        def publish(_: Record) -> None:
            raise TimeoutError(SECRET)

        error = self.failed(publish)
        assert "TimeoutError" in str(error)
        assert "sign at orders[3]@42: no signature" in str(error)
        assert SECRET not in str(error)
        assert isinstance(error.__cause__, TimeoutError)
        assert (error.topic, error.partition, error.offset) == ("orders", 3, 42)

    def test_keeps_the_text_of_our_own_errors(self) -> None:
        def publish(_: Record) -> None:
            raise DeadLetterError("the topic does not exist")

        assert "the topic does not exist" in str(self.failed(publish))

    def test_without_a_port_is_one_too(self) -> None:
        assert "no publish port" in str(self.failed(None))


class TestLargeDeadLetters:
    def test_are_split_by_the_slicer_of_the_chain(self) -> None:
        def split(record: Record) -> list[Record]:
            return [record.with_value(record.value[index : index + 1], record.headers) for index in range(5)]

        slicer = Hooks(name="slice", place=Place.SLICE, splits=True, atomic=True, on_send=split)
        assert [letter.value for letter in letters(refusing(), slicer)] == [b"v", b"a", b"l", b"u", b"e"]


class Topic:
    """A dead-letter topic that takes letters up to a size, as a broker does."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.letters: list[Record] = []
        self.attempts = 0

    def __call__(self, letter: Record) -> None:
        self.attempts += 1
        if wire_size(letter) > self.limit:
            raise DeadLetterError("the message is too large", unfit=True)
        self.letters.append(letter)


def wire_size(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.value or b"") + len(record.key or b"") + headers


class TestTooLarge:
    """One record must not hold up a partition because its letter is larger than the topic takes."""

    LARGE = ORIGINAL.replace(value=bytes(10_000))

    def published(self, limit: int, record: Record = LARGE, **options: Any) -> Record:
        topic = Topic(limit)
        session = Chain([refusing(**options)]).open(Context(publish=topic))
        assert session.consume_outcome(record) is DROP
        assert session.stats()["sign"]["dead_lettered"] == 1
        (letter,) = topic.letters
        return letter

    @pytest.mark.parametrize("names", ["connect", "spring"])
    def test_the_stack_trace_goes_first(self, names: str) -> None:
        full = self.published(100_000, dead_letter_headers=names)
        letter = self.published(wire_size(full) - 1, dead_letter_headers=names)
        assert (letter.value, letter.key) == (self.LARGE.value, self.LARGE.key)
        gone = set(full.headers.names()) - set(letter.headers.names())
        assert {name.endswith("stacktrace") for name in gone} == {True}

    def test_then_most_of_the_message(self) -> None:
        error = SignatureError("x" * 3_000)
        letter = self.published(wire_size(self.LARGE) + 1_000, error=error)
        assert letter.value == self.LARGE.value
        message = letter.headers.last("__connect.errors.exception.message") or b""
        assert message.startswith(b"sign at orders[3]@42: xxx")
        assert message.endswith(b"...")
        assert len(message) < 200

    def test_one_whose_time_the_topic_refuses_keeps_its_payload(self) -> None:
        stored: list[Record] = []

        def publish(letter: Record) -> None:
            if letter.timestamp_ms is not None:
                raise DeadLetterError("its timestamp is out of the topic's range", unfit=True)
            stored.append(letter)

        session = Chain([refusing(dead_letter_headers="spring")]).open(Context(publish=publish))
        assert session.consume_outcome(ORIGINAL.replace(timestamp_ms=1_767_225_600_000)) is DROP
        assert [(letter.value, letter.key) for letter in stored] == [(ORIGINAL.value, ORIGINAL.key)]
        assert "kafka_dlt-original-timestamp" in stored[0].headers
        assert session.stats()["sign"].get("stubs", 0) == 0

    @pytest.mark.parametrize("names", ["connect", "spring"])
    def test_then_a_stub_stands_for_the_record(self, names: str) -> None:
        letter = self.published(wire_size(self.LARGE), dead_letter_headers=names)
        assert (letter.topic, letter.value, letter.key) == ("orders.dead-letter", None, b"orders[3]@42")
        headers = dict(letter.headers)
        assert not {"traceparent", "a", "hw.sig"} & set(headers), "its own headers may be what is large"
        assert {name: value for name, value in headers.items() if name.startswith("headerware.stub.")} == {
            "headerware.stub.value.bytes": b"10000",
            "headerware.stub.value.sha256": hashlib.sha256(bytes(10_000)).hexdigest().encode(),
            "headerware.stub.key.bytes": b"3",
            "headerware.stub.key.sha256": hashlib.sha256(b"key").hexdigest().encode(),
            "headerware.stub.headers": b"4",
            "headerware.stub.headers.bytes": b"24",
        }
        place = {
            "connect": ("__connect.errors.offset", b"42"),
            "spring": ("kafka_dlt-original-offset", struct.pack(">q", 42)),
        }
        assert headers[place[names][0]] == place[names][1]
        assert letter.timestamp_ms is None, "the topic may refuse the original's time, too"

    def test_a_stub_says_nothing_of_a_null(self) -> None:
        bloated = ORIGINAL.replace(value=None, key=None, headers=Headers([("h", bytes(10_000))]))
        names = self.published(5_000, bloated).headers.names()
        assert [name for name in names if name.startswith("headerware.stub.")] == [
            "headerware.stub.headers",
            "headerware.stub.headers.bytes",
        ]

    def test_a_stub_is_told_once_and_counted(self, caplog: pytest.LogCaptureFixture) -> None:
        topic = Topic(5_000)
        session = Chain([refusing()]).open(Context(publish=topic))
        with caplog.at_level(logging.WARNING, logger="headerware"):
            for _ in range(3):
                assert session.consume_outcome(self.LARGE) is DROP
        assert session.stats()["sign"]["stubs"] == 3
        told = [record.message for record in caplog.records if "stub" in record.message]
        assert len(told) == 1
        assert "orders[3]@42" in told[0]

    def test_a_stub_that_is_refused_again_does_not_grow(self) -> None:
        stub = self.published(5_000)
        again = self.published(5_000, stub.replace(topic="orders", partition=3, offset=42))
        assert again.value is None
        assert sorted(again.headers.names()) == sorted(stub.headers.names())

    def test_holds_the_record_where_the_policy_says_so(self) -> None:
        topic = Topic(5_000)
        session = Chain([refusing(dead_letter_too_large="hold")]).open(Context(publish=topic))
        assert isinstance(session.consume_outcome(self.LARGE), DeadLetterError)
        assert topic.letters == []

    def test_no_stub_stands_for_a_record_that_is_nowhere_else(self) -> None:
        session = Chain([refusing()]).open(Context(publish=Topic(5_000)))
        outcome = session.send_outcome(Record("orders", bytes(10_000)))
        assert isinstance(outcome, DeadLetterError), "the producer's application still has it"

    def test_a_slicer_that_finds_no_room_beside_the_headers_is_one_more_limit(self) -> None:
        bloated = ORIGINAL.replace(headers=Headers([("h", bytes(10_000))]))
        topic = Topic(100_000)
        session = Chain([refusing(), Slice(max_bytes=5_000)]).open(
            Context(publish=topic, pick_partition=lambda _: 0)
        )
        assert session.consume_outcome(bloated) is DROP
        assert [letter.key for letter in topic.letters] == [b"orders[3]@42"]

    def test_an_outage_is_no_reason_to_shorten(self) -> None:
        def publish(_: Record) -> None:
            attempts.append(1)
            raise DeadLetterError("all brokers are down")

        attempts: list[int] = []
        session = Chain([refusing()]).open(Context(publish=publish))
        assert isinstance(session.consume_outcome(self.LARGE), DeadLetterError)
        assert len(attempts) == 1


OURS = "headerware.dead_letter."


def ours(
    record: Record = ORIGINAL, error: Exception | None = None, now_ms: int = 1_700_000_001_000
) -> Record:
    published: list[Record] = []
    context = Context(
        publish=published.append, group_id="billing", cluster_id=lambda: "c1", now_ms=lambda: now_ms
    )
    session = Chain([refusing(error, dead_letter_headers="headerware")]).open(context)
    assert session.consume_outcome(record) is DROP
    return published[0]


class TestOurNames:
    def test_say_why_where_and_how_often(self) -> None:
        letter = ours()
        assert {name.removeprefix(OURS): value for name, value in letter.headers[4:]} == {
            "version": b"1",
            "cluster": b"c1",
            "topic": b"orders",
            "partition": b"3",
            "offset": b"42",
            "timestamp": b"1700000000123",
            "group": b"billing",
            "stage": b"ON_CONSUME",
            "step": b"sign",
            "error": b"headerware.core.errors.SignatureError",
            "attempts": b"1",
            "first_failed": b"1700000001000",
            "last_failed": b"1700000001000",
            "reason": b"sign at orders[3]@42: no signature",
        }

    def test_name_the_class_of_a_foreign_error_but_not_its_text(self) -> None:
        letter = ours(error=ValueError(SECRET))
        assert letter.headers.last(f"{OURS}cause") == b"builtins.ValueError"
        assert not any(SECRET.encode() in (value or b"") for _, value in letter.headers)

    @pytest.mark.parametrize("earlier", ["connect", "spring", "headerware"])
    def test_replace_the_reason_of_an_earlier_failure(self, earlier: str) -> None:
        (first,) = letters(refusing(dead_letter_headers=earlier))
        second = ours(first.replace(topic="retries", partition=0, offset=7))
        names = second.headers.names()
        assert [name for name in names if not name.startswith(OURS)] == ["traceparent", "a", "a", "hw.sig"]
        assert second.headers.last(f"{OURS}topic") == b"retries"

    def test_do_not_grow_however_often_a_record_fails(self) -> None:
        letter, sizes = ours(), set()
        for round_ in range(1, 50):
            letter = ours(
                letter.replace(topic="orders", partition=0, offset=round_), now_ms=1_700_000_001_000 + round_
            )
            sizes.add(len(letter.headers))
        assert len(sizes) == 1
        assert letter.headers.last(f"{OURS}attempts") == b"50"
        assert letter.headers.last(f"{OURS}first_failed") == b"1700000001000"
        assert letter.headers.last(f"{OURS}last_failed") == b"1700000001049"

    def test_are_bounded_whatever_the_error_says(self) -> None:
        error = InterceptorError("ü" * 100_000)
        error.step = "s" * 10_000
        letter = ours(ORIGINAL.replace(topic="t" * 249, headers=Headers()), error)
        size = sum(len(name.encode()) + len(value or b"") for name, value in letter.headers)
        assert size <= 4096
        assert (letter.headers.last(f"{OURS}reason") or b"").decode().endswith("...")

    def test_go_on_counting_in_a_record_that_was_sent_back(self) -> None:
        again = ORIGINAL.with_headers(redriven(ORIGINAL.headers, 2, 1_600_000_000_000))
        letter = ours(again)
        assert letter.headers.last(f"{OURS}attempts") == b"3"
        assert letter.headers.last(f"{OURS}first_failed") == b"1600000000000"
        assert redrives(letter.headers) == (2, 1_600_000_000_000)


class TestReadReason:
    @pytest.mark.parametrize("dialect", ["connect", "spring", "headerware"])
    def test_reads_what_was_written(self, dialect: str) -> None:
        (letter,) = letters(refusing(dead_letter_headers=dialect))
        reason = read_reason(letter.headers)
        assert reason is not None
        assert (reason.dialect, reason.topic, reason.partition, reason.offset) == (dialect, "orders", 3, 42)
        assert reason.error == "headerware.core.errors.SignatureError"
        assert reason.reason == "sign at orders[3]@42: no signature"
        assert without_reason(letter.headers) == ORIGINAL.headers

    def test_the_last_reason_decides_whose_names_count(self) -> None:
        forged = [("headerware.dead_letter.topic", b"salaries"), ("kafka_dlt-original-topic", b"salaries")]
        record = ORIGINAL.with_headers(Headers(forged))
        reason = read_reason(
            [*forged, ("__connect.errors.topic", b"salaries"), ("__connect.errors.topic", b"orders")]
        )
        assert reason is not None
        assert (reason.dialect, reason.topic) == ("connect", "orders")
        (letter,) = letters(refusing(), record=record)
        assert "salaries" not in str(letter.headers)

    @pytest.mark.parametrize(
        ("name", "value", "field"),
        [
            ("__connect.errors.partition", b"-1", "partition"),
            ("__connect.errors.partition", b"2147483648", "partition"),
            ("__connect.errors.offset", b"9223372036854775808", "offset"),
            ("__connect.errors.offset", b"1" * 100_000, "offset"),
            ("__connect.errors.offset", "٣".encode(), "offset"),
            ("__connect.errors.offset", None, "offset"),
            ("__connect.errors.topic", b"../orders", "topic"),
            ("__connect.errors.topic", b"..", "topic"),
            ("__connect.errors.topic", b"t" * 250, "topic"),
            ("__connect.errors.topic", b"\xff\xfe", "topic"),
            ("kafka_dlt-original-partition", b"1", "partition"),
            ("kafka_dlt-original-offset", b"\xff" * 8, "offset"),
            ("kafka_dlt-original-timestamp", b"\x80" + bytes(7), "timestamp_ms"),
            ("__dlq.errors.delivery.count", b"many", "attempts"),
            ("headerware.dead_letter.first_failed", b"-5", "first_failed_ms"),
        ],
    )
    def test_what_cannot_be_is_not_said(self, name: str, value: bytes | None, field: str) -> None:
        reason = read_reason([(name, value)])
        assert reason is not None
        assert getattr(reason, field) is None

    def test_a_text_of_any_size_is_cut(self) -> None:
        reason = read_reason([("__connect.errors.exception.message", b"\xf0\x9f\x98\x80" * 1_000_000)])
        assert reason is not None
        assert len(reason.reason or "") == 4_096

    def test_a_record_without_a_reason_is_no_letter(self) -> None:
        assert read_reason(ORIGINAL.headers) is None

    @pytest.mark.parametrize("value", [None, b"", b"0", b"-1", b"1;first=", b"1;first=1;", b"9" * 10, b"1 "])
    def test_a_count_that_is_none_counts_nothing(self, value: bytes | None) -> None:
        assert redrives([("headerware.redriven", value)]) == (0, None)

    def test_a_smaller_count_hides_no_larger_one(self) -> None:
        assert redrives([("headerware.redriven", b"3;first=9"), ("headerware.redriven", b"1")]) == (3, 9)


class TestUnavailable:
    """The topic of dead letters takes nothing; ``hold`` is the default."""

    FAILURES = (
        DeadLetterError("topic 'orders.dead-letter' did not take it: UNKNOWN_TOPIC_OR_PART"),
        DeadLetterError("topic 'orders.dead-letter' did not take it: TOPIC_AUTHORIZATION_FAILED"),
        DeadLetterError("topic 'orders.dead-letter' did not take it: _MSG_TIMED_OUT"),
        ConnectionError("refused"),
    )

    def outcome(self, failure: Exception, *, sends: bool = False, **options: Any) -> Any:
        def publish(_: Record) -> None:
            raise failure

        session = Chain([refusing(**options)]).open(Context(publish=publish))
        outcome = session.send_outcome if sends else session.consume_outcome
        return outcome(ORIGINAL.replace(headers=Headers())), session.stats()["sign"]

    @pytest.mark.parametrize("failure", FAILURES, ids=str)
    def test_hold_stays_at_the_record(self, failure: Exception) -> None:
        error, counts = self.outcome(failure)
        assert isinstance(error, DeadLetterError)
        assert "dead_letters_lost" not in counts

    @pytest.mark.parametrize("failure", FAILURES, ids=str)
    @pytest.mark.parametrize("sends", [False, True])
    def test_refuse_answers_with_the_reason(
        self, failure: Exception, sends: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            error, counts = self.outcome(failure, sends=sends, dead_letter_unavailable="refuse")
        assert isinstance(error, SignatureError)
        assert (counts["failed"], counts["dead_letters_lost"]) == (1, 1)
        assert "dead_letter_unavailable = 'refuse'" in caplog.text

    def test_what_is_held_back_is_not_refused(self) -> None:
        held = HeldBackError("the key service is down")
        session = Chain([refusing(held, dead_letter_unavailable="refuse")]).open(Context())
        assert isinstance(session.consume_outcome(ORIGINAL), HeldBackError)
