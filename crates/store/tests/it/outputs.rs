//! Stored outputs are read piece by piece, and are stored, counted and deleted with their runs.

use contract::config::{Quotas, Retention};
use contract::ids::{CallId, OutputHandle};
use contract::limits::{MAX_STORED_RESULT_BYTES, OUTPUT_PIECE_BYTES};
use contract::scope::Scope;
use sqlx::{AnyConnection, Connection, Row};
use store::{
    Change, CommitError, Durability, FencedRun, Location, NewOutput, OutputKind, OutputPiece, OutputPosition, Quota,
    RestoreOptions, RunState, SessionKey, Store, StoreError, check_backup,
};

use crate::world::{NOW, Place, everywhere};

const HOUR: i64 = 60 * 60 * 1000;

fn output(name: &str, kind: OutputKind, data: impl Into<Vec<u8>>) -> NewOutput {
    NewOutput { name: name.to_owned(), kind, mime_type: None, source: None, data: data.into() }
}

fn text(name: &str, data: &str) -> NewOutput {
    output(name, OutputKind::Text, data)
}

fn storing(outputs: Vec<NewOutput>) -> Change {
    Change { outputs, ..Change::default() }
}

fn finishing(name: &str) -> Change {
    Change { finished_outputs: vec![name.to_owned()], ..Change::default() }
}

fn completed(outputs: Vec<NewOutput>) -> Change {
    Change { state: Some(RunState::Completed), ..storing(outputs) }
}

async fn commit(store: &Store, held: &mut FencedRun, change: &Change) {
    store.commit(held, change, Durability::Relaxed, NOW).await.unwrap();
}

async fn piece(store: &Store, handle: &OutputHandle, position: OutputPosition) -> Option<OutputPiece> {
    store.output_piece(handle, position).await.unwrap()
}

/// Reads a whole output from piece to piece.
async fn read(store: &Store, handle: &OutputHandle) -> Vec<u8> {
    let mut data = Vec::new();
    while let Some(piece) = piece(store, handle, OutputPosition::Byte(data.len() as u64)).await {
        assert_eq!(piece.start_byte, data.len() as u64);
        data.extend(piece.data);
    }
    data
}

/// Counts the rows of a table with SQL. An in-memory store has no other connection, so nothing is counted in it.
async fn rows_in(place: &Place, table: &str) -> i64 {
    let url = match &place.location {
        Location::File(path) => format!("sqlite://{}", path.display()),
        Location::Postgres(url) => url.clone(),
        Location::Memory => return 0,
    };
    let mut connection = AnyConnection::connect(&url).await.unwrap();
    let row = sqlx::query(&format!("SELECT COUNT(*) FROM {table}")).fetch_one(&mut connection).await.unwrap();
    row.try_get(0).unwrap()
}

/// Returns a text of several pieces, with lines and with characters of one to four bytes at the ends of its pieces.
fn long_text(shift: usize) -> String {
    let mut text = "x".repeat(shift);
    let lines = ["a line\n", "\u{e4}\u{20ac}\u{1F980}", "\u{1F980}\u{1F980}\n", "\n", "\u{20ac}\u{20ac}"];
    for number in 0.. {
        if text.len() > 2 * OUTPUT_PIECE_BYTES + 100 {
            return text;
        }
        // Some lines are longer than a piece.
        let is_long = number % 5_000 == 20;
        text += if is_long { "long \u{1F980} " } else { lines[number % lines.len()] };
        if is_long {
            text += &"\u{1F980}".repeat(OUTPUT_PIECE_BYTES / 5);
        }
    }
    text
}

#[tokio::test]
async fn every_position_of_a_text_is_found_in_its_piece() {
    for place in everywhere().await {
        for shift in 0..4 {
            let whole = long_text(shift);
            let mut held = place.new_run(u32::try_from(shift).unwrap());
            commit(&place.store, &mut held, &storing(vec![text("l0n0", &whole)])).await;
            let handle = OutputHandle::of(&held.run_id, "l0n0");
            assert_eq!(read(&place.store, &handle).await, whole.as_bytes());
            let row = place.store.output(&handle).await.unwrap().unwrap();
            let units = whole.encode_utf16().count() as u64;
            assert_eq!((row.bytes, row.units, row.lines), (whole.len() as u64, units, whole.lines().count() as u64));
            let mut start = 0;
            while let Some(first) = piece(&place.store, &handle, OutputPosition::Byte(start)).await {
                check_around(&place.store, &handle, &whole, &first).await;
                start += first.data.len() as u64;
            }
            for (number, line) in whole.lines().enumerate().filter(|(number, _)| number % 1_511 == 0) {
                check_line(&place.store, &handle, &whole, number as u64, line).await;
            }
            for past in [
                OutputPosition::Byte(row.bytes),
                OutputPosition::Unit(row.units),
                OutputPosition::Line(row.lines),
                OutputPosition::Unit(u64::MAX),
            ] {
                assert_eq!(piece(&place.store, &handle, past).await, None, "{past:?}");
            }
        }
    }
}

/// Checks positions around the start of a piece.
async fn check_around(store: &Store, handle: &OutputHandle, whole: &str, first: &OutputPiece) {
    let before = &whole[..usize::try_from(first.start_byte).unwrap()];
    assert_eq!(first.start_unit, before.encode_utf16().count() as u64);
    assert_eq!(first.start_line, before.matches('\n').count() as u64);
    for near in first.start_unit.saturating_sub(3)..first.start_unit + 4 {
        let found = piece(store, handle, OutputPosition::Unit(near)).await.unwrap();
        let units = std::str::from_utf8(&found.data).unwrap().encode_utf16().count() as u64;
        assert!((found.start_unit..found.start_unit + units).contains(&near), "unit {near}");
    }
    for near in first.start_byte.saturating_sub(5)..first.start_byte + 5 {
        let found = piece(store, handle, OutputPosition::Byte(near)).await.unwrap();
        let bytes = found.start_byte..found.start_byte + found.data.len() as u64;
        assert!(bytes.contains(&near), "byte {near}");
    }
    // Lines that begin in this piece, and the one in which it begins.
    for near in first.start_line..(first.start_line + 3).min(whole.lines().count() as u64) {
        let line = whole.lines().nth(usize::try_from(near).unwrap()).unwrap();
        check_line(store, handle, whole, near, line).await;
    }
}

/// Checks that the first byte of a line is in the piece that is found for the line.
async fn check_line(store: &Store, handle: &OutputHandle, whole: &str, number: u64, line: &str) {
    let begins = (line.as_ptr() as usize - whole.as_ptr() as usize) as u64;
    let found = piece(store, handle, OutputPosition::Line(number)).await.unwrap();
    let bytes = found.start_byte..found.start_byte + found.data.len() as u64;
    assert!(bytes.contains(&begins), "line {number} begins at {begins}");
}

#[tokio::test]
async fn binary_empty_and_described_outputs_are_read_as_they_were_stored() {
    for place in everywhere().await {
        let data: Vec<u8> = (0..OUTPUT_PIECE_BYTES + 3).map(|byte| (byte % 251) as u8).collect();
        let image = NewOutput {
            mime_type: Some("image/png".to_owned()),
            source: Some((CallId(7), "mcp:files:read".to_owned())),
            ..output("c7n0", OutputKind::Image, data.clone())
        };
        let mut held = place.new_run(1);
        let empty = output("l0n1", OutputKind::Json, "");
        commit(&place.store, &mut held, &storing(vec![image.clone(), empty])).await;
        let handle = OutputHandle::of(&held.run_id, "c7n0");
        assert_eq!(read(&place.store, &handle).await, data);
        let row = place.store.output(&handle).await.unwrap().unwrap();
        assert_eq!((row.kind, row.mime_type, row.source), (image.kind, image.mime_type, image.source));
        assert_eq!((row.bytes, row.units, row.lines, row.created_at), (data.len() as u64, data.len() as u64, 0, NOW));
        let empty = OutputHandle::of(&held.run_id, "l0n1");
        assert_eq!(place.store.output(&empty).await.unwrap().unwrap().bytes, 0);
        assert_eq!(read(&place.store, &empty).await, b"");
        for unknown in ["l0n2", "", "out", "c7n0' OR ''='"] {
            let unknown = OutputHandle::of(&held.run_id, unknown);
            assert_eq!(place.store.output(&unknown).await.unwrap(), None);
            assert_eq!(piece(&place.store, &unknown, OutputPosition::Byte(0)).await, None);
        }
    }
}

#[tokio::test]
async fn invalid_outputs_are_rejected_with_their_change() {
    for place in everywhere().await {
        let mut held = place.new_run(1);
        for (invalid, expected) in [
            (output("l0n0", OutputKind::Text, vec![0xFF]), "not valid UTF-8"),
            (output("l0n0", OutputKind::Binary, vec![0; MAX_STORED_RESULT_BYTES + 1]), "larger than 67108864 bytes"),
            (text("../l0n0", ""), "the name `../l0n0`"),
        ] {
            let refused = place.store.commit(&mut held, &storing(vec![invalid]), Durability::Relaxed, NOW).await;
            assert!(refused.unwrap_err().to_string().contains(expected));
        }
        assert!(place.store.run(&held.run_id).await.unwrap().is_none(), "nothing was written");
    }
}

#[tokio::test]
async fn an_output_that_is_stored_again_replaces_the_stored_one() {
    for place in everywhere().await {
        let mut held = place.new_run(1);
        let long = long_text(0);
        for _ in 0..2 {
            commit(&place.store, &mut held, &storing(vec![text("l0n0", &long)])).await;
        }
        let handle = OutputHandle::of(&held.run_id, "l0n0");
        assert_eq!(read(&place.store, &handle).await, long.as_bytes());
        commit(&place.store, &mut held, &storing(vec![text("l0n0", "short")])).await;
        assert_eq!(read(&place.store, &handle).await, b"short");
        assert_eq!(place.store.outputs_of_run(&held.run_id).await.unwrap().len(), 1);
        assert!(rows_in(&place, "output_pieces").await <= 1);
    }
}

#[tokio::test]
async fn a_written_output_is_visible_only_after_the_change_that_completes_it() {
    for place in everywhere().await {
        let mut held = place.run(1, Change::default()).await;
        let long = long_text(1).repeat(3);
        let mut writer = place.store.output_writer(&held, &text("c1n0", ""), NOW).unwrap();
        // Portions that end within characters.
        for portion in long.as_bytes().chunks(70_001) {
            writer.write(portion).await.unwrap();
        }
        let row = writer.finish().await.unwrap();
        assert_eq!(place.store.output(&row.handle).await.unwrap(), None);
        assert_eq!(place.store.outputs_of_run(&held.run_id).await.unwrap(), []);
        assert_eq!(piece(&place.store, &row.handle, OutputPosition::Byte(0)).await, None);
        commit(&place.store, &mut held, &finishing("c1n0")).await;
        assert_eq!(place.store.output(&row.handle).await.unwrap().as_ref(), Some(&row));
        assert_eq!(read(&place.store, &row.handle).await, long.as_bytes());
        // The pieces are those of an output that is written at once.
        commit(&place.store, &mut held, &storing(vec![text("l0n0", &long)])).await;
        let at_once = OutputHandle::of(&held.run_id, "l0n0");
        for start in (0..row.units).step_by(OUTPUT_PIECE_BYTES / 3) {
            let position = OutputPosition::Unit(start);
            assert_eq!(piece(&place.store, &row.handle, position).await, piece(&place.store, &at_once, position).await);
        }
        // A repeated change has no further effect.
        commit(&place.store, &mut held, &finishing("c1n0")).await;
    }
}

#[tokio::test]
async fn a_writer_refuses_more_than_its_limit_and_text_that_is_not_utf_8() {
    for place in everywhere().await {
        let held = place.run(1, Change::default()).await;
        let mut writer = place.store.output_writer(&held, &text("c1n0", ""), NOW).unwrap();
        writer.write(b"x").await.unwrap();
        let refused = writer.write(&vec![b'x'; MAX_STORED_RESULT_BYTES]).await;
        assert!(matches!(refused, Err(StoreError::OutputTooLarge { .. })), "{refused:?}");
        writer.write(b"\xF0\x9F").await.unwrap();
        let refused = writer.finish().await;
        assert!(matches!(refused, Err(StoreError::InvalidText)), "{refused:?}");
        let refused = place.store.output_writer(&held, &text("C1", ""), NOW);
        assert!(matches!(refused, Err(StoreError::Corrupt(_))), "{refused:?}");
    }
}

#[tokio::test]
async fn a_process_that_has_lost_the_run_cannot_change_the_output_of_the_next_one() {
    for place in everywhere().await {
        let mut old = place.run(1, Change::default()).await;
        let mut late = place.store.output_writer(&old, &text("c1n0", ""), NOW).unwrap();
        late.write("old".repeat(OUTPUT_PIECE_BYTES * 2).as_bytes()).await.unwrap();
        let mut held = place.store.take(&old.run_id, "two", NOW + 2_000, NOW + 9_000).await.unwrap();
        let whole = "new".repeat(OUTPUT_PIECE_BYTES * 2);
        let mut writer = place.store.output_writer(&held, &text("c1n0", ""), NOW).unwrap();
        writer.write(whole.as_bytes()).await.unwrap();
        let lost = late.write("old".repeat(OUTPUT_PIECE_BYTES * 2).as_bytes()).await;
        assert!(matches!(lost, Err(StoreError::OutputLost)), "{lost:?}");
        let mut again = place.store.output_writer(&old, &text("c1n0", ""), NOW).unwrap();
        again.write(b"old").await.unwrap();
        assert!(matches!(again.finish().await, Err(StoreError::OutputLost)));
        let row = writer.finish().await.unwrap();
        let fenced = place.store.commit(&mut old, &finishing("c1n0"), Durability::Relaxed, NOW).await;
        assert!(matches!(fenced, Err(CommitError::Fenced)), "{fenced:?}");
        commit(&place.store, &mut held, &finishing("c1n0")).await;
        assert_eq!(read(&place.store, &row.handle).await, whole.as_bytes());
    }
}

#[tokio::test]
async fn an_output_that_was_begun_before_its_process_took_the_run_again_is_completed() {
    for place in everywhere().await {
        let held = place.run(1, Change::default()).await;
        let whole = "x".repeat(OUTPUT_PIECE_BYTES * 6);
        let mut writer = place.store.output_writer(&held, &text("c1n0", ""), NOW).unwrap();
        writer.write(whole.as_bytes()).await.unwrap();
        let mut again = place.store.take(&held.run_id, "one", NOW, NOW + 9_000).await.unwrap();
        let row = writer.finish().await.unwrap();
        commit(&place.store, &mut again, &finishing("c1n0")).await;
        assert_eq!(read(&place.store, &row.handle).await, whole.as_bytes());
    }
}

#[tokio::test]
async fn outputs_of_a_session_are_listed_newest_first_and_those_of_others_are_not() {
    for place in everywhere().await {
        let names = |outputs: Vec<store::OutputRow>| -> Vec<String> {
            outputs.iter().map(|row| row.handle.parts().unwrap().1.to_owned()).collect()
        };
        let mut first = place.new_run(1);
        let many = (0..12).map(|number| text(&format!("l0n{number}"), "x")).collect();
        commit(&place.store, &mut first, &storing(many)).await;
        let mut second = place.new_run(2);
        place.store.commit(&mut second, &storing(vec![text("l1n0", "y")]), Durability::Relaxed, NOW + 1).await.unwrap();
        for scope in [
            Scope { client: "another".to_owned(), ..place.scope() },
            Scope { session_id: "another".to_owned(), ..place.scope() },
            Scope { agent_id: "another".to_owned(), ..place.scope() },
        ] {
            let number = 10 + u32::from(scope.client == "another") + 2 * u32::from(scope.agent_id == "another");
            commit(&place.store, &mut place.new_run_of(number, scope), &storing(vec![text("l9n9", "z")])).await;
        }
        let session = SessionKey::from(&place.scope());
        let listed = names(place.store.outputs_of_session(&session, 100).await.unwrap());
        assert_eq!(listed.len(), 13);
        assert_eq!(listed[..3], ["l1n0", "l0n11", "l0n10"]);
        assert_eq!(names(place.store.outputs_of_session(&session, 1).await.unwrap()), ["l1n0"]);
        let of_run = names(place.store.outputs_of_run(&first.run_id).await.unwrap());
        assert_eq!(of_run, (0..12).map(|number| format!("l0n{number}")).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn outputs_are_deleted_with_their_runs_in_several_batches() {
    let retention = Retention { runs_seconds: 100, transcripts_seconds: 1_000 };
    for place in everywhere().await {
        let store = place.store.clone().bounded(retention, Quotas::DEFAULT);
        // More pieces than one batch deletes.
        let large = || output("l0n0", OutputKind::Binary, vec![7; 70 * OUTPUT_PIECE_BYTES]);
        for number in 1..=3 {
            place.run(number, completed(vec![large(), text("l0n1", "x")])).await;
        }
        let live = place.run(4, storing(vec![text("l0n0", "kept")])).await;
        let ids: Vec<_> = (1..=3).map(|number| place.new_run(number).run_id).collect();
        assert_eq!(place.store.delete_runs(&[ids[0].clone(), live.run_id.clone()]).await.unwrap(), 1);
        assert_eq!(place.store.output(&OutputHandle::of(&ids[0], "l0n1")).await.unwrap(), None);
        assert_eq!(read(&place.store, &OutputHandle::of(&ids[1], "l0n0")).await.len(), 70 * OUTPUT_PIECE_BYTES);
        assert_eq!(store.sweep(NOW + 100_001).await.unwrap().runs, 2);
        for run_id in &ids {
            assert_eq!(place.store.outputs_of_run(run_id).await.unwrap(), []);
            let handle = OutputHandle::of(run_id, "l0n0");
            assert_eq!(piece(&place.store, &handle, OutputPosition::Byte(0)).await, None);
        }
        assert_eq!(read(&place.store, &OutputHandle::of(&live.run_id, "l0n0")).await, b"kept");
        assert!(rows_in(&place, "output_pieces").await <= 1 && rows_in(&place, "outputs").await <= 1);
    }
}

#[tokio::test]
async fn an_output_that_no_change_completes_is_deleted_after_an_hour() {
    for place in everywhere().await {
        let mut held = place.run(1, storing(vec![text("l0n0", "kept")])).await;
        let mut writer = place.store.output_writer(&held, &output("c1n0", OutputKind::Binary, ""), NOW).unwrap();
        writer.write(&vec![7; 70 * OUTPUT_PIECE_BYTES]).await.unwrap();
        assert_eq!(place.store.sweep(NOW + HOUR).await.unwrap().outputs, 0);
        assert_eq!(place.store.sweep(NOW + HOUR + 1).await.unwrap().outputs, 1);
        assert!(rows_in(&place, "output_pieces").await <= 1 && rows_in(&place, "outputs").await <= 1);
        let lost = writer.finish().await;
        assert!(matches!(lost, Err(StoreError::OutputLost)), "{lost:?}");
        // The run has expired, as far as the sweep knows; only the output's loss matters here.
        let _fenced = place.store.commit(&mut held, &finishing("c1n0"), Durability::Relaxed, NOW).await.unwrap_err();
        assert_eq!(read(&place.store, &OutputHandle::of(&held.run_id, "l0n0")).await, b"kept");
    }
}

#[tokio::test]
async fn a_change_that_completes_a_missing_output_is_not_written() {
    for place in everywhere().await {
        let mut held = place.run(1, Change::default()).await;
        let change = Change { progress: Some("new".to_owned()), ..finishing("c9n0") };
        let lost = place.store.commit(&mut held, &change, Durability::Relaxed, NOW).await;
        assert!(matches!(lost, Err(CommitError::Store(StoreError::OutputLost))), "{lost:?}");
        assert_eq!(place.store.run(&held.run_id).await.unwrap().unwrap().progress, "");
    }
}

#[tokio::test]
async fn an_output_is_deleted_if_an_older_version_has_deleted_its_run() {
    for place in everywhere().await.into_iter().skip(1) {
        let held = place.run(1, completed(vec![text("l0n0", "x")])).await;
        let url = match &place.location {
            Location::File(path) => format!("sqlite://{}", path.display()),
            Location::Postgres(url) => url.clone(),
            Location::Memory => panic!("an in-memory store cannot be shared"),
        };
        let mut older = AnyConnection::connect(&url).await.unwrap();
        let run_id = held.run_id.to_string();
        sqlx::query("DELETE FROM runs WHERE run_id = $1").bind(run_id).execute(&mut older).await.unwrap();
        let week = i64::try_from(Retention::DEFAULT.runs_seconds).unwrap() * 1000;
        assert_eq!(place.store.sweep(NOW + week).await.unwrap().outputs, 0);
        assert_eq!(place.store.sweep(NOW + week + 1).await.unwrap().outputs, 1);
        assert_eq!(rows_in(&place, "output_pieces").await, 0);
    }
}

#[tokio::test]
async fn outputs_count_towards_the_quota_of_their_principal_until_they_are_deleted() {
    let quotas = Quotas { stored_bytes: 100_000, ..Quotas::DEFAULT };
    for place in everywhere().await {
        let store = place.store.clone().bounded(Retention::DEFAULT, quotas);
        let data = "x".repeat(60_000);
        let mut first = place.new_run(1);
        commit(&store, &mut first, &storing(vec![text("l0n0", &data)])).await;
        // Stored again, it is the same output.
        commit(&store, &mut first, &completed(vec![text("l0n0", &data)])).await;
        let mut second = place.run(2, Change::default()).await;
        let refused = store.commit(&mut second, &storing(vec![text("l0n0", &data)]), Durability::Relaxed, NOW).await;
        let Err(CommitError::Quota(exceeded)) = refused else { panic!("{refused:?}") };
        assert_eq!((exceeded.quota, exceeded.limit), (Quota::StoredBytes, 100_000));
        assert!(exceeded.to_string().contains("stored outputs"), "{exceeded}");
        // A written output counts when it is completed.
        let mut writer = store.output_writer(&second, &text("c1n0", ""), NOW).unwrap();
        writer.write(data.as_bytes()).await.unwrap();
        let row = writer.finish().await.unwrap();
        let refused = store.commit(&mut second, &finishing("c1n0"), Durability::Relaxed, NOW).await;
        assert!(matches!(refused, Err(CommitError::Quota(_))), "{refused:?}");
        assert_eq!(store.output(&row.handle).await.unwrap(), None);
        assert_eq!(store.delete_runs(&[first.run_id.clone()]).await.unwrap(), 1);
        commit(&store, &mut second, &finishing("c1n0")).await;
        assert_eq!(read(&store, &row.handle).await, data.as_bytes());
    }
}

#[tokio::test]
async fn outputs_are_in_a_backup() {
    let into = everywhere().await;
    for (from, into) in everywhere().await.into_iter().zip(into.into_iter().rev()) {
        let held = from.run(1, completed(vec![text("l0n0", &long_text(2))])).await;
        let mut bytes = Vec::new();
        from.store.backup(&mut bytes, None).await.unwrap();
        let checked = check_backup(&mut &bytes[..]).unwrap();
        assert_eq!((checked.row_counts["outputs"], checked.row_counts["output_pieces"]), (1, 3));
        let how = RestoreOptions { replace: false, end_runs: false };
        into.store.restore(&mut &bytes[..], &checked, how, NOW).await.unwrap();
        let handle = OutputHandle::of(&held.run_id, "l0n0");
        assert_eq!(into.store.output(&handle).await.unwrap(), from.store.output(&handle).await.unwrap());
        assert_eq!(read(&into.store, &handle).await, long_text(2).as_bytes());
    }
}
