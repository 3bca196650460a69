from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import headerware
from headerware.core.header_ids import HeaderId
from headerware.interceptors.built_in import HEADERS
from headerware.registry import built_in, problems, with_built_in, without_built_in
from headerware.registry.header_names import look

OWN = {
    1: "hw.trail",
    2: "hw.compress",
    3: "hw.encrypt",
    4: "hw.slice",
    5: "hw.sig",
    6: "hw.schema",
    7: "hw.claim",
    8: "hw.id",
    9: "hw.expires",
    10: "hw.owner",
    11: "hw.admit",
    12: "hw.not-before",
    13: "hw.source",
    14: "hw.source.key",
    15: "hw.source.record",
    16: "hw.contract",
    17: "hw.secret",
    18: "hw.trail.proof",
}
"""As released: what is here never changes, whatever the file says."""
FOREIGN = {257: "traceparent", 258: "tracestate", 259: "baggage", 260: "content-type"}
HEAVY = ("confluent_kafka", "fastavro", "cbor2", "google", "sqlite3", "cryptography")


class TestBuiltIn:
    def test_ids_stay_what_they_are(self) -> None:
        for number, name in (OWN | FOREIGN).items():
            entry = built_in().by_id(number)
            assert entry is not None
            assert entry.name == name

    def test_own_headers_are_text_and_compacted_without_being_listed(self) -> None:
        own = [entry for entry in built_in().entries if entry.name.startswith("hw.")]
        assert {int(entry.id) for entry in own} == set(OWN)
        assert {(entry.encoding, entry.foreign) for entry in own} == {("utf-8", False)}

    def test_names_of_others_are_marked(self) -> None:
        others = [entry for entry in built_in().entries if not entry.name.startswith("hw.")]
        assert len(others) > 40
        assert all(entry.foreign and entry.id in range(257, 512) for entry in others)

    def test_all_transport_headers_but_the_packed_block_have_ids(self) -> None:
        ours = {name for name in (*HEADERS.encodings, *HEADERS.lineage) if name.startswith("hw.")}
        assert ours - {entry.name for entry in built_in().entries} == {"hw.ids"}

    def test_has_no_problems(self) -> None:
        assert problems(built_in()) == []
        assert len({look(entry.name) for entry in built_in().entries}) == len(built_in())

    def test_lies_in_its_own_block(self) -> None:
        assert [str(block.network) for block in built_in().blocks] == ["0.0.0.0/16"]
        assert {entry.owner for entry in built_in().entries} == {"headerware"}

    def test_is_read_once(self) -> None:
        assert built_in() is built_in()

    def test_is_put_beside_and_taken_off_again(self) -> None:
        assert with_built_in(registrar="team") != built_in()
        own = without_built_in(with_built_in(registrar="team"))
        assert (own.blocks, own.entries, own.registrar) == ((), (), "team")


class TestPackage:
    def test_works_from_a_zip(self, tmp_path: Path) -> None:
        package = Path(headerware.__file__).parent
        with zipfile.ZipFile(tmp_path / "headerware.zip", "w") as archive:
            for path in package.rglob("*"):
                if path.suffix in {".py", ".pyi", ".toml"}:
                    archive.write(path, Path("headerware") / path.relative_to(package))
        program = (
            "import headerware.registry as r; assert '.zip' in r.__file__, r.__file__; "
            "print(r.built_in().by_id(1).name)"
        )
        places = os.pathsep.join([str(tmp_path / "headerware.zip"), sysconfig.get_path("purelib")])
        environment = {**os.environ, "PYTHONPATH": places}
        done = subprocess.run(  # without site, which would find the package where it is installed
            [sys.executable, "-S", "-c", program],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout, done.stderr) == ("hw.trail\n", "")

    @pytest.mark.parametrize("module", ["headerware.registry", "headerware.registry.stores"])
    def test_loads_nothing_heavy(self, module: str) -> None:
        program = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout == "[]\n"


class TestHeaderId:
    def test_of_an_entry_is_written_dotted(self) -> None:
        entry = built_in().by_name("hw.admit")
        assert entry is not None
        assert str(entry.id) == "0.0.0.11"
        assert entry.id == HeaderId(11)
