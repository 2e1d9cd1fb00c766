package io.weir.hadoop;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/** Names of this machine's users or groups for the numbers that the store keeps: those of {@code /etc/passwd} and {@code /etc/group}. */
final class Owners {
  static final Owners USERS = new Owners(Path.of("/etc/passwd"));
  static final Owners GROUPS = new Owners(Path.of("/etc/group"));

  private final Map<Integer, String> names = new HashMap<>();
  private final Map<String, Integer> numbers = new HashMap<>();
  private final Path file;

  private Owners(Path file) {
    this.file = file;
    try {
      for (String line : Files.readAllLines(file, StandardCharsets.ISO_8859_1)) {
        String[] fields = line.split(":");
        if (fields.length > 2 && fields[2].matches("[0-9]{1,9}")) {
          names.putIfAbsent(Integer.valueOf(fields[2]), fields[0]);
          numbers.putIfAbsent(fields[0], Integer.valueOf(fields[2]));
        }
      }
    } catch (IOException e) {
      // Without the file everybody is a number.
      names.clear();
    }
  }

  /** The name, or the number itself where there is none. */
  String name(int number) {
    String name = names.get(number);
    return name == null ? Integer.toUnsignedString(number) : name;
  }

  /**
   * The number of a name, or -1 for null.
   *
   * @throws IOException this machine has no such name, and it is no number
   */
  int number(String name) throws IOException {
    if (name == null || name.isEmpty()) {
      return -1;
    }
    Integer number = numbers.get(name);
    if (number != null) {
      return number;
    }
    if (name.matches("[0-9]{1,9}")) {
      return Integer.parseInt(name);
    }
    throw new IOException("\"" + name + "\" is not in " + file + ": give a name that is, or a number");
  }
}
