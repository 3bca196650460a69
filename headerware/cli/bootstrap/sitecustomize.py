"""Instrument confluent-kafka in each Python process under ``headerware run``, which sets PYTHONPATH.

Python imports ``sitecustomize`` at each start, so this module loads nothing heavy: it waits until the
process imports confluent_kafka, or another client, which no chain covers. If the application or a tool such
as ddtrace-run has a ``sitecustomize``, too, that module runs after this one.
"""

import importlib.util
import os
import runpy
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

_CLIENT = "confluent_kafka"
_OURS = "headerware.clients"
_OTHERS = ("kafka", "aiokafka")
"""As in headerware.core.other_clients, which takes too long to import at each start."""


class _WhenImported:
    """Instrument confluent_kafka right after its import, before the importing module takes names from it.

    If headerware.clients imports it, wait until headerware.clients is complete.
    """

    def __init__(self) -> None:
        self._is_looking = False

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002 - importlib's protocol
        if name not in {_CLIENT, _OURS, *_OTHERS} or self._is_looking:
            return None
        self._is_looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._is_looking = False
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            if module.__name__ != name:
                return  # a loader of a zip file loads other modules, too
            if name in _OTHERS:
                _warn_of(module)
            elif name == _OURS or _OURS not in sys.modules:
                _instrument()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # this loader, for this module
        return spec


def _instrument() -> None:
    from headerware.clients.instrumentation import instrument  # noqa: PLC0415 - only when there are clients

    instrument()


def _warn_of(module: ModuleType) -> None:
    from headerware.core.other_clients import warn_of_other_client  # noqa: PLC0415 - as above

    warn_of_other_client(module.__name__, module)


def _start() -> None:
    if importlib.util.find_spec("headerware") is None:
        _report_missing()
    elif _CLIENT in sys.modules:
        _instrument()
    else:
        sys.meta_path.insert(0, _WhenImported())


def _report_missing() -> None:
    """End the command's own process; only warn in its children, which may be tools that use no Kafka."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    install = runpy.run_path(os.path.join(package, "core", "extras.py"))["install_command"]()
    text = (
        f"headerware run: {sys.executable} has no Headerware, so its clients would have no chain. Install "
        f"it ({install}), or run the Python of an environment that has it."
    )
    if os.environ.get("HEADERWARE_RUN") == str(os.getpid()):
        sys.stderr.write(f"Error: {text}\n")
        sys.stderr.flush()
        os._exit(1)
    if importlib.util.find_spec(_CLIENT) is not None:
        sys.stderr.write(f"Warning: {text}\n")


def _run_next() -> None:
    """Import the sitecustomize that Python would have found without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [folder for folder in sys.path if os.path.abspath(folder) != here]
    own = sys.modules.pop("sitecustomize", None)
    kept, sys.path[:] = sys.path[:], others
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401, PLC0415 - the next one, if any
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if own is not None:
            sys.modules["sitecustomize"] = own
    finally:
        added = [folder for folder in sys.path if folder not in others]
        sys.path[:] = [*added, *kept]


_start()
_run_next()
