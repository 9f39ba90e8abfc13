//! `gantry wait`.

use gantry_frontend::Event;

use super::{reach, say};
use crate::args::Wait;
use crate::exit::{self, Outcome};
use crate::view::{self, Page};

pub(super) async fn run(args: Wait, json: bool) -> Outcome {
    let mut lost = Vec::new();
    let exit = reach(args.app.as_deref()).await?.wait_with_news(|event| lost.push(event)).await?;
    let code = exit::of_app(exit.code);
    let code = if lost.is_empty() { code } else { exit::of_lost_output(code) };
    for event in &lost {
        match event {
            _ if json => say(&Page::json(event))?,
            Event::OutputLost { stream, message, .. } => {
                view::tell_failure(&view::describe_loss_of_app(*stream, message), false);
            }
            _ => {}
        }
    }
    if json {
        say(&Page::json(&Event::Exited(exit)))?;
    }
    Ok(code)
}
