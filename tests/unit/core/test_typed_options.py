"""The base of options that configuration names by a word."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from headerware import ConfigError, Interceptor
from headerware.serdes import Serde
from headerware.sources import Extractor, Source, Transformer


@pytest.mark.parametrize("base", [Interceptor, Serde, Extractor, Source, Transformer])
def test_a_check_of_options_may_call_that_of_its_base(base: Any) -> None:
    class Checked(base, frozen=True, kw_only=True):  # type: ignore[misc, call-arg]  # any base
        size: int

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.size < 1:
                raise ConfigError(f"expected at least 1, found {self.size}", path="size")

    assert Checked(size=1).size == 1
    with pytest.raises(ConfigError):
        Checked(size=0)


CHAINS_AT_ONCE = """
import sys
import threading
from typing import Literal

import msgspec

from headerware import Chain, Interceptor

THREADS = 4
sys.setswitchinterval(1e-6)
failures = []


def new_types():
    class Part(msgspec.Struct, frozen=True):
        form: Literal["long", "short"] = "long"
        names: tuple[str, ...] | None = None

    class Whole(Interceptor, frozen=True):
        part: Part = Part()
        mode: Literal["on", "off"] = "on"
        parts: list[Part] | None = None

        def on_send(self, record):
            return record

    return Part, Whole


for _ in range(300):
    part, whole = new_types()
    begin = threading.Barrier(THREADS)

    def make():
        begin.wait()
        try:
            Chain([whole(part=part(form="short"), mode="off", parts=[part()])])
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=make) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
assert not failures, failures[0]
"""
"""Threads make the first chains of new types at once; msgspec before 0.23 crashed the process."""


def test_threads_may_make_the_first_chain_of_a_type_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", CHAINS_AT_ONCE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
