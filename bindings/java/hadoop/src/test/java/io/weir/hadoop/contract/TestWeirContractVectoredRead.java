package io.weir.hadoop.contract;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractFSContract;
import org.apache.hadoop.fs.contract.AbstractContractVectoredReadTest;

/** Hadoop's own tests, with buffers on the heap and direct ones. */
public class TestWeirContractVectoredRead extends AbstractContractVectoredReadTest {
  public TestWeirContractVectoredRead(String bufferType) {
    super(bufferType);
  }

  @Override
  protected AbstractFSContract createContract(Configuration conf) {
    return new WeirContract(conf);
  }
}
