//! Takes the symbols out of a release's agent.
//!
//! Cargo forgets the profile's `strip` for a package that has settings of its own there, as this one has (it is built for size). The agent
//! is put on nodes, and its symbols would be a fifth of it.

#[expect(clippy::disallowed_methods, reason = "cargo tells a build script its profile by the environment")]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("PROFILE").is_some_and(|profile| profile == "release") {
        println!("cargo::rustc-link-arg-bin=gantry-agent=-Wl,--strip-all");
    }
}
