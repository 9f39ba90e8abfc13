//! The name under which programs that link this library look for it.

fn main() {
    // The number is that of the reference's library: a program that was linked with one runs with the other.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcommontools_be.so.2");
    println!("cargo::rerun-if-changed=build.rs");
}
