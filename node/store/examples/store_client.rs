//! A file of a store written, read and removed: `cargo run -p weir-store-node --example store_client -- 127.0.0.1:4430`.
//!
//! The address is that of a metadata service, `HOST:PORT` or `unix:PATH`, such as the one that `weir up --store` prints.

use std::io::{Read, Write};
use weir_store_node::client::{Client, ClientError, ClientOptions, CreateOptions, OpenOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("usage: store_client HOST:PORT")?;
    let client = Client::connect(&address, ClientOptions::default())?;
    client.make_directory("/example", true, 0o755)?;

    // As a stream: buffered, written behind and read ahead.
    let mut writer = client.writer("/example/lines", &CreateOptions::default())?;
    for number in 0..100_000 {
        writeln!(writer, "line {number}")?;
    }
    writer.finish()?;
    let mut text = String::new();
    client.reader("/example/lines")?.read_to_string(&mut text)?;
    println!("{} bytes, {} lines", text.len(), text.lines().count());

    // At any offset, by several operations at once.
    let file = client.open("/example/lines", OpenOptions::read_write())?;
    let pending: Result<Vec<_>, ClientError> = (0..8).map(|n| file.begin_read(n * 100_000, vec![0; 4096])).collect();
    for pending in pending? {
        let completed = pending.wait();
        println!("{} bytes: {:?}", completed.result?, String::from_utf8_lossy(&completed.buffer[..12]));
    }
    file.write_at(5, b"first")?;
    file.close()?;

    for entry in client.list("/example")? {
        println!("{}", entry?.name);
    }
    client.remove("/example", true)?;
    Ok(())
}
