//! Takes the symbols out of a release's agent, and links the unwinder into every agent.
//!
//! Cargo forgets the profile's `strip` for a package that has settings of its own there, as this one has (it is built for size). The agent
//! is put on nodes, and its symbols would be a fifth of it.
//!
//! A process of the agent stands before every rank of a launcher. Each shared library is about a tenth of its start.
#![expect(clippy::disallowed_methods, reason = "cargo tells a build script its settings by the environment")]

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CC");
    if std::env::var_os("PROFILE").is_some_and(|profile| profile == "release") {
        println!("cargo::rustc-link-arg-bin=gantry-agent=-Wl,--strip-all");
    }
    if let Some(folder) = find_unwinder() {
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}

/// The folder of GCC's unwinder as an archive, where the C compiler has one. Without it the agent needs `libgcc_s.so`.
fn find_unwinder() -> Option<PathBuf> {
    let setting = |name: &str| std::env::var(name).ok();
    if setting("HOST") != setting("TARGET") || setting("CARGO_CFG_TARGET_ENV")? != "gnu" {
        return None;
    }
    let compiler = setting("CC").unwrap_or_else(|| "cc".to_owned());
    let asked = Command::new(compiler).arg("-print-file-name=libgcc_eh.a").output().ok()?;
    // A compiler that has none answers with the name alone.
    let archive = PathBuf::from(String::from_utf8(asked.stdout).ok()?.trim());
    archive.is_absolute().then(|| archive.parent().map(PathBuf::from)).flatten()
}
