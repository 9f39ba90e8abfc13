//! A file system that hangs. `hang_fs DIR` mounts one at that directory, prints `hangs`, and answers no request until
//! the end of its standard input. At the first request it prints `asked`. At the end it unmounts the file system, and
//! every request fails.
//!
//! It implements the kernel's FUSE protocol up to the greeting (`linux/fuse.h`). Even SIGKILL cannot interrupt an
//! unanswered request. Processes behave in the same way when their file server is gone. With `hang_fs DIR killable`,
//! SIGKILL ends a process that waits, as with a server of NFS or Lustre that is gone.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The opcode of the kernel's greeting.
const FUSE_INIT: u32 = 26;
/// A request's header: length, opcode, unique number, and more.
const HEADER_BYTES: usize = 40;
/// Size of the reply to the greeting, without its header.
const INIT_BYTES: usize = 64;
/// More than any request has.
const REQUEST_BYTES: usize = 1024 * 1024;

fn main() -> io::Result<()> {
    let place = std::env::args_os().nth(1).ok_or(io::ErrorKind::InvalidInput)?;
    let place = Path::new(&place);
    let is_killable = std::env::args_os().nth(2).is_some();
    let mut device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    let options = format!("fd={},rootmode=40755,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    mount(Some("hang"), place, Some("fuse"), MsFlags::empty(), Some(options.as_str()))?;
    greet(&mut device)?;
    writeln!(io::stdout(), "hangs")?;
    let mut reader = device.try_clone()?;
    std::thread::spawn(move || {
        if is_killable {
            // The kernel takes back a request that was not read.
            let mut requests = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
            if poll(&mut requests, PollTimeout::NONE).is_ok() {
                drop(writeln!(io::stdout(), "asked"));
            }
            return;
        }
        let mut request = vec![0; REQUEST_BYTES];
        let mut first = true;
        while reader.read(&mut request).is_ok_and(|bytes| bytes > 0) {
            if std::mem::take(&mut first) {
                // The reader may be gone.
                drop(writeln!(io::stdout(), "asked"));
            }
        }
    });
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    // The end of this process is the end of the connection.
    Ok(umount2(place, MntFlags::MNT_DETACH)?)
}

/// Replies to the kernel's greeting: version 7.31, without optional features.
fn greet(device: &mut File) -> io::Result<()> {
    let mut request = vec![0; REQUEST_BYTES];
    let bytes = device.read(&mut request)?;
    let header = request.get(..HEADER_BYTES.min(bytes)).unwrap_or_default();
    if header.get(4..8) != Some(&FUSE_INIT.to_ne_bytes()[..]) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut answer = Vec::new();
    answer.extend(u32::try_from(16 + INIT_BYTES).unwrap_or_default().to_ne_bytes());
    answer.extend(0_i32.to_ne_bytes());
    answer.extend(&header[8..16]);
    for number in [7_u32, 31] {
        answer.extend(number.to_ne_bytes());
    }
    answer.resize(16 + INIT_BYTES, 0);
    // max_write, behind readahead, flags and two short numbers.
    answer[36..40].copy_from_slice(&65_536_u32.to_ne_bytes());
    device.write_all(&answer)
}
