//! Debug information that nodes lack and this machine has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gantry_gdb::DEBUG_FILES;
use gantry_gdb::answer::Program;
use gantry_stack::apart::find_debug_file;
use gantry_stack::module::ModuleId;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use crate::stack::resolve::FIRST_ANSWER;

/// The debug files of this machine that were found, each once. `None`: this machine has none, or it was taken.
#[derive(Debug, Default)]
pub(super) struct DebugFiles(BTreeMap<ModuleId, Option<PathBuf>>);

impl DebugFiles {
    /// Searches the debug files of these programs. Returns the programs whose file system here does not answer.
    pub(super) async fn find(&mut self, programs: impl IntoIterator<Item = Program>) -> Vec<String> {
        let mut searching = JoinSet::new();
        for Program { build_id, path } in programs {
            let new = ModuleId::of_build_id(&build_id).filter(|id| !self.0.contains_key(id));
            let Some(id) = new else { continue };
            self.0.insert(id.clone(), None);
            searching.spawn(async move {
                let (program, wanted) = (PathBuf::from(&path), id.clone());
                let search = spawn_blocking(move || find_debug_file(&program, &wanted));
                match timeout(FIRST_ANSWER, search).await {
                    Ok(found) => Ok((id, found.ok().flatten())),
                    Err(_) => Err(path),
                }
            });
        }
        let mut late = Vec::new();
        for searched in searching.join_all().await {
            match searched {
                Ok((id, found)) => drop(self.0.insert(id, found)),
                Err(path) => late.push(path),
            }
        }
        late
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

    #[tokio::test]
    async fn a_program_of_this_machine_is_taken_once_and_an_unknown_one_never() {
        let own = std::env::current_exe().unwrap();
        let id = gantry_stack::symbols::identify_file(&own).unwrap();
        let digits = id.as_str().as_bytes().chunks_exact(2);
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        let build_id = digits.map(byte).collect();
        let path = own.to_str().unwrap().to_owned();
        let unknown = Program { build_id: vec![1, 2, 3], path: path.clone() };
        let mut files = DebugFiles::default();
        for is_first in [true, false] {
            let known = Program { build_id: Vec::clone(&build_id), path: path.clone() };
            assert_eq!(files.find([unknown.clone(), known]).await, [] as [String; 0]);
            let (folder, name) = id.as_str().split_at(2);
            let at = PathBuf::from(format!("debug-files/.build-id/{folder}/{name}.debug"));
            assert_eq!(files.take_new(), if is_first { vec![(own.clone(), at)] } else { Vec::new() });
        }
    }
}
