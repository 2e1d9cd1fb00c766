package io.weir.hadoop;

import java.io.IOException;
import java.net.URI;
import java.util.Arrays;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Where files lie, and how many copies they get, at the store whose address is the system property {@code weir.address}: it has drives of
 * the class {@code dram} on this machine, and of the class {@code flash} on the host 127.0.0.2. The last line is
 * {@code block locations: all told}.
 */
public final class BlockLocations {
  private static final int BLOCK = 1 << 20;
  private static int wrong;

  private BlockLocations() {}

  private static void same(String what, Object found, Object expected) {
    boolean isRight = found.equals(expected);
    System.out.println((isRight ? "ok    " : "WRONG ") + what + ": " + found + (isRight ? "" : ", expected " + expected));
    wrong += isRight ? 0 : 1;
  }

  private static FileSystem store(String... settings) throws IOException {
    Configuration conf = new Configuration();
    conf.set("fs.weir.address", System.getProperty("weir.address"));
    conf.set("fs.weir.block", String.valueOf(BLOCK));
    for (int i = 0; i < settings.length; i += 2) {
      conf.set(settings[i], settings[i + 1]);
    }
    return FileSystem.newInstance(URI.create("weir:///"), conf);
  }

  private static FileStatus written(FileSystem fs, String name, int bytes, int replication) throws IOException {
    Path path = new Path("/located/" + name);
    try (FSDataOutputStream out = fs.create(path, true, 4096, (short) replication, BLOCK)) {
      out.write(new byte[bytes]);
    }
    return fs.getFileStatus(path);
  }

  /** Every location as {@code offset+length@hosts}, the hosts in the order of their names. */
  private static String told(BlockLocation[] locations) throws IOException {
    StringBuilder told = new StringBuilder();
    for (BlockLocation one : locations) {
      TreeSet<String> hosts = new TreeSet<>(Arrays.asList(one.getHosts()));
      told.append(told.length() == 0 ? "" : " ").append(one.getOffset()).append('+').append(one.getLength()).append('@').append(hosts);
    }
    return told.toString();
  }

  /** A file that is larger than the first of its classes goes on in the second: its locations are whole blocks, without a gap. */
  private static void mixed(FileSystem dram, FileSystem any) throws IOException {
    int bytes = (int) (dram.getStatus().getCapacity() / 8 / BLOCK * BLOCK);
    FileStatus file = written(any, "mixed", bytes, 1);
    long at = 0;
    boolean isWhole = true;
    TreeSet<String> hosts = new TreeSet<>();
    for (BlockLocation one : any.getFileBlockLocations(file, 0, bytes)) {
      isWhole &= one.getOffset() == at && one.getLength() % BLOCK == 0 && one.getHosts().length == 1;
      at += one.getLength();
      hosts.add(one.getHosts()[0]);
    }
    same("whole blocks without a gap", isWhole && at == bytes, true);
    same("on both hosts", hosts.toString(), "[127.0.0.2, localhost]");
    any.delete(file.getPath(), false);
  }

  /**
   * See the class.
   *
   * @param arguments none
   * @throws IOException what was not expected
   */
  public static void main(String[] arguments) throws IOException {
    try (FileSystem dram = store("fs.weir.class", "dram"); FileSystem flash = store("fs.weir.class", "flash"); FileSystem any = store()) {
      int bytes = 3 * BLOCK + 5;
      FileStatus here = written(dram, "here", bytes, 1);
      same("a drive of this machine", told(any.getFileBlockLocations(here, 0, bytes)), "0+" + bytes + "@[localhost]");
      FileStatus there = written(flash, "there", bytes, 1);
      BlockLocation[] locations = any.getFileBlockLocations(there, 0, bytes);
      same("a drive of another host", told(locations), "0+" + bytes + "@[127.0.0.2]");
      same("its name is the drive", locations[0].getNames()[0].startsWith("nvme-tcp://127.0.0.2:"), true);
      same("a part of it", told(any.getFileBlockLocations(there, BLOCK + 1, 10)), BLOCK + 1 + "+10@[127.0.0.2]");
      same("behind its end", told(any.getFileBlockLocations(there, bytes, 10)), "");

      FileStatus both = written(any, "both", bytes, 10);
      same("as many copies as nodes", (int) both.getReplication(), 2);
      same("both hosts", told(any.getFileBlockLocations(both, 0, bytes)), "0+" + bytes + "@[127.0.0.2, localhost]");
      same("as many copies as nodes of the class", (int) written(flash, "one", bytes, 10).getReplication(), 1);
      same("it has two", any.setReplication(both.getPath(), (short) 2), true);
      same("it gets no third", any.setReplication(both.getPath(), (short) 3), false);

      mixed(dram, any);
      FileStatus small = written(flash, "small", 100, 1);
      same("a file in its inode", told(any.getFileBlockLocations(small, 0, 100)), "0+100@[localhost]");
      any.delete(new Path("/located"), true);
    }
    System.out.println(wrong == 0 ? "block locations: all told" : "block locations: " + wrong + " are wrong");
    System.exit(wrong == 0 ? 0 : 1);
  }
}
