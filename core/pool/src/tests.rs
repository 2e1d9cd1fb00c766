mod assembly;
mod crash;
mod format;
mod layout;
mod loss;
mod older;
mod recovery;
mod requests;
