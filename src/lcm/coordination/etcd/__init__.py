"""Coordination on etcd v3, over gRPC.

`config` has the settings, `messages` the wire format, `errors` the meaning of gRPC errors; `connection` makes one
connection, `endpoints` decides when to connect and where, `auth` signs in, `calls` sends a request to one endpoint
after the other, `watch` reads a watch stream, and `client` implements the port.
"""

import os

# gRPC's core writes to stderr at every failed TLS handshake; we log each change of state once instead.
# It reads these variables when it is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# Its handlers of fork start threads in the child, which may crash before it becomes another program: a new poller
# process was seen to end by SIGSEGV. LCM forks only to run another program, which needs no handler.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from lcm.coordination.etcd.client import EtcdCoordination
from lcm.coordination.etcd.config import EtcdConfig

__all__ = ["EtcdConfig", "EtcdCoordination"]
