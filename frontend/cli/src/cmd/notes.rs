//! Notes about what a look at ranks lacks.

use std::collections::BTreeSet;

use crate::stack::daemons::Missing;
use crate::stack::report::Findings;
use crate::view;

/// The most files that are named.
const MOST_FILES: usize = 20;

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
        gaps_of(&found.nameless).into_iter().for_each(|gap| self.say(gap));
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

/// A note for each file without names, up to a number of them.
fn gaps_of(nameless: &[(String, String)]) -> Vec<String> {
    let named = nameless.iter().take(MOST_FILES);
    let others = nameless.len().saturating_sub(MOST_FILES);
    let others = (others > 0).then(|| format!("{others} more files: names of functions are missing"));
    named.map(|(file, why)| format!("{file} {why}: names of functions are missing")).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_not_too_many_notes() {
        let nameless = vec![("/opt/app".to_owned(), "has changed".to_owned()); MOST_FILES + 7];
        let one = "/opt/app has changed: names of functions are missing";
        assert_eq!(gaps_of(&nameless[..1]), [one]);
        assert_eq!(gaps_of(&nameless[..MOST_FILES]), [one; MOST_FILES]);
        assert_eq!(gaps_of(&nameless)[MOST_FILES..], ["7 more files: names of functions are missing"]);
    }
}
