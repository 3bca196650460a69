"""Attacks on keys of subjects; docs/security.md promises these outcomes.

Who attacks here may write to the records' topic, and to the topic of keys where a test says so, and has no
key of the key service.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headerware.core.context import wall_clock_ms
from headerware.core.errors import (
    DecryptionError,
    HeldBackError,
    InterceptorError,
    InvalidWrappedKeyError,
    KeyServiceUnavailableError,
    ShreddedError,
)
from headerware.core.header_text import decode_text, encode_text
from headerware.core.record import Record
from headerware.core.session import Session
from headerware.interceptors.encrypt.envelope import TAIL_BYTES, Statement, decode_statement
from headerware.keyring.services import Wrapped
from headerware.keyring.subjects import topic as topic_module
from headerware.keyring.subjects.rows import ERASURE, SECRET, SUBJECT_KEY, TABLE_KEYS, ErasureRow
from headerware.keyring.subjects.topic import MAX_STALE_MS
from headerware.testing import EmbeddedCluster
from tests.subjects import World, record_of, refusal_of
from tests.waiting import until


def statement_in(record: Record) -> tuple[Statement, bytes]:
    layout = decode_text(record.headers.last("hw.encrypt"), "hw.encrypt")
    return decode_statement(layout[:-TAIL_BYTES]), layout[-TAIL_BYTES:]


def with_wrapped(record: Record, wrapped: bytes) -> Record:
    """Return a record whose statement names another wrapped data key."""
    statement, tail = statement_in(record)
    fields = {name: getattr(statement, name) for name in Statement.__struct_fields__}
    text = encode_text(Statement(**{**fields, "wrapped": wrapped}).encode() + tail)
    return record.with_headers(record.headers.remove("hw.encrypt").append(("hw.encrypt", text)))


class TestAnotherPersonsKey:
    def test_the_data_key_of_another_person_does_not_open_a_record(self, world: World) -> None:
        session = world.open()
        ann, bob = session.send([record_of("ann"), record_of("bob")])
        moved = with_wrapped(ann, statement_in(bob)[0].wrapped)
        with pytest.raises(DecryptionError, match="key commitment does not fit"):
            session.consume([moved])

    def test_a_data_key_does_not_open_under_another_persons_pseudonym(self, world: World) -> None:
        session = world.open()
        ann, bob = session.send([record_of("ann"), record_of("bob")])
        mine, others = statement_in(ann)[0].wrapped, statement_in(bob)[0].wrapped
        with pytest.raises(DecryptionError, match="not wrapped under its subject's key"):
            session.consume([with_wrapped(ann, mine[:4] + others[4:28] + mine[28:])])

    def test_a_pseudonym_that_nobody_has_is_refused(self, world: World) -> None:
        session = world.open()
        [ann] = session.send([record_of("ann")])
        wrapped = statement_in(ann)[0].wrapped
        with pytest.raises(DecryptionError, match="has no key"):
            session.consume([with_wrapped(ann, wrapped[:4] + bytes(24) + wrapped[28:])])

    def test_a_row_that_is_copied_under_another_pseudonym_does_not_open(self, world: World) -> None:
        session, keys = world.open(), world.keys()
        session.send([record_of("ann")])
        row = next((key, value) for _, key, value in world.rows() if key[0] == SUBJECT_KEY)
        bob = keys.pseudonym("bob")
        world.write((bytes((SUBJECT_KEY,)) + bob + row[0][17:], row[1]))
        with pytest.raises(InterceptorError, match="changed, or copied from another subject"):
            session.send([record_of("bob")])


class TestErased:
    def test_a_key_that_a_reader_has_cached(self, world: World) -> None:
        writer, reader, keys = world.open(), world.open(), world.keys()
        ann, bob = writer.send([record_of("ann"), record_of("bob")])
        reader.consume([ann, bob])
        keys.erase("ann")
        until(lambda: isinstance(refusal_of(reader, ann), ShreddedError))
        assert reader.consume([bob])[0].value == b"secret"

    def test_a_key_that_a_writer_has_cached(self, world: World) -> None:
        writer, keys = world.open(), world.keys()
        writer.send([record_of("ann")])
        keys.erase("ann")

        def refuses() -> bool:
            try:
                writer.send([record_of("ann")])
            except InterceptorError as error:
                return "was erased" in str(error)
            return False

        until(refuses)
        assert [key[0] for _, key, value in world.rows() if value and key[0] == SUBJECT_KEY] == [SUBJECT_KEY]

    def test_a_process_that_starts_later(self, world: World) -> None:
        writer, keys = world.open(), world.keys()
        [ann] = writer.send([record_of("ann")])
        keys.erase("ann")
        assert isinstance(refusal_of(world.open(), ann), ShreddedError)

    def test_a_row_that_is_written_back(self, world: World) -> None:
        writer, keys = world.open(), world.keys()
        [ann] = writer.send([record_of("ann")])
        rows = [(key, value) for _, key, value in world.rows() if key[0] == SUBJECT_KEY]
        keys.erase("ann")
        world.write(*rows)
        assert isinstance(refusal_of(world.open(), ann), ShreddedError)

    def test_a_key_that_was_written_by_somebody_who_had_not_seen_the_erasure(self, world: World) -> None:
        keys = world.keys()
        pseudonym = keys.pseudonym("ann")
        world.write(ErasureRow(pseudonym, 1, 0, 0).row)
        with pytest.raises(InterceptorError, match="was erased"):
            world.open().send([record_of("ann")])

    def test_a_topic_that_is_rolled_back(self, world: World, tmp_path: Path) -> None:
        writer, keys = world.open(), world.keys()
        [ann] = writer.send([record_of("ann")])
        before = [(key, value) for _, key, value in world.rows()]
        reader = world.open(place=world.place(file=str(tmp_path / "reader.db")))
        assert refusal_of(reader, ann) is None
        keys.erase("ann")
        until(lambda: isinstance(refusal_of(reader, ann), ShreddedError))
        reader.close()
        with EmbeddedCluster() as restored:
            restored.create_topic(world.topic)
            back = world.at(restored.bootstrap_servers)
            back.write(*before)
            again = back.open(place=back.place(file=str(tmp_path / "reader.db")))
            assert isinstance(refusal_of(again, ann), ShreddedError)
            again.close()

    def test_a_topic_that_is_rolled_back_and_grows_again(self, world: World, tmp_path: Path) -> None:
        place = world.place(file=str(tmp_path / "reader.db"))
        reader, keys = world.open(place=place), world.keys()
        [ann] = reader.send([record_of("ann")])
        before = [(key, value) for _, key, value in world.rows()]
        keys.erase("ann")
        until(lambda: isinstance(refusal_of(reader, ann), ShreddedError))
        reader.close()
        with EmbeddedCluster() as restored:
            restored.create_topic(world.topic)
            back = world.at(restored.bootstrap_servers)
            back.write(*before)
            again = back.open()
            sent = again.send([record_of(f"customer-{number}") for number in range(9)])
            assert len(back.rows()) > len(world.rows())
            with_memory = back.open(place=back.place(file=str(tmp_path / "reader.db")))
            assert isinstance(refusal_of(with_memory, ann), ShreddedError)
            assert [each.value for each in with_memory.consume(sent)] == [b"secret"] * 9
            again.close()
            with_memory.close()

    def test_an_erasure_that_this_version_cannot_read_holds_records_back(self, world: World) -> None:
        writer, keys = world.open(), world.keys()
        [ann] = writer.send([record_of("ann")])
        world.write((bytes((ERASURE,)) + keys.pseudonym("ann"), b"\x02 of a later version"))
        assert isinstance(refusal_of(world.open(), ann), HeldBackError)


def sends_nothing(session: Session) -> bool:
    try:
        session.send([record_of("ann")])
    except HeldBackError as error:
        return "nothing was sent" in str(error)
    return False


class TestTheTopicOutOfReach:
    def test_an_erasure_may_be_missing_so_records_wait(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with EmbeddedCluster() as cluster:
            cluster.create_topic("customer-keys")
            world = World(tmp_path, cluster.bootstrap_servers, "customer-keys")
            [ann] = world.open().send([record_of("ann")])
            reader = world.open(key_service_timeout_ms=3_000)
            assert refusal_of(reader, ann) is None
            reader.send([record_of("ann")])
            with cluster.broker_down():
                later_ms = wall_clock_ms() + 2 * MAX_STALE_MS  # whatever is still read from the brokers
                monkeypatch.setattr(topic_module, "wall_clock_ms", lambda: later_ms)
                until(lambda: isinstance(refusal_of(reader, ann), HeldBackError))
                until(lambda: sends_nothing(reader))  # each way asks once a second whether it knows enough
            world.close()

    def test_nothing_is_sent_for_a_new_subject(self, tmp_path: Path) -> None:
        with EmbeddedCluster() as cluster:
            cluster.create_topic("customer-keys")
            world = World(tmp_path, cluster.bootstrap_servers, "customer-keys")
            world.open().send([record_of("ann")])
            writer = world.open(key_service_timeout_ms=3_000)
            writer.send([record_of("ann")])
            with cluster.broker_down(), pytest.raises(HeldBackError, match="nothing was sent"):
                writer.send([record_of("bob")])
            world.close()


class MissingKeys:
    """A key service that does not answer."""

    def wrap(self, key_id: str, data_key: bytes, context: bytes) -> Wrapped:
        raise KeyServiceUnavailableError(
            f"no answer about {key_id!r} for {len(data_key) + len(context)} bytes"
        )

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        raise KeyServiceUnavailableError(
            f"no answer about {key_id!r} for {len(wrapped) + len(context)} bytes"
        )

    def close(self) -> None:
        """Do nothing."""


class TestSecretsOfTheTopic:
    def test_without_the_key_service_nothing_is_read_or_sent(self, world: World) -> None:
        [ann] = world.open().send([record_of("ann")])
        without = world.open(key_service=MissingKeys(), key_service_timeout_ms=1_000)
        assert isinstance(refusal_of(without, ann), HeldBackError)
        with pytest.raises(HeldBackError, match="nothing was sent"):
            without.send([record_of("ann")])

    def test_a_table_key_that_is_replaced_opens_nothing(self, world: World) -> None:
        [ann] = world.open().send([record_of("ann")])
        rows = {key[:2]: (key, value) for _, key, value in world.rows() if key[0] == SECRET}
        table_key, pseudonyms = rows[bytes((SECRET, TABLE_KEYS))], rows[bytes((SECRET, 1))]
        world.write((table_key[0], pseudonyms[1]))  # genuine, but of another purpose
        assert isinstance(refusal_of(world.open(), ann), DecryptionError)

    def test_a_table_key_that_comes_first_is_made_by_the_key_service(self, world: World) -> None:
        world.write(
            (bytes((SECRET, TABLE_KEYS)) + bytes(8), b"\x01" + b"\xff" * 8 + b"\x09customers" + bytes(79))
        )
        with pytest.raises(InterceptorError, match="nothing was sent"):
            world.open().send([record_of("ann")])

    def test_names_are_neither_in_the_topic_nor_in_errors(self, world: World) -> None:
        name = "ann.of.green.gables@example.org"
        writer, keys = world.open(), world.keys()
        [sent] = writer.send([record_of(name)])
        keys.erase(name)
        written = b"".join(key + (value or b"") for _, key, value in world.rows())
        assert b"green" not in written
        error = refusal_of(world.open(), sent)
        assert isinstance(error, ShreddedError)
        assert "green" not in str(error)
        with pytest.raises(InvalidWrappedKeyError) as missing:
            keys.readmit("anne.of.green.gables@example.org")
        assert "green" not in str(missing.value)
