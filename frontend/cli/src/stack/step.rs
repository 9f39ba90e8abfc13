//! One function of a call path.

use std::collections::BTreeSet;

use serde::Serialize;

/// The mark of a thread begins with this, before its name.
const THREAD: &str = "thread ";

/// The mark of a rank that could not be read begins with this, before the reason.
const UNREAD: &str = "not read: ";

/// One function of a call path. As JSON it is a frame.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Step {
    /// The function's name. Without one: the file and the offset in it.
    #[serde(rename = "function")]
    pub(crate) name: String,
    /// It is a mark about the rank itself, not a function.
    #[serde(skip)]
    pub(crate) is_mark: bool,
    /// A function of a script.
    #[serde(skip)]
    pub(crate) is_script: bool,
    /// Its source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    /// The lines where ranks are. A caller has one line: ranks at different calls are in different classes.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) lines: BTreeSet<u32>,
    /// The path of the program or library, as the ranks see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) module: Option<String>,
    /// The offset in the file, if the function has no name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offset: Option<u64>,
    /// It stands for so many functions that are left out. 0: for callers that were not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left_out: Option<u32>,
    /// It waits for other ranks or for the system.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) waits: bool,
}

/// The identity of a step: steps with equal keys are merged.
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

    /// The mark of a thread beside the first one.
    pub(super) fn thread(name: &str) -> Self {
        Self::mark(format!("{THREAD}{name}"))
    }

    /// The mark of a rank that could not be read.
    pub(super) fn unread(why: &str) -> Self {
        Self::mark(format!("{UNREAD}{why}"))
    }

    /// Whether this is such a mark.
    pub(super) fn is_unread(&self) -> bool {
        self.is_mark && self.name.starts_with(UNREAD)
    }

    /// Functions that are left out here.
    pub(super) fn left_out(count: u32) -> Self {
        let name = if count == 0 { "more callers".to_owned() } else { format!("{count} more") };
        Self { name, left_out: Some(count), ..Self::default() }
    }

    /// Whether it is a function, and not a remark.
    pub(super) fn is_function(&self) -> bool {
        !self.is_mark && self.left_out.is_none()
    }

    /// The name of the thread, if this is its mark.
    pub(super) fn thread_name(&self) -> Option<&str> {
        self.name.strip_prefix(THREAD).filter(|_| self.is_mark)
    }

    /// The key. An innermost function has one key for all its lines.
    pub(crate) fn key(&self, is_innermost: bool) -> Key {
        let line = if is_innermost { None } else { self.lines.first().copied() };
        Key { name: self.name.clone(), module: self.module.clone(), line }
    }
}

/// The marks among steps.
pub(super) fn marks(steps: &[Step]) -> impl Iterator<Item = &str> {
    steps.iter().filter(|step| step.is_mark).map(|step| step.name.as_str())
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
