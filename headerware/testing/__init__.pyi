from headerware.core.errors import MissingPartError as MissingPartError
from headerware.testing.broker import KafkaBroker as KafkaBroker
from headerware.testing.embedded import EmbeddedCluster as EmbeddedCluster
from headerware.testing.errors import BrokerError as BrokerError
from headerware.testing.java_tools import JavaTools as JavaTools
from headerware.testing.key_service_conformance import KeyServiceConformance as KeyServiceConformance
from headerware.testing.object_store_conformance import ObjectStoreConformance as ObjectStoreConformance
