//! Finds the files that a manifest names.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use gantry_shared::search::named_folders;
use gantry_types::error::{Failure, Kind};
use gantry_wlm::Host;

use super::gather::cannot_read;
use crate::error::{Error, Result};

/// Path of a program, with links resolved in its folder only: it keeps the requested name.
pub(crate) fn find_program(program: &Path, host: &dyn Host) -> Result<PathBuf> {
    if program.as_os_str().is_empty() {
        return Err(Error::invalid("an empty program name"));
    }
    if program.as_os_str().as_encoded_bytes().contains(&b'/') {
        return executable_file(&absolute(program)?);
    }
    let path = host.env("PATH").unwrap_or_default();
    let mut refused = None;
    for folder in named_folders(&path) {
        match executable_file(&absolute(&folder.join(program))?) {
            Ok(found) => return Ok(found),
            Err(error) if error.kind() == Kind::NotFound => {}
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| Error::Node {
        hosts: Vec::new(),
        failure: Failure::new(Kind::NotFound, format!("program '{}' is not in PATH", program.display()))
            .with_hint("give its path, or add its folder to PATH"),
    }))
}

pub(crate) fn executable_file(path: &Path) -> Result<PathBuf> {
    let source = readable_file(path)?;
    let mode = std::fs::metadata(&source).map_err(|e| cannot_read(path, e))?.permissions().mode();
    if mode & 0o111 == 0 {
        let denied = io::Error::new(io::ErrorKind::PermissionDenied, "it is not executable");
        return Err(Error::io(format!("cannot use {} as a program", path.display()), denied));
    }
    Ok(source)
}

/// The absolute path of a file that can be read.
pub(crate) fn readable_file(path: &Path) -> Result<PathBuf> {
    let path = absolute(path)?;
    let kind = std::fs::metadata(&path).map_err(|e| cannot_read(&path, e))?.file_type();
    if !kind.is_file() {
        return Err(Error::Invalid {
            message: format!("{} is not a regular file", path.display()),
            hint: Some("name a file; directories go to the session's lib as a whole".to_owned()),
        });
    }
    File::open(&path).map_err(|e| cannot_read(&path, e))?;
    Ok(path)
}

pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path)
        .map_err(|e| Error::io(format!("cannot find the absolute path of {}", path.display()), e))
}

pub(crate) fn file_name(path: &Path) -> Result<&OsStr> {
    path.file_name().ok_or_else(|| Error::invalid(format!("{} has no name of its own", path.display())))
}
