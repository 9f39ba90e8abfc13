//! The variables that reach a batch script, where gantry has to add some: `--export` of sbatch. Source: sbatch(1).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use super::environment::{build_export, split_export};
use crate::host::Host;
use crate::{Error, Result, Submission};

/// The list of the user.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Exported {
    list: Option<String>,
    /// It is in the arguments of the submission.
    is_argument: bool,
}

impl Exported {
    /// Finds the list that counts: an option's, else that of a variable, else the script's own.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub(super) fn find(submission: &Submission, script: &OsStr, host: &dyn Host) -> Result<Self> {
        let own = || last_list(&read_directives(&host.read(&Path::new(&submission.cwd).join(script)).ok()?));
        let argument = last_list(&submission.args);
        let is_argument = argument.is_some();
        let list = argument.or_else(|| host.env("SBATCH_EXPORT")).or_else(own);
        Ok(Self { list: list.map(into_text).transpose()?, is_argument })
    }

    /// The option with which PATH and the variables in `env`, the environment of sbatch, reach the job too. Every user of
    /// this machine can read it. So values that are not in the arguments anyway go into `env`, and so does a PATH. Values
    /// that would change sbatch itself stay in the list.
    ///
    /// # Errors
    /// A name is not UTF-8.
    pub(super) fn with(&self, env: &mut Vec<(OsString, OsString)>) -> Result<OsString> {
        let names = env.iter().map(|(name, _)| into_text(name.clone()));
        let names: Vec<String> = names.chain([Ok("PATH".to_owned())]).collect::<Result<_>>()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let given = self.list.as_deref().unwrap_or("ALL");
        let (given, mut values) = take_values(given, |name| !self.is_argument || name == "PATH");
        // The submission's own values take precedence, as at the end of the list.
        values.append(env);
        *env = values;
        // What comes later in the list takes precedence, even over a value in it.
        let list =
            build_export(Some(&given), &names).unwrap_or_else(|| format!("{given},{}", names.join(",")));
        Ok(format!("--export={list}").into())
    }
}

/// Splits a list into one of names and the values of those that are wanted. sbatch exports these from its environment.
/// Values that would change sbatch itself there stay in the list.
fn take_values(list: &str, wanted: impl Fn(&str) -> bool) -> (String, Vec<(OsString, OsString)>) {
    let mut values = Vec::new();
    let mut names = Vec::new();
    for item in split_export(list) {
        match unquote(item).split_once('=') {
            Some((name, value)) if !name.is_empty() && !is_for_sbatch(name) && wanted(name) => {
                values.push((name.into(), value.into()));
                names.push(name);
            }
            _ => names.push(item),
        }
    }
    (names.join(","), values)
}

/// Whether sbatch or its loader reads a variable.
fn is_for_sbatch(name: &str) -> bool {
    ["SLURM_", "SBATCH_", "LD_"].iter().any(|prefix| name.starts_with(prefix))
}

/// Removes quotes around a whole item, as sbatch does. Others belong to the value.
fn unquote(item: &str) -> &str {
    let inside = |quote| item.strip_prefix(quote)?.strip_suffix(quote);
    inside('\'').or_else(|| inside('"')).unwrap_or(item)
}

fn into_text(text: OsString) -> Result<String> {
    text.into_string().map_err(|_| Error::invalid("the list of --export is not UTF-8"))
}

/// The value of the last `--export`.
fn last_list(words: &[OsString]) -> Option<OsString> {
    let mut last = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--export" {
            last = words.next().cloned();
        } else if let Some(list) = word.as_bytes().strip_prefix(b"--export=") {
            last = Some(OsStr::from_bytes(list).to_owned());
        }
    }
    last
}

/// The words of the `#SBATCH` lines in a script. They end at its first command.
fn read_directives(script: &[u8]) -> Vec<OsString> {
    let lines = script.split(|byte| *byte == b'\n');
    let head = lines.take_while(|line| line.trim_ascii().is_empty() || line.starts_with(b"#"));
    head.filter_map(|line| line.strip_prefix(b"#SBATCH")).flat_map(split_directive).collect()
}

/// Splits at blanks outside of quotes, and removes the quotes. `#` begins a comment.
fn split_directive(line: &[u8]) -> Vec<OsString> {
    let (mut words, mut word, mut quote) = (Vec::new(), Vec::new(), None);
    for byte in line.iter().chain(b" ") {
        match (quote, byte) {
            (Some(open), byte) if byte == open => quote = None,
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b' ' | b'\t' | b'\r' | b'#') => {
                if !word.is_empty() {
                    words.push(OsString::from_vec(std::mem::take(&mut word)));
                }
                if *byte == b'#' {
                    return words;
                }
            }
            (_, byte) => word.push(*byte),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    /// The option for a script with these options, variable and lines, then what goes into the environment instead.
    #[track_caller]
    fn check(args: &[&str], variable: &str, script: &str, expected: &str, values: &str) {
        let host = FakeHost::default().with_env("SBATCH_EXPORT", variable).with_file("/w/job.sh", script);
        let args = args.iter().map(OsString::from).collect();
        let submission = Submission { args, held: None, env: Vec::new(), cwd: "/w".into() };
        let found = Exported::find(&submission, OsStr::new("job.sh"), &host).unwrap();
        let mut env = Vec::new();
        assert_eq!(found.with(&mut env).unwrap(), OsString::from(format!("--export={expected}")));
        let moved: Vec<_> =
            env.iter().map(|(name, value)| format!("{}={}", name.display(), value.display())).collect();
        assert_eq!(moved.join(" + "), values);
    }

    #[test]
    fn what_the_user_exports_reaches_the_script() {
        check(&[], "", "", "ALL,PATH", "");
        check(&["--export=NONE"], "", "", "PATH", "");
        check(&["--export=NIL"], "", "", "PATH", "");
        check(&["--export=ALL,A=1"], "", "", "ALL,A=1,PATH", "");
        check(&["--export", "A=1,PATH=/x:/y"], "", "", "A=1,PATH,PATH", "PATH=/x:/y");
        check(&["--export=ALL,'PATH=/x:/y',\"B=2,3\""], "", "", "ALL,PATH,\"B=2,3\",PATH", "PATH=/x:/y");
        check(&["--export=A", "-N2", "--export=B"], "C", "", "B,PATH", "");
        check(&["-N2"], "C", "#SBATCH --export=D\n", "C,PATH", "");
    }

    #[test]
    fn a_script_may_say_what_it_gets() {
        let check = |script: &str, expected: &str, values: &str| {
            check(&["-N2"], "", script, expected, values);
        };
        check("#!/bin/sh\n\n# x\n#SBATCH -N 2 --export=ALL,D=1 # why\nsrun a\n", "ALL,D,PATH", "D=1");
        check("#!/bin/sh\n#SBATCH --export \"A=1,B=2 3\"\n#SBATCH -n 4\n", "A,B,PATH", "A=1 + B=2 3");
        check("#!/bin/sh\nsrun a\n#SBATCH --export=NONE\n", "ALL,PATH", "");
        check("#!/bin/sh\n##SBATCH --export=NONE\n", "ALL,PATH", "");
    }

    #[test]
    fn a_value_is_in_no_argument_that_the_user_has_not_written() {
        let check = |list: &str, expected: &str, values: &str| {
            check(&[], list, "", expected, values);
            check(&[], "", &format!("#SBATCH \"--export={list}\"\n"), expected, values);
        };
        check("ALL,KEY=secret", "ALL,KEY,PATH", "KEY=secret");
        check("'KEY=a,b=c',A='x,y',B", "KEY,A,B,PATH", "KEY=a,b=c + A='x,y'");
        check("PATH=/x", "PATH,PATH", "PATH=/x");
        // In its own environment these would mean something to sbatch.
        check(
            "SBATCH_QOS=q,SLURM_CONF=/c,LD_PRELOAD=/l",
            "SBATCH_QOS=q,SLURM_CONF=/c,LD_PRELOAD=/l,PATH",
            "",
        );
    }

    #[test]
    fn variables_of_the_submission_are_exported_too() {
        let with = |list: Option<&str>| {
            let mut env = vec![("X".into(), "1".into())];
            let found = Exported { list: list.map(str::to_owned), is_argument: false };
            (found.with(&mut env).unwrap(), env)
        };
        let given = ("X".into(), "1".into());
        assert_eq!(with(None), ("--export=ALL,X,PATH".into(), vec![given.clone()]));
        assert_eq!(with(Some("A")), ("--export=A,X,PATH".into(), vec![given.clone()]));
        // The last one of a name counts.
        assert_eq!(with(Some("X=2")), ("--export=X,X,PATH".into(), vec![("X".into(), "2".into()), given]));
    }
}
