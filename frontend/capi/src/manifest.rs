//! Manifests.

use std::ffi::{OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use gantry_frontend as library;
use gantry_shared_capi::{Fault, deadline, enter, text};
use gantry_types::error::Kind;
use gantry_types::session_dirs::{BIN_DIR, LIB_DIR};
use gantry_wlm::Host;
use gantry_wlm::host::Machine;

use crate::handles::Manifest;
use crate::process::{Process, fault, process};
use crate::table::lock;

impl Process {
    /// The manifest of that id, if its session is still there.
    pub(crate) fn live_manifest(&self, id: i64) -> Result<std::sync::Arc<Manifest>, Fault> {
        let manifest = self.manifests.get(id)?;
        self.live_session(manifest.session)?;
        Ok(manifest)
    }
}

/// Makes an empty manifest.
#[unsafe(no_mangle)]
pub extern "C" fn cti_createManifest(sid: i64) -> i64 {
    enter("cti_createManifest", 0, || {
        let process = process();
        let manifest = process.live_session(sid)?.with(library::Session::manifest)?;
        let manifest =
            Manifest { session: sid, manifest: Mutex::new(Some(manifest)), first: Mutex::default() };
        Ok(process.manifests.add(&process.ids, manifest))
    })
}

/// Whether the manifest is there and was not shipped.
#[unsafe(no_mangle)]
pub extern "C" fn cti_manifestIsValid(mid: i64) -> c_int {
    enter("cti_manifestIsValid", 0, || process().live_manifest(mid).map(|_| 1))
}

/// Adds the object named `fstr`. It will be below `folder` of the session.
///
/// # Safety
/// `fstr` is null or a string.
unsafe fn add(
    name: &str,
    mid: i64,
    fstr: *const c_char,
    folder: &str,
    how: impl FnOnce(&mut library::Manifest, &Path) -> library::Result<()>,
) -> c_int {
    enter(name, 1, || {
        // SAFETY: guaranteed by the caller.
        let path = Path::new(unsafe { text::required(fstr, "the name") }?);
        let process = process();
        let entry = process.live_manifest(mid)?;
        let mut manifest = lock(&entry.manifest);
        let manifest =
            manifest.as_mut().ok_or_else(|| Fault::new(Kind::Gone, "the manifest is being shipped"))?;
        if !process.attributes.stages_dependencies() {
            manifest.without_dependencies();
        }
        how(manifest, path).map_err(|error| fault(&error))?;
        lock(&entry.first).get_or_insert_with(|| Path::new(folder).join(last_part(path)));
        Ok(0)
    })
}

/// Adds a program.
///
/// # Safety
/// `fstr` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cti_addManifestBinary(mid: i64, fstr: *const c_char) -> c_int {
    let how = |manifest: &mut library::Manifest, path: &Path| manifest.add_binary(path);
    // SAFETY: guaranteed by the caller.
    unsafe { add("cti_addManifestBinary", mid, fstr, BIN_DIR, how) }
}

/// Adds a library.
///
/// # Safety
/// `fstr` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cti_addManifestLibrary(mid: i64, fstr: *const c_char) -> c_int {
    let how = |manifest: &mut library::Manifest, path: &Path| manifest.add_library(path);
    // SAFETY: guaranteed by the caller.
    unsafe { add("cti_addManifestLibrary", mid, fstr, LIB_DIR, how) }
}

/// Adds a directory.
///
/// # Safety
/// `fstr` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cti_addManifestLibDir(mid: i64, fstr: *const c_char) -> c_int {
    let how = |manifest: &mut library::Manifest, path: &Path| manifest.add_lib_dir(path);
    // SAFETY: guaranteed by the caller.
    unsafe { add("cti_addManifestLibDir", mid, fstr, LIB_DIR, how) }
}

/// Adds a file.
///
/// # Safety
/// `fstr` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cti_addManifestFile(mid: i64, fstr: *const c_char) -> c_int {
    let how = |manifest: &mut library::Manifest, path: &Path| manifest.add_file(file_here_or_in_path(path));
    // SAFETY: guaranteed by the caller.
    unsafe { add("cti_addManifestFile", mid, fstr, "", how) }
}

/// If a name is no file here, this looks for a program of that name in PATH, as the reference does.
fn file_here_or_in_path(path: &Path) -> PathBuf {
    let is_name = !path.as_os_str().as_bytes().contains(&b'/');
    let found = (is_name && !path.exists()).then(|| path.as_os_str().to_str()).flatten();
    found.and_then(|name| Machine.find_in_path(name)).unwrap_or_else(|| path.to_path_buf())
}

/// Ships a manifest.
#[unsafe(no_mangle)]
pub extern "C" fn cti_sendManifest(mid: i64) -> c_int {
    enter("cti_sendManifest", 1, || {
        let process = process();
        let session = process.live_session(process.live_manifest(mid)?.session)?;
        let (manifest, first) = process.manifests.take(mid)?.take()?;
        let deadline = deadline::of_calls();
        process.try_wait(manifest.send(deadline))?;
        first.into_iter().for_each(|below| session.note_shipped(below));
        Ok(0)
    })
}

/// The name under which a program will be in a session.
pub(crate) fn program_below(program: &OsStr) -> PathBuf {
    Path::new(BIN_DIR).join(last_part(Path::new(program)))
}

/// The last part of a path.
fn last_part(path: &Path) -> OsString {
    path.file_name().unwrap_or_default().to_owned()
}
