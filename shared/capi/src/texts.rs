//! The texts of errors that a C program has got.
//!
//! A program may use a text after the thread's next error, or after the thread's end: the reference interface never
//! frees one. So the newest texts of a process stay valid. Their number is bounded, so a program whose calls fail for
//! ever does not grow for ever.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::sync::Arc;

/// The number of texts that stay valid. The headers promise it.
const KEPT: usize = 1000;

/// The newest texts, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Texts(VecDeque<Arc<CStr>>);

impl Texts {
    /// Keeps a text as the newest one, and returns the copy that stays valid: equal texts share one.
    pub(crate) fn keep(&mut self, text: &Arc<CStr>) -> Arc<CStr> {
        let known = self.0.iter().rposition(|kept| kept == text).and_then(|at| self.0.remove(at));
        let kept = known.unwrap_or_else(|| Arc::clone(text));
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Arc::clone(&kept));
        kept
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    #[test]
    fn the_newest_texts_stay_and_the_oldest_is_freed() {
        let mut texts = Texts::default();
        let mut keep = |number: usize| {
            let text = CString::new(format!("error {number}")).expect("no NUL");
            Arc::downgrade(&texts.keep(&Arc::from(text)))
        };
        let (first, second) = (keep(0), keep(1));
        assert!(first.ptr_eq(&keep(0)), "equal texts share one");
        (2..KEPT).for_each(|number| drop(keep(number)));
        assert!(first.upgrade().is_some() && second.upgrade().is_some());
        keep(KEPT);
        assert!(second.upgrade().is_none(), "it was the oldest");
        assert!(first.upgrade().is_some(), "it was given again");
        keep(KEPT + 1);
        assert!(first.upgrade().is_none(), "now it was the oldest");
    }
}
