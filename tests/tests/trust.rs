//! Other users of the machine put files where gantry looks. gantry must execute none of them, and errors must name
//! the file and the remedy.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_tests::fault::Tool;
use gantry_tests::{SOON, World, binaries, skip, within};

const LIMIT: Duration = Duration::from_secs(90);

/// Another user: neither root nor the user who runs the tests.
const OTHER: u32 = 65533;

/// A script of the other user, which records in `mark` that it ran. Its directory belongs to the other user too.
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

/// A tool in `build.1`, as if unpacked in a shared directory.
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
        // gantry skips the planted helper if it can use another one.
        let mut command = world.command(&program);
        command.env("GANTRY_INSTALL_DIR", &binaries().dir);
        let mut tool = Tool::spawn(&world, command);
        tool.ask("hold /bin/true");
        tool.ask("close");
        assert!(!mark.exists(), "the planted helper ran");
    });
}

/// A separate user that no other test uses.
struct User {
    uid: u32,
    home: PathBuf,
}

impl User {
    fn new(world: &World) -> Self {
        let uid = 1_000_000 + std::process::id();
        let home = world.work_dir().join("home");
        std::fs::create_dir(&home).expect("a home");
        chown(&home, Some(uid), Some(uid)).expect("an owner");
        for open in [world.path(), &world.work_dir()] {
            std::fs::set_permissions(open, PermissionsExt::from_mode(0o755)).expect("a mode");
        }
        Self { uid, home }
    }

    /// This user's runtime directory, or why there is none.
    fn runtime_dir(&self, world: &World, home: &Path) -> String {
        let mut command = world.command("setpriv");
        command
            .args([format!("--reuid={}", self.uid), format!("--regid={}", self.uid)])
            .arg("--clear-groups");
        command.arg("--").arg(&binaries().gantry).arg("doctor").current_dir("/");
        command.env_remove("GANTRY_RUNTIME_DIR").env("HOME", home);
        let done = world.spawn(command).wait(SOON);
        let text = format!("{}{}", done.stdout.join("\n"), done.stderr.join("\n"));
        let line = text.lines().position(|line| line.contains("runtime directory"));
        let lines: Vec<&str> =
            text.lines().skip(line.unwrap_or_else(|| panic!("{done:?}"))).take(3).collect();
        lines.join(" ")
    }
}

#[test]
fn a_runtime_directory_that_another_user_has_taken_is_done_without() {
    if !nix::unistd::geteuid().is_root() {
        skip!("only root can make another user's files");
    }
    within(LIMIT, || {
        let world = World::new();
        let user = User::new(&world);
        let usual = PathBuf::from(format!("/tmp/gantry-runtime-{}", user.uid));
        std::fs::create_dir(&usual).expect("it is taken");
        chown(&usual, Some(OTHER), None).expect("another owner");
        let nowhere = user.runtime_dir(&world, Path::new("/nowhere"));
        assert!(nowhere.contains(&format!("belongs to user {OTHER}")), "{nowhere}");
        assert!(nowhere.contains("GANTRY_RUNTIME_DIR"), "{nowhere}");
        let found = user.runtime_dir(&world, &user.home);
        let own = format!("{}/.gantry-runtime-", user.home.display());
        assert!(found.contains(&own), "{found}");
        // The user's own directory stays in use when the usual one is free again, so that served apps are still
        // found.
        std::fs::remove_dir(&usual).expect("it is free again");
        let again = user.runtime_dir(&world, &user.home);
        assert!(again.contains(&own) && !usual.exists(), "{again}");
    });
}

#[test]
fn an_agent_removes_nothing_but_itself() {
    within(LIMIT, || {
        let world = World::new();
        let folder = world.work_dir().join("gantry-agent-mine");
        std::fs::create_dir(&folder).expect("a folder");
        let precious = folder.join("precious");
        std::fs::write(&precious, "mine").expect("a file");
        let told = |program: &Path, sent: &Path| {
            let mut command = world.command(program);
            command.args(["ranks", "0"]).env("GANTRY_SENT_AGENT", sent);
            world.spawn(command).wait(SOON)
        };
        let link = folder.join("link");
        std::os::unix::fs::symlink(&binaries().agent, &link).expect("a link");
        for named in [&precious, &link] {
            told(&binaries().agent, named);
            assert!(std::fs::symlink_metadata(named).is_ok(), "{} is gone", named.display());
        }
        std::fs::remove_file(&precious).and_then(|()| std::fs::remove_file(&link)).expect("they are there");
        let sent = folder.join("gantry-agent");
        #[expect(clippy::disallowed_methods, reason = "a test starts foreign programs")]
        let copied = std::process::Command::new("cp").arg(&binaries().agent).arg(&sent).status().expect("cp");
        assert!(copied.success());
        told(&sent, &sent);
        assert!(!folder.exists(), "what was sent is still there");
    });
}
