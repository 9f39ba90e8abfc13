use std::fs;

use super::*;
use crate::staging::closure::How;
use crate::staging::elf::testing::Sample;

/// Creates a file for an architecture in a root.
fn put(root: &Path, path: &str, sample: &Sample) {
    let path = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, sample.build()).unwrap();
}

#[test]
fn in_a_root_of_a_foreign_machine_files_are_looked_for_where_its_loader_does() {
    let arch = |is_64, is_little, machine| Arch { is_64, is_little, machine };
    for (arch, loader, folder, platform) in [
        (arch(true, true, 183), "/lib/ld-linux-aarch64.so.1", "/lib/aarch64-linux-gnu", "aarch64"),
        (arch(false, true, 40), "/lib/ld-linux-armhf.so.3", "/lib/arm-linux-gnueabihf", "v7l"),
        (arch(true, false, 22), "/lib/ld64.so.1", "/lib/s390x-linux-gnu", "z900"),
    ] {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let library = |needed| Sample { needed, ..Sample::new(arch) };
        let tool = Sample {
            interpreter: Some(loader),
            runpath: Some("$ORIGIN/../plugins/$PLATFORM"),
            ..library(vec!["libown.so", "libusual.so", "libfar.so", "liblost.so"])
        };
        put(root, "/opt/bin/tool", &tool);
        put(root, loader, &library(vec![]));
        put(root, &format!("/opt/plugins/{platform}/libown.so"), &library(vec!["libusual.so"]));
        put(root, &format!("{folder}/libusual.so"), &library(vec![]));
        // A library of that name for this machine is skipped, even if it comes first.
        put(root, "/far/libusual.so", &Sample::new(Arch::NATIVE));
        put(root, "/far/libfar.so", &library(vec![]));
        put(root, &format!("{folder}/liblost.so"), &Sample::new(Arch::NATIVE));
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(root.join("etc/ld.so.conf"), "/far\n").unwrap();

        let resolver =
            Resolver::new(ResolverConfig { sysroot: Some(root.to_owned()), ..ResolverConfig::default() });
        let closure = resolver.closure(Path::new("/opt/bin/tool")).unwrap();
        let found: Vec<_> =
            closure.needed.iter().map(|it| (it.how, it.path.to_string_lossy().into_owned())).collect();
        let expected = [
            (How::Runpath, format!("/opt/bin/../plugins/{platform}/libown.so")),
            (How::Default, format!("{folder}/libusual.so")),
            (How::Cache, "/far/libfar.so".to_owned()),
        ];
        assert_eq!(found, expected, "{arch:?}");
        assert_eq!(closure.interpreter.as_deref(), Some(Path::new(loader)));
        let [lost] = &closure.missing[..] else { panic!("{:?}", closure.missing) };
        let said = lost.to_string();
        assert!(lost.name == "liblost.so" && said.contains(&format!("{folder}/liblost.so")), "{said}");
    }
}

#[test]
fn a_library_for_any_processor_is_a_plain_one_unless_there_are_only_variants() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().canonicalize().unwrap();
    let variants = detect_hwcaps();
    let library = Sample::new(Arch::NATIVE);
    let runpath = Some("$ORIGIN/lib:$ORIGIN/other");
    let tool = Sample { needed: vec!["libh.so"], runpath, ..Sample::new(Arch::NATIVE) };
    put(&root, "tool", &tool);
    put(&root, "lib/libh.so", &library);
    // The program does not use this one here.
    put(&root, "other/libh.so", &library);
    for name in &variants {
        put(&root, &format!("lib/glibc-hwcaps/{name}/libh.so"), &library);
    }
    let best =
        variants.first().map_or("lib/libh.so".to_owned(), |it| format!("lib/glibc-hwcaps/{it}/libh.so"));
    let check = |resolver: Resolver, expected: &str| {
        let closure = resolver.closure(&root.join("tool")).unwrap();
        let paths: Vec<_> = closure.needed.iter().map(|it| it.path.clone()).collect();
        assert_eq!(paths, [root.join(expected)]);
    };
    let new = || Resolver::new(ResolverConfig::default());
    check(new(), &best);
    check(new().for_any_processor(), "lib/libh.so");
    if !variants.is_empty() {
        fs::remove_file(root.join("lib/libh.so")).unwrap();
        check(new().for_any_processor(), &best);
    }
}
