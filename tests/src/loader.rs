//! The system's own loader as the reference for a program's dependencies.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The loader's report.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listed {
    /// It went through to the end.
    pub is_whole: bool,
    /// Paths of the loaded files, in its order.
    pub paths: Vec<PathBuf>,
    /// Names that it did not find.
    pub missing: BTreeSet<String>,
    /// Symbol versions that it did not find: the version, and the file that needs it.
    pub versions: BTreeSet<(String, PathBuf)>,
    /// Its whole output.
    pub said: String,
}

/// Queries a loader, which does not run the file. It stops at the first missing library.
///
/// # Panics
/// When the loader cannot be started.
#[must_use]
pub fn list(loader: &Path, file: &Path) -> Listed {
    let mut command = Command::new(loader);
    command.arg("--list").arg(file);
    run(command)
}

/// As [`list`], but it continues after a missing library, as ldd does.
///
/// # Panics
/// When the loader cannot be started.
#[must_use]
pub fn list_all(loader: &Path, file: &Path) -> Listed {
    let mut command = Command::new(loader);
    command.arg(file).env("LD_TRACE_LOADED_OBJECTS", "1").env("LD_WARN", "yes");
    run(command)
}

/// Starts a program whose loader only lists the files that it would load. `variables` are set in an environment
/// without other loader variables.
///
/// # Panics
/// When the program cannot be started.
#[must_use]
pub fn trace(program: &Path, folder: &Path, variables: &[(&str, &str)]) -> Listed {
    let mut command = Command::new(program);
    command.current_dir(folder).envs(variables.iter().copied()).env("LD_TRACE_LOADED_OBJECTS", "1");
    run(command)
}

fn run(mut command: Command) -> Listed {
    // First remove the loader variables of the user who runs the tests; then set those of the test.
    let own: Vec<_> =
        command.get_envs().map(|(name, value)| (name.to_owned(), value.map(OsStr::to_owned))).collect();
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"LD_")) {
        command.env_remove(name);
    }
    command.envs(own.into_iter().filter_map(|(name, value)| Some((name, value?))));
    let output = command.stdin(Stdio::null()).output();
    parse_listed(&output.unwrap_or_else(|error| panic!("{command:?}: {error}")))
}

fn parse_listed(output: &Output) -> Listed {
    let mut listed = Listed { is_whole: output.status.success(), ..Listed::default() };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    listed.said = text(&output.stdout) + &text(&output.stderr);
    for line in output.stdout.split(|byte| *byte == b'\n') {
        let Some(line) = line.strip_prefix(b"\t") else { continue };
        let line = text(line);
        let (name, path) =
            line.split_once(" => ").map_or((None, line.as_str()), |(name, path)| (Some(name), path));
        match (name, path.rsplit_once(" (0x")) {
            // The kernel's own, which has no file.
            (_, Some(("linux-vdso.so.1" | "linux-gate.so.1", _))) => {}
            (_, Some((path, _))) => listed.paths.push(PathBuf::from(path)),
            (Some(name), None) if path == "not found" => drop(listed.missing.insert(name.to_owned())),
            _ => {}
        }
    }
    for line in listed.said.clone().lines() {
        let Some((_, rest)) = line.split_once(": version `") else { continue };
        let Some((version, by)) = rest.split_once("' not found (required by ") else { continue };
        listed.versions.insert((version.to_owned(), PathBuf::from(by.trim_end_matches(')'))));
    }
    listed
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn a_loaders_report_is_parsed() {
        let stdout = "\tlinux-vdso.so.1 (0x00007ffd)\n\tliba.so => /x/liba.so (0x00007f)\n\t/lib64/ld.so (0x7f)\n\tlibb.so => not found\n";
        let stderr = "/x/p: /x/liba.so: version `V2' not found (required by /x/p)\n";
        let output = Output { status: ExitStatus::from_raw(0), stdout: stdout.into(), stderr: stderr.into() };
        let listed = parse_listed(&output);
        assert_eq!(listed.paths, ["/x/liba.so", "/lib64/ld.so"].map(PathBuf::from));
        assert_eq!(listed.missing, BTreeSet::from(["libb.so".to_owned()]));
        assert_eq!(listed.versions, BTreeSet::from([("V2".to_owned(), PathBuf::from("/x/p"))]));
        assert!(listed.is_whole);
    }
}
