//! Files that are made to be executed.
//!
//! A child process writes them: another test's fork could inherit a descriptor that is open for writing here, and the
//! kernel refuses to execute a file that is open for writing (`ETXTBSY`).

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes an executable file: a script, or bytes that only resemble a program.
///
/// # Panics
/// When it cannot be written.
#[track_caller]
pub fn write_executable(path: &Path, bytes: impl AsRef<[u8]>) {
    let child = Command::new("/bin/sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn();
    let mut child = child.expect("a shell");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(bytes.as_ref()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    drop(stdin);
    let status = child.wait().expect("the shell's status");
    assert!(status.success(), "{}: {status}", path.display());
}

/// Copies a program with its mode, as [`std::fs::copy`] does.
///
/// # Panics
/// When it cannot be copied.
#[track_caller]
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let (from, to) = (from.as_ref(), to.as_ref());
    let copied = Command::new("/bin/cp").args(["-L", "--preserve=mode", "--"]).args([from, to]).output();
    let copied = copied.expect("cp");
    assert!(copied.status.success(), "{} to {}: {copied:?}", from.display(), to.display());
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn what_was_written_can_be_executed_while_other_threads_start_programs() {
        let (folder, done) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
        let run = |path: &Path| Command::new(path).status();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        run(Path::new("/bin/true")).unwrap();
                    }
                });
            }
            let make = |number: u32| {
                let path = folder.path().join(format!("program{number}"));
                match number % 2 {
                    0 => copy_program("/bin/true", &path),
                    _ => write_executable(&path, "#!/bin/sh\n"),
                }
                run(&path)
            };
            let made: Result<Vec<_>, _> = (0..200).map(make).collect();
            done.store(true, Ordering::Relaxed);
            made.unwrap();
        });
    }
}
