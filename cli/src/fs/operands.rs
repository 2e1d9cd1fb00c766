//! The paths that a command was given, in whichever stores they are, and what went wrong with some of them.

use super::files::Files;
use super::glob;
use super::path::StorePath;
use crate::failure::CommandFailure;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::rc::Rc;

/// Opens the store at an address, or the one that is meant without.
pub type OpenStore<'a> = Box<dyn Fn(Option<&str>) -> Result<Rc<dyn Files>, CommandFailure> + 'a>;

/// See the [module](self).
pub struct Operands<'a> {
    given: &'a [OsString],
    open: OpenStore<'a>,
    stores: BTreeMap<Option<String>, Rc<dyn Files>>,
    failures: Vec<String>,
}

/// A path with its store.
#[derive(Clone)]
pub struct Found {
    pub files: Rc<dyn Files>,
    pub at: StorePath,
}

impl<'a> Operands<'a> {
    pub fn new(given: &'a [OsString], open: OpenStore<'a>) -> Self {
        Operands { given, open, stores: BTreeMap::new(), failures: Vec::new() }
    }

    /// A path, as it stands.
    ///
    /// # Errors
    /// It is none, or its store cannot be reached.
    pub fn one(&mut self, given: &OsString) -> Result<Found, CommandFailure> {
        let at = StorePath::parse(given)?;
        let files = match self.stores.get(&at.store) {
            Some(files) => files.clone(),
            None => {
                let files = (self.open)(at.store.as_deref())?;
                self.stores.insert(at.store.clone(), files.clone());
                files
            }
        };
        Ok(Found { files, at })
    }

    /// The operands as they stand.
    ///
    /// # Errors
    /// As [`one`](Self::one).
    pub fn plain(&mut self) -> Result<Vec<Found>, CommandFailure> {
        let given = self.given;
        given.iter().map(|given| self.one(given)).collect()
    }

    /// The operands with their patterns expanded.
    ///
    /// # Errors
    /// As [`one`](Self::one); that nothing is met fails that operand only.
    pub fn expanded(&mut self) -> Result<Vec<Found>, CommandFailure> {
        let given = self.given;
        self.expand(given)
    }

    /// The same of some.
    ///
    /// # Errors
    /// As [`expanded`](Self::expanded).
    pub fn expand(&mut self, given: &[OsString]) -> Result<Vec<Found>, CommandFailure> {
        let mut all = Vec::new();
        for given in given {
            let found = self.one(given)?;
            match glob::expand(&*found.files, &found.at.path) {
                Ok(paths) if paths.is_empty() => {
                    self.fail(format_args!("{}: no such file or directory", given.to_string_lossy()));
                }
                Ok(paths) => all.extend(paths.into_iter().map(|path| {
                    let at = StorePath { is_folder: found.at.is_folder, ..found.at.with(path) };
                    Found { files: found.files.clone(), at }
                })),
                Err(e) => self.fail(e),
            }
        }
        Ok(all)
    }

    /// The operands with their patterns expanded, or the root where there are none.
    ///
    /// # Errors
    /// As [`expanded`](Self::expanded).
    pub fn or_root(&mut self, given: &[OsString]) -> Result<Vec<Found>, CommandFailure> {
        if given.is_empty() { Ok(vec![self.one(&"/".into())?]) } else { self.expand(given) }
    }

    /// One of them could not be done; the others are.
    pub fn fail(&mut self, why: impl Display) {
        self.failures.push(why.to_string());
    }

    /// Whether all could be done.
    ///
    /// # Errors
    /// What could not, a line each.
    pub fn finish(self) -> Result<(), CommandFailure> {
        if self.failures.is_empty() { Ok(()) } else { Err(CommandFailure::new(self.failures.join("\n"))) }
    }
}
