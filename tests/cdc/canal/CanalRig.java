import com.alibaba.fastjson2.JSON;
import com.alibaba.otter.canal.connector.core.producer.MQDestination;
import com.alibaba.otter.canal.connector.core.util.Callback;
import com.alibaba.otter.canal.connector.kafka.producer.CanalKafkaProducer;
import com.alibaba.otter.canal.instance.manager.CanalInstanceWithManager;
import com.alibaba.otter.canal.instance.manager.model.Canal;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter;
import com.alibaba.otter.canal.parse.inbound.mysql.MysqlEventParser;
import com.alibaba.otter.canal.parse.inbound.mysql.tsdb.DatabaseTableMeta;
import com.alibaba.otter.canal.parse.inbound.mysql.tsdb.TableMetaTSDB;
import com.alibaba.otter.canal.parse.inbound.mysql.tsdb.TableMetaTSDBFactory;
import com.alibaba.otter.canal.parse.inbound.mysql.tsdb.dao.MetaHistoryDAO;
import com.alibaba.otter.canal.parse.inbound.mysql.tsdb.dao.MetaHistoryDO;
import com.alibaba.otter.canal.parse.inbound.mysql.tsdb.dao.MetaSnapshotDAO;
import com.alibaba.otter.canal.parse.inbound.mysql.tsdb.dao.MetaSnapshotDO;
import com.alibaba.otter.canal.protocol.ClientIdentity;
import com.alibaba.otter.canal.protocol.Message;
import com.alibaba.otter.canal.server.embedded.CanalServerWithEmbedded;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * One canal instance in one process: a database's binlog in, flat messages in Kafka out.
 *
 * Parser, store, position file, partitioner, JSON and producer are canal's own classes. Ours are
 * these settings, the loop of get, send and ack, and a file for canal's table definitions.
 * Usage: CanalRig FILE.properties (tests/cdc/canal.py writes it).
 */
public class CanalRig {
    static final String NAME = "rig";
    static final int BATCH = 50;

    public static void main(String[] arguments) {
        try {
            run(arguments[0]);
        } catch (InterruptedException stopped) {
            // The shutdown hook does the rest.
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    static void run(String file) throws Exception {
        Properties settings = new Properties();
        try (var in = Files.newBufferedReader(Path.of(file))) {
            settings.load(in);
        }
        CanalServerWithEmbedded server = CanalServerWithEmbedded.instance();
        server.setCanalInstanceGenerator(name -> instance(settings));
        server.start();
        server.start(NAME);
        ClientIdentity reader = new ClientIdentity(NAME, (short) 1001);
        server.subscribe(reader);

        CanalKafkaProducer producer = new CanalKafkaProducer();
        producer.init(producerSettings(settings));
        MQDestination target = new MQDestination();
        target.setCanalDestination(NAME);
        target.setTopic(settings.getProperty("topic"));
        target.setPartitionsNum(Integer.valueOf(settings.getProperty("partitions")));
        target.setPartitionHash(settings.getProperty("partitionHash"));
        target.setDynamicTopic(settings.getProperty("dynamicTopic"));
        target.setEnableDynamicQueuePartition(false);

        Thread loop = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            loop.interrupt();
            server.stop(NAME); // writes the position
            server.stop();
        }));
        System.out.println("canal reads");
        while (!loop.isInterrupted()) {
            Message batch = server.getWithoutAck(reader, BATCH, 100L, TimeUnit.MILLISECONDS);
            boolean empty = (batch.isRaw() ? batch.getRawEntries() : batch.getEntries()).isEmpty();
            if (batch.getId() == -1 || empty) {
                Thread.sleep(20);
            } else if (isSent(producer, target, batch)) {
                server.ack(reader, batch.getId());
            } else {
                System.err.println("batch " + batch.getId() + " was not sent; once more");
                server.rollback(reader);
                Thread.sleep(1000);
            }
        }
    }

    /** Wait until canal's producer reports that Kafka has the whole batch, or has not. */
    static boolean isSent(CanalKafkaProducer producer, MQDestination target, Message batch)
            throws Exception {
        CompletableFuture<Boolean> answer = new CompletableFuture<>();
        producer.send(target, batch, new Callback() {
            @Override public void commit() { answer.complete(true); }
            @Override public void rollback() { answer.complete(false); }
        });
        return answer.get(5, TimeUnit.MINUTES);
    }

    static CanalInstanceWithManager instance(Properties settings) {
        Path home = Path.of(settings.getProperty("home"));
        CanalParameter p = new CanalParameter();
        p.setRunMode(CanalParameter.RunMode.EMBEDDED);
        p.setClusterMode(CanalParameter.ClusterMode.STANDALONE);
        p.setMetaMode(CanalParameter.MetaMode.LOCAL_FILE); // the position, written once a second
        p.setDataDir(home.toString());
        p.setMetaFileFlushPeriod(1000);
        p.setIndexMode(CanalParameter.IndexMode.MEMORY_META_FAILBACK);
        p.setStorageMode(CanalParameter.StorageMode.MEMORY);
        p.setStorageBatchMode(CanalParameter.BatchMode.MEMSIZE);
        p.setMemoryStorageBufferSize(16384);
        p.setMemoryStorageBufferMemUnit(1024);
        p.setSourcingType(CanalParameter.SourcingType.MYSQL);
        p.setHaMode(CanalParameter.HAMode.HEARTBEAT);
        p.setDetectingEnable(false);
        p.setParallel(true);
        p.setSlaveId(4200L);
        p.setConnectionCharset("UTF-8");
        int port = Integer.parseInt(settings.getProperty("port"));
        p.setDbAddresses(List.of(new InetSocketAddress("127.0.0.1", port)));
        p.setDbUsername(settings.getProperty("user"));
        p.setDbPassword(settings.getProperty("password"));
        String[] start = settings.getProperty("start").split(":"); // without a position file
        p.setPositions(List.of(JSON.toJSONString(
            Map.of("journalName", start[0], "position", Long.valueOf(start[1])))));
        p.setTsdbEnable(false); // below, with a factory of our own
        Canal canal = new Canal();
        canal.setId(1L);
        canal.setName(NAME);
        canal.setCanalParameter(p);
        var made = new CanalInstanceWithManager(canal, settings.getProperty("filter"));
        MysqlEventParser parser = (MysqlEventParser) made.getEventParser();
        parser.setTableMetaTSDBFactory(new Definitions(home));
        parser.setTsdbSpringXml("unused"); // the factory ignores these four, but null is refused
        parser.setTsdbJdbcUrl("unused");
        parser.setTsdbJdbcUserName("unused");
        parser.setTsdbJdbcPassword("unused");
        parser.setTsdbSnapshotInterval(24);
        parser.setTsdbSnapshotExpire(360);
        parser.setEnableTsdb(true);
        return made;
    }

    static Properties producerSettings(Properties settings) {
        Properties p = new Properties();
        p.put("canal.mq.flatMessage", "true");
        p.put("canal.mq.database.hash", "true");
        p.put("canal.mq.build.thread.size", "2");
        p.put("canal.mq.send.thread.size", "4");
        p.put("kafka.bootstrap.servers", settings.getProperty("brokers"));
        p.put("kafka.acks", "all");
        p.put("kafka.max.in.flight.requests.per.connection", "1");
        p.put("kafka.max.request.size", "8388608");
        p.put("kafka.linger.ms", "1");
        p.put("kafka.kerberos.enable", "false");
        return p;
    }

    /** Canal's table definitions over time, in two files of JSON lines instead of H2. */
    record Definitions(Path home) implements TableMetaTSDBFactory {
        @Override public TableMetaTSDB build(String destination, String springXml) {
            DatabaseTableMeta made = new DatabaseTableMeta();
            made.setMetaHistoryDAO(new History(home.resolve("definitions.jsonl")));
            made.setMetaSnapshotDAO(new Snapshots(home.resolve("definition-snapshots.jsonl")));
            made.init(destination);
            return made;
        }

        @Override public void destory(String destination) { }
    }

    static class History extends MetaHistoryDAO {
        final Lines<MetaHistoryDO> lines;

        History(Path file) { lines = new Lines<>(file, MetaHistoryDO.class); }

        /** Add a statement, unless canal has read it again after a restart. */
        @Override public Long insert(MetaHistoryDO row) {
            boolean known = lines.rows.stream().anyMatch(
                o -> Objects.equals(o.getBinlogFile(), row.getBinlogFile())
                    && Objects.equals(o.getBinlogOffest(), row.getBinlogOffest()));
            return known ? 0L : lines.add(row);
        }

        @Override public List<MetaHistoryDO> findByTimestamp(String name, Long from, Long to) {
            return lines.rows.stream()
                .filter(o -> from == null || o.getBinlogTimestamp() >= from)
                .filter(o -> to == null || o.getBinlogTimestamp() <= to)
                .sorted(Comparator.comparing(MetaHistoryDO::getBinlogFile)
                    .thenComparing(MetaHistoryDO::getBinlogOffest))
                .collect(Collectors.toList());
        }

        @Override public Integer deleteByTimestamp(String name, int seconds) { return 0; }
    }

    static class Snapshots extends MetaSnapshotDAO {
        final Lines<MetaSnapshotDO> lines;

        Snapshots(Path file) { lines = new Lines<>(file, MetaSnapshotDO.class); }

        @Override public Long insert(MetaSnapshotDO row) { return lines.add(row); }

        @Override public Long update(MetaSnapshotDO row) { return lines.add(row); }

        @Override public MetaSnapshotDO findByTimestamp(String name, Long before) {
            return lines.rows.stream()
                .filter(o -> before == null || o.getBinlogTimestamp() < before)
                .max(Comparator.comparing(MetaSnapshotDO::getBinlogTimestamp)).orElse(null);
        }

        @Override public Integer deleteByTimestamp(String name, int seconds) { return 0; }
    }

    /** Rows in memory and in a file. The last line is dropped if a kill has cut it short. */
    static class Lines<T> {
        final Path file;
        final List<T> rows = new java.util.concurrent.CopyOnWriteArrayList<>();

        Lines(Path file, Class<T> type) {
            this.file = file;
            try {
                List<String> whole = new ArrayList<>();
                for (String line : Files.exists(file) ? Files.readAllLines(file) : whole) {
                    try {
                        rows.add(JSON.parseObject(line, type));
                        whole.add(line);
                    } catch (RuntimeException cut) {
                        System.err.println(file + ": a line cannot be read");
                    }
                }
                Files.write(file, whole);
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }

        synchronized long add(T row) {
            rows.add(row);
            try {
                Files.write(file, List.of(JSON.toJSONString(row)),
                    StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
            return rows.size();
        }
    }
}
