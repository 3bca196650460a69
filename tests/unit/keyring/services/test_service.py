"""How configuration names a key service, also one of another package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headerware import ConfigError, Context, PluginError
from headerware.core import plugins
from headerware.core.errors import NoSuchKeyError
from headerware.keyring import read_keyring, with_new_key
from headerware.keyring.lifecycle import public_part
from headerware.keyring.services import FileKeys, KeyServiceOptions, key_service_type, open_key_service
from headerware.keyring.writing import edit_keyring, write_public_keyring

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = bytes(range(32))
PLUGIN = """
from headerware.keyring.services import KeyServiceOptions, Wrapped

class Mirror(KeyServiceOptions, frozen=True, kw_only=True):
    type = "mirror"
    mark: str
    def open(self, context):
        return Service(self.mark.encode())

class Service:
    def __init__(self, mark):
        self.mark = mark
    def wrap(self, key_id, data_key, context):
        return Wrapped(self.mark + data_key[::-1])
    def unwrap(self, key_id, wrapped, context):
        return wrapped[len(self.mark):][::-1]
    def close(self):
        pass
"""


@pytest.fixture
def _plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Install a package that brings a key service."""
    information = tmp_path / "site" / "mirror_keys-0.1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: mirror-keys\nVersion: 0.1.0\n")
    (information / "entry_points.txt").write_text(
        "[headerware.key_services]\nmirror = mirror_keys_of_a_test:Mirror\nodd = builtins:int\n"
    )
    (tmp_path / "site" / "mirror_keys_of_a_test.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path / "site")
    plugins._entry_points.cache_clear()
    yield
    plugins._entry_points.cache_clear()


@pytest.mark.usefixtures("_plugin")
class TestPlugins:
    def test_are_named_by_their_entry_points(self) -> None:
        service = open_key_service({"type": "mirror", "mark": "m"}, Context())
        wrapped = service.wrap("orders", KEY, b"c").wrapped
        assert wrapped[:1] == b"m"
        assert service.unwrap("orders", wrapped, b"c") == KEY
        assert key_service_type.names() == ("aws_kms", "file", "mirror", "odd", "vault")

    def test_have_checked_options(self) -> None:
        with pytest.raises(ConfigError, match=r"service\.mark"):
            open_key_service({"type": "mirror"}, Context())
        with pytest.raises(ConfigError, match="no such option"):
            open_key_service({"type": "mirror", "mark": "m", "marc": "n"}, Context())

    def test_that_are_something_else_are_refused(self) -> None:
        with pytest.raises(PluginError, match="expected a subclass"):
            open_key_service("odd", Context())


class TestObjects:
    def test_of_options_and_of_services_are_taken_as_they_are(self, tmp_path: Path) -> None:
        path = tmp_path / "keys.json"
        edit_keyring(path, lambda ring: with_new_key(ring, "orders", "aes-256"), create=True)
        options = FileKeys(keyring=str(path))
        service = open_key_service(options, Context())
        assert open_key_service(service, Context()) is service

    def test_that_pass_calls_on_are_taken_on_each_python(self, tmp_path: Path) -> None:
        edit_keyring(
            tmp_path / "keys.json", lambda ring: with_new_key(ring, "orders", "aes-256"), create=True
        )
        service = FileKeys(keyring=str(tmp_path / "keys.json")).open(Context())

        class Proxy:
            def __getattr__(self, name: str) -> Any:
                return getattr(service, name)

        proxy = Proxy()
        assert open_key_service(proxy, Context()) is proxy

    def test_of_a_file_name_it_and_say_that_public_keys_do_not_decrypt(self, tmp_path: Path) -> None:
        edit_keyring(tmp_path / "keys.json", lambda ring: with_new_key(ring, "shop", "ed25519"), create=True)
        write_public_keyring(tmp_path / "public.json", public_part(read_keyring(tmp_path / "keys.json"))[0])
        service = FileKeys(keyring=str(tmp_path / "public.json")).open(Context())
        with pytest.raises(NoSuchKeyError, match=r"public\.json: there is no key 'orders'.*export-public"):
            service.wrap("orders", KEY, b"c")

    @pytest.mark.parametrize("given", [object(), 7, KeyServiceOptions()])
    def test_that_are_no_service_are_refused(self, given: Any) -> None:
        with pytest.raises(PluginError):
            open_key_service(given, Context(), path="interceptors.encrypt.service")

    def test_whose_methods_take_something_else_are_refused(self) -> None:
        class Odd:
            def wrap(self, key_id: str, data_key: bytes) -> bytes:
                return data_key

            def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
                return wrapped

            def close(self) -> None: ...

        with pytest.raises(PluginError, match=r"expected wrap\(key_id, data_key, context\)"):
            open_key_service(Odd(), Context())

    def test_show_no_options(self) -> None:
        assert repr(FileKeys(keyring="secret-place")) == "FileKeys(...)"
