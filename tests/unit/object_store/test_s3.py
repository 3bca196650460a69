"""The options of S3's stores; tests/integration and tests/attacks have the rest."""

from __future__ import annotations

from contextlib import closing
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

    def test_takes_no_address_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "tests")
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        with closing(options(prefix="claims").open()) as store:
            url = store._signed("get_object", "orders/0")
        assert (url.scheme, url.path) == ("https", "/claims/orders/0")
        assert url.hostname == "archive.s3.eu-central-1.amazonaws.com"

    @pytest.mark.parametrize(
        ("bucket", "region", "address"),
        [
            ("archive", "us-east-1", "https://archive.s3.us-east-1.amazonaws.com/orders/0"),
            ("archive", "cn-north-1", "https://archive.s3.cn-north-1.amazonaws.com.cn/orders/0"),
            ("a.dotted.name", "eu-west-1", "https://s3.eu-west-1.amazonaws.com/a.dotted.name/orders/0"),
        ],
    )
    def test_asks_the_region_itself_for_nothing_redirects_there(
        self, monkeypatch: pytest.MonkeyPatch, bucket: str, region: str, address: str
    ) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "tests")
        with closing(S3Objects(bucket=bucket, region=region).open()) as store:
            url = store._signed("put_object", "orders/0")
        assert f"{url.scheme}://{url.hostname}{url.path}" == address
