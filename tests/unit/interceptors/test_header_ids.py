from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from headerware import Chain, ConfigError, InterceptorError, load_chain
from headerware.core.config import from_file
from headerware.core.context import Context
from headerware.core.errors import RegistryError, WireFormatError
from headerware.core.header_ids import HeaderId
from headerware.core.headers import Headers, Pair
from headerware.core.hooks import Place, Role
from headerware.core.order import check_order
from headerware.core.record import Record
from headerware.interceptors.header_ids import HeaderIds
from headerware.interceptors.sign import Sign
from headerware.interceptors.slice import Slice
from headerware.interceptors.trail import Trail
from headerware.registry import Block, Entry, Registry, built_in, use_registry, with_built_in
from headerware.registry.stores import create_store
from headerware.registry.wire.codec import HEADER, Form

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headerware.core.session import Session

FORMS = pytest.mark.parametrize("form", ["packed", "keys"])
TRAIL: Pair = ("hw.trail", b"1")
SIGNATURE: Pair = ("hw.sig", b"signed")
PARENT: Pair = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")


def step(**options: Any) -> Any:
    return HeaderIds(**options).open(Context())


def record(*headers: Pair) -> Record:
    return Record("orders", b"v", b"k", Headers(headers), 3, 5, 1, 7)


def wire_bytes(given: Record) -> int:
    """Count what a record's headers take in Kafka's record format (version 2)."""

    def varint(number: int) -> int:
        return max(1, ((number << 1).bit_length() + 6) // 7)

    sizes = [(len(name.encode()), value) for name, value in given.headers]
    values = sum(1 if value is None else varint(len(value)) + len(value) for _, value in sizes)
    return varint(len(sizes)) + sum(varint(size) + size for size, _ in sizes) + values


class TestHeaderIds:
    def test_comes_last_in_a_chain(self) -> None:
        assert (HeaderIds.type, HeaderIds.place) == ("header_ids", Place.HEADER_IDS)
        assert HeaderIds.role is Role.TRANSFORM
        with pytest.raises(ConfigError, match="header_ids rewrites header names"):
            check_order([HeaderIds(), Sign(keyring="keys.json")])

    def test_refuses_an_unknown_form(self) -> None:
        with pytest.raises(ConfigError, match=r"form: expected one of keys, packed, found 'short'"):
            step(form="short")

    def test_refuses_to_list_a_name_without_an_id(self) -> None:
        with pytest.raises(ConfigError, match=r"also: 'my-header' has no id in the registry; register it"):
            step(also=("traceparent", "my-header"))

    def test_takes_patterns_that_meet_no_id_yet(self) -> None:
        given = record(("my-header", b""))
        assert step(also=("my-*", "!my-own")).on_send(given) is given

    def test_is_configured_by_its_type(self) -> None:
        config = {
            "interceptors": "ids",
            "interceptors.ids.type": "header_ids",
            "interceptors.ids.form": "keys",
            "interceptors.ids.also": "traceparent, ce_*",
        }
        with Chain.from_config(config).open() as session:
            (sent,) = session.send([Record("t", b"", headers=Headers([PARENT, ("ce_type", b"")]))])
        assert sent.headers.names() == ("~EB", "~EM")

    def test_finds_its_registry_beside_the_file_that_names_it(self, tmp_path: Path) -> None:
        create_store(str(tmp_path / "ids.toml"), organisation()).close()
        text = '[[interceptors]]\ntype = "header_ids"\nregistry = "ids.toml"\nform = "keys"\n'
        (tmp_path / "chain.toml").write_text(text, encoding="utf-8")
        with load_chain(tmp_path / "chain.toml").open() as session:
            (sent,) = session.send([Record("t", b"", headers=Headers([("orders.total", b"1")]))])
        assert sent.headers.names() == ("~QAB",)

    @pytest.mark.parametrize("location", ["built-in", "kafka://host:9092/ids"])
    def test_takes_what_is_no_path_for_what_it_is(self, location: str, tmp_path: Path) -> None:
        text = f'[[interceptors]]\ntype = "header_ids"\nregistry = "{location}"\n'
        (tmp_path / "chain.toml").write_text(text, encoding="utf-8")
        (header_ids,) = from_file(tmp_path / "chain.toml").interceptors
        assert isinstance(header_ids, HeaderIds)
        assert header_ids.registry == location


class TestCompactOnSend:
    def test_packs_what_has_an_id_into_one_header(self) -> None:
        sent = step().on_send(record(("a", b"1"), TRAIL, PARENT, SIGNATURE))
        block = b'1"#1!"&(signed'
        assert sent == record(("a", b"1"), (HEADER, block), PARENT)

    def test_writes_a_key_for_each(self) -> None:
        sent = step(form="keys").on_send(record(("a", b"1"), TRAIL, PARENT, SIGNATURE))
        assert sent == record(("a", b"1"), ("~B", TRAIL[1]), PARENT, ("~F", SIGNATURE[1]))

    @FORMS
    @pytest.mark.parametrize(
        "headers", [(), (("a", b"1"), PARENT), (("content-type", b"x"), ("ce_id", b"1"), ("ce_own", b"2"))]
    )
    def test_leaves_a_record_without_ids_untouched(self, form: Form, headers: tuple[Pair, ...]) -> None:
        opened, given = step(form=form), record(*headers)
        assert opened.on_send(given) is given
        assert opened.stats()["encoded"] == 0

    @FORMS
    def test_takes_ids_in_dotted_form(self, form: Form) -> None:
        opened, given = step(form=form), record(("10.0.0.7", b"1"))
        sent = opened.on_send(given)
        assert sent.headers.names() == (("hw.ids",) if form == "packed" else ("~KAAAH",))
        assert opened.on_consume(sent) == given

    @FORMS
    def test_lets_nobody_write_a_registered_id_by_number(self, form: Form) -> None:
        given = record(("0.0.0.5", b"forged"))
        assert step(form=form).on_send(given) is given

    def test_names_of_others_become_ids_where_listed(self) -> None:
        sent = step(form="keys", also=("traceparent", "ce_*", "!ce_id")).on_send(
            record(PARENT, ("tracestate", b""), ("ce_type", b""), ("ce_id", b""))
        )
        assert sent.headers.names() == ("~EB", "tracestate", "~EM", "ce_id")

    def test_extensions_of_cloud_events_are_names_of_others(self) -> None:
        use_registry(organisation())
        try:
            given = record(("ce_region", b"eu"))
            assert step(form="keys").on_send(given) is given
            assert step(form="keys", also=("ce_region",)).on_send(given).headers.names() == ("~QAE",)
        finally:
            use_registry(built_in())

    def test_never_wins(self) -> None:
        opened = step(form="keys", also=("traceparent",), never=("hw.t*", "traceparent", "10.*"))
        given = record(TRAIL, PARENT, ("10.0.0.7", b""), SIGNATURE)
        assert opened.on_send(given).headers.names() == ("hw.trail", "traceparent", "10.0.0.7", "~F")

    @FORMS
    def test_refuses_a_header_that_would_be_read_as_a_block(self, form: Form) -> None:
        with pytest.raises(WireFormatError, match=r"a header is called hw\.ids"):
            step(form=form).on_send(record((HEADER, b"")))

    @FORMS
    @pytest.mark.parametrize(
        "headers",
        [
            (),
            (SIGNATURE,),
            (("0.0.2.1", b""), ("a", b"1")) * 30,
            (("~" + "x" * 62, b""),) * 20,
            (("~", None), SIGNATURE) * 200,
            (("255.255.255.255", None),) * 3,
            (("hw.id", b"x" * 70_000), ("a", None)),
        ],
    )
    def test_adds_no_more_than_it_says(self, form: Form, headers: tuple[Pair, ...]) -> None:
        opened, given = step(form=form), record(*headers)
        bound = opened.overhead_bytes(given)
        for later in (given, given.with_headers(given.headers.append(SIGNATURE))):
            assert wire_bytes(opened.on_send(later)) - wire_bytes(later) <= bound

    def test_counts_the_bytes_saved(self) -> None:
        opened = step(form="keys")
        opened.on_send(record(TRAIL, SIGNATURE, ("~", b"")))
        assert opened.stats() == {"encoded": 1, "decoded": 0, "bytes_saved": 6 + 4 - 1, "unknown_ids": 0}

    @FORMS
    def test_bytes_saved_are_those_on_the_wire(self, form: Form) -> None:
        opened = step(form=form)
        given = record(("a", b"1"), TRAIL, PARENT, SIGNATURE, ("hw.compress", b"zstd"), ("hw.id", b""))
        saved = wire_bytes(given) - wire_bytes(opened.on_send(given))
        assert saved > 0
        assert opened.stats()["bytes_saved"] == saved


class TestCompactOnConsume:
    def test_needs_no_configuration(self) -> None:
        given = record(("~~B", b""), TRAIL, SIGNATURE, PARENT, ("hw.trail", None), ("10.1.2.3", b""))
        packed, keys = step(form="packed").on_send(given), step(form="keys").on_send(given)
        reader = step()
        assert reader.on_consume(packed) == reader.on_consume(keys) == given
        both = given.with_headers(packed.headers + keys.headers)
        assert reader.on_consume(both).headers == given.headers + given.headers

    @FORMS
    def test_leaves_plain_names_untouched(self, form: Form) -> None:
        opened, given = step(form=form), record(("a", b""), TRAIL, ("~", b""), ("~not-a-key", None))
        assert opened.on_consume(given) is given
        assert opened.stats()["decoded"] == 0

    def test_counts_headers_with_unknown_ids(self) -> None:
        opened = step()
        for _ in range(3):
            found = opened.on_consume(record(("~KAAAH", b""), ("~B", b""), (HEADER, b"1M%!")))
        assert found.headers.names() == ("10.0.0.7", "hw.trail", "x-datadog-parent-id")
        assert opened.stats()["unknown_ids"] == 3

    @pytest.mark.parametrize("block", [None, b"", b'2"!', b'1"*x'])
    def test_refuses_a_malformed_block(self, block: bytes | None) -> None:
        with pytest.raises(WireFormatError, match=r"hw\.ids"):
            step().on_consume(record((HEADER, block)))

    def test_refuses_a_second_block(self) -> None:
        with pytest.raises(WireFormatError, match="found it more than once"):
            step().on_consume(record((HEADER, b'1"!'), (HEADER, b'1"!')))

    def test_a_flood_of_names_is_not_remembered(self) -> None:
        opened = step()
        for number in range(5_000):
            opened.on_consume(record((f"~{number:06}", b""), (f"~{number}" + "x" * 1_000, b"")))
            opened.on_send(record((f"name-{number}", b""), (f"{number}" + "x" * 1_000, b"")))
        codec = opened._codec
        remembered = (codec._keys, codec._spellings, codec._names, codec._plain_names)
        assert max(map(len, remembered)) <= 1_024
        assert max(len(str(key)) for table in remembered for key in table) <= 128

    def test_threads_may_share_it(self) -> None:
        opened = step()
        given = [record(TRAIL, (f"10.0.{number % 250}.1", b"x")) for number in range(4_000)]
        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(lambda one: opened.on_consume(opened.on_send(one)), given)) == given


def organisation() -> Registry:
    """Make a registry with a block and entries of an organisation's own."""
    block = Block(network=IPv4Network("0.1.0.0/16"), owner="org", description="Ours.", since="2026-01-01")
    total = Entry(
        id=HeaderId("0.1.0.1"),
        name="orders.total",
        owner="org",
        encoding="utf-8",
        description="The order's total.",
        since="2026-01-01",
    )
    retired = msgspec.structs.replace(total, id=HeaderId("0.1.0.2"), name="old", retired="2026-02-01")
    short = msgspec.structs.replace(total, id=HeaderId("0.1.0.3"), name="ab")
    extension = msgspec.structs.replace(total, id=HeaderId("0.1.0.4"), name="ce_region")
    return with_built_in([block], [total, retired, short, extension])


class TestRegistryOfYourOwn:
    @pytest.fixture(autouse=True)
    def own(self) -> Iterator[None]:
        use_registry(organisation())
        yield
        use_registry(built_in())

    @FORMS
    def test_its_names_become_ids(self, form: Form) -> None:
        opened, given = step(form=form), record(("orders.total", b"1"), SIGNATURE)
        sent = opened.on_send(given)
        assert sent.headers.names() == (("hw.ids",) if form == "packed" else ("~QAB", "~F"))
        assert opened.on_consume(sent) == given

    def test_retired_ids_are_read_and_not_written(self) -> None:
        opened, given = step(form="keys"), record(("old", b"1"))
        assert opened.on_send(given) is given
        assert opened.on_consume(record(("~QAC", b"1"))) == given

    def test_a_name_that_is_shorter_than_its_key_stays(self) -> None:
        given = record(("ab", b"1"))
        assert step(form="keys").on_send(given) is given
        assert step(form="packed").on_send(given) is given

    @FORMS
    def test_who_does_not_know_it_passes_it_on(self, form: Form, tmp_path: Path) -> None:
        location = str(tmp_path / "ids.toml")
        create_store(location, organisation()).close()
        writer = step(form=form, registry=location)
        given = record(("a", b""), ("orders.total", b"1"), ("b", None))
        use_registry(built_in())
        stranger = step(form=form)
        seen = stranger.on_consume(writer.on_send(given))
        assert seen.headers.names() == ("a", "0.1.0.1", "b")
        assert writer.on_consume(stranger.on_send(seen)) == given

    @FORMS
    def test_a_change_of_the_processs_registry_is_taken_up(self, form: Form) -> None:
        opened, given = step(form=form), record(("orders.total", b"1"), SIGNATURE)
        sent = opened.on_send(given)
        saved = opened.stats()["bytes_saved"]
        use_registry(built_in())
        assert opened.on_consume(sent).headers.names() == ("0.1.0.1", "hw.sig")
        assert "orders.total" in opened.on_send(given).headers.names()
        assert form == "packed" or opened.stats()["bytes_saved"] > saved > 0
        use_registry(organisation())
        assert opened.on_consume(sent) == given

    def test_is_read_from_where_the_option_says(self, tmp_path: Path) -> None:
        location = str(tmp_path / "ids.toml")
        create_store(location, organisation()).close()
        use_registry(built_in())
        sent = step(registry=location, form="keys").on_send(record(("orders.total", b"1")))
        assert sent.headers.names() == ("~QAB",)

    def test_a_registry_that_is_not_there_is_told_on_opening(self, tmp_path: Path) -> None:
        with pytest.raises(RegistryError, match=r"ids\.toml"):
            step(registry=str(tmp_path / "ids.toml"))


class TestWholeChain:
    """What is signed are the names, and what travels are ids."""

    @pytest.fixture(params=["packed", "keys"])
    def session(self, request: pytest.FixtureRequest, keys: str) -> Iterator[Session]:
        sign = Sign(keyring=keys, key_id="k", cluster="here")
        with Chain([Trail(service="s"), sign, HeaderIds(form=request.param)]).open() as session:
            yield session

    GIVEN = (("a", b"1"), ("~Kq", None), PARENT, ("10.0.0.7", b""), ("a", b"1"), ("", b""))

    def sent(self, session: Session) -> Record:
        (sent,) = session.send([Record("orders", b"v", b"k", Headers(self.GIVEN))])
        assert {"hw.trail", "hw.sig"}.isdisjoint(sent.headers.names())
        return sent

    def test_gives_back_what_was_sent(self, session: Session) -> None:
        (found,) = session.consume([self.sent(session)])
        assert found.headers[:-1] == self.GIVEN
        assert found.headers[-1][0] == "hw.trail"

    def test_every_header_may_neither_go_nor_move(self, session: Session) -> None:
        sent = self.sent(session)
        headers = sent.headers
        for at in range(len(headers)):
            self.refused(session, sent, [*headers[:at], *headers[at + 1 :]])
            moved = [*headers[:at], *headers[at + 1 :]]
            moved.insert((at + 1) % len(headers), headers[at])
            self.refused(session, sent, moved)

    def test_no_byte_of_a_value_may_change(self, session: Session) -> None:
        sent = self.sent(session)
        pairs = list(sent.headers)
        for at, (name, value) in enumerate(pairs):
            for place in range(len(value or b"")):
                for change in (1, 0x80):
                    changed = bytearray(value or b"")
                    changed[place] ^= change
                    self.refused(session, sent, [*pairs[:at], (name, bytes(changed)), *pairs[at + 1 :]])

    def test_reordered_items_are_refused(self, session: Session) -> None:
        sent = self.sent(session)
        plain = HeaderIds().open(Context()).on_consume(sent)
        for at in range(len(plain.headers) - 1):
            swapped = list(plain.headers)
            swapped[at : at + 2] = reversed(swapped[at : at + 2])
            again = HeaderIds().open(Context()).on_send(plain.with_headers(Headers(swapped)))
            if swapped != list(plain.headers):
                self.refused(session, sent, list(again.headers))

    def test_a_stripped_signature_is_noticed(self, session: Session) -> None:
        plain = HeaderIds().open(Context()).on_consume(self.sent(session))
        stripped = plain.with_headers(plain.headers.remove("hw.sig"))
        self.refused(session, plain, list(HeaderIds().open(Context()).on_send(stripped).headers))

    def test_a_mirror_may_write_the_other_form(self, session: Session) -> None:
        sent = self.sent(session)
        mirror = HeaderIds(form="keys" if HEADER in sent.headers else "packed").open(Context())
        again = mirror.on_send(mirror.on_consume(sent))
        assert again.headers != sent.headers
        assert session.consume([again])[0].headers[:-1] == self.GIVEN

    @FORMS
    @pytest.mark.parametrize("value_bytes", [1_000, 1_100, 1_200, 1_300, 1_400, 5_000])
    def test_slices_leave_room_for_it(self, keys: str, form: Form, value_bytes: int) -> None:
        sign = Sign(keyring=keys, key_id="k", cluster="here")
        marked = [(f"~{number}", b"") for number in range(20)]
        given = Record("orders", b"x" * value_bytes, b"k", Headers(marked), 0, 5, 1, 0)
        with Chain([Slice(max_bytes=1_500), sign, HeaderIds(form=form)]).open() as session:
            sent = session.send([given])
            assert max(97 + 1 + len(one.value) + wire_bytes(one) for one in sent) <= 1_500
            assert session.consume(sent)[-1].headers == given.headers

    def test_a_malformed_block_has_its_position(self, session: Session) -> None:
        broken = Record("orders", b"", headers=Headers([(HEADER, b'1"')]), partition=3, offset=7)
        with pytest.raises(
            InterceptorError, match=r"header_ids at orders\[3\]@7: hw\.ids ends within an item"
        ):
            session.consume([broken])

    def refused(self, session: Session, sent: Record, headers: list[Pair]) -> None:
        (outcome,) = session.consume_outcomes([sent.with_headers(Headers(headers))])
        assert isinstance(outcome, InterceptorError), headers
