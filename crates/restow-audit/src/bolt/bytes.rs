//! Where the bytes of a file come from.

use std::{fs::File, io};

/// Bytes that are read at a position: a file, or a copy in memory.
pub trait ReadAt: Send + Sync {
    /// How many bytes there are.
    fn size(&self) -> io::Result<u64>;

    /// Fills the buffer from this position on.
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buffer, at)
    }
}

impl ReadAt for Vec<u8> {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let at = usize::try_from(at).ok();
        let found = at.and_then(|at| self.get(at..at.checked_add(buffer.len())?));
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}
