"""The origins of records: the cluster and topic that a record was made for, and where else it is accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headerware.core.errors import ConfigError
from headerware.core.patterns import WILDCARDS, fits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_TOPIC: Final = "{topic}"
"""Stands in an origin for the topic that a record is read from."""
_NOT_IN_ORIGINS: Final = frozenset("[]{}!")


class Origins:
    """Judge whether a record that states its cluster and topic may be in the topic where it was found.

    Args:
        accepted: other origins to accept: ``cluster/topic``, in which ``*`` and ``?`` are wildcards.
            ``{topic}`` is the topic that is read.

    Raises:
        ConfigError: an origin that is not such a pattern, at ``accept_origins``.
    """

    __slots__ = ("_patterns",)

    def __init__(self, accepted: Iterable[str] = ()) -> None:
        self._patterns: Final = tuple(map(_patterns, accepted))

    def problem(self, cluster: str, topic: str, *, own: str | None, found_in: str) -> str | None:
        """Return why a record may not be in a topic, as the end of a sentence; None if it may.

        ``cluster`` and ``topic`` are those that the record states. An empty ``cluster`` was unknown to the
        writer, and ``own`` is None if the reader does not know its cluster; unknown clusters are not
        compared.
        """
        same_cluster = not cluster or own is None or cluster == own
        if same_cluster and topic == found_in:
            return None
        for clusters, topics in self._patterns:
            # A topic's name is not a pattern: a name with a wildcard, which Kafka does not permit, fits
            # nothing.
            permitted = topics.replace(_TOPIC, found_in)
            if WILDCARDS.isdisjoint(found_in) and fits(clusters, cluster) and fits(permitted, topic):
                return None
        return (
            f"for topic {topic!r} of cluster {_name(cluster)}, found in topic {found_in!r} of cluster "
            f"{_name(own)}; accept_origins permits no such origin"
        )


def cluster_port(cluster: str | None, port: Callable[[], str | None]) -> Callable[[], str | None]:
    """Return a function that returns the cluster's id: the configured id, or else the port of the context."""
    return port if cluster is None else lambda: cluster


def _patterns(origin: str) -> tuple[str, str]:
    """Return the patterns of cluster and topic; ConfigError if one is missing, or is not a valid pattern."""
    cluster, _, topic = origin.rpartition("/")
    if not cluster or not topic:
        raise ConfigError(f'"cluster/topic", such as "*/orders", not {origin!r}', path="accept_origins")
    if odd := _NOT_IN_ORIGINS & {*cluster, *topic.replace(_TOPIC, "")}:
        raise ConfigError(
            f"expected names, * and ?, and {_TOPIC} in the topic, "
            f"found {' '.join(sorted(odd))} in {origin!r}",
            path="accept_origins",
        )
    return cluster, topic


def _name(cluster: str | None) -> str:
    return repr(cluster) if cluster else "(unknown)"
