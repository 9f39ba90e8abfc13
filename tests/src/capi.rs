//! The C libraries under test, installed as their users have them, and C programs that are linked with them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::SystemTime;

use crate::binaries::workspace;
use crate::preparing::lock;
use crate::{Run, World, binaries, target_dir};

/// The sources of the libraries; the age of an installation is that of its last file.
const SOURCES: [&str; 6] = [
    "libcommontools_fe.a",
    "libcommontools_be.a",
    "libgantry_tm.a",
    "gantry",
    "gantry-guard",
    "gantry-agent",
];
const LAST: &str = "share/man/man1/gantry.1";

/// The prefix below which gantry is installed. The users' command for installation makes it, unless it exists and is up
/// to date.
///
/// # Panics
/// When it cannot be made.
#[must_use]
#[track_caller]
pub fn prefix() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let built = &binaries().dir;
        let prefix = target_dir().join("capi-prefix").join(profile());
        let _locked = lock(&target_dir().join("capi-prefix.lock"));
        let sources = SOURCES.iter().map(|name| built.join(name)).chain(interface());
        let newest = sources.map(|path| {
            changed(&path).unwrap_or_else(|| {
                panic!("{} is not there: cargo build --workspace --bins --lib", path.display())
            })
        });
        if changed(&prefix.join(LAST)) > newest.max() {
            return prefix;
        }
        let profile = if profile() == "debug" { "dev" } else { profile() };
        let mut install = Command::new(built.join("gantry-xtask"));
        install.args(["install", "--no-build", "--profile", profile, "--prefix"]).arg(&prefix);
        let output = install.env_remove("DESTDIR").stdin(Stdio::null()).output().expect("gantry-xtask");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        prefix
    })
}

/// The folder of cargo's profile.
fn profile() -> &'static str {
    binaries().dir.file_name().and_then(OsStr::to_str).unwrap_or("debug")
}

/// Headers and lists of symbols.
fn interface() -> Vec<PathBuf> {
    let folders = ["shared/include", "frontend/capi/include", "backend/capi/include", "wlm/capi/include"];
    let headers = folders.iter().flat_map(|folder| fs::read_dir(workspace().join(folder)).expect("headers"));
    let headers = headers.map(|entry| entry.expect("a header").path());
    headers.chain(LIBRARIES.map(|(library, _)| symbols(library))).collect()
}

/// The libraries, and the folders of their crates.
const LIBRARIES: [(&str, &str); 3] =
    [("commontools_fe", "frontend/capi"), ("commontools_be", "backend/capi"), ("gantry_tm", "wlm/capi")];

/// The checked-in list of a library's symbols.
///
/// # Panics
/// When there is no such library.
#[must_use]
pub fn symbols(library: &str) -> PathBuf {
    let folder = LIBRARIES.iter().find(|(name, _)| *name == library).expect("a library").1;
    workspace().join(folder).join(format!("lib{library}.map"))
}

fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

/// Compiles `tests/c/NAME.c` and links it with the installed library of that side. Returns the program, which has the
/// same name.
///
/// # Panics
/// With the compiler's message.
#[must_use]
#[track_caller]
pub fn program(source: &str, side: &str, flags: &[&str]) -> PathBuf {
    let prefix = prefix();
    let library = prefix.join("lib");
    let mut args: Vec<OsString> = vec!["-std=gnu11".into(), format!("-lcommontools_{side}").into()];
    for (flag, path) in [("-I", &prefix.join("include")), ("-L", &library), ("-Wl,-rpath,", &library)] {
        args.push(format!("{flag}{}", path.display()).into());
    }
    args.extend(flags.iter().map(Into::into));
    let path = workspace().join("tests/c").join(format!("{source}.c"));
    // Flags make another program of it.
    let folder = target_dir().join("capi-programs").join(profile()).join(format!("plain{}", flags.concat()));
    let made = folder.join(source);
    let _locked = lock(&target_dir().join("capi-programs.lock"));
    let header = workspace().join("tests/c/check.h");
    let newest = [path.as_path(), &header, &prefix.join(LAST)].map(changed).into_iter().max();
    if Some(changed(&made)) > newest {
        return made;
    }
    fs::create_dir_all(&folder).expect("a folder");
    let fresh = folder.join(format!("{source}.new"));
    compile("cc", &path, &fresh, &args);
    fs::rename(&fresh, &made).expect("rename in one folder");
    made
}

/// Compiles one source.
///
/// # Panics
/// With the compiler's message.
#[track_caller]
pub fn compile(compiler: &str, source: &Path, made: &Path, args: &[OsString]) {
    let mut command = Command::new(compiler);
    command.args(["-g", "-Wall", "-Wextra", "-Werror", "-o"]).arg(made).arg(source).args(args);
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{compiler}: {e}"));
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Starts a test of a C suite in a world.
///
/// # Panics
/// When it cannot be started.
#[must_use]
#[track_caller]
pub fn start(world: &World, program: &Path, test: &str, variables: &[(&str, &OsStr)]) -> Run {
    let mut command = world.command(program);
    command.arg(test).envs(variables.iter().copied());
    let mut run = world.spawn(command);
    run.close_stdin();
    run
}
