//! Registers by their numbers in unwinding tables.

use std::io;

use gantry_shared::ptrace;

/// How many numbers there are.
const COUNT: usize = 17;

/// x86-64: the numbers of the psABI. Source: System V ABI, AMD64 supplement, figure 3.36.
pub(crate) const FRAME_POINTER: u16 = 6;
pub(crate) const STACK_POINTER: u16 = 7;
pub(crate) const RETURN_ADDRESS: u16 = 16;

/// Callee-saved registers. Source: System V ABI, AMD64 supplement, 3.2.1.
pub(crate) const KEPT: [u16; 6] = [3, 6, 12, 13, 14, 15];

/// The index of each register in the kernel's structure. Source: `user_regs_struct` in sys/user.h.
const PLACES: [usize; COUNT] = [10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, 16];

/// The index of the thread pointer: the address of the thread's own variables, by which the C library identifies it.
const THREAD: usize = 21;

/// The index of the number of the system call that the thread is in; -1: it is in none.
const SYSTEM_CALL: usize = 15;

/// The bytes of a 64-bit thread's registers.
const SET_BYTES: usize = 27 * 8;

/// The registers of a frame; the return address is its instruction. Unknown registers are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Registers([Option<u64>; COUNT]);

/// What the kernel knows of a stopped thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadState {
    pub(crate) registers: Registers,
    pub(crate) thread_pointer: u64,
    /// The number of the system call that it is in.
    pub(crate) system_call: Option<u64>,
}

impl ThreadState {
    /// Of a stopped thread.
    pub(crate) fn of_thread(thread: i32) -> io::Result<Self> {
        let set = ptrace::registers(thread)?;
        match cfg!(target_arch = "x86_64") && set.length_bytes == SET_BYTES {
            true => Ok(Self {
                registers: Registers(PLACES.map(|place| set.words.get(place).copied())),
                thread_pointer: set.words[THREAD],
                system_call: Some(set.words[SYSTEM_CALL]).filter(|number| number.cast_signed() >= 0),
            }),
            false => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl Registers {
    /// A register by its number.
    pub(crate) fn get(&self, number: u16) -> Option<u64> {
        self.0.get(usize::from(number)).copied().flatten()
    }

    /// Changes one. Numbers that unwinding does not need are ignored.
    pub(crate) fn set(&mut self, number: u16, value: Option<u64>) {
        if let Some(place) = self.0.get_mut(usize::from(number)) {
            *place = value;
        }
    }

    pub(crate) fn instruction(&self) -> u64 {
        self.get(RETURN_ADDRESS).unwrap_or_default()
    }

    pub(crate) fn stack(&self) -> u64 {
        self.get(STACK_POINTER).unwrap_or_default()
    }

    /// All numbers.
    pub(crate) fn numbers() -> impl Iterator<Item = u16> {
        0..u16::try_from(COUNT).unwrap_or(u16::MAX)
    }
}
