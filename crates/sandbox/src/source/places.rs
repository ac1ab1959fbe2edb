//! Maps places in the script that QuickJS ran to places in the source that the model wrote.

use contract::frame::{BadFrame, Reader, SourcePosition};
use contract::limits::MAX_SOURCE_BYTES;

use super::edits::{Shift, original};
use super::erase::MAX_INSERTED_BYTES;
use super::lines;

/// The lines of a cell's script, and the columns that a transformation moved. Part of a snapshot.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// The length in bytes of each line of the model's source.
    lengths: Vec<u32>,
    shifts: Vec<Shift>,
}

impl Places {
    /// The most bytes that [`Places::write`] writes: both counts; a byte for each line, of which there are not more than bytes
    /// in the source; four more for each line of at least 255 bytes; and the shifts.
    pub(crate) const MAX_BYTES: usize =
        8 + (MAX_SOURCE_BYTES + 2) + 4 * (MAX_SOURCE_BYTES + MAX_INSERTED_BYTES) / 255 + MAX_INSERTED_BYTES;

    /// Reads the lines of a script from [`super::PreparedSource`]: its first and last lines belong to the wrapper.
    pub(crate) fn of(script: &str, shifts: Vec<Shift>) -> Self {
        let mut lengths = Vec::new();
        let mut line_start = 0;
        for next_start in lines::starts(script) {
            lengths.push(lines::narrow(next_start - line_start));
            line_start = next_start;
        }
        if !lengths.is_empty() {
            lengths.remove(0);
        }
        Self { lengths, shifts }
    }

    /// Returns the place in the model's source for a place in the script, if the script has it. Both count from 1,
    /// columns in bytes.
    pub(crate) fn original(&self, line: u32, column: u32) -> Option<SourcePosition> {
        let length = self.lengths.get(usize::try_from(line.checked_sub(1)?).ok()?)?;
        (1..=length.saturating_add(1)).contains(&column).then(|| original(&self.shifts, line, column))
    }

    pub(crate) fn write(&self, notes: &mut Vec<u8>) {
        let count = |notes: &mut Vec<u8>, count: usize| notes.extend_from_slice(&lines::narrow(count).to_le_bytes());
        count(notes, self.lengths.len());
        for length in &self.lengths {
            write_short(*length, notes);
        }
        count(notes, self.shifts.len());
        for shift in &self.shifts {
            notes.extend_from_slice(&shift.line.to_le_bytes());
            notes.extend_from_slice(&shift.column.to_le_bytes());
            notes.extend_from_slice(&shift.delta.to_le_bytes());
        }
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Result<Self, BadFrame> {
        let lengths = from.list(read_short)?;
        let shifts = from.list(|from| {
            Ok(Shift { line: from.u32()?, column: from.u32()?, delta: i32::from_le_bytes(from.array()?) })
        })?;
        Ok(Self { lengths, shifts })
    }
}

/// Writes one byte, or 255 and the number: most lines are short.
fn write_short(number: u32, notes: &mut Vec<u8>) {
    match u8::try_from(number) {
        Ok(short) if short < u8::MAX => notes.push(short),
        _ => {
            notes.push(u8::MAX);
            notes.extend_from_slice(&number.to_le_bytes());
        }
    }
}

fn read_short(from: &mut Reader<'_>) -> Result<u32, BadFrame> {
    match from.u8()? {
        u8::MAX => from.u32(),
        short => Ok(u32::from(short)),
    }
}

#[cfg(test)]
mod tests {
    use contract::frame::{Reader, SourcePosition};

    use super::{Places, Shift};

    #[test]
    fn places_outside_the_source_are_rejected() {
        let long = "x".repeat(1000);
        let script = format!("(async()=>{{\nab\r\n\n{long}\n}})");
        let places = Places::of(&script, vec![Shift { line: 1, column: 2, delta: 1 }]);
        let cases = [
            ((1, 1), Some((1, 1))),
            ((1, 3), Some((1, 2))),
            ((2, 1), Some((2, 1))),
            ((3, 1000), Some((3, 1000))),
            ((0, 1), None),
            ((1, 0), None),
            ((1, 6), None),
            ((3, 1003), None),
            ((4, 1), None),
            ((u32::MAX, 1), None),
            ((1, u32::MAX), None),
        ];
        for ((line, column), expected) in cases {
            let expected = expected.map(|(line, column)| SourcePosition { line, column });
            assert_eq!(places.original(line, column), expected, "{line}:{column}");
        }

        let mut notes = Vec::new();
        places.write(&mut notes);
        assert_eq!(Places::read(&mut Reader::new(&notes)).unwrap(), places);
    }
}
