"""``headerware run`` as a process: which Python processes have a chain, and what the command sees of it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from headerware.core.other_clients import OTHER_CLIENTS
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring

if TYPE_CHECKING:
    from collections.abc import Callable

RUN: Final = [str(Path(sys.executable).with_name("headerware")), "run"]
Answer = subprocess.CompletedProcess[str]

APPLICATION: Final = """
from confluent_kafka import Producer
import sys
producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
chain = getattr(producer, "chain", None)
print(list(chain.names) if chain is not None else "no chain", *sys.argv[1:])
"""
CHAINED: Final = "['trail']\n"


@pytest.fixture
def application(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(APPLICATION)
    return path


@pytest.fixture
def chain_file(tmp_path: Path) -> Path:
    path = tmp_path / "chain.toml"
    path.write_text('[[interceptors]]\ntype = "trail"\nservice = "orders"\n')
    return path


@pytest.fixture
def run(tmp_path: Path, chain_file: Path) -> Callable[..., Answer]:
    """Return a function that runs a command under ``headerware run`` in the folder of the test."""

    def run(*command: object, config: Path | None = chain_file, **environment: str) -> Answer:
        settings = ["--config", str(config)] if config is not None else []
        return subprocess.run(
            [*RUN, *settings, *map(str, command)],
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run


class TestCommands:
    def test_of_this_python_have_a_chain(self, run: Callable[..., Answer], application: Path) -> None:
        assert (
            run(sys.executable, application, "--config", "its own").stdout == "['trail'] --config its own\n"
        )

    @pytest.mark.parametrize("command", [["app.py"], ["-m", "app"], ["-c", "import app"]])
    def test_without_a_python_run_in_ours(
        self, run: Callable[..., Answer], application: Path, command: list[str]
    ) -> None:
        assert run(*command).stdout == CHAINED

    def test_with_a_right_to_be_run_need_no_path_either(
        self, run: Callable[..., Answer], application: Path
    ) -> None:
        application.chmod(0o755)
        assert run("app.py").stdout == CHAINED

    def test_of_our_environment_are_found_without_its_folder_on_the_path(
        self, run: Callable[..., Answer], tmp_path: Path
    ) -> None:
        (tmp_path / "test_app.py").write_text(
            f"{APPLICATION}\ndef test_it():\n    assert chain.names == ('trail',)\n"
        )
        done = run("pytest", "-q", "-p", "no:cacheprovider", "test_app.py", PATH="/usr/bin:/bin")
        assert done.returncode == 0, done.stdout

    def test_of_a_shell_have_a_chain_in_their_children(
        self, run: Callable[..., Answer], application: Path
    ) -> None:
        assert run("sh", "-c", f"{sys.executable} {application}").stdout == CHAINED

    @pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
    def test_have_a_chain_in_their_processes(
        self, run: Callable[..., Answer], application: Path, tmp_path: Path, method: str
    ) -> None:
        (tmp_path / "parent.py").write_text(
            "import multiprocessing, runpy\n"
            "import confluent_kafka\n"
            "if __name__ == '__main__':\n"
            f"    context = multiprocessing.get_context({method!r})\n"
            f"    process = context.Process(target=runpy.run_path, args=({str(application)!r},))\n"
            "    process.start(); process.join(); raise SystemExit(process.exitcode)\n"
        )
        done = run("parent.py")
        assert (done.returncode, done.stdout) == (0, CHAINED), done.stderr

    @pytest.mark.parametrize("module", ["clients.raw", "serdes.confluent", "testing.embedded"])
    def test_that_import_headerware_first_have_a_chain(
        self, run: Callable[..., Answer], application: Path, module: str
    ) -> None:
        assert run("-c", f"import headerware.{module}; import app").stdout == CHAINED

    def test_keep_their_exit_code_and_their_process(self, run: Callable[..., Answer]) -> None:
        done = run(
            "-c", "import os; print(os.environ['HEADERWARE_RUN'] == str(os.getpid())); raise SystemExit(7)"
        )
        assert (done.returncode, done.stdout) == (7, "True\n")

    def test_get_their_signals(self, chain_file: Path) -> None:
        program = "import time; print('up', flush=True); time.sleep(60)"
        with subprocess.Popen([*RUN, "-c", program], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            process.terminate()
            assert process.wait(60) == -signal.SIGTERM

    def test_end_quietly_when_nobody_reads_on(self, run: Callable[..., Answer]) -> None:
        done = run("sh", "-c", "yes | head -n 1")
        assert (done.stdout, done.stderr) == ("y\n", "")

    def test_that_are_not_there_are_an_error(self, run: Callable[..., Answer]) -> None:
        done = run("no-such-program")
        assert done.returncode == 127
        assert "no program 'no-such-program'" in done.stderr

    def test_that_cannot_be_run_are_an_error(self, run: Callable[..., Answer], tmp_path: Path) -> None:
        text = tmp_path / "program"
        text.write_text("no program")
        text.chmod(0o755)
        done = run(text)
        assert done.returncode == 126
        assert "cannot run" in done.stderr

    def test_of_a_python_without_headerware_are_an_error(
        self, run: Callable[..., Answer], application: Path, tmp_path: Path
    ) -> None:
        venv.create(tmp_path / "other", symlinks=True)
        other = str(tmp_path / "other" / "bin" / "python3")
        done = run(other, application)
        assert done.returncode == 1
        assert f"{other} has no Headerware" in done.stderr.replace("python3.11 ", "python3 ")
        assert " -m pip install --editable " in done.stderr
        # A tool that the application calls is none of our business.
        tool = run("-c", f"import subprocess; subprocess.run([{other!r}, '-c', 'print(5)'], check=True)")
        assert (tool.returncode, tool.stdout) == (0, "5\n"), tool.stderr


class TestActiveChain:
    SAID: Final = "headerware run: trail, from "

    def test_is_not_told_to_those_who_may_read_what_the_command_prints(
        self, run: Callable[..., Answer]
    ) -> None:
        assert run("-c", "pass").stderr == ""

    def test_is_told_in_a_terminal(self, chain_file: Path) -> None:
        terminal, process_end = pty.openpty()
        try:
            command = [*RUN, "--config", str(chain_file), "-c", "pass"]
            subprocess.run(command, stderr=process_end, check=True, timeout=60)
            assert os.read(terminal, 4096).decode() == f"{self.SAID}{chain_file}\r\n"
        finally:
            os.close(terminal)
            os.close(process_end)

    @pytest.mark.parametrize("at", ["first", "last"])
    def test_is_told_on_demand(self, run: Callable[..., Answer], chain_file: Path, at: str) -> None:
        options = ["--config", str(chain_file)]
        options = ["--verbose", *options] if at == "first" else [*options, "--verbose"]
        done = run(*options, "-cprint(5)", config=None)
        assert (done.stdout, done.stderr) == ("5\n", f"{self.SAID}{chain_file}\n")

    def test_that_takes_objects_is_told(self, run: Callable[..., Answer], tmp_path: Path) -> None:
        fields = tmp_path / "fields.toml"
        fields.write_text(
            '[[interceptors]]\ntype = "encrypt_fields"\nkey_id = "cards"\nfields = ["card"]\n'
            'key_service = { type = "file", keyring = "keys.json" }\n'
            '[[interceptors]]\ntype = "serialize"\nvalue = "json"\n'
        )
        keyring = tmp_path / "keys.json"
        edit_keyring(keyring, lambda keys: with_new_key(keys, "cards", "aes-256"), create=True)
        done = run("--verbose", "-c", "pass", config=fields)
        assert "\nheaderware run: encrypt_fields: the application passes objects to produce" in done.stderr

    def test_that_is_off_is_told(self, run: Callable[..., Answer]) -> None:
        done = run("--verbose", "-c", "pass", HEADERWARE_DISABLED="1")
        assert done.stderr == "headerware run: HEADERWARE_DISABLED is set, so clients get no chain\n"


class TestSwitchesOfPython:
    """They would keep Python from importing the module that gives clients their chain."""

    @pytest.mark.parametrize(
        ("switches", "found"),
        [
            (["-I"], "-I"),
            (["-uE"], "-E"),
            (["-W", "error", "-S", "-B"], "-S"),
            (["-Xdev", "-ISE"], "-I -E -S"),
        ],
    )
    def test_are_refused(
        self, run: Callable[..., Answer], application: Path, switches: list[str], found: str
    ) -> None:
        done = run(sys.executable, *switches, application)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"Error: with {found}, {sys.executable} ignores the environment or the site" in done.stderr

    @pytest.mark.parametrize("line", [f"{sys.executable} -I", f"/usr/bin/env -S {sys.executable} -I"])
    def test_of_a_script_are_refused(self, run: Callable[..., Answer], application: Path, line: str) -> None:
        script = application.with_suffix("")
        script.write_text(f"#!{line}\n{APPLICATION}")
        script.chmod(0o755)
        done = run(script)
        assert (done.returncode, done.stdout) == (1, "")
        assert "Error: with -I, " in done.stderr

    @pytest.mark.parametrize(
        "command", [["-uPB", "app.py", "-I"], ["-c", "import app", "-S"], ["-X", "dev", "-mapp", "-E"]]
    )
    def test_of_the_application_or_without_effect_are_taken(
        self, run: Callable[..., Answer], application: Path, command: list[str]
    ) -> None:
        done = run(sys.executable, *command, PYTHONPATH=str(application.parent))
        assert (done.returncode, done.stdout.split()[0]) == (0, "['trail']"), done.stderr

    def test_of_a_program_from_standard_input_are_taken(self, run: Callable[..., Answer]) -> None:
        done = run(sys.executable, "-", "-E")
        assert (done.returncode, done.stderr) == (0, "")

    def test_are_taken_when_all_is_off(self, run: Callable[..., Answer], application: Path) -> None:
        done = run(sys.executable, "-I", application, HEADERWARE_DISABLED="1")
        assert (done.returncode, done.stdout) == (0, "no chain\n"), done.stderr


class TestPythonPath:
    def test_of_the_environment_stays(self, run: Callable[..., Answer], tmp_path: Path) -> None:
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "its_module.py").write_text("print('imported')")
        assert run("-c", "import its_module", PYTHONPATH=str(tmp_path / "lib")).stdout == "imported\n"

    def test_leads_to_the_sitecustomize_of_the_application(
        self, run: Callable[..., Answer], application: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "sitecustomize.py").write_text("its_own = 5")
        done = run(
            "-c",
            "import sitecustomize; print(sitecustomize.its_own); import app",
            PYTHONPATH=str(tmp_path / "lib"),
        )
        assert done.stdout == f"5\n{CHAINED}", done.stderr

    @pytest.mark.parametrize("name", OTHER_CLIENTS)
    @pytest.mark.parametrize("program", ["import {0}", "import {0}, headerware; headerware.instrument()"])
    def test_another_client_gets_one_warning(
        self, run: Callable[..., Answer], tmp_path: Path, name: str, program: str
    ) -> None:
        package, its_class = OTHER_CLIENTS[name]
        (tmp_path / f"{name}.py").write_text(f"class {its_class}: ...")
        done = run("-c", program.format(name))
        assert done.stderr.count("\n") == 1
        assert f"this process imports {package}, whose records pass no chain" in done.stderr
        assert run("-c", program.format(name), HEADERWARE_DISABLED="1").stderr == ""

    @pytest.mark.parametrize("name", OTHER_CLIENTS)
    def test_another_module_of_that_name_gets_none(
        self, run: Callable[..., Answer], tmp_path: Path, name: str
    ) -> None:
        (tmp_path / f"{name}.py").write_text("print('imported')")
        done = run("-c", f"import {name}")
        assert (done.stdout, done.stderr) == ("imported\n", "")

    @pytest.mark.parametrize("stands_there", ["types.ModuleType('kafka3')", "unittest.mock.MagicMock()"])
    def test_whatever_has_such_a_name_is_no_error(
        self, run: Callable[..., Answer], stands_there: str
    ) -> None:
        begin = "import sys, types, unittest.mock, headerware"
        program = f"{begin}; sys.modules['kafka'] = {stands_there}"
        done = run("-c", f"{program}; headerware.instrument()")
        assert (done.stdout, done.stderr) == ("", "")

    def test_a_wrong_switch_does_not_end_the_import_of_another_client(
        self, run: Callable[..., Answer], tmp_path: Path
    ) -> None:
        (tmp_path / "kafka.py").write_text("class KafkaProducer: ...")
        program = "import os; os.environ['HEADERWARE_DISABLED'] = 'maybe'; import kafka; print('imported')"
        assert run("-c", program).stdout == "imported\n"

    def test_without_run_another_client_gets_the_warning_too(self, tmp_path: Path, chain_file: Path) -> None:
        (tmp_path / "kafka.py").write_text("class KafkaProducer: ...")
        program = f"import kafka, headerware; headerware.instrument({str(chain_file)!r})"
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert "this process imports kafka-python, whose records pass no chain" in done.stderr

    def test_does_not_load_clients_for_those_who_use_none(self, run: Callable[..., Answer]) -> None:
        program = "import sys; print({'confluent_kafka', 'headerware', 'msgspec'} & set(sys.modules))"
        assert run("-c", program).stdout == "set()\n"

    def test_of_a_command_within_a_command_names_us_once(self, run: Callable[..., Answer]) -> None:
        program = "import os; print(os.environ['PYTHONPATH'].count('bootstrap'))"
        assert run(*RUN, "-c", program).stdout == "1\n"


class TestChainFile:
    def test_that_is_wrong_is_an_error_before_the_command_runs(
        self, run: Callable[..., Answer], chain_file: Path
    ) -> None:
        chain_file.write_text('[[interceptors]]\ntype = "treil"\n')
        checked = subprocess.run([RUN[0], "check", chain_file], capture_output=True, text=True, check=False)
        done = run("-c", "print('ran')")
        assert (done.returncode, done.stdout, done.stderr) == (1, "", checked.stderr)
        assert "treil" in done.stderr

    def test_that_no_client_can_open_is_an_error_before_the_command_runs(
        self, run: Callable[..., Answer], chain_file: Path, application: Path
    ) -> None:
        chain_file.write_text('[[interceptors]]\ntype = "sign"\nkeyring = "absent.json"\nkey_id = "a"\n')
        done = run(application)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"{chain_file}:3:1: error: keyring ")
        assert "absent.json" in done.stderr
        assert "Traceback" not in done.stderr
        assert run(application, HEADERWARE_DISABLED="1").returncode == 0

    def test_that_is_wrong_is_passed_over_when_all_is_off(
        self, run: Callable[..., Answer], application: Path, chain_file: Path
    ) -> None:
        chain_file.write_text('[[interceptors]]\ntype = "treil"\n')
        done = run("app.py", HEADERWARE_DISABLED="1")
        assert (done.returncode, done.stdout) == (0, "[]\n")
        assert "HEADERWARE_DISABLED is set" in done.stderr

    def test_is_checked_with_when_it_is_read_again(self, run: Callable[..., Answer]) -> None:
        done = run("-c", "print('ran')", HEADERWARE_RELOAD="wach")
        assert (done.returncode, done.stdout) == (1, "")
        assert "HEADERWARE_RELOAD: expected off, watch, signal, found 'wach'" in done.stderr

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (["-cchain.toml", "python"], "name the chain's file by --config chain.toml"),
            (["-c=chain.toml", "python"], "name the chain's file by --config chain.toml"),
            (
                ["chain.toml", "python"],
                "expected a command, found 'chain.toml'; name the chain's file by --config",
            ),
            (
                ["--config", "python", "app.py"],
                "--config takes the chain's file, found 'python'; write --config FILE",
            ),
            (["--config", "-m", "app"], "--config takes the chain's file, found '-m'"),
            (["--config"], "Option '--config' requires an argument"),
        ],
    )
    def test_in_the_wrong_place_is_told_where_it_belongs(
        self, run: Callable[..., Answer], arguments: list[str], told: str
    ) -> None:
        done = run(*arguments, config=None)
        assert (done.returncode, done.stdout) == (2, "")
        assert told in " ".join(done.stderr.split())

    @pytest.mark.parametrize(
        "option", [["--config", "chain.toml"], ["--config=chain.toml"], ["-c", "chain.toml"]]
    )
    def test_after_the_command_is_told_where_it_belongs(
        self, run: Callable[..., Answer], application: Path, option: list[str]
    ) -> None:
        done = run("app.py", *option, config=None)
        assert "for the chain, write --config chain.toml before it" in " ".join(done.stderr.split())

    def test_that_init_has_written_here_is_named(
        self, run: Callable[..., Answer], application: Path, tmp_path: Path
    ) -> None:
        assert "headerware.toml" not in run("app.py", config=None).stderr
        (tmp_path / "headerware.toml").touch()
        told = "get one; to use the file here, write --config headerware.toml"
        assert told in " ".join(run("app.py", config=None).stderr.split())

    def test_of_the_application_is_its_own_if_a_chain_is_named(
        self, run: Callable[..., Answer], application: Path
    ) -> None:
        assert "before it" not in run("app.py", "--config", "own.toml").stderr

    def test_is_no_reason_to_refuse_code(self, run: Callable[..., Answer]) -> None:
        assert run("-cprint('h', 'ran')").stdout == "h ran\n"

    def test_may_come_from_the_environment_and_from_another_folder(
        self, run: Callable[..., Answer], application: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        program = "import os, runpy; os.chdir('elsewhere'); runpy.run_path('../app.py')"
        assert run("-c", program, config=None, HEADERWARE_CONFIG="chain.toml").stdout == CHAINED

    def test_that_is_missing_is_told_with_the_variable_that_names_it(
        self, run: Callable[..., Answer], tmp_path: Path
    ) -> None:
        done = run("-c", "print('ran')", config=None, HEADERWARE_CONFIG="/no/such/chain.toml")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            "Error: /no/such/chain.toml: cannot be read: No such file or directory; did you mean "
            f"'{tmp_path}/chain.toml'?; HEADERWARE_CONFIG names it\n"
        )

    def test_may_be_left_to_the_clients(self, run: Callable[..., Answer], application: Path) -> None:
        assert run("app.py", config=None, HEADERWARE_CONFIG="").stdout == "[]\n"

    @pytest.mark.parametrize(
        ("arguments", "advice"),
        [
            (["-c", "chain.toml", "--", "app.py"], "name the chain's file by --config chain.toml"),
            (["--confg", "chain.toml", "app.py"], "no such option '--confg'; did you mean '--config'?"),
            (["--confg=chain.toml", "app.py"], "no such option '--confg'; did you mean '--config'?"),
        ],
    )
    def test_given_by_a_wrong_option_is_told(
        self, run: Callable[..., Answer], application: Path, arguments: list[str], advice: str
    ) -> None:
        done = run(*arguments, config=None, HEADERWARE_CONFIG="")
        assert (done.returncode, done.stdout) == (2, "")
        assert advice in done.stderr
