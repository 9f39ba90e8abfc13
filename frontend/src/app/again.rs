//! Copies a launch request, with file descriptors of its own, so that the launch can be retried.

use std::fs::File;
use std::io::{IsTerminal, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;

use crate::request::{Input, LaunchRequest, OutputTo};

/// Copies `request` for a retry. None: the launcher may have consumed input that cannot be read again, or the request
/// belongs to a multijob, a co-allocated job or a mixed launch.
pub(super) fn again(request: &LaunchRequest) -> Option<LaunchRequest> {
    if request.subjob.is_some() || request.member.is_some() || request.mixed.is_some() {
        return None;
    }
    Some(LaunchRequest {
        args: request.args.clone(),
        hold: request.hold,
        hold_at: request.hold_at.clone(),
        hold_method: request.hold_method,
        linger: request.linger,
        queue_timeout: request.queue_timeout,
        launcher: request.launcher.clone(),
        launcher_wrapper: request.launcher_wrapper.clone(),
        env: request.env.clone(),
        cwd: request.cwd.clone(),
        stdin: input_again(&request.stdin)?,
        output: output_again(&request.output)?,
        subjob: None,
        submitter: request.submitter.clone(),
        mixed: None,
        member: None,
        joins_world: false,
    })
}

fn input_again(input: &Input) -> Option<Input> {
    match input {
        Input::Null => Some(Input::Null),
        Input::File(path) => Some(Input::File(path.clone())),
        Input::Fd(fd) => readable_again(fd).map(Input::Fd),
    }
}

/// Returns a descriptor from which a retry can read the same input.
/// - A file gets a second open file description, at the current offset of `fd`.
/// - A terminal is shared: the retry reads what the user types next.
/// - A character device such as /dev/null is shared: it always gives the same.
fn readable_again(fd: &OwnedFd) -> Option<OwnedFd> {
    let mut file = File::from(fd.try_clone().ok()?);
    let kind = file.metadata().ok()?;
    if kind.is_file() {
        let at = file.stream_position().ok()?;
        let mut own = File::open(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
        own.seek(SeekFrom::Start(at)).ok()?;
        return Some(own.into());
    }
    (file.is_terminal() || kind.file_type().is_char_device()).then(|| file.into())
}

fn output_again(output: &OutputTo) -> Option<OutputTo> {
    Some(match output {
        OutputTo::Null => OutputTo::Null,
        OutputTo::Stream => OutputTo::Stream,
        OutputTo::Fds { stdout, stderr } => {
            OutputTo::Fds { stdout: stdout.try_clone().ok()?, stderr: stderr.try_clone().ok()? }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    fn read(input: Option<Input>) -> Option<String> {
        let Some(Input::Fd(fd)) = input else { return None };
        let mut text = String::new();
        File::from(fd).read_to_string(&mut text).unwrap();
        Some(text)
    }

    #[test]
    fn input_is_read_again_from_where_the_first_reader_began_and_a_pipe_is_not() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"one two").unwrap();
        file.seek(SeekFrom::Start(4)).unwrap();
        let first = Input::Fd(file.into());
        let second = input_again(&first);
        assert_eq!(read(Some(first)).as_deref(), Some("two"));
        assert_eq!(read(second).as_deref(), Some("two"));
        let (pipe, _) = std::io::pipe().unwrap();
        assert!(input_again(&Input::Fd(pipe.into())).is_none());
        let null = File::open("/dev/null").unwrap();
        assert_eq!(read(input_again(&Input::Fd(null.into()))).as_deref(), Some(""));
    }

    #[test]
    fn a_request_with_a_place_in_a_multijob_is_not_made_again() {
        let multijob = crate::rendezvous::Multijob::new(1).unwrap();
        assert!(again(&LaunchRequest::new(["true"]).subjob(&multijob, 0)).is_none());
        assert_eq!(again(&LaunchRequest::new(["true"])).unwrap().args, ["true"]);
    }
}
