//! The messages of etcd's v3 API that the store sends and receives, with the numbers of their fields in etcd's `rpc.proto` and `kv.proto`. Fields that
//! are not used are left out: protobuf skips what it does not know.

/// Of every answer.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct ResponseHeader {
    /// Of the key-value store when the answer was made.
    #[prost(int64, tag = "3")]
    pub revision: i64,
}

/// A key with its value.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// Of the commit that has written it last.
    #[prost(int64, tag = "3")]
    pub mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub value: Vec<u8>,
}

/// Without `range_end` one key.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// 0: all.
    #[prost(int64, tag = "3")]
    pub limit: i64,
}

/// In the order of keys.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// Without an end one key.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Operation {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "Operation", tags = "1, 2, 3")]
    pub request: Option<Operation>,
}

/// How a key's property is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(super) enum CompareResult {
    Equal = 0,
    Greater = 1,
}

/// Which of its properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(super) enum CompareTarget {
    Version = 0,
    Mod = 2,
    Value = 3,
}

/// With what.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Compared {
    /// Writes since the key was made; 0 where there is no key.
    #[prost(int64, tag = "4")]
    Version(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    #[prost(bytes = "vec", tag = "7")]
    Value(Vec<u8>),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Compare {
    #[prost(enumeration = "CompareResult", tag = "1")]
    pub result: i32,
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub key: Vec<u8>,
    #[prost(oneof = "Compared", tags = "4, 6, 7")]
    pub compared: Option<Compared>,
}

/// All of `success` where all of `compare` holds, else nothing.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub token: String,
}
