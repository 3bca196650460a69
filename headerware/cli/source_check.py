"""``headerware source check``: check the files of sources before they run, and ask the cluster."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import msgspec

from headerware.cli.chains import check_each, require_local_parts
from headerware.cli.json_output import answer
from headerware.cli.options import json_option
from headerware.cli.source_status import source_errors
from headerware.core.client_chain import client_chain
from headerware.core.config import FILE
from headerware.core.context import Context
from headerware.core.errors import ConfigError, HeaderwareError, KeyringError, SourceError
from headerware.core.files import read_text
from headerware.core.order import idle_on, precedes_bytes, weaknesses
from headerware.core.printable import counted
from headerware.core.toml import find_option
from headerware.ops.doctor import ABSENT, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headerware.core.chain import Chain
    from headerware.sources.runtime import RunConfig

_TIMEOUT_S: Final = 10.0
_SERVERS: Final = "localhost:9092"
_SENT_AS_BYTES: Final = (bytes, bytearray, memoryview, str, type(None))
"""The types that need no serializer."""


class _Checked(NamedTuple):
    """The result of checking one file."""

    file: str
    loaded: RunConfig
    chain: Chain
    warnings: list[tuple[str, str]]
    findings: list[Finding]


@click.command()
@click.argument("path", type=click.Path(exists=True))
@click.option(
    "--open/--no-open",
    "opens",
    default=False,
    help="Also open the chain and the transformers, and ask the cluster for topics and rights.",
)
@json_option
def check(path: str, opens: bool, as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Check the file of a source, or each one of a folder, for CI.

    Types, options, extractor, transformers, the store of offsets and the chain are checked; no objects are
    listed. With --open the source, the chain and the transformers are opened as `run` does, objects are
    listed to see whether `include` fits one, and the cluster is asked whether the topics exist and what this
    user may do. Nothing is written but the state of a transactional id that no task uses.

    If something is wrong, the exit code is 1, and one line says what and where. All files are checked, also
    if one of them is wrong.
    """
    from headerware.sources.runtime import RunConfig  # noqa: PLC0415 - it imports a Kafka client
    from headerware.sources.toml_files import source_files  # noqa: PLC0415 - as above

    checked, right = check_each(
        map(str, source_files(path)), lambda file: _checked(file, opens=opens), as_json=as_json
    )
    if right:
        RunConfig.load_all(path)  # this checks that no two sources have the same name
    elif not checked:
        sys.exit(1)
    ok = right and all(each.status != "fail" for found in checked for each in found.findings)
    shown = [_as_json(each, opens=opens) for each in checked]

    def show() -> None:
        for each in checked:
            _print(each, opens=opens)

    answer(shown, show, as_json=as_json, ok=ok)


def _checked(file: str, *, opens: bool) -> _Checked:
    from headerware.sources.engine.plan import include_problem  # noqa: PLC0415 - as above
    from headerware.sources.runtime import RunConfig  # noqa: PLC0415 - as above

    try:
        loaded = RunConfig.load(file)
        chain, _ = client_chain(loaded.kafka)
        chain.check_files()
        unserialized = _unserialized(loaded, chain)
        if opens:
            _open(loaded, chain)
            require_local_parts(file, chain, "producer")
    except HeaderwareError as error:
        if error.file is not None:
            raise
        if isinstance(error, ConfigError):
            _locate(error, file)
        if error.file is not None:
            raise
        text = str(error)
        if isinstance(error, KeyringError) and error.missing is not None:
            text += f"; paths in [kafka] begin there, and paths in the file that {FILE} names at its folder"
        raise ConfigError(text if text.startswith(file) else f"{file}: {text}") from error
    warnings = [*unserialized, *weaknesses(tuple(chain)), *idle_on(tuple(chain), _topics(loaded))]
    if opens:
        with source_errors(loaded):
            problem = include_problem(loaded)
        warnings += [(loaded.source.type, problem)] if problem else []
    return _Checked(file, loaded, chain, warnings, list(dict.fromkeys(_asked(loaded))) if opens else [])


def _locate(error: ConfigError, file: str) -> None:
    """Add the line and the column to an error if the file has the option, at its root or in [kafka]."""
    text = read_text(Path(file))
    place = find_option(text, error.path)
    if place is None and (in_kafka := find_option(text, f"kafka.{error.path}")) != find_option(text, "kafka"):
        place = in_kafka
    if place is not None:
        error.located(file, *place)


def _open(loaded: RunConfig, chain: Chain) -> None:
    """Open what a run opens, except on the cluster; interceptors that report to topics need none here."""
    from headerware.sources.source import SourceContext, open_source  # noqa: PLC0415 - as above

    transactional = loaded.delivery == "exactly_once"
    chain.open(
        Context(side="producer", bootstrap_servers=_SERVERS, transactional=transactional, warns=False)
    ).close()
    with loaded.new_transformers():
        pass
    loaded.extractor.require_parts()
    with source_errors(loaded):
        open_source(loaded.source, SourceContext(name=loaded.name, tasks=loaded.tasks)).close()


def _unserialized(loaded: RunConfig, chain: Chain) -> list[tuple[str, str]]:
    """Return a warning if some objects may reach Kafka as objects; raise ConfigError if all would."""
    from headerware.sources.transformers import classes_of  # noqa: PLC0415 - as above

    found = classes_of(loaded.new_transformers().gives)
    objects = [kind.__name__ for kind in found if kind is not object and not issubclass(kind, _SENT_AS_BYTES)]
    if not objects or any(map(precedes_bytes, chain)):
        return []
    advice = (
        "no step of the chain makes bytes of them; add a step to [kafka], such as: interceptors = "
        '"serialize", and "interceptors.serialize.value" = "json"'
    )
    if len(objects) == len(found):
        raise ConfigError(
            f"{loaded.extractor.type} gives objects ({', '.join(objects)}), and {advice}", path="extractor"
        )
    return [(loaded.extractor.type, f"it may give objects ({', '.join(objects)}), and {advice}")]


def _topics(loaded: RunConfig) -> list[str]:
    """Return the topics whose names do not depend on an object."""
    topic = loaded.topic.replace("{name}", loaded.name).replace("{source}", loaded.source.type)
    return [] if "{" in topic else [topic]


def _asked(loaded: RunConfig) -> Iterator[Finding]:
    """Yield findings about the topics and this user's rights."""
    from headerware.sources.runtime.topic_offsets import client_settings  # noqa: PLC0415 - as above

    settings = client_settings(loaded.kafka)
    topics = _topics(loaded)
    is_dead_lettering = "dead_letter" in (loaded.on_record_error, loaded.on_object_error)
    dead = [loaded.dead_letter_topic.replace("{topic}", topic) for topic in topics if is_dead_lettering]
    found = list(_of_topics(settings, [*topics, *dead], "producer"))
    yield from found
    if not topics:
        yield Finding(check=f"topic {loaded.topic}", status="unknown", found="it depends on the object")
    if any(each.check == "cluster" and each.status == "fail" for each in found):
        return
    if loaded.offsets.transactional:
        yield from _of_offsets(loaded, settings)
        yield _of_transactions(loaded, settings)


def _of_topics(settings: dict[str, Any], topics: list[str], side: Any) -> Iterator[Finding]:
    from headerware.ops.doctor import examine  # noqa: PLC0415 - as above

    for each in examine(None, settings, topics, side=side, timeout_s=_TIMEOUT_S):
        # Only the doctor shows advice about the cluster, and unknown settings and clocks.
        of_cluster = each.check == "cluster" and each.status in {"ok", "fail"}
        of_topic = each.check in {f"topic {topic}" for topic in topics}
        if of_cluster or of_topic or (each.check.startswith("topic ") and each.status != "unknown"):
            yield each


def _of_offsets(loaded: RunConfig, settings: dict[str, Any]) -> Iterator[Finding]:
    topic = loaded.offsets.topic
    for side in ("producer", "consumer"):
        for each in _of_topics(settings, [topic], side):
            if each.check == f"topic {topic}":
                if each.status == "fail" and each.found == ABSENT and loaded.offsets.create:
                    yield Finding(
                        check=each.check,
                        status="ok",
                        found="does not exist yet, and will be created by a run",
                        advice="this user needs CREATE on it",
                    )
                    return
                yield each
    yield _of_reading(loaded)


def _of_reading(loaded: RunConfig) -> Finding:
    """Read the offsets as a run does, which also needs a right on a group."""
    check = f"offsets in {loaded.offsets.topic}"
    store = msgspec.structs.replace(loaded.offsets, create=False)
    try:
        with closing(store.open(loaded.kafka, source=loaded.name)) as opened:
            found = counted(len(opened.items()), "object")
    except SourceError as error:
        return Finding(
            check=check,
            status="fail",
            found=str(error),
            advice="give this user READ on the topic, and DESCRIBE on the group headerware-table",
        )
    return Finding(check=check, status="ok", found=found)


def _of_transactions(loaded: RunConfig, settings: dict[str, Any]) -> Finding:
    """Try a transactional id that no task uses, so that no task is fenced."""
    from confluent_kafka import KafkaException  # noqa: PLC0415 - as above

    from headerware.sources.runtime.topic_offsets import transactional_id  # noqa: PLC0415 - as above
    from headerware.workers.transactions import TransactionalSender  # noqa: PLC0415 - as above

    prefix = transactional_id(f"{loaded.name}-")
    check = f"transactional ids {prefix}*"
    try:
        made = TransactionalSender(
            {**settings, "log_level": 0},
            f"{prefix}check",
            what=f"check of {loaded.name}",
            timeout_s=_TIMEOUT_S,
        )
        made.close()
    except KafkaException as error:
        return Finding(
            check=check,
            status="fail",
            found=error.args[0].str(),
            advice="give this user WRITE and DESCRIBE on these ids (prefixed)",
        )
    return Finding(check=check, status="ok", found="this user may write with them")


def _as_json(checked: _Checked, *, opens: bool) -> dict[str, Any]:
    return {
        "config": checked.file,
        "source": checked.loaded.name,
        "chain": checked.chain.names,
        "opened": opens,
        "warnings": [{"interceptor": name, "warning": text} for name, text in checked.warnings],
        "findings": msgspec.to_builtins(checked.findings),
    }


def _print(checked: _Checked, *, opens: bool) -> None:
    loaded, failed = checked.loaded, [each for each in checked.findings if each.status == "fail"]
    parts = f"{loaded.source.type} -> {loaded.extractor.type} -> " + (
        " -> ".join(checked.chain.names) or "an empty chain"
    )
    opened = "opened" if opens else "not opened; --open opens it, too, and asks the cluster"
    click.echo(f"{checked.file}: {'not ok' if failed else 'ok'} ({parts}; {opened})")
    for name, text in checked.warnings:
        click.echo(f"warning: {name}: {text}")
    for each in checked.findings:
        if each.status != "ok" or each.advice:
            advice = f"; {each.advice}" if each.advice else ""
            click.echo(f"{each.status}: {each.check}: {each.found}{advice}")
