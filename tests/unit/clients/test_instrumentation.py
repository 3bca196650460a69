"""What an application has in its hands under instrumentation; ``tests/unit/cli/test_run.py`` has processes.

The tests name the classes of C as ``cimpl.Producer``: any name of their own would be replaced.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import pickle
import weakref
from abc import ABC
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import confluent_kafka
import pytest
from confluent_kafka import Consumer as ImportedConsumer
from confluent_kafka import KafkaException, TopicPartition, aio, cimpl
from confluent_kafka import Producer as ImportedProducer
from confluent_kafka.serialization import StringDeserializer, StringSerializer

import headerware
from headerware.clients import instrumentation
from headerware.clients.offsets import held_back
from headerware.core.chain import Chain
from headerware.interceptors import Trail
from tests.unit.clients.conftest import Fill, take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHAIN: dict[str, Any] = {"interceptors": "trail", "interceptors.trail.service": "orders"}
UNREACHABLE: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
SHOWN = {"headerware.hide_headers": False}
BOTH = {**UNREACHABLE, **CHAIN}


class Early(ImportedProducer):
    """Derived before; it sets an attribute before the client is initialised, and has its own ``produce``."""

    def __init__(self, conf: dict[str, Any], name: str = "early") -> None:
        self.name = name
        super().__init__(conf)

    def produce(self, topic: str, *args: Any, **keywords: Any) -> None:
        super().produce(topic, *args, **{"headers": {"by": self.name}, **keywords})


class Heir(Early):
    pass


class EarlyConsumer(ImportedConsumer):
    pass


class EarlyAsyncProducer(aio.AIOProducer):
    def __init__(self, conf: dict[str, Any]) -> None:
        aio.AIOProducer.__init__(self, conf)


class Proxy(ImportedProducer):
    """As OpenTelemetry's: it is a client by its class alone, and passes everything on."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def produce(self, *args: Any, **keywords: Any) -> None:
        self.client.produce(*args, **keywords)


class Slotted(ImportedProducer):
    __slots__ = ()


class Application:
    """References of each kind to classes that were imported before."""

    def __init__(self) -> None:
        class Derived(ImportedProducer):
            made_from = ImportedProducer

        def by_default(make: Any = ImportedProducer, *, make_other: Any = ImportedConsumer) -> Any:
            return make, make_other

        local = ImportedProducer
        self.derived = Derived
        self.by_default = by_default
        self.closure: Callable[[], Any] = lambda: local
        self.by_name = {"producer": ImportedProducer, "consumer": ImportedConsumer}
        self.listed = [ImportedProducer]
        self.make = ImportedProducer

    def producers(self) -> list[Any]:
        """Return what each reference to the producer means now."""
        return [
            confluent_kafka.Producer,
            ImportedProducer,
            self.derived.made_from,
            self.by_name["producer"],
            self.listed[0],
            self.make,
            self.by_default()[0],
            self.closure(),
        ]

    def consumers(self) -> list[Any]:
        return [confluent_kafka.Consumer, ImportedConsumer, self.by_name["consumer"], self.by_default()[1]]


@pytest.fixture(scope="module", autouse=True)
def _other_tests_are_put_aside() -> Iterator[None]:
    """Have the collector look at what these tests make alone, and not at thousands of other tests."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="class")
def application() -> Application:
    return Application()


@pytest.fixture(scope="class")
def _instrumented(application: Application) -> Iterator[None]:
    headerware.instrument()
    yield
    headerware.uninstrument()
    gc.collect()
    headerware.uninstrument()  # the classes of clients that the test has left behind


def wire_headers(connection: dict[str, Any], topic: str) -> list[dict[str, bytes]]:
    """Return the headers of what is in the topic, read past any chain."""
    raw: Any = cimpl.Consumer({**connection, "group.id": topic, "auto.offset.reset": "earliest"})
    raw.assign([TopicPartition(topic, 0, 0)])
    found = take(raw, 1)
    rest = raw.consume(10, 0.2)
    raw.close()
    return [dict(message.headers() or []) for message in [*found, *rest]]


@pytest.mark.usefixtures("_instrumented")
class TestNames:
    def test_of_every_kind_are_replaced(self, application: Application) -> None:
        assert set(application.producers()) == {confluent_kafka.Producer}
        assert set(application.consumers()) == {confluent_kafka.Consumer}
        assert confluent_kafka.Producer is not cimpl.Producer

    def test_stay_as_they_are_when_it_is_done_again(self, application: Application) -> None:
        first = confluent_kafka.Producer
        headerware.instrument()
        assert set(application.producers()) == {first}
        assert Early.__mro__.count(instrumentation._INSERTED[0][1]) == 1

    def test_of_modules_of_ours_are_the_classes_of_c(self) -> None:
        assert cimpl.Producer in headerware.Producer.__bases__

    def test_are_found_beside_objects_that_cannot_be_asked(self, application: Application) -> None:
        """A dead proxy, and a lazy object whose ``__class__`` asks a database."""

        class Lazy:
            @property  # type: ignore[misc]  # not to be written
            def __class__(self) -> type:
                raise LookupError("no database")

        class Target:
            pass

        kept = [weakref.proxy(Target()), Lazy()]
        headerware.uninstrument()
        headerware.instrument()
        assert set(application.producers()) == {confluent_kafka.Producer}
        assert len(kept) == 2

    def test_can_be_mocked(self) -> None:
        with patch("confluent_kafka.Producer") as mock:
            confluent_kafka.Producer(UNREACHABLE).produce("topic")
        mock.return_value.produce.assert_called_once_with("topic")

    def test_of_asyncio_and_share_clients_mean_ours(self) -> None:
        assert issubclass(aio.AIOProducer, headerware.AsyncProducer)
        assert issubclass(aio.AIOConsumer, headerware.AsyncConsumer)
        if hasattr(cimpl, "ShareConsumer"):
            assert issubclass(confluent_kafka.ShareConsumer, headerware.ShareConsumer)

    @pytest.mark.parametrize("module_and_name", [(confluent_kafka, "Producer"), (aio, "AIOConsumer")])
    def test_pickle(self, module_and_name: tuple[Any, str]) -> None:
        client = getattr(*module_and_name)
        assert pickle.loads(pickle.dumps(client)) is client  # noqa: S301 - ours
        assert b"headerware" not in pickle.dumps(client)


def test_warns_of_clients_that_exist_already(caplog: pytest.LogCaptureFixture) -> None:
    headerware.uninstrument()
    early, own = Heir({"log_level": 0}), headerware.Producer({}, chain=Chain([Trail(service="test")]))
    headerware.instrument()
    headerware.instrument()
    expected = "1 client of confluent-kafka was made before instrument(): its records pass no chain"
    assert [text.partition(";")[0] for text in caplog.messages if "before instrument" in text] == [expected]
    assert not early._hw_chained  # type: ignore[attr-defined]  # it is a class with our methods now
    own.close()


class TestUninstrument:
    def test_gives_names_back(self, application: Application) -> None:
        headerware.instrument()
        headerware.uninstrument()
        assert set(application.producers()) == {cimpl.Producer}
        assert set(application.consumers()) == {cimpl.Consumer}
        assert not issubclass(aio.AIOProducer, headerware.AsyncProducer)
        assert EarlyAsyncProducer.__bases__ == (aio.AIOProducer,)

    def test_leaves_names_that_somebody_else_has_replaced(self) -> None:
        headerware.instrument()

        class Other(ImportedProducer):
            pass

        with patch("confluent_kafka.Producer", Other):
            headerware.instrument()
            assert confluent_kafka.Producer is Other
            headerware.uninstrument()
            assert confluent_kafka.Producer is Other
        assert confluent_kafka.Producer is cimpl.Producer  # patch had kept the name of the class of C

    def test_leaves_our_serializing_clients_their_chain(self) -> None:
        headerware.instrument()
        still_open = confluent_kafka.SerializingProducer(BOTH)
        headerware.uninstrument()
        client: Any = headerware.SerializingProducer(BOTH)
        assert client.stats()["trail"] is not None
        client.close()
        del client, still_open
        gc.collect()
        headerware.uninstrument()

    def test_gives_classes_their_bases_back(self) -> None:
        gc.collect()  # an open client keeps the bases of its class
        headerware.uninstrument()
        classes = [Early, Heir, EarlyConsumer, Proxy, confluent_kafka.SerializingProducer]
        before = [each.__bases__ for each in classes]
        headerware.instrument()
        assert [each.__bases__ for each in classes] != before
        headerware.uninstrument()
        assert [each.__bases__ for each in classes] == before

    def test_leaves_open_clients_their_chain(self) -> None:
        headerware.instrument()
        client: Any = Heir(BOTH)
        headerware.uninstrument()
        assert client.stats()["trail"] is not None
        client.close()
        del client
        gc.collect()
        headerware.uninstrument()
        assert Early.__bases__ == (cimpl.Producer,)

    def test_leaves_no_chain_to_classes_that_were_derived_meanwhile(self) -> None:
        headerware.instrument()

        class Late(confluent_kafka.Producer):
            pass

        headerware.uninstrument()
        with pytest.raises(KafkaException, match="interceptors"):
            Late(BOTH)
        assert not Late(UNREACHABLE)._hw_chained  # type: ignore[attr-defined]

    def test_leaves_no_chain_to_asyncio_classes_that_were_derived_meanwhile(self) -> None:
        headerware.instrument()

        class Late(aio.AIOConsumer):
            pass

        headerware.uninstrument()
        with pytest.raises(KafkaException, match="interceptors"):
            Late({**BOTH, "group.id": "g"})

    def test_looks_through_the_process_no_more_often_for_many_classes(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looks = []
        referrers = gc.get_referrers

        def counted(*objects: object) -> list[Any]:
            looks.append(objects)
            return referrers(*objects)

        monkeypatch.setattr(gc, "get_referrers", counted)
        derived = [type(f"Derived{number}", (cimpl.Producer,), {}) for number in range(30)]
        headerware.instrument()
        assert all(each.__bases__ != (cimpl.Producer,) for each in derived)
        looks.clear()
        headerware.uninstrument()
        assert all(each.__bases__ == (cimpl.Producer,) for each in derived)
        assert len(looks) < 10

    def test_alone_does_nothing(self, application: Application) -> None:
        headerware.uninstrument()
        assert set(application.producers()) == {cimpl.Producer}


@pytest.mark.usefixtures("_instrumented")
class TestClasses:
    @pytest.mark.parametrize("kind", [Early, Heir, confluent_kafka.SerializingProducer])
    def test_derived_before_have_a_chain(self, kind: Any) -> None:
        client = kind(BOTH)
        assert client.chain.names == ("trail",)
        client.close()

    def test_derived_later_have_a_chain(self) -> None:
        class Late(ABC, confluent_kafka.Producer):
            def __init__(self, conf: dict[str, Any]) -> None:
                self.conf = conf
                confluent_kafka.Producer.__init__(self, conf)

        client: Any = Late(BOTH)
        assert client.chain.names == ("trail",)
        client.close()

    def test_count_as_each_other(self) -> None:
        heir: Any = Heir(BOTH)
        own: Any = headerware.Producer(UNREACHABLE, chain=Chain())
        for client in (heir, own, cimpl.Producer(UNREACHABLE), ImportedProducer(UNREACHABLE)):
            assert isinstance(client, cimpl.Producer)
            assert isinstance(client, confluent_kafka.Producer)
            assert not issubclass(type(client), confluent_kafka.Consumer)
        assert type(ImportedProducer(UNREACHABLE)) is ImportedProducer
        assert issubclass(Heir, confluent_kafka.Producer)
        assert not issubclass(confluent_kafka.Producer, Heir)
        assert not isinstance(cimpl.Producer(UNREACHABLE), Heir)

    @pytest.mark.skipif(not hasattr(aio, "AsyncSerializingProducer"), reason="this confluent-kafka has none")
    def test_of_asyncio_count_as_each_other(self) -> None:
        assert issubclass(EarlyAsyncProducer, aio.AIOProducer)
        assert issubclass(aio.AsyncDeserializingConsumer, aio.AIOConsumer)
        assert issubclass(headerware.AsyncProducer, aio.AIOProducer)
        assert not issubclass(aio.AIOProducer, EarlyAsyncProducer)

    @pytest.mark.skipif(not hasattr(cimpl, "ShareConsumer"), reason="confluent-kafka before 2.16 has none")
    @pytest.mark.parametrize("name", ["ShareConsumer", "DeserializingShareConsumer"])
    def test_of_share_consumers_have_a_chain(self, name: str) -> None:
        client: Any = getattr(confluent_kafka, name)({**BOTH, "group.id": "g"})
        assert client.chain.names == ("trail",)
        assert client.stats()["trail"] is not None
        client.close()

    @pytest.mark.parametrize("ours", [headerware.Producer, headerware.Consumer, headerware.ShareConsumer])
    def test_of_ours_have_methods_that_can_be_copied(self, ours: type) -> None:
        # The copy's super() would still mean our own class.
        functions = [inspect.unwrap(each) for each in vars(ours).values() if inspect.isfunction(each)]
        assert functions
        assert not [each for each in functions if "__class__" in each.__code__.co_freevars]

    def test_that_are_no_clients_yet_answer_as_before(self) -> None:
        proxy: Any = Proxy(None)
        assert not proxy._hw_chained
        with pytest.raises(RuntimeError):
            proxy.poll(0)

    def test_without_room_for_attributes_stay_as_they_are(self) -> None:
        with pytest.raises(KafkaException, match="interceptors"):
            Slotted(BOTH)
        assert Slotted(UNREACHABLE).purge() is None  # type: ignore[func-returns-value]

    def test_of_admin_clients_stay_as_they_are(self) -> None:
        assert confluent_kafka.admin.AdminClient.__mro__[1].__module__ == "cimpl"


@pytest.mark.usefixtures("_instrumented")
class TestConfigurations:
    def test_that_are_wrong_are_refused_when_the_client_is_made(self) -> None:
        with pytest.raises(headerware.ConfigError, match="treil"):
            ImportedProducer({**UNREACHABLE, "interceptors": "treil"})

    def test_may_come_from_the_environment(self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        file = tmp_path / "chain.toml"
        file.write_text('[[interceptors]]\ntype = "trail"\nservice = "orders"\n')
        monkeypatch.setenv("HEADERWARE_CONFIG", str(file))
        client: Any = ImportedProducer(UNREACHABLE)
        assert client.chain.names == ("trail",)
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        assert not ImportedProducer(UNREACHABLE)._hw_chained  # type: ignore[attr-defined]
        client.close()

    def test_may_come_from_a_file_that_is_named(
        self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = tmp_path / "chain.toml"
        path.write_text('[[interceptors]]\ntype = "trail"\n')
        monkeypatch.chdir(tmp_path)
        headerware.instrument("chain.toml")
        monkeypatch.chdir("/")
        kinds: list[Any] = [confluent_kafka.Producer, aio.AIOProducer]
        for kind in kinds:
            assert kind(UNREACHABLE).chain.names == ("trail",)
            assert kind({**UNREACHABLE, "headerware.carry": False}).chain.names == ("trail",)
            assert kind({**UNREACHABLE, "interceptors": "header_ids"}).chain.names == ("header_ids",)
        headerware.uninstrument()
        headerware.instrument()
        assert not caplog.messages
        client: Any = ImportedProducer(UNREACHABLE)
        assert not client.chain

    def test_in_a_file_that_is_wrong_are_refused_at_once(self, tmp_path: Any) -> None:
        path = tmp_path / "chain.toml"
        path.write_text('[[interceptors]]\ntype = "trial"\n')
        with pytest.raises(headerware.ConfigError, match=r"chain\.toml.*trial"):
            headerware.instrument(path)

    def test_without_a_chain_are_warned_of_once(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        headerware.instrument()
        confluent_kafka.Producer({**UNREACHABLE, "interceptors": "trail"})
        headerware.Producer(UNREACHABLE)
        assert not caplog.messages
        for _ in range(2):
            confluent_kafka.Producer(UNREACHABLE)
        (warning,) = caplog.messages
        assert warning == (
            "neither instrument() nor HEADERWARE_CONFIG names a chain's file, so only clients whose own "
            "configuration has a chain get one"
        )
        headerware.instrument()
        for variable in (instrumentation.RUN_VARIABLE, "HEADERWARE_DISABLED"):
            monkeypatch.setenv(variable, "1")
            confluent_kafka.Producer(UNREACHABLE)
            monkeypatch.delenv(variable)
        assert len(caplog.messages) == 1

    def test_go_without_a_chain_as_they_did(self) -> None:
        assert not ImportedProducer(UNREACHABLE)._hw_chained  # type: ignore[attr-defined]


@pytest.mark.usefixtures("_instrumented")
class TestRecords:
    """Each goes through one chain, whoever wraps whom."""

    def test_of_a_derived_class(self, connection: dict[str, Any], topic: str) -> None:
        client: Any = Heir({**connection, **CHAIN})
        client.produce(topic, b"value", partition=0)
        client.flush(60)
        (headers,) = wire_headers(connection, topic)
        assert headers["by"] == b"early"
        assert headers["hw.trail"].count(b"by=orders") == 1
        client.close()

    def test_of_a_proxy(self, connection: dict[str, Any], topic: str) -> None:
        client = ImportedProducer({**connection, **CHAIN})
        Proxy(client).produce(topic, b"value", partition=0)
        client.flush(60)
        (headers,) = wire_headers(connection, topic)
        assert headers["hw.trail"].count(b"by=orders") == 1
        client.close()

    def test_of_a_class_of_two_kinds(self, connection: dict[str, Any], topic: str) -> None:
        class Mixed(Early, confluent_kafka.Producer):
            pass

        client: Any = Mixed({**connection, **CHAIN})
        client.produce(topic, b"value", partition=0)
        client.flush(60)
        (headers,) = wire_headers(connection, topic)
        assert headers["hw.trail"].count(b"by=orders") == 1
        client.close()

    def test_of_our_own_clients(self, connection: dict[str, Any], topic: str) -> None:
        with headerware.Producer(connection, chain=Chain([Trail(service="ours")])) as client:
            client.produce(topic, b"value", partition=0)
        (headers,) = wire_headers(connection, topic)
        assert headers["hw.trail"].count(b"by=ours") == 1

    def test_of_serializing_clients(self, connection: dict[str, Any], topic: str) -> None:
        producer: Any = confluent_kafka.SerializingProducer(
            {**connection, **CHAIN, "value.serializer": StringSerializer()}
        )
        producer.produce(topic, value="value", partition=0)
        producer.flush(60)
        producer.close()
        consumer: Any = confluent_kafka.DeserializingConsumer(
            {
                **connection,
                "group.id": "g",
                "interceptors": "trail",
                "interceptors.trail.service": "billing",
                **SHOWN,
                "value.deserializer": StringDeserializer(),
            }
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        message: Any = take(consumer, 1)[0]
        assert message.value() == "value"
        assert b"billing" in dict(message.headers() or [])["hw.trail"]
        consumer.close()

    @pytest.mark.parametrize("kind", [None, EarlyAsyncProducer])
    def test_of_asyncio_clients(self, connection: dict[str, Any], topic: str, kind: Any) -> None:
        async def exchange() -> Any:
            producer = (kind or aio.AIOProducer)({**connection, **CHAIN})
            await (await producer.produce(topic, value=b"value", partition=0))
            await producer.close()
            consumer = aio.AIOConsumer({**connection, **CHAIN, **SHOWN, "group.id": "g"})
            await consumer.assign([TopicPartition(topic, 0, 0)])
            message = await consumer.poll(60)
            await consumer.close()
            return message

        message = asyncio.run(asyncio.wait_for(exchange(), 60))
        assert message.value() == b"value"
        assert dict(message.headers() or ())["hw.trail"].count(b"by=orders") == 2
        assert len(wire_headers(connection, topic)) == 1

    @pytest.mark.skipif(not hasattr(aio, "AsyncSerializingProducer"), reason="this confluent-kafka has none")
    def test_of_asyncio_serializing_clients(self, connection: dict[str, Any], topic: str) -> None:
        async def exchange() -> Any:
            serde: dict[str, Any] = {"value.serializer": StringSerializer()}
            producer = await aio.AsyncSerializingProducer({**connection, **CHAIN, **serde})
            await (await producer.produce(topic, value="value", partition=0))
            await producer.close()
            serde = {**SHOWN, "value.deserializer": StringDeserializer()}
            consumer = await aio.AsyncDeserializingConsumer({**connection, **CHAIN, **serde, "group.id": "g"})
            await consumer.assign([TopicPartition(topic, 0, 0)])
            message = await consumer.poll(60)
            await consumer.close()
            return message

        message = asyncio.run(asyncio.wait_for(exchange(), 60))
        assert message.value() == "value"
        assert dict(message.headers() or ())["hw.trail"].count(b"by=orders") == 2

    def test_that_are_refused_are_events(self, connection: dict[str, Any], topic: str, fill: Fill) -> None:
        fill(b"no zstd", headers={"hw.compress": "zstd"})
        consumer: Any = ImportedConsumer({**connection, "group.id": "g", "interceptors": "compress"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = None
        while message is None:
            message = consumer.poll(1)
        assert message.error() is not None
        assert message.value() is None
        consumer.close()


# What our clients called their own before their names began with _hw_.
OWN_NAMES = (
    "_session",
    "_deliveries",
    "_reports",
    "_sessions",
    "_finish",
    "_live",
    "_next_chain",
    "_chained",
    "_in_use",
    "_inbox",
    "_offsets",
    "_lanes",
    "_paused",
    "_serving",
    "_default",
    "_core",
    "_lane",
    "_results",
    "_running",
    "_closing",
    "_tasks",
)
OWN_METHODS = (
    "_open",
    "_bind",
    "_context",
    "_publish",
    "_answer",
    "_tick",
    "_take",
    "_fetch",
    "_flush",
    "_close",
    "_enqueue",
    "_recover",
    "_chain_for",
    "_fan_out",
)
OURS = ("chain", "stats", "run", "stop", "messages", "local", "processing", "reload", "committable")


def with_own_names(base: Any) -> Any:
    """Return a class derived from a client, with names of its own that mean something else."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the application's own method was called")

    class Own(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **keywords: Any) -> None:
            self.__dict__.update(dict.fromkeys(self.names, "before"))
            super().__init__(*args, **keywords)
            assert {vars(self)[name] for name in self.names} == {"before"}
            self.__dict__.update(dict.fromkeys(self.names, "after"))

        names = (*OWN_NAMES, *OURS)

    for name in OWN_METHODS:
        setattr(Own, name, refuse)
    return Own


class TestNamesOfTheApplication:
    """A subclass need not know which names our clients have."""

    @pytest.mark.parametrize(
        "client",
        [
            headerware.SerializingProducer,
            headerware.DeserializingConsumer,
            headerware.AsyncSerializingProducer,
            headerware.AsyncDeserializingConsumer,
            *([headerware.ShareConsumer] if hasattr(cimpl, "ShareConsumer") else []),
        ],
    )
    def test_do_not_look_like_private_ones_of_ours(self, client: Any) -> None:
        own = [each for each in client.__mro__ if each.__module__.startswith("headerware.")]
        private = {name for each in own for name in vars(each) if name.startswith("_") and name[1] != "_"}
        assert {name for name in private if not name.lower().startswith("_hw_")} <= {
            "_is_protocol",
            "_abc_impl",
        }

    def test_are_all_that_an_instance_has(self) -> None:
        for client in (headerware.Producer(BOTH), headerware.Consumer({**BOTH, "group.id": "g"})):
            assert all(name.startswith("_hw_") for name in vars(client))
            client.close()
        for waiting in (
            headerware.AsyncSerializingProducer(UNREACHABLE),
            headerware.AsyncDeserializingConsumer({**UNREACHABLE, "group.id": "g"}),
        ):
            assert all(name.startswith("_hw_") for name in vars(waiting))

        async def main() -> None:
            for client in (
                headerware.AsyncProducer(BOTH),
                headerware.AsyncConsumer({**BOTH, "group.id": "g"}),
            ):
                assert all(name.startswith("_hw_") for name in vars(client))
                await client.close()

        asyncio.run(main())

    def test_of_producers_and_consumers_are_its_own(
        self, connection: dict[str, Any], topic: str, application: Application
    ) -> None:
        early = with_own_names(ImportedProducer), with_own_names(ImportedConsumer)
        headerware.instrument()
        try:
            late = with_own_names(confluent_kafka.Producer), with_own_names(confluent_kafka.Consumer)
            for number, (producer_type, consumer_type) in enumerate((early, late)):
                producer = producer_type({**connection, **CHAIN})
                producer.produce(topic, b"%d" % number, partition=0)
                assert producer.flush(60) == 0
                assert dict.fromkeys(producer.names, "after").items() <= vars(producer).items()
                conf = {**SHOWN, "group.id": f"{topic}-{number}", "auto.offset.reset": "earliest"}
                consumer = consumer_type({**connection, **conf, **CHAIN})
                consumer.assign([TopicPartition(topic, 0)])
                *_, last = take(consumer, number + 1)
                assert dict(last.headers() or ())["hw.trail"]
                consumer.seek(TopicPartition(topic, 0, 0))
                assert len(consumer.consume(1, 60)) == 1
                assert consumer.commit(asynchronous=False)[0].offset == 1
                consumer.pause([TopicPartition(topic, 0)])
                consumer.resume([TopicPartition(topic, 0)])
                metadata = consumer.consumer_group_metadata()
                assert held_back(metadata, [TopicPartition(topic, 0, 1)])[0].offset == 1
                consumer.unsubscribe()
                consumer.close()
                producer.close()
                assert dict.fromkeys(consumer.names, "after").items() <= vars(consumer).items()
                assert repr(consumer).startswith("<Own Chain(trail)")
        finally:
            headerware.uninstrument()

    def test_of_asyncio_clients_are_its_own(self, connection: dict[str, Any], topic: str) -> None:
        async def main() -> None:
            producer = with_own_names(aio.AIOProducer)({**connection, **CHAIN})
            assert (await (await producer.produce(topic, b"a", partition=0))).error() is None
            await producer.flush()
            await producer.close()
            conf = {**SHOWN, "group.id": topic, "auto.offset.reset": "earliest"}
            consumer = with_own_names(aio.AIOConsumer)({**connection, **conf, **CHAIN})
            await consumer.assign([TopicPartition(topic, 0)])
            message = await consumer.poll(60)
            assert dict(message.headers() or ())["hw.trail"]
            await consumer.close()

        headerware.instrument()
        try:
            asyncio.run(main())
        finally:
            headerware.uninstrument()
