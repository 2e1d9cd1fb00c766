package io.weir.hadoop;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.fs.BlockLocation;

/** Where bytes of a file lie, as {@link Native#locations} gives it. */
final class Locations {
  private Locations() {}

  static BlockLocation[] of(byte[] encoded) throws IOException {
    DataInputStream from = new DataInputStream(new ByteArrayInputStream(encoded));
    BlockLocation[] locations = new BlockLocation[from.readInt()];
    for (int i = 0; i < locations.length; i++) {
      long offset = from.readLong();
      long length = from.readLong();
      int copies = from.readUnsignedByte();
      String[] hosts = new String[copies];
      String[] names = new String[copies];
      for (int copy = 0; copy < copies; copy++) {
        hosts[copy] = text(from);
        names[copy] = text(from);
      }
      locations[i] = new BlockLocation(names, hosts, offset, length);
    }
    return locations;
  }

  private static String text(DataInputStream from) throws IOException {
    byte[] text = new byte[from.readUnsignedShort()];
    from.readFully(text);
    return new String(text, StandardCharsets.UTF_8);
  }
}
