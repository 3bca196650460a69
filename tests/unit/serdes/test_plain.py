from __future__ import annotations

import dataclasses
import os
import resource
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import cbor2
import msgspec
import pytest

from headerware import ConfigError, Headers, SerdeError
from headerware.connect.data import BigInteger, Float32, Int8
from headerware.core.options import from_option
from headerware.serdes.formats import cbor
from headerware.serdes.formats.cbor import Cbor
from headerware.serdes.formats.msgpack import MessagePack
from headerware.serdes.formats.plain import Bytes, Json, Plain, Text
from headerware.serdes.formats.refusals import WRITER_ADVICE
from headerware.serdes.plugins import serde_type
from headerware.serdes.polyglot import Polyglot
from headerware.serdes.serde import Deserializer, SerdeContext, Serializer
from tests.work import cpu_within

NONE = Headers()
EVERY = [Bytes, Text, Json, MessagePack, Cbor]
TREES = [Json, MessagePack, Cbor]
# Since Python 3.12 code in C nests some 10,000 levels deep, whatever the limit of Python's own calls.
TOO_DEEP = 1_100 if sys.version_info < (3, 12) else 100_000
TREE = {"text": "é", "int": -(2**63), "big": 2**64 - 1, "float": 0.1, "none": None, "list": [1, [True, {}]]}
SECRET = "hunter2"


class Order(msgspec.Struct):
    id: int
    tags: list[str] = []


@dataclasses.dataclass
class Item:
    price: Decimal


def opened(serde: Plain | Polyglot, part: Any = "value") -> Any:
    return serde.open(SerdeContext(part=part))


def there_and_back(serde: Plain, value: Any) -> Any:
    functions = opened(serde)
    payload, headers = functions.serialize("t", NONE, value)
    assert type(payload) is bytes
    found, after = functions.deserialize("t", headers, payload)
    assert after is headers
    return found


def nested(depth: int) -> Any:
    value: Any = "leaf"
    for _ in range(depth):
        value = [value]
    return value


class TestPlain:
    @pytest.mark.parametrize("kind", EVERY)
    def test_is_found_by_its_word(self, kind: type[Plain]) -> None:
        assert from_option(kind.type, serde_type, path="value") == kind()

    @pytest.mark.parametrize("kind", EVERY)
    def test_a_null_goes_through_without_a_content_type(self, kind: type[Plain]) -> None:
        functions = opened(kind())
        assert isinstance(functions, Serializer)
        assert isinstance(functions, Deserializer)
        assert functions.serialize("t", NONE, None) == (None, NONE)
        assert functions.deserialize("t", NONE, None) == (None, NONE)

    @pytest.mark.parametrize(
        ("kind", "content_type"),
        [
            (Bytes, b"application/octet-stream"),
            (Text, b"text/plain; charset=utf-8"),
            (Json, b"application/json"),
            (MessagePack, b"application/msgpack"),
            (Cbor, b"application/cbor"),
        ],
    )
    @pytest.mark.parametrize(("part", "name"), [("value", "content-type"), ("key", "key-content-type")])
    def test_states_its_content_type(
        self, kind: type[Plain], content_type: bytes, part: str, name: str
    ) -> None:
        value = b"x" if kind is Bytes else "x"
        headers = opened(kind(), part).serialize("t", Headers({"a": b"1"}), value)[1]
        assert headers == Headers([("a", b"1"), (name, content_type)])
        assert opened(kind(), part).serialize("t", headers, value)[1] is headers

    @pytest.mark.parametrize("kind", EVERY)
    def test_states_what_the_options_say_instead(self, kind: type[Plain]) -> None:
        value = b"x" if kind is Bytes else "x"
        stale = Headers({"content-type": "application/json"})
        own = opened(kind(content_type="a/b")).serialize("t", stale, value)[1]
        assert own == Headers({"content-type": "a/b"})
        assert opened(kind(content_type="")).serialize("t", stale, value)[1] is stale

    @pytest.mark.parametrize("kind", EVERY)
    def test_refuses_an_option_that_is_no_content_type(self, kind: type[Plain]) -> None:
        with pytest.raises(ConfigError, match=r"^content_type: "):
            kind(content_type="json")

    @pytest.mark.parametrize("kind", EVERY)
    def test_serves_several_threads(self, kind: type[Plain]) -> None:
        functions = opened(kind())
        value = b"x" * 99 if kind is Bytes else "é" * 99

        def work(_: int) -> bool:
            payload, headers = functions.serialize("t", NONE, value)
            return bool(functions.deserialize("t", headers, payload)[0] == value)

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(400)))


class TestBytes:
    @pytest.mark.parametrize("value", [b"", b"\xff", bytearray(b"ab"), memoryview(b"abc")[::2]])
    def test_go_both_ways(self, value: Any) -> None:
        assert there_and_back(Bytes(), value) == bytes(value)

    def test_keep_what_the_application_says_they_are(self) -> None:
        own = Headers({"content-type": "image/png"})
        assert opened(Bytes()).serialize("t", own, b"x")[1] is own

    @pytest.mark.parametrize("value", ["text", 3, [1]])
    def test_refuse_others(self, value: Any) -> None:
        with pytest.raises(
            SerdeError, match=r"expected bytes, bytearray or memoryview, found (str|int|list)"
        ):
            opened(Bytes()).serialize("t", NONE, value)


class TestText:
    @pytest.mark.parametrize("encoding", ["utf-8", "UTF-16", "iso-8859-1", "windows-1252"])
    def test_goes_both_ways(self, encoding: str) -> None:
        assert there_and_back(Text(encoding=encoding), "é") == "é"

    def test_is_read_in_the_charset_that_is_stated(self) -> None:
        latin = Headers({"content-type": 'text/csv; charset="ISO-8859-1"'})
        assert opened(Text()).deserialize("t", latin, b"\xe9") == ("é", latin)

    def test_is_read_in_its_own_where_none_is_stated(self) -> None:
        for headers in (NONE, Headers({"content-type": "text/csv"}), Headers({"content-type": "garbage"})):
            assert opened(Text(encoding="iso-8859-1")).deserialize("t", headers, b"\xe9")[0] == "é"

    def test_is_written_in_the_charset_that_the_application_states(self) -> None:
        latin = Headers({"content-type": "text/csv; charset=iso-8859-1"})
        payload, headers = opened(Text()).serialize("t", latin, "é")
        assert (payload, headers is latin) == (b"\xe9", True)

    def test_states_its_own_charset_where_the_application_states_none(self) -> None:
        headers = Headers({"content-type": "text/csv"})
        assert opened(Text()).serialize("t", headers, "é") == ("é".encode(), headers)
        written = opened(Text(encoding="utf-16")).serialize("t", headers, "é")
        assert written == ("é".encode("utf-16"), Headers({"content-type": "text/plain; charset=utf-16"}))

    def test_an_unknown_charset_is_replaced_on_send_and_refused_on_consume(self) -> None:
        headers = Headers({"content-type": "text/plain; charset=punycode"})
        assert (
            opened(Text()).serialize("t", headers, "é")[1].last("content-type")
            == b"text/plain; charset=utf-8"
        )
        with pytest.raises(SerdeError, match="charset"):
            opened(Text()).deserialize("t", headers, b"a")

    @pytest.mark.parametrize("payload", [b"\xff", b"\xc3", b"\xed\xa0\x80"])
    def test_requires_text(self, payload: bytes) -> None:
        with pytest.raises(
            SerdeError, match=r"expected text, but the payload of \d bytes holds text that is not"
        ):
            opened(Text()).deserialize("t", NONE, payload)

    @pytest.mark.parametrize("value", ["\ud800", f"{SECRET}€"])
    def test_refuses_what_its_charset_does_not_have(self, value: str) -> None:
        with pytest.raises(SerdeError, match="its charset does not have") as caught:
            opened(Text(encoding="us-ascii")).serialize("t", NONE, value)
        assert SECRET not in str(caught.value)

    @pytest.mark.parametrize("value", [b"x", 1])
    def test_refuses_others(self, value: Any) -> None:
        with pytest.raises(SerdeError, match="expected str, found"):
            opened(Text()).serialize("t", NONE, value)

    @pytest.mark.parametrize(
        ("options", "path"),
        [
            ({"encoding": "punycode"}, "encoding"),
            ({"encoding": ""}, "encoding"),
            ({"content_type": "text/csv; charset=utf-16"}, "content_type"),
        ],
    )
    def test_refuses_options_that_cannot_work(self, options: dict[str, str], path: str) -> None:
        with pytest.raises(ConfigError, match=f"^{path}: "):
            Text(**options)


class TestTrees:
    @pytest.mark.parametrize("kind", TREES)
    def test_go_both_ways(self, kind: type[Plain]) -> None:
        assert there_and_back(kind(), TREE) == TREE

    @pytest.mark.parametrize("kind", TREES)
    def test_structs_and_dataclasses_become_maps(self, kind: type[Plain]) -> None:
        assert there_and_back(kind(), Order(3, ["a"])) == {"id": 3, "tags": ["a"]}
        assert float(there_and_back(kind(), Item(Decimal("1.50")))["price"]) == 1.5

    @pytest.mark.parametrize("kind", TREES)
    def test_equal_keys_are_equal_bytes(self, kind: type[Plain]) -> None:
        serialize = opened(kind(), "key").serialize
        assert serialize("t", NONE, {"a": 1, "b": 2})[0] == serialize("t", NONE, {"b": 2, "a": 1})[0]

    @pytest.mark.parametrize("kind", TREES)
    def test_equal_keys_are_equal_bytes_in_every_process(self, kind: type[Plain]) -> None:
        """Text is hashed with a secret of the process, and so sets come in an order of their own there."""
        program = (
            f"from headerware import Headers\nfrom headerware.serdes import SerdeContext, {kind.__name__}\n"
            f"key = {kind.__name__}().open(SerdeContext(part='key'))\n"
            "print(key.serialize('t', Headers(), {'a': set('abcdefgh')})[0].hex())"
        )
        written = {
            subprocess.run(
                [sys.executable, "-c", program],
                check=True,
                capture_output=True,
                env={**os.environ, "PYTHONHASHSEED": seed},
            ).stdout
            for seed in ("1", "2")
        }
        assert len(written) == 1

    @pytest.mark.parametrize("kind", TREES)
    def test_keep_a_content_type_of_their_format(self, kind: type[Plain]) -> None:
        suffix = kind.type
        own = Headers({"content-type": f"application/vnd.orders+{suffix}"})
        assert opened(kind()).serialize("t", own, 1)[1] is own
        stale = Headers({"content-type": "application/xml"})
        assert opened(kind()).serialize("t", stale, 1)[1].last("content-type") != b"application/xml"

    @pytest.mark.parametrize("kind", TREES)
    @pytest.mark.parametrize("value", [object(), {"a": [object()]}, "\ud800", nested(100_000), 1j])
    def test_refuse_a_value_that_they_cannot_express(self, kind: type[Plain], value: Any) -> None:
        with pytest.raises(SerdeError, match=f"^cannot write {type(value).__name__} as "):
            opened(kind()).serialize("t", NONE, value)

    @pytest.mark.parametrize("kind", TREES)
    def test_refuse_a_value_that_contains_itself(self, kind: type[Plain]) -> None:
        cycle: list[Any] = []
        cycle.append({"a": cycle})
        with pytest.raises(SerdeError, match="nested too deeply, or contains itself"):
            opened(kind()).serialize("t", NONE, cycle)

    @pytest.mark.parametrize("kind", TREES)
    def test_refuse_a_payload_cut_anywhere(self, kind: type[Plain]) -> None:
        payload = opened(kind()).serialize("t", NONE, TREE)[0]
        for size in range(len(payload)):
            with pytest.raises(SerdeError):
                opened(kind()).deserialize("t", NONE, payload[:size])

    @pytest.mark.parametrize("kind", TREES)
    def test_refuse_more_after_the_end(self, kind: type[Plain]) -> None:
        payload = opened(kind()).serialize("t", NONE, TREE)[0]
        with pytest.raises(SerdeError):
            opened(kind()).deserialize("t", NONE, payload + b"0")

    @pytest.mark.parametrize(("kind", "opening"), [(Json, b"["), (Json, b'{"a":'), (MessagePack, b"\x91")])
    @pytest.mark.parametrize("depth", [TOO_DEEP, 1_000_000])
    def test_refuse_depth(self, kind: type[Plain], opening: bytes, depth: int) -> None:
        with pytest.raises(SerdeError, match="nested too deeply"):
            opened(kind()).deserialize("t", NONE, opening * depth)

    @pytest.mark.parametrize("kind", TREES)
    def test_errors_never_hold_the_payload(self, kind: type[Plain]) -> None:
        payload = opened(kind()).serialize("t", NONE, {SECRET: SECRET})[0] + SECRET.encode()
        with pytest.raises(SerdeError) as caught:
            opened(kind()).deserialize("t", NONE, payload)
        assert SECRET not in str(caught.value)
        assert caught.value.__cause__ is None


class TestNumbersOfClassesOfTheirOwn:
    """Such as Connect's, which know their width."""

    @pytest.mark.parametrize("serde", [Json(), MessagePack(), Cbor()], ids=lambda serde: serde.type)
    def test_are_the_numbers_that_they_are(self, serde: Plain) -> None:
        value = {"a": Int8(1), "b": [Float32(0.5)], "c": BigInteger(10**19), "d": True}
        found = there_and_back(serde, value)
        assert found == {"a": 1, "b": [0.5], "c": 10**19, "d": True}

    def test_are_refused_where_json_does_not_have_them(self) -> None:
        with pytest.raises(SerdeError, match="as JSON"):
            opened(Json()).serialize("t", NONE, {"a": Float32("nan")})


class TestJson:
    def test_numbers_are_exact(self) -> None:
        assert there_and_back(Json(), [10**40, 0.1, 5e-324, -0.0]) == [10**40, 0.1, 5e-324, -0.0]

    def test_writes_what_msgspec_writes(self) -> None:
        value = {
            "d": Decimal("1.10"),
            "t": datetime(2026, 1, 2, tzinfo=UTC),
            "u": uuid.UUID(int=1),
            "b": b"\x00",
        }
        assert there_and_back(Json(), value) == {
            "d": "1.10",
            "t": "2026-01-02T00:00:00Z",
            "u": "00000000-0000-0000-0000-000000000001",
            "b": "AA==",
        }

    @pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": {"b": -float("inf")}, "c": None}])
    def test_refuses_numbers_that_it_does_not_have(self, value: Any) -> None:
        with pytest.raises(SerdeError, match="as JSON"):
            opened(Json()).serialize("t", NONE, value)

    def test_says_where_such_a_number_is(self) -> None:
        value = {"id": 7, "lines": [{"price": 1.5}, {"price": float("nan")}], "total": float("inf")}
        with pytest.raises(SerdeError, match=r"NaN or an infinity at \$\.lines\[1\]\.price, which JSON"):
            opened(Json()).serialize("t", NONE, value)

    @pytest.mark.parametrize("value", ["null", [None, "NaN"], {"null": 1.5}, {1: None}, msgspec.Raw(b"null")])
    def test_null_itself_is_fine(self, value: Any) -> None:
        assert opened(Json()).serialize("t", NONE, value)[0] == msgspec.json.encode(value)

    @pytest.mark.parametrize(
        "value", [b'{"id":1}', bytearray(b"1"), memoryview(b"1"), type("B", (bytes,), {})()]
    )
    def test_refuses_bytes_which_are_probably_serialized_already(self, value: Any) -> None:
        kind = type(value).__qualname__
        expected = (
            f"expected an object to write as JSON, found {kind}; pass the object, or leave the serializer out"
        )
        for functions in (opened(Json()), opened(Polyglot())):
            headers = Headers({"content-type": "application/json"})
            with pytest.raises(SerdeError, match=expected):
                functions.serialize("t", headers, value)
        with pytest.raises(SerdeError, match=expected):
            opened(Json()).serialize_many("t", NONE, [{}, value])
        with pytest.raises(SerdeError, match=expected):
            opened(Json(), "key").serialize("t", NONE, value)

    def test_writes_bytes_within_an_object_as_base64(self) -> None:
        assert opened(Json()).serialize("t", NONE, {"id": b"\xff\xfe"})[0] == b'{"id":"//4="}'

    @pytest.mark.parametrize("charset", ["utf-16", "utf-32be", "iso-8859-1"])
    def test_is_read_in_the_charset_that_is_stated(self, charset: str) -> None:
        headers = Headers({"content-type": f"application/json; charset={charset}"})
        assert opened(Json()).deserialize("t", headers, '{"é":1}'.encode(charset))[0] == {"é": 1}
        with pytest.raises(SerdeError):
            opened(Json()).deserialize("t", headers, '{"é":1'.encode(charset))

    @pytest.mark.parametrize(
        "payload",
        [
            b"",
            b"nul",
            b"NaN",
            b"1e999",
            b'"\xff"',
            b'"\\ud800"',
            b"{1:2}",
            b"[1,]",
            b"'a'",
            b"\xef\xbb\xbf{}",
            b"9" * 5000,
        ],
    )
    def test_requires_json(self, payload: bytes) -> None:
        with pytest.raises(SerdeError, match=f"expected JSON, but the payload of {len(payload)} bytes"):
            opened(Json()).deserialize("t", NONE, payload)

    def test_names_the_type_that_it_lacks(self) -> None:
        with pytest.raises(
            SerdeError, match="holds an object of type object, which the format lacks; convert"
        ):
            opened(Json()).serialize("t", NONE, {"a": object()})

    def test_says_where(self) -> None:
        with pytest.raises(
            SerdeError,
            match=r"is malformed at byte 5; perhaps its writer uses another format, or no serializer",
        ):
            opened(Json()).deserialize("t", NONE, b'{"a":hunter2}')

    @pytest.mark.parametrize(
        ("stated", "advice"),
        [
            (
                b"application/avro-binary",
                (
                    "; its content-type is 'application/avro-binary': use the serde that wrote it, "
                    "or polyglot, which reads by content type"
                ),
            ),
            (b"application/json", WRITER_ADVICE),
            (b"\xff", WRITER_ADVICE),
        ],
    )
    def test_says_what_the_payload_is_said_to_be(self, stated: bytes, advice: str) -> None:
        with pytest.raises(SerdeError) as caught:
            opened(Json()).deserialize("t", Headers([("content-type", stated)]), b"\x02abc")
        assert str(caught.value).endswith(f"is malformed at byte 0{advice}")


class TestMessagePack:
    @pytest.mark.parametrize(
        "payload",
        [
            b"\xdd\xff\xff\xff\xff",
            b"\xdf\xff\xff\xff\xff\x01",
            b"\xc6\xff\xff\xff\xff",
            b"\xdb\xff\xff\xff\xffa",
            b"\xc9\xff\xff\xff\xff\x01",
            b"\xdd\x10\x00\x00\x00" + b"\x01" * 99,
        ],
    )
    def test_declared_lengths_take_no_memory(self, payload: bytes) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(SerdeError, match="truncated"):
            opened(MessagePack()).deserialize("t", NONE, payload)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB

    @pytest.mark.parametrize("payload", [b"\xc1", b"\xa1\xff", b"\xc7\x0c\xff" + b"\xff" * 12])
    def test_refuses_invalid_input(self, payload: bytes) -> None:
        with pytest.raises(SerdeError, match="expected MessagePack"):
            opened(MessagePack()).deserialize("t", NONE, payload)

    def test_refuses_integers_that_it_does_not_have(self) -> None:
        with pytest.raises(SerdeError, match="out of range"):
            opened(MessagePack()).serialize("t", NONE, 2**64)

    def test_bytes_times_and_special_numbers_survive(self) -> None:
        value = [b"\xff", datetime(2026, 1, 2, tzinfo=UTC), float("inf")]
        assert there_and_back(MessagePack(), value) == value


class TestCbor:
    def test_what_others_wrote_is_read(self) -> None:
        value = {
            "n": 2**70,
            "m": -(2**70),
            "d": Decimal("1.10"),
            "u": uuid.UUID(int=1),
            "t": datetime(2026, 1, 2, tzinfo=UTC),
        }
        assert opened(Cbor()).deserialize("t", NONE, cbor2.dumps(value))[0] == value
        assert cbor2.loads(opened(Cbor()).serialize("t", NONE, value)[0]) == value
        assert there_and_back(Cbor(), [date(2026, 1, 2), b"\xff", float("inf")]) == [
            date(2026, 1, 2),
            b"\xff",
            float("inf"),
        ]

    @pytest.mark.parametrize(
        ("payload", "value"),
        [
            ("9f01ff", [1]),
            ("5f41014102ff", b"\x01\x02"),
            ("bf616101ff", {"a": 1}),
            ("d9d9f701", 1),
            ("d90102816161", {"a"}),
        ],
    )
    def test_indefinite_lengths_and_harmless_tags_are_read(self, payload: str, value: Any) -> None:
        assert opened(Cbor()).deserialize("t", NONE, bytes.fromhex(payload))[0] == value

    def test_self_described_data_is_plain_objects(self) -> None:
        found, _ = opened(Cbor()).deserialize("t", NONE, bytes.fromhex("d9d9f7a1616182a0a0"))
        assert found == {"a": [{}, {}]}
        assert [type(found), type(found["a"]), type(found["a"][0])] == [dict, list, dict]

    @pytest.mark.parametrize(
        "payload",
        [
            "d81c81d81d00",  # an array that holds itself
            "d81d00",
            "d90100826161d81900",  # references to strings
            "d8236161",  # a regular expression
            "d8246161",  # a MIME message
            "d81e820102",
            "c5820102",
            "d9010444 0a000001",
            "d8ff01",
            "d8184101",
            "81d8ff01",
        ],
    )
    def test_refuses_other_tags(self, payload: str) -> None:
        with pytest.raises(SerdeError, match="as its only tags, found another"):
            opened(Cbor()).deserialize("t", NONE, bytes.fromhex(payload))

    @pytest.mark.parametrize("prefix", [b"\xc2", b"\xc3", b"\xc4\x82\x01\xc2"])
    def test_numbers_that_would_take_long_are_refused_at_once(self, prefix: bytes) -> None:
        with cpu_within(0.01), pytest.raises(SerdeError, match="at most 1024 bytes"):
            opened(Cbor()).deserialize("t", NONE, prefix + b"\x5a\x00\x08\x00\x00" + b"\xff" * (1 << 19))

    @pytest.mark.parametrize("head", ["9b", "bb", "5b", "7b", "81c25b", "d8255b"])
    @pytest.mark.parametrize("length", ["ffffffffffffffff", "7fffffffffffffff", "000000007fffffff"])
    def test_declared_lengths_take_no_memory(self, head: str, length: str) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(SerdeError):
            opened(Cbor()).deserialize("t", NONE, bytes.fromhex(head + length) + b"\x01\x01")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB

    @pytest.mark.parametrize("opening", [b"\x81", b"\x9f", b"\xa1\x61a", b"\xc1", b"\xd9\xd9\xf7"])
    def test_refuses_depth(self, opening: bytes) -> None:
        with pytest.raises(SerdeError):
            opened(Cbor()).deserialize("t", NONE, opening * 200_000)

    @pytest.mark.parametrize(
        "payload", ["ff", "f816", "61ff", "c06161", "c11b7fffffffffffffff", "d8256100", "1c"]
    )
    def test_refuses_invalid_input(self, payload: str) -> None:
        with pytest.raises(SerdeError, match="expected CBOR, but the payload of"):
            opened(Cbor()).deserialize("t", NONE, bytes.fromhex(payload))

    def test_other_keys_are_read_where_the_sender_is_trusted(self) -> None:
        payload = cbor2.dumps({1: "a"})
        with pytest.raises(SerdeError):
            opened(Cbor()).deserialize("t", NONE, payload)
        assert opened(Cbor(keys="any")).deserialize("t", NONE, payload)[0] == {1: "a"}

    @pytest.mark.parametrize(
        ("found", "there"),
        [("6.2.0.post1", True), ("7.0", True), ("6.1.5", False), ("5.9.0", False), ("local", False)],
    )
    def test_is_there_where_cbor2_has_the_limits(
        self,
        found: str,
        there: bool,  # noqa: FBT001 - parametrized
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(cbor, "version", lambda _: found)
        assert cbor.cbor_is_there() is there
        assert ("cbor" in Polyglot().table()) is there

    @pytest.mark.parametrize(
        ("module", "message"),
        [("None", "CBOR needs cbor2"), ("type(sys)('cbor2')", "expected cbor2 6.2 or newer")],
    )
    def test_names_missing_parts(self, module: str, message: str) -> None:
        program = (
            f"import sys; sys.modules['cbor2'] = {module}\n"
            "if sys.modules['cbor2']:\n"
            "    sys.modules['cbor2'].__dict__.update(CBORDecoder=lambda stream: None, dumps=len,\n"
            "        CBORError=ValueError, CBORDecodeEOF=ValueError)\n"
            "from headerware import ConfigError\n"
            "from headerware.serdes import Cbor, SerdeContext\n"
            "try: Cbor().open(SerdeContext())\n"
            "except ConfigError as error: print(error)\n"
        )
        done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
        assert message in done.stdout
