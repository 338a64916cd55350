//! How one field is read and written: told by its type's look and its attributes.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned as _;
use syn::{Expr, Field, GenericArgument, PathArguments, Result, Type};

use crate::attr::FieldAttr;

/// The codec of one field.
pub(crate) enum Codec {
    /// The type's own traits.
    Plain,
    /// `&[u8]`.
    Borrowed(Expr),
    /// `Vec<u8>`.
    Owned(Expr),
    /// `Vec<T>`, counted.
    List(Expr),
    /// `Vec<T>`, each item announced by a boolean.
    Chain(Expr),
}

impl Codec {
    pub(crate) fn of(field: &Field) -> Result<Self> {
        let attr = FieldAttr::parse(&field.attrs)?;
        let bound = |max: Option<Expr>| {
            max.ok_or_else(|| syn::Error::new(field.ty.span(), "needs a bound: #[xdr(max = EXPR)]"))
        };
        let item = vec_item(&field.ty);
        if attr.chain && item.is_none_or(is_u8) {
            return Err(syn::Error::new(field.ty.span(), "`chain` is for a Vec of items"));
        }
        match item {
            Some(item) if is_u8(item) => bound(attr.max).map(Codec::Owned),
            Some(_) if attr.chain => bound(attr.max).map(Codec::Chain),
            Some(_) => bound(attr.max).map(Codec::List),
            None if is_byte_slice(&field.ty) => bound(attr.max).map(Codec::Borrowed),
            None if attr.max.is_some() => {
                Err(syn::Error::new(field.ty.span(), "`max` is for &[u8], Vec<u8> and Vec<T>"))
            }
            None => Ok(Self::Plain),
        }
    }

    /// An expression that reads the field from `__r`.
    pub(crate) fn decode(&self) -> TokenStream {
        match self {
            Self::Plain => quote!(::holdfast_xdr::Decode::decode(__r)?),
            Self::Borrowed(max) => quote!(__r.opaque(#max)?),
            Self::Owned(max) => quote!(__r.opaque(#max)?.to_vec()),
            Self::List(max) => quote!(__r.list(#max)?),
            Self::Chain(max) => quote!(__r.chain(#max)?),
        }
    }

    /// A statement that writes the field, reached by the reference `place`, to `__w`.
    pub(crate) fn encode(&self, place: &TokenStream) -> TokenStream {
        match self {
            Self::Plain => quote!(::holdfast_xdr::Encode::encode(#place, __w);),
            Self::Borrowed(_) | Self::Owned(_) => quote!(__w.opaque(#place);),
            Self::List(_) => quote!(__w.list(#place);),
            Self::Chain(_) => quote!(__w.chain(#place);),
        }
    }
}

fn is_u8(ty: &Type) -> bool {
    matches!(ty, Type::Path(p) if p.path.is_ident("u8"))
}

fn is_byte_slice(ty: &Type) -> bool {
    matches!(ty, Type::Reference(r) if matches!(&*r.elem, Type::Slice(s) if is_u8(&s.elem)))
}

fn vec_item(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|s| s.ident == "Vec")?;
    let PathArguments::AngleBracketed(args) = &last.arguments else { return None };
    args.args.iter().find_map(|a| if let GenericArgument::Type(t) = a { Some(t) } else { None })
}
