//! What `io.weir.hadoop.Native` declares: one function each. The Java machine finds them by their names (JNI specification, "Resolving
//! native method names").

#![allow(non_snake_case, reason = "the Java machine finds these functions by their names")]

use crate::failure::{Failure, Throw};
use crate::handles::Handles;
use crate::store::{Owner, Store};
use crate::streams::{OpenReader, OpenWriter, Part, with_direct};
use crate::{copies, directories, entries, locations};
use jni::objects::{JByteArray, JByteBuffer, JClass, JLongArray, JString};
use jni::sys::{jboolean, jint, jlong};
use jni::{Env, EnvUnowned};
use std::time::Duration;
use weir_store::{EntryName, InodeId, SetAttributes, StoreError, UnixNanos};
use weir_store_node::client::{ClientError, ClientErrorKind, ClientOptions, CreateOptions, OpenOptions, Operator as _};

static STORES: Handles<Store> = Handles::new("file system");
static READERS: Handles<OpenReader> = Handles::new("stream");
static WRITERS: Handles<OpenWriter> = Handles::new("stream");

/// Permissions of directories that are made on the way to a file.
const PARENT_MODE: u32 = 0o755;

/// A native method: what it comes to, or the exception that it throws.
macro_rules! native {
    ($(#[$doc:meta])* fn $name:ident<$life:lifetime>($env:ident $(, $argument:ident: $kind:ty)*) -> $out:ty $body:block) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "system" fn $name<$life>(
            mut unowned: EnvUnowned<$life>,
            _: JClass<$life>
            $(, $argument: $kind)*
        ) -> $out {
            unowned.with_env(|$env| -> Result<$out, Failure> { $body }).resolve::<Throw>()
        }
    };
}

fn text(env: &Env<'_>, string: &JString<'_>) -> Result<String, Failure> {
    Ok(string.try_to_string(env)?)
}

fn bytes(env: &Env<'_>, array: &JByteArray<'_>) -> Result<Vec<u8>, Failure> {
    Ok(env.convert_byte_array(array)?)
}

/// A number of the store as Java's; larger ones than that has do not occur.
fn number(value: u64) -> jlong {
    jlong::try_from(value).unwrap_or(jlong::MAX)
}

fn count(value: usize) -> jint {
    jint::try_from(value).unwrap_or(jint::MAX)
}

/// A position in a file.
fn position(value: jlong) -> Result<u64, Failure> {
    u64::try_from(value).map_err(|_| usage(format!("{value} is no position in a file")))
}

/// Names with commas between them.
fn class_names(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn usage(text: String) -> Failure {
    ClientError::new(ClientErrorKind::Usage(text)).into()
}

native! {
    /// Connects to a metadata service: the number of the store.
    fn Java_io_weir_hadoop_Native_connect<'a>(
        env, address: JString<'a>, name: JString<'a>, location: JString<'a>, deadline_ms: jlong
    ) -> jlong {
        let deadline = Duration::from_millis(u64::try_from(deadline_ms).unwrap_or(0).max(1));
        let (name, location) = (text(env, &name)?, text(env, &location)?);
        let options = ClientOptions { name, location, deadline, ..ClientOptions::default() };
        Ok(STORES.add(Store::connect(&text(env, &address)?, options)?))
    }
}

native! {
    /// Forgets a store; what is open of it stays open.
    fn Java_io_weir_hadoop_Native_disconnect<'a>(_env, store: jlong) -> () {
        drop(STORES.remove(store));
        Ok(())
    }
}

native! {
    /// What a path leads to: one entry of [`entries`], without a name.
    fn Java_io_weir_hadoop_Native_stat<'a>(env, store: jlong, path: JByteArray<'a>) -> JByteArray<'a> {
        let stat = STORES.get(store)?.client()?.stat(bytes(env, &path)?)?;
        let mut entry = Vec::new();
        entries::put(&mut entry, stat.at.inode, &stat.inode, b"");
        Ok(env.byte_array_from_slice(&entry)?)
    }
}

native! {
    /// A page of a directory's names behind `after`, which is empty for the first page.
    fn Java_io_weir_hadoop_Native_list<'a>(env, store: jlong, container: jlong, after: JByteArray<'a>) -> JByteArray<'a> {
        let client = STORES.get(store)?.client()?;
        let after = bytes(env, &after)?;
        let after = if after.is_empty() { None } else { Some(EntryName::new(&after).map_err(ClientError::from)?) };
        let container = InodeId(position(container)?);
        let page = entries::page(&client, container, &client.list_page(container, after)?)?;
        Ok(env.byte_array_from_slice(&page)?)
    }
}

native! {
    /// Makes a directory; with `parents` those on the way too, and it is no error that it is there.
    fn Java_io_weir_hadoop_Native_makeDirectory<'a>(
        env, store: jlong, path: JByteArray<'a>, parents: jboolean, mode: jint
    ) -> () {
        let store = STORES.get(store)?;
        directories::make(&store.client()?, &bytes(env, &path)?, parents, &directories::options(store.owner, mode as u32))
    }
}

native! {
    /// Gives what is at `from` another name.
    fn Java_io_weir_hadoop_Native_rename<'a>(
        env, store: jlong, from: JByteArray<'a>, to: JByteArray<'a>, replace: jboolean
    ) -> () {
        let client = STORES.get(store)?.client()?;
        Ok(client.rename(bytes(env, &from)?, bytes(env, &to)?, replace)?)
    }
}

native! {
    /// Deletes a name; with `recursive` a directory with all that is in it.
    fn Java_io_weir_hadoop_Native_remove<'a>(env, store: jlong, path: JByteArray<'a>, recursive: jboolean) -> () {
        Ok(STORES.get(store)?.client()?.remove(bytes(env, &path)?, recursive)?)
    }
}

native! {
    /// Changes attributes; what is -1 stays. `modified` is in nanoseconds since 1970.
    fn Java_io_weir_hadoop_Native_setAttributes<'a>(
        env, store: jlong, path: JByteArray<'a>, mode: jint, uid: jint, gid: jint, modified: jlong
    ) -> () {
        let given = |value: jint| (value != -1).then_some(value as u32);
        let modified = u64::try_from(modified).ok().map(UnixNanos);
        let (mode, uid, gid) = (given(mode), given(uid), given(gid));
        let set = SetAttributes { mode, uid, gid, modified, ..SetAttributes::default() };
        Ok(STORES.get(store)?.client()?.set_attributes(bytes(env, &path)?, set)?)
    }
}

native! {
    /// Bytes of all classes, and how many of them are free.
    fn Java_io_weir_hadoop_Native_room<'a>(env, store: jlong) -> JLongArray<'a> {
        let classes = STORES.get(store)?.client()?.status()?.classes;
        let sum = |of: fn(&weir_store::protocol::ClassStatus) -> u64| number(classes.iter().map(of).fold(0, u64::saturating_add));
        let array = env.new_long_array(2)?;
        array.set_region(env, 0, &[sum(|class| class.bytes), sum(|class| class.free)])?;
        Ok(array)
    }
}

native! {
    /// Copies that a block of these classes (names with commas between them; none: of any class) can have: nodes with such a drive that answers,
    /// 1 to 4.
    fn Java_io_weir_hadoop_Native_copiesOffered<'a>(env, store: jlong, classes: JString<'a>) -> jint {
        let (client, wanted) = (STORES.get(store)?.client()?, class_names(&text(env, &classes)?));
        Ok(jint::from(copies::offered(&client.classes(), &client.namespaces()?, &wanted)))
    }
}

native! {
    /// The hosts that bytes of a file lie on: see [`locations`].
    fn Java_io_weir_hadoop_Native_locations<'a>(
        env, store: jlong, path: JByteArray<'a>, offset: jlong, length: jlong
    ) -> JByteArray<'a> {
        let (client, path) = (STORES.get(store)?.client()?, bytes(env, &path)?);
        let found = locations::find(&client, &path, position(offset)?, position(length)?)?;
        Ok(env.byte_array_from_slice(&found)?)
    }
}

native! {
    /// Opens a file to be read: the number of the stream.
    fn Java_io_weir_hadoop_Native_openReader<'a>(env, store: jlong, path: JByteArray<'a>) -> jlong {
        let file = STORES.get(store)?.client()?.open(bytes(env, &path)?, OpenOptions::default())?;
        Ok(READERS.add(OpenReader::new(file)))
    }
}

native! {
    /// Bytes of a file that is read.
    fn Java_io_weir_hadoop_Native_size<'a>(_env, reader: jlong) -> jlong {
        Ok(number(READERS.get(reader)?.size()))
    }
}

native! {
    /// Closes a stream that reads.
    fn Java_io_weir_hadoop_Native_closeReader<'a>(_env, reader: jlong) -> () {
        drop(READERS.remove(reader));
        Ok(())
    }
}

native! {
    /// Reads at a position into a direct buffer, without a copy. Fewer bytes only at the end of the file.
    fn Java_io_weir_hadoop_Native_readAtDirect<'a>(
        env, reader: jlong, at: jlong, buffer: JByteBuffer<'a>, offset: jint, length: jint
    ) -> jint {
        let (reader, at) = (READERS.get(reader)?, position(at)?);
        with_direct(env, &buffer, Part::new(offset, length)?, |to| reader.read_at(at, to).map(count))
    }
}

native! {
    /// Reads at a position into an array. Fewer bytes only at the end of the file.
    fn Java_io_weir_hadoop_Native_readAt<'a>(
        env, reader: jlong, at: jlong, array: JByteArray<'a>, offset: jint, length: jint
    ) -> jint {
        let (reader, at) = (READERS.get(reader)?, position(at)?);
        reader.read_at_to_array(env, at, &array, Part::new(offset, length)?).map(count)
    }
}

native! {
    /// Reads on in a stream into a direct buffer: some bytes, and none only at the end.
    fn Java_io_weir_hadoop_Native_readDirect<'a>(
        env, reader: jlong, at: jlong, buffer: JByteBuffer<'a>, offset: jint, length: jint
    ) -> jint {
        let (reader, at) = (READERS.get(reader)?, position(at)?);
        with_direct(env, &buffer, Part::new(offset, length)?, |to| reader.read(at, to).map(count))
    }
}

native! {
    /// Reads on in a stream into an array: some bytes, and none only at the end.
    fn Java_io_weir_hadoop_Native_read<'a>(
        env, reader: jlong, at: jlong, array: JByteArray<'a>, offset: jint, length: jint
    ) -> jint {
        let (reader, at) = (READERS.get(reader)?, position(at)?);
        reader.read_to_array(env, at, &array, Part::new(offset, length)?).map(count)
    }
}

native! {
    /// Makes a file, or unless `exclusive` cuts the one that is there, and opens it to be written: the number of the stream.
    /// `classes` are names with commas between them, or empty for the store's; `block` is 0 for the store's.
    fn Java_io_weir_hadoop_Native_create<'a>(
        env, store: jlong, path: JByteArray<'a>, mode: jint, classes: JString<'a>, copies: jint, block: jint,
        exclusive: jboolean, parents: jboolean
    ) -> jlong {
        let store = STORES.get(store)?;
        let Owner { uid, gid } = store.owner;
        let classes = class_names(&text(env, &classes)?);
        let copies = u8::try_from(copies).map_err(|_| ClientError::from(StoreError::Copies))?;
        let block = u32::try_from(block).ok().filter(|block| *block > 0);
        let options = CreateOptions {
            mode: mode as u32, uid, gid, classes, copies, block, exclusive, ..CreateOptions::default()
        };
        let (client, path) = (store.client()?, bytes(env, &path)?);
        let file = match client.create(&path, &options) {
            Err(error) if parents && error.is_not_found() => {
                let above = directories::options(store.owner, PARENT_MODE);
                directories::make(&client, directories::parent(&path), true, &above)?;
                client.create(&path, &options)
            }
            created => created,
        }?;
        Ok(WRITERS.add(OpenWriter::new(file)))
    }
}

native! {
    /// Opens a file that is there, to be written from its end on: the number of the stream.
    fn Java_io_weir_hadoop_Native_append<'a>(env, store: jlong, path: JByteArray<'a>) -> jlong {
        let options = OpenOptions { append: true, ..OpenOptions::default() };
        let file = STORES.get(store)?.client()?.open(bytes(env, &path)?, options)?;
        Ok(WRITERS.add(OpenWriter::new(file)))
    }
}

native! {
    /// Bytes of a file before the first one that a stream writes.
    fn Java_io_weir_hadoop_Native_begin<'a>(_env, writer: jlong) -> jlong {
        Ok(number(WRITERS.get(writer)?.begin()))
    }
}

native! {
    /// Cuts a file to a size, or lengthens it by zeroes.
    fn Java_io_weir_hadoop_Native_truncate<'a>(env, store: jlong, path: JByteArray<'a>, size: jlong) -> () {
        let size = position(size)?;
        let file = STORES.get(store)?.client()?.open(bytes(env, &path)?, OpenOptions::read_write())?;
        file.truncate(size)?;
        Ok(file.close()?)
    }
}

native! {
    /// Writes a part of an array.
    fn Java_io_weir_hadoop_Native_write<'a>(env, writer: jlong, array: JByteArray<'a>, offset: jint, length: jint) -> () {
        WRITERS.get(writer)?.write_array(env, &array, Part::new(offset, length)?)
    }
}

native! {
    /// Writes a part of a direct buffer.
    fn Java_io_weir_hadoop_Native_writeDirect<'a>(
        env, writer: jlong, buffer: JByteBuffer<'a>, offset: jint, length: jint
    ) -> () {
        let writer = WRITERS.get(writer)?;
        with_direct(env, &buffer, Part::new(offset, length)?, |from| writer.write(from))
    }
}

native! {
    /// Publishes what was written.
    fn Java_io_weir_hadoop_Native_flush<'a>(_env, writer: jlong) -> () {
        WRITERS.get(writer)?.flush()
    }
}

native! {
    /// Publishes what was written, and closes the stream.
    fn Java_io_weir_hadoop_Native_closeWriter<'a>(_env, writer: jlong) -> () {
        WRITERS.remove(writer).map_or(Ok(()), |writer| writer.close())
    }
}

native! {
    /// Closes a stream that writes; what was not flushed is not published.
    fn Java_io_weir_hadoop_Native_abandonWriter<'a>(_env, writer: jlong) -> () {
        drop(WRITERS.remove(writer));
        Ok(())
    }
}

native! {
    /// Streams that are open in this process.
    fn Java_io_weir_hadoop_Native_openStreams<'a>(_env) -> jlong {
        Ok(number((READERS.len() + WRITERS.len()) as u64))
    }
}
