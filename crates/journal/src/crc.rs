//! CRC-32C: by the processor's own instruction where it has one, else sixteen bytes a step from tables made at compile
//! time. Of a change of names, whose two records are some 500 bytes, the tables were a twentieth.
#![cfg_attr(target_arch = "x86_64", allow(unsafe_code))]

const POLYNOMIAL: u32 = 0x82f6_3b78;

static TABLES: [[u32; 256]; 16] = tables();

const fn tables() -> [[u32; 256]; 16] {
    let mut t = [[0; 256]; 16];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        t[0][i] = crc;
        i += 1;
    }
    let mut k = 1;
    while k < 16 {
        let mut i = 0;
        while i < 256 {
            t[k][i] = (t[k - 1][i] >> 8) ^ t[0][(t[k - 1][i] & 0xff) as usize];
            i += 1;
        }
        k += 1;
    }
    t
}

/// Goes on with `crc` over `bytes`. Start with all ones (or a salt), and invert at the end.
#[inline]
pub(crate) fn update(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has what the function is compiled for; it takes and gives plain values.
        return unsafe { update_by_instruction(crc, bytes) };
    }
    update_by_tables(crc, bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn update_by_instruction(crc: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(u64::from(crc), |sum, word| _mm_crc32_u64(sum, u64::from_le_bytes(*word)));
    // The upper half of the 64-bit form's result is 0.
    rest.iter().fold(sum as u32, |sum, byte| _mm_crc32_u8(sum, *byte))
}

fn update_by_tables(mut crc: u32, bytes: &[u8]) -> u32 {
    let (chunks, rest) = bytes.as_chunks::<16>();
    for chunk in chunks {
        let mut block = *chunk;
        block.iter_mut().zip(crc.to_le_bytes()).for_each(|(byte, c)| *byte ^= c);
        // Four sums that do not wait for each other.
        let [a, b, c, d] = [0, 4, 8, 12].map(|i| {
            TABLES[15 - i][usize::from(block[i])]
                ^ TABLES[14 - i][usize::from(block[i + 1])]
                ^ TABLES[13 - i][usize::from(block[i + 2])]
                ^ TABLES[12 - i][usize::from(block[i + 3])]
        });
        crc = a ^ b ^ c ^ d;
    }
    for byte in rest {
        crc = (crc >> 8) ^ TABLES[0][usize::from(crc as u8 ^ byte)];
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::{update, update_by_tables};

    #[test]
    fn the_check_value_of_crc_32c() {
        assert_eq!(!update(!0, b"123456789"), 0xe306_9283);
        assert_eq!(!update_by_tables(!0, b"123456789"), 0xe306_9283);
    }

    #[test]
    fn pieces_give_what_the_whole_gives() {
        let bytes: Vec<u8> = (0..100u8).map(|n| n.wrapping_mul(7)).collect();
        let whole = update(!0, &bytes);
        for cut in 0..bytes.len() {
            assert_eq!(update(update(!0, &bytes[..cut]), &bytes[cut..]), whole);
            assert_eq!(update_by_tables(update(!0, &bytes[..cut]), &bytes[cut..]), whole, "either way");
        }
    }
}
