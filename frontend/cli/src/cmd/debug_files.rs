//! Debug information that nodes lack and this machine has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gantry_gdb::DEBUG_FILES;
use gantry_gdb::answer::Program;
use gantry_stack::apart::find_debug_file;
use gantry_stack::module::ModuleId;

/// The debug files of this machine that were found, each once. `None`: this machine has none, or it was taken.
#[derive(Debug, Default)]
pub(super) struct DebugFiles(BTreeMap<ModuleId, Option<PathBuf>>);

impl DebugFiles {
    /// Searches the debug files of these programs.
    pub(super) fn find(&mut self, programs: impl IntoIterator<Item = Program>) {
        for program in programs {
            if let Some(id) = ModuleId::of_build_id(&program.build_id) {
                let search = || find_debug_file(Path::new(&program.path), &id);
                self.0.entry(id.clone()).or_insert_with(search);
            }
        }
    }

    /// What was found and not taken yet, each with its path below the session's `lib`, where gdb searches it.
    pub(super) fn take_new(&mut self) -> Vec<(PathBuf, PathBuf)> {
        let new = self.0.iter_mut().filter_map(|(id, file)| {
            let (folder, name) = id.as_str().split_at_checked(2)?;
            let at = Path::new(DEBUG_FILES).join(".build-id").join(folder).join(format!("{name}.debug"));
            Some((file.take()?, at))
        });
        new.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_this_machine_is_taken_once_and_an_unknown_one_never() {
        let own = std::env::current_exe().unwrap();
        let id = gantry_stack::symbols::identify_file(&own).unwrap();
        let digits = id.as_str().as_bytes().chunks_exact(2);
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        let build_id = digits.map(byte).collect();
        let path = own.to_str().unwrap().to_owned();
        let unknown = Program { build_id: vec![1, 2, 3], path: path.clone() };
        let mut files = DebugFiles::default();
        for is_first in [true, false] {
            files.find([unknown.clone(), Program { build_id: Vec::clone(&build_id), path: path.clone() }]);
            let (folder, name) = id.as_str().split_at(2);
            let at = PathBuf::from(format!("debug-files/.build-id/{folder}/{name}.debug"));
            assert_eq!(files.take_new(), if is_first { vec![(own.clone(), at)] } else { Vec::new() });
        }
    }
}
