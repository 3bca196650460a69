"""``headerware check`` and ``explain``: for people, for programs, and in one line when something is wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner, Result

from headerware import Context, Record, load_chain
from headerware.cli import main
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from tests.ingress import Ingress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "hunter2"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SERVICE", SECRET)
    monkeypatch.setenv("COLUMNS", "300")
    path = tmp_path / "chain[1].toml"
    path.write_text(
        '[[interceptors]]\ntype = "trail"\nservice = "${env:SERVICE}"\n'
        'topics = ["?rders.*", "!orders.eu"]\n'
        '[[interceptors]]\ntype = "compress"\nname = "[red]squeeze[/]"\nlevel = 5\n'
    )
    return path


@pytest.fixture
def missing_keys(tmp_path: Path) -> Path:
    path = tmp_path / "sign.toml"
    path.write_text('[[interceptors]]\ntype = "sign"\nkeyring = "absent.json"\n')
    return path


@pytest.fixture
def signing(tmp_path: Path) -> Path:
    """A file that signs with a key that its keyring does not have."""
    assert run("keys", "generate", "--keyring", tmp_path / "keys.json", "--id", "orders").exit_code == 0
    path = tmp_path / "sign.toml"
    path.write_text('[[interceptors]]\ntype = "sign"\nkeyring = "keys.json"\nkey_id = "no-such-key"\n')
    return path


def commands(group: click.Group, *names: str) -> Iterator[tuple[str, click.Command]]:
    """Yield each command beneath a group, with its names."""
    for name, command in group.commands.items():
        yield " ".join((*names, name)), command
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)


def one_line(result: Result, told: str) -> None:
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert re.match(r"Error: |\S+:\d+:\d+: error: ", result.stderr)
    assert told in result.stderr


class TestSeveralFiles:
    @pytest.fixture
    def wrong(self, tmp_path: Path) -> Path:
        path = tmp_path / "wrong.toml"
        path.write_text('[[interceptors]]\ntype = "trial"\n')
        return path

    def test_are_all_checked(self, config: Path, tmp_path: Path) -> None:
        other = tmp_path / "other.toml"
        other.write_text(config.read_text())
        result = run("check", config, other)
        assert result.exit_code == 0
        assert [line.partition(": ok")[0] for line in result.stdout.splitlines()] == [str(config), str(other)]

    def test_fail_if_one_is_wrong_and_the_others_are_checked_too(self, config: Path, wrong: Path) -> None:
        result = run("check", wrong, config)
        assert result.exit_code == 1
        assert (result.stderr.count("\n"), str(wrong) in result.stderr) == (1, True)
        assert result.stdout.startswith(f"{config}: ok")

    def test_have_a_line_of_json_each(self, config: Path, wrong: Path) -> None:
        result = run("check", "--config", wrong, "-c", config, "--json")
        assert (result.exit_code, result.stderr) == (1, "")
        found = [json.loads(line) for line in result.stdout.splitlines()]
        assert [each["ok"] for each in found] == [False, True]
        assert "trial" in found[0]["error"]["message"]


LINEAGE = '[[interceptors]]\ntype = "lineage"\n'


class TestCheck:
    def test_tells_which_patterns_fit_none_of_the_topics_that_it_is_given(self, config: Path) -> None:
        assert "no topic fits" not in run("check", config, "--topic", "orders.us").stdout
        told = run("check", config, "--topic", "order.us", "--topic", "payments").stdout
        assert "warning: trail: no topic fits '?rders.*'" in told

    def test_tells_which_rules_of_a_policy_fit_none_of_them(self, tmp_path: Path) -> None:
        config = Ingress(tmp_path).write_guard_chain()
        with (tmp_path / "policy.toml").open("a") as policy:
            policy.write('[[rules]]\neffect = "deny"\ntopics = ["ordesr"]\n')
        told = run("check", config, "--topic", "ingress.orders").stdout
        assert f"warning: admission: no topic fits rules[2] (ordesr) of {tmp_path / 'policy.toml'}\n" in told

    def test_tells_of_a_step_that_does_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "idle.toml"
        path.write_text('[[interceptors]]\ntype = "serialize"\n')
        assert (
            "warning: serialize: it has a serde neither for keys nor for values" in run("check", path).stdout
        )

    def test_tells_of_a_variable_without_its_prefix(self, tmp_path: Path) -> None:
        path = tmp_path / "chain.toml"
        path.write_text('[[interceptors]]\ntype = "trail"\nservice = "${SERVICE}"\n')
        assert (
            "warning: trail: service = '${SERVICE}' stands as it is; for a variable write '${env:SERVICE}'\n"
            in run("check", path).stdout
        )

    @pytest.mark.parametrize("text", ["", '[[interceptors]]\ntype = "trail"\ntopics = ["orders.*"]\n'])
    def test_fails_for_a_warning_if_it_is_strict(self, tmp_path: Path, config: Path, text: str) -> None:
        path = tmp_path / "weak.toml"
        path.write_text(text)
        assert "warning: " in run("check", path).stdout
        assert [run("check", path).exit_code, run("check", path, "--strict").exit_code] == [0, 1]
        assert run("check", config, "--strict").exit_code == 0

    def test_says_that_all_is_well(self, config: Path) -> None:
        result = run("check", config)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout == f"{config}: ok (trail -> [red]squeeze[/]; not opened; --open opens it, too)\n"

    def test_opened_finds_a_part_that_is_missing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "chain.toml"
        path.write_text(LINEAGE)
        assert run("check", path, "--open").exit_code == 0
        monkeypatch.setitem(sys.modules, "openlineage.client", None)
        for module in ("events", "reporter"):
            monkeypatch.delitem(sys.modules, f"headerware.interceptors.lineage.{module}", raising=False)
        one_line(run("check", path, "--open"), "lineage needs openlineage-python")

    @pytest.mark.parametrize("command", ["check", "explain"])
    def test_names_the_file_of_a_chain_in_the_wrong_order(self, tmp_path: Path, command: str) -> None:
        path = tmp_path / "chain.toml"
        path.write_text(
            '[[interceptors]]\ntype = "sign"\nkeyring = "k"\n[[interceptors]]\ntype = "compress"\n'
        )
        where = f"{path}:4:1: error: interceptors[1] (compress)"
        one_line(run(command, path), f"{where}: 'compress' comes after 'sign'")

    def test_says_it_to_programs(self, config: Path) -> None:
        result = run("check", config, "--json")
        assert json.loads(result.stdout) == {
            "ok": True,
            "result": {
                "config": str(config),
                "chain": ["trail", "[red]squeeze[/]"],
                "opened": [],
                "warnings": [],
                "notes": [],
            },
            "error": None,
        }

    def test_warns_of_encryption_that_nothing_signs(self, tmp_path: Path) -> None:
        path = tmp_path / "encrypt.toml"
        encrypt = '[[interceptors]]\ntype = "encrypt"\nkey_id = "orders"\n'
        encrypt += 'key_service = { type = "file", keyring = "keys.json" }\n'
        path.write_text(encrypt)
        result = run("check", path)
        assert result.exit_code == 0
        assert "warning: encrypt: no step signs what it encrypts" in result.stdout
        [warning] = json.loads(run("check", path, "--json").stdout)["result"]["warnings"]
        assert warning["interceptor"] == "encrypt"
        path.write_text(encrypt + '[[interceptors]]\ntype = "sign"\nkeyring = "keys.json"\nkey_id = "a"\n')
        assert "warning" not in run("check", path).stdout

    def test_says_that_an_application_sends_objects(self, tmp_path: Path) -> None:
        path = tmp_path / "fields.toml"
        fields = '[[interceptors]]\ntype = "encrypt_fields"\nkey_id = "cards"\nfields = ["card"]\n'
        fields += 'key_service = { type = "file", keyring = "keys.json" }\n'
        path.write_text(fields)
        told = run("check", path).stdout
        assert ("warning: encrypt_fields: " in told, "note: " in told) == (True, False)
        path.write_text(fields + '[[interceptors]]\ntype = "serialize"\nvalue = "json"\n')
        told = run("check", path).stdout
        assert "\nnote: encrypt_fields: the application passes objects to produce, such as dicts" in told
        assert "warning: encrypt_fields: it encrypts fields of objects" not in told
        [note] = json.loads(run("check", path, "--json").stdout)["result"]["notes"]
        assert note["interceptor"] == "encrypt_fields"

    @pytest.mark.parametrize(
        ("step", "told"),
        [
            ('type = "expire"\nafter_ms = 30', "after_ms = 30 is 0.03 s, because its unit is milliseconds"),
            (
                'type = "delay"\nafter_ms_by_topic = { "a-*" = 3600 }',
                "after_ms_by_topic.'a-*' = 3600 is 3.6 s",
            ),
            ('type = "sign"\nkeyring = "keys.json"\nmax_age_ms = 86400', "max_age_ms = 86400 is 86.4 s"),
            ('type = "expire"\nafter_ms = 30_000\nclock_skew_ms = 0', None),
        ],
    )
    def test_notes_times_that_look_like_seconds(self, tmp_path: Path, step: str, told: str | None) -> None:
        path = tmp_path / "times.toml"
        path.write_text(f"[[interceptors]]\n{step}\n")
        found = json.loads(run("check", path, "--json").stdout)["result"]["notes"]
        assert [told is not None and each["note"].startswith(told) for each in found] == [True] * bool(told)

    def test_notes_a_subject_that_all_records_have(self, tmp_path: Path) -> None:
        path = tmp_path / "subjects.toml"
        for key_of, noted in (("'customer'", True), ("header:customer", False), ("value.customer", False)):
            path.write_text(
                f'[[interceptors]]\ntype = "encrypt"\nkey_id = "cards"\nkey_of = "{key_of}"\n'
                'key_service = { type = "file", keyring = "keys.json" }\n'
                'subject_keys = { type = "topic", topic = "customer-keys" }\n'
            )
            assert ("all records have one subject" in run("check", path).stdout) is noted

    def test_an_empty_chain_is_well(self, tmp_path: Path) -> None:
        path = tmp_path / "empty.toml"
        path.touch()
        checked, warning = run("check", path).stdout.splitlines()
        assert checked.endswith("ok (an empty chain; not opened; --open opens it, too)")
        assert warning == "warning: it declares no [[interceptors]], so records pass as they are"

    def test_a_warning_is_shown_once(self, tmp_path: Path) -> None:
        command = ("keys", "generate", "--keyring", tmp_path / "k", "--id", "a", "--algorithm", "aes-256")
        assert run(*command).exit_code == 0
        path = tmp_path / "fields.toml"
        path.write_text(
            '[[interceptors]]\ntype = "encrypt_fields"\nkey_id = "a"\nfields = ["$.a"]\n'
            'key_service = { type = "file", keyring = "k" }\n'
        )
        done = subprocess.run(
            [sys.executable, "-m", "headerware", "check", "--open", str(path)],
            capture_output=True,
            text=True,
            check=True,
        )
        warnings = [line for line in done.stdout.splitlines() if line.startswith("warning: encrypt_fields: ")]
        assert len(warnings) == len(set(warnings)) > 0
        assert done.stderr == ""

    def test_a_file_that_the_environment_names_and_that_is_missing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADERWARE_CONFIG", "absent.toml")
        result = run("send", "orders")
        assert (result.exit_code, "Invalid value for HEADERWARE_CONFIG: " in result.stderr) == (2, True)

    @pytest.mark.parametrize("command", ["check", "explain"])
    def test_a_missing_file_is_told_with_the_variable_that_names_it(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HEADERWARE_CONFIG", "./absent.toml")
        one_line(
            run(command),
            f"absent.toml: cannot be read: No such file or directory, in the working directory {tmp_path}; "
            "HEADERWARE_CONFIG names it",
        )
        assert "HEADERWARE_CONFIG" not in run(command, "other.toml").stderr

    def test_the_file_comes_before_the_topic(self, config: Path) -> None:
        result = run("explain", "orders", config)
        assert (result.exit_code, f"headerware explain {config} orders" in result.stderr) == (2, True)

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("[[interceptors]]\ntype = 'trial'", "did you mean 'trail'?"),
            ("[[interceptors]]\ntype = 'trail'\nservcie = 'x'", "did you mean 'service'?"),
            (
                "[[interceptors]]\ntype = 'trail'\nmax_entries = '3'",
                "max_entries: expected a whole number",
            ),
            ("[[interceptors]]\ntype = 'trail'\nservice = '${env:NO_SUCH_VARIABLE}'", "'NO_SUCH_VARIABLE'"),
            ("not toml", "is not TOML"),
            ("include = 'absent.toml'", "absent.toml: cannot be read"),
            (
                "[[interceptors]]\ntype = 'sign'\nkeyring = 'k'\n[[interceptors]]\ntype = 'compress'",
                "'compress' comes after 'sign', which cannot work",
            ),
        ],
    )
    @pytest.mark.parametrize("command", ["check", "explain"])
    def test_says_in_one_line_what_is_wrong_and_where(
        self, tmp_path: Path, command: str, text: str, told: str
    ) -> None:
        path = tmp_path / "wrong.toml"
        path.write_text(text)
        one_line(run(command, path), told)

    def test_a_missing_file_is_one_line(self, tmp_path: Path) -> None:
        one_line(run("check", tmp_path / "absent.toml"), "absent.toml: cannot be read")

    def test_does_not_open_unless_asked(self, missing_keys: Path) -> None:
        assert run("check", missing_keys).exit_code == 0
        one_line(run("check", missing_keys, "--open", "--side", "consumer"), "absent.json")

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ('type = "sign"\nkeyring = "no.json"', "copy the writer's public half here (headerware keys exp"),
            (
                'type = "encrypt"\nkey_service = { type = "file", keyring = "no.json" }',
                "copy the writer's keyring here, or name the file that has the keys",
            ),
        ],
    )
    def test_a_reader_needs_the_keys_of_the_writer(self, missing_keys: Path, text: str, told: str) -> None:
        missing_keys.write_text(f'[[interceptors]]\n{text}\nkey_id = "a"\n')
        result = run("check", missing_keys, "--open", "--side", "consumer")
        one_line(result, told)
        assert "keys generate" not in result.stderr

    @pytest.mark.parametrize(
        ("text", "place", "told"),
        [
            (
                'type = "sign"\nkey_id = "a"\nkeyring = "no.json"',
                "4:1",
                "headerware keys generate --keyring {folder}/no.json --id a\n",
            ),
            (
                'type = "encrypt"\nkey_id = "a"\nkey_service = { type = "file", keyring = "no.json" }',
                "4:32",
                "headerware keys generate --keyring {folder}/no.json --id a --algorithm aes-256\n",
            ),
            (
                'type = "sign"\nkey_id = "a"\nkeyring = "no.json"\nkeyring_root = "root.pub"',
                "5:1",
                "{folder}/root.pub cannot be read: No such file or directory; name the file with",
            ),
            (
                'type = "encrypt"\nkey_id="a"\nkey_service = {type="file",keyring="no.json",root="root.pub"}',
                "4:46",
                "{folder}/root.pub cannot be read: No such file or directory; name the file with",
            ),
            ('type = "sign"\nkey_id = "order"\nkeyring = "keys.json"', "3:1", "did you mean 'orders'?"),
            (
                'type = "encrypt"\nkey_id = "orders"\nkey_service = { type = "file", keyring = "keys.json" }',
                "3:1",
                "is for sign, not for wrapping; keys in the keyring for this: none",
            ),
            (
                'type = "encrypt"\nkey_id = "a"\nkeyring = "no.json"',
                "4:1",
                'write key_service = {{ type = "file"',
            ),
            (
                'type = "encrypt_fields"\nkey_id = "a"\nkey_service = "no.json"',
                "4:1",
                'for a keyring, write {{ type = "file", keyring = "no.json" }}',
            ),
        ],
    )
    def test_says_where_a_key_is_missing_and_what_to_do(
        self, signing: Path, text: str, place: str, told: str
    ) -> None:
        signing.write_text(f"[[interceptors]]\n{text}\n")
        result = run("check", signing, "--open")
        assert result.stderr.startswith(f"{signing}:{place}: error: ")
        one_line(result, told.format(folder=signing.parent))

    def test_says_which_option_another_side_needs(self, signing: Path) -> None:
        signing.write_text(signing.read_text().replace('key_id = "no-such-key"', ""))
        error = (
            f"{signing}:1:1: error: opened as a producer: interceptors[0] (sign).key_id: sending needs the id"
        )
        one_line(run("check", signing, "--open"), error)

    def test_looks_at_when_clients_read_the_file_again(
        self, config: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADERWARE_RELOAD", "watch")
        assert run("check", config, "--open").exit_code == 0
        monkeypatch.setitem(sys.modules, "watchfiles", None)
        assert run("check", config).exit_code == 0
        one_line(run("check", config, "--open"), "needs the package watchfiles")
        monkeypatch.setenv("HEADERWARE_RELOAD", "wach")
        one_line(run("check", config), "HEADERWARE_RELOAD: expected off, watch, signal, found 'wach'")

    @pytest.mark.parametrize(
        ("key", "said"),
        [
            ({"not_before": datetime(2999, 1, 1, tzinfo=UTC)}, "version 1 is valid from 2999-01-01T00:00:00"),
            ({"not_after": datetime(2026, 1, 1, tzinfo=UTC)}, "version 1 is valid until 2026-01-01T00:00:00"),
        ],
    )
    @pytest.mark.parametrize("encrypts", [False, True])
    def test_opened_finds_a_key_that_can_do_nothing_now(
        self, tmp_path: Path, key: dict[str, Any], said: str, *, encrypts: bool
    ) -> None:
        algorithm: Any = "aes-256" if encrypts else "hmac-sha256"
        made = datetime(2025, 1, 1, tzinfo=UTC)
        edit_keyring(
            tmp_path / "k.json", lambda ring: with_new_key(ring, "k", algorithm, now=made, **key), create=True
        )
        step = 'type = "encrypt"\nkey_service = { type = "file", keyring = "k.json" }'
        step = step if encrypts else 'type = "sign"\nkeyring = "k.json"'
        path = tmp_path / "chain.toml"
        path.write_text(f'[[interceptors]]\n{step}\nkey_id = "k"\n')
        for words in (said, "rotate the key"):
            one_line(run("check", path, "--open"), words)

    def test_opened_finds_a_key_that_encrypts_and_is_missing(self, tmp_path: Path) -> None:
        keyring, path = tmp_path / "keys.json", tmp_path / "chain.toml"
        edit_keyring(keyring, lambda ring: with_new_key(ring, "cards", "aes-256"), create=True)
        path.write_text(
            '[[interceptors]]\ntype = "encrypt"\nkey_id = "crads"\n'
            f'key_service = {{ type = "file", keyring = "{keyring}" }}\n'
        )
        one_line(run("check", path, "--open"), "key service of encrypt, 'crads'")
        path.write_text(path.read_text().replace("crads", "cards"))
        assert run("check", path, "--open").exit_code == 0

    def test_opened_finds_a_folder_of_claims_that_cannot_be_used(self, tmp_path: Path) -> None:
        folder, path = tmp_path / "objects", tmp_path / "chain.toml"
        store = f'stores = {{ archive = {{ type = "folder", path = "{folder}" }} }}'
        path.write_text(f'[[interceptors]]\ntype = "claim_check"\n{store}\n')
        assert run("check", path).exit_code == 0
        one_line(run("check", path, "--open"), f"object store archive: the folder {folder}: it is not there")
        folder.mkdir()
        assert run("check", path, "--open").exit_code == 0

    def test_opened_says_nothing_of_the_other_side_where_that_fails_too(self, signing: Path) -> None:
        signing.with_name("keys.json").unlink()
        found = run("check", signing, "--open")
        one_line(found, "opened as a producer: ")
        assert "--side" not in found.stderr

    def test_opens_as_both_sides_unless_told_one(self, signing: Path) -> None:
        error = "opened as a producer: "
        one_line(run("check", signing, "--open"), error)
        one_line(run("check", signing, "--open"), "'no-such-key'")
        one_line(run("check", signing, "--open"), "--side consumer checks the other side alone")
        one_line(run("check", signing, "--open", "--side", "producer"), error)
        result = run("check", signing, "--open", "--side", "consumer")
        assert result.stdout == f"{signing}: ok (sign; opens as consumer)\n"
        one_line(run("check", signing, "--open", "--side", "producer"), "keys.json: there is no key 'no-such")
        signing.write_text(signing.read_text().replace("no-such-key", "orders"))
        assert (
            run("check", signing, "--open").stdout
            == f"{signing}: ok (sign; opens as producer and consumer)\n"
        )

    @pytest.mark.parametrize("command", ["check", "explain"])
    def test_takes_the_file_from_the_environment(
        self, config: Path, command: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        expected = run(command, config).stdout
        monkeypatch.setenv("HEADERWARE_CONFIG", str(config))
        assert run(command).stdout == expected
        one_line(run(command, "absent.toml"), "absent.toml: cannot be read")
        monkeypatch.setenv("HEADERWARE_CONFIG", "")
        assert run(command).exit_code == 2

    @pytest.mark.parametrize(
        "arguments",
        [
            ["check"],
            ["explain"],
            ["explain", "a", "b", "c"],
            ["check", "a", "--open", "--side", "x"],
            ["check", "a", "--side", "producer"],
            ["chekc"],
        ],
    )
    def test_wrong_use_has_a_code_of_its_own(self, arguments: list[str]) -> None:
        assert run(*arguments).exit_code == 2


class TestExplain:
    def test_shows_both_directions_and_every_option(self, config: Path) -> None:
        result = run("explain", config)
        assert result.exit_code == 0, result.output
        assert "send:    application -> trail -> [red]squeeze[/] -> Kafka" in result.stdout
        assert "consume: Kafka -> [red]squeeze[/] -> trail -> application" in result.stdout
        assert "1. trail  observe" in result.stdout or "1. trail  transform" in result.stdout
        assert "2. [red]squeeze[/]  transform, bytes, on_error=raise" in result.stdout
        assert "headerware.interceptors.compress.Compress" in result.stdout

    def test_shows_values_as_they_were_written_brackets_and_all(self, config: Path) -> None:
        lines = [line.split() for line in run("explain", config).stdout.splitlines()]
        assert ["topics", '["?rders.*","!orders.eu"]', str(config)] in lines
        assert ["level", "5", str(config)] in lines
        assert ["codec", '"zstd"', "default"] in lines

    def test_rows_fit_in_80_columns(self, tmp_path: Path) -> None:
        path = tmp_path / "compress.toml"
        path.write_text('[[interceptors]]\ntype = "compress"\n')
        rows = [line for line in run("explain", path).stdout.splitlines() if line.startswith("     ")]
        assert any("skip_content_types" in row and '["image/*","!image/sv...' in row for row in rows)
        assert max(map(len, rows)) <= 80

    def test_shows_which_sizes_go_which_way(self, tmp_path: Path) -> None:
        config = tmp_path / "sizes.toml"
        config.write_text(
            '[[interceptors]]\ntype = "claim_check"\nmin_bytes = 50_000_000\n'
            'stores = { archive = { type = "folder", path = "." } }\n[[interceptors]]\ntype = "slice"\n'
        )
        result = run("explain", str(config))
        assert (
            "values:  in one record up to about 900,000 bytes, by slice up to 50,000,000, "
            "by claim_check up to 268,435,456; larger ones are refused"
        ) in result.stdout
        carried = json.loads(run("explain", str(config), "--json").stdout)["result"]["sizes"]
        assert [each["up_to_bytes"] for each in carried] == [50_000_000, 268_435_456]
        assert "values are stored as they come" in run("check", str(config)).stdout

    @pytest.mark.parametrize(
        ("line", "shown", "value"),
        [
            ("", "what trail continues, from the record at work to the records that are sent meanwhile", []),
            (
                'carry = ["tenant", "${env:SERVICE}"]\n',
                'what trail continues and the headers ["tenant","${env:SERVICE}"] ({config}), from',
                ["tenant", "${env:SERVICE}"],
            ),
            ("carry = false\n", "nothing ({config})", False),
        ],
        ids=["default", "names", "off"],
    )
    def test_shows_what_is_carried_on(self, config: Path, line: str, shown: str, value: object) -> None:
        config.write_text(line + config.read_text())
        expected = shown.replace("{config}", str(config))
        assert f"  carry:   {expected}" in run("explain", config).stdout
        found = json.loads(run("explain", config, "--json").stdout)["result"]["carry"]
        assert found == {"name": "carry", "value": value, "origin": str(config) if line else "default"}

    def test_shows_what_is_carried_on_without_interceptors(self, tmp_path: Path) -> None:
        config = tmp_path / "carry.toml"
        config.write_text('carry = "tenant"\n')
        assert 'carry:   the headers "tenant"' in run("explain", config).stdout

    def test_shows_how_large_a_record_may_be(self, config: Path) -> None:
        shown = run("explain", config).stdout
        assert "values:  in one record; larger ones are refused" in shown
        assert (
            "may have 1,000,000 bytes for the client (message.max.bytes) and 1,048,588 for the topic" in shown
        )
        found = json.loads(run("explain", config, "--json").stdout)["result"]
        assert found["limits"] == {"client_bytes": 1_000_000, "topic_bytes": 1_048_588}
        assert found["growth"] is None

    def test_opened_measures_what_each_interceptor_adds(self, signing: Path) -> None:
        one_line(run("explain", signing, "orders", "--open"), "cannot be measured: ")
        signing.write_text(
            '[[interceptors]]\ntype = "trail"\nservice = "s"\n[[interceptors]]\ntype = "compress"\n'
            f'{signing.read_text().replace("no-such-key", "orders")}[[interceptors]]\ntype = "header_ids"\n'
        )
        (line,) = (
            line
            for line in run("explain", signing, "orders", "--open").stdout.splitlines()
            if line.startswith("  growth:")
        )
        found = json.loads(run("explain", signing, "orders", "--open", "--json").stdout)["result"]["growth"]
        added = {each["name"]: each["size_bytes"] for each in found}
        assert list(added) == ["trail", "compress", "sign", "header_ids"]
        assert (added["trail"] > 40, added["compress"], added["sign"] > 60, added["header_ids"] < 0) == (
            *(True, 0, True, True),
        )
        chain = load_chain(str(signing))
        with chain.open(Context(side="producer", cluster_id=lambda: "0" * 22)) as session:
            (sent,) = session.send([Record("orders", os.urandom(1_000), b"key")])
        names_and_values = sum(len(name.encode()) + len(value or b"") for name, value in sent.headers)
        assert names_and_values <= sum(added.values()) <= names_and_values + 4 * len(sent.headers) + 1
        assert line.startswith(f"  growth:  {sum(added.values()):+,} bytes for a value of 1,000: trail +")
        assert run("explain", signing, "--open").exit_code == 2

    def test_opened_measures_the_time_of_each_interceptor(self, config: Path) -> None:
        (line,) = (
            line
            for line in run("explain", config, "orders.us", "--open").stdout.splitlines()
            if line.startswith("  time:")
        )
        numbers = r"[\d.,]+"
        assert re.fullmatch(
            rf"  time:    {numbers} microseconds a record, measured here now: "
            rf"trail {numbers}, \[red\]squeeze\[/\] {numbers}",
            line,
        )
        found = json.loads(run("explain", config, "orders.us", "--open", "--json").stdout)["result"]
        assert [each["microseconds"] > 0 for each in found["growth"]] == [True, True]
        assert found["not_measured"] == []

    def test_opened_names_what_it_did_not_measure_and_why(self, tmp_path: Path) -> None:
        edit_keyring(tmp_path / "k.json", lambda ring: with_new_key(ring, "cards", "aes-256"), create=True)
        path = tmp_path / "chain.toml"
        path.write_text(
            '[[interceptors]]\ntype = "encrypt_fields"\nkey_id = "cards"\nfields = ["card.number"]\n'
            'key_service = { type = "file", keyring = "k.json" }\n'
            '[[interceptors]]\ntype = "serialize"\nvalue = "json"\n'
            '[[interceptors]]\ntype = "trail"\nservice = "s"\n'
        )
        shown = run("explain", path, "orders", "--open").stdout
        on_objects = "it works on objects, and its cost depends on the object"
        assert f"\n  not measured: encrypt_fields, serialize ({on_objects})\n" in shown
        found = json.loads(run("explain", path, "orders", "--open", "--json").stdout)["result"]
        assert [each["name"] for each in found["growth"]] == ["trail"]
        assert found["not_measured"] == [
            {"name": "encrypt_fields", "reason": on_objects},
            {"name": "serialize", "reason": on_objects},
        ]

    def test_opened_measures_a_chain_whose_contract_its_sample_breaks(self, tmp_path: Path) -> None:
        (tmp_path / "orders.yaml").write_text(
            "asyncapi: 3.0.0\ninfo: {title: Orders, version: 1.0.0}\n"
            "channels:\n  orders:\n    address: orders\n"
            "    messages: {Order: {headers: {type: object, required: [tenant]}}}\n"
        )
        path = tmp_path / "chain.toml"
        path.write_text(
            '[[interceptors]]\ntype = "contract"\nfile = "orders.yaml"\n'
            '[[interceptors]]\ntype = "trail"\nservice = "s"\n'
        )
        found = json.loads(run("explain", path, "orders", "--open", "--json").stdout)["result"]
        assert [each["name"] for each in found["growth"]] == ["trail"]
        assert [each["name"] for each in found["not_measured"]] == ["contract"]

    def test_shows_no_secret(self, config: Path) -> None:
        for arguments in ([], ["--json"]):
            result = run("explain", config, *arguments)
            assert "${env:SERVICE}" in result.stdout
            assert SECRET not in result.output

    def test_of_a_topic_shows_what_works_there(self, config: Path) -> None:
        assert "application -> [red]squeeze[/] -> Kafka" in run("explain", config, "orders.eu").stdout
        assert "application -> trail -> " in run("explain", config, "orders.us").stdout

    def test_of_a_topic_with_the_file_from_the_environment(
        self, config: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADERWARE_CONFIG", str(config))
        assert run("explain", "orders.eu").stdout == run("explain", config, "orders.eu").stdout

    def test_of_a_topic_without_any_says_so(self, tmp_path: Path) -> None:
        path = tmp_path / "chain.toml"
        path.write_text('[[interceptors]]\ntype = "trail"\ntopics = ["a"]\n')
        assert "No interceptor works here" in run("explain", path, "b[/]").stdout

    def test_says_it_to_programs(self, config: Path) -> None:
        found: dict[str, Any] = json.loads(run("explain", config, "orders.us", "--json").stdout)["result"]
        assert found["topic"] == "orders.us"
        assert [item["name"] for item in found["send"]] == ["trail", "[red]squeeze[/]"]
        options = {option["name"]: option for option in found["send"][1]["options"]}
        assert options["level"] == {"name": "level", "value": 5, "origin": str(config)}

    def test_of_a_missing_file_is_one_line(self, tmp_path: Path) -> None:
        one_line(run("explain", tmp_path / "absent.toml"), "absent.toml: cannot be read")


class TestJsonErrors:
    """One shape for every command, on standard output, with the exit code that the command has anyway."""

    @pytest.mark.parametrize(
        ("arguments", "code", "kind"),
        [
            (["check", "absent.toml"], 1, "ConfigError"),
            (["explain", "absent.toml"], 1, "ConfigError"),
            (["check"], 2, "UsageError"),
            (["check", "a", "--nonsense"], 2, "UsageError"),
            (["chekc"], 2, "UsageError"),
            (["keys", "list", "--keyring", "absent.json"], 1, "KeyringError"),
            (["keys", "list"], 2, "UsageError"),
            (["header-ids", "list", "--registry", "absent.toml"], 1, "RegistryError"),
            (["header-ids", "lookup", "hw.nonsense", "--registry", "built-in"], 1, "RegistryError"),
            (["trail", "--file", __file__], 1, "WireFormatError"),
            (["trail"], 2, "UsageError"),
            (
                ["trail", "orders", "--bootstrap-servers", "127.0.0.1:1", "--timeout", "0.2"],
                1,
                "Error",
            ),
        ],
    )
    def test_have_one_shape(self, arguments: list[str], code: int, kind: str) -> None:
        plain, result = run(*arguments), run(*arguments, "--json")
        assert plain.exit_code == result.exit_code == code
        assert result.stderr == ""
        (line,) = result.stdout.splitlines()
        told = json.loads(line)
        assert (told["ok"], told["result"], told["error"]["type"]) == (False, None, kind)
        assert told["error"]["message"] in plain.stderr

    def test_say_where_in_a_configuration(self, tmp_path: Path) -> None:
        path = tmp_path / "wrong.toml"
        path.write_text('[[interceptors]]\ntype = "trail"\nservcie = "x"\n')
        told = json.loads(run("check", path, "--json").stdout)
        assert told["error"]["path"] == f"{path}: interceptors[0] (trail).servcie"


class TestCompletion:
    def test_completes_commands_and_options(self) -> None:
        environment = {
            "_HEADERWARE_COMPLETE": "bash_complete",
            "COMP_WORDS": "headerware che",
            "COMP_CWORD": "1",
        }
        result = CliRunner().invoke(main, [], env=environment, prog_name="headerware")
        assert result.stdout == "plain,check\n"
        environment |= {"COMP_WORDS": "headerware check --j", "COMP_CWORD": "2"}
        assert (
            CliRunner().invoke(main, [], env=environment, prog_name="headerware").stdout == "plain,--json\n"
        )


class TestRoot:
    def test_shows_its_version(self) -> None:
        assert run("--version").stdout.startswith("headerware, version ")

    @pytest.mark.parametrize("flag", ["-h", "--help"])
    def test_lists_its_commands(self, flag: str) -> None:
        result = run(flag)
        assert result.exit_code == 0
        assert "check" in result.stdout
        assert "explain" in result.stdout

    @pytest.mark.parametrize("arguments", [["--help"], ["keys", "--help"]])
    def test_says_of_each_command_in_a_line_what_it_does(self, arguments: list[str]) -> None:
        assert "..." not in run(*arguments).stdout.partition("Options:")[2]

    def test_shows_commands_in_groups_and_each_in_one(self) -> None:
        shown = run("--help").stdout.partition("--help")[2]
        groups = re.findall(r"^(\w+):$", shown, re.MULTILINE)
        names = re.findall(r"^  ([a-z-]+)  ", shown, re.MULTILINE)
        assert groups == ["Begin", "Develop", "Look", "Keys", "Operate", "Help"]
        assert names == list(main.commands)

    @pytest.mark.parametrize("arguments", [["registry"], ["registry", "list", "--json"]])
    def test_a_former_name_gets_the_name_of_now(self, arguments: list[str]) -> None:
        result = run(*arguments)
        assert result.exit_code == 2
        assert "`headerware registry` is `headerware header-ids` now" in result.output

    @pytest.mark.parametrize(("name", "command"), list(commands(main)))
    def test_shows_text_without_marks(self, name: str, command: click.Command) -> None:
        shown = CliRunner().invoke(command, ["--help"]).stdout
        assert "\\b" not in shown, name
        assert "\b" not in shown, name


class TestAnOptionForAFile:
    @pytest.mark.parametrize(
        "form", [["--config", "FILE"], ["--config=FILE"], ["-c", "FILE"], ["-cFILE"], ["FILE"]]
    )
    @pytest.mark.parametrize("command", [["check"], ["explain", "orders.us"]])
    def test_is_taken_by_check_and_explain_too(
        self, config: Path, command: list[str], form: list[str]
    ) -> None:
        given = [part.replace("FILE", str(config)) for part in form]
        at = 1 if form == ["FILE"] else len(command)
        result = run(*command[:at], *given, *command[at:])
        assert result.exit_code == 0, result.output
        assert "trail" in result.output

    def test_that_has_no_value_names_the_option_that_took_its_place(self) -> None:
        result = run("tail", "orders", "--config", "--until-end")
        assert result.exit_code == 2
        told = "Invalid value for '-c' / '--config': expected a path, found the option '--until-end'"
        assert told in result.output
