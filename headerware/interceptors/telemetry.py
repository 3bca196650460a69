"""Warn if OpenTelemetry has no SDK: its API then records nothing, without any message."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headerware.core.context import Context

_SDK: Final = "opentelemetry.sdk"
_log: Final = logging.getLogger("headerware")


def why_idle() -> str | None:
    """Return why nothing is recorded in this environment, or None if an SDK is installed."""
    if find_spec("opentelemetry") is not None and find_spec(_SDK) is not None:
        return None
    return "OpenTelemetry's SDK is not installed here, so nothing is recorded; pip install opentelemetry-sdk"


def warn_without_sdk(name: str, context: Context, *, is_set_up: bool, what: str) -> None:
    """Log a warning, when a client starts, if an SDK is installed but the application has not set it up."""
    if context.warns and not (is_set_up or context.dry_run or why_idle()):
        _log.warning(
            "%s makes no %s until the application sets up an SDK of OpenTelemetry (for example with "
            "opentelemetry-instrument)",
            name,
            what,
        )
