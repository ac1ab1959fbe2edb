//! A worker for the simulation that runs cells on a separate thread. It enforces no deadline and reports that legs take
//! no time, so that the speed of the machine does not affect a history.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

use contract::frame::{FrameBuffer, FromWorker, Hello, Jail, ToWorker};
use contract::ids::{CatalogHash, CellId};
use sandbox::{IMAGE_ID, Sandbox};

/// Empty sandboxes for reuse: loading the image takes longer than most histories.
static SPARE: Mutex<Vec<Sandbox>> = Mutex::new(Vec::new());

/// Holds the stack frames of the guest and of the parser.
const STACK_BYTES: usize = 64 << 20;

pub(super) fn serve(stream: UnixStream, slots: u32, _threads: usize) -> std::io::Result<()> {
    let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let sandbox = match spare {
        Some(sandbox) => sandbox,
        None => Sandbox::new(slots + 1).map_err(std::io::Error::other)?,
    };
    std::thread::Builder::new().name("cells".into()).stack_size(STACK_BYTES).spawn(move || {
        let mut worker = Worker { sandbox, cells: BTreeSet::new(), catalogs: Vec::new() };
        let hello = Hello { image: IMAGE_ID, image_bytes: 0, jail: Jail::None, slots, page_scan: true };
        // The connection closes when the node exits.
        drop(worker.work(stream, hello));
        SPARE.lock().unwrap_or_else(PoisonError::into_inner).push(worker.emptied());
    })?;
    Ok(())
}

struct Worker {
    sandbox: Sandbox,
    cells: BTreeSet<u64>,
    catalogs: Vec<CatalogHash>,
}

impl Worker {
    fn work(&mut self, mut stream: UnixStream, hello: Hello) -> std::io::Result<()> {
        stream.write_all(&FromWorker::Hello(hello).encode())?;
        let (mut buffer, mut chunk) = (FrameBuffer::default(), vec![0; 64 << 10]);
        loop {
            while let Some(frame) = buffer.next_frame().map_err(std::io::Error::other)? {
                let frame = ToWorker::decode(frame).map_err(std::io::Error::other)?;
                self.remember(&frame);
                let mut answer = self.sandbox.handle(frame).map_err(std::io::Error::other)?;
                if let Some(reply) = &mut answer.reply {
                    if let FromWorker::Leg(_, leg) = reply {
                        leg.run_us = 0;
                    }
                    stream.write_all(&reply.encode())?;
                }
            }
            match stream.read(&mut chunk)? {
                0 => return Ok(()),
                count => buffer.extend(&chunk[..count]),
            }
        }
    }

    fn remember(&mut self, frame: &ToWorker) {
        match frame {
            ToWorker::Start(cell, _) | ToWorker::Thaw(cell, _) => drop(self.cells.insert(cell.0)),
            ToWorker::Catalog { hash, .. } => self.catalogs.push(*hash),
            ToWorker::Deliver(..) | ToWorker::Freeze { .. } | ToWorker::Drop(_) | ToWorker::Forget { .. } => {}
        }
    }

    fn emptied(self) -> Sandbox {
        for cell in self.cells {
            self.sandbox.handle(ToWorker::Drop(CellId(cell))).unwrap();
        }
        for hash in self.catalogs {
            self.sandbox.handle(ToWorker::Forget { hash }).unwrap();
        }
        self.sandbox
    }
}
