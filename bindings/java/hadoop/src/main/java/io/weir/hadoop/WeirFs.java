package io.weir.hadoop;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;

/** The same file system for {@code FileContext}: {@code fs.AbstractFileSystem.weir.impl=io.weir.hadoop.WeirFs}. */
public class WeirFs extends DelegateToFileSystem {
  /**
   * For {@code AbstractFileSystem}, which makes it by this constructor.
   *
   * @param uri {@code weir://HOST:PORT} or {@code weir:///}
   * @param conf with the keys of {@link WeirFileSystem}
   * @throws IOException the store cannot be reached
   * @throws URISyntaxException it is no address of a store
   */
  public WeirFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(uri, new WeirFileSystem(), conf, WeirFileSystem.SCHEME, false);
  }

  @Override
  public int getUriDefaultPort() {
    return -1;
  }
}
