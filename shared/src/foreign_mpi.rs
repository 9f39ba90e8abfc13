//! MPI libraries that do not speak PMI: ranks that gantry starts find each other by PMIx, or not at all.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// An MPI library that needs PMIx, or a launcher of its own.
#[derive(Debug, PartialEq, Eq)]
pub struct ForeignMpi {
    /// The prefix of a library's file name that no other MPI has.
    mark: &'static str,
    /// The prefix of its MPI library's file name.
    library: &'static str,
    /// Its vendor.
    pub vendor: &'static str,
    /// Whether it speaks PMIx, which gantry serves.
    pub pmix: bool,
    /// What its user should do where PMI is served.
    pub remedy: &'static str,
}

const LIBRARIES: [ForeignMpi; 2] = [
    ForeignMpi {
        mark: "libopen-pal.so",
        library: "libmpi.so",
        vendor: "Open MPI",
        pmix: true,
        remedy: "ask for PMIx by --mpi pmix before the program, or name its launcher: --launcher mpirun",
    },
    ForeignMpi {
        mark: "libmpi_cray.so",
        library: "libmpi_cray.so",
        vendor: "Cray MPI",
        pmix: false,
        remedy: "name the launcher of your site by --launcher",
    },
];

/// The first of these libraries that a program with these file names of libraries has, and the name of its MPI library.
pub fn find_foreign_mpi<'a>(names: &[&'a OsStr]) -> Option<(&'a OsStr, &'static ForeignMpi)> {
    let find = |begin: &str| names.iter().find(|name| name.as_bytes().starts_with(begin.as_bytes()));
    LIBRARIES.iter().find_map(|it| Some((*find(it.mark).and(find(it.library))?, it)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vendor_is_known_by_its_own_library_beside_that_of_mpi() {
        let find = |names: &[&str]| {
            let names: Vec<&OsStr> = names.iter().map(OsStr::new).collect();
            find_foreign_mpi(&names).map(|(name, it)| (name.to_str().unwrap().to_owned(), it.vendor))
        };
        assert_eq!(find(&["libc.so.6", "libmpi.so.12"]), None);
        assert_eq!(find(&["libopen-pal.so.40"]), None, "mpirun");
        let open = Some(("libmpi.so.40".to_owned(), "Open MPI"));
        assert_eq!(find(&["libmpi.so.40", "libopen-pal.so.40"]), open);
        assert_eq!(find(&["libmpi_cray.so.12"]), Some(("libmpi_cray.so.12".to_owned(), "Cray MPI")));
    }
}
