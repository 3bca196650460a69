"""Options that several commands have: each has one type and one text, and they make a client's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from headerware.cli import main
from headerware.cli.json_output import answer
from headerware.cli.kafka import Cluster, cluster_options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headerware.testing import EmbeddedCluster


def commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        yield from commands(below)


def cluster(**given: Any) -> Cluster:
    return Cluster(**{"bootstrap_servers": None, "properties": (), "client_config": None, **given})


class TestSharedOptions:
    @pytest.mark.parametrize(
        ("name", "texts"),
        [
            ("--bootstrap-servers", 1),
            ("--client-config", 1),
            ("--property", 1),
            ("--execute", 1),
            ("--yes", 1),
        ],
    )
    def test_have_one_text_in_all_commands(self, name: str, texts: int) -> None:
        options = [
            option
            for command in commands(main)
            for option in command.params
            if isinstance(option, click.Option) and name in option.opts
        ]
        assert len(options) > 1
        assert len({option.help for option in options}) == texts


class TestAMissingFile:
    @pytest.mark.parametrize(
        ("command", "near"),
        [
            (["check", "headerwear.toml"], "'headerware.toml'"),
            (
                ["explain", "conf/headerwear.toml"],
                "'FOLDER/headerware.toml'",
            ),  # a full path is right everywhere
            (["trail", "--file", "conf/trale.bin"], "'conf/trail.bin'"),
            (["tail", "orders", "--config", "headerwear.toml"], "'headerware.toml'"),
        ],
        ids=" ".join,
    )
    def test_comes_with_a_like_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], near: str
    ) -> None:
        (tmp_path / "conf").mkdir()
        for name in ("headerware.toml", "headerwear.toml.lock", ".headerwear.toml", "conf/trail.bin"):
            (tmp_path / name).touch()
        monkeypatch.chdir(tmp_path)
        found = CliRunner().invoke(main, command)
        assert found.exit_code != 0
        assert f"; did you mean {near.replace('FOLDER', str(tmp_path))}?" in found.output

    @pytest.mark.parametrize("name", ["nope.txt", "a\0b/c", "\udcff/x"])
    def test_has_the_old_error_if_no_name_is_like_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        found = CliRunner().invoke(main, ["trail", "--file", name])
        assert found.exit_code == 2
        assert "does not exist." in found.output


def takes_topics(command: click.Command) -> bool:
    first = next((each for each in command.params if isinstance(each, click.Argument)), None)
    return first is not None and first.name in {"topic", "topics", "source"}


class TestTopicName:
    @pytest.mark.parametrize(
        "command", [each for each in commands(main) if takes_topics(each)], ids=lambda each: each.name
    )
    def test_refuses_the_file_of_a_chain(
        self, command: click.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "headerware.toml").touch()
        done = CliRunner().invoke(command, ["headerware.toml"])
        assert done.exit_code == 2
        takes_file = any("-c" in each.opts for each in command.params)
        hint = "; did you mean -c headerware.toml?" if takes_file else ""
        assert f"expected a topic, found the file headerware.toml{hint}\n" in done.stderr


SHORT = {
    "-b": "--bootstrap-servers",
    "-c": "--config",
    "-F": "--client-config",
    "-H": "--header",
    "-h": "--help",
    "-K": "--key-separator",
    "-k": "--key",
    "-n": "--count",
    "-p": "--partition",
    "-X": "--property",
    "-y": "--yes",
    "-Z": "--null",
}
"""The short options, each with its long form."""


class TestShortOptions:
    def test_mean_one_thing_in_all_commands(self) -> None:
        found = {
            (short, option.opts[-1])
            for command in commands(main)
            for option in command.params
            if isinstance(option, click.Option)
            for short in option.opts
            if len(short) == 2
        }
        assert dict(found) == {short: long for short, long in SHORT.items() if short != "-h"}
        assert len(found) == len(dict(found))

    def test_are_there_wherever_the_long_one_is(self) -> None:
        without = {
            (command.name, option.opts[0])
            for command in commands(main)
            for option in command.params
            if option.opts[0] in set(SHORT.values())
        }
        assert without == {("run", "--config"), ("compact", "--header")}


class TestVariables:
    @pytest.mark.parametrize(
        ("name", "variable"),
        [
            ("--bootstrap-servers", "HEADERWARE_BOOTSTRAP_SERVERS"),
            ("--keyring", "HEADERWARE_KEYRING"),
        ],
    )
    def test_stand_for_the_option_in_all_commands(self, name: str, variable: str) -> None:
        options = [option for each in commands(main) for option in each.params if name in option.opts]
        assert len(options) > 1
        assert {option.envvar for option in options} == {variable}

    def test_servers_reach_the_cluster(
        self, embedded_cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        embedded_cluster.create_topic("by-variable")
        monkeypatch.setenv("HEADERWARE_BOOTSTRAP_SERVERS", embedded_cluster.bootstrap_servers)
        result = CliRunner().invoke(main, ["tail", "by-variable", "--until-end"])
        assert (result.exit_code, result.stdout) == (0, "")

    @pytest.mark.parametrize(
        "given", [["-b", "given:1"], ["-X", "bootstrap.servers=given:1"], ["-F", "FILE"]]
    )
    def test_servers_count_less_than_all_options(
        self, given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "client.properties").write_text("bootstrap.servers=given:1\n")
        given = [each.replace("FILE", str(tmp_path / "client.properties")) for each in given]
        monkeypatch.setenv("HEADERWARE_BOOTSTRAP_SERVERS", "variable:1")
        seen: list[Any] = []

        @click.command()
        @cluster_options
        def show(cluster: Cluster) -> None:
            seen.append(cluster.settings()["bootstrap.servers"])

        for arguments in (given, []):
            assert CliRunner().invoke(show, arguments).exit_code == 0
        assert seen == ["given:1", "variable:1"]

    def test_the_keyring_of_a_command_of_keys(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADERWARE_KEYRING", str(tmp_path / "keys.json"))
        assert CliRunner().invoke(main, ["keys", "generate", "--id", "shop"]).exit_code == 0
        assert "shop" in CliRunner().invoke(main, ["keys", "list"]).stdout


class TestCluster:
    def test_a_property_counts_for_more_than_the_file_and_servers_for_more_than_both(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "client.properties"
        file.write_text("# a comment\n\nbootstrap.servers = file:1\nclient.id = file\n")
        found = cluster(
            client_config=str(file), properties=("client.id=given",), bootstrap_servers="given:1"
        ).settings()
        assert (found["client.id"], found["bootstrap.servers"]) == ("given", "given:1")

    def test_without_servers_it_is_wrong_use_that_says_what_needs_them(self) -> None:
        with pytest.raises(click.UsageError, match="TOPIC needs --bootstrap-servers"):
            cluster().settings_for("TOPIC")

    def test_a_line_without_an_equals_sign_is_named_by_its_number(self, tmp_path: Path) -> None:
        file = tmp_path / "client.properties"
        file.write_text("client.id=a\nsasl.password\n")
        with pytest.raises(click.BadParameter, match=r"client\.properties:2: expected KEY=VALUE"):
            cluster(client_config=str(file)).settings()

    def test_a_property_without_a_name_is_not_quoted(self) -> None:
        with pytest.raises(click.BadParameter, match="expected KEY=VALUE, found no '='"):
            cluster(properties=("hunter2!",)).settings()


class TestAnswer:
    def test_is_json_or_for_people(self, capsys: pytest.CaptureFixture[str]) -> None:
        answer({"a": 1}, lambda: click.echo("one a"), as_json=True)
        answer({"a": 1}, lambda: click.echo("one a"), as_json=False)
        assert capsys.readouterr().out == '{"ok":true,"result":{"a":1},"error":null}\none a\n'

    @pytest.mark.parametrize("as_json", [True, False])
    def test_that_is_not_well_ends_with_its_code(self, as_json: bool) -> None:  # noqa: FBT001 - parametrized
        with pytest.raises(SystemExit) as ended:
            answer({}, lambda: None, as_json=as_json, ok=False, code=3)
        assert ended.value.code == 3
