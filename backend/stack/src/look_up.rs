//! Functions and lines of addresses, for a tool whose machine lacks the files.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gantry_backend::types::error::Failure;
use gantry_backend::types::filter::PrefixTree;
use gantry_backend::types::rank_set::RankSet;
use gantry_stack::frame::Frame;
use gantry_stack::module::{HAS_CHANGED, Module, ModuleId};
use gantry_stack::symbols::{Found, Symbols};

use crate::aside::{Aside, FIRST_ANSWER, FIRST_ANSWERS, NOT_IN_TIME, Patience};
use crate::exports::exports_of;
use crate::files::Mapped;
use crate::image::identify_at;
use crate::maps::{Maps, VDSO};
use crate::memory::Memory;

/// How many waits in vain for the symbols of a file there may be.
const SYMBOLS_WAITS: u32 = 2;

/// Looks up addresses in files of this node's ranks.
#[derive(Debug)]
pub(crate) struct LookUp {
    first_answer: Patience,
    symbols: Patience,
    /// Between requests: the files that are late.
    files: HashMap<ModuleId, File>,
}

/// A file of ranks.
#[derive(Debug)]
struct File {
    source: Aside<Source>,
    symbols: Aside<Option<Mutex<Symbols>>>,
    exports: Aside<Option<Mutex<Symbols>>>,
}

/// Where symbols can be read.
#[derive(Debug, Clone)]
enum Source {
    Path(PathBuf),
    /// The kernel's code, which is in no file.
    Bytes(Vec<u8>),
    /// Nowhere: another file is at its path, or none.
    Changed,
    Nowhere,
}

impl LookUp {
    pub(crate) fn new() -> Self {
        // Each request says how long it may take.
        let [first_answer, symbols] =
            [FIRST_ANSWERS, SYMBOLS_WAITS].map(|it| Patience::new(Duration::ZERO, it));
        Self { first_answer, symbols, files: HashMap::new() }
    }

    /// Begins an order: from now on, files that were late before are used if they are there.
    pub(crate) fn begin_order(&self) {
        self.first_answer.begin_order();
        self.symbols.begin_order();
    }

    /// Looks up the addresses of a request: see [`LOOK_UP`](gantry_stack::tags::LOOK_UP). Returns a tree of each address,
    /// then its inlined calls. It also has each file that cannot be read, then why.
    ///
    /// # Errors
    /// The tree exceeds its limits.
    pub(crate) fn find<'m>(
        &mut self,
        request: &str,
        modules: impl Iterator<Item = &'m Module> + Clone,
        pids: &[i32],
        node: &RankSet,
    ) -> Result<PrefixTree, Failure> {
        let (limit, addresses) = request.split_once('\n').unwrap_or_default();
        let [first_answer, symbols] = shares_of(Duration::from_millis(limit.parse().unwrap_or_default()));
        self.first_answer.limit(first_answer);
        self.symbols.limit(symbols);
        let mut by_file: BTreeMap<ModuleId, Vec<(&str, u64)>> = BTreeMap::new();
        for text in addresses.lines() {
            let Frame::Code { module, address } = Frame::parse(text) else { continue };
            by_file.entry(module).or_default().push((text, address));
        }
        let mut tree = PrefixTree::new();
        for (id, places) in by_file {
            let modules = modules.clone().filter(|module| module.id == id);
            let first = modules.clone().next();
            let mapped: Vec<Mapped> = modules
                .flat_map(|module| pids.iter().map(|pid| Mapped { pid: *pid, module: module.clone() }))
                .collect();
            let new = || File {
                source: Aside::new(&self.first_answer),
                symbols: Aside::new(&self.symbols),
                exports: Aside::new(&self.first_answer),
            };
            let file = self.files.entry(id.clone()).or_insert_with(new);
            let read = {
                let mapped = mapped.clone();
                move || find_source(mapped)
            };
            let source = file.source.get(read).cloned();
            let opened = source.clone().and_then(|it| file.symbols.get(move || open(it, &id)));
            let why = match (source, opened) {
                (Some(Source::Changed), _) => Some(HAS_CHANGED),
                (None, _) => Some("is on a file system that does not answer"),
                (Some(_), None) => Some(NOT_IN_TIME),
                (Some(_), Some(_)) => None,
            };
            if let (Some(module), Some(why)) = (first, why) {
                tree.add([module.to_text().as_str(), why], node)?;
            }
            let exports = || file.exports.get(move || find_exports(&mapped))?.as_ref();
            let Some(symbols) = opened.and_then(Option::as_ref).or_else(exports) else { continue };
            let symbols = symbols.lock().unwrap_or_else(PoisonError::into_inner);
            for (text, address) in places {
                let calls: Vec<String> = symbols.find(address).iter().map(Found::to_text).collect();
                tree.add(std::iter::once(text).chain(calls.iter().map(String::as_str)), node)?;
            }
        }
        // Symbols are large.
        self.files.retain(|_, file| file.is_waited_for());
        Ok(tree)
    }
}

impl File {
    fn is_waited_for(&self) -> bool {
        self.source.is_waited_for() || self.symbols.is_waited_for() || self.exports.is_waited_for()
    }
}

/// How long the first answers of file systems and the symbols of files may take, where the tool waits for `limit`. The
/// rest is for work that is not in vain.
fn shares_of(limit: Duration) -> [Duration; 2] {
    let part = limit / 15;
    [(2 * part).min(FIRST_ANSWER * FIRST_ANSWERS), part.saturating_mul(10)]
}

/// Where one of these files can be read. All have the same content.
fn find_source(files: Vec<Mapped>) -> Source {
    let mut has_changed = false;
    for file in files {
        if file.module.path == VDSO {
            if let Some(bytes) = vdso_of(file.pid) {
                return Source::Bytes(bytes);
            }
        } else if let Some(path) = file.find() {
            return Source::Path(path);
        } else {
            has_changed = has_changed || file.has_changed();
        }
    }
    if has_changed { Source::Changed } else { Source::Nowhere }
}

fn open(source: Source, id: &ModuleId) -> Option<Mutex<Symbols>> {
    let symbols = match source {
        Source::Path(path) => Symbols::open(&path, id).ok(),
        Source::Bytes(bytes) => Symbols::parse(&bytes).ok(),
        Source::Changed | Source::Nowhere => None,
    };
    symbols.map(Mutex::new)
}

/// What the loader needs of one of these files.
fn find_exports(files: &[Mapped]) -> Option<Mutex<Symbols>> {
    files.iter().find_map(|file| {
        let (memory, maps) = (Memory { pid: file.pid }, Maps::of_process(file.pid).ok()?);
        let mut bases = maps.files().filter(|(key, _)| key.path == file.module.path).map(|(_, base)| base);
        let base = bases.find(|base| identify_at(memory, *base).as_ref() == Some(&file.module.id))?;
        let functions = exports_of(memory, base)?.into_iter().filter(|export| export.is_function);
        let functions = functions.map(|export| (export.name, export.address, export.size));
        Some(Mutex::new(Symbols::of_functions(functions)))
    })
}

fn vdso_of(pid: i32) -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let line = maps.lines().find(|line| line.ends_with(VDSO))?;
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    Memory { pid }.read_exactly(start, usize::try_from(end - start).ok()?)
}

#[cfg(test)]
mod tests {
    use gantry_backend::Rank;

    use super::*;

    #[test]
    fn a_file_that_is_not_read_in_time_is_named_and_its_functions_have_names_in_the_next_order() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let maps = Maps::of_process(pid).unwrap();
        let (key, base) = maps.files().find(|(key, _)| key.path.contains("libc.")).unwrap();
        let module = Module { id: identify_at(Memory { pid }, base).unwrap(), path: key.path.clone() };
        let address = libc::getppid as unsafe extern "C" fn() -> i32 as usize as u64 - base;
        let place = Frame::Code { module: module.id.clone(), address }.to_string();
        let node: RankSet = [Rank(0)].into_iter().collect();

        let mut names = LookUp::new();
        let (source, id) = (Source::Path(PathBuf::from(&module.path)), module.id.clone());
        let (symbols, go_on) = Aside::hung(&names.symbols, move || open(source, &id));
        let (source, exports) = (Aside::new(&names.first_answer), Aside::new(&names.first_answer));
        names.files.insert(module.id.clone(), File { source, symbols, exports });
        let request = format!("60000\n{place}");
        let check = |names: &mut LookUp, expected: Option<&str>| {
            let tree = names.find(&request, std::iter::once(&module), &[pid], &node).unwrap();
            let child = |name: &str| {
                let parent = tree.outermost().find(|it| it.name() == name)?;
                Some(parent.calls().next().unwrap().name().to_owned())
            };
            assert_eq!(child(&module.to_text()).as_deref(), expected);
            assert!(child(&place).unwrap().contains("getppid"), "exports have names meanwhile");
        };
        check(&mut names, Some("is not read in time"));
        names.files[&module.id].symbols.arrive(&go_on);
        // The other addresses of the order get the same answer.
        check(&mut names, Some("is not read in time"));
        names.begin_order();
        check(&mut names, None);
        assert!(names.files.is_empty());
    }
    #[test]
    fn waits_in_vain_end_before_the_tools() {
        for limit in [1, 15_000, 60_000, u64::MAX].map(Duration::from_millis) {
            let [first_answer, symbols] = shares_of(limit);
            assert!(first_answer.saturating_add(symbols) < limit && 2 * symbols >= limit, "{limit:?}");
        }
    }
}
