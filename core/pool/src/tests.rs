mod assembly;
mod crash;
mod format;
mod requests;
