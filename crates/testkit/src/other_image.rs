//! Workers of another build, faked at the wire: they say that they are of another image, take only its snapshots, and
//! have one thing more in their prelude.
//!
//! `make test-faults` builds a host whose image really is another, with the same thing in it (`spec/other-guest.js`).

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use contract::frame::{BadFrame, FrameBuffer, FromWorker, Hello, Start, Thaw, ToWorker};
use contract::ids::ImageId;

/// What cells of this image find and others do not.
const ADDITION: &str = "globalThis.edition = 2;";

/// Magic, version and two zeros come before it in a snapshot.
const IMAGE_AT: usize = 8;

const READ_BYTES: usize = 64 << 10;

/// As `sandbox::serve_attached`, but for its image.
pub fn serve(host: UnixStream, slots: u32, threads: usize) -> io::Result<()> {
    let (worker, inner) = UnixStream::pair()?;
    let (from_host, to_worker) = (host.try_clone()?, worker.try_clone()?);
    thread::Builder::new()
        .name("to-worker".into())
        .spawn(move || pass(from_host, to_worker, |frame| Ok(asked(ToWorker::decode(frame)?).encode())))?;
    thread::Builder::new()
        .name("to-host".into())
        .spawn(move || pass(worker, host, |frame| Ok(answered(FromWorker::decode(frame)?).encode())))?;
    sandbox::serve_attached(inner, slots, threads)
}

fn asked(frame: ToWorker) -> ToWorker {
    match frame {
        ToWorker::Start(cell, start) => {
            let source = format!("{ADDITION} {}", start.source);
            ToWorker::Start(cell, Start { source, ..start })
        }
        // One of the first image looks to the worker like one of this.
        ToWorker::Thaw(cell, thaw) => ToWorker::Thaw(cell, Thaw { snapshot: renamed(thaw.snapshot), ..thaw }),
        other => other,
    }
}

fn answered(frame: FromWorker) -> FromWorker {
    match frame {
        FromWorker::Hello(hello) => {
            FromWorker::Hello(Hello { image: ImageId(hello.image.0.map(|byte| !byte)), ..hello })
        }
        FromWorker::Frozen { cell, snapshot } => FromWorker::Frozen { cell, snapshot: renamed(snapshot) },
        other => other,
    }
}

fn renamed(mut snapshot: Vec<u8>) -> Vec<u8> {
    if let Some(image) = snapshot.get_mut(IMAGE_AT..IMAGE_AT + 32) {
        image.iter_mut().for_each(|byte| *byte = !*byte);
    }
    snapshot
}

/// Until either end has gone: then the other hears of it.
fn pass(mut from: UnixStream, mut to: UnixStream, change: impl Fn(&[u8]) -> Result<Vec<u8>, BadFrame>) {
    let mut buffer = FrameBuffer::default();
    let mut chunk = vec![0; READ_BYTES];
    let mut turn = || -> io::Result<bool> {
        let count = from.read(&mut chunk)?;
        buffer.extend(chunk.get(..count).unwrap_or_default());
        while let Some(frame) = buffer.next_frame().map_err(io::Error::other)? {
            to.write_all(&change(frame).map_err(io::Error::other)?)?;
        }
        Ok(count > 0)
    };
    while turn().unwrap_or(false) {}
    // Nobody is there to be told where this fails.
    drop(to.shutdown(std::net::Shutdown::Both));
}
