//! Becomes another program.
//!
//! The shim before each rank does so. [`std::process::Command`] would copy every variable twice and sort them all,
//! which takes longer than the rest of what the shim does.

use std::borrow::Cow;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;

use super::sys;

/// The variables of this process, as names and values.
pub(crate) fn variables() -> Vec<(&'static OsStr, &'static OsStr)> {
    sys::environment().into_iter().filter_map(|entry| split(entry.to_bytes())).collect()
}

/// An entry without a name is none.
fn split(entry: &[u8]) -> Option<(&OsStr, &OsStr)> {
    let name = entry.iter().position(|&byte| byte == b'=').filter(|&length| length > 0)?;
    let (name, value) = entry.split_at_checked(name)?;
    Some((OsStr::from_bytes(name), OsStr::from_bytes(value.get(1..)?)))
}

/// The environment of the program.
pub(crate) struct Environment(Vec<Cow<'static, CStr>>);

impl Environment {
    /// A copy of this process's own.
    pub(crate) fn inherit() -> Self {
        Self(sys::environment().into_iter().map(Cow::Borrowed).collect())
    }

    /// Removes the variables with such names.
    pub(crate) fn remove(&mut self, is_meant: impl Fn(&OsStr) -> bool) {
        self.0.retain(|entry| split(entry.to_bytes()).is_none_or(|(name, _)| !is_meant(name)));
    }

    /// Removes the variable of this name.
    pub(crate) fn unset(&mut self, name: &OsStr) {
        let is_meant =
            |entry: &[u8]| entry.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
        self.0.retain(|entry| !is_meant(entry.to_bytes()));
    }

    /// Sets a variable.
    ///
    /// # Errors
    /// There is a zero byte in it.
    pub(crate) fn set(&mut self, name: &OsStr, value: &OsStr) -> io::Result<()> {
        self.unset(name);
        let entry = [name.as_bytes(), b"=", value.as_bytes()].concat();
        self.0.push(CString::new(entry)?.into());
        Ok(())
    }
}

/// Becomes `program`, which is found as by the C library's execvp in the PATH of `environment`.
///
/// Call it while there is one thread. Returns only the failure.
pub(crate) fn become_program(program: &OsStr, args: &[OsString], environment: &Environment) -> io::Error {
    let to_c = |word: &OsStr| CString::new(word.as_bytes());
    let words = [program].into_iter().chain(args.iter().map(OsString::as_os_str));
    let argv: Result<Vec<CString>, _> = words.map(to_c).collect();
    match to_c(program).and_then(|program| Ok((program, argv?))) {
        Ok((program, argv)) => sys::exec(&program, &argv, &environment.0),
        Err(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::testing::rerun_alone;

    fn environment(entries: &[&'static CStr]) -> Environment {
        Environment(entries.iter().copied().map(Cow::Borrowed).collect())
    }

    #[track_caller]
    fn check(found: &Environment, expected: &[&CStr]) {
        assert_eq!(found.0.iter().map(AsRef::as_ref).collect::<Vec<&CStr>>(), expected);
    }

    #[test]
    fn only_variables_of_that_whole_name_are_replaced_or_removed() {
        let mut found = environment(&[c"A=1", c"AB=2", c"none", c"=", c"A=3", c"C==A"]);
        found.set("A".as_ref(), "new = value".as_ref()).unwrap();
        check(&found, &[c"AB=2", c"none", c"=", c"C==A", c"A=new = value"]);
        found.remove(|name| name == "A" || name == "C" || name.is_empty());
        check(&found, &[c"AB=2", c"none", c"="]);
        ["none", "B", "AB"].into_iter().for_each(|name| found.unset(name.as_ref()));
        check(&found, &[c"none", c"="]);
        found.set("A".as_ref(), "1\x002".as_ref()).unwrap_err();
    }

    #[test]
    fn this_process_has_the_variables_that_the_standard_library_finds() {
        let expected: Vec<_> = std::env::vars_os().collect();
        let found = variables().into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_program_is_found_in_its_own_path_and_has_its_own_environment_alone() {
        if rerun_alone(
            "process::exec::tests::a_program_is_found_in_its_own_path_and_has_its_own_environment_alone",
        ) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        // This process becomes the script, so the script removes the folder.
        let script = "#!/bin/sh\n[ \"$0|$#|$1|$2|$A\" = \"$OWN|2||b c|1\" ] && [ -z \"$HOME\" ] && echo 1 passed\n\
            /bin/rm -r \"${OWN%/*}\"\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let mut other = environment(&[c"A=1"]);
        other.set("PATH".as_ref(), folder.path().as_ref()).unwrap();
        other.set("OWN".as_ref(), program.as_ref()).unwrap();
        let missing = become_program("gantry-missing".as_ref(), &[], &other);
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let own = variables().into_iter().find(|(name, _)| *name == "PATH");
        assert!(own.is_some_and(|(_, path)| path != folder.path()), "ours is as before");
        panic!("{}", become_program("program".as_ref(), &["".into(), "b c".into()], &other));
    }
}
