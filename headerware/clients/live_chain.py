"""Follow the file of a chain while clients run: when it changes, on SIGHUP, or when the application asks.

A new chain is read and checked first. Then each client opens the chain and replaces its present chain,
between two records. If anything is wrong with the new chain, the chain in force goes on.

One thread for each process and file looks for changes, or waits for the signal; it ends with the last client.
The thread does not survive a fork: clients that are made in the child follow the file anew.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import signal
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, RLock, Thread, current_thread, main_thread
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import msgspec

from headerware.core.chain import Chain
from headerware.core.client_chain import Reload, Side, client_chain, followed_file
from headerware.core.config import FILE, RELOAD
from headerware.core.context import wall_clock_ms
from headerware.core.errors import ConfigError, HeaderwareError, MissingPartError, raised_at
from headerware.core.extras import install_command
from headerware.core.file_versions import Stamp, settled, stamp_of
from headerware.core.files import read_text
from headerware.core.hooks import Role
from headerware.core.interrupts import pass_on_interrupt
from headerware.core.order import role_of
from headerware.core.plain_files import changeable_by_others

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path
    from types import FrameType

_log: Final = logging.getLogger("headerware")
_LOOK_S: Final = 0.5
"""How often to look at the files even if no change is reported, as on network file systems."""
_STEP_MS: Final = 100
_STOP_TIMEOUT_S: Final = 5.0
_THREAD: Final = "headerware-reload"
_DIGEST_DIGITS: Final = 12
_REQUIRE: Final[Mapping[Any, int]] = {"off": 0, False: 0, "warn": 1, "enforce": 2, True: 2}
_NAMED: Final = ("headers", "deterministic_headers", "bind_headers", "covered", "fields")
"""Options that name what is protected."""
_STRONGER: Final = {
    "signed": True,
    "key": "deterministic",
    "nulls": "authenticate",
    "on_failure": "refuse",
    "missing": "refuse",
}
"""The value of an option that protects more than its other value."""


class ChainInForce(msgspec.Struct, frozen=True, kw_only=True):
    """The version of its file's chain that a client works with now.

    Args:
        path: the file.
        digest: the first 12 hexadecimal digits of the SHA-256 of the file, followed by the files that it
            includes, in the order of reading.
        names: the names of the interceptors, in the order of sending.
        loaded_at_ms: when the file was read, in milliseconds since the epoch.
        reloads: how often the chain has been replaced.
        failures: how often a new version of the file could not be used.
        failure: why the latest version could not be used; None if it could.
    """

    path: str
    digest: str
    names: tuple[str, ...]
    loaded_at_ms: int
    reloads: int
    failures: int
    failure: str | None


class LoadedChain(msgspec.Struct, frozen=True):
    """A chain that was read from its file and checked, but not opened yet."""

    chain: Chain
    digest: str
    loaded_at_ms: int


class LiveChain:
    """The chain of one client, as its file declares it.

    ``conf`` is the client's complete configuration, whose options may override options of the file.
    """

    def __init__(self, conf: Mapping[str, Any], path: str, reload: Reload, side: Side) -> None:
        self._conf: Final = conf
        self._side: Final = side
        self._path: Final = path
        self._reload: Final = reload
        self._lock: Final = RLock()
        self._stamps: dict[str, Stamp] = {}
        self._digest = ""
        self._loaded_at_ms = 0
        self._reloads = self._failures = 0
        self._failure: str | None = None
        self._follower: _Follower | None = None
        self._closed = False

    @property
    def follows(self) -> bool:
        """Whether the client follows the file, so that it has to be ready for any chain."""
        return self._reload != "off"

    def first(self) -> tuple[Chain, dict[str, Any]]:
        """Read the chain for the first time; return it, and the configuration of the client itself.

        Raises:
            ConfigError: the configuration is wrong.
            MissingPartError: the file is to be watched, and the package watchfiles is not installed.
        """
        if self._reload == "watch":
            _watch_function()
        reading = _Reading()
        found = client_chain(self._conf, None, reading, side=self._side)
        self._stamps, self._digest, self._loaded_at_ms = reading.stamps, reading.digest, wall_clock_ms()
        return found

    def follow(self, client: FollowsFile) -> None:
        """Let a client follow the file; call this after the client is complete."""
        if self.follows:
            _warn_of_writers(self._stamps)
            self._follower = _follow(self._path, self._reload, client, self)

    def is_stale(self) -> bool:
        """Return whether any of the files has changed since it was read."""
        return any(stamp_of(path) != stamp for path, stamp in self._stamps.items())

    def files(self) -> frozenset[str]:
        """Return the paths of the files that the chain was read from."""
        return frozenset(self._stamps)

    def reload(self, client: FollowsFile) -> bool:
        """Read the files again and replace the chain; return whether it has changed, or raise."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the client is closed")
            try:
                return self._put_in_force(client, self._read(client))
            except Exception as error:
                pass_on_interrupt(error)
                self._note_failure(error)
                raise

    def look_again(self, client: FollowsFile) -> None:
        """Read the files again and offer the chain to the client; log a failure once."""
        with self._lock:
            if self._closed:
                return
            try:
                loaded = self._read(client)
            except Exception as error:  # noqa: BLE001 - after any failure, the chain in force goes on
                pass_on_interrupt(error)
                self._log_failure(error)
                return
        client._hw_offer_chain(loaded)  # noqa: SLF001 - the client itself

    def replace(self, client: FollowsFile, loaded: LoadedChain) -> None:
        """Put a chain in force; if it cannot be opened, log that, and go on with the present chain."""
        with self._lock:
            if self._closed:
                return
            try:
                self._put_in_force(client, loaded)
            except Exception as error:  # noqa: BLE001 - as above
                pass_on_interrupt(error)
                self._log_failure(error)

    def close(self, client: FollowsFile) -> None:
        """Stop replacing the chain."""
        if self._follower is not None:
            self._follower.remove(client)
        with self._lock:
            self._closed = True

    def in_force(self, chain: Chain) -> ChainInForce:
        """Return the facts about the chain in force."""
        return ChainInForce(
            path=self._path,
            digest=self._digest,
            names=chain.names,
            loaded_at_ms=self._loaded_at_ms,
            reloads=self._reloads,
            failures=self._failures,
            failure=self._failure,
        )

    def stats(self) -> dict[str, int]:
        """Return the counters for the client's statistics."""
        return {
            "reloads": self._reloads,
            "reload_failures": self._failures,
            "chain_loaded_at_ms": self._loaded_at_ms,
        }

    def _read(self, client: FollowsFile) -> LoadedChain:
        reading = _Reading(refuses_empty=True)
        try:
            chain = client._hw_complete_chain(client_chain(self._conf, None, reading, side=self._side)[0])  # noqa: SLF001 - as above
        except BaseException:
            # Go on looking at files that were not read because of a mistake in another file.
            self._stamps = {**self._stamps, **reading.stamps}
            raise
        self._stamps = reading.stamps
        return LoadedChain(chain, reading.digest, wall_clock_ms())

    def _put_in_force(self, client: FollowsFile, loaded: LoadedChain) -> bool:
        before, after = client._hw_chain, loaded.chain  # noqa: SLF001 - as above
        changed = before != after
        if changed:
            client._hw_use_chain(after)  # noqa: SLF001 - as above
        self._digest, self._loaded_at_ms, self._failure = loaded.digest, loaded.loaded_at_ms, None
        if changed:
            self._reloads += 1  # after the facts about it, as below
            what = self._name_of(client), self._path, loaded.digest
            _log.info("%s: %s (%s) is in force: %s", *what, "; ".join(_changes(before, after)))
            if weaker := _less_protection(before, after):
                _log.warning("%s: %s (%s) takes protection away: %s", *what, "; ".join(weaker))
        return changed

    def _name_of(self, client: FollowsFile) -> str:
        name, client_id = client._hw_name or type(client).__name__, self._conf.get("client.id")  # noqa: SLF001 - as above
        return f"{name} {client_id}" if client_id else name

    def _note_failure(self, error: Exception) -> str:
        # Only the texts of our own errors are known to quote no secret.
        own = isinstance(error, HeaderwareError)
        self._failure = str(error) if own else f"{type(error).__name__}{raised_at(error)}"
        self._failures += 1  # after the text, because other threads read the count, and then the text
        return self._failure

    def _log_failure(self, error: Exception) -> None:
        text = self._note_failure(error)
        if self._follower is None or self._follower.is_news(text, self._stamps):
            _log.error("%s cannot be used, so the chain in force goes on: %s", self._path, text)


def live_chain(conf: Mapping[str, Any], chain: Chain | None, side: Side) -> LiveChain | None:
    """Return the chain that a client's file declares; None if the chain does not come from a file."""
    found = followed_file(conf, chain, side=side)
    return None if found is None else LiveChain(conf, *found, side)


def reload_of(path: str | os.PathLike[str], conf: Mapping[str, Any]) -> Reload:
    """Return when a client with this file and configuration reads the file again.

    Raises:
        ConfigError: the value of ``headerware.reload`` is unknown.
        MissingPartError: the file is to be watched, and the package watchfiles is not installed.
    """
    stated = {RELOAD: conf[RELOAD]} if RELOAD in conf else {}
    found = followed_file({FILE: str(path), **stated})
    reload: Reload = "off" if found is None else found[1]
    if reload == "watch":
        _watch_function()
    return reload


class ShownChain:
    """The public attribute ``chain`` of a client, which a subclass may replace by an attribute of its own."""

    def __get__(self, client: Any, owner: object = None) -> Chain:
        """Return the chain."""
        chain: Chain = Chain() if client is None else client._hw_chain  # noqa: SLF001 - the client itself
        return chain


class FollowsFile:
    """The part of a client that knows where its chain comes from, and replaces it when its file changes.

    Private names of clients begin with ``_hw_``, so that an application that derives a class from a client
    need not know them. Instrumentation may have replaced confluent-kafka's class by ours.
    """

    chain: ShownChain = ShownChain()
    """The chain; empty for a raw client."""

    def __reduce__(self) -> Any:
        """Raise a TypeError that says what to pass to another process instead; no client can be copied."""
        name = type(self).__name__
        raise TypeError(
            f"cannot pickle or copy a {name}: its connections and threads belong to this process; pass its "
            f"configuration and its chain, which can be pickled, and make the {name} where it is used"
        )

    _hw_chain: Chain = Chain()
    _hw_side: Side = "consumer"
    """Which half of the chain the client uses."""
    _hw_chained: bool = False
    """Whether there is a chain; if not, confluent-kafka's own methods answer."""
    _hw_name: str = ""
    """The name of the class that the application knows, if it is not the client's own class."""
    _hw_live: LiveChain | None = None
    """The chain as its file declares it; None if the chain does not come from a file."""
    _hw_next_chain: LoadedChain | None = None
    """The chain that replaces the present one at the next call, or None."""

    def _hw_chain_for(self, conf: dict[str, Any], chain: Chain | None) -> tuple[Chain, dict[str, Any]]:
        """Return the chain, and the configuration that remains for the client itself."""
        self._hw_live = live_chain(conf, chain, self._hw_side)
        return (
            client_chain(conf, chain, side=self._hw_side) if self._hw_live is None else self._hw_live.first()
        )

    def _hw_may_have_a_chain(self) -> bool:
        """Return whether there is a chain, or may be one later."""
        return bool(self._hw_chain or (self._hw_live and self._hw_live.follows))

    def _hw_complete_chain(self, chain: Chain) -> Chain:
        """Return a chain that was read again, with the steps that the client adds."""
        return chain

    def _hw_use_chain(self, chain: Chain) -> None:
        """Open a chain and replace the present one, between two records; or raise."""
        raise NotImplementedError

    def reload(self) -> bool:
        """Read the file of the chain again, and let the next record go through the new chain.

        Work that has begun with the present chain ends with it: records in flight, a record that another
        thread sends, and records that a consumer's ``run`` has read. When the application processes other
        records that a consumer has read, the new chain is told.

        Returns:
            whether the chain has changed.

        Raises:
            ConfigError: the file is wrong, or the chain does not come from a file.
            HeaderwareError: an interceptor cannot be opened. In both cases the chain in force goes on.
        """
        if self._hw_live is None:
            raise ConfigError("the chain does not come from a file (headerware.config, HEADERWARE_CONFIG)")
        if not self._hw_chained:
            raise ConfigError(
                "the chain was empty when the client was made, so confluent-kafka's own methods answer; with "
                f"{RELOAD} = watch or signal the client is ready for any chain"
            )
        return self._hw_live.reload(self)

    def chain_in_force(self) -> ChainInForce | None:
        """Return the facts about the chain in force; None if it does not come from a file."""
        return None if self._hw_live is None else self._hw_live.in_force(self._hw_chain)

    def _hw_offer_chain(self, loaded: LoadedChain) -> None:
        """Have the chain replaced on a thread that may do so; this class leaves it to the next call."""
        self._hw_next_chain = loaded

    def _hw_take_next_chain(self) -> None:
        loaded, self._hw_next_chain = self._hw_next_chain, None
        if loaded is None or self._hw_live is None:
            return
        try:
            self._hw_live.replace(self, loaded)
        except BaseException:  # an interrupt: the next call tries again, unless there is a newer chain
            self._hw_next_chain = vars(self)["_hw_next_chain"] or loaded
            raise


# Files


class _Reading:
    """Read the files of a chain, and remember their versions."""

    def __init__(self, *, refuses_empty: bool = False) -> None:
        self.stamps: dict[str, Stamp] = {}
        self._refuses_empty = refuses_empty
        self._sha256 = hashlib.sha256()

    def __call__(self, path: Path) -> str:
        # The version is taken first, so that a change during the reading is found later.
        self.stamps[str(path)] = stamp_of(path)
        text = read_text(path)
        if self._refuses_empty and not text.strip():
            raise ConfigError(
                "is empty, as a file is that is just being written; for no chain, write: interceptors = []",
                path=str(path),
            )
        self._sha256.update(text.encode())
        return text

    @property
    def digest(self) -> str:
        return self._sha256.hexdigest()[:_DIGEST_DIGITS]


_warned_of: Final[set[str]] = set()


def _warn_of_writers(paths: Iterable[str]) -> None:
    """Warn, once for each file, that other users can change the chain."""
    for path in paths:
        with suppress(OSError):
            problem = changeable_by_others(path, os.stat(path))  # noqa: PTH116 - as above
            if problem is not None and path not in _warned_of:
                _warned_of.add(path)
                _log.warning(
                    "%s %s; whoever writes it decides what is signed, checked and hidden while the "
                    "application runs",
                    *(path, problem),
                )


# Changes


def _changes(before: Chain, after: Chain) -> list[str]:
    """Return texts about what has changed, with names only."""
    old, new = (dict(zip(chain.names, chain.interceptors, strict=True)) for chain in (before, after))
    found = [
        ("added", [name for name in new if name not in old]),
        ("removed", [name for name in old if name not in new]),
        ("changed", [name for name in new if name in old and new[name] != old[name]]),
    ]
    said = [f"{word} {', '.join(names)}" for word, names in found if names]
    kept = [name for name in new if name in old]
    if kept != [name for name in old if name in new]:
        said.append(f"order is {', '.join(new) or 'empty'}")
    if before.carry != after.carry:
        said.append("carry is off" if after.carry is False else f"carry is {list(after.carry)}")
    return said


def _less_protection(before: Chain, after: Chain) -> list[str]:
    """Return texts about protecting interceptors that are gone, protect less, or work on other topics."""
    new = dict(zip(after.names, after.interceptors, strict=True))
    found: list[str] = []
    for name, old in zip(before.names, before.interceptors, strict=True):
        if role_of(old) is not Role.PROTECT:
            continue
        other = new.get(name)
        if other is None or type(other) is not type(old):
            found.append(f"{name} was removed")
            continue
        was, now = getattr(old, "require", None), getattr(other, "require", None)
        if _REQUIRE.get(now, 0) < _REQUIRE.get(was, 0):
            found.append(f"{name} has require = {now!r}, which was {was!r}")
        for option, stronger in _STRONGER.items():
            now = getattr(other, option, None)
            if getattr(old, option, None) == stronger != now:
                found.append(f"{name} has {option} = {now!r}, which was {stronger!r}")
        for option in _NAMED:
            gone = {*getattr(old, option, ())} - {*getattr(other, option, ())}
            if gone - {*(getattr(other, "headers", ()) if option == "deterministic_headers" else ())}:
                found.append(f"{name} has fewer names in {option}")
        if getattr(old, "key_of", None) is not None and getattr(other, "key_of", None) is None:
            found.append(f"{name} has no key_of any more")
        if getattr(old, "topics", None) != getattr(other, "topics", None):
            found.append(f"{name} works on other topics than before")
    return found


# Following


class _Follower:
    """Follow one file for all clients of this process that use it.

    Clients are held weakly. ``is_set`` makes it the stop event of watchfiles.
    """

    def __init__(self, path: str, reload: Reload) -> None:
        self._path: Final = path
        self._reload: Final = reload
        self._lives: WeakKeyDictionary[FollowsFile, LiveChain] = WeakKeyDictionary()
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._told: tuple[object, str] | None = None
        self._stopped = False
        self.thread: Final = Thread(target=self._run, name=_THREAD, daemon=True)

    def add(self, client: FollowsFile, live: LiveChain) -> None:
        """Add a client; the caller has the lock."""
        self._lives[client] = live

    def remove(self, client: FollowsFile) -> None:
        """Remove a client."""
        with _lock:
            self._lives.pop(client, None)
        self.ask()  # the thread ends if that was the last client

    def _clients(self) -> list[tuple[FollowsFile, LiveChain]]:
        with _lock:
            return list(self._lives.items())

    def ask(self) -> None:
        """Have the file read again; a signal's handler may call this."""
        self._asked.put(None)

    def stop(self) -> None:
        """Let the thread end."""
        self._stopped = True
        self.ask()

    def is_set(self) -> bool:
        """Return whether no client follows the file any more."""
        return self._stopped or not self._lives

    def is_news(self, failure: str, stamps: Mapping[str, Stamp]) -> bool:
        """Return whether no client has reported this failure of this version of the file yet."""
        told, self._told = self._told, (dict(stamps), failure)
        return told != self._told

    def _run(self) -> None:
        while self._goes_on():
            if self._reload == "watch":
                self._watch()
            elif self._was_asked():
                self._look(everybody=True)

    def _goes_on(self) -> bool:
        """Return whether a client is left; if none is, the next client starts another thread."""
        with _lock:
            if self.is_set():
                if _followers.get((self._path, self._reload)) is self:
                    del _followers[self._path, self._reload]
                return False
        return True

    def _was_asked(self) -> bool:
        try:
            self._asked.get(timeout=_LOOK_S)
        except Empty:
            return False
        return not self.is_set()

    def _watch(self) -> None:
        """Watch the folders of the files until the folders change, or no client is left."""
        folders = self._folders()
        try:
            changes = _watch_function()(
                *folders,
                watch_filter=None,
                step=_STEP_MS,
                stop_event=self,
                rust_timeout=int(_LOOK_S * 1000),
                yield_on_timeout=True,
                raise_interrupt=False,
                recursive=False,
            )
            for _ in changes:
                self._look()
                if self._folders() != folders:
                    return
        except Exception as error:  # noqa: BLE001 - there is no folder, or no free watch: look now and then
            _log.debug("changes of %s are not reported: %s", self._path, type(error).__name__)
            self._was_asked()
            self._look()

    def _folders(self) -> set[str]:
        """Return the folders in which files, or links on the way to them, may be replaced."""
        paths = {path for _, live in self._clients() for path in live.files()}
        return {folder for path in paths for folder in _folders_of(path)}

    def _look(self, *, everybody: bool = False) -> None:
        """Have clients read the file again: the clients for which it has changed, or all."""
        if any(live.is_stale() for _, live in self._clients()):
            self._settle()
        for client, live in self._clients():
            if everybody or live.is_stale():
                live.look_again(client)

    def _settle(self) -> None:
        """Wait until the files have not changed for a while, or no client follows them any more."""
        settled(lambda: None if self._stopped else self._versions())

    def _versions(self) -> dict[str, Stamp]:
        return {path: stamp_of(path) for _, live in self._clients() for path in live.files()}


def _folders_of(path: str) -> set[str]:
    """Return the folder of a path, and of each link that the path goes through."""
    found: set[str] = set()
    absolute = os.path.abspath(path)  # noqa: PTH100 - a path as text
    found.add(os.path.dirname(absolute))  # noqa: PTH120 - as above
    with suppress(OSError):
        found.add(os.path.dirname(os.path.realpath(absolute)))  # noqa: PTH120 - as above
    return {folder for folder in found if os.path.isdir(folder)}  # noqa: PTH112 - as above


def _watch_function() -> Callable[..., Any]:
    try:
        from watchfiles import watch  # noqa: PLC0415 - few clients follow their file
    except ImportError as error:
        raise MissingPartError(
            f"{RELOAD} = watch needs the package watchfiles: {install_command('live')}"
        ) from error
    # It logs each change. We log the result of our own changes; an application may use it for other files.
    logging.getLogger("watchfiles.main").addFilter(_is_not_of_ours)
    return watch


def _is_not_of_ours(record: logging.LogRecord) -> bool:
    return record.threadName != _THREAD or record.levelno > logging.INFO


_followers: dict[tuple[str, Reload], _Follower] = {}
_lock = Lock()


def _follow(path: str, reload: Reload, client: FollowsFile, live: LiveChain) -> _Follower:
    """Add a client to the follower of a file, of which each process has one."""
    if reload == "signal":
        _install_handler()
    with _lock:
        follower = _followers.get((path, reload))
        if follower is None:
            follower = _followers[path, reload] = _Follower(path, reload)
            follower.add(client, live)
            follower.thread.start()
        else:
            follower.add(client, live)
    return follower


def _stop_all() -> None:
    """End the threads, because a thread inside watchfiles at the end of Python would crash the process."""
    running = list(_followers.values())
    for follower in running:
        follower.stop()
    for follower in running:
        follower.thread.join(_STOP_TIMEOUT_S)


def _forget_all() -> None:
    """In a forked child, forget the threads, which only the parent has."""
    global _lock  # noqa: PLW0603 - the parent may have held it
    _lock = Lock()
    _followers.clear()


atexit.register(_stop_all)
os.register_at_fork(after_in_child=_forget_all)


# The signal


_earlier_handler: Any = None
_is_installed = False


def _install_handler() -> None:
    """Handle SIGHUP, and pass it on to its earlier handler."""
    global _earlier_handler, _is_installed
    if _is_installed:
        return
    earlier = signal.getsignal(signal.SIGHUP)
    if current_thread() is not main_thread() or earlier is None:
        where = "code that is not Python's handles it" if earlier is None else "this is not the main thread"
        _log.warning(
            "%s = signal, but SIGHUP cannot be handled, for %s: the chain changes only when the application "
            "calls reload()",
            *(RELOAD, where),
        )
        return
    _earlier_handler, _is_installed = earlier, True
    signal.signal(signal.SIGHUP, _on_signal)


def _on_signal(number: int, frame: FrameType | None) -> None:
    # The threads do the work, because the code that the signal interrupted may hold any lock.
    for follower in list(_followers.values()):
        follower.ask()
    if callable(_earlier_handler):
        _earlier_handler(number, frame)
