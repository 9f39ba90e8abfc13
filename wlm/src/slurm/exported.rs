//! The variables that reach a batch script, where gantry has to add some: `--export` of sbatch. Source: sbatch(1).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::environment::{build_export, split_export};
use crate::host::Host;
use crate::{Error, Result, Submission};

/// The list of the user.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Exported(Option<String>);

impl Exported {
    /// Finds the list that counts: an option's, else that of a variable, else the script's own.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub(super) fn find(submission: &Submission, script: &OsStr, host: &dyn Host) -> Result<Self> {
        let own = || last_list(&read_directives(&host.read(&submission.cwd.join(script)).ok()?));
        let list = last_list(&submission.args).or_else(|| host.env("SBATCH_EXPORT")).or_else(own);
        list.map(into_text).transpose().map(Self)
    }

    /// The option with which PATH and these variables reach the job, too, as sbatch has them in its environment.
    ///
    /// # Errors
    /// A name is not UTF-8.
    pub(super) fn with(&self, env: &[(OsString, OsString)]) -> Result<OsString> {
        let names = env.iter().map(|(name, _)| into_text(name.clone()));
        let names: Vec<String> = names.chain([Ok("PATH".to_owned())]).collect::<Result<_>>()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let given = self.0.as_deref().unwrap_or("ALL");
        // What comes later in the list takes precedence, even over a value in it.
        let list =
            build_export(Some(given), &names).unwrap_or_else(|| format!("{given},{}", names.join(",")));
        Ok(format!("--export={list}").into())
    }

    /// The value of PATH in the list.
    pub(super) fn path(&self) -> Option<&str> {
        split_export(self.0.as_deref()?).into_iter().rev().find_map(|item| item.strip_prefix("PATH="))
    }
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

    /// The option for a script with these options, variable and lines, and PATH in the list.
    #[track_caller]
    fn check(args: &[&str], variable: &str, script: &str, expected: &str, path: Option<&str>) {
        let host = FakeHost::default().with_env("SBATCH_EXPORT", variable).with_file("/w/job.sh", script);
        let args = args.iter().map(OsString::from).collect();
        let submission = Submission { args, held: None, env: Vec::new(), cwd: "/w".into() };
        let found = Exported::find(&submission, OsStr::new("job.sh"), &host).unwrap();
        assert_eq!((found.with(&[]).unwrap(), found.path()), (format!("--export={expected}").into(), path));
    }

    #[test]
    fn what_the_user_exports_reaches_the_script() {
        check(&[], "", "", "ALL,PATH", None);
        check(&["--export=NONE"], "", "", "PATH", None);
        check(&["--export=ALL,A=1"], "", "", "ALL,A=1,PATH", None);
        check(&["--export", "A=1,PATH=/x:/y"], "", "", "A=1,PATH=/x:/y,PATH", Some("/x:/y"));
        check(&["--export=A", "-N2", "--export=B"], "C", "", "B,PATH", None);
        check(&["-N2"], "C", "#SBATCH --export=D\n", "C,PATH", None);
    }

    #[test]
    fn a_script_may_say_what_it_gets() {
        let check = |script: &str, expected: &str| check(&["-N2"], "", script, expected, None);
        check("#!/bin/sh\n\n# x\n#SBATCH -N 2 --export=ALL,D=1 # why\nsrun a\n", "ALL,D=1,PATH");
        check("#!/bin/sh\n#SBATCH --export \"A=1,B=2 3\"\n#SBATCH -n 4\n", "A=1,B=2 3,PATH");
        check("#!/bin/sh\nsrun a\n#SBATCH --export=NONE\n", "ALL,PATH");
        check("#!/bin/sh\n##SBATCH --export=NONE\n", "ALL,PATH");
    }

    #[test]
    fn variables_of_the_submission_are_exported_too() {
        let env = [("X".into(), "1".into())];
        let with = |list: Option<&str>| Exported(list.map(str::to_owned)).with(&env).unwrap();
        assert_eq!((with(None), with(Some("A"))), ("--export=ALL,X,PATH".into(), "--export=A,X,PATH".into()));
    }
}
