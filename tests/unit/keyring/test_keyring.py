from __future__ import annotations

import base64
import json
import math
import re
import traceback
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from headerware.core.errors import KeyringError
from headerware.keyring import (
    Key,
    Keyring,
    decode_keyring,
    encode_keyring,
    key_id_problem,
    public_part,
    with_deletion,
    with_new_key,
    with_public_versions,
    with_revocation,
    with_rotation,
)
from headerware.keyring.signature import signer, verifier

if TYPE_CHECKING:
    from collections.abc import Callable

THEN = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2026, 2, 1, tzinfo=UTC)
LOCAL = THEN.replace(tzinfo=None)
SECRET = bytes(range(32))


def ring_text(*keys: dict[str, Any], **head: Any) -> bytes:
    return json.dumps({"format": "headerware-keyring", "version": 2, "keys": keys, **head}).encode()


def key_fields(**fields: Any) -> dict[str, Any]:
    return {
        "id": "a",
        "version": 1,
        "algorithm": "hmac-sha256",
        "status": "active",
        "created": "2026-01-01T00:00:00Z",
        "secret": base64.b64encode(SECRET).decode(),
        **fields,
    }


def hmac_key(**changes: Any) -> Key:
    fields: dict[str, Any] = {
        "id": "orders",
        "version": 1,
        "algorithm": "hmac-sha256",
        "status": "active",
        "created": THEN,
        "secret": SECRET,
    }
    return Key(**{**fields, **changes})


class TestKey:
    def test_is_shown_without_its_material(self) -> None:
        shown = repr(hmac_key(secret=b"the-secret-of-the-orders-key-123"))
        assert "secret" not in shown

    def test_keyring_is_shown_without_material(self) -> None:
        shown = repr(Keyring(keys=(hmac_key(secret=b"the-secret-of-the-orders-key-123"),)))
        assert "the-secret" not in shown

    @pytest.mark.parametrize(
        "changes",
        [
            {"secret": None},
            {"secret": bytes(31)},
            {"secret": bytes(1025)},
            {"public": bytes(range(32))},
            {"algorithm": "ed25519"},
            {"algorithm": "ed25519", "secret": None},
            {"algorithm": "ed25519", "secret": None, "private": bytes(31)},
            {"algorithm": "ed25519", "secret": None, "private": bytes(32)},
            {"algorithm": "ed25519", "secret": None, "public": bytes(33)},
            {"version": 0},
            {"version": 65536},
            {"id": ""},
            {"id": "x" * 256},
            {"secret": b"changeme" * 4},
            {"secret": bytes(64)},
            {"topics": ("orders\n",)},
            {"topics": ("",)},
            {"topics": ("!",)},
            {"use": ()},
            {"use": ("Sign records",)},
            {"not_before": LOCAL},
            {"created": LOCAL},
            {"rotated": LOCAL},
            {"revoked": LOCAL},
            {"deleted": LOCAL},
            {"not_before": LATER, "not_after": THEN},
        ],
    )
    def test_refuses_what_cannot_work(self, changes: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="key"):
            hmac_key(**changes)

    def test_revoked_verifies_only_below_the_offset_of_a_listed_partition(self) -> None:
        key = hmac_key(status="revoked", revoked_from={"lkc-1/orders[3]": 10})
        positions: list[tuple[str | None, str, int | None, int | None]] = [
            ("lkc-1", "orders", 3, 9),
            ("lkc-1", "orders", 3, 10),
            ("lkc-1", "orders", 4, 9),
            ("lkc-1", "other", 3, 9),
            ("lkc-1", "orders", 3, None),
            ("lkc-1", "orders", None, 9),
            ("lkc-2", "orders", 3, 9),
            (None, "orders", 3, 9),
            ("", "orders", 3, 9),
        ]
        found = [key.verifies_at(*position) for position in positions]
        assert found == [True, *[False] * 8]

    @pytest.mark.parametrize(
        "position",
        [
            "orders[3]",
            "/orders[3]",
            "lkc-1/orders",
            "lkc-1/orders[03]",
            "lkc-1/orders[-1]",
            "lkc-1/a b[3]",
            "lkc-1/..[3]",
            "",
        ],
    )
    def test_refuses_a_position_that_names_no_partition_of_a_cluster(self, position: str) -> None:
        with pytest.raises(ValueError, match="cluster/topic"):
            hmac_key(status="revoked", revoked_from={position: 10})

    @pytest.mark.parametrize("offset", [-1, 2**53])
    def test_refuses_an_offset_that_there_cannot_be(self, offset: int) -> None:
        with pytest.raises(ValueError, match="offsets of 0 or more"):
            hmac_key(status="revoked", revoked_from={"lkc-1/orders[3]": offset})

    def test_a_key_for_an_empty_list_of_topics_signs_for_none(self) -> None:
        assert "for no topic" in (hmac_key(topics=()).refusal("orders", 0) or "")
        assert hmac_key(topics=None).refusal("orders", 0) is None

    def test_active_and_retired_verify_everywhere(self) -> None:
        assert hmac_key().verifies_at(None, "any", None, None)
        assert hmac_key(status="retired").verifies_at(None, "any", 0, 0)


class TestKeyId:
    @pytest.mark.parametrize("key_id", ["a", "orders-2026", "größe 2", "鍵", "x" * 255, "é" * 127])
    def test_is_printable_text(self, key_id: str) -> None:
        assert key_id_problem(key_id) is None
        assert hmac_key(id=key_id).id == key_id

    @pytest.mark.parametrize(
        "key_id",
        [
            "",
            "x" * 256,
            "é" * 128,
            " ",
            " orders",
            "orders ",
            "a\nb",
            "a\u2028b",
            "a\x00b",
            "a\x1b[2Jb",
            "a\x85b",
            "a\u202eb",
            "a\u2066b",
            "a\u200bb",
            "\ufefforders",
            "a\xa0b",
            "\ud800",
            "e\u0301",
        ],
    )
    def test_refuses_what_cannot_be_told_apart_or_breaks_a_line(self, key_id: str) -> None:
        with pytest.raises(ValueError, match="a key's id must be 1 to 255 bytes of printable text"):
            hmac_key(id=key_id)
        with pytest.raises(KeyringError, match="printable text"):
            with_new_key(Keyring(), key_id, "hmac-sha256")


class TestSmallOrder:
    """Under a public key of small order anyone can sign: a signature of nothing fits a part of all texts."""

    POINTS: ClassVar = [
        bytes.fromhex(point)
        for point in (
            "0100000000000000000000000000000000000000000000000000000000000000",
            "0100000000000000000000000000000000000000000000000000000000000080",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
            "0000000000000000000000000000000000000000000000000000000000000000",
            "0000000000000000000000000000000000000000000000000000000000000080",
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
            "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
            "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        )
    ]
    GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493

    def test_such_a_key_would_take_a_forged_signature(self) -> None:
        key, signature = Ed25519PublicKey.from_public_bytes(self.POINTS[0]), self.POINTS[0] + bytes(32)
        key.verify(signature, b"whatever")

    @pytest.mark.parametrize("point", POINTS)
    def test_such_a_key_is_refused(self, point: bytes) -> None:
        with pytest.raises(ValueError, match="its public half is of small order"):
            hmac_key(algorithm="ed25519", secret=None, public=point)
        fields = key_fields(algorithm="ed25519", public=base64.b64encode(point).decode())
        del fields["secret"]
        with pytest.raises(KeyringError, match="of small order, so anyone could sign"):
            decode_keyring(ring_text(fields))

    @pytest.mark.parametrize("point", POINTS)
    def test_a_signature_with_such_a_point_is_refused(self, point: bytes) -> None:
        key = with_new_key(Keyring(), "audit", "ed25519").keys[0]
        verify, signature = verifier(key, b""), signer(key, b"")(b"text")
        assert verify(b"text", signature)
        assert not verify(b"text", point + signature[32:])
        assert not verify(b"text", point + bytes(32))

    def test_a_signature_written_in_another_way_is_refused(self) -> None:
        key = with_new_key(Keyring(), "audit", "ed25519").keys[0]
        verify, signature = verifier(key, b""), signer(key, b"")(b"text")
        scalar = int.from_bytes(signature[32:], "little")
        for times in range(1, 16):
            other = scalar + times * self.GROUP_ORDER
            assert not verify(b"text", signature[:32] + other.to_bytes(32, "little"))


class TestRefusal:
    AT_MS = int(THEN.timestamp() * 1000)

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({}, None),
            ({"topics": ("orders", "payments.*")}, None),
            ({"topics": ("!payments",)}, None),
            ({"topics": ("payments",)}, "is for topics payments, not for 'orders'"),
            ({"topics": ("*", "!orders")}, "not for 'orders'"),
            ({"topics": ("ORDERS", "order", "rders")}, "not for 'orders'"),
            ({"use": ("sign", "encrypt")}, None),
            ({"use": ("encrypt",)}, "is for encrypt, not for signing"),
            ({"not_before": THEN, "not_after": THEN}, None),
            ({"not_before": LATER}, "valid from 2026-02-01T00:00:00.000+00:00, and the time of signing is"),
            ({"not_after": THEN - timedelta(milliseconds=1)}, "valid until 2025-12-31T23:59:59.999+00:00"),
        ],
    )
    def test_says_why_a_key_may_not_vouch(self, changes: dict[str, Any], expected: str | None) -> None:
        refusal = hmac_key(**changes).refusal("orders", self.AT_MS)
        assert refusal is None if expected is None else expected in (refusal or "")

    def test_a_postdated_signature_does_not_bring_a_key_forward(self) -> None:
        key, later_ms = hmac_key(not_before=LATER), int(LATER.timestamp() * 1000)
        assert key.refusal("orders", later_ms) is None
        assert "the local clock is 2026-01-01" in (key.refusal("orders", later_ms, self.AT_MS) or "")

    def test_what_was_signed_in_time_is_read_later(self) -> None:
        assert hmac_key(not_after=THEN).refusal("orders", self.AT_MS, self.AT_MS + 1) is None

    @pytest.mark.parametrize("at_ms", [-(2**63), 2**63 - 1])
    def test_a_time_that_no_calendar_has_is_refused(self, at_ms: int) -> None:
        refusal = hmac_key(not_before=THEN, not_after=LATER).refusal("orders", at_ms)
        assert f"{at_ms} ms since 1970" in (refusal or "")


class TestKeyring:
    def test_refuses_a_version_that_stands_twice(self) -> None:
        with pytest.raises(ValueError, match="appears twice"):
            Keyring(keys=(hmac_key(), hmac_key(status="retired")))

    def test_refuses_two_active_versions(self) -> None:
        with pytest.raises(ValueError, match="two active versions"):
            Keyring(keys=(hmac_key(), hmac_key(version=2)))

    def test_unknown_key_is_named_with_those_there_are(self) -> None:
        with pytest.raises(KeyringError, match=r"no key 'payments'.*'orders'"):
            Keyring(keys=(hmac_key(),)).current_key("payments", "sign", 0)

    def test_unknown_version_is_named(self) -> None:
        with pytest.raises(KeyringError, match=r"no version 2 of a key 'orders'"):
            Keyring(keys=(hmac_key(),)).verifying_key("orders", 2)

    def test_revoked_key_does_not_sign(self) -> None:
        with pytest.raises(KeyringError, match=r"no active version \(version 1 revoked\): rotate it"):
            Keyring(keys=(hmac_key(status="revoked"),)).current_key("orders", "sign", 0)

    def test_public_halves_of_a_jwks_do_not_sign(self) -> None:
        public, _ = public_part(with_new_key(Keyring(), "audit", "ed25519"))
        of_a_jwks = msgspec.structs.replace(public.keys[0], status="retired")
        with pytest.raises(KeyringError, match="has only its public half here: it verifies, but cannot sign"):
            Keyring(keys=(of_a_jwks,)).current_key("audit", "sign", 0)

    def test_public_half_does_not_sign(self) -> None:
        public, _ = public_part(with_new_key(Keyring(), "audit", "ed25519"))
        with pytest.raises(KeyringError, match="only its public half"):
            public.current_key("audit", "sign", 0)


class TestCurrentKey:
    """Which version does the work is in spec/vectors/keyring.json; this is what is said where none does."""

    NOW_MS = int(THEN.timestamp() * 1000)

    @pytest.mark.parametrize(
        ("keys", "said"),
        [
            (
                (hmac_key(not_before=LATER),),
                "version 1 is valid from 2026-02-01T00:00:00.000.* it is 2026-01-01.*: wait, or",
            ),
            (
                (hmac_key(not_after=THEN - timedelta(days=1)),),
                "version 1 is valid until 2025-12-31T00:00:00.000",
            ),
            (
                (
                    hmac_key(status="retired", not_after=THEN - timedelta(days=1)),
                    hmac_key(version=2, not_before=LATER),
                ),
                "version 1 is valid until .*, and the next version begins at 2026-02-01T00:00:00.000",
            ),
            (
                (hmac_key(status="revoked", revoked=THEN),),
                r"\(version 1 revoked since 2026-01-01T00:00:00.000",
            ),
            (
                public_part(with_new_key(Keyring(), "orders", "ed25519"))[0].keys,
                "only its public half .* use the",
            ),
        ],
    )
    def test_says_since_or_until_when_none_does_it_and_what_to_do(
        self, keys: tuple[Key, ...], said: str
    ) -> None:
        with pytest.raises(KeyringError, match=said) as raised:
            Keyring(keys=keys).current_key("orders", "sign", self.NOW_MS)
        assert re.search("rotate|use the keyring", str(raised.value))

    @pytest.mark.parametrize(
        ("keys", "term"),
        [
            ((hmac_key(),), (-math.inf, math.inf)),
            ((hmac_key(not_before=THEN, not_after=LATER),), (THEN, LATER)),
            ((hmac_key(status="retired"), hmac_key(version=2, not_before=LATER)), (-math.inf, LATER)),
            (
                (hmac_key(status="retired", not_after=THEN), hmac_key(version=2, not_before=LATER)),
                (-math.inf, THEN),
            ),
        ],
    )
    def test_is_current_until_it_ends_or_the_next_one_begins(self, keys: tuple[Key, ...], term: Any) -> None:
        keyring = Keyring(keys=keys)
        chosen = keyring.current_key("orders", "sign", self.NOW_MS)
        begins_ms, ends_ms = keyring.term_ms(chosen)
        at = [moment if isinstance(moment, float) else moment.timestamp() * 1000 for moment in term]
        assert begins_ms == at[0]
        assert ends_ms == at[1] - (1 if len(keys) > 1 and term[1] == LATER else 0)


class TestLifecycle:
    @pytest.mark.parametrize("algorithm", ["hmac-sha256", "ed25519"])
    def test_rotation_for_later_says_when_the_old_version_is_done(self, algorithm: Any) -> None:
        ring = with_rotation(with_new_key(Keyring(), "k", algorithm), "k", not_before=LATER, now=THEN)
        assert [(key.status, key.rotated) for key in ring.keys] == [("retired", LATER), ("active", None)]
        ring = with_rotation(with_new_key(Keyring(), "k", algorithm), "k", not_before=THEN, now=LATER)
        assert [(key.status, key.rotated) for key in ring.keys] == [("retired", LATER), ("active", None)]

    def test_rotation_without_a_time_signs_at_once_although_another_was_to_come(self) -> None:
        ring = with_rotation(with_new_key(Keyring(), "k", "ed25519"), "k", not_before=LATER, now=THEN)
        ring = with_rotation(ring, "k", now=THEN)
        assert ring.current_key("k", "sign", int(THEN.timestamp() * 1000)).version == 3

    def test_rotation_passes_over_versions_that_stand_elsewhere(self) -> None:
        ring = with_rotation(with_new_key(Keyring(), "k", "ed25519"), "k", above=6)
        assert [key.version for key in ring.keys] == [1, 7]

    def test_rotation_retires_the_old_version_and_signs_with_the_new(self) -> None:
        ring = with_rotation(with_new_key(Keyring(), "orders", "hmac-sha256", now=THEN), "orders", now=LATER)
        old, new = ring.versions("orders")
        assert (old.status, old.rotated, new.status, new.created) == ("retired", LATER, "active", LATER)
        assert ring.current_key("orders", "sign", 0) == new
        assert old.secret != new.secret

    @pytest.mark.parametrize("algorithm", ["hmac-sha256", "ed25519"])
    def test_rotation_keeps_the_algorithm(self, algorithm: Any) -> None:
        ring = with_rotation(with_new_key(Keyring(), "k", algorithm), "k")
        assert ring.current_key("k", "sign", 0).algorithm == algorithm

    def test_rotation_leaves_other_keys_alone(self) -> None:
        ring = with_new_key(with_new_key(Keyring(), "a", "hmac-sha256"), "b", "hmac-sha256")
        assert with_rotation(ring, "a").versions("b") == ring.versions("b")

    def test_a_name_that_is_there_is_to_be_rotated(self) -> None:
        with pytest.raises(KeyringError, match="rotate it"):
            with_new_key(Keyring(keys=(hmac_key(),)), "orders", "ed25519")

    def test_a_name_that_cannot_be_one_is_refused(self) -> None:
        with pytest.raises(KeyringError, match="1 to 255 bytes"):
            with_new_key(Keyring(), "x" * 300, "hmac-sha256")

    def test_versions_end_at_65535(self) -> None:
        with pytest.raises(KeyringError, match="used up"):
            with_rotation(Keyring(keys=(hmac_key(version=65535),)), "orders")

    def test_revocation_without_a_version_takes_all(self) -> None:
        ring = with_revocation(with_rotation(Keyring(keys=(hmac_key(),)), "orders"), "orders", now=LATER)
        assert [(key.status, key.revoked) for key in ring.keys] == [("revoked", LATER)] * 2

    def test_revocation_of_one_version_leaves_the_others(self) -> None:
        ring = with_revocation(with_rotation(Keyring(keys=(hmac_key(),)), "orders"), "orders", version=1)
        assert [key.status for key in ring.versions("orders")] == ["revoked", "active"]

    def test_revoked_key_rotates_to_a_new_version(self) -> None:
        ring = with_rotation(with_revocation(Keyring(keys=(hmac_key(),)), "orders"), "orders")
        assert [key.status for key in ring.versions("orders")] == ["revoked", "active"]

    def test_second_revocation_keeps_what_the_first_said(self) -> None:
        once = with_revocation(
            Keyring(keys=(hmac_key(),)), "orders", revoked_from={"lkc-1/t[0]": 5}, reason="leak", now=THEN
        )
        (key,) = with_revocation(once, "orders", now=LATER).keys
        assert (key.revoked_from, key.reason, key.revoked) == ({"lkc-1/t[0]": 5}, "leak", THEN)

    def test_revoking_what_is_not_there_is_refused(self) -> None:
        with pytest.raises(KeyringError, match="no version 9"):
            with_revocation(Keyring(keys=(hmac_key(),)), "orders", version=9)

    @pytest.mark.parametrize("version", [None, 1])
    def test_revoking_what_is_deleted_is_refused(self, version: int | None) -> None:
        deleted = with_deletion(with_new_key(Keyring(), "kek", "aes-256"), "kek", reason="law")
        with pytest.raises(KeyringError, match="is deleted, which is final"):
            with_revocation(deleted, "kek", version=version, reason="leak")

    def test_revocation_leaves_deleted_versions_deleted(self) -> None:
        ring = with_rotation(with_new_key(Keyring(), "kek", "aes-256"), "kek")
        ring = with_revocation(with_deletion(ring, "kek", version=1), "kek")
        assert [key.status for key in ring.keys] == ["deleted", "revoked"]

    @pytest.mark.parametrize(
        ("algorithm", "positions", "said"),
        [
            ("ed25519", {"orders[3]": 5}, "by cluster/topic"),
            ("ed25519", {"lkc-1/orders[3]": -1}, "offsets of 0 or more"),
            ("aes-256", {"lkc-1/orders[3]": 5}, "for keys that sign"),
        ],
    )
    def test_revoking_from_no_valid_position_is_refused(
        self, algorithm: Any, positions: dict[str, int], said: str
    ) -> None:
        ring = with_new_key(Keyring(), "k", algorithm)
        with pytest.raises(KeyringError, match=said):
            with_revocation(ring, "k", revoked_from=positions)

    @pytest.mark.parametrize(
        ("change", "name"),
        [
            (lambda ring: with_new_key(ring, "b", "ed25519", not_before=LOCAL), "not_before"),
            (lambda ring: with_new_key(ring, "b", "ed25519", not_after=LOCAL), "not_after"),
            (lambda ring: with_new_key(ring, "b", "ed25519", now=LOCAL), "now"),
            (lambda ring: with_rotation(ring, "kek", not_before=LOCAL), "not_before"),
            (lambda ring: with_rotation(ring, "kek", not_after=LOCAL), "not_after"),
            (lambda ring: with_rotation(ring, "kek", not_after=LATER, now=LOCAL), "now"),
            (lambda ring: with_revocation(ring, "kek", now=LOCAL), "now"),
            (lambda ring: with_deletion(ring, "kek", now=LOCAL), "now"),
        ],
    )
    def test_a_moment_without_a_time_zone_is_refused(
        self, change: Callable[[Keyring], Keyring], name: str
    ) -> None:
        ring = with_new_key(Keyring(), "kek", "aes-256")
        with pytest.raises(KeyringError, match=f"^{name}: expected a moment with a time zone, found one"):
            change(ring)

    @pytest.mark.parametrize("change", [with_rotation, partial(with_new_key, algorithm="ed25519")])
    def test_an_expired_new_version_is_refused_with_its_end_in_utc(
        self, change: Callable[..., Keyring]
    ) -> None:
        ended = datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=5)))
        ring = with_new_key(Keyring(), "k", "ed25519") if change is with_rotation else Keyring()
        with pytest.raises(KeyringError, match="its not_after is 2019-12-31T19:00:00Z"):
            change(ring, "k", not_after=ended)

    def test_moments_of_any_zone_are_kept_in_utc_and_in_whole_seconds(self) -> None:
        zoned = LATER.astimezone(timezone(timedelta(hours=5))).replace(microsecond=7)
        (key,) = with_new_key(Keyring(), "k", "ed25519", not_before=zoned).keys
        assert repr(key.not_before) == repr(LATER)

    def test_public_part_has_no_secrets_and_names_what_it_leaves_out(self) -> None:
        ring = with_new_key(Keyring(keys=(hmac_key(),)), "audit", "ed25519")
        public, left_out = public_part(ring)
        assert not public.is_secret
        assert [(key.id, key.public) for key in public.keys] == [("audit", ring.keys[1].public)]
        assert [key.id for key in left_out] == ["orders"]

    def test_public_part_derives_the_half_from_the_private_one(self) -> None:
        ring = with_new_key(Keyring(), "audit", "ed25519")
        bare = Key(
            id="audit",
            version=1,
            algorithm="ed25519",
            status="active",
            created=THEN,
            private=ring.keys[0].private,
        )
        assert public_part(Keyring(keys=(bare,)))[0].keys[0].public == ring.keys[0].public

    @pytest.mark.parametrize("algorithm", ["ed25519", "ecdsa-p256", "rsa-pss-sha256"])
    def test_halves_of_two_keys_are_no_key(self, algorithm: Any) -> None:
        ring = with_new_key(with_new_key(Keyring(), "a", algorithm), "b", algorithm)
        one, other = ring.keys
        with pytest.raises(ValueError, match="does not belong to its private half"):
            msgspec.structs.replace(one, public=other.public)

    def test_public_part_keeps_revocation(self) -> None:
        ring = with_revocation(
            with_new_key(Keyring(), "audit", "ed25519"), "audit", revoked_from={"lkc-1/t[0]": 1}
        )
        (key,) = public_part(ring)[0].keys
        assert (key.status, key.revoked_from) == ("revoked", {"lkc-1/t[0]": 1})

    def test_public_versions_are_the_same_when_they_are_added_again(self) -> None:
        ring = with_rotation(with_new_key(Keyring(), "k", "ed25519"), "k")
        public = with_public_versions(Keyring(), ring, "k")
        assert with_public_versions(public, ring, "k") == public
        assert [key.status for key in public.keys] == ["retired", "active"]

    def test_public_versions_are_retired_when_the_new_version_takes_over(self) -> None:
        ring = with_new_key(Keyring(), "k", "ed25519", not_before=THEN, now=THEN)
        public = with_public_versions(Keyring(), ring, "k")
        for begins, taken_over in ((None, LATER), (LATER + timedelta(days=1), LATER + timedelta(days=1))):
            rotated = with_rotation(ring, "k", not_before=begins, now=LATER)
            old, new = with_public_versions(public, rotated, "k").keys
            assert (old.status, old.rotated, new.status) == ("retired", taken_over, "active")

    def test_public_versions_are_revoked_with_the_key(self) -> None:
        ring = with_new_key(with_new_key(Keyring(), "k", "ed25519"), "other", "ed25519")
        public = public_part(ring)[0]
        revoked = with_revocation(ring, "k", revoked_from={"lkc-1/t[0]": 1}, reason="leak", now=LATER)
        old, other, new = with_public_versions(public, with_rotation(revoked, "k"), "k").keys
        assert (old.status, old.revoked, old.revoked_from, old.reason) == (
            "revoked",
            LATER,
            {"lkc-1/t[0]": 1},
            "leak",
        )
        assert not old.is_secret
        assert (other, new.status) == (public.keys[1], "active")

    def test_public_versions_stay_revoked(self) -> None:
        ring = with_new_key(Keyring(), "k", "ed25519")
        public = with_revocation(public_part(ring)[0], "k", reason="leak")
        assert with_public_versions(public, ring, "k") == public

    @pytest.mark.parametrize(
        ("published", "own", "expected"),
        [
            ({"c/t[0]": 5_000}, {"c/t[0]": 1_000}, {"c/t[0]": 1_000}),
            # The readers' file is changed first, so an interrupted revocation is only there.
            ({"c/t[0]": 1_000}, {"c/t[0]": 5_000}, {"c/t[0]": 1_000}),
            ({"c/t[0]": 1, "c/t[1]": 2}, {"c/t[1]": 3, "c/t[2]": 4}, {"c/t[1]": 2}),
            ({}, {"c/t[0]": 1_000}, {}),
        ],
    )
    def test_public_versions_verify_only_what_both_revocations_permit(
        self, published: dict[str, int], own: dict[str, int], expected: dict[str, int]
    ) -> None:
        ring = with_new_key(Keyring(), "k", "ed25519")
        public = with_revocation(public_part(ring)[0], "k", revoked_from=published)
        revoked = with_revocation(ring, "k", revoked_from=own)
        assert with_public_versions(public, revoked, "k").keys[0].revoked_from == expected


class TestKeyringJson:
    def test_survives_the_round_trip(self) -> None:
        ring = with_revocation(
            with_rotation(with_new_key(Keyring(keys=(hmac_key(),)), "audit", "ed25519"), "orders"),
            "orders",
            version=1,
            revoked_from={"lkc-1/orders[3]": 1042},
            reason="laptop lost",
        )
        limits = {"topics": ("orders.*",), "use": ("sign", "audit"), "not_before": THEN, "not_after": LATER}
        ring = Keyring(keys=(*ring.keys, hmac_key(id="limited", **limits)))
        assert decode_keyring(encode_keyring(ring)) == ring

    def test_says_what_it_is(self) -> None:
        assert encode_keyring(Keyring()).startswith(b'{\n  "format": "headerware-keyring",\n  "version": 2,')

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (b"\xff", "malformed"),
            (b"{}", "format"),
            (b"{]", "malformed"),
            (b"[]", "expected a table, found a list"),
            (b'{"format": "headerware-keyring"}', "version"),
            (b'{"format": "headerware-keyring", "version": 2}', "keys"),
            (b'{"keys": [' + b"[" * 100_000, "recursion"),
            (ring_text(format="other"), 'its format is not "headerware-keyring"'),
            (ring_text(version=1), "its version is 1, expected 2: write 2 there"),
            (ring_text(version=3), "its version is 3, expected 2: it needs a later Headerware"),
            (ring_text(version=3, scopes={}, keys={}), "its version is 3, expected 2"),
            (ring_text(version="2"), "its version is of type str, expected 2"),
            (ring_text(version=True), "its version is of type bool, expected 2"),
            (ring_text({}), "keys"),
            (ring_text(extra=1), "extra"),
            (
                ring_text(key_fields(algorithm="md5")),
                "expected one of 'hmac.*, at keys.0..algorithm",
            ),
            (
                ring_text(key_fields(algorithm="hmac-sha265")),
                "'hmac-sha265'; did you mean 'hmac-sha256'",
            ),
            (ring_text(key_fields(secret="not base64!")), "expected text in base64, .*, at keys.0..secret"),
            (b'[[interceptors]]\ntype = "sign"\n', "it is TOML"),
            (b"", "it is empty.*; restore it, or delete it and create keys with `headerware keys generate`"),
            (b" \n", "it is empty"),
            (ring_text(key_fields(secret="c2hvcnQ=")), "32 to 1024 bytes"),
            (ring_text(key_fields(created="2026-01-01T00:00:00")), "created"),
            (ring_text(key_fields(not_after="2026-01-01T00:00:00")), "not_after"),
            (ring_text(key_fields(use="sign")), "use"),
            (ring_text(key_fields(), key_fields(status="retired")), "appears twice"),
        ],
    )
    def test_says_what_is_wrong_and_where(self, text: bytes, expected: str) -> None:
        with pytest.raises(KeyringError, match=rf"keys\.json is no keyring: .*{expected}"):
            decode_keyring(text, source="keys.json")

    def test_the_example_of_the_spec_is_a_keyring(self) -> None:
        prose = (Path(__file__).parents[3] / "spec" / "keyring.md").read_text(encoding="utf-8")
        example = prose.split("```json\n")[1].split("```")[0]
        assert [key.id for key in decode_keyring(example.encode()).keys] == ["orders", "audit", "orders-kek"]

    def test_broken_material_is_not_shown(self) -> None:
        text = ring_text(key_fields(secret="TOPSECRET!"))
        with pytest.raises(KeyringError) as caught:
            decode_keyring(text)
        assert "TOPSECRET" not in str(caught.value)
        assert "secret" in str(caught.value)

    @pytest.mark.parametrize(
        ("text", "named"),
        [
            (ring_text(key_fields(status="TOPSECRET")), "status"),
            (ring_text(key_fields(algorithm="TOPSECRET")), "algorithm"),
            (ring_text(key_fields(created="TOPSECRET")), "created"),
            (ring_text(key_fields(use=["TOPSECRET"])), "use"),
            (ring_text(key_fields(TOPSECRET="a")), "unknown field"),
            (ring_text(key_fields(**{"TOPSECRET` - at `$": "a"})), "unknown field"),
            (ring_text(key_fields(revoked_from={"TOPSECRET": "a"})), "revoked_from"),
            (ring_text(version="TOPSECRET"), "version"),
            (ring_text(format="TOPSECRET"), "format"),
            (ring_text(key_fields(secret="TOPSECRET"))[:-20], "truncated"),
            (ring_text(key_fields(secret="TOPSECRET")).replace(b"active", b"\xff"), "invalid"),
        ],
    )
    def test_a_secret_in_the_wrong_place_is_not_shown(self, text: bytes, named: str) -> None:
        with pytest.raises(KeyringError, match=rf"(?i){named}") as caught:
            decode_keyring(text)
        assert "TOPSECRET" not in "".join(traceback.format_exception(caught.value))


def test_a_file_of_public_halves_gets_no_private_half_by_a_rotation() -> None:
    ring = with_new_key(Keyring(), "shop", "ed25519")
    public, _ = public_part(ring)
    with pytest.raises(
        KeyringError, match="it has only the public half of 'shop': rotate the key in the keyring"
    ):
        with_rotation(public, "shop")
