//! What is wanted of namespaces: done by threads of their own, since a drive may not answer for long. Labels do not wait for blocks.

use super::recover::recover;
use super::ring;
use crate::label;
use crate::tier::{BlockingNamespace, LABEL_BYTES, TierOptions};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use weir_store::service::{TierAnswer, TierFailure, TierRequest, TierToken};

type Answered = (TierToken, Result<TierAnswer, TierFailure>);
type Asked = (TierToken, TierRequest);

/// See the [module](self). Its threads end when this is dropped and what they are at has ended.
pub(super) struct TierThreads {
    labels: Sender<Asked>,
    blocks: Sender<Asked>,
    answers: Receiver<Answered>,
}

impl TierThreads {
    pub fn start(options: &TierOptions, bell: &Arc<OwnedFd>) -> std::io::Result<Self> {
        let (told, answers) = channel();
        let start = |name: &str, told: Sender<Answered>| {
            let (requests, asked) = channel::<Asked>();
            let (options, bell) = (options.clone(), Arc::clone(bell));
            let run = move || {
                for (token, request) in asked {
                    let answer = carry_out(&request, &options).map_err(TierFailure);
                    if told.send((token, answer)).is_err() {
                        return;
                    }
                    ring(&bell);
                }
            };
            std::thread::Builder::new().name(name.into()).spawn(run).map(|_| requests)
        };
        Ok(Self { labels: start("weir-labels", told.clone())?, blocks: start("weir-recovery", told)?, answers })
    }

    pub fn ask(&self, token: TierToken, request: TierRequest) {
        let thread = match &request {
            TierRequest::ReadLabel { .. } | TierRequest::WriteLabel { .. } => &self.labels,
            TierRequest::Recover(_) => &self.blocks,
        };
        // Its thread is gone only if it has panicked; the request is not answered then.
        let _ = thread.send((token, request));
    }

    /// What has been answered.
    pub fn answered(&self) -> Vec<Answered> {
        self.answers.try_iter().collect()
    }
}

fn carry_out(request: &TierRequest, options: &TierOptions) -> Result<TierAnswer, String> {
    match request {
        TierRequest::ReadLabel { target } => {
            let mut namespace = open(target, options)?;
            let mut bytes = vec![0; LABEL_BYTES];
            namespace.read(0, &mut bytes).map_err(|e| e.to_string())?;
            let geometry = namespace.geometry();
            let found = label::decode(&bytes);
            Ok(TierAnswer::Label { bytes: geometry.bytes, sector: geometry.sector, found })
        }
        TierRequest::WriteLabel { target, store, namespace: number, content } => {
            let mut namespace = open(target, options)?;
            let bytes = label::encode(*store, *number, *content);
            namespace.write(0, &bytes).and_then(|()| namespace.flush()).map_err(|e| e.to_string())?;
            Ok(TierAnswer::Written)
        }
        TierRequest::Recover(block) => recover(block, options),
    }
}

fn open(target: &str, options: &TierOptions) -> Result<BlockingNamespace, String> {
    BlockingNamespace::open(target, options.clone()).map_err(|e| e.to_string())
}
