"""``headerware run``: run an unchanged application whose Kafka clients get a chain."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Final

import click

from headerware.core.chain import Chain, load_chain
from headerware.core.client_chain import CONFIG_VARIABLE, USUAL_FILE, followed_file, is_disabled
from headerware.core.config import FILE
from headerware.core.errors import ConfigError
from headerware.core.options import from_home
from headerware.core.order import notes
from headerware.core.plain_files import is_content, require_path
from headerware.core.suggestions import did_you_mean

_MARK: Final = "HEADERWARE_RUN"
_PATH: Final = "PYTHONPATH"
_BOOTSTRAP: Final = Path(__file__).parent / "bootstrap"
_OF_PYTHON: Final = ("-m", "-c")
_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126
_PYTHON: Final = re.compile(r"python[0-9.]*t?")
_LINE_BYTES: Final = 256
"""The longest first line of a script that Linux reads."""
_IGNORED: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores; a program that replaces this process would inherit that."""


class _Run(click.Command):
    """A command that reads ``-cCODE`` as Python does, and not as the options ``-c -C -O ...``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Separate the code from ``-c``, and parse the arguments."""
        at = 0
        while args[at : at + 1] and args[at].partition("=")[0] in {"--config", "--verbose"}:
            at += 2 if args[at] == "--config" else 1
        if args[at : at + 1] and args[at].startswith("-c") and args[at] != "-c":
            args = [*args[:at], "-c", args[at].removeprefix("-c"), *args[at + 1 :]]
        return super().parse_args(ctx, args)


@click.command(cls=_Run, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="The chain's TOML file; without this, HEADERWARE_CONFIG names the file.",
)
@click.option(
    "--verbose",
    is_flag=True,
    help="Say on standard error which chain the command gets; a terminal gets this without the option, too.",
)
@click.argument("command", nargs=-1, required=True, metavar="COMMAND [ARGS]...", type=click.UNPROCESSED)
def run(config: str | None, command: tuple[str, ...], *, verbose: bool) -> None:
    """Run COMMAND with a chain around its Kafka clients.

    COMMAND is a program and its arguments: python, gunicorn, pytest, any script of a Python environment that
    has Headerware. `app.py` and `-m module` alone run in this command's own Python. Child processes are
    covered, too. Clients come from confluent_kafka, and the application does not change:

    \b
        headerware run --config headerware.toml python app.py
        headerware run gunicorn --preload shop:app
        headerware run -m shop.worker

    The chain's file is checked first; if it is wrong, or neither a producer nor
    a consumer can open the chain, nothing runs and the exit code is 1. HEADERWARE_DISABLED=1 runs the command
    regardless, with the chain off. The command replaces this process, so signals and the exit code are its
    own.
    """  # noqa: D301 - click's mark for preformatted text
    _require_no_option(command)
    _require_file(config)
    environment = dict(os.environ)
    path = config or environment.get(CONFIG_VARIABLE)
    if path:
        chain = _checked(path)
        if not is_content(path):
            environment[CONFIG_VARIABLE] = os.path.abspath(from_home(path))  # noqa: PTH100 - the command may work in another folder
        if verbose or (sys.stderr is not None and sys.stderr.isatty()):  # others may read what it prints
            _show(path, chain)
    else:
        click.echo(
            f"Warning: neither --config nor {CONFIG_VARIABLE} names a chain's file, so only clients whose "
            f"own configuration has a chain get one{_option_after(command) or _usual_file()}",
            err=True,
        )
    environment[_PATH] = os.pathsep.join(_import_path(environment))
    environment[_MARK] = str(os.getpid())
    arguments = _with_python(command)
    program = _found(arguments[0])
    _require_sitecustomize([program, *arguments[1:]])
    sys.stdout.flush()
    for number in _IGNORED:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(program, arguments, environment)  # noqa: S606 - the purpose of the command
    except OSError as error:
        raise _exit_with(f"cannot run {program}: {error.strerror}", _NOT_EXECUTABLE) from error


def _require_file(config: str | None) -> None:
    """Raise if ``--config`` has no value of its own, and took a part of the command for the file."""
    if config and not os.path.exists(config) and (config in _OF_PYTHON or shutil.which(config)):  # noqa: PTH110 - any text
        raise click.UsageError(
            f"--config takes the chain's file, found {config!r}; write --config FILE {config} ..."
        )


def _require_no_option(command: tuple[str, ...]) -> None:
    """Raise if the command begins with an option; a program's own options come after its name."""
    first, *rest = command
    if first == "-c" and rest and (rest[0].endswith(".toml") or os.path.isfile(rest[0])):  # noqa: PTH113 - any text
        file = rest[0].removeprefix("=")
        raise click.UsageError(f"-c runs code, as `python -c` does; name the chain's file by --config {file}")
    if first.endswith(".toml") and not first.startswith("-"):
        raise click.UsageError(
            f"expected a command, found {first!r}; name the chain's file by --config {first}"
        )
    if first.startswith("-") and first not in _OF_PYTHON:
        name = first.partition("=")[0]
        hint = did_you_mean(name, ("--config", "--verbose", "--help"), then="expected the command here")
        raise click.UsageError(f"no such option {name!r}{hint}")


def _option_after(command: tuple[str, ...]) -> str:
    """Return advice if a command's own arguments have ``--config``, which may be meant for this command.

    The program ``python`` takes ``-c`` itself, so ``-c`` counts only with a TOML file after it.
    """
    for at, argument in enumerate(command[1:], 1):
        name, equals, file = argument.partition("=")
        file = file if equals else next(iter(command[at + 1 :]), "")
        if file and (name == "--config" or (name == "-c" and file.endswith(".toml"))):
            return f"; {name} {file} is given to {command[0]}: for the chain, write --config {file} before it"
    return ""


def _usual_file() -> str:
    """Return advice if the working directory has the file that ``headerware init`` writes."""
    return f"; to use the file here, write --config {USUAL_FILE}" if Path(USUAL_FILE).is_file() else ""


def _checked(path: str) -> Chain | None:
    """Return the chain of a file; None if it is wrong and no client gets it."""
    followed_file({FILE: path})  # this also checks HEADERWARE_RELOAD, which says when clients read it again
    try:
        require_path(path, CONFIG_VARIABLE)
        chain = load_chain(path)
    except ConfigError as error:
        if not is_disabled():
            raise
        click.echo(f"Warning: HEADERWARE_DISABLED is set, so this is ignored: {error}", err=True)
        return None
    _require_openable(chain)
    return chain


def _show(path: str, chain: Chain | None) -> None:
    """Print the chain that clients get, and what the application must be written for."""
    if chain is None or is_disabled():
        click.echo("headerware run: HEADERWARE_DISABLED is set, so clients get no chain", err=True)
        return
    names = " -> ".join(chain.names) or "an empty chain"
    click.echo(f"headerware run: {names}, from {path}", err=True)
    for name, text in notes(tuple(chain)):
        click.echo(f"headerware run: {name}: {text}", err=True)


def _require_openable(chain: Chain) -> None:
    """Raise the error that every client would raise, which is shorter without the client's traceback."""
    from headerware.cli.chains import SIDES, refusal  # noqa: PLC0415 - it imports rich

    refusals = [] if is_disabled() else [refusal(chain, side, dry_run=True) for side in SIDES]
    for error in refusals:
        if error is not None and all(refusals):
            raise error


def _import_path(environment: dict[str, str]) -> list[str]:
    """Return PYTHONPATH with our folder first, then the folder of a tool that runs this command.

    A tool such as opentelemetry-instrument may have removed its folder from PYTHONPATH in this process.
    """
    before = environment.get(_PATH, "").split(os.pathsep) if environment.get(_PATH) else []
    other = getattr(sys.modules.get("sitecustomize"), "__file__", None)
    # PYTHONPATH comes before the standard library; later entries belong to this environment alone.
    passed_on = sys.path[: sys.path.index(str(Path(os.__file__).parent))]
    from_tool = [str(Path(other).parent)] if other and str(Path(other).parent) in passed_on else []
    return list(dict.fromkeys([str(_BOOTSTRAP), *from_tool, *before]))


def _with_python(command: tuple[str, ...]) -> list[str]:
    """Return the command; put this Python before a script or ``-m``."""
    if command[0] in _OF_PYTHON or (command[0].endswith(".py") and shutil.which(command[0]) is None):
        return [sys.executable, *command]
    return list(command)


def _found(name: str) -> str:
    """Return the path of a program: from PATH as a shell does, or from this command's own environment."""
    beside = str(Path(sys.executable).parent)
    program = shutil.which(name) or shutil.which(name, path=beside)
    if program is None:
        raise _exit_with(
            f"there is no program {name!r}, neither on PATH nor in {beside}; give a program and arguments, "
            f"such as: headerware run python app.py",
            _NOT_FOUND,
        )
    return program


def _require_sitecustomize(command: list[str]) -> None:
    """Raise if the command is a Python, or a script of one, that would not import our sitecustomize."""
    python, *arguments = _first_line(command[0]) or command
    switches = _switches(arguments) if _PYTHON.fullmatch(Path(python).name) else ""
    found = [f"-{switch}" for switch in "IES" if switch in switches]
    if found and not is_disabled():
        raise click.ClickException(
            f"with {' '.join(found)}, {python} ignores the environment or the site module, so its clients "
            f"would have no chain; leave {' and '.join(found)} out"
        )


def _first_line(program: str) -> list[str]:
    """Return the interpreter and the options that the first line of a script names; empty if it is none."""
    try:
        with open(program, "rb") as file:  # noqa: PTH123 - any text
            line = file.readline(_LINE_BYTES)
    except OSError:
        return []
    words = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
    return [word for word in words[1:] if word != "-S"] if words[:1] == ["/usr/bin/env"] else words


def _switches(arguments: list[str]) -> str:
    """Return the letters of a Python's own options, up to its script, ``-``, ``-c`` or ``-m``."""
    found, rest = "", iter(arguments)
    for option in rest:
        letters = re.match("-[^cmWX]*", option)
        if letters is None or option == "-":
            break
        found += letters[0]
        with_value = option[letters.end() :]
        if with_value[:1] in {"c", "m"}:
            break
        if with_value in {"W", "X"}:
            next(rest, None)  # its value
    return found


def _exit_with(message: str, code: int) -> click.ClickException:
    error = click.ClickException(message)
    error.exit_code = code  # type: ignore[misc]  # click reads it from the error
    return error
