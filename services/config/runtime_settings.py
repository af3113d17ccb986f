"""Where the system runs, and where it keeps what outlives a process."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from edge.config import Section
from services.config.texts import BucketUrl, RayResource, WebAddress

__all__ = ["RaySettings", "StorageSettings"]


class RaySettings(Section):
    """The Ray runtime."""

    address: str = Field(
        "", description="Cluster to join; empty: start one here. Its nodes need a bucket (`storage.url`), or a folder "
        "that all of them see.",
    )  # fmt: skip
    num_cpus: int = Field(
        0, ge=0, le=1024, description="Logical CPUs of a local runtime; 0: as many as there are, at least 2."
    )
    object_store_mb: int = Field(256, ge=80, le=1_000_000, description="Object store of a local runtime.")
    live_states: int = Field(
        0, ge=0, le=64,
        description="So many processes hold what is known of zones now, never more than there are shards; 0: one on "
        "this machine, one for each shard on a cluster.",
    )  # fmt: skip
    forecaster_replicas: int = Field(1, ge=1, le=64, description="Replicas that run the model.")
    replicas_per_node: int = Field(
        0, ge=0, le=64,
        description="So many replicas of the API, and so many that run the model, may be on one node of a cluster; 0: "
        "any number. With two of each and 1 the loss of a node leaves one of each.",
    )  # fmt: skip
    api_resource: RayResource = Field(
        "",
        description="Resource of Ray that some nodes of a cluster have one of, for a replica of the API, which is put "
        "on no other node; empty: on any node. Where these nodes have no CPUs, nothing else is put there.",
    )
    keep_serving: bool = Field(
        False,
        description="On a cluster: the API goes on answering with what it knows when `hothouse up` has ended, until "
        "the next one takes it over.",
    )


class StorageSettings(Section):
    """Where all is kept that outlives a process, but for a log in a file: history, snapshots, models and more."""

    url: BucketUrl = Field(
        "",
        description="Bucket, or container, and a folder in it: `s3://BUCKET/FOLDER` or `az://…`; empty: the folder "
        "`storage` of the data folder. Not yet `gs://`, which compares versions in another way.",
    )  # fmt: skip
    endpoint: WebAddress = Field(
        "",
        description="Address of the server, where it is not the cloud's own, such as http://minio:9000.",
    )
    region: str = Field("", description="Region of the bucket (S3); empty: as the environment says, or us-east-1.")
    path_style: bool = Field(
        False, description="The bucket is in the path of requests, not in the name of the host: most servers that are "
        "not Amazon's want that.",
    )  # fmt: skip
    account: str = Field("", description="Storage account (Azure).")
    credentials_file: Path | None = Field(
        None, description="File with the login: as `~/.aws/credentials` (S3), or the account's key (Azure). It is read "
        "again when it is refused. None: what the environment says (`AWS_…`, `AZURE_…`), or the machine's own role.",
    )  # fmt: skip
    retry_s: float = Field(
        10.0, ge=0, le=300, description="For so long a request that gets no answer is asked again at once. Then what "
        "was to be written waits, and is tried again as a whole.",
    )  # fmt: skip
