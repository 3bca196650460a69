"""What a tailed record says, without any Kafka."""

from __future__ import annotations

import re
import sqlite3
import time
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headerware import Chain, ConfigError, Context, Headers, Interceptor, Record
from headerware.cli.tail_lines import brief_line, record_lines, signature_lines, timeline_lines
from headerware.interceptors import (
    Admission,
    Audit,
    Compress,
    Dedup,
    Encrypt,
    EncryptFields,
    HeaderIds,
    Lineage,
    Metrics,
    Serialize,
    Sign,
    Slice,
    Trace,
    Trail,
    read_trail,
)
from headerware.keyring import Keyring, certify, encode_jwks, public_part, with_new_key
from headerware.keyring.services import FileKeys, Vault
from headerware.keyring.writing import edit_keyring
from headerware.ops.tail import ChainView, Condition, TailedRecord
from tests.trails import Hops
from tests.vault_server import TOKEN, VaultServer

if TYPE_CHECKING:
    from collections.abc import Sequence


NOW = 1_767_225_600_000
VALUE = b"value " * 100
FIELD = b'"hw-encrypted:AQ.AQ"'


@pytest.fixture
def keyring(tmp_path: Path) -> str:
    path = tmp_path / "keys.json"
    edit_keyring(path, lambda keys: with_new_key(keys, "orders-2026", "hmac-sha256"), create=True)
    return str(path)


def sent(chain: Chain, *records: Record) -> list[Record]:
    """Return records as they are on the wire, with offsets."""
    with chain.open(Context(side="producer", now_ms=lambda: NOW)) as session:
        wire = session.send(records)
    return [record.replace(partition=0, offset=at, timestamp_ms=NOW) for at, record in enumerate(wire)]


def looked(chain: Chain, wire: Sequence[Record], **options: Any) -> list[TailedRecord]:
    view = ChainView(chain, now_ms=lambda: NOW, **options)
    try:
        return [found for record in wire if (found := view.look(record)) is not None]
    finally:
        view.close()


def order(value: Any = VALUE, **headers: str) -> Record:
    return Record("orders", value, b"key", Headers(headers))


class TestChainView:
    def test_shows_sizes_behind_each_step(self, keyring: str) -> None:
        chain = Chain([Compress(), Sign(keyring=keyring, key_id="orders-2026"), HeaderIds()])
        (wire,) = sent(chain, order(tenant="north"))
        (found,) = looked(chain, [wire])
        assert found.outcome == "delivered"
        assert [step.step for step in found.steps] == ["header_ids", "sign", "compress"]
        assert [step.outcome for step in found.steps] == ["changed"] * 3
        assert found.steps[1].removed == ("hw.sig",)
        (application,) = found.application
        assert (
            found.steps[-1].size_bytes
            == application.size_bytes
            == len(b"key") + len(VALUE) + len("tenantnorth")
        )
        assert found.wire is not None
        assert found.wire.size_bytes is not None
        assert application.size_bytes is not None
        assert found.wire.size_bytes < application.size_bytes
        assert application.value.beginning == VALUE

    def test_resolves_ids_to_names(self) -> None:
        chain = Chain([Trail(service="shop"), HeaderIds()])
        (found,) = looked(chain, sent(chain, order(tenant="north")))
        assert found.wire is not None
        assert "hw.ids" in [name for name, _ in found.wire.headers]
        assert [name for name, _ in found.headers] == ["tenant", "hw.trail"]
        assert found.trail is not None
        assert [entry.by_whom for entry in found.trail] == ["shop"]

    def test_says_who_signed_only_if_that_was_verified(self, keyring: str) -> None:
        sign = Sign(keyring=keyring, key_id="orders-2026")
        wire = sent(Chain([sign]), order())
        (verified,), (claimed,) = looked(Chain([sign]), wire), looked(Chain(), wire)
        assert verified.signature is not None
        assert claimed.signature is not None
        assert (verified.signature.verified, claimed.signature.verified) == (True, False)
        assert verified.signature.key_id == claimed.signature.key_id == "orders-2026"
        assert verified.signature.signed_at_ms == claimed.signature.signed_at_ms == NOW

    def test_says_under_which_key_a_record_is_encrypted(self, keyring: str) -> None:
        edit_keyring(Path(keyring), lambda keys: with_new_key(keys, "cards", "aes-256"))
        encrypt = Encrypt(key_service=FileKeys(keyring=keyring), key_id="cards")
        for value in (VALUE, None):
            wire = sent(Chain([encrypt]), order(value))
            (read,), (claimed,) = looked(Chain([encrypt]), wire), looked(Chain(), wire)
            assert read.encryption is not None
            assert claimed.encryption is not None
            assert (read.encryption.decrypted, claimed.encryption.decrypted) == (True, False)
            assert (read.encryption.key_id, read.encryption.key_version) == ("cards", "1")
            assert (claimed.encryption.cluster, claimed.encryption.topic) == ("", "orders")
        (odd,) = looked(Chain(), [order(**{"hw.encrypt": "?"})])
        assert odd.encryption is None
        lines = "\n".join(line.plain for line in record_lines(read, "none"))
        assert re.search(r"encryption +under cards v1, decrypted\n", lines)

    def test_says_that_headers_are_encrypted_and_shows_them_if_its_chain_decrypts(self, keyring: str) -> None:
        edit_keyring(Path(keyring), lambda keys: with_new_key(keys, "cards", "aes-256"))
        encrypt = Encrypt(key_service=FileKeys(keyring=keyring), key_id="cards", headers=("customer",))
        wire = sent(Chain([encrypt]), order(tenant="north", customer="c-4711"), order(tenant="north"))
        read, none = looked(Chain([encrypt]), wire)
        claimed, _ = looked(Chain(), wire)
        [application] = read.application
        assert [name for name, _ in application.headers] == ["tenant", "customer"]
        assert application.headers[1][1].beginning == b"c-4711"
        assert [name for name, _ in read.headers] == ["tenant", "hw.secret", "hw.encrypt"]
        [step] = read.steps
        assert (step.removed, step.added) == (("hw.secret", "hw.encrypt"), ("customer",))
        views = [found.encryption for found in (read, claimed, none)]
        assert [view and view.encrypts_headers for view in views] == [True, True, False]
        for found in (read, claimed):
            lines = "\n".join(line.plain for line in record_lines(found, "none"))
            assert "some of its headers are encrypted, too" in lines
            assert "c-4711" not in lines
        assert "customer" not in repr(claimed)

    def test_says_which_fields_are_encrypted_and_under_which_key(self, keyring: str) -> None:
        edit_keyring(Path(keyring), lambda keys: with_new_key(keys, "cards", "aes-256"))
        fields = EncryptFields(
            key_service=FileKeys(keyring=keyring),
            key_id="cards",
            fields=("card.number", "items.note", r"a\.b"),
        )
        json_only = Serialize(value="json")
        sign = Sign(keyring=keyring, key_id="orders-2026")
        chain = Chain([fields, json_only, Compress(min_bytes=100_000), sign])
        value = {"card": {"number": "4111"}, "items": [{"note": "x"}, {"note": "y"}], "a.b": 1, "id": 7}
        wire = sent(chain, order(value))
        (read,), (claimed,), (plain,) = (
            looked(each, wire) for each in (chain, Chain(), Chain([json_only, sign]))
        )
        assert [view.field for view in read.encrypted_fields] == ["card.number", "items.note", r"a\.b"]
        for found, is_decrypted in ((read, True), (claimed, False), (plain, False)):
            assert [view.field for view in found.encrypted_fields] == [r.field for r in read.encrypted_fields]
            for view in found.encrypted_fields:
                assert (view.decrypted, view.key_id, view.key_version) == (is_decrypted, "cards", "1")
                assert (view.cluster, view.topic, view.signer) == ("", "orders", "orders-2026")
        lines = "\n".join(line.plain for line in record_lines(read, "none"))
        assert re.search(
            r"encryption +card\.number, items\.note, a\\\.b under cards v1, decrypted\n"
            r" +for \?/orders\n +to be signed with orders-2026\n",
            lines,
        )
        assert " under cards v1, not decrypted\n" in "\n".join(
            line.plain for line in record_lines(claimed, "none")
        )

    def test_finds_encrypted_fields_behind_other_steps(self, keyring: str) -> None:
        edit_keyring(Path(keyring), lambda keys: with_new_key(keys, "cards", "aes-256"))
        service = FileKeys(keyring=keyring)
        fields = EncryptFields(key_service=service, key_id="cards", fields=("id",))
        encrypt = Encrypt(key_service=service, key_id="cards")
        chain = Chain([fields, Serialize(value="json"), encrypt])
        wire = sent(chain, order({"id": 1}))
        (read,), (claimed,) = looked(chain, wire), looked(Chain(), wire)
        assert [(view.field, view.decrypted) for view in read.encrypted_fields] == [("id", True)]
        assert claimed.encrypted_fields == ()
        assert claimed.encryption is not None

    def test_a_field_that_was_moved_to_another_record_is_not_decrypted(self, keyring: str) -> None:
        edit_keyring(Path(keyring), lambda keys: with_new_key(keys, "cards", "aes-256"))
        fields = EncryptFields(key_service=FileKeys(keyring=keyring), key_id="cards", fields=("id",))
        chain = Chain([fields, Serialize(value="json")])
        (wire,) = sent(chain, order({"id": 1}))
        (found,) = looked(chain, [wire.replace(key=b"other")])
        assert (found.outcome, [view.decrypted for view in found.encrypted_fields]) == ("refused", [False])

    @pytest.mark.parametrize(
        "value",
        [
            b'{"id": "hw-encrypted:"}',
            b'{"id": "hw-encrypted:AQ.AQ"}',
            b'{"id": "hw-encrypted:\xc3\xa9.?"}',
            b'"hw-encrypted:',
            b"\xff hw-encrypted:AQ.AQ",
            b"[" * 100_000 + b'"hw-encrypted:AQ.AQ"',
        ],
    )
    def test_a_text_that_only_begins_like_an_encrypted_field_is_none(self, value: bytes) -> None:
        (found,) = looked(Chain(), [order(value)])
        assert (found.outcome, found.encrypted_fields) == ("delivered", ())

    @pytest.mark.parametrize(
        "value",
        [
            b'{"%s":{%s}}' % (b"x" * 100_000, b",".join(b'"f%d":%s' % (n, FIELD) for n in range(2_000))),
            b'{"%s":' % (b"x" * 100) * 900 + FIELD + b"}" * 900,
            b'{"":' * 900 + FIELD + b"}" * 900,
            b"[" * 900 + b"%s," % FIELD * 1_000 + b"0" + b"]" * 900,
        ],
        ids=["names beneath a long name", "deep names", "deep names without a letter", "deep lists"],
    )
    def test_hostile_paths_of_fields_take_little_memory(self, value: bytes) -> None:
        record = order(value)
        looked(Chain(), [record])  # import what this needs
        tracemalloc.start()
        try:
            (found,) = looked(Chain(), [record])
            _, most_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (found.outcome, found.encrypted_fields) == ("delivered", ())
        assert most_bytes < 10_000_000  # all paths at once take 40 to 200 MB

    def test_names_beneath_a_long_name_take_little_time(self) -> None:
        names = b",".join(b'"f%d":%s' % (number, FIELD) for number in range(50_000))
        record = order(b'{"%s":{%s}}' % (b"x" * 4_000_000, names))
        looked(Chain(), [order(FIELD)])  # import what this needs
        before_s = time.thread_time()
        (found,) = looked(Chain(), [record])
        taken_s = time.thread_time() - before_s
        assert (found.outcome, found.encrypted_fields) == ("delivered", ())
        assert taken_s < 2  # about 0.05 s; a copy of the name for each field makes 200 GB

    def test_shows_a_hundred_encrypted_fields_at_most(self, keyring: str) -> None:
        edit_keyring(Path(keyring), lambda keys: with_new_key(keys, "cards", "aes-256"))
        names = [f"f{number}" for number in range(150)]
        fields = EncryptFields(key_service=FileKeys(keyring=keyring), key_id="cards", fields=tuple(names))
        chain = Chain([fields, Serialize(value="json")])
        (found,) = looked(chain, sent(chain, order(dict.fromkeys(names, 1))))
        assert [view.field for view in found.encrypted_fields] == names[:100]

    def test_says_which_step_refused_a_record_and_why(self, keyring: str) -> None:
        chain = Chain([Compress(), Sign(keyring=keyring, key_id="orders-2026")])
        (wire,) = sent(chain, order())
        (found,) = looked(chain, [wire.with_value(b"forged")])
        assert (found.outcome, found.application) == ("refused", ())
        assert found.refusal is not None
        assert (found.refusal.step, found.refusal.type) == ("sign", "SignatureError")
        assert "does not fit the record" in found.refusal.reason
        assert [(step.step, step.outcome) for step in found.steps] == [("sign", "refused")]
        assert found.signature is not None
        assert not found.signature.verified

    @pytest.mark.parametrize("on_error", ["raise", "dead_letter"])
    def test_a_record_is_held_back_and_not_refused_if_the_key_service_is_down(self, on_error: Any) -> None:
        with VaultServer() as server:
            service = Vault(url=server.url, token=TOKEN)
            wire = sent(Chain([Encrypt(key_service=service, key_id="orders")]), order())
            server.stop()
            (found,) = looked(Chain([Encrypt(key_service=service, key_id="orders", on_error=on_error)]), wire)
        assert (found.outcome, found.application, found.dead_letter_topic) == ("held_back", (), None)
        assert found.refusal is not None
        assert (found.refusal.step, found.refusal.type) == ("encrypt", "KeyServiceUnavailableError")
        assert found.refusal.reason.startswith("the key service did not answer")
        assert found.refusal.reason.endswith("; the record may be good")
        assert [(step.step, step.outcome) for step in found.steps] == [("encrypt", "held_back")]
        assert "? held back" in brief_line(found).plain

    @pytest.mark.parametrize(("on_error", "outcome"), [("dead_letter", "dead_letter"), ("drop", "dropped")])
    def test_shows_what_would_become_of_a_refused_record(
        self, keyring: str, on_error: Any, outcome: str
    ) -> None:
        chain = Chain([Sign(keyring=keyring, key_id="orders-2026", on_error=on_error)])
        (found,) = looked(chain, [order().replace(partition=0, offset=0)])
        assert found.outcome == outcome
        assert found.dead_letter_topic == ("orders.dead-letter" if outcome == "dead_letter" else None)
        assert found.refusal is not None
        assert found.refusal.reason.startswith("expected a signature, found no hw.sig header; likely its")

    def test_never_quotes_what_a_plug_in_raised(self) -> None:
        class Failing(Interceptor, frozen=True):
            def on_consume(self, record: Record) -> Record:
                raise ValueError(record.value)

        for on_error in ("raise", "skip"):
            (found,) = looked(Chain([Failing(on_error=on_error)]), [order(b"secret")])
            assert [step.outcome for step in found.steps] == ["refused" if on_error == "raise" else "skipped"]
            assert "ValueError" in str(found.steps[0].reason)
            assert "secret" not in str(found.steps[0].reason)

    def test_counts_slices_until_the_message_is_whole(self, keyring: str) -> None:
        chain = Chain([Slice(max_bytes=2_000), Sign(keyring=keyring, key_id="orders-2026"), HeaderIds()])
        value = bytes(5_000)
        found = looked(chain, sent(chain, order(value, tenant="north")))
        assert [record.outcome for record in found] == ["waits"] * (len(found) - 1) + ["delivered"]
        assert [record.slice.index for record in found if record.slice] == list(range(len(found)))
        assert found[-1].application[0].value.size_bytes == len(value)
        assert [name for name, _ in found[-1].application[0].headers] == ["tenant"]

    def test_says_whose_certificate_admitted_a_record(self, tmp_path: Path) -> None:
        path = tmp_path / "shop.json"
        shop = edit_keyring(path, lambda keys: with_new_key(keys, "shop-1", "ed25519"), create=True)
        issuer = with_new_key(Keyring(), "issuer", "ed25519", use=("certify",))
        said: dict[str, Any] = {"issuer": "i", "subject": "the shop", "audience": ["a"], "topics": ["*"]}
        now = datetime.fromtimestamp(NOW / 1000, UTC)
        (tmp_path / "shop.jwt").write_text(certify(issuer.keys[0], shop.keys[0], now=now, **said))
        (tmp_path / "issuer.jwks").write_bytes(encode_jwks(public_part(issuer)[0], use="certify"))
        (tmp_path / "policy.toml").write_text(
            'version = 1\naudience = "a"\n[[rules]]\neffect = "allow"\n'
            '[[issuers]]\nissuer = "i"\njwks = "issuer.jwks"\nalgorithms = ["Ed25519"]\n'
        )
        files: dict[str, Any] = {
            "certificate": str(tmp_path / "shop.jwt"),
            "policy": str(tmp_path / "policy.toml"),
        }
        chain = Chain([Admission(**files), Sign(keyring=str(path), key_id="shop-1")])
        (found,) = looked(chain, sent(chain, order()))
        assert found.signature is not None
        assert (found.signature.subject, found.signature.issuer) == ("the shop", "i")
        [verdict, *_] = signature_lines(found)
        assert verdict.plain == "✓ verified, signed with shop-1 version 1, admitted as the shop"

    def test_tells_of_messages_that_are_given_up(self) -> None:
        chain = Chain([Slice(max_bytes=2_000, expire_ms=1_000)])
        now = NOW
        view = ChainView(chain, now_ms=lambda: now)
        view.look(sent(chain, order(bytes(5_000)))[0])
        assert view.poll() == []
        now += 2_000
        (found,) = view.poll()
        assert (found.outcome, found.topic, found.partition, found.offset) == ("refused", "orders", 0, 0)
        assert found.refusal is not None
        assert found.refusal.type == "ReassemblyError"
        view.close()

    def test_interceptors_that_observe_do_not_run(self) -> None:
        for observing in (Trail(service="shop"), Trace(), Metrics(), Lineage(), Audit(service="shop")):
            view = ChainView(Chain([observing]))
            assert (view.left_out, view.names) == ([observing.type], ())
            view.close()
        chain = Chain([Trail(service="shop")])
        (found,) = looked(chain, sent(chain, order()))
        assert found.trail is not None
        assert [entry.read_from_topic for entry in found.trail] == [None]

    def test_dedup_shows_copies_and_leaves_its_store_alone(self, tmp_path: Path) -> None:
        store = tmp_path / "seen.sqlite"
        chain = Chain([Dedup(store=str(store))])
        (wire,) = sent(chain, order())
        with chain.open(Context(side="consumer", group_id="g", now_ms=lambda: NOW)) as session:
            session.consume([wire.replace(offset=5)])
        before = rows(store)
        assert before
        files = sorted(tmp_path.iterdir())
        # To the application of that group both would be copies; here only what was read here counts.
        found = looked(chain, [wire, wire.replace(offset=1)])
        assert [record.outcome for record in found] == ["delivered", "dropped"]
        assert rows(store) == before
        assert sorted(tmp_path.iterdir()) == files

    def test_shows_objects_that_a_deserializer_made(self) -> None:
        chain = Chain([Serialize(value="json")])
        (found,) = looked(chain, sent(chain, order({"id": 1})))
        assert found.application[0].value.kind == "dict"
        assert found.application[0].value.beginning == b'{"id":1}'

    def test_an_object_has_no_size(self) -> None:
        chain = Chain([Serialize(value="json"), Compress(min_bytes=1)])
        (found,) = looked(chain, sent(chain, order({"text": "x" * 500})))
        assert [(step.step, step.size_bytes is None, step.value_bytes is None) for step in found.steps] == [
            ("compress", False, False),
            ("serialize", True, True),
        ]
        (application,) = found.application
        assert (application.size_bytes, application.value.size_bytes) == (None, None)
        assert brief_line(found).plain.partition(" -> ")[2].startswith("object  ")
        lines = [line.plain for line in record_lines(found, "none")]
        assert any(re.fullmatch(r" +serialize +object +changed.*", line) for line in lines)
        assert not any("serialize" in line and " B" in line for line in lines)

    def test_a_large_object_is_shown_cut(self) -> None:
        chain = Chain([Serialize(value="json")])
        (found,) = looked(chain, sent(chain, order({"text": "x" * 500})), max_part_bytes=100)
        assert found.application[0].value.is_cut
        assert any("xxx..." in line.plain for line in record_lines(found, "text"))

    def test_names_the_steps_that_did_not_run(self) -> None:
        chain = Chain([Trail(service="shop"), Compress()])
        (found,) = looked(chain, sent(chain, order()))
        assert found.not_run == ("trail",)
        assert any(line.plain.strip().endswith("not run: trail") for line in record_lines(found, "none"))

    def test_marks_the_hops_of_a_signed_trail(self, tmp_path: Path) -> None:
        hops = Hops(tmp_path)
        chain = Chain([*hops.chain("ship", cluster=None), Compress(min_bytes=1)])
        (good,) = sent(Chain([*hops.chain("shop", cluster=None), Compress(min_bytes=1)]), order())
        forged = good.replace(key=b"other")
        (found,) = looked(chain, [good])
        assert found.trail_hops is not None
        assert ([hop.key_id for hop in found.trail_hops], found.trail_problem) == (["shop"], None)
        assert (found.not_run, found.trail) == ((), read_trail(good.headers))
        assert any("proven by key 'shop'" in line.plain for line in timeline_lines(found))
        (found,) = looked(chain, [forged])
        assert (found.outcome, found.trail_problem is None) == ("delivered", False)
        assert any("(not proven: hop 1" in line.plain for line in timeline_lines(found))
        (found,) = looked(Chain([*hops.chain("ship", require="enforce"), chain.interceptors[1]]), [forged])
        assert (found.outcome, found.trail_hops) == ("refused", None)
        assert found.refusal is not None
        assert (found.refusal.step, "hop 1 of 'shop' is broken" in found.refusal.reason) == ("trail", True)

    def test_marks_a_trail_that_no_valid_signature_covers(self, keyring: str) -> None:
        trail, sign = Trail(service="shop"), Sign(keyring=keyring, key_id="orders-2026")
        warning = Sign(keyring=keyring, key_id="orders-2026", require="warn")
        signed, unsigned = sent(Chain([trail, sign]), order()), sent(Chain([trail]), order())
        forged = [signed[0].with_value(b"forged")]

        def is_marked(chain: Chain, wire: list[Record]) -> bool:
            (found,) = looked(chain, wire)
            lines = [line.plain for line in timeline_lines(found)]
            assert "shop  produced into " in lines[-1]
            return lines[0] == "(not verified)"

        assert not is_marked(Chain([trail, sign]), signed)
        assert is_marked(Chain(), signed)
        assert is_marked(Chain([warning]), unsigned)
        assert is_marked(Chain([sign]), forged)
        (none,) = looked(Chain(), [order()])
        assert [line.plain for line in timeline_lines(none)] == ["no trail"]

    def test_keeps_only_the_beginning_of_large_payloads(self) -> None:
        (found,) = looked(Chain(), [order(bytes(10_000), note="x" * 10_000)], max_part_bytes=100)
        assert found.wire is not None
        assert (found.wire.value.size_bytes, len(found.wire.value.beginning)) == (10_000, 100)
        assert len(dict(found.wire.headers)["note"].beginning) == 100

    def test_headers_that_cannot_be_read_refuse_their_record_alone(self) -> None:
        (found,) = looked(Chain(), [Record("orders", b"v", headers=[("x", 1.5)])])  # type: ignore[arg-type]
        assert (found.outcome, found.refusal is not None and found.refusal.type) == ("refused", "HeaderError")


def rows(store: Path) -> list[Any]:
    connection = sqlite3.connect(store)
    try:
        tables = [name for (name,) in connection.execute("select name from sqlite_master where type='table'")]
        return [row for table in sorted(tables) for row in connection.execute(f"select * from {table}")]  # noqa: S608
    finally:
        connection.close()


class TestWhere:
    @pytest.mark.parametrize(
        ("text", "holds"),
        [
            ("tenant=north", True),
            ("tenant=nort", False),
            ("tenant~^no", True),
            ("tenant~^x", False),
            ("tenant", True),
            ("other", False),
            ("!other", True),
            ("!tenant", False),
            ("empty=", True),
            ("~A=1", True),
            ("double=2", True),
        ],
    )
    def test_holds(self, text: str, holds: Any) -> None:
        headers = [("tenant", b"north"), ("empty", None), ("~A", b"1"), ("double", b"1"), ("double", b"2")]
        assert Condition.parse(text).holds(headers) is holds
        assert Condition.parse(text).text == text

    @pytest.mark.parametrize("text", ["", "!", "=x", "a~("])
    def test_refuses_what_says_nothing(self, text: str) -> None:
        with pytest.raises(ConfigError):
            Condition.parse(text)

    @pytest.mark.parametrize("text", ["tenant:north", "tenant: north", "tenant: a=b"])
    def test_refuses_a_colon_for_an_equals_sign(self, text: str) -> None:
        with pytest.raises(ConfigError, match="found a colon; did you mean tenant="):
            Condition.parse(text)

    @pytest.mark.parametrize("text", ["tenant==north", "tenant = north", "tenant= north", "tenant =north"])
    def test_refuses_another_sign_or_spaces_around_it(self, text: str) -> None:
        with pytest.raises(ConfigError, match=r"one = and no space around it.*did you mean tenant=north"):
            Condition.parse(text)

    @pytest.mark.parametrize("text", ["a:b=c", "a~b:c", "a=b:c", "!a:b", "a=b==", "a=", "a~^=="])
    def test_accepts_other_colons(self, text: str) -> None:
        assert Condition.parse(text).text == text

    def test_runs_no_step_for_others(self) -> None:
        called = []

        class Noting(Interceptor, frozen=True):
            def on_consume(self, record: Record) -> Record:
                called.append(record.headers.last("tenant"))
                return record

        wire = sent(Chain([HeaderIds()]), order(tenant="north"), order(tenant="south"))
        found = looked(Chain([Noting()]), wire, where=[Condition.parse("tenant=south")])
        assert len(found) == len(called) == 1

    def test_meets_names_behind_ids(self) -> None:
        chain = Chain([Trail(service="shop"), HeaderIds()])
        wire = sent(chain, order())
        assert len(looked(chain, wire, where=[Condition.parse("hw.trail~by=shop")])) == 1
        assert looked(chain, wire, where=[Condition.parse("hw.trail~by=other")]) == []

    def test_follows_a_message_into_all_its_slices(self) -> None:
        chain = Chain([Slice(max_bytes=2_000)])
        wire = sent(chain, order(bytes(5_000), tenant="north"), order(bytes(5_000), tenant="south"))
        found = looked(chain, wire, where=[Condition.parse("tenant=south")])
        assert len(found) == len(wire) // 2
        assert found[-1].outcome == "delivered"

    def test_meets_keys(self) -> None:
        assert looked(Chain(), [order()], key="other") == []
        assert len(looked(Chain(), [order()], key="key")) == 1
