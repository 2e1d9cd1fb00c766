package io.weir.hadoop.contract;

import java.util.ArrayList;
import java.util.List;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/**
 * Runs Hadoop's contract tests, or those whose names are given, and says what each came to: {@code failed NAME: WHY} and
 * {@code skipped NAME: WHY}, then {@code contract: N passed, N failed, N skipped}. Exit status 1: something failed.
 */
public final class Contracts {
  private static final Class<?>[] ALL = {
    TestWeirContractAppend.class,
    TestWeirContractBulkDelete.class,
    TestWeirContractContentSummary.class,
    TestWeirContractCopyFromLocal.class,
    TestWeirContractCreate.class,
    TestWeirContractDelete.class,
    TestWeirContractGetEnclosingRoot.class,
    TestWeirContractGetFileStatus.class,
    TestWeirContractMkdir.class,
    TestWeirContractOpen.class,
    TestWeirContractRename.class,
    TestWeirContractRootDirectory.class,
    TestWeirContractSeek.class,
    TestWeirContractSetTimes.class,
    TestWeirContractVectoredRead.class,
  };

  private Contracts() {}

  /** Prints what each test came to, and counts. */
  private static final class Count extends RunListener {
    private int run;
    private int failed;
    private int skipped;

    private static String line(String what, Failure failure) {
      String why = String.valueOf(failure.getMessage()).replace('\n', ' ');
      return what + " " + failure.getDescription().getDisplayName() + ": " + why;
    }

    @Override
    public void testStarted(Description description) {
      run++;
    }

    @Override
    public void testFailure(Failure failure) {
      failed++;
      System.out.println(line("failed", failure));
      System.out.println(failure.getTrace());
    }

    @Override
    public void testAssumptionFailure(Failure failure) {
      skipped++;
      System.out.println(line("skipped", failure));
    }

    @Override
    public void testIgnored(Description description) {
      run++;
      skipped++;
      System.out.println("skipped " + description.getDisplayName() + ": it is ignored");
    }
  }

  /**
   * See the class.
   *
   * @param names parts of names of the classes to run; none: all
   */
  public static void main(String[] names) {
    List<Class<?>> wanted = new ArrayList<>();
    for (Class<?> one : ALL) {
      boolean isNamed = names.length == 0;
      for (String name : names) {
        isNamed |= one.getSimpleName().contains(name);
      }
      if (isNamed) {
        wanted.add(one);
      }
    }
    JUnitCore core = new JUnitCore();
    Count count = new Count();
    core.addListener(count);
    core.run(wanted.toArray(new Class<?>[0]));
    int passed = count.run - count.failed - count.skipped;
    System.out.println("contract: " + passed + " passed, " + count.failed + " failed, " + count.skipped + " skipped");
    System.exit(count.failed == 0 && passed > 0 ? 0 : 1);
  }
}
