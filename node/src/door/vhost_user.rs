//! stub
#![allow(missing_docs, unused)]
use super::*;
use weir_sys::reactor::Ready;
pub struct Door;
pub struct ExportConfig{pub path: std::path::PathBuf,pub drive:u32,pub tenant:u16,pub tenant_name:String,pub peer_class:bool,pub queues:u16,pub queue_depth:u16,pub read_only:bool,pub serial:String}
impl Door{
 pub fn new()->Self{Door}
 pub fn export(&mut self,_:ExportConfig,_:&mut Cx)->Result<(),std::io::Error>{Ok(())}
 pub fn close(&mut self,_:&mut Cx){}
 pub fn close_listeners(&mut self,_:&mut Cx){}
 pub fn ready(&mut self,_:u64,_:&Ready,_:&mut Cx){}
 pub fn poll(&mut self,_:&mut Cx)->bool{false}
 pub fn flush(&mut self,_:&mut Cx)->bool{false}
 pub fn arm(&mut self,_:&mut Cx)->bool{false}
 pub fn next_deadline(&self)->Nanos{Nanos::NEVER}
 pub fn disconnect(&mut self,_:Owner){}
 pub fn clients(&self)->Vec<(std::path::PathBuf,u32)>{vec![]}
 pub fn respond(&mut self,_:Owner,_:Tag,_:&Cqe){}
 pub fn read_data(&mut self,_:Owner,_:&Data,_:u32,_:&mut [u8])->Result<(),Status>{Ok(())}
 pub fn write_data(&mut self,_:Owner,_:&Data,_:u32,_:&[u8])->Result<(),Status>{Ok(())}
}
