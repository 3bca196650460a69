"""What Connect's classes raise; each error names the Java exception that it stands for.

    ConnectError                      org.apache.kafka.connect.errors.ConnectException
    ├── ConnectDataError              org.apache.kafka.connect.errors.DataException
    │   ├── SchemaBuilderError        org.apache.kafka.connect.errors.SchemaBuilderException
    │   └── SchemaProjectorError      org.apache.kafka.connect.errors.SchemaProjectorException
    ├── ConnectConfigError            org.apache.kafka.common.config.ConfigException (a ConfigError, too)
    ├── ConversionError               org.apache.kafka.common.errors.SerializationException
    ├── NullValueError                java.lang.NullPointerException
    ├── ValueClassError               java.lang.ClassCastException
    ├── ArgumentError                 java.lang.IllegalArgumentException
    │   └── NumberTextError           java.lang.NumberFormatException
    ├── StateError                    java.lang.IllegalStateException
    └── NumberRangeError              java.lang.ArithmeticException

The Java names below ``java.lang`` come up in the ``kafka_4_3`` mode only, where Kafka itself stumbles; the
``strict`` mode says the same with a :class:`ConnectDataError`. A message never quotes a record's value.
"""

from __future__ import annotations

from typing import ClassVar

from headerware.core.errors import ConfigError, HeaderwareError


class ConnectError(HeaderwareError):
    """The root of what Connect's data, converters and transforms raise."""

    java: ClassVar[str] = "org.apache.kafka.connect.errors.ConnectException"
    """The Java class that Kafka Connect raises here."""


class ConnectDataError(ConnectError, ValueError):
    """A value that does not fit its schema, or cannot be converted."""

    java: ClassVar[str] = "org.apache.kafka.connect.errors.DataException"


class SchemaBuilderError(ConnectDataError):
    """A schema that cannot be built."""

    java: ClassVar[str] = "org.apache.kafka.connect.errors.SchemaBuilderException"


class SchemaProjectorError(ConnectDataError):
    """A schema whose values cannot be projected to another."""

    java: ClassVar[str] = "org.apache.kafka.connect.errors.SchemaProjectorException"


class ConnectConfigError(ConfigError, ConnectError):
    """A configuration that a converter, transform or predicate refuses; ``path`` names the option."""

    java: ClassVar[str] = "org.apache.kafka.common.config.ConfigException"


class ConversionError(ConnectError, ValueError):
    """Bytes that a converter's serializer cannot read or write."""

    java: ClassVar[str] = "org.apache.kafka.common.errors.SerializationException"


class NullValueError(ConnectError, TypeError):
    """A null where Kafka expects a value without looking."""

    java: ClassVar[str] = "java.lang.NullPointerException"


class ValueClassError(ConnectError, TypeError):
    """A value of another class than Kafka takes it for."""

    java: ClassVar[str] = "java.lang.ClassCastException"


class ArgumentError(ConnectError, ValueError):
    """An argument that Java's own classes refuse."""

    java: ClassVar[str] = "java.lang.IllegalArgumentException"


class NumberTextError(ArgumentError):
    """A text that is no number."""

    java: ClassVar[str] = "java.lang.NumberFormatException"


class StateError(ConnectError, RuntimeError):
    """A call at the wrong time, such as on headers that were closed."""

    java: ClassVar[str] = "java.lang.IllegalStateException"


class NumberRangeError(ConnectError, ArithmeticError):
    """A number that its type cannot hold exactly."""

    java: ClassVar[str] = "java.lang.ArithmeticException"
