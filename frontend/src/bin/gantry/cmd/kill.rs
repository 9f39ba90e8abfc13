//! `gantry kill`.

use gantry_frontend::Event;
use gantry_shared::signal::Signal;

use super::{reach, say};
use crate::args::Kill;
use crate::exit::{self, Outcome};
use crate::view::json;

pub(super) async fn run(args: Kill, json: bool) -> Outcome {
    let mut client = reach(Some(&args.app)).await?;
    if args.signal == Signal::KILL && args.ranks.is_none() {
        let exit = client.kill(args.patience.timeout).await?;
        client.gone(args.patience.timeout).await?;
        if json {
            say(&json::line(&Event::Exited(exit)))?;
        }
    } else {
        client.signal(args.signal, args.ranks.as_ref(), args.patience.timeout).await?;
    }
    Ok(exit::SUCCESS)
}
