//! The impls, for structs and enums.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::spanned::Spanned as _;
use syn::{Data, DeriveInput, Fields, GenericParam, Ident, Index, Lifetime, Member, Result, Type, Variant};
use syn::{LifetimeParam, parse_quote};

use crate::attr::VariantAttr;
use crate::field::Codec;

pub(crate) fn encode(input: &DeriveInput) -> Result<TokenStream> {
    let body = match &input.data {
        Data::Struct(s) => encode_struct(&s.fields)?,
        Data::Enum(e) => {
            let cases = Case::all(e.variants.iter())?;
            let consts = cases.iter().map(Case::constant);
            let arms = cases.iter().map(Case::encode_arm).collect::<Result<Vec<_>>>()?;
            quote!(#(#consts)* match self { #(#arms)* })
        }
        Data::Union(_) => return Err(syn::Error::new(input.span(), "a Rust union has no XDR form")),
    };
    let name = &input.ident;
    let mut generics = input.generics.clone();
    for p in generics.type_params_mut() {
        p.bounds.push(parse_quote!(::holdfast_xdr::Encode));
    }
    let (imp, ty, wher) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #imp ::holdfast_xdr::Encode for #name #ty #wher {
            #[inline]
            fn encode(&self, __w: &mut ::holdfast_xdr::Writer) { #body }
        }
    })
}

pub(crate) fn decode(input: &DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    let body = match &input.data {
        Data::Struct(s) => {
            let fields = decode_fields(s.fields.iter(), 0)?;
            quote!(::core::result::Result::Ok(Self { #fields }))
        }
        Data::Enum(e) => decode_enum(name, &Case::all(e.variants.iter())?)?,
        Data::Union(_) => return Err(syn::Error::new(input.span(), "a Rust union has no XDR form")),
    };
    let lifetime = input.generics.lifetimes().next().map(|l| l.lifetime.clone());
    let mut generics = input.generics.clone();
    let de = lifetime.clone().unwrap_or_else(|| Lifetime::new("'de", Span::call_site()));
    for p in generics.type_params_mut() {
        p.bounds.push(parse_quote!(::holdfast_xdr::Decode<#de>));
    }
    if lifetime.is_none() {
        generics.params.insert(0, GenericParam::Lifetime(LifetimeParam::new(de.clone())));
    }
    let (imp, _, wher) = generics.split_for_impl();
    let (_, ty, _) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #imp ::holdfast_xdr::Decode<#de> for #name #ty #wher {
            #[inline]
            fn decode(__r: &mut ::holdfast_xdr::Reader<#de>) -> ::holdfast_xdr::Result<Self> { #body }
        }
    })
}

fn member(index: usize, ident: Option<&Ident>) -> Member {
    ident.map_or_else(|| Member::Unnamed(Index::from(index)), |i| Member::Named(i.clone()))
}

fn encode_struct(fields: &Fields) -> Result<TokenStream> {
    let mut out = TokenStream::new();
    for (i, f) in fields.iter().enumerate() {
        let member = member(i, f.ident.as_ref());
        out.extend(Codec::of(f)?.encode(&quote!(&self.#member)));
    }
    Ok(out)
}

/// `a: decode, b: decode`, the first field being number `first` of its type.
fn decode_fields<'a>(fields: impl Iterator<Item = &'a syn::Field>, first: usize) -> Result<TokenStream> {
    let mut out = TokenStream::new();
    for (i, f) in fields.enumerate() {
        let (member, value) = (member(first + i, f.ident.as_ref()), Codec::of(f)?.decode());
        out.extend(quote!(#member: #value,));
    }
    Ok(out)
}

fn decode_enum(name: &Ident, cases: &[Case<'_>]) -> Result<TokenStream> {
    let consts = cases.iter().map(Case::constant);
    let mut arms = TokenStream::new();
    let text = name.to_string();
    let mut rest = quote! {
        __value => ::core::result::Result::Err(::holdfast_xdr::Error::BadEnum { name: #text, value: __value }),
    };
    for case in cases {
        let variant = &case.variant.ident;
        if case.is_default {
            let first = member(0, case.variant.fields.iter().next().and_then(|f| f.ident.as_ref()));
            let fields = decode_fields(case.variant.fields.iter().skip(1), 1)?;
            rest =
                quote!(__value => ::core::result::Result::Ok(Self::#variant { #first: __value, #fields }),);
        } else {
            let (constant, fields) = (&case.name, decode_fields(case.variant.fields.iter(), 0)?);
            arms.extend(quote!(#constant => ::core::result::Result::Ok(Self::#variant { #fields }),));
        }
    }
    Ok(quote!(#(#consts)* match __r.u32()? { #arms #rest }))
}

/// A variant with its discriminant, which stands in a constant so that it can be matched on.
struct Case<'a> {
    variant: &'a Variant,
    name: Ident,
    value: TokenStream,
    is_default: bool,
}

impl<'a> Case<'a> {
    fn all(variants: impl Iterator<Item = &'a Variant>) -> Result<Vec<Self>> {
        let mut out: Vec<Self> = Vec::new();
        let mut previous: Option<Ident> = None;
        for variant in variants {
            let attr = VariantAttr::parse(&variant.attrs)?;
            let name = format_ident!("__CASE{}", out.len());
            let value = match (&attr.case, &variant.discriminant, &previous) {
                (Some(case), _, _) => quote!(#case),
                (None, Some((_, value)), _) => quote!(#value),
                (None, None, Some(previous)) => quote!(#previous + 1),
                (None, None, None) => quote!(0),
            };
            if attr.default {
                let first = variant.fields.iter().next();
                if !first.is_some_and(|f| matches!(&f.ty, Type::Path(p) if p.path.is_ident("u32"))) {
                    let text = "a default variant keeps its discriminant in a first field of type u32";
                    return Err(syn::Error::new(variant.span(), text));
                }
                if out.iter().any(|c| c.is_default) {
                    return Err(syn::Error::new(variant.span(), "a second default variant"));
                }
            } else {
                previous = Some(name.clone());
            }
            out.push(Self { variant, name, value, is_default: attr.default });
        }
        if out.is_empty() {
            return Err(syn::Error::new(Span::call_site(), "an enum without variants has no values"));
        }
        Ok(out)
    }

    fn constant(&self) -> TokenStream {
        let (name, value) = (&self.name, &self.value);
        if self.is_default { TokenStream::new() } else { quote!(const #name: u32 = #value;) }
    }

    fn encode_arm(&self) -> Result<TokenStream> {
        let variant = &self.variant.ident;
        let (mut pattern, mut body) = (TokenStream::new(), TokenStream::new());
        if !self.is_default {
            let name = &self.name;
            body.extend(quote!(__w.u32(#name);));
        }
        for (i, f) in self.variant.fields.iter().enumerate() {
            let (member, bound) = (member(i, f.ident.as_ref()), format_ident!("__f{i}"));
            pattern.extend(quote!(#member: #bound,));
            body.extend(Codec::of(f)?.encode(&quote!(#bound)));
        }
        Ok(quote!(Self::#variant { #pattern } => { #body }))
    }
}
