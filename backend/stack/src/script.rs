//! Interpreters of scripts: the variables of a script are not in the frames of the interpreter.

/// Interpreters, by the beginning of their files' names.
const INTERPRETERS: [&str; 12] = [
    "libR.",
    "liblua",
    "liboctinterp.",
    "libperl.",
    "libpypy",
    "libpython",
    "libruby",
    "lua",
    "perl",
    "pypy",
    "python",
    "ruby",
];

/// The program of R.
const R: &str = "R";

/// The variables of a script that a thread is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variables {
    /// It is in no script.
    Absent,
    /// A hash of them, and of the places in the script.
    Known(u64),
    /// They cannot be read, or were not.
    Unknown,
}

impl Variables {
    /// Whether these are certainly the variables of the sample before.
    pub(crate) fn are_those(self, before: Self) -> bool {
        self == before && self != Self::Unknown
    }
}

/// Whether a file's name resembles an interpreter's.
pub(crate) fn is_interpreter(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name == R || INTERPRETERS.iter().any(|it| name.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_are_known_by_their_files() {
        for path in [
            "/usr/bin/python3.11",
            "/opt/lib/libpython3.8.so.1.0",
            "/usr/lib/R/bin/exec/R",
            "/usr/lib/R/lib/libR.so",
        ] {
            assert!(is_interpreter(path), "{path}");
        }
        for path in ["/home/me/Run", "/usr/lib/libc.so.6", "/usr/lib/libRmath.so"] {
            assert!(!is_interpreter(path), "{path}");
        }
        assert!(INTERPRETERS.is_sorted());
    }

    #[test]
    fn unknown_variables_may_have_changed() {
        use Variables::{Absent, Known, Unknown};
        assert!(Known(7).are_those(Known(7)) && Absent.are_those(Absent));
        assert!(!Known(7).are_those(Known(8)) && !Known(7).are_those(Absent) && !Unknown.are_those(Unknown));
    }
}
