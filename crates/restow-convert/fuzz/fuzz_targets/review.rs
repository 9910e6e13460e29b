//! Any bytes as a ConversionReview. CONTRIBUTING.md says how to run it.

#![no_main]

#[path = "../target.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|body: &[u8]| {
    target::check(body);
});
