"""Coordination on etcd v3, over gRPC.

`config` says where it is, `messages` and `keys` what goes over the wire, `failures` what an error means, `channels`
makes a connection, `endpoints` decides when and to whom, `auth` signs in, `calls` tries endpoints in turn, `watch`
follows a stream with `cursor` for its place, and `client` is the port.
"""

import os

# gRPC's core writes a line of its own to stderr at every failed TLS handshake; we log each change of state once.
# It looks at this when it is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from lcm.coordination.etcd.client import EtcdCoordination
from lcm.coordination.etcd.config import EtcdConfig

__all__ = ["EtcdConfig", "EtcdCoordination"]
