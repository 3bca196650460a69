"""Everybody in docs/threat-model.md does what they can, against the chain that docs/security.md begins with.

Each class is a row of its table: what is refused, and what remains possible, which the page must not hide.
Thieves of certificates are in `test_admission.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from click.testing import CliRunner

from headerware import Chain, Context, HeldBackError, InterceptorError, Record, load_chain
from headerware.cli import main
from headerware.core.errors import DecryptionError, KeyringError, SignatureError
from headerware.core.header_text import decode_text
from headerware.core.headers import Headers
from headerware.interceptors import Encrypt, Sign
from headerware.keyring import (
    Keyring,
    public_part,
    read_keyring,
    with_new_key,
    with_revocation,
)
from headerware.keyring.services import Vault
from headerware.keyring.writing import edit_keyring, write_public_keyring
from tests.vault_server import TOKEN, VaultServer
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headerware.core.session import Session

PAGE: Final = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
[CHAIN] = re.findall(r"^## A chain to begin with\n.*?^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SECRET: Final = b"4111 1111 1111 1111"


class World:
    """A topic, its key service, and parties that each have a folder with a chain and a keyring."""

    def __init__(self, folder: Path, vault: VaultServer) -> None:
        self.folder, self.vault = folder, vault
        self.offset = 0
        self.shop = self.writer("shop")
        self.publish("shop")

    def party(
        self,
        name: str,
        *,
        key_id: str = "shop",
        cluster: str | None = "prod",
        changed: Callable[[str], str] = str,
    ) -> Session:
        """Open the chain of the page in somebody's folder."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(TOKEN)
        (folder / "token").chmod(0o600)
        text = CHAIN.replace("https://vault.example:8200", self.vault.url)
        text = text.replace("/run/vault/token", str(folder / "token")).replace('"shop"', f'"{key_id}"')
        (folder / "chain.toml").write_text(changed(text))
        side: Any = "consumer" if name == "reader" else "producer"
        return load_chain(folder / "chain.toml").open(Context(side=side, cluster_id=lambda: cluster))

    def writer(self, name: str, topics: tuple[str, ...] | None = None) -> Session:
        """Open the chain of a producer with a new key, whose id is its name."""
        self.keyring(name).parent.mkdir()
        edit_keyring(
            self.keyring(name), lambda ring: with_new_key(ring, name, "ed25519", topics=topics), create=True
        )
        return self.party(name, key_id=name)

    def keyring(self, name: str) -> Path:
        return self.folder / name / "keys.json"

    def publish(self, *names: str) -> None:
        """Give the reader the public halves of these writers' keys."""
        rings = [public_part(read_keyring(self.keyring(name)))[0] for name in names]
        self.keyring("reader").parent.mkdir(exist_ok=True)
        write_public_keyring(
            self.keyring("reader"), Keyring(keys=tuple(key for ring in rings for key in ring.keys))
        )

    def stored(self, record: Record) -> Record:
        """Return a record as it is read: at the next offset of partition 0."""
        self.offset += 1
        return record.replace(partition=0, offset=self.offset)

    def sent(self, session: Session | None = None, value: bytes | None = SECRET) -> Record:
        """Return what is stored of a record that a writer sends."""
        [wire] = (session or self.shop).send(
            [Record("orders", value, b"k-1", Headers([("tenant", b"blue")]))]
        )
        return self.stored(wire)


def read(session: Session, wire: Record) -> Record:
    [record] = session.consume([wire])
    return record


@pytest.fixture
def vault() -> Iterator[VaultServer]:
    with VaultServer() as server:
        yield server


@pytest.fixture
def world(tmp_path: Path, vault: VaultServer) -> World:
    return World(tmp_path, vault)


@pytest.fixture
def reader(world: World) -> Session:
    return world.party("reader")


@pytest.fixture
def wire(world: World) -> Record:
    return world.sent()


def without(record: Record, *names: str) -> Record:
    return record.with_headers(Headers([pair for pair in record.headers if pair[0] not in names]))


class TestAReaderOfTheTopic:
    def test_sees_no_content(self, wire: Record) -> None:
        seen = [wire.value, wire.key, *(value for _, value in wire.headers)]
        assert not any(SECRET in part for part in seen if part is not None)

    def test_sees_sizes_keys_headers_and_who_wrote_it(self, wire: Record) -> None:
        assert len(wire.value) == len(SECRET) + 16
        assert wire.key == b"k-1"
        assert wire.headers.last("tenant") == b"blue"
        assert b"orders" in decode_text(wire.headers.last("hw.encrypt"), "hw.encrypt")
        assert b"shop" in decode_text(wire.headers.last("hw.sig"), "hw.sig")


Attack = Callable[[Record, Record], Record]
ATTACKS: Final[dict[str, Attack]] = {
    "plaintext": lambda _wire, _other: Record("orders", b"plaintext", b"k-1"),
    "plaintext under its headers": lambda wire, _: wire.replace(value=b"plaintext"),
    "a bit of the value": lambda wire, _: wire.replace(value=bytes([wire.value[0] ^ 1]) + wire.value[1:]),
    "a tombstone": lambda wire, _: wire.replace(value=None),
    "another key": lambda wire, _: wire.replace(key=b"k-2"),
    "another header": lambda wire, _: wire.with_headers(wire.headers.put("tenant", b"red")),
    "a header less": lambda wire, _: without(wire, "tenant"),
    "no signature": lambda wire, _: without(wire, "hw.sig"),
    "no encryption": lambda wire, _: without(wire, "hw.encrypt"),
    "neither": lambda wire, _: without(wire, "hw.encrypt", "hw.sig"),
    "another record's value": lambda wire, other: wire.replace(value=other.value),
    "another record's headers": lambda wire, other: wire.with_headers(other.headers),
}


class TestAWriterWithoutAKey:
    @pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
    def test_changes_nothing_unnoticed_and_spoils_nothing(
        self, world: World, reader: Session, wire: Record, attack: Attack
    ) -> None:
        forged = world.stored(attack(wire, world.sent(value=b"another one, which is longer")))
        with pytest.raises(SignatureError):
            read(reader, forged)
        assert read(reader, wire).value == SECRET, "the genuine record is no copy of the forged one"

    def test_repeats_nothing_that_the_same_consumer_remembers(
        self, world: World, reader: Session, wire: Record
    ) -> None:
        assert read(reader, wire).value == SECRET
        with pytest.raises(SignatureError):
            read(reader, world.stored(wire))

    def test_may_repeat_what_another_consumer_has_read(
        self, world: World, reader: Session, wire: Record
    ) -> None:
        assert read(reader, wire).value == SECRET
        assert read(world.party("reader"), world.stored(wire).replace(partition=1)).value == SECRET

    def test_appends_what_nobody_sees(self, reader: Session, wire: Record) -> None:
        appended = wire.with_headers(wire.headers.append(("content-type", b"evil")))
        assert read(reader, appended).headers == Headers([("tenant", b"blue")])

    def test_floods_without_a_call_of_the_key_service(
        self, world: World, vault: VaultServer, reader: Session, wire: Record
    ) -> None:
        calls = len(vault.calls)
        for number in range(200):
            with pytest.raises(SignatureError):
                read(reader, world.stored(wire.with_headers(wire.headers.put("hw.encrypt", b"%d" % number))))
        assert len(vault.calls) == calls


class TestABrokersOperator:
    @pytest.mark.parametrize(("topic", "cluster"), [("payments", "prod"), ("orders", "other")])
    def test_moves_nothing_to_another_topic_or_cluster(
        self, world: World, wire: Record, topic: str, cluster: str
    ) -> None:
        reader = world.party("reader", cluster=cluster)
        with pytest.raises(SignatureError):
            read(reader, wire.replace(topic=topic))

    def test_may_withhold_reorder_move_to_other_partitions_and_set_times(
        self, world: World, reader: Session
    ) -> None:
        first, _withheld, third = (world.sent(value=value) for value in (b"1", b"2", b"3"))
        assert read(reader, third.replace(partition=7, timestamp_ms=1)).value == b"3"
        assert read(reader, first).value == b"1"

    def test_may_copy_to_another_cluster_what_does_not_say_its_own(self, world: World) -> None:
        early = world.sent(world.party("shop", cluster=None))
        assert read(world.party("reader", cluster="other"), early).value == SECRET

        def bound(chain: str) -> str:
            return chain.replace("key_id", 'cluster = "prod"\nkey_id')

        early = world.sent(world.party("shop", cluster=None, changed=bound))
        with pytest.raises(SignatureError):
            read(world.party("reader", cluster="other"), early)


class TestAWriterWithAKeyOfItsOwn:
    def test_writes_in_its_own_name(self, world: World) -> None:
        rival = world.writer("rival")
        world.publish("shop", "rival")
        verified = read(world.party("reader"), world.sent(rival)).verified
        assert verified is not None
        assert verified.key_id == "rival"

    def test_does_not_take_over_what_another_has_encrypted(self, world: World, wire: Record) -> None:
        world.writer("rival")
        world.publish("shop", "rival")
        sign = Sign(keyring=str(world.keyring("rival")), key_id="rival")
        signer = sign.open(Context(cluster_id=lambda: "prod"))
        stolen = signer.on_send(without(wire, "hw.sig"))
        with pytest.raises(DecryptionError, match="encrypted to be signed with key 'shop'"):
            read(world.party("reader"), world.stored(stolen))

    def test_does_not_write_where_its_key_may_not(self, world: World) -> None:
        rival = world.writer("rival", topics=("rival-*",))
        world.publish("shop", "rival")
        with pytest.raises(InterceptorError):
            world.sent(rival)
        # It takes the limit out of its own keyring; the reader's has it.
        ring = world.keyring("rival")
        ring.write_text(ring.read_text().replace("rival-*", "*"))
        with pytest.raises(SignatureError):
            read(world.party("reader"), world.sent(world.party("rival", key_id="rival")))


class TestAThiefOfASigningKey:
    def test_writes_as_its_owner_until_it_is_revoked(self, world: World, wire: Record) -> None:
        thief = world.party("shop")
        forged = world.sent(thief, b"forged")
        assert read(world.party("reader"), forged).value == b"forged"

        edit_keyring(
            world.keyring("reader"),
            lambda ring: with_revocation(ring, "shop", revoked_from={"prod/orders[0]": forged.offset or 0}),
        )
        reader = world.party("reader")
        assert read(reader, wire).value == SECRET, "it is below the offset"
        for late in (forged, world.sent(thief, b"forged again")):
            with pytest.raises(SignatureError, match="revoked"):
                read(reader, late)


class TestAThiefOfAKeyEncryptionKey:
    @pytest.fixture
    def encrypt(self, vault: VaultServer) -> Encrypt:
        return Encrypt(
            key_service=Vault(url=vault.url, token=TOKEN), key_id="orders", bind_headers=("tenant",)
        )

    def test_reads_what_was_and_what_will_be_written(
        self, world: World, wire: Record, encrypt: Encrypt
    ) -> None:
        with Chain([encrypt]).open(Context(cluster_id=lambda: "prod")) as thief:
            assert read(thief, wire).value == read(thief, world.sent()).value == SECRET

    def test_writes_nothing(self, world: World, reader: Session, encrypt: Encrypt) -> None:
        world.writer("thief")  # whose key no reader has
        sign = Sign(keyring=str(world.keyring("thief")), key_id="thief")
        for chain in (Chain([encrypt]), Chain([encrypt, sign])):
            with chain.open(Context(cluster_id=lambda: "prod")) as thief, pytest.raises(SignatureError):
                read(reader, world.sent(thief))


class TestTheOperatorOfTheKeyService:
    def test_stops_readers_and_loses_nothing(self, vault: VaultServer, reader: Session, wire: Record) -> None:
        vault.stop()
        with pytest.raises(HeldBackError):
            read(reader, wire)
        vault.start()
        found: list[Record] = []

        def is_read() -> bool:
            try:
                found.append(read(reader, wire))
            except HeldBackError:
                return False
            return True

        until(is_read)
        assert found[0].value == SECRET


class TestWhoeverDistributesKeyrings:
    def test_adds_a_key_of_their_own(self, world: World) -> None:
        evil = world.writer("evil")
        world.publish("shop", "evil")
        assert read(world.party("reader"), world.sent(evil)).value == SECRET

    def test_adds_none_to_a_snapshot(self, world: World, wire: Record) -> None:
        ring = world.keyring("reader")
        root, public = ring.with_name("root.json"), ring.with_name("root.pub")
        edit_keyring(
            root, lambda keys: with_new_key(keys, "root", "ed25519", use=("snapshots",)), create=True
        )
        write_public_keyring(public, public_part(read_keyring(root))[0])
        snapshot = ring.with_name("snapshot")
        sign = ["keys", "sign-snapshot", "--keyring", str(ring), "--root", str(root), "--root-id", "root"]
        assert CliRunner().invoke(main, [*sign, "--out", str(snapshot)]).exit_code == 0
        snapshot.replace(ring)

        def with_root(chain: str) -> str:
            own = 'keyring = "keys.json"\n'
            return chain.replace(f"{own}key_id", f'{own}keyring_root = "root.pub"\nkey_id')

        reader = world.party("reader", changed=with_root)

        evil = world.writer("evil")
        ring.unlink()
        world.publish("shop", "evil")
        with pytest.raises(InterceptorError):
            read(reader, world.sent(evil))
        assert read(reader, wire).value == SECRET, "the last good keyring goes on"
        with pytest.raises(KeyringError, match="root"):
            world.party("reader", changed=with_root)
