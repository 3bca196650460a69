"""Snapshots of keyrings: signed by an offline root, followed in one direction, and until they expire."""

from __future__ import annotations

import resource
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from headerware import Chain, ConfigError, Context, HeldBackError, Record
from headerware.core.errors import KeyringError
from headerware.interceptors import Sign
from headerware.keyring import (
    Keyring,
    KeyringFile,
    Snapshot,
    encode_keyring,
    encode_snapshot,
    public_part,
    read_keyring,
    sign_snapshot,
    verify_snapshot,
    with_new_key,
    with_revocation,
    with_rotation,
)
from headerware.keyring.services import FileKeys

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 6, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
DAY_MS = 86_400_000
ROOTS = with_new_key(Keyring(), "root", "ed25519", use=("snapshots",))
ROOT = ROOTS.keys[0]
KEYS = with_new_key(Keyring(), "orders", "hmac-sha256", now=NOW)


def snapshot(counter: int = 1, keyring: Keyring = KEYS, **changes: Any) -> Snapshot:
    given: dict[str, Any] = {"created": NOW, "expires": NOW + timedelta(days=1), **changes}
    return sign_snapshot(keyring, given.pop("root", ROOT), counter=counter, **given)


class Distribution:
    """A snapshot's file, and its root's public half."""

    def __init__(self, folder: Path) -> None:
        self.path, self.root, self.counter = folder / "keys.json", folder / "root.pub", folder / "counter"
        self.trust(ROOTS)
        self.write(snapshot())

    def trust(self, roots: Keyring) -> None:
        fresh = self.root.with_suffix(".new")
        fresh.write_bytes(encode_keyring(public_part(roots)[0]))
        fresh.chmod(0o644)
        fresh.replace(self.root)

    def write(self, what: Snapshot | bytes) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_bytes(what if isinstance(what, bytes) else encode_snapshot(what))
        fresh.chmod(0o600)
        fresh.replace(self.path)

    def follow(self, **options: Any) -> KeyringFile:
        return KeyringFile(self.path, root=self.root, **{"now_ms": NOW_MS, **options})


@pytest.fixture
def files(tmp_path: Path) -> Distribution:
    return Distribution(tmp_path)


class TestSigning:
    def test_and_verifying_give_the_keyring_back(self) -> None:
        made = snapshot(7)
        found, keyring = verify_snapshot(encode_snapshot(made), public_part(ROOTS)[0])
        assert (found, keyring, found.counter) == (made, KEYS, 7)

    def test_shows_no_keys(self) -> None:
        assert KEYS.keys[0].secret is not None
        shown = repr(snapshot())
        assert "keyring" not in shown
        assert "counter=1" in shown

    @pytest.mark.parametrize(
        "root",
        [
            with_new_key(Keyring(), "root", "ed25519").keys[0],
            with_new_key(Keyring(), "root", "hmac-sha256", use=("snapshots",)).keys[0],
            with_revocation(ROOTS, "root").keys[0],
            public_part(ROOTS)[0].keys[0],
            msgspec.structs.replace(ROOT, not_after=NOW - timedelta(seconds=1)),
            msgspec.structs.replace(ROOT, not_before=NOW + timedelta(seconds=1)),
        ],
        ids=["another use", "HMAC", "revoked", "public", "too late", "too early"],
    )
    def test_takes_a_root(self, root: Any) -> None:
        with pytest.raises(KeyringError, match="root key 'root'"):
            snapshot(root=root)

    @pytest.mark.parametrize("changes", [{"counter": 0}, {"expires": NOW}, {"counter": 1 << 63}])
    def test_refuses_what_readers_would(self, changes: dict[str, Any]) -> None:
        with pytest.raises(KeyringError):
            snapshot(**changes)

    @pytest.mark.parametrize("name", ["created", "expires"])
    def test_refuses_a_moment_without_a_time_zone(self, name: str) -> None:
        changes: dict[str, Any] = {name: (NOW + timedelta(hours=1)).replace(tzinfo=None)}
        with pytest.raises(KeyringError, match=f"^{name}: expected a moment with a time zone"):
            snapshot(**changes)


class TestVerifying:
    @pytest.mark.parametrize(
        "changes",
        [
            {"counter": 8},
            {"created": NOW - timedelta(seconds=1)},
            {"expires": NOW + timedelta(days=365)},
            {"keyring": encode_keyring(Keyring())},
            {"keyring": b""},
            {"root_version": 2},
            {"root": "other"},
            {"root": "root" * 100},
            {"root_version": -1},
            {"signature": b""},
            {"signature": bytes(64)},
        ],
        ids=lambda changes: next(iter(changes)),
    )
    def test_refuses_what_was_changed(self, changes: dict[str, Any]) -> None:
        changed = msgspec.structs.replace(snapshot(), **changes)
        with pytest.raises(KeyringError):
            verify_snapshot(encode_snapshot(changed), ROOTS)

    def test_refuses_a_root_that_is_not_trusted_or_no_longer(self) -> None:
        text = encode_snapshot(snapshot())
        for roots in (
            with_new_key(Keyring(), "root", "ed25519", use=("snapshots",)),
            with_new_key(Keyring(), "another", "ed25519", use=("snapshots",)),
            with_revocation(ROOTS, "root"),
        ):
            with pytest.raises(KeyringError):
                verify_snapshot(text, roots)

    def test_takes_the_root_before_a_rotation_and_the_one_behind_it(self) -> None:
        rotated = with_rotation(ROOTS, "root")
        for root in rotated.keys:
            assert verify_snapshot(encode_snapshot(snapshot(root=root)), public_part(rotated)[0])[1] == KEYS

    @pytest.mark.parametrize(
        "text",
        [
            *(b"", b"{]", b"[]", b"{}", encode_keyring(KEYS)),
            encode_snapshot(snapshot()).replace(b'"version": 1', b'"version": 2'),
        ],
        ids=["nothing", "no JSON", "a list", "no fields", "a keyring", "version 2"],
    )
    def test_refuses_what_is_no_snapshot_and_shows_nothing_of_it(self, text: bytes) -> None:
        with pytest.raises(KeyringError, match="is no snapshot"):
            verify_snapshot(text, ROOTS)


class TestFollowing:
    def test_takes_newer_ones(self, files: Distribution) -> None:
        file = files.follow()
        assert file.current(NOW_MS) == KEYS
        rotated = with_rotation(KEYS, "orders", now=NOW)
        files.write(snapshot(2, rotated))
        assert file.current(NOW_MS + 2_000) == rotated
        files.write(snapshot(9, KEYS))
        assert file.current(NOW_MS + 4_000) == KEYS

    def test_going_back_is_noticed_and_ends_in_no_keyring(self, files: Distribution) -> None:
        revoked = with_revocation(KEYS, "orders")
        files.write(snapshot(2, revoked))
        file = files.follow()
        files.write(snapshot(1))
        assert file.current(NOW_MS + 2_000) == revoked  # the newest goes on for a while
        assert file.failure is not None
        assert "older than the last snapshot: its counter is 1, expected 2 or more" in file.failure
        with pytest.raises(KeyringError, match="older than the last snapshot"):
            file.current(NOW_MS + 400_000)
        files.write(snapshot(3, revoked))
        assert file.current(NOW_MS + 402_000) == revoked

    def test_two_with_one_counter_are_noticed(self, files: Distribution) -> None:
        file = files.follow()
        files.write(snapshot(1, with_rotation(KEYS, "orders", now=NOW)))
        assert file.current(NOW_MS + 2_000) == KEYS
        assert "differs from the last snapshot, but has the same counter" in str(file.failure)

    def test_standing_still_ends_in_no_keyring(self, files: Distribution) -> None:
        file = files.follow()
        assert file.current(NOW_MS + DAY_MS - 1) == KEYS
        with pytest.raises(KeyringError, match="expired 0 s ago, and no newer one has arrived"):
            file.current(NOW_MS + DAY_MS)
        files.write(snapshot(2, expires=NOW + timedelta(days=2)))
        assert file.current(NOW_MS + DAY_MS + 2_000) == KEYS

    def test_an_expired_one_is_not_begun_with(self, files: Distribution) -> None:
        with pytest.raises(KeyringError, match="expired"):
            files.follow(now_ms=NOW_MS + DAY_MS)

    def test_a_plain_keyring_is_no_way_around(self, files: Distribution) -> None:
        files.write(encode_keyring(KEYS))
        with pytest.raises(KeyringError, match="is no snapshot"):
            files.follow()

    def test_a_snapshot_is_no_plain_keyring(self, files: Distribution) -> None:
        with pytest.raises(KeyringError, match="it is a snapshot of a keyring"):
            KeyringFile(files.path)

    def test_the_root_must_be_public(self, files: Distribution) -> None:
        files.root.write_bytes(encode_keyring(ROOTS))
        files.root.chmod(0o600)
        with pytest.raises(KeyringError, match="belongs offline"):
            files.follow()

    def test_a_root_that_is_rotated_counts_without_a_restart(self, files: Distribution) -> None:
        file = files.follow()
        roots = with_rotation(ROOTS, "root")
        rotated = with_rotation(KEYS, "orders", now=NOW)
        files.trust(roots)
        files.write(snapshot(2, rotated, root=roots.keys[1]))
        assert file.current(NOW_MS + 2_000) == rotated

    def test_a_root_that_is_revoked_makes_nothing_more_that_counts(self, files: Distribution) -> None:
        file = files.follow()
        files.trust(with_revocation(ROOTS, "root"))
        files.write(snapshot(2, with_new_key(KEYS, "thief", "hmac-sha256")))
        assert file.current(NOW_MS + 2_000) == KEYS  # the last good one goes on for a while
        with pytest.raises(KeyringError, match="root key 'root' version 1 is revoked"):
            file.current(NOW_MS + 400_000)

    def test_a_revoked_roots_last_snapshot_ends_as_well(self, files: Distribution) -> None:
        file = files.follow()
        files.trust(with_revocation(ROOTS, "root"))
        assert file.current(NOW_MS + 2_000) == KEYS
        with pytest.raises(KeyringError, match="root key 'root' version 1 is revoked"):
            file.current(NOW_MS + 400_000)

    def test_a_root_that_is_missing_is_named(self, files: Distribution) -> None:
        file = files.follow()
        files.root.rename(files.root.with_name("away"))
        assert file.current(NOW_MS + 2_000) == KEYS
        assert str(files.root) in str(file.failure)
        files.trust(ROOTS)
        assert file.current(NOW_MS + 4_000) == KEYS
        assert file.failure is None

    def test_a_root_that_never_was_is_not_to_be_made_here(self, files: Distribution) -> None:
        files.root.unlink()
        for read in (files.follow, lambda: read_keyring(files.path, root=files.root)):
            with pytest.raises(KeyringError, match=r"root\.pub cannot be read: No such file") as raised:
                read()
            assert (raised.value.missing, raised.value.of_root) == (None, True)
            assert "headerware keys generate" not in str(raised.value)

    def test_secrets_in_it_are_for_the_owner(self, files: Distribution) -> None:
        files.path.chmod(0o644)
        with pytest.raises(KeyringError, match="holds secrets that others can reach"):
            files.follow()

    def test_is_read_once_with_its_root(self, files: Distribution) -> None:
        files.write(snapshot(expires=datetime.now(UTC) + timedelta(days=1), created=NOW))
        assert read_keyring(files.path, root=files.root) == KEYS


class TestCounterFile:
    def test_remembers_the_newest_across_restarts(self, files: Distribution) -> None:
        files.write(snapshot(5))
        files.follow(counter_file=files.counter)
        files.follow(counter_file=files.counter)
        files.write(snapshot(4))
        with pytest.raises(KeyringError, match="older than the last snapshot"):
            files.follow(counter_file=files.counter)
        assert files.follow().current(NOW_MS) == KEYS  # without the file it is not known
        files.write(snapshot(5, Keyring()))
        with pytest.raises(KeyringError, match="same counter"):
            files.follow(counter_file=files.counter)

    def test_is_shared_by_processes(self, files: Distribution) -> None:
        one = files.follow(counter_file=files.counter)
        files.write(snapshot(3))
        files.follow(counter_file=files.counter)
        files.write(snapshot(2))
        one.current(NOW_MS + 2_000)
        assert "expected 3 or more" in str(one.failure)

    @pytest.mark.parametrize("content", [b"x", b"12", b"9" * 300, b"-1 " + b"a" * 64])
    def test_that_is_none_is_refused(self, files: Distribution, content: bytes) -> None:
        files.counter.write_bytes(content)
        with pytest.raises(KeyringError, match="holds no counter"):
            files.follow(counter_file=files.counter)

    @pytest.mark.parametrize("limit_bytes", [0, 10, 40])
    def test_a_counter_that_does_not_fit_on_the_disk_is_not_half_written(
        self, files: Distribution, limit_bytes: int
    ) -> None:
        files.follow(counter_file=files.counter)
        kept = files.counter.read_bytes()
        fresh = files.counter.with_name("fresh")
        files.write(snapshot(2))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
        try:
            for counter in (files.counter, fresh):
                with pytest.raises(KeyringError, match="cannot be written"):
                    files.follow(counter_file=counter)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert files.counter.read_bytes() == kept
        for counter in (files.counter, fresh):
            files.follow(counter_file=counter)
            assert counter.read_bytes().startswith(b"%019d " % 2)

    def test_that_cannot_be_written_is_refused(self, files: Distribution) -> None:
        files.counter.mkdir()
        with pytest.raises(KeyringError, match="cannot be written"):
            files.follow(counter_file=files.counter)

    def test_is_for_snapshots(self, files: Distribution) -> None:
        with pytest.raises(ConfigError, match="keyring_counter: only snapshots"):
            Sign(keyring=str(files.path), keyring_counter="counter")
        with pytest.raises(ConfigError, match="counter: only snapshots"):
            FileKeys(keyring=str(files.path), counter="counter")


class TestInterceptor:
    def test_signs_and_verifies_with_a_snapshot_and_holds_back_when_it_has_expired(
        self, files: Distribution
    ) -> None:
        now_ms = NOW_MS
        context = Context(now_ms=lambda: now_ms)
        options = Sign(
            keyring=str(files.path),
            key_id="orders",
            keyring_root=str(files.root),
            keyring_counter=str(files.counter),
        )
        session = Chain([options]).open(context)
        (signed,) = session.send([Record("orders", b"v")])
        received = signed.replace(partition=0, offset=0)
        assert session.consume([received])[0].value == b"v"
        now_ms += DAY_MS
        with pytest.raises(HeldBackError, match="expired"):
            session.consume([received])
        with pytest.raises(HeldBackError, match="expired"):
            session.send([Record("orders", b"v")])
        files.write(snapshot(2, expires=NOW + timedelta(days=3)))
        now_ms += 2_000
        assert session.consume([received])[0].value == b"v"

    def test_a_dry_run_remembers_nothing(self, files: Distribution) -> None:
        options = Sign(
            keyring=str(files.path), keyring_root=str(files.root), keyring_counter=str(files.counter)
        )
        Chain([options]).open(Context(now_ms=lambda: NOW_MS, dry_run=True, side="consumer")).close()
        assert not files.counter.exists()

    def test_the_key_service_follows_snapshots_too(self, files: Distribution) -> None:
        wrapping = with_new_key(Keyring(), "kek", "aes-256", now=NOW)
        files.write(snapshot(1, wrapping))
        now_ms = NOW_MS
        options = FileKeys(keyring=str(files.path), root=str(files.root))
        service = options.open(Context(now_ms=lambda: now_ms))
        wrapped = service.wrap("kek", bytes(range(32)), b"c").wrapped
        now_ms += DAY_MS
        with pytest.raises(KeyringError, match="expired"):
            service.unwrap("kek", wrapped, b"c")
