//! The detour: a function for untraced threads in the breakpoint's place. It notifies the first thread and returns.
//!
//! A launcher that starts the parts of a launch in several threads calls `MPIR_Breakpoint` in each of them, and each
//! call releases the ranks of all. A breakpoint would have to be in every thread, each of them traced from its birth.
//! A function that only sends the first thread a signal is sufficient, and leaves the other threads alone. A process
//! that does not handle this signal ignores it, so a late thread does no harm.

use std::io;

use super::breakpoint::write;
use super::memory::Width;
use super::tracee::Tracee;

/// The signal that notifies the first thread.
pub(super) const WORD: i32 = libc::SIGURG;

/// Writes the detour at `address`, over a function of `room_bytes` bytes.
///
/// # Errors
/// There is no detour for this machine and width, the function is too short, or a system call failed.
pub(super) fn set(tracee: &Tracee, width: Width, address: u64, room_bytes: u64) -> io::Result<()> {
    let code = match width {
        Width::Wide => build(tracee.raw().cast_unsigned()),
        Width::Narrow => Vec::new(),
    };
    if code.is_empty() || code.len() as u64 > room_bytes {
        return Err(io::ErrorKind::Unsupported.into());
    }
    write(tracee.raw(), address, &code)
}

/// `tgkill(pid, pid, WORD)`, and a return. It preserves all callee-saved registers.
#[cfg(target_arch = "x86_64")]
fn build(pid: u32) -> Vec<u8> {
    const MOV_EDI: u8 = 0xbf;
    const MOV_ESI: u8 = 0xbe;
    const MOV_EDX: u8 = 0xba;
    const MOV_EAX: u8 = 0xb8;
    const SYSCALL_RET: [u8; 3] = [0x0f, 0x05, 0xc3];
    let number = u32::try_from(libc::SYS_tgkill).unwrap_or_default();
    let set =
        [(MOV_EDI, pid), (MOV_ESI, pid), (MOV_EDX, WORD.cast_unsigned()), (MOV_EAX, number)].into_iter();
    let set = set.flat_map(|(code, value)| [code].into_iter().chain(value.to_le_bytes()));
    set.chain(SYSCALL_RET).collect()
}

/// As above, for this processor.
#[cfg(target_arch = "aarch64")]
fn build(pid: u32) -> Vec<u8> {
    const MOV_X1_X0: u32 = 0xaa00_03e1;
    const SVC: u32 = 0xd400_0001;
    const RET: u32 = 0xd65f_03c0;
    let movz = |register: u32, value: u32| 0x5280_0000 | (value & 0xffff) << 5 | register;
    let movk_high = |register: u32, value: u32| 0x72a0_0000 | (value >> 16) << 5 | register;
    let number = u32::try_from(libc::SYS_tgkill).unwrap_or_default();
    let code = [
        movz(0, pid),
        movk_high(0, pid),
        MOV_X1_X0,
        movz(2, WORD.cast_unsigned()),
        movz(8, number),
        SVC,
        RET,
    ];
    code.into_iter().flat_map(u32::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_code_is_that_of_an_assembler() {
        let expected = "bf04030201 be04030201 ba17000000 b8ea000000 0f05 c3".split(' ').collect::<String>();
        let made: String = build(0x0102_0304).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(made, expected);
    }
}
