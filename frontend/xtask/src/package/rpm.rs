//! A package for RHEL, Rocky, SLES and others with rpm.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::stage::{DESCRIPTION, SUMMARY, Stage, sorted_version};
use crate::Result;
use crate::build::{run, run_in};
use crate::layout::put_text;

/// What rpmbuild must not do. The manual is compressed. Debuggers read the debug information of gantry-mpir. Nodes need
/// no pkg-config.
const SETTINGS: [&str; 8] = [
    "debug_package %{nil}",
    "__os_install_post %{nil}",
    "_build_id_links none",
    "use_source_date_epoch_as_buildtime 1",
    "_buildhost localhost",
    "__requires_exclude ^/usr/bin/pkg-config$",
    "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
    "source_date_epoch_from_changelog 0",
];

/// rpm's name of this machine's kind.
///
/// # Errors
/// There is no rpmbuild.
pub(super) fn machine() -> Result<String> {
    let said = run("rpmbuild".as_ref(), &["--eval", "%{_target_cpu}"])
        .map_err(|error| format!("{error}; the package rpm-build has it, or rpm on Debian"))?;
    Ok(String::from_utf8(said.stdout)?.trim().to_owned())
}

/// Makes the package in the folder `out`.
///
/// # Errors
/// The error of rpmbuild, or a file cannot be written.
pub(super) fn make(stage: &Stage, machine: &str, out: &Path) -> Result<PathBuf> {
    stage.compress_manual()?;
    stage.set_times()?;
    put_text(&stage.work, "gantry.spec", build_spec(stage)?.as_bytes())?;
    let folders = [("_topdir", stage.work.as_path()), ("_rpmdir", out), ("staged", &stage.root)];
    let folders = folders.map(|(name, folder)| format!("{name} {}", folder.display()));
    let settings = SETTINGS.iter().copied().chain(folders.iter().map(String::as_str));
    let args = settings.flat_map(|setting| ["--define", setting]).chain(["--quiet", "-bb", "gantry.spec"]);
    let date = [("SOURCE_DATE_EPOCH", stage.date.as_str())];
    run_in(&stage.work, "rpmbuild".as_ref(), &args.collect::<Vec<_>>(), &date)?;
    Ok(out.join(format!("gantry-{}-{}.{machine}.rpm", sorted_version(), stage.asked.revision)))
}

fn build_spec(stage: &Stage) -> Result<String> {
    let is_own = |folder: &&Path| folder.iter().any(|part| part == "gantry");
    let mut files = BTreeSet::new();
    for path in stage.files()? {
        let path = Path::new("/").join(path.strip_prefix(&stage.root)?);
        let kind = if path.starts_with("/usr/share/doc") { "%doc " } else { "" };
        files.insert(format!("{kind}{}", path.display()));
        // No other package has these folders.
        files.extend(
            path.ancestors().skip(1).filter(is_own).map(|folder| format!("%dir {}", folder.display())),
        );
    }
    Ok(format!(
        "Name: gantry\nVersion: {version}\nRelease: {revision}\nSummary: {SUMMARY}\n\
         License: MIT OR Apache-2.0\nPackager: {maintainer}\nSuggests: gdb\n\n\
         %description\n{about}\n\n\
         %install\ncp -a '%{{staged}}/.' '%{{buildroot}}'\n\n\
         %post -p /sbin/ldconfig\n\n\
         %postun -p /sbin/ldconfig\n\n\
         %files\n%defattr(-,root,root)\n{files}\n",
        version = sorted_version(),
        revision = stage.asked.revision,
        maintainer = stage.asked.maintainer,
        about = DESCRIPTION.join("\n"),
        files = files.into_iter().collect::<Vec<_>>().join("\n"),
    ))
}
