//! Memory for bulk data.
//!
//! A chunk has 256 KiB. The C library returns a block of that size to the kernel as soon as it is free. The kernel
//! clears it again for the next chunk, which costs as much as all other work on a chunk. So an agent keeps freed memory
//! while a stream goes on.

/// How much free memory to keep: the windows of some links.
const KEPT_BYTES: i32 = 8 * 1024 * 1024;

/// A larger block comes from the kernel each time, and returns to it.
const LARGE_BYTES: i32 = 4 * 1024 * 1024;

/// Makes the C library keep freed memory for the next chunk. Call it before there are threads.
pub(crate) fn keep_freed() {
    sys::keep_freed(KEPT_BYTES, LARGE_BYTES);
}

/// Returns free memory to the kernel.
pub(crate) fn give_back() {
    sys::give_back();
}

#[cfg(target_env = "gnu")]
mod sys {
    #![expect(unsafe_code, reason = "calls of the C library that no safe crate wraps")]

    pub(super) fn keep_freed(kept: i32, large: i32) {
        // Without it, bulk data is slower.
        // SAFETY: takes integers only, and is called before there are other threads.
        unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, kept) };
        // SAFETY: as above.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, large) };
    }

    pub(super) fn give_back() {
        // SAFETY: takes an integer only; it locks what it looks at.
        unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(not(target_env = "gnu"))]
mod sys {
    pub(super) fn keep_freed(_kept: i32, _large: i32) {}

    pub(super) fn give_back() {}
}
