"""The interceptor ``lineage``: it counts the records that a client reads and writes, for the reporter."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import msgspec

from headerware.core.hooks import Interceptor, Place, Role
from headerware.interceptors.lineage.jobs import Job, kafka_namespace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.core.context import Context
    from headerware.core.record import Record, RecordMetadata
    from headerware.interceptors.lineage.reporter import Member, Reporter

_NAMESPACE_VARIABLE: Final = "OPENLINEAGE_NAMESPACE"
_DEFAULT_NAMESPACE: Final = "default"


class Lineage(Interceptor, frozen=True, kw_only=True):
    """Report to OpenLineage which topics this service reads and writes.

    The service is a job. All its clients in one process take part in one run, which begins with the first
    record and ends when the last client is closed. An event is sent when a new topic is used and every
    ``interval_s``, not for each record. A record counts as read when no interceptor has refused it, and as
    written when it is stored.

    OpenLineage's own client sends the events, from a thread of its own; its file and environment variables
    (``openlineage.yml``, ``OPENLINEAGE_URL`` and others) name the receiver. This interceptor needs the extra
    ``lineage``. In Spark the driver reports, and the executors do not.

    Args:
        service: the name of the job; None means the client's id, or the host's name if the client has no id.
        job_namespace: the namespace of the job; None means the variable OPENLINEAGE_NAMESPACE, or
            ``default``.
        dataset_namespace: the namespace of the topics; None means ``kafka://`` with the first of the client's
            bootstrap servers.
        interval_s: the longest time between two events, in seconds.

    Safe for use by several threads at once.
    """

    type: ClassVar[str] = "lineage"
    role: ClassVar[Role] = Role.OBSERVE
    place: ClassVar[Place | None] = Place.AUDIT

    service: str | None = None
    job_namespace: str | None = None
    dataset_namespace: str | None = None
    interval_s: Annotated[int, msgspec.Meta(ge=1)] = 300

    def job(self, default: str) -> Job:
        """Return the job, with a name for it if the options have none."""
        namespace = self.job_namespace or os.environ.get(_NAMESPACE_VARIABLE) or _DEFAULT_NAMESPACE
        return Job(namespace, self.service or default)

    def open(self, context: Context) -> _LineageStep:
        """Return the hooks for one session.

        Raises:
            MissingPartError: openlineage-python is not installed.
            ConfigError: the configuration of OpenLineage's client is wrong.
        """
        if context.bootstrap_servers is None and not context.dry_run:
            return _LineageStep(None, None)
        # OpenLineage's client takes long to import, and need not be installed where nothing is reported.
        from headerware.interceptors.lineage.events import open_client  # noqa: PLC0415
        from headerware.interceptors.lineage.reporter import reporter  # noqa: PLC0415 - likewise

        if context.dry_run or context.bootstrap_servers is None:
            open_client().close()  # raises if the configuration is wrong
            return _LineageStep(None, None)
        namespace = self.dataset_namespace or kafka_namespace(context.bootstrap_servers)
        job = self.job(context.client_id or socket.gethostname() or "headerware")
        reporting = reporter()
        return _LineageStep(reporting, reporting.join(job, namespace, interval_s=self.interval_s))


class _LineageStep:
    """The hooks of one session; without a client there is nothing to report."""

    __slots__ = ("_member", "_reporter")

    def __init__(self, reporter: Reporter | None, member: Member | None) -> None:
        self._reporter = reporter
        self._member = member

    def on_accepted(self, record: Record) -> Record:
        """Count a record that was read, and that no step refused."""
        if self._member is not None:
            self._member.read(record.topic)
        return record

    def on_acknowledgement(
        self, record: Record, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        """Count a record that was stored."""
        if error is None and self._member is not None:
            self._member.wrote(record.topic if metadata is None else metadata.topic)

    def stats(self) -> Mapping[str, int]:
        """Return the counts of the events for all jobs of this process."""
        return {} if self._reporter is None else self._reporter.stats()

    def close(self) -> None:
        """Leave the run."""
        if self._member is not None:
            self._member.leave()
