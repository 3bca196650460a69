"""``headerware init``: a first chain, its keys, and nothing that was there is changed."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headerware import load_chain
from headerware.cli import main
from headerware.keyring import read_keyring


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HEADERWARE_CONFIG", "HEADERWARE_KEYRING"):
        monkeypatch.delenv(name, raising=False)
    made = tmp_path / "billing"
    made.mkdir()
    monkeypatch.chdir(made)
    return made


class TestInit:
    def test_with_defaults_writes_a_chain_that_opens(self) -> None:
        result = run("init", "--yes")
        assert result.exit_code == 0, result.output
        checked = run("check", "--open", "headerware.toml")
        assert checked.stdout == (
            "headerware.toml: ok (trail -> compress -> encrypt -> sign; opens as producer and consumer)\n"
        )

    def test_says_what_to_type_next(self) -> None:
        assert run("init", "--yes").stdout.endswith("next: headerware dev orders --config headerware.toml\n")

    def test_of_a_chain_that_signs_leads_to_the_keys_of_other_services(self) -> None:
        told = "to verify records of other services: headerware docs service-in-the-middle\n"
        assert told in run("init", "--yes").stdout
        assert told not in run("init", "--yes", "--steps", "trail", "--config", "other.toml").stdout
        assert run("docs", "service-in-the-middle").exit_code == 0

    def test_names_service_and_keys_after_the_folder(self) -> None:
        run("init", "--yes")
        assert 'service = "billing"' in Path("headerware.toml").read_text()
        keys = {key.id: key.algorithm for key in read_keyring("keys.json").keys}
        assert keys == {"billing": "ed25519", "billing-values": "aes-256"}

    def test_writes_the_steps_in_the_order_that_a_chain_needs(self) -> None:
        assert run("init", "--yes", "--steps", "sign compress,trace,trail").exit_code == 0
        assert load_chain("headerware.toml").names == ("trail", "trace", "compress", "sign")

    def test_writes_topics_to_each_step(self) -> None:
        run("init", "--yes", "--steps", "trail,sign", "--topics", "orders.*, !orders.raw")
        assert Path("headerware.toml").read_text().count('topics = ["orders.*", "!orders.raw"]\n') == 2

    def test_says_which_keys_the_keyring_had_already(self) -> None:
        def told(name: str, steps: str) -> str:
            return run("init", "--yes", "--steps", steps, "--config", name).stdout.splitlines()[1]

        secret = "keep this file secret, and back it up"
        had = "keys.json: has billing (ed25519) already"
        assert told("a.toml", "sign") == f"keys.json: the keys billing (ed25519); {secret}"
        assert told("b.toml", "sign") == f"{had}; no key was added; {secret}"
        assert told("c.toml", "encrypt,sign") == f"{had}; added billing-values (aes-256); {secret}"

    def test_without_keys_makes_no_keyring(self) -> None:
        result = run("init", "--yes", "--steps", "trail,compress", "--json")
        facts = json.loads(result.stdout)["result"]
        assert (facts["keyring"], facts["keys"], facts["gitignore"]) == (None, [], None)
        assert [path.name for path in Path().iterdir()] == ["headerware.toml"]

    def test_takes_the_keyring_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADERWARE_KEYRING", "secrets.json")
        run("init", "--yes")
        assert read_keyring("secrets.json").keys
        assert 'keyring = "secrets.json"' in Path("headerware.toml").read_text()

    @pytest.mark.parametrize(
        ("option", "value", "told"),
        [
            ("--steps", "trail,sgin", "did you mean 'sign'?"),
            ("--steps", ",", "expected one name or more"),
            ("--topics", 'a"b', "expected names of topics"),
            ("--service", "a b\n", "keys are named after the service"),
        ],
    )
    def test_a_wrong_answer_writes_nothing(self, option: str, value: str, told: str) -> None:
        result = run("init", "--yes", option, value)
        assert (result.exit_code, told in result.stderr, option in result.stderr) == (2, True, True)
        assert list(Path().iterdir()) == []

    def test_without_a_terminal_needs_options_or_yes(self) -> None:
        result = run("init")
        assert (result.exit_code, "give --service, or --yes" in result.stderr) == (2, True)


class TestWhatIsThere:
    def test_a_chain_stays_as_it_is(self) -> None:
        Path("headerware.toml").write_text("# mine\n")
        result = run("init", "--yes")
        assert result.exit_code == 1
        assert "headerware.toml exists, so nothing was written" in result.stderr
        assert "another file with --config" in result.stderr
        assert [path.read_text() for path in Path().iterdir()] == ["# mine\n"]

    def test_keys_stay_as_they_are(self) -> None:
        run("init", "--yes")
        before = Path("keys.json").read_bytes()
        result = run("init", "--yes", "--config", "other.toml", "--json")
        assert json.loads(result.stdout)["result"]["keys"] == []
        assert Path("keys.json").read_bytes() == before

    def test_a_key_of_another_kind_is_an_error(self) -> None:
        run("keys", "generate", "--keyring", "keys.json", "--id", "billing", "--algorithm", "aes-256")
        before = Path("keys.json").read_bytes()
        result = run("init", "--yes")
        assert (result.exit_code, "expected an ed25519 key 'billing', found aes-256" in result.stderr) == (
            1,
            True,
        )
        assert Path("keys.json").read_bytes() == before
        assert not Path("headerware.toml").exists()

    def test_gitignore_gets_a_line_once(self) -> None:
        Path(".gitignore").write_text("*.pyc")
        run("init", "--yes")
        run("init", "--yes", "--config", "other.toml")
        assert Path(".gitignore").read_text() == "*.pyc\n/keys.json*\n"

    def test_git_then_ignores_the_keys_and_nothing_else(self) -> None:
        subprocess.run(["git", "init", "-q"], check=True)
        run("init", "--yes")
        found = subprocess.run(
            ["git", "status", "--porcelain", "-uall"], check=True, capture_output=True, text=True
        )
        assert found.stdout == "?? .gitignore\n?? headerware.toml\n"

    def test_git_ignores_a_keyring_of_any_name_in_any_folder(self) -> None:
        subprocess.run(["git", "init", "-q"], check=True)
        Path("deploy").mkdir()
        keyring = "deploy/keys[prod]*.json"
        run("init", "--yes", "--config", "deploy/chain.toml", "--keyring", keyring)
        assert read_keyring(keyring).keys
        subprocess.run(["git", "check-ignore", "-q", keyring], check=True)
        assert run("check", "--open", "deploy/chain.toml").exit_code == 0

    def test_the_usual_keyring_is_beside_the_chain(self) -> None:
        Path("deploy").mkdir()
        run("init", "--yes", "--config", "deploy/chain.toml")
        assert read_keyring("deploy/keys.json").keys
        assert 'keyring = "keys.json"' in Path("deploy/chain.toml").read_text()
        assert Path(".gitignore").read_text() == "/deploy/keys.json*\n"

    def test_a_keyring_outside_of_the_folder_needs_no_line(self, tmp_path: Path) -> None:
        run("init", "--yes", "--keyring", str(tmp_path / "keys.json"))
        assert not Path(".gitignore").exists()
        assert run("check", "--open", "headerware.toml").exit_code == 0

    def test_says_whether_git_leaves_the_keys_out(self) -> None:
        answers = [
            json.loads(run("init", "--yes", "--config", config, "--json", *options).stdout)["result"]
            for config, options in (
                ("a.toml", []),
                ("b.toml", []),  # its line is there already
                ("c.toml", ["--keyring", "../keys.json"]),
                ("d.toml", ["--steps", "trail"]),
            )
        ]
        assert [(each["gitignore"], each["keyring_is_ignored"]) for each in answers] == [
            ("/keys.json*", True),
            (None, True),
            (None, False),
            (None, None),
        ]

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            (["--config", "conf/chain.toml"], "conf: there is no such folder"),
            (["--keyring", "secret/keys.json"], "secret: there is no such folder"),
            (["--service", "s" * 250], "keys are named after the service: a key's id must be 1 to 255 bytes"),
            (["--config", "chain-\udcff.toml"], "expected a file's name in printable UTF-8"),
            (["--keyring", "keys-\udcff.json"], "expected a file's name in printable UTF-8"),
        ],
    )
    def test_what_cannot_work_is_told_before_anything_is_written(self, options: list[str], told: str) -> None:
        result = run("init", "--yes", *options)
        assert result.exit_code in (1, 2)
        assert told in result.stderr
        assert list(Path().iterdir()) == []

    def test_quotes_the_path_of_the_chain_for_a_shell(self) -> None:
        result = run("init", "--yes", "--steps", "trail", "--config", "my chain.toml")
        assert result.stdout.endswith("next: headerware dev orders --config 'my chain.toml'\n")
        assert (
            "# After a change: headerware check --open 'my chain.toml'\n" in Path("my chain.toml").read_text()
        )


class TestQuestions:
    def test_four_are_asked_and_answered_in_a_terminal(self) -> None:
        terminal, process_end = pty.openpty()
        command = [sys.executable, "-m", "headerware", "init"]
        with subprocess.Popen(
            command, stdin=process_end, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as asked:
            os.close(process_end)
            os.write(terminal, b"shop\nnonsense\ntrail,sign\norders\n\n")
            stdout, stderr = asked.communicate(timeout=60)
        os.close(terminal)
        assert asked.returncode == 0, stderr
        for question in (
            b"Name of the service",
            b"What the chain does",
            b"Topics or patterns",
            b"File for the keys",
        ):
            assert question in stderr
        assert b"found 'nonsense'" in stderr
        assert stdout.endswith(b"next: headerware dev orders --config headerware.toml\n")
        assert load_chain("headerware.toml").names == ("trail", "sign")
