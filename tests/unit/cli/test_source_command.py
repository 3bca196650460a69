"""The commands on sources, on the mock cluster."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient

from headerware.cli import main
from headerware.sources.extractor import extractor_type
from headerware.sources.runtime import RunConfig, SqliteOffsets
from headerware.sources.source import source_type
from headerware.testing import EmbeddedCluster
from tests.waiting import until

source_module = sys.modules["headerware.cli.source"]


@pytest.fixture
def config(
    embedded_cluster: EmbeddedCluster,
    tmp_path: Path,
    unique_topic: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    monkeypatch.setitem(source_type._built_in, "spool", "tests.spool:Spool")
    monkeypatch.setitem(extractor_type._built_in, "lines", "tests.spool:Lines")
    topic = unique_topic("spool")
    embedded_cluster.create_topic(topic)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("1\n2\n")
    (tmp_path / "in" / "b").write_text("3\n")
    (tmp_path / "source.toml").write_text(
        f'name = "{topic}"\ntopic = "{topic}"\nextractor = "lines"\ndelivery = "at_least_once"\n'
        "poll_wait_s = 0.05\nlisting_pause_s = 0.05\n"
        f'[source]\ntype = "spool"\nfolder = "{tmp_path / "in"}"\n'
        '[offsets]\ntype = "sqlite"\npath = "offsets.db"\n'
        f'[kafka]\n"bootstrap.servers" = "{embedded_cluster.bootstrap_servers}"\n'
    )
    return tmp_path / "source.toml"


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["source", *map(str, arguments)])


def answer(*arguments: object) -> Any:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["result"]


class TestInclude:
    @pytest.fixture
    def config(self, config: Path) -> Path:
        text = config.read_text().replace('type = "spool"', 'type = "files"\ninclude = ["*.CSV"]')
        (config.parent / "in" / "c.csv").write_text("1\n")
        config.write_text(text)
        return config

    def test_that_fits_no_object_is_told_after_a_run(self, config: Path) -> None:
        result = invoke("run", config, "--once")

        assert result.exit_code == 0, result.output
        assert "found 3 objects, such as a, of which none fits include (*.CSV)" in result.output

    def test_that_fits_no_object_is_a_warning_of_check(self, config: Path) -> None:
        result = invoke("check", config, "--open")

        assert "found 3 objects, such as a, of which none fits include (*.CSV)" in result.output

    def test_that_fits_one_object_is_not_told(self, config: Path) -> None:
        config.write_text(config.read_text().replace("*.CSV", "*.csv"))

        assert "include" not in invoke("run", config, "--once").output
        assert "include" not in invoke("check", config, "--open").output


class TestRun:
    def test_reads_once(self, config: Path) -> None:
        result = invoke("run", config, "--once")
        assert result.exit_code == 0, result.output
        assert "3 records of 2 objects, 2 complete; 0 bad records, 0 objects failed" in result.output
        topic = RunConfig.load(config).topic
        assert f"{topic}: reads spool, sends to topic {topic}, at least once\n" in result.stderr
        assert answer("run", config, "--once")["tasks"]["0"]["objects"] == 0

    def test_stops_at_a_signal(self, config: Path) -> None:
        def kill() -> None:
            until((config.parent / "offsets.db").exists)
            store = SqliteOffsets(path=str(config.parent / "offsets.db"))
            reading = store.open({}, source=RunConfig.load(config).name)
            until(reading.items)
            reading.close()
            os.kill(os.getpid(), signal.SIGTERM)

        thread = Thread(target=kill)
        thread.start()
        result = invoke("run", config)
        thread.join()
        assert result.exit_code == 0, result.output
        assert "3 records" in result.output

    @pytest.mark.parametrize("is_terminal", [True, False])
    def test_shows_how_it_goes(
        self, config: Path, monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool
    ) -> None:
        monkeypatch.setattr(source_module, "_REFRESH_S", 0.01)
        monkeypatch.setattr(source_module, "_LINE_S", 0.01)
        monkeypatch.setenv("FORCE_COLOR" if is_terminal else "NO_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "120")
        result = invoke("run", config, "--once")
        assert result.exit_code == 0, result.output
        if is_terminal:
            assert re.search(r"records/s\W.*in flight\W.*reads", result.stderr)
        else:
            assert "0 objects failed; " in result.stderr
            assert " in flight\n" in result.stderr
        assert result.stdout.splitlines()[-1].endswith("2 complete; 0 bad records, 0 objects failed")

    def test_tells_by_http_how_it_is(self, config: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        seen: list[tuple[int, Any]] = []

        def ask() -> bool:
            try:
                with urlopen(f"http://127.0.0.1:{port}/ready", timeout=60) as answer:
                    seen.append((answer.status, json.load(answer)))
            except HTTPError as error:
                seen.append((error.code, json.load(error)))
            except URLError:
                return False
            (tasks,) = (each["tasks"] for each in seen[-1][1]["sources"].values())
            return seen[-1][0] == 200 and tasks.get("0", {}).get("complete") == 2

        def stop() -> None:
            until(ask)
            os.kill(os.getpid(), signal.SIGTERM)

        thread = Thread(target=stop)
        thread.start()
        result = invoke("run", config, "--health", f"127.0.0.1:{port}")
        thread.join()
        assert result.exit_code == 0, result.output
        status, found = seen[-1]
        name = RunConfig.load(config).name
        assert (status, found["live"], found["ready"]) == (200, True, True)
        assert found["sources"][name]["tasks"]["0"]["records"] == 3

    def test_tells_of_a_failure_as_one_line(self, config: Path) -> None:
        (config.parent / "in" / "b").write_text("!SECRET\n")
        result = invoke("run", config, "--once")
        assert result.exit_code == 1
        assert "record 1 of object 'b'" in result.output
        assert "SECRET" not in result.output

    def test_has_only_the_tasks_that_there_are(self, config: Path) -> None:
        result = invoke("run", config, "--task", "1")
        assert result.exit_code == 2
        assert "1 task" in result.output


@pytest.fixture
def folder(config: Path, embedded_cluster: EmbeddedCluster) -> Path:
    """Return a folder of two sources that share the settings of Kafka."""
    made = config.parent / "sources"
    made.mkdir()
    (made / "kafka.toml").write_text(
        f'[kafka]\n"bootstrap.servers" = "{embedded_cluster.bootstrap_servers}"\n"linger.ms" = 1\n'
    )
    text, kafka, _ = config.read_text().partition("[kafka]")
    assert kafka
    for name in ("one", "two"):
        (made / name).mkdir()
        (made / name / "a").write_text(f"{name}\n")
        own = text.replace(str(config.parent / "in"), str(made / name)).replace(
            'name = "', f'name = "{name}-', 1
        )
        (made / f"{name}.toml").write_text(own)
    return made


class TestRunOfAFolder:
    def test_reads_all_of_them_once(self, folder: Path) -> None:
        found = answer("run", folder, "--once")
        assert [each["source"].partition("-")[0] for each in found] == ["one", "two"]
        assert [each["tasks"]["0"]["acknowledged"] for each in found] == [1, 1]
        assert [each["error"] for each in found] == [None, None]

    def test_one_that_fails_does_not_stop_the_others(self, folder: Path) -> None:
        (folder / "one" / "a").write_text("!SECRET\n")
        result = invoke("run", folder, "--once")
        assert result.exit_code == 1
        name = RunConfig.load(folder / "one.toml").name
        assert re.search(rf"^{name}: failed: .*record 1 of object 'a'", result.stderr, re.MULTILINE)
        assert "SECRET" not in result.output
        assert "two-" in result.stdout
        assert "1 record of 1 object, 1 complete" in result.stdout

    def test_one_that_fails_stops_the_others_if_told_so(self, folder: Path) -> None:
        (folder / "one" / "a").write_text("!\n")
        result = invoke("run", folder, "--fail-fast", "--json")  # without --once two would run for ever
        found = json.loads(result.stdout)
        assert (result.exit_code, found["ok"]) == (1, False)
        assert [each["error"] is None for each in found["result"]] == [False, True]

    def test_a_signal_stops_all(self, folder: Path) -> None:
        def stored() -> int:
            store = SqliteOffsets(path=str(folder / "offsets.db"))
            found = [store.open({}, source=each.name) for each in RunConfig.load_all(folder)]
            try:
                return sum(len(each.items()) for each in found)
            finally:
                for each in found:
                    each.close()

        def kill() -> None:
            until(lambda: stored() == 2)
            os.kill(os.getpid(), signal.SIGTERM)

        thread = Thread(target=kill)
        thread.start()
        result = invoke("run", folder)
        thread.join()
        assert result.exit_code == 0, result.output
        assert result.stdout.count("1 record of 1 object") == 2

    def test_what_a_source_says_itself_counts_for_more(self, folder: Path) -> None:
        path = folder / "two.toml"
        path.write_text(path.read_text() + '[kafka]\n"linger.ms" = 7\n')
        one, two = RunConfig.load_all(folder)
        assert (one.kafka["linger.ms"], two.kafka["linger.ms"]) == (1, 7)
        assert one.kafka["bootstrap.servers"] == two.kafka["bootstrap.servers"]

    @pytest.mark.parametrize(
        ("file", "text", "message"),
        [
            ("kafka.toml", 'topic = "x"\n[kafka]\n', r"kafka\.toml: expected only the table \[kafka\]"),
            ("one.toml", 'nam = "x"\n', r"one\.toml:1:1: error: nam: "),
            ("three.toml", None, r"three\.toml: .*one\.toml also has the name 'one-"),
        ],
    )
    def test_nothing_runs_if_a_file_is_wrong(
        self, folder: Path, file: str, text: str | None, message: str
    ) -> None:
        (folder / file).write_text((folder / "one.toml").read_text() if text is None else text)
        result = invoke("run", folder, "--once")
        assert result.exit_code == 1
        assert re.search(message, result.output)
        assert not (folder / "offsets.db").exists()

    def test_has_no_single_tasks(self, folder: Path) -> None:
        assert invoke("run", folder, "--task", "0").exit_code == 2

    def test_needs_a_source(self, tmp_path: Path) -> None:
        (tmp_path / "none").mkdir()
        result = invoke("run", tmp_path / "none")
        assert (result.exit_code, "NAME.toml" in result.output) == (1, True)


class TestCheck:
    @pytest.fixture(autouse=True)
    def patience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Wait less for what the mock cluster does not answer: a description of it."""
        monkeypatch.setattr("headerware.cli.source_check._TIMEOUT_S", 3.0)

    def test_opens_nothing_unless_told(self, config: Path) -> None:
        config.write_text(
            config.read_text().replace(
                "[kafka]", '[kafka]\n"interceptors" = "trail"\n"interceptors.trail.service" = "s"'
            )
        )
        (found,) = answer("check", config)
        assert (found["chain"], found["opened"], found["warnings"], found["findings"]) == (
            ["trail"],
            False,
            [],
            [],
        )
        assert f"{config}: ok (spool -> lines -> trail; not opened; --open" in invoke("check", config).output

    def test_needs_no_brokers(self, config: Path) -> None:
        config.write_text(
            re.sub('"bootstrap.servers" = .*', '"bootstrap.servers" = "127.0.0.1:1"', config.read_text())
        )
        assert invoke("check", config).exit_code == 0
        result = invoke("check", config, "--open")
        assert result.exit_code == 1
        assert f"{config}: not ok" in result.output
        assert "fail: cluster: " in result.output

    def test_asks_the_cluster(self, config: Path, embedded_cluster: EmbeddedCluster) -> None:
        (found,) = answer("check", config, "--open")
        name = RunConfig.load(config).topic
        assert {each["check"] for each in found["findings"]} >= {"cluster", f"topic {name}"}
        config.write_text(config.read_text().replace("topic = ", "topic = 'misspelt' # ", 1))
        result = invoke("check", config, "--open", "--json")
        assert result.exit_code == 1
        assert (
            "misspelt"
            not in AdminClient({"bootstrap.servers": embedded_cluster.bootstrap_servers})
            .list_topics(timeout=60)
            .topics
        )

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ('extractor = "lines"\nnothing = 1', "nothing"),
            ('extractor = "no"', "extractor"),
            ('extractor = "lines"\ntransformers = ["no"]', "transformers"),
            ('extractor = "lines"\nkey_pattern = "("', "key_pattern: expected a regular expression"),
        ],
    )
    def test_tells_what_is_wrong_and_where(self, config: Path, line: str, message: str) -> None:
        config.write_text(config.read_text().replace('extractor = "lines"', line))
        result = invoke("check", config)
        assert result.exit_code == 1
        assert re.match(rf"{re.escape(str(config))}:\d+:\d+: error: {message}", result.output)
        assert message in result.output
        assert len(result.output.splitlines()) == 1

    def test_checks_the_chain(self, config: Path) -> None:
        config.write_text(config.read_text().replace("[kafka]", '[kafka]\n"interceptors" = "sign"'))
        result = invoke("check", config)
        assert (result.exit_code, "interceptors.sign" in result.output) == (1, True)

    def test_opened_finds_a_folder_of_claims_that_cannot_be_used(self, config: Path, tmp_path: Path) -> None:
        folder, chain = tmp_path / "objects", tmp_path / "chain.toml"
        store = f'stores = {{ archive = {{ type = "folder", path = "{folder}" }} }}'
        chain.write_text(f'[[interceptors]]\ntype = "claim_check"\n{store}\n')
        config.write_text(
            config.read_text().replace("[kafka]", '[kafka]\n"headerware.config" = "chain.toml"')
        )
        assert invoke("check", config).exit_code == 0
        result = invoke("check", config, "--open")
        assert result.exit_code == 1
        assert f"{config}: object store archive: the folder {folder}: it is not there" in result.output

    def test_refuses_objects_that_nothing_makes_bytes_of(self, config: Path) -> None:
        config.write_text(config.read_text().replace('"lines"', '"csv"'))
        result = invoke("check", config)
        assert result.exit_code == 1
        assert result.stderr.startswith(
            f"{config}:3:1: error: extractor: csv gives objects (dict), and no step"
        )
        config.write_text(config.read_text().replace('"csv"', '"jsonl"'))
        assert "warning: jsonl: it may give objects (dict, list, int, " in invoke("check", config).stdout
        serialize = '"interceptors" = "serialize"\n"interceptors.serialize.value" = "json"\n'
        config.write_text(config.read_text().replace("[kafka]\n", f"[kafka]\n{serialize}"))
        assert "warning" not in invoke("check", config).output
        config.write_text(config.read_text().replace('"jsonl"', '"csv"'))
        assert invoke("check", config).exit_code == 0

    def test_opened_finds_a_folder_that_is_not_there(self, config: Path) -> None:
        text = config.read_text().replace('"spool"', '"files"').replace('"lines"', '"bytes"')
        config.write_text(text.replace('/in"', '/none"'))
        assert invoke("check", config).exit_code == 0
        result = invoke("check", config, "--open")
        assert result.exit_code == 1
        assert re.match(
            rf"{re.escape(str(config))}:\d+:1: error: source.folder: folder .*none.: No such", result.stderr
        )

    def test_opened_finds_an_extractor_without_its_package(
        self, config: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        serialize = '"interceptors" = "serialize"\n"interceptors.serialize.value" = "json"\n'
        text = (
            config.read_text().replace('"lines"', '"parquet"').replace("[kafka]\n", f"[kafka]\n{serialize}")
        )
        config.write_text(text)
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
        assert invoke("check", config).exit_code == 0
        result = invoke("check", config, "--open")
        assert (result.exit_code, "parquet needs pyarrow: " in result.stderr) == (1, True)

    def test_a_topic_of_offsets_that_a_run_creates_is_ok(
        self, config: Path, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("offsets")
        text = config.read_text().replace('delivery = "at_least_once"\n', "")
        text = re.sub(
            r"(?s)\[offsets\].*\[kafka\]", f'[offsets]\ntype = "topic"\ntopic = "{topic}"\n[kafka]', text
        )
        config.write_text(text)
        result = invoke("check", config, "--open")
        assert result.exit_code == 0, result.output
        told = "does not exist yet, and will be created by a run; this user needs CREATE on it"
        assert [each for each in result.stdout.splitlines() if topic in each] == [
            f"ok: topic {topic}: {told}"
        ]

    def test_says_that_a_path_begins_at_the_working_directory(self, config: Path) -> None:
        sign = '"interceptors" = "sign"\n"interceptors.sign.keyring" = "no.json"\n'
        config.write_text(config.read_text().replace("[kafka]\n", f"[kafka]\n{sign}"))
        result = invoke("check", config, "--open")
        assert (
            f"no.json cannot be read: No such file or directory, in the working directory {Path.cwd()}"
            in result.stderr
        )

    @pytest.mark.parametrize(
        ("line", "problem"),
        [
            ('"headerware.procesing" = "explicit"', "headerware.procesing: "),
            ('"interceptors" = "nonsense"', "interceptors"),
        ],
    )
    def test_places_an_error_of_the_clients_settings(self, config: Path, line: str, problem: str) -> None:
        config.write_text(f"{config.read_text()}{line}\n")
        result = invoke("check", config)
        number = len(config.read_text().splitlines())
        assert result.exit_code == 1
        assert result.stderr.startswith(f"{config}:{number}:1: error: ")
        assert problem in result.stderr

    def test_does_not_place_an_error_that_has_no_line(self, config: Path) -> None:
        config.write_text(f'{config.read_text()}"headerware.config" = "none.toml"\n')
        result = invoke("check", config)
        assert result.exit_code == 1
        assert result.stderr.startswith(f"Error: {config}: {config.parent / 'none.toml'}: cannot be read")

    @pytest.mark.parametrize("form", [(), ("--json",)])
    def test_opened_checks_a_folder_also_if_a_part_of_one_is_missing(
        self, folder: Path, form: tuple[str, ...]
    ) -> None:
        (folder / "chain.toml").write_text(
            '[[interceptors]]\ntype = "claim_check"\n'
            f'stores = {{ archive = {{ type = "folder", path = "{folder / "objects"}" }} }}\n'
        )
        one = folder / "one.toml"
        servers = (folder / "kafka.toml").read_text()
        one.write_text(f'{one.read_text()}{servers}"headerware.config" = "chain.toml"\n')
        result = invoke("check", folder, "--open", *form)
        assert result.exit_code == 1
        assert "object store archive" in result.output
        assert f"{folder / 'two.toml'}" in result.stdout

    def test_checks_a_folder(self, folder: Path) -> None:
        assert len(answer("check", folder)) == 2
        (folder / "one.toml").write_text("nonsense")
        result = invoke("check", folder)
        assert result.exit_code == 1
        assert f"{folder / 'one.toml'}:1:" in result.stderr
        assert f"{folder / 'two.toml'}: ok" in result.stdout
        (folder / "one.toml").write_text((folder / "two.toml").read_text().replace("two-", "one-"))
        (folder / "two.toml").write_text((folder / "one.toml").read_text())
        assert invoke("check", folder).exit_code == 1


class TestStatus:
    def test_of_the_sources_of_a_folder(self, folder: Path) -> None:
        assert answer("run", folder, "--once")
        (folder / "two" / "b").write_text("later\n")
        one, two = answer("status", folder, "--lag")
        assert (one["complete"], one["records"], one["waiting"], one["places"]) == (1, 1, 0, [])
        assert (two["source"], two["waiting"]) == (RunConfig.load(folder / "two.toml").name, 1)
        assert one["at_work_ms"] > 0
        text = invoke("status", folder).output
        assert "2 sources" in text
        assert re.search(rf"{one['source']} +1 +0 +1 +0 +0 +20.*Z \(\d+ s ago\)", text)

    def test_of_all_in_a_topic(
        self, folder: Path, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("offsets")
        embedded_cluster.create_topic(topic)
        for path in folder.glob("*.toml"):
            text = path.read_text().replace('delivery = "at_least_once"\n', "")
            path.write_text(
                re.sub(r"(?s)\[offsets\].*$", f'[offsets]\ntype = "topic"\ntopic = "{topic}"\n', text)
            )
        (folder / "one" / "b").write_text("1\n!\n")
        assert invoke("run", folder, "--once").exit_code == 1
        servers = ["--bootstrap-servers", embedded_cluster.bootstrap_servers]
        one, two = answer("status", *servers, "--topic", topic)
        assert (one["complete"], one["in_work"], one["records"]) == (1, 1, 2)
        assert one["places"] == [{"object": "b", "record_number": 1}]
        assert (two["complete"], two["in_work"], two["waiting"]) == (1, 0, None)
        assert "b to record 1" in invoke("status", *servers, "--topic", topic).output

    def test_of_a_topic_that_is_not_there(self, embedded_cluster: EmbeddedCluster) -> None:
        result = invoke(
            "status", "--bootstrap-servers", embedded_cluster.bootstrap_servers, "--topic", "missing"
        )
        assert (result.exit_code, "missing" in result.output) == (1, True)

    def test_wants_to_know_of_what(self) -> None:
        assert invoke("status").exit_code == 2
        assert invoke("status", "--lag", "--bootstrap-servers", "x").exit_code == 2


class TestPlan:
    def test_tells_what_is_read_and_why(self, config: Path) -> None:
        found = answer("plan", config)
        assert [(each["key"], each["why"], each["known_records"]) for each in found] == [
            ("a", "it is new", 0),
            ("b", "it is new", 0),
        ]
        assert "it is new" in invoke("plan", config).output

    def test_of_a_folder_tells_it_of_each_source(self, folder: Path) -> None:
        names = [RunConfig.load(folder / f"{name}.toml").name for name in ("one", "two")]
        assert [(each["source"], each["key"]) for each in answer("plan", folder)] == [
            (names[0], "a"),
            (names[1], "a"),
        ]
        output = invoke("plan", folder).output
        assert [line[:-1] for line in output.splitlines() if line.endswith(":")] == names

    def test_tells_that_there_is_more(self, config: Path) -> None:
        assert "and more; --limit 10 " in invoke("plan", config, "--limit", 1).output
        assert "and more" not in invoke("plan", config, "--limit", 2).output
        assert len(answer("plan", config, "--limit", 1)) == 1

    def test_stores_nothing(self, config: Path) -> None:
        answer("plan", config)
        assert answer("offsets", "show", config) == []

    def test_leaves_out_what_is_complete(self, config: Path) -> None:
        invoke("run", config, "--once")
        (config.parent / "in" / "b").write_text("changed\n")
        assert [each["why"] for each in answer("plan", config)] == [
            "it has changed since 1 records of it were read"
        ]
        assert len(answer("plan", config, "--all")) == 2

    def test_tells_that_there_is_nothing(self, config: Path) -> None:
        invoke("run", config, "--once")
        assert "nothing to read (2 objects listed)" in invoke("plan", config).output


class TestOffsets:
    def test_are_shown(self, config: Path) -> None:
        invoke("run", config, "--once")
        found = answer("offsets", "show", config)
        assert [(each["key"], each["record_number"], each["complete"]) for each in found] == [
            ("a", 2, True),
            ("b", 1, True),
        ]
        assert [each["key"] for each in answer("offsets", "show", config, "b")] == ["b"]
        assert "2 objects" in invoke("offsets", "show", config).output

    def test_are_reset_one_by_one(self, config: Path) -> None:
        invoke("run", config, "--once")
        assert answer("offsets", "reset", config, "a") == {"reset": ["a"], "ends": []}
        assert [each["key"] for each in answer("plan", config)] == ["a"]

    def test_are_reset_together(self, config: Path) -> None:
        invoke("run", config, "--once")
        assert "2 objects will be read again" in invoke("offsets", "reset", config, "--all").output
        assert len(answer("plan", config)) == 2

    def test_are_not_reset_by_accident(self, config: Path) -> None:
        for arguments in ([], ["a", "--all"]):
            assert invoke("offsets", "reset", config, *arguments).exit_code == 2

    def test_of_a_running_source_are_not_reset(self, config: Path) -> None:
        invoke("run", config, "--once")
        loaded = RunConfig.load(config)
        running = loaded.offsets.open({}, source=loaded.name, writers=loaded.sharing.writers(loaded.name))
        result = invoke("offsets", "reset", config, "a")
        running.close()
        assert result.exit_code == 1
        assert f"nothing was reset: source '{loaded.name}' is at work, as " in result.output
        assert len(answer("offsets", "show", config)) == 2

    def test_of_an_unknown_object_are_an_error(self, config: Path) -> None:
        result = invoke("offsets", "reset", config, "nothing")
        assert result.exit_code == 1
        assert "has no offset of object 'nothing'" in result.output
