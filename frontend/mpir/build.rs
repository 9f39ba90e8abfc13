//! Compiles the symbols of MPIR with their types: debuggers read those from debug information, as C compilers write it.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/symbols.c");
    cc::Build::new()
        .file("src/symbols.c")
        // This overrides the profile: gantry-mpir's profile keeps debug information.
        .debug(false)
        .opt_level(0)
        // All debuggers of the last ten years read this version.
        .flag("-gdwarf-4")
        .flag_if_supported(format!("-ffile-prefix-map={}=.", env!("CARGO_MANIFEST_DIR")))
        .warnings_into_errors(true)
        .compile("gantry_mpir_symbols");
    // LaunchMON, and so STAT, takes the addresses of a starter's file for those of its process.
    println!("cargo::rustc-link-arg-bins=-no-pie");
    // Keep symbols that no code uses, and keep them in a stripped program, then without types. Not every linker has
    // --export-dynamic-symbol.
    let symbols = [
        "MPIR_Breakpoint",
        "MPIR_being_debugged",
        "MPIR_debug_state",
        "MPIR_debug_abort_string",
        "MPIR_proctable",
        "MPIR_proctable_size",
        "MPIR_i_am_starter",
        "MPIR_partial_attach_ok",
        "MPIR_acquired_pre_main",
        "MPIR_force_to_main",
        "totalview_jobid",
    ];
    #[expect(clippy::disallowed_methods, reason = "cargo names a build script's folder by a variable")]
    let list = Path::new(&std::env::var("OUT_DIR")?).join("symbols.map");
    std::fs::write(&list, format!("{{ global: {}; local: *; }};\n", symbols.join("; ")))?;
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic,--version-script={}", list.display());
    Ok(())
}
