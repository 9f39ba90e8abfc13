//! The data types of the channel and of rendezvous in both libraries: `gantry_shared.h`.

use std::ffi::{c_char, c_int, c_void};

use gantry_shared::wire::channel::Member as Known;
use gantry_types::error::Kind;
use gantry_types::id::{DaemonId, NodeId};
use gantry_types::rendezvous::{Data as Tree, Limits, MAX_LEVEL, Resource, Standing, Status};

use crate::fault::Fault;
use crate::memory::{Given, allocate, array, release, string};

/// `gantry_member_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Member {
    node: u32,
    daemon: u32,
}

impl From<Known> for Member {
    fn from(member: Known) -> Self {
        Self { node: member.node.0, daemon: member.daemon.0 }
    }
}

impl From<Member> for Known {
    fn from(member: Member) -> Self {
        Self { node: NodeId(member.node), daemon: DaemonId(member.daemon) }
    }
}

/// `gantry_data_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Data {
    size: usize,
    bytes: *mut u8,
    from: Member,
    tag: u32,
}

/// `gantry_part_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The receiver or the sender.
    pub member: Member,
    bytes: *const u8,
    size: usize,
}

/// `gantry_rendezvous_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Rendezvous {
    name: *mut c_char,
    level: c_int,
    expected: u32,
    registered: u32,
    standing: c_int,
    why: *mut c_char,
    above: *mut c_char,
    number_above: u32,
}

/// `gantry_rendezvousList_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RendezvousList {
    count: c_int,
    items: *mut Rendezvous,
}

/// `gantry_merge_t`.
pub type Merge = unsafe extern "C" fn(
    *mut std::ffi::c_void,
    *const Part,
    c_int,
    *mut *mut std::ffi::c_void,
    *mut usize,
) -> c_int;

impl Part {
    /// Bytes that C may read while they are borrowed.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self { member: Member::default(), bytes: bytes.as_ptr(), size: bytes.len() }
    }

    /// Its bytes.
    ///
    /// # Errors
    /// As [`bytes`].
    ///
    /// # Safety
    /// As [`bytes`].
    pub unsafe fn bytes<'a>(&self) -> Result<&'a [u8], Fault> {
        // SAFETY: guaranteed by the caller.
        unsafe { bytes(self.bytes, self.size) }
    }
}

/// Bytes from C: `size` of them; NULL is allowed for none.
///
/// # Errors
/// `bytes` is NULL for a positive size, or the size exceeds any memory.
///
/// # Safety
/// `bytes` is null or points to `size` bytes that do not change while they are borrowed.
pub unsafe fn bytes<'a>(bytes: *const u8, size: usize) -> Result<&'a [u8], Fault> {
    // SAFETY: guaranteed by the caller.
    unsafe { values(bytes, size) }
}

/// Values from C, as [`bytes`].
///
/// # Errors
/// As [`bytes`].
///
/// # Safety
/// As [`bytes`], and aligned.
pub unsafe fn values<'a, T: Copy>(values: *const T, count: usize) -> Result<&'a [T], Fault> {
    if count == 0 {
        return Ok(&[]);
    }
    if values.is_null() {
        return Err(Fault::invalid("there are to be bytes or values, and the pointer to them is NULL"));
    }
    let fits = count.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if !fits {
        return Err(Fault::invalid(format!("{count} values are more than any memory has")));
    }
    // SAFETY: not null, of a size that can be; the caller guarantees the rest.
    Ok(unsafe { std::slice::from_raw_parts(values, count) })
}

/// A count from C.
///
/// # Errors
/// It is negative.
pub fn count(count: c_int) -> Result<usize, Fault> {
    usize::try_from(count).map_err(|_| Fault::invalid(format!("{count} is not a count")))
}

/// A count for C.
///
/// # Errors
/// It is too large.
pub fn to_int(count: usize) -> Result<c_int, Fault> {
    c_int::try_from(count).map_err(|_| Fault::invalid(format!("{count} is too large for an int")))
}

/// A copy for C, with a trailing 0.
///
/// # Errors
/// There is no memory left.
pub fn copy(bytes: &[u8]) -> Result<*mut u8, Fault> {
    array(bytes, 1)
}

/// Allocates data for C.
///
/// # Errors
/// There is no memory left.
pub fn give_data(given: &Given<Data>, bytes: &[u8], from: Member, tag: u32) -> Result<*mut Data, Fault> {
    let data = allocate::<Data>(1)?;
    match copy(bytes) {
        Ok(copied) => {
            // SAFETY: fresh memory of this size.
            unsafe { data.write(Data { size: bytes.len(), bytes: copied, from, tag }) };
            Ok(given.note(data))
        }
        Err(fault) => {
            // SAFETY: allocated above, and this is the only pointer to it.
            unsafe { release(data) };
            Err(fault)
        }
    }
}

/// Frees the result of [`give_data`]; null is allowed.
///
/// # Errors
/// It was freed before, or was not allocated here.
///
/// # Safety
/// No part of it was freed in another way.
pub unsafe fn take_data(given: &Given<Data>, data: *mut Data) -> Result<(), Fault> {
    if data.is_null() {
        return Ok(());
    }
    given.take_back(data)?;
    // SAFETY: it was on the list of allocations, so it is valid and complete.
    let bytes = unsafe { (*data).bytes };
    // SAFETY: made with it, and freed with it.
    unsafe { release(bytes) };
    // SAFETY: as above.
    unsafe { release(data) };
    Ok(())
}

/// Allocates the states of rendezvous for C. `name` gives their names on this side.
///
/// # Errors
/// There is no memory left.
pub fn give_list(
    given: &Given<RendezvousList>,
    list: &[Status],
    name: impl Fn(&Resource) -> String,
) -> Result<*mut RendezvousList, Fault> {
    let mut made: Vec<Rendezvous> = Vec::with_capacity(list.len());
    let built = list.iter().try_for_each(|status| build(status, &name).map(|item| made.push(item)));
    let whole = built.and_then(|()| {
        let count = to_int(made.len())?;
        let items = array(&made, 0)?;
        let whole = allocate::<RendezvousList>(1);
        if whole.is_err() {
            // SAFETY: allocated above, and this is the only pointer to it.
            unsafe { release(items) };
        }
        let whole = whole?;
        // SAFETY: fresh memory of this size.
        unsafe { whole.write(RendezvousList { count, items }) };
        Ok(given.note(whole))
    });
    if whole.is_err() {
        made.iter().for_each(release_item);
    }
    whole
}

fn build(status: &Status, name: impl Fn(&Resource) -> String) -> Result<Rendezvous, Fault> {
    let (standing, why) = match &status.standing {
        Standing::Open => (0, None),
        Standing::Complete => (1, None),
        Standing::Broken(broken) => (2, Some(broken.to_string())),
    };
    let mut item = Rendezvous {
        name: std::ptr::null_mut(),
        level: status.level.into(),
        expected: status.expected,
        registered: status.registered,
        standing,
        why: std::ptr::null_mut(),
        above: std::ptr::null_mut(),
        number_above: status.above.as_ref().map_or(0, |(_, number)| *number),
    };
    let above = status.above.as_ref().map(|(above, _)| name(above));
    let texts =
        [(&mut item.name, Some(name(&status.resource))), (&mut item.why, why), (&mut item.above, above)];
    let made = texts.into_iter().try_for_each(|(place, text)| {
        if let Some(text) = text {
            *place = string(text.as_bytes())?;
        }
        Ok(())
    });
    made.inspect_err(|_| release_item(&item)).map(|()| item)
}

fn release_item(item: &Rendezvous) {
    for text in [item.name, item.why, item.above] {
        // SAFETY: allocated by `build`, and freed with the list or when the list cannot be built.
        unsafe { release(text) };
    }
}

/// Frees the result of [`give_list`]; null is allowed.
///
/// # Errors
/// It was freed before, or was not allocated here.
///
/// # Safety
/// No part of it was freed in another way.
pub unsafe fn take_list(given: &Given<RendezvousList>, list: *mut RendezvousList) -> Result<(), Fault> {
    if list.is_null() {
        return Ok(());
    }
    given.take_back(list)?;
    // SAFETY: it was on the list of allocations, so it is valid and complete.
    let RendezvousList { count, items } = unsafe { list.read() };
    // SAFETY: as many as were made with it.
    let found = unsafe { values(items, usize::try_from(count).unwrap_or_default()) };
    found.unwrap_or_default().iter().for_each(release_item);
    // SAFETY: made with the list, and freed with it.
    unsafe { release(items) };
    // SAFETY: as above.
    unsafe { release(list) };
    Ok(())
}

/// Finds an item in the data of a rendezvous by its path of indexes, and returns its place. Each pair of arguments is
/// a pointer and a length.
///
/// # Errors
/// The data is malformed or of another level, or has no such item; a required pointer is null, or a number is
/// negative.
///
/// # Safety
/// `bytes` points to `size` bytes, `way` to `steps` numbers, and the last two to writable variables; each may be
/// null.
pub unsafe fn find(
    (bytes, size): (*const c_void, usize),
    (way, steps): (*const u32, c_int),
    (item, item_size): (*mut *const u8, *mut usize),
) -> Result<(), Fault> {
    // SAFETY: guaranteed by the caller.
    let all = unsafe { self::bytes(bytes.cast(), size) }?;
    // SAFETY: guaranteed by the caller.
    let way = unsafe { values(way, count(steps)?) }?;
    // SAFETY: guaranteed by the caller.
    unsafe { write_found(find_item(all, way)?, item, item_size) }
}

/// The item at a path of indexes: `[1, 3]` is rank 3 of subjob 1 in data of level 2.
///
/// # Errors
/// The data is malformed or of another level, or has no such item.
fn find_item<'a>(data: &'a [u8], way: &[u32]) -> Result<&'a [u8], Fault> {
    let level = u8::try_from(way.len()).ok().filter(|level| *level <= MAX_LEVEL);
    let level = level.ok_or_else(|| Fault::invalid(format!("there is no level {}", way.len())))?;
    let tree = Tree::decode(level, data, Limits::default())
        .map_err(|error| Fault::of(Kind::Protocol, &error, None))?;
    let steps: Vec<usize> = way.iter().map(|step| usize::try_from(*step).unwrap_or(usize::MAX)).collect();
    let item = tree.get(&steps).and_then(Tree::as_item);
    item.ok_or_else(|| Fault::new(Kind::NotFound, format!("the data has no item {way:?}")))
}

/// Returns the place of an item of [`find_item`] through the pointers.
///
/// # Errors
/// A pointer for the result is null.
///
/// # Safety
/// `item` and `size` are null or point to writable variables.
unsafe fn write_found(found: &[u8], item: *mut *const u8, size: *mut usize) -> Result<(), Fault> {
    if item.is_null() || size.is_null() {
        return Err(Fault::invalid("a place for the answer is NULL"));
    }
    // SAFETY: not null; the caller guarantees the rest.
    unsafe { item.write(found.as_ptr()) };
    // SAFETY: as above.
    unsafe { size.write(found.len()) };
    Ok(())
}

/// Merges parts with a filter in C. None: the filter failed. Frees the filter's result on success only.
///
/// # Safety
/// `merge` and `context` belong together and fulfil the contract of `gantry_merge_t`.
#[must_use]
pub unsafe fn merge(merge: Merge, context: *mut std::ffi::c_void, parts: &[Vec<u8>]) -> Option<Vec<u8>> {
    let given: Vec<Part> = parts.iter().map(|part| Part::of(part)).collect();
    let (mut result, mut size) = (std::ptr::null_mut(), 0);
    let count = to_int(given.len()).ok()?;
    // SAFETY: guaranteed by the caller; the parts and both places for the result outlive the call.
    let code = unsafe { merge(context, given.as_ptr(), count, &raw mut result, &raw mut size) };
    if code != 0 {
        return None;
    }
    // SAFETY: the filter promises this size.
    let made = unsafe { bytes(result.cast_const().cast(), size) }.ok().map(<[u8]>::to_vec);
    // SAFETY: null, or memory of malloc whose ownership the filter has transferred.
    unsafe { release(result) };
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_found_by_their_way_and_nothing_else_is() {
        let data = b"2 2 2 ab3 xyz2 2 ab0 ";
        assert_eq!(find_item(data, &[0, 1]).expect("an item"), b"xyz");
        assert_eq!(find_item(data, &[1, 1]).expect("an item"), b"");
        assert_eq!(find_item(b"2 ab", &[]).expect("an item"), b"ab");
        for way in [&[2, 0][..], &[0, 2], &[0], &[0, 0, 0], &[0; 300]] {
            assert!(find_item(data, way).is_err(), "{way:?}");
        }
    }

    #[test]
    fn data_is_freed_once() {
        static GIVEN: Given<Data> = Given::new();
        let data = give_data(&GIVEN, b"ab", Member { node: 1, daemon: 2 }, 3).expect("memory");
        // SAFETY: made above.
        let found = unsafe { data.read() };
        assert_eq!((found.size, found.from, found.tag), (2, Member { node: 1, daemon: 2 }, 3));
        // SAFETY: one byte more than its size.
        assert_eq!(unsafe { bytes(found.bytes, 3) }.expect("bytes"), b"ab\0");
        // SAFETY: made above.
        unsafe { take_data(&GIVEN, data) }.expect("once");
        // SAFETY: a pointer that is not on the list is not dereferenced.
        assert!(unsafe { take_data(&GIVEN, data) }.is_err());
        // SAFETY: null is allowed.
        unsafe { take_data(&GIVEN, std::ptr::null_mut()) }.expect("null");
    }

    #[test]
    fn bytes_that_cannot_be_are_refused() {
        // SAFETY: nothing is read.
        assert_eq!(unsafe { bytes(std::ptr::null(), 0) }.expect("none"), b"");
        // SAFETY: nothing is read.
        assert!(unsafe { bytes(std::ptr::null(), 1) }.is_err());
        // SAFETY: nothing is read.
        assert!(unsafe { values(std::ptr::dangling::<u64>(), usize::MAX) }.is_err());
    }

    #[test]
    fn the_result_of_a_failed_filter_is_not_freed() {
        unsafe extern "C" fn fails(
            _context: *mut std::ffi::c_void,
            _parts: *const Part,
            _count: c_int,
            result: *mut *mut std::ffi::c_void,
            size: *mut usize,
        ) -> c_int {
            static MINE: [u8; 16] = [7; 16];
            // SAFETY: `merge` passes valid pointers.
            unsafe { result.write(MINE.as_ptr().cast_mut().cast()) };
            // SAFETY: as above.
            unsafe { size.write(MINE.len()) };
            1
        }
        // SAFETY: the function above takes any context. The C library would end this process if its memory were freed.
        assert_eq!(unsafe { merge(fails, std::ptr::null_mut(), &[b"a".to_vec(), b"b".to_vec()]) }, None);
    }

    #[test]
    fn a_filter_of_cs_gives_memory_of_malloc_or_nothing() {
        unsafe extern "C" fn first(
            context: *mut std::ffi::c_void,
            parts: *const Part,
            count: c_int,
            result: *mut *mut std::ffi::c_void,
            size: *mut usize,
        ) -> c_int {
            if context.is_null() {
                return 1;
            }
            // SAFETY: `merge` passes valid pointers.
            let parts = unsafe { values(parts, usize::try_from(count).expect("a count")) }.expect("parts");
            // SAFETY: as above.
            let part = unsafe { parts[0].bytes() }.expect("bytes");
            // SAFETY: as above.
            unsafe { result.write(copy(part).expect("memory").cast()) };
            // SAFETY: as above.
            unsafe { size.write(part.len()) };
            0
        }
        let parts = [b"one".to_vec(), b"two".to_vec()];
        // SAFETY: the function above takes any context.
        let made = unsafe { merge(first, std::ptr::dangling_mut(), &parts) };
        assert_eq!(made.as_deref(), Some(&b"one"[..]));
        // SAFETY: as above.
        assert_eq!(unsafe { merge(first, std::ptr::null_mut(), &parts) }, None);
    }
}
