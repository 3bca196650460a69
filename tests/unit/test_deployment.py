"""The units and the CronJob of ``examples/deployment``: their form, and that their commands are right."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import pytest

from headerware.cli import main

if TYPE_CHECKING:
    from collections.abc import Sequence

yaml: Any = pytest.importorskip("yaml")
FOLDER: Final = Path(__file__).parents[2] / "examples" / "deployment"
SERVICES: Final = sorted(FOLDER.glob("*.service"))
PROGRAM: Final = "/opt/headerware/bin/headerware"
SETTINGS: Final = "/etc/headerware"


def parsed(arguments: Sequence[str], folder: Path) -> dict[str, Any]:
    """Parse a command line as the command does, with empty files in place of its own."""
    for name in ("retention.toml", "chain.toml", "client.properties", "orders.toml"):
        (folder / name).touch()
    (folder / "sources").mkdir(exist_ok=True)
    command: click.Command = main
    rest = [argument.replace(SETTINGS, str(folder)).replace("%i", "orders") for argument in arguments]
    while isinstance(command, click.Group):
        command = command.commands[rest.pop(0)]
    with command.make_context(command.name, rest) as context:
        return context.params


def cron_job(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text())


def commands(path: Path) -> list[list[str]]:
    """Return the command lines of a unit: those that look before it starts, and the one that works."""
    lines = [line.partition("=") for line in path.read_text().splitlines()]
    return [shlex.split(value) for name, _, value in lines if name in {"ExecStartPre", "ExecStart"}]


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_a_unit_has_a_command_that_can_be_parsed(path: Path, tmp_path: Path) -> None:
    for program, *arguments in commands(path):
        assert program == PROGRAM
        options = parsed(arguments, tmp_path)
        if arguments[0] == "source":  # its file has the settings of its client
            assert Path(options["path"]).parent == tmp_path
        else:
            assert options["client_config"] == str(tmp_path / "client.properties")


def test_there_is_a_unit_for_each_worker() -> None:
    names = {
        tuple(command[1:3]) if command[1] == "source" else command[1]
        for path in SERVICES
        for command in commands(path)
    }
    assert names == {"guard", "retain", ("source", "check"), ("source", "run")}


def test_the_cron_job_has_a_command_that_can_be_parsed(tmp_path: Path) -> None:
    job = cron_job("retain-cronjob.yaml")
    assert (job["kind"], job["spec"]["concurrencyPolicy"]) == ("CronJob", "Forbid")
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    options = parsed(container["args"], tmp_path)
    assert (options["topic"], options["execute"], options["unverified_after"]) == (
        "clicks",
        True,
        90 * 86_400,
    )


def test_the_cron_job_of_a_source_has_a_command_that_can_be_parsed(tmp_path: Path) -> None:
    job = cron_job("source-cronjob.yaml")
    assert (job["kind"], job["spec"]["concurrencyPolicy"]) == ("CronJob", "Forbid")
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    options = parsed(container["args"], tmp_path)
    assert (options["path"], options["once"], options["as_json"]) == (
        str(tmp_path / "orders.toml"),
        True,
        True,
    )


def test_a_command_with_a_wrong_option_is_found(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="No such option"):
        parsed(["retain", "clicks", "--unverified-for=90d"], tmp_path)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not there")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for path in (*SERVICES, *FOLDER.glob("*.timer")):
        (tmp_path / path.name).write_text(path.read_text().replace(PROGRAM, "/bin/true"))
    units = [str(path).replace("@.", "@1.") for path in sorted(tmp_path.iterdir())]
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, str(tmp_path) in done.stderr) == (0, False), done.stderr
