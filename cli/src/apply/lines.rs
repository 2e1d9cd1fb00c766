//! Where a key stands in a file as somebody wrote it.

use super::difference::Difference;

/// The lines of a file, each with the section that it belongs to.
pub struct Lines {
    sections: Vec<Section>,
}

#[derive(Default)]
struct Section {
    /// `device` of `[[device]]`.
    header: String,
    line: usize,
    /// The value of its key `name`.
    name: Option<String>,
    keys: Vec<(String, usize)>,
}

impl Lines {
    /// Of a text that is a configuration.
    pub fn of(text: &str) -> Self {
        let mut sections = vec![Section::default()];
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.starts_with('[') && !line.contains('=') {
                let header = line.split('#').next().unwrap_or_default().trim().trim_matches(['[', ']']).trim();
                sections.push(Section { header: header.into(), line: at + 1, ..Section::default() });
            } else if let (Some((key, value)), Some(section)) = (line.split_once('='), sections.last_mut()) {
                let key = key.trim().to_owned();
                if key == "name" {
                    section.name = value.split(['"', '\'']).nth(1).map(str::to_owned);
                }
                section.keys.push((key, at + 1));
            }
        }
        Lines { sections }
    }

    /// The line of the key, or of its section where the key is not written; none where neither is.
    pub fn find(&self, difference: &Difference) -> Option<usize> {
        let Difference { section, name, key, .. } = difference;
        let named = |s: &&Section| s.header == *section && (name.is_none() || s.name == *name);
        let found = self.sections.iter().find(named)?;
        let of_key = key.as_ref().and_then(|key| found.keys.iter().find(|(own, _)| own == key));
        Some(of_key.map_or(found.line, |(_, line)| *line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_sections_are_found() {
        let lines = Lines::of(
            "# a file\n[node]\npoll = true\n\n[[device]] # one\nname = 'a'\n[[device]]\nname = \"b\"\nlatency = \"1us\"\n",
        );
        let of = |section: &str, name: Option<&str>, key: &str| {
            let name = name.map(str::to_owned);
            lines.find(&Difference { section: section.into(), name, key: Some(key.into()), from: None, to: None })
        };
        assert_eq!(of("node", None, "poll"), Some(3));
        assert_eq!(of("device", Some("b"), "latency"), Some(9));
        assert_eq!(of("device", Some("a"), "latency"), Some(5));
        assert_eq!(of("device", Some("c"), "latency"), None);
        assert_eq!(of("tenant", None, "x"), None);
    }
}
