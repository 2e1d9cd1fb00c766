//! The elements of MQSim's XML, by name.

use crate::import::text::{Given, ImportError, Text};
use roxmltree::{Document, Node};
use std::str::FromStr;

pub(super) fn parse(text: &Text) -> Result<Document<'_>, ImportError> {
    Document::parse(&text.text).map_err(|e| {
        let shown = e.to_string();
        // The position ends the message, and stands before it here.
        let what = shown.rsplit_once(" at ").map_or(shown.as_str(), |(what, _)| what);
        text.fault(e.pos().row, format_args!("not XML: {what}"))
    })
}

pub(super) fn root<'d>(text: &Text, document: &'d Document<'_>, name: &str) -> Result<Node<'d, 'd>, ImportError> {
    let root = document.root_element();
    if root.has_tag_name(name) {
        return Ok(root);
    }
    let line = line_of(document, root);
    Err(text.fault(line, format_args!("<{}> where <{name}> is wanted", root.tag_name().name())))
}

/// The 1-based line of an element.
pub(super) fn line_of(document: &Document<'_>, node: Node<'_, '_>) -> u32 {
    document.text_pos_at(node.range().start).row
}

/// Values by the names of their elements; each is asked for once.
pub(super) struct Elements<'t> {
    pub(super) text: &'t Text,
    open: Vec<(String, Given)>,
}

impl<'t> Elements<'t> {
    /// All elements below `node` that have no elements themselves.
    pub(super) fn of(text: &'t Text, node: Node<'_, '_>) -> Result<Elements<'t>, ImportError> {
        let mut open: Vec<(String, Given)> = Vec::new();
        for leaf in node.descendants().filter(|n| n.is_element() && !n.children().any(|c| c.is_element()) && *n != node)
        {
            let given = Given {
                line: line_of(leaf.document(), leaf),
                text: leaf.text().unwrap_or_default().trim().to_string(),
            };
            let name = leaf.tag_name().name().to_string();
            if let Some((_, first)) = open.iter().find(|(n, _)| *n == name) {
                let what = format_args!("{name} stands in line {} as well; keep one", first.line).to_string();
                return Err(text.fault(given.line, what));
            }
            open.push((name, given));
        }
        Ok(Elements { text, open })
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Given> {
        let at = self.open.iter().position(|(n, _)| n == name)?;
        Some(self.open.remove(at).1)
    }

    pub(super) fn peek(&self, name: &str) -> Option<&Given> {
        self.open.iter().find(|(n, _)| n == name).map(|(_, given)| given)
    }

    /// What nothing asked for.
    pub(super) fn rest(self) -> Vec<(String, Given)> {
        self.open
    }

    /// A number from `least` to `most`.
    pub(super) fn number<T>(&mut self, name: &str, least: T, most: T, default: T) -> Result<T, ImportError>
    where
        T: FromStr + PartialOrd + std::fmt::Display + Copy,
    {
        let Some(given) = self.take(name) else { return Ok(default) };
        match given.text.parse::<T>() {
            Ok(value) if (least..=most).contains(&value) => Ok(value),
            _ => Err(self.wrong(name, &given, format_args!("a number from {least} to {most}"))),
        }
    }

    pub(super) fn count(&mut self, name: &str, default: u64) -> Result<u64, ImportError> {
        self.number(name, 1, u64::from(u32::MAX), default)
    }

    pub(super) fn flag(&mut self, name: &str, default: bool) -> Result<bool, ImportError> {
        let Some(given) = self.take(name) else { return Ok(default) };
        match given.text.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(self.wrong(name, &given, "true or false")),
        }
    }

    /// One of some words, in any case.
    pub(super) fn word<T: Copy>(&mut self, name: &str, words: &[(&str, T)], default: T) -> Result<T, ImportError> {
        let Some(given) = self.take(name) else { return Ok(default) };
        let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(&given.text)).map(|(_, value)| *value);
        let known = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| self.wrong(name, &given, format_args!("one of {}", known())))
    }

    pub(super) fn wrong(&self, name: &str, given: &Given, wanted: impl std::fmt::Display) -> ImportError {
        let text: String = given.text.chars().take(60).collect();
        self.text.fault(given.line, format_args!("{name}: \"{text}\" is not {wanted}"))
    }
}
