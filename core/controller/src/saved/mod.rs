//! State as bytes: what a drive remembers without power, and what another process goes on from.

pub(crate) mod checkpoint;
pub(crate) mod fabrics;
pub(crate) mod in_flight;
pub(crate) mod journals;
pub(crate) mod namespaces;
pub(crate) mod nonvolatile;
pub(crate) mod pcie;
pub(crate) mod section;

#[cfg(test)]
mod documented {
    /// The fields of a state, as they are listed where it is written and read, are lines of `docs/reference/formats.md` in that order.
    #[test]
    fn fields_are_lines_of_the_formats_page() {
        let page = include_str!("../../../../docs/reference/formats.md");
        let states = [
            ("identity", super::fabrics::identity_rows()),
            ("features", crate::admin::feature::saved_rows()),
            ("state", super::fabrics::state_rows()),
            ("namespaces", super::fabrics::namespaces_rows()),
            ("registers", super::pcie::registers_rows()),
            ("completion queue", super::pcie::cq_rows()),
        ];
        let missing = weir_codec::undocumented(page, states);
        assert!(missing.is_empty(), "formats.md has other lines than these:\n{missing}");
    }
}
