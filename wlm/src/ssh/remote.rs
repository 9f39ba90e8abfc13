//! Runs one command on a host that a job's WLM names. It is for WLMs that must look or start something there, and have
//! no command of their own for that.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use gantry_types::error::{Failure, Kind};

use super::call::Call;
pub(crate) use super::client::build_environment;
use super::client::find_client;
use super::command::Reaching;
use super::hosts::host_for_ssh;
use super::openssh::{Words, explain};
use crate::host::Host;
use crate::{Error, Result};

/// The client's exit code if it could not run the command. Source: ssh(1).
const NOT_REACHED: &str = "255";

/// The command line that runs a program with these arguments on the host `there`; `agent` is the agent on this
/// machine.
///
/// # Errors
/// There is no client, or a word cannot be quoted in the same way for all login shells.
pub(crate) fn build_command(
    there: &str,
    words: &[impl AsRef<str>],
    agent: &Path,
    host: &dyn Host,
) -> Result<Vec<OsString>> {
    let client = find_client(host, agent)?;
    let mut command = "exec".to_owned();
    for word in words.iter().map(AsRef::as_ref) {
        if word.contains(['\'', '\\', '!', '\n']) {
            let message = format!("{word} cannot be quoted for every login shell");
            return Err(Error::invalid_with(message, "install gantry in a folder with a plain name"));
        }
        command.push_str(&format!(" '{word}'"));
    }
    let call = Call { command: command.into(), ..Call::new(&host_for_ssh(there)?, &Reaching::default()) };
    let mut argv = vec![client.program().as_os_str().to_owned()];
    argv.extend(client.build_args(&call));
    Ok(argv)
}

/// The output of a command on the host `there`.
///
/// # Errors
/// As [`build_command`]; the host refuses the login. [`Error::Unanswered`]: it does not answer, or has no room for another
/// connection.
pub(crate) fn ask(
    there: &str,
    words: &[impl AsRef<str>],
    agent: &Path,
    timeout: Duration,
    host: &dyn Host,
) -> Result<(String, String)> {
    let command = build_command(there, words, agent, host)?;
    let said = host
        .ask_as(&command, build_environment(host), timeout)
        .map_err(|error| Error::not_run_for(&format!("{there}: "), &command, &error))?;
    let words = read_words(&said.stderr);
    if !words.authenticated && said.stdout.is_empty() {
        let failure = explain(there, &words).failure;
        return Err(match Error::of_answer(failure.clone().at(there)) {
            Error::Failed(_) => Error::Hosts { of: 1, missing: vec![(there.to_owned(), failure)] },
            unanswered => unanswered,
        });
    }
    Ok((said.stdout, words.last_lines()))
}

/// Explains why a command of [`build_command`] has ended, from its status and its last output.
pub(crate) fn explain_end(there: &str, status: &str, said: &str) -> Failure {
    let words = read_words(said);
    if status.contains(NOT_REACHED) && !words.authenticated {
        return explain(there, &words).failure;
    }
    let lines = words.last_lines();
    let lines = if lines.is_empty() { status.to_owned() } else { lines };
    Failure::new(Kind::LauncherFailed, lines)
}

fn read_words(text: &str) -> Words {
    let mut words = Words::default();
    text.lines().for_each(|line| words.take(line));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    fn host() -> FakeHost {
        FakeHost::default().with_env("PATH", "/bin").with_file("/bin/ssh", "")
    }

    fn line(words: &[&str]) -> String {
        let command = build_command("n1", words, Path::new("/g/gantry-agent"), &host()).unwrap();
        command.join(std::ffi::OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn words_are_the_same_to_every_login_shell() {
        let said = line(&["/a b/guard", "look"]);
        assert!(
            said.starts_with("/bin/ssh -T ") && said.ends_with(" -- n1 exec '/a b/guard' 'look'"),
            "{said}"
        );
        let odd = build_command("n1", &["/it's"], Path::new("/g/a"), &host()).unwrap_err();
        assert!(odd.to_string().contains("/it's cannot be quoted"), "{odd}");
    }

    #[test]
    fn a_refused_login_names_the_host() {
        let limit = Duration::from_secs(1);
        let not_run = ask("n1", &["x"], Path::new("/g/gantry-agent"), limit, &host()).unwrap_err();
        assert!(not_run.to_string().starts_with("n1: cannot run /bin/ssh -T "), "{not_run}");
        let ask = |stdout: &str, stderr: &str| {
            let host = host().with_answer(&line(&["x"]), stdout, stderr);
            ask("n1", &["x"], Path::new("/g/gantry-agent"), limit, &host)
        };
        let refused = ask("", "me@n1: Permission denied (publickey).").unwrap_err();
        assert_eq!(refused.kind(), Kind::NoAccess, "{refused}");
        assert!(refused.to_string().contains("n1"), "{refused}");
        for words in
            ["Connection reset by 10.0.0.1 port 22", "Not allowed at this time", "Connection refused"]
        {
            let lost = ask("", words).unwrap_err();
            assert!(matches!(lost, Error::Unanswered(_)) && lost.to_string().starts_with("n1: "), "{lost}");
        }
        let (stdout, words) = ask("found\n", "Authenticated to n1 (x).\nlast\n").unwrap();
        assert_eq!((stdout.as_str(), words.as_str()), ("found\n", "last"));
        assert_eq!(explain_end("n1", "exit code 1", "guard: no mom\n").message(), "guard: no mom");
        let denied = explain_end("n1", "exit code 255", "me@n1: Permission denied (publickey).");
        assert_eq!(denied.kind(), Kind::NoAccess);
    }
}
