"""Jobs on Spark's own standalone cluster: executors that are killed, slow, idle or bare, and a killed driver.

Everything here runs in processes of its own: a master, two workers with a core each, their executors, and
drivers. What an executor does at its record is in ``programs/on_cluster.py``.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from headerware import Chain, Record
from headerware.dictionaries import FolderDictionaries
from headerware.dictionaries.store import publish
from headerware.interceptors import Dedup, Slice
from headerware.keyring import with_new_key
from headerware.keyring.lifecycle import public_part
from headerware.keyring.writing import edit_keyring, write_public_keyring
from headerware.spark_bridge.session import spark_home
from tests.airports import trained
from tests.spark.standalone import StandaloneCluster
from tests.spark.test_shipping import python_without

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.spark.conftest import Kafka

pytestmark = [pytest.mark.broker, pytest.mark.long, pytest.mark.timeout(900)]

PROGRAMS: Final = Path(__file__).parent / "programs"
ROOT: Final = Path(__file__).resolve().parents[2]
DEADLINE_S: Final = 400
MAX_BYTES: Final = 2_000
SLICES: Final = 5
BATCH: Final = 30
SCENARIOS: Final = ("speculation", "allocation", "decode", "write", "reassembly", "driver")
WRITING: Final = ("write", "reassembly", "speculation", "allocation", "driver")


def message(kind: str, number: int) -> bytes:
    title = f"{kind}-{number:03d}".encode()
    size = 400 if kind == "small" else SLICES * (MAX_BYTES - 500)
    return title + random.Random(title).randbytes(size)


# The large messages of both partitions begin in one batch of allocation and driver, and end in the next.
SENT: Final = (
    *(message("small", number) for number in range(26)),
    *(message("large", number) for number in (50, 51)),
    *(message("small", number) for number in range(26, 44)),
)
OTHERS: Final = 22 + 2 * SLICES
"""The records of the second partition, and all slices: other tasks write them than the task of small-030."""
BEFORE: Final = 15
"""The rows of a partition before small-030 or small-031, at which the writing tasks stop."""
DIGESTS: Final = sorted(hashlib.sha256(value).hexdigest() for value in SENT)


class Finished:
    """What the program of all scenarios has left."""

    def __init__(self, folder: Path, source: str) -> None:
        self._folder = folder
        self.source = source

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def has(self, name: str) -> bool:
        return (self._folder / name).exists()

    def result(self, name: str) -> Any:
        return json.loads((self._folder / f"{name}.json").read_text())

    def counts(self, name: str) -> list[list[int]]:
        """Return what came into the reading chain and out of the writing chain, by batch."""
        return [[batch["decoded"][1], batch["encoded"][0]] for batch in self.result(name)["batches"]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def environment() -> dict[str, str]:
    """Return this environment without what an earlier session of this process has set for its workers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return {**kept, "SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.fixture(scope="module")
def finished(cluster: StandaloneCluster, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Run all scenarios, kill the driver in the last one, and run that one again."""
    folder = tmp_path_factory.mktemp("on-cluster")
    source = kafka.topic("on-cluster", partitions=2)
    for name in (*WRITING, "no-identities"):
        kafka.topic(f"{source}-{name}", partitions=2)
    sending = Chain([Dedup(), Slice(max_bytes=MAX_BYTES)])
    records = [Record(source, value, partition=number % 2) for number, value in enumerate(SENT)]
    kafka.send(sending, *records)
    told = {
        "master": cluster.url,
        "servers": kafka.servers,
        "source": source,
        "folder": str(folder),
        "max_bytes": MAX_BYTES,
        "batch": str(BATCH),
        "others": OTHERS,
        "before": BEFORE,
    }
    left = Finished(folder, source)

    def started(*scenarios: str) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            str(PROGRAMS / "on_cluster.py"),
            json.dumps({**told, "scenarios": scenarios}),
        ]
        with (folder / "log").open("ab") as output:
            return subprocess.Popen(
                command, stdout=output, stderr=output, env=environment(), start_new_session=True
            )

    def failure(what: str) -> str:
        return f"{what}:\n{left.log[-6000:]}\n{cluster.logs()}"

    def is_amid_the_write() -> bool:
        return left.has("driver.there") and sum(kafka.ends(f"{source}-driver").values()) > BATCH

    process = started(*SCENARIOS)
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not is_amid_the_write():
            assert process.poll() is None, failure(f"the driver ended with {process.returncode}")
            assert time.monotonic() < deadline, failure("the last scenario is not amid its write")
            time.sleep(0.2)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    again = started("driver")
    try:
        assert again.wait(DEADLINE_S) == 0, failure("the driver that was started again failed")
    finally:
        if again.poll() is None:
            again.kill()
            again.wait()
    return left


class TestKilledExecutor:
    def test_of_a_decode_loses_and_repeats_no_row(self, finished: Finished) -> None:
        assert finished.has("decode.again"), "no second attempt"
        assert sorted(finished.result("decode")["values"]) == DIGESTS

    @pytest.mark.parametrize("name", ["write", "reassembly"])
    def test_has_each_record_counted_once(self, finished: Finished, name: str) -> None:
        assert finished.has(f"{name}.again"), "no second attempt"
        assert finished.counts(name) == [[len(SENT), len(SENT)]]

    def test_amid_the_write_leaves_some_rows_twice(self, finished: Finished, kafka: Kafka) -> None:
        assert 0 < repeats(kafka, f"{finished.source}-write") < len(SENT)

    def test_amid_the_reassembly_leaves_every_row_once(self, finished: Finished, kafka: Kafka) -> None:
        assert repeats(kafka, f"{finished.source}-reassembly") == 0


class TestSpeculation:
    @pytest.mark.parametrize(
        "name", ["slow-decode", "speculation-decode", "speculation-reassembly", "speculation-write"]
    )
    def test_ran_slow_tasks_twice(self, finished: Finished, name: str) -> None:
        assert finished.has(f"{name}.again")

    def test_of_a_decode_loses_and_repeats_no_row(self, finished: Finished) -> None:
        assert sorted(finished.result("slow-decode")["values"]) == DIGESTS

    def test_has_each_written_record_counted_once(self, finished: Finished) -> None:
        ((decoded, encoded),) = finished.counts("speculation")
        assert encoded == len(SENT)
        assert decoded <= len(SENT), "the counts of an attempt whose rows another has used are lost"

    def test_is_refused_where_counts_are_reports(self, finished: Finished) -> None:
        error = finished.result("audit")["error"]
        assert "spark.speculation: expected false for a chain with 'audit', found true" in error

    def test_leaves_rows_twice_for_readers_without_dedup(self, finished: Finished, kafka: Kafka) -> None:
        assert repeats(kafka, f"{finished.source}-speculation") > 0

    def test_is_warned_of_where_rows_have_no_identities(self, finished: Finished) -> None:
        warnings = [line for line in finished.log.splitlines() if "spark.speculation is true" in line]
        assert len(warnings) == 1
        assert "writes its rows twice, and readers get both" in warnings[0]

    def test_is_refused_for_the_copy_of_a_topic(self, finished: Finished) -> None:
        error = finished.result("copy")["error"]
        assert error.startswith("spark.speculation: expected false for a job that writes, found true")


class TestDynamicAllocation:
    def test_let_executors_go_between_batches_and_come_again(self, finished: Finished) -> None:
        seen = finished.result("executors")["seen"]
        assert len(seen) > 1
        assert min(seen) > 0

    def test_keeps_slices_that_wait_while_no_executor_is_there(
        self, finished: Finished, kafka: Kafka
    ) -> None:
        counts = finished.counts("allocation")
        assert [sum(column) for column in zip(*counts, strict=True)] == [len(SENT), len(SENT)]
        assert repeats(kafka, f"{finished.source}-allocation") == 0


class TestKilledDriver:
    def test_has_its_batch_replayed_by_another_process(self, finished: Finished) -> None:
        assert finished.result("driver")["batches"][0]["replay"]

    def test_leaves_some_rows_twice(self, finished: Finished, kafka: Kafka) -> None:
        assert 0 < repeats(kafka, f"{finished.source}-driver") < len(SENT)


class TestReader:
    def test_with_dedup_sees_every_record_once_whatever_was_killed_or_ran_twice(
        self, finished: Finished, kafka: Kafka
    ) -> None:
        topics = [f"{finished.source}-{name}" for name in WRITING]
        records, refused = kafka.read(topics, Chain([Dedup(), Slice()]))
        assert not refused
        found = {topic: sorted(each.value for each in records if each.topic == topic) for topic in topics}
        assert found == dict.fromkeys(topics, sorted(SENT))


def repeats(kafka: Kafka, topic: str) -> int:
    """Return how many messages are on the wire of a topic more than once, by the records that begin them."""
    wire, _ = kafka.read(topic, Chain([]))
    titles = Counter(
        record.value[:9] for record in wire if (record.value or b"").startswith((b"small-", b"large-"))
    )
    assert len(titles) == len(SENT)
    return sum(count - 1 for count in titles.values())


CHAIN: Final = """
[[interceptors]]
type = "trail"
service = "ship"

[[interceptors]]
type = "compress"
dictionaries = {{ type = "folder", path = "{dictionaries}" }}

[[interceptors]]
type = "sign"
keyring = "{keyring}"
key_id = "test"
require = "enforce"
"""
PACKED: Final = (
    "msgspec",
    "opentelemetry",
    "typing_extensions",
    "importlib_metadata",
    "zipp",
    "pyarrow",
    "zstandard",
    "cryptography",
    "cffi",
    "_cffi",
)
"""What the packed environment has: what this chain needs, and no more, to be quick."""


ONE_EXECUTOR: Final = ("--conf", "spark.cores.max=1")
VALUE: Final = '{"iata": "00M", "state": "MS"}' * 20
"""What the program sends."""


class Shipping:
    """What is shipped: an environment, a wheel, dictionaries, and a keyring of public halves.

    The keyring with secrets is on the nodes, under a path that only their environment has.
    """

    def __init__(self, folder: Path, cluster: StandaloneCluster) -> None:
        self._folder = folder
        self._cluster = cluster
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
        (self.wheel,) = map(str, folder.glob("*.whl"))
        self.bare = python_without(folder / "bare")
        """A Python on the nodes that has all except headerware."""
        self.secret = str(folder / "secret.json")
        ring = edit_keyring(self.secret, lambda keys: with_new_key(keys, "test", "ed25519"), create=True)
        write_public_keyring(folder / "public.json", public_part(ring)[0])
        store = FolderDictionaries(path=str(folder / "dictionaries")).open()
        publish(store, trained(), "t")
        store.close()
        self.dictionaries = self.packed("dictionaries", folder / "dictionaries")
        writing = CHAIN.format(dictionaries="/absent/dictionaries", keyring="${env:SECRET_KEYRING}")
        (folder / "writing.toml").write_text(writing)
        reading = CHAIN.format(dictionaries="/absent/dictionaries", keyring="/absent/public.json")
        (folder / "reading.toml").write_text(reading)

    def packed(self, name: str, folder: Path) -> str:
        """Pack a folder as venv-pack does, with links to the base Python, and return the archive's name."""
        packed = self._folder / f"{name}.tar.gz"  # Spark refuses a .tar that has such links
        with tarfile.open(packed, "w:gz", compresslevel=1) as archive:
            for entry in folder.iterdir():
                archive.add(entry, entry.name)
        return f"{packed}#{name}"

    def environment(self) -> str:
        """Pack an environment with all that the chain needs, and return the archive's name."""
        home = self._folder / "environment"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
        site = next((home / "lib").glob("python*")) / "site-packages"
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if entry.name.startswith(PACKED) and entry.is_dir():
                shutil.copytree(entry, site / entry.name, ignore=shutil.ignore_patterns("tests", "include"))
            elif entry.name.startswith(PACKED):
                shutil.copy(entry, site)
        shutil.unpack_archive(self.wheel, site, "zip")
        return self.packed("environment", home)

    def run(self, *options: str, python: str, **artifacts: str) -> dict[str, Any]:
        """Submit the program, and return what it has found."""
        told = {
            "master": self._cluster.url,
            "writing": str(self._folder / "writing.toml"),
            "reading": str(self._folder / "reading.toml"),
            **artifacts,
        }
        command = [
            str(spark_home() / "bin" / "spark-submit"),
            *("--master", self._cluster.url),
            *("--files", str(self._folder / "public.json")),
            *("--conf", f"spark.pyspark.driver.python={sys.executable}"),
            *("--conf", f"spark.pyspark.python={python}"),
            *("--conf", f"spark.executorEnv.SECRET_KEYRING={self.secret}"),
            *options,
            str(PROGRAMS / "ship_to_cluster.py"),
            json.dumps(told),
        ]
        done = subprocess.run(
            command,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            env={**environment(), "SECRET_KEYRING": self.secret},
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found


@pytest.fixture(scope="module")
def shipping(cluster: StandaloneCluster, tmp_path_factory: pytest.TempPathFactory) -> Shipping:
    return Shipping(tmp_path_factory.mktemp("shipping"), cluster)


class TestShipped:
    def test_environment_has_all_that_the_chain_needs(self, shipping: Shipping) -> None:
        archives = f"{shipping.environment()},{shipping.dictionaries}"
        found = shipping.run("--archives", archives, python="./environment/bin/python")
        assert found["python"].endswith("/environment/bin/python")
        assert_went_there_and_back(found)

    def test_wheel_is_imported_by_executors_that_have_the_rest(self, shipping: Shipping) -> None:
        options = ("--py-files", shipping.wheel, "--archives", shipping.dictionaries, *ONE_EXECUTOR)
        assert_went_there_and_back(shipping.run(*options, python=shipping.bare))

    def test_artifacts_of_a_session_are_as_good(self, shipping: Shipping) -> None:
        artifacts = {"pyfile": shipping.wheel, "archive": shipping.dictionaries}
        assert_went_there_and_back(shipping.run(*ONE_EXECUTOR, python=shipping.bare, **artifacts))


def assert_went_there_and_back(found: dict[str, Any]) -> None:
    assert found["wire"] == [["hw.trail", "hw.compress", "hw.sig"]] * 4
    assert max(found["sizes"]) < len(VALUE)
    assert found["values"] == [VALUE] * 4
    assert found["signers"] == ["test"]
