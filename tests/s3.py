"""The real S3 server that tests use, where ``HOTHOUSE_TEST_S3_ENDPOINT`` names one."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from services.store.storage import StorageAddress
from tests.conftest import require_env

__all__ = ["s3_address"]


def s3_address(folder: Path) -> StorageAddress:
    """A place in the bucket that nothing else uses; its login is put into ``folder``."""
    endpoint = require_env("HOTHOUSE_TEST_S3_ENDPOINT")
    bucket, key, secret = (os.environ[f"HOTHOUSE_TEST_S3_{name}"] for name in ("BUCKET", "ACCESS_KEY", "SECRET_KEY"))
    login = folder / "s3-credentials"
    login.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
    return StorageAddress(
        url=f"s3://{bucket}/test-{uuid.uuid4().hex}", endpoint=endpoint, region="us-east-1", path_style=True,
        credentials_file=str(login),
    )  # fmt: skip
