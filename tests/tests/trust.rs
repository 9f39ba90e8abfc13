//! Other users of the machine put files where gantry looks: none is executed, and errors name the file and the remedy.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_tests::fault::Tool;
use gantry_tests::{World, binaries, skip, within};

const LIMIT: Duration = Duration::from_secs(90);

/// Another user: not root, and not the one who runs the tests.
const OTHER: u32 = 65533;

/// A script of the other user, which tells in `mark` that it ran. Its directory is the other user's as well.
fn plant(folder: &Path, name: &str, mark: &Path) -> PathBuf {
    std::fs::create_dir_all(folder).expect("a folder");
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\nid -u >{}\n", mark.display())).expect("a script");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("a mode");
    for planted in [path.as_path(), folder] {
        chown(planted, Some(OTHER), Some(OTHER)).expect("another owner");
    }
    path
}

/// A tool in `build.1`, as somebody has it who unpacked it in a shared directory.
fn tool_beside(world: &World) -> PathBuf {
    let folder = world.work_dir().join("build.1");
    std::fs::create_dir(&folder).expect("a folder");
    #[expect(clippy::disallowed_methods, reason = "a test starts foreign programs")]
    let mut copy = std::process::Command::new("cp");
    let copied = copy.arg(binaries().dir.join("fault_tool")).arg(&folder).status().expect("cp");
    assert!(copied.success());
    folder.join("fault_tool")
}

#[test]
fn a_helper_that_another_user_has_planted_is_not_executed() {
    if !nix::unistd::geteuid().is_root() {
        skip!("only root can make another user's files");
    }
    within(LIMIT, || {
        let world = World::new();
        let program = tool_beside(&world);
        let (libexec, mark) = (world.work_dir().join("libexec/gantry"), world.work_dir().join("ran"));
        for name in ["gantry-guard", "gantry-agent"] {
            plant(&libexec, name, &mark);
        }
        let mut tool = Tool::spawn(&world, world.command(&program));
        let error = tool.refused("hold /bin/true");
        let said = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        assert_eq!(said("kind"), "no-access", "{error}");
        let why = format!("{} belongs to user {OTHER}", libexec.display());
        assert!(said("message").contains(&why), "{error}");
        assert!(said("hint").contains(&format!("'chown' {}", libexec.display())), "{error}");
        // It is passed over where another one can be used.
        let mut command = world.command(&program);
        command.env("GANTRY_INSTALL_DIR", &binaries().dir);
        let mut tool = Tool::spawn(&world, command);
        tool.ask("hold /bin/true");
        tool.ask("close");
        assert!(!mark.exists(), "the planted helper ran");
    });
}
