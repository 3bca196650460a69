"""Whether topics are compacted: no message is sliced there, because compaction would remove slices."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from headerware.kafka.admin import Admin
from headerware.kafka.batch_size import SETTINGS_TIMEOUT_S

_REFRESH_S: Final = 300.0


class CompactedTopics:
    """Ask the cluster for ``cleanup.policy``, once in five minutes for each topic; safe for several threads.

    The client needs the right ``DESCRIBE_CONFIGS`` on the topic.

    Args:
        conf: the settings of a client of confluent-kafka.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self._conf: Final = dict(conf)
        self._known: Final[dict[str, tuple[float, bool | None]]] = {}

    def __call__(self, topic: str) -> bool | None:
        """Return whether a topic is compacted; None if the cluster does not say."""
        if not self.knows(topic):
            self._known[topic] = time.monotonic(), self._ask(topic)
        return self._known[topic][1]

    def knows(self, topic: str) -> bool:
        """Return whether the answer is known, so that a call does not ask the cluster."""
        asked_at, _ = self._known.get(topic, (float("-inf"), None))
        return time.monotonic() - asked_at <= _REFRESH_S

    def _ask(self, topic: str) -> bool | None:
        told = Admin(self._conf, timeout_s=SETTINGS_TIMEOUT_S).told_settings([topic]).get(topic)
        return None if told is None else "compact" in told["cleanup.policy"]
