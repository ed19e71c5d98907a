//! The target `broker` under libFuzzer; what it checks is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    cowork_fuzz::broker(input);
});
