//! The body of a response: read and decompressed with limits, and decoded to text.

use std::io::{self, Read};

use brotli_decompressor::Decompressor;
use contract::limits::{MAX_FETCH_BYTES, MAX_FETCH_WIRE_BYTES};
use encoding_rs::{Encoding, UTF_8};
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use reqwest::Response;
use reqwest::header::CONTENT_ENCODING;

use super::content_type;

/// The encodings that are accepted, as a header.
pub(super) const ACCEPTED_ENCODINGS: &str = "gzip, br, deflate";

/// Bytes of a page in which its encoding is searched; browsers search as many.
const ENCODING_SEARCH_BYTES: usize = 1_024;

/// Bytes that Brotli reads at once.
const BROTLI_BUFFER_BYTES: usize = 8 << 10;

/// A response's body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// The header, as the server sent it.
    pub(super) content_type: String,
    pub(super) bytes: Vec<u8>,
    /// Whether the body was longer than the limits.
    pub(super) is_cut: bool,
}

/// What a body contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Html,
    Json,
    Text,
}

impl Page {
    /// Reads a body of at most `max_bytes`.
    pub(super) async fn read(mut response: Response, max_bytes: usize) -> Result<Self, String> {
        let content_type = content_type(&response);
        // Refused before its body is read.
        kind_of(&content_type)?;
        let encoding = encoding(&response)?;
        let (mut wire, mut is_cut) = (Vec::new(), false);
        while let Some(chunk) = response.chunk().await.map_err(|_| "the connection broke".to_owned())? {
            let room = MAX_FETCH_WIRE_BYTES - wire.len();
            is_cut = chunk.len() > room;
            wire.extend_from_slice(chunk.get(..room).unwrap_or(chunk.as_ref()));
            if is_cut {
                break;
            }
        }
        let extent = if is_cut { Extent::Cut } else { Extent::Whole };
        let unpacked = tokio::task::spawn_blocking(move || unpack(&encoding, &wire, extent)).await;
        let (mut bytes, is_longer) = unpacked.map_err(|_| "its body cannot be decompressed".to_owned())??;
        let is_cut = is_cut || is_longer || bytes.len() > max_bytes;
        bytes.truncate(max_bytes);
        Ok(Self { content_type, bytes, is_cut })
    }

    /// Returns what the body contains.
    pub(super) fn kind(&self) -> Result<Kind, String> {
        if let Some(kind) = kind_of(&self.content_type)? {
            return Ok(kind);
        }
        // The server does not say.
        let start = self.bytes.trim_ascii_start();
        match start.first() {
            _ if self.bytes.contains(&0) => Err("it is not text".to_owned()),
            Some(b'<') => Ok(Kind::Html),
            Some(b'{' | b'[') => Ok(Kind::Json),
            Some(_) | None => Ok(Kind::Text),
        }
    }

    /// Decodes the body: by its first bytes, the header, or for HTML the page itself; else as UTF-8.
    pub(super) fn text(&self, kind: Kind) -> String {
        let parameter = |text: &str| {
            let (_, value) =
                text.to_ascii_lowercase().split_once("charset=").map(|(a, b)| (a.to_owned(), b.to_owned()))?;
            let value = value.trim_start_matches(['"', '\'', ' ']);
            let end = value.find(['"', '\'', ';', ' ', '>', '/']).unwrap_or(value.len());
            Encoding::for_label(value.get(..end)?.as_bytes())
        };
        let in_page = || {
            let start = self.bytes.get(..ENCODING_SEARCH_BYTES).unwrap_or(&self.bytes);
            // A page that was read as ASCII until here is not UTF-16, whatever it says.
            parameter(&String::from_utf8_lossy(start)).map(Encoding::output_encoding)
        };
        let encoding = parameter(&self.content_type).or_else(|| in_page().filter(|_| kind == Kind::Html));
        let (text, _, _) = encoding.unwrap_or(UTF_8).decode(&self.bytes);
        text.into_owned()
    }
}

/// Returns what a content type means; `None` if it is absent. Types without text are refused.
fn kind_of(content_type: &str) -> Result<Option<Kind>, String> {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "" => Ok(None),
        "text/html" | "application/xhtml+xml" => Ok(Some(Kind::Html)),
        "application/json" => Ok(Some(Kind::Json)),
        json if json.ends_with("+json") => Ok(Some(Kind::Json)),
        "application/xml"
        | "application/javascript"
        | "application/ecmascript"
        | "application/yaml"
        | "application/x-yaml"
        | "application/toml"
        | "application/x-ndjson"
        | "application/ndjson"
        | "application/jsonlines"
        | "application/x-sh"
        | "application/sql"
        | "application/graphql" => Ok(Some(Kind::Text)),
        text if text.starts_with("text/") || text.ends_with("+xml") => Ok(Some(Kind::Text)),
        other => {
            let other = contract::text::line(other, 100);
            Err(format!("it is `{other}`, and only pages, JSON and other text can be fetched"))
        }
    }
}

/// Returns the content encoding. More than one is refused: each could multiply the size.
fn encoding(response: &Response) -> Result<String, String> {
    let values: Vec<&[u8]> =
        response.headers().get_all(CONTENT_ENCODING).iter().map(|value| value.as_bytes()).collect();
    let all = String::from_utf8_lossy(&values.join(&b","[..])).to_ascii_lowercase();
    let mut names = all.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "identity");
    match (names.next(), names.next()) {
        (None, _) => Ok(String::new()),
        (Some(one @ ("gzip" | "x-gzip" | "deflate" | "br")), None) => Ok(one.to_owned()),
        (Some(_), _) => Err(format!(
            "its content encoding `{}` is not supported; only {ACCEPTED_ENCODINGS} are",
            contract::text::line(&all, 100)
        )),
    }
}

/// How much of a compressed body has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Whole,
    /// Only its beginning: the rest was over the limit.
    Cut,
}

/// Decompresses a body to at most [`MAX_FETCH_BYTES`]. Also returns whether it is longer.
fn unpack(encoding: &str, wire: &[u8], extent: Extent) -> Result<(Vec<u8>, bool), String> {
    match encoding {
        "gzip" | "x-gzip" => limited(MultiGzDecoder::new(wire), extent),
        // Some servers send it without the zlib header that the standard requires.
        "deflate" if has_zlib_header(wire) => limited(ZlibDecoder::new(wire), extent),
        "deflate" => limited(DeflateDecoder::new(wire), extent),
        "br" => limited(Decompressor::new(wire, BROTLI_BUFFER_BYTES), extent),
        _ => limited(wire, extent),
    }
}

fn has_zlib_header(wire: &[u8]) -> bool {
    matches!(wire, [first, second, ..] if first & 0x0f == 8 && (u16::from(*first) * 256 + u16::from(*second)) % 31 == 0)
}

fn limited(reader: impl Read, extent: Extent) -> Result<(Vec<u8>, bool), String> {
    let mut bytes = Vec::new();
    let read: io::Result<usize> = reader.take(MAX_FETCH_BYTES as u64 + 1).read_to_end(&mut bytes);
    match read {
        // What was cut cannot be decompressed to its end; the start is still useful.
        Err(_) if extent == Extent::Whole || bytes.is_empty() => {
            return Err("its body cannot be decompressed".to_owned());
        }
        Ok(_) | Err(_) => {}
    }
    let is_longer = bytes.len() > MAX_FETCH_BYTES;
    bytes.truncate(MAX_FETCH_BYTES);
    Ok((bytes, is_longer))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use contract::limits::MAX_FETCH_BYTES;
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::{Extent, Kind, Page, kind_of, unpack};

    fn page(content_type: &str, bytes: &[u8]) -> Page {
        Page { content_type: content_type.to_owned(), bytes: bytes.to_vec(), is_cut: false }
    }

    #[test]
    fn a_decompression_bomb_is_cut() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&vec![0; 64 << 20]).unwrap();
        let bomb = gzip.finish().unwrap();
        assert!(bomb.len() < 100_000);
        let (bytes, is_longer) = unpack("gzip", &bomb, Extent::Whole).unwrap();
        assert_eq!((bytes.len(), is_longer), (MAX_FETCH_BYTES, true));
        // Many members, each small.
        let many = bomb.repeat(3);
        assert_eq!(unpack("gzip", &many, Extent::Whole).unwrap().0.len(), MAX_FETCH_BYTES);
    }

    #[test]
    fn bodies_are_decompressed_and_broken_ones_refused() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        let mut deflate = DeflateEncoder::new(Vec::new(), Compression::fast());
        for one in [&mut gzip as &mut dyn Write, &mut zlib, &mut deflate] {
            one.write_all(b"hello hello hello").unwrap();
        }
        let gzip = gzip.finish().unwrap();
        for (encoding, wire) in
            [("gzip", gzip.clone()), ("deflate", zlib.finish().unwrap()), ("deflate", deflate.finish().unwrap())]
        {
            assert_eq!(unpack(encoding, &wire, Extent::Whole).unwrap().0, b"hello hello hello", "{encoding}");
        }
        // "hello" as an uncompressed Brotli stream.
        let brotli = [0x0b, 0x02, 0x80, b'h', b'e', b'l', b'l', b'o', 0x03];
        assert_eq!(unpack("br", &brotli, Extent::Whole).unwrap().0, b"hello");
        for encoding in ["gzip", "br"] {
            assert!(unpack(encoding, b"\xff\xff\xff\xff not compressed", Extent::Whole).is_err(), "{encoding}");
        }
        assert!(unpack("gzip", &gzip[..gzip.len() - 9], Extent::Whole).is_err());
        assert!(unpack("gzip", &gzip[..gzip.len() - 9], Extent::Cut).is_ok());
    }

    #[test]
    fn only_text_is_accepted() {
        for (name, kind) in [
            ("text/html; charset=utf-8", Kind::Html),
            ("TEXT/HTML", Kind::Html),
            ("application/ld+json", Kind::Json),
            ("text/plain", Kind::Text),
            ("application/rss+xml", Kind::Text),
        ] {
            assert_eq!(kind_of(name), Ok(Some(kind)), "{name}");
        }
        for name in
            ["image/png", "application/octet-stream", "application/pdf", "video/mp4", "multipart/form-data", "x"]
        {
            assert!(kind_of(name).is_err(), "{name}");
        }
        assert_eq!(page("", b" <p>").kind(), Ok(Kind::Html));
        assert_eq!(page("", b"[1]").kind(), Ok(Kind::Json));
        assert!(page("", b"\x7fELF\0\0").kind().is_err());
    }

    #[test]
    fn the_encoding_comes_from_the_header_the_page_or_its_first_bytes() {
        for (content_type, bytes, text) in [
            ("text/html; charset=ISO-8859-1", b"\xe9".as_slice(), "é"),
            ("text/html; charset=\"windows-1251\"", b"\xcf", "П"),
            ("text/html", b"<meta charset=latin1>\xe9", "<meta charset=latin1>é"),
            ("text/plain", b"charset=latin1 \xe9", "charset=latin1 \u{fffd}"),
            ("text/html", b"\xef\xbb\xbf\xc3\xa9", "é"),
            ("text/html; charset=latin1", b"\xff\xfea\0", "a"),
            ("text/html; charset=nothing", b"\xc3\xa9", "é"),
            ("text/html", b"\xff", "\u{fffd}"),
        ] {
            let page = page(content_type, bytes);
            assert_eq!(page.text(page.kind().unwrap()), text, "{content_type}");
        }
    }
}
