//! `gantry release`.

use gantry_frontend::Event;

use super::{reach, say};
use crate::args::Release;
use crate::exit::{self, Outcome};
use crate::view::Page;

pub(super) async fn run(args: Release, json: bool) -> Outcome {
    let mut client = reach(args.app.as_deref()).await?;
    client.release(args.patience.timeout).await?;
    if json {
        say(&Page::json(&Event::Released { app: client.app() }))?;
    }
    Ok(exit::SUCCESS)
}
