// SPDX-License-Identifier: MIT
// Panics caught and not, threads, collections. Counts: lines `FUNCTION N` go to the file that CT_COUNTS names.
use std::collections::HashMap;
use std::panic;
use std::sync::{mpsc, Arc, Mutex};
use std::thread;

fn opaque<T: Copy>(x: T) -> T {
    unsafe { std::ptr::read_volatile(&x) }
}

#[inline(never)]
#[no_mangle]
pub fn counted_leaf(x: u64) -> u64 {
    opaque(x).wrapping_mul(3)
}

#[inline(never)]
#[no_mangle]
pub fn counted_thrower(depth: u32) -> u32 {
    if depth == 0 {
        panic!("thrown");
    }
    let kept = vec![depth; 10];
    let below = counted_thrower(depth - 1);
    opaque(kept.len() as u32) + below
}

struct Guard(Arc<Mutex<u32>>);
impl Drop for Guard {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(|e| e.into_inner()) += 1;
    }
}

fn main() {
    let aborts = cfg!(panic = "abort");
    panic::set_hook(Box::new(|_| {}));
    let mut caught = 0;
    let dropped = Arc::new(Mutex::new(0));
    if !aborts {
        for _ in 0..200 {
            let guarded = dropped.clone();
            caught += panic::catch_unwind(move || {
                let _guard = Guard(guarded);
                counted_thrower(20)
            })
            .is_err() as u32;
        }
    }
    println!("caught {}, dropped {}", caught, *dropped.lock().unwrap());
    let sums = Arc::new(Mutex::new(HashMap::new()));
    let threads: Vec<_> = (0..8u64)
        .map(|t| {
            let sums = sums.clone();
            thread::spawn(move || {
                for i in 0..500u64 {
                    let x = counted_leaf(i + t);
                    *sums.lock().unwrap().entry(x % 17).or_insert(0u64) += x;
                }
                if t % 2 == 0 && !aborts {
                    panic!("in a thread");
                }
            })
        })
        .collect();
    let failed: u32 = threads.into_iter().map(|h| h.join().is_err() as u32).sum();
    let (sender, receiver) = mpsc::channel();
    for i in 0..4 {
        let sender = sender.clone();
        thread::spawn(move || (0..100).for_each(|k| sender.send(i * k).unwrap()));
    }
    drop(sender);
    println!("failed {}, sum {}", failed, receiver.iter().sum::<i32>());
    let mut all: Vec<_> = sums.lock().unwrap().iter().map(|(a, b)| (*a, *b)).collect();
    all.sort();
    println!("{:?}", &all[..3]);
    if let Ok(path) = std::env::var("CT_COUNTS") {
        let thrown = if aborts { 4 } else { 200 * 21 };
        std::fs::write(path, format!("counted_leaf 4000\ncounted_thrower {}\n", thrown)).unwrap();
    }
    if aborts {
        counted_thrower(3);
    }
    std::process::exit(4);
}
