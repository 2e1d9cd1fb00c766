package io.weir.hadoop;

import java.io.IOException;
import java.lang.ref.Cleaner;
import java.util.concurrent.atomic.AtomicBoolean;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The native part of a stream. It goes when the stream is closed, and else when nothing refers to the stream any more: then with a warning,
 * and what a writer has not flushed is lost.
 */
final class OpenFile {
  /** What is done with the file. */
  enum Use {
    READ,
    WRITE
  }

  private static final Logger LOG = LoggerFactory.getLogger(OpenFile.class);
  private static final Cleaner CLEANER = Cleaner.create();

  /** As {@link Native} knows it. */
  final long number;
  private final State state;
  private final Cleaner.Cleanable cleanable;

  /**
   * Watches over what is open already.
   *
   * @param stream that it goes with
   * @param path that the warning names
   */
  OpenFile(Object stream, Use use, long number, String path) {
    this.number = number;
    state = new State(use, number, path);
    cleanable = CLEANER.register(stream, state);
  }

  /** Whether {@link #close} was called. */
  boolean isClosed() {
    return state.isOver.get();
  }

  /** Closes it, a writer's file with what was written published. The second time it does nothing. */
  void close() throws IOException {
    if (state.isOver.compareAndSet(false, true)) {
      try {
        if (state.use == Use.READ) {
          Native.closeReader(number);
        } else {
          Native.closeWriter(number);
        }
      } finally {
        cleanable.clean();
      }
    }
  }

  /** What the cleaner has of it: nothing that refers to the stream. */
  private static final class State implements Runnable {
    private final Use use;
    private final long number;
    private final String path;
    private final AtomicBoolean isOver = new AtomicBoolean();

    State(Use use, long number, String path) {
      this.use = use;
      this.number = number;
      this.path = path;
    }

    @Override
    public void run() {
      if (!isOver.compareAndSet(false, true)) {
        return;
      }
      try {
        if (use == Use.READ) {
          LOG.warn("{}: a stream that reads it was never closed; it is closed here. Close streams, best with try (...)", path);
          Native.closeReader(number);
        } else {
          LOG.warn("{}: a stream that writes it was never closed: what it had not flushed is lost. Close streams, best with try (...)", path);
          Native.abandonWriter(number);
        }
      } catch (IOException e) {
        LOG.warn("{}: its stream cannot be closed", path, e);
      }
    }
  }
}
