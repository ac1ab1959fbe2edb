//! Hostile servers and names, and their safe outcome.

use std::io::Write;
use std::time::{Duration, Instant};

use contract::limits::{MAX_FETCH_BYTES, MAX_FETCH_REDIRECTS, MAX_FETCHES_PER_MINUTE};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use crate::site::{Names, Site, details, failure, fetch, redirect, response, tool};

const TEXT: &str = "Content-Type: text/plain";

#[tokio::test]
async fn a_server_on_this_machine_is_not_fetched_unless_it_is_allowed() {
    let site = Site::fixed(response(TEXT, b"inner"));
    let names = Names::of(&[
        ("localhost", &[&["127.0.0.1"]]),
        ("evil.example", &[&["127.0.0.1"]]),
        ("six.example", &[&["::ffff:127.0.0.1"]]),
        ("nat.example", &[&["64:ff9b::7f00:1"]]),
        ("metadata.example", &[&["169.254.169.254"]]),
    ]);
    let tool = tool(&["allowed.example"], &names);
    let hosts = [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "0",
        "0.0.0.0",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "evil.example",
        "six.example",
        "nat.example",
        "metadata.example",
        "allowed.example@127.0.0.1",
        "127.0.0.1%2eallowed.example",
    ];
    for host in hosts {
        let why = failure(tool.fetch(&json!({"url": format!("http://{host}:{}/", site.port)})).await);
        assert!(!why.contains("inner"), "{host}: {why}");
    }
    assert_eq!(site.connections(), 0);
}

#[tokio::test]
async fn a_redirect_to_a_private_address_is_not_followed() {
    let inner = Site::fixed(response(TEXT, b"inner"));
    let names = Names::of(&[("public.example", &[&["127.0.0.1"]]), ("evil.example", &[&["127.0.0.1"]])]);
    for location in [
        format!("http://127.0.0.1:{}/", inner.port),
        format!("//127.0.0.1:{}/", inner.port),
        format!("http://[::ffff:127.0.0.1]:{}/", inner.port),
        format!("http://2130706433:{}/", inner.port),
        format!("http://evil.example:{}/", inner.port),
        format!("http://evil.example.:{}/", inner.port),
        format!("http://me@public.example:{}/", inner.port),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "gopher://127.0.0.1/".to_owned(),
    ] {
        // The first host stands for a public one; the user allows only it.
        let site = Site::fixed(redirect(&location));
        let tool = tool(&["public.example"], &names);
        let outcome = tool.fetch(&json!({"url": format!("http://public.example:{}/", site.port)})).await;
        let why = failure(outcome);
        assert!(!why.contains("inner") && site.connections() == 1, "{location}: {why}");
    }
    assert_eq!(inner.connections(), 0);
}

#[tokio::test]
async fn a_name_that_changes_its_address_is_checked_each_time() {
    // The name has an allowed address when it is first resolved, and then one that is never allowed.
    let site = Site::fixed(redirect("/again"));
    let names = Names::of(&[("rebind.example", &[&["127.0.0.1"], &["169.254.169.254"]])]);
    let fetcher = tool(&["rebind.example"], &names);
    let url = format!("http://rebind.example:{}/", site.port);
    let why = failure(fetcher.fetch(&json!({ "url": url })).await);
    assert!(why.contains("169.254.169.254"), "{why}");
    assert_eq!((names.asked().len(), site.connections()), (2, 1));
}

#[tokio::test]
async fn one_resolution_serves_check_and_connection() {
    let site = Site::fixed(response(TEXT, b"inner"));
    let names = Names::of(&[("wiki.corp", &[&["127.0.0.1"], &["169.254.169.254"]])]);
    let fetcher = tool(&["wiki.corp"], &names);
    let found = details(fetcher.fetch(&json!({"url": format!("http://wiki.corp:{}/", site.port)})).await);
    assert_eq!((&found["text"], names.asked()), (&json!("inner"), vec!["wiki.corp".to_owned()]));
}

#[tokio::test]
async fn redirects_without_end_are_given_up() {
    let site = Site::start(|path, stream| drop(stream.write_all(&redirect(&format!("{path}x")))));
    let why = failure(fetch(&site, "/").await);
    assert!(why.contains("redirects"), "{why}");
    assert_eq!(site.connections(), MAX_FETCH_REDIRECTS + 1);
    let circle = Site::fixed(redirect("/"));
    assert!(failure(fetch(&circle, "/").await).contains("redirects"));
}

#[tokio::test]
async fn an_endless_body_is_cut() {
    let site = Site::start(|_, stream| {
        drop(stream.write_all(format!("HTTP/1.1 200 OK\r\n{TEXT}\r\n\r\n").as_bytes()));
        while stream.write_all(&[b'x'; 64 << 10]).is_ok() {}
    });
    let began = Instant::now();
    let found = details(fetch(&site, "/").await);
    assert_eq!((&found["truncated"], &found["length"]), (&json!(true), &json!(50_000)));
    assert!(began.elapsed() < Duration::from_secs(20));
}

/// 200 MiB of the letter x as a Brotli stream of 165 bytes.
const BROTLI_BOMB: &str = "\
    cfffff7f0024f0e2b14072effff9ffff0f8004401c1680eefd3fffffff01900088c302d0bdffe7ffff3f001200715800baf7fffcffff07400220\
    0e0b40f7fe9fffffff004800c46101e8defff3ffff1f000980382c00ddfb7ffeffff032001108705a07bffcfffff7f002400e2b00074effff9ff\
    ff0f8004401c1680eefd3fffffff01900088c302d0bdffe7ffff3f001200715800baf7fff9ffff074002200e0b40f7fe0f";

#[tokio::test]
async fn a_body_that_expands_is_cut() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(&vec![b'x'; 200 << 20]).unwrap();
    let bomb = gzip.finish().unwrap();
    assert!(bomb.len() < 1 << 20);
    let site = Site::fixed(response(&format!("{TEXT}\r\nContent-Encoding: gzip"), &bomb));
    let fetcher = tool(&["127.0.0.1"], &Names::default());
    let input = json!({"url": format!("http://127.0.0.1:{}/", site.port), "maxChars": 100_000_000});
    let found = details(fetcher.fetch(&input).await);
    assert!(
        found["truncated"] == true && found["length"].as_u64().unwrap() <= MAX_FETCH_BYTES as u64,
        "{}",
        found["length"]
    );
    let brotli = Site::fixed(response(&format!("{TEXT}\r\nContent-Encoding: br"), &hex::decode(BROTLI_BOMB).unwrap()));
    let input = json!({"url": format!("http://127.0.0.1:{}/", brotli.port), "maxChars": 100_000_000});
    let found = details(fetcher.fetch(&input).await);
    let length = found["length"].as_u64().unwrap();
    assert!(found["truncated"] == true && length <= MAX_FETCH_BYTES as u64 && length >= 1_000_000, "{length}");
    let twice = Site::fixed(response(&format!("{TEXT}\r\nContent-Encoding: gzip, gzip"), &bomb));
    assert!(failure(fetch(&twice, "/").await).contains("content encoding"));
    let other = Site::fixed(response(&format!("{TEXT}\r\nContent-Encoding: zstd"), &bomb));
    assert!(failure(fetch(&other, "/").await).contains("content encoding"));
}

#[tokio::test]
async fn huge_or_many_headers_are_refused() {
    let many = (0..1_000).map(|number| format!("X-{number}: y\r\n")).collect::<String>();
    let long = format!("X: {}\r\n", "y".repeat(4 << 20));
    for headers in [many, long] {
        let site = Site::fixed(format!("HTTP/1.1 200 OK\r\n{headers}{TEXT}\r\n\r\nx").into_bytes());
        failure(fetch(&site, "/").await);
    }
}

#[tokio::test]
async fn what_is_not_text_is_refused() {
    for content_type in ["image/png", "application/octet-stream", "application/pdf", "video/mp4", "font/woff2"] {
        let site = Site::fixed(response(&format!("Content-Type: {content_type}"), b"x"));
        let why = failure(fetch(&site, "/").await);
        assert!(why.contains(content_type), "{why}");
    }
    let unnamed = Site::fixed(response("X: y", b"\x7fELF\0\0\0"));
    assert!(failure(fetch(&unnamed, "/").await).contains("not text"));
}

#[tokio::test]
async fn answers_that_are_not_http_are_refused() {
    for answer in [b"SSH-2.0-OpenSSH_9.6\r\n".to_vec(), b"\x16\x03\x01".to_vec(), Vec::new(), b"HTTP/1.1 2".to_vec()] {
        failure(fetch(&Site::fixed(answer), "/").await);
    }
}

#[tokio::test]
async fn input_is_checked() {
    let fetcher = tool(&[], &Names::default());
    for input in [
        json!({}),
        json!({"url": "not a url"}),
        json!({"url": 3}),
        json!({"url": format!("https://example.com/{}", "x".repeat(9_000))}),
        json!({"url": "https://example.com/", "extractMode": "html"}),
        json!({"url": "https://example.com/", "maxChars": -1}),
        json!({"url": "https://missing.example/"}),
    ] {
        failure(fetcher.fetch(&input).await);
    }
}

#[tokio::test]
async fn more_fetches_than_the_rate_are_refused() {
    let fetcher = tool(&[], &Names::default());
    let input = json!({"url": "https://missing.example/"});
    for _ in 0..MAX_FETCHES_PER_MINUTE {
        assert!(failure(fetcher.fetch(&input).await).contains("resolved"));
    }
    assert!(failure(fetcher.fetch(&input).await).contains("within a minute"));
}

#[tokio::test]
async fn a_slow_body_ends_at_the_time_limit() {
    let site = Site::start(|_, stream| {
        drop(stream.write_all(format!("HTTP/1.1 200 OK\r\n{TEXT}\r\n\r\n").as_bytes()));
        while stream.write_all(b"x").and_then(|()| stream.flush()).is_ok() {
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    let began = Instant::now();
    let why = failure(fetch(&site, "/").await);
    assert!(why.contains("took longer"), "{why}");
    assert!((25..45).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}
