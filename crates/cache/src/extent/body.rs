//! Bytes of an extent: appended to as long as they are its own, shared once they are sent.

use bytes::Bytes;

#[derive(Clone, Debug)]
pub(super) enum Body {
    Own(Vec<u8>),
    Shared(Bytes),
}

impl Body {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Own(v) => v.len(),
            Self::Shared(b) => b.len(),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(v) => v,
            Self::Shared(b) => b,
        }
    }

    pub(super) fn slice(&self, from: usize, to: usize) -> Bytes {
        match self {
            Self::Own(v) => Bytes::copy_from_slice(&v[from..to]),
            Self::Shared(b) => b.slice(from..to),
        }
    }

    pub(super) fn split_off(&mut self, at: usize) -> Self {
        match self {
            Self::Own(v) => Self::Own(v.split_off(at)),
            Self::Shared(b) => Self::Shared(b.split_off(at)),
        }
    }

    pub(super) fn freeze(&mut self) -> Bytes {
        let bytes = match self {
            Self::Own(v) => Bytes::from(std::mem::take(v)),
            Self::Shared(b) => return b.clone(),
        };
        *self = Self::Shared(bytes.clone());
        bytes
    }
}
