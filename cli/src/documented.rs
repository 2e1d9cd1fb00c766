//! Commands that the documentation names within a sentence or a table are those of the program, with options that they have; what stands in
//! blocks is run by the suite `docs`. The examples of `--help` are lines that the program takes.

use crate::args::Cli;
use clap::{Command, CommandFactory, Parser};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// What `weir …` between two backquotes says that is not so.
fn mistake(program: &Command, text: &str) -> Option<String> {
    // What goes to another program or to a file is not the command's.
    let words = text.split_whitespace().skip(1).take_while(|word| !["|", ">", "<", "#"].contains(word));
    let mut words: Vec<&str> = words.collect();
    let mut at = program;
    while let Some(word) = words.first().copied() {
        let named: Vec<&str> = word.split("\\|").collect();
        let found: Vec<_> = named.iter().map(|name| at.find_subcommand(name)).collect();
        match found.as_slice() {
            [Some(one)] => at = one,
            // Several of one kind, like `volume create\|delete`: what follows is of each of them.
            all if all.iter().all(Option::is_some) => {
                let rest = words[1..].join(" ");
                return all.iter().flatten().find_map(|one| mistake_in(one, &rest));
            }
            _ if at.has_subcommands() && !is_placeholder(word) => {
                return Some(format!("{} has no command {word}", at.get_name()));
            }
            _ => break,
        }
        words.remove(0);
    }
    mistake_in(at, &words.join(" "))
}

/// `NAME`, `[NAME]`, `…` and options are no commands.
fn is_placeholder(word: &str) -> bool {
    word.starts_with(['-', '[', '…', '<']) || word.chars().any(char::is_uppercase)
}

/// An option that a command does not have.
fn mistake_in(command: &Command, rest: &str) -> Option<String> {
    let has_long = |name: &str| command.get_arguments().any(|one| one.get_long() == Some(name));
    let has_short = |name: char| command.get_arguments().any(|one| one.get_short() == Some(name));
    let options = rest.split([' ', '[', ']', '|', '\\']).filter(|word| word.len() > 1 && word.starts_with('-'));
    for option in options {
        let is_there = match option.strip_prefix("--") {
            Some(long) => has_long(long.split('=').next().unwrap_or_default()),
            None => option.chars().skip(1).all(has_short),
        };
        if !is_there {
            return Some(format!("{} has no option {option}", command.get_name()));
        }
    }
    None
}

/// What stands between two backquotes of a page, with its line; not in blocks.
fn spans(page: &str) -> Vec<(usize, &str)> {
    let mut all = Vec::new();
    let mut is_block = false;
    for (line, number) in page.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
        } else if !is_block {
            all.extend(line.split('`').skip(1).step_by(2).map(|span| (number, span)));
        }
    }
    all
}

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
}

#[test]
fn commands_in_sentences_are_the_programs() {
    let mut program = Cli::command();
    program.build();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = vec![root.join("README.md")];
    pages(&root.join("docs"), &mut all);
    let (mut mistakes, mut looked_at) = (String::new(), 0);
    for path in all {
        let page = std::fs::read_to_string(&path).unwrap();
        // A worker is started by its keeper alone.
        let is_command = |span: &str| span.starts_with("weir ") && !span.starts_with("weir worker");
        for (line, span) in spans(&page).into_iter().filter(|(_, span)| is_command(span)) {
            looked_at += 1;
            if let Some(what) = mistake(&program, span) {
                let _ = writeln!(mistakes, "{}:{line}: `{span}`: {what}", path.strip_prefix(&root).unwrap().display());
            }
        }
    }
    assert!(looked_at > 100, "{looked_at} are too few: the pages are not read");
    assert!(mistakes.is_empty(), "{mistakes}");
}

/// The examples of a command and of those below it, a line each.
fn examples(command: &Command, found: &mut Vec<String>) {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let text = text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").replace("\\\n", "\u{1}");
    let lines = text.lines().skip_while(|line| *line != "Examples:").skip(1).take_while(|line| line.starts_with("  "));
    // A line that goes on in the next one is one.
    let whole = |line: &str| line.split('\u{1}').map(str::trim).collect::<Vec<_>>().join(" ");
    found.extend(lines.map(whole).filter(|line| words(line).iter().any(|word| word == "weir")));
    command.get_subcommands().for_each(|below| examples(below, found));
}

/// The words of an example as a shell has them, up to what goes elsewhere, and to the explanation that two blanks begin.
fn words(line: &str) -> Vec<String> {
    let (mut all, mut word, mut quote, mut blanks) = (Vec::new(), String::new(), None, 0);
    for c in line.chars() {
        match (quote, c) {
            (None, ' ') => {
                blanks += 1;
                all.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
                if blanks > 1 {
                    break;
                }
                continue;
            }
            (None, '>' | '<' | '|' | ';' | '#') if word.is_empty() => break,
            (None, '\'' | '"') => quote = Some(c),
            (Some(end), c) if end == c => quote = None,
            (_, c) => word.push(c),
        }
        blanks = 0;
    }
    all.extend(Some(word).filter(|word| !word.is_empty()));
    all
}

#[test]
fn examples_are_taken() {
    let mut lines = Vec::new();
    examples(&Cli::command(), &mut lines);
    assert!(lines.len() > 50, "{} are too few: they are not found", lines.len());
    let mut mistakes = String::new();
    for line in lines {
        for command in words(&line).split(|word| word == "&&") {
            let Some(at) = command.iter().position(|word| word == "weir") else { continue };
            if let Err(why) = Cli::try_parse_from(&command[at..]) {
                let _ = writeln!(mistakes, "{line}\n    {}", why.to_string().lines().next().unwrap_or_default());
            }
        }
    }
    assert!(mistakes.is_empty(), "{mistakes}");
}

#[test]
fn mistakes_are_found() {
    let mut program = Cli::command();
    program.build();
    for good in [
        "weir up -c FILE [--force]",
        "weir volume ls\\|create",
        "weir fs put\\|get\\|cp [-rfp] A B",
        "weir sim X | zstd -q",
    ] {
        assert_eq!(mistake(&program, good), None, "{good}");
    }
    for bad in [
        "weir start",
        "weir volume make",
        "weir volume ls\\|make",
        "weir up --fast",
        "weir fs ls [-lq]",
        "weir status --jason",
    ] {
        assert!(mistake(&program, bad).is_some(), "{bad}");
    }
}
