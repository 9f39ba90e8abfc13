//! One function of a call path.

use std::collections::BTreeSet;

/// One function of a call path.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Step {
    /// What it is called; of a place without a name, the file and the place in it.
    pub(crate) name: String,
    /// What is known of the rank itself, not a function.
    pub(crate) is_mark: bool,
    /// It is of a script, which an interpreter runs.
    pub(crate) is_script: bool,
    /// The path of the program or library, as ranks have it.
    pub(crate) module: Option<String>,
    /// Its source.
    pub(crate) file: Option<String>,
    /// The lines that ranks are at. A caller has one: those at different calls are different classes.
    pub(crate) lines: BTreeSet<u32>,
    /// The place in the file, where it has no name.
    pub(crate) offset: Option<u64>,
    /// It waits for others.
    pub(crate) waits: bool,
}

/// What steps have in common that are one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    name: String,
    module: Option<String>,
    line: Option<u32>,
}

impl Step {
    pub(super) fn mark(name: impl Into<String>) -> Self {
        Self { name: name.into(), is_mark: true, ..Self::default() }
    }

    /// What it is known by. The innermost function is one, whichever line it is at.
    pub(crate) fn key(&self, is_innermost: bool) -> Key {
        let line = if is_innermost { None } else { self.lines.first().copied() };
        Key { name: self.name.clone(), module: self.module.clone(), line }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::waiting::waiting_name;
    use super::*;

    /// A function of a program with lines.
    pub(crate) fn step(name: &str, line: u32) -> Step {
        let lines = (line > 0).then_some(line).into_iter().collect();
        let file = (line > 0).then(|| "/src/heat.c".to_owned());
        let waits = waiting_name(name).is_some();
        Step {
            name: name.to_owned(),
            module: Some("/bin/heat".to_owned()),
            file,
            lines,
            waits,
            ..Step::default()
        }
    }
}
