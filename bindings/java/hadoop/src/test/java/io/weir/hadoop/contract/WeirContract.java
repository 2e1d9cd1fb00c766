package io.weir.hadoop.contract;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.contract.AbstractFSContract;

/** What the file system promises ({@code contract/weir.xml}), at the store whose address is the system property {@code weir.address}. */
final class WeirContract extends AbstractFSContract {
  WeirContract(Configuration conf) {
    super(conf);
    addConfResource("contract/weir.xml");
    conf.set("fs.weir.address", System.getProperty("weir.address"));
  }

  @Override
  public FileSystem getTestFileSystem() throws IOException {
    return FileSystem.get(URI.create("weir:///"), getConf());
  }

  @Override
  public String getScheme() {
    return "weir";
  }

  @Override
  public Path getTestPath() {
    return new Path("/contract");
  }
}
