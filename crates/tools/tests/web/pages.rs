//! Ordinary pages.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use contract::config;

use crate::site::{Names, Site, details, failure, fetch, redirect, response, tool, tool_with};

#[tokio::test]
async fn a_page_is_returned_as_markdown_or_text() {
    let page = "<title>T</title><h1>Hello</h1><p>A <a href='/x'>link</a>.</p>";
    let site = Site::fixed(response("Content-Type: text/html; charset=utf-8", page.as_bytes()));
    let found = details(fetch(&site, "/a?b").await);
    assert_eq!(found["text"], format!("# Hello\n\nA [link](http://127.0.0.1:{}/x).", site.port));
    assert_eq!((&found["title"], &found["status"], &found["truncated"]), (&json!("T"), &json!(200), &json!(false)));
    assert_eq!(found["finalUrl"], format!("http://127.0.0.1:{}/a?b", site.port));
    let tool = tool(&["127.0.0.1"], &Names::default());
    let input = json!({"url": found["url"], "extractMode": "text", "maxChars": 1});
    // At least 100 characters are returned.
    assert_eq!(details(tool.fetch(&input).await)["text"], "Hello\n\nA link.");
    let request = site.requests.lock().unwrap()[0].to_ascii_lowercase();
    assert!(request.contains("user-agent: cellmate/") && !request.contains("cookie"), "{request}");
}

#[tokio::test]
async fn json_is_indented_and_text_is_cut_at_max_chars() {
    let site = Site::fixed(response("Content-Type: application/json", br#"{"a":1}"#));
    assert_eq!(details(fetch(&site, "/").await)["text"], "{\n  \"a\": 1\n}");
    let site = Site::fixed(response("Content-Type: text/plain", "é".repeat(500).as_bytes()));
    let tool = tool(&["127.0.0.1"], &Names::default());
    let input = json!({"url": format!("http://127.0.0.1:{}/", site.port), "maxChars": 100});
    let found = details(tool.fetch(&input).await);
    assert_eq!(
        (&found["text"], &found["truncated"], &found["length"]),
        (&json!("é".repeat(100)), &json!(true), &json!(100))
    );
}

#[tokio::test]
async fn compressed_pages_are_decompressed() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(b"compressed text").unwrap();
    let site = Site::fixed(response("Content-Type: text/plain\r\nContent-Encoding: gzip", &gzip.finish().unwrap()));
    assert_eq!(details(fetch(&site, "/").await)["text"], "compressed text");
}

#[tokio::test]
async fn redirects_are_followed_and_the_final_address_returned() {
    let site = Site::start(|path, stream| {
        let answer = match path {
            "/a" => redirect("/b/"),
            "/b/" => redirect("c"),
            _ => response("Content-Type: text/plain", b"arrived"),
        };
        drop(std::io::Write::write_all(stream, &answer));
    });
    let found = details(fetch(&site, "/a").await);
    assert_eq!((&found["text"], site.connections()), (&json!("arrived"), 3));
    assert!(found["finalUrl"].as_str().unwrap().ends_with("/b/c"), "{found}");
}

#[tokio::test]
async fn configured_limits_lower_those_of_the_tool() {
    let site = Site::start(|path, stream| {
        let answer = match path {
            "/a" => redirect("/b"),
            _ => response("Content-Type: text/plain", "x".repeat(5_000).as_bytes()),
        };
        drop(std::io::Write::write_all(stream, &answer));
    });
    let settings = |more: config::WebFetch| config::WebFetch { allow_private: vec!["127.0.0.1".to_owned()], ..more };
    let url = |path: &str| format!("http://127.0.0.1:{}{path}", site.port);
    let no_redirects = settings(config::WebFetch { max_redirects: Some(0), ..config::WebFetch::default() });
    let why = failure(tool_with(&no_redirects, &Names::default()).fetch(&json!({"url": url("/a")})).await);
    assert!(why.contains("more than 0 redirects"), "{why}");
    let short = settings(config::WebFetch { max_chars: Some(200), ..config::WebFetch::default() });
    let input = json!({"url": url("/b"), "maxChars": 4_000});
    let found = details(tool_with(&short, &Names::default()).fetch(&input).await);
    assert_eq!((&found["length"], &found["truncated"]), (&json!(200), &json!(true)));
    let small = settings(config::WebFetch { max_response_bytes: Some(1_000), ..config::WebFetch::default() });
    let found = details(tool_with(&small, &Names::default()).fetch(&json!({"url": url("/b")})).await);
    assert_eq!((&found["length"], &found["truncated"]), (&json!(1_000), &json!(true)));
}

#[tokio::test]
async fn an_error_status_is_a_failure_with_the_text_of_the_page() {
    let body = "<h1>Not here</h1>";
    let answer =
        format!("HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let why = failure(fetch(&Site::fixed(answer.into_bytes()), "/").await);
    assert!(why.contains("404") && why.contains("Not here"), "{why}");
}

#[tokio::test]
async fn a_name_that_the_user_allows_may_be_private() {
    let site = Site::fixed(response("Content-Type: text/plain", b"inner"));
    let names = Names::of(&[("wiki.corp", &[&["127.0.0.1"]])]);
    let tool = tool(&["wiki.corp"], &names);
    let input = json!({"url": format!("http://Wiki.Corp.:{}/", site.port)});
    assert_eq!(details(tool.fetch(&input).await)["text"], "inner");
}
