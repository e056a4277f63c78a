import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** The Java client as a program of the lab: the command line and events of clients/program.py. */
public final class LabClient {
    /** Records are reported together, at most once in this time. */
    private static final long REPORT_MS = 500;
    private static final Duration POLL = Duration.ofMillis(200);
    /** Time that an orderly end may take after SIGTERM. */
    private static final long STOP_MS = 60_000;

    private final Map<String, String> options;
    private final List<String> settings;
    private final AtomicBoolean stop = new AtomicBoolean();
    private final TreeSet<Integer> owned = new TreeSet<>();

    private LabClient(Map<String, String> options, List<String> settings) {
        this.options = options;
        this.settings = settings;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        List<String> settings = new ArrayList<>();
        // After the command each option has a value: `--name value`.
        for (int i = 1; i + 1 < arguments.length; i += 2) {
            if (arguments[i].equals("--set")) {
                settings.add(arguments[i + 1]);
            } else {
                options.put(arguments[i].substring(2), arguments[i + 1]);
            }
        }
        boolean consumes = arguments.length > 0 && arguments[0].equals("consume");
        boolean produces = arguments.length > 0 && arguments[0].equals("produce");
        boolean lacksGroup = consumes && !options.containsKey("group");
        if (!(consumes || produces)
                || !options.containsKey("bootstrap") || !options.containsKey("topic") || lacksGroup) {
            System.err.println("expected: consume --bootstrap B --topic T --group G [...]"
                    + " | produce --bootstrap B --topic T [...]; see clients/README.md");
            System.exit(2);
        }
        LabClient client = new LabClient(options, settings);
        Thread main = Thread.currentThread();
        // SIGTERM runs this hook, and the JVM ends when the hook returns. So the hook waits until
        // the main thread has closed its client.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            client.stop.set(true);
            try {
                main.join(STOP_MS);
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }));
        client.say("started", "\"command\":\"" + arguments[0] + "\",\"version\":\""
                + AppInfoParser.getVersion() + "\"");
        boolean isWell = consumes ? client.consume() : client.produce();
        System.out.flush();
        // Not System.exit: it would wait for the hook, and the hook waits for this thread. And not
        // the JVM's own end: after SIGTERM its exit code would be 143.
        Runtime.getRuntime().halt(isWell ? 0 : 1);
    }

    private String option(String name, String otherwise) {
        return options.getOrDefault(name, otherwise);
    }

    private Properties properties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", option("bootstrap", ""));
        properties.put("client.id", option("name", "java-0"));
        return properties;
    }

    private void applySettings(Properties properties) {
        for (String setting : settings) {
            int equals = setting.indexOf('=');
            properties.put(setting.substring(0, equals), setting.substring(equals + 1));
        }
    }

    // -- consumer ---------------------------------------------------------------------------

    private boolean consume() {
        Properties properties = properties();
        properties.put("group.id", option("group", ""));
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        applySettings(properties);
        long until = Long.parseLong(option("until", "0"));
        long commitMs = Math.round(Double.parseDouble(option("commit-interval", "0.5")) * 1000);
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties);
        consumer.subscribe(List.of(option("topic", "")), new Listener());
        // Records that were read and are not reported yet.
        List<String> waiting = new ArrayList<>();
        long total = 0;
        long reportedMs = now();
        long committedMs = now();
        boolean uncommitted = false;
        while (!stop.get() && !(until > 0 && total >= until)) {
            try {
                for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                    // Records of other producers may have no value.
                    String value = record.value() == null ? "" : record.value();
                    waiting.add("[" + record.partition() + "," + record.offset() + ","
                            + quoted(value.stripTrailing()) + "]");
                    total++;
                    uncommitted = true;
                }
            } catch (RuntimeException error) {
                // Errors are what the lab wants to see: the next poll tries again.
                failed("poll", error);
            }
            if (!waiting.isEmpty() && now() - reportedMs >= REPORT_MS) {
                reportRecords(waiting, total);
                reportedMs = now();
            }
            if (uncommitted && commitMs > 0 && now() - committedMs >= commitMs) {
                uncommitted = !commit(consumer);
                committedMs = now();
            }
        }

        if (!waiting.isEmpty()) {
            reportRecords(waiting, total);
        }
        if (uncommitted && commitMs > 0) {
            commit(consumer);
        }
        try {
            consumer.close();
        } catch (RuntimeException error) {
            failed("close", error);
        }
        say("closed", "\"total\":" + total);
        return true;
    }

    private void reportRecords(List<String> waiting, long total) {
        say("records", "\"records\":[" + String.join(",", waiting) + "],\"total\":" + total);
        waiting.clear();
    }

    private boolean commit(KafkaConsumer<String, String> consumer) {
        long beganMs = now();
        try {
            consumer.commitSync();
        } catch (RuntimeException error) {
            say("commit_failed", errorFields(error) + ",\"took_s\":" + (now() - beganMs) / 1000.0);
            return false;
        }
        say("committed", "\"took_s\":" + (now() - beganMs) / 1000.0);
        return true;
    }

    private final class Listener implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            partitions.forEach(each -> owned.add(each.partition()));
            changed("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            partitions.forEach(each -> owned.remove(each.partition()));
            changed("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            partitions.forEach(each -> owned.remove(each.partition()));
            changed("lost", partitions);
        }

        private void changed(String event, Collection<TopicPartition> partitions) {
            List<Integer> changed = partitions.stream().map(TopicPartition::partition).sorted()
                    .collect(Collectors.toList());
            say(event, "\"partitions\":" + changed + ",\"owned\":" + owned);
        }
    }

    // -- producer ---------------------------------------------------------------------------

    private boolean produce() throws InterruptedException {
        Properties properties = properties();
        properties.put("acks", "all");
        properties.put("key.serializer", StringSerializer.class.getName());
        properties.put("value.serializer", StringSerializer.class.getName());
        applySettings(properties);
        long count = Long.parseLong(option("count", "1000"));
        double rate = Double.parseDouble(option("rate", "0"));
        int valueBytes = Integer.parseInt(option("value-bytes", "0"));
        Answers answers = new Answers();
        KafkaProducer<String, String> producer = new KafkaProducer<>(properties);
        long beganMs = now();
        long number = 0;
        while (!stop.get() && !(count > 0 && number >= count)) {
            if (rate > 0) {
                // Record n is due n / rate seconds after the first.
                long dueMs = beganMs + Math.round(number * 1000 / rate);
                while (now() < dueMs && !stop.get()) {
                    Thread.sleep(Math.min(dueMs - now(), POLL.toMillis()));
                    answers.report(false);
                }
            }
            String value = option("name", "java-0") + ":" + number;
            // Spaces fill the value up; a consumer strips them.
            if (value.length() < valueBytes) {
                value += " ".repeat(valueBytes - value.length());
            }
            long sent = number;
            producer.send(new ProducerRecord<>(option("topic", ""), "k" + number, value),
                    (stored, error) -> answers.take(sent, stored == null ? -1 : stored.partition(),
                            stored == null ? -1 : stored.offset(), error));
            number++;
            answers.report(false);
        }
        producer.close(Duration.ofSeconds(120));

        answers.report(true);
        say("produced", "\"sent\":" + number + ",\"acknowledged\":" + answers.stored
                + ",\"refused\":" + answers.refused);
        return answers.refused == 0 && answers.stored == number;
    }

    /** Answers to sent records: the producer's own thread adds them, the main thread reports. */
    private final class Answers {
        /** Stored records that are not reported yet. */
        private List<String> waiting = new ArrayList<>();
        private long reportedMs = now();
        private long stored;
        private long refused;

        private synchronized void take(long number, int partition, long offset, Exception error) {
            if (error != null) {
                refused++;
                say("refused", "\"number\":" + number + ",\"error\":" + quoted(error.toString()));
            } else {
                stored++;
                waiting.add("[" + number + "," + partition + "," + offset + "]");
            }
        }

        private synchronized void report(boolean atOnce) {
            if (waiting.isEmpty() || !atOnce && now() - reportedMs < REPORT_MS) {
                return;
            }
            reportedMs = now();
            say("acknowledged", "\"records\":[" + String.join(",", waiting) + "],\"total\":" + stored);
            waiting = new ArrayList<>();
        }
    }

    // -- events -----------------------------------------------------------------------------

    private static long now() {
        return System.nanoTime() / 1_000_000;
    }

    /** Seconds since the epoch, as text: Java would print a double as 1.79E9. */
    private static String secondsSinceEpoch() {
        long ms = System.currentTimeMillis();
        return ms / 1000 + "." + String.format("%03d", ms % 1000);
    }

    /** Print one event. `fields` are the event's own fields, already written as JSON. */
    private synchronized void say(String event, String fields) {
        System.out.println("{\"t\":" + secondsSinceEpoch() + ",\"event\":\"" + event
                + "\",\"client\":\"java\",\"name\":" + quoted(option("name", "java-0")) + "," + fields
                + "}");
        System.out.flush();
    }

    private void failed(String what, Exception error) {
        say("error", "\"during\":\"" + what + "\"," + errorFields(error));
    }

    private static String errorFields(Exception error) {
        return "\"error\":\"" + error.getClass().getSimpleName() + "\",\"message\":"
                + quoted(String.valueOf(error.getMessage()));
    }

    /** Return `text` as a JSON string. */
    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            switch (each) {
                case '"' -> quoted.append("\\\"");
                case '\\' -> quoted.append("\\\\");
                case '\n' -> quoted.append("\\n");
                case '\t' -> quoted.append("\\t");
                default -> {
                    if (each < ' ') {
                        quoted.append(String.format("\\u%04x", (int) each));
                    } else {
                        quoted.append(each);
                    }
                }
            }
        }
        return quoted.append('"').toString();
    }
}
