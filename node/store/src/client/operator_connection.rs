//! A connection of an operator: it has no session, so that it opens no file and holds nothing up.

use super::connection::{Caller, Connection};
use super::error::{ClientError, ClientErrorKind};
use super::operators::Operator;
use super::options::ClientOptions;
use super::{connection, unexpected};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_store::protocol::{Answer, Request, RequestNumber, SessionWish};

/// See [the module](self). It is made when something is asked, kept, and made again when it was lost. Who asks while another one waits for an
/// answer waits as well.
#[derive(Debug)]
pub struct OperatorConnection {
    caller: Caller,
    timeout: Duration,
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    connection: Connection,
    version: u16,
    /// Of the last request.
    number: u64,
}

impl OperatorConnection {
    /// To a service at `HOST:PORT` or `unix:PATH`, or one of several with commas between them. Nothing is connected yet.
    ///
    /// # Errors
    /// [`ClientErrorKind::Usage`]: the address is none.
    pub fn new(address: &str, options: &ClientOptions) -> Result<Self, ClientError> {
        Ok(Self { caller: Caller::new(address, options)?, timeout: options.deadline, open: Mutex::default() })
    }

    /// Where the service is, as it was given.
    pub fn address(&self) -> String {
        self.caller.address()
    }

    /// With a connection that is open, as far as can be seen.
    fn connected(&self) -> Result<MutexGuard<'_, Option<Open>>, ClientError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // The service has closed it, or says something that nobody has asked.
        let is_gone = |open: &mut Open| !matches!(open.connection.receive(&mut Vec::new()), Ok(false));
        if open.as_mut().is_none_or(is_gone) {
            *open = None;
            let (connection, welcome, _) = self.caller.connect_in_time(SessionWish::None, self.timeout)?;
            *open = Some(Open { connection, version: welcome.version, number: 0 });
        }
        Ok(open)
    }
}

impl Operator for OperatorConnection {
    fn ask_service(&self, request: Request) -> Result<Answer, ClientError> {
        let mut held = self.connected()?;
        let lost = |why: String| connection::unreachable(&self.caller.address(), &why);
        match held.as_mut().ok_or_else(unexpected)?.ask(&request, self.timeout, lost) {
            Ok(Answer::Failed { error, detail }) => Err(connection::refusal(error, &detail)),
            Ok(answer) => Ok(answer),
            Err(error) => {
                // An answer that comes too late must not be taken for another one's.
                *held = None;
                Err(error)
            }
        }
    }

    fn version(&self) -> Result<u16, ClientError> {
        Ok(self.connected()?.as_ref().ok_or_else(unexpected)?.version)
    }
}

impl Open {
    /// Sends and waits; `lost` is the error for why nothing comes any more.
    fn ask(
        &mut self,
        request: &Request,
        timeout: Duration,
        lost: impl Fn(String) -> ClientError,
    ) -> Result<Answer, ClientError> {
        self.number += 1;
        let number = RequestNumber(self.number);
        self.connection.put(request, number)?;
        let (begun, mut answers) = (Instant::now(), Vec::new());
        loop {
            self.connection.flush().map_err(&lost)?;
            while self.connection.receive(&mut answers).map_err(&lost)? {}
            if let Some((of, answer)) = answers.pop() {
                return if of == number && answers.is_empty() { Ok(answer) } else { Err(unexpected()) };
            }
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(ClientError::new(ClientErrorKind::Deadline));
            }
            let wanted = if self.connection.has_output() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            // An interrupted wait is one that is over.
            let _ = poll(&mut [PollFd::new(&self.connection.socket(), wanted)], Some(&left));
        }
    }
}
