//! The labels of namespaces: read and written by a thread of their own, since a drive may not answer for long.

use super::ring;
use crate::label;
use crate::tier::{BlockingNamespace, LABEL_BYTES, TierOptions};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use weir_store::service::{TierAnswer, TierFailure, TierRequest, TierToken};

type Answered = (TierToken, Result<TierAnswer, TierFailure>);

/// See the [module](self). Its thread ends when this is dropped and what it is at has ended.
pub(super) struct LabelThread {
    requests: Sender<(TierToken, TierRequest)>,
    answers: Receiver<Answered>,
}

impl LabelThread {
    pub fn start(options: TierOptions, bell: Arc<OwnedFd>) -> std::io::Result<Self> {
        let (requests, asked) = channel::<(TierToken, TierRequest)>();
        let (told, answers) = channel();
        let run = move || {
            for (token, request) in asked {
                let answer = carry_out(&request, &options).map_err(TierFailure);
                if told.send((token, answer)).is_err() {
                    return;
                }
                ring(&bell);
            }
        };
        std::thread::Builder::new().name("weir-labels".into()).spawn(run)?;
        Ok(Self { requests, answers })
    }

    pub fn ask(&self, token: TierToken, request: TierRequest) {
        // Its thread is gone only if it has panicked; the request is not answered then.
        let _ = self.requests.send((token, request));
    }

    /// What has been answered.
    pub fn answered(&self) -> Vec<Answered> {
        self.answers.try_iter().collect()
    }
}

fn carry_out(request: &TierRequest, options: &TierOptions) -> Result<TierAnswer, String> {
    let (TierRequest::ReadLabel { target } | TierRequest::WriteLabel { target, .. }) = request;
    let mut namespace = BlockingNamespace::open(target, options.clone()).map_err(|e| e.to_string())?;
    match request {
        TierRequest::ReadLabel { .. } => {
            let mut bytes = vec![0; LABEL_BYTES];
            namespace.read(0, &mut bytes).map_err(|e| e.to_string())?;
            let geometry = namespace.geometry();
            let found = label::decode(&bytes);
            Ok(TierAnswer::Label { bytes: geometry.bytes, sector: geometry.sector, found })
        }
        TierRequest::WriteLabel { store, namespace: number, content, .. } => {
            let bytes = label::encode(*store, *number, *content);
            namespace.write(0, &bytes).and_then(|()| namespace.flush()).map_err(|e| e.to_string())?;
            Ok(TierAnswer::Written)
        }
    }
}
