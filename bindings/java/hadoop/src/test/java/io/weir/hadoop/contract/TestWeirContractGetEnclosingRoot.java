package io.weir.hadoop.contract;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractFSContract;
import org.apache.hadoop.fs.contract.AbstractContractGetEnclosingRoot;

/** Hadoop's own tests. */
public class TestWeirContractGetEnclosingRoot extends AbstractContractGetEnclosingRoot {
  @Override
  protected AbstractFSContract createContract(Configuration conf) {
    return new WeirContract(conf);
  }
}
