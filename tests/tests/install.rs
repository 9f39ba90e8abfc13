//! `cargo xtask install`: what it puts where. Small stand-ins take the places of what cargo and the linker make.

#![expect(clippy::unwrap_used, reason = "a test that finds something else fails")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use gantry_tests::{World, binaries, in_a_world};

const LIMIT: Duration = Duration::from_secs(120);

/// The programs that are copied, but for `gantry`, which writes completions and manual.
const PROGRAMS: [&str; 6] =
    ["gantry-mpir", "gantry-guard", "gantry-agent", "gantry-stackd", "gantry-gdbd", "gantry-ssh"];

/// A compiler that links nothing.
const CC: &str = "#!/bin/sh\nwhile [ \"$1\" != -o ]; do shift; done\necho a library >\"$2\"\n";

fn stage(world: &World) -> PathBuf {
    world.work_dir().join("stage")
}

/// Installs with a prefix of `/usr` into [`stage`].
fn install(world: &World, umask: &str, args: &[&str]) -> Output {
    let target = world.work_dir().join("target");
    let built = target.join("debug");
    if !built.is_dir() {
        fs::create_dir_all(&built).unwrap();
        PROGRAMS.iter().for_each(|name| fs::write(built.join(name), name).unwrap());
        symlink(&binaries().gantry, built.join("gantry")).unwrap();
        world.executable("cc", CC.as_bytes());
    }
    let mut command = world.command("/bin/sh");
    command.args(["-c", &format!("umask {umask} && exec \"$0\" \"$@\"")]);
    command.arg(binaries().dir.join("gantry-xtask"));
    command.args(["install", "--no-build", "--profile", "dev", "--prefix", "/usr", "--cc"]);
    command.arg(world.work_dir().join("cc")).arg("--destdir").arg(stage(world)).args(args);
    command.env("CARGO_TARGET_DIR", target).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn installed(world: &World, umask: &str, args: &[&str]) {
    let done = install(world, umask, args);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// All files and folders below a folder.
fn all_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() && !path.is_symlink() {
            found.extend(all_below(&path));
        }
        found.push(path);
    }
    found
}

#[test]
fn an_absolute_libdir_is_beneath_the_prefix_or_refused() {
    in_a_world(LIMIT, |world| {
        // Below the world's folder: where this fails, nothing of this machine is replaced.
        let elsewhere = world.work_dir().join("lib64").display().to_string();
        for wrong in [&*elsewhere, "../lib64"] {
            let refused = install(world, "022", &["--libdir", wrong]);
            let said = String::from_utf8_lossy(&refused.stderr);
            assert!(said.contains(&format!("the libdir {wrong} is not beneath the prefix /usr")), "{said}");
            assert!(!refused.status.success() && !stage(world).exists());
        }
        installed(world, "022", &["--libdir", "/usr/lib64"]);
        let libraries = stage(world).join("usr/lib64");
        for name in ["libcommontools_fe.so.2", "libcommontools_be.so.2", "libgantry_tm.so.0"] {
            assert_eq!(fs::read_to_string(libraries.join(name)).unwrap(), "a library\n");
        }
        let text = fs::read_to_string(libraries.join("pkgconfig/gantry_tm.pc")).unwrap();
        assert!(text.lines().any(|line| line == "libdir=${prefix}/lib64"), "{text}");
    });
}

#[test]
fn all_users_can_read_what_is_installed_whatever_the_umask_is() {
    in_a_world(LIMIT, |world| {
        for umask in ["077", "002"] {
            installed(world, umask, &[]);
            let mut all = all_below(&stage(world));
            all.push(stage(world));
            for path in all.iter().filter(|path| !path.is_symlink()) {
                let mode = fs::metadata(path).unwrap().permissions().mode() & 0o7777;
                let is_run = path.is_dir() || path.parent().unwrap().ends_with("lib") || is_program(path);
                assert_eq!(mode, if is_run { 0o755 } else { 0o644 }, "umask {umask}: {}", path.display());
            }
            fs::remove_dir_all(stage(world)).unwrap();
        }
    });
}

fn is_program(path: &Path) -> bool {
    ["bin", "libexec/gantry"].iter().any(|folder| path.parent().unwrap().ends_with(folder))
}

#[test]
fn completions_and_a_page_for_each_command_are_installed() {
    in_a_world(LIMIT, |world| {
        // A later installation replaces an earlier one, and takes nothing of one that was cut off.
        installed(world, "022", &[]);
        let share = stage(world).join("usr/share");
        fs::create_dir(share.join("man/man1/.new")).unwrap();
        fs::write(share.join("man/man1/.new/gantry-old.1"), "").unwrap();
        installed(world, "022", &[]);
        assert!(!share.join("man/man1/gantry-old.1").exists());
        let read = |name: &str| fs::read_to_string(share.join(name)).unwrap();
        assert!(read("bash-completion/completions/gantry").contains("complete -F _gantry_live"));
        assert!(read("zsh/site-functions/_gantry").starts_with("#compdef gantry"));
        assert!(read("fish/vendor_completions.d/gantry.fish").contains("complete -c gantry"));
        for page in ["gantry.1", "gantry-launch.1", "gantry-mpir.1"] {
            assert!(read(&format!("man/man1/{page}")).contains(".TH"), "{page}");
        }
        let left = all_below(&stage(world));
        let left: Vec<_> = left.iter().filter(|path| path.to_string_lossy().ends_with(".new")).collect();
        assert!(left.is_empty(), "{left:?}");
    });
}

#[test]
fn the_notices_of_all_that_is_linked_are_installed() {
    in_a_world(LIMIT, |world| {
        installed(world, "022", &[]);
        let notices = fs::read_to_string(stage(world).join("usr/share/doc/gantry/THIRD-PARTY.txt")).unwrap();
        assert!(notices.contains("\ntokio 1.") && notices.contains("Tokio Contributors"), "{notices}");
        for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(stage(world).join("usr/share/doc/gantry").join(name).is_file(), "{name}");
        }
        let check = world.start(&binaries().dir.join("gantry-xtask"), ["licences", "--check"]).wait(LIMIT);
        assert_eq!(check.code(), 0, "{}", check.stderr.join("\n"));
    });
}

#[test]
fn gantry_ssh_is_installed_on_request_alone() {
    in_a_world(LIMIT, |world| {
        let program = stage(world).join("usr/libexec/gantry/gantry-ssh");
        // A program of an earlier build is there to be copied, and one of an earlier installation to be used.
        for (args, expected) in [(&[][..], false), (&["--with-ssh"], true), (&[], false)] {
            installed(world, "022", args);
            assert_eq!(program.exists(), expected, "{args:?}");
        }
    });
}
