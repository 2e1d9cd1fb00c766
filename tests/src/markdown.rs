//! The code blocks of a page, and what the comments before them say of how they are tried.
//!
//! A comment stands on the lines right before a block and has one of these forms; any other comment there is an error, so that a
//! misspelled one hides nothing.
//!
//! | comment | means |
//! |---|---|
//! | `<!-- not run: REASON -->` | the block is shown only; the runner counts it and prints the reason |
//! | `<!-- with --full -->` | it takes long: it runs with `--full` only |
//! | `<!-- in a guest -->` | a Linux guest runs it as root; 127.0.0.1 is the machine with the node |
//! | `<!-- file: NAME -->` | the block is that file |
//! | `<!-- append to: NAME -->` | it is the next part of that file |
//! | `<!-- for: COMMAND -->` | `COMMAND NAME` has to accept the file, instead of `weir config -c NAME --check` |
//! | `<!-- excerpt of: PATH -->` | its lines are in that file of the repository, in this order |
//! | `<!-- before: COMMANDS -->` | these commands run first: what the text before the block tells the reader to have |

/// What a comment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    NotRun(String),
    Full,
    Guest,
    File(String),
    Append(String),
    For(String),
    Excerpt(String),
    Before(String),
}

/// A fenced block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The line of its first fence.
    pub line: usize,
    /// The word behind the fence.
    pub language: String,
    /// What stands before it.
    pub marks: Vec<Mark>,
    /// Its lines without the fences and their indentation.
    pub text: String,
}

impl Block {
    /// Why it is shown only.
    pub fn not_run(&self) -> Option<&str> {
        self.marks.iter().find_map(|mark| match mark {
            Mark::NotRun(reason) => Some(reason.as_str()),
            _ => None,
        })
    }

    /// Whether it has that mark.
    pub fn is(&self, mark: &Mark) -> bool {
        self.marks.contains(mark)
    }
}

/// The blocks of a page.
///
/// # Errors
/// A block that does not end or has no language, or a comment before it that means nothing.
pub fn blocks(page: &str) -> Result<Vec<Block>, String> {
    let lines: Vec<&str> = page.lines().collect();
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let Some(language) = lines[at].trim_start().strip_prefix("```") else {
            at += 1;
            continue;
        };
        let indent = lines[at].len() - lines[at].trim_start().len();
        let length = lines[at + 1..].iter().position(|l| l.trim() == "```");
        let length = length.ok_or_else(|| format!("{}: the block does not end", at + 1))?;
        if language.trim().is_empty() {
            return Err(format!("{}: the block has no language; a drawing is a ```drawing", at + 1));
        }
        let inner = |line: &&str| line.get(indent..).unwrap_or_default().to_string() + "\n";
        let text = lines[at + 1..at + 1 + length].iter().map(inner).collect();
        let marks = marks(&lines[..at]).map_err(|what| format!("{}: {what}", at + 1))?;
        blocks.push(Block { line: at + 1, language: language.trim().to_string(), marks, text });
        at += length + 2;
    }
    Ok(blocks)
}

/// What the comments at the end of these lines say.
fn marks(before: &[&str]) -> Result<Vec<Mark>, String> {
    let mut marks = Vec::new();
    let mut end = before.len();
    while end > 0 && before[end - 1].trim_end().ends_with("-->") {
        let begin = before[..end].iter().rposition(|l| l.trim_start().starts_with("<!--"));
        let begin = begin.ok_or("a comment without a beginning")?;
        let comment = before[begin..end].join("\n");
        let inner = comment.trim().trim_start_matches("<!--").trim_end_matches("-->").trim();
        marks.insert(0, mark(inner)?);
        end = begin;
    }
    Ok(marks)
}

fn mark(text: &str) -> Result<Mark, String> {
    type Valued = (&'static str, fn(String) -> Mark);
    let valued: [Valued; 6] = [
        ("not run:", Mark::NotRun),
        ("file:", Mark::File),
        ("append to:", Mark::Append),
        ("for:", Mark::For),
        ("excerpt of:", Mark::Excerpt),
        ("before:", Mark::Before),
    ];
    match text {
        "with --full" => return Ok(Mark::Full),
        "in a guest" => return Ok(Mark::Guest),
        _ => {}
    }
    let found = valued.iter().find_map(|(key, make)| Some((text.strip_prefix(key)?.trim(), make)));
    match found {
        Some((value, make)) if !value.is_empty() => Ok(make(value.to_string())),
        _ => Err(format!("the comment \"{text}\" means nothing (tests/src/markdown.rs lists what does)")),
    }
}

/// A command of a transcript and what it printed.
#[derive(Debug, PartialEq, Eq)]
pub struct Exchange<'a> {
    /// Lines behind the one with the first fence.
    pub line: usize,
    pub command: &'a str,
    pub output: Vec<&'a str>,
}

/// The commands of a transcript: a block whose first line begins with `$ `.
pub fn transcript(text: &str) -> Option<Vec<Exchange<'_>>> {
    let mut exchanges: Vec<Exchange<'_>> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        match (line.strip_prefix("$ "), exchanges.last_mut()) {
            (Some(command), _) => exchanges.push(Exchange { line: i + 1, command, output: Vec::new() }),
            (None, Some(last)) => last.output.push(line),
            (None, None) => return None,
        }
    }
    (!exchanges.is_empty()).then_some(exchanges)
}

/// The first line of `shown` that is not in `printed` where it should be. Numbers may differ, so may the width of columns, and the
/// line `...` stands for any lines.
pub fn first_difference<'a>(shown: &[&'a str], printed: &str) -> Option<&'a str> {
    let printed: Vec<String> = printed.lines().map(alike).collect();
    let mut at = 0;
    let mut anywhere = false;
    for line in shown {
        if *line == "..." {
            anywhere = true;
            continue;
        }
        let wanted = alike(line);
        let rest = printed.get(at..).unwrap_or_default();
        let found = if anywhere {
            rest.iter().position(|l| *l == wanted)
        } else {
            rest.first().filter(|l| **l == wanted).map(|_| 0)
        };
        match found {
            Some(skipped) => at += skipped + 1,
            None => return Some(line),
        }
        anywhere = false;
    }
    None
}

/// A line with `0` for every number and one blank between words.
fn alike(line: &str) -> String {
    let mut text = String::new();
    for c in line.split_whitespace().collect::<Vec<_>>().join(" ").chars() {
        let number = c.is_ascii_digit() || (c == '.' && text.ends_with('0'));
        match (number, text.ends_with('0')) {
            (true, true) => {}
            (true, false) => text.push('0'),
            (false, _) => text.push(c),
        }
    }
    text
}

/// What the reader does not see of a page must itself be right.
pub fn check() -> Result<(), String> {
    let page = "# T\n<!-- file: a.toml -->\n<!-- before: x\ny -->\n```toml\na = 1\n```\n  ```sh\n  b\n    c\n  ```\n";
    let found = blocks(page)?;
    let marks = vec![Mark::File("a.toml".into()), Mark::Before("x\ny".into())];
    let first = Block { line: 5, language: "toml".into(), marks, text: "a = 1\n".into() };
    let second = Block { line: 8, language: "sh".into(), marks: Vec::new(), text: "b\n  c\n".into() };
    let ensure = |holds: bool, what: &str| if holds { Ok(()) } else { Err(format!("{what}: {found:?}")) };
    ensure(found == [first, second], "blocks")?;
    for bad in ["```sh\nx\n", "```\nx\n```\n", "<!-- not run -->\n```sh\nx\n```\n", "<!-- not run: -->\n```sh\n```\n"] {
        ensure(blocks(bad).is_err(), bad)?;
    }
    let shown = ["a  1.5 GiB", "...", "z"];
    for (printed, difference) in
        [("a 20 GiB\nb\nz\nmore", None), ("a 2 MiB\nz", Some("a  1.5 GiB")), ("a 1 GiB\nb", Some("z"))]
    {
        ensure(first_difference(&shown, printed) == difference, printed)?;
    }
    let exchanges = transcript("$ a\n1\n2\n$ b\n").ok_or("no transcript")?;
    let second = Exchange { line: 4, command: "b", output: Vec::new() };
    ensure(exchanges.len() == 2 && exchanges[0].output == ["1", "2"] && exchanges[1] == second, "a transcript")?;
    ensure(transcript("no command\n").is_none(), "no transcript")
}
