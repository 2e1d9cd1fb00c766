package io.weir.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.ConnectException;
import java.net.SocketTimeoutException;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.PathIOException;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.util.DiskChecker.DiskOutOfSpaceException;

/** What can go wrong, and the exception of Hadoop that says it. The native part names these constants. */
enum Failure {
  NOT_FOUND,
  EXISTS,
  NOT_DIRECTORY,
  IS_DIRECTORY,
  NOT_EMPTY,
  /** The root cannot be renamed or deleted. */
  ROOT,
  /** Another client writes it. */
  BUSY,
  /** No class of the file has room. */
  FULL,
  /** A name that the store does not take. */
  NAME,
  INTO_ITSELF,
  NO_ATTRIBUTE,
  /** It can be asked again soon. */
  PASSING,
  LATE,
  UNREACHABLE,
  USAGE,
  SESSION_OVER,
  /** A stream or a file system that is used after it was closed. */
  CLOSED,
  OTHER;

  /** A path that cannot be moved into itself. */
  static final class IntoItselfException extends PathIOException {
    private static final long serialVersionUID = 1;

    IntoItselfException(String path, String reason) {
      super(path, reason);
    }
  }

  /** The exception for a failure; the native part calls it. {@code reason} is a sentence, which may begin with the path. */
  static IOException exception(String kind, String path, String reason) {
    return valueOf(kind).exception(path, reason);
  }

  private IOException exception(String path, String reason) {
    String alone = !path.isEmpty() && reason.startsWith(path + ": ") ? reason.substring(path.length() + 2) : reason;
    switch (this) {
      case NOT_FOUND:
      case IS_DIRECTORY:
        return new FileNotFoundException(reason);
      case EXISTS:
        return new FileAlreadyExistsException(reason);
      case NOT_DIRECTORY:
        return new ParentNotDirectoryException(reason);
      case NOT_EMPTY:
        return new PathIsNotEmptyDirectoryException(path);
      case FULL:
        return new DiskOutOfSpaceException(reason);
      case LATE:
        return new SocketTimeoutException(reason);
      case UNREACHABLE:
        return new ConnectException(reason);
      case INTO_ITSELF:
        return new IntoItselfException(path, alone);
      case ROOT:
      case BUSY:
      case NAME:
      case NO_ATTRIBUTE:
      case PASSING:
        return new PathIOException(path, alone);
      default:
        return new IOException(reason);
    }
  }
}
