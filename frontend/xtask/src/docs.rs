//! `cargo xtask docs`: the pages of the reference that follow from the code.

mod errors;
mod items;
mod measurements;
mod pages;
mod plot;
mod source;
mod text;

use std::fs;
use std::path::PathBuf;

use crate::args::Building;
use crate::build::{build, root};
use crate::{Docs, Result};

/// Writes the pages, or reports which of them differ from the code.
///
/// # Errors
/// A page is not up to date, or cannot be read or written.
pub(crate) fn write(asked: &Docs) -> Result<String> {
    if let Some(file) = &asked.measured {
        measurements::take(file)?;
    }
    let gantry = match &asked.gantry {
        Some(path) => path.clone(),
        None => build(&Building::for_development(), None)?.join("gantry"),
    };
    let mut old = Vec::new();
    for (name, text) in pages::all(&gantry)? {
        let path = reference().join(name);
        if fs::read_to_string(&path).is_ok_and(|there| there == text) {
            continue;
        }
        if !asked.check {
            fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        old.push(name);
    }
    match (asked.check, old.is_empty()) {
        (true, false) => {
            Err(format!("not as the code has it: {}; run: cargo xtask docs", old.join(", ")).into())
        }
        (_, true) => Ok("the reference is up to date".to_owned()),
        (false, false) => Ok(format!("written: {}", old.join(", "))),
    }
}

fn reference() -> PathBuf {
    root().join("docs/src/reference")
}
