//! A row of a figure, what it is held to, and the verdict.

/// What a row is held to.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// The paper prints the number.
    Printed {
        /// The number.
        value: f64,
        /// Its sentence.
        quote: &'static str,
        /// How it bounds ours.
        bound: PrintedBound,
    },
    /// The paper prints a number of its own machine, which stands beside ours; ours is held to a relation.
    Beside {
        /// The number.
        value: f64,
        /// Its sentence.
        quote: &'static str,
        /// The relation, in words.
        text: &'static str,
        /// Whether ours has it.
        holds: bool,
    },
    /// The paper states a relation, or it follows from the model that it states.
    Relation {
        /// In words.
        text: String,
        /// Whether ours has it.
        holds: bool,
    },
    /// Nothing: it is there to be read.
    Told {
        /// What it is, in words.
        text: String,
    },
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowVerdict {
    /// It is what it is held to.
    Held,
    /// It is not.
    Missed,
    /// It is held to nothing.
    Told,
    /// This machine cannot tell: it does other things as well, or its runs differ by more than what is asked.
    Disturbed,
}

impl RowVerdict {
    /// As tables and JSON write it.
    pub const fn name(self) -> &'static str {
        match self {
            RowVerdict::Held => "held",
            RowVerdict::Missed => "missed",
            RowVerdict::Told => "told",
            RowVerdict::Disturbed => "not judged: disturbed",
        }
    }
}

/// How a printed number bounds ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PrintedBound {
    /// Ours is no more.
    Below,
    /// Ours is no less.
    Above,
    /// Ours is the same, within so many percent.
    Within(f64),
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What was measured.
    pub label: String,
    /// What came out.
    pub ours: f64,
    /// Its unit.
    pub unit: &'static str,
    /// What it is held to.
    pub claim: Claim,
    /// This machine could not tell whether it is.
    pub is_disturbed: bool,
}

impl Row {
    /// Held to a number that the paper prints.
    pub fn printed(
        label: impl Into<String>,
        ours: f64,
        unit: &'static str,
        value: f64,
        bound: PrintedBound,
        quote: &'static str,
    ) -> Row {
        Row { label: label.into(), ours, unit, claim: Claim::Printed { value, quote, bound }, is_disturbed: false }
    }

    /// Beside a number that the paper prints of its own machine, and held to a relation.
    pub fn beside(
        label: impl Into<String>,
        ours: f64,
        unit: &'static str,
        value: f64,
        quote: &'static str,
        holds: bool,
        text: &'static str,
    ) -> Row {
        Row { label: label.into(), ours, unit, claim: Claim::Beside { value, quote, text, holds }, is_disturbed: false }
    }

    /// Held to a relation.
    pub fn relation(
        label: impl Into<String>,
        ours: f64,
        unit: &'static str,
        holds: bool,
        text: impl Into<String>,
    ) -> Row {
        Row {
            label: label.into(),
            ours,
            unit,
            claim: Claim::Relation { text: text.into(), holds },
            is_disturbed: false,
        }
    }

    /// Held to nothing.
    pub fn told(label: impl Into<String>, ours: f64, unit: &'static str, text: impl Into<String>) -> Row {
        Row { label: label.into(), ours, unit, claim: Claim::Told { text: text.into() }, is_disturbed: false }
    }

    /// The same, not judged where this machine cannot tell.
    pub fn disturbed_if(mut self, is_disturbed: bool) -> Row {
        self.is_disturbed = is_disturbed;
        self
    }

    /// The paper's number.
    pub fn paper(&self) -> Option<f64> {
        match &self.claim {
            Claim::Printed { value, .. } | Claim::Beside { value, .. } => Some(*value),
            Claim::Relation { .. } | Claim::Told { .. } => None,
        }
    }

    /// How far ours is from the paper's, in percent of the paper's.
    pub fn deviation_pct(&self) -> Option<f64> {
        self.paper().map(|paper| (self.ours - paper) / paper * 100.0)
    }

    /// How far it may be; `None` where the paper's number is a bound on one side, or there is none.
    pub fn tolerance_pct(&self) -> Option<f64> {
        match self.claim {
            Claim::Printed { bound: PrintedBound::Within(percent), .. } => Some(percent),
            _ => None,
        }
    }

    /// What became of it.
    pub fn verdict(&self) -> RowVerdict {
        let holds = match &self.claim {
            Claim::Told { .. } => return RowVerdict::Told,
            Claim::Printed { value, bound: PrintedBound::Below, .. } => self.ours <= *value,
            Claim::Printed { value, bound: PrintedBound::Above, .. } => self.ours >= *value,
            Claim::Printed { bound: PrintedBound::Within(percent), .. } => {
                self.deviation_pct().is_some_and(|d| d.abs() <= *percent)
            }
            Claim::Relation { holds, .. } | Claim::Beside { holds, .. } => *holds,
        };
        match (self.is_disturbed, holds) {
            (true, _) => RowVerdict::Disturbed,
            (false, true) => RowVerdict::Held,
            (false, false) => RowVerdict::Missed,
        }
    }

    /// Whether it is not missed.
    pub fn ok(&self) -> bool {
        self.verdict() != RowVerdict::Missed
    }

    /// What it is held to, in words.
    pub fn basis(&self) -> String {
        match &self.claim {
            Claim::Printed { quote, bound, value } => {
                let held = match bound {
                    PrintedBound::Below => format!("at most {value}"),
                    PrintedBound::Above => format!("at least {value}"),
                    PrintedBound::Within(percent) => format!("{value} within {percent} %"),
                };
                format!("{held}: \"{quote}\"")
            }
            Claim::Beside { quote, text, value, .. } => format!("{text}; beside {value}: \"{quote}\""),
            Claim::Relation { text, .. } | Claim::Told { text } => text.clone(),
        }
    }
}
