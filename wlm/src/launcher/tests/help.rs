//! Compares the tables with the help of the installed launchers.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use crate::host::run;
use crate::launcher::dialect::{Dialect, Takes};
use crate::launcher::files::rewrite_file;
use crate::launcher::hydra::HYDRA;
use crate::launcher::openmpi::OPEN_MPI;
use crate::launcher::options::locate;
use crate::launcher::rewrite::{replace_file, rewrite};
use crate::skip::skip;

/// Returns the output of a command. `None`: the command does not exist, or fails.
pub(crate) fn printed(args: &[&str]) -> Option<String> {
    let (status, text) = run(Path::new("/usr/bin/env"), args, Duration::from_secs(30)).ok()?;
    (status.success() && !text.is_empty()).then(|| String::from_utf8_lossy(&text).into_owned())
}

/// Checks that the table's entry for an option is among `fits`. `None`: the help does not tell.
pub(crate) fn check(dialect: &Dialect, name: &str, fits: Option<&[Takes]>, problems: &mut Vec<String>) {
    let found = dialect.rows().find(|(names, _)| names.split(' ').any(|known| known == name));
    match (found, fits) {
        (None, _) => problems.push(format!("{name} is missing")),
        (Some((_, takes)), Some(fits)) if !fits.contains(&takes) => {
            problems.push(format!("{name} takes {takes:?} in the table, {fits:?} by its help"));
        }
        _ => {}
    }
}

#[test]
fn hydras_table_agrees_with_its_help() {
    let Some(help) = printed(&["mpiexec.hydra", "--help"]) else {
        return skip("mpiexec.hydra is not installed");
    };
    let (mut problems, mut count) = (Vec::new(), 0);
    for line in help.lines().map(str::trim_start).filter(|line| line.starts_with('-')) {
        let mut words = line.split_whitespace();
        let names = words.next().unwrap_or_default();
        // "host list" in braces is one value.
        let values = line.matches('{').count();
        let fits: Option<&[Takes]> = match values {
            2 => Some(&[Takes::Assignment, Takes::Two]),
            1 => Some(&[Takes::Value]),
            _ => None,
        };
        for name in names.split('/') {
            count += 1;
            check(&HYDRA, name.trim_start_matches('-'), fits, &mut problems);
        }
    }
    assert!(count > 40, "only {count} options found in the help");
    assert_eq!(problems, Vec::<String>::new());
}

/// Hydra's help does not say which options take a value. The launcher shows it: an option in front of `-version` takes
/// that word as its value, or does not.
#[test]
fn hydra_takes_values_as_the_table_says() {
    if printed(&["mpiexec.hydra", "-version"]).is_none() {
        return skip("mpiexec.hydra is not installed");
    }
    let builds = |args: &[&str]| printed(args).is_some_and(|text| text.contains("build details"));
    let flags = ["l", "genvall", "print-all-exitcodes", "pmi-port", "skip-launch-node", "dac", "enable-x"];
    for name in flags {
        assert!(builds(&["mpiexec.hydra", &format!("-{name}"), "-version"]), "-{name} takes a value");
    }
    for name in ["ppn", "rmk", "wdir", "usize", "localhost", "gpus-per-proc", "iface"] {
        assert!(builds(&["mpiexec.hydra", &format!("-{name}"), "1", "-version"]), "-{name} takes no value");
    }
}

#[test]
fn open_mpis_table_agrees_with_its_help() {
    let help = printed(&["mpirun.openmpi", "--allow-run-as-root", "--help", "full"]);
    let Some(help) = help else { return skip("mpirun.openmpi is not installed") };
    let (mut problems, mut count) = (Vec::new(), 0);
    for line in help.lines() {
        // Names are at the left, and text is further to the right.
        let indent = line.len() - line.trim_start().len();
        let text = line.trim_start();
        if indent > 4 || !text.starts_with('-') {
            continue;
        }
        let names = text.split_whitespace().next().unwrap_or_default();
        for name in names.split('|') {
            count += 1;
            let name = name.trim_start_matches('-');
            let fits: Option<&[Takes]> = match text.matches("<arg").count() {
                // Only an attached word can follow. With this option nothing is launched anyway.
                _ if name == "h" || name == "help" => Some(&[Takes::Attached]),
                2 => Some(&[Takes::Two]),
                1 => Some(&[Takes::Value]),
                _ => Some(&[Takes::Nothing, Takes::Attached, Takes::Depends]),
            };
            check(&OPEN_MPI, name, fits, &mut problems);
        }
    }
    assert!(count > 100, "only {count} options found in the help");
    assert_eq!(problems, Vec::<String>::new());
}

/// Runs a real launcher with `/bin/echo S` before each program, on the command line or in the file `text` that replaces
/// FILE. Every program is `/bin/echo`, so each printed line shows what was inserted.
fn check_run(dialect: &'static Dialect, command: &[&str], args: &str, text: &str, lines: usize) {
    if printed(&[&["which"], &command[..1]].concat()).is_none() {
        return skip(&format!("{} is not installed", command[0]));
    }
    let folder = tempfile::tempdir().unwrap();
    let shim = ["/bin/echo".into(), "S".into()];
    let file = folder.path().join("programs");
    std::fs::write(&file, rewrite_file(dialect, text.as_bytes(), &shim).unwrap()).unwrap();
    let mut args: Vec<OsString> = args.split_whitespace().map(OsString::from).collect();
    let parts = locate(dialect, &args, &[]).unwrap();
    replace_file(&mut args, &parts[0], file.as_os_str());
    let written = rewrite(dialect, &args, &parts, |_| Vec::new(), &shim);
    let written: Vec<&str> =
        command.iter().copied().chain(written.iter().map(|arg| arg.to_str().unwrap())).collect();
    // On a busy machine Hydra sometimes closes the output of programs that end at once before they have written (exit
    // code 141, also without gantry).
    let mut outs = (0..5).map(|_| printed(&written).unwrap_or_default());
    let out = outs.find(|out| out.lines().count() == lines).unwrap_or_default();
    assert_eq!(out.lines().count(), lines, "{written:?} printed {out}");
    assert!(out.lines().all(|line| line.starts_with("S /bin/echo x")), "{written:?} printed {out}");
}

const MPIEXEC: &[&str] = &["mpiexec.hydra", "-launcher", "fork"];
const MPIRUN: &[&str] = &["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"];

#[test]
fn real_launchers_run_what_was_put_in_front() {
    check_run(&HYDRA, MPIEXEC, "-n 2 -genv A B -env C=D /bin/echo x : --np=1 -- /bin/echo x -n 7", "", 3);
    check_run(&OPEN_MPI, MPIRUN, "-np 2 -x A=b --mca btl self /bin/echo x : -np 1 -- /bin/echo x y", "", 3);
}

#[test]
fn real_launchers_read_what_was_put_into_their_files() {
    let hydra = "# c\n-n 2 -env A B /bin/echo x # -n 9\n\n-n 1 /bin/echo x : -n 1 /bin/echo x\n";
    check_run(&HYDRA, MPIEXEC, "-configfile FILE", hydra, 4);
    let open_mpi = "# c\n-np 2 -x A=b /bin/echo x // 9\n\n-np 1 /bin/echo x\n";
    check_run(&OPEN_MPI, MPIRUN, "--app FILE", open_mpi, 3);
}
