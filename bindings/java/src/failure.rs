//! What goes wrong, as Java is told: a kind, which `io.weir.hadoop.Failure` has an exception for, the path and the reason.

use jni::errors::ErrorPolicy;
use jni::objects::{JString, JThrowable, JValue};
use jni::{Env, jni_sig, jni_str};
use std::any::Any;
use std::{fmt, io};
use weir_store::StoreError;
use weir_store::file::FileError;
use weir_store_node::client::{ClientError, ClientErrorKind};

/// A call that came to nothing.
#[derive(Debug)]
pub enum Failure {
    /// The store's client.
    Client(ClientError),
    /// A stream of the store's client.
    Stream(io::Error),
    /// What is used is closed: what it is.
    Closed(&'static str),
    /// The Java machine.
    Jni(jni::errors::Error),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.downcast::<ClientError>() {
            Ok(error) => Self::Client(error),
            Err(error) => Self::Stream(error),
        }
    }
}

impl From<jni::errors::Error> for Failure {
    fn from(error: jni::errors::Error) -> Self {
        Self::Jni(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(f),
            Self::Stream(error) => error.fmt(f),
            Self::Closed(what) => write!(f, "the {what} is closed"),
            Self::Jni(error) => write!(f, "JNI: {error}"),
        }
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// The name of a constant of `io.weir.hadoop.Failure`.
    fn kind(&self) -> &'static str {
        match self {
            Self::Client(error) => client_kind(error.kind()),
            Self::Closed(_) => "CLOSED",
            Self::Stream(_) | Self::Jni(_) => "OTHER",
        }
    }

    fn path(&self) -> &str {
        match self {
            Self::Client(error) => error.path().unwrap_or_default(),
            _ => "",
        }
    }
}

fn client_kind(kind: &ClientErrorKind) -> &'static str {
    match kind {
        ClientErrorKind::Store(error) => store_kind(*error),
        ClientErrorKind::File(FileError::NoSpace | FileError::TooFewNodes(_)) => "FULL",
        ClientErrorKind::File(FileError::Deadline) | ClientErrorKind::Deadline => "LATE",
        ClientErrorKind::Unreachable(_) => "UNREACHABLE",
        ClientErrorKind::Usage(_) => "USAGE",
        ClientErrorKind::SessionOver => "SESSION_OVER",
        _ => "OTHER",
    }
}

fn store_kind(error: StoreError) -> &'static str {
    match error {
        StoreError::NotFound => "NOT_FOUND",
        StoreError::Exists => "EXISTS",
        StoreError::NotDirectory => "NOT_DIRECTORY",
        StoreError::IsDirectory => "IS_DIRECTORY",
        StoreError::NotEmpty => "NOT_EMPTY",
        StoreError::Root => "ROOT",
        StoreError::Busy => "BUSY",
        StoreError::NoSpace | StoreError::TooFewNodes(_) | StoreError::Freeing(_) => "FULL",
        StoreError::BadName | StoreError::NameTooLong => "NAME",
        StoreError::IntoItself => "INTO_ITSELF",
        StoreError::NoAttribute => "NO_ATTRIBUTE",
        StoreError::Recovering | StoreError::Unavailable | StoreError::Overloaded => "PASSING",
        _ => "OTHER",
    }
}

/// Throws a [`Failure`] as the exception that `io.weir.hadoop.Failure` has for it.
#[derive(Debug)]
pub struct Throw;

impl Throw {
    fn throw(env: &mut Env<'_>, kind: &str, path: &str, reason: &str) -> Result<(), jni::errors::Error> {
        let kind = JString::from_str(env, kind)?;
        let path = JString::from_str(env, path)?;
        let reason = JString::from_str(env, reason)?;
        let arguments = [JValue::Object(&kind), JValue::Object(&path), JValue::Object(&reason)];
        let class = env.find_class(jni_str!("io/weir/hadoop/Failure"))?;
        let signature = jni_sig!("(Ljava/lang/String;Ljava/lang/String;Ljava/lang/String;)Ljava/io/IOException;");
        let thrown = env.call_static_method(class, jni_str!("exception"), signature, &arguments)?.l()?;
        let thrown = env.cast_local::<JThrowable<'_>>(thrown)?;
        // That something was thrown is what it answers.
        let _ = env.throw(thrown);
        Ok(())
    }
}

impl<T: Default> ErrorPolicy<T, Failure> for Throw {
    type Captures<'unowned_env_local: 'native_method, 'native_method> = ();

    fn on_error<'unowned_env_local: 'native_method, 'native_method>(
        env: &mut Env<'unowned_env_local>,
        (): &mut (),
        failure: Failure,
    ) -> jni::errors::Result<T> {
        if !env.exception_check() {
            Self::throw(env, failure.kind(), failure.path(), &failure.to_string())?;
        }
        Ok(T::default())
    }

    fn on_panic<'unowned_env_local: 'native_method, 'native_method>(
        env: &mut Env<'unowned_env_local>,
        (): &mut (),
        payload: Box<dyn Any + Send + 'static>,
    ) -> jni::errors::Result<T> {
        let text = payload.downcast_ref::<&str>().copied().map(str::to_owned);
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        if !env.exception_check() {
            Self::throw(env, "OTHER", "", &format!("weir's native part has stopped: {text}"))?;
        }
        Ok(T::default())
    }
}
