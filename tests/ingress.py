"""Ingress topics as guards see them: producers with certificates, a thief, an issuer, and a policy."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from headerware import Chain, Context, Headers, Record
from headerware.core.commit_metadata import PendingOffsets
from headerware.interceptors import Admission, Sign, Slice
from headerware.keyring import certify, encode_jwks, public_part, read_keyring, with_new_key
from headerware.keyring.writing import edit_keyring, write_public_keyring
from headerware.ops.guard.judge import Judge, verdict_of
from headerware.ops.guard.rules import Routes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from headerware.keyring import Key
    from headerware.workers import Outcome

INGRESS: Final = "ingress.orders"
LETTERS: Final = f"{INGRESS}.dead-letter"
ROUTES: Final = {"ingress.{topic}": "{topic}"}
PARTITIONS: Final = {INGRESS: 3, "orders": 3, "elsewhere": 1, LETTERS: 1}
ISSUER: Final = "security team"
WHO: Final = ("shop", "bank", "thief")
POLICY: Final = """
version = 1
audience = "payments"

[[issuers]]
issuer = "security team"
jwks = "issuer.jwks.json"
algorithms = ["Ed25519"]

[[rules]]
effect = "allow"
subjects = ["shop", "bank"]
topics = ["ingress.*"]

[[rules]]
effect = "deny"
headers = { class = "secret" }
"""
MAX_AGE_MS: Final = 3_600_000
CHAIN: Final = f"""
[[interceptors]]
type = "slice"
max_bytes = 100_000

[[interceptors]]
type = "admission"
policy = "policy.toml"

[[interceptors]]
type = "sign"
keyring = "public.json"
cluster = "c"
replay_window = 100_000
max_age_ms = {MAX_AGE_MS}
"""


class Ingress:
    """The keys, certificates and the policy of some ingress topics, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_ms = time.time_ns() // 1_000_000
        self._issuer = self._key("issuer", "certify")
        keys = {name: self._key(name, "sign") for name in WHO}
        rings = [public_part(read_keyring(folder / f"{name}.json"))[0] for name in WHO]
        whole = tuple(key for ring in rings for key in ring.keys)
        write_public_keyring(folder / "public.json", type(rings[0])(keys=whole))
        jwks = encode_jwks(read_keyring(folder / "issuer.json"), use="certify")
        (folder / "issuer.jwks.json").write_bytes(jwks)
        self.policy(POLICY)
        for name, key in keys.items():
            self.certificate(name, key)

    def _key(self, name: str, use: Any) -> Key:
        path = self.folder / f"{name}.json"
        ring = edit_keyring(path, lambda old: with_new_key(old, name, "ed25519", use=(use,)), create=True)
        return ring.keys[0]

    def policy(self, text: str) -> None:
        """Put another policy in place of the present one."""
        (self.folder / "new").write_text(text)
        (self.folder / "new").replace(self.folder / "policy.toml")

    def certificate(self, name: str, key: Key, **changes: Any) -> None:
        said = {"issuer": ISSUER, "subject": name, "audience": ["payments"], "topics": ["ingress.*"]}
        issued = datetime.fromtimestamp(self.now_ms / 1_000 - 60, UTC)
        token = certify(self._issuer, key, now=issued, valid_for_s=36_000, **{**said, **changes})
        (self.folder / f"{name}.jwt").write_text(token)

    def producer_chain(self, who: str, *, certificate: str | None = None, slice_bytes: int = 0) -> Chain:
        """Return the chain of a producer; it may show the certificate of another."""
        shown = str(self.folder / f"{certificate or who}.jwt")
        keyring = str(self.folder / f"{who}.json")
        slices = [Slice(max_bytes=slice_bytes)] if slice_bytes else []
        return Chain([*slices, Admission(certificate=shown), Sign(keyring=keyring, key_id=who, cluster="c")])

    def guard_chain(self, **options: Any) -> Chain:
        """Return the chain that a consumer of the ingress topics would have."""
        sign = {"replay_window": 1_000, "max_age_ms": MAX_AGE_MS, "cluster": "c", **options}
        return Chain(
            [
                Slice(max_bytes=100_000),
                Admission(policy=str(self.folder / "policy.toml")),
                Sign(keyring=str(self.folder / "public.json"), **sign),
            ]
        )

    def signed(self, who: str, headers: Any) -> Record:
        """Return a record that somebody signs with any headers, as any client can."""
        sign = Sign(keyring=str(self.folder / f"{who}.json"), key_id=who, cluster="c")
        step = sign.open(Context(side="producer", now_ms=lambda: self.now_ms))
        return step.on_send(Record(INGRESS, b"v", b"k", Headers(headers)))

    def write_guard_chain(self) -> str:
        """Write the chain of a guard into a file, and return its path."""
        path = self.folder / "guard.toml"
        path.write_text(CHAIN)
        return str(path)

    def sent(
        self,
        *values: bytes,
        who: str = "shop",
        topic: str = INGRESS,
        headers: Any = (),
        key: bytes | None = b"k",
        slice_bytes: int = 0,
    ) -> list[Record]:
        """Return what a producer puts on the wire."""
        context = Context(side="producer", now_ms=lambda: self.now_ms, pick_partition=lambda _: 0)
        with self.producer_chain(who, slice_bytes=slice_bytes).open(context) as session:
            made: list[Record] = []
            for value in values:
                outcome: Any = session.send_outcome(Record(topic, value, key, Headers(headers)))
                made += [outcome] if isinstance(outcome, Record) else list(outcome)
        return made


class Gate:
    """A judge, and the partition 0 of an ingress topic, record by record."""

    def __init__(
        self,
        ingress: Ingress,
        chain: Chain | None = None,
        *,
        second: Chain | None = None,
        begin: int = 0,
        stays: Iterable[int] = (),
        start: int | None = None,
        partitions: Mapping[str, int] | None = None,
        audit_topic: str | None = None,
        **options: Any,
    ) -> None:
        context = Context(side="consumer", now_ms=lambda: ingress.now_ms, cluster_id=lambda: "c")
        self.context = context
        self.session = (chain or ingress.guard_chain()).open(context)
        producing = Context(side="producer", now_ms=lambda: ingress.now_ms)
        known = PARTITIONS if partitions is None else partitions
        self.judge = Judge(
            self.session,
            Routes(ROUTES, audit_topic=audit_topic),
            second=None if second is None else second.open(producing),
            count_partitions=lambda topic, _: known.get(topic, 0),
            **options,
        )
        self.place = (INGRESS, 0)
        self.offset = 0
        self.begin(self.place, begin, stays, start=start)

    def begin(
        self, place: tuple[str, int], begin: int, stays: Iterable[int] = (), *, start: int | None = None
    ) -> None:
        """Begin with a partition that an earlier judge is done with up to an offset, but for some."""
        offset, metadata = PendingOffsets(stays).encode(begin)
        committed = (offset, metadata or "") if begin else None
        self.judge.begin(place, 0, 1 << 40, committed, earliest=start)

    def take(self, records: Sequence[Record], *, at: int | None = None, partition: int = 0) -> list[Outcome]:
        """Put records into a partition, one behind the other, and return what was decided."""
        self.offset = self.offset if at is None else at
        for record in records:
            self.judge.add(record.replace(topic=INGRESS, partition=partition, offset=self.offset))
            self.offset += 1
        return self.judge.decide()

    def again(self) -> list[Outcome]:
        """Return what is decided once what holds partitions is looked at again."""
        for partition in self.judge._partitions.values():
            partition.until = 0.0  # the monotonic clock is the machine's
        return self.judge.decide()

    def commit(self) -> tuple[int, str]:
        offset, metadata = self.judge.done.commit_of(self.place)
        return offset, metadata or ""

    def close(self) -> None:
        self.judge.close()


def values(decisions: Iterable[Outcome]) -> list[Any]:
    """Return the values of what goes on."""
    return [
        record.value
        for decision in decisions
        for record in decision.records
        if decision.disposition == "sent"
    ]


def verdicts(decisions: Iterable[Outcome]) -> list[str]:
    """Return the verdict on each original, with the step that refused it."""
    return [f"{verdict_of(each)} {each.why}".strip() for each in decisions for _ in each.unit.records]
