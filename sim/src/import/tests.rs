//! What files of other emulators become, and what is refused.

use super::*;
use crate::Scenario;
use std::path::Path;
use weir_config::Document;
use weir_flash::{CellType, FlashDriveConfig, PageMap, PlaneAllocation, Preset, Victim};

mod cache;
mod collection;

fn text(file: &str, text: &str) -> Text {
    Text { file: file.to_string(), text: text.to_string() }
}

fn mqsim(config: &str, workload: Option<&str>) -> Result<Imported, String> {
    let workload = workload.map(|xml| text("workload.xml", xml));
    let draft = mqsim::read(&text("ssdconfig.xml", config), workload.as_ref());
    Ok(draft.map_err(|e| e.to_string())?.done(&["ssdconfig.xml".into()]))
}

fn femu(options: &str) -> Result<Imported, String> {
    Ok(femu::read(&text("run.sh", options)).map_err(|e| e.to_string())?.done(&["run.sh".into()]))
}

fn nvmevirt(header: &str, base: Option<&str>) -> Result<Imported, String> {
    let draft = nvmevirt::read(&text("ssd_config.h", header), base);
    Ok(draft.map_err(|e| e.to_string())?.done(&["ssd_config.h".into()]))
}

fn scenario(imported: &Imported, more: &str) -> Scenario {
    let toml = format!("{}\n{more}", imported.toml);
    let document = Document::parse(&toml, "made.toml", Path::new("/")).unwrap_or_else(|e| panic!("{e}\n{toml}"));
    Scenario::read(&document).unwrap_or_else(|e| panic!("{e}\n{toml}"))
}

fn flash(imported: &Imported) -> FlashDriveConfig {
    scenario(imported, "[[job]]\nrw = \"randread\"\n").device.flash.expect("a flash drive").config
}

/// A configuration of MQSim with these elements.
fn ssdconfig(elements: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"us-ascii\"?>\n<Execution_Parameter_Set>\n<Host_Parameter_Set>\n\
         <PCIe_Lane_Bandwidth>1.00000</PCIe_Lane_Bandwidth>\n<PCIe_Lane_Count>4</PCIe_Lane_Count>\n</Host_Parameter_Set>\n\
         <Device_Parameter_Set>\n{elements}\n</Device_Parameter_Set>\n</Execution_Parameter_Set>\n"
    )
}

/// A workload of MQSim with one flow.
fn flow(elements: &str) -> String {
    format!(
        "<MQSim_IO_Scenarios>\n<IO_Scenario>\n<IO_Flow_Parameter_Set_Synthetic>\n\
         <Device_Level_Data_Caching_Mode>TURNED_OFF</Device_Level_Data_Caching_Mode>\n{elements}\n\
         </IO_Flow_Parameter_Set_Synthetic>\n</IO_Scenario>\n</MQSim_IO_Scenarios>\n"
    )
}

const SMALL: &str = "<Ideal_Mapping_Table>true</Ideal_Mapping_Table>\n<Block_No_Per_Plane>256</Block_No_Per_Plane>\n\
                     <Channel_Transfer_Rate>333</Channel_Transfer_Rate>";

/// A row of `bench/reference/mqsim.tsv`.
struct Reference<'t> {
    names: Vec<&'t str>,
    values: Vec<&'t str>,
}

impl<'t> Reference<'t> {
    fn all(table: &'t str) -> Vec<Reference<'t>> {
        let mut lines = table.lines().filter(|line| !line.starts_with('#'));
        let names: Vec<&str> = lines.next().unwrap().split('\t').collect();
        lines.map(|line| Reference { names: names.clone(), values: line.split('\t').collect() }).collect()
    }

    fn get(&self, name: &str) -> &'t str {
        self.values[self.names.iter().position(|n| *n == name).unwrap()]
    }

    fn number(&self, name: &str) -> f64 {
        self.get(name).parse().unwrap()
    }

    /// The two files of MQSim that the row is from, with fewer requests.
    fn files(&self, requests: u64) -> (String, String) {
        let element = |name: &str, value: &str| format!("<{name}>{value}</{name}>");
        let levels = |column: &str, what: &str| {
            let list: Vec<&str> = self.get(column).split(',').collect();
            let (low, high) = (list[0], list[list.len() - 1]);
            let centre = if list.len() == 3 { list[1] } else { low };
            let named = [("LSB", low), ("CSB", centre), ("MSB", high)];
            named.map(|(kind, value)| element(&format!("Page_{what}_Latency_{kind}"), value)).concat()
        };
        let columns = [
            ("Flash_Channel_Count", "channels"),
            ("Chip_No_Per_Channel", "chips"),
            ("Die_No_Per_Chip", "dies"),
            ("Plane_No_Per_Die", "planes"),
            ("Block_No_Per_Plane", "blocks"),
            ("Page_No_Per_Block", "pages"),
            ("Page_Capacity", "page_bytes"),
            ("Flash_Technology", "cell"),
            ("Channel_Transfer_Rate", "rate_mt"),
            ("PCIe_Lane_Count", "lanes"),
            ("PCIe_Lane_Bandwidth", "lane_gbps"),
        ];
        let drive: String = columns.map(|(name, column)| element(name, self.get(column))).concat();
        let drive = drive
            + &levels("read_ns", "Read")
            + &levels("program_ns", "Program")
            + &element("Ideal_Mapping_Table", "true");
        let config = format!("<Execution_Parameter_Set>{drive}</Execution_Parameter_Set>");
        let sectors = self.number("size_bytes") as u64 / 512;
        let workload = flow(&format!(
            "<Read_Percentage>{}</Read_Percentage><Average_Request_Size>{sectors}</Average_Request_Size>\
             <Average_No_of_Reqs_in_Queue>{}</Average_No_of_Reqs_in_Queue><Working_Set_Percentage>50</Working_Set_Percentage>\
             <Total_Requests_To_Generate>{requests}</Total_Requests_To_Generate>",
            self.get("read_pct"),
            self.get("depth"),
        ));
        (config, workload)
    }
}

#[test]
fn one_request_at_a_time_takes_what_it_takes_in_mqsim() {
    let table = include_str!("../../../bench/reference/mqsim.tsv");
    let mut rows = 0;
    for row in Reference::all(table) {
        // With three levels the mean depends on which pages of a block are read: MQSim's fresh drive has only the first ones.
        let alone = row.number("depth") == 1.0 && [0.0, 100.0].contains(&row.number("read_pct"));
        if !alone || row.get("cell") == "tlc" {
            continue;
        }
        let (config, workload) = row.files(20_000);
        let imported = mqsim(&config, Some(&workload)).unwrap();
        let outcome = scenario(&imported, "").run(|_| {}).unwrap_or_else(|e| panic!("{e}"));
        let (mean, wanted) = (outcome.jobs[0].summary.latency.mean, row.number("mean_ns"));
        let name = format!("{}, {} % reads of {} bytes", row.get("config"), row.get("read_pct"), row.get("size_bytes"));
        assert!((mean / wanted - 1.0).abs() < 0.01, "{name}: {mean}, MQSim {wanted}");
        rows += 1;
    }
    assert!(rows >= 10, "{rows}");
}

#[test]
fn reads_in_flight_share_the_channels_as_in_mqsim() {
    let table = include_str!("../../../bench/reference/mqsim.tsv");
    let mut rows = 0;
    for row in Reference::all(table) {
        let deep = [16.0, 128.0].contains(&row.number("depth")) && row.number("read_pct") == 100.0;
        if !deep || row.get("cell") == "tlc" {
            continue;
        }
        let (config, workload) = row.files(40_000);
        let imported = mqsim(&config, Some(&workload)).unwrap();
        let outcome = scenario(&imported, "").run(|_| {}).unwrap_or_else(|e| panic!("{e}"));
        let (mean, wanted) = (outcome.jobs[0].summary.latency.mean, row.number("mean_ns"));
        let name = format!("{}, {} bytes, depth {}", row.get("config"), row.get("size_bytes"), row.get("depth"));
        // Its link is busy for 70 % of the time: MQSim's completions wait there behind others' data, here they do not cross it.
        let most = if (row.get("config"), row.get("depth")) == ("s17-5", "16") { 0.05 } else { 0.02 };
        assert!((mean / wanted - 1.0).abs() < most, "{name}: {mean}, MQSim {wanted}");
        rows += 1;
    }
    assert!(rows >= 10, "{rows}");
}

/// By how many percent the mean response time is off what MQSim printed, the importer and the whole drive included.
fn off(row: &Reference<'_>, requests: u64) -> f64 {
    let (config, workload) = row.files(requests);
    let imported = mqsim(&config, Some(&workload)).unwrap();
    let outcome = scenario(&imported, "").run(|_| {}).unwrap_or_else(|e| panic!("{e}"));
    (outcome.jobs[0].summary.latency.mean / row.number("mean_ns") - 1.0) * 100.0
}

/// Rows of writes and mixes.
fn writes(table: &str) -> impl Iterator<Item = Reference<'_>> {
    Reference::all(table).into_iter().filter(|row| row.number("read_pct") < 100.0)
}

fn named(row: &Reference<'_>) -> String {
    ["config", "read_pct", "size_bytes", "depth"].map(|column| format!("{column} {}", row.get(column))).join(", ")
}

/// Pages go to the planes that MQSim's CWDP names.
#[test]
fn writes_and_mixes_in_flight_take_what_they_take_in_mqsim() {
    let table = include_str!("../../../bench/reference/mqsim.tsv");
    let some = ["default", "s17-5"];
    let mut rows = 0;
    for row in writes(table).filter(|row| some.contains(&row.get("config"))) {
        if ["1", "16", "64"].contains(&row.get("depth")) {
            let off = off(&row, 20_000);
            assert!(off.abs() < 2.0, "{off:+.2} %: {}", named(&row));
            rows += 1;
        }
    }
    assert_eq!(rows, 15);
}

#[test]
#[ignore = "minutes: ./test --full"]
fn all_writes_and_mixes_take_what_they_take_in_mqsim() {
    let table = include_str!("../../../bench/reference/mqsim.tsv");
    let mut far = Vec::new();
    for row in writes(table).filter(|row| ["1", "16", "64"].contains(&row.get("depth"))) {
        // Write points of a fresh drive stand at the same page, so that planes are joined more often at first.
        let off = off(&row, row.number("requests") as u64);
        if off.abs() > 2.0 {
            far.push(format!("{off:+.2} %: {}", named(&row)));
        }
    }
    assert_eq!(far, [""; 0]);
}

#[test]
fn mqsim_s_elements_become_keys() {
    let config = ssdconfig(
        "<Seed>321</Seed>\n<Transaction_Scheduling_Policy>PRIORITY_OUT_OF_ORDER</Transaction_Scheduling_Policy>\n<Queue_Fetch_Size>512</Queue_Fetch_Size>\n<Overprovisioning_Ratio>0.25</Overprovisioning_Ratio>\n\
         <GC_Exec_Threshold>0.2</GC_Exec_Threshold>\n<GC_Hard_Threshold>0.05</GC_Hard_Threshold>\n\
         <Preemptible_GC_Enabled>true</Preemptible_GC_Enabled>\n\
         <GC_Block_Selection_Policy>rga</GC_Block_Selection_Policy>\n<CMT_Capacity>65536</CMT_Capacity>\n\
         <Data_Cache_Capacity>1048576</Data_Cache_Capacity>\n<Data_Cache_DRAM_Data_Rate>800</Data_Cache_DRAM_Data_Rate>\n\
         <Data_Cache_DRAM_Data_Busrt_Size>4</Data_Cache_DRAM_Data_Busrt_Size>\n\
         <Flash_Channel_Count>2</Flash_Channel_Count>\n<Chip_No_Per_Channel>2</Chip_No_Per_Channel>\n\
         <Plane_Allocation_Scheme>pwdc</Plane_Allocation_Scheme>\n\
         <Channel_Transfer_Rate>400</Channel_Transfer_Rate>\n<CMD_Suspension_Support>ERASE</CMD_Suspension_Support>\n\
         <Flash_Parameter_Set>\n<Flash_Technology>TLC</Flash_Technology>\n\
         <Page_Read_Latency_LSB>10000</Page_Read_Latency_LSB>\n<Page_Read_Latency_CSB>20000</Page_Read_Latency_CSB>\n\
         <Page_Read_Latency_MSB>30000</Page_Read_Latency_MSB>\n<Die_No_Per_Chip>2</Die_No_Per_Chip>\n\
         <Plane_No_Per_Die>2</Plane_No_Per_Die>\n<Block_No_Per_Plane>128</Block_No_Per_Plane>\n\
         <Page_No_Per_Block>64</Page_No_Per_Block>\n<Page_Capacity>8192</Page_Capacity>\n</Flash_Parameter_Set>",
    );
    let workload = "<MQSim_IO_Scenarios><IO_Scenario>\n<IO_Flow_Parameter_Set_Synthetic><Priority_Class>URGENT</Priority_Class>\
                    <Read_Percentage>70</Read_Percentage><Working_Set_Percentage>50</Working_Set_Percentage>\
                    <Channel_IDs>0,1</Channel_IDs><Average_No_of_Reqs_in_Queue>7</Average_No_of_Reqs_in_Queue>\
                    <Average_Request_Size>16</Average_Request_Size><Seed>9</Seed><Stop_Time>1000000</Stop_Time>\
                    </IO_Flow_Parameter_Set_Synthetic>\n<IO_Flow_Parameter_Set_Synthetic><Read_Percentage>0</Read_Percentage>\
                    <Address_Distribution>RANDOM_HOTCOLD</Address_Distribution><Percentage_of_Hot_Region>20</Percentage_of_Hot_Region>\
                    <Chip_IDs>0</Chip_IDs><Synthetic_Generator_Type>BANDWIDTH</Synthetic_Generator_Type>\
                    <Bandwidth>4096000</Bandwidth></IO_Flow_Parameter_Set_Synthetic>\n</IO_Scenario></MQSim_IO_Scenarios>";
    let imported = mqsim(&config, Some(workload)).unwrap();
    let made = scenario(&imported, "");
    let c = made.device.flash.as_ref().unwrap().config;
    let g = c.geometry;
    assert_eq!((g.channels, g.ways, g.planes, g.blocks, g.pages, g.page_bytes), (2, 4, 2, 128, 64, 8192));
    // Three quarters of 16 planes of 64 MiB.
    assert_eq!(made.device.capacity, Some(weir_units::Bytes(768 << 20)));
    assert_eq!(c.timing.read[..3], [10_020, 20_020, 30_020].map(weir_units::Nanos));
    assert_eq!(c.timing.channel.time(4096), weir_units::Nanos(2048 * 4), "(1000 / 400) * 2 ns for two bytes");
    assert_eq!((c.ftl.plane_allocation, c.ftl.multi_plane), (PlaneAllocation::Pwdc, false));
    let own = flash(&mqsim(&ssdconfig(SMALL), None).unwrap());
    assert_eq!(own.ftl.plane_allocation, PlaneAllocation::Cwdp, "as in MQSim's own configuration");
    assert_eq!((c.ftl.gc.start, c.ftl.gc.hard, c.ftl.gc.choices), (24, 6, 7));
    assert_eq!((c.ftl.map_cache.0, c.buffer.size.0, c.seed), (65_536, 1 << 20, 321));
    let dram = c.buffer.dram;
    assert_eq!(
        (dram.access, dram.wire.time(4096)),
        (weir_units::Nanos(26), weir_units::Nanos(640)),
        "512 times 1.25 ns"
    );
    assert_eq!(c.buffer.cache, weir_flash::Cache::Write);
    assert_eq!((made.seed, made.time), (9, Some(weir_units::Nanos(1_000_000))));
    let jobs: Vec<_> = made.clients.iter().map(|client| &client.job).collect();
    assert_eq!((jobs[0].pattern.read_percent, jobs[0].depth), (70, 7));
    assert_eq!(jobs[0].region.unwrap().len, 192 << 20, "half of the flow's half");
    assert_eq!(jobs[1].region.unwrap().offset, 384 << 20);
    assert!(imported.toml.contains("hot = \"80/20\"\n"), "{}", imported.toml);
    assert!(imported.toml.contains("rate = 1000\narrival = \"poisson\"\n"), "{}", imported.toml);
    let left = imported.left_out.join("\n");
    assert!(
        left.contains("ssdconfig.xml:24: CMD_Suspension_Support = ERASE: MQSim 7ec40e3 suspends nothing"),
        "{left}"
    );
    assert!(
        left.contains(
            "ssdconfig.xml:9: Transaction_Scheduling_Policy = PRIORITY_OUT_OF_ORDER: commands' classes count"
        ),
        "{left}"
    );
    assert!(left.contains("workload.xml:3: Chip_IDs = 0: a flow uses all chips"), "{left}");
    assert!(!left.contains("Channel_IDs"), "all channels are what a job uses: {left}");
    assert!(imported.toml.starts_with("# From ssdconfig.xml.\n# Not taken over:\n#   "), "{}", imported.toml);
}

#[test]
fn what_is_no_configuration_of_mqsim_is_refused_with_its_line() {
    let nested = format!("{}{}", "<a>".repeat(100_000), "</a>".repeat(100_000));
    let made = mqsim(&ssdconfig(&nested), None).unwrap();
    assert_eq!(made.left_out.last().unwrap(), "ssdconfig.xml:8: a = : MQSim 7ec40e3 has no such parameter");
    for (config, says) in [
        ("", "ssdconfig.xml:1: not XML"),
        ("<a>\n<b>\n</a>", "ssdconfig.xml:3: not XML"),
        ("<MQSim_IO_Scenarios/>", "ssdconfig.xml:1: <MQSim_IO_Scenarios> where <Execution_Parameter_Set> is wanted"),
        (
            "<!DOCTYPE l [<!ENTITY a \"ha\"><!ENTITY b \"&a;&a;\">]>\n<Execution_Parameter_Set>&b;</Execution_Parameter_Set>",
            "ssdconfig.xml:1: not XML",
        ),
        (&nested, "ssdconfig.xml:1: <a> where <Execution_Parameter_Set> is wanted"),
        (&ssdconfig("<Seed>1</Seed>\n<Seed>2</Seed>"), "ssdconfig.xml:9: Seed stands in line 8 as well; keep one"),
        (
            &ssdconfig("<Page_Capacity>-1</Page_Capacity>"),
            "ssdconfig.xml:8: Page_Capacity: \"-1\" is not a number from 1 to 4294967295",
        ),
        (&ssdconfig("<Overprovisioning_Ratio>NaN</Overprovisioning_Ratio>"), "\"NaN\" is not a number from 0 to 0.99"),
        (&ssdconfig("<Flash_Technology>XLC</Flash_Technology>"), "\"XLC\" is not one of SLC, MLC, TLC"),
        (
            &ssdconfig("<Plane_Allocation_Scheme>CWDF</Plane_Allocation_Scheme>"),
            "ssdconfig.xml:8: Plane_Allocation_Scheme: \"CWDF\" is not one of CWDP, CWPD,",
        ),
        (&ssdconfig("<Ideal_Mapping_Table>maybe</Ideal_Mapping_Table>"), "\"maybe\" is not true or false"),
        (
            &ssdconfig(
                "<Block_No_Per_Plane>4294967295</Block_No_Per_Plane>\n<Page_No_Per_Block>4294967295</Page_No_Per_Block>\n<Page_Capacity>4294967295</Page_Capacity>",
            ),
            "ssdconfig.xml: the drive is larger than 2^64 bytes",
        ),
    ] {
        let error = mqsim(config, None).map(|made| made.toml).unwrap_err();
        assert!(error.contains(says), "{error}\nwanted: {says}");
    }
    for (workload, says) in [
        ("<MQSim_IO_Scenarios/>", "workload.xml:1: no <IO_Scenario>"),
        ("<MQSim_IO_Scenarios>\n<IO_Scenario/></MQSim_IO_Scenarios>", "workload.xml:2: a scenario without flows"),
        (
            "<MQSim_IO_Scenarios><IO_Scenario>\n<Flow/></IO_Scenario></MQSim_IO_Scenarios>",
            "workload.xml:2: <Flow> is no flow",
        ),
        (
            &flow("<Read_Percentage>101</Read_Percentage>"),
            "workload.xml:5: Read_Percentage: \"101\" is not a number from 0 to 100",
        ),
    ] {
        let error = mqsim(&ssdconfig(SMALL), Some(workload)).map(|made| made.toml).unwrap_err();
        assert!(error.contains(says), "{error}\nwanted: {says}");
    }
}

const SCRIPT: &str = "#!/bin/bash\nsecsz=512 # bytes\nnchs=4\nlat=65000\nFEMU_OPTIONS=\"-device femu\"\n\
                      FEMU_OPTIONS=${FEMU_OPTIONS}\",devsz_mb=512\"\nFEMU_OPTIONS=${FEMU_OPTIONS}\",femu_mode=1\"\n\
                      FEMU_OPTIONS=${FEMU_OPTIONS}\",secsz=${secsz},nchs=$nchs,luns_per_ch=2\"\n\
                      FEMU_OPTIONS=${FEMU_OPTIONS}\",pg_rd_lat=${lat},gc_thres_pcent=75\"\n\
                      sudo qemu-system-x86_64 -device virtio-scsi-pci,id=scsi0 \\\n ${FEMU_OPTIONS} \\\n -nographic\n";

#[test]
fn femu_s_options_become_keys() {
    let imported = femu(SCRIPT).unwrap();
    let c = flash(&imported);
    let g = c.geometry;
    assert_eq!((g.channels, g.ways, g.planes, g.blocks, g.pages, g.page_bytes), (4, 2, 1, 256, 256, 4096));
    assert_eq!((c.timing.read[0].0, c.timing.program[0].0, c.ftl.capacity.unwrap().0), (65_000, 200_000, 512 << 20));
    let left = imported.left_out.join("\n");
    assert!(left.starts_with("run.sh:9: gc_thres_pcent = 75: FEMU's background collection"), "{left}");
    // The same on a command line, with a link and a map cache.
    let options = "nchs=4,luns_per_ch=2,devsz_mb=512,pg_rd_lat=65000,mapping=dftl,mapping_cache_mb=1,pcie_bandwidth_mbps=3200,fw_cpu_ns=900";
    let other = flash(&femu(options).unwrap());
    assert_eq!((other.geometry, other.timing.read), (c.geometry, c.timing.read));
    assert_eq!((other.host.firmware.core.0, other.ftl.map_cache.0), (900, 1 << 20));
    assert_eq!(other.host.to_host.time(4096).0, 1280);
    // Its defaults are the model's.
    let own = flash(&femu("devsz_mb=12288").unwrap());
    let preset = FlashDriveConfig::preset(Preset::FemuBbssd, true);
    assert_eq!((own.geometry, own.timing, own.host), (preset.geometry, preset.timing, preset.host));
    assert_eq!(own.ftl.capacity, preset.ftl.capacity);
}

/// What FEMU 99ce4fb2b does with them, not what they are called: the black-box SSD's channel is off (hw/femu/bbssd/ftl-media.c).
#[test]
fn femu_s_options_do_here_what_they_do_there() {
    let plain = flash(&femu("devsz_mb=512").unwrap());
    let idle =
        femu("devsz_mb=512,cmd_addr_lat=500,pg_xfer_lat=20000,status_lat=100,ecc_step_ns=9,cell_pages=3").unwrap();
    let c = flash(&idle);
    assert_eq!((c.timing, c.geometry), (plain.timing, plain.geometry));
    assert_eq!(idle.left_out.len(), 5, "{:?}", idle.left_out);
    assert!(idle.left_out.iter().any(|line| line.contains("pg_xfer_lat = 20000: FEMU's black-box SSD has no channel")));

    // hw/femu/femu.c: the layout over 1 + op, whatever devsz_mb is.
    let spare = femu("devsz_mb=1024,op_pcent=25").unwrap();
    assert_eq!(flash(&spare).ftl.capacity.unwrap().0, (16 << 30) * 100 / 125 / 4096 * 4096);
    assert!(spare.left_out[0].contains("devsz_mb = 1024: op_pcent"), "{:?}", spare.left_out);

    let cell = femu("devsz_mb=512,nand_cell_type=3,pg_rd_lat=1").unwrap();
    let c = flash(&cell);
    assert_eq!((c.geometry.cell, c.geometry.page_map), (CellType::Tlc, PageMap::Femu));
    assert_eq!((c.timing.read[2].0, c.timing.program[1].0, c.timing.erase.0), (106_000, 2_225_000, 3_000_000));
    assert!(cell.left_out[0].contains("pg_rd_lat = 1: nand_cell_type has the times"), "{:?}", cell.left_out);

    // A program's factor by its page's number, a read's time the same for all.
    let paged = flash(&femu("devsz_mb=512,pgtype_lat=1,pg_wr_lat=200000").unwrap());
    assert_eq!((paged.geometry.cell, paged.geometry.page_map), (CellType::Tlc, PageMap::Modulo));
    assert_eq!([0, 1, 2].map(|level| paged.timing.program[level].0), [120_000, 200_000, 280_000]);
    assert_eq!([0, 1, 2].map(|level| paged.timing.read[level].0), [40_000; 3]);

    let planes = femu("devsz_mb=512,pls_per_lun=2,gc_policy=d-choice").unwrap();
    assert!(planes.left_out[0].contains("pls_per_lun = 2: FEMU writes to the first plane"), "{:?}", planes.left_out);
    assert_eq!((flash(&planes).ftl.gc.victim, flash(&planes).ftl.gc.choices), (Victim::DChoice, 4));
}

#[test]
fn what_is_no_device_of_femu_is_refused() {
    let doubling: String = (0..40).map(|n| format!("v{}=\"${{v{n}}}${{v{n}}}x\"\n", n + 1)).collect();
    for (options, says) in [
        ("echo hello\n", "run.sh: no \"-device femu,…\" in it"),
        ("-device femu,nchs=many\n", "run.sh:1: nchs: \"many\" is not a number from 1 to 4294967295"),
        ("-device femu,nchs=${gone}\n", "run.sh:1: nchs=$gone: a variable that nothing before it sets"),
        ("n=0\n-device femu,nchs=$n\n", "run.sh:1: nchs: \"0\" is not a number"),
        (
            "-device femu,femu_mode=3\n",
            "femu_mode=3: only the black-box SSD (1) and the OpenChannel SSD (0) are read here",
        ),
        ("-device femu,devsz_mb=65536\n", "run.sh: devsz_mb is 68719476736 bytes, and the layout has 17179869184"),
        (&doubling, "a value of more than 65536 bytes"),
    ] {
        let error = femu(options).map(|made| made.toml).unwrap_err();
        assert!(error.contains(says), "{error}\nwanted: {says}");
    }
}

const HEADER: &str = "#ifndef CONFIG_H\n#define CONFIG_H\n#define SAMSUNG_970PRO 1\n#define WD_ZN540 4\n#define CELL_MODE_MLC 2\n\
    #if (BASE_SSD == WD_ZN540)\n#define NAND_CHANNELS (3)\n#elif (BASE_SSD == SAMSUNG_970PRO)\n#define CELL_MODE (CELL_MODE_MLC)\n\
    #define SSD_PARTITIONS (4) /* of the address\n space */\n#define NAND_CHANNELS (8)\n#define LUNS_PER_NAND_CH (2)\n#define PLNS_PER_LUN (1)\n\
    #define FLASH_PAGE_SIZE KB(32)\n#define ONESHOT_PAGE_SIZE (FLASH_PAGE_SIZE * 1)\n#define BLKS_PER_PLN (8192)\n\
    #define MAX_CH_XFER_SIZE KB(16) // pieces\n#define NAND_CHANNEL_BANDWIDTH (800ull)\n#define PCIE_BANDWIDTH (3360ull)\n\
    #define NAND_4KB_READ_LATENCY_LSB (35760 - 6000)\n#define NAND_4KB_READ_LATENCY_MSB (35760 + 6000)\n#define NAND_4KB_READ_LATENCY_CSB (0)\n\
    #define NAND_READ_LATENCY_LSB (36013 - 6000)\n#define NAND_READ_LATENCY_MSB (36013 + 6000)\n#define NAND_READ_LATENCY_CSB (0)\n\
    #define NAND_PROG_LATENCY (185000)\n#define NAND_ERASE_LATENCY (0)\n#define FW_4KB_READ_LATENCY (21500)\n#define FW_READ_LATENCY (30490)\n\
    #define FW_WBUF_LATENCY0 (4000)\n#define FW_WBUF_LATENCY1 (460)\n#define OP_AREA_PERCENT (0.07)\n\
    #define GLOBAL_WB_SIZE (NAND_CHANNELS * LUNS_PER_NAND_CH * \\\n  ONESHOT_PAGE_SIZE * 2)\n#define WRITE_EARLY_COMPLETION 1\n#endif\n#endif\n";

#[test]
fn nvmevirt_s_header_becomes_its_model() {
    let imported = nvmevirt(HEADER, Some("SAMSUNG_970PRO")).unwrap();
    let (own, preset) = (flash(&imported), FlashDriveConfig::preset(Preset::Nvmevirt970Pro, true));
    // Blocks have as many pages as the memory set aside there makes of them: the profile's.
    assert_eq!((own.geometry, own.timing), (preset.geometry, preset.timing));
    assert_eq!((own.host, own.buffer), (preset.host, preset.buffer));
    assert_eq!((own.ftl.partitions, preset.ftl.partitions), (4, 4));
    assert_eq!(imported.left_out, [""; 0]);
}

#[test]
fn what_is_no_header_of_nvmevirt_is_refused_with_its_line() {
    let deep = format!("{}#define NAND_CHANNELS {}1{}\n", "", "(".repeat(500), ")".repeat(500));
    let doubling: String = (0..60).map(|n| format!("#define V{} (V{n} + V{n})\n", n + 1)).collect::<String>()
        + "#define NAND_CHANNELS V60\n";
    for (header, base, says) in [
        (
            HEADER,
            Some("INTEL_OPTANE"),
            "\"INTEL_OPTANE\" is no SSD with flash of NVMeVirt; there is SAMSUNG_970PRO, WD_ZN540",
        ),
        (HEADER, None, "BASE_SSD is not defined; name the SSD behind the file"),
        (HEADER, Some("WD_ZN540"), "ssd_config.h: LUNS_PER_NAND_CH is not defined for this SSD"),
        ("#if 1\n#define NAND_CHANNELS 8\n", None, "ssd_config.h:1: an #if without its #endif"),
        ("#endif\n", None, "ssd_config.h:1: #endif without an #if"),
        ("#define NAND_CHANNELS (8 / 0)\n", None, "ssd_config.h:1: a division by zero"),
        ("#define NAND_CHANNELS (8\n", None, "ssd_config.h:1: a bracket that is not closed"),
        ("#define NAND_CHANNELS NAND_CHANNELS\n", None, "ssd_config.h:1: an expression that is nested too deep"),
        ("\n#define NAND_CHANNELS 0\n", None, "ssd_config.h:2: NAND_CHANNELS is 0; 1 to 4096 is allowed"),
        (&deep, None, "an expression that is nested too deep"),
        (&doubling, None, "macros that need each other"),
    ] {
        let error = nvmevirt(header, base).map(|made| made.toml).unwrap_err();
        assert!(error.contains(says), "{error}\nwanted: {says}");
    }
}
