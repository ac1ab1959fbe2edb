//! One size of a tool's result: the time of a cell that calls the tool, what is stored, and the host's memory.

use std::path::Path;
use std::time::Instant;

use figures::machine::mebibytes;
use figures::{McpClient, Samples};
use serde_json::json;

use super::host::{Home, memory};
use super::{Figures, beside};
use crate::Result;

const CELLS: usize = 5;

/// Bytes of a result of nominal size that are not text, so that a result of 16 MiB is the largest that a cell receives
/// whole.
const AROUND: usize = 256;

pub(super) fn measure(sizes: &[usize], folder: &Path, found: &mut dyn FnMut(usize, Figures)) -> Result<()> {
    sizes.iter().try_for_each(|size| {
        let folder = folder.join(size.to_string());
        found(*size, serde_json::from_value(one(*size, &folder)?)?);
        Ok(std::fs::remove_dir_all(folder)?)
    })
}

fn one(size: usize, folder: &Path) -> Result<serde_json::Value> {
    let tool = |name: &str, text: &str| {
        json!({
            "name": name,
            "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": true},
            "does": [{"result": {"content": [{"type": "text", "text": text}]}}],
        })
    };
    let script = folder.join("script.json");
    let server = json!({"command": beside("fake-mcp")?, "args": [script], "trusted": true});
    let home = Home::new(folder, &json!({"server": server}))?;
    let script_text = json!({"tools": [tool("small", "ready"), tool("large", &text(size.saturating_sub(AROUND)))]});
    std::fs::write(script, script_text.to_string())?;

    // The first process creates the store and lists the server's tools.
    let client = home.start()?;
    call(&client, "small")?;
    client.end()?;
    let before = home.store_bytes()?;

    let client = home.start()?;
    call(&client, "small")?;
    let (resident, _) = memory(&client)?;
    let mut samples = Samples::default();
    for _ in 0..CELLS {
        let from = Instant::now();
        call(&client, "large")?;
        samples.push(from.elapsed().as_secs_f64() * 1e3);
    }
    let (_, peak) = memory(&client)?;
    client.end()?;
    Ok(json!({
        "cell_p50_ms": samples.p50(),
        "cell_max_ms": samples.max(),
        "stored_mib": mebibytes(home.store_bytes()?.saturating_sub(before)) / CELLS as f64,
        "peak_mib": mebibytes(peak.saturating_sub(resident)),
    }))
}

fn call(client: &McpClient, tool: &str) -> Result<()> {
    let (value, _) = client.exec(&format!("return (await MCP.server.{tool}({{}})).content.length"))?;
    if value == json!(1) { Ok(()) } else { Err(format!("a cell got {value}").into()) }
}

/// Text that hardly compresses.
fn text(bytes: usize) -> String {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap_or_default())
    };
    (0..bytes).map(|_| next()).collect()
}
