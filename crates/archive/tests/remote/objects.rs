//! What every place for objects keeps, of a folder and of a bucket.

use std::sync::{Arc, Barrier};

use spinney_archive::{Folder, Listed, ObjectError, Objects};

use crate::weed;

const MB: usize = 1_000_000;

/// Bytes that differ from place to place and from seed to seed.
pub(crate) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

pub(crate) fn upload(place: &dyn Objects, name: &str, bytes: &[u8]) -> Result<(), ObjectError> {
    let mut upload = place.upload(name)?;
    for piece in bytes.chunks(3 * MB + 1) {
        upload.write(piece)?;
    }
    upload.finish()
}

fn folder() -> (tempfile::TempDir, Arc<dyn Objects>) {
    let parent = tempfile::tempdir().unwrap();
    let folder = Folder::new(parent.path().join("archive"));
    (parent, Arc::new(folder))
}

/// Runs a check over a folder, and over a bucket where there is one.
fn over_all(check: fn(&Arc<dyn Objects>)) {
    let (_parent, folder) = folder();
    check(&folder);
    if let Some(server) = weed::shared() {
        let remote: Arc<dyn Objects> = Arc::new(server.remote());
        check(&remote);
    }
}

fn names(place: &dyn Objects, prefix: &str) -> Vec<String> {
    place.list(prefix).unwrap().into_iter().map(|listed| listed.name).collect()
}

#[test]
fn an_object_is_whole_or_absent() {
    over_all(|place| {
        assert_eq!(place.list("").unwrap(), []);
        assert_eq!(place.get("a", 9).unwrap(), None);
        assert!(matches!(place.read("a", 0..1), Err(ObjectError::Missing { .. })));
        assert!(matches!(place.read("a", 1..1), Err(ObjectError::Missing { .. })));
        assert!(place.create("a", b"first").unwrap());
        assert!(!place.create("a", b"second").unwrap());
        assert!(!place.create("a", b"first").unwrap(), "nobody lost an answer");
        assert!(!place.create("a", b"1").unwrap());
        assert_eq!(place.get("a", 5).unwrap().unwrap(), b"first");
        let large = place.get("a", 4).unwrap_err();
        assert!(matches!(large, ObjectError::Failed { retryable: false, .. }), "{large}");
        let mut begun = place.upload("b").unwrap();
        begun.write(b"0123").unwrap();
        assert!(matches!(place.read("b", 0..1), Err(ObjectError::Missing { .. })));
        assert_eq!(place.list("b").unwrap(), []);
        drop(begun);
        assert_eq!(place.list("").unwrap(), [Listed { name: "a".into(), bytes: 5 }]);
        place.remove("a").unwrap();
        place.remove("a").unwrap();
        assert_eq!(place.get("a", 9).unwrap(), None);
        assert!(place.create("a", b"").unwrap());
        assert_eq!(place.get("a", 0).unwrap().unwrap(), b"");
        assert_eq!(place.read("a", 0..0).unwrap(), b"");
        assert!(matches!(place.read("a", 0..1), Err(ObjectError::Short { end: 1, .. })));
    });
}

#[test]
fn ranges_are_answered_in_full_or_not_at_all() {
    over_all(|place| {
        let whole = bytes(1, 100_000);
        upload(&**place, "x", &whole).unwrap();
        for range in [0..1, 0..100_000, 99_999..100_000, 4_095..70_001, 5..5, 100_000..100_000] {
            let wanted = &whole[range.start as usize..range.end as usize];
            assert_eq!(place.read("x", range.clone()).unwrap(), wanted, "{range:?}");
        }
        for range in [0..100_001, 99_999..100_001, 100_000..100_001, 7..7_000_000_000] {
            let error = place.read("x", range.clone()).unwrap_err();
            let short = matches!(error, ObjectError::Short { end, .. } if end == range.end);
            assert!(short, "{range:?}: {error}");
        }
        let many: Vec<_> = (0..50).map(|at| ("x", at * 1_000..at * 1_000 + 37)).collect();
        let mut wants = many.clone();
        wants.insert(3, ("none", 0..1));
        wants.insert(9, ("x", 0..100_001));
        let mut read = place.read_many(&wants);
        assert!(matches!(read.remove(9), Err(ObjectError::Short { .. })));
        assert!(matches!(read.remove(3), Err(ObjectError::Missing { .. })));
        assert_eq!(read.len(), many.len());
        for ((_, range), read) in many.into_iter().zip(read) {
            assert_eq!(read.unwrap(), whole[range.start as usize..range.end as usize]);
        }
    });
}

#[test]
fn of_eight_who_race_one_makes_the_object() {
    over_all(|place| {
        for round in 0..4 {
            let (name, start) = (format!("m{round}"), Arc::new(Barrier::new(8)));
            let racers: Vec<_> = (0..8_u64)
                .map(|racer| {
                    let (place, start, name) =
                        (Arc::clone(place), Arc::clone(&start), name.clone());
                    std::thread::spawn(move || {
                        let ours = bytes(racer, 1_000);
                        start.wait();
                        (place.create(&name, &ours).unwrap(), ours)
                    })
                })
                .collect();
            let told: Vec<_> = racers.into_iter().map(|racer| racer.join().unwrap()).collect();
            let winners: Vec<_> = told.iter().filter(|(won, _)| *won).collect();
            assert_eq!(winners.len(), 1, "round {round} over {}", place.place());
            assert_eq!(place.get(&name, 1_000).unwrap().as_ref(), Some(&winners[0].1));
        }
    });
}

#[test]
fn large_objects_are_uploaded_in_parts() {
    over_all(|place| {
        let whole = bytes(2, 40 * MB);
        upload(&**place, "large", &whole).unwrap();
        let length = whole.len() as u64;
        assert_eq!(place.list("").unwrap(), [Listed { name: "large".into(), bytes: length }]);
        assert!(place.get("large", length).unwrap().unwrap() == whole);
        let edge = 8 << 20;
        let read = place.read("large", edge - 5..edge + 5).unwrap();
        assert_eq!(read, whole[edge as usize - 5..edge as usize + 5]);
        // One of the same name is replaced: by parts, and at once; of a part's length, too.
        for length in [20 * MB, 8 << 20, (8 << 20) + 1, 10, 0] {
            let whole = bytes(3, length);
            upload(&**place, "large", &whole).unwrap();
            assert!(place.get("large", length as u64).unwrap().unwrap() == whole, "{length}");
        }
    });
}

#[test]
fn an_upload_that_is_dropped_leaves_nothing() {
    over_all(|place| {
        for length in [10, 9 * MB, 30 * MB] {
            let mut begun = place.upload("dropped").unwrap();
            begun.write(&bytes(4, length)).unwrap();
            drop(begun);
            assert_eq!(place.get("dropped", 1 << 30).unwrap(), None);
            assert_eq!(place.list("").unwrap(), []);
        }
        // What was there stays.
        assert!(place.create("kept", b"kept").unwrap());
        let mut begun = place.upload("kept").unwrap();
        begun.write(&bytes(4, 20 * MB)).unwrap();
        drop(begun);
        assert_eq!(place.get("kept", 9).unwrap().unwrap(), b"kept");
    });
}

#[test]
fn listings_are_in_order_and_by_prefix() {
    over_all(|place| {
        for name in ["seg-10", "seg-9", "a", "Z", "seg", "seg.1", "manifest-1", "-", "s"] {
            assert!(place.create(name, name.as_bytes()).unwrap());
        }
        let all = ["-", "Z", "a", "manifest-1", "s", "seg", "seg-10", "seg-9", "seg.1"];
        assert_eq!(names(&**place, ""), all);
        assert_eq!(names(&**place, "seg"), ["seg", "seg-10", "seg-9", "seg.1"]);
        assert_eq!(names(&**place, "seg-"), ["seg-10", "seg-9"]);
        assert_eq!(names(&**place, "seg-10"), ["seg-10"]);
        assert_eq!(names(&**place, "seg-100"), [""; 0]);
    });
}
