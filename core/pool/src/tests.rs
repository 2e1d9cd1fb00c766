mod assembly;
mod crash;
mod format;
mod layout;
mod older;
mod recovery;
mod requests;
