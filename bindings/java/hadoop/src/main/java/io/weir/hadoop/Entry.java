package io.weir.hadoop;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** An inode of the store, and the name that it was listed with. */
final class Entry {
  private static final int KIND_DIRECTORY = 2;
  private static final int KIND_SYMLINK = 3;
  private static final int KIND_MULTIFILE = 4;
  private static final int KIND_TABLE = 5;

  /** Its number. */
  final long inode;
  private final int kind;
  /** Bytes. */
  final long size;
  /** Permissions, as POSIX has them. */
  final int mode;
  final int uid;
  final int gid;
  /** Milliseconds since 1970. */
  final long modified;
  /** Copies of each block. */
  final int copies;
  private final byte[] name;

  private Entry(DataInputStream from) throws IOException {
    inode = from.readLong();
    kind = from.readUnsignedByte();
    size = from.readLong();
    mode = from.readInt();
    uid = from.readInt();
    gid = from.readInt();
    modified = from.readLong() / 1_000_000;
    copies = from.readUnsignedByte();
    from.readInt();
    name = new byte[from.readUnsignedShort()];
    from.readFully(name);
  }

  /** The inode of {@link Native#stat}. */
  static Entry of(byte[] encoded) throws IOException {
    return new Entry(new DataInputStream(new ByteArrayInputStream(encoded)));
  }

  /** Whether it has names in it. */
  boolean isDirectory() {
    return kind == KIND_DIRECTORY || kind == KIND_MULTIFILE || kind == KIND_TABLE;
  }

  boolean isSymlink() {
    return kind == KIND_SYMLINK;
  }

  byte[] rawName() {
    return name;
  }

  /**
   * The name as Java has it.
   *
   * @throws CharacterCodingException it is not UTF-8
   */
  String name() throws CharacterCodingException {
    return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(name)).toString();
  }

  /** Names of a directory, as {@link Native#list} gives them. */
  static final class Page {
    final boolean isLast;
    final List<Entry> entries = new ArrayList<>();

    Page(byte[] encoded) throws IOException {
      DataInputStream from = new DataInputStream(new ByteArrayInputStream(encoded));
      isLast = from.readBoolean();
      for (int left = from.readInt(); left > 0; left--) {
        entries.add(new Entry(from));
      }
    }
  }
}
