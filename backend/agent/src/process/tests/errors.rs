//! A batch that cannot start leaves nothing behind and names its cause.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::process::error::{HoldFailure, StartError};
use crate::process::hold::{Hold, StartFailure};
use crate::process::spawn::ProcessSpec;
use crate::process::test_support::*;
use gantry_types::error::Kind;

/// The failure of the second of three ranks, held and not held, and of a process that is started alone.
#[track_caller]
fn check_failure(bad: impl Fn() -> ProcessSpec, kind: Kind, word: &str) {
    let good = || shell("exec sleep 1000");
    for hold in [Hold::AtEntry, Hold::No] {
        let failure: StartFailure = start(vec![good(), bad(), good()], hold).unwrap_err();
        assert_eq!((failure.index, failure.error.kind()), (1, kind), "{failure:?}");
        check_words(&failure, word);
    }
    let failure = start_one(bad()).unwrap_err();
    assert_eq!((failure.index, failure.error.kind()), (0, kind), "{failure:?}");
    check_words(&failure, word);
}

#[track_caller]
fn check_words(failure: &StartFailure, word: &str) {
    let said = format!("{}; {}", failure.error, failure.error.hint().unwrap_or_default());
    assert!(said.contains(word), "{said}");
    assert_no_child();
}

#[test]
fn each_cause_is_named_and_no_process_is_left() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8], mode| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let check = |name: &str, content: &[u8], mode, kind, word: &str| {
        let path = file(name, content, mode);
        check_failure(|| spec(&path, &[]), kind, word);
    };
    check_failure(|| spec("/no/such/program", &[]), Kind::NotFound, "there is no such file");
    check_failure(|| spec("/etc", &[]), Kind::Invalid, "\"/etc\" is a directory");
    check_failure(|| spec("/etc/passwd/x", &[]), Kind::NotFound, "there is no such file");
    check("a", b"#!/no/such/sh\n", 0o755, Kind::NotFound, "its interpreter \"/no/such/sh\" is not there");
    check("b", b"#!/bin/sh\n", 0o644, Kind::NoAccess, "not executable");
    check("c", b"echo hi\n", 0o755, Kind::Invalid, "neither an ELF file nor a script");
    check("d", b"", 0o755, Kind::Invalid, "an empty file");

    let mut elf = fs::read("/bin/true").unwrap();
    let (machine, name) = if cfg!(target_arch = "x86_64") { (183, "aarch64") } else { (62, "x86_64") };
    elf[18] = machine;
    let word = format!("built for {name}, this node is {}", std::env::consts::ARCH);
    check("e", &elf, 0o755, Kind::Unsupported, &word);

    let program = compile(folder.path(), "f", "int main(void) { return 0; }", &["-Wl,-I/no/such/ld.so"]);
    check_failure(|| spec(&program, &[]), Kind::NotFound, "its interpreter \"/no/such/ld.so\"");

    let in_nowhere = || ProcessSpec { cwd: Some(c"/no/such/place".to_owned()), ..shell("exit 0") };
    check_failure(in_nowhere, Kind::NotFound, "change to directory \"/no/such/place\"");

    let busy = file("g", &fs::read("/bin/true").unwrap(), 0o755);
    let writing = fs::File::options().append(true).open(&busy).unwrap();
    check_failure(|| spec(&busy, &[]), Kind::NoAccess, "open for writing");
    drop(writing);

    let long = "x".repeat(1 << 20);
    check_failure(|| shell(&long), Kind::Invalid, "longer than the system allows");
}

#[test]
fn a_program_that_the_kernel_kills_while_loading_is_reported_as_dead() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    // A loadable segment in the kernel's part of the address space.
    let program = compile(folder.path(), "high", "int main(void) { return 0; }", &["-static", "-no-pie"]);
    let mut elf = fs::read(&program).unwrap();
    let headers = usize::try_from(u64::from_le_bytes(elf[32..40].try_into().unwrap())).unwrap();
    for index in 0..usize::from(elf[56]) {
        let at = headers + index * 56;
        if elf[at] == 1 {
            elf[at + 16..at + 24].copy_from_slice(&0xffff_8000_0000_0000_u64.to_le_bytes());
        }
    }
    fs::write(&program, elf).unwrap();
    let failure = start(vec![spec(&program, &[])], Hold::AtEntry).unwrap_err();
    assert!(matches!(failure.error, StartError::Hold { source: HoldFailure::Ended(_), .. }), "{failure:?}");
    assert_no_child();
}

#[test]
fn an_empty_batch_starts() {
    let _turn = turn();
    assert_eq!(start(Vec::new(), Hold::AtEntry).unwrap(), []);
    assert_no_child();
}
