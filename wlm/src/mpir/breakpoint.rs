//! Breakpoints in a launcher, and the early return from a function.
//!
//! A launcher forks helpers before it reaches its breakpoint. Their copies of its code would contain a breakpoint in
//! the code too, and a helper that hits it would be killed. So a hardware breakpoint is used: it belongs to one thread,
//! and children do not inherit it. Virtual machines sometimes accept a hardware breakpoint without effect. So it is
//! tested once, before the launcher's first instruction. If it does not work, the code is changed, and children are
//! stopped at their birth to restore their code.

use std::io;
use std::time::Instant;

use super::memory::{Memory, ProcessMemory, Width};
use super::sys::{self, RegisterSet};
use super::tracee::{Halt, Tracee, call};

/// How a launcher is stopped at a place in its code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Breakpoints {
    /// By a hardware breakpoint if that works, else by changing the code. A test decides.
    #[default]
    Detect,
    /// By changing the launcher's code in memory. Its children are stopped at birth to restore their code. A child of
    /// any thread but the first is not stopped: it dies if it reaches that place.
    ChangeCode,
}

/// The kind of breakpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A hardware breakpoint.
    Hardware,
    /// A change of the code.
    Software,
}

#[cfg(target_arch = "x86_64")]
const TRAP: [u8; 1] = [0xcc];
#[cfg(target_arch = "aarch64")]
const TRAP: [u8; 4] = 0xd420_0000_u32.to_le_bytes();

/// A breakpoint in a stopped tracee.
#[derive(Debug, Clone, Copy)]
pub(super) struct Breakpoint {
    address: u64,
    /// The original code.
    original: Option<[u8; TRAP.len()]>,
}

impl Breakpoint {
    /// Sets a breakpoint. Only one can be set at a time.
    pub(super) fn set(tracee: &mut Tracee, kind: Kind, address: u64) -> Result<Self, Halt> {
        if kind == Kind::Hardware {
            hardware::set(tracee.raw(), address).map_err(call("set a breakpoint"))?;
            return Ok(Self { address, original: None });
        }
        let mut original = [0; TRAP.len()];
        let memory = ProcessMemory::new(tracee.pid());
        memory.read(address, &mut original).map_err(call("read its code"))?;
        write(tracee.raw(), address, &TRAP).map_err(call("set a breakpoint"))?;
        tracee.watch_forks(true)?;
        Ok(Self { address, original: Some(original) })
    }

    /// Removes it.
    pub(super) fn clear(&self, tracee: &mut Tracee) -> Result<(), Halt> {
        let step = call("take a breakpoint away");
        match self.original {
            None => hardware::clear(tracee.raw()).map_err(step),
            Some(original) => {
                write(tracee.raw(), self.address, &original).map_err(step)?;
                tracee.watch_forks(false)
            }
        }
    }

    /// Whether the tracee is stopped at this trap. Its next instruction is then the one at the breakpoint.
    pub(super) fn is_hit(&self, tracee: &Tracee) -> Result<bool, Halt> {
        // On x86 the program counter is behind the changed code after its execution.
        const BEHIND: u64 = if cfg!(target_arch = "x86_64") { 1 } else { 0 };
        let mut cpu = Cpu::read(tracee)?;
        match self.original {
            None => Ok(cpu.counter() == self.address),
            Some(_) if cpu.counter() == self.address.wrapping_add(BEHIND) => {
                cpu.set_counter(self.address);
                cpu.write(tracee)?;
                Ok(true)
            }
            Some(_) => Ok(false),
        }
    }

    /// From a hit: lets the tracee execute the instruction at the breakpoint, and sets the breakpoint again.
    pub(super) fn step_over(self, tracee: &mut Tracee, kind: Kind, until: Instant) -> Result<Self, Halt> {
        self.clear(tracee)?;
        tracee.step(until)?;
        Self::set(tracee, kind, self.address)
    }

    /// Restores the code of the tracee's new child, which is stopped and has a copy of its parent's memory.
    pub(super) fn spare(&self, child: i32) -> io::Result<()> {
        self.original.map_or(Ok(()), |original| write(child, self.address, &original))
    }
}

/// Tests whether the processor's breakpoints work here. The tracee is stopped before its first instruction, with all
/// signals blocked; afterwards it has executed two instructions at most.
pub(super) fn detect_kind(tracee: &mut Tracee, until: Instant) -> Result<Kind, Halt> {
    let here = Cpu::read(tracee)?.counter();
    if hardware::set(tracee.raw(), here).is_err() {
        return Ok(Kind::Software);
    }
    // The first step may only leave the system call that started the program.
    let mut works = false;
    for _ in 0..2 {
        tracee.step(until)?;
        works = hardware::was_hit(tracee.raw());
        if works || Cpu::read(tracee)?.counter() != here {
            break;
        }
    }
    hardware::clear(tracee.raw()).map_err(call("take a breakpoint away"))?;
    Ok(if works { Kind::Hardware } else { Kind::Software })
}

/// From the first instruction of a function: returns to its caller, as if the function had returned at once. False:
/// the return address cannot be found, and the tracee is unchanged.
pub(super) fn leave_function(tracee: &Tracee) -> Result<bool, Halt> {
    let mut cpu = Cpu::read(tracee)?;
    if cpu.return_from_function(&ProcessMemory::new(tracee.pid())).is_err() {
        return Ok(false);
    }
    cpu.write(tracee).map(|()| true)
}

/// The registers that matter, by their place in the kernel's general registers.
#[derive(Debug, Clone, Copy)]
struct Cpu {
    registers: RegisterSet,
    width: Width,
    counter: usize,
    /// The stack pointer where the return address is on the stack, else the register that holds it.
    way_back: usize,
}

#[cfg(target_arch = "x86_64")]
const WIDE: (usize, usize, usize) = (27, 16, 19);
#[cfg(target_arch = "x86_64")]
const NARROW: (usize, usize, usize) = (17, 12, 15);
#[cfg(target_arch = "aarch64")]
const WIDE: (usize, usize, usize) = (34, 32, 30);
#[cfg(target_arch = "aarch64")]
const NARROW: (usize, usize, usize) = (18, 15, 14);

impl Cpu {
    fn read(tracee: &Tracee) -> Result<Self, Halt> {
        let registers = sys::registers(tracee.raw()).map_err(call("read its registers"))?;
        Self::of(registers).ok_or_else(|| call("read its registers")(io::ErrorKind::Unsupported.into()))
    }

    fn of(registers: RegisterSet) -> Option<Self> {
        let (width, (_, counter, way_back)) = match registers.length_bytes {
            length if length == WIDE.0 * 8 => (Width::Wide, WIDE),
            length if length == NARROW.0 * 4 => (Width::Narrow, NARROW),
            _ => return None,
        };
        Some(Self { registers, width, counter, way_back })
    }

    fn get(&self, number: usize) -> u64 {
        match self.width {
            Width::Wide => self.registers.words[number],
            Width::Narrow => {
                let bytes = self.registers.words[number / 2].to_ne_bytes();
                self.width.number(&bytes[number % 2 * 4..]).unwrap_or(0)
            }
        }
    }

    fn set(&mut self, number: usize, value: u64) {
        match self.width {
            Width::Wide => self.registers.words[number] = value,
            Width::Narrow => {
                let mut bytes = self.registers.words[number / 2].to_ne_bytes();
                bytes[number % 2 * 4..][..4].copy_from_slice(&value.to_le_bytes()[..4]);
                self.registers.words[number / 2] = u64::from_ne_bytes(bytes);
            }
        }
    }

    fn counter(&self) -> u64 {
        self.get(self.counter)
    }

    fn set_counter(&mut self, address: u64) {
        self.set(self.counter, address);
    }

    fn return_from_function(&mut self, memory: &dyn Memory) -> io::Result<()> {
        let way_back = self.get(self.way_back);
        if cfg!(target_arch = "x86_64") {
            let caller = memory.pointer(way_back, self.width)?;
            self.set(self.way_back, way_back.wrapping_add(self.width.bytes() as u64));
            self.set_counter(caller);
        } else {
            self.set_counter(way_back);
        }
        Ok(())
    }

    fn write(&self, tracee: &Tracee) -> Result<(), Halt> {
        sys::set_registers(tracee.raw(), &self.registers).map_err(call("set its registers"))
    }
}

/// Writes bytes into a stopped tracee, into its code too.
pub(super) fn write(pid: i32, address: u64, bytes: &[u8]) -> io::Result<()> {
    const WORD: u64 = size_of::<u64>() as u64;
    for (byte, at) in bytes.iter().zip(address..) {
        let start = at - at % WORD;
        let mut word = sys::read_word(pid, start)?.to_ne_bytes();
        word[(at % WORD) as usize] = *byte;
        sys::write_word(pid, start, u64::from_ne_bytes(word))?;
    }
    Ok(())
}

/// The first of the processor's breakpoints.
#[cfg(target_arch = "x86_64")]
mod hardware {
    use std::io;

    use super::sys;

    const ADDRESS: usize = sys::debug_register(0);
    const STATUS: usize = sys::debug_register(6);
    const CONTROL: usize = sys::debug_register(7);
    /// Enables it for this thread, on execution of an instruction.
    const ON: u64 = 1;

    pub(super) fn set(pid: i32, address: u64) -> io::Result<()> {
        sys::write_user(pid, ADDRESS, address)?;
        sys::write_user(pid, STATUS, 0)?;
        sys::write_user(pid, CONTROL, ON)
    }

    pub(super) fn clear(pid: i32) -> io::Result<()> {
        sys::write_user(pid, CONTROL, 0)
    }

    pub(super) fn was_hit(pid: i32) -> bool {
        sys::read_user(pid, STATUS).is_ok_and(|status| status & 1 != 0)
    }
}

/// On other processors code is changed.
#[cfg(not(target_arch = "x86_64"))]
mod hardware {
    use std::io;

    pub(super) fn set(_pid: i32, _address: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn clear(_pid: i32) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn was_hit(_pid: i32) -> bool {
        false
    }
}
