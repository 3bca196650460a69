"""AWS's Key Management Service as moto has it, for tests; on 127.0.0.1. Only development has moto."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    import pytest

REGION = "eu-central-1"


def set_credentials(environment: pytest.MonkeyPatch) -> None:
    """Let boto3 find credentials, and look for none on the network."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        environment.setenv(name, "tests")
    environment.setenv("AWS_EC2_METADATA_DISABLED", "true")


class KmsServer:
    """It can be stopped and started, and keeps its keys meanwhile."""

    def __init__(self) -> None:
        self.port = 0
        self.start()
        self.client = boto3.client("kms", region_name=REGION, endpoint_url=self.url)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.server = ThreadedMotoServer("127.0.0.1", self.port, verbose=False)
        self.server.start()
        self.port = self.server.get_host_and_port()[1]

    def stop(self) -> None:
        self.server.stop()

    def new_key(self) -> str:
        arn: str = self.client.create_key()["KeyMetadata"]["Arn"]
        return arn

    def rotate(self, arn: str) -> None:
        self.client.rotate_key_on_demand(KeyId=arn)
