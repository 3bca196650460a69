from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import (
    ConfigError,
    DecryptionError,
    HeldBackError,
    InterceptorError,
    KeyDeniedError,
    KeyServiceUnavailableError,
    ShreddedError,
    TransportHeaderError,
)
from headerware.core.explanation import explain
from headerware.core.header_text import decode_text
from headerware.core.headers import Headers
from headerware.core.hooks import DROP
from headerware.core.record import Record
from headerware.core.session import Session
from headerware.interceptors import Compress, Sign, Slice
from headerware.interceptors.encrypt import Encrypt, envelope, new_key_secret, rewrapped_key_secret
from headerware.interceptors.encrypt.envelope import Statement
from headerware.keyring import Algorithm, with_deletion, with_new_key, with_rotation
from headerware.keyring.services import AwsKms, FileKeys, KeyService, KeyServiceOptions, Vault, Wrapped
from headerware.keyring.services.data_keys import OTHER_SCOPE
from headerware.keyring.writing import edit_keyring

RECORD = Record(
    "orders",
    b'{"card": "4111 1111 1111 1111"}',
    b"k-1",
    Headers([("a", b"1"), ("b", None), ("a", b"")]),
    partition=3,
    timestamp_ms=5,
    timestamp_type=1,
    offset=1042,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1_760_000_000_000

    def __call__(self) -> int:
        return self.now


SELF_TEST = OTHER_SCOPE.encode()


class Watched:
    """A key service that counts its calls but those of the self-test, and can be switched off."""

    def __init__(self, service: KeyService) -> None:
        self.service = service
        self.wraps = self.unwraps = 0
        self.is_down = False

    def wrap(self, key_id: str, data_key: bytes, context: bytes) -> Wrapped:
        self.wraps += not context.startswith(SELF_TEST)
        self._answer()
        return self.service.wrap(key_id, data_key, context)

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        self.unwraps += not context.startswith(SELF_TEST)
        self._answer()
        return self.service.unwrap(key_id, wrapped, context)

    def close(self) -> None:
        self.service.close()

    def _answer(self) -> None:
        if self.is_down:
            raise KeyServiceUnavailableError("the service is down")


def add_key(path: Path, key_id: str, algorithm: Algorithm) -> None:
    edit_keyring(path, lambda keys: with_new_key(keys, key_id, algorithm), create=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    for key_id in ("orders", "others"):
        add_key(path, key_id, "aes-256")
    return path


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(path: Path, clock: Clock) -> Watched:
    return Watched(FileKeys(keyring=str(path)).open(Context(now_ms=clock)))


Open = Callable[..., Session]


@pytest.fixture
def opened(keys: Watched, clock: Clock) -> Open:
    """Open a chain with encrypt, and the steps given by position."""

    def opened(*others: Any, side: Any = None, cluster: str | None = "prod", **options: Any) -> Session:
        options = {"key_service": keys, **({} if "key_ids" in options else {"key_id": "orders"}), **options}
        before = [step for step in others if isinstance(step, Compress)]
        after = [step for step in others if step not in before]
        context = Context(now_ms=clock, side=side, cluster_id=lambda: cluster)
        return Chain([*before, Encrypt(**options), *after]).open(context)

    return opened


def sent(session: Session, record: Record = RECORD) -> Record:
    (record,) = session.send([record])
    return record


def read(session: Session, record: Record) -> Record:
    (record,) = session.consume([record])
    return record


def statement_of(record: Record) -> Statement:
    layout = decode_text(record.headers.last("hw.encrypt"), "hw.encrypt")
    return envelope.statement_of(layout, is_null=record.value is None)[0]


class TestRoundTrip:
    @pytest.mark.parametrize("value", [RECORD.value, b"", None, bytes(100_000)])
    @pytest.mark.parametrize("key", [b"k-1", b"", None])
    def test_a_reader_gets_the_same_record(
        self, opened: Open, value: bytes | None, key: bytes | None
    ) -> None:
        record = RECORD.replace(value=value, key=key)
        assert read(opened(), sent(opened(), record)) == record

    def test_the_wire_has_only_ciphertext(self, opened: Open) -> None:
        wire = sent(opened())
        assert b"4111" not in wire.value
        assert len(wire.value) == len(RECORD.value) + 16
        assert wire.key == RECORD.key
        assert wire.headers[:-1] == RECORD.headers
        assert wire.headers.names()[-1] == "hw.encrypt"

    def test_equal_records_do_not_look_alike(self, opened: Open) -> None:
        session = opened()
        first, second = sent(session), sent(session)
        assert first.value != second.value
        assert first.headers != second.headers

    def test_the_header_tells_key_cluster_and_topic(self, opened: Open) -> None:
        stated = statement_of(sent(opened()))
        assert (stated.key_id, stated.key_version) == ("orders", "1")
        assert (stated.cluster, stated.topic, stated.signer) == ("prod", "orders", "")

    def test_a_tombstone_stays_null(self, opened: Open) -> None:
        session = opened()
        tombstone = sent(session, RECORD.replace(value=None))
        assert tombstone.value is None
        assert read(session, tombstone).value is None

    def test_headers_added_later_stay(self, opened: Open) -> None:
        wire = sent(opened())
        later = wire.with_headers(wire.headers.add("later", b"1"))
        assert read(opened(), later).headers == RECORD.headers.add("later", b"1")

    def test_several_threads_send(self, opened: Open) -> None:
        session = opened()
        records = [RECORD.replace(value=b"%d" % number, topic=f"t-{number % 7}") for number in range(500)]
        with ThreadPoolExecutor(8) as pool:
            wires = list(pool.map(lambda record: sent(session, record), records))
        assert [read(session, wire) for wire in wires] == records
        assert len({wire.headers.last("hw.encrypt") for wire in wires}) == 500

    def test_the_whole_chain(self, opened: Open, path: Path) -> None:
        add_key(path, "signer", "ed25519")
        steps = Compress(), Slice(max_bytes=1_000), Sign(keyring=str(path), key_id="signer")
        big = RECORD.replace(value=b"".join(b"%d," % number for number in range(5_000)))
        writer, reader = opened(*steps), opened(*steps)
        parts = writer.send([big])
        assert len(parts) > 3
        parts = [part.replace(offset=offset) for offset, part in enumerate(parts)]
        (whole,) = reader.consume(parts)
        assert (whole.value, whole.key, whole.headers) == (big.value, big.key, big.headers)

    def test_states_an_upper_bound_of_what_it_adds(self, opened: Open, keys: Watched) -> None:
        secret = new_key_secret(keys, "orders")
        session = opened(key="deterministic", key_secret=secret, bind_headers=("a" * 200,))
        [step] = session.steps
        for value in (RECORD.value, None):
            record = RECORD.replace(value=value)
            before = step.opened.overhead_bytes(record)
            wire = sent(session, record)
            name, header = wire.headers[-1]
            added = len(name) + len(header) + len(wire.key) - len(record.key) + 16
            assert added <= step.opened.overhead_bytes(record) <= before
        longer = RECORD.replace(topic="t" * 249)
        bound = step.opened.overhead_bytes(longer)
        name, header = sent(session, longer).headers[-1]
        assert len(name) + len(header) + 32 <= bound


class TestRequire:
    @pytest.mark.parametrize("value", [b"plain", None])
    def test_plaintext_is_refused_by_default(self, opened: Open, value: bytes | None) -> None:
        with pytest.raises(DecryptionError, match=r"expected an hw\.encrypt header, found plaintext"):
            read(opened(), RECORD.replace(value=value))

    def test_warn_counts_and_logs_topics_once(self, opened: Open, caplog: pytest.LogCaptureFixture) -> None:
        session = opened(require="warn")
        with caplog.at_level(logging.WARNING, "headerware"):
            for topic in ("a", "a", "b"):
                assert read(session, RECORD.replace(topic=topic)).value == RECORD.value
        assert [record.getMessage() for record in caplog.records] == [
            "topic 'a' has records in plaintext",
            "topic 'b' has records in plaintext",
        ]
        assert session.stats()["encrypt"]["plaintext"] == 3

    def test_off_passes_them(self, opened: Open) -> None:
        assert read(opened(require=False), RECORD) == RECORD

    def test_tombstones_pass_if_they_are_not_to_be_authenticated(self, opened: Open) -> None:
        session, tombstone = opened(nulls="pass"), RECORD.replace(value=None)
        assert sent(session, tombstone) == tombstone
        assert read(session, tombstone) == tombstone
        with pytest.raises(DecryptionError):
            read(session, RECORD)

    def test_a_chain_without_it_refuses_the_record(self, opened: Open) -> None:
        with pytest.raises(TransportHeaderError, match="'encrypt'"):
            read(Chain([Compress()]).open(), sent(opened()))


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"key_id": None}, "key_id: expected the key_id to encrypt with"),
            ({"key_id": "a\nb"}, "key_id: a key's id must be"),
            ({"key_ids": ("",)}, "key_ids: a key's id must be"),
            ({"require": "maybe"}, "require"),
            ({"nulls": "drop"}, "nulls"),
            ({"key": "random"}, "key"),
            ({"key": "deterministic"}, "key_secret"),
            ({"key_secret": "AQ=="}, "key_secret"),
            ({"key": "deterministic", "key_secret": "?"}, "key_secret: cannot be read"),
            ({"bind_headers": ("hw.sig",)}, "bind_headers"),
            ({"bind_headers": ("HW.Encrypt",)}, "bind_headers"),
            ({"bind_headers": ("",)}, "bind_headers"),
            ({"accept_origins": ("orders",)}, "accept_origins"),
        ],
    )
    def test_refuses_what_cannot_work(self, keys: Watched, options: dict[str, Any], problem: str) -> None:
        with pytest.raises(ConfigError, match=problem):
            Encrypt(**{"key_service": keys, "key_id": "orders", **options})

    def test_tombstones_with_encrypted_keys_need_their_header(self, keys: Watched) -> None:
        secret = new_key_secret(keys, "orders")
        with pytest.raises(ConfigError, match='nulls: expected "authenticate"'):
            Encrypt(key_service=keys, key_id="orders", key="deterministic", key_secret=secret, nulls="pass")

    def test_the_secret_of_keys_is_wrapped_under_an_accepted_key(self, keys: Watched) -> None:
        secret = new_key_secret(keys, "others")
        with pytest.raises(ConfigError, match="'others', which is not among the key_ids"):
            Encrypt(key_service=keys, key_id="orders", key="deterministic", key_secret=secret)

    def test_a_consumer_needs_no_key_to_encrypt_with(self, opened: Open) -> None:
        wire = sent(opened())
        reader = opened(key_ids=("orders",), side="consumer")
        assert read(reader, wire) == RECORD
        with pytest.raises(
            InterceptorError,
            match="expected a key_id to encrypt with, because this chain sends records; found none",
        ):
            sent(reader)

    def test_a_producer_does(self, opened: Open) -> None:
        with pytest.raises(
            ConfigError, match="key_id: expected a key_id to encrypt with, because this chain sends records"
        ):
            opened(key_ids=("orders",), side="producer")

    def test_configuration_names_the_service(self, path: Path) -> None:
        config = path.with_name("chain.toml")
        config.write_text(
            '[[interceptors]]\ntype = "encrypt"\nkey_id = "orders"\n'
            'key_service = { type = "file", keyring = "keys.json" }\n'
        )
        session = Chain.from_config({"headerware.config": str(config)}).open()
        assert read(session, sent(session)) == RECORD

    def test_its_text_shows_no_key(self, path: Path) -> None:
        options = Encrypt(key_service=FileKeys(keyring=str(path)), key_id="orders")
        assert str(path) not in repr(options)

    def test_a_secret_of_the_service_is_shown_nowhere(self, tmp_path: Path) -> None:
        table = {"type": "vault", "url": "https://vault.example", "token": "hvs.secret"}
        assert "hvs.secret" not in repr(Encrypt(key_service=table, key_id="orders"))
        config = tmp_path / "chain.toml"
        text = '[[interceptors]]\ntype = "encrypt"\nkey_id = "orders"\n'
        config.write_text(
            f'{text}key_service = {{ type = "vault", url = "https://vault.example", token = "hvs.secret" }}\n'
        )
        [explained] = explain(config)
        [shown] = [option.value for option in explained.options if option.name == "key_service"]
        assert shown == {**table, "token": "[hidden]"}

    def test_options_of_another_packages_service_are_hidden_unless_it_permits_printing(self) -> None:
        class Hsm(KeyServiceOptions, frozen=True, kw_only=True):
            type = "hsm"
            printable = ("slot",)
            slot: int
            api_key: str
            pin: str

        options = Encrypt(key_service=Hsm(slot=1, api_key="a", pin="1234"), key_id="orders")
        table = {"type": "hsm", "slot": 1, "api_key": "a", "pin": "1234"}
        expected = {"type": "hsm", "slot": 1, "api_key": "[hidden]", "pin": "[hidden]"}
        assert options.shown("key_service", table) == expected

    @pytest.mark.parametrize(
        ("written", "shown"),
        [
            ("${env:VAULT_TOKEN}", "${env:VAULT_TOKEN}"),
            ("${env:VAULT_TOKEN:-hvs.secret}", "[hidden]"),
            ("${env:VAULT_TOKEN}hvs.secret", "[hidden]"),
        ],
    )
    def test_a_secret_is_shown_only_as_the_name_of_its_variable(self, written: str, shown: str) -> None:
        options = Encrypt(key_service=Vault(url="https://vault.example", token="t"), key_id="orders")
        assert options.shown("key_service", {"type": "vault", "token": written})["token"] == shown

    @pytest.mark.parametrize("service", [AwsKms, FileKeys, Vault])
    def test_options_of_our_services_are_printed_except_the_token(
        self, service: type[KeyServiceOptions]
    ) -> None:
        hidden = {"token"} if service is Vault else set()
        assert {*service.__struct_fields__} == {*service.printable, *hidden}

    def test_a_service_that_is_not_there(self) -> None:
        with pytest.raises(ConfigError, match="key_service: there is no key service type 'valt'"):
            Encrypt(key_service="valt", key_id="orders")

    def test_it_may_wait_for_the_network_and_hides(self) -> None:
        assert Encrypt.blocks
        assert Encrypt.hides


class TestDeadLetters:
    """While sending, a dead letter would publish the record as the application gave it."""

    def test_a_producers_chain_has_none(self, opened: Open) -> None:
        for steps in ((), (Compress(on_error="dead_letter"),)):
            options: dict[str, Any] = {} if steps else {"on_error": "dead_letter"}
            with pytest.raises(ConfigError, match="would publish what 'encrypt' hides"):
                opened(*steps, side="producer", **options)

    def test_other_topics_may(self, opened: Open) -> None:
        opened(Compress(on_error="dead_letter", topics=("a",)), side="producer", topics=("b",))

    def test_a_session_of_both_sides_publishes_none_while_sending(self, keys: Watched) -> None:
        published: list[Record] = []
        step = Encrypt(key_service=keys, key_id="orders", on_error="dead_letter", key_service_timeout_ms=50)
        session = Chain([step]).open(Context(publish=published.append))
        # An outage would hold the record back, so that on_error is not asked.
        keys.service = _Denying()
        with pytest.raises(InterceptorError, match="cannot encrypt, so nothing was sent"):
            sent(session)
        assert published == []

    def test_a_consumers_dead_letter_is_encrypted(self, opened: Open, keys: Watched) -> None:
        published: list[Record] = []
        wire = sent(opened())
        step = Encrypt(key_service=keys, key_ids=("others",), on_error="dead_letter")
        session = Chain([step]).open(Context(side="consumer", publish=published.append))
        assert session.consume_outcomes([wire]) == [DROP]
        (letter,) = published
        assert letter.value == wire.value
        assert letter.headers.last("hw.encrypt") == wire.headers.last("hw.encrypt")
        assert b"4111" not in b"".join(value or b"" for _, value in letter.headers)


class _Denying:
    def wrap(self, key_id: str, data_key: bytes, context: bytes) -> Wrapped:
        raise KeyDeniedError("a policy forbids it")

    unwrap: Any = wrap

    def close(self) -> None:
        pass


class TestKeys:
    def test_a_rotated_key_reads_what_it_wrote_before(self, opened: Open, path: Path, clock: Clock) -> None:
        writer, reader = opened(), opened()
        old = sent(writer)
        edit_keyring(path, lambda keys: with_rotation(keys, "orders"))
        clock.now += 3_600_001
        new = sent(writer)
        assert [statement_of(wire).key_version for wire in (old, new)] == ["1", "2"]
        assert [read(reader, wire) for wire in (old, new)] == [RECORD, RECORD]

    def test_one_data_key_serves_a_topic_for_an_hour(self, opened: Open, keys: Watched, clock: Clock) -> None:
        session = opened()
        wrapped = {statement_of(sent(session)).wrapped for _ in range(20)}
        assert len(wrapped) == keys.wraps == 1
        assert statement_of(sent(session, RECORD.replace(topic="b"))).wrapped not in wrapped
        clock.now += 3_600_001
        assert statement_of(sent(session)).wrapped not in wrapped

    @pytest.mark.parametrize(
        ("limits", "at_most"),
        [
            ({"data_key_max_uses": 10}, 10),
            ({"data_key_max_uses": 1_000}, 1_010),
            ({"data_key_max_bytes": 10 * len(RECORD.value)}, 10),
            ({"data_key_max_bytes": 1_000 * len(RECORD.value)}, 1_010),
        ],
    )
    def test_a_data_key_is_used_up(
        self, opened: Open, keys: Watched, limits: dict[str, int], at_most: int
    ) -> None:
        """Large limits are counted to within one part in a hundred."""
        session = opened(**limits)
        given = Counter(statement_of(sent(session)).wrapped for _ in range(3 * at_most))
        assert max(given.values()) <= at_most
        assert sorted(given.values())[-2] >= 0.78 * at_most  # its successor is made before it is used up
        assert keys.wraps in range(3, 5)

    def test_threads_use_up_a_data_key_together(self, opened: Open) -> None:
        """Not counted to the last record: each has a key of its own, so the limit is a rule of renewal."""
        session = opened(data_key_max_uses=1_000)
        with ThreadPoolExecutor(4) as threads:
            records = list(threads.map(lambda _: sent(session), range(4_000)))
        assert max(Counter(statement_of(record).wrapped for record in records).values()) <= 1_200

    def test_a_deleted_key_shreds_its_records(self, opened: Open, path: Path, clock: Clock) -> None:
        wire = sent(opened())
        reader = opened()
        assert read(reader, wire) == RECORD
        edit_keyring(path, lambda keys: with_deletion(keys, "orders"))
        clock.now += 7_200_001  # past the cache
        with pytest.raises(ShreddedError, match="can no longer be read"):
            read(reader, wire)

    def test_shredded_records_do_not_hold_up_the_stream(self, opened: Open, path: Path, clock: Clock) -> None:
        shredded = sent(opened())
        edit_keyring(path, lambda keys: with_deletion(with_rotation(keys, "orders"), "orders", version=1))
        clock.now += 10_000
        good = sent(opened())
        refused, delivered = opened().consume_outcomes([shredded, good])
        assert type(refused) is ShreddedError
        assert delivered == RECORD

    def test_an_outage_holds_records_back(self, opened: Open, keys: Watched) -> None:
        wire = sent(opened())
        reader = opened(key_service_timeout_ms=200)
        keys.is_down = True
        with pytest.raises(HeldBackError, match="not available now"):
            read(reader, wire)

    def test_an_outage_while_sending_is_the_applications_error(self, opened: Open, keys: Watched) -> None:
        writer = opened(key_service_timeout_ms=200)
        keys.is_down = True
        with pytest.raises(HeldBackError, match=r"cannot encrypt, so nothing was sent: .*down"):
            sent(writer)

    def test_known_keys_outlast_an_outage(self, opened: Open, keys: Watched, clock: Clock) -> None:
        session = opened(key_service_timeout_ms=200)
        wire = sent(session)
        assert read(session, wire) == RECORD
        keys.is_down = True
        clock.now += 1_800_000
        assert read(session, wire) == RECORD
        assert read(session, sent(session)) == RECORD  # the same data key

    def test_a_batch_unwraps_each_data_key_once(self, opened: Open, keys: Watched) -> None:
        wires = [sent(opened(), RECORD.replace(offset=at)) for at in range(8) for _ in range(3)]
        assert keys.wraps == 24
        reader = opened()
        records = [wire for wire in wires[:8] for _ in range(5)]
        assert len(reader.consume(records)) == 40
        assert keys.unwraps == 8

    def test_a_bad_record_of_a_batch_does_not_affect_the_others(self, opened: Open) -> None:
        good = [sent(opened()) for _ in range(3)]
        bad = good[1].replace(value=b"?")
        first, refused, last, plain = opened().consume_outcomes([good[0], bad, good[2], RECORD])
        assert first == last == RECORD
        assert isinstance(refused, DecryptionError)
        assert isinstance(plain, DecryptionError)

    def test_counts(self, opened: Open) -> None:
        session = opened()
        read(session, sent(session))
        stats = session.stats()["encrypt"]
        assert (stats["encrypted"], stats["decrypted"], stats["plaintext"]) == (1, 1, 0)
        assert stats["data_keys_wraps"] == 1


class TestOrigins:
    def test_a_mirrored_topic_is_read_if_its_origin_is_accepted(self, opened: Open) -> None:
        wire = sent(opened(cluster="east"))
        mirrored = wire.replace(topic="east.orders")
        with pytest.raises(DecryptionError, match="accept_origins permits no such origin"):
            read(opened(cluster="west"), mirrored)
        reader = opened(cluster="west", accept_origins=("east/orders",))
        assert read(reader, mirrored).value == RECORD.value

    def test_a_cluster_that_becomes_known_counts_from_then_on(self, keys: Watched, clock: Clock) -> None:
        known: list[str | None] = [None]
        context = Context(now_ms=clock, cluster_id=lambda: known[0])
        session = Chain([Encrypt(key_service=keys, key_id="orders")]).open(context)
        early = sent(session)
        assert read(session, early) == RECORD
        known[0] = "prod"
        late = sent(session)
        assert [statement_of(wire).cluster for wire in (early, late)] == ["", "prod"]
        clock.now += 1_000
        assert [read(session, wire) for wire in (early, late)] == [RECORD, RECORD]
        known[0] = "test"
        other = Chain([Encrypt(key_service=keys, key_id="orders")]).open(context)
        with pytest.raises(DecryptionError, match="of cluster 'prod', found in"):
            read(other, late)


class TestBoundHeaders:
    def test_a_reader_may_require_more_than_was_bound(self, opened: Open) -> None:
        with pytest.raises(DecryptionError, match=r"expected these headers .* with the value: 'tenant'"):
            read(opened(bind_headers=("tenant",)), sent(opened(bind_headers=("other",))))

    def test_a_writer_may_bind_more(self, opened: Open) -> None:
        wire = sent(opened(bind_headers=("a", "tenant")))
        assert read(opened(bind_headers=("a",)), wire) == RECORD
        changed = wire.with_headers(Headers([("a", b"2"), *wire.headers[1:]]))
        with pytest.raises(DecryptionError, match="tag does not fit"):
            read(opened(), changed)

    def test_a_second_encrypt_is_refused(self, opened: Open, keys: Watched) -> None:
        twice = Encrypt(key_service=keys, key_id="orders", name="twice")
        with pytest.raises(ConfigError, match="'encrypt' and 'twice' would both protect the same records"):
            opened(twice)

    def test_a_second_encrypt_that_may_meet_the_first_refuses_the_records(
        self, opened: Open, keys: Watched
    ) -> None:
        twice = Encrypt(key_service=keys, key_id="orders", name="twice", topics=("*", "!other"))
        with pytest.raises(DecryptionError, match=r"more than one hw\.encrypt"):
            sent(opened(twice, topics=["o*", "a*"]))


class TestRecordKeys:
    @pytest.fixture
    def secret(self, keys: Watched) -> str:
        return new_key_secret(keys, "orders")

    def test_a_reader_gets_the_plain_key(self, opened: Open, secret: str) -> None:
        session = opened(key="deterministic", key_secret=secret)
        wire = sent(session)
        assert wire.key != RECORD.key
        assert len(wire.key) == len(RECORD.key) + 16
        assert read(session, wire) == RECORD

    def test_equal_keys_stay_equal_and_topics_differ(self, opened: Open, secret: str) -> None:
        first, second = (sent(opened(key="deterministic", key_secret=secret)).key for _ in range(2))
        other = sent(opened(key="deterministic", key_secret=secret), RECORD.replace(topic="b")).key
        assert first == second != other

    @pytest.mark.parametrize("key", [None, b""])
    def test_null_and_empty_stay(self, opened: Open, secret: str, key: bytes | None) -> None:
        session = opened(key="deterministic", key_secret=secret)
        wire = sent(session, RECORD.replace(key=key))
        assert wire.key == key
        assert read(session, wire).key == key

    def test_a_tombstone_meets_the_key_that_it_deletes(self, opened: Open, secret: str) -> None:
        session = opened(key="deterministic", key_secret=secret)
        tombstone = sent(session, RECORD.replace(value=None))
        assert tombstone.key == sent(session).key
        assert read(session, tombstone) == RECORD.replace(value=None)

    def test_rotation_does_not_change_them(
        self, opened: Open, secret: str, keys: Watched, path: Path
    ) -> None:
        before = sent(opened(key="deterministic", key_secret=secret)).key
        edit_keyring(path, lambda keys: with_rotation(keys, "orders"))
        assert sent(opened(key="deterministic", key_secret=secret)).key == before
        again = rewrapped_key_secret(keys, secret, "others")
        assert again != secret
        session = opened(key="deterministic", key_secret=again, key_ids=("others",), key_id="orders")
        assert sent(session).key == before

    def test_a_reader_needs_the_secret(self, opened: Open, secret: str) -> None:
        with pytest.raises(DecryptionError, match="its key is encrypted"):
            read(opened(), sent(opened(key="deterministic", key_secret=secret)))

    def test_another_secret_is_refused(self, opened: Open, secret: str, keys: Watched) -> None:
        other = new_key_secret(keys, "orders")
        with pytest.raises(DecryptionError, match="not encrypted with this key_secret"):
            read(
                opened(key="deterministic", key_secret=other),
                sent(opened(key="deterministic", key_secret=secret)),
            )

    def test_a_plain_key_is_refused_if_it_must_be_encrypted(self, opened: Open, secret: str) -> None:
        wire = sent(opened())
        with pytest.raises(DecryptionError, match="its key is plaintext"):
            read(opened(key="deterministic", key_secret=secret), wire)
        assert read(opened(key="deterministic", key_secret=secret, require="warn"), wire) == RECORD


class TestSigner:
    @pytest.fixture
    def signing(self, path: Path) -> Callable[..., Sign]:
        for key_id in ("alice", "bob"):
            add_key(path, key_id, "ed25519")
        return lambda key_id=None, **options: Sign(keyring=str(path), key_id=key_id, **options)

    def test_the_signers_key_is_bound(self, opened: Open, signing: Callable[..., Sign]) -> None:
        wire = sent(opened(signing("alice")))
        assert statement_of(wire).signer == "alice"
        assert read(opened(signing()), wire).verified.key_id == "alice"  # type: ignore[union-attr]

    def test_another_signer_cannot_claim_the_record(self, opened: Open, signing: Callable[..., Sign]) -> None:
        wire = sent(opened(signing("alice")))
        stripped = wire.with_headers(wire.headers.remove("hw.sig"))
        (claimed,) = (
            Chain([signing("bob")])
            .open(Context(cluster_id=lambda: "prod"))
            .send([stripped.with_headers(stripped.headers.remove("hw.encrypt"))])
        )
        encrypt, sig = stripped.headers.last("hw.encrypt"), signing("bob").open(Context(side="producer"))
        claimed = sig.on_send(stripped)
        assert claimed.headers.last("hw.encrypt") == encrypt
        with pytest.raises(DecryptionError, match="to be signed with key 'alice', and is signed with 'bob'"):
            read(opened(signing(), cluster=None), claimed)

    @pytest.mark.parametrize("require", ["off", "warn"])
    def test_a_removed_signature_is_noticed(
        self, opened: Open, signing: Callable[..., Sign], require: str
    ) -> None:
        wire = sent(opened(signing("alice")))
        stripped = wire.with_headers(wire.headers.remove("hw.sig"))
        with pytest.raises(DecryptionError, match="to be signed with key 'alice', and has no signature"):
            read(opened(signing(require=require)), stripped)

    def test_a_chain_that_does_not_verify_does_not_ask(
        self, opened: Open, signing: Callable[..., Sign]
    ) -> None:
        wire = sent(opened(signing("alice")))
        stripped = wire.with_headers(wire.headers.remove("hw.sig"))
        assert read(opened(), stripped) == RECORD

    def test_other_topics_are_not_signed(self, opened: Open, signing: Callable[..., Sign]) -> None:
        session = opened(signing("alice", topics=("pay*",)))
        assert statement_of(sent(session)).signer == ""
        assert read(session, sent(session)) == RECORD

    def test_a_changed_signer_opens_it_again(
        self, keys: Watched, signing: Callable[..., Sign], clock: Clock
    ) -> None:
        context = Context(now_ms=clock)
        step = Encrypt(key_service=keys, key_id="orders")
        first = Chain([step, signing("alice")]).open(context)
        assert statement_of(sent(first)).signer == "alice"
        second = Chain([step, signing("bob")]).open(context, previous=first)
        assert statement_of(sent(second)).signer == "bob"
        third = Chain([step, signing("bob", require="warn")]).open(context, previous=second)
        assert third.steps[0].opened is second.steps[0].opened
