import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.Metric;
import org.apache.flink.metrics.MetricConfig;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.metrics.reporter.MetricReporter;
import org.apache.flink.metrics.reporter.MetricReporterFactory;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * Runs a SQL script in Flink's local cluster and tells its progress on standard output.
 *
 * <p>Usage: FlinkBench SCRIPT key=value... The script's last statement is the INSERT that is timed,
 * or a statement set of several. Its own lines of output are {"event", "at" (ms of the wall clock),
 * "records" (read by the sources)}; sinks that print have others. The job ends with its input, or
 * when standard input is closed.
 */
public final class FlinkBench {
  private static final long SAMPLE_MS = 100;
  private static final Map<Counter, String> SOURCES = new ConcurrentHashMap<>();

  public static void main(String[] args) throws Exception {
    Properties options = new Properties();
    for (int i = 1; i < args.length; i++) {
      String[] pair = args[i].split("=", 2);
      options.setProperty(pair[0], pair[1]);
    }
    Configuration configuration = new Configuration();
    options.forEach((key, value) -> configuration.setString((String) key, (String) value));
    configuration.setString("metrics.reporter.bench.factory.class", SourceCounter.class.getName());

    StreamExecutionEnvironment environment =
        StreamExecutionEnvironment.getExecutionEnvironment(configuration);
    StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
    TableResult result = null;
    for (String statement : Files.readString(Path.of(args[0])).split(";\\s*\\n")) {
      if (!statement.isBlank()) {
        result = tables.executeSql(statement);
      }
    }
    JobClient job = result.getJobClient().orElseThrow();
    cancelWhenInputCloses(job);
    for (JobStatus now = job.getJobStatus().get();
        now != JobStatus.RUNNING && !now.isGloballyTerminalState();
        now = job.getJobStatus().get()) {
      Thread.sleep(10);
    }
    report("running");
    Thread sampler = new Thread(FlinkBench::sample);
    sampler.setDaemon(true);
    sampler.start();
    try {
      result.await();
      sampler.interrupt();
      report("finished");
    } catch (Exception error) {
      boolean asked = job.getJobStatus().get() == JobStatus.CANCELED;
      report(asked ? "cancelled" : "failed");
      if (!asked) {
        throw error;
      }
    }
    System.exit(0);
  }

  private static void cancelWhenInputCloses(JobClient job) {
    Thread watch =
        new Thread(
            () -> {
              try {
                while (System.in.read() >= 0) {}
                job.cancel().get();
              } catch (Exception ended) {
                System.exit(1);
              }
            });
    watch.setDaemon(true);
    watch.start();
  }

  private static void sample() {
    try {
      while (true) {
        report("sample");
        Thread.sleep(SAMPLE_MS);
      }
    } catch (InterruptedException ended) {
      Thread.currentThread().interrupt(); // the main is done
    }
  }

  private static synchronized void report(String event) {
    long records = SOURCES.keySet().stream().mapToLong(Counter::getCount).sum();
    System.out.printf(
        "{\"event\":\"%s\",\"at\":%d,\"records\":%d}%n", event, System.currentTimeMillis(), records);
    System.out.flush();
  }

  /** Keeps the counters of records read by sources; found through META-INF/services. */
  public static final class SourceCounter implements MetricReporter, MetricReporterFactory {
    @Override
    public MetricReporter createMetricReporter(Properties properties) {
      return this;
    }

    @Override
    public void open(MetricConfig config) {}

    @Override
    public void close() {}

    @Override
    public void notifyOfAddedMetric(Metric metric, String name, MetricGroup group) {
      String operator = group.getAllVariables().getOrDefault("<operator_name>", "");
      if (name.equals("numRecordsIn") && operator.startsWith("Source")) {
        SOURCES.put((Counter) metric, operator);
      }
    }

    // A finished source still counts: its records were read.
    @Override
    public void notifyOfRemovedMetric(Metric metric, String name, MetricGroup group) {}
  }
}
