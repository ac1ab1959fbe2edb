//! Standard input, read by a thread that nobody waits for: it may never come back from its last read, and a runtime
//! that ends would wait for one of its own.

use std::io::{ErrorKind, Read};

use tokio::io::{AsyncRead, AsyncWriteExt, duplex};
use tokio::runtime::Handle;

/// What may have been read before anybody takes it.
const AHEAD_BYTES: usize = 64 << 10;

pub(super) fn stdin() -> std::io::Result<impl AsyncRead + Send + Unpin> {
    let (ours, mut theirs) = duplex(AHEAD_BYTES);
    let runtime = Handle::current();
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let (mut stdin, mut chunk) = (std::io::stdin().lock(), vec![0; AHEAD_BYTES]);
        loop {
            let read = match stdin.read(&mut chunk) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Ok(0) | Err(_) => break,
                Ok(read) => read,
            };
            let Some(bytes) = chunk.get(..read) else { break };
            if runtime.block_on(theirs.write_all(bytes)).is_err() {
                break;
            }
        }
    })?;
    Ok(ours)
}
