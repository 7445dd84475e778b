//! A bucket behind a network and a server that fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use spinney_archive::{Listed, ObjectError, Objects as _, Patience, Remote};

use crate::objects::{bytes, upload};
use crate::proxy::{Act, Asked, Proxy};
use crate::weed::{self, BUCKET, SECRET, Weed, options, remote};

const MB: usize = 1_000_000;

/// Of those who wait for what comes.
fn patient() -> Patience {
    let [connect, answer, call] = [5, 10, 60].map(Duration::from_secs);
    Patience { connect, answer, call }
}

/// Of those who wait for what does not come.
fn hasty() -> Patience {
    let [connect, answer, call] = [1_000, 400, 1_000].map(Duration::from_millis);
    Patience { connect, answer, call }
}

fn xml(code: &str, message: &str) -> String {
    format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>")
}

fn busy() -> Act {
    Act::Answer(503, xml("SlowDown", "Please reduce your request rate."))
}

fn is_part(asked: &Asked) -> bool {
    asked.target.contains("partNumber=")
}

fn is_retryable<T: std::fmt::Debug>(result: Result<T, ObjectError>) -> String {
    let error = result.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    error.to_string()
}

/// That call's text, which is within bounds.
fn is_final<T: std::fmt::Debug>(result: Result<T, ObjectError>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(error, ObjectError::Failed { retryable: false, .. }), "{error}");
    error.to_string()
}

#[test]
fn a_busy_server_is_asked_again() {
    let Some(server) = weed::shared() else { return };
    // Two of three requests are turned away.
    let proxy = Proxy::start(server.port(), |asked| match asked.number % 3 {
        2 => Act::Pass,
        _ => busy(),
    });
    let place = remote(&proxy.endpoint(), patient());
    let whole = bytes(1, 20 * MB);
    upload(&place, "x", &whole).unwrap();
    assert!(place.get("x", 1 << 30).unwrap().unwrap() == whole);
    assert_eq!(place.read("x", 9..99).unwrap(), whole[9..99]);
    assert!(place.create("y", b"y").unwrap());
    assert!(!place.create("y", b"z").unwrap());
    assert_eq!(place.list("").unwrap().len(), 2);
    place.remove("x").unwrap();
    assert_eq!(place.list("").unwrap(), [Listed { name: "y".into(), bytes: 1 }]);
}

#[test]
fn a_server_that_stays_busy_is_given_up_in_time() {
    let proxy = Proxy::start(0, |_| busy());
    let place = remote(&proxy.endpoint(), Patience { answer: Duration::from_secs(9), ..hasty() });
    let ends = |result: &mut dyn FnMut() -> String| {
        let since = Instant::now();
        let text = result();
        assert!(since.elapsed() < Duration::from_secs(60), "{text}");
        assert!(text.contains("503 SlowDown") && text.contains("later"), "{text}");
    };
    ends(&mut || is_retryable(place.get("x", 9)));
    ends(&mut || is_retryable(place.read("x", 0..9)));
    ends(&mut || is_retryable(place.create("x", b"x")));
    ends(&mut || is_retryable(place.list("")));
    ends(&mut || is_retryable(place.remove("x")));
    ends(&mut || is_retryable(upload(&place, "x", b"x")));
    ends(&mut || is_retryable(upload(&place, "x", &bytes(1, 17 * MB))));
}

#[test]
fn a_creation_whose_answer_is_lost_is_known_again() {
    let Some(server) = weed::shared() else { return };
    let lost = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lost);
    let proxy = Proxy::start(server.port(), move |asked| {
        let first = asked.method == "PUT" && count.fetch_add(1, Ordering::Relaxed) == 0;
        if first { Act::LoseAnswer } else { Act::Pass }
    });
    let place = remote(&proxy.endpoint(), patient());
    assert!(place.create("manifest-1", b"ours").unwrap());
    assert!(lost.load(Ordering::Relaxed) >= 2, "it was tried again");
    assert!(!place.create("manifest-1", b"theirs").unwrap());
    assert_eq!(place.get("manifest-1", 9).unwrap().unwrap(), b"ours");
}

#[test]
fn a_creation_that_another_was_faster_with_is_theirs() {
    let Some(server) = weed::shared() else { return };
    let direct = Arc::new(server.remote());
    let (theirs, url) = (Arc::clone(&direct), direct.place());
    // The first try is turned away, and another makes the object meanwhile; of our length.
    let proxy = Proxy::start(server.port(), move |asked| {
        if asked.method == "PUT" && theirs.create("m", b"their").unwrap() {
            busy()
        } else {
            Act::Pass
        }
    });
    let ours = Remote::open_with(&url, &options(&proxy.endpoint(), SECRET, patient())).unwrap();
    assert!(!ours.create("m", b"ours!").unwrap());
    assert_eq!(direct.get("m", 9).unwrap().unwrap(), b"their");
}

#[test]
fn connections_cut_within_parts_are_made_again() {
    let Some(server) = weed::shared() else { return };
    let proxy = Proxy::start(server.port(), |asked| match asked.number % 4 {
        0 | 2 if is_part(asked) => Act::CutRequest(3 * MB),
        1 if is_part(asked) => Act::LoseAnswer,
        _ => Act::Pass,
    });
    let place = remote(&proxy.endpoint(), patient());
    let whole = bytes(5, 40 * MB);
    upload(&place, "x", &whole).unwrap();
    assert!(place.get("x", 1 << 30).unwrap().unwrap() == whole);
    assert!(proxy.asked() > 10, "parts were sent again: {}", proxy.asked());
}

#[test]
fn an_upload_whose_end_is_lost_is_known_again() {
    let Some(server) = weed::shared() else { return };
    let proxy = Proxy::start(server.port(), |asked| {
        let completes = asked.method == "POST" && asked.target.contains("uploadId=");
        if completes { Act::LoseAnswer } else { Act::Pass }
    });
    let place = remote(&proxy.endpoint(), Patience { call: Duration::from_secs(4), ..patient() });
    let whole = bytes(6, 20 * MB);
    upload(&place, "x", &whole).unwrap();
    assert!(place.get("x", 1 << 30).unwrap().unwrap() == whole);
}

#[test]
fn parts_that_never_arrive_leave_no_object() {
    let Some(server) = weed::shared() else { return };
    let proxy =
        Proxy::start(
            server.port(),
            |asked| {
                if is_part(asked) { Act::CutRequest(MB) } else { Act::Pass }
            },
        );
    let place = remote(&proxy.endpoint(), hasty());
    is_retryable(upload(&place, "x", &bytes(7, 20 * MB)));
    assert_eq!(place.get("x", 1 << 30).unwrap(), None);
    assert_eq!(place.list("").unwrap(), []);
    let mut begun = place.upload("y").unwrap();
    let broken = (0..9).find_map(|_| begun.write(&bytes(8, 9 * MB)).err()).unwrap();
    assert!(broken.is_retryable(), "{broken}");
    is_retryable(begun.write(b"more"));
    is_retryable(begun.finish());
    assert_eq!(place.list("").unwrap(), []);
}

#[test]
fn answers_cut_short_are_asked_for_again() {
    let Some(server) = weed::shared() else { return };
    let whole = bytes(9, MB);
    for spoil in [Act::CutAnswer(1_000), Act::ShortAnswer(1_000), Act::StallAnswer(1_000)] {
        let shown = format!("{spoil:?}");
        let proxy = Proxy::start(server.port(), move |asked| match asked.number % 3 {
            1 if asked.method == "GET" => spoil.clone(),
            _ => Act::Pass,
        });
        let answer = Duration::from_secs(2);
        let place = remote(&proxy.endpoint(), Patience { answer, ..patient() });
        upload(&place, "x", &whole).unwrap();
        for _ in 0..3 {
            assert!(place.get("x", 1 << 30).unwrap().unwrap() == whole, "{shown}");
            assert!(place.read("x", 10..500_000).unwrap() == whole[10..500_000], "{shown}");
        }
    }
}

#[test]
fn answers_that_are_always_cut_short_are_told() {
    let Some(server) = weed::shared() else { return };
    let whole = bytes(10, MB);
    for spoil in [Act::CutAnswer(0), Act::ShortAnswer(1_000), Act::StallAnswer(0)] {
        let proxy = Proxy::start(server.port(), move |asked| {
            if asked.method == "GET" { spoil.clone() } else { Act::Pass }
        });
        let place = remote(&proxy.endpoint(), hasty());
        upload(&place, "x", &whole).unwrap();
        let since = Instant::now();
        is_retryable(place.read("x", 10..500_000));
        assert!(since.elapsed() < Duration::from_secs(40));
        for read in place.read_many(&[("x", 0..9_000), ("x", 1..9_001)]) {
            is_retryable(read);
        }
    }
}

#[test]
fn slow_answers_are_waited_for_as_long_as_said() {
    let Some(server) = weed::shared() else { return };
    let proxy = Proxy::start(server.port(), |_| Act::Wait(Duration::from_millis(700)));
    let place = remote(&proxy.endpoint(), patient());
    assert!(place.create("x", b"slow").unwrap());
    assert_eq!(place.read("x", 1..3).unwrap(), b"lo");
    let place = remote(&proxy.endpoint(), hasty());
    let text = is_retryable(place.read("x", 1..3));
    assert!(text.contains("no answer within 0.4 s"), "{text}");
}

#[test]
fn a_server_killed_within_an_upload_and_started_again() {
    let Some(mut server) = Weed::start() else { return };
    let place = server.remote();
    assert!(place.create("before", b"before").unwrap());
    let whole = bytes(11, 40 * MB);
    let mut begun = place.upload("x").unwrap();
    begun.write(&whole[..17 * MB]).unwrap();
    server.kill();
    let url = place.place();
    let quick = Remote::open_with(&url, &options(&server.endpoint(), SECRET, hasty())).unwrap();
    let text = is_retryable(quick.read("before", 0..6));
    assert!(text.contains("refused"), "{text}");
    // What goes on while nobody is there waits until somebody is.
    let rest = whole[17 * MB..].to_vec();
    let goes_on = std::thread::spawn(move || {
        begun.write(&rest)?;
        begun.finish()
    });
    server.run();
    let done = goes_on.join().unwrap();
    match done {
        Ok(()) => assert!(place.get("x", 1 << 30).unwrap().unwrap() == whole),
        Err(error) => {
            assert!(error.is_retryable(), "{error}");
            assert_eq!(place.get("x", 1 << 30).unwrap(), None);
        }
    }
    assert_eq!(place.get("before", 9).unwrap().unwrap(), b"before");
    upload(&place, "x", &whole).unwrap();
    assert!(place.get("x", 1 << 30).unwrap().unwrap() == whole);
}

#[test]
fn uploads_given_up_are_gone_from_the_server() {
    let Some(server) = Weed::start() else { return };
    let place = server.remote();
    let mut begun = place.upload("x").unwrap();
    begun.write(&bytes(12, 20 * MB)).unwrap();
    assert_eq!(server.open_uploads(), 1);
    drop(begun);
    assert_eq!(server.open_uploads(), 0);
}

#[test]
fn strangers_in_the_bucket_are_no_objects() {
    let Some(server) = weed::shared() else { return };
    let place = server.remote();
    let prefix = place.place().split_once(BUCKET).unwrap().1.trim_start_matches('/').to_owned();
    for name in ["a_b", "a%20b", "%C3%A4", "folder/a", "a~", "seg.tmp/part"] {
        server.plant(&format!("{prefix}/{name}"));
    }
    server.plant(&format!("{prefix}x/a"));
    assert!(place.create("a", b"a").unwrap());
    assert_eq!(place.list("").unwrap(), [Listed { name: "a".into(), bytes: 1 }]);
    assert_eq!(place.list("a").unwrap(), [Listed { name: "a".into(), bytes: 1 }]);
    for name in ["", "a/b", "..", "a_b", "ä"] {
        is_final(place.get(name, 9));
        is_final(place.read(name, 0..1));
        is_final(place.create(name, b""));
        is_final(place.upload(name));
        is_final(place.remove(name));
    }
}

/// A page of a listing.
fn page(keys: &[&str], next: Option<&str>) -> String {
    let time = "<LastModified>2026-11-25T00:00:00Z</LastModified>";
    let keys = keys.iter().map(|key| {
        format!("<Contents><Key>{key}</Key>{time}<ETag>\"e\"</ETag><Size>3</Size></Contents>")
    });
    let token = next.map(|next| format!("<NextContinuationToken>{next}</NextContinuationToken>"));
    let (keys, token) = (keys.collect::<String>(), token.unwrap_or_default());
    let ends = next.is_none();
    format!(
        "<ListBucketResult><IsTruncated>{}</IsTruncated>{token}{keys}</ListBucketResult>",
        !ends
    )
}

#[test]
fn listings_go_on_from_page_to_page() {
    let proxy = Proxy::start(0, |asked| {
        assert!(asked.target.contains("prefix=p%2Fm"), "{}", asked.target);
        let page = if asked.target.contains("continuation-token=two") {
            page(&["p/m-1", "p/m_3", "p/m-2/"], None)
        } else {
            page(&["p/m-9", "p/m-5", "other/m-1"], Some("two"))
        };
        Act::Answer(200, page)
    });
    let url = format!("s3://{BUCKET}/p");
    let place = Remote::open_with(&url, &options(&proxy.endpoint(), SECRET, hasty())).unwrap();
    let listed = place.list("m").unwrap();
    let names: Vec<_> = listed.iter().map(|listed| listed.name.as_str()).collect();
    assert_eq!(names, ["m-1", "m-2", "m-5", "m-9"]);
    assert_eq!(proxy.asked(), 2);
    // A server that turns in a circle is told.
    let proxy = Proxy::start(0, |_| Act::Answer(200, page(&["p/a"], Some("again"))));
    let place = Remote::open_with(&url, &options(&proxy.endpoint(), SECRET, hasty())).unwrap();
    assert!(is_retryable(place.list("")).contains("same page"));
}

#[test]
fn names_that_cannot_be_read_are_passed_by() {
    let proxy = Proxy::start(0, |asked| {
        let of = |prefix: &str| asked.target.contains(&format!("prefix=p%2F{prefix}&"));
        let whole = asked.target.ends_with("prefix=p%2F") || of("");
        let page = match () {
            () if whole => page(&["p//stranger", "p/a", "p/b"], None),
            () if of("a") || asked.target.ends_with("p%2Fa") => page(&["p/a"], None),
            () if of("b") || asked.target.ends_with("p%2Fb") => page(&["p/b"], None),
            () => page(&[], None),
        };
        Act::Answer(200, page)
    });
    let url = format!("s3://{BUCKET}/p");
    let place = Remote::open_with(&url, &options(&proxy.endpoint(), SECRET, hasty())).unwrap();
    let listed = place.list("").unwrap();
    let names: Vec<_> = listed.iter().map(|listed| listed.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn what_will_not_get_better_is_told_at_once() {
    let Some(server) = weed::shared() else { return };
    let since = Instant::now();
    let open = |bucket: &str, secret: &str| {
        let options = options(&server.endpoint(), secret, Patience::default());
        Remote::open_with(&format!("s3://{bucket}/p"), &options).unwrap()
    };
    let place = open(BUCKET, "marked-wrong-secret");
    for text in [
        is_final(place.get("x", 9)),
        is_final(place.read("x", 0..9)),
        is_final(place.create("x", b"x")),
        is_final(upload(&place, "x", b"x")),
        is_final(upload(&place, "x", &bytes(1, 9 * MB))),
        is_final(place.list("")),
        is_final(place.remove("x")),
    ] {
        assert!(text.contains("403") && text.contains("credentials"), "{text}");
        assert!(!text.contains("marked"), "{text}");
    }
    let place = open("no-such-bucket", SECRET);
    for text in [
        is_final(place.get("x", 9)),
        is_final(place.read("x", 0..9)),
        is_final(place.create("x", b"x")),
        is_final(upload(&place, "x", &bytes(1, 9 * MB))),
        is_final(place.list("")),
    ] {
        assert!(text.contains("NoSuchBucket") && text.contains("make the bucket"), "{text}");
    }
    assert!(since.elapsed() < Duration::from_secs(30));
}

#[test]
fn secrets_are_never_shown() {
    // A server that says all that it knows.
    let proxy = Proxy::start(0, |asked| {
        let signed = asked.head.lines().find(|line| line.starts_with("authorization"));
        let said = match asked.number % 3 {
            0 => signed.unwrap_or("no signature").to_owned(),
            1 => format!("key marked-key-55c1 and secret {SECRET}"),
            _ => format!("https://s3/x?X-Amz-Signature=abc&amp;X-Amz-Credential={SECRET}"),
        };
        Act::Answer(403, xml("AccessDenied", &said))
    });
    let options = options(&proxy.endpoint(), SECRET, hasty());
    let place = Remote::open_with(&format!("s3://{BUCKET}/p"), &options).unwrap();
    let mut shown = vec![format!("{options:?}"), format!("{place:?}"), place.place()];
    for _ in 0..3 {
        let errors = [
            place.get("x", 9).unwrap_err(),
            place.list("").unwrap_err(),
            place.create("x", b"x").unwrap_err(),
            upload(&place, "x", b"x").unwrap_err(),
        ];
        for error in errors {
            shown.extend([format!("{error}"), format!("{error:?}"), format!("{error:#?}")]);
        }
    }
    let begun = place.upload("x").unwrap();
    shown.push(format!("{begun:?}"));
    for text in shown {
        let text = text.to_ascii_lowercase();
        for secret in ["marked", "signature=", "aws4-hmac"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
    let error = Remote::open(&format!("s3://user:{SECRET}@bucket/p")).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("marked"), "{error}");
}

#[test]
fn without_credentials_the_environment_is_named() {
    let mut options = options("http://127.0.0.1:9", SECRET, hasty());
    options.variables.retain(|(name, _)| !name.contains("KEY"));
    // In place of the machine's own service.
    let proxy = Proxy::start(0, |_| Act::Answer(404, String::new()));
    let endpoint = ("AWS_METADATA_ENDPOINT".to_owned(), proxy.endpoint());
    options.variables.push(endpoint);
    let place = Remote::open_with(&format!("s3://{BUCKET}/p"), &options).unwrap();
    let text = is_final(place.get("x", 9));
    assert!(text.contains("no credentials in the environment"), "{text}");
}

#[test]
fn calls_from_within_a_runtime_do_not_panic() {
    let proxy = Proxy::start(0, |_| Act::Answer(404, xml("NoSuchKey", "none")));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let place = remote(&proxy.endpoint(), hasty());
        assert_eq!(place.get("x", 9).unwrap(), None);
        drop(place);
    });
}
