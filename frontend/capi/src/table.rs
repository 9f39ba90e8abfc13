//! Ids and their objects.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gantry_shared_capi::Fault;
use gantry_types::error::Kind;

/// Takes a lock that no panic makes unusable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Issues ids from 1 up, each once for all kinds of objects. So an id of another kind is never mistaken.
#[derive(Debug)]
pub(crate) struct Ids(AtomicI64);

impl Default for Ids {
    fn default() -> Self {
        Self(AtomicI64::new(1))
    }
}

impl Ids {
    fn next(&self) -> i64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// The objects of one kind, by id.
#[derive(Debug)]
pub(crate) struct Table<T> {
    what: &'static str,
    entries: Mutex<HashMap<i64, Arc<T>>>,
}

impl<T> Table<T> {
    /// An empty table. `what` names its objects, for errors.
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, entries: Mutex::default() }
    }

    /// Adds an object and returns its id.
    pub(crate) fn add(&self, ids: &Ids, thing: T) -> i64 {
        let id = ids.next();
        lock(&self.entries).insert(id, Arc::new(thing));
        id
    }

    /// The thing of that id.
    pub(crate) fn get(&self, id: i64) -> Result<Arc<T>, Fault> {
        lock(&self.entries).get(&id).cloned().ok_or_else(|| self.unknown(id))
    }

    /// Forgets an id and returns its object.
    pub(crate) fn take(&self, id: i64) -> Result<Arc<T>, Fault> {
        lock(&self.entries).remove(&id).ok_or_else(|| self.unknown(id))
    }

    /// Removes and returns all objects for which `belongs` is true.
    pub(crate) fn take_all(&self, mut belongs: impl FnMut(&T) -> bool) -> Vec<(i64, Arc<T>)> {
        lock(&self.entries).extract_if(|_, thing| belongs(thing)).collect()
    }

    fn unknown(&self, id: i64) -> Fault {
        Fault::new(Kind::Gone, format!("there is no {} {id}; it may have ended", self.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_never_given_again() {
        let ids = Ids::default();
        let (apps, sessions) = (Table::new("app"), Table::new("session"));
        let first = apps.add(&ids, 'a');
        assert_eq!(first, 1);
        assert_eq!(*apps.take(first).expect("it is there"), 'a');
        assert_eq!(apps.take(first).expect_err("taken").text(), "there is no app 1; it may have ended");
        assert_eq!(sessions.add(&ids, 's'), 2);
        assert_eq!(apps.add(&ids, 'b'), 3);
        assert!(apps.get(2).is_err() && apps.get(0).is_err() && apps.get(-1).is_err());
        assert_eq!(apps.take_all(|app| *app == 'b').len(), 1);
        assert!(apps.get(3).is_err());
    }
}
