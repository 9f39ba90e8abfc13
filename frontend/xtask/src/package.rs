//! `cargo xtask package`: gantry as one file, for users and for package managers.

mod deb;
mod rpm;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::args::{Format, Package};
use crate::build::{run, target_directory};
use stage::{Stage, VERSION};

/// Makes a package. Returns what to tell about it.
///
/// # Errors
/// The error of the compiler or of a packager's program, or a place cannot be written.
pub(crate) fn package(asked: &Package) -> Result<String> {
    let folder = target_directory()?.join("package");
    let out = std::path::absolute(asked.out.as_ref().unwrap_or(&folder))?;
    fs::create_dir_all(&out)?;
    let work = folder.join("work");
    let (made, stage) = match asked.format {
        Format::Tar => {
            let name = format!("gantry-{VERSION}-{}-linux", std::env::consts::ARCH);
            let stage = Stage::new(asked, &work, &Path::new("/").join(&name), Path::new("lib"))?;
            (archive(&stage, &name, &out)?, stage)
        }
        Format::Deb => {
            let stage = Stage::new(asked, &work, Path::new("/usr"), &deb::libdir()?)?;
            (deb::make(&stage, &out)?, stage)
        }
        Format::Rpm => {
            let machine = rpm::machine()?;
            let stage = Stage::new(asked, &work, Path::new("/usr"), Path::new("lib64"))?;
            (rpm::make(&stage, &machine, &out)?, stage)
        }
    };
    let glibc = stage.glibc()?;
    fs::remove_dir_all(&work)?;
    Ok(format!("{}: runs with glibc {glibc} and later", made.display()))
}

/// Makes the same archive of the same files, whoever makes it and when.
fn archive(stage: &Stage, name: &str, out: &Path) -> Result<PathBuf> {
    stage.set_times()?;
    let made = out.join(format!("{name}.tar.gz"));
    let mut args = vec!["--sort=name", "--format=gnu", "--owner=root:0", "--group=root:0"];
    args.extend(["--use-compress-program", "gzip -n", "--directory"]);
    let paths = [stage.root.as_os_str(), "--create".as_ref(), "--file".as_ref(), made.as_os_str()];
    let args = args.iter().map(AsRef::as_ref).chain(paths).chain([name.as_ref()]);
    run("tar".as_ref(), &args.collect::<Vec<_>>())?;
    Ok(made)
}
