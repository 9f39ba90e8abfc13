//! `gantry completions`.

use clap::CommandFactory;

use super::say;
use crate::args::{Cli, Completions};
use crate::exit::{self, Outcome};

pub(super) fn run(args: &Completions) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "gantry", &mut script);
    say(&String::from_utf8_lossy(&script))?;
    Ok(exit::SUCCESS)
}
