//! The kernel's table of mounts (`/proc/self/mountinfo`).

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Device numbers of what is mounted at a path: of the last mount there, which hides the others.
pub(super) fn device_of(table: &[u8], at: &Path) -> Option<(u32, u32)> {
    let wanted = at.as_os_str().as_bytes();
    let lines = table.split(|b| *b == b'\n').rev();
    let mut here = lines.filter_map(|line| {
        let mut fields = line.split(|b| *b == b' ');
        let device = fields.nth(2)?;
        let path = unescape(fields.nth(1)?);
        (path == wanted).then_some(device)
    });
    let device = std::str::from_utf8(here.next()?).ok()?;
    let (major, minor) = device.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The kernel writes space, tab, newline and backslash as `\` and three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, more @ ..] = rest {
        let code = more.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = code.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let (b'\\', Some(code)) = (*first, code) {
            plain.push(code);
            rest = more.get(3..).unwrap_or_default();
        } else {
            plain.push(*first);
            rest = more;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n\
        30 22 0:41 / /mnt/a\\040b rw - fuse.holdfast s:/e rw\n\
        31 22 0:42 / /mnt/a\\040b rw - fuse.holdfast s:/e rw\n";

    #[test]
    fn the_uppermost_mount_at_a_path_is_found() {
        assert_eq!(device_of(TABLE, Path::new("/mnt/a b")), Some((0, 42)));
        assert_eq!(device_of(TABLE, Path::new("/")), Some((254, 0)));
        assert_eq!(device_of(TABLE, Path::new("/mnt")), None);
        assert_eq!(device_of(b"", Path::new("/")), None);
    }

    #[test]
    fn escapes_that_are_none_stay() {
        assert_eq!(unescape(b"a\\x\\04"), b"a\\x\\04");
        assert_eq!(unescape(b"\\134\\011"), b"\\\t");
    }
}
