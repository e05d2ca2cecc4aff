"""What the tests of several files here share: a Redis Cluster, and certificates for servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.state.servers import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Redis Cluster of three masters and three replicas."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    one = Cluster(folder)
    yield one
    one.close()


@pytest.fixture
def cluster_url(cluster: Cluster) -> str:
    """REDIS_URL of the cluster, which is whole and empty."""
    cluster.flush()
    return cluster.url


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder with a CA and its certificates: for a server at 127.0.0.1 and for a client."""
    folder = tmp_path / "tls"
    folder.mkdir()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "certificate.pem"))
    return folder
