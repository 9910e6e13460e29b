//! One page, with the pages that follow because its elements do not fit into one.

/// The bytes of a page's header.
pub(super) const HEADER: usize = 16;
/// The bytes of an element, before its key and value.
const ELEMENT: usize = 16;
const BRANCH_FLAG: u16 = 0x01;
const LEAF_FLAG: u16 = 0x02;
const BUCKET_FLAG: u32 = 0x01;

/// What a page contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Keys and the pages below them.
    Branch,
    /// Keys and values.
    Leaf,
}

/// The header of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) id: u64,
    flags: u16,
    count: u16,
    /// How many pages follow that belong to it.
    pub(super) overflow: u32,
}

/// A page whose elements are within it and where bbolt puts them.
#[derive(Debug)]
pub(super) struct Page<'b> {
    bytes: &'b [u8],
    pub(super) kind: Kind,
    pub(super) count: usize,
    /// The bytes up to the end of the last value.
    pub(super) used: usize,
}

/// The bytes of a number at a position, if they are there.
pub(super) fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

impl Header {
    /// Reads a header, if there are enough bytes.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            id: u64::from_le_bytes(number(bytes, 0)?),
            flags: u16::from_le_bytes(number(bytes, 8)?),
            count: u16::from_le_bytes(number(bytes, 10)?),
            overflow: u32::from_le_bytes(number(bytes, 12)?),
        })
    }
}

impl<'b> Page<'b> {
    /// Checks a page of a branch or a leaf.
    ///
    /// bbolt puts keys and values directly behind the elements, without gaps. So a wrong count, position or size shows.
    pub(super) fn parse(bytes: &'b [u8]) -> Result<Self, &'static str> {
        let header = Header::parse(bytes).ok_or("it is cut short")?;
        let kind = match header.flags {
            BRANCH_FLAG => Kind::Branch,
            LEAF_FLAG => Kind::Leaf,
            _ => return Err("it is neither a branch nor a leaf"),
        };
        let count = usize::from(header.count);
        let mut page = Self { bytes, kind, count, used: HEADER + count * ELEMENT };
        for index in 0..count {
            let (start, key, value) = page.span(index).ok_or("its elements do not fit")?;
            if start != page.used {
                return Err("an element is not where it belongs");
            }
            if key == 0 {
                return Err("a key is empty");
            }
            if kind == Kind::Leaf && page.flags(index) > BUCKET_FLAG {
                return Err("an element has unknown flags");
            }
            page.used =
                start.checked_add(key).and_then(|end| end.checked_add(value)).ok_or("it overflows")?;
            if page.used > bytes.len() {
                return Err("an element does not fit");
            }
        }
        if page.used > bytes.len() {
            return Err("its elements do not fit");
        }
        Ok(page)
    }

    /// Where the key of an element begins, and the sizes of its key and value.
    fn span(&self, index: usize) -> Option<(usize, usize, usize)> {
        let at = HEADER + index * ELEMENT;
        let field = |field: usize| {
            let value = u32::from_le_bytes(number(self.bytes, at + 4 * field)?);
            usize::try_from(value).ok()
        };
        match self.kind {
            Kind::Branch => Some((at.checked_add(field(0)?)?, field(1)?, 0)),
            Kind::Leaf => Some((at.checked_add(field(1)?)?, field(2)?, field(3)?)),
        }
    }

    fn flags(&self, index: usize) -> u32 {
        number(self.bytes, HEADER + index * ELEMENT).map_or(u32::MAX, u32::from_le_bytes)
    }

    /// Whether the value of a leaf's element is a bucket.
    pub(super) fn is_bucket(&self, index: usize) -> bool {
        self.flags(index) == BUCKET_FLAG
    }

    /// The key of an element.
    pub(super) fn key(&self, index: usize) -> &'b [u8] {
        let found = self.span(index).and_then(|(start, key, _)| self.bytes.get(start..start + key));
        found.unwrap_or_default()
    }

    /// The value of a leaf's element.
    pub(super) fn value(&self, index: usize) -> &'b [u8] {
        let found = self.span(index);
        let found = found.and_then(|(start, key, value)| self.bytes.get(start + key..start + key + value));
        found.unwrap_or_default()
    }

    /// The page below a branch's element.
    pub(super) fn child(&self, index: usize) -> u64 {
        number(self.bytes, HEADER + index * ELEMENT + 8).map_or(0, u64::from_le_bytes)
    }
}
