"""spec/vectors/admission.json: thumbprints, and certificates judged by a policy; issued again, too."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headerware import AdmissionError, ConfigError, Headers, Record, Verified
from headerware.core.record import VERIFIED
from headerware.interceptors.admission.policy import Issuer, Policy, Rule
from headerware.keyring import Key, certify, key_thumbprint, read_certificate
from headerware.keyring.certificate import IssuerKeys

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "admission.json").read_text(encoding="utf-8")
)
THUMBPRINTS = {case["name"]: case["thumbprint"] for case in VECTORS["thumbprints"]}


def by_name(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["name"])


@pytest.fixture(scope="module")
def policy() -> Policy:
    said = VECTORS["policy"]
    (issuer,) = msgspec.convert(said["issuers"], list[Issuer])
    keys = IssuerKeys(json.dumps(VECTORS["jwks"]).encode(), issuer.algorithms)
    return Policy(said["audience"], [(issuer, keys)], msgspec.convert(said["rules"], list[Rule]))


def key_of(name: str, public: bytes) -> Key:
    created = datetime(2026, 11, 1, tzinfo=UTC)
    return Key(id=name, version=1, algorithm="ed25519", status="active", created=created, public=public)


class TestAdmissionVectors:
    def test_covers_every_kind(self) -> None:
        assert (len(VECTORS["thumbprints"]), len(VECTORS["judged"])) == (4, 29)
        assert len(VECTORS["key_sets"]) == 7

    @by_name("thumbprints")
    def test_thumbprints(self, case: dict[str, Any]) -> None:
        assert key_thumbprint(key_of("k", bytes.fromhex(case["public_hex"]))) == case["thumbprint"]

    @by_name("key_sets")
    def test_takes_key_sets(self, case: dict[str, Any]) -> None:
        jwks = json.dumps(case["jwks"]).encode()
        if case["outcome"] == "taken":
            IssuerKeys(jwks, case["algorithms"])
        else:
            with pytest.raises(ConfigError, match=case["outcome"]):
                IssuerKeys(jwks, case["algorithms"])

    @by_name("judged")
    def test_judges(self, case: dict[str, Any], policy: Policy) -> None:
        headers = [*case["headers"], ("hw.admit", case["certificate"])]
        verified = Verified(
            key_id=case["signed_with"],
            key_version=1,
            signed_at_ms=case["signed_at_ms"],
            cluster="c",
            topic=case["topic"],
            producer=bytes(8),
            sequence=0,
            thumbprint=THUMBPRINTS[case["signed_with"]],
        )
        record = Record(case["topic"], b"v", headers=Headers(headers), local={VERIFIED: verified})
        settings = {"now_ms": case["now_ms"], "clock_skew_ms": VECTORS["clock_skew_ms"]}
        if case["outcome"] == "admitted":
            assert policy.admit(record, **settings) == read_certificate(case["certificate"])
        else:
            with pytest.raises(AdmissionError, match=case["outcome"]):
                policy.admit(record, **settings)

    def test_issues_the_same_text(self) -> None:
        issuer = Key(
            id="issuer",
            version=1,
            algorithm="ed25519",
            status="active",
            created=datetime(2026, 11, 1, tzinfo=UTC),
            private=bytes([7]) * 16 + bytes(range(16)),
            use=("certify",),
        )
        shop = key_of("shop", bytes.fromhex(VECTORS["thumbprints"][0]["public_hex"]))
        text = certify(
            issuer,
            shop,
            issuer="https://issuer.example",
            subject="shop-1",
            audience=["payments"],
            topics=["orders*", "!orders-test"],
            valid_for_s=3_600,
            now=datetime.fromtimestamp(1_795_392_000, UTC),
        )
        assert text == VECTORS["issued"]
