//! The backup format: a header, the tables row by row, and at the end the number of rows and a digest of everything.
//!
//! The format does not depend on the database engine. The contents are untrusted until the digest is verified: lengths
//! are bounded, and memory is allocated only for bytes that were read.

use std::io::{self, Read, Write};

use sha2::{Digest, Sha256};

use super::BackupError;

const MAGIC: &[u8; 16] = b"CELLMATE-BACKUP\n";
const FORMAT: u32 = 1;

const TABLE: u8 = 1;
const ROW: u8 = 2;
const KEYS: u8 = 3;
const END: u8 = 4;

/// A row has at most one snapshot (up to 256 MiB) and some texts.
const MAX_RECORD_BYTES: u32 = 512 << 20;
const MAX_COLUMNS: u8 = 64;
const MAX_NAME_BYTES: u8 = 64;

/// The type of a column, independent of the engine's type names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnKind {
    Integer = 1,
    Text = 2,
    Bytes = 3,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: ColumnKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Null,
    Integer(i64),
    Text(String),
    Bytes(Vec<u8>),
}

#[derive(Debug)]
pub(super) enum Record {
    Table { name: String, columns: Vec<Column> },
    Row(Vec<Value>),
    Keys(String),
    End { digest: [u8; 32] },
}

pub(super) struct Encoder<'w> {
    out: &'w mut (dyn Write + Send),
    hash: Sha256,
    rows: u64,
}

impl<'w> Encoder<'w> {
    pub(super) fn begin(out: &'w mut (dyn Write + Send), schema: i64) -> io::Result<Self> {
        let mut encoder = Self { out, hash: Sha256::new(), rows: 0 };
        encoder.put(MAGIC)?;
        encoder.put(&FORMAT.to_le_bytes())?;
        encoder.put(&schema.to_le_bytes())?;
        Ok(encoder)
    }

    pub(super) fn table(&mut self, name: &str, columns: &[Column]) -> io::Result<()> {
        let mut bytes = Vec::new();
        write_name(&mut bytes, name)?;
        bytes.push(u8::try_from(columns.len()).map_err(io::Error::other)?);
        for column in columns {
            write_name(&mut bytes, &column.name)?;
            bytes.push(column.kind as u8);
        }
        self.record(TABLE, &bytes)
    }

    pub(super) fn row(&mut self, values: &[Value]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for value in values {
            match value {
                Value::Null => bytes.push(0),
                Value::Integer(number) => {
                    bytes.push(ColumnKind::Integer as u8);
                    bytes.extend_from_slice(&number.to_le_bytes());
                }
                Value::Text(text) => write_long(&mut bytes, ColumnKind::Text, text.as_bytes())?,
                Value::Bytes(blob) => write_long(&mut bytes, ColumnKind::Bytes, blob)?,
            }
        }
        self.rows += 1;
        self.record(ROW, &bytes)
    }

    pub(super) fn keys(&mut self, text: &str) -> io::Result<()> {
        self.record(KEYS, text.as_bytes())
    }

    pub(super) fn end(mut self) -> io::Result<u64> {
        let digest: [u8; 32] = self.hash.clone().finalize().into();
        let mut bytes = self.rows.to_le_bytes().to_vec();
        bytes.extend_from_slice(&digest);
        self.record(END, &bytes)?;
        self.out.flush()?;
        Ok(self.rows)
    }

    fn record(&mut self, tag: u8, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= MAX_RECORD_BYTES);
        let length = length.ok_or_else(|| io::Error::other("a row is too large for a backup"))?;
        self.put(&[tag])?;
        self.put(&length.to_le_bytes())?;
        self.put(bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.out.write_all(bytes)
    }
}

pub(super) struct Decoder<'r> {
    from: &'r mut (dyn Read + Send),
    hash: Sha256,
    pub(super) schema: i64,
    rows: u64,
}

impl<'r> Decoder<'r> {
    pub(super) fn begin(from: &'r mut (dyn Read + Send)) -> Result<Self, BackupError> {
        let mut decoder = Self { from, hash: Sha256::new(), schema: 0, rows: 0 };
        let magic: [u8; 16] = decoder.take().map_err(|error| match error {
            BackupError::Cut => BackupError::NotABackup,
            other => other,
        })?;
        if magic != *MAGIC {
            return Err(BackupError::NotABackup);
        }
        let format = u32::from_le_bytes(decoder.take()?);
        if format != FORMAT {
            return Err(BackupError::Format { found: format });
        }
        decoder.schema = i64::from_le_bytes(decoder.take()?);
        Ok(decoder)
    }

    /// Reads the next record. For the end record, verifies the row count, the digest and that no bytes follow.
    pub(super) fn next(&mut self) -> Result<Record, BackupError> {
        let so_far: [u8; 32] = self.hash.clone().finalize().into();
        let [tag] = self.take::<1>()?;
        let length = u32::from_le_bytes(self.take()?);
        if length > MAX_RECORD_BYTES {
            return Err(BackupError::Damaged("a record is too long"));
        }
        let bytes = self.take_long(length)?;
        let mut part = Part(&bytes);
        let record = match tag {
            TABLE => part.table()?,
            ROW => {
                self.rows += 1;
                Record::Row(part.values()?)
            }
            KEYS => Record::Keys(part.rest_as_text()?),
            END => {
                let (rows, digest) = (u64::from_le_bytes(part.array()?), part.array()?);
                if rows != self.rows || digest != so_far {
                    return Err(BackupError::Damaged("the row count or digest does not match"));
                }
                if self.from.read(&mut [0]).map_err(BackupError::Read)? != 0 {
                    return Err(BackupError::Damaged("there is data after the end"));
                }
                Record::End { digest }
            }
            _ => return Err(BackupError::Damaged("a record has an unknown kind")),
        };
        part.check_empty()?;
        Ok(record)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], BackupError> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(read_error)?;
        self.hash.update(bytes);
        Ok(bytes)
    }

    /// Reads `length` bytes. Memory grows with the bytes that arrive, not with the claimed length.
    fn take_long(&mut self, length: u32) -> Result<Vec<u8>, BackupError> {
        let mut bytes = Vec::new();
        self.from.take(u64::from(length)).read_to_end(&mut bytes).map_err(read_error)?;
        if bytes.len() as u64 != u64::from(length) {
            return Err(BackupError::Cut);
        }
        self.hash.update(&bytes);
        Ok(bytes)
    }
}

/// The rest of a record's bytes, read from the front.
struct Part<'b>(&'b [u8]);

const SHORT: BackupError = BackupError::Damaged("a record is too short");

impl<'b> Part<'b> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], BackupError> {
        let (front, rest) = self.0.split_first_chunk::<N>().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*front)
    }

    fn bytes(&mut self, length: usize) -> Result<&'b [u8], BackupError> {
        let (front, rest) = self.0.split_at_checked(length).ok_or(SHORT)?;
        self.0 = rest;
        Ok(front)
    }

    fn table(&mut self) -> Result<Record, BackupError> {
        let name = self.name()?;
        let [count] = self.array()?;
        if count == 0 || count > MAX_COLUMNS {
            return Err(BackupError::Damaged("a table has no columns or too many"));
        }
        let mut columns = Vec::new();
        for _ in 0..count {
            let (name, [kind]) = (self.name()?, self.array()?);
            columns.push(Column { name, kind: kind_of(kind)? });
        }
        Ok(Record::Table { name, columns })
    }

    /// Reads a table or column name. Only lower-case letters and `_` are allowed, because names become part of SQL.
    fn name(&mut self) -> Result<String, BackupError> {
        let [length] = self.array()?;
        let bytes = self.bytes(usize::from(length))?;
        let plain = bytes.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'_');
        if !plain || bytes.is_empty() || length > MAX_NAME_BYTES {
            return Err(BackupError::Damaged("a table or column name is invalid"));
        }
        text(bytes)
    }

    fn values(&mut self) -> Result<Vec<Value>, BackupError> {
        let mut values = Vec::new();
        while let [kind, rest @ ..] = self.0 {
            self.0 = rest;
            if values.len() == usize::from(MAX_COLUMNS) {
                return Err(BackupError::Damaged("a row has too many values"));
            }
            values.push(match kind {
                0 => Value::Null,
                kind => match kind_of(*kind)? {
                    ColumnKind::Integer => Value::Integer(i64::from_le_bytes(self.array()?)),
                    ColumnKind::Text => Value::Text(text(self.long()?)?),
                    ColumnKind::Bytes => Value::Bytes(self.long()?.to_vec()),
                },
            });
        }
        Ok(values)
    }

    fn long(&mut self) -> Result<&'b [u8], BackupError> {
        let length = usize::try_from(u32::from_le_bytes(self.array()?)).map_err(|_| SHORT)?;
        self.bytes(length)
    }

    fn rest_as_text(&mut self) -> Result<String, BackupError> {
        text(std::mem::take(&mut self.0))
    }

    fn check_empty(&self) -> Result<(), BackupError> {
        if self.0.is_empty() { Ok(()) } else { Err(BackupError::Damaged("a record has extra bytes")) }
    }
}

fn kind_of(byte: u8) -> Result<ColumnKind, BackupError> {
    [ColumnKind::Integer, ColumnKind::Text, ColumnKind::Bytes]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
        .ok_or(BackupError::Damaged("a value has an unknown kind"))
}

fn text(bytes: &[u8]) -> Result<String, BackupError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| BackupError::Damaged("a text is not UTF-8"))
}

fn read_error(error: io::Error) -> BackupError {
    if error.kind() == io::ErrorKind::UnexpectedEof { BackupError::Cut } else { BackupError::Read(error) }
}

fn write_name(bytes: &mut Vec<u8>, name: &str) -> io::Result<()> {
    bytes.push(u8::try_from(name.len()).map_err(io::Error::other)?);
    bytes.extend_from_slice(name.as_bytes());
    Ok(())
}

fn write_long(bytes: &mut Vec<u8>, kind: ColumnKind, value: &[u8]) -> io::Result<()> {
    bytes.push(kind as u8);
    bytes.extend_from_slice(&u32::try_from(value.len()).map_err(io::Error::other)?.to_le_bytes());
    bytes.extend_from_slice(value);
    Ok(())
}
