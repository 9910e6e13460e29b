//! What hostile reviews take of the memory. An allocator counts, so this is a program of its own with one test.
#![allow(unsafe_code)] // an allocator cannot be written without
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../fuzz/target.rs"]
#[allow(dead_code)]
mod target;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use restow_convert::review::{Limits, Review, Scope};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grow(bytes: usize) {
    let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: all work is done by the system's allocator; only sizes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grow(size);
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: usize = 1 << 20;
/// The size of each hostile body.
const BYTES: usize = 10 * MIB;

/// The most memory that a review takes besides its body.
fn taken(body: &[u8]) -> usize {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    if let Ok(review) = Review::parse(body, Limits::default()) {
        review.convert(&target::BOTH[0], Scope::All, &|_| true);
    }
    PEAK.load(Ordering::Relaxed) - before
}

fn review(objects: &str) -> String {
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{{"uid":"u",
            "desiredAPIVersion":"example.com/v1","objects":[{objects}]}}}}"#
    )
}

fn object(metadata: &str, rest: &str) -> String {
    format!(
        r#"{{"apiVersion":"example.com/v1beta1","kind":"Box","metadata":{{"name":"b"{metadata}}}{rest}}}"#
    )
}

/// Something again and again, up to a size.
fn repeated(piece: &str, bytes: usize) -> String {
    piece.repeat(bytes / piece.len())
}

/// Fields with different names, up to a size.
fn fields(bytes: usize) -> String {
    let fields: Vec<_> = (0..bytes / 11).map(|number| format!(r#""{number:06}":0"#)).collect();
    fields.join(",")
}

#[test]
fn hostile_reviews_take_a_bounded_amount_of_memory() {
    // What is made once is not counted.
    taken(review(&object("", r#","spec":{"size":1}"#)).as_bytes());
    let most = Limits::default().object_bytes - 1_000;
    let spec = |field: &str, value: &str| review(&object("", &format!(r#","spec":{{"{field}":{value}}}"#)));
    let zeros = |bytes| format!("[{}0]", repeated("0,", bytes));
    let annotation = format!(
        r#","annotations":{{"restow.dev/conversion-data":"{{\"v1\":[{}0]}}"}}"#,
        repeated("{},", most / 2)
    );
    let kept = format!(
        r#","annotations":{{"restow.dev/conversion-data":"{{\"v1\":[{}{{\"path\":[]}}]}}"}}"#,
        repeated(r#"{\"path\":[\"spec\",\"x\"],\"value\":0},"#, most)
    );
    // The bound of those that read an object, for each byte of the largest object; and of all others, for each byte of the body.
    let (of_object, of_body) = (80 * Limits::default().object_bytes, 8 * BYTES);
    let cases = [
        ("open lists", review(&repeated("[", BYTES)), of_body),
        (
            "nested lists",
            review(&format!("{}{}", repeated("[", BYTES / 2), repeated("]", BYTES / 2))),
            of_body,
        ),
        ("nested objects", review(&repeated("{\"a\":", BYTES)), of_body),
        ("very many objects", review(&format!("{}0", repeated("0,", BYTES))), of_body),
        ("very many empty objects", review(&format!("{}{{}}", repeated("{},", BYTES))), of_body),
        ("a truncated object", review(&object("", &repeated("[0,", BYTES)))[..BYTES].to_owned(), of_body),
        ("a long uid", review("").replace("\"u\"", &format!("\"{}\"", repeated("u", BYTES))), of_body),
        ("a long kind", review(&object("", "").replace("Box", &repeated("B", BYTES))), of_body),
        ("an object that is too large", spec("any", &zeros(BYTES)), of_body),
        ("an untouched list", spec("any", &zeros(most)), of_object),
        ("an unknown list", spec("unknown", &zeros(most)), of_object),
        ("a list in place of a number", spec("size", &zeros(most)), of_object),
        ("many unknown fields", spec("unknown", &format!("{{{}}}", fields(most))), of_object),
        (
            "many unknown fields of spec",
            review(&object("", &format!(r#","spec":{{{}}}"#, fields(most)))),
            of_object,
        ),
        ("many labels", review(&object(&format!(r#","labels":{{{}}}"#, fields(most)), "")), of_object),
        ("much metadata", review(&object(&format!(",{}", fields(most)), "")), of_object),
        ("an annotation of anything", review(&object(&annotation, "")), of_object),
        ("an annotation of entries", review(&object(&kept, r#","spec":{}"#)), of_object),
        (
            "large objects one after the other",
            review(&[spec_of(MIB), spec_of(MIB), spec_of(MIB)].join(",")),
            of_object,
        ),
    ];
    let mut total = 0;
    for (name, body, bound) in cases {
        let taken = taken(body.as_bytes());
        println!("{name}: {} MiB for {} MiB", taken / MIB, body.len() / MIB);
        assert!(taken <= bound, "{name}: {taken} bytes for {} bytes; the bound is {bound}", body.len());
        total += body.len();
        let truncated = &body.as_bytes()[..body.len() / 3];
        total += truncated.len();
        assert!(self::taken(truncated) <= bound, "{name}, truncated");
    }
    assert!(total > 10_000_000);
}

fn spec_of(bytes: usize) -> String {
    object("", &format!(r#","spec":{{"unknown":[{}0]}}"#, repeated("0,", bytes)))
}
