"""Files of public halves that an attacker, a mistake or an older copy hands to ``keys import-public``."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from click.testing import CliRunner

from headerware.cli import main
from headerware.keyring import Keyring, encode_keyring, public_part, read_keyring, with_new_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headerware.keyring import Key

    Refusal = Callable[[Path, str], None]


def keys(*arguments: str | Path) -> tuple[int, str]:
    """Run a command of keys; return its exit code and its errors."""
    result = CliRunner().invoke(main, ["keys", *map(str, arguments)])
    return result.exit_code, result.stderr


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Return the keyring of the service that others verify; public.json has its public half."""
    path = tmp_path / "shop.json"
    assert keys("generate", "--keyring", path, "--id", "shop", "--algorithm", "ed25519")[0] == 0
    assert keys("export-public", "--keyring", path, "--out", tmp_path / "public.json")[0] == 0
    return path


@pytest.fixture
def public(shop: Path) -> Path:
    return shop.with_name("public.json")


@pytest.fixture
def packing(public: Path) -> Path:
    """Return a keyring with a secret, and with the public half of shop."""
    path = public.with_name("packing.json")
    assert keys("generate", "--keyring", path, "--id", "packing", "--algorithm", "ed25519")[0] == 0
    assert keys("import-public", "--keyring", path, "--from", public)[0] == 0
    return path


@pytest.fixture
def is_refused(packing: Path) -> Refusal:
    """Return a check that an import of a file is refused with a reason, and changes nothing."""
    before = packing.read_bytes()

    def is_refused(source: Path, reason: str) -> None:
        code, said = keys("import-public", "--keyring", packing, "--from", source)
        assert (code, reason in said) == (1, True), said
        assert packing.read_bytes() == before

    return is_refused


class TestSecrets:
    @pytest.mark.parametrize("algorithm", ["ed25519", "hmac-sha256", "aes-256"])
    def test_of_others_are_not_imported(self, is_refused: Refusal, tmp_path: Path, algorithm: str) -> None:
        other = tmp_path / "other.json"
        assert keys("generate", "--keyring", other, "--id", "other", "--algorithm", algorithm)[0] == 0
        is_refused(other, "found secrets")

    def test_are_not_imported_from_the_keyring_itself(self, is_refused: Refusal, packing: Path) -> None:
        is_refused(packing, "found secrets")

    def test_are_not_imported_through_a_link(self, is_refused: Refusal, shop: Path) -> None:
        link = shop.with_name("link.json")
        link.symlink_to(shop)
        is_refused(link, "is a symbolic link")


class TestRevokedVersion:
    @pytest.fixture
    def older(self, shop: Path, public: Path, packing: Path) -> Path:
        """Return an older copy of public.json, before the revocation that packing has."""
        older = public.with_name("older.json")
        older.write_bytes(public.read_bytes())
        revoked = ("revoke", "--keyring", shop, "--id", "shop", "--public", public, "--yes")
        assert keys(*revoked, "--from", "lkc-1/orders:0:7")[0] == 0
        assert keys("import-public", "--keyring", packing, "--from", public)[0] == 0
        return older

    def test_is_not_trusted_again(self, older: Path, is_refused: Refusal) -> None:
        is_refused(older, "is revoked here, and would be trusted again")

    @pytest.mark.parametrize("position", ["lkc-1/orders:0:8", "lkc-1/orders:1:1", "lkc-2/orders:0:1"])
    def test_is_not_trusted_for_more_records(
        self, shop: Path, public: Path, older: Path, is_refused: Refusal, position: str
    ) -> None:
        assert older.exists()
        revoked = ("revoke", "--keyring", shop, "--id", "shop", "--public", public, "--yes")
        assert keys(*revoked, "--from", position)[0] == 0
        is_refused(public, "more of its records would be trusted again")

    def test_stays_revoked_if_it_is_left_out(
        self, shop: Path, public: Path, older: Path, packing: Path
    ) -> None:
        assert older.exists()
        assert keys("rotate", "--keyring", shop, "--id", "shop", "--public", public)[0] == 0
        there = read_keyring(public)
        public.write_bytes(encode_keyring(Keyring(keys=there.versions("shop")[1:])))
        assert keys("import-public", "--keyring", packing, "--from", public)[0] == 0
        assert [key.status for key in read_keyring(packing).versions("shop")] == ["revoked", "active"]


class TestOlderFile:
    def test_does_not_take_a_version_away(
        self, shop: Path, public: Path, packing: Path, request: pytest.FixtureRequest
    ) -> None:
        older = public.with_name("older.json")
        older.write_bytes(public.read_bytes())
        assert keys("rotate", "--keyring", shop, "--id", "shop", "--public", public)[0] == 0
        assert keys("import-public", "--keyring", packing, "--from", public)[0] == 0
        request.getfixturevalue("is_refused")(older, "lacks its version 2")


class TestForeignKey:
    """Another key of a name that is there: of the own key, or of a key that was imported."""

    @staticmethod
    def forged(public: Path, name: str, version: int = 1) -> Path:
        (key,) = public_part(with_new_key(Keyring(), name, "ed25519"))[0].keys
        forged = public.with_name("forged.json")
        forged.write_bytes(encode_keyring(Keyring(keys=(msgspec.structs.replace(key, version=version),))))
        return forged

    @pytest.mark.parametrize("name", ["packing", "shop"])
    def test_is_refused(self, public: Path, is_refused: Refusal, name: str) -> None:
        is_refused(self.forged(public, name), f"key '{name}' version 1 has another public half")

    def test_is_refused_as_the_next_version_of_the_own_key(self, public: Path, is_refused: Refusal) -> None:
        is_refused(self.forged(public, "packing", version=2), "has its secret here")


class TestLimits:
    """A file that would let a key sign more than the keyring lets it."""

    LIMITS: Final[dict[str, Any]] = {
        "topics": ("orders", "!orders.test"),
        "use": ("sign",),
        "not_before": datetime(2026, 1, 1, tzinfo=UTC),
        "not_after": datetime(2099, 1, 1, tzinfo=UTC),
    }

    @pytest.fixture
    def imported(self, public: Path, packing: Path) -> Callable[..., tuple[Key, str]]:
        """Return a function that imports shop with limits, and returns its version and what was printed."""

        def imported(version: int = 1, **limits: Any) -> tuple[Key, str]:
            ring = read_keyring(packing)
            limited = [
                msgspec.structs.replace(key, **self.LIMITS) if key.id == "shop" else key for key in ring.keys
            ]
            packing.write_bytes(encode_keyring(Keyring(keys=tuple(limited))))
            (given,) = read_keyring(public).keys
            keys = [msgspec.structs.replace(given, **limits)]
            if version > 1:
                (forged,) = public_part(with_new_key(Keyring(), "shop", "ed25519"))[0].keys
                keys = [
                    msgspec.structs.replace(given, status="retired"),
                    msgspec.structs.replace(forged, version=version, **limits),
                ]
            public.write_bytes(encode_keyring(Keyring(keys=tuple(keys))))
            arguments = ["keys", "import-public", "--keyring", str(packing), "--from", str(public)]
            result = CliRunner().invoke(main, arguments)
            assert result.exit_code == 0, result.stderr
            return read_keyring(packing).verifying_key("shop", version), result.stdout

        return imported

    @pytest.mark.parametrize(
        ("name", "wider"),
        [
            ("topics", None),
            ("topics", ("orders", "bills")),
            ("topics", ("!orders.test",)),
            ("use", ("sign", "certify")),
            ("not_before", None),
            ("not_before", datetime(2025, 1, 1, tzinfo=UTC)),
            ("not_after", None),
            ("not_after", datetime(2100, 1, 1, tzinfo=UTC)),
        ],
    )
    def test_of_a_version_are_not_widened(
        self, imported: Callable[..., tuple[Key, str]], name: str, wider: Any
    ) -> None:
        key, said = imported(**{**self.LIMITS, name: wider})
        assert getattr(key, name) == self.LIMITS[name]
        assert said.startswith("unchanged 'shop' version 1; kept narrower than in ")
        assert said.endswith(f": {name}\n")

    @pytest.mark.parametrize(("name", "wider"), [("topics", None), ("use", ("sign", "certify"))])
    def test_are_not_widened_by_a_new_version(
        self, imported: Callable[..., tuple[Key, str]], name: str, wider: Any
    ) -> None:
        key, said = imported(version=2, **{name: wider})
        assert getattr(key, name) == self.LIMITS[name]
        assert "added 'shop' version 2; kept narrower" in said

    def test_are_those_of_no_topic_if_no_pattern_is_in_both(
        self, imported: Callable[..., tuple[Key, str]]
    ) -> None:
        key, said = imported(**{**self.LIMITS, "topics": ("*",)})
        assert key.topics == ()
        assert said.startswith("changed 'shop' version 1: topics; kept narrower than in ")

    def test_are_narrowed(self, imported: Callable[..., tuple[Key, str]]) -> None:
        narrower = {"topics": (), "not_after": datetime(2098, 1, 1, tzinfo=UTC)}
        key, said = imported(**{**self.LIMITS, **narrower})
        assert (key.topics, key.not_after) == ((), narrower["not_after"])
        assert said == "changed 'shop' version 1: topics, not_after\n"


class TestBrokenFile:
    def test_that_is_truncated_changes_nothing(self, public: Path, is_refused: Refusal) -> None:
        whole = public.read_bytes()
        for size in range(0, len(whole) - 2, 7):
            public.write_bytes(whole[:size])
            is_refused(public, "is no keyring")

    def test_that_is_a_jwks_is_refused(self, shop: Path, is_refused: Refusal) -> None:
        """A JWKS has neither revocations nor limits, and so would take them from a key."""
        jwks = shop.with_name("keys.jwks")
        assert keys("export-public", "--keyring", shop, "--out", jwks, "--jwks")[0] == 0
        is_refused(jwks, "is no keyring")

    def test_that_others_can_write_is_refused(self, public: Path, is_refused: Refusal) -> None:
        public.chmod(0o666)
        is_refused(public, "can be written by others")

    def test_that_is_a_pipe_is_refused(self, public: Path, is_refused: Refusal) -> None:
        pipe = public.with_name("pipe")
        os.mkfifo(pipe)
        is_refused(pipe, "expected a plain file")


class TestLinks:
    def test_of_the_keyring_are_not_followed(self, public: Path, packing: Path) -> None:
        link = packing.with_name("link.json")
        link.symlink_to(packing)
        before = packing.read_bytes()
        code, said = keys("import-public", "--keyring", link, "--from", public)
        assert (code, "is a symbolic link" in said) == (1, True)
        assert (link.is_symlink(), packing.read_bytes()) == (True, before)

    def test_of_the_lock_are_not_followed(self, public: Path, packing: Path) -> None:
        lock, target = packing.with_name("packing.json.lock"), packing.with_name("target")
        lock.unlink()
        lock.symlink_to(target)
        code, said = keys("import-public", "--keyring", packing, "--from", public)
        assert (code, "cannot be written" in said, target.exists()) == (1, True, False)
