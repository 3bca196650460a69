"""Explain a configuration: each interceptor in order, and each option with its origin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from headerware.core.chain import Chain, naming_chain_file, resolved_on_error
from headerware.core.config import built
from headerware.core.files import read_sources
from headerware.core.options import Declared
from headerware.core.order import role_of, stage_of
from headerware.core.topics import TopicPatterns

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from headerware.core.hooks import Interceptor


class ExplainedOption(msgspec.Struct, frozen=True):
    """An option's value as it was written, with variables unread, and its file or ``default``."""

    name: str
    value: Any
    origin: str


class ExplainedInterceptor(msgspec.Struct, frozen=True):
    """An interceptor of a chain, with all of its options."""

    name: str
    type: str
    implementation: str
    role: str
    stage: str
    on_error: str
    options: tuple[ExplainedOption, ...]


def explain(path: str | os.PathLike[str], topic: str | None = None) -> tuple[ExplainedInterceptor, ...]:
    """Return the chain of a TOML file in the order of sending; with ``topic``, only its interceptors."""
    pairs = built(read_sources(path))
    with naming_chain_file(path):
        chain = Chain([interceptor for _, interceptor in pairs])
    return tuple(
        ExplainedInterceptor(
            name=name,
            type=declared.type,
            implementation=f"{type(interceptor).__module__}.{type(interceptor).__qualname__}",
            role=role_of(interceptor).value,
            stage=stage_of(interceptor).value,
            on_error=resolved_on_error(interceptor),
            options=tuple(_explained(declared, interceptor)),
        )
        for name, (declared, interceptor) in zip(chain.names, pairs, strict=True)
        if topic is None or TopicPatterns(interceptor.topics).matches(topic)
    )


def _explained(declared: Declared, interceptor: Interceptor) -> Iterator[ExplainedOption]:
    # Some hide a part of an option, such as the passwords among a connector's lines.
    shown = getattr(interceptor, "shown", lambda _option, written: written)
    for option in interceptor.__struct_fields__:
        given = declared.settings.get(option)
        if given is not None:
            yield ExplainedOption(option, shown(option, given.shown), given.origin)
        elif option != "name":
            found = resolved_on_error(interceptor) if option == "on_error" else getattr(interceptor, option)
            yield ExplainedOption(option, found, "default")
