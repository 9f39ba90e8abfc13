//! `gantry wait`.

use gantry_frontend::Event;
use gantry_frontend::control::{Ended, Registry};
use gantry_frontend::event::Exit;
use gantry_types::error::Kind;

use super::{reach, say};
use crate::args::Wait;
use crate::exit::{self, Fault, Outcome};
use crate::view::{self, Page};

pub(super) async fn run(args: Wait, json: bool) -> Outcome {
    let mut lost = Vec::new();
    let ended = match reach(args.app.as_deref()).await {
        Ok(client) => {
            let app = client.app();
            match client.wait_with_news(|event| lost.push(event)).await {
                Ok(exit) => return tell(exit, &lost, json),
                // It may have ended since it was found.
                Err(error) => find_ended(Some(app.as_str()), error.into())?,
            }
        }
        Err(fault) => find_ended(args.app.as_deref(), fault)?,
    };
    tell(ended.exit, ended.lost.as_slice(), json)
}

fn tell(exit: Exit, lost: &[Event], json: bool) -> Outcome {
    let code = exit::of_app(exit.code);
    let code = if lost.is_empty() { code } else { exit::of_lost_output(code) };
    for event in lost {
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

/// The recorded end of an app that ran in the background. `fault` is the error of the search among running apps.
fn find_ended(name: Option<&str>, fault: Fault) -> Result<Ended, Fault> {
    let (Some(name), Kind::NotFound | Kind::Lost) = (name, fault.0.kind()) else { return Err(fault) };
    let mut found = Registry::open(None)?.find_ended(name);
    match (found.pop(), found.len()) {
        (Some(ended), 0) => Ok(ended),
        (Some(last), _) => {
            let ids: Vec<_> = found.iter().chain([&last]).map(|ended| ended.exit.app.to_string()).collect();
            let what = format!("'{name}' can mean {} apps that have ended: {}", ids.len(), ids.join(", "));
            Err(Fault::invalid(what, "name one of them"))
        }
        (None, _) => Err(fault),
    }
}
