//! Changes environment variables of a held process, and arguments of this one, where the kernel has put them.
//!
//! The number of a rank in an MPI world of several apps is known only when the last app is there. By then the rank is
//! held and its environment exists. The rank has run no instruction, so it has not read its environment yet. A new
//! value is never longer than the old one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::procfs::{read_arguments_range, read_environment_range};

/// The most bytes of an environment that are searched. The kernel's own limit is lower by default.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Changes the values of environment variables of a held process.
///
/// # Errors
/// The process lacks a variable, or has no room for a value; its memory cannot be written.
pub(crate) fn change_variables(pid: i32, changes: &[(&str, String)]) -> io::Result<()> {
    let (start, end) = read_environment_range(pid)?;
    let bytes = end.checked_sub(start).filter(|bytes| *bytes <= MAX_BYTES);
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok()).ok_or(io::ErrorKind::InvalidData)?;
    let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
    let mut environment = vec![0; bytes];
    memory.read_exact_at(&mut environment, start)?;
    for (name, value) in changes {
        let change = build_change(&environment, name, value);
        let (at, value) = change.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("its environment has no room for {name}"))
        })?;
        memory.write_all_at(&value, start + at as u64)?;
    }
    Ok(())
}

/// Replaces this process's arguments behind the first, which is the program's name. `ps` shows the new ones.
///
/// # Errors
/// The process's memory cannot be written.
pub(crate) fn replace_arguments(argument: &str) -> io::Result<()> {
    let (start, end) = read_arguments_range(std::process::id().cast_signed())?;
    let bytes = end.checked_sub(start).filter(|bytes| *bytes <= MAX_BYTES);
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok()).ok_or(io::ErrorKind::InvalidData)?;
    let memory = File::options().read(true).write(true).open("/proc/self/mem")?;
    let mut all = vec![0; bytes];
    memory.read_exact_at(&mut all, start)?;
    let name = all.iter().position(|byte| *byte == 0).map_or(bytes, |end| end + 1);
    // The last byte stays 0: otherwise the kernel shows the environment, too.
    let mut new: Vec<u8> = argument.bytes().take((bytes - name).saturating_sub(1)).collect();
    new.resize(bytes - name, 0);
    memory.write_all_at(&new, start + name as u64)
}

/// Offset of the variable's value, and its new bytes. Zeros fill the rest of the old value.
fn build_change(environment: &[u8], name: &str, value: &str) -> Option<(usize, Vec<u8>)> {
    let mut at = 0;
    for variable in environment.split(|byte| *byte == 0) {
        let old = variable.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
        if let Some(old) = old {
            let mut new = value.as_bytes().to_vec();
            let fits = new.len() <= old.len();
            new.resize(old.len(), 0);
            return fits.then_some((at + variable.len() - old.len(), new));
        }
        at += variable.len() + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::ExitStatus;
    use super::super::test_support::{assert_no_child, hold_one, release_and_wait, shell, turn};
    use super::*;

    #[test]
    fn a_held_process_finds_the_new_value_and_nothing_else_changed() {
        let _turn = turn();
        let script =
            "[ $NUMBER = 41 ] && [ $AFTER = there ] && [ $GREETING = hello ] && exec sh -c 'exit $NUMBER'";
        let mut spec = shell(script);
        spec.env.extend([c"NUMBER=0000000000".to_owned(), c"AFTER=there".to_owned()]);
        let rank = hold_one(spec);
        change_variables(rank.process.pid, &[("NUMBER", "41".to_owned())]).unwrap();
        let refused = change_variables(rank.process.pid, &[("OTHER", "1".to_owned())]).unwrap_err();
        assert_eq!(refused.to_string(), "its environment has no room for OTHER");
        assert_eq!(release_and_wait(&rank), ExitStatus::Code(41));
        assert_no_child();
    }

    #[test]
    fn a_value_is_found_and_fits_or_is_refused() {
        let environment = b"PMI_RANKS=1\0PMI_RANK=0000000000\0X=PMI_RANK=7\0";
        let check = |name, value, expected: Option<(usize, &[u8])>| {
            let change = build_change(environment, name, value);
            assert_eq!(change, expected.map(|(at, new)| (at, new.to_vec())), "{name}={value}");
        };
        check("PMI_RANK", "12", Some((21, b"12\0\0\0\0\0\0\0\0")));
        check("PMI_RANKS", "9", Some((10, b"9")));
        check("PMI_RANKS", "10", None);
        check("PMI_SIZE", "1", None);
        assert_eq!(build_change(b"", "A", ""), None);
    }
}
