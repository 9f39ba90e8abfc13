//! `gantry wait`.

use gantry_frontend::Event;

use super::{reach, say};
use crate::args::Wait;
use crate::exit::{self, Outcome};
use crate::view::Page;

pub(super) async fn run(args: Wait, json: bool) -> Outcome {
    let exit = reach(args.app.as_deref()).await?.wait().await?;
    let code = exit::of_app(exit.code);
    if json {
        say(&Page::json(&Event::Exited(exit)))?;
    }
    Ok(code)
}
