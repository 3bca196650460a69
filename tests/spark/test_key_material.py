"""Key material is not copied: no plan, event log, function or file of Spark's has it."""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.spark_bridge.chain_source import chain_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.one_spark, pytest.mark.long]

PROGRAM = Path(__file__).parent / "programs" / "with_keys.py"
SECONDS = 200
FORMS = ("path", "mapping")
# No header tells this one: it only goes into digests.
SCOPE = "9f8a1c-the-scope-of-identities-that-the-environment-fills-in"
CHAIN = """
[[interceptors]]
type = "trail"
service = "a-service-by-whose-name-one-finds-the-configuration"

[[interceptors]]
type = "dedup"
id_from_key = true
producer = "${env:IDENTITY_SCOPE}"

[[interceptors]]
type = "encrypt"
key_service = { type = "file", keyring = "keys.json" }
key_id = "cards"

[[interceptors]]
type = "slice"
max_bytes = 2_000

[[interceptors]]
type = "sign"
keyring = "keys.json"
key_id = "test"
require = "enforce"
"""
MARK = b"a-service-by-whose-name-one-finds-the-configuration"
PATTERN = b"${env:IDENTITY_SCOPE}"


class Ran(NamedTuple):
    """The files that a run of the program left, and the secrets that must not be in them."""

    folder: Path
    secrets: dict[str, bytes]

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def files(self, name: str) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (self.folder / name).rglob("*") if path.is_file()}

    def found_in(self, content: bytes) -> list[str]:
        return [form for form, secret in self.secrets.items() if secret in content]


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run the program once; the run's own session comes first, so that what is missing here is skipped."""
    folder = tmp_path_factory.mktemp("keys")
    keyring = folder / "keys.json"
    edit_keyring(keyring, lambda keys: with_new_key(keys, "test", "hmac-sha256"), create=True)
    edit_keyring(keyring, lambda keys: with_new_key(keys, "cards", "aes-256"))
    (folder / "chain.toml").write_text(CHAIN)
    environment = {**os.environ, "IDENTITY_SCOPE": SCOPE, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    secrets = {f"{key_id} {form}": found for key_id, form, found in secrets_of(keyring)}
    return Ran(folder, {**secrets, "environment": SCOPE.encode()})


def secrets_of(keyring: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield the id of each key, and its secret in each form."""
    for key in json.loads(keyring.read_text())["keys"]:
        for form, found in forms_of(base64.b64decode(key["secret"])).items():
            yield key["id"], form, found


def forms_of(secret: bytes) -> dict[str, bytes]:
    """Return the ways in which a secret might be written."""
    return {
        "raw": secret,
        "hex": secret.hex().encode(),
        "upper-case hex": secret.hex().upper().encode(),
        "base64": base64.b64encode(secret).rstrip(b"="),
        "url-safe base64": base64.urlsafe_b64encode(secret).rstrip(b"="),
        "repr": repr(secret)[2:-1].encode(),
    }


class TestKeyMaterial:
    def test_the_search_would_find_it(self, ran: Ran) -> None:
        assert ran.found_in(ran.read("keys.json"))

    @pytest.mark.parametrize("form", FORMS)
    def test_is_not_in_the_plan(self, ran: Ran, form: str) -> None:
        plans = ran.read(f"plans-{form}")
        assert plans.count(b"MapInArrow") >= 3
        assert ran.found_in(plans) == []

    def test_is_not_in_the_event_log(self, ran: Ran) -> None:
        logs = ran.files("events")
        text = b"".join(logs.values())
        assert b"SparkListenerSQLExecutionStart" in text
        assert b"SignatureError" in text, "the job that failed is in it, too"
        assert ran.found_in(text) == []

    @pytest.mark.parametrize("form", FORMS)
    def test_is_not_in_the_function_that_is_shipped(self, ran: Ran, form: str) -> None:
        function = ran.read(f"function-{form}")
        assert MARK in function, "the configuration is"
        assert PATTERN in function, "as it was written"
        assert ran.found_in(function) == []

    def test_is_in_no_broadcast_and_no_other_file_of_the_session(self, ran: Ran) -> None:
        files = ran.files("kept")
        broadcasts = [content for content in files.values() if MARK in content]
        assert len(broadcasts) >= len(FORMS), "functions went through broadcasts, which lay in files"
        assert {path: found for path, content in files.items() if (found := ran.found_in(content))} == {}

    @pytest.mark.parametrize("form", FORMS)
    def test_is_not_in_what_a_failed_job_says(self, ran: Ran, form: str) -> None:
        error = ran.read(f"error-{form}")
        assert b"SignatureError" in error
        assert ran.found_in(error) == []


class TestSwitchedOff:
    """HEADERWARE_DISABLED leaves the steps that serialize, and they may have secrets, too."""

    def test_what_is_left_goes_as_it_was_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        monkeypatch.setenv("IDENTITY_SCOPE", SCOPE)
        option = "interceptors.serialize.value"
        source, chain = chain_source({
            "interceptors": "serialize,trail",
            f"{option}.type": "json",
            f"{option}.content_type": f"application/{PATTERN.decode()}",
        })  # fmt: skip
        assert chain.names == ("serialize",)
        pickled = pickle.dumps(source)
        assert PATTERN in pickled
        assert SCOPE.encode() not in pickled
