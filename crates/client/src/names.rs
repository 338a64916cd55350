//! Owners and groups travel as strings: a number in digits, or `name@domain`. Names are looked up in `/etc/passwd` and
//! `/etc/group`, read again when they change; a name not found there is nobody's.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Who an unknown name is.
const NOBODY: u32 = 65534;

/// How long a table is used before it is asked whether its file changed.
const FRESH: Duration = Duration::from_secs(5);

static USERS: LazyLock<Mutex<Table>> = LazyLock::new(|| Mutex::new(Table::new("/etc/passwd")));
static GROUPS: LazyLock<Mutex<Table>> = LazyLock::new(|| Mutex::new(Table::new("/etc/group")));

/// The number of a user.
pub(crate) fn user_number(owner: &[u8]) -> u32 {
    digits(owner).unwrap_or_else(|| USERS.lock().find(owner))
}

/// The number of a group.
pub(crate) fn group_number(group: &[u8]) -> u32 {
    digits(group).unwrap_or_else(|| GROUPS.lock().find(group))
}

fn digits(name: &[u8]) -> Option<u32> {
    if name.is_empty() || name.len() > 10 {
        return None;
    }
    let number = name
        .iter()
        .try_fold(0u64, |number, byte| byte.is_ascii_digit().then(|| number * 10 + u64::from(byte - b'0')))?;
    u32::try_from(number).ok()
}

struct Table {
    file: &'static str,
    read: Option<SystemTime>,
    looked: Option<Instant>,
    numbers: FxHashMap<Vec<u8>, u32>,
}

impl Table {
    fn new(file: &'static str) -> Self {
        Self { file, read: None, looked: None, numbers: FxHashMap::default() }
    }

    fn find(&mut self, name: &[u8]) -> u32 {
        if self.looked.is_none_or(|looked| looked.elapsed() > FRESH) {
            self.looked = Some(Instant::now());
            self.refresh();
        }
        let local = name.split(|byte| *byte == b'@').next().unwrap_or(name);
        self.numbers.get(local).copied().unwrap_or(NOBODY)
    }

    fn refresh(&mut self) {
        let changed = std::fs::metadata(self.file).and_then(|meta| meta.modified()).ok();
        if changed.is_some() && changed == self.read {
            return;
        }
        let Ok(text) = std::fs::read(self.file) else { return };
        self.numbers.clear();
        for line in text.split(|byte| *byte == b'\n') {
            let mut fields = line.split(|byte| *byte == b':');
            let (name, _, number) = (fields.next(), fields.next(), fields.next());
            if let (Some(name), Some(number)) = (name, number.and_then(digits)) {
                self.numbers.entry(name.to_vec()).or_insert(number);
            }
        }
        self.read = changed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_local_names_are_known_and_strangers_are_nobody() {
        assert_eq!(user_number(b"1000"), 1000);
        assert_eq!(user_number(b"root@some.domain"), 0);
        assert_eq!(group_number(b"root"), 0);
        assert_eq!(user_number(b"no such user@x"), NOBODY);
        assert_eq!(user_number(b"4294967296"), NOBODY);
    }
}
