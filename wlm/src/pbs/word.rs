//! Why an agent ended before it had a link. PBS discards a task's output, so such an agent leaves its error message
//! with its mom, under its own task. It is read when the task has ended. If the program could not be executed,
//! another task finds the reason.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gantry_shared::wire::frame;
use gantry_types::error::{Failure, Kind};
use tokio::time::timeout;

use super::place::read_environment;
use super::tm::{Client, Framing, Spawn, Task, TmError};
use crate::Result;
use crate::give;
use crate::host::Host;

/// How long a mom may take for each answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The name under which an agent leaves its error.
const WORD: &[u8] = b"gantry-last-word";

/// The exit status for a program that could not be executed. For a killed one the mom reports this limit plus the
/// signal.
const NOT_EXECUTED: i32 = 254;
const KILLED: i32 = 256;

/// Shows by its exit code why a program cannot be executed.
const FIND_OUT: &str = r#"[ -e "$0" ] || exit 11; [ -f "$0" ] && [ -x "$0" ] || exit 12; exit 13"#;

/// How a task has ended.
pub(super) type Obit = std::result::Result<i32, TmError>;

/// Publishes the reason why this process, a task of a job, is about to end.
///
/// # Errors
/// It is not in a job; its mom does not answer.
pub(super) async fn leave(word: &Failure, host: &dyn Host) -> Result<()> {
    let bytes = frame::encode_body(word).unwrap_or_default();
    let client = Client::connect(&read_environment(host)?, Framing::Packets, PATIENCE).await?;
    client.publish(WORD, &bytes, PATIENCE).await?;
    Ok(())
}

/// The program of a task that becomes an agent.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// It only fetches the agent.
    pub(super) fetches: bool,
}

/// The meaning of the end of an agent's task.
pub(super) async fn explain_end(client: &Client, task: Task, program: &Program, obit: Obit) -> Failure {
    match obit {
        Ok(NOT_EXECUTED) => explain_not_executed(&program.path, find_out(client, task, &program.path).await),
        Ok(status) => match read(client, task).await {
            Some(word) => word,
            None => give::explain_status(status)
                .filter(|_| program.fetches)
                .unwrap_or_else(|| explain_status(status)),
        },
        Err(error) => to_failure(&error),
    }
}

/// The error that a task has left.
async fn read(client: &Client, task: Task) -> Option<Failure> {
    let word = client.subscribe(task, WORD, PATIENCE).await.ok()?;
    frame::decode(&word).ok()
}

/// Has a shell look at the program on its node.
async fn find_out(client: &Client, task: Task, program: &Path) -> Option<i32> {
    let words = ["/bin/sh".as_ref(), "-c".as_ref(), FIND_OUT.as_ref(), program.as_os_str()];
    let looks = client.spawn(task.node, Spawn::new(words), PATIENCE).await.ok()?;
    timeout(PATIENCE, client.obit(looks)).await.ok()?.ok()
}

fn explain_not_executed(program: &Path, found: Option<i32>) -> Failure {
    let program = program.display();
    let shared = "install gantry at a path that all hosts of the job see";
    match found {
        Some(11) => Failure::new(Kind::NotFound, format!("there is no {program}")).with_hint(shared),
        Some(12) => {
            let what =
                format!("{program} may not be executed, by its mode or by how its file system is mounted");
            Failure::new(Kind::NoAccess, what).with_hint(shared)
        }
        Some(13) => {
            let what = format!(
                "{program} cannot be executed although its mode allows it: it is built for another machine, or its interpreter is missing"
            );
            Failure::new(Kind::Unsupported, what).with_hint("install gantry for the machines of the job")
        }
        _ => Failure::new(Kind::NotFound, format!("{program} could not be executed")).with_hint(shared),
    }
}

fn explain_status(status: i32) -> Failure {
    let what = match status {
        status if status > KILLED => format!("the agent was killed by signal {}", status - KILLED),
        status => format!("the agent ended with code {status}"),
    };
    Failure::new(Kind::LauncherFailed, what).with_hint("its output is in the job's output")
}

/// Converts an error of task management to one that can be sent.
pub(super) fn to_failure(error: &TmError) -> Failure {
    Failure::new(error.kind(), error.to_string()).with_hint_of(error.hint())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_end_is_explained() {
        let check = |status, expected| assert_eq!(explain_status(status).message(), expected);
        check(265, "the agent was killed by signal 9");
        check(1, "the agent ended with code 1");
    }

    #[test]
    fn a_shells_exit_code_names_the_cause() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("agent");
        let check = |expected: &str| {
            #[expect(clippy::disallowed_methods, reason = "a real shell runs the script under test")]
            let mut shell = std::process::Command::new("/bin/sh");
            let status = shell.args(["-c", FIND_OUT]).arg(&program).status().unwrap();
            let failure = explain_not_executed(&program, status.code());
            assert!(failure.message().contains(expected), "{status}: {failure}");
        };
        check("there is no ");
        std::fs::write(&program, "no program").unwrap();
        check("may not be executed");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        check("built for another machine");
    }
}
