from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, UninterpretedOption
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from headerware import ConfigError, Headers, SerdeError
from headerware.core.options import from_option
from headerware.serdes.confluent.serde import ConfluentProtobuf
from headerware.serdes.formats.protobuf import Protobuf
from headerware.serdes.plugins import serde_type
from headerware.serdes.serde import SerdeContext

NONE = Headers()
TIME = Timestamp(seconds=7, nanos=9)


def opened(message: Any = Timestamp, part: Any = "value", **options: Any) -> Any:
    return Protobuf(message=message, **options).open(SerdeContext(part=part))


class TestProtobuf:
    @pytest.mark.parametrize("message", [Timestamp, "google.protobuf.timestamp_pb2:Timestamp"])
    def test_goes_both_ways(self, message: Any) -> None:
        payload, headers = opened(message).serialize("t", NONE, TIME)
        assert payload == TIME.SerializeToString()
        assert headers == Headers({"content-type": "application/protobuf; proto=google.protobuf.Timestamp"})
        assert opened(message).deserialize("t", headers, payload) == (TIME, headers)
        assert opened(message).serialize("t", headers, TIME)[1] is headers

    def test_is_found_by_its_word(self) -> None:
        table = {"type": "protobuf", "message": "google.protobuf.timestamp_pb2:Timestamp"}
        assert from_option(table, serde_type, path="value") == Protobuf(message=table["message"])

    def test_a_null_goes_through(self) -> None:
        assert opened().serialize("t", NONE, None) == (None, NONE)
        assert opened().deserialize("t", NONE, None) == (None, NONE)

    def test_states_what_the_options_say_instead(self) -> None:
        own = opened(content_type="application/x-protobuf").serialize("t", NONE, TIME)[1]
        assert own == Headers({"content-type": "application/x-protobuf"})
        assert opened(content_type="").serialize("t", NONE, TIME)[1] is NONE

    def test_equal_keys_are_equal_bytes(self) -> None:
        names = [f"field-{number}" for number in range(50)]
        forward, backward = Struct(), Struct()
        forward.update(dict.fromkeys(names, 1))
        backward.update(dict.fromkeys(reversed(names), 1))
        serialize = opened(Struct, "key").serialize
        assert serialize("t", NONE, forward)[0] == serialize("t", NONE, backward)[0]

    @pytest.mark.parametrize("value", [b"x", {"seconds": 7}, Struct()])
    def test_refuses_other_objects(self, value: Any) -> None:
        with pytest.raises(SerdeError, match=r"expected a message google\.protobuf\.Timestamp, found"):
            opened().serialize("t", NONE, value)

    @pytest.mark.parametrize(
        "payload", [b"\x08", b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x08" + b"\xff" * 11]
    )
    def test_refuses_corrupt_payloads(self, payload: bytes) -> None:
        with pytest.raises(SerdeError, match=f"the payload of {len(payload)} bytes is corrupt"):
            opened().deserialize("t", NONE, payload)

    def test_refuses_depth(self) -> None:
        payload = b""
        for _ in range(500):
            payload = (
                b"\x32"
                + _varint(len(payload) + 1 + len(_varint(len(payload))))
                + b"\x0a"
                + _varint(len(payload))
                + payload
            )
        with pytest.raises(SerdeError, match="corrupt"):
            opened(Value).deserialize("t", NONE, payload)

    def test_refuses_a_message_without_its_required_fields(self) -> None:
        functions = opened(
            "google.protobuf.descriptor_pb2:UninterpretedOption.NamePart".replace(".NamePart", "")
        )
        part = UninterpretedOption()
        part.name.add()
        with pytest.raises(SerdeError, match="a required field is missing"):
            functions.serialize("t", NONE, part)
        with pytest.raises(SerdeError, match="required fields are missing"):
            functions.deserialize("t", NONE, part.SerializePartialToString())

    @pytest.mark.parametrize(
        "content_type",
        [
            "application/protobuf; proto=shop.Order",
            'application/x-protobuf; messageType="shop.Order"',
            "application/protobuf; encoding=json",
            "application/vnd.google.protobuf; encoding=delimited",
        ],
    )
    def test_refuses_the_content_type_of_another_message(self, content_type: str) -> None:
        with pytest.raises(SerdeError, match="the content type names another"):
            opened().deserialize("t", Headers({"content-type": content_type}), TIME.SerializeToString())

    @pytest.mark.parametrize(
        "content_type",
        [
            "application/protobuf",
            "application/x-protobuf; proto=google.protobuf.Timestamp; encoding=binary",
            "a/b",
        ],
    )
    def test_reads_what_does_not(self, content_type: str) -> None:
        headers = Headers({"content-type": content_type})
        assert opened().deserialize("t", headers, TIME.SerializeToString())[0] == TIME

    def test_serves_several_threads(self) -> None:
        functions = opened()
        with ThreadPoolExecutor(4) as pool:
            messages = pool.map(
                lambda _: functions.deserialize("t", NONE, TIME.SerializeToString())[0], range(200)
            )
            assert all(message == TIME for message in messages)

    @pytest.mark.parametrize("kind", [Protobuf, partial(ConfluentProtobuf, url="mock://protobuf")])
    @pytest.mark.parametrize(
        ("message", "found"),
        [
            ("order_pb2.Order", "'order_pb2.Order'; write order_pb2:Order"),
            ("a.b_pb2.Order.Line", "'a.b_pb2.Order.Line'; write a.b_pb2:Order.Line"),
            ("order_pb2", "'order_pb2'"),
            ("a:b:c", "'a:b:c'"),
            (3, "an object of type int"),
        ],
    )
    def test_says_what_was_found_in_place_of_a_name(self, kind: Any, message: Any, found: str) -> None:
        told = f'message: expected "package.module_pb2:Message" or its class, found {found}'
        with pytest.raises(ConfigError) as caught:
            kind(message=message)
        assert str(caught.value) == told

    @pytest.mark.parametrize("message", ["Timestamp", "a:b:c", "", 3, None])
    def test_requires_the_name_of_a_message(self, message: Any) -> None:
        with pytest.raises(ConfigError, match=r"^message: expected"):
            Protobuf(message=message)

    @pytest.mark.parametrize(
        "message",
        [
            "no_such_module:X",
            "google.protobuf.timestamp_pb2:NoSuch",
            "builtins:dict",
            "builtins:len",
            ":X",
            ".relative:X",
            dict,
        ],
    )
    def test_requires_a_message(self, message: Any) -> None:
        with pytest.raises(ConfigError, match=r"^message: "):
            opened(message)

    def test_a_message_inside_another_has_its_path(self) -> None:
        found = Protobuf(message="google.protobuf.descriptor_pb2:DescriptorProto.ReservedRange")
        message = DescriptorProto.ReservedRange(start=1)
        payload, headers = found.open(SerdeContext()).serialize("t", NONE, message)
        assert found.open(SerdeContext()).deserialize("t", headers, payload)[0] == message

    def test_names_missing_parts(self) -> None:
        program = (
            "import sys; sys.modules['google.protobuf'] = None\n"
            "from headerware import ConfigError\n"
            "from headerware.serdes.formats.protobuf import Protobuf, SerdeContext\n"
            "try: Protobuf(message='a:B').open(SerdeContext())\n"
            "except ConfigError as error: print(error)\n"
        )
        done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
        assert "Protobuf needs the package protobuf" in done.stdout


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes((*parts, number))
