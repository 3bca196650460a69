"""The Java reader of header ids (examples/java), on the vectors and on what a real broker holds."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from headerware.core.errors import WireFormatError
from headerware.core.header_ids import HeaderId
from headerware.core.headers import Headers, Pair
from headerware.core.java import find_java
from headerware.interceptors import HeaderIds, Sign, Trail
from headerware.registry.wire.codec import HEADER, Form, HeaderIdCodec
from headerware.registry.wire.compact_keys import escape
from headerware.testing import MissingPartError
from headerware.testing.jars import TOOLS_JARS, find_jars

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker

ROOT: Final = Path(__file__).parents[2]
READER: Final = ROOT / "examples" / "java" / "HeaderIdReader.java"
PROGRAMS: Final = sorted((Path(__file__).parent / "programs").glob("*.java"))
DEADLINE_S: Final = 120.0
VECTORS: dict[str, Any] = json.loads(
    (ROOT / "spec" / "vectors" / "header-ids.json").read_text(encoding="utf-8")
)
NAMES: dict[int, str] = {int(HeaderId(dotted)): name for dotted, name in VECTORS["names"].items()}
TABLE: Final = "".join(f"name {number} {name.encode().hex()}\n" for number, name in NAMES.items())

Read = Headers | str
"""What Java made of a record: its headers, or the line that tells why it refused them."""


class Java:
    """Compile the Java reader and the programs beside this test, and run them.

    Raises:
        MissingPartError: there is no Java, or one that cannot compile.
    """

    def __init__(self, folder: Path, *, jars: Path) -> None:
        self._java = find_java()
        self._path = os.pathsep.join(map(str, [folder, *jars.glob("*.jar")]))  # the compiler knows no *
        # The compiler's own module, for where Java is need not be where a javac is.
        compiler = ["-m", "jdk.compiler/com.sun.tools.javac.Main", "-Xlint:all,-path", "-Werror"]
        done = self._run([*compiler, "-cp", self._path, "-d", str(folder), str(READER), *map(str, PROGRAMS)])
        if "jdk.compiler not found" in done.stdout + done.stderr:
            message = f"{self._java} has no compiler: install a JDK, such as openjdk-17-jdk-headless"
            raise MissingPartError(message)
        assert done.returncode == 0, done.stderr

    def run(self, main: str, *arguments: str, text: str = "") -> list[Read]:
        """Run a program that writes headers, and give what it read of each record."""
        done = self._run([main, *arguments], text)
        assert done.returncode == 0, done.stderr
        return records_in(done.stdout.splitlines())

    def _run(self, arguments: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
        command = [str(self._java), "-Xmx256m", "-cp", self._path, *arguments]
        return subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )


def records_in(lines: Sequence[str]) -> list[Read]:
    """Read what HeaderLines writes."""
    found: list[Read] = []
    headers: list[Pair] = []
    for line in lines:
        word, *rest = line.split(" ", 2)
        if word == "header":
            name, value = rest
            headers.append((bytes.fromhex(name).decode(), None if value == "-" else bytes.fromhex(value)))
        else:
            found.append(Headers(headers) if word == "end" else line)
            headers = []
    return found


def lines_of(headers: Headers) -> str:
    """Write what HeaderLines reads."""
    pairs = [(name.encode().hex(), "-" if value is None else value.hex()) for name, value in headers]
    return "".join(f"header {name} {value}\n" for name, value in pairs) + "end\n"


def headers_of(pairs: Sequence[tuple[str, str | None]]) -> Headers:
    return Headers([(name, None if text is None else bytes.fromhex(text)) for name, text in pairs])


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Java:
    """Compile the reader and the programs that use it."""
    try:
        return Java(tmp_path_factory.mktemp("classes"), jars=find_jars(TOOLS_JARS))
    except MissingPartError as missing:
        if os.environ.get("HEADERWARE_REQUIRE_ALL"):
            raise
        pytest.skip(str(missing))


class TestJavaReader:
    def test_is_short_enough_to_copy(self) -> None:
        assert len(READER.read_text(encoding="utf-8").splitlines()) <= 100

    @pytest.mark.parametrize("form", ["headers", "keys", "packed"])
    def test_reads_what_is_written(self, java: Java, form: str) -> None:
        given = [case["headers"] if form == "headers" else case[form] for case in VECTORS["cases"]]
        wire = [headers_of(pairs) for pairs in given]
        if form == "headers":  # as one writes who knows no ids
            wire = [Headers([(escape(name), value) for name, value in headers]) for headers in wire]
        found = java.run("HeaderLines", text=TABLE + "".join(map(lines_of, wire)))
        assert found == [headers_of(case["headers"]) for case in VECTORS["cases"]]

    def test_reads_what_others_write(self, java: Java) -> None:
        wire = "".join(lines_of(headers_of(case["wire"])) for case in VECTORS["read"])
        found = java.run("HeaderLines", text=TABLE + wire)
        assert found == [headers_of(case["headers"]) for case in VECTORS["read"]]

    def test_refuses_what_must_be(self, java: Java) -> None:
        wire = "".join(lines_of(headers_of(case["wire"])) for case in VECTORS["refused"])
        found = java.run("HeaderLines", text=TABLE + wire)
        accepted = [
            case["name"]
            for case, read in zip(VECTORS["refused"], found, strict=True)
            if not (isinstance(read, str) and read.startswith("refused hw.ids "))
        ]
        assert accepted == []

    def test_agrees_with_python_on_damaged_blocks(self, java: Java) -> None:
        codec = HeaderIdCodec(lambda _: None, NAMES.get)
        random = Random(4)
        damaged = [self.damaged(headers_of(case["packed"]), random) for case in VECTORS["cases"] * 25]
        expected: list[Headers | None] = []
        for headers in damaged:
            try:
                expected.append(codec.decode(headers))
            except WireFormatError:
                expected.append(None)
        found = java.run("HeaderLines", text=TABLE + "".join(map(lines_of, damaged)))
        assert [None if isinstance(read, str) else read for read in found] == expected
        assert 50 < expected.count(None) < len(expected) - 50

    def damaged(self, wire: Headers, random: Random) -> Headers:
        """Change a byte of the packed block, put some in, or cut it."""
        block = bytearray(wire.last(HEADER) or b'1"!')
        at = random.randrange(len(block))
        change = random.choice([random.randbytes(1), random.randbytes(2), b'!"', b""])
        block[at : at + random.choice([0, 1, len(block)])] = change
        return Headers([(name, bytes(block) if name == HEADER else value) for name, value in wire])


class TestJavaConsumer:
    @pytest.mark.parametrize("form", ["packed", "keys"])
    def test_sees_the_headers_that_python_sees(
        self, cluster: Cluster, java: Java, keyring: str, form: Form
    ) -> None:
        topic = cluster.topic("ids")
        sign = Sign(keyring=keyring, key_id="test")
        chain: list[object] = [Trail(service="shop"), sign, HeaderIds(form=form)]
        producer = cluster.producer(*chain)
        sent: list[list[Pair]] = [
            [],
            [("a", b"1"), ("10.0.0.7", None), ("a", b""), ("~Kq", b"\xff\x00"), ("größe", b"2")],
            [("content-type", b"text/plain"), ("10.0.0.7", b"x" * 300), ("10.0.0.7", b"")],
        ]
        for headers in sent:
            producer.produce(topic, b"value", b"key", headers=headers)
        assert producer.flush(DEADLINE_S) == 0

        on_the_wire = [set(Headers(message.headers()).names()) for message in cluster.on_the_wire(topic)]
        assert all(
            (names & {HEADER, "~F"}) == {HEADER if form == "packed" else "~F"} for names in on_the_wire
        )
        verified = cluster.take(cluster.consumer(topic, *chain), len(sent))
        assert [list(Headers(message.headers()))[:-1] for message in verified] == sent

        expanded = cluster.consumer(topic, HeaderIds(), group_id=f"{topic}-python")
        python = [Headers(message.headers()) for message in cluster.take(expanded, len(sent))]
        assert all(headers.names()[-2:] == ("hw.trail", "hw.sig") for headers in python)
        table = ["1=hw.trail", "5=hw.sig"]
        deadline_ms = str(int(DEADLINE_S * 500))
        found = java.run("ConsumeHeaders", cluster.servers, topic, str(len(sent)), deadline_ms, *table)
        assert found == python

    def test_needs_no_table_of_names(self, cluster: Cluster, java: Java) -> None:
        topic = cluster.topic("ids")
        producer = cluster.producer(Trail(service="shop"), HeaderIds())
        producer.produce(topic, b"value", headers={"a": b"1"})
        assert producer.flush(DEADLINE_S) == 0
        (found,) = java.run("ConsumeHeaders", cluster.servers, topic, "1", str(int(DEADLINE_S * 500)))
        assert isinstance(found, Headers)
        assert found.names() == ("a", "0.0.0.1")
