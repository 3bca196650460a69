"""The doctor: check versions, a chain, its keys, the cluster and topics, and give advice.

The doctor changes nothing. It writes neither to the cluster nor to a file, joins no consumer group, and does
not open a chain whose stores would create their topic. It asks key services to wrap and unwrap a probe key,
which encrypts nothing.
"""

from headerware.core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__)
