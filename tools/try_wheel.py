"""Try an installed Headerware: a chain on an embedded cluster, a signed record and a forged one, the command.

``make release`` runs this outside of the clone, with each supported Python; it needs nothing but the wheel.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import confluent_kafka

import headerware
from headerware import Consumer, Producer, SignatureError
from headerware.testing import EmbeddedCluster

CHAIN = """
[[interceptors]]
type = "trail"
service = "orders"

[[interceptors]]
type = "sign"
keyring = "keys.json"
key_id = "orders-2026"
require = "enforce"
"""


def command(*words: str) -> str:
    program = Path(sys.executable).with_name("headerware")
    return subprocess.run([program, *words], check=True, capture_output=True, text=True, timeout=60).stdout


def main() -> None:
    assert headerware.__version__ == version("headerware")
    assert "site-packages" in headerware.__file__, headerware.__file__
    Path("headerware.toml").write_text(CHAIN, encoding="utf-8")
    assert "check" in command("--help")
    command("keys", "generate", "--keyring", "keys.json", "--id", "orders-2026", "--algorithm", "ed25519")
    command("check", "--open", "headerware.toml")
    with EmbeddedCluster(topics={"orders": 1}) as cluster:
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        chain = {"headerware.config": "headerware.toml"}
        with Producer({**servers, **chain}) as producer:
            producer.produce("orders", b"signed", headers={"tenant": "north"})
        forger = confluent_kafka.Producer(servers)
        forger.produce("orders", b"forged")
        forger.flush(30)
        reading = {**servers, **chain, "group.id": "billing", "auto.offset.reset": "earliest"}
        with Consumer(reading) as consumer:
            consumer.subscribe(["orders"])
            signed, forged = consumer.poll(30), consumer.poll(30)
            assert signed is not None
            assert forged is not None
            assert (signed.value(), dict(signed.headers() or ())["tenant"]) == (b"signed", b"north")
            verified = consumer.verified(signed)
            assert verified is not None
            assert verified.key_id == "orders-2026"
            assert (forged.value(), forged.error() is None) == (None, False), "a forged record was delivered"
            assert SignatureError.__name__ in str(forged.error()) or "signature" in str(forged.error())


main()
