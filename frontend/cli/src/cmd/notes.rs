//! Notes about what a look at ranks lacks.

use std::collections::BTreeSet;

use crate::stack::daemons::Missing;
use crate::stack::report::Findings;
use crate::view;

/// Notes on standard error, each of them once.
#[derive(Debug, Default)]
pub(super) struct Notes(BTreeSet<String>);

impl Notes {
    /// Names nodes without an answer.
    pub(super) fn missing(&mut self, missing: &Missing) {
        for (host, why) in missing {
            self.say(format!("no answer from {host}: {why}"));
        }
    }

    /// Names all that the findings lack.
    pub(super) fn gaps(&mut self, found: &Findings) {
        self.missing(&found.missing);
        for (file, why) in &found.nameless {
            self.say(format!("{file} {why}: names of functions are missing"));
        }
    }

    pub(super) fn say(&mut self, text: String) {
        if !self.0.contains(&text) {
            view::note(&text);
            self.0.insert(text);
        }
    }

    /// What was said before is news again.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
