"""TOML files: what they may hold, how they include and override one another, and what a wrong one says."""

from __future__ import annotations

import os
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from headerware import Chain, ConfigError, PluginError, load_chain
from headerware.core.context import Context
from headerware.core.errors import KeyringError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("gadgets")


class Folder:
    """Write TOML files, and load the first."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return path

    def load(self, text: str) -> Any:
        return load_chain(self.write("main.toml", text))

    def only(self, text: str) -> Any:
        (interceptor,) = self.load(text)
        return interceptor

    def refused(self, text: str) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            self.load(text)
        return caught.value


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


class TestTables:
    def test_are_interceptors_in_their_order(self, folder: Folder) -> None:
        chain = folder.load(
            """
            [[interceptors]]
            type = "gadget"
            name = "b"
            level = 5
            strict = true
            names = ["x", "y"]

            [[interceptors]]
            type = "gadget"
            topics = ["orders.*", "!orders.eu"]
            """
        )
        assert chain.names == ("b", "gadget")
        first, second = chain
        assert (first.level, first.strict, first.names) == (5, True, ("x", "y"))
        assert second.topics == ("orders.*", "!orders.eu")

    @pytest.mark.parametrize("text", ["", "interceptors = []", "[stacks]", "include = []"])
    def test_may_be_none_at_all(self, folder: Folder, text: str) -> None:
        assert folder.load(text) == Chain()

    def test_of_one_file_keep_their_order_even_where_places_differ(self, folder: Folder) -> None:
        text = '[[interceptors]]\ntype = "late"\n[[interceptors]]\ntype = "early"\n'
        assert folder.load(text).names == ("late", "early")

    def test_a_text_will_do_for_a_list(self, folder: Folder) -> None:
        assert folder.only('[[interceptors]]\ntype = "gadget"\nnames = "a, b"').names == ("a", "b")


class TestStrictTypes:
    @pytest.mark.parametrize(
        ("line", "option"),
        [
            ('level = "5"', "level"),
            ("level = 5.0", "level"),
            ("level = 10", "level"),
            ('strict = "true"', "strict"),
            ("token = 5", "token"),
            ("names = [1]", "names[0]"),
            ("names = {}", "names"),
            ('mode = "hunter2"', "mode"),
            ('topics = [["a"]]', "topics[0]"),
            ("levle = 5", "levle"),
        ],
    )
    def test_a_wrong_one_names_file_table_and_option(self, folder: Folder, line: str, option: str) -> None:
        error = folder.refused(f'[[interceptors]]\ntype = "early"\n[[interceptors]]\ntype = "gadget"\n{line}')
        assert error.path == f"{folder.path}/main.toml: interceptors[1] (gadget).{option}"
        assert (error.file, error.line) == (f"{folder.path}/main.toml", 5)
        assert str(error).startswith(f"{error.file}:5:{error.column}: interceptors[1] (gadget).{option}")
        assert "hunter2" not in str(error)

    def test_a_refusal_of_the_interceptors_own_has_the_path_too(self, folder: Folder) -> None:
        error = folder.refused('[[interceptors]]\ntype = "gadget"\ntoken = "wrong"')
        assert str(error).endswith("interceptors[0] (gadget).token: expected another token")

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("[[interceptors]]\nlevel = 5", "interceptors[0]: expected type ="),
            ("[[interceptors]]\ntype = 5", "interceptors[0]: expected type ="),
            ('[[interceptors]]\ntype = "gadget"\nname = 5', "interceptors[0].name: expected text, found int"),
            ("interceptors = 5", "interceptors: expected [[interceptors]] tables"),
            ('interceptors = ["gadget"]', "interceptors[0]: expected a table, found str"),
            ("[interceptors.gadget]\nlevel = 5", "interceptors: expected [[interceptors]] tables"),
            ("include = 5", "include: expected a file name or a list of them"),
            ("include = [5]", "include: expected a file name or a list of them"),
            ("stacks = []", "stacks: expected a table, found list"),
            ("[stacks]\nx = 5", "stacks.x: expected a table, found int"),
            (
                "[stacks.x]\ninterceptor = []",
                "stacks.x: interceptor: unknown key; did you mean 'interceptors'?",
            ),
            ("[[interceptor]]\n", "interceptor: unknown key; did you mean 'interceptors'?"),
            ('[source]\ntype = "files"', "it configures a source, not a chain"),
            ("bootstrap = 1", "bootstrap: unknown key; known: include, carry, interceptors, stacks"),
            ('[[interceptors]]\nstack = ["x"]', "interceptors[0].stack: expected a stack's name, found list"),
            ('[[interceptors]]\nstack = "x"\nlevel = 5\n[stacks.x]', "interceptors[0]: level: unknown key"),
        ],
    )
    def test_a_wrong_shape_names_its_place(self, folder: Folder, text: str, told: str) -> None:
        error = folder.refused(text)
        where = "" if error.line is None else f":{error.line}:{error.column}"
        assert str(error).startswith(f"{folder.path}/main.toml{where}: {told}")

    def test_an_unknown_type_gets_the_nearest_one(self, folder: Folder) -> None:
        error = folder.refused('[[interceptors]]\ntype = "gadgte"')
        assert isinstance(error, PluginError)
        assert "did you mean 'gadget'" in str(error)

    def test_a_name_that_stands_twice_is_refused(self, folder: Folder) -> None:
        error = folder.refused('[[interceptors]]\ntype = "gadget"\n[[interceptors]]\ntype = "gadget"')
        assert str(error).endswith(
            f"interceptors[1] (gadget): 'gadget' is declared twice, first in {folder.path}/main.toml:1; "
            'remove one of them, or give it a name of its own, such as name = "gadget-2"'
        )
        assert "interceptors[1]" in error.path


class TestFiles:
    def test_a_missing_one_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read: No such file"):
            load_chain(tmp_path / "absent.toml")

    def test_a_folder_is_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="cannot be read"):
            load_chain(tmp_path)

    @pytest.mark.parametrize(
        ("content", "where"),
        [
            (b"[[interceptors]", ":1:15"),
            (b"[[interceptors]]\n  token = hunter2", ":2:11"),
            (b"a = [\n", ":2:1"),
            (b"\xff\xfe", ":1:1"),
            (b'carry = "x"\ninclude = "\xff"', ":2:12"),
            (b"\x00", ":1:1"),
        ],
    )
    def test_what_is_not_toml_is_named(self, tmp_path: Path, content: bytes, where: str) -> None:
        path = tmp_path / "main.toml"
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=rf"main\.toml{where}: is not TOML"):
            load_chain(str(path))


_SIGN = '[[interceptors]]\ntype = "sign"\nkeyring = "k"\n'
_COMPRESS = '[[interceptors]]\ntype = "compress"\n'


class TestLines:
    """Errors about a whole step or a chain have the line of the step."""

    @pytest.mark.parametrize(
        ("text", "place"),
        [
            (f'{_SIGN}on_error = "skip"', "4:1: interceptors[0] (sign).on_error: 'skip' would let"),
            (
                f'[[stacks.s.interceptors]]\n{_SIGN[17:]}[[interceptors]]\nstack = "s"\n{_COMPRESS}',
                "6:1: interceptors[1] (compress): 'compress' comes after 'sign'",
            ),
        ],
    )
    def test_of_a_chain_that_cannot_work(self, folder: Folder, text: str, place: str) -> None:
        assert str(folder.refused(text)).startswith(f"{folder.path}/main.toml:{place}")

    def test_of_a_step_of_an_included_file(self, folder: Folder) -> None:
        folder.write("platform.toml", '\n[[interceptors]]\ntype = "sign"\nkeyring = "k"\n')
        text = 'include = "platform.toml"\n[[interceptors]]\ntype = "sign"\non_error = "skip"'
        assert str(folder.refused(text)).startswith(f"{folder.path}/main.toml:4:1: ")

    def test_of_a_chain_that_cannot_be_opened(self, folder: Folder) -> None:
        text = '[[interceptors]]\ntype = "sign"\nkey_id = "shop"\nkeyring = "no.json"'
        path = folder.write("main.toml", text)
        with pytest.raises(KeyringError) as caught:
            load_chain(path).open(Context(side="producer"))
        assert str(caught.value).startswith(f"{path}:4:1: keyring {folder.path}/no.json cannot be read")
        assert caught.value.path == "interceptors.sign.keyring"


class TestInclude:
    def test_comes_first_and_is_overridden(self, folder: Folder) -> None:
        folder.write("platform.toml", '[[interceptors]]\ntype = "gadget"\nlevel = 5\ntoken = "platform"')
        gadget = folder.only('include = "platform.toml"\n[[interceptors]]\ntype = "gadget"\nlevel = 6')
        assert (gadget.level, gadget.token) == (6, "platform")

    def test_later_ones_override_earlier_ones(self, folder: Folder) -> None:
        folder.write("a.toml", '[[interceptors]]\ntype = "gadget"\nlevel = 1\ntoken = "a"')
        folder.write("b.toml", '[[interceptors]]\ntype = "gadget"\nlevel = 2')
        gadget = folder.only('include = ["a.toml", "b.toml"]')
        assert (gadget.level, gadget.token) == (2, "a")

    def test_files_are_found_beside_the_one_that_includes_them(self, folder: Folder) -> None:
        folder.write("shared/platform.toml", 'include = "more/deep.toml"')
        folder.write("shared/more/deep.toml", '[[interceptors]]\ntype = "gadget"\nlevel = 5')
        assert folder.only('include = "shared/platform.toml"').level == 5

    def test_sources_are_put_into_their_places(self, folder: Folder) -> None:
        folder.write("platform.toml", '[[interceptors]]\ntype = "late"')
        assert folder.load('include = "platform.toml"\n[[interceptors]]\ntype = "early"').names == (
            "early",
            "late",
        )

    def test_one_file_reached_by_two_ways_counts_once_where_it_stands_first(self, folder: Folder) -> None:
        folder.write(
            "base.toml",
            '[[interceptors]]\ntype = "gadget"\nlevel = 1\n[[stacks.s.interceptors]]\ntype = "early"\n',
        )
        folder.write("a.toml", 'include = "base.toml"\n[[interceptors]]\ntype = "gadget"\nlevel = 2')
        folder.write("b.toml", 'include = "./base.toml"\n[[interceptors]]\nstack = "s"')
        chain = folder.load('include = ["a.toml", "b.toml"]')
        assert [(item.type, item.level) for item in chain] == [("gadget", 2), ("early", 3)]

    def test_another_type_for_the_same_name_is_refused(self, folder: Folder) -> None:
        folder.write("platform.toml", '[[interceptors]]\ntype = "gadget"\nname = "x"')
        error = folder.refused('include = "platform.toml"\n[[interceptors]]\ntype = "early"\nname = "x"')
        assert "is of type 'early', but" in str(error)
        assert "platform.toml: interceptors[0] (x) declares 'x' as 'gadget'" in str(error)

    def test_a_cycle_is_shown(self, folder: Folder) -> None:
        folder.write("a.toml", 'include = "b.toml"')
        folder.write("b.toml", 'include = "main.toml"')
        error = folder.refused('include = "a.toml"')
        assert "files include one another: main.toml -> a.toml -> b.toml -> main.toml" in str(error)
        assert str(error).startswith(f"{folder.path}/b.toml:1:1: ")

    def test_of_itself_is_a_cycle(self, folder: Folder) -> None:
        assert "main.toml -> main.toml" in str(folder.refused('include = "./main.toml"'))

    def test_a_missing_one_is_named(self, folder: Folder) -> None:
        error = folder.refused('carry = "x"\ninclude = ["no.toml"]')
        assert error.path == f"{folder.path}/no.toml"
        assert str(error).startswith(
            f"{folder.path}/main.toml:2:12: {folder.path}/no.toml: cannot be read: No such file"
        )


class TestLastLine:
    def test_tells_a_file_that_was_cut_off(self, folder: Folder) -> None:
        tables = '[[interceptors]]\ntype = "gadget"\n[[interceptors]]\ntype = "gadget"\nname = "b"'
        text = f'last_line = "# end"\n{tables}\n# end'
        for length in range(1, len(text)):
            folder.refused(text[:length])
        assert len(folder.load(text)) == 2

    def test_is_for_each_file(self, folder: Folder) -> None:
        folder.write("other.toml", 'last_line = "# end"\ninterceptors = []\n')
        assert "other.toml: expected '# end' as the last line" in str(
            folder.refused('include = "other.toml"')
        )


class TestBounds:
    """Configurations that never end, or end the process: refused, with the files that led there."""

    def test_of_includes_in_depth(self, folder: Folder) -> None:
        for number in range(2000):
            folder.write(f"f{number}.toml", f'include = "f{number + 1}.toml"')
        error = folder.refused('include = "f0.toml"')
        assert "32 deep, the limit: main.toml -> f0.toml -> f1.toml" in str(error)
        assert str(error).startswith(f"{folder.path}/f30.toml:1:1: {folder.path}/f31.toml: ")

    def test_of_includes_in_breadth(self, folder: Folder) -> None:
        for number in range(300):
            folder.write(f"f{number}.toml", "")
        names = ", ".join(f'"f{number}.toml"' for number in range(300))
        error = folder.refused(f"include = [{names}]")
        assert "more than 256 files are included, the limit: main.toml -> f255.toml" in str(error)

    def test_diamonds_are_read_once(self, folder: Folder) -> None:
        for number in range(30):
            folder.write(f"f{number}.toml", f'include = ["f{number + 1}.toml", "f{number + 1}.toml"]')
        folder.write("f30.toml", '[[interceptors]]\ntype = "gadget"')
        assert len(folder.load('include = ["f0.toml", "f0.toml"]')) == 1

    def test_of_stacks_that_double(self, folder: Folder) -> None:
        stacks = "".join(
            f'[[stacks.s{number}.interceptors]]\nstack = "s{number + 1}"\n' * 2 for number in range(30)
        )
        last = '[[stacks.s30.interceptors]]\ntype = "gadget"\n'
        error = folder.refused(f'{stacks}{last}[[interceptors]]\nstack = "s0"\n')
        assert "splice 1000 interceptors, the limits: s0 -> s1 -> s2" in str(error)

    def test_of_stacks_in_depth(self, folder: Folder) -> None:
        stacks = "".join(
            f'[[stacks.s{number}.interceptors]]\nstack = "s{number + 1}"\n' for number in range(2000)
        )
        error = folder.refused(f'{stacks}[[interceptors]]\nstack = "s0"\n')
        assert "nested 32 deep" in str(error)

    @pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "9" * 100_000, "#" * (2 << 20)])
    def test_of_a_file(self, folder: Folder, text: str) -> None:
        path = folder.write("big.toml", text)
        error = folder.refused('include = "big.toml"')
        assert error.path == str(path)

    def test_pipes_and_devices_are_not_waited_for(self, folder: Folder) -> None:
        os.mkfifo(folder.path / "pipe.toml")
        (folder.path / "zero.toml").symlink_to("/dev/zero")
        for name in ("pipe.toml", "zero.toml"):
            error = folder.refused(f'include = "{name}"')
            assert "expected a plain file" in str(error)
            assert error.path == str(folder.path / name)

    def test_a_link_to_itself(self, folder: Folder) -> None:
        (folder.path / "loop.toml").symlink_to("loop.toml")
        assert folder.refused('include = "loop.toml"').path == str(folder.path / "loop.toml")


class TestStacks:
    def test_are_spliced_where_they_are_named(self, folder: Folder) -> None:
        chain = folder.load(
            """
            [[interceptors]]
            type = "gadget"
            name = "first"

            [[interceptors]]
            stack = "both"

            [[interceptors]]
            type = "gadget"
            name = "last"

            [[stacks.both.interceptors]]
            type = "early"

            [[stacks.both.interceptors]]
            type = "late"
            level = 5
            """
        )
        assert chain.names == ("first", "early", "late", "last")
        assert chain.interceptors[2].level == 5

    def test_may_be_nested(self, folder: Folder) -> None:
        chain = folder.load(
            """
            [[interceptors]]
            stack = "outer"
            [[stacks.outer.interceptors]]
            stack = "inner"
            [[stacks.outer.interceptors]]
            type = "late"
            [[stacks.inner.interceptors]]
            type = "early"
            """
        )
        assert chain.names == ("early", "late")

    def test_that_contain_themselves_are_shown(self, folder: Folder) -> None:
        error = folder.refused(
            """
            [[interceptors]]
            stack = "a"
            [[stacks.a.interceptors]]
            stack = "b"
            [[stacks.b.interceptors]]
            stack = "a"
            """
        )
        assert "stack 'a' contains itself: a -> b -> a" in str(error)

    def test_of_an_included_file_are_known(self, folder: Folder) -> None:
        folder.write("platform.toml", '[[stacks.secure.interceptors]]\ntype = "late"')
        assert folder.load('include = "platform.toml"\n[[interceptors]]\nstack = "secure"').names == ("late",)

    def test_that_are_not_defined_get_the_nearest_one(self, folder: Folder) -> None:
        error = folder.refused('[[interceptors]]\nstack = "secrue"\n[stacks.secure]\n[stacks.other]')
        assert str(error).endswith(
            "there is no stack 'secrue'; did you mean 'secure'? defined: other, secure"
        )

    def test_that_are_defined_twice_are_refused(self, folder: Folder) -> None:
        folder.write("platform.toml", "[stacks.secure]")
        error = folder.refused('include = "platform.toml"\n[stacks.secure]')
        assert error.path.endswith("main.toml: stacks.secure")
        assert "platform.toml defines this stack already" in str(error)

    def test_name_their_own_place_in_errors(self, folder: Folder) -> None:
        folder.write("platform.toml", '[[stacks.s.interceptors]]\ntype = "gadget"\nlevle = 5')
        error = folder.refused('include = "platform.toml"\n[[interceptors]]\nstack = "s"')
        assert error.path == f"{folder.path}/platform.toml: stacks.s: interceptors[0] (gadget).levle"


class TestFilePaths:
    def test_are_relative_to_the_file_they_stand_in(self, folder: Folder) -> None:
        folder.write("shared/platform.toml", '[[interceptors]]\ntype = "gadget"\nkeyring = "keys.json"')
        assert folder.only('include = "shared/platform.toml"').keyring == f"{folder.path}/shared/keys.json"

    def test_in_a_stack_are_relative_to_the_stacks_file(self, folder: Folder) -> None:
        folder.write("shared/platform.toml", '[[stacks.s.interceptors]]\ntype = "gadget"\ncache = "c"')
        gadget = folder.only('include = "shared/platform.toml"\n[[interceptors]]\nstack = "s"')
        assert gadget.cache == f"{folder.path}/shared/c"

    def test_of_a_sign_keyring_are_among_them(self, folder: Folder) -> None:
        folder.write("shared/platform.toml", '[[interceptors]]\ntype = "sign"\nkeyring = "keys.json"')
        assert folder.only('include = "shared/platform.toml"').keyring == f"{folder.path}/shared/keys.json"

    def test_that_are_absolute_stay(self, folder: Folder) -> None:
        assert folder.only('[[interceptors]]\ntype = "gadget"\nkeyring = "/etc/keys"').keyring == "/etc/keys"

    def test_of_other_options_stay(self, folder: Folder) -> None:
        assert folder.only('[[interceptors]]\ntype = "gadget"\ntoken = "keys.json"').token == "keys.json"

    def test_that_are_overridden_flat_are_the_working_directorys(self, folder: Folder) -> None:
        path = folder.write("main.toml", '[[interceptors]]\ntype = "gadget"\nkeyring = "keys.json"')
        (gadget,) = Chain.from_config(
            {"headerware.config": path, "interceptors.gadget.keyring": "other.json"}
        )
        assert gadget.keyring == "other.json"  # type: ignore[attr-defined]


class TestEnvironment:
    @pytest.fixture(autouse=True)
    def variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TOKEN", "hunter2")
        monkeypatch.setenv("LEVEL", "7")
        monkeypatch.setenv("LIST", "a, b")
        monkeypatch.setenv("EMPTY", "")
        monkeypatch.delenv("ABSENT", raising=False)

    @pytest.mark.parametrize(
        ("line", "option", "value"),
        [
            ('token = "${env:TOKEN}"', "token", "hunter2"),
            ('token = "a-${env:TOKEN}-${env:LEVEL}"', "token", "a-hunter2-7"),
            ('token = "${env:ABSENT:-default}"', "token", "default"),
            ('token = "${env:ABSENT:-}"', "token", ""),
            ('token = "${env:TOKEN:-default}"', "token", "hunter2"),
            ('token = "${env:EMPTY:-default}"', "token", ""),
            ('token = "$${env:TOKEN}"', "token", "${env:TOKEN}"),
            ('token = "$$"', "token", "$$"),
            ('token = "$HOME"', "token", "$HOME"),
            ('level = "${env:LEVEL}"', "level", 7),
            ('level = "${env:ABSENT:-8}"', "level", 8),
            ('names = "${env:LIST}"', "names", ("a", "b")),
            ('names = ["x", "${env:TOKEN}"]', "names", ("x", "hunter2")),
        ],
    )
    def test_is_put_in(self, folder: Folder, line: str, option: str, value: object) -> None:
        assert getattr(folder.only(f'[[interceptors]]\ntype = "gadget"\n{line}'), option) == value

    def test_that_is_put_in_is_not_read_again(self, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TRICK", "${env:TOKEN}")
        assert (
            folder.only('[[interceptors]]\ntype = "gadget"\ntoken = "${env:TRICK}"').token == "${env:TOKEN}"
        )

    def test_that_is_missing_says_which_and_where(self, folder: Folder) -> None:
        error = folder.refused('[[interceptors]]\ntype = "gadget"\ntoken = "${env:ABSENT}"')
        assert error.path.endswith("interceptors[0] (gadget).token")
        assert "no variable 'ABSENT'; set it, or write ${env:ABSENT:-default}" in str(error)

    @pytest.mark.parametrize("text", ["${env:A-B}", "${env:}", "${env:2ND}", "${env:TOKEN", "x${env:A B:-c}"])
    def test_that_is_malformed_says_what_the_form_is(self, folder: Folder, text: str) -> None:
        error = folder.refused(f'[[interceptors]]\ntype = "gadget"\ntoken = "{text}"')
        assert error.path.endswith("interceptors[0] (gadget).token")
        assert "expected ${env:NAME} or ${env:NAME:-default}" in str(error)

    def test_never_shows_in_an_error(self, folder: Folder) -> None:
        for option in ("level", "strict", "mode", "on_error", "ratio"):
            error = folder.refused(f'[[interceptors]]\ntype = "gadget"\n{option} = "${{env:TOKEN}}"')
            assert "hunter2" not in str(error)
