"""The options of S3's stores; tests/integration and tests/attacks have the rest."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.core.errors import ConfigError
from headerware.object_store import S3Objects


def options(**more: Any) -> S3Objects:
    return S3Objects(bucket="archive", region="eu-central-1", **more)


class TestS3Objects:
    @pytest.mark.parametrize("prefix", ["/", "a/", "/a", "a//b", "..", "a/../b", ".a", "a/.b", "a b", "a%2f"])
    def test_refuses_prefixes_that_are_no_plain_path(self, prefix: str) -> None:
        with pytest.raises(ConfigError, match="prefix"):
            options(prefix=prefix)

    @pytest.mark.parametrize("prefix", ["", "claims", "claims/eu-1", "a.b/c_d"])
    def test_takes_plain_paths(self, prefix: str) -> None:
        assert options(prefix=prefix).prefix == prefix

    def test_refuses_an_endpoint_elsewhere_without_tls(self) -> None:
        with pytest.raises(ConfigError, match="values in the clear"):
            options(endpoint="http://store.example:9000")
        options(endpoint="http://store.example:9000", allow_http=True)
        options(endpoint="http://127.0.0.1:9000")

    def test_refuses_authorities_that_cannot_be_read(self, tmp_path: Any) -> None:
        with pytest.raises(ConfigError, match="ca_file"):
            options(ca_file=str(tmp_path / "missing.pem")).open()
