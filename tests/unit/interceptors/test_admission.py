"""What admission costs on the wire, and what its errors and configuration say."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path

import pytest

from headerware import Chain, Context, Headers, Record, load_chain
from headerware.core.errors import ConfigError
from headerware.interceptors import Admission, Sign, read_policy
from headerware.keyring import certify, with_new_key
from headerware.keyring.writing import edit_keyring


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Return the path of a certificate beside the keyring of its key."""
    issuer = edit_keyring(
        tmp_path / "issuer.json",
        lambda ring: with_new_key(ring, "i", "ed25519", use=("certify",)),
        create=True,
    )
    shop = edit_keyring(
        tmp_path / "shop.json", lambda ring: with_new_key(ring, "shop", "ed25519"), create=True
    )
    path = tmp_path / "shop.jwt"
    path.write_text(
        certify(issuer.keys[0], shop.keys[0], issuer="i", subject="s", audience=["a"], topics=["orders*"])
    )
    return path


def batch_bytes(chain: Chain) -> int:
    """Return the compressed size of a batch of records, as a client with compression sends it."""
    with chain.open(Context(side="producer")) as session:
        made = list(
            session.send(
                [Record("orders", os.urandom(40), b"%d" % number, Headers()) for number in range(200)]
            )
        )
    parts = [
        part
        for each in made
        for part in (
            each.key,
            each.value,
            *(text for name, value in each.headers for text in (name.encode(), value)),
        )
    ]
    return len(zlib.compress(b"".join(parts)))


def test_in_a_compressed_batch_a_certificate_costs_a_tenth_of_a_signature(certificate: Path) -> None:
    sign = Sign(keyring=str(certificate.with_name("shop.json")), key_id="shop", cluster="c")
    plain, signed = batch_bytes(Chain([])), batch_bytes(Chain([sign]))
    admitted = batch_bytes(Chain([Admission(certificate=str(certificate)), sign]))
    once = len(certificate.read_bytes())
    assert admitted - signed - once < (signed - plain) / 10


def test_overhead_is_an_upper_bound(certificate: Path) -> None:
    context = Context(side="producer", signed=True)
    step = Admission(certificate=str(certificate)).open(context)
    record = Record("orders", b"v", b"k")
    name, value = step.on_send(record).headers[0]
    assert len(name) + len(value or b"") < step.overhead_bytes(record)


def test_paths_in_a_file_are_beside_it(certificate: Path) -> None:
    config = certificate.with_name("chain.toml")
    config.write_text(
        '[[interceptors]]\ntype = "admission"\ncertificate = "shop.jwt"\n'
        '[[interceptors]]\ntype = "sign"\nkeyring = "shop.json"\nkey_id = "shop"\n'
    )
    load_chain(config).open(Context(side="producer")).close()


def test_the_certificate_is_plain_json_web_token(certificate: Path) -> None:
    from base64 import urlsafe_b64decode  # noqa: PLC0415

    head = certificate.read_text().split(".")[0]
    found = json.loads(urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    assert found == {"alg": "Ed25519", "typ": "hw-admit+jwt", "kid": "i:1"}


@pytest.mark.parametrize(
    ("effect", "algorithm", "place", "told"),
    [
        (
            "alow",
            "Ed25519",
            "6:1",
            "rules[0].effect: expected one of 'allow', 'deny', found 'alow'; did",
        ),
        ("allow", "HS256", "1:1", "issuers[0]: expected algorithms of Ed25519, "),
    ],
)
def test_a_policy_says_where_a_word_is_wrong(
    tmp_path: Path, effect: str, algorithm: str, place: str, told: str
) -> None:
    path = tmp_path / "policy.toml"
    issuer = f'[[issuers]]\nissuer = "i"\njwks = "j"\nalgorithms = ["{algorithm}"]\n'
    path.write_text(f'{issuer}[[rules]]\neffect = "{effect}"\n')
    with pytest.raises(ConfigError) as caught:
        read_policy(str(path))
    assert str(caught.value).startswith(f"{path}:{place}: {told}")
    assert algorithm == "Ed25519" or "found 'HS256'; did you mean" in str(caught.value)
