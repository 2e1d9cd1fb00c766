//! The places of Algorithm 1 where a server can have died.

/// Where in Algorithm 1 the server was when it died: after the last store that shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CrashPoint {
    /// Nothing was in flight.
    Idle,
    /// After step 5: a request has been taken, its entry does not say so yet.
    Merged,
    /// After step 6: it does.
    Marked,
    /// After step 7, with requests in flight (8 and 9).
    InFlight,
    /// After step 10: a completion is counted, its entry does not say so yet.
    Counted,
    /// After step 11 or 12: completions that the driver cannot see.
    Done,
    /// After step 13: completions that the driver can see and that are still DONE.
    Published,
}

impl CrashPoint {
    /// All of them.
    pub const ALL: [CrashPoint; 7] = [
        CrashPoint::Idle,
        CrashPoint::Merged,
        CrashPoint::Marked,
        CrashPoint::InFlight,
        CrashPoint::Counted,
        CrashPoint::Done,
        CrashPoint::Published,
    ];

    /// As reports write it.
    pub const fn name(self) -> &'static str {
        match self {
            CrashPoint::Idle => "idle",
            CrashPoint::Merged => "merged",
            CrashPoint::Marked => "marked",
            CrashPoint::InFlight => "in_flight",
            CrashPoint::Counted => "counted",
            CrashPoint::Done => "done",
            CrashPoint::Published => "published",
        }
    }
}
