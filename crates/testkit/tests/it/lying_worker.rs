//! A worker that lies about a cell's calls in its second leg: the run fails, and the worker is terminated.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use codemode::CodeMode;
use codemode::pool::{JailPolicy, Launch, Pool, PoolOptions};
use contract::frame::{FrameBuffer, FromWorker, Hello, HostCall, Jail, Leg, LegEnd, Method, ToWorker};
use contract::ids::{CallId, ImageId};
use store::{Keys, Location, Store};

use crate::world::{Parts, World};

const LIES: usize = 7;

/// Workers started for each lie.
static STARTED: [AtomicUsize; LIES] = [const { AtomicUsize::new(0) }; LIES];

fn call(id: u32, method: Method, payload: &str) -> HostCall {
    HostCall { id: CallId(id), method, target: String::new(), payload: payload.as_bytes().to_vec() }
}

fn search(id: u32) -> HostCall {
    call(id, Method::Search, r#"["x",{}]"#)
}

/// The second leg, after a search with the id 1 was answered and while a timer with the id 2 is set.
fn lie(number: usize) -> LegEnd {
    let (calls, cleared) = match number {
        0 => (vec![search(1)], vec![]),
        1 => (vec![search(2)], vec![]),
        2 => (vec![], vec![CallId(1)]),
        3 => (vec![], vec![CallId(9)]),
        4 => (vec![], vec![CallId(2), CallId(2)]),
        5 => ((3..3 + 1024).map(search).collect(), vec![]),
        // Not a lie: the cell really waits for nothing.
        _ => (vec![], vec![CallId(2)]),
    };
    LegEnd::Suspended { calls, cleared }
}

fn serve<const LIE: usize>(mut stream: UnixStream, slots: u32, _threads: usize) -> std::io::Result<()> {
    STARTED[LIE].fetch_add(1, Ordering::SeqCst);
    let hello = Hello { image: ImageId([7; 32]), image_bytes: 0, jail: Jail::None, slots, page_scan: false };
    stream.write_all(&FromWorker::Hello(hello).encode())?;
    let (mut buffer, mut chunk) = (FrameBuffer::default(), vec![0; 64 << 10]);
    loop {
        let frame = buffer.next_frame().unwrap().map(|frame| ToWorker::decode(frame).unwrap());
        let answer = match frame {
            None => {
                let count = stream.read(&mut chunk)?;
                if count == 0 {
                    return Ok(());
                }
                buffer.extend(&chunk[..count]);
                continue;
            }
            Some(ToWorker::Start(cell, _)) => {
                let calls = vec![search(1), call(2, Method::Timer, "100000000")];
                Some((cell, LegEnd::Suspended { calls, cleared: vec![] }))
            }
            Some(ToWorker::Deliver(cell, _)) => Some((cell, lie(LIE))),
            Some(_) => None,
        };
        if let Some((cell, end)) = answer {
            let leg = Leg { end, output: vec![], run_us: 1, memory_bytes: 1 };
            stream.write_all(&FromWorker::Leg(cell, leg).encode())?;
        }
    }
}

async fn world(launch: Launch) -> World {
    let options = PoolOptions { workers: 1, jail: JailPolicy::Off, ..PoolOptions::new(launch) };
    let store = Store::open(&Location::Memory, Keys::new(1, [7; 32])).await.unwrap();
    World {
        code_mode: CodeMode::new(Pool::start(options).await.unwrap(), store).unwrap(),
        host: Parts::default().host(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_lies_about_calls_is_terminated_and_the_run_fails() {
    let reused = "the id of a call used again or out of order";
    let not_a_timer = "a call cleared that is not a timer";
    let lies: [(Launch, &str); LIES - 1] = [
        (Launch::InProcess(serve::<0>), reused),
        (Launch::InProcess(serve::<1>), reused),
        (Launch::InProcess(serve::<2>), not_a_timer),
        (Launch::InProcess(serve::<3>), not_a_timer),
        (Launch::InProcess(serve::<4>), not_a_timer),
        (Launch::InProcess(serve::<5>), "more calls than a cell may have"),
    ];
    for (number, (launch, reason)) in lies.into_iter().enumerate() {
        let world = world(launch).await;
        let result = world.run().exec("return 1").await;
        assert_eq!(
            (&result["status"], &result["code"]),
            (&"failed".into(), &"internal_error".into()),
            "{number}: {result}"
        );
        assert!(result["error"].as_str().unwrap().contains(reason), "{number}: {result}");
        let replaced = async {
            while STARTED[number].load(Ordering::SeqCst) < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), replaced).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_that_waits_for_nothing_fails_with_an_error_that_says_so() {
    let world = world(Launch::InProcess(serve::<6>)).await;
    let result = world.run().exec("return 1").await;
    assert_eq!(result["status"], "failed", "{result}");
    assert!(result["error"].as_str().unwrap().contains("no tool call and no timer"), "{result}");
    assert_eq!(STARTED[6].load(Ordering::SeqCst), 1, "the worker is not replaced");
}
