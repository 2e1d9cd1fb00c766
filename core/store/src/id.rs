//! Numbers that must not be mixed, each a type of its own.

use core::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The number itself.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The next one, or `None` behind the last.
            pub const fn next(self) -> Option<Self> {
                match self.0.checked_add(1) {
                    Some(next) => Some(Self(next)),
                    None => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        weir_codec::coded_as! { $name: u64, |id| id.0, |number| Some($name(number)) }
    )* };
}

ids! {
    /// An inode, by a number that is never used for another one.
    InodeId
    /// A client's session; never used for another one.
    SessionId
    /// A metadata service.
    ServiceId
    /// A storage node: a machine that has donated namespaces.
    NodeId
    /// A namespace that was donated to the store, by its number in the store. Its NSID at its controller is another number.
    NamespaceId
    /// A region: a part of a donated namespace that one metadata service gives out.
    RegionId
    /// How often a right (to a directory, to a region) has changed hands. It only rises: who has an older one has lost the right.
    Term
    /// How often a block has been given out: part of the seed of its checksums.
    Generation
}

impl SessionId {
    /// The session of a service's own, in one of its lives: what is granted to it is for blocks that the service moves. It has no record, and is over with
    /// that life.
    pub const fn of_service(life: Term) -> Self {
        Self(OWN_SESSION | life.0)
    }

    /// Whether it is a service's own.
    pub const fn is_of_service(self) -> bool {
        self.0 & OWN_SESSION != 0
    }
}

/// The bit that numbers of clients' sessions do not have.
const OWN_SESSION: u64 = 1 << 63;

impl InodeId {
    /// The root directory.
    pub const ROOT: InodeId = InodeId(1);
}
