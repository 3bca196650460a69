"""Services with signed trails, for tests: each reads a record, and sends another one on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headerware.core.carry import AtWork
from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors.trail import PROOF_HEADER, TRAIL_HEADER, Trail
from headerware.interceptors.trail_proof import TrailProof, prove_trail
from headerware.keyring import Keyring, public_part, read_keyring, with_new_key
from headerware.keyring.writing import edit_keyring

if TYPE_CHECKING:
    from pathlib import Path

SERVICES: Final = ("shop", "payment", "packing", "mallory")
ORDER: Final = Record("orders", b'{"id": 1}', b"k-1", Headers([("tenant", b"north"), ("empty", None)]))
WHEN: Final = 1_767_225_600_000


class Hops:
    """Services whose keys are in one keyring; a reader has the public halves of the honest ones."""

    def __init__(self, folder: Path, algorithm: Any = "ed25519", *, create: bool = True) -> None:
        self.folder = folder
        self.path = str(folder / "keys.json")
        for service in SERVICES if create else ():
            edit_keyring(self.path, partial(with_new_key, key_id=service, algorithm=algorithm), create=True)
        self.keyring = read_keyring(self.path)
        self.clock = WHEN

    @property
    def public(self) -> Keyring:
        """The keyring of a reader that cannot sign."""
        return public_part(self.keyring)[0]

    def chain(self, service: str, **options: Any) -> Chain:
        """Return the chain of a service that signs its entries."""
        return Chain(
            [Trail(**{"service": service, "cluster": "eu", "signed": True, "keyring": self.path, **options})]
        )

    def context(self, side: Any = None) -> Context:
        return Context(side=side, now_ms=self._tick)

    def send(self, service: str, record: Record = ORDER, **options: Any) -> Record:
        """Return the record that a service produces."""
        with self.chain(service, **options).open(self.context()) as session:
            (sent,) = session.send([record])
        return sent

    def read(self, service: str, record: Record, **options: Any) -> Record:
        """Return the record as a service gets it."""
        with self.chain(service, **options).open(self.context()) as session:
            (read,) = session.consume([record])
        return read

    def forward(
        self, service: str, record: Record, topic: str, value: bytes | None = b"", **options: Any
    ) -> Record:
        """Return what a service sends while it processes a record; an empty value keeps the value."""
        with self.chain(service, **options).open(self.context()) as session:
            (read,) = session.consume([record])
            with AtWork([read]):
                made = Record(topic, read.value if value == b"" else value, read.key)
                (sent,) = session.send([made.with_headers(own_headers(read)) if value == b"" else made])
        return sent

    def three(self) -> Record:
        """Return a record that three services have handled; the last one did not change it."""
        paid = self.forward("payment", self.send("shop"), "paid", b'{"id": 1, "paid": true}')
        return self.forward("packing", paid, "packed")

    def prove(self, record: Record, **options: Any) -> TrailProof:
        return prove_trail(record, self.public, **options)

    def states(self, record: Record, **options: Any) -> list[str]:
        return [hop.state for hop in self.prove(record, **options).hops]

    def _tick(self) -> int:
        self.clock += 1
        return self.clock


def own_headers(record: Record) -> Headers:
    """Return the headers that the application wrote."""
    return Headers([pair for pair in record.headers if not pair[0].startswith("hw.")])


def trail_of(record: Record) -> bytes:
    return record.headers.last(TRAIL_HEADER) or b""


def proofs_of(record: Record) -> bytes:
    return record.headers.last(PROOF_HEADER) or b""


def with_trail(record: Record, trail: bytes | None = None, proofs: bytes | None = None) -> Record:
    """Return the record with another trail, or other proofs."""
    given = {TRAIL_HEADER: trail, PROOF_HEADER: proofs}
    return record.with_headers(
        Headers([(name, value if given.get(name) is None else given[name]) for name, value in record.headers])
    )
