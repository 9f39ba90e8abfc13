//! A package for Debian and Ubuntu.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::stage::{DESCRIPTION, SUMMARY, Stage, VERSION, sorted_version};
use crate::Result;
use crate::build::{root, run, run_in};
use crate::layout::{THIRD_PARTY, put_text};
use crate::library::LIBRARIES;

/// The folder of libraries below the prefix.
pub(super) fn libdir() -> Result<PathBuf> {
    Ok(Path::new("lib").join(ask("DEB_HOST_MULTIARCH")?))
}

fn ask(variable: &str) -> Result<String> {
    let said = run("dpkg-architecture".as_ref(), &["-q", variable])
        .map_err(|error| format!("{error}; the package dpkg-dev has it"))?;
    Ok(String::from_utf8(said.stdout)?.trim().to_owned())
}

/// Makes the package in the folder `out`.
///
/// # Errors
/// The error of a program of dpkg, or a file cannot be written.
pub(super) fn make(stage: &Stage, out: &Path) -> Result<PathBuf> {
    let machine = ask("DEB_HOST_ARCH")?;
    let version = format!("{}-{}", sorted_version(), stage.asked.revision);
    let share = stage.prefix.join("share");
    fs::rename(share.join("zsh/site-functions"), share.join("zsh/vendor-completions"))?;
    stage.compress_manual()?;
    add_documents(stage, &version)?;
    let bytes: u64 =
        stage.files()?.iter().filter_map(|path| fs::symlink_metadata(path).ok()).map(|it| it.len()).sum();
    let about = stage.root.join("DEBIAN");
    put_text(&about, "triggers", b"activate-noawait ldconfig\n")?;
    let depends = depends(stage)?;
    // Debian's libraries are no programs.
    for path in stage.programs.iter().filter(|path| path.starts_with(stage.prefix.join("lib"))) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o644))?;
    }
    let sums =
        run_in(&stage.root, "sh".as_ref(), &["-c", "find usr -type f | LC_ALL=C sort | xargs md5sum"], &[])?;
    let description: String = DESCRIPTION.iter().map(|line| format!(" {line}\n")).collect();
    let control = format!(
        "Package: gantry\nVersion: {version}\nSection: devel\nPriority: optional\nArchitecture: {machine}\n\
         Maintainer: {maintainer}\nInstalled-Size: {size}\nDepends: {depends}\nSuggests: gdb\n\
         Description: {SUMMARY}\n{description}",
        maintainer = stage.asked.maintainer,
        size = bytes.div_ceil(1024),
    );
    put_text(&about, "control", control.as_bytes())?;
    put_text(&about, "md5sums", &sums.stdout)?;
    let line = |(name, major): (String, &str)| format!("{name} {major} gantry (>= {VERSION})\n");
    let libraries: String = LIBRARIES.iter().map(|library| line(library.name_and_major())).collect();
    put_text(&about, "shlibs", libraries.as_bytes())?;
    stage.set_times()?;
    let made = out.join(format!("gantry_{version}_{machine}.deb"));
    let args = ["--root-owner-group".as_ref(), "--build".as_ref(), stage.root.as_os_str(), made.as_os_str()];
    run_in(&stage.work, "dpkg-deb".as_ref(), &args, &[("SOURCE_DATE_EPOCH", &stage.date)])?;
    Ok(made)
}

/// Adds what a Debian package says about itself.
fn add_documents(stage: &Stage, version: &str) -> Result<()> {
    let folder = stage.documents();
    let licence = fs::read_to_string(root().join("LICENSE-MIT"))?;
    let copyright = format!(
        "gantry may be used by one of two licences, as you choose: the Apache License,\n\
         version 2.0, which is in /usr/share/common-licenses/Apache-2.0, or this one:\n\n{licence}\n\
         It contains code of others, whose notices are in {THIRD_PARTY} beside this file.\n"
    );
    put_text(&folder, "copyright", copyright.as_bytes())?;
    let date = run("date".as_ref(), &["--utc", "--rfc-email", "--date", &format!("@{}", stage.date)])?;
    let changelog = format!(
        "gantry ({version}) unstable; urgency=medium\n\n  * Built from gantry {VERSION}.\n\n -- {}  {}",
        stage.asked.maintainer,
        String::from_utf8(date.stdout)?
    );
    put_text(&folder, "changelog.Debian", changelog.as_bytes())?;
    run("gzip".as_ref(), &[OsStr::new("-9n"), folder.join("changelog.Debian").as_ref()]).map(drop)
}

/// The packages with the libraries that programs ask for.
fn depends(stage: &Stage) -> Result<String> {
    if stage.asked.building.glibc.is_some() {
        // They need nothing but glibc. dpkg-shlibdeps takes this machine's for theirs.
        return Ok(format!("libc6 (>= {})", stage.glibc()?));
    }
    // dpkg-shlibdeps reads this, and looks for the folder DEBIAN above the programs.
    put_text(
        &stage.work.join("debian"),
        "control",
        b"Source: gantry\n\nPackage: gantry\nArchitecture: any\n",
    )?;
    let args = [OsStr::new("-O")].into_iter().chain(stage.programs.iter().map(AsRef::as_ref));
    let said = run_in(&stage.work, "dpkg-shlibdeps".as_ref(), &args.collect::<Vec<_>>(), &[])?;
    let said = String::from_utf8(said.stdout)?;
    let depends = said.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    Ok(depends.ok_or("dpkg-shlibdeps names no packages")?.to_owned())
}
