from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from headerware.core.chain import Chain, load_chain
from headerware.core.context import Context
from headerware.core.errors import ConfigError, InterceptorError, ShreddedError
from headerware.core.header_text import decode_text
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors import Encrypt, EncryptFields, Serialize
from headerware.interceptors.encrypt.envelope import TAIL_BYTES
from headerware.interceptors.encrypt.subject import SubjectOf
from headerware.keyring.services import FileKeys
from headerware.keyring.subjects import SubjectTopic
from tests.subjects import CLUSTER, World, record_of, refusal_of
from tests.waiting import until

HEADERS = Headers([("customer", b"old"), ("tenant", b"blue"), ("customer", b"ann")])


class TestSubjectOf:
    @pytest.mark.parametrize(
        ("text", "value", "key", "subject"),
        [
            ("header:customer", b"v", b"k", "ann"),
            ("headers.customer", b"v", b"k", "ann"),
            ("key", b"v", b"ann", "ann"),
            ("value.customer.id", b'{"customer": {"id": 7}}', b"k", "7"),
            ("value.customer.id", {"customer": {"id": "ann"}}, b"k", "ann"),
            ('headers.tenant + "/" + headers.customer', b"v", b"k", "blue/ann"),
            ("topic", b"v", b"k", "orders"),
        ],
    )
    def test_finds_it(self, text: str, value: Any, key: bytes, subject: str) -> None:
        assert SubjectOf(text).of("orders", value, key, HEADERS) == subject

    @pytest.mark.parametrize(
        ("text", "value", "problem"),
        [
            ("header:missing", b"v", "expected a header 'missing'"),
            ("value.customer", b"no JSON", "expected a value in JSON"),
            ("value.customer", None, "cannot be found"),
            ("value.customer", b'{"customer": null}', "cannot be found|found NoneType"),
            ("value.customer", b'{"customer": true}', "found bool"),
            ("value.customer", b'{"customer": ""}', "1 to 1,024 bytes"),
            ("value.customer", b'{"customer": "%s"}' % (b"x" * 1025), "found 1,025"),
            ("value.customer", b'{"customer": {"name": "green"}}', "found dict"),
        ],
    )
    def test_refuses_a_record_without_one(self, text: str, value: Any, problem: str) -> None:
        with pytest.raises(InterceptorError, match=problem) as refused:
            SubjectOf(text).of("orders", value, b"k", HEADERS)
        assert "green" not in str(refused.value)

    @pytest.mark.parametrize("text", ["header:", "value.(", "offset", "timestamp == 1"])
    def test_refuses_other_texts(self, text: str) -> None:
        with pytest.raises(ConfigError) as refused:
            SubjectOf(text)
        assert refused.value.path == "key_of"


class TestOptions:
    def test_key_of_needs_subject_keys(self) -> None:
        with pytest.raises(ConfigError, match="where the keys of subjects are kept"):
            Encrypt(key_service=FileKeys(keyring="k"), key_id="a", key_of="header:customer")

    def test_a_producer_with_subject_keys_needs_key_of(self, world: World) -> None:
        step = Encrypt(
            key_service=FileKeys(keyring=str(world.keyring)), key_id="customers", subject_keys=world.place()
        )
        with pytest.raises(ConfigError, match="what names the subject of a record"):
            Chain([step]).open(Context(side="producer", bootstrap_servers=world.servers))

    def test_brokers_must_be_known(self, world: World) -> None:
        with pytest.raises(ConfigError) as refused:
            world.open(place=SubjectTopic(topic="customer-keys"))
        assert refused.value.path.endswith("subject_keys.servers")

    def test_a_table_of_configuration(self, tmp_path: Path) -> None:
        path = tmp_path / "chain.toml"
        path.write_text(
            '[[interceptors]]\ntype = "encrypt"\nkey_service = { type = "file", keyring = "k.json" }\n'
            'key_id = "a"\nkey_of = "header:customer"\n'
            'subject_keys = { type = "topic", topic = "t", file = "keys.db", '
            'config = { "sasl.password" = "x" } }\n'
        )
        [step] = cast("tuple[Encrypt, ...]", tuple(load_chain(path)))
        assert (step.subject_keys.topic, step.subject_keys.file) == ("t", str(tmp_path / "keys.db"))
        shown = step.shown("subject_keys", {"type": "topic", "topic": "t", "config": {"sasl.password": "x"}})
        assert shown == {"type": "topic", "topic": "t", "config": "[hidden]"}


class TestEncrypt:
    def test_each_subject_has_data_keys_of_its_own(self, world: World) -> None:
        session = world.open()
        sent = session.send([record_of("ann"), record_of("bob"), record_of("ann")])
        layouts = [decode_text(record.headers.last("hw.encrypt"), "hw.encrypt") for record in sent]
        ann, bob, again = [layout[:-TAIL_BYTES] for layout in layouts]
        assert (ann == again, ann == bob) == (True, False)

    def test_a_null_value_is_authenticated(self, world: World) -> None:
        session = world.open()
        [sent] = session.send([record_of("ann", None)])
        assert session.consume([sent])[0].value is None

    def test_a_record_without_a_subject_is_not_sent(self, world: World) -> None:
        with pytest.raises(InterceptorError, match="expected a header 'customer'"):
            world.open().send([Record("orders", b"v")])

    def test_records_of_before_are_still_read(self, world: World) -> None:
        plain = Encrypt(key_service=FileKeys(keyring=str(world.keyring)), key_id="customers")
        [sent] = Chain([plain]).open(Context(cluster_id=lambda: CLUSTER)).send([record_of("ann")])
        assert world.open().consume([sent])[0].value == b"secret"

    def test_readers_without_subject_keys_refuse(self, world: World) -> None:
        plain = Encrypt(key_service=FileKeys(keyring=str(world.keyring)), key_id="customers")
        [sent] = world.open().send([record_of("ann")])
        refused = refusal_of(Chain([plain]).open(Context(cluster_id=lambda: CLUSTER)), sent)
        assert "configure subject_keys" in str(refused)

    def test_the_header_of_the_subject_may_be_secret(self, world: World) -> None:
        session = world.open(headers=("customer",))
        [sent] = session.send([record_of("ann")])
        assert "customer" not in sent.headers
        assert session.consume([sent])[0].headers.last("customer") == b"ann"

    def test_is_not_sent_natively(self, world: World) -> None:
        options = Encrypt(
            key_service=FileKeys(keyring=str(world.keyring)),
            key_id="customers",
            key_of="header:customer",
            subject_keys=world.place(),
        )
        opened = options.open(Context())
        assert opened.native_form("send", "orders") is None
        assert opened.native_form("consume", "orders") is not None
        opened.close()


class TestEncryptFields:
    def open(self, world: World) -> Any:
        step = EncryptFields(
            key_service=FileKeys(keyring=str(world.keyring)),
            key_id="customers",
            fields=("card", "address.street", "note"),
            key_of="value.note",
            subject_keys=world.place(),
            key_service_timeout_ms=30_000,
        )
        return Chain([step, Serialize(value="json")]).open(Context(cluster_id=lambda: CLUSTER))

    def record(self, customer: str) -> Record:
        return Record(
            "orders",
            {"customer": customer, "card": "4111", "note": customer, "address": {"street": "Elm"}},
            b"k",
        )

    def test_fields_are_encrypted_for_the_subject(self, world: World) -> None:
        session, keys = self.open(world), world.keys()
        ann, bob = session.send([self.record("ann"), self.record("bob")])
        assert b'"customer":"ann"' in ann.value
        assert b'"card":"hw-encrypted:' in ann.value
        assert session.consume([ann])[0].value == self.record("ann").value
        keys.erase("ann")
        until(lambda: isinstance(refusal_of(session, ann), ShreddedError))
        assert session.consume([bob])[0].value == self.record("bob").value
        session.close()
