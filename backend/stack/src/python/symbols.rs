//! The interpreter's addresses in a program or library.

use std::ops::Range;
use std::path::Path;

use object::read::ReadCache;
use object::{Object, ObjectSegment, ObjectSymbol};

use crate::exports::Export;

/// The evaluation loop. Compilers move its rare parts elsewhere, under names with this prefix.
const MACHINE: &str = "_PyEval_EvalFrameDefault";

/// Addresses as in the file's symbols.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Interpreter {
    pub(super) runtime: u64,
    /// The type of code objects.
    pub(super) code_type: u64,
    /// The version's number, since 3.11.
    pub(super) version: Option<u64>,
    /// The minor version in the file's name. Before 3.11 it stands only there.
    pub(super) minor_by_name: Option<u32>,
    /// The address of the file's beginning.
    pub(super) first: u64,
    machine: Vec<Range<u64>>,
}

/// Whether a file's name resembles an interpreter's.
pub(super) fn may_have_one(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.starts_with("python") || name.starts_with("libpython")
}

impl Interpreter {
    /// Reads the file at `path`, which processes know as `name`.
    pub(super) fn of_file(path: &Path, name: &str) -> Option<Self> {
        if !std::fs::metadata(path).ok()?.is_file() {
            return None;
        }
        let cache = ReadCache::new(std::fs::File::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let symbols = file.dynamic_symbols().chain(file.symbols()).filter(ObjectSymbol::is_definition);
        let symbols =
            symbols.filter_map(|symbol| Some((symbol.name().ok()?, symbol.address(), symbol.size())));
        // Only mapped addresses can be read.
        let is_mapped = |address: u64| {
            file.segments()
                .any(|it| (it.address()..it.address().saturating_add(it.size())).contains(&address))
        };
        let beginning = file.segments().find(|segment| segment.file_range().0 == 0)?;
        Self::of_symbols(symbols.filter(|(_, address, _)| is_mapped(*address)), beginning.address(), name)
    }

    /// The same, of what a file exports.
    pub(super) fn of_exports(exports: Vec<Export>, first: u64, name: &str) -> Option<Self> {
        let symbols = exports.into_iter().map(|export| (export.name, export.address, export.size));
        Self::of_symbols(symbols, first, name)
    }

    /// By name, address and size of each symbol.
    fn of_symbols<S: AsRef<str>>(
        symbols: impl Iterator<Item = (S, u64, u64)>,
        first: u64,
        name: &str,
    ) -> Option<Self> {
        let (mut runtime, mut code_type, mut version) = (None, None, None);
        let mut machine = Vec::new();
        for (symbol, address, size) in symbols {
            match symbol.as_ref() {
                "_PyRuntime" => runtime = Some(address),
                "PyCode_Type" => code_type = Some(address),
                "Py_Version" => version = Some(address),
                name if name.starts_with(MACHINE) => machine.push(address..address.saturating_add(size)),
                _ => {}
            }
        }
        Some(Self {
            first,
            runtime: runtime?,
            code_type: code_type?,
            version,
            minor_by_name: minor_of(name),
            machine,
        })
    }

    /// Whether an instruction belongs to the interpreter's evaluation loop.
    pub(super) fn is_machine(&self, address: u64) -> bool {
        self.machine.iter().any(|range| range.contains(&address))
    }
}

/// The minor version in a name such as `libpython3.9.so.1.0`.
fn minor_of(path: &str) -> Option<u32> {
    let (_, rest) = path.rsplit('/').next()?.split_once("python3.")?;
    let digits = rest.len() - rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    rest[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_stands_in_the_name() {
        let check = |path, expected| assert_eq!(minor_of(path), expected, "{path}");
        check("/usr/lib/libpython3.9.so.1.0", Some(9));
        check("/opt/python3.9/bin/python3.10", Some(10));
        check("/usr/bin/python3", None);
        check("/usr/bin/python3.x", None);
        assert!(may_have_one("/usr/bin/python3.9") && may_have_one("/x/libpython3.11.so.1.0"));
        assert!(!may_have_one("/opt/python3.9/lib/libmpi.so"));
    }
}
