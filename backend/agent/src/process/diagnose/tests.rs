//! The wording of causes, with real files where the cause depends on files.

use super::*;
use crate::testing::{IN_NAMESPACE, rerun_with_mount};
use gantry_types::error::Kind;

#[track_caller]
fn check_head(head: &[u8], expected: &Head) {
    assert_eq!(&parse_head(head), expected);
}

#[test]
fn the_head_of_a_file_says_what_it_is() {
    check_head(b"#!/bin/sh\nexit", &Head::Script("/bin/sh".into()));
    check_head(b"#! \t/usr/bin/env  python3\n", &Head::Script("/usr/bin/env".into()));
    check_head(b"#!/bin/sh\r\n", &Head::Script("/bin/sh\r".into()));
    check_head(b"#!\n", &Head::Other("a script whose #! names no interpreter"));
    check_head(b"", &Head::Other("an empty file"));
    check_head(b"echo hi\n", &Head::Other("neither an ELF file nor a script that starts with #!"));
    check_head(b"\x7fELF\x02\x01", &Head::Elf);
}

fn foreign_elf(machine: u64) -> Vec<u8> {
    let mut elf = vec![0; 64];
    elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    elf[16] = 2;
    elf[18..20].copy_from_slice(&machine.to_le_bytes()[..2]);
    elf[20] = 1;
    elf
}

#[track_caller]
fn check_file(content: &[u8], mode: u32, errno: i32, kind: Kind, word: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    let error = explain_exec(Path::new("./program"), Some(folder.path()), errno);
    let text = format!("{error}; {}", error.hint().unwrap_or_default());
    assert!(text.contains(word), "{text}");
    assert_eq!(error.kind(), kind, "{text}");
}

#[test]
fn an_exec_failure_names_its_cause() {
    let other = if NODE_MACHINE == 62 { 183 } else { 62 };
    let built_for = format!("built for {}, this node is {}", machine_name(other), std::env::consts::ARCH);
    check_file(&foreign_elf(other), 0o755, libc::ENOEXEC, Kind::Unsupported, &built_for);
    check_file(&foreign_elf(999), 0o755, libc::ENOEXEC, Kind::Unsupported, "built for machine type 999");
    check_file(b"", 0o755, libc::ENOEXEC, Kind::Invalid, "an empty file");
    check_file(b"\x7fELF\x02\x01", 0o755, libc::ENOEXEC, Kind::Invalid, "a damaged ELF file");
    check_file(b"echo", 0o755, libc::ENOEXEC, Kind::Invalid, "#!/bin/sh");
    check_file(b"#!/no/such/sh\n", 0o755, libc::ENOENT, Kind::NotFound, "interpreter \"/no/such/sh\"");
    check_file(b"#!/bin/sh\r\n", 0o755, libc::ENOENT, Kind::NotFound, "DOS line ends");
    check_file(b"#!/bin/sh\n", 0o644, libc::EACCES, Kind::NoAccess, "chmod +x");
    check_file(b"#!/etc/passwd\n", 0o755, libc::EACCES, Kind::NoAccess, "\"/etc/passwd\" is not executable");
    check_file(b"#!/bin\n", 0o755, libc::EACCES, Kind::Invalid, "\"/bin\" is a directory");
    check_file(b"", 0o755, libc::ETXTBSY, Kind::NoAccess, "open for writing");
    check_file(b"", 0o755, libc::E2BIG, Kind::Invalid, "arguments");
    check_file(b"", 0o755, libc::ENOMEM, Kind::System, "program");
}

#[test]
fn a_missing_program_is_told_from_a_missing_interpreter() {
    let error = explain_exec(Path::new("/no/such/program"), None, libc::ENOENT);
    assert!(matches!(error, StartError::ProgramMissing { .. }), "{error}");
    let error = explain_exec(Path::new("/dev/null"), None, libc::EACCES);
    assert!(matches!(error, StartError::NotRegular { .. }), "{error}");
}

#[test]
fn a_noexec_mount_is_named() {
    // The place of such a mount differs. Most systems have one that every user may write to.
    let noexec = |place: &&str| {
        statvfs(*place).is_ok_and(|fs| fs.flags().contains(FsFlags::ST_NOEXEC))
            && access(*place, AccessFlags::W_OK).is_ok()
    };
    let places = ["/dev/shm", "/run/lock", "/tmp", "/run", "/sys/fs/cgroup"];
    let Some(place) = places.iter().find(|place| noexec(place) && tempfile::tempdir_in(place).is_ok()) else {
        assert!(!std::env::args().any(|arg| arg == IN_NAMESPACE), "the mount is not seen");
        return rerun_with_mount(
            "process::diagnose::tests::a_noexec_mount_is_named",
            "mount -t tmpfs -o noexec tmpfs /dev/shm",
        );
    };
    let folder = tempfile::tempdir_in(place).unwrap();
    let path = folder.path().join("program");
    std::fs::write(&path, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let error = explain_exec(&path, None, libc::EACCES);
    assert!(matches!(error, StartError::NoexecMount { .. }), "{error}");
    assert!(error.hint().unwrap().contains("noexec"));
}

#[test]
fn the_loader_of_an_elf_file_is_found() {
    let loader = interpreter(Path::new("/bin/sh")).unwrap();
    assert!(loader.is_file(), "{loader:?}");
    assert_eq!(interpreter(&loader), None);
}
