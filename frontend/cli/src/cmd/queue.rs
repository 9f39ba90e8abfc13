//! Tells what a launch or an attachment waits for.

use gantry_frontend::QueueNews;

use crate::view;

/// Passes on what is new about a launch that waits. `true`: it has just submitted this job.
pub(super) fn each_change(mut tell: impl FnMut(&QueueNews, bool) + Send) -> impl FnMut(&QueueNews) + Send {
    let mut last: Option<QueueNews> = None;
    move |news| {
        let is_submitted = news.submitted && last.as_ref().is_none_or(|last| last.job != news.job);
        if last.as_ref() != Some(news) {
            last = Some(news.clone());
            tell(news, is_submitted);
        }
    }
}

/// Writes to standard error what an attachment waits for.
pub(super) fn note_waits() -> impl FnMut(&str) + Send {
    let mut last = String::new();
    move |message| {
        if last != message {
            view::note(message);
            message.clone_into(&mut last);
        }
    }
}

/// Writes it to standard error.
pub(super) fn note_changes() -> impl FnMut(&QueueNews) + Send {
    each_change(|news, is_submitted| {
        if is_submitted {
            view::note(&format!("submitted job {}", news.job));
        }
        view::note(&news.message);
    })
}
