//! Debug information that nodes lack and this machine has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gantry_gdb::DEBUG_FILES;
use gantry_gdb::answer::Program;
use gantry_stack::apart::find_debug_file;
use gantry_stack::module::ModuleId;
use tokio::task::{JoinSet, spawn_blocking};

use crate::stack::aside::{Aside, FIRST_ANSWER};

/// The debug files of this machine. `None`: this machine has none, or it was taken.
#[derive(Debug, Default)]
pub(super) struct DebugFiles(BTreeMap<ModuleId, Aside<Option<PathBuf>>>);

impl DebugFiles {
    /// Searches the debug files of these programs, each once. Returns the programs whose file system here does not
    /// answer.
    pub(super) async fn find(&mut self, programs: impl IntoIterator<Item = Program>) -> Vec<String> {
        let mut searching = JoinSet::new();
        let mut wanted = BTreeMap::new();
        for Program { build_id, path } in programs {
            let Some(id) = ModuleId::of_build_id(&build_id) else { continue };
            if let Some(known) = self.0.get_mut(&id) {
                known.take_result().await;
            } else if !wanted.contains_key(&id) {
                let (program, id) = (PathBuf::from(&path), id.clone());
                searching.spawn(async move {
                    let wanted = id.clone();
                    let search = spawn_blocking(move || find_debug_file(&program, &wanted));
                    (id, Aside::wait(search, FIRST_ANSWER).await)
                });
            }
            wanted.insert(id, path);
        }
        self.0.extend(searching.join_all().await);
        wanted.retain(|id, _| matches!(self.0.get(id), Some(Aside::Late(_))));
        wanted.into_values().collect()
    }

    /// What was found and not taken yet, each with its path below the session's `lib`, where gdb searches it.
    pub(super) fn take_new(&mut self) -> Vec<(PathBuf, PathBuf)> {
        let new = self.0.iter_mut().filter_map(|(id, file)| {
            let Aside::Done(file) = file else { return None };
            let (folder, name) = id.as_str().split_at_checked(2)?;
            let at = Path::new(DEBUG_FILES).join(".build-id").join(folder).join(format!("{name}.debug"));
            Some((file.take()?, at))
        });
        new.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use tokio::task::yield_now;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_debug_file_that_was_late_is_taken_for_ranks_that_come_later() {
        let program = || Program { build_id: vec![0xab, 0xcd], path: "/app".to_owned() };
        let (go_on, waits) = channel::<()>();
        let search = spawn_blocking(move || {
            waits.recv().unwrap_or_default();
            Some(PathBuf::from("/app.debug"))
        });
        let id = ModuleId::of_build_id(&[0xab, 0xcd]).unwrap();
        let mut files = DebugFiles([(id, Aside::Late(search))].into());
        assert_eq!(files.find([program()]).await, ["/app"]);
        assert!(files.take_new().is_empty());
        go_on.send(()).unwrap();
        let found = async {
            while !files.find([program()]).await.is_empty() {
                yield_now().await;
            }
        };
        timeout(Duration::from_secs(60), found).await.unwrap();
        let at = PathBuf::from("debug-files/.build-id/ab/cd.debug");
        assert_eq!(files.take_new(), [(PathBuf::from("/app.debug"), at)]);
    }

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
