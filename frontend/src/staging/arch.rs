//! The architecture of a file. Loaders skip libraries for another one, and their search path depends on it.

use goblin::elf::header::{
    EM_386, EM_AARCH64, EM_ARM, EM_LOONGARCH, EM_PPC64, EM_RISCV, EM_S390, EM_SPARCV9, EM_X86_64,
};

/// The architecture in an ELF header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Arch {
    /// 64-bit addresses; otherwise 32-bit.
    pub is_64: bool,
    /// Little-endian.
    pub is_little: bool,
    /// The processor, as `e_machine` numbers it.
    pub machine: u16,
}

impl Arch {
    /// The machine that this program was built for.
    pub const NATIVE: Self = Self {
        is_64: cfg!(target_pointer_width = "64"),
        is_little: cfg!(target_endian = "little"),
        machine: NATIVE_MACHINE,
    };

    /// The facts about the architecture. None: it is not in the table.
    pub(super) fn facts(self) -> Option<&'static Facts> {
        TABLE.iter().find(|row| row.arch == self)
    }

    /// The flags of libraries for this architecture in ld.so.cache. An unknown architecture gets the flag without an
    /// architecture.
    pub(super) fn cache_flags(self) -> &'static [i32] {
        self.facts().map_or(&[CACHE_PLAIN], |row| row.cache_flags)
    }
}

#[cfg(target_arch = "x86_64")]
const NATIVE_MACHINE: u16 = EM_X86_64;
#[cfg(target_arch = "aarch64")]
const NATIVE_MACHINE: u16 = EM_AARCH64;
#[cfg(target_arch = "x86")]
const NATIVE_MACHINE: u16 = EM_386;
#[cfg(target_arch = "arm")]
const NATIVE_MACHINE: u16 = EM_ARM;
#[cfg(target_arch = "powerpc64")]
const NATIVE_MACHINE: u16 = EM_PPC64;
#[cfg(target_arch = "s390x")]
const NATIVE_MACHINE: u16 = EM_S390;
#[cfg(target_arch = "riscv64")]
const NATIVE_MACHINE: u16 = EM_RISCV;
#[cfg(target_arch = "loongarch64")]
const NATIVE_MACHINE: u16 = EM_LOONGARCH;
#[cfg(target_arch = "sparc64")]
const NATIVE_MACHINE: u16 = EM_SPARCV9;

/// "A library for glibc 2", without an architecture.
const CACHE_PLAIN: i32 = 3;

/// Defaults of this architecture's loader, if the loader itself cannot be read.
#[derive(Debug)]
pub(super) struct Facts {
    arch: Arch,
    /// Marks in ld.so.cache (glibc: `sysdeps/generic/ldconfig.h`).
    cache_flags: &'static [i32],
    /// The path of the loader, from the architecture's ABI.
    pub(super) loader: &'static str,
    /// `$LIB` on systems with one library folder per word size.
    pub(super) lib: &'static str,
    /// `$PLATFORM`, and the kernel's name of the architecture.
    pub(super) platform: &'static str,
    /// Debian's name for its library folders.
    pub(super) multiarch: &'static str,
}

const fn arch(is_64: bool, is_little: bool, machine: u16) -> Arch {
    Arch { is_64, is_little, machine }
}

#[rustfmt::skip] // one machine a line
static TABLE: &[Facts] = &[
    Facts { arch: arch(true, true, EM_X86_64), cache_flags: &[0x0303], loader: "/lib64/ld-linux-x86-64.so.2", lib: "lib64", platform: "x86_64", multiarch: "x86_64-linux-gnu" },
    Facts { arch: arch(false, true, EM_X86_64), cache_flags: &[0x0803], loader: "/libx32/ld-linux-x32.so.2", lib: "libx32", platform: "x86_64", multiarch: "x86_64-linux-gnux32" },
    Facts { arch: arch(false, true, EM_386), cache_flags: &[CACHE_PLAIN, 1], loader: "/lib/ld-linux.so.2", lib: "lib", platform: "i686", multiarch: "i386-linux-gnu" },
    Facts { arch: arch(true, true, EM_AARCH64), cache_flags: &[0x0a03], loader: "/lib/ld-linux-aarch64.so.1", lib: "lib64", platform: "aarch64", multiarch: "aarch64-linux-gnu" },
    Facts { arch: arch(false, true, EM_ARM), cache_flags: &[0x0903, 0x0b03, CACHE_PLAIN], loader: "/lib/ld-linux-armhf.so.3", lib: "lib", platform: "v7l", multiarch: "arm-linux-gnueabihf" },
    Facts { arch: arch(true, true, EM_PPC64), cache_flags: &[0x0503], loader: "/lib64/ld64.so.2", lib: "lib64", platform: "power8", multiarch: "powerpc64le-linux-gnu" },
    Facts { arch: arch(true, false, EM_PPC64), cache_flags: &[0x0503], loader: "/lib64/ld64.so.1", lib: "lib64", platform: "ppc64", multiarch: "powerpc64-linux-gnu" },
    Facts { arch: arch(true, false, EM_S390), cache_flags: &[0x0403], loader: "/lib/ld64.so.1", lib: "lib64", platform: "z900", multiarch: "s390x-linux-gnu" },
    Facts { arch: arch(true, true, EM_RISCV), cache_flags: &[0x1003, 0x0f03], loader: "/lib/ld-linux-riscv64-lp64d.so.1", lib: "lib64/lp64d", platform: "riscv64", multiarch: "riscv64-linux-gnu" },
    Facts { arch: arch(true, true, EM_LOONGARCH), cache_flags: &[0x1203, 0x1103], loader: "/lib64/ld-linux-loongarch-lp64d.so.1", lib: "lib64", platform: "loongarch64", multiarch: "loongarch64-linux-gnu" },
    Facts { arch: arch(true, false, EM_SPARCV9), cache_flags: &[0x0103], loader: "/lib64/ld-linux.so.2", lib: "lib64", platform: "sparc64", multiarch: "sparc64-linux-gnu" },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_known_and_no_machine_twice() {
        assert!(Arch::NATIVE.facts().is_some());
        let known: std::collections::HashSet<Arch> = TABLE.iter().map(|row| row.arch).collect();
        assert_eq!(known.len(), TABLE.len());
    }
}
