//! Commands of the user that this command runs.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use gantry_wlm::host::restore_open_files;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::interrupts::{Interrupt, Interrupts};

/// A shell command with these variables. It gets the resource limits that this process started with.
pub(super) fn shell(command: &OsStr, variables: &[(&str, String)]) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command);
    for (name, value) in variables {
        shell.env(name, value);
    }
    restore_open_files(shell.as_std_mut());
    shell
}

/// Runs a command with a text on its standard input, and waits for its end. Cancelling the wait kills it.
///
/// # Errors
/// It cannot be started.
pub(super) async fn run_with_input(mut command: Command, input: &str) -> io::Result<ExitStatus> {
    let mut child = command.stdin(Stdio::piped()).kill_on_drop(true).spawn()?;
    let to_child = child.stdin.take();
    let write = async {
        if let Some(mut to_child) = to_child {
            // The command may close its input early.
            drop(to_child.write_all(input.as_bytes()).await);
        }
    };
    let (status, ()) = tokio::join!(child.wait(), write);
    status
}

/// Runs a program that owns the terminal, and waits for its end. Ctrl-C goes to the program. Some: another interrupt
/// arrived and killed the program.
///
/// # Errors
/// It cannot be started.
pub(super) async fn run_at_terminal(
    program: &Path,
    args: &[&str],
    interrupts: &mut Interrupts,
) -> io::Result<Option<Interrupt>> {
    let mut command = Command::new(program);
    command.args(args).kill_on_drop(true);
    restore_open_files(command.as_std_mut());
    let mut child = command.spawn()?;
    loop {
        tokio::select! {
            ended = child.wait() => return ended.map(|_| None),
            interrupt = interrupts.next() => match interrupt {
                Interrupt::Ask => {}
                Interrupt::End(_) => {
                    child.kill().await?;
                    return Ok(Some(interrupt));
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_reads_its_input_and_finds_its_variables() {
        let command = OsStr::new("[ \"$(cat)\" = \"$GANTRY_WATCH_TARGET\" ] && exit 3");
        let run = async |input: &str| {
            let shell = shell(command, &[("GANTRY_WATCH_TARGET", "a b".to_owned())]);
            run_with_input(shell, input).await.unwrap().code()
        };
        assert_eq!(run("a b").await, Some(3));
        assert_eq!(run("a c").await, Some(1));
        // A command that does not read its input must not block.
        let nothing = shell(OsStr::new("exit 4"), &[]);
        assert_eq!(run_with_input(nothing, &"x".repeat(1 << 20)).await.unwrap().code(), Some(4));
    }
}
