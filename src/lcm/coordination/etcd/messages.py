"""The part of etcd's wire format that we use: protobuf messages, and the conversion of keys.

Field numbers and types are those of etcd's v3 API; fields that we neither send nor read are left out, which protobuf
allows. Enumerations are declared as numbers. The messages are loaded into a separate pool, so that they never clash
with another etcd client in the same process.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from lcm.core.coordination import KeyValue

_PACKAGE = "etcdserverpb"

# message → its fields as "type name=number"; a type may be one of these messages, `*` marks a repeated field.
_MESSAGE_FIELDS = {
    "KeyValue": "bytes key=1, int64 create_revision=2, int64 mod_revision=3, bytes value=5, int64 lease=6",
    "Event": "int32 type=1, KeyValue kv=2",
    "ResponseHeader": "uint64 cluster_id=1, int64 revision=3",
    "RangeRequest": "bytes key=1, bytes range_end=2, int64 limit=3, int64 revision=4, bool serializable=7, "
    "bool count_only=9",
    "RangeResponse": "ResponseHeader header=1, KeyValue* kvs=2, bool more=3, int64 count=4",
    "PutRequest": "bytes key=1, bytes value=2, int64 lease=3",
    "PutResponse": "ResponseHeader header=1",
    "DeleteRangeRequest": "bytes key=1, bytes range_end=2",
    "DeleteRangeResponse": "ResponseHeader header=1, int64 deleted=2",
    "RequestOp": "RangeRequest request_range=1, PutRequest request_put=2, DeleteRangeRequest request_delete_range=3",
    "ResponseOp": "RangeResponse response_range=1, PutResponse response_put=2, "
    "DeleteRangeResponse response_delete_range=3",
    "Compare": "int32 result=1, int32 target=2, bytes key=3, int64 mod_revision=6",
    "TxnRequest": "Compare* compare=1, RequestOp* success=2, RequestOp* failure=3",
    "TxnResponse": "ResponseHeader header=1, bool succeeded=2, ResponseOp* responses=3",
    "LeaseGrantRequest": "int64 TTL=1, int64 ID=2",
    "LeaseGrantResponse": "ResponseHeader header=1, int64 ID=2, int64 TTL=3, string error=4",
    "LeaseRevokeRequest": "int64 ID=1",
    "LeaseRevokeResponse": "ResponseHeader header=1",
    "LeaseKeepAliveRequest": "int64 ID=1",
    "LeaseKeepAliveResponse": "ResponseHeader header=1, int64 ID=2, int64 TTL=3",
    "WatchCreateRequest": "bytes key=1, bytes range_end=2, int64 start_revision=3, bool progress_notify=4, "
    "bool fragment=8",
    "WatchProgressRequest": "",
    "WatchRequest": "WatchCreateRequest create_request=1, WatchProgressRequest progress_request=3",
    "WatchResponse": "ResponseHeader header=1, int64 watch_id=2, bool created=3, bool canceled=4, "
    "int64 compact_revision=5, string cancel_reason=6, bool fragment=7, Event* events=11",
    "AuthenticateRequest": "string name=1, string password=2",
    "AuthenticateResponse": "ResponseHeader header=1, string token=2",
}

EVENT_DELETE = 1
COMPARE_EQUAL = 0
COMPARE_MOD_REVISION = 2

_SCALAR_TYPES = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "string": FieldDescriptorProto.TYPE_STRING,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
}


def _field_descriptor(text: str) -> FieldDescriptorProto:
    kind, _, rest = text.strip().partition(" ")
    name, _, number = rest.partition("=")
    repeated = kind.endswith("*")
    kind = kind.removesuffix("*")
    declared = FieldDescriptorProto(
        name=name,
        number=int(number),
        label=FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL,
        type=_SCALAR_TYPES.get(kind, FieldDescriptorProto.TYPE_MESSAGE),
    )
    if kind not in _SCALAR_TYPES:
        declared.type_name = f".{_PACKAGE}.{kind}"
    return declared


def _load_message_classes() -> dict[str, Any]:
    file = FileDescriptorProto(name="lcm/etcd", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGE_FIELDS.items():
        declared = [_field_descriptor(text) for text in fields.split(",") if text]
        file.message_type.append(DescriptorProto(name=name, field=declared))
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGE_FIELDS}


_MESSAGE_CLASSES = _load_message_classes()


def message_class(name: str) -> Any:
    """The class of the message of that name."""
    return _MESSAGE_CLASSES[name]


def new_message(message: str, /, **fields: Any) -> Any:
    """A message with these fields set."""
    return _MESSAGE_CLASSES[message](**fields)


# A single zero byte means "from the first key" as a start and "to the last key" as an end.
_UNBOUNDED = b"\0"

# Other clients may have written keys that are not UTF-8: they survive the conversion to text and back.
_NON_UTF8 = "surrogateescape"


def key_to_bytes(key: str) -> bytes:
    """The key as bytes, as etcd stores it."""
    if not key:
        raise ValueError("a key must not be empty")
    return key.encode(errors=_NON_UTF8)


def key_to_text(key: bytes) -> str:
    """The key as text."""
    return key.decode(errors=_NON_UTF8)


def prefix_range(prefix: str) -> tuple[bytes, bytes]:
    """First key and end (exclusive) of all keys that start with `prefix`."""
    start = prefix.encode(errors=_NON_UTF8)
    stem = start.rstrip(b"\xff")
    return start or _UNBOUNDED, stem[:-1] + bytes([stem[-1] + 1]) if stem else _UNBOUNDED


def to_key_value(kv: Any) -> KeyValue:
    """The port's `KeyValue` for etcd's message."""
    return KeyValue(key_to_text(kv.key), kv.value, kv.create_revision, kv.mod_revision, kv.lease)
