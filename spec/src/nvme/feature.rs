//! (coming in the next commit)
