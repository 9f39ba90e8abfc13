//! `cargo xtask api`: writes the public API of the Rust libraries as text, so that reviewers see a change of it.
//!
//! The text is made from rustdoc's JSON. That format is unstable, so rustdoc writes it only if `RUSTC_BOOTSTRAP` is
//! set. If cargo had that variable, it would rebuild every dependency. So cargo gets this program as its rustdoc: it
//! sets the variable and becomes the real one.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use public_api::Builder;

use crate::build::{cargo, root, target_directory};
use crate::{Api, Result};

/// The libraries that tools link: package, and its name as a crate.
const LIBRARIES: [(&str, &str); 3] = [
    ("gantry-types", "gantry_types"),
    ("gantry-frontend", "gantry_frontend"),
    ("gantry-backend", "gantry_backend"),
];

/// Crates that are private. No public item of a library may name them.
const PRIVATE: [&str; 4] = ["gantry_shared::", "gantry_link::", "gantry_wlm::", "gantry_guard::"];

/// Items that may name private crates nevertheless: `?` needs them. Users have no value of that type.
const MAY_NAME: [&str; 2] = [
    "core::convert::From<gantry_wlm::error::Error> for gantry_frontend::error::Error",
    "gantry_frontend::error::Error::from(gantry_wlm::error::Error)",
];

/// Contains the path of the real rustdoc if this program runs as cargo's rustdoc.
const AS_RUSTDOC: &str = "GANTRY_XTASK_RUSTDOC";

/// Becomes rustdoc if this program was started as rustdoc. Returns the error if it cannot.
pub(crate) fn become_rustdoc() -> Option<std::io::Error> {
    #[expect(clippy::disallowed_methods, reason = "cargo starts rustdoc with arguments and variables only")]
    let rustdoc = std::env::var_os(AS_RUSTDOC)?;
    #[expect(clippy::disallowed_methods, reason = "this process replaces itself with rustdoc")]
    let mut command = Command::new(rustdoc);
    Some(command.args(std::env::args_os().skip(1)).env("RUSTC_BOOTSTRAP", "1").exec())
}

/// Writes the texts, or reports which of them differ from the code.
///
/// # Errors
/// A text is not up to date; an item names a private crate; an error of rustdoc.
pub(crate) fn write(asked: &Api) -> Result<String> {
    let (mut old, mut counts) = (Vec::new(), Vec::new());
    for (package, name) in LIBRARIES {
        let json = document(package, name)?;
        let api = match read(&json) {
            Ok(api) => api,
            // The texts were made with another compiler.
            Err(error) if asked.check => {
                return Ok(format!("not compared: what this rustdoc says is not understood: {error}"));
            }
            Err(error) => return Err(error),
        };
        check_names(&api)?;
        counts.push(format!("{package}: {} items in {} modules", api.lines().count(), count_modules(&api)));
        let path = root().join("docs/api").join(format!("{package}.txt"));
        if fs::read_to_string(&path).is_ok_and(|there| there == api) {
            continue;
        }
        if !asked.check {
            fs::write(&path, api).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        old.push(package);
    }
    match (asked.check, old.is_empty()) {
        (true, false) => Err(format!(
            "the public API is not as docs/api has it: {}; if that is meant, run: cargo xtask api",
            old.join(", ")
        )
        .into()),
        (_, true) => Ok(format!("docs/api is up to date; {}", counts.join(", "))),
        (false, false) => Ok(format!("written: {}; {}", old.join(", "), counts.join(", "))),
    }
}

/// Makes rustdoc write the JSON of a library.
fn document(package: &str, name: &str) -> Result<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "cargo and its users say which rustdoc is meant")]
    let rustdoc = std::env::var_os("RUSTDOC").unwrap_or_else(|| "rustdoc".into());
    let args: [&OsStr; 9] = [
        "rustdoc",
        "--quiet",
        "--locked",
        "--lib",
        "--package",
        package,
        "--",
        "-Zunstable-options",
        "--output-format=json",
    ]
    .map(OsStr::new);
    #[expect(clippy::disallowed_methods, reason = "a chore runs cargo")]
    let mut command = Command::new(cargo());
    command.args(args).current_dir(root()).stdin(Stdio::null());
    command.env("RUSTDOC", own_program()?).env(AS_RUSTDOC, rustdoc);
    let status = command.status().map_err(|e| format!("cargo cannot be started: {e}"))?;
    if !status.success() {
        return Err(format!("cargo rustdoc failed for {package}: {status}").into());
    }
    Ok(target_directory()?.join("doc").join(format!("{name}.json")))
}

fn own_program() -> Result<OsString> {
    Ok(std::env::current_exe()?.into_os_string())
}

/// One item per line, without the implementations that every type has, and without those that a derive adds.
fn read(json: &Path) -> Result<String> {
    let builder = Builder::from_rustdoc_json(json);
    let builder = builder.omit_auto_derived_impls(true).omit_auto_trait_impls(true).omit_blanket_impls(true);
    Ok(builder.build()?.to_string())
}

fn check_names(api: &str) -> Result<()> {
    let is_meant = |line: &str| MAY_NAME.iter().any(|what| line.contains(what));
    let names = |line: &&str| PRIVATE.iter().any(|private| line.contains(private)) && !is_meant(line);
    let found: Vec<&str> = api.lines().filter(names).collect();
    if found.is_empty() {
        return Ok(());
    }
    Err(format!("these public items name private crates:\n{}", found.join("\n")).into())
}

fn count_modules(api: &str) -> usize {
    api.lines().filter(|line| line.starts_with("pub mod ")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_that_names_a_private_crate_is_refused() {
        assert!(check_names("pub fn a::b() -> gantry_types::id::Rank\n").is_ok());
        assert!(
            check_names(
                "impl core::convert::From<gantry_wlm::error::Error> for gantry_frontend::error::Error\n"
            )
            .is_ok()
        );
        let refused =
            check_names("pub fn a::b()\npub fn a::c(&dyn gantry_wlm::seam::Wlm)\n").unwrap_err().to_string();
        assert!(refused.ends_with("\npub fn a::c(&dyn gantry_wlm::seam::Wlm)"), "{refused}");
    }

    #[test]
    fn modules_are_counted() {
        assert_eq!(count_modules("pub mod a\npub mod a::b\npub fn a::b::c()\n"), 2);
    }
}
