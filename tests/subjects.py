"""A keyring, a topic of subjects' keys on a cluster, and the sessions that use both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import HeaderwareError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.core.session import Session
from headerware.interceptors import Encrypt
from headerware.keyring import with_new_key
from headerware.keyring.services import FileKeys
from headerware.keyring.subjects import SubjectTopic
from headerware.keyring.subjects.service import SubjectKeyService
from headerware.keyring.subjects.topic import SubjectKeys
from headerware.keyring.writing import edit_keyring

DEADLINE_S = 60.0
CLUSTER = "prod"


def record_of(subject: str, value: bytes | None = b"secret") -> Record:
    return Record("orders", value, b"k-1", Headers([("customer", subject.encode())]))


class World:
    def __init__(self, folder: Path, servers: str, topic: str) -> None:
        self.folder, self.servers, self.topic = folder, servers, topic
        self.keyring = folder / "keys.json"
        if not self.keyring.exists():
            edit_keyring(self.keyring, lambda ring: with_new_key(ring, "customers", "aes-256"), create=True)
        self._opened: list[Any] = []
        self._made = 0

    def at(self, servers: str) -> World:
        """Return the same world at another cluster, which has another state of the topic."""
        other = World(self.folder, servers, self.topic)
        other._opened = self._opened
        return other

    def place(self, **options: Any) -> SubjectTopic:
        """Return options; each has a table of its own, as another process would."""
        self._made += 1
        config = {"log_level": 0, "fetch.wait.max.ms": 20, "client.id": f"table-{self._made}"}
        return SubjectTopic(**{"topic": self.topic, "servers": self.servers, "config": config, **options})

    def open(self, *, key_service: Any = None, place: SubjectTopic | None = None, **options: Any) -> Session:
        given = {
            "key_service": key_service or FileKeys(keyring=str(self.keyring)),
            "key_id": "customers",
            "key_of": "header:customer",
            "subject_keys": place or self.place(),
            "key_service_timeout_ms": 30_000,
            **options,
        }
        session = Chain([Encrypt(**given)]).open(Context(cluster_id=lambda: CLUSTER))
        self._opened.append(session)
        return session

    def keys(self, place: SubjectTopic | None = None) -> SubjectKeys:
        service = SubjectKeyService(
            place or self.place(),
            FileKeys(keyring=str(self.keyring)).open(Context()),
            key_id="customers",
            key_ids=frozenset({"customers"}),
            servers=None,
            timeout_ms=int(DEADLINE_S * 1000),
        )
        self._opened.append(service)
        return service.keys

    def rows(self) -> list[tuple[int, bytes, bytes | None]]:
        """Return the records of the topic of keys, as everybody may read them."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "anybody",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        found: list[tuple[int, bytes, bytes | None]] = []
        while True:
            message = consumer.poll(DEADLINE_S)
            assert message is not None
            if message.error() is not None:
                break
            offset, key, value = message.offset(), message.key(), message.value()
            assert offset is not None
            assert isinstance(key, bytes)
            assert value is None or isinstance(value, bytes)
            found.append((offset, key, value))
        consumer.close()
        return found

    def write(self, *rows: tuple[bytes, bytes | None]) -> None:
        """Write to the topic of keys, past all rules."""
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        for key, value in rows:
            producer.produce(self.topic, value, key, partition=0)
        assert producer.flush(DEADLINE_S) == 0

    def close(self) -> None:
        for each in self._opened:
            each.close()


def refusal_of(session: Session, record: Record) -> HeaderwareError | None:
    """Return the error with which a session refuses to consume a record, or None."""
    try:
        session.consume([record])
    except HeaderwareError as error:
        return error
    return None
