//! Attributes: settings of a tool for all its applications.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

use gantry_shared_capi::{Fault, enter, text};

use crate::attribute_values::Attribute;
use crate::log;
use crate::process::process;

/// Sets an attribute.
///
/// # Safety
/// `value` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cti_setAttribute(attrib: c_int, value: *const c_char) -> c_int {
    enter("cti_setAttribute", 1, || {
        let attribute = Attribute::of(attrib)?;
        // SAFETY: guaranteed by the caller.
        let value = unsafe { text::required(value, "the attribute's value") }?;
        let process = process();
        process.attributes.set(attribute, value)?;
        log::follow(&process.attributes);
        Ok(0)
    })
}

thread_local! {
    /// Strings that this thread got, by attribute.
    static GIVEN: RefCell<[CString; 5]> = RefCell::default();
}

/// An attribute's value.
#[unsafe(no_mangle)]
pub extern "C" fn cti_getAttribute(attrib: c_int) -> *const c_char {
    enter("cti_getAttribute", std::ptr::null(), || {
        let attribute = Attribute::of(attrib)?;
        let value = CString::new(process().attributes.get(attribute));
        let value = value.map_err(|_| Fault::invalid("the value has a NUL in it"))?;
        let kept = GIVEN.try_with(|given| {
            let mut given = given.borrow_mut();
            given[attribute as usize] = value;
            given[attribute as usize].as_ptr()
        });
        kept.map_err(|_| Fault::invalid("this thread has ended"))
    })
}
