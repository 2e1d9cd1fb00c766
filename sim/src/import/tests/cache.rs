//! MQSim's data cache: `bench/reference/mqsim-cache.tsv`.

use super::{Reference, mqsim, scenario, ssdconfig};

/// The two files of MQSim that the row is from.
fn files(row: &Reference<'_>, requests: u64) -> (String, String) {
    let columns = [
        ("Flash_Channel_Count", "channels"),
        ("Chip_No_Per_Channel", "chips"),
        ("Die_No_Per_Chip", "dies"),
        ("Plane_No_Per_Die", "planes"),
        ("Block_No_Per_Plane", "blocks"),
        ("Page_No_Per_Block", "pages"),
        ("Page_Capacity", "page_bytes"),
        ("Data_Cache_Capacity", "cache_bytes"),
    ];
    let drive: String = columns.map(|(name, column)| format!("<{name}>{}</{name}>\n", row.get(column))).concat();
    let drive = drive
        + "<Ideal_Mapping_Table>true</Ideal_Mapping_Table>\n<Channel_Transfer_Rate>333</Channel_Transfer_Rate>\n\
           <Caching_Mechanism>ADVANCED</Caching_Mechanism>";
    let of = [
        ("Device_Level_Data_Caching_Mode", row.get("cache").to_string()),
        ("Read_Percentage", row.get("read_pct").to_string()),
        ("Average_Request_Size", (row.number("size_bytes") as u64 / 512).to_string()),
        ("Average_No_of_Reqs_in_Queue", row.get("depth").to_string()),
        ("Working_Set_Percentage", row.get("working_set_pct").to_string()),
        ("Total_Requests_To_Generate", requests.to_string()),
    ];
    let flow: String = of.map(|(name, value)| format!("<{name}>{value}</{name}>\n")).concat();
    let workload = format!(
        "<MQSim_IO_Scenarios>\n<IO_Scenario>\n<IO_Flow_Parameter_Set_Synthetic>\n{flow}\
         </IO_Flow_Parameter_Set_Synthetic>\n</IO_Scenario>\n</MQSim_IO_Scenarios>\n"
    );
    (ssdconfig(&drive), workload)
}

/// By how many percent the mean response time and the number of pages programmed are off what MQSim printed.
fn off(row: &Reference<'_>) -> (f64, f64) {
    let requests = (row.number("requests") as u64).min(40_000);
    let (config, workload) = files(row, requests);
    let imported = mqsim(&config, Some(&workload)).unwrap();
    assert!(!imported.left_out.iter().any(|left| left.contains("ach")), "{:?}", imported.left_out);
    let outcome = scenario(&imported, "").run(|_| {}).unwrap_or_else(|e| panic!("{e}"));
    let programs = outcome.flash.as_ref().map_or(0, |flash| flash.stats.page_programs);
    let wanted = row.number("programmed_pages") * requests as f64 / row.number("requests");
    let percent = |ours: f64, theirs: f64| (ours / theirs - 1.0) * 100.0;
    (percent(outcome.jobs[0].summary.latency.mean, row.number("mean_ns")), percent(programs as f64, wanted))
}

#[test]
fn a_write_cache_takes_what_it_takes_in_mqsim() {
    let table = include_str!("../../../../bench/reference/mqsim-cache.tsv");
    let mut far = Vec::new();
    let rows = Reference::all(table);
    assert_eq!(rows.len(), 25);
    for row in rows {
        let (mean, programs) = off(&row);
        let name = ["config", "cache", "cache_bytes", "working_set_pct", "read_pct", "depth"];
        let name = name.map(|column| format!("{column} {}", row.get(column))).join(", ");
        // Where a second's writes are written again the half of a percent of programs more or less is waited for; and MQSim's read cache has
        // only pages that were written.
        let most = match (row.get("cache"), row.get("working_set_pct")) {
            ("WRITE_READ_CACHE", _) => 7.0,
            (_, "10") => 4.5,
            _ => 2.0,
        };
        if mean.abs() > most || programs.abs() > 1.5 {
            far.push(format!("{mean:+.2} %, programs {programs:+.2} %: {name}"));
        }
    }
    assert_eq!(far, [""; 0]);
}
