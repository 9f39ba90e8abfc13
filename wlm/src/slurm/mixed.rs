//! Ranks of different programs as one srun: their programs in a file (`--multi-prog`), their hosts in another (an
//! arbitrary distribution). A step has one directory and one environment for all tasks; the ticket carries the
//! differences.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use gantry_shared::wire::hold::Own;
use gantry_types::launch::{Mixed, MixedPart};

use super::multi_prog;
use crate::{Error, Result};

/// The variable that names the file of hosts for an arbitrary distribution, one host per task. Source: srun(1),
/// `--distribution`.
const HOST_FILE: &str = "SLURM_HOSTFILE";

/// The maximum size of per-task settings. The kernel allows 128 KiB for one variable. A byte takes two digits, and the
/// variable also holds the rest of the ticket.
const MAX_OWN_BYTES: usize = 48 * 1024;

/// A file and its content.
type Written = (PathBuf, Vec<u8>);

/// A launch for srun.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Described {
    /// The arguments of srun.
    pub(super) args: Vec<OsString>,
    /// Variables for srun and for its tasks.
    pub(super) env: Vec<(OsString, OsString)>,
    /// Settings that differ between tasks: one step has one environment and one directory.
    pub(super) own: Vec<Own>,
    /// The file with the programs.
    pub(super) programs: Written,
    /// The file with the hosts, if any are named.
    pub(super) hosts: Option<Written>,
}

/// Describes a launch for srun. Its files will be in `scratch`.
///
/// # Errors
/// A word that the program file cannot represent; or too many per-task settings.
pub(super) fn describe(mixed: &Mixed, scratch: &Path) -> Result<Described> {
    let first = mixed.parts.first().ok_or_else(|| Error::invalid("nothing to launch: no part"))?;
    let mut text = Vec::new();
    for part in &mixed.parts {
        text.extend(part.ranks.to_string().into_bytes());
        for word in std::iter::once(&part.program).chain(&part.args) {
            text.push(b' ');
            text.extend(multi_prog::escape(word)?);
        }
        text.push(b'\n');
    }
    let programs = (scratch.join("programs-0"), text);
    let mut args: Vec<OsString> = vec![format!("--ntasks={}", mixed.size()).into()];
    let is_same = |part: &MixedPart| part.cwd == first.cwd && has_same_variables(part, first);
    let (mut env, own) = match mixed.parts.iter().all(is_same) {
        true => (first.env.clone(), Vec::new()),
        false => (Vec::new(), build_own(mixed)?),
    };
    // If tasks have directories of their own, this one at least exists on the nodes. The tool's directory may not.
    if let Some(cwd) = &first.cwd {
        let mut option = OsString::from("--chdir=");
        option.push(cwd);
        args.push(option);
    }
    let hosts = (!mixed.hosts.is_empty()).then(|| {
        let path = scratch.join("hosts");
        args.push("--distribution=arbitrary".into());
        env.push((HOST_FILE.into(), path.clone().into_os_string()));
        (path, (mixed.hosts.join("\n") + "\n").into_bytes())
    });
    args.push("--multi-prog".into());
    args.push(programs.0.clone().into_os_string());
    Ok(Described { args, env, own, programs, hosts })
}

fn has_same_variables(part: &MixedPart, other: &MixedPart) -> bool {
    let sorted = |part: &MixedPart| {
        let mut env = part.env.clone();
        env.sort();
        env
    };
    sorted(part) == sorted(other)
}

/// The settings of every part. They travel in a variable.
fn build_own(mixed: &Mixed) -> Result<Vec<Own>> {
    let bytes = |part: &MixedPart| {
        let env = part.env.iter().map(|(name, value)| name.len() + value.len());
        env.sum::<usize>() + part.cwd.as_ref().map_or(0, |cwd| cwd.as_os_str().len())
    };
    let all: usize = mixed.parts.iter().map(bytes).sum();
    if all > MAX_OWN_BYTES {
        let message = format!(
            "the processes have {all} bytes of variables and directories of their own, and one step of Slurm can be told of {MAX_OWN_BYTES}"
        );
        return Err(Error::invalid_with(message, "use the same for all processes, or start several groups"));
    }
    let own = |part: &MixedPart| Own {
        ranks: part.ranks.clone(),
        env: part.env.clone(),
        cwd: part.cwd.clone().map(PathBuf::into_os_string),
    };
    Ok(mixed.parts.iter().map(own).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(ranks: &str, program: &str, args: &[&str]) -> MixedPart {
        MixedPart {
            ranks: ranks.parse().unwrap(),
            program: program.into(),
            args: args.iter().map(OsString::from).collect(),
            ..MixedPart::default()
        }
    }

    #[test]
    fn programs_and_hosts_stand_in_files() {
        let hosts = ["n2", "n1", "n2"].map(str::to_owned).to_vec();
        let mixed = Mixed { parts: vec![part("0", "/bin/a b", &["100%"]), part("1-2", "c", &[])], hosts };
        let described = describe(&mixed, Path::new("/s")).unwrap();
        let args = ["--ntasks=3", "--distribution=arbitrary", "--multi-prog", "/s/programs-0"];
        assert_eq!(described.args, args);
        assert_eq!(described.programs.1, b"0 /bin/a\\ b 100\\%\n1-2 c\n");
        assert_eq!(described.hosts, Some(("/s/hosts".into(), b"n2\nn1\nn2\n".to_vec())));
        assert_eq!(described.env, [("SLURM_HOSTFILE".into(), "/s/hosts".into())]);
    }

    #[test]
    fn settings_beyond_one_step_reach_each_rank() {
        let mut mixed = Mixed { parts: vec![part("0", "a", &[]), part("1", "b", &[])], hosts: Vec::new() };
        mixed.parts.iter_mut().for_each(|part| {
            part.cwd = Some("/d".into());
            part.env = vec![("A".into(), "b".into())];
        });
        let described = describe(&mixed, Path::new("/s")).unwrap();
        assert_eq!(described.args[1], "--chdir=/d");
        assert_eq!((described.env, described.hosts), (vec![("A".into(), "b".into())], None));
        mixed.parts[1].cwd = Some("/e".into());
        mixed.parts[1].env = vec![("A".into(), "c".into()), ("B".into(), "d".into())];
        let described = describe(&mixed, Path::new("/s")).unwrap();
        assert_eq!(described.args, ["--ntasks=2", "--chdir=/d", "--multi-prog", "/s/programs-0"]);
        assert_eq!((described.env.len(), described.own.len()), (0, 2));
        assert_eq!((described.own[1].ranks.to_string(), described.own[1].env.len()), ("1".to_owned(), 2));
        assert_eq!(described.own[1].cwd, Some("/e".into()));
        mixed.parts[1].env[0].1 = "x".repeat(MAX_OWN_BYTES).into();
        let refused = describe(&mixed, Path::new("/s")).unwrap_err().to_string();
        assert!(refused.contains("one step of Slurm can be told of 49152"), "{refused}");
    }
}
