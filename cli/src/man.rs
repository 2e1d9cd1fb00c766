//! `weir man`: a manual page for each command, from the same text as `--help`.

use crate::args::Cli;
use crate::failure::CommandFailure;
use crate::output;
use clap::CommandFactory;
use std::path::Path;

/// Writes `weir.1`, `weir-up.1`, … to a folder, or prints the page of one command.
///
/// # Errors
/// The folder cannot be written; there is no such command.
pub fn run(command: &[String], folder: Option<&Path>, json: bool) -> Result<(), CommandFailure> {
    let root = tree(Cli::command());
    match folder {
        Some(folder) => write(&root, folder, json),
        None => output::raw(&page(find(&root, command)?)?),
    }
}

/// All commands as a package has them, each with its whole name.
fn tree(root: clap::Command) -> clap::Command {
    let mut root = root.disable_help_subcommand(true);
    root.build();
    root
}

fn find<'a>(root: &'a clap::Command, names: &[String]) -> Result<&'a clap::Command, CommandFailure> {
    let mut at = root;
    for name in names {
        at = at.find_subcommand(name).filter(|command| !command.is_hide_set()).ok_or_else(|| {
            let known: Vec<&str> = shown(at).map(clap::Command::get_name).collect();
            CommandFailure::usage(format_args!("man: there is no command {name}; there is {}", known.join(", ")))
        })?;
    }
    Ok(at)
}

fn shown(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set())
}

fn write(root: &clap::Command, folder: &Path, json: bool) -> Result<(), CommandFailure> {
    let failed = |path: &Path, e: std::io::Error| CommandFailure::new(format_args!("man: {}: {e}", path.display()));
    std::fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
    let mut written = Vec::new();
    let mut left = vec![root];
    while let Some(command) = left.pop() {
        let path = folder.join(format!("{}.1", file_name(command)));
        output::file(&path, page(command)?).map_err(|e| failed(&path, e))?;
        written.push(path.display().to_string());
        left.extend(shown(command));
    }
    written.sort();
    if json {
        output::json(&written)
    } else {
        output::text(&format!("{} pages in {}\n", written.len(), folder.display()))
    }
}

/// `weir-device-ls` of `weir device ls`.
fn file_name(command: &clap::Command) -> String {
    command.get_bin_name().unwrap_or_else(|| command.get_name()).replace(' ', "-")
}

fn page(command: &clap::Command) -> Result<Vec<u8>, CommandFailure> {
    let mut text = Vec::new();
    let page = clap_mangen::Man::new(command.clone())
        .title(file_name(command).to_uppercase())
        .source(concat!("weir ", env!("CARGO_PKG_VERSION")))
        .manual("Weir");
    page.render(&mut text).map_err(|e| CommandFailure::new(format_args!("man: {e}")))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let folder = std::env::temp_dir().join(format!("weir-man-{}", std::process::id()));
        write(&tree(Cli::command()), &folder, true).unwrap();
        let pages: Vec<String> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().to_string_lossy().into())
            .collect();
        for expected in ["weir.1", "weir-up.1", "weir-device-ls.1", "weir-fs-put.1", "weir-pool-replace.1"] {
            assert!(pages.iter().any(|page| page == expected), "{expected} is not among {pages:?}");
        }
        assert!(!pages.iter().any(|page| page.contains("worker") || page.contains("help")), "{pages:?}");
        let up = std::fs::read_to_string(folder.join("weir-up.1")).unwrap();
        assert!(up.contains(".TH WEIR-UP 1") && up.contains("weir.toml"), "{up}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_command_that_is_not_there_is_refused() {
        let root = tree(Cli::command());
        assert!(find(&root, &["device".into(), "ls".into()]).is_ok());
        for names in [vec!["nothing".to_owned()], vec!["worker".to_owned()]] {
            let text = find(&root, &names).unwrap_err().text().to_owned();
            assert!(text.contains("there is up, "), "{text}");
        }
    }
}
