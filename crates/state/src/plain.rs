//! Values of other crates as plain data: for `#[serde(with = "crate::plain")]`.

use std::sync::Arc;

use holdfast_base::{ByteRange, CapSet, ChangeId, ClientId, FileKey, Instant, Seqid, SessionId, SlotId};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value that has a plain form.
pub(crate) trait Plain: Sized {
    type Form: Serialize + for<'a> Deserialize<'a>;
    fn to_plain(&self) -> Self::Form;
    /// `None` when no value has this form.
    fn from_plain(form: Self::Form) -> Option<Self>;
}

pub(crate) fn serialize<T: Plain, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    value.to_plain().serialize(to)
}

pub(crate) fn deserialize<'a, T: Plain, D: Deserializer<'a>>(from: D) -> Result<T, D::Error> {
    T::from_plain(T::Form::deserialize(from)?).ok_or_else(|| D::Error::custom("not a possible value"))
}

macro_rules! numbers {
    ($($name:ident: $form:ty),*) => {$(
        impl Plain for $name {
            type Form = $form;
            fn to_plain(&self) -> $form { self.0 }
            fn from_plain(form: $form) -> Option<Self> { Some(Self(form)) }
        }
    )*};
}
numbers!(CapSet: u32, ClientId: u64, SlotId: u32, Seqid: u32, ChangeId: u64, Instant: u64, SessionId: [u8; 16]);

impl Plain for FileKey {
    // Not every format knows 128 bits.
    type Form = (u64, u64);
    fn to_plain(&self) -> Self::Form {
        ((self.0 >> 64) as u64, self.0 as u64)
    }
    fn from_plain((high, low): Self::Form) -> Option<Self> {
        Some(Self(u128::from(high) << 64 | u128::from(low)))
    }
}

impl Plain for ByteRange {
    type Form = (u64, u64);
    fn to_plain(&self) -> Self::Form {
        (self.first(), self.last())
    }
    fn from_plain((first, last): Self::Form) -> Option<Self> {
        Self::from_bounds(first, last)
    }
}

impl Plain for Arc<[u8]> {
    type Form = Vec<u8>;
    fn to_plain(&self) -> Self::Form {
        self.to_vec()
    }
    fn from_plain(form: Self::Form) -> Option<Self> {
        Some(form.into())
    }
}

impl<T: Plain> Plain for Option<T> {
    type Form = Option<T::Form>;
    fn to_plain(&self) -> Self::Form {
        self.as_ref().map(T::to_plain)
    }
    fn from_plain(form: Self::Form) -> Option<Self> {
        match form {
            None => Some(None),
            Some(form) => T::from_plain(form).map(Some),
        }
    }
}

macro_rules! as_they_are {
    ($($name:ty),*) => {$(
        impl Plain for $name {
            type Form = $name;
            fn to_plain(&self) -> $name { *self }
            fn from_plain(form: $name) -> Option<Self> { Some(form) }
        }
    )*};
}
as_they_are!(crate::OwnerOp, u64);

impl<T: Plain> Plain for Vec<T> {
    type Form = Vec<T::Form>;
    fn to_plain(&self) -> Self::Form {
        self.iter().map(T::to_plain).collect()
    }
    fn from_plain(form: Self::Form) -> Option<Self> {
        form.into_iter().map(T::from_plain).collect()
    }
}

impl<A: Plain, B: Plain> Plain for (A, B) {
    type Form = (A::Form, B::Form);
    fn to_plain(&self) -> Self::Form {
        (self.0.to_plain(), self.1.to_plain())
    }
    fn from_plain((a, b): Self::Form) -> Option<Self> {
        A::from_plain(a).zip(B::from_plain(b))
    }
}

/// Bytes as bytes, which formats that know them write as they are.
pub(crate) mod bytes {
    use std::fmt;

    use serde::de::{SeqAccess, Visitor};
    use serde::{Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<u8>, D::Error> {
        from.deserialize_byte_buf(Bytes)
    }

    struct Bytes;

    impl<'a> Visitor<'a> for Bytes {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }

        fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
            Ok(bytes)
        }

        fn visit_seq<A: SeqAccess<'a>>(self, mut each: A) -> Result<Vec<u8>, A::Error> {
            let mut bytes = Vec::new();
            while let Some(byte) = each.next_element()? {
                bytes.push(byte);
            }
            Ok(bytes)
        }
    }
}
