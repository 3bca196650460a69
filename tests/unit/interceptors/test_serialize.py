from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from headerware import (
    Chain,
    ConfigError,
    Context,
    Headers,
    Interceptor,
    Place,
    PluginError,
    Record,
    SerdeError,
    TransportHeaderError,
    load_chain,
)
from headerware.interceptors import Serialize
from headerware.serdes.serde import Serde, SerdeContext

if TYPE_CHECKING:
    from pathlib import Path


class Reversed(Serde, frozen=True, kw_only=True):
    """Text, written backwards."""

    encoding: str = "utf-8"

    def open(self, context: SerdeContext) -> Any:
        return _Reversed(self.encoding, context)


class _Reversed:
    closed = 0

    def __init__(self, encoding: str, context: SerdeContext) -> None:
        self.encoding, self.context = encoding, context

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
        if value is None:
            return None, headers
        return value[::-1].encode(self.encoding), headers.add(f"{self.context.part}-of-{topic}", None)

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
        if payload == b"!":
            raise SerdeError("it is an exclamation mark")
        value = None if payload is None else payload.decode(self.encoding)[::-1]
        return value, headers.remove(f"{self.context.part}-of-{topic}")

    def close(self) -> None:
        type(self).closed += 1


BOTH = Serialize(key=Reversed(), value=Reversed())


class TestSerialize:
    @pytest.mark.parametrize("batch", [False, True])
    def test_goes_both_ways(self, batch: bool) -> None:  # noqa: FBT001 - parametrized
        session = Chain([BOTH]).open()
        record = Record("t", "value", "key", Headers({"own": b"1"}))
        sent = session.send_outcomes([record])[0] if batch else session.send_outcome(record)
        assert isinstance(sent, Record)
        assert (sent.key, sent.value) == (b"yek", b"eulav")
        assert sent.headers.names() == ("own", "key-of-t", "value-of-t")
        assert session.consume([sent]) == [record]

    def test_what_has_no_serde_passes(self) -> None:
        session = Chain([Serialize()]).open()
        record = Record("t", b"value", b"key")
        assert session.send([record]) == [record]
        assert session.consume([record]) == [record]

    def test_works_on_its_topics(self) -> None:
        session = Chain([Serialize(value=Reversed(), topics=("t",))]).open()
        assert [record.value for record in session.send([Record("t", "ab"), Record("u", "ab")])] == [
            b"ba",
            b"ab",
        ]

    def test_two_take_a_topic_each(self) -> None:
        session = Chain(
            [
                Serialize(value=Reversed(), topics=("t",)),
                Serialize(name="wide", value=Reversed(encoding="utf-16-be"), topics=("u",)),
            ]
        ).open()
        sent = session.send([Record("t", "ab"), Record("u", "ab")])
        assert [record.value for record in sent] == [b"ba", b"\0b\0a"]
        assert [record.value for record in session.consume(sent)] == ["ab", "ab"]

    def test_tells_serdes_their_part_and_side_and_closes_them(self) -> None:
        closed = _Reversed.closed
        session = Chain([BOTH]).open(Context(side="producer"))
        session.close()
        assert _Reversed.closed == closed + 2
        assert Reversed().open(SerdeContext(part="key", side="producer")).context.part == "key"

    def test_an_object_of_the_applications_stays_open(self) -> None:
        own = _Reversed("utf-8", SerdeContext())
        closed = _Reversed.closed
        with Chain([Serialize(value=own)]).open() as session:
            assert session.send([Record("t", "ab")])[0].value == b"ba"
        assert _Reversed.closed == closed

    def test_travels_to_executors(self) -> None:
        chain = Chain([Serialize(value=Reversed(encoding="utf-16"))])
        [step] = pickle.loads(pickle.dumps(chain))  # noqa: S301 - our own
        assert step == Serialize(value=Reversed(encoding="utf-16"))


class TestFailures:
    def test_names_part_topic_and_offset(self) -> None:
        session = Chain([BOTH]).open()
        outcome = session.consume_outcome(Record("t", b"!", b"k", partition=3, offset=7))
        assert isinstance(outcome, SerdeError)
        assert outcome.part == "value"
        assert str(outcome) == "serialize at t[3]@7: it is an exclamation mark"

    def test_another_error_is_told_without_its_text(self) -> None:
        outcome = Chain([BOTH]).open().consume_outcome(Record("t", b"v", b"\xff secret"))
        assert isinstance(outcome, SerdeError)
        assert outcome.part == "key"
        assert "the key's serde raised UnicodeDecodeError at " in str(outcome)
        assert "secret" not in str(outcome)
        assert isinstance(outcome.__cause__, UnicodeDecodeError)

    def test_a_bad_record_takes_no_neighbour_along(self) -> None:
        outcomes = Chain([BOTH]).open().consume_outcomes([Record("t", value) for value in (b"a", b"!", b"b")])
        assert isinstance(outcomes[1], SerdeError)
        assert [outcomes[0].value, outcomes[2].value] == ["a", "b"]  # type: ignore[union-attr]

    def test_a_dead_letter_is_the_untouched_original(self) -> None:
        dead_letters: list[Record] = []
        chain = Chain([Serialize(value=Reversed(), on_error="dead_letter")])
        session = chain.open(Context(publish=dead_letters.append))
        assert session.consume([Record("t", b"!", b"k", Headers({"own": b"1"}), 0, offset=5)]) == []
        [dead_letter] = dead_letters
        assert (dead_letter.topic, dead_letter.value, dead_letter.key) == ("t.dead-letter", b"!", b"k")
        assert dead_letter.headers.last("own") == b"1"

    def test_objects_that_cannot_be_serialized_are_raised_for_no_dead_letter_can_hold_them(self) -> None:
        dead_letters: list[Record] = []
        chain = Chain([Serialize(value=Reversed(), on_error="dead_letter")])
        with pytest.raises(SerdeError, match="raised TypeError"):
            chain.open(Context(publish=dead_letters.append)).send([Record("t", 5)])
        assert dead_letters == []

    def test_encoded_bytes_are_refused_before_a_deserializer_sees_them(self) -> None:
        with pytest.raises(TransportHeaderError, match="sent through 'compress'"):
            Chain([BOTH]).open().consume([Record("t", b"!", None, Headers({"hw.compress": b""}))])


class TestSerdesOfAnotherShape:
    """A first serde is often written as one would write it without headers."""

    def test_other_arguments_are_refused_when_the_chain_opens(self) -> None:
        chain = Chain([Serialize(value=SimpleNamespace(serialize=lambda value: value.encode()))])
        expected = (
            r"value: SimpleNamespace: expected serialize\(topic, headers, value\), found serialize\(value\)"
        )
        with pytest.raises(PluginError, match=expected):
            chain.open()

    @pytest.mark.parametrize("result", [b"bytes", None, (b"bytes",), b"ab"])
    def test_a_result_without_headers_is_the_serdes_fault(self, result: Any) -> None:
        chain = Chain([Serialize(value=SimpleNamespace(serialize=lambda topic, headers, value: result))])
        outcome = chain.open().send_outcome(Record("t", "v"))
        assert isinstance(outcome, SerdeError)
        assert f"the value's serde returned a {type(result).__name__} from serialize" in str(outcome)

    def test_headers_as_a_list_are_normalised(self) -> None:
        serde = SimpleNamespace(serialize=lambda topic, headers, value: (b"v", [*headers, ("a", "1")]))
        (record,) = Chain([Serialize(value=serde)]).open().send([Record("t", "v")])
        assert record.headers == Headers({"a": b"1"})
        assert isinstance(record.headers, Headers)


class TestOptions:
    def test_its_place_is_between_objects_and_bytes(self) -> None:
        assert Serialize.place is Place.SERIALIZE

        class OnBytes(Interceptor, frozen=True, kw_only=True):
            def on_send(self, record: Record) -> Record:
                return record

        with pytest.raises(ConfigError, match="works on bytes"):
            Chain([OnBytes(), BOTH])

    def test_a_word_may_be_given_in_code(self) -> None:
        assert Serialize(value="json") == Serialize(value={"type": "json"})

    @pytest.mark.parametrize(
        ("value", "problem", "path"),
        [
            ("avor", "did you mean 'avro'", "value"),
            (5, "found int", "value"),
            (Reversed, r"found the class Reversed; write Reversed\(", "value"),
            ({"type": "json", "indent": 2}, "'json' has no such option", "value.indent"),
            ({"indent": 2}, "expected the word for a type", "value"),
        ],
    )
    def test_mistakes_name_their_place(self, value: Any, problem: str, path: str) -> None:
        with pytest.raises(ConfigError, match=problem) as raised:
            Serialize(value=value)
        assert raised.value.path == path

    def test_mistakes_in_a_file_name_the_whole_path(self) -> None:
        config = {"interceptors": "serialize", "interceptors.serialize.value": "avor"}
        with pytest.raises(ConfigError) as raised:
            Chain.from_config(config)
        assert raised.value.path == "interceptors.serialize.value"

    @pytest.mark.parametrize("inline", [False, True])
    def test_a_file_beside_the_configuration_or_text_in_it(self, tmp_path: Path, inline: bool) -> None:  # noqa: FBT001 - parametrized
        text = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'
        (tmp_path / "order.avsc").write_text(text)
        schema = f"'{text}'" if inline else '"order.avsc"'
        path = tmp_path / "headerware.toml"
        path.write_text(
            f'[[interceptors]]\ntype = "serialize"\n[interceptors.value]\ntype = "avro"\nschema = {schema}\n'
            '[interceptors.value.store]\ntype = "folder"\npath = "schemas"\n'
        )
        (tmp_path / "schemas").mkdir()
        with load_chain(path).open() as session:
            [sent] = session.send([Record("t", {"id": 7})])
            assert set(sent.headers.names()) == {"content-type", "hw.schema"}
            assert session.consume([sent])[0].value == {"id": 7}
        assert len(list((tmp_path / "schemas").iterdir())) == 1
