//! Plans a launch in which the launcher starts our agents: the agent replaces every program.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use gantry_shared::wire::hold::GANTRY_TICKET;
use gantry_types::launch::HoldMethod;

use super::dialect::{Adjusted, Dialect, Given};
use super::files::rewrite_file;
use super::options::{Part, locate};
use super::recognize::recognize;
use super::rewrite::{replace_file, rewrite};
use super::variables::RankSide;
use crate::host::Host;
use crate::mpir::AtBreakpoint;
use crate::{Brought, Driven, Error, Launch, Plan, Result};

/// The words in front of each program in the arguments of a launcher with that dialect.
pub(crate) fn build_shim(agent: &Path, dialect: &Dialect) -> Vec<OsString> {
    build_shim_of(agent, dialect, dialect.ranks)
}

/// As [`build_shim`], for ranks that have the variables of `by`.
fn build_shim_of(agent: &Path, dialect: &Dialect, by: &RankSide) -> Vec<OsString> {
    let forward = dialect.forward_option.into_iter().flat_map(|option| [option.into(), GANTRY_TICKET.into()]);
    forward.chain([agent.into(), "hold".into(), "--by".into(), by.word.into(), "--".into()]).collect()
}

/// Finds the launcher of that name: its path and its dialect. May run it with `--version`.
///
/// # Errors
/// The launcher does not exist, or is unknown.
pub(crate) fn find_launcher(name: &OsStr, host: &dyn Host) -> Result<(PathBuf, &'static Dialect)> {
    let path = find_program(name, host)?;
    let recognized = recognize(&path, host).map_err(|why| why.into_error(&path))?;
    Ok((path, recognized.dialect))
}

/// Finds the file of that name, whether or not it is a known launcher.
///
/// # Errors
/// The file does not exist.
pub(crate) fn find_program(name: &OsStr, host: &dyn Host) -> Result<PathBuf> {
    let path = match name.to_str() {
        Some(text) if !text.contains('/') => host.find_in_path(text),
        _ => Some(PathBuf::from(name)).filter(|path| host.is_executable(path)),
    };
    path.ok_or_else(|| {
        Error::not_found(
            format!("launcher '{}' was not found", name.display()),
            "give its path, or add its folder to PATH",
        )
    })
}

/// Plans a launch by the launcher that `launch` names.
///
/// # Errors
/// The launcher does not exist, its arguments are not understood, or a file with programs cannot be read.
pub(crate) fn plan_launcher(name: &OsStr, launch: &Launch, host: &dyn Host) -> Result<Brought> {
    let (path, dialect) = find_launcher(name, host)?;
    let environment = host.environment();
    let mut args = launch.args.clone();
    let parts = locate(dialect, &args, &environment)?;
    let given: Vec<&Given> = parts.iter().flat_map(|part| &part.given).collect();
    let Adjusted { options: more, by } = match dialect.adjust {
        Some(adjust) => adjust(&mut args, &given, &environment),
        None => Adjusted { options: Vec::new(), by: dialect.ranks },
    };
    let shim = build_shim_of(&launch.agent, dialect, by);
    let files = move_files(&mut args, &parts, dialect, &shim, launch, host)?;
    // Open MPI takes a path as its prefix. The prefix's folders then come first on every node.
    let called =
        if name.as_encoded_bytes().contains(&b'/') { path.into_os_string() } else { name.to_owned() };
    let mut argv = vec![called];
    let options = |part| if part == 0 { more.clone() } else { Vec::new() };
    argv.extend(rewrite(dialect, &args, &parts, options, &shim));
    Ok(Brought { argv, env: Vec::new(), files, own: Vec::new(), after_rank: None })
}

/// Plans a launch, unchanged, by a launcher that shows where its ranks are.
///
/// # Errors
/// The launcher does not exist.
pub(crate) fn plan_driven(name: &OsStr, launch: &Launch, host: &dyn Host) -> Result<Plan> {
    let mut argv = vec![find_program(name, host)?.into_os_string()];
    argv.extend(launch.args.iter().cloned());
    let at_breakpoint = match launch.hold_method {
        HoldMethod::MpirStop => AtBreakpoint::Stay,
        HoldMethod::Detect | HoldMethod::Exec | HoldMethod::Mpir => AtBreakpoint::AsItHolds,
    };
    Ok(Plan::Driven(Driven { argv, at_breakpoint }))
}

/// Replaces the files that hold programs by files of ours. Returns their paths and contents.
pub(crate) fn move_files(
    args: &mut [OsString],
    parts: &[Part],
    dialect: &'static Dialect,
    shim: &[OsString],
    launch: &Launch,
    host: &dyn Host,
) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut files = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let path = launch.scratch.join(format!("programs-{index}"));
        let Some(old) = replace_file(args, part, path.as_os_str()) else { continue };
        let old = PathBuf::from(old);
        let text = host.read(&old).map_err(|source| Error::Read { path: old, source })?;
        files.push((path, rewrite_file(dialect, &text, shim)?));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    fn host() -> FakeHost {
        FakeHost::default()
            .with_env("PATH", "/opt/bin")
            .with_file("/opt/bin/mpiexec.hydra", "")
            .with_file("/opt/bin/orterun", "")
            .with_file("/opt/bin/prterun", "")
            .with_file("/opt/bin/other", "")
            .with_answer("/opt/bin/other --version", "other 1.0", "")
            .with_file("list", "-n 1 ./a x : -n 2 ./b\n")
    }

    fn launch(args: &[&str]) -> Launch {
        Launch {
            args: args.iter().map(OsString::from).collect(),
            agent: "/g/agent".into(),
            scratch: "/s".into(),
            ..Launch::default()
        }
    }

    fn check(name: &str, args: &[&str], expected: &[&str]) {
        let planned = plan_launcher(OsStr::new(name), &launch(args), &host()).unwrap();
        assert_eq!(planned.argv, expected.iter().map(OsString::from).collect::<Vec<_>>());
        assert!(planned.files.is_empty());
    }

    #[test]
    fn the_agent_stands_in_every_programs_place() {
        let hydra = "/opt/bin/mpiexec.hydra";
        let hold = ["/g/agent", "hold", "--by", "hydra", "--"];
        check(
            "mpiexec.hydra",
            &["-n", "4", "./a", "-n"],
            &[&["mpiexec.hydra", "-n", "4"][..], &hold, &["./a", "-n"]].concat(),
        );
        check(
            hydra,
            &["-n", "1", "./a", ":", "-n", "2", "./b"],
            &[&[hydra, "-n", "1"][..], &hold, &["./a", ":", "-n", "2"], &hold, &["./b"]].concat(),
        );
    }

    #[test]
    fn open_mpi_is_told_by_name_what_ranks_on_other_hosts_need() {
        let tell = ["-x", "GANTRY_TICKET", "/g/agent", "hold", "--by", "openmpi", "--"];
        check(
            "orterun",
            &["-n", "1", "./a", ":", "-n", "2", "./b"],
            &[&["orterun", "-n", "1"][..], &tell, &["./a", ":", "-n", "2"], &tell, &["./b"]].concat(),
        );
    }

    #[test]
    fn prterun_is_asked_for_the_number_of_ranks_and_the_users_own_choice_is_kept() {
        let hold =
            |by: &str| ["-x", "GANTRY_TICKET", "/g/agent", "hold", "--by", by, "--"].map(str::to_owned);
        let check = |args: &[&str], options: &[&str], by: &str| {
            let planned = plan_launcher(OsStr::new("prterun"), &launch(args), &host()).unwrap();
            let mut expected: Vec<OsString> = vec!["prterun".into()];
            expected.extend(options.iter().map(OsString::from));
            expected.extend(hold(by).iter().map(OsString::from));
            expected.push("./a".into());
            assert_eq!(planned.argv, expected, "{args:?}");
        };
        check(&["-n", "2", "./a"], &["-n", "2", "--personality", "ompi"], "prrte");
        let other = ["-n", "2", "--personality", "prte", "./a"];
        check(&other, &["-n", "2", "--personality", "prte,ompi"], "prrte");
        check(&["--personality=prte", "./a"], &["--personality=prte,ompi"], "prrte");
        let same = ["--personality", "ompi", "./a"];
        check(&same, &same[..2], "openmpi");
    }

    #[test]
    fn a_file_with_programs_is_replaced_by_one_of_ours() {
        let planned =
            plan_launcher(OsStr::new("mpiexec.hydra"), &launch(&["-configfile", "list"]), &host()).unwrap();
        assert_eq!(planned.argv[1..], ["-configfile", "/s/programs-0"]);
        let (path, text) = &planned.files[0];
        assert_eq!(path, Path::new("/s/programs-0"));
        assert!(String::from_utf8_lossy(text).contains("/g/agent hold --by hydra -- ./a x"), "{text:?}");
        let missing = plan_launcher(OsStr::new("mpiexec.hydra"), &launch(&["-configfile", "no"]), &host());
        assert_eq!(missing.unwrap_err().to_string(), "cannot read no");
    }

    #[test]
    fn launchers_that_are_not_there_or_not_known_are_named() {
        let check = |name: &str, expected: &str| {
            let error = plan_launcher(OsStr::new(name), &launch(&["-n", "1", "a"]), &host()).unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert!(error.hint().is_some());
        };
        check("mpiexec", "launcher 'mpiexec' was not found");
        check("/opt/bin/none", "launcher '/opt/bin/none' was not found");
        check("other", "/opt/bin/other is not a known launcher: its answer to --version is 'other 1.0'");
    }
}
