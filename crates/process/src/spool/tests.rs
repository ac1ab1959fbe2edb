use std::os::fd::AsRawFd;
use std::time::Duration;

use contract::limits::{
    LARGE_TEXT_BYTES, MAX_LARGE_MESSAGE_BYTES, MAX_SERVER_MESSAGE_BYTES, MAX_SPOOL_BYTES, MAX_STORED_RESULT_BYTES,
};

use super::{BUDGET_LOCK, LargeMessage, LargeMessageReader, MessageTooLong, PERMIT_BYTES, SPOOLS, SpooledText};

async fn read(parts: impl IntoIterator<Item = Vec<u8>>) -> Result<LargeMessage, MessageTooLong> {
    let mut reader = LargeMessageReader::new(Vec::new()).unwrap();
    for part in parts {
        reader.push(&part);
        reader.process().await?;
        assert!(reader.held() <= 4 << 20, "{}", reader.held());
    }
    reader.finish().await?;
    Ok(reader.into_message())
}

/// A message with one text of so many bytes, in parts of 100 KiB.
fn message(bytes: usize) -> impl Iterator<Item = Vec<u8>> {
    let part = 100 << 10;
    let sizes = std::iter::repeat_n(part, bytes / part).chain([bytes % part]);
    let text = sizes.enumerate().map(|(index, size)| vec![b'a' + (index % 26) as u8; size]);
    std::iter::once(b"{\"id\":1,\"x\":\"".to_vec()).chain(text).chain([b"\"}".to_vec()])
}

fn content(text: &SpooledText) -> Vec<u8> {
    let mut whole = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match text.read_at(&mut buffer, whole.len() as u64).unwrap() {
            0 => return whole,
            count => whole.extend_from_slice(&buffer[..count]),
        }
    }
}

#[tokio::test]
async fn texts_are_read_from_the_file_and_their_part_of_the_budget_is_freed() {
    let _alone = BUDGET_LOCK.lock().await;
    let before = SPOOLS.available_permits();
    let bytes = 10 << 20;
    let mut parts: Vec<Vec<u8>> = message(bytes).collect();
    let second = format!(",\"y\":[\"{}\"]}}", r"\u00e4".repeat(LARGE_TEXT_BYTES)).into_bytes();
    *parts.last_mut().unwrap() = [b"\"".as_slice(), &second].concat();
    let LargeMessage { skeleton, texts } = read(parts).await.unwrap();
    let texts = texts.unwrap();
    let skeleton = String::from_utf8(skeleton).unwrap();
    assert_eq!(skeleton, format!(r#"{{"id":1,"x":"{}","y":["{}"]}}"#, texts[0].marker(), texts[1].marker()));
    assert_eq!((texts[0].len(), texts[0].json_len()), (bytes as u64, bytes as u64));
    let whole: Vec<u8> = message(bytes).flatten().collect();
    assert!(content(&texts[0]) == whole[13..13 + bytes]);
    assert!(content(&texts[1]) == "ä".repeat(LARGE_TEXT_BYTES).as_bytes());
    // The file is unlinked.
    let link = format!("/proc/self/fd/{}", texts[0].spool.file.as_raw_fd());
    assert!(!cfg!(target_os = "linux") || std::fs::read_link(link).unwrap().to_string_lossy().ends_with(" (deleted)"));
    // Only what the texts need is reserved, as long as one of them exists.
    let used = (bytes + 2 * LARGE_TEXT_BYTES) / PERMIT_BYTES;
    assert_eq!(SPOOLS.available_permits(), before - used);
    drop(texts);
    assert_eq!(SPOOLS.available_permits(), before);
}

#[tokio::test]
async fn markers_of_two_messages_differ() {
    let _alone = BUDGET_LOCK.lock().await;
    let mut markers = Vec::new();
    for _ in 0..2 {
        let texts = read(message(1 << 20)).await.unwrap().texts.unwrap();
        markers.push(texts[0].marker().to_owned());
    }
    assert_ne!(markers[0], markers[1]);
}

#[tokio::test]
async fn texts_over_the_limit_are_dropped_and_the_rest_of_the_message_is_read() {
    let _alone = BUDGET_LOCK.lock().await;
    let before = SPOOLS.available_permits();
    assert!(read(message(MAX_STORED_RESULT_BYTES)).await.unwrap().texts.is_ok());
    let LargeMessage { skeleton, texts } = read(message(MAX_STORED_RESULT_BYTES + 1)).await.unwrap();
    assert!(texts.unwrap_err().contains("more than 67108864 bytes"));
    assert!(skeleton.starts_with(br#"{"id":1,"x":"cellmate-text-"#) && skeleton.ends_with(b"\"}"));
    assert_eq!(SPOOLS.available_permits(), before);
}

#[tokio::test]
async fn an_oversized_message_or_skeleton_is_too_long() {
    let _alone = BUDGET_LOCK.lock().await;
    let endless = message(MAX_LARGE_MESSAGE_BYTES);
    assert_eq!(read(endless).await.unwrap_err(), MessageTooLong);
    let mut reader = LargeMessageReader::new(vec![b'['; MAX_SERVER_MESSAGE_BYTES]).unwrap();
    assert_eq!(reader.process().await, Ok(()));
    reader.push(b"[");
    assert_eq!(reader.process().await, Err(MessageTooLong));
}

#[tokio::test(start_paused = true)]
async fn texts_are_dropped_if_the_budget_stays_full_and_kept_if_it_is_freed_in_time() {
    let _alone = BUDGET_LOCK.lock().await;
    let all = u32::try_from(MAX_SPOOL_BYTES / PERMIT_BYTES).unwrap();
    let taken = SPOOLS.acquire_many(all - 1).await.unwrap();
    let texts = read(message(1 << 20)).await.unwrap().texts;
    assert!(texts.unwrap_err().contains("as many large results as it can hold"));
    let waiting = tokio::spawn(read(message(1 << 20)));
    tokio::time::sleep(Duration::from_secs(5)).await;
    drop(taken);
    assert!(waiting.await.unwrap().unwrap().texts.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_message_that_times_out_frees_its_budget_and_is_still_read_to_its_end() {
    let _alone = BUDGET_LOCK.lock().await;
    let before = SPOOLS.available_permits();
    let mut reader = LargeMessageReader::new(message(1 << 20).take(5).flatten().collect()).unwrap();
    reader.process().await.unwrap();
    assert_eq!(SPOOLS.available_permits(), before - MAX_STORED_RESULT_BYTES / PERMIT_BYTES);
    let waits = reader.wait_for_more(std::future::pending::<()>());
    assert!(tokio::time::timeout(Duration::from_secs(121), waits).await.is_err());
    assert_eq!(SPOOLS.available_permits(), before);
    reader.push(b"\"}");
    reader.finish().await.unwrap();
    let LargeMessage { skeleton, texts } = reader.into_message();
    assert!(texts.unwrap_err().contains("within 120 seconds") && skeleton.ends_with(b"\"}"));
}

#[tokio::test]
async fn a_message_with_invalid_utf8_has_no_texts() {
    let _alone = BUDGET_LOCK.lock().await;
    let mut parts: Vec<Vec<u8>> = message(1 << 20).collect();
    parts[3][0] = 0xff;
    assert!(read(parts).await.unwrap().texts.unwrap_err().contains("not valid JSON"));
}

#[tokio::test]
async fn dropping_the_future_of_process_during_a_write_loses_nothing() {
    let _alone = BUDGET_LOCK.lock().await;
    let text: String = (0..400_000).map(|number| format!("{number} ")).collect();
    let mut reader = LargeMessageReader::new(Vec::new()).unwrap();
    reader.push(format!(r#"{{"text":"{text}"}}"#).as_bytes());
    let mut dropped = 0;
    while tokio::time::timeout(Duration::ZERO, reader.process()).await.is_err() {
        dropped += 1;
    }
    assert!(dropped > 0, "the future was never dropped");
    reader.finish().await.unwrap();
    let texts = reader.into_message().texts.unwrap();
    let mut read = vec![0; text.len()];
    assert_eq!(texts[0].read_at(&mut read, 0).unwrap(), text.len());
    assert!(read == text.as_bytes());
}
