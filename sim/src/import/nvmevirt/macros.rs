//! As much of C's preprocessor as a header of numbers needs: `#define` without parameters, `#if` with whole numbers, comments. Nothing is
//! included, and everything is bounded.

use crate::import::text::{Given, ImportError, Text};
use std::collections::BTreeMap;

/// Macros of a header.
const MOST: usize = 4096;
/// Macros within macros, and brackets within brackets.
const DEPTH: u32 = 64;
/// Steps of one expression: macros that double each other are refused.
const STEPS: u32 = 100_000;

/// What a header defines.
pub(super) struct Macros<'t> {
    text: &'t Text,
    defined: BTreeMap<String, Given>,
}

/// A number; a fraction only where one was written.
pub(super) type Number = f64;

impl<'t> Macros<'t> {
    /// Reads a header; `given` stands before its first line, as `-DNAME=VALUE` does.
    pub(super) fn read(text: &'t Text, given: &[(&str, &str)]) -> Result<Macros<'t>, ImportError> {
        let mut macros = Macros { text, defined: BTreeMap::new() };
        for (name, value) in given {
            macros.defined.insert((*name).to_string(), Given { line: 0, text: (*value).to_string() });
        }
        let plain = without_comments(&text.text);
        // Of each #if: whether its lines count now, and whether one of its branches has counted.
        let mut open: Vec<(bool, bool, u32)> = Vec::new();
        let mut lines = plain.lines().enumerate();
        while let Some((at, first)) = lines.next() {
            let number = at as u32 + 1;
            let mut line = first.to_string();
            while line.ends_with('\\') {
                line.pop();
                line.push_str(lines.next().map_or("", |(_, more)| more));
            }
            let Some(directive) = line.trim_start().strip_prefix('#') else { continue };
            let directive = directive.trim();
            let (word, rest) = directive.split_once(char::is_whitespace).unwrap_or((directive, ""));
            macros.directive(word, rest.trim(), number, &mut open)?;
        }
        match open.first() {
            Some((_, _, line)) => Err(text.fault(*line, "an #if without its #endif")),
            None => Ok(macros),
        }
    }

    fn directive(
        &mut self,
        word: &str,
        rest: &str,
        line: u32,
        open: &mut Vec<(bool, bool, u32)>,
    ) -> Result<(), ImportError> {
        let counts = open.iter().all(|(now, ..)| *now);
        match word {
            "if" | "ifdef" | "ifndef" => {
                let holds = counts && self.condition(word, rest, line)?;
                open.push((holds, holds, line));
            }
            "elif" | "else" => {
                let outside = open.iter().rev().skip(1).all(|(now, ..)| *now);
                let had = open.last().ok_or_else(|| self.text.fault(line, format_args!("#{word} without an #if")))?.1;
                let holds = outside && !had && (word == "else" || self.condition("if", rest, line)?);
                if let Some(last) = open.last_mut() {
                    (last.0, last.1) = (holds, had || holds);
                }
            }
            "endif" => {
                open.pop().ok_or_else(|| self.text.fault(line, "#endif without an #if"))?;
            }
            "define" if counts => self.define(rest, line)?,
            "undef" if counts => {
                self.defined.remove(rest);
            }
            "error" if counts => return Err(self.text.fault(line, format_args!("#error {rest}"))),
            _ => {}
        }
        Ok(())
    }

    fn condition(&self, word: &str, rest: &str, line: u32) -> Result<bool, ImportError> {
        match word {
            "ifdef" => Ok(self.defined.contains_key(rest)),
            "ifndef" => Ok(!self.defined.contains_key(rest)),
            _ => Ok(self.evaluate(rest, line)? != 0.0),
        }
    }

    fn define(&mut self, rest: &str, line: u32) -> Result<(), ImportError> {
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let (name, value) = rest.split_at(end);
        // With parameters it is no number.
        if value.starts_with('(') || name.is_empty() {
            return Ok(());
        }
        if self.defined.len() >= MOST {
            return Err(self.text.fault(line, format_args!("more than {MOST} macros")));
        }
        // What was given before the first line stays.
        let own = Given { line, text: value.trim().to_string() };
        match self.defined.get(name) {
            Some(Given { line: 0, .. }) => {}
            _ => {
                self.defined.insert(name.to_string(), own);
            }
        }
        Ok(())
    }

    /// Where a macro stands, and its text.
    pub(super) fn get(&self, name: &str) -> Option<&Given> {
        self.defined.get(name)
    }

    /// The names of all macros.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, &Given)> {
        self.defined.iter().map(|(name, given)| (name.as_str(), given))
    }

    /// A macro's value; `None`: there is none of that name.
    pub(super) fn number(&self, name: &str) -> Result<Option<Number>, ImportError> {
        self.get(name).map(|given| self.evaluate(&given.text, given.line)).transpose()
    }

    fn evaluate(&self, text: &str, line: u32) -> Result<Number, ImportError> {
        let mut expression = Expression { macros: self, line, tokens: tokens(text), at: 0, depth: 0, steps: 0 };
        let value = expression.choice()?;
        match expression.peek() {
            None => Ok(value),
            Some(token) => Err(self
                .text
                .fault(line, format_args!("{token:?} where the expression \"{}\" should end", short(text)))),
        }
    }
}

fn short(text: &str) -> String {
    text.chars().take(60).collect()
}

/// The text with its comments blank, line by line.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("/*").into_iter().chain(rest.find("//")).min() {
        out.push_str(&rest[..at]);
        let end = if rest[at..].starts_with("//") {
            rest[at..].find('\n').map_or(rest.len(), |end| at + end)
        } else {
            rest[at + 2..].find("*/").map_or(rest.len(), |end| at + 2 + end + 2)
        };
        out.extend(rest[at..end].chars().filter(|c| *c == '\n'));
        out.push(' ');
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// Words, numbers and operators.
fn tokens(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let two = ["&&", "||", "==", "!=", "<=", ">=", "<<", ">>"].into_iter().find(|two| rest.starts_with(two));
        let end = match two {
            Some(two) => two.len(),
            None if word(first) => rest.find(|c: char| !word(c)).unwrap_or(rest.len()),
            None => first.len_utf8(),
        };
        out.push(rest[..end].to_string());
        rest = rest[end..].trim_start();
    }
    out
}

/// Operators that bind alike, the loosest first.
const LEVELS: [&[&str]; 7] =
    [&["||"], &["&&"], &["==", "!="], &["<", ">", "<=", ">="], &["<<", ">>"], &["+", "-"], &["*", "/", "%"]];

struct Expression<'m, 't> {
    macros: &'m Macros<'t>,
    line: u32,
    tokens: Vec<String>,
    at: usize,
    depth: u32,
    steps: u32,
}

impl Expression<'_, '_> {
    fn peek(&self) -> Option<&str> {
        self.tokens.get(self.at).map(String::as_str)
    }

    fn next(&mut self) -> Option<String> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn fault(&self, what: impl std::fmt::Display) -> ImportError {
        self.macros.text.fault(self.line, what)
    }

    fn choice(&mut self) -> Result<Number, ImportError> {
        self.binary(0)
    }

    fn binary(&mut self, level: usize) -> Result<Number, ImportError> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = self.peek().filter(|token| operators.contains(token)).map(str::to_string) {
            self.at += 1;
            let right = self.binary(level + 1)?;
            left = self.apply(&operator, left, right)?;
        }
        Ok(left)
    }

    fn apply(&self, operator: &str, left: Number, right: Number) -> Result<Number, ImportError> {
        let truth = |holds: bool| Ok(f64::from(u8::from(holds)));
        let whole = left.fract() == 0.0 && right.fract() == 0.0;
        match operator {
            "||" => truth(left != 0.0 || right != 0.0),
            "&&" => truth(left != 0.0 && right != 0.0),
            "==" => truth(left == right),
            "!=" => truth(left != right),
            "<" => truth(left < right),
            ">" => truth(left > right),
            "<=" => truth(left <= right),
            ">=" => truth(left >= right),
            "+" => Ok(left + right),
            "-" => Ok(left - right),
            "*" => Ok(left * right),
            "/" | "%" if right == 0.0 => Err(self.fault("a division by zero")),
            "/" if whole => Ok((left / right).trunc()),
            "/" => Ok(left / right),
            "%" => Ok(left % right),
            "<<" if (0.0..53.0).contains(&right) => Ok(left * 2_f64.powf(right)),
            ">>" if (0.0..53.0).contains(&right) => Ok((left / 2_f64.powf(right)).floor()),
            _ => Err(self.fault(format_args!("a shift by {right}"))),
        }
    }

    fn unary(&mut self) -> Result<Number, ImportError> {
        self.steps += 1;
        if self.depth >= DEPTH || self.steps > STEPS {
            return Err(self.fault("an expression that is nested too deep, or macros that need each other"));
        }
        self.depth += 1;
        let value = self.operand();
        self.depth -= 1;
        value
    }

    fn operand(&mut self) -> Result<Number, ImportError> {
        let Some(token) = self.next() else { return Err(self.fault("an expression that ends too early")) };
        match token.as_str() {
            "-" => Ok(-self.unary()?),
            "+" => self.unary(),
            "!" => Ok(f64::from(u8::from(self.unary()? == 0.0))),
            "(" => self.bracketed(),
            "defined" => {
                let bracket = self.peek() == Some("(");
                self.at += usize::from(bracket);
                let name = self.next().unwrap_or_default();
                self.at += usize::from(bracket);
                Ok(f64::from(u8::from(self.macros.defined.contains_key(&name))))
            }
            // The header's own macros for sizes are in another file.
            "KB" | "MB" | "GB" | "BYTE_TO_KB" if self.peek() == Some("(") => {
                self.at += 1;
                let inner = self.bracketed()?;
                Ok(match token.as_str() {
                    "KB" => inner * 1024.0,
                    "MB" => inner * 1_048_576.0,
                    "GB" => inner * 1_073_741_824.0,
                    _ => (inner / 1024.0).trunc(),
                })
            }
            word if word.starts_with(|c: char| c.is_ascii_digit() || c == '.') => self.literal(word),
            word if word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') => self.named(word),
            other => Err(self.fault(format_args!("{other:?} where a number is wanted"))),
        }
    }

    fn bracketed(&mut self) -> Result<Number, ImportError> {
        let inner = self.choice()?;
        match self.next().as_deref() {
            Some(")") => Ok(inner),
            _ => Err(self.fault("a bracket that is not closed")),
        }
    }

    fn literal(&self, word: &str) -> Result<Number, ImportError> {
        let hexadecimal = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
        let plain = word.trim_end_matches(['u', 'U', 'l', 'L']);
        let value = match hexadecimal {
            Some(digits) => {
                u64::from_str_radix(digits.trim_end_matches(['u', 'U', 'l', 'L']), 16).ok().map(|n| n as f64)
            }
            None if plain.bytes().all(|b| b.is_ascii_digit() || b == b'.') => plain.parse().ok(),
            None => None,
        };
        value.ok_or_else(|| self.fault(format_args!("\"{}\" is no number", short(word))))
    }

    /// A macro's value; a word that is none is 0, as the preprocessor has it.
    fn named(&mut self, word: &str) -> Result<Number, ImportError> {
        let Some(given) = self.macros.defined.get(word) else { return Ok(0.0) };
        let inner = Expression {
            macros: self.macros,
            line: if given.line == 0 { self.line } else { given.line },
            tokens: tokens(&given.text),
            at: 0,
            depth: self.depth,
            steps: self.steps,
        };
        let mut inner = inner;
        if inner.tokens.is_empty() {
            return Ok(0.0);
        }
        let value = inner.choice()?;
        self.steps = inner.steps;
        match inner.peek() {
            None => Ok(value),
            Some(token) => Err(inner.fault(format_args!("{word}: {token:?} where its value should end"))),
        }
    }
}
