from __future__ import annotations

import base64
import errno
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from headerware import Record, load_chain
from headerware.cli import main
from headerware.core.atomic_files import replace_file
from headerware.keyring import (
    encode_snapshot,
    key_thumbprint,
    read_certificate,
    read_keyring,
    sign_snapshot,
    with_new_key,
)
from headerware.keyring.certificate import IssuerKeys
from headerware.keyring.writing import edit_keyring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["keys", *map(str, arguments)])


def done(*arguments: str | Path) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def done_json(*arguments: str | Path) -> Any:
    return json.loads(done(*arguments, "--json"))["result"]


def wire_key(chain: Path) -> Any:
    (record,) = load_chain(chain).open().send([Record("orders", b"v", b"k-1")])
    return record.key


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    done("generate", "--keyring", path, "--id", "orders")
    return path


class TestWrappingKeys:
    """Key-encryption keys: made, rotated and deleted."""

    @pytest.fixture
    def wrapping(self, tmp_path: Path) -> Path:
        path = tmp_path / "wrapping.json"
        done("generate", "--keyring", path, "--id", "orders", "--algorithm", "aes-256")
        return path

    def test_are_for_wrapping_without_being_told(self, wrapping: Path) -> None:
        (row,) = done_json("list", "--keyring", wrapping)["keys"]
        assert (row["algorithm"], row["use"], row["holds"]) == ("aes-256", ["wrap"], "secret")

    def test_cannot_be_for_signing(self, tmp_path: Path) -> None:
        made = ("generate", "--keyring", tmp_path / "k", "--id", "x", "--algorithm", "aes-256")
        result = run(*made, "--use", "sign")
        assert (result.exit_code, "cannot sign" in result.stderr) == (1, True)
        result = run("generate", "--keyring", tmp_path / "k", "--id", "x", "--use", "wrap")
        assert (result.exit_code, "takes aes-256" in result.stderr) == (1, True)
        result = run(*made, "--topic", "orders")
        assert (result.exit_code, "for keys that sign" in result.stderr) == (1, True)

    def test_a_secret_for_record_keys_and_its_rewrapping(self, wrapping: Path) -> None:
        chain = wrapping.with_name("chain.toml")
        text = '[[interceptors]]\ntype = "encrypt"\nkey_id = "orders"\n'
        text += 'key_service = { type = "file", keyring = "wrapping.json" }\n'
        chain.write_text(text)
        secret = done("key-secret", chain).strip()
        chain.write_text(f'{text}key = "deterministic"\n')  # as the page has it, before the secret is there
        assert done("key-secret", chain).strip() not in {"", secret}
        chain.write_text(f'{text}key = "deterministic"\nkey_secret = "{secret}"\n')
        again = done("key-secret", chain).strip()
        assert again != secret
        keys = [wire_key(chain)]
        chain.write_text(f'{text}key = "deterministic"\nkey_secret = "{again}"\n')
        assert wire_key(chain) == keys[0]
        chain.write_text(f'{text}deterministic_headers = ["tenant"]\n')
        assert done("key-secret", chain).strip() not in {"", secret}
        result = run("key-secret", chain, "--interceptor", "other")
        assert (result.exit_code, "an encrypt interceptor 'other'" in result.stderr) == (1, True)

    def test_rotate(self, wrapping: Path) -> None:
        assert "wraps with version 2 from now on" in done("rotate", "--keyring", wrapping, "--id", "orders")
        later = ("--not-before", "2100-01-01T00:00:00Z")
        text = done("rotate", "--keyring", wrapping, "--id", "orders", *later)
        assert "version 3 from 2100-01-01T00:00:00Z" in text
        assert read_keyring(wrapping).current_key("orders", "wrap", 0).version == 2

    def test_a_rotation_says_when_running_producers_follow(self, wrapping: Path, path: Path) -> None:
        assert "data_key_max_age_ms from then" in done("rotate", "--keyring", wrapping, "--id", "orders")
        assert "data_key_max_age_ms" not in done("rotate", "--keyring", path, "--id", "orders")

    def test_are_deleted_for_good(self, wrapping: Path) -> None:
        secret = read_keyring(wrapping).keys[0].secret
        assert secret is not None
        done("rotate", "--keyring", wrapping, "--id", "orders")
        (row,) = done_json(
            *("delete", "--keyring", wrapping, "--id", "orders", "--version", "1", "--yes", "--reason", "law")
        )["keys"]
        assert (row["status"], row["holds"], row["reason"]) == ("deleted", "nothing", "law")
        assert row["deleted"] is not None
        assert base64.b64encode(secret) not in wrapping.read_bytes()
        assert [key.status for key in read_keyring(wrapping).keys] == ["deleted", "active"]
        done("revoke", "--yes", "--keyring", wrapping, "--id", "orders")
        assert [key.status for key in read_keyring(wrapping).keys] == ["deleted", "revoked"]

    def test_a_key_that_signs_is_not_deleted(self, path: Path) -> None:
        result = run("delete", "--keyring", path, "--id", "orders", "--yes")
        assert (result.exit_code, "revoke it" in result.stderr) == (1, True)


class TestConfirmation:
    """What cannot be taken back is asked for on a terminal; scripts say --yes."""

    @pytest.fixture
    def terminal(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
        """Run a command whose standard input is a terminal, on which somebody has typed a line."""
        mine, other = os.openpty()
        with os.fdopen(other, encoding="utf-8") as stdin:

            def typed(line: str, *arguments: str | Path) -> int:
                os.write(mine, f"{line}\n".encode())
                monkeypatch.setattr(sys, "stdin", stdin)
                with pytest.raises(SystemExit) as ended:
                    main(["keys", *map(str, arguments)])
                return int(ended.value.code or 0)

            yield typed
        os.close(mine)

    @pytest.mark.parametrize("command", ["delete", "revoke"])
    def test_without_a_terminal_needs_yes(self, tmp_path: Path, command: str) -> None:
        path = tmp_path / "keys.json"
        done("generate", "--keyring", path, "--id", "orders", "--algorithm", "aes-256")
        before = path.read_bytes()
        result = CliRunner().invoke(main, ["keys", command, "--keyring", str(path), "--id", "orders"], "y\n")
        assert (result.exit_code, "give --yes" in result.stderr) == (2, True)
        assert path.read_bytes() == before
        done(command, "--keyring", path, "--id", "orders", "--yes")
        assert read_keyring(path).keys[0].status == f"{command}d"

    def test_without_any_input_needs_yes(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(sys, "stdin", None)
        with pytest.raises(SystemExit) as ended:
            main(["keys", "revoke", "--keyring", str(path), "--id", "orders"])
        assert (ended.value.code, "give --yes" in capsys.readouterr().err) == (2, True)

    def test_a_terminal_is_asked(
        self, path: Path, terminal: Callable[..., int], capfd: pytest.CaptureFixture[str]
    ) -> None:
        arguments = ("revoke", "--keyring", path, "--id", "orders", "--version", "1", "--json")
        assert terminal("n", *arguments) == 1
        asked = capfd.readouterr()
        assert "Revoke key 'orders', version 1? This cannot be undone" in asked.err
        assert json.loads(asked.out)["ok"] is False
        assert read_keyring(path).keys[0].status == "active"
        assert terminal("y", *arguments) == 0
        assert json.loads(capfd.readouterr().out)["result"]["keys"][0]["status"] == "revoked"


class TestSnapshots:
    @pytest.fixture
    def roots(self, tmp_path: Path) -> tuple[Path, Path]:
        private, public = tmp_path / "root.json", tmp_path / "root.pub"
        made = ("--id", "root", "--algorithm", "ed25519", "--use", "snapshots")
        done("generate", "--keyring", private, *made)
        done("export-public", "--keyring", private, "--out", public)
        return private, public

    def sign(self, path: Path, roots: tuple[Path, Path], out: Path, *more: str) -> Result:
        root = ("--root", roots[0], "--root-id", "root")
        return run("sign-snapshot", "--keyring", path, *root, "--out", out, *more)

    def test_count_up_and_are_verified(self, path: Path, roots: tuple[Path, Path], tmp_path: Path) -> None:
        out = tmp_path / "keys.snapshot"
        for counter in (1, 2, 3):
            result = self.sign(path, roots, out)
            assert result.exit_code == 0, result.output
            assert f"wrote snapshot {counter} to" in result.output
        assert out.stat().st_mode & 0o777 == 0o600
        verified = done_json("verify-snapshot", "--snapshot", out, "--root", roots[1], "--after", "2")
        assert (verified["snapshot"]["counter"], verified["keys"][0]["id"]) == (3, "orders")
        assert "orders" in done("verify-snapshot", "--snapshot", out, "--root", roots[1])

    def test_of_public_halves_are_for_everyone(self, roots: tuple[Path, Path], tmp_path: Path) -> None:
        out = tmp_path / "public.snapshot"
        assert self.sign(roots[1], roots, out).exit_code == 0
        assert out.stat().st_mode & 0o777 == 0o644

    def test_are_signed_by_the_root_that_has_begun(
        self, path: Path, roots: tuple[Path, Path], tmp_path: Path
    ) -> None:
        out = tmp_path / "keys.snapshot"
        rotate = ("rotate", "--keyring", roots[0], "--id", "root", "--public", roots[1])
        done(*rotate, "--lead", "10m")
        for version in (1, 3):
            assert self.sign(path, roots, out).exit_code == 0
            shown = done_json("verify-snapshot", "--snapshot", out, "--root", roots[1])["snapshot"]
            assert shown["root_version"] == version
            done(*rotate)

    def test_never_go_back(self, path: Path, roots: tuple[Path, Path], tmp_path: Path) -> None:
        out = tmp_path / "keys.snapshot"
        assert self.sign(path, roots, out, "--counter", "7").exit_code == 0
        for counter in ("7", "6"):
            result = self.sign(path, roots, out, "--counter", counter)
            assert (result.exit_code, "goes back" in result.stderr) == (1, True)
        result = run("verify-snapshot", "--snapshot", out, "--root", roots[1], "--after", "7")
        assert (result.exit_code, "expected more than 7" in result.stderr) == (1, True)

    def test_expire(self, path: Path, roots: tuple[Path, Path], tmp_path: Path) -> None:
        out, now = tmp_path / "keys.snapshot", datetime.now(UTC)
        long_ago = {"created": now - timedelta(days=2), "expires": now - timedelta(days=1)}
        root = read_keyring(roots[0]).keys[0]
        out.write_bytes(encode_snapshot(sign_snapshot(read_keyring(path), root, counter=1, **long_ago)))
        result = run("verify-snapshot", "--snapshot", out, "--root", roots[1])
        assert (result.exit_code, "expired at" in result.stderr) == (1, True)

    def test_of_another_root_are_neither_verified_nor_replaced(
        self, path: Path, roots: tuple[Path, Path], tmp_path: Path
    ) -> None:
        out, others = tmp_path / "keys.snapshot", tmp_path / "others.json"
        assert self.sign(path, roots, out).exit_code == 0
        made = ("--id", "root", "--algorithm", "ed25519", "--use", "snapshots")
        done("generate", "--keyring", others, *made)
        result = self.sign(path, (others, roots[1]), out)
        assert (result.exit_code, "was changed, or was not signed" in result.stderr) == (1, True)
        result = run("verify-snapshot", "--snapshot", out, "--root", others)
        assert result.exit_code == 1


class TestGenerate:
    def test_makes_the_file_and_an_active_key(self, tmp_path: Path) -> None:
        path = tmp_path / "new.json"
        (row,) = done_json("generate", "--keyring", path, "--id", "audit", "--algorithm", "ed25519")["keys"]
        assert (row["id"], row["version"], row["algorithm"], row["status"]) == (
            "audit",
            1,
            "ed25519",
            "active",
        )
        assert read_keyring(path).current_key("audit", "sign", 0).algorithm == "ed25519"

    def test_an_id_that_is_there_is_to_be_rotated(self, path: Path) -> None:
        result = run("generate", "--keyring", path, "--id", "orders")
        assert result.exit_code == 1
        assert "rotate it" in result.stderr
        assert result.stderr.count("\n") == 1

    def test_an_id_of_another_algorithm_says_what_to_do(self, path: Path) -> None:
        result = run("generate", "--keyring", path, "--id", "orders", "--algorithm", "aes-256")
        told = "already: rotate it for a new version of hmac-sha256; for aes-256, choose another id"
        assert told in result.stderr

    def test_unknown_algorithm_is_wrong_use(self, path: Path) -> None:
        assert run("generate", "--keyring", path, "--id", "x", "--algorithm", "md5").exit_code == 2

    @pytest.mark.parametrize("key_id", ["", " x", "a\nb", "a\u202eb", "a\x1b[2J", "é" * 128])
    @pytest.mark.parametrize("command", ["generate", "rotate", "revoke"])
    def test_an_id_that_cannot_be_one_is_wrong_use(self, path: Path, command: str, key_id: str) -> None:
        result = run(command, "--keyring", path, "--id", key_id)
        assert result.exit_code == 2
        assert "a key's id must be 1 to 255 bytes of printable text" in " ".join(result.stderr.split())

    def test_takes_limits(self, path: Path) -> None:
        limits = (
            *("--topic", "orders.*", "--topic", "!orders.test", "--use", "sign", "--use", "audit"),
            *("--not-before", "2026-01-01T00:00:00Z", "--not-after", "2999-12-31T23:59:59+01:00"),
        )
        row = done_json("generate", "--keyring", path, "--id", "limited", *limits)["keys"][0]
        shown = {name: row[name] for name in ("topics", "use", "not_before", "not_after")}
        assert shown == {
            "topics": ["orders.*", "!orders.test"],
            "use": ["sign", "audit"],
            "not_before": "2026-01-01T00:00:00Z",
            "not_after": "2999-12-31T22:59:59Z",
        }
        key = read_keyring(path).versions("limited")[-1]
        assert (key.topics, key.use) == (("orders.*", "!orders.test"), ("sign", "audit"))
        assert (key.not_before, key.not_after) == (
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime(2999, 12, 31, 22, 59, 59, tzinfo=UTC),
        )

    @pytest.mark.parametrize("moment", ["2026-01-01", "2026-01-01T00:00:00", "tomorrow", "", "1767225600"])
    def test_a_time_without_a_zone_is_wrong_use(self, path: Path, moment: str) -> None:
        result = run("generate", "--keyring", path, "--id", "x", "--not-after", moment)
        assert result.exit_code == 2
        assert "such as 2026-12-31T23:59:59Z" in " ".join(result.stderr.split())

    def test_times_that_leave_no_moment_are_refused(self, path: Path) -> None:
        limits = ("--not-before", "2999-02-01T00:00:00Z", "--not-after", "2999-01-01T00:00:00Z")
        result = run("generate", "--keyring", path, "--id", "x", *limits)
        assert (result.exit_code, "its not_after is earlier" in result.stderr) == (1, True)

    def test_a_key_that_has_expired_is_refused(self, path: Path) -> None:
        before = path.read_bytes()
        result = run("generate", "--keyring", path, "--id", "x", "--not-after", "2026-01-01T00:00:00Z")
        assert result.exit_code == 1
        assert "its not_after is 2026-01-01T00:00:00Z; give a later not_after" in result.stderr
        assert path.read_bytes() == before

    def test_a_use_that_never_signs_is_told(self, path: Path) -> None:
        text = done("generate", "--keyring", path, "--id", "x", "--use", "audit")
        assert "neither signs nor verifies records: its use is audit" in text

    def test_missing_option_is_wrong_use(self, path: Path) -> None:
        assert run("generate", "--keyring", path).exit_code == 2


class TestList:
    def test_shows_every_version(self, path: Path) -> None:
        done("rotate", "--keyring", path, "--id", "orders")
        head, first, second = done("list", "--keyring", path).splitlines()
        assert head.split()[:4] == ["id", "version", "algorithm", "status"]
        assert first.split()[:4] == ["orders", "1", "hmac-sha256", "retired"]
        assert second.split()[:4] == ["orders", "2", "hmac-sha256", "active"]

    def test_shows_limits(self, path: Path) -> None:
        until = "2026-12-31T23:59:59Z"
        done(
            "generate",
            "--keyring",
            path,
            "--id",
            "limited",
            "--topic",
            "a",
            "--topic",
            "b.*",
            "--not-after",
            until,
        )
        head, plain, limited = done("list", "--keyring", path).splitlines()
        columns = ["topics", "use", "not_before", "not_after"]
        assert head.split()[-4:] == columns
        assert plain.split()[-4:] == ["-", "sign", "-", "-"]
        assert limited.split()[-4:] == ["a,b.*", "sign", "-", until]

    @pytest.mark.parametrize("algorithm", ["hmac-sha256", "aes-256", "ed25519", "ecdsa-p256"])
    def test_fingerprints_tell_keys_apart_that_have_one_name(self, tmp_path: Path, algorithm: str) -> None:
        prints = []
        for file in (tmp_path / "ours.json", tmp_path / "theirs.json"):
            done("generate", "--keyring", file, "--id", "shop", "--algorithm", algorithm)
            (row,) = done_json("list", "--keyring", file)["keys"]
            assert row["fingerprint"] in done("list", "--keyring", file)
            prints.append(row["fingerprint"])
        assert len({*prints}) == 2
        assert [len(print_) for print_ in prints] == [8, 8]

    def test_a_public_half_has_the_fingerprint_of_its_key(self, tmp_path: Path) -> None:
        keyring, public = tmp_path / "keys.json", tmp_path / "public.json"
        done("generate", "--keyring", keyring, "--id", "shop", "--algorithm", "ed25519")
        done("export-public", "--keyring", keyring, "--out", public)
        rows = [done_json("list", "--keyring", file)["keys"][0] for file in (keyring, public)]
        assert rows[0]["fingerprint"] == rows[1]["fingerprint"]

    def test_json_has_times_and_revocation(self, path: Path) -> None:
        done(
            "revoke",
            "--yes",
            "--keyring",
            path,
            "--id",
            "orders",
            "--from",
            "lkc-1/t.a:3:9",
            "--reason",
            "lost",
        )
        (row,) = done_json("list", "--keyring", path)["keys"]
        assert (row["revoked_from"], row["reason"], row["revoked"][-1]) == ({"lkc-1/t.a[3]": 9}, "lost", "Z")

    def test_missing_file_is_one_line(self, tmp_path: Path) -> None:
        result = run("list", "--keyring", tmp_path / "none.json")
        assert result.exit_code == 1
        assert "cannot be read" in result.stderr
        assert result.stderr.count("\n") == 1

    def test_open_permissions_are_refused(self, path: Path) -> None:
        path.chmod(0o640)
        assert "chmod 600" in run("list", "--keyring", path).stderr
        assert "orders" in done("list", "--keyring", path, "--permissions", "kubernetes")


class TestRotate:
    def test_signs_with_the_next_version(self, path: Path) -> None:
        text = done("rotate", "--keyring", path, "--id", "orders")
        assert text == "key 'orders' signs with version 2 from now on\n"
        assert read_keyring(path).current_key("orders", "sign", 0).version == 2

    def test_keeps_topics_and_use_and_times(self, path: Path) -> None:
        limits = ("--topic", "orders", "--use", "audit", "--not-before", "2026-01-01T00:00:00Z")
        until = ("--not-after", "2999-01-01T00:00:00Z")
        (old,) = done_json("generate", "--keyring", path, "--id", "x", *limits, *until)["keys"]
        (new,) = done_json("rotate", "--keyring", path, "--id", "x")["keys"]
        kept = ("topics", "use", "not_before", "not_after")
        assert [new[name] for name in kept] == [old[name] for name in kept]

    def test_takes_new_times(self, path: Path) -> None:
        times = ("--not-before", "2026-06-01T00:00:00Z", "--not-after", "2999-01-01T00:00:00Z")
        (new,) = done_json("rotate", "--keyring", path, "--id", "orders", *times)["keys"]
        assert (new["not_before"], new["not_after"]) == (times[1], times[3])
        assert read_keyring(path).versions("orders")[0].not_after is None

    def test_an_expired_key_takes_a_new_end(self, path: Path) -> None:
        made, ended = datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
        edit_keyring(path, lambda ring: with_new_key(ring, "x", "ed25519", not_after=ended, now=made))
        result = run("rotate", "--keyring", path, "--id", "x")
        assert result.exit_code == 1
        assert "not_after is 2026-01-01T00:00:00Z; give a later not_after" in result.stderr
        done("rotate", "--keyring", path, "--id", "x", "--not-after", "2999-01-01T00:00:00Z")

    def test_unknown_key_is_refused(self, path: Path) -> None:
        result = run("rotate", "--keyring", path, "--id", "nobody")
        assert (result.exit_code, "'orders'" in result.stderr) == (1, True)


class TestLead:
    def test_says_which_version_signs_until_when(self, path: Path) -> None:
        before = datetime.now(UTC)
        answer = done_json("rotate", "--keyring", path, "--id", "orders", "--lead", "10m")
        begins = datetime.fromisoformat(answer["begins"])
        assert timedelta(minutes=10) <= begins - before <= timedelta(minutes=11)
        assert (answer["keys"][0]["not_before"], answer["until_then"]) == (answer["begins"], 1)
        ring, begins_ms = read_keyring(path), int(begins.timestamp() * 1000)
        assert [ring.current_key("orders", "sign", begins_ms - left).version for left in (1, 0)] == [1, 2]
        text = done("rotate", "--keyring", path, "--id", "orders", "--lead", "20m")
        assert "signs with version 3 from 2" in text
        assert "until then version 1 does\n" in text
        assert f"bring {path} to all readers before then" in text

    def test_of_a_key_that_cannot_sign_meanwhile_is_told(self, path: Path) -> None:
        done("revoke", "--keyring", path, "--id", "orders", "--yes")
        text = done("rotate", "--keyring", path, "--id", "orders", "--lead", "10m")
        assert "until then nothing signs: no version before it may" in text

    def test_is_one_way_to_say_when_it_begins(self, path: Path) -> None:
        both = ("--lead", "10m", "--not-before", "2999-01-01T00:00:00Z")
        result = run("rotate", "--keyring", path, "--id", "orders", *both)
        assert (result.exit_code, "give one" in result.stderr) == (2, True)
        assert len(read_keyring(path).keys) == 1


@pytest.mark.parametrize("algorithm", ["ed25519", "ecdsa-p256", "rsa-pss-sha256"])
@pytest.mark.parametrize("form", ["keyring", "jwks"])
class TestRotateWithPublic:
    @pytest.fixture
    def shop(self, tmp_path: Path, algorithm: str) -> Path:
        path = tmp_path / "shop.json"
        done("generate", "--keyring", path, "--id", "shop", "--algorithm", algorithm)
        return path

    @pytest.fixture
    def public(self, shop: Path, form: str) -> Path:
        """Return the readers' file, which has the key of another producer, too."""
        other, path = shop.with_name("other.json"), shop.with_name("public.json")
        done("generate", "--keyring", other, "--id", "other", "--algorithm", "ed25519")
        jwks = ("--jwks",) if form == "jwks" else ()
        done("export-public", "--keyring", shop, "--keyring", other, "--out", path, *jwks)
        return path

    def test_readers_have_the_version_before_it_signs(self, shop: Path, public: Path, form: str) -> None:
        rotated = ("rotate", "--keyring", shop, "--id", "shop", "--public", public)
        answer = done_json(*rotated, "--lead", "10m")
        assert (answer["public"], answer["until_then"]) == (str(public), 1)
        made = read_keyring(shop).versions("shop")[-1]
        there = read_keyring(public)
        assert [(key.id, key.version) for key in there.keys] == [("shop", 1), ("other", 1), ("shop", 2)]
        assert there.keys[-1].public == made.public
        assert not there.is_secret
        assert ('"keys"' in public.read_text(), '"format"' in public.read_text()) == (True, form == "keyring")
        assert f"is in {public}, which was written first" in done(*rotated)
        assert len(read_keyring(public).versions("shop")) == 3

    def test_is_run_again_after_it_was_interrupted_between_the_files(
        self, shop: Path, public: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = shop.read_bytes()

        def cut_off(target: Path, *args: Any, **options: Any) -> None:
            if target == shop:
                raise OSError(errno.ENOSPC, "No space left on device")
            replace_file(target, *args, **options)

        rotated = ("rotate", "--keyring", shop, "--id", "shop", "--public", public)
        with monkeypatch.context() as patch:
            patch.setattr("headerware.keyring.writing.replace_file", cut_off)
            result = run(*rotated)
        assert (result.exit_code, "shop.json cannot be written: No space left" in result.stderr) == (1, True)
        assert shop.read_bytes() == before
        done(*rotated)
        signing = read_keyring(shop).current_key("shop", "sign", 0)
        assert read_keyring(public).verifying_key("shop", signing.version).public == signing.public
        assert signing.version == 3, "readers have another version 2, which nobody has"

    def test_a_version_stays_revoked(self, shop: Path, public: Path, form: str) -> None:
        done("rotate", "--keyring", shop, "--id", "shop", "--public", public)
        revoked = ("--id", "shop", "--version", "1", "--yes")
        rows = done_json("revoke", "--keyring", shop, *revoked, "--public", public)["keys"]
        assert [(row["version"], row["status"]) for row in rows] == [(1, "revoked")]
        done("rotate", "--keyring", shop, "--id", "shop", "--public", public)
        there = {key.version: key.status for key in read_keyring(public).versions("shop")}
        if form == "keyring":
            assert there == {1: "revoked", 2: "retired", 3: "active"}
        else:
            assert set(there) == {2, 3}, "a JWKS revokes a key by leaving it out"

    def test_a_version_that_was_revoked_without_the_readers_is_revoked_there_by_a_rotation(
        self, shop: Path, public: Path, form: str
    ) -> None:
        done("revoke", "--keyring", shop, "--id", "shop", "--yes")
        done("rotate", "--keyring", shop, "--id", "shop", "--public", public)
        there = {key.version: key.status for key in read_keyring(public).versions("shop")}
        if form == "keyring":
            assert there == {1: "revoked", 2: "active"}
        else:
            assert set(there) == {2}, "a JWKS revokes a key by leaving it out"

    def test_a_link_stays_and_its_target_is_changed(self, shop: Path, public: Path) -> None:
        link = shop.with_name("link.json")
        link.symlink_to(public)
        done("rotate", "--keyring", shop, "--id", "shop", "--public", link)
        assert link.is_symlink()
        assert len(read_keyring(public).versions("shop")) == 2

    @pytest.mark.parametrize("which", [("--version", "1"), ()])
    def test_a_revocation_is_run_again_after_it_was_interrupted_between_the_files(
        self, shop: Path, public: Path, form: str, which: tuple[str, ...]
    ) -> None:
        done("rotate", "--keyring", shop, "--id", "shop", "--public", public)
        before = shop.read_bytes()
        revoked: tuple[str | Path, ...] = ("revoke", "--keyring", shop, "--id", "shop", *which, "--yes")
        revoked = (*revoked, "--public", public)
        done(*revoked)
        first = public.read_bytes()
        shop.write_bytes(before)
        done(*revoked)
        assert read_keyring(shop).verifying_key("shop", 1).status == "revoked"
        if form == "jwks":
            assert public.read_bytes() == first

    def test_a_version_that_was_taken_from_the_readers_does_not_come_back(
        self, shop: Path, public: Path, form: str
    ) -> None:
        done("rotate", "--keyring", shop, "--id", "shop", "--public", public)
        before = shop.read_bytes()
        done("revoke", "--keyring", shop, "--id", "shop", "--version", "1", "--yes", "--public", public)
        shop.write_bytes(before)  # as if the command had been interrupted between the files
        done("rotate", "--keyring", shop, "--id", "shop", "--public", public)
        there = {key.version: key.status for key in read_keyring(public).versions("shop")}
        if form == "keyring":
            assert there == {1: "revoked", 2: "retired", 3: "active"}
        else:
            assert set(there) == {2, 3}

    def test_another_key_of_the_name_is_refused(self, shop: Path, public: Path, algorithm: str) -> None:
        theirs = shop.with_name("theirs.json")
        done("generate", "--keyring", theirs, "--id", "shop", "--algorithm", algorithm)
        before = public.read_bytes()
        result = run("rotate", "--keyring", theirs, "--id", "shop", "--public", public)
        assert (result.exit_code, "two keys have one name" in result.stderr) == (1, True)
        assert public.read_bytes() == before
        assert len(read_keyring(theirs).keys) == 1

    def test_a_file_that_readers_cannot_have_is_refused(self, shop: Path, public: Path) -> None:
        for wrong, said in (
            (shop, "is the keyring itself"),
            (shop.with_name("other.json"), "is a keyring with secrets"),
            (shop.with_name("none.json"), "cannot be read"),
        ):
            result = run("rotate", "--keyring", shop, "--id", "shop", "--public", wrong)
            assert (result.exit_code, said in result.stderr) == (1, True)
        assert len(read_keyring(shop).keys) == 1
        assert len(read_keyring(public).keys) == 2


class TestPublicOfWhatHasNone:
    def test_is_refused(self, path: Path, tmp_path: Path) -> None:
        done("generate", "--keyring", tmp_path / "o.json", "--id", "other", "--algorithm", "ed25519")
        public = tmp_path / "public.json"
        done("export-public", "--keyring", tmp_path / "o.json", "--out", public)
        result = run("rotate", "--keyring", path, "--id", "orders", "--public", public)
        assert (result.exit_code, "has no public half" in result.stderr) == (1, True)
        assert len(read_keyring(path).keys) == 1

    def test_limits_that_a_jwks_cannot_say_are_refused(self, tmp_path: Path) -> None:
        shop, public = tmp_path / "shop.json", tmp_path / "public.jwks"
        made = ("--id", "shop", "--algorithm", "ed25519", "--topic", "orders")
        done("generate", "--keyring", shop, *made)
        done("generate", "--keyring", tmp_path / "o.json", "--id", "other", "--algorithm", "ed25519")
        done("export-public", "--keyring", tmp_path / "o.json", "--out", public, "--jwks")
        result = run("rotate", "--keyring", shop, "--id", "shop", "--public", public)
        assert (result.exit_code, "version 2 cannot be in a JWKS: it has limits" in result.stderr) == (
            1,
            True,
        )
        assert len(read_keyring(shop).keys) == 1


class TestRevoke:
    @pytest.mark.parametrize("command", ["revoke", "delete"])
    def test_a_key_or_version_that_is_not_there_is_told_with_those_that_are(
        self, path: Path, command: str
    ) -> None:
        for key_id, version, told in (
            ("order", "1", "did you mean 'orders'?"),
            ("orders", "7", "key 'orders' has no version 7 in the keyring: it has 1"),
        ):
            result = run(command, "--yes", "--keyring", path, "--id", key_id, "--version", version)
            assert (result.exit_code, told in result.output) == (1, True)

    def test_takes_all_versions(self, path: Path) -> None:
        done("rotate", "--keyring", path, "--id", "orders")
        rows = done_json("revoke", "--yes", "--keyring", path, "--id", "orders")["keys"]
        assert [(row["version"], row["status"]) for row in rows] == [(1, "revoked"), (2, "revoked")]

    def test_takes_one_version(self, path: Path) -> None:
        done("rotate", "--keyring", path, "--id", "orders")
        done("revoke", "--yes", "--keyring", path, "--id", "orders", "--version", "1")
        assert [key.status for key in read_keyring(path).versions("orders")] == ["revoked", "active"]

    def test_takes_offsets_of_several_partitions(self, path: Path) -> None:
        done(
            "revoke",
            "--yes",
            "--keyring",
            path,
            "--id",
            "orders",
            "--from",
            "lkc-1/orders:0:5",
            "--from",
            "lkc-1/orders:1:0",
        )
        assert read_keyring(path).keys[0].revoked_from == {"lkc-1/orders[0]": 5, "lkc-1/orders[1]": 0}

    @pytest.mark.parametrize(
        "position",
        ["orders:1:1", "c/orders", "c/orders:1", "c/orders:a:1", "c/orders:1:-1", "c/a:b:1:2", "/orders:1:1"],
    )
    def test_a_position_that_is_none_is_wrong_use(self, path: Path, position: str) -> None:
        result = run("revoke", "--keyring", path, "--id", "orders", "--from", position)
        assert result.exit_code == 2
        assert "CLUSTER/TOPIC:PARTITION:OFFSET" in result.stderr
        assert read_keyring(path).keys[0].status == "active"


class TestExportPublic:
    def test_does_not_undo_a_revocation(self, path: Path, tmp_path: Path) -> None:
        shop = tmp_path / "shop.json"
        done("generate", "--keyring", shop, "--id", "shop", "--algorithm", "ed25519")
        export = ("export-public", "--keyring", shop, "--out", tmp_path / "public.json")
        revoke = ("--id", "shop", "--version", "1", "--yes")
        done(*export)
        done("revoke", "--keyring", tmp_path / "public.json", *revoke)
        result = run(*export)
        assert (result.exit_code, "version 1 is revoked in" in result.stderr) == (1, True)
        done("revoke", "--keyring", shop, *revoke)
        done(*export)
        assert read_keyring(tmp_path / "public.json").versions("shop")[0].status == "revoked"

    def test_writes_public_halves_and_names_what_it_leaves_out(self, path: Path, tmp_path: Path) -> None:
        done("generate", "--keyring", path, "--id", "audit", "--algorithm", "ed25519")
        shown = done_json("export-public", "--keyring", path, "--out", tmp_path / "public.json")
        assert [row["id"] for row in shown["keys"]] == ["audit"]
        assert [row["id"] for row in shown["left_out"]] == ["orders"]
        public = read_keyring(tmp_path / "public.json")
        assert not public.is_secret
        assert public.keys[0].public == read_keyring(path).versions("audit")[0].public

    def test_keeps_limits(self, path: Path, tmp_path: Path) -> None:
        limits = ("--topic", "audit.*", "--not-after", "2999-01-01T00:00:00Z")
        done("generate", "--keyring", path, "--id", "audit", "--algorithm", "ed25519", *limits)
        done("export-public", "--keyring", path, "--out", tmp_path / "p.json")
        whole, public = read_keyring(path).keys[-1], read_keyring(tmp_path / "p.json").keys[0]
        assert (public.topics, public.use, public.not_after) == (whole.topics, whole.use, whole.not_after)
        assert public.topics == ("audit.*",)

    def test_text_names_what_it_leaves_out(self, path: Path, tmp_path: Path) -> None:
        done("generate", "--keyring", path, "--id", "audit", "--algorithm", "ed25519")
        text = done("export-public", "--keyring", path, "--out", tmp_path / "p.json")
        assert text.startswith(f"wrote 1 public key to {tmp_path / 'p.json'}\n")
        assert "left out 'orders'" in text

    def test_joins_the_keys_of_several_producers(self, tmp_path: Path) -> None:
        given: list[str | Path] = []
        for name in ("shop", "bank"):
            given += ["--keyring", tmp_path / f"{name}.json"]
            done("generate", *given[-2:], "--id", name, "--algorithm", "ed25519")
        done("export-public", *given, "--out", tmp_path / "public.json")
        public = read_keyring(tmp_path / "public.json")
        assert not public.is_secret
        assert [key.id for key in public.keys] == ["shop", "bank"]

    def test_does_not_join_two_keys_of_one_name(self, tmp_path: Path) -> None:
        given: list[str | Path] = []
        for name in ("a.json", "b.json"):
            given += ["--keyring", tmp_path / name]
            done("generate", *given[-2:], "--id", "shop", "--algorithm", "ed25519")
        result = run("export-public", *given, "--out", tmp_path / "public.json")
        assert (result.exit_code, "appears twice" in result.stderr) == (1, True)
        assert not (tmp_path / "public.json").exists()

    def test_hmac_alone_has_nothing_to_export(self, path: Path, tmp_path: Path) -> None:
        result = run("export-public", "--keyring", path, "--out", tmp_path / "p.json")
        assert (result.exit_code, "no public half" in result.stderr) == (1, True)
        assert not (tmp_path / "p.json").exists()

    def test_does_not_overwrite_the_keyring_itself(self, path: Path) -> None:
        done("generate", "--keyring", path, "--id", "audit", "--algorithm", "ed25519")
        before = path.read_bytes()
        assert run("export-public", "--keyring", path, "--out", path).exit_code == 1
        assert path.read_bytes() == before


class TestImportPublic:
    """A service that verifies the records of another service, and signs its own."""

    @pytest.fixture
    def shop(self, tmp_path: Path) -> Path:
        path = tmp_path / "shop.json"
        made = ("generate", "--keyring", path, "--id", "shop", "--algorithm", "ed25519")
        done(*made, "--topic", "orders", "--not-after", "2099-12-31T23:59:59Z")
        done("export-public", "--keyring", path, "--out", tmp_path / "public.json")
        return path

    @pytest.fixture
    def public(self, shop: Path) -> Path:
        return shop.with_name("public.json")

    @pytest.fixture
    def packing(self, tmp_path: Path) -> Path:
        """Return the keyring of the service, with a key that signs and a key that wraps."""
        path = tmp_path / "packing.json"
        done("generate", "--keyring", path, "--id", "packing", "--algorithm", "ed25519")
        done("generate", "--keyring", path, "--id", "values", "--algorithm", "aes-256")
        return path

    def test_adds_keys_with_their_limits_and_keeps_its_own(self, packing: Path, public: Path) -> None:
        own = read_keyring(packing).keys
        text = done("import-public", "--keyring", packing, "--from", public)
        assert text == "added 'shop' version 1\n"
        assert read_keyring(packing).keys == (*own, *read_keyring(public).keys)
        assert packing.stat().st_mode & 0o777 == 0o600

    def test_brings_a_rotation_and_a_revocation(self, packing: Path, shop: Path, public: Path) -> None:
        imported = ("import-public", "--keyring", packing, "--from", public)
        done(*imported)
        done("rotate", "--keyring", shop, "--id", "shop", "--public", public, "--lead", "1h")
        found = done_json(*imported)
        assert [(row["version"], row["status"]) for row in found["keys"]] == [(1, "retired"), (2, "active")]
        assert [(change["version"], change["is"], change["fields"]) for change in found["changes"]] == [
            (1, "changed", ["status", "rotated"]),
            (2, "added", []),
        ]
        revoked = ("revoke", "--keyring", shop, "--id", "shop", "--version", "1", "--public", public, "--yes")
        done(*revoked, "--from", "lkc-1/orders:0:7")
        done(*imported)
        assert read_keyring(packing).versions("shop") == read_keyring(public).versions("shop")
        done(*revoked, "--from", "lkc-1/orders:0:5")
        done(*imported)
        old, new = read_keyring(packing).versions("shop")
        assert (old.status, old.revoked_from, new.status) == ("revoked", {"lkc-1/orders[0]": 5}, "active")

    def test_run_again_changes_nothing(self, packing: Path, public: Path) -> None:
        imported = ("import-public", "--keyring", packing, "--from", public)
        done(*imported)
        before = packing.read_bytes()
        assert (done(*imported), packing.read_bytes()) == ("unchanged 'shop' version 1\n", before)

    def test_leaves_out_what_has_its_secret_here(self, packing: Path, shop: Path, public: Path) -> None:
        done("export-public", "--keyring", shop, "--keyring", packing, "--out", public)
        own = read_keyring(packing).keys
        text = done("import-public", "--keyring", packing, "--from", public)
        assert text.endswith(f"left out 'packing' version 1: its secret is in {packing}\n")
        assert read_keyring(packing).keys[: len(own)] == own

    def test_takes_a_snapshot_of_its_root_only(self, packing: Path, public: Path, tmp_path: Path) -> None:
        root, other, snapshot = (tmp_path / name for name in ("root.json", "other.json", "keys.snapshot"))
        for path in (root, other):
            made = ("generate", "--keyring", path, "--id", "root", "--algorithm", "ed25519")
            done(*made, "--use", "snapshots")
            done("export-public", "--keyring", path, "--out", path.with_suffix(".pub"))
        signed = ("sign-snapshot", "--keyring", public, "--root", root, "--root-id", "root")
        done(*signed, "--out", snapshot)
        imported = ("import-public", "--keyring", packing, "--from", snapshot)
        before = packing.read_bytes()
        for without in ((), ("--root", tmp_path / "other.pub")):
            assert run(*imported, *without).exit_code == 1
        assert packing.read_bytes() == before
        done(*imported, "--root", tmp_path / "root.pub")
        assert read_keyring(packing).versions("shop") == read_keyring(public).keys

    def test_of_nothing_is_told(self, packing: Path, tmp_path: Path) -> None:
        empty = tmp_path / "empty.json"
        empty.write_text('{"format": "headerware-keyring", "version": 2, "keys": []}')
        text = done("import-public", "--keyring", packing, "--from", empty)
        assert text == f"{empty} has no keys\n"


class TestSecrets:
    def test_are_never_printed(self, path: Path, tmp_path: Path) -> None:
        shown = done("generate", "--keyring", path, "--id", "audit", "--algorithm", "ed25519", "--json")
        for command in (
            ("list", "--keyring", path),
            ("list", "--keyring", path, "--json"),
            ("rotate", "--keyring", path, "--id", "orders", "--json"),
            ("revoke", "--keyring", path, "--id", "orders", "--yes", "--json"),
            ("export-public", "--keyring", path, "--out", tmp_path / "p.json", "--json"),
        ):
            shown += done(*command)
        stored = json.loads(path.read_text(encoding="utf-8"))["keys"]
        secrets = [key[name] for key in stored for name in ("secret", "private") if name in key]
        assert len(secrets) == 3
        assert not [secret for secret in secrets if secret in shown]


class TestCertify:
    @pytest.fixture
    def issuer(self, tmp_path: Path) -> Path:
        path = tmp_path / "issuer.json"
        done("generate", "--keyring", path, "--id", "i", "--algorithm", "ed25519", "--use", "certify")
        return path

    @pytest.fixture
    def arguments(self, issuer: Path, tmp_path: Path) -> list[str | Path]:
        shop = tmp_path / "shop.json"
        done("generate", "--keyring", shop, "--id", "shop", "--algorithm", "ed25519")
        return [
            *("certify", "--keyring", issuer, "--issuer-key", "i", "--issuer", "us", "--for", shop),
            *("--id", "shop", "--subject", "shop", "--audience", "here", "--topic", "orders*"),
        ]

    def test_writes_a_certificate_and_the_key_set(
        self, issuer: Path, arguments: list[str | Path], tmp_path: Path
    ) -> None:
        out, jwks = tmp_path / "shop.jwt", tmp_path / "jwks.json"
        shown = done_json(*arguments, "--out", out, "--hours", "2")["certificate"]
        found = read_certificate(out.read_text().strip())
        assert (found.subject, found.topics, found.audience) == ("shop", ("orders*",), ("here",))
        assert found.expires_ms - found.issued_ms == 7_200_000
        assert shown["thumbprint"] == found.thumbprint
        done("export-public", "--jwks", "--use", "certify", "--keyring", issuer, "--out", jwks)
        IssuerKeys(jwks.read_bytes(), ["Ed25519"]).verify(out.read_text().strip(), found)
        assert "wrote the certificate" in done(*arguments, "--out", out)

    def test_is_for_the_next_version_and_by_the_present_one(
        self, issuer: Path, arguments: list[str | Path], tmp_path: Path
    ) -> None:
        """A producer has its certificate before its key begins, and an issuer keeps to when its own does."""
        shop = issuer.with_name("shop.json")
        done("rotate", "--keyring", issuer, "--id", "i", "--lead", "10m")
        done("rotate", "--keyring", shop, "--id", "shop", "--lead", "10m")
        shown = done_json(*arguments, "--out", tmp_path / "next.jwt")["certificate"]
        assert shown["issuer_key"] == "i:1"
        assert shown["thumbprint"] == key_thumbprint(read_keyring(shop).versions("shop")[-1])

    def test_never_overwrites_a_keyring(self, issuer: Path, arguments: list[str | Path]) -> None:
        before = issuer.read_bytes()
        for command in (arguments, ["export-public", "--jwks", "--use", "certify", "--keyring", issuer]):
            result = run(*command, "--out", issuer)
            assert result.exit_code == 1
            assert "not overwritten" in result.stderr
        assert issuer.read_bytes() == before

    def test_a_key_that_does_not_certify_is_refused(self, path: Path, tmp_path: Path) -> None:
        export = ("export-public", "--jwks", "--out", tmp_path / "jwks.json", "--keyring")
        done("generate", "--keyring", path, "--id", "signs", "--algorithm", "ed25519")
        result = run(*export, path, "--use", "certify")
        assert result.exit_code == 1
        assert "its use is sign, and the set is for the use certify (--use)" in result.stderr

    def test_a_key_that_certifies_is_no_key_of_records(self, issuer: Path, tmp_path: Path) -> None:
        export = ("export-public", "--jwks", "--out", tmp_path / "jwks.json", "--keyring")
        result = run(*export, issuer)
        assert result.exit_code == 1
        assert "its use is certify, and the set is for the use sign (--use)" in result.stderr
        result = run("export-public", "--use", "certify", "--keyring", issuer, "--out", tmp_path / "p.json")
        assert result.exit_code == 2
