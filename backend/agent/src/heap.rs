//! The memory that bulk data goes through.
//!
//! A chunk has 256 KiB. The C library gives that much back to the system as soon as it is free, and has it cleared again for the next chunk, which
//! costs as much as all else that is done with it. So an agent keeps what it has while a stream goes on.

/// Free memory that is kept: the windows of some links.
const KEPT_BYTES: i32 = 8 * 1024 * 1024;

/// What is larger comes from the system each time, and goes back there.
const LARGE_BYTES: i32 = 4 * 1024 * 1024;

/// Has freed memory kept for the next chunk. To be called before there are threads.
pub(crate) fn keep_freed() {
    if !sys::keep_freed(KEPT_BYTES, LARGE_BYTES) {
        tracing::debug!("the C library keeps no memory for bulk data");
    }
}

/// Gives free memory back to the system.
pub(crate) fn give_back() {
    sys::give_back();
}

#[cfg(target_env = "gnu")]
mod sys {
    #![expect(unsafe_code, reason = "calls of the C library that no safe crate wraps")]

    pub(super) fn keep_freed(kept: i32, large: i32) -> bool {
        // SAFETY: takes integers only, and is called before there are other threads.
        let keeps = unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, kept) };
        // SAFETY: as above.
        let is_large = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, large) };
        keeps == 1 && is_large == 1
    }

    pub(super) fn give_back() {
        // SAFETY: takes an integer only; it locks what it looks at.
        unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(not(target_env = "gnu"))]
mod sys {
    pub(super) fn keep_freed(_kept: i32, _large: i32) -> bool {
        false
    }

    pub(super) fn give_back() {}
}
