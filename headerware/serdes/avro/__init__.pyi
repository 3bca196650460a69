from headerware.serdes.avro.serde import Avro as Avro
from headerware.serdes.avro.serde import OpenedAvro as OpenedAvro
