//! Fake workers of another build: they report a different guest image, accept only its snapshots, and define one more
//! global in their prelude. The frames between host and worker are rewritten to achieve this.
//!
//! `make test-faults` builds a host that really has a different image, with the same addition (`spec/other-guest.js`).

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use contract::frame::{BadFrame, FrameBuffer, FromWorker, Hello, Start, Thaw, ToWorker};
use contract::ids::ImageId;

/// The global that only cells of this image have.
const ADDITION: &str = "globalThis.edition = 2;";

/// Offset of the image id in a snapshot, after magic, version and two zero bytes.
const IMAGE_AT: usize = 8;

const READ_BYTES: usize = 64 << 10;

/// Serves cells like `sandbox::serve_attached`, but with a different image id.
pub fn serve(host: UnixStream, slots: u32, threads: usize) -> io::Result<()> {
    let (worker, inner) = UnixStream::pair()?;
    let (from_host, to_worker) = (host.try_clone()?, worker.try_clone()?);
    thread::Builder::new()
        .name("to-worker".into())
        .spawn(move || forward(from_host, to_worker, |frame| Ok(rewrite_request(ToWorker::decode(frame)?).encode())))?;
    thread::Builder::new()
        .name("to-host".into())
        .spawn(move || forward(worker, host, |frame| Ok(rewrite_reply(FromWorker::decode(frame)?).encode())))?;
    sandbox::serve_attached(inner, slots, threads)
}

fn rewrite_request(frame: ToWorker) -> ToWorker {
    match frame {
        ToWorker::Start(cell, start) => {
            let source = format!("{ADDITION} {}", start.source);
            ToWorker::Start(cell, Start { source, ..start })
        }
        // The real worker sees its own image id again. A snapshot of the real image gets a foreign id and is rejected.
        ToWorker::Thaw(cell, thaw) => {
            ToWorker::Thaw(cell, Thaw { snapshot: with_inverted_image(thaw.snapshot), ..thaw })
        }
        other => other,
    }
}

fn rewrite_reply(frame: FromWorker) -> FromWorker {
    match frame {
        FromWorker::Hello(hello) => {
            FromWorker::Hello(Hello { image: ImageId(hello.image.0.map(|byte| !byte)), ..hello })
        }
        FromWorker::Frozen { cell, snapshot } => FromWorker::Frozen { cell, snapshot: with_inverted_image(snapshot) },
        other => other,
    }
}

fn with_inverted_image(mut snapshot: Vec<u8>) -> Vec<u8> {
    if let Some(image) = snapshot.get_mut(IMAGE_AT..IMAGE_AT + 32) {
        image.iter_mut().for_each(|byte| *byte = !*byte);
    }
    snapshot
}

/// Forwards frames until one side closes the connection, then closes it for the receiving side, too.
fn forward(mut from: UnixStream, mut to: UnixStream, change: impl Fn(&[u8]) -> Result<Vec<u8>, BadFrame>) {
    let mut buffer = FrameBuffer::default();
    let mut chunk = vec![0; READ_BYTES];
    let mut forward_chunk = || -> io::Result<bool> {
        let count = from.read(&mut chunk)?;
        buffer.extend(chunk.get(..count).unwrap_or_default());
        while let Some(frame) = buffer.next_frame().map_err(io::Error::other)? {
            to.write_all(&change(frame).map_err(io::Error::other)?)?;
        }
        Ok(count > 0)
    };
    while forward_chunk().unwrap_or(false) {}
    // An error means that the connection is closed already.
    drop(to.shutdown(std::net::Shutdown::Both));
}
