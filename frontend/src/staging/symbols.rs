//! The symbols that a program or library defines. Only its tables are read.

use std::fs::File;
use std::path::Path;

use object::read::{Object, ObjectSymbol, ReadCache};

use super::find::executable_file;
use crate::error::{Error, Result};

/// Whether the executable `program` defines all of `names` in its symbol tables, the full one or that of the loader.
///
/// # Errors
/// It is not a readable executable file, or not an ELF file.
pub fn defines_all<S: AsRef<[u8]>>(program: &Path, names: &[S]) -> Result<bool> {
    Ok(find_defined(program, names)?.into_iter().all(|found| found))
}

/// Whether the executable `program` defines any of `names`.
///
/// # Errors
/// As [`defines_all`].
pub fn defines_any<S: AsRef<[u8]>>(program: &Path, names: &[S]) -> Result<bool> {
    Ok(find_defined(program, names)?.into_iter().any(|found| found))
}

/// Whether the executable or library at `path` imports `name` from a library.
///
/// # Errors
/// It cannot be read, or is not an ELF file.
pub(crate) fn takes(path: &Path, name: &[u8]) -> Result<bool> {
    let failed = |e| Error::io(format!("cannot read {}", path.display()), e);
    let cache = ReadCache::new(File::open(path).map_err(failed)?);
    let file = object::File::parse(&cache).map_err(|why| {
        Error::invalid(format!("{} has no symbols that can be read: {why}", path.display()))
    })?;
    Ok(file.dynamic_symbols().any(|symbol| symbol.is_undefined() && symbol.name_bytes() == Ok(name)))
}

fn find_defined<S: AsRef<[u8]>>(program: &Path, names: &[S]) -> Result<Vec<bool>> {
    let path = executable_file(program)?;
    let failed = |e| Error::io(format!("cannot read {}", path.display()), e);
    let cache = ReadCache::new(File::open(&path).map_err(failed)?);
    let file = object::File::parse(&cache).map_err(|why| Error::Invalid {
        message: format!("{} has no symbols that can be read: {why}", path.display()),
        hint: Some("name an ELF file".to_owned()),
    })?;
    let mut found = vec![false; names.len()];
    for symbol in file.symbols().chain(file.dynamic_symbols()).filter(|symbol| !symbol.is_undefined()) {
        let Ok(name) = symbol.name_bytes() else { continue };
        for (found, wanted) in found.iter_mut().zip(names) {
            *found |= wanted.as_ref() == name;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defined_symbols_of_a_program_and_of_no_program() {
        let own = std::env::current_exe().unwrap();
        assert!(defines_all(&own, &["main"]).unwrap());
        assert!(!defines_all(&own, &["main", "no_such_symbol"]).unwrap());
        assert!(defines_any(&own, &["main", "no_such_symbol"]).unwrap());
        // Every program uses it, and the C library defines it.
        assert!(!defines_any(&own, &["malloc"]).unwrap());
        assert!(takes(&own, b"malloc").unwrap() && !takes(&own, b"main").unwrap());
        assert!(defines_all::<&str>(&own, &[]).unwrap());
        assert!(defines_any(Path::new("/etc/passwd"), &["main"]).is_err());
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let error = defines_any(&script, &["main"]).unwrap_err();
        assert_eq!(error.kind(), gantry_types::error::Kind::Invalid);
    }
}
