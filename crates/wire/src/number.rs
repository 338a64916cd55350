//! Enums whose members are numbers with names in an RFC: statuses and operation numbers.

/// Declares such an enum with its codec, `ALL`, `from_u32`, `as_u32`, `name`, and `Display` (the RFC's name).
macro_rules! numbered {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $value:literal, $text:literal, $doc:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
        #[repr(u32)]
        pub enum $name {
            $(#[doc = $doc] $variant = $value,)*
        }

        impl $name {
            /// Every member, in the order of the numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The member with this number, if there is one.
            #[must_use]
            pub const fn from_u32(n: u32) -> Option<Self> {
                match n {
                    $($value => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The number.
            #[must_use]
            pub const fn as_u32(self) -> u32 {
                self as u32
            }

            /// The RFC's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
pub(crate) use numbered;
