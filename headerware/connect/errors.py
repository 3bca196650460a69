"""The errors of Connect's classes; each names the Java exception that it stands for.

    ConnectError                      org.apache.kafka.connect.errors.ConnectException
    ├── ConnectDataError              org.apache.kafka.connect.errors.DataException
    │   ├── SchemaBuilderError        org.apache.kafka.connect.errors.SchemaBuilderException
    │   └── SchemaProjectorError      org.apache.kafka.connect.errors.SchemaProjectorException
    ├── ConnectConfigError            org.apache.kafka.common.config.ConfigException (a ConfigError, too)
    │   ├── EmptyPairError            java.lang.ArrayIndexOutOfBoundsException
    │   └── ConnectPluginError        a class that cannot be loaded (a PluginError, too)
    │       ├── UnknownClassError     java.lang.ClassNotFoundException
    │       └── NoPartError           java.lang.InstantiationException
    ├── ConversionError               org.apache.kafka.common.errors.SerializationException
    ├── NullValueError                java.lang.NullPointerException
    ├── ValueClassError               java.lang.ClassCastException
    ├── FieldIndexError               java.lang.ArrayIndexOutOfBoundsException
    ├── ArgumentError                 java.lang.IllegalArgumentException
    │   ├── NumberTextError           java.lang.NumberFormatException
    │   └── GroupNumberError          java.lang.IndexOutOfBoundsException
    └── StateError                    java.lang.IllegalStateException

Plug-in errors aside, the errors that stand for exceptions of ``java.lang`` are raised in the ``kafka_4_3``
mode, where Kafka itself fails by accident; the ``strict`` mode raises a :class:`ConnectDataError` or
:class:`ConnectConfigError` instead. A message never quotes a record's value.
"""

from __future__ import annotations

from typing import ClassVar

from headerware.core.errors import ConfigError, HeaderwareError, PluginError


class ConnectError(HeaderwareError):
    """The base class of the errors of Connect's data, converters and transforms."""

    java: ClassVar[str] = "org.apache.kafka.connect.errors.ConnectException"
    """The exception that Kafka Connect raises in this case."""


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


class EmptyPairError(ConnectConfigError):
    """A pair whose two sides are empty."""

    java: ClassVar[str] = "java.lang.ArrayIndexOutOfBoundsException"


class ConnectPluginError(PluginError, ConnectConfigError):
    """A class that configuration names, but that cannot be loaded, or is of another kind."""


class UnknownClassError(ConnectPluginError):
    """A class name that is not known."""

    java: ClassVar[str] = "java.lang.ClassNotFoundException"


class NoPartError(ConnectPluginError):
    """The name of a class that has one class for keys and one for values, without ``$Key`` or ``$Value``."""

    java: ClassVar[str] = "java.lang.InstantiationException"


class ConversionError(ConnectError, ValueError):
    """Bytes that a converter's serializer cannot read or write."""

    java: ClassVar[str] = "org.apache.kafka.common.errors.SerializationException"


class NullValueError(ConnectError, TypeError):
    """A null that Kafka uses as a value without a check."""

    java: ClassVar[str] = "java.lang.NullPointerException"


class ValueClassError(ConnectError, TypeError):
    """A value that is not of the class to which Kafka casts it."""

    java: ClassVar[str] = "java.lang.ClassCastException"


class FieldIndexError(ConnectError, IndexError):
    """A struct without a field that its record's schema has; only in the ``kafka_4_3`` mode."""

    java: ClassVar[str] = "java.lang.ArrayIndexOutOfBoundsException"


class ArgumentError(ConnectError, ValueError):
    """An argument that Java's own classes refuse."""

    java: ClassVar[str] = "java.lang.IllegalArgumentException"


class NumberTextError(ArgumentError):
    """A text that is not a number."""

    java: ClassVar[str] = "java.lang.NumberFormatException"


class GroupNumberError(ArgumentError):
    """A replacement with the number of a group that the pattern does not have."""

    java: ClassVar[str] = "java.lang.IndexOutOfBoundsException"


class StateError(ConnectError, RuntimeError):
    """A call at the wrong time, such as on headers that were closed."""

    java: ClassVar[str] = "java.lang.IllegalStateException"
