"""Hosts of our own: networks that are made one after the other in one process."""

import pytest

from tests.flink.hosts import Network, can_make_hosts
from tests.s3_server import S3Server, connect

pytestmark = pytest.mark.skipif(not can_make_hosts(), reason="no right to make network namespaces")


@pytest.mark.parametrize("turn", [1, 2])
def test_s3_is_reached_on_each_network_in_turn(turn, tmp_path):
    with Network() as network, network.hosts["job"].enter():
        host = network.hosts["s3"]
        s3 = S3Server(tmp_path / "s3", host.address, host.prefix)
        try:
            s3.start()
            connect(s3).pipe_file("store/file", b"1")
            assert connect(s3).cat_file("store/file") == b"1"
        finally:
            s3.kill()
