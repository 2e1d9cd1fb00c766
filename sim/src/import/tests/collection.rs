//! MQSim's collection on a full drive: `bench/reference/mqsim-gc.tsv`.

use super::{Reference, flow, mqsim, scenario, ssdconfig};

/// Pages programmed for each page written, and the mean response time in nanoseconds, of so many requests.
fn run(row: &Reference<'_>, requests: u64) -> (f64, f64) {
    let columns = [
        ("GC_Block_Selection_Policy", "policy"),
        ("Overprovisioning_Ratio", "over_provisioning"),
        ("GC_Exec_Threshold", "gc_exec_threshold"),
        ("Flash_Channel_Count", "channels"),
        ("Chip_No_Per_Channel", "chips"),
        ("Die_No_Per_Chip", "dies"),
        ("Plane_No_Per_Die", "planes"),
        ("Block_No_Per_Plane", "blocks"),
        ("Page_No_Per_Block", "pages"),
        ("Page_Capacity", "page_bytes"),
    ];
    let drive: String = columns.map(|(name, column)| format!("<{name}>{}</{name}>\n", row.get(column))).concat();
    let drive = drive
        + "<Ideal_Mapping_Table>true</Ideal_Mapping_Table>\n<Channel_Transfer_Rate>333</Channel_Transfer_Rate>\n\
           <Enabled_Preconditioning>true</Enabled_Preconditioning>";
    let workload = flow(&format!(
        "<Read_Percentage>0</Read_Percentage><Average_Request_Size>16</Average_Request_Size>\
         <Average_No_of_Reqs_in_Queue>{}</Average_No_of_Reqs_in_Queue><Working_Set_Percentage>100</Working_Set_Percentage>\
         <Total_Requests_To_Generate>{requests}</Total_Requests_To_Generate>",
        row.get("depth"),
    ));
    let imported = mqsim(&ssdconfig(&drive), Some(&workload)).unwrap();
    let outcome = scenario(&imported, "").run(|_| {}).unwrap_or_else(|e| panic!("{e}"));
    let programs = outcome.flash.as_ref().map_or(0, |flash| flash.stats.programs());
    (programs as f64 / requests as f64, outcome.jobs[0].summary.latency.mean)
}

#[test]
fn writes_on_a_full_drive_cost_what_they_cost_in_mqsim() {
    let table = include_str!("../../../../bench/reference/mqsim-gc.tsv");
    let rows = Reference::all(table);
    assert_eq!(rows.len(), 6);
    let mut far = Vec::new();
    for row in rows {
        let (programs, mean) = run(&row, 60_000);
        let off = |ours: f64, column: &str| (ours / row.number(column) - 1.0) * 100.0;
        let (programs, mean) = (off(programs, "programs_per_write"), off(mean, "mean_ns"));
        let said = format!(
            "programs {programs:+.2} %, mean {mean:+.2} %: {}, {}",
            row.get("policy"),
            row.get("over_provisioning")
        );
        // All that is spare is below its threshold there: its free blocks sink further than to the half at which they begin.
        let most =
            if row.get("gc_exec_threshold") == "0.3" && row.get("over_provisioning") == "0.3" { 15.0 } else { 7.0 };
        if programs.abs() > most || mean.abs() > most {
            far.push(said);
        }
    }
    assert_eq!(far, [""; 0]);
}
