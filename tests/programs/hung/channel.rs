//! A Rust channel without a sender. The helpers are `hung.h` in Rust.

use std::os::raw::{c_int, c_uint};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const SIGUSR1: c_int = 10;

static FREED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    fn signal(number: c_int, handler: extern "C" fn(c_int)) -> usize;
    fn alarm(seconds: c_uint) -> c_uint;
}

extern "C" fn be_freed(_number: c_int) {
    FREED.store(true, Ordering::SeqCst);
}

fn until_freed() {
    while !FREED.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1)); // others
    }
}

fn gather<T>(parts: &Receiver<T>) -> T {
    parts.recv().unwrap() // odd
}

fn main() {
    unsafe {
        signal(SIGUSR1, be_freed);
        alarm(300);
    }
    println!("there");
    let mut result = 7;
    if std::env::var("GANTRY_RANK").as_deref() == Ok("1") {
        let (sender, receiver) = channel();
        let late = std::thread::spawn(move || {
            until_freed();
            sender.send(7).unwrap();
        });
        result = gather(&receiver);
        late.join().unwrap();
    } else {
        until_freed();
    }
    println!("result {result}");
}
