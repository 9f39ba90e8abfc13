//! The entry code of every exported function.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::fault::{self, Fault};

/// Runs the body of the exported function `name`. On failure or panic it stores the fault for this thread and returns
/// `otherwise`: a panic must not unwind into C.
pub fn enter<T>(name: &str, otherwise: T, body: impl FnOnce() -> Result<T, Fault>) -> T {
    // The body's own values are dropped during the unwinding; shared ones are behind locks that survive a panic.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(fault)) => {
            fault::keep(name, &fault);
            otherwise
        }
        Err(panic) => {
            fault::keep(name, &Fault::of_panic(&*panic));
            otherwise
        }
    }
}

#[cfg(test)]
mod tests {
    use gantry_types::error::Kind;

    use super::*;
    use crate::fault::last;

    #[test]
    fn an_answer_a_fault_and_a_panic() {
        assert_eq!(enter("f", 0, || Ok(7)), 7);
        assert_eq!(last().0, fault::NO_FAULT);
        assert_eq!(enter("f", -1, || Err(Fault::new(Kind::Gone, "app 3 is gone"))), -1);
        assert_eq!(last(), ("f: app 3 is gone".to_owned(), Some(Kind::Gone)));
        assert_eq!(enter("g", -1, || -> Result<i32, Fault> { panic!("oh {}", 1) }), -1);
        assert_eq!(last(), ("g: a bug in gantry itself: oh 1".to_owned(), Some(Kind::Internal)));
        assert_eq!(enter("f", 0, || Ok(7)), 7);
        assert_eq!(last().0, "g: a bug in gantry itself: oh 1", "a success changes nothing");
    }

    #[test]
    fn every_thread_has_its_own() {
        enter("here", (), || Err(Fault::new(Kind::Gone, "x")));
        let there = std::thread::spawn(|| last().0).join();
        assert_eq!(there.expect("a thread"), fault::NO_FAULT);
        assert_eq!(last().0, "here: x");
    }
}
