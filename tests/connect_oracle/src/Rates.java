import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Values;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.function.Supplier;

/**
 * How often a second Kafka Connect's own classes do what cases ask for, without the JSON around it: records, values
 * and objects are made beforehand. Reads a JSON array of cases a line, and writes a rate a line: operations a second,
 * the best of several runs. The argument is how many milliseconds each line gets.
 */
public class Rates {
    private static final int RUNS = 10;
    /** Where results go, so that none is left out as unused. */
    static Object sink;

    public static void main(String[] args) throws Exception {
        long nanosOfRun = Long.parseLong(args[0]) * 1_000_000L / RUNS;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = in.readLine()) != null) {
            List<Supplier<?>> work = new ArrayList<>();
            for (JsonNode c : Oracle.M.readTree(line)) work.add(of(c));
            double best = 0;
            for (int run = 0; run < RUNS; run++) best = Math.max(best, rate(work, nanosOfRun));
            System.out.println(String.format(Locale.ROOT, "%.0f", best));
            System.out.flush();
        }
    }

    private static double rate(List<Supplier<?>> work, long nanos) {
        long began = System.nanoTime(), done = 0, now = began;
        while (now - began < nanos) {
            for (int i = 0; i < 100; i++) for (Supplier<?> each : work) sink = each.get();
            done += 100L * work.size();
            now = System.nanoTime();
        }
        return done * 1e9 / (now - began);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Supplier<?> of(JsonNode c) throws Exception {
        switch (c.get("op").asText()) {
            case "smt": {
                Transformation transform = Oracle.smt(c);
                ConnectRecord record = Oracle.record(c.get("record"));
                return () -> transform.apply(record);
            }
            case "parseString": {
                String text = c.get("s").asText();
                return () -> Values.parseString(text);
            }
            case "header.to": {
                HeaderConverter converter = Oracle.headerConverter(c.get("converter").asText(), c.get("config"));
                byte[] data = Oracle.bytes(c);
                return () -> converter.toConnectHeader("t", "h", data);
            }
            case "header.from": {
                HeaderConverter converter = Oracle.headerConverter(c.get("converter").asText(), c.get("config"));
                Schema schema = Oracle.schema(c.get("schema"));
                Object value = Oracle.value(c.get("value"), schema);
                return () -> converter.fromConnectHeader("t", "h", schema, value);
            }
            default: throw new IllegalArgumentException("no rate of " + c.get("op"));
        }
    }
}
