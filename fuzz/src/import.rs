//! Files of other emulators: any text becomes a configuration that is TOML, or is refused with one line that names the file.

use std::path::Path;
use weir_config::Document;
use weir_sim::import::{Emulator, import_texts};

/// Words of the three formats.
pub const DICTIONARY: &[&[u8]] = &[
    b"<Execution_Parameter_Set>",
    b"</Execution_Parameter_Set>",
    b"<Page_Capacity>8192</Page_Capacity>",
    b"<Plane_Allocation_Scheme>CWDP</Plane_Allocation_Scheme>",
    b"<MQSim_IO_Scenarios>",
    b"<IO_Scenario>",
    b"<IO_Flow_Parameter_Set_Synthetic>",
    b"<!DOCTYPE a [<!ENTITY b \"c\">]>",
    b"&#10;",
    b"-device femu,",
    b",nchs=8",
    b",devsz_mb=1024",
    b"${a}",
    b"\\\n",
    b"#define NAND_CHANNELS (8)\n",
    b"#if (BASE_SSD == SAMSUNG_970PRO)\n",
    b"#elif defined(A) && !B\n",
    b"#else\n",
    b"#endif\n",
    b"KB(32)",
    b"(1ull << 63)",
    b"18446744073709551615",
    b"1e308",
    b"NaN",
    b"\"\"\"",
    b"\0",
];

const MQSIM: (&str, &str) =
    (include_str!("../../docs/examples/mqsim/ssdconfig.xml"), include_str!("../../docs/examples/mqsim/workload.xml"));
const FEMU: &str = include_str!("../../docs/examples/femu/run.sh");
const NVMEVIRT: &str = include_str!("../../docs/examples/nvmevirt/ssd_config.h");

/// The examples of the guide, and options of FEMU's device alone.
pub fn seeds() -> Vec<Vec<u8>> {
    let (config, workload) = MQSIM;
    [
        format!("\0{config}"),
        format!("\0{config}\0{workload}"),
        format!("\u{1}{FEMU}"),
        "\u{1}nchs=4,luns_per_ch=2,devsz_mb=256,pg_rd_lat=40000".to_string(),
        format!("\u{2}{NVMEVIRT}\0SAMSUNG_970PRO"),
        format!("\u{2}{NVMEVIRT}\0WD_ZN540"),
    ]
    .map(String::into_bytes)
    .into()
}

/// The first byte says whose file it is; a second file stands behind a zero.
pub fn import(data: &[u8]) {
    let Some((&which, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let emulator = [Emulator::Mqsim, Emulator::Femu, Emulator::Nvmevirt][usize::from(which % 3)];
    let texts: Vec<(&str, &str)> = ["first", "second"].into_iter().zip(text.splitn(2, '\0')).collect();
    match import_texts(emulator, &texts) {
        Ok(imported) => {
            let toml = imported.toml;
            Document::parse(&toml, "made.toml", Path::new("/")).unwrap_or_else(|e| panic!("{e}\n{toml}"));
            for line in &imported.left_out {
                assert!(!line.is_empty() && !line.chars().any(char::is_control), "{line:?}");
            }
        }
        Err(error) => {
            let line = error.to_string();
            assert!(line.starts_with("first:") || line.starts_with("second:"), "{line:?}");
            assert!(line.chars().count() <= 600 && !line.chars().any(char::is_control), "{line:?}");
        }
    }
}
