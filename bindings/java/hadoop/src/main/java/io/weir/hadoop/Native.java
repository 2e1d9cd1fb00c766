package io.weir.hadoop;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/**
 * The native part: the store's client, in {@code libweir_java.so}. It lies in the jar under {@code io/weir/native/OS-ARCH/}, and is
 * unpacked to a temporary file; the system property {@code io.weir.library} names another file.
 *
 * <p>Numbers stand for what is open. Every method throws the exception that {@link Failure} has for what went wrong.
 */
final class Native {
  /** Why the native part cannot be used, or null. */
  private static final String REFUSAL = load();

  private Native() {}

  /** Loads the native part, if that was not done before. */
  static void require() throws IOException {
    if (REFUSAL != null) {
      throw new IOException(REFUSAL);
    }
  }

  private static String load() {
    String platform = platform();
    try {
      String chosen = System.getProperty("io.weir.library");
      if (chosen != null) {
        System.load(Path.of(chosen).toAbsolutePath().toString());
      } else {
        loadFromJar("/io/weir/native/" + platform + "/libweir_java.so");
      }
      return null;
    } catch (MissingLibrary e) {
      return "weir: this jar has no native part for " + platform + "; take the jar of that platform, or name a libweir_java.so by "
          + "-Dio.weir.library=FILE";
    } catch (IOException e) {
      return "weir: the native part cannot be unpacked to " + System.getProperty("java.io.tmpdir") + ": " + e
          + "; set -Djava.io.tmpdir to a folder with room";
    } catch (UnsatisfiedLinkError e) {
      return "weir: the native part cannot be loaded on " + platform + ": " + e.getMessage();
    }
  }

  private static final class MissingLibrary extends IOException {
    private static final long serialVersionUID = 1;
  }

  private static void loadFromJar(String name) throws IOException {
    Path file = Files.createTempFile("libweir_java", ".so");
    try (InputStream library = Native.class.getResourceAsStream(name)) {
      if (library == null) {
        throw new MissingLibrary();
      }
      Files.copy(library, file, StandardCopyOption.REPLACE_EXISTING);
      System.load(file.toString());
    } finally {
      // What is loaded stays without its name.
      Files.deleteIfExists(file);
    }
  }

  /** This machine, as the jar names it: {@code linux-x86_64}. */
  static String platform() {
    String os = System.getProperty("os.name").toLowerCase(Locale.ROOT).replace(' ', '_');
    String architecture = System.getProperty("os.arch").toLowerCase(Locale.ROOT);
    return os + "-" + ("amd64".equals(architecture) ? "x86_64" : architecture);
  }

  static native long connect(String address, String name, String location, long deadlineMillis) throws IOException;

  static native void disconnect(long store) throws IOException;

  /** One {@link Entry}. */
  static native byte[] stat(long store, byte[] path) throws IOException;

  /** Names of a directory behind {@code after}, which is empty at first: see {@link Entry.Page}. */
  static native byte[] list(long store, long container, byte[] after) throws IOException;

  static native void makeDirectory(long store, byte[] path, boolean parents, int mode) throws IOException;

  static native void rename(long store, byte[] from, byte[] to, boolean replace) throws IOException;

  static native void remove(long store, byte[] path, boolean recursive) throws IOException;

  /** What is -1 stays; {@code modified} is in nanoseconds since 1970. */
  static native void setAttributes(long store, byte[] path, int mode, int uid, int gid, long modified) throws IOException;

  /** Bytes of all classes, and of these the free ones. */
  static native long[] room(long store) throws IOException;

  /** Copies that a block of these classes can have now: as many as nodes have a drive of them that answers, 1 to 4. */
  static native int copiesOffered(long store, String classes) throws IOException;

  /** Where bytes of a file lie: see {@link Locations}. */
  static native byte[] locations(long store, byte[] path, long offset, long length) throws IOException;

  static native long openReader(long store, byte[] path) throws IOException;

  /** Bytes of the file. */
  static native long size(long reader) throws IOException;

  static native void closeReader(long reader) throws IOException;

  /** Reads at a position without a copy; fewer bytes only at the end of the file. */
  static native int readAtDirect(long reader, long position, ByteBuffer direct, int offset, int length) throws IOException;

  /** Reads at a position; fewer bytes only at the end of the file. */
  static native int readAt(long reader, long position, byte[] to, int offset, int length) throws IOException;

  /** Reads on, ahead: at least one byte, or 0 at the end of the file. */
  static native int readDirect(long reader, long position, ByteBuffer direct, int offset, int length) throws IOException;

  /** Reads on, ahead: at least one byte, or 0 at the end of the file. */
  static native int read(long reader, long position, byte[] to, int offset, int length) throws IOException;

  static native long create(
      long store, byte[] path, int mode, String classes, int copies, int block, boolean exclusive, boolean parents)
      throws IOException;

  static native long append(long store, byte[] path) throws IOException;

  /** Where a stream that writes began: bytes of the file before it. */
  static native long begin(long writer) throws IOException;

  static native void truncate(long store, byte[] path, long size) throws IOException;

  static native void write(long writer, byte[] from, int offset, int length) throws IOException;

  static native void writeDirect(long writer, ByteBuffer direct, int offset, int length) throws IOException;

  /** Publishes what was written. */
  static native void flush(long writer) throws IOException;

  /** Publishes what was written, and closes. */
  static native void closeWriter(long writer) throws IOException;

  /** Closes without publishing what was not flushed. */
  static native void abandonWriter(long writer) throws IOException;

  /** Streams that are open in this process, of all stores. */
  static native long openStreams() throws IOException;
}
