//! Ranks that are not all the same as one srun: their programs in a file (`--multi-prog`), their hosts in another (an arbitrary distribution).

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::launcher::escape_multi_prog;
use crate::wanted::{Mixed, MixedPart};
use crate::{Error, Result};

/// The variable with the file of the hosts of an arbitrary distribution, one a task. Source: srun(1), `--distribution`.
const HOST_FILE: &str = "SLURM_HOSTFILE";

/// A file and what is in it.
type Written = (PathBuf, Vec<u8>);

/// A launch for srun.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Described {
    /// The arguments of srun.
    pub(super) args: Vec<OsString>,
    /// Variables for srun and for its tasks.
    pub(super) env: Vec<(OsString, OsString)>,
    /// The file with the programs.
    pub(super) programs: Written,
    /// The file with the hosts, if any are named.
    pub(super) hosts: Option<Written>,
}

/// Describes a launch to srun, whose files are to be in `scratch`.
///
/// # Errors
/// Parts have different directories or environments, which one step cannot have; a word that the file with programs cannot hold.
pub(super) fn describe(mixed: &Mixed, scratch: &Path) -> Result<Described> {
    let first = mixed.parts.first().ok_or_else(|| Error::invalid("nothing to launch: no part"))?;
    check_common(mixed, first)?;
    let mut text = Vec::new();
    for part in &mixed.parts {
        text.extend(part.ranks.to_string().into_bytes());
        for word in std::iter::once(&part.program).chain(&part.args) {
            text.push(b' ');
            text.extend(escape_multi_prog(word)?);
        }
        text.push(b'\n');
    }
    let programs = (scratch.join("programs-0"), text);
    let mut args: Vec<OsString> = vec![format!("--ntasks={}", mixed.size()).into()];
    let mut env = first.env.clone();
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
    Ok(Described { args, env, programs, hosts })
}

/// What all tasks of a step have in common must be common.
fn check_common(mixed: &Mixed, first: &MixedPart) -> Result<()> {
    let differs = |what: &str| {
        let message = format!("one step of Slurm has one {what}, and the processes are to have several");
        Err(Error::invalid_with(message, "give all processes the same, or start several groups"))
    };
    let sorted = |part: &MixedPart| {
        let mut env = part.env.clone();
        env.sort_by(|one, other| one.0.as_bytes().cmp(other.0.as_bytes()));
        env
    };
    if mixed.parts.iter().any(|part| sorted(part) != sorted(first)) {
        return differs("environment");
    }
    if mixed.parts.iter().any(|part| part.cwd != first.cwd) {
        return differs("directory");
    }
    Ok(())
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
    fn what_one_step_cannot_have_is_named() {
        let mut mixed = Mixed { parts: vec![part("0", "a", &[]), part("1", "b", &[])], hosts: Vec::new() };
        mixed.parts.iter_mut().for_each(|part| {
            part.cwd = Some("/d".into());
            part.env = vec![("A".into(), "b".into())];
        });
        let described = describe(&mixed, Path::new("/s")).unwrap();
        assert_eq!(described.args[1], "--chdir=/d");
        assert_eq!((described.env, described.hosts), (vec![("A".into(), "b".into())], None));
        let refused = |mixed: &Mixed| describe(mixed, Path::new("/s")).unwrap_err().to_string();
        mixed.parts[1].cwd = None;
        assert!(refused(&mixed).contains("one directory"));
        mixed.parts[1].env.clear();
        assert!(refused(&mixed).contains("one environment"));
    }
}
