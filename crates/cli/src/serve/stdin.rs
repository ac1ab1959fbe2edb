//! Standard input, read on a plain thread: its last read may block forever, and the runtime would wait for one of its
//! own threads at shutdown.

use std::io::{ErrorKind, Read};

use tokio::io::{AsyncRead, AsyncWriteExt, duplex};
use tokio::runtime::Handle;

/// How many bytes are read ahead of the consumer.
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
