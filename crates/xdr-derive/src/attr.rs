//! What stands in `#[xdr(...)]`.

use syn::spanned::Spanned as _;
use syn::{Attribute, Expr, Result};

/// The attributes of one field.
#[derive(Default)]
pub(crate) struct FieldAttr {
    pub(crate) max: Option<Expr>,
    pub(crate) chain: bool,
}

impl FieldAttr {
    pub(crate) fn parse(attrs: &[Attribute]) -> Result<Self> {
        let mut out = Self::default();
        for attr in attrs.iter().filter(|a| a.path().is_ident("xdr")) {
            attr.parse_nested_meta(|meta| {
                if meta.path.is_ident("max") {
                    out.max = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("chain") {
                    out.chain = true;
                } else {
                    return Err(meta.error("a field knows `max = EXPR` and `chain`"));
                }
                Ok(())
            })?;
        }
        Ok(out)
    }
}

/// The attributes of one variant.
#[derive(Default)]
pub(crate) struct VariantAttr {
    pub(crate) case: Option<Expr>,
    pub(crate) default: bool,
}

impl VariantAttr {
    pub(crate) fn parse(attrs: &[Attribute]) -> Result<Self> {
        let mut out = Self::default();
        for attr in attrs.iter().filter(|a| a.path().is_ident("xdr")) {
            attr.parse_nested_meta(|meta| {
                if meta.path.is_ident("case") {
                    out.case = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("default") {
                    out.default = true;
                } else {
                    return Err(meta.error("a variant knows `case = EXPR` and `default`"));
                }
                Ok(())
            })?;
            if out.default && out.case.is_some() {
                return Err(syn::Error::new(attr.span(), "`default` and `case` exclude each other"));
            }
        }
        Ok(out)
    }
}
