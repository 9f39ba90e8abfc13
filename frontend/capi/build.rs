//! The name under which programs that link this library look for it, and that it stays in memory.

fn main() {
    // The number is that of the reference's library: a program that was linked with one runs with the other.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcommontools_fe.so.2");
    // Its threads run code that dlclose would take away under them.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
