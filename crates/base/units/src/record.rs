//! One declaration per on-disk structure.
//!
//! [`disk_record!`] declares a structure once, each field with the offset the format gives it, and derives
//! from that declaration: the `zerocopy` type, compile-time assertions that every offset and the size are
//! right, and a table of [`Field`]s that reports and tests read. The types are plain bytes, in the byte order
//! of the field types: they have no alignment, no padding and no invalid values, so any bytes at all can be
//! looked at through them. Nothing is validated here; the modules that use these records turn them into
//! validated types.

/// A field of an on-disk structure, for reports and tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// The name the format's documentation uses.
    pub name: &'static str,
    /// Offset in bytes from the start of the structure.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

/// Declares a structure as it lies on disk: a name, its size, and each field with its offset.
///
/// The crate that uses it depends on `zerocopy`.
#[macro_export]
macro_rules! disk_record {
    ($(#[$doc:meta])* $name:ident, $size:literal bytes {
        $($(#[$field_doc:meta])* $offset:literal $field:ident: $ty:ty,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout)]
        #[derive(zerocopy::Immutable, zerocopy::Unaligned)]
        #[repr(C)]
        #[allow(missing_docs)] // the names are the specification's
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)+
        }

        impl $name {
            /// Every field with its place.
            pub const FIELDS: &'static [$crate::record::Field] = &[
                $($crate::record::Field {
                    name: stringify!($field),
                    offset: $offset,
                    size: size_of::<$ty>(),
                },)+
            ];
        }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(core::mem::offset_of!($name, $field) == $offset);)+
        };
    };
}

pub use crate::disk_record;
