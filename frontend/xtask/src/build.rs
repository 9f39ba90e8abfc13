//! Builds the installed files with cargo.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::Result;
use crate::args::Building;

/// The crates that are installed on the login side.
pub(crate) const PACKAGES: [&str; 6] = [
    "gantry",
    "gantry-mpir",
    "gantry-guard",
    "gantry-frontend-capi",
    "gantry-backend-capi",
    "gantry-wlm-capi",
];

/// The crates of programs that go to nodes. They are built by themselves: cargo gives the crates of one build all
/// features that any of them asks for, and these programs are to be small and to start fast.
pub(crate) const ON_NODES: [&str; 3] = ["gantry-agent", "gantry-stackd", "gantry-gdbd"];

/// The folder of this repository.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own).to_path_buf()
}

/// Runs a program to its end, with its errors for all to see.
///
/// # Errors
/// It cannot be started, or fails.
pub(crate) fn run<A: AsRef<OsStr>>(program: &OsStr, args: &[A]) -> Result<Output> {
    run_in(&root(), program, args, &[])
}

/// The same in another folder, with more variables.
///
/// # Errors
/// It cannot be started, or fails.
pub(crate) fn run_in<A: AsRef<OsStr>>(
    folder: &Path,
    program: &OsStr,
    args: &[A],
    variables: &[(&str, &str)],
) -> Result<Output> {
    #[expect(clippy::disallowed_methods, reason = "a chore runs compilers; no library is near")]
    let mut command = Command::new(program);
    command.args(args).envs(variables.iter().copied()).current_dir(folder);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().map_err(|e| format!("{} cannot be started: {e}", program.display()))?;
    match output.status.success() {
        true => Ok(output),
        false => Err(format!("{} failed: {}", program.display(), output.status).into()),
    }
}

pub(crate) fn cargo() -> OsString {
    #[expect(clippy::disallowed_methods, reason = "cargo tells what it starts by which cargo it was")]
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// What cargo and rustc name this machine's kind.
fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Builds everything, and the programs that `request`, a crate with a feature, adds; nothing if that is asked for.
/// Returns the folder of the results.
///
/// # Errors
/// The error of cargo.
pub(crate) fn build(asked: &Building, request: Option<(&str, &str)>) -> Result<PathBuf> {
    let profile = asked.profile.as_str();
    let zig = asked.glibc.as_ref().map(|version| format!("{}.{version}", target()));
    let compile = |packages: &[&str], more: &[&str]| -> Result<()> {
        let mut args = vec![if zig.is_some() { "zigbuild" } else { "build" }];
        args.extend(["--locked", "--lib", "--bins", "--profile", profile]);
        packages.iter().for_each(|package| args.extend(["--package", package]));
        zig.iter().for_each(|target| args.extend(["--target", target]));
        args.extend(more);
        run(&cargo(), &args).map(drop)
    };
    if !asked.no_build {
        compile(&PACKAGES, &[])?;
        compile(&ON_NODES, &[])?;
        if let Some((package, feature)) = request {
            compile(&[package], &["--features", feature])?;
        }
    }
    let target = target_directory()?.join(if zig.is_some() { target() } else { String::new() });
    Ok(target.join(if profile == "dev" { "debug" } else { profile }))
}

/// The program that links C libraries, and its first arguments.
pub(crate) fn linker(asked: &Building) -> Vec<OsString> {
    match &asked.glibc {
        None => vec![asked.cc.clone()],
        Some(version) => {
            let target = format!("{}-linux-gnu.{version}", std::env::consts::ARCH);
            ["cargo-zigbuild", "zig", "cc", "--", "-target", &target].map(OsString::from).to_vec()
        }
    }
}

/// The folder where cargo puts its results.
///
/// # Errors
/// The error of cargo.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let metadata = run(&cargo(), &["metadata", "--no-deps", "--offline", "--format-version", "1"])?;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout)?;
    let target = metadata["target_directory"].as_str().ok_or("cargo metadata names no target directory")?;
    Ok(PathBuf::from(target))
}
