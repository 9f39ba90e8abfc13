//! The program `gantry-agent`. See the library.
//!
//! Every rank of a launcher begins as this program. Before a `main` of Rust, the standard library reads the memory map of
//! the process, to name an overflow of its stack. That is a sixth of what a rank costs here, and an overflow ends the
//! process in any case. So the C library calls us, and we do the rest of what the standard library does first.
#![cfg_attr(target_env = "gnu", no_main)]

/// C libraries other than GNU's tell the arguments of a program to `main` alone.
#[cfg(not(target_env = "gnu"))]
fn main() -> std::process::ExitCode {
    gantry_agent::run().into()
}

#[cfg(target_env = "gnu")]
mod sys {
    #![expect(unsafe_code, reason = "the C library calls a function of this name, and system calls")]

    use std::ffi::c_int;
    use std::io::{self, Write};

    /// The exit code of a program of Rust that panics.
    const PANICKED: u8 = 101;

    // SAFETY: no other function of this name is in the program.
    #[unsafe(no_mangle)]
    extern "C" fn main() -> c_int {
        open_standard();
        // SAFETY: ignores one signal; no handler is set or replaced.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        let code = std::panic::catch_unwind(gantry_agent::run).unwrap_or(PANICKED);
        // Its reader may be gone.
        io::stdout().flush().ok();
        code.into()
    }

    /// Opens those of the standard descriptors that are closed. A file of ours that has such a number would be read or written
    /// in the place of standard input or output.
    fn open_standard() {
        for standard in 0..3 {
            // SAFETY: takes integers only.
            let flags = unsafe { libc::fcntl(standard, libc::F_GETFD) };
            if flags == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EBADF) {
                // It gets the lowest number that is free: this one. The rank has it, too.
                // SAFETY: a valid C string.
                if unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) } == -1 {
                    std::process::abort();
                }
            }
        }
    }
}
