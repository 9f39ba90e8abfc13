//! The functions of Python that a thread is in: read from CPython's own records, in the memory of the process.
//!
//! - `symbols`: the interpreter's addresses in a file; `layout`: the layout of its objects.
//! - `frames`: the frames of a thread, copied while it stands still.
//! - `names`: function, file and line of each, read afterwards; `lines`: tables of lines.
//! - `variables`: what tells whether they have moved.
//! - `weave`: inserts the Python frames after the machine frame that runs them.
//!
//! This is not built on an existing library: such a library would bring its own unwinder and process reader to every
//! node.

mod frames;
mod layout;
mod lines;
mod names;
mod symbols;
mod variables;
mod weave;

use std::collections::HashMap;
use std::sync::Arc;

use gantry_stack::module::{Module, PAGE};

pub(crate) use frames::{Calls, Python};
pub(crate) use names::Names;
pub(crate) use symbols::Interpreter;
pub(crate) use variables::hash_variables;
pub(crate) use weave::weave;

use crate::aside::{Aside, Patience};
use crate::exports::exports_of;
use crate::files::Mapped;
use crate::image::{first_of, identify_at};
use crate::maps::{FileKey, Maps};
use crate::memory::Memory;

/// Files whose names resemble an interpreter's.
pub(crate) type Interpreters = HashMap<FileKey, Candidate>;

/// The interpreter of a file: by the file, or where that cannot be read, by what it exports. None: it has none.
#[derive(Debug)]
pub(crate) struct Candidate {
    of_file: Aside<Option<Arc<Interpreter>>>,
    of_exports: Aside<Option<Arc<Interpreter>>>,
}

/// The interpreter that a process has loaded, if it has.
pub(crate) fn find(
    memory: Memory,
    maps: &Maps,
    known: &mut Interpreters,
    patience: &Patience,
) -> Option<Python> {
    let candidates = maps.files().filter(|(key, _)| symbols::may_have_one(&key.path));
    for (key, base) in candidates {
        if !known.contains_key(key.as_ref()) {
            let new = Candidate { of_file: Aside::new(patience), of_exports: Aside::new(patience) };
            known.insert(key.as_ref().clone(), new);
        }
        let interpreter = known.get(key.as_ref()).and_then(|known| known.interpreter(memory, key, base));
        let found = interpreter.and_then(|it| Python::of_process(memory, key, base, it));
        if found.is_some() {
            return found;
        }
    }
    None
}

impl Candidate {
    /// Whether neither source has said whether there is one.
    pub(crate) fn is_late(&self) -> bool {
        self.of_file.is_late() && self.of_exports.is_late()
    }

    fn interpreter(&self, memory: Memory, key: &Arc<FileKey>, base: u64) -> Option<Arc<Interpreter>> {
        let (file, exporter) = (Arc::clone(key), Arc::clone(key));
        let of_file = self.of_file.get(move || {
            let module = Module { id: identify_at(memory, base)?, path: file.path.clone() };
            Interpreter::of_file(&Mapped { pid: memory.pid, module }.find()?, &file.path).map(Arc::new)
        });
        let of_exports = || {
            self.of_exports.get(move || {
                let first = first_of(&memory.read(base, PAGE))?;
                Interpreter::of_exports(exports_of(memory, base)?, first, &exporter.path).map(Arc::new)
            })
        };
        of_file.and_then(Clone::clone).or_else(|| of_exports()?.clone())
    }
}
