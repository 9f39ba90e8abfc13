//! A Rust lock that another thread keeps. The helpers are `hung.h` in Rust.

use std::os::raw::{c_int, c_uint};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
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

struct Account {
    balance: Mutex<i32>,
}

impl Account {
    fn withdraw(&self) -> i32 {
        *self.balance.lock().unwrap() // odd
    }
}

fn main() {
    unsafe {
        signal(SIGUSR1, be_freed);
        alarm(300);
    }
    println!("there");
    let mut result = 7;
    if std::env::var("GANTRY_RANK").as_deref() == Ok("1") {
        let account = Arc::new(Account { balance: Mutex::new(0) });
        let both = Arc::new(Barrier::new(2));
        let keeper = std::thread::spawn({
            let (account, both) = (Arc::clone(&account), Arc::clone(&both));
            move || {
                let mut balance = account.balance.lock().unwrap();
                both.wait();
                until_freed();
                *balance = 7;
            }
        });
        both.wait();
        result = account.withdraw();
        keeper.join().unwrap();
    } else {
        until_freed();
    }
    println!("result {result}");
}
