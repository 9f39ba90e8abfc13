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

pub(crate) use frames::{Calls, Python};
pub(crate) use names::Names;
pub(crate) use symbols::Interpreter;
pub(crate) use variables::hash_variables;
pub(crate) use weave::weave;

use crate::files::Mapped;
use crate::image::identify_at;
use crate::maps::{FileKey, Maps};
use crate::memory::Memory;

/// The interpreters of files. None: the file only resembles an interpreter.
pub(crate) type Interpreters = HashMap<FileKey, Option<Arc<Interpreter>>>;

/// The interpreter that a process has loaded, if it has.
pub(crate) fn find(memory: Memory, maps: &Maps, known: &mut Interpreters) -> Option<Python> {
    let candidates = maps.files().filter(|(key, _)| symbols::may_have_one(&key.path));
    for (key, base) in candidates {
        if !known.contains_key(key.as_ref()) {
            let mapped = Mapped { pid: memory.pid, path: key.path.clone() };
            let file = identify_at(memory, base).and_then(|id| mapped.find(&id));
            let interpreter = file.and_then(|file| Interpreter::of_file(&file, &key.path));
            known.insert(key.as_ref().clone(), interpreter.map(Arc::new));
        }
        let interpreter = known.get(key.as_ref()).and_then(Clone::clone);
        let found = interpreter.and_then(|it| Python::of_process(memory, key, base, it));
        if found.is_some() {
            return found;
        }
    }
    None
}
