"""``headerware init``: write a first chain, its keys, and a line of ``.gitignore`` for the keys."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from headerware.cli.confirmation import yes_option
from headerware.cli.json_output import answer
from headerware.cli.options import json_option, keyring_option
from headerware.core.client_chain import USUAL_FILE
from headerware.core.errors import ConfigError
from headerware.core.suggestions import did_you_mean
from headerware.keyring import key_id_problem, with_new_key

if TYPE_CHECKING:
    from headerware.keyring import Algorithm, Keyring

_EVERY_TOPIC: Final = "*"
_KEYRING: Final = "keys.json"
_GITIGNORE: Final = ".gitignore"
_TOPIC_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-*?![]")


class _Step(NamedTuple):
    """An interceptor that the chain may have: why, its options, and the algorithm of its key, if any."""

    why: str
    options: str = ""
    algorithm: Algorithm | None = None
    key_id: str = ""


_STEPS: Final[dict[str, _Step]] = {
    "trail": _Step(
        "Each record says which service produced it, and which services it has passed since.",
        "service = {service}\n",
    ),
    "trace": _Step(
        "Sending and processing a record make spans of OpenTelemetry (install its SDK to see them)."
    ),
    "compress": _Step("Values are compressed if that makes them smaller."),
    "encrypt": _Step(
        "Values are encrypted: nobody reads them without the key, neither in Kafka nor in its backups.",
        'key_service = {{ type = "file", keyring = {keyring} }}\nkey_id = {key_id}\n',
        "aes-256",
        "{service}-values",
    ),
    "sign": _Step(
        "Records are signed: consumers refuse a record that was altered or forged, or is not signed.",
        'keyring = {keyring}\nkey_id = {key_id}\nrequire = "enforce"\n',
        "ed25519",
        "{service}",
    ),
}
"""The steps in the order of sending."""
_USUAL_STEPS: Final = "trail,compress,encrypt,sign"


class _Answers(NamedTuple):
    service: str
    steps: tuple[str, ...]
    topics: tuple[str, ...]
    keyring: Path | None
    """The file of the keys, relative to the working directory; None if the chain needs no keys."""

    def keys(self) -> dict[str, Algorithm]:
        """Return the algorithm of each key that the chain names."""
        steps = [_STEPS[name] for name in self.steps]
        return {
            step.key_id.format(service=self.service): step.algorithm
            for step in steps
            if step.algorithm is not None
        }

    def chain(self, config: Path) -> str:
        """Return the text of the chain's file."""
        title = (
            f"# The chain of {self.service}. Producers run it from top to bottom, consumers the other way."
        )
        blocks = [f"{title}\n# After a change: headerware check --open {shlex.quote(str(config))}\n"]
        keyring = self.keyring
        if keyring is not None and not keyring.is_absolute():
            keyring = Path(os.path.relpath(keyring, config.parent))  # a chain's paths begin at its file
        for name in self.steps:
            step = _STEPS[name]
            topics = "" if self.topics == (_EVERY_TOPIC,) else f"topics = {_toml(list(self.topics))}\n"
            options = step.options.format(
                service=_toml(self.service),
                keyring=_toml(str(keyring)),
                key_id=_toml(step.key_id.format(service=self.service)),
            )
            blocks.append(f'# {step.why}\n[[interceptors]]\ntype = "{name}"\n{topics}{options}')
        return "\n".join(blocks)


def _toml(value: object) -> str:
    # A JSON text, and a list of texts, are also TOML.
    return json.dumps(value, ensure_ascii=False)


def _checked_service(text: str) -> str:
    for step in _STEPS.values():
        if step.algorithm and (problem := key_id_problem(step.key_id.format(service=text))):
            raise click.BadParameter(f"keys are named after the service: {problem}")
    return text


def _checked_steps(text: str) -> tuple[str, ...]:
    names = _names(text)
    for name in names:
        if name not in _STEPS:
            raise click.BadParameter(
                f"expected some of {', '.join(_STEPS)}; found {name!r}{did_you_mean(name, _STEPS)}"
            )
    return tuple(name for name in _STEPS if name in names)  # the order that a chain needs


def _checked_topics(text: str) -> tuple[str, ...]:
    names = _names(text)
    for name in names:
        if not _TOPIC_CHARACTERS.issuperset(name):
            raise click.BadParameter(
                f"expected names of topics, or patterns such as orders.*; found {name!r}"
            )
    return names


def _names(text: str) -> tuple[str, ...]:
    found = tuple(text.replace(",", " ").split())
    if not found:
        raise click.BadParameter("expected one name or more, separated by commas")
    return found


def _default_service() -> str:
    name = Path.cwd().name
    return "my-service" if key_id_problem(name) else name


@click.command()
@click.option(
    "--service", metavar="NAME", help="The service that has the chain; by default the folder's name."
)
@click.option(
    "--steps",
    metavar="LIST",
    help=f"What the chain does, separated by commas: {', '.join(_STEPS)}. By default {_USUAL_STEPS}.",
)
@click.option(
    "--topics", metavar="LIST", help="Topics or patterns, separated by commas; by default all topics."
)
@keyring_option("The file for the keys; by default keys.json beside the chain.")
@click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    default=USUAL_FILE,
    show_default=True,
    help="The file to write; it must not exist yet.",
)
@yes_option
@json_option
def init(
    service: str | None,
    steps: str | None,
    topics: str | None,
    keyring: Path | None,
    config: Path,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Write a first chain for a service, and make its keys.

    The command asks for what no option gives; --yes takes the defaults instead. It writes headerware.toml,
    adds the keys to the keyring, and a line to .gitignore, so that the keys are not committed. It never
    changes a chain or a key that exists.
    """
    if config.exists() or config.is_symlink():
        raise click.ClickException(
            f"{config} exists, so nothing was written: `headerware explain {config}` shows it; delete it "
            f"first, or name another file with --config"
        )
    answers = _ask_for_options(service, steps, topics, keyring, config.parent / _KEYRING, yes=yes)
    path = answers.keyring
    for file in (config,) if path is None else (config, path):
        if not str(file).isprintable():
            raise click.ClickException(f"expected a file's name in printable UTF-8, found {str(file)!r}")
        if not file.parent.is_dir():
            raise click.ClickException(f"{file.parent}: there is no such folder; make it first")
    is_inside = path is not None and path.resolve().is_relative_to(Path.cwd())
    ignored = _ignore(path.resolve().relative_to(Path.cwd())) if path is not None and is_inside else None
    made = [] if path is None else _make_keys(path, answers.keys())
    try:
        with config.open("x", encoding="utf-8") as written:
            written.write(answers.chain(config))
    except OSError as error:
        raise click.ClickException(f"{config} cannot be written: {error.strerror}") from error
    topic = next((each for each in answers.topics if not set(each) & set("*?![]")), "orders")
    following = f"headerware dev {topic} --config {shlex.quote(str(config))}"
    facts = {
        "config": str(config),
        "chain": answers.steps,
        "topics": answers.topics,
        "keyring": None if path is None else str(path),
        "keys": made,
        "gitignore": ignored,
        "keyring_is_ignored": None if path is None else is_inside,
        "next": following,
    }

    def show() -> None:
        where = "all topics" if answers.topics == (_EVERY_TOPIC,) else ", ".join(answers.topics)
        click.echo(f"{config}: a chain of {', '.join(answers.steps)} for {where}")
        if path is not None:
            click.echo(f"{path}: {_keys_text(answers.keys(), made)}; keep this file secret, and back it up")
            if not is_inside:
                click.echo(f"{path} is not in this folder: keep it out of version control there, too")
        if ignored:
            click.echo(f"{_GITIGNORE}: the line {ignored}, so that git leaves the keys out")
        if "sign" in answers.steps:
            click.echo("to verify records of other services: headerware docs service-in-the-middle")
        click.echo(f"next: {following}")

    answer(facts, show, as_json=as_json)


def _ask_for_options(
    service: str | None,
    steps: str | None,
    topics: str | None,
    keyring: Path | None,
    usual_keyring: Path,
    *,
    yes: bool,
) -> _Answers:
    """Return the options that were given, and ask for the others."""

    def ask(given: str | None, question: str, option: str, default: str, check: Any = str) -> Any:
        if given is not None or yes:
            try:
                return check(default if given is None else given)
            except click.BadParameter as error:
                error.param_hint = f"'{option}'"
                raise
        if sys.stdin is None or not sys.stdin.isatty():
            raise click.UsageError(
                f"there is no terminal to ask on: give {option}, or --yes for all defaults"
            )
        return click.prompt(question, default=default, value_proc=check, err=True)

    name = ask(service, "Name of the service", "--service", _default_service(), _checked_service)
    if steps is None and not yes:
        for step, (why, *_) in _STEPS.items():
            click.echo(f"  {step:<9} {why}", err=True)
    chosen = ask(steps, "What the chain does", "--steps", _USUAL_STEPS, _checked_steps)
    applied_to = ask(
        topics, "Topics or patterns (* is all topics)", "--topics", _EVERY_TOPIC, _checked_topics
    )
    if not any(_STEPS[step].algorithm for step in chosen):
        return _Answers(name, chosen, applied_to, None)
    given = None if keyring is None else str(keyring)
    path = Path(ask(given, "File for the keys", "--keyring", str(usual_keyring)))
    return _Answers(name, chosen, applied_to, path)


def _keys_text(keys: dict[str, Algorithm], made: list[str]) -> str:
    """Return which keys the keyring got, and which it had."""
    added, had = (
        ", ".join(f"{key} ({algorithm})" for key, algorithm in keys.items() if (key in made) is is_new)
        for is_new in (True, False)
    )
    if not had:
        return f"the keys {added}"
    return f"has {had} already; " + (f"added {added}" if added else "no key was added")


def _make_keys(path: Path, keys: dict[str, Algorithm]) -> list[str]:
    """Make the keys that the keyring does not have, and return their names."""
    from headerware.keyring.writing import edit_keyring  # noqa: PLC0415 - needs a POSIX system

    made: list[str] = []

    def change(ring: Keyring) -> Keyring:
        for key_id, algorithm in keys.items():
            algorithms = {key.algorithm for key in ring.keys if key.id == key_id}
            if not algorithms:
                ring = with_new_key(ring, key_id, algorithm)
                made.append(key_id)
            elif algorithms != {algorithm}:
                found = ", ".join(sorted(algorithms))
                raise ConfigError(
                    f"{path}: expected an {algorithm} key {key_id!r}, found {found}; name another service or "
                    f"keyring"
                )
        return ring

    edit_keyring(path, change, create=True)
    return made


def _ignore(keyring: Path) -> str | None:
    """Add a keyring below the working directory to ``.gitignore``; return the new line, if there is one."""
    pattern = re.sub(r"([\\*?\[])", r"\\\1", keyring.as_posix())
    line = f"/{pattern}*"  # its lock file, too
    path = Path(_GITIGNORE)
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        if line in before.splitlines():
            return None
        separator = "" if not before or before.endswith("\n") else "\n"
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{separator}{line}\n")
    except (OSError, UnicodeError) as error:
        raise click.ClickException(f"{path} cannot be changed: {error}") from error
    return line
