//! The host's side of vhost_user.
