//! `gantry man`.

use clap::CommandFactory;

use super::say;
use crate::args::{Cli, Man};
use crate::exit::{self, Fault, Outcome};
use crate::view::Page;

pub(super) fn run(args: Man) -> Outcome {
    match args.dir {
        Some(dir) => {
            let failed = |e| Fault::io(&format!("cannot write manual pages to {}", dir.display()), &e);
            std::fs::create_dir_all(&dir).map_err(failed)?;
            clap_mangen::generate_to(Cli::command(), &dir).map_err(failed)?;
        }
        None => {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(Cli::command()).render(&mut page);
            rendered.map_err(|e| Fault::io("cannot make the manual page", &e))?;
            say(&Page::data(String::from_utf8_lossy(&page).into_owned()))?;
        }
    }
    Ok(exit::SUCCESS)
}
