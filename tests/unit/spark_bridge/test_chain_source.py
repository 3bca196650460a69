from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from headerware.core.chain import Chain
from headerware.core.errors import ConfigError, KeyringError
from headerware.core.hooks import Interceptor
from headerware.core.record import Record
from headerware.interceptors import (
    Admission,
    Audit,
    ClaimCheck,
    Compress,
    Dedup,
    Delay,
    Encrypt,
    Lineage,
    Metrics,
    Sign,
    Trace,
    Trail,
)
from headerware.interceptors.serialize import Serialize
from headerware.keyring import public_part, with_new_key
from headerware.keyring.services.file import FileKeys
from headerware.keyring.subjects import SubjectTopic
from headerware.keyring.writing import edit_keyring, write_public_keyring
from headerware.object_store import FolderObjects
from headerware.serdes.formats.plain import Json
from headerware.spark_bridge.chain_source import ChainSource, Work, chain_source

FLAT = {
    "interceptors": "trail,compress",
    "interceptors.trail.service": "shop",
    "interceptors.compress.level": 3,
}
TOML = """
include = ["shared.toml"]

[[interceptors]]
type = "sign"
keyring = "keys.json"
key_id = "${env:HW_TEST_KEY}"
"""
SHARED = """
[[interceptors]]
type = "trail"
service = "${env:HW_TEST_KEY}"
"""
# A program whose classes stand in itself, as in a notebook.
PROGRAM = """
import pickle, subprocess, sys
from pyspark import cloudpickle
from headerware.core.chain import Chain
from headerware.core.errors import ConfigError
from headerware.core.hooks import Interceptor
from headerware.core.record import Record
from headerware.spark_bridge.chain_source import chain_source

class Plain:
    def __init__(self, word): self.word = word
    def on_send(self, record): return record.replace(value=self.word)

class Hooks(Interceptor, frozen=True, kw_only=True):
    def on_send(self, record): return record.replace(value=b"hooks")

class Options(Interceptor, frozen=True, kw_only=True):
    word: bytes
    def on_send(self, record): return record.replace(value=self.word)

EXECUTOR = '''
import pickle, sys
from headerware.core.record import Record
source = pickle.load(sys.stdin.buffer)
print(source.load().open().send([Record("t")])[0].value.decode())
'''
for step in (Plain(b"plain"), Hooks()):
    shipped = cloudpickle.dumps(chain_source(Chain([step]))[0])
    done = subprocess.run([sys.executable, "-c", EXECUTOR], input=shipped, capture_output=True)
    print(done.stdout.decode().strip(), done.stderr.decode())
try:
    chain_source(Chain([Options(word=b"x")]))
except ConfigError as error:
    print(error)
"""


class ByReference:
    """Be a plug-in of a module that executors can import."""

    def on_send(self, record: Record) -> Record:
        return record


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a TOML file that includes another."""
    monkeypatch.setenv("HW_TEST_KEY", "resolved-on-the-driver")
    (tmp_path / "shared.toml").write_text(SHARED)
    (tmp_path / "chain.toml").write_text(TOML)
    return tmp_path / "chain.toml"


class TestForms:
    def test_a_chain_a_mapping_and_a_path_make_the_same_chain(self, tmp_path: Path) -> None:
        path = tmp_path / "chain.toml"
        path.write_text('interceptors = [{type="trail", service="shop"}, {type="compress", level=3}]')
        chain = Chain([Trail(service="shop"), Compress(level=3)])
        for given in (chain, FLAT, path, str(path), {"headerware.config": str(path)}):
            source, loaded = chain_source(given)
            assert loaded == chain
            assert pickle.loads(pickle.dumps(source)).load() == chain  # noqa: S301 - our own

    @pytest.mark.parametrize("given", [None, 5, [Trail()], Trail()])
    def test_anything_else_is_refused(self, given: Any) -> None:
        with pytest.raises(ConfigError, match="expected a Chain, a mapping, or a path to TOML"):
            chain_source(given)

    def test_what_is_wrong_is_told_at_once(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="did you mean 'service'"):
            chain_source({"interceptors": "trail", "interceptors.trail.servce": "x"})
        with pytest.raises(ConfigError, match="cannot be read"):
            chain_source(tmp_path / "none.toml")


class TestFiles:
    def test_are_shipped_by_their_text(self, files: Path) -> None:
        source, loaded = chain_source(files)
        for path in files.parent.iterdir():
            path.unlink()
        assert source.load() == loaded

    def test_relative_paths_are_those_of_the_driver(
        self, files: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(files.parent)
        by_path, loaded = chain_source("chain.toml")
        by_key, _ = chain_source({"headerware.config": "chain.toml"})
        monkeypatch.chdir(tmp_path_factory.mktemp("executor"))
        assert by_path.load() == by_key.load() == loaded

    def test_options_that_name_files_are_asked_for(self, files: Path) -> None:
        source, _ = chain_source(files)
        chain = source.load(lambda path: f"/shipped/{Path(path).name}")
        (sign,) = [step for step in chain if isinstance(step, Sign)]
        assert sign.keyring == "/shipped/keys.json"

    def test_a_file_that_was_not_there_before_is_refused(self, files: Path) -> None:
        source, _ = chain_source(files)
        without = ChainSource(path=source.path, files={str(files): source.files[str(files)]})
        with pytest.raises(ConfigError, match=r"shared\.toml"):
            without.load()


class TestMaterial:
    """What the driver can know of keys and certificates, it says at the call."""

    @pytest.fixture
    def public(self, tmp_path: Path) -> str:
        """Return a keyring with public halves only, as readers have it."""
        keyring = edit_keyring(
            tmp_path / "keys.json", lambda keys: with_new_key(keys, "test", "ed25519"), create=True
        )
        write_public_keyring(tmp_path / "public.json", public_part(keyring)[0])
        return str(tmp_path / "public.json")

    @pytest.mark.parametrize("work", ["encode", "kafka_sink", "source"])
    def test_of_a_reader_is_refused_to_write_with(self, work: Work, public: str) -> None:
        with pytest.raises(KeyringError, match=r"public\.json: key 'test'") as caught:
            chain_source(Chain([Sign(keyring=public, key_id="test")]), work)
        assert "\n" not in str(caught.value)
        with pytest.raises(ConfigError, match=r"^interceptors\.sign\.key_id: sending needs"):
            chain_source(Chain([Sign(keyring=public)]), work)

    @pytest.mark.parametrize("work", ["decode", "foreach_batch"])
    def test_of_a_reader_reads(self, work: Work, public: str, caplog: pytest.LogCaptureFixture) -> None:
        chain_source(Chain([Sign(keyring=public)]), work)
        assert caplog.text == ""

    @pytest.mark.parametrize("work", ["decode", "encode"])
    def test_that_only_the_driver_lacks_is_logged(
        self, work: Work, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        chain_source(Chain([Sign(keyring=str(tmp_path / "none.json"), key_id="test")]), work)
        (record,) = caplog.records
        assert record.message.startswith("the driver cannot check the chain, and each worker must open it: ")
        assert "none.json" in record.message

    def test_may_be_a_certificate(
        self, public: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        keyring = str(tmp_path / "keys.json")
        signed = Sign(keyring=keyring, key_id="test")
        with pytest.raises(ConfigError, match=r"interceptors\.admission\.certificate: sending needs"):
            chain_source(Chain([Admission(), signed]), "encode")
        chain_source(Chain([Admission(certificate=str(tmp_path / "none.jws")), signed]), "encode")
        assert "none.jws" in caplog.text

    def test_may_be_the_key_to_encrypt_with(self, tmp_path: Path) -> None:
        reader = Encrypt(key_service=FileKeys(keyring=str(tmp_path / "keys.json")), key_ids=("test",))
        with pytest.raises(ConfigError, match=r"interceptors\.encrypt\.key_id"):
            chain_source(Chain([reader]), "encode")
        chain_source(Chain([reader]), "decode")

    def test_may_be_the_store_to_write_to(self, tmp_path: Path) -> None:
        stores = {name: FolderObjects(path=str(tmp_path / name)) for name in ("old", "new")}
        with pytest.raises(ConfigError, match=r"interceptors\.claim_check\.store: there are several stores"):
            chain_source(Chain([ClaimCheck(stores=stores)]), "kafka_sink")

    def test_is_not_asked_for_where_everything_is_switched_off(
        self, public: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        chain_source(Chain([Sign(keyring=public)]), "encode")


class TestSecrets:
    def test_variables_go_unresolved(self, files: Path) -> None:
        for given in (files, {"headerware.config": str(files)}):
            source, _ = chain_source(given)
            assert b"resolved-on-the-driver" not in cloudpickle.dumps(source)  # type: ignore[no-untyped-call]

    @pytest.mark.parametrize("form", ["path", "flat"])
    def test_nor_where_everything_is_switched_off(
        self, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HW_TEST_KEY", "resolved-on-the-driver")
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        text = '[[interceptors]]\ntype = "serialize"\nvalue = "json"\n' + SHARED
        (tmp_path / "chain.toml").write_text(text)
        flat = {**FLAT, "interceptors": "serialize,trail,compress", "interceptors.serialize.value": "json"}
        flat["interceptors.trail.service"] = "${env:HW_TEST_KEY}"
        source, loaded = chain_source(tmp_path / "chain.toml" if form == "path" else flat)
        assert loaded == Chain([Serialize(value=Json())])
        assert source.load() == loaded
        assert b"resolved-on-the-driver" not in cloudpickle.dumps(source)  # type: ignore[no-untyped-call]


class TestDisabled:
    def test_only_what_serializes_is_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        chain = Chain([Serialize(value=Json()), Trail(), Compress()])
        source, loaded = chain_source(chain)
        assert loaded.names == ("serialize",)
        # What the driver decides holds on executors, whose environment may be another.
        monkeypatch.delenv("HEADERWARE_DISABLED")
        assert source.load() == loaded
        assert source.fingerprint != chain_source(chain)[0].fingerprint

    def test_send_leaves_decoding_as_it_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", "send")
        chain = Chain([Serialize(value=Json()), Trail()])
        assert chain_source(chain)[1].names == ("serialize", "trail")
        assert chain_source(chain, "encode")[1].names == ("serialize",)

    def test_a_configuration_that_is_wrong_is_no_obstacle(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        source, loaded = chain_source({"interceptors": "nothing-like-it"})
        assert loaded == source.load() == Chain()
        assert "nothing-like-it" in caplog.text


class TestFingerprint:
    def test_tells_one_configuration_from_another(self, files: Path) -> None:
        others: list[Any] = [
            Chain([Trail(service="a")]),
            Chain([Trail(service="b")]),
            Chain([Trail(service="a"), Compress()]),
            FLAT,
            {**FLAT, "interceptors.compress.level": 4},
            files,
        ]
        assert len({chain_source(each)[0].fingerprint for each in others}) == len(others)

    def test_a_changed_include_changes_it(self, files: Path) -> None:
        before = chain_source(files)[0].fingerprint
        (files.parent / "shared.toml").write_text(SHARED.replace("trail", "compress").replace("service", "#"))
        assert chain_source(files)[0].fingerprint != before

    def test_does_not_look_at_the_order_of_keys(self) -> None:
        assert chain_source(FLAT)[0].fingerprint == chain_source(dict(reversed(FLAT.items())))[0].fingerprint

    def test_does_not_look_at_where_objects_lie(self) -> None:
        def of_new_serde() -> str:
            return chain_source(Chain([Serialize(value=Custom())]))[0].fingerprint

        kept = [Custom() for _ in range(9)]
        assert of_new_serde() == of_new_serde()
        assert len(kept) == 9

    def test_is_the_same_in_every_process(self, files: Path) -> None:
        program = (
            "import json, sys\n"
            "from headerware.core.chain import Chain\n"
            "from headerware.interceptors import Compress, Trail\n"
            "from headerware.spark_bridge.chain_source import chain_source\n"
            "flat, path = json.load(sys.stdin)\n"
            "forms = [Chain([Trail(service='a', topics=('x', 'y')), Compress()]), flat, path]\n"
            "print(json.dumps([chain_source(each)[0].fingerprint for each in forms]))\n"
        )
        told = json.dumps([FLAT, str(files)])
        done = subprocess.run(
            [sys.executable, "-c", program], input=told, capture_output=True, text=True, check=True
        )
        chain = Chain([Trail(service="a", topics=("x", "y")), Compress()])
        assert json.loads(done.stdout) == [chain_source(each)[0].fingerprint for each in (chain, FLAT, files)]

    def test_gives_nothing_away(self) -> None:
        found = chain_source({**FLAT, "interceptors.trail.service": "secret"})[0].fingerprint
        assert len(found) == 16
        assert set(found) <= set("0123456789abcdef")


class Custom:
    """Be a serde of an application's own, without a repr."""

    def serialize(self, topic: str, headers: Any, given: Any) -> Any:
        return given, headers


class TestPlugins:
    def test_of_modules_go_by_reference(self) -> None:
        source, _ = chain_source(Chain([ByReference()]))
        (step,) = pickle.loads(cloudpickle.dumps(source)).load()  # type: ignore[no-untyped-call]  # noqa: S301
        assert isinstance(step, ByReference)

    def test_of_the_program_itself(self, tmp_path: Path) -> None:
        program = tmp_path / "program.py"
        program.write_text(PROGRAM)
        done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
        plain, hooks, refusal = done.stdout.splitlines()
        assert (plain, hooks) == ("plain ", "hooks ")
        assert refusal.startswith(
            "interceptors.options: the class Options has options and is defined in the program"
        )

    def test_of_a_function_are_refused(self) -> None:
        class Local(Interceptor, frozen=True, kw_only=True):
            word: str = ""

            def on_send(self, record: Record) -> Record:
                return record

        with pytest.raises(ConfigError, match="put it into a module"):
            chain_source(Chain([Local()]))


class TestCarry:
    """What is carried on goes to the executors with the chain, and is a part of its configuration."""

    @pytest.mark.parametrize("form", ["chain", "flat", "file"])
    def test_is_loaded_again(self, form: str, tmp_path: Path) -> None:
        (tmp_path / "chain.toml").write_text('carry = ["tenant"]\n[[interceptors]]\ntype = "trail"\n')
        given: Any = {
            "chain": Chain([Trail()], carry=["tenant"]),
            "flat": {"interceptors": "trail", "headerware.carry": "tenant"},
            "file": tmp_path / "chain.toml",
        }[form]
        source, loaded = chain_source(given)
        again = pickle.loads(pickle.dumps(source)).load(str)  # noqa: S301 - our own
        assert loaded.carry == again.carry == ("tenant",)

    def test_tells_fingerprints_apart(self) -> None:
        chains = [Chain([Trail()], carry=carry) for carry in (None, False, ["tenant"], ["id"])]
        assert len({chain_source(chain)[0].fingerprint for chain in chains}) == 4


class Waiting(Interceptor, frozen=True):
    """Hold records back, as a plug-in may."""

    delays = True

    def on_consume(self, record: Record) -> Record:
        return record


class Deaf(Interceptor, frozen=True):
    """Hear of commits only."""

    type = "deaf"

    def on_commit(self, offsets: object) -> None:
        """Do nothing."""


class TestAStepThatCannotWorkInATask:
    @pytest.mark.parametrize("work", ["decode", "foreach_batch"])
    @pytest.mark.parametrize("step", [Delay(after_ms=5), Waiting()])
    def test_is_refused_as_it_is_read_with(self, step: Interceptor, work: Work) -> None:
        with pytest.raises(
            ConfigError, match=r"interceptors\..*has no partition to pause; take the step out"
        ):
            chain_source(Chain([step]), work)

    @pytest.mark.parametrize("work", ["encode", "kafka_sink"])
    def test_may_write(self, work: Work) -> None:
        assert len(chain_source(Chain([Delay(after_ms=5)]), work)[1]) == 1

    @pytest.mark.parametrize(
        ("work", "says"),
        [("decode", "foreach_batch"), ("encode", "has stored"), ("kafka_sink", "has stored")],
    )
    def test_that_audits_is_refused_where_nothing_tells_what_was_done(self, work: Work, says: str) -> None:
        with pytest.raises(ConfigError, match=f"interceptors.audit: 'audit' cannot count here: .*{says}"):
            chain_source(Chain([Audit()]), work)

    @pytest.mark.parametrize("work", ["decode", "encode", "foreach_batch"])
    def test_that_reads_keys_of_subjects_needs_their_servers(self, work: Work) -> None:
        place = SubjectTopic(topic="customer-keys")
        keys = FileKeys(keyring="nowhere.json")  # the driver need not have it
        step = Encrypt(key_service=keys, key_id="k", key_of="header:customer", subject_keys=place)
        with pytest.raises(ConfigError, match=r"interceptors\.encrypt: subject_keys needs servers"):
            chain_source(Chain([step]), work)

    def test_is_left_out_where_all_is_disabled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        assert not len(chain_source(Chain([Delay(), Audit()]), "decode")[1])


class TestAStepThatDoesNothing:
    @pytest.mark.parametrize(
        ("step", "work", "says"),
        [
            (Serialize(), "decode", "serialize: it has a serde neither for keys nor for values"),
            (Lineage(), "decode", "lineage: nothing is reported"),
            (Lineage(), "encode", "lineage: nothing is reported"),
            (Metrics(), "decode", "metrics: nothing is measured"),
            (Metrics(), "encode", "metrics: nothing is measured"),
            (Trace(), "decode", "trace: it makes no spans"),
            (Deaf(), "foreach_batch", "deaf: it has no hook that Spark calls"),
            (Dedup(store="seen.db"), "foreach_batch", "dedup: 'store' does nothing in Spark"),
        ],
    )
    def test_says_so(
        self, step: Interceptor, work: Work, says: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        chain_source(Chain([step]), work)
        (told,) = caplog.messages
        assert told.startswith(says)

    def test_is_silent_where_it_does_something(self, caplog: pytest.LogCaptureFixture) -> None:
        chain_source(Chain([Lineage(), Trail(), Trace(), Dedup()]), "foreach_batch")
        assert not caplog.messages
