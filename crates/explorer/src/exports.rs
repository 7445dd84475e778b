//! What the page calls. It asks for room, writes a question there, has it checked, and reads the
//! answer; all bytes stay owned by the two places here, so nothing is freed by hand.
//!
//! Names that a page can call have to be exported unmangled, which Rust calls unsafe, since two
//! libraries may export one name. This library is linked into nothing else.
#![expect(unsafe_code, reason = "the attribute no_mangle, and nothing else")]

use std::sync::{Mutex, PoisonError};

/// The longest question, in bytes.
const QUESTION_BYTES_MAX: usize = 32 << 20;

static QUESTION: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static ANSWER: Mutex<String> = Mutex::new(String::new());

/// Room for a question of so many bytes; null if that is too long.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn room(len: usize) -> *mut u8 {
    if len > QUESTION_BYTES_MAX {
        return std::ptr::null_mut();
    }
    let mut question = QUESTION.lock().unwrap_or_else(PoisonError::into_inner);
    *question = vec![0; len];
    question.as_mut_ptr()
}

/// Checks the question that was written there. Returns the length of the answer, in bytes.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn check() -> usize {
    let question = std::mem::take(&mut *QUESTION.lock().unwrap_or_else(PoisonError::into_inner));
    let mut answer = ANSWER.lock().unwrap_or_else(PoisonError::into_inner);
    *answer = crate::check(&question);
    answer.len()
}

/// Where the answer is, until the next question is checked.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn answer() -> *const u8 {
    ANSWER.lock().unwrap_or_else(PoisonError::into_inner).as_ptr()
}
