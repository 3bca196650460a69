"""What the doctor finds without a cluster: versions, a chain, its keys."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import sys
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from headerware import Context
from headerware.cli import main
from headerware.core.extras import install_command
from headerware.dictionaries import FolderDictionaries
from headerware.dictionaries.store import publish
from headerware.interceptors import new_key_secret
from headerware.keyring import (
    Keyring,
    encode_keyring,
    public_part,
    with_deletion,
    with_new_key,
    with_revocation,
    with_rotation,
)
from headerware.keyring.services import Vault
from headerware.keyring.writing import edit_keyring
from headerware.ops.doctor import Finding, examination, examine
from tests.airports import trained
from tests.ingress import Ingress
from tests.vault_server import TOKEN, VaultServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headerware.testing import EmbeddedCluster

NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(days=99)
"""When keys were made, so that they may have expired since."""


def about(found: list[Finding], check: str) -> list[tuple[str, str]]:
    """Return status and text of the findings whose check begins like this."""
    return [(one.status, one.found) for one in found if one.check.startswith(check)]


def chain_file(folder: Path, *lines: str) -> Path:
    path = folder / "headerware.toml"
    path.write_text("\n".join(["[[interceptors]]", *lines]), encoding="utf-8")
    return path


def signing(folder: Path, *lines: str, **key: Any) -> Path:
    """Return a chain that signs with a key of these options."""
    keyring = folder / "keys.json"
    edit_keyring(
        keyring, lambda ring: with_new_key(ring, "k", "hmac-sha256", now=LONG_AGO, **key), create=True
    )
    return chain_file(folder, 'type = "sign"', f'keyring = "{keyring}"', 'key_id = "k"', *lines)


class TestVersions:
    def test_that_are_supported_are_ok(self) -> None:
        found = [one for one in examine() if one.check != "chain"]
        assert {one.status for one in found} == {"ok"}
        assert {one.check for one in found} >= {"python", "confluent-kafka", "librdkafka", "msgspec"}

    @pytest.mark.parametrize("installed", ["2.12.9", "3.0.0"])
    def test_out_of_their_range_fail(self, monkeypatch: pytest.MonkeyPatch, installed: str) -> None:
        monkeypatch.setattr(
            examination,
            "version",
            lambda name: installed if name == "confluent-kafka" else importlib.metadata.version(name),
        )
        (finding,) = (one for one in examine() if one.status not in {"ok", "unknown"})
        assert (finding.check, finding.status) == ("confluent-kafka", "fail")
        assert finding.found.startswith(f"{installed}, expected ")
        assert finding.advice is not None
        assert finding.advice.startswith("pip install 'confluent-kafka")

    def test_native_steps_of_another_version_are_told_with_the_command_for_the_right_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(examination, "native_module", lambda: (None, "not used: expected another"))
        (finding,) = (one for one in examine() if one.status == "warn")
        assert (finding.check, finding.advice) == ("native", install_command("native"))


class TestNoChain:
    def test_is_told(self) -> None:
        answer = CliRunner().invoke(main, ["doctor"], env={"HEADERWARE_CONFIG": ""})
        assert answer.exit_code == 0
        advice = "if the application has a chain, name its file with --config"
        assert f"unknown chain: no file names it\n        -> {advice}" in answer.output

    def test_stands_where_the_chain_would_be(self, tmp_path: Path) -> None:
        with_chain = [one.check for one in examine(chain_file(tmp_path, 'type = "trail"'))]
        assert [one.check for one in examine()].index("chain") == with_chain.index("chain")


class TestChain:
    def test_that_opens_is_ok(self, tmp_path: Path) -> None:
        found = examine(chain_file(tmp_path, 'type = "trail"'))
        assert about(found, "chain") == [("ok", "trail"), ("ok", "opens"), ("ok", "opens")]

    def test_with_a_mistake_fails_with_its_place(self, tmp_path: Path) -> None:
        ((status, text),) = about(examine(chain_file(tmp_path, 'type = "trail"', "servcie = 1")), "chain")
        assert status == "fail"
        assert "servcie" in text

    def test_that_one_side_cannot_open_is_a_warning_unless_it_is_that_side(self, tmp_path: Path) -> None:
        signing(tmp_path)
        path = chain_file(tmp_path, 'type = "sign"', f'keyring = "{tmp_path / "keys.json"}"')
        assert [status for status, _ in about(examine(path), "chain as a")] == ["warn", "ok"]
        assert [status for status, _ in about(examine(path, side="producer"), "chain as a")] == ["fail"]
        assert [status for status, _ in about(examine(path, side="consumer"), "chain as a")] == ["ok"]

    def test_the_side_is_only_advised_where_it_may_be_the_reason(self, tmp_path: Path) -> None:
        signing(tmp_path)
        without_key_id = chain_file(tmp_path, 'type = "sign"', f'keyring = "{tmp_path / "keys.json"}"')
        (found,) = (one for one in examine(without_key_id) if one.check == "chain as a producer")
        assert found.advice == "if this application is not a producer, name its side with --side"
        wrong = chain_file(tmp_path, 'type = "sign"', 'keyring = "keys.json"', 'key_id = "kk"')
        (found,) = (one for one in examine(wrong) if one.check == "chain as a producer")
        assert found.advice is None
        assert "did you mean 'k'?" in found.found
        named = chain_file(
            tmp_path, 'type = "sign"', 'keyring = "keys.json"', 'key_id = "only its public half"'
        )
        (found,) = (one for one in examine(named) if one.check == "chain as a producer")
        assert found.advice is None
        ring = public_part(with_new_key(Keyring(), "k", "ed25519"))[0]
        (tmp_path / "keys.json").write_bytes(encode_keyring(ring))
        half = chain_file(tmp_path, 'type = "sign"', 'keyring = "keys.json"', 'key_id = "k"')
        (found,) = (one for one in examine(half) if one.check == "chain as a producer")
        assert found.advice == "if this application is not a producer, name its side with --side"

    def test_a_missing_keyring_is_made_with_the_key_that_the_step_needs(self, tmp_path: Path) -> None:
        service = 'key_service = { type = "file", keyring = "no.json" }'
        path = chain_file(tmp_path, 'type = "encrypt"', 'key_id = "shop"', service)
        (found,) = (one for one in examine(path) if one.check == "key service of encrypt")
        assert found.found.endswith(f"--keyring {tmp_path / 'no.json'} --id shop --algorithm aes-256")

    def test_that_encrypts_and_does_not_sign_is_a_warning(self, tmp_path: Path) -> None:
        lines = (
            'type = "encrypt"',
            'key_id = "cards"',
            'key_service = { type = "file", keyring = "keys.json" }',
        )
        [(status, told)] = about(examine(chain_file(tmp_path, *lines)), "chain: encrypt")
        assert status == "warn"
        assert "no step signs what it encrypts" in told

    def test_leaves_no_store_of_identities(self, tmp_path: Path) -> None:
        store = tmp_path / "seen.sqlite"
        found = examine(chain_file(tmp_path, 'type = "dedup"', f'store = "{store}"'))
        assert about(found, "chain as a") == [("ok", "opens"), ("ok", "opens")]
        assert not store.exists()

    def test_whose_store_would_create_a_topic_is_not_opened(self, tmp_path: Path) -> None:
        path = chain_file(
            tmp_path,
            'type = "schema"',
            'store = { type = "topic", servers = "127.0.0.1:1", topic = "schemas", create = true }',
        )
        found = examine(path)
        assert {status for status, _ in about(found, "chain as a")} == {"unknown"}
        assert about(found, "schema store") == [("unknown", "not asked: it has create = true")]

    def test_in_order_are_ok(self, tmp_path: Path) -> None:
        found = examine(signing(tmp_path), None, ["orders"])
        assert about(found, "keys") == [("ok", "1 version of 1 key")]

    def test_that_cannot_sign_are_not_counted(self, tmp_path: Path) -> None:
        path = signing(tmp_path)
        edit_keyring(tmp_path / "keys.json", lambda ring: with_new_key(ring, "cards", "aes-256"))
        assert about(examine(path), "keys") == [("ok", "1 version of 1 key")]

    def test_in_a_file_that_others_can_read_fail(self, tmp_path: Path) -> None:
        path = signing(tmp_path)
        (tmp_path / "keys.json").chmod(0o644)
        ((status, text),) = about(examine(path), "keys")
        assert status == "fail"
        assert "keys.json" in text

    @pytest.mark.parametrize(
        ("key", "status", "words"),
        [
            ({"not_after": NOW + timedelta(days=3)}, "warn", "expires on"),
            (
                {"not_after": NOW - timedelta(days=3), "not_before": NOW - timedelta(days=9)},
                "fail",
                f"is valid until {NOW - timedelta(days=3):%Y-%m-%dT}",
            ),
            (
                {"not_before": NOW + timedelta(days=3)},
                "fail",
                f"is valid from {NOW + timedelta(days=3):%Y-%m-%dT}",
            ),
        ],
    )
    def test_at_the_limits_of_their_time_are_told(
        self, tmp_path: Path, key: dict[str, Any], status: str, words: str
    ) -> None:
        _, (found_status, text) = about(examine(signing(tmp_path, **key)), "keys")
        assert found_status == status
        assert f"key 'k' version 1 {words}" in text

    @pytest.mark.parametrize(
        ("limit", "days", "words"),
        [
            ("not_after", 3, "expires on"),
            ("not_after", -3, "expired on"),
            ("not_before", 3, "is valid only from"),
        ],
    )
    def test_at_limits_in_any_zone_are_told_in_utc(
        self, tmp_path: Path, limit: str, days: int, words: str
    ) -> None:
        moment = (NOW + timedelta(days=days)).replace(microsecond=0)
        path, keyring = signing(tmp_path), tmp_path / "keys.json"
        limits: dict[str, Any] = {limit: moment}
        edit_keyring(keyring, lambda ring: with_new_key(ring, "other", "ed25519", now=LONG_AGO, **limits))
        text = keyring.read_text(encoding="utf-8")
        zoned = moment.astimezone(timezone(timedelta(hours=5, minutes=30))).isoformat()
        assert f"{moment:%Y-%m-%dT%H:%M:%SZ}" in text
        keyring.write_text(text.replace(f"{moment:%Y-%m-%dT%H:%M:%SZ}", zoned), encoding="utf-8")
        assert f"{words} {moment:%Y-%m-%d %H:%M}Z" in "".join(one.found for one in examine(path))

    @pytest.mark.parametrize(
        "key",
        [
            {"not_after": NOW + timedelta(days=3)},
            {"not_after": NOW - timedelta(days=3), "not_before": NOW - timedelta(days=9)},
            {"not_before": NOW + timedelta(days=3)},
        ],
    )
    def test_at_the_limits_of_their_time_are_mended_by_the_advice(
        self, tmp_path: Path, key: dict[str, Any]
    ) -> None:
        path = signing(tmp_path, **key)
        [advice] = [one.advice for one in examine(path) if one.check.startswith("keys") and one.advice]
        [command] = re.findall(r"headerware (keys rotate --keyring \S+ --id k(?: --not-after TIME)?)", advice)
        time = NOW + timedelta(days=99)
        answer = CliRunner().invoke(main, shlex.split(command.replace("TIME", f"{time:%Y-%m-%dT%H:%M:%SZ}")))
        assert answer.exit_code == 0, answer.output
        [(status, _)] = about(examine(path), "keys")
        assert status == "ok"

    @pytest.mark.parametrize("key_id", ["k", "other"])
    def test_a_version_that_begins_later_is_no_failure_while_another_signs(
        self, tmp_path: Path, key_id: str
    ) -> None:
        path = signing(tmp_path)
        edit_keyring(tmp_path / "keys.json", lambda ring: with_new_key(ring, "other", "ed25519"))
        later = NOW + timedelta(days=3)
        for _ in range(2):
            edit_keyring(tmp_path / "keys.json", lambda ring: with_rotation(ring, key_id, not_before=later))
        _, (status, text) = about(examine(path), "keys")
        assert status == "ok"
        assert f"key '{key_id}' version 3 is valid only from {later:%Y-%m-%d}" in text
        assert "version 1 signs until then" in text

    def test_a_gap_between_two_versions_is_told(self, tmp_path: Path) -> None:
        path = signing(tmp_path, not_after=NOW + timedelta(days=20))
        edit_keyring(
            tmp_path / "keys.json",
            lambda ring: with_rotation(
                ring, "k", not_before=NOW + timedelta(days=30), not_after=NOW + timedelta(days=99)
            ),
        )
        found = [one for one in examine(path) if one.check == "keys of sign" and one.status == "warn"]
        assert [
            ("before the next version is valid" in one.found, "--not-before" in str(one.advice))
            for one in found
        ] == [(True, True)]

    def test_a_public_half_is_not_to_be_rotated(self, tmp_path: Path) -> None:
        path = signing(tmp_path)
        ring = public_part(with_new_key(Keyring(), "k", "ed25519"))[0]
        (tmp_path / "keys.json").write_bytes(encode_keyring(ring))
        (found,) = (one for one in examine(path) if one.check == "keys of sign" and one.status == "fail")
        assert "only its public half" in found.found
        assert "the private key" in str(found.advice)
        assert "rotate" not in str(found.advice)

    def test_a_revoked_key_is_told_with_since_when(self, tmp_path: Path) -> None:
        path = signing(tmp_path)
        edit_keyring(tmp_path / "keys.json", lambda ring: with_revocation(ring, "k"))
        (found,) = (one for one in examine(path) if one.check == "keys of sign" and one.status == "fail")
        assert "version 1 revoked since 2" in found.found
        assert "headerware keys rotate" in str(found.advice)

    def test_that_may_not_sign_for_a_topic_fail(self, tmp_path: Path) -> None:
        found = examine(signing(tmp_path, topics=("bills",)), None, ["bills", "orders"])
        ((status, text),) = about(found, "keys of sign for")
        assert status == "fail"
        assert "orders" in text

    def test_that_are_not_there_are_to_be_made_and_not_rotated(self, tmp_path: Path) -> None:
        path = signing(tmp_path)
        path.write_text(path.read_text().replace('key_id = "k"', 'key_id = "shop"'))
        (found,) = (one for one in examine(path) if one.check == "keys of sign" and one.status == "fail")
        assert f"headerware keys generate --keyring {tmp_path / 'keys.json'} --id shop" in str(found.advice)
        assert "rotate" not in str(found.advice)

    def test_show_no_secret(self, tmp_path: Path) -> None:
        found = repr(examine(signing(tmp_path, not_after=NOW + timedelta(days=1))))
        secret = (tmp_path / "keys.json").read_text(encoding="utf-8").partition('"secret"')[2].split('"')[1]
        assert len(secret) > 20
        assert secret not in found


class TestShreddedKeys:
    @pytest.mark.parametrize(
        ("key_id", "key_ids", "side", "statuses"),
        [
            ("new", '["old"]', None, {"'new'": "ok", "'old'": "warn"}),
            ("old", "[]", "consumer", {"'old'": "warn"}),
            ("old", "[]", None, {"'old'": "fail"}),
        ],
    )
    def test_fail_only_if_records_are_to_be_encrypted_under_them(
        self, tmp_path: Path, key_id: str, key_ids: str, side: Any, statuses: dict[str, str]
    ) -> None:
        keyring = tmp_path / "keys.json"
        edit_keyring(keyring, lambda ring: with_new_key(ring, "old", "aes-256"), create=True)
        edit_keyring(keyring, lambda ring: with_new_key(with_deletion(ring, "old"), "new", "aes-256"))
        service = f'key_service = {{ type = "file", keyring = "{keyring}" }}'
        path = chain_file(
            tmp_path, 'type = "encrypt"', service, f'key_id = "{key_id}"', f"key_ids = {key_ids}"
        )
        found = {one.check.rpartition(", ")[2]: one.status for one in examine(path, side=side)}
        assert {name: found[name] for name in statuses} == statuses


class TestKeyServices:
    @pytest.fixture
    def vault(self) -> Iterator[VaultServer]:
        with VaultServer() as vault:
            yield vault

    @pytest.fixture
    def probed(self, tmp_path: Path, vault: VaultServer) -> Callable[..., list[tuple[str, str, str]]]:
        """Return a function that examines a chain that encrypts, and gives what was found of its keys."""

        def found(*lines: str, bind: str = "associated_data", **options: Any) -> list[tuple[str, str, str]]:
            service = f'{{ type = "vault", url = "{vault.url}", token = "{TOKEN}", bind = "{bind}" }}'
            path = chain_file(tmp_path, 'type = "encrypt"', f"key_service = {service}", *lines)
            findings = examine(path, **options)
            assert TOKEN not in str(findings)
            return [
                (one.check.removeprefix("key service of encrypt"), one.status, one.found)
                for one in findings
                if one.check.startswith("key service of")
            ]

        return found

    def test_that_do_it_are_ok(self, probed: Callable[..., Any], vault: VaultServer) -> None:
        found = probed('key_id = "orders"', 'key_ids = ["payments"]')
        assert found == [(f", '{name}'", "ok", "wraps and unwraps") for name in ("orders", "payments")]
        assert [path.split("/")[-2:] for path, _ in vault.calls] == [
            ["encrypt", "orders"],
            ["decrypt", "orders"],  # for another context, which must fail
            ["decrypt", "orders"],
            ["encrypt", "payments"],
            ["decrypt", "payments"],
            ["decrypt", "payments"],
        ]

    def test_that_bind_no_context_fail(self, probed: Callable[..., Any]) -> None:
        [(_, status, found)] = probed('key_id = "orders"', bind="context")
        assert status == "fail"
        assert "for another context than it was wrapped for" in found

    @pytest.mark.parametrize(
        ("denied", "side", "status"),
        [
            ("encrypt", "producer", "fail"),
            ("encrypt", None, "warn"),
            ("encrypt", "consumer", "unknown"),
            ("decrypt", "producer", "ok"),
            ("decrypt", None, "warn"),
            ("decrypt", "consumer", "fail"),
        ],
    )
    def test_that_refuse_a_permission_are_named_with_it(
        self, probed: Callable[..., Any], vault: VaultServer, denied: str, side: Any, status: str
    ) -> None:
        vault.denied = {denied}
        [(check, found, text)] = probed('key_id = "orders"', side=side)
        assert (check, found) == (", 'orders'", status)
        if status != "ok":
            assert "permission denied" in text
            assert ("unwrap" in text) == (denied == "decrypt" or side == "consumer")

    def test_that_are_out_of_reach_cost_a_bounded_time(
        self, probed: Callable[..., Any], vault: VaultServer
    ) -> None:
        vault.delay_s = 60.0
        began = time.monotonic()
        [(check, status, text)] = probed('key_id = "orders"', 'key_ids = ["payments"]', timeout_s=0.2)
        assert time.monotonic() - began < 30
        assert (check, status) == ("", "fail")
        assert "did not answer within 0.2 s" in text

    def test_without_the_key_fail(self, probed: Callable[..., Any]) -> None:
        [(check, status, _)] = probed('key_id = "ordres"')
        assert (check, status) == (", 'ordres'", "warn")  # Vault tells no more to such a token

    def test_that_are_local_are_asked_as_well(self, tmp_path: Path) -> None:
        edit_keyring(tmp_path / "keys.json", lambda ring: with_new_key(ring, "k", "aes-256"), create=True)
        lines = ['type = "encrypt"', 'key_service = { type = "file", keyring = "keys.json" }']
        found = examine(chain_file(tmp_path, *lines, 'key_id = "k"', 'key_ids = ["gone"]'))
        [(failed, text), fine] = about(found, "key service of encrypt, ")
        assert (failed, fine) == ("fail", ("ok", "wraps and unwraps"))
        assert "'gone'" in text

    def test_must_unwrap_the_secret_of_record_keys(
        self, probed: Callable[..., Any], vault: VaultServer
    ) -> None:
        options = Vault(url=vault.url, token=TOKEN)
        secret = new_key_secret(options.open(Context()), "orders")
        lines = ('key_id = "orders"', 'key = "deterministic"', f'key_secret = "{secret}"')
        assert probed(*lines, side="producer")[1:] == [(", key_secret", "ok", "unwraps")]
        vault.reset()  # other keys of the same names
        [_, (check, status, text)] = probed(*lines)
        assert (check, status) == (", key_secret", "fail")
        assert "not wrapped under this key" in text


class TestDictionaries:
    def test_are_counted(self, tmp_path: Path) -> None:
        publish(FolderDictionaries(path=str(tmp_path / "d")).open(), trained(), "orders")
        store = f'dictionaries = {{ type = "folder", path = "{tmp_path / "d"}" }}'
        found = examine(chain_file(tmp_path, 'type = "compress"', store))
        assert about(found, "store of dictionaries") == [("ok", "1 dictionary for 1 topic")]

    def test_that_are_none_are_a_warning(self, tmp_path: Path) -> None:
        (tmp_path / "d").mkdir()
        store = f'dictionaries = {{ type = "folder", path = "{tmp_path / "d"}" }}'
        found = examine(chain_file(tmp_path, 'type = "compress"', store))
        assert about(found, "store of dictionaries") == [("warn", "no topic has a dictionary")]

    def test_in_a_topic_that_would_be_created_are_not_asked_for(self, tmp_path: Path) -> None:
        place = 'servers = "127.0.0.1:1", topic = "not-there"'
        store = f'dictionaries = {{ type = "topic", {place}, create = true }}'
        found = examine(chain_file(tmp_path, 'type = "compress"', store))
        assert about(found, "store of dictionaries") == [("unknown", "not asked: it has create = true")]
        assert {status for status, _ in about(found, "chain as a")} == {"unknown"}

    def test_out_of_reach_fail(self, tmp_path: Path) -> None:
        place = 'servers = "127.0.0.1:1", topic = "d", timeout_s = 0.2'
        store = f'dictionaries = {{ type = "topic", {place} }}'
        found = examine(chain_file(tmp_path, 'type = "compress"', store), side="consumer")
        [(status, _)] = about(found, "store of dictionaries")
        assert status == "fail"


class TestObjectStores:
    def test_that_can_be_listed_are_ok(self, tmp_path: Path) -> None:
        stores = f'stores = {{ archive = {{ type = "folder", path = "{tmp_path}" }} }}'
        [(status, _)] = about(examine(chain_file(tmp_path, 'type = "claim_check"', stores)), "object store")
        assert status == "ok"

    def test_that_are_not_there_fail(self, tmp_path: Path) -> None:
        stores = f'stores = {{ archive = {{ type = "folder", path = "{tmp_path / "volume"}" }} }}'
        found = examine(chain_file(tmp_path, 'type = "claim_check"', stores))
        assert [status for status, _ in about(found, "object store")] == ["fail"]


def test_brokers_that_do_not_answer_fail_once() -> None:
    found = examine(None, {"bootstrap.servers": "127.0.0.1:1"}, ["orders"], timeout_s=0.5)
    assert [one.check for one in found if one.status != "ok"] == ["chain", "cluster"]
    assert found[-1].found.startswith("127.0.0.1:1 cannot be reached: ")
    assert "look at the addresses" in (found[-1].advice or "")


class TestMissingParts:
    def test_are_found_without_a_cluster(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = chain_file(tmp_path, 'type = "lineage"')
        assert about(examine(path), "chain as a producer") == [("ok", "opens")]
        monkeypatch.setitem(sys.modules, "openlineage.client", None)
        for module in ("events", "reporter"):
            monkeypatch.delitem(sys.modules, f"headerware.interceptors.lineage.{module}", raising=False)
        ((status, text),) = about(examine(path, side="producer"), "chain as a producer")
        assert status == "fail"
        assert "lineage needs openlineage-python" in text


class TestReload:
    def test_is_ok_if_the_file_can_be_followed(self, tmp_path: Path) -> None:
        found = examine(chain_file(tmp_path, 'type = "trail"'), {"headerware.reload": "signal"})
        assert about(found, "reload") == [("ok", "signal")]

    def test_fails_for_a_mode_that_is_not_known(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADERWARE_RELOAD", "wach")
        ((status, text),) = about(examine(chain_file(tmp_path, 'type = "trail"')), "reload")
        assert status == "fail"
        assert text == "HEADERWARE_RELOAD: expected off, watch, signal, found 'wach'"

    def test_fails_without_what_watches(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "watchfiles", None)
        path = chain_file(tmp_path, 'type = "trail"')
        ((status, text),) = about(examine(path, {"headerware.reload": "watch"}), "reload")
        assert status == "fail"
        assert "watchfiles" in text


def test_rules_of_a_policy_that_are_for_no_topic_are_told(
    embedded_cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    ingress = Ingress(tmp_path)
    config = ingress.write_guard_chain()
    with (tmp_path / "policy.toml").open("a") as policy:
        policy.write('[[rules]]\neffect = "deny"\ntopics = ["ordesr"]\n')
    settings = {"bootstrap.servers": embedded_cluster.bootstrap_servers}
    found = examine(config, settings=settings, topics=["ingress.orders"], timeout_s=1.0)
    ((status, told),) = about(found, "chain: admission")
    assert status == "warn"
    assert told.startswith(
        f"no topic fits rules[2] (ordesr) of {tmp_path / 'policy.toml'}: neither a topic that was"
    )


def test_a_file_of_the_environment_is_told_to_reach_our_clients_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = chain_file(tmp_path, 'type = "trail"')
    assert about(examine(path), "HEADERWARE_CONFIG") == []
    monkeypatch.setenv("HEADERWARE_CONFIG", str(path))
    ((status, text),) = about(examine(path), "HEADERWARE_CONFIG")
    assert status == "ok"
    assert "confluent-kafka's clients do not by themselves" in text
    monkeypatch.setenv("HEADERWARE_RUN", "1")
    assert about(examine(path), "HEADERWARE_CONFIG") == []
