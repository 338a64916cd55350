//! What a change attribute stands for: two looks at a file that show other data or another size show another `change`
//! (RFC 8881 section 5.8.1.4). Whoever looked, and whatever became of the server, its power and its calendar in between.
//!
//! Data counts as seen under a `change` when the compound that read it found the same one before and after. Attributes that
//! were asked for without an open may be a holder's word for what it has still to write (CB_GETATTR): they are compared with
//! what was seen, and are no sight themselves.

use std::collections::BTreeMap;

use super::Verdict;
use super::data::Mark;

/// Attributes as a reply has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The change attribute.
    pub change: u64,
    /// Bytes of data.
    pub size: u64,
}

#[derive(Debug)]
struct Seen {
    size: u64,
    blocks: BTreeMap<u64, Mark>,
}

/// All that was seen in a world, by file and `change`.
#[derive(Default)]
pub struct Looks(BTreeMap<(usize, u64), Seen>);

impl Looks {
    /// Who has a file open is shown these attributes.
    ///
    /// # Errors
    /// When the file was another under the same `change`.
    pub fn opened(&mut self, file: usize, look: Look) -> Verdict {
        let blocks = BTreeMap::new();
        let seen = self.0.entry((file, look.change)).or_insert(Seen { size: look.size, blocks });
        seen.fits(file, look)
    }

    /// Somebody is shown them who does not have it open.
    ///
    /// # Errors
    /// The same.
    pub fn shown(&self, file: usize, look: Look) -> Verdict {
        self.0.get(&(file, look.change)).map_or(Ok(()), |seen| seen.fits(file, look))
    }

    /// Who has a file open read this between two looks that are the same.
    ///
    /// # Errors
    /// When the file was another under the same `change`.
    pub fn read(&mut self, file: usize, look: Look, (block, mark): (u64, Mark)) -> Verdict {
        self.opened(file, look)?;
        let Some(seen) = self.0.get_mut(&(file, look.change)) else { return Ok(()) };
        let was = *seen.blocks.entry(block).or_insert(mark);
        if was == mark {
            return Ok(());
        }
        let change = look.change;
        Err(format!(
            "block {block} of file {file} was {was} and is {mark}, and its change is {change} as before"
        ))
    }

    /// What was read under a `change`.
    #[must_use]
    pub fn read_under(&self, file: usize, change: u64) -> Vec<(u64, Mark)> {
        let seen = self.0.get(&(file, change));
        seen.map(|seen| seen.blocks.iter().map(|(block, mark)| (*block, *mark)).collect()).unwrap_or_default()
    }
}

impl Seen {
    fn fits(&self, file: usize, Look { change, size }: Look) -> Verdict {
        if self.size == size {
            return Ok(());
        }
        let was = self.size;
        Err(format!("file {file} was {was} bytes long and is {size}, and its change is {change} as before"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_one_change_a_file_shows_one_content() {
        let (first, second) = (Look { change: 7, size: 8 }, Look { change: 8, size: 8 });
        let mut looks = Looks::default();
        assert!(looks.read(0, first, (0, 1)).is_ok());
        assert!(looks.read(0, first, (1, 0)).is_ok());
        assert!(looks.read(0, first, (0, 2)).is_err());
        assert!(looks.read(0, second, (0, 2)).is_ok());
        assert!(looks.read(1, first, (0, 2)).is_ok(), "another file");
        assert_eq!(looks.read_under(0, 7), [(0, 1), (1, 0)]);
    }

    #[test]
    fn a_holders_word_is_compared_and_not_kept() {
        let at = |size| Look { change: 7, size };
        let mut looks = Looks::default();
        assert!(looks.shown(0, at(16)).is_ok());
        assert!(looks.opened(0, at(8)).is_ok());
        assert!(looks.shown(0, at(16)).is_err());
        assert!(looks.opened(0, at(16)).is_err());
    }
}
